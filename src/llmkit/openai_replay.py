"""A whole answer told as a stream, and a stream told as a whole answer.

Decides which chunks an answer amounts to, and whether a stream amounts to an answer. Pure; does not know framing, the
closing usage chunk, the end mark, or where answers are kept.

Rules:
- a replay has the form that clients rely on: a role, the texts in pieces, a finish reason, for each choice
- what an answer says beside that is not lost: unknown fields leave once; nulls, which say nothing, do not leave
- a stream that said anything which the answer made of it would lose or misplace amounts to none
"""

import io
from typing import Any, Final

from llmkit import wire_json
from llmkit.openai import decode_object, usage_object, written_bytes
from llmkit.types import Usage
from llmkit.wire_json import JsonObject

PIECE_CHARS: Final = 256
"""Of text per chunk: few events, and none near the line limit of any client."""

_TEXTS: Final = ("reasoning_content", "reasoning", "refusal", "content")
"""In the order in which a model writes them."""

_HEAD: Final = ("id", "created", "model", "system_fingerprint", "service_tier")
"""What stands in every chunk as it does in the answer."""

_NOT_REPLAYED: Final = frozenset({*_HEAD, "object", "choices", "usage", "x_groq"})
"""x_groq is Groq's id of one call, and a copy of its usage."""

_CHOICE_FORM: Final = frozenset({"index", "message", "delta", "logprobs", "finish_reason"})
_IGNORED_IN_CHUNK: Final = frozenset({"object", "choices", "obfuscation"})
"""Obfuscation is padding against those who measure the lengths of chunks."""


def replay(completion: bytes) -> list[bytes]:
    """The chunks of a stream that says what a whole answer says, without usage.

    completion  an answer as llmkit.openai.from_wire gives it, without tool calls. Raises Malformed if it is none
    """
    document = decode_object(completion)
    head = {"object": "chat.completion.chunk", **_said({key: document.get(key) for key in _HEAD})}
    chunks = [
        {**head, "choices": [choice]}
        for position, choice in enumerate(document["choices"])
        for choice in _choice_chunks(choice, position)
    ]
    chunks[0] |= _said({key: value for key, value in document.items() if key not in _NOT_REPLAYED})
    return [wire_json.encode(chunk) for chunk in chunks]


def _choice_chunks(choice: JsonObject, position: int) -> list[JsonObject]:
    """One choice, as the choices of its chunks."""
    message = choice["message"]
    index = choice["index"] if type(choice["index"]) is int else position
    texts = {key: text for key in _TEXTS if (text := message.get(key)) and type(text) is str}
    rest = _said({key: value for key, value in message.items() if key not in texts})
    role = {"role": "assistant", "content": None if message["content"] is None else "", **rest}
    pieces = [{key: piece} for key, text in texts.items() for piece in _pieces(text)]
    chunks = [_choice(index, delta) for delta in (role, *pieces, {})]
    weighed = next((chunk for chunk in chunks[1:] if "content" in chunk["delta"] or "refusal" in chunk["delta"]), None)
    (weighed or chunks[-1])["logprobs"] = choice["logprobs"]
    chunks[-1]["finish_reason"] = choice["finish_reason"]
    chunks[-1] |= _said({key: value for key, value in choice.items() if key not in _CHOICE_FORM})
    return chunks


def _choice(index: int, delta: JsonObject) -> JsonObject:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


def _pieces(text: str) -> list[str]:
    return [text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS)]


def _said(document: JsonObject) -> JsonObject:
    return {key: value for key, value in document.items() if value is not None}


class _Unfit(Exception):
    """The stream says something that has no place in an answer made of it."""


class Assembler:
    """Makes one answer of one stream; not for two threads at once.

    max_bytes  of text beyond which the stream amounts to no answer; a chunk with log probabilities counts whole
    """

    def __init__(self, max_bytes: int) -> None:
        self._room = max_bytes
        self._fit = True
        self._finished = False
        self._head: JsonObject = {}
        self._texts: dict[str, io.StringIO] = {}
        self._logprobs: dict[str, list[Any] | None] | None = None

    def feed(self, payload: bytes) -> None:
        """Take the next chunk, as ChunkShaper lets it leave. Once the stream is unfit, nothing is kept of it."""
        if not self._fit:
            return
        try:
            self._take(wire_json.decode(payload), len(payload))
        except _Unfit:
            self._fit = False
            self._texts.clear()
            self._logprobs = None

    def completion(self, usage: Usage) -> bytes | None:
        """The answer that the stream amounts to, with this usage.

        None unless it had one choice that ended with `stop`, and all it said has a place in the answer.
        """
        if not self._fit or not self._finished:
            return None
        message = {"role": "assistant", "content": None, "refusal": None}
        message |= {key: text.getvalue() for key, text in self._texts.items()}
        choice = {"index": 0, "message": message, "logprobs": self._logprobs, "finish_reason": "stop"}
        answer = {**self._head, "object": "chat.completion", "choices": [choice], "usage": usage_object(usage)}
        return wire_json.encode(answer)

    def _take(self, chunk: JsonObject, size: int) -> None:
        for key, value in _said(chunk).items():
            if key in _HEAD:
                _require(self._head.setdefault(key, value) == value)
            else:
                _require(key in _IGNORED_IN_CHUNK)
        for choice in chunk["choices"]:
            self._take_choice(_said(choice), size)

    def _take_choice(self, choice: JsonObject, size: int) -> None:
        _require(choice.pop("index") == 0)
        delta = _said(choice.pop("delta"))
        _require(choice.get("finish_reason", "stop") == "stop")
        self._finished = choice.pop("finish_reason", None) is not None
        logprobs = choice.pop("logprobs", None)
        _require(not choice and delta.pop("role", "assistant") == "assistant")
        self._room -= written_bytes(delta) if logprobs is None else size
        _require(self._room >= 0)
        for key, text in delta.items():
            _require(key in _TEXTS and type(text) is str)
            self._texts.setdefault(key, io.StringIO()).write(text)
        if logprobs is not None:
            self._take_logprobs(logprobs)

    def _take_logprobs(self, logprobs: Any) -> None:
        _require(type(logprobs) is dict)
        self._logprobs = joined = self._logprobs or {}
        for key, tokens in logprobs.items():
            _require(key in ("content", "refusal") and type(tokens) in (list, type(None)))
            kept = joined.setdefault(key, tokens)
            if kept is None:
                joined[key] = tokens
            elif tokens is not kept:
                kept.extend(tokens or ())


def _require(fits: bool) -> None:
    if not fits:
        raise _Unfit
