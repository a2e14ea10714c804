"""One row per request: what it was, how it ended, what it cost. Appended once, never rewritten.

A row holds names, numbers and codes; never a prompt, an answer, a key or anything else that a client typed but tags.
"""

import functools
from collections.abc import Awaitable, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from gateway.store import Transaction, Value


class Exit(StrEnum):
    """How a request ended. Found in a dictionary as its word is."""

    __hash__ = str.__hash__

    CACHE_HIT = "cache_hit"
    ROUTED = "routed"
    RETRIED = "retried"
    FAILED_OVER = "failed_over"
    ESCALATED = "escalated"
    REJECTED = "rejected"
    FAILED = "failed"
    CLIENT_GONE = "client_gone"


class MoneyState(StrEnum):
    """What became of the money of a request; NONE if none was ever held."""

    NONE = "none"
    SETTLED = "settled"
    VOID = "void"
    UNRESOLVED = "unresolved"


class Money(Struct, frozen=True):
    """What a request's money has become; decided in the transaction that writes its row."""

    state: MoneyState = MoneyState.NONE
    cost_nanousd: int = 0
    overage_nanousd: int = 0


class RequestRow(Struct, frozen=True):
    """A finished request, but for its money. Field names are the table's columns; times are UTC milliseconds."""

    request_id: str
    boot_id: int
    started_ms: int
    ended_ms: int
    tenant: str
    key_id: str
    alias: str
    stream: bool
    exit: Exit
    status: int
    code: str | None = None
    cache: str | None = None
    tier: str | None = None
    deployment: str | None = None
    provider: str | None = None
    attempts: int = 0
    estimated: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    price_version: str | None = None
    ttft_ms: int | None = None
    duration_ms: int = 0
    tags: str = ""


_NO_MONEY = Money()
COLUMNS = RequestRow.__struct_fields__ + Money.__struct_fields__
_FLAGS = tuple(map(COLUMNS.index, ("stream", "estimated")))
_WORDS = tuple(map(COLUMNS.index, ("exit", "tier", "state")))
_PLACES = f"({', '.join('?' * len(COLUMNS))})"
_INSERT = f"INSERT INTO requests ({', '.join(COLUMNS)}) VALUES {_PLACES}"  # noqa: S608 - names of our own fields
_INSERT_ONCE = _INSERT + " ON CONFLICT (request_id) DO NOTHING"


def append(transaction: Transaction, row: RequestRow, money: Money, *, once: bool = False) -> Awaitable[object]:
    """Insert `row`, once this is awaited. A second row for one request is an error, or ignored if `once`."""
    return transaction.execute(_INSERT_ONCE if once else _INSERT, _values(row, money))


def append_all(transaction: Transaction, rows: Sequence[RequestRow]) -> Awaitable[object]:
    """Insert rows that moved no money, once this is awaited: all of them, or none if one is refused.

    One statement for all: while threads wait for the interpreter, each statement costs a turn of theirs.
    """
    values = [value for row in rows for value in _values(row, _NO_MONEY)]
    return transaction.execute(_insert_of(len(rows)), values)


@functools.cache
def _insert_of(count: int) -> str:
    return _INSERT + f", {_PLACES}" * (count - 1)


def _values(row: RequestRow, money: Money) -> list[Value]:
    """In the order of the columns, and plain: for a flag or a word of an enum, SQLite's module looks for an adapter."""
    values: list[Any] = [*astuple(row), *astuple(money)]
    for flag in _FLAGS:
        values[flag] = int(values[flag])
    for word in _WORDS:
        if values[word] is not None:
            values[word] = str(values[word])
    return values
