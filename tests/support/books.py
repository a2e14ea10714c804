"""One ledger over a file of its own, without the gateway around it: for tests of the book itself."""

import contextlib
import functools
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from gateway import audit
from gateway.clock import FakeClock
from gateway.engines.sim import SimStore
from gateway.holds import OnCrash, Purpose, Reservation
from gateway.ledger import Ledger
from gateway.levels import Account, LevelState, Scope
from gateway.rows import Exit, RequestRow
from gateway.sqlite_file import connect_writer
from gateway.store import Durability, Record, Transaction, Value
from gateway.types import Window
from tests.support.world import settle_story

T = TypeVar("T")


@contextlib.contextmanager
def ledger_folder() -> Iterator[Path]:
    """A folder with an empty ledger in it, in memory where the machine has such a place."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        (Path(folder) / "ledger.db").write_bytes(_empty_ledger())
        yield Path(folder)


@functools.cache
def _empty_ledger() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        connect_writer(path, Durability.NORMAL).close()
        return path.read_bytes()


def purpose(request_id: str = "req_1", *, attempt: int = 1) -> Purpose:
    """What a hold of `request_id` is for."""
    return Purpose(request_id, attempt, alias="mini", deployment="mini", price_version="1")


def row(request_id: str = "req_1", *, key_id: str = "key1") -> RequestRow:
    """The row of `request_id` before its money is known."""
    return RequestRow(
        request_id=request_id,
        boot_id=1,
        started_ms=0,
        ended_ms=0,
        tenant="acme",
        key_id=key_id,
        alias="mini",
        stream=False,
        exit=Exit.ROUTED,
        status=200,
    )


class Book:
    """A ledger of one tenant, `acme`, and its store. Every method runs to its end with nobody beside it.

    ledger_type  a Ledger, or a broken twin of it
    """

    def __init__(
        self, folder: Path, *, ledger_type: type[Ledger] = Ledger, durability: Durability = Durability.FULL
    ) -> None:
        self._path = folder / "ledger.db"
        self._ledger_type = ledger_type
        self._durability = durability
        self.clock = FakeClock()
        self.errors: list[BaseException] = []
        self.open()

    def open(self, on_crash: OnCrash | None = OnCrash.UNRESOLVED, *, machine_boot: str = "sim") -> int:
        """Start a process over the file as it is; returns how many holds were open."""
        self.store = SimStore(self._path, on_error=self.errors.append)
        self.ledger = self._ledger_type(self.store, self.clock, durability=self._durability)
        return self.run(self.ledger.open(pid=1, machine_boot=machine_boot, on_crash=on_crash))

    def crash(self) -> None:
        """Kill the process: what was not committed is gone. open() starts the next one."""
        self.store.detach()

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Run one call of the ledger to its end."""
        return settle_story(story)

    def set_limits(
        self,
        key: int | None = None,
        tenant: int | None = None,
        everything: int | None = None,
        *,
        window: Window = Window.TOTAL,
        key_id: str = "key1",
    ) -> Account:
        """Set the three levels of a key; returns its account."""
        self.run(self.ledger.set_level(Scope.GLOBAL, "", window, everything))
        self.run(self.ledger.set_level(Scope.TENANT, "acme", window, tenant))
        self.run(self.ledger.set_level(Scope.KEY, key_id, window, key))
        return self.ledger.account("acme", key_id)

    def reserve(self, account: Account, amount_nanousd: int, request_id: str = "req_1") -> Reservation:
        """Hold money for `request_id`."""
        return self.run(self.ledger.reserve(account, amount_nanousd, purpose(request_id)))

    def settle(self, reservation: Reservation, cost_nanousd: int) -> None:
        """Settle with the request's row."""
        self.run(self.ledger.settle(reservation, cost_nanousd, row(reservation.request_id)))

    def level(self, scope: Scope = Scope.KEY, name: str = "key1") -> LevelState:
        """A level as it stands."""
        state = self.run(self.ledger.level(scope, name))
        assert state is not None
        return state

    def money(self, scope: Scope = Scope.KEY, name: str = "key1") -> tuple[int, int, int, int]:
        """What a level has spent, held, unresolved and in overage."""
        level = self.level(scope, name)
        return level.spent_nanousd, level.held_nanousd, level.unresolved_nanousd, level.overage_nanousd

    def rows(self) -> list[dict[str, Value]]:
        """Every row, oldest first."""
        return self.run(audit.list_rows(self.store))

    def verify(self) -> audit.Report:
        """Recompute the books."""
        return self.run(audit.verify(self.store))

    def select(self, sql: str) -> list[Record]:
        """Any SELECT over the committed state."""
        return self.run(self.store.read(sql))

    def tamper(self, *statements: str) -> None:
        """Change the file behind the ledger's back."""

        async def work(transaction: Transaction) -> None:
            for statement in statements:
                await transaction.execute(statement)

        self.run(self.store.transact(work))

    def flush(self) -> None:
        """Commit what is queued."""
        self.run(self.store.flush())

    def close(self) -> None:
        self.store.detach()


@contextlib.contextmanager
def opened_book(*, durability: Durability = Durability.FULL) -> Iterator[Book]:
    """A book in a folder of its own, until the block ends."""
    with ledger_folder() as folder, contextlib.closing(Book(folder, durability=durability)) as book:
        yield book
