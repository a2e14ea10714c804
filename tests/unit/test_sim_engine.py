"""The simulator itself: it can only find bugs if it really interleaves, really locks and really kills."""

import contextlib
import unittest
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from gateway.clock import FakeClock
from gateway.engines.sim import Deadlock, Effect, Kind, Scheduler, SimCaller, SimStore, SimulatedCrash
from gateway.errors import ClientGone
from gateway.store import Transaction
from tests.support.books import ledger_folder
from tests.support.world import settle_story


class SchedulerTest(unittest.TestCase):
    """Who runs next, when time passes, who leaves, and when everybody dies."""

    def setUp(self) -> None:
        self.clock = FakeClock()
        self.log: list[str] = []

    async def steps(self, name: str, count: int, kind: Kind = Kind.UPSTREAM) -> str:
        """A story of `count` effects that writes down each step after it."""
        for step in range(count):
            await Effect(kind, "step")
            self.log.append(f"{name}{step}")
        return name

    def order(self, seed: int) -> str:
        """The order in which two stories of four steps run."""
        self.log.clear()
        scheduler = Scheduler(seed, self.clock)
        for name in "ab":
            scheduler.spawn(name, self.steps(name, 4))
        scheduler.run()
        return " ".join(self.log)

    def test_a_seed_is_an_order(self) -> None:
        """The same one every time; other seeds give other orders."""
        orders = {seed: self.order(seed) for seed in range(40)}
        self.assertEqual(orders, {seed: self.order(seed) for seed in range(40)})
        self.assertGreater(len(set(orders.values())), 20)

    def test_each_story_keeps_its_own_order_and_result(self) -> None:
        """Whatever runs beside it."""
        scheduler = Scheduler(1, self.clock)
        tasks = [scheduler.spawn(name, self.steps(name, 3)) for name in "abc"]
        scheduler.run()
        self.assertEqual(["a", "b", "c"], [task.result for task in tasks])
        for name in "abc":
            self.assertEqual([f"{name}{step}" for step in range(3)], [line for line in self.log if line[0] == name])
        self.assertEqual(3 * 4, scheduler.effects)

    def test_an_error_of_a_story_is_kept(self) -> None:
        """It ends the story and no other."""

        async def fails() -> None:
            await Effect(Kind.CLOCK, "before")
            raise ZeroDivisionError

        scheduler = Scheduler(1, self.clock)
        broken, whole = scheduler.spawn("broken", fails()), scheduler.spawn("whole", self.steps("a", 3))
        scheduler.run()
        self.assertIsInstance(broken.error, ZeroDivisionError)
        self.assertEqual((None, "a"), (whole.error, whole.result))

    def test_time_passes_when_nobody_else_can_run(self) -> None:
        """Sleepers wake in order of time, and no later than they asked for."""
        scheduler = Scheduler(1, self.clock)

        async def sleeps(seconds: float) -> None:
            await scheduler.sleep(seconds)
            self.log.append(f"{seconds} at {self.clock.now_s()}")

        for seconds in (30.0, 0.5, 5.0):
            scheduler.spawn("sleeper", sleeps(seconds))
        scheduler.run()
        self.assertEqual(["0.5 at 0.5", "5.0 at 5.0", "30.0 at 30.0"], self.log)

    def test_a_story_that_nothing_can_wake_is_an_error(self) -> None:
        """The simulation says so instead of hanging."""

        async def waits() -> None:
            await Effect(Kind.CLIENT, "never", lambda: False)

        scheduler = Scheduler(1, self.clock)
        scheduler.spawn("stuck", waits())
        with self.assertRaisesRegex(Deadlock, "never"):
            scheduler.run()

    def test_clients_leave_at_any_effect_but_the_ledgers(self) -> None:
        """ClientGone comes out of the await."""
        for kind in Kind:
            with self.subTest(kind=kind):
                scheduler = Scheduler(1, self.clock, leave_chance=1.0)
                task = scheduler.spawn("client", self.steps("a", 3, kind))
                scheduler.run()
                self.assertEqual(kind is not Kind.LEDGER, isinstance(task.error, ClientGone))

    def test_the_process_dies_before_the_effect_of_the_given_number(self) -> None:
        """What came before it happened; nothing after it does."""
        for point in range(5):
            with self.subTest(point=point):
                self.log.clear()
                deaths: list[str] = []
                scheduler = Scheduler(1, self.clock, crash_at=point, on_crash=partial(deaths.append, "x"))
                task = scheduler.spawn("a", self.steps("a", 4))
                scheduler.run()
                self.assertEqual([f"a{step}" for step in range(point - 1)], self.log)
                self.assertEqual((True, point, ["x"]), (scheduler.crashed, scheduler.effects, deaths))
                self.assertIsInstance(task.error, SimulatedCrash)

    def test_a_story_that_outlives_its_crash_is_dropped(self) -> None:
        """Its guards run against a world that is already gone, and it is not asked again."""

        async def clings() -> None:
            for _ in range(3):
                with contextlib.suppress(SimulatedCrash):
                    await Effect(Kind.UPSTREAM, "wait")

        scheduler = Scheduler(1, self.clock, crash_at=1)
        task = scheduler.spawn("clinging", clings())
        scheduler.run()
        self.assertTrue(task.done)

    def test_a_run_that_ends_before_its_crash_point_does_not_crash(self) -> None:
        """There was nothing left to lose."""
        scheduler = Scheduler(1, self.clock, crash_at=100)
        scheduler.spawn("a", self.steps("a", 3))
        scheduler.run()
        self.assertFalse(scheduler.crashed)


