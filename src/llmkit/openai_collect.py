"""A stream told as a whole answer.

Decides how deltas join to a message: texts and arguments one after the other, calls by their index, everything else as
it came last; and whether the answer made of a stream is all that the stream said. Pure; the chunks have been through a
ChunkShaper, which says whether they may end where they do.

Rules: nulls say nothing; neither does obfuscation, which is padding against those who measure the lengths of chunks.
"""

from collections.abc import Callable
from typing import Any, Final

from llmkit import wire_json
from llmkit.openai import usage_object, written_bytes
from llmkit.openai_replay import HEAD, TEXTS, said
from llmkit.types import Usage
from llmkit.wire_json import JsonObject

_PADDING: Final = "obfuscation"
_FORM: Final = frozenset({*HEAD, _PADDING, "object", "choices"})
_SAID_ONCE: Final = frozenset({"role", "finish_reason", "type", "id"})


class Collector:
    """Joins the chunks of one stream; not for two threads at once."""

    def __init__(self) -> None:
        self._answer: JsonObject = {}
        self._choices: dict[int, _Choice] = {}

    def feed(self, payload: bytes) -> None:
        """Take the next chunk."""
        self.take(wire_json.decode(payload))

    def take(self, chunk: JsonObject) -> None:
        """The same, decoded; it is the collector's from then on."""
        chunk.pop(_PADDING, None)
        for choice in chunk.pop("choices"):
            known = self._choices.setdefault(choice["index"], _Choice())
            delta = choice.pop("delta")
            for call in delta.pop("tool_calls", None) or ():
                _join(known.calls.setdefault(call["index"], {}), call)
            _join(known.message, delta)
            _join(known.fields, choice)
        self._answer |= said(chunk)

    def completion(self, usage: Usage | None, *, ends_oddly: bool = False) -> bytes:
        """The answer so far.

        usage       what the upstream reported for it
        ends_oddly  whether a "stop" may stand for a reason that nobody knows: then none is given, so that the answer
                    does not pass for one that is known to be whole
        """
        choices = [choice.whole() for _, choice in sorted(self._choices.items())]
        for choice in choices:
            if ends_oddly and choice["finish_reason"] == "stop":
                choice["finish_reason"] = None
        answer = {**self._answer, "object": "chat.completion", "choices": choices}
        if usage is not None:
            answer["usage"] = usage_object(usage)
        return wire_json.encode(answer)


class Assembler:
    """Collects a stream that may be remembered as an answer: only if the answer is all that the stream said, in one
    choice that ended with `stop`. Not for two threads at once.

    max_bytes  of text beyond which the stream amounts to no answer; a chunk with log probabilities counts whole
    may_hold   whether there is room for so many bytes of it altogether; if not, the stream amounts to none either
    """

    def __init__(self, max_bytes: int, may_hold: Callable[[int], bool] = lambda held: True) -> None:
        self._max_bytes = max_bytes
        self._may_hold = may_hold
        self._held_bytes = 0
        self._fits = True
        self._finished = False
        self._head: JsonObject = {}
        self._collector = Collector()

    def feed(self, payload: bytes) -> None:
        """Take the next chunk, as ChunkShaper lets it leave. Once the stream is unfit, nothing is kept of it."""
        if not self._fits:
            return
        chunk = wire_json.decode(payload)
        self._fits = self._chunk_fits(chunk) and all(self._choice_fits(each, payload) for each in chunk["choices"])
        if self._fits:
            self._collector.take(chunk)
        else:
            self._collector = Collector()

    def completion(self, usage: Usage) -> bytes | None:
        """The answer that the stream amounts to, with this usage; None if it amounts to none."""
        return self._collector.completion(usage) if self._fits and self._finished else None

    def _chunk_fits(self, chunk: JsonObject) -> bool:
        """Whether a chunk has no field but the form's, and its head is that of the others."""
        fields = said(chunk)
        return fields.keys() <= _FORM and all(
            self._head.setdefault(key, fields[key]) == fields[key] for key in HEAD if key in fields
        )

    def _choice_fits(self, choice: JsonObject, payload: bytes) -> bool:
        """Whether what a choice says has a place in the answer, and room; notes whether it is the end."""
        fields, delta = said(choice), said(choice["delta"])
        logprobs = fields.get("logprobs")
        self._held_bytes += written_bytes(delta) if logprobs is None else len(payload)
        self._finished, ended = "finish_reason" in fields, self._finished
        return (
            not ended
            and self._held_bytes <= self._max_bytes
            and self._may_hold(self._held_bytes)
            and fields.keys() <= {"index", "delta", "finish_reason", "logprobs"}
            and (choice["index"], fields.get("finish_reason", "stop")) == (0, "stop")
            and delta.pop("role", "assistant") == "assistant"
            and all(key in TEXTS and type(text) is str for key, text in delta.items())
            and (logprobs is None or _are_lists(logprobs))
        )


def _are_lists(logprobs: Any) -> bool:
    """Whether log probabilities have the form in which they can be joined."""
    return type(logprobs) is dict and all(
        key in ("content", "refusal") and type(tokens) in (list, type(None)) for key, tokens in logprobs.items()
    )


class _Choice:
    """What one choice has said so far: its message, the calls of it by their index, and what stands beside it."""

    __slots__ = ("calls", "fields", "message")

    def __init__(self) -> None:
        self.message: JsonObject = {"content": None, "refusal": None}
        self.calls: dict[int, JsonObject] = {}
        self.fields: JsonObject = {"logprobs": None}

    def whole(self) -> JsonObject:
        calls = {"tool_calls": list(self.calls.values())} if self.calls else {}
        return {**self.fields, "message": self.message | calls}


def _join(known: JsonObject, told: JsonObject, *, inside: bool = False) -> None:
    """Add what a chunk says to what is known; `inside` a value, where a null is part of the form."""
    for key, value in told.items():
        before = known.get(key)
        if isinstance(value, str) and isinstance(before, str) and key not in _SAID_ONCE:
            known[key] = None  # the text's only other holder: it grows in place instead of being copied
            before += value
            known[key] = before
        elif isinstance(value, dict) and isinstance(before, dict):
            _join(before, value, inside=True)
        elif isinstance(value, list) and isinstance(before, list):
            before += value
        elif value is not None:
            known[key] = value
        elif inside:
            known.setdefault(key, None)
