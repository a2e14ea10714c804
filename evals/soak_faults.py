"""Makes the faults of a soak happen, each when it is due.

What is on the loop is done at once; commands and locks block, so hands do them. What a hand cannot do (a command that
fails or takes too long, a process that does not start) is a failure of the gateway, which is counted: the run goes on.
"""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from evals.hostile import Hostile, dripping, half_open, huge
from evals.loop import Loop
from evals.metered import Manner, MeteredUpstream
from evals.process import Child, ask_gateway
from evals.soak_plan import MANNERS, Fault, Trouble, suffers
from evals.soak_tally import Block, Surroundings, Window

T = TypeVar("T")

GONE_S = 12.0
"""When a client that is too slow must be gone, on a machine as busy as may be."""

LOCK_S, BUSY_S = 1.0, 2.5
"""A foreign lock, and how long after it requests may still be refused that met it: the gateway waits two seconds."""

MANY = {Trouble.HALF_OPEN: 150, Trouble.DRIPS: 30, Trouble.HUGE: 20}


class Troublemaker:
    """All faults of one run. Use as a context manager; everything but `command` is called on the loop's thread.

    keys        what the command line said of each key, by name
    hostile     clients that were sent; `overstayed` of them were not gone in time
    failures    what hands could not do and why, in words

    `_one_command` is held by a command and by kill -9 until the next start: a command that finds no living owner of the
    data directory takes its place.
    """

    def __init__(
        self,
        loop: Loop,
        gateway: Child,
        upstreams: Sequence[MeteredUpstream],
        around: Surroundings,
        data: Path,
        *,
        seed: int,
    ) -> None:
        self.keys: Mapping[str, Mapping[str, Any]] = {}
        self.hostile = self.overstayed = 0
        self.failures: list[str] = []
        self._loop, self._gateway, self._upstreams, self._around = loop, gateway, upstreams, around
        self._data, self._seed = data, seed
        self._manner = Manner.GOOD
        self._hands = ThreadPoolExecutor(4)
        self._one_command = threading.Lock()
        self._busy: dict[Future[Any], str] = {}
        self._hostile_left = 0
        upstreams[0].ways.manner = self._manner_of

    def begin(self, fault: Fault) -> None:
        """Let it happen, now."""
        trouble = fault.trouble
        window = Window(self._loop.now_s())
        self._around.windows.append(window)
        if trouble in MANNERS:
            self._manner = MANNERS[trouble]
            self._loop.after(fault.seconds, partial(self._be_good, window))
        elif trouble is Trouble.UPSTREAM_HANGS_UP:
            for upstream in self._upstreams:
                upstream.hang_up()
            window.end_s = self._loop.now_s()
        elif trouble in MANY:
            self._send_hostile(trouble, window)
        else:
            self.by_hand(trouble, partial(self._act, trouble, fault.seconds, window))

    def by_hand(self, what: str, act: Callable[[], T]) -> Future[T]:
        """Do on another thread what blocks; if it raises, `what` is counted as a failure."""
        done = self._hands.submit(act)
        self._busy[done] = what
        return done

    def command(self, *words: str) -> Any:
        """Ask the gateway's command line; it blocks, so only by hand."""
        with self._one_command:
            return ask_gateway(self._data, *words)

    def is_over(self) -> bool:
        """Whether nothing that was begun goes on."""
        for done in [hand for hand in self._busy if hand.done()]:
            what = self._busy.pop(done)
            if (error := done.exception()) is not None:
                self.failures.append(f"{what}: {error!r}")
        return not (self._busy or self._hostile_left)

    def __enter__(self) -> "Troublemaker":
        return self

    def __exit__(self, *_: object) -> None:
        self._hands.shutdown()

    def _manner_of(self, number: int) -> Manner:
        if self._manner is Manner.GOOD or not suffers(number, self._seed):
            return Manner.GOOD
        self._around.met[number] = self._manner
        return self._manner

    def _be_good(self, window: Window) -> None:
        self._manner = Manner.GOOD
        window.end_s = self._loop.now_s()

    def _act(self, trouble: Trouble, seconds: float, window: Window) -> None:
        """A fault that takes a hand; its window ends with it."""
        try:
            match trouble:
                case Trouble.RELOAD:
                    os.kill(self._gateway.pid, signal.SIGHUP)
                case Trouble.BLOCK:
                    self._block(seconds)
                case Trouble.BACKUP:
                    self._back_up()
                case Trouble.LOCK:
                    self._lock(window)
                case Trouble.KILL:
                    with self._one_command:
                        window.codes = frozenset({"*"})
                        self._gateway.kill()
                        self._gateway.start()
        finally:
            window.end_s = self._loop.now_s()

    def _back_up(self) -> None:
        """One that took too long may have been written since, and nothing is overwritten."""
        copy = self._data.parent / "backup.db"
        copy.unlink(missing_ok=True)
        self.command("backup", str(copy))
        copy.unlink()

    def _block(self, seconds: float) -> None:
        key = self.keys["blockable"]["id"]
        block = Block(self._loop.now_s())
        self._around.blocks.append(block)
        try:
            self.command("keys", "block", key)
            block.is_s = self._loop.now_s()
            time.sleep(seconds)
        finally:
            block.may_end_s = self._loop.now_s()
            self.command("keys", "unblock", key)
            block.ended_s = self._loop.now_s()

    def _lock(self, window: Window) -> None:
        window.codes = frozenset({"store_unavailable"})
        with closing(sqlite3.connect(self._data / "ledger.db", isolation_level=None, timeout=BUSY_S)) as foreign:
            foreign.execute("BEGIN IMMEDIATE")
            time.sleep(LOCK_S)
            foreign.execute("ROLLBACK")
        time.sleep(BUSY_S)

    def _send_hostile(self, trouble: Trouble, window: Window) -> None:
        """A crowd of them; the window ends with the last."""
        left = MANY[trouble]
        self.hostile += left
        self._hostile_left += left

        def told(ended: bool) -> None:
            nonlocal left
            left -= 1
            self._hostile_left -= 1
            self.overstayed += not ended
            if not left:
                window.end_s = self._loop.now_s()

        for number in range(MANY[trouble]):
            pieces = _pieces(trouble, self.keys["tenant0"]["key"], number)
            Hostile(self._loop, ("127.0.0.1", self._gateway.port), pieces, self._loop.now_s() + GONE_S, told)


def _pieces(trouble: Trouble, key: str, number: int) -> list[bytes]:
    """What such a client sends."""
    match trouble:
        case Trouble.HALF_OPEN:
            return half_open()
        case Trouble.DRIPS:
            return dripping(GONE_S)
        case _:
            return huge(key, number)
