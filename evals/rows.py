"""The rows and holds of a ledger whose process has ended, read from its file."""

import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold as the ledger has it; nano-dollars. `state` is open, settled, void or unresolved."""

    state: str
    amount: int
    cost: int


@dataclass(frozen=True, slots=True)
class Row:
    """A request's row with its holds, in order. `number` is None if the row does not say whose it is (a process that
    was killed).
    """

    holds: tuple[Hold, ...]
    number: int | None
    tenant: str
    exit: str
    status: int
    code: str | None
    stream: int
    estimated: int
    attempts: int
    started_ms: int
    completion_tokens: int

    @property
    def unseen(self) -> bool:
        """Whether the books may be about a stream of which nothing was seen: a row sums up all its calls."""
        return bool(self.stream) and (not self.completion_tokens or len(self.holds) > 1)


def read_rows(ledger: Path) -> list[Row]:
    """Every row of a ledger whose process has ended, oldest first."""
    holds: dict[str, list[Hold]] = defaultdict(list)
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as books:
        for request, *rest in books.execute(
            "SELECT request_id, state, amount_nanousd, cost_nanousd FROM holds ORDER BY id"
        ):
            holds[request].append(Hold(*rest))
        rows = books.execute(
            "SELECT request_id, tags, tenant, exit, status, code, stream, estimated, attempts, started_ms,"
            " completion_tokens FROM requests ORDER BY id"
        )
        return [Row(tuple(holds.get(request, ())), _number(tags), *rest) for request, tags, *rest in rows]


def _number(tags: str) -> int | None:
    return int(tags[1:]) if tags.startswith("n") else None
