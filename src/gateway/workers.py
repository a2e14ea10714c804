"""An elastic pool of threads with a bound and without a queue: work starts at once, or is refused.

The thread that became idle last is used first, so those that are not needed stay idle and end. Knows nothing of what
it runs.
"""

import threading
from collections.abc import Callable

IDLE_S = 10.0
"""How long a thread without work waits for some: longer than the gaps of a busy minute, short of keeping a peak's
threads for good."""

Job = Callable[[], None]


class _Worker:
    """One thread; `job` is set before `wake` is released."""

    __slots__ = ("job", "wake")

    def __init__(self, job: Job) -> None:
        self.job: Job | None = job
        self.wake = threading.Lock()
        self.wake.acquire()


class Workers:
    """At most `most` threads. `_lock` guards `_idle` and `_count`.

    name      of the threads, with a number
    on_error  told of what a job raised; the thread goes on
    idle_s    how long a thread waits for a next job before it ends
    """

    def __init__(self, most: int, name: str, on_error: Callable[[BaseException], None], *, idle_s: float) -> None:
        self._most = most
        self._name = name
        self._on_error = on_error
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._count = 0
        self._started = 0

    @property
    def count(self) -> int:
        """Threads, idle ones included."""
        return self._count

    @property
    def crowded(self) -> bool:
        """Whether most threads that there may be are at work: then none should wait for what may come."""
        return (self._count - len(self._idle)) * 2 > self._most

    def submit(self, job: Job) -> bool:
        """Run `job` on a thread now; False if all are at work, or no thread can be started."""
        with self._lock:
            if self._idle:
                worker = self._idle.pop()
                worker.job = job
                worker.wake.release()
                return True
            if self._count >= self._most:
                return False
            self._count += 1
            self._started += 1
            name = f"{self._name}-{self._started}"
        try:
            threading.Thread(target=self._work, args=(_Worker(job),), name=name, daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                self._count -= 1
            self._on_error(error)
            return False
        return True

    def _work(self, worker: _Worker) -> None:
        while worker.job is not None:
            job, worker.job = worker.job, None
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - a thread of the pool outlives every job
                self._on_error(error)
            del job
            self._rest(worker)

    def _rest(self, worker: _Worker) -> None:
        """Wait for the next job; without one in time, `job` stays None and the thread is no longer counted."""
        with self._lock:
            self._idle.append(worker)
        if worker.wake.acquire(timeout=self._idle_s):
            return
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
                self._count -= 1
                return
        worker.wake.acquire()