class StoreTest(unittest.TestCase):
    """SimStore: one writer, all or nothing, and death."""

    def setUp(self) -> None:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.folder = stack.enter_context(ledger_folder())
        self.errors: list[BaseException] = []
        self.commits = 0
        self.store = self.opened()
        self.addCleanup(lambda: self.store.detach())

    def opened(self) -> SimStore:
        """A process over the file as it is."""

        def committed() -> None:
            self.commits += 1

        return SimStore(Path(self.folder) / "ledger.db", on_error=self.errors.append, on_commit=committed)

    def tenants(self) -> list[str]:
        """What is committed."""
        return [name for (name,) in settle_story(self.store.read("SELECT name FROM tenants ORDER BY created_ms, name"))]

    def makes(self, *names: str, fails: bool = False) -> Any:
        """Work that makes tenants, and then raises if it is to fail."""

        async def work(transaction: Transaction) -> int:
            for name in names:
                await transaction.execute("INSERT INTO tenants (name, created_ms) VALUES (?, 0)", (name,))
            if fails:
                raise LookupError(names[0])
            return len(names)

        return work

    def test_work_is_committed_with_its_result(self) -> None:
        """One commit for all of it."""
        self.assertEqual(2, settle_story(self.store.transact(self.makes("a", "b"))))
        self.assertEqual((["a", "b"], 1), (self.tenants(), self.commits))

    def test_work_that_raises_leaves_nothing(self) -> None:
        """The exception goes to whoever brought it; what was queued before it is committed all the same."""
        self.store.enqueue(self.makes("queued"))
        with self.assertRaises(LookupError):
            settle_story(self.store.transact(self.makes("a", fails=True)))
        self.assertEqual(["queued"], self.tenants())

    def test_queued_work_goes_first(self) -> None:
        """In its order; one that raises is reported and stops no other."""
        self.store.enqueue(self.makes("a"))
        self.store.enqueue(self.makes("b", fails=True))
        self.store.enqueue(self.makes("c"))
        self.assertEqual([], self.tenants())
        with self.assertRaisesRegex(Exception, "UNIQUE"):
            settle_story(self.store.transact(self.makes("c")))
        self.assertEqual(["a", "c"], self.tenants())
        self.assertEqual(["b"], [str(error) for error in self.errors])

    def test_one_story_at_a_time_is_inside_a_transaction(self) -> None:
        """The others wait at begin; readers see what is committed."""
        inside: list[str] = []
        seen: list[int] = []

        async def works(name: str) -> None:
            async def work(transaction: Transaction) -> None:
                inside.append(name)
                await self.makes(name)(transaction)
                await transaction.execute("SELECT 1")
                inside.append(name)

            await self.store.transact(work)

        async def reads() -> None:
            for _ in range(10):
                [(count,)] = await self.store.read("SELECT count(*) FROM tenants")
                seen.append(count)

        for seed in range(20):
            inside.clear()
            seen.clear()
            self.run_all(seed, works(f"a{seed}"), works(f"b{seed}"), works(f"c{seed}"), reads())
            self.assertEqual(inside[::2], inside[1::2], "two were inside at once")
            self.assertEqual(sorted(seen), seen)
        self.assertEqual(60, len(self.tenants()))

    def test_a_reader_between_two_statements_sees_neither(self) -> None:
        """Begin, every statement and commit are places where another story may run."""
        story = self.store.transact(self.makes("a", "b"))
        labels = [story.send(None).label]
        with self.assertRaises(StopIteration):
            while True:
                self.assertEqual([], self.tenants())
                labels.append(story.send(None).label)
        self.assertEqual(["begin", "INSERT", "INSERT", "commit"], labels)
        self.assertEqual(["a", "b"], self.tenants())

    def test_a_death_before_the_commit_leaves_nothing_and_after_it_all(self) -> None:
        """Whatever the statement it comes at."""
        for point in range(6):
            with self.subTest(point=point):
                scheduler = Scheduler(1, FakeClock(), crash_at=point, on_crash=self.store.detach)
                scheduler.spawn("writer", self.writes_twice(f"a{point}", f"b{point}"))
                scheduler.run()
                self.store = self.opened()
                mine = [name for name in self.tenants() if name.endswith(str(point))]
                self.assertEqual([f"a{point}"] if point >= 4 else [], mine)

    async def writes_twice(self, first: str, second: str) -> None:
        """Two transactions, of one statement each."""
        await self.store.transact(self.makes(first))
        await self.store.transact(self.makes(second))

    def test_the_dead_do_nothing(self) -> None:
        """What was queued is lost, and nothing can be queued, read or written any more."""
        self.store.enqueue(self.makes("queued"))
        dead, self.store = self.store, self.opened()
        dead.detach()
        dead.enqueue(self.makes("after"))
        for story in (dead.read("SELECT 1"), dead.transact(self.makes("after")), dead.flush()):
            with self.assertRaises(SimulatedCrash):
                settle_story(story)
        self.assertEqual([], self.tenants())

    def test_queued_work_survives_a_transaction_that_is_torn_down(self) -> None:
        """It is tried again with the next one, once."""
        self.store.enqueue(self.makes("queued"))
        story = self.store.transact(self.makes("a"))
        for _ in range(3):
            story.send(None)
        with self.assertRaises(KeyboardInterrupt):
            story.throw(KeyboardInterrupt())
        self.assertEqual([], self.tenants())
        settle_story(self.store.flush())
        self.assertEqual(["queued"], self.tenants())

    def run_all(self, seed: int, *stories: Coroutine[Any, Any, Any]) -> None:
        """Run stories side by side; none may fail."""
        scheduler = Scheduler(seed, FakeClock())
        tasks = [scheduler.spawn("story", story) for story in stories]
        scheduler.run()
        self.assertEqual([None] * len(tasks), [task.error for task in tasks])


class CallerTest(unittest.TestCase):
    """SimCaller."""

    def test_it_keeps_what_it_was_sent(self) -> None:
        """And knows whether the stream was whole."""
        scheduler = Scheduler(1, FakeClock())
        caller = SimCaller(scheduler)

        async def serves() -> None:
            await caller.start()
            await caller.send(b"one ")
            self.assertEqual((True, b"one ", False), (caller.started, caller.received, caller.finished))
            await caller.finish(b"two")

        task = scheduler.spawn("server", serves())
        scheduler.run()
        self.assertEqual((None, b"one two", True), (task.error, caller.received, caller.finished))

    def test_a_pause_takes_its_time(self) -> None:
        """None at all if it is zero, but still a place where others may run."""
        clock = FakeClock()
        scheduler = Scheduler(1, clock)
        caller = SimCaller(scheduler)

        async def waits() -> None:
            await caller.pause(0)
            self.assertEqual(0, clock.now_s())
            await caller.pause(2.5)

        task = scheduler.spawn("waiter", waits())
        scheduler.run()
        self.assertEqual((None, 2.5, 3), (task.error, clock.now_s(), scheduler.effects))


if __name__ == "__main__":
    unittest.main()
