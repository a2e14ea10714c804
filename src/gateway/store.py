"""The store port: what ledger and key code may ask of a database, and nothing of how it is done.

A piece of work is a coroutine over a Transaction. The store begins, runs it, and commits; begin, every statement and
commit are one effect each, so that a simulated store can let any other request run, or the process die, between any
two of them. Rules for work:

- It may run on another request's thread (group commit), at any later time (enqueue) and again after a failed commit,
  so it closes over values only and changes nothing outside the transaction.
- Work that raises leaves nothing behind; its neighbours in the same commit are untouched.
- Nothing it returns may be acted on before transact() returned: until then it is not committed.
"""

from collections.abc import Callable, Coroutine, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from msgspec import Struct

Value = int | str | None
Record = tuple[Any, ...]
"""One row of a result; the tables are STRICT, so its columns have the types of the schema."""
T = TypeVar("T")


class Durability(StrEnum):
    """What a commit survives: FULL a power cut; NORMAL the death of the process, but a power cut may take the tail."""

    FULL = "full"
    NORMAL = "normal"


class Doing(StrEnum):
    """What the storage under a store may refuse."""

    COMMIT = "commit"
    READ = "read"
    COPY = "copy"
    """Of the write-ahead log into the database: what was committed is kept all the same."""


class Result(Struct, frozen=True):
    """What one statement did: the records it returned, how many rows it changed, the id of the row it inserted."""

    records: list[Record]
    rowcount: int
    last_id: int


class Transaction(Protocol):
    """One open BEGIN IMMEDIATE transaction."""

    async def execute(self, sql: str, params: Sequence[Value] = ()) -> Result:
        """Run one statement with bound parameters."""
        ...


Work = Callable[[Transaction], Coroutine[Any, Any, T]]


class Readable(Protocol):
    """What can be asked, and not changed."""

    async def read(self, sql: str, params: Sequence[Value] = ()) -> list[Record]:
        """Records of one SELECT over the last committed state. Raises StoreUnavailable."""
        ...


class Store(Readable, Protocol):
    """A durable, single-writer database."""

    async def transact(self, work: Work[T]) -> T:
        """Run `work` in one transaction and return its result once it is committed.

        An exception of `work` rolls back what it did and passes through.
        Raises StoreUnavailable if nothing could be committed; nothing of `work` was kept then.
        """
        ...

    def enqueue(self, work: Work[object], *, vital: bool = True) -> bool:
        """Promise to commit `work` soon, and before any transact() that starts after this call.

        Never blocks, never raises, takes no lock: a finaliser may call it. After a failed commit it is tried again
        until one succeeds, so it is lost only with the process, or by an error of its own, which is reported.
        vital  False allows the store to drop it, and count that, when very much waits already
        Returns whether it was kept.
        """
        ...

    async def read(self, sql: str, params: Sequence[Value] = ()) -> list[Record]:
        """Records of one SELECT over the last committed state. Waits for no writer. Raises StoreUnavailable."""
        ...
