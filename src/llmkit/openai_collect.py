"""A stream that came although none was asked for, made the whole answer that was.

Decides how deltas join to a message: texts and arguments one after the other, calls by their index, everything else as
it came last. Pure; the chunks have been through a ChunkShaper, which says whether they may end where they do.
"""

from typing import Any

from llmkit import wire_json
from llmkit.openai import usage_object
from llmkit.types import Usage
from llmkit.wire_json import JsonObject


class Collector:
    """Joins the chunks of one stream; not for two threads at once."""

    def __init__(self) -> None:
        self._answer: JsonObject = {}
        self._choices: dict[int, JsonObject] = {}

    def feed(self, payload: bytes) -> None:
        """Take the next chunk."""
        chunk = wire_json.decode(payload)
        for choice in chunk.pop("choices"):
            known = self._choices.setdefault(choice["index"], {"message": {"content": None, "refusal": None}})
            _join(known["message"], choice.pop("delta"))
            _join(known, choice)
        self._answer |= chunk

    def completion(self, usage: Usage | None, *, ends_oddly: bool = False) -> bytes:
        """The answer so far.

        usage       what the upstream reported for it
        ends_oddly  whether a "stop" may stand for a reason that nobody knows: then none is given, so that the answer
                    does not pass for one that is known to be whole
        """
        choices = [{"logprobs": None, **self._choices[index]} for index in sorted(self._choices)]
        for choice in choices:
            if ends_oddly and choice["finish_reason"] == "stop":
                choice["finish_reason"] = None
        answer = {**self._answer, "object": "chat.completion", "choices": choices}
        if usage is not None:
            answer["usage"] = usage_object(usage)
        return wire_json.encode(answer)


def _join(known: JsonObject, said: JsonObject) -> None:
    """Add what a chunk says to what is known."""
    for key, value in said.items():
        if key == "tool_calls":
            _join_calls(known.setdefault(key, []), value or [])
        elif isinstance(value, str) and isinstance(known.get(key), str) and key not in _SAID_ONCE:
            known[key] += value
        elif isinstance(value, dict) and isinstance(known.get(key), dict):
            _join(known[key], value)
        elif isinstance(value, list) and isinstance(known.get(key), list):
            known[key] += value
        elif value is not None:
            known[key] = value


_SAID_ONCE = frozenset({"role", "finish_reason", "type", "id"})


def _join_calls(known: list[Any], said: list[JsonObject]) -> None:
    by_index = {call["index"]: call for call in known}
    for call in said:
        if call["index"] in by_index:
            _join(by_index[call["index"]], call)
        else:
            by_index[call["index"]] = call
            known.append(call)
