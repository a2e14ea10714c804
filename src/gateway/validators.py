"""Whether a whole answer is good enough to be given to a client, or another deployment should be asked.

Refused is an answer of which any choice is empty, is not the JSON that was asked for, or does not match the schema that
was asked for. A refusal by the model, a call of a tool and what a content filter left are answers, whatever the format:
nobody is asked to do what another refused. What was asked for in a way nobody understands was not asked for: the
upstream is there to complain about it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from gateway.json_schema import matches
from llmkit.wire_json import decode

FILTERED = "content_filter"
"""The finish reason of a choice that a filter emptied or cut."""


class Refusal(StrEnum):
    """Why an answer is not given to the client."""

    EMPTY = "empty"
    NOT_JSON = "not_json"
    SCHEMA = "schema"


def refusal(completion: Mapping[str, Any], response_format: object) -> Refusal | None:
    """Why the answer is refused; None if it is not.

    completion       a chat.completion as the client would get it
    response_format  the request's field of that name, whatever it holds
    """
    choices = completion.get("choices")
    if not isinstance(choices, list) or not choices:
        return Refusal.EMPTY
    wanted = _wanted(response_format)
    return next(filter(None, (_refusal_of(choice, wanted) for choice in choices)), None)


class _Wanted(Struct, frozen=True):
    """The schema of the JSON that was asked for, and what an answer of another kind is refused as."""

    schema: dict[str, Any]
    otherwise: Refusal


def _wanted(response_format: object) -> _Wanted | None:
    """What `response_format` asks for; None if any text will do."""
    match response_format:
        case {"type": "json_object"}:
            return _Wanted({"type": "object"}, Refusal.NOT_JSON)
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return _Wanted(schema, Refusal.SCHEMA)
        case _:
            return None


def _refusal_of(choice: object, wanted: _Wanted | None) -> Refusal | None:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return Refusal.EMPTY
    if _text(message, "refusal") or message.get("tool_calls") or message.get("function_call"):
        return None
    if choice.get("finish_reason") == FILTERED:
        return None
    content = _text(message, "content")
    if not content and not message.get("audio"):
        return Refusal.EMPTY
    return None if wanted is None else _format_refusal(content, wanted)


def _text(message: dict[str, Any], field: str) -> str:
    """What the model wrote there; nothing if that is only white space."""
    text = message.get(field)
    return text if isinstance(text, str) and text.strip() else ""


def _format_refusal(content: str, wanted: _Wanted) -> Refusal | None:
    try:
        value = decode(content.encode())
    except ValueError:
        return Refusal.NOT_JSON
    return None if matches(value, wanted.schema) else wanted.otherwise
