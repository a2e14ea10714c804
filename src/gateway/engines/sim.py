"""The sim engine: many stories on one thread, a fake clock, and a seeded choice of who runs next at every await.

For tests. Begin, every statement and commit are one await each; BEGIN IMMEDIATE is modelled as a lock that only one
story holds. So any interleaving that threads or processes could produce between two statements can be drawn from a
seed, and the process can die between any two effects. What exists only under threads (group commit, pools, locks in
buckets) is not simulated here.
"""

import contextlib
import math
import random  # noqa: TID251 - the scheduler is the source that randomness is handed in from
import sqlite3
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from gateway.clock import FakeClock
from gateway.errors import ClientGone
from gateway.sqlite_file import connect_writer, run
from gateway.store import Durability, Record, Result, Transaction, Value, Work
from llmkit.sse import comment
from llmkit.types import Cancel, Pulse

T = TypeVar("T")


class SimulatedCrash(BaseException):
    """The process is dead: no effect of it happens any more."""


class Kind(StrEnum):
    """What an effect touches."""

    LEDGER = "ledger"
    UPSTREAM = "upstream"
    CLIENT = "client"
    CLOCK = "clock"


@dataclass(frozen=True, slots=True)
class Effect:
    """One await of a story. It may go on once `ready` says so, which is asked again whenever anything has happened."""

    kind: Kind
    label: str
    ready: Callable[[], bool] = lambda: True

    def __await__(self) -> Generator["Effect", None, None]:
        yield self


@dataclass(slots=True)
class Task:
    """One story. After its end either `result` or `error` is set."""

    name: str
    story: Coroutine[Any, Any, Any]
    waits_for: Effect | None = None
    done: bool = False
    result: Any = None
    error: BaseException | None = None


class Deadlock(RuntimeError):
    """No story can ever go on."""


@dataclass(slots=True)
class Scheduler:
    """Runs stories one effect at a time, in an order drawn from `seed`.

    crash_at      the process dies before the effect of this number (from 0); None: never
    leave_chance  at each effect that is not the ledger's, the chance that the story's client leaves
    """

    seed: int
    clock: FakeClock
    crash_at: int | None = None
    leave_chance: float = 0.0
    on_crash: Callable[[], None] = lambda: None
    effects: int = 0
    crashed: bool = False
    tasks: list[Task] = field(default_factory=list)
    _wakes: list[float] = field(default_factory=list)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - reproducible, not secret

    def spawn(self, name: str, story: Coroutine[Any, Any, Any]) -> Task:
        """Add a story; it begins when it is first chosen."""
        task = Task(name, story)
        self.tasks.append(task)
        return task

    def run(self) -> None:
        """Run until every story has ended or the process has died. Raises Deadlock."""
        while live := [task for task in self.tasks if not task.done]:
            ready = [task for task in live if task.waits_for is None or task.waits_for.ready()]
            if not ready:
                self._let_time_pass()
                continue
            if self.crash_at is not None and self.effects >= self.crash_at:
                self._crash(live)
                return
            self._step(self._random.choice(ready))

    def sleep(self, seconds: float) -> Effect:
        """The effect of waiting for `seconds` of the fake clock."""
        wakes_at = self.clock.now_s() + seconds
        self._wakes.append(wakes_at)
        return Effect(Kind.CLOCK, f"sleep {seconds}", lambda: self.clock.now_s() >= wakes_at)

    def _step(self, task: Task) -> None:
        leaves = (
            task.waits_for is not None
            and task.waits_for.kind is not Kind.LEDGER
            and self._random.random() < self.leave_chance
        )
        self.effects += 1
        try:
            task.waits_for = task.story.throw(ClientGone("simulated")) if leaves else task.story.send(None)
        except StopIteration as end:
            task.done, task.result = True, end.value
        except BaseException as error:  # noqa: BLE001 - kept for whoever runs the simulation
            task.done, task.error = True, error

    def _let_time_pass(self) -> None:
        later = [wake for wake in self._wakes if wake > self.clock.now_s()]
        if not later:
            raise Deadlock([task.waits_for for task in self.tasks if not task.done])
        self.clock.advance(min(later) - self.clock.now_s())
        self._wakes = later

    def _crash(self, live: list[Task]) -> None:
        """Detach the world first, then drop the stories: nothing that they still try has an effect."""
        self.crashed = True
        self.on_crash()
        for task in live:
            task.done = True
            task.error = SimulatedCrash()
            with contextlib.suppress(BaseException):
                while True:
                    task.story.throw(SimulatedCrash())


