"""A stream that came although none was asked for, made the whole answer that was.

Decides how deltas join to a message: texts and arguments one after the other, calls by their index, everything else as
it came last. Pure; the chunks have been through a ChunkShaper, which says whether they may end where they do.
"""

from llmkit import wire_json
from llmkit.openai import usage_object
from llmkit.types import Usage
from llmkit.wire_json import JsonObject


class Collector:
    """Joins the chunks of one stream; not for two threads at once."""

    def __init__(self) -> None:
        self._answer: JsonObject = {}
        self._choices: dict[int, _Choice] = {}

    def feed(self, payload: bytes) -> None:
        """Take the next chunk."""
        chunk = wire_json.decode(payload)
        for choice in chunk.pop("choices"):
            known = self._choices.setdefault(choice["index"], _Choice())
            delta = choice.pop("delta")
            for call in delta.pop("tool_calls", None) or ():
                _join(known.calls.setdefault(call["index"], {}), call)
            _join(known.message, delta)
            _join(known.fields, choice)
        self._answer |= chunk

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


def _join(known: JsonObject, said: JsonObject) -> None:
    """Add what a chunk says to what is known."""
    for key, value in said.items():
        before = known.get(key)
        if isinstance(value, str) and isinstance(before, str) and key not in _SAID_ONCE:
            known[key] = None  # the text's only other holder: it grows in place instead of being copied
            before += value
            known[key] = before
        elif isinstance(value, dict) and isinstance(before, dict):
            _join(before, value)
        elif isinstance(value, list) and isinstance(before, list):
            before += value
        elif value is not None:
            known[key] = value


_SAID_ONCE = frozenset({"role", "finish_reason", "type", "id"})
