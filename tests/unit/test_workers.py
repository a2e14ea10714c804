"""The pool of threads: it grows with the work, has a bound, refuses beyond it, and shrinks."""

import threading
import unittest
from collections.abc import Callable
from unittest import mock

from gateway.workers import Workers

PATIENCE_S = 30.0  # only a failing test waits so long


class WorkersTest(unittest.TestCase):
    def setUp(self) -> None:
        self.errors: list[BaseException] = []
        self.go_on = threading.Event()
        self.addCleanup(self.go_on.set)

    def pool(self, most: int = 4, idle_s: float = PATIENCE_S) -> Workers:
        return Workers(most, "test", self.errors.append, idle_s=idle_s)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what another thread is about to do."""
        pause = threading.Event()
        for _ in range(round(PATIENCE_S * 1000)):
            if condition():
                return
            pause.wait(0.001)
        raise AssertionError("it did not happen")

    def wait(self) -> None:
        """A job that lasts."""
        self.go_on.wait(PATIENCE_S)

    def test_there_is_a_thread_for_each_job_up_to_the_bound(self) -> None:
        """Beyond it a job is refused, and nothing waits."""
        pool = self.pool(most=3)
        self.assertEqual([pool.submit(self.wait) for _ in range(4)], [True, True, True, False])
        self.assertEqual((pool.count, pool.crowded), (3, True))
        self.go_on.set()
        self.until(lambda: pool.submit(lambda: None))
        self.assertEqual(pool.count, 3)

    def test_an_idle_thread_is_used_again(self) -> None:
        """One job after the other makes one thread, and each runs once."""
        pool, done = self.pool(), threading.Semaphore(0)
        names = []

        def job() -> None:
            names.append(threading.current_thread().name)
            done.release()

        for _ in range(50):
            self.until(lambda: not pool.count or bool(pool._idle))
            self.assertTrue(pool.submit(job))
            self.assertTrue(done.acquire(timeout=PATIENCE_S))
        self.assertEqual(names, ["test-1"] * 50)
        self.assertEqual((pool.count, pool.crowded), (1, False))

    def test_a_thread_without_work_ends(self) -> None:
        """After its patience the pool is empty, and can grow again."""
        pool = self.pool(idle_s=0.01)
        for _ in range(2):
            self.assertTrue(pool.submit(lambda: None))
            self.until(lambda: pool.count == 0)

    def test_a_job_that_raises_is_reported_and_its_thread_goes_on(self) -> None:
        """Whatever it raises."""
        pool = self.pool()
        for error in (KeyError("a"), SystemExit()):

            def job(error: BaseException = error) -> None:
                raise error

            self.assertTrue(pool.submit(job))
            self.until(lambda error=error: error in self.errors)  # type: ignore[misc]
        self.until(lambda: len(pool._idle) == pool.count)

    def test_a_lack_of_threads_is_a_refusal(self) -> None:
        """It is reported, and the count is right."""
        pool = self.pool()
        with mock.patch("gateway.workers.threading.Thread", side_effect=RuntimeError("can't start new thread")):
            self.assertFalse(pool.submit(lambda: None))
        self.assertEqual((pool.count, [type(error) for error in self.errors]), (0, [RuntimeError]))
        self.assertTrue(pool.submit(lambda: None))

    def test_no_job_is_lost_or_run_twice_when_threads_end_at_that_moment(self) -> None:
        """Jobs come just when patience ends."""
        pool, ran = self.pool(most=8, idle_s=0.0005), [0] * 400

        def job(number: int) -> None:
            ran[number] += 1

        pause = threading.Event()
        for number in range(400):
            self.until(lambda number=number: pool.submit(lambda: job(number)))  # type: ignore[misc]
            pause.wait(0.0005)
        self.until(lambda: pool.count == 0)
        self.assertEqual(ran, [1] * 400)


if __name__ == "__main__":
    unittest.main()
