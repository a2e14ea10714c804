"""The one question of a request: what it asks, apart from all else that it says. Pure.

Decides which requests have such a question, and what the same request with another one is. Does not know whether two
questions are the same.

Rules:
- there is one user turn, it is the last, and only instructions stand before it: a conversation goes on from what was
  said in it
- its content is one text: what is shown beside it cannot be said in other words
- whatever else is in the request stays as it is, whoever asks
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

_INSTRUCTIONS: Final = frozenset(("system", "developer"))


class Unfit(StrEnum):
    """Why a request has no question of its own."""

    TURNS = "turns"
    CONTENT = "content"


def question_of(messages: Sequence[Mapping[str, Any]]) -> str | Unfit:
    """What a request with these messages, at least one, asks as it was typed; or why that cannot be told."""
    *earlier, last = messages
    if last.get("role") != "user" or not all(_instructs(message) for message in earlier):
        return Unfit.TURNS
    content = last.get("content")
    if type(content) is list and len(content) == 1 and type(content[0]) is dict and content[0].get("type") == "text":
        content = content[0].get("text")
    return content if type(content) is str else Unfit.CONTENT


def asking(message: Mapping[str, Any], question: str) -> dict[str, Any]:
    """The same message, had it asked `question`: the last one of a request that has a question."""
    content = message["content"]
    return {**message, "content": question if type(content) is str else [{**content[0], "text": question}]}


def _instructs(message: Mapping[str, Any]) -> bool:
    role = message.get("role")
    return type(role) is str and role in _INSTRUCTIONS