class _SimTransaction:
    def __init__(self, store: "SimStore") -> None:
        self._store = store

    async def execute(self, sql: str, params: Sequence[Value] = ()) -> Result:
        return await self._store.execute(sql, params)


class SimStore:
    """A Store in one SQLite file for one simulated process. detach() is its death.

    on_error   is told of queued work that raised
    on_commit  is called after every commit, before anything else can happen
    """

    def __init__(
        self,
        path: Path,
        *,
        on_error: Callable[[BaseException], None] = lambda error: None,
        on_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self._writer = connect_writer(path, Durability.NORMAL)
        self._writer.execute("PRAGMA synchronous = OFF")
        self._reader = sqlite3.connect(path, isolation_level=None)
        self._transaction: Transaction = _SimTransaction(self)
        self._queue: deque[Work[object]] = deque()
        self._on_error = on_error
        self._on_commit = on_commit
        self._busy = False
        self._detached = False

    async def transact(self, work: Work[T]) -> T:
        await Effect(Kind.LEDGER, "begin", lambda: not self._busy)
        self._alive()
        self._busy = True
        carried: list[Work[object]] = []
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            while self._queue:
                carried.append(self._queue.popleft())
                await self._guarded(carried[-1], self._on_error)
            refusals: list[Exception] = []
            result = await self._guarded(work, refusals.append)
            await Effect(Kind.LEDGER, "commit")
            self._alive()
            self._writer.execute("COMMIT")
        except BaseException:
            self._roll_back()
            self._queue.extendleft(reversed(carried))
            raise
        finally:
            self._busy = False
        self._on_commit()
        if refusals:
            raise refusals[0]
        return result  # type: ignore[return-value]

    def enqueue(self, work: Work[object], *, vital: bool = True) -> bool:
        if not self._detached:
            self._queue.append(work)
        return not self._detached

    async def read(self, sql: str, params: Sequence[Value] = ()) -> list[Record]:
        await Effect(Kind.LEDGER, "read")
        self._alive()
        return self._reader.execute(sql, params).fetchall()

    async def flush(self) -> None:
        """Commit what is queued."""

        async def nothing(transaction: Transaction) -> None:
            """Only the queue is wanted."""

        await self.transact(nothing)

    async def execute(self, sql: str, params: Sequence[Value]) -> Result:
        """One statement of the open transaction."""
        await Effect(Kind.LEDGER, sql.split(None, 1)[0])
        self._alive()
        return run(self._writer.cursor(), sql, params)

    def detach(self) -> None:
        """Die: what was not committed is gone, and nothing reaches the file any more."""
        self._queue.clear()
        self._roll_back()
        self._detached = True
        self._writer.close()
        self._reader.close()

    def _alive(self) -> None:
        if self._detached:
            raise SimulatedCrash

    def _roll_back(self) -> None:
        if not self._detached and self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    async def _guarded(self, work: Work[T], refused: Callable[[Exception], None]) -> T | None:
        """Run `work` so that, if it raises, nothing of it is left in the transaction."""
        self._writer.execute("SAVEPOINT work")
        result: T | None = None
        try:
            result = await work(self._transaction)
        except Exception as error:  # noqa: BLE001 - it goes to whoever brought the work
            self._writer.execute("ROLLBACK TO work")
            refused(error)
        self._writer.execute("RELEASE work")
        return result


class SimCaller:
    """A client of the simulation: it keeps what it was sent."""

    cancel: Cancel | None = None
    pulse: Pulse | None = None

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._head_due_s = math.inf
        self.started = False
        self.received = b""
        self.finished = False

    def will_wait(self, head_until_s: float | None) -> None:
        if head_until_s is not None:
            self._head_due_s = head_until_s

    async def start(self) -> None:
        if not self.started:
            await Effect(Kind.CLIENT, "start")
            self.started = True

    async def send(self, *frames: bytes) -> None:
        await Effect(Kind.CLIENT, "send")
        self.received += b"".join(frames)

    async def finish(self, last: bytes) -> None:
        await Effect(Kind.CLIENT, "finish")
        self.received += last
        self.finished = True

    async def pause(self, seconds: float) -> None:
        if seconds <= 0:
            await Effect(Kind.UPSTREAM, "step")
            return
        until_head_s = max(self._head_due_s - self._scheduler.clock.now_s(), 0)
        if until_head_s < seconds and not self.started:
            await self._scheduler.sleep(until_head_s)
            await self.start()
            self.received += comment("ping")
            seconds -= until_head_s
        await self._scheduler.sleep(seconds)
