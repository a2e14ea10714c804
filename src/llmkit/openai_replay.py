"""A whole answer told as a stream.

Decides which chunks an answer amounts to. Pure; does not know framing, the closing usage chunk, the end mark, or where
answers are kept.

Rules:
- a replay has the form that clients rely on: a role, the texts in pieces, a finish reason, for each choice
- what an answer says beside that is not lost: unknown fields leave once; nulls, which say nothing, do not leave
"""

from typing import Final

from llmkit import wire_json
from llmkit.openai import decode_object
from llmkit.wire_json import JsonObject

PIECE_CHARS: Final = 256
"""Of text per chunk: few events, and none near the line limit of any client."""

TEXTS: Final = ("reasoning_content", "reasoning", "refusal", "content")
"""In the order in which a model writes them."""

HEAD: Final = ("id", "created", "model", "system_fingerprint", "service_tier")
"""What stands in every chunk as it does in the answer."""

_NOT_REPLAYED: Final = frozenset({*HEAD, "object", "choices", "usage", "x_groq"})
"""x_groq is Groq's id of one call, and a copy of its usage."""

_CHOICE_FORM: Final = frozenset({"index", "message", "delta", "logprobs", "finish_reason"})


def replay(completion: bytes) -> list[bytes]:
    """The chunks of a stream that says what a whole answer says, without usage.

    completion  an answer as llmkit.openai.from_wire gives it, without tool calls. Raises Malformed if it is none
    """
    document = decode_object(completion)
    head = {"object": "chat.completion.chunk", **said({key: document.get(key) for key in HEAD})}
    chunks = [
        {**head, "choices": [choice]}
        for position, choice in enumerate(document["choices"])
        for choice in _choice_chunks(choice, position)
    ]
    chunks[0] |= said({key: value for key, value in document.items() if key not in _NOT_REPLAYED})
    return [wire_json.encode(chunk) for chunk in chunks]


def _choice_chunks(choice: JsonObject, position: int) -> list[JsonObject]:
    """One choice, as the choices of its chunks."""
    message = choice["message"]
    index = choice["index"] if type(choice["index"]) is int else position
    texts = {key: text for key in TEXTS if (text := message.get(key)) and type(text) is str}
    rest = said({key: value for key, value in message.items() if key not in texts})
    role = {"role": "assistant", "content": None if message["content"] is None else "", **rest}
    pieces = [{key: piece} for key, text in texts.items() for piece in _pieces(text)]
    chunks = [_choice(index, delta) for delta in (role, *pieces, {})]
    weighed = next((chunk for chunk in chunks[1:] if "content" in chunk["delta"] or "refusal" in chunk["delta"]), None)
    (weighed or chunks[-1])["logprobs"] = choice["logprobs"]
    chunks[-1]["finish_reason"] = choice["finish_reason"]
    chunks[-1] |= said({key: value for key, value in choice.items() if key not in _CHOICE_FORM})
    return chunks


def _choice(index: int, delta: JsonObject) -> JsonObject:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


def _pieces(text: str) -> list[str]:
    return [text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS)]


def said(document: JsonObject) -> JsonObject:
    return {key: value for key, value in document.items() if value is not None}
