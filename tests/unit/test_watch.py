"""Waiting for a descriptor, a caller that may leave, a pulse and clocks, over a pair of sockets."""

import math
import os
import select
import socket
import unittest
from collections.abc import Callable

from llmkit.errors import ProviderError
from llmkit.transport import _fail
from llmkit.types import Cancel
from llmkit.watch import Call, CancelledError, Deadline, ExpiredError, Watch

NEVER = Deadline(math.inf, "total")


class Ticking:
    """A clock that goes on by `step_s` whenever it is read; what should happen by then is called."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.now_s = 0.0
        self.at: dict[float, Callable[[], object]] = {}

    def __call__(self) -> float:
        self.now_s += self.step_s
        for at_s in [at_s for at_s in self.at if at_s <= self.now_s]:
            self.at.pop(at_s)()
        return self.now_s


class Beats:
    """A pulse that notes when it beats; it beats again `every_s` later."""

    def __init__(self, clock: Ticking, every_s: float, *, trouble: Exception | None = None) -> None:
        self.clock = clock
        self.every_s = every_s
        self.trouble = trouble
        self.due_s = every_s
        self.beats: list[float] = []

    def beat(self) -> None:
        self.beats.append(self.clock.now_s)
        self.due_s = self.clock.now_s + self.every_s
        if self.trouble is not None:
            raise self.trouble


class Left(Exception):
    """What a client gives as the reason for leaving."""


class WatchTest(unittest.TestCase):
    """One end of a pair is watched."""

    def setUp(self) -> None:
        self.here, self.there = socket.socketpair()
        self.addCleanup(self.here.close)
        self.addCleanup(self.there.close)
        self.clock = Ticking(1.0)

    def watch(self, *, pulse: Beats | None = None, cancel: Cancel | None = None, limit: Deadline = NEVER) -> Watch:
        """A watch over this end."""
        return Watch(self.here.fileno(), Call(self.clock, cancel, limit, pulse))

    def test_what_has_come_is_told_at_once(self) -> None:
        """As the events of the descriptor."""
        self.there.send(b"x")
        self.assertEqual(self.watch().wait(select.POLLIN, NEVER), select.POLLIN)
        self.assertEqual(self.clock.now_s, 1)

    def test_the_earlier_clock_fires(self) -> None:
        """The wait's own, or the call's last; it is named."""
        for deadline, limit, named in (
            (Deadline(1.0, "idle"), NEVER, "idle"),
            (Deadline(9.0, "idle"), Deadline(1.0, "total"), "total"),
        ):
            self.setUp()
            with self.subTest(named), self.assertRaises(ExpiredError) as expired:
                self.watch(limit=limit).wait(select.POLLIN, deadline)
            self.assertEqual(expired.exception.clock, named)

    def test_a_pulse_beats_while_a_wait_goes_on(self) -> None:
        """Each time it is due, until something comes."""
        self.clock.step_s = 0.001
        pulse = Beats(self.clock, 0.003)
        self.clock.at[0.02] = lambda: self.there.send(b"x")
        self.assertEqual(self.watch(pulse=pulse).wait(select.POLLIN, NEVER), select.POLLIN)
        self.assertGreaterEqual(len(pulse.beats), 2)
        for earlier, later in zip(pulse.beats, pulse.beats[1:], strict=False):
            self.assertGreaterEqual(later - earlier, 0.003)

    def test_a_pulse_that_is_not_due_does_not_beat(self) -> None:
        """Nor one that never is."""
        self.there.send(b"x")
        for every_s in (5.0, math.inf):
            pulse = Beats(self.clock, every_s)
            self.watch(pulse=pulse).wait(select.POLLIN, NEVER)
            self.assertEqual(pulse.beats, [])

    def test_a_pulse_beats_though_no_wait_ever_blocks(self) -> None:
        """A trickle of bytes, always one in time, keeps the client no less patient."""
        pulse = Beats(self.clock, 4.0)
        watch = self.watch(pulse=pulse)
        for _ in range(20):
            self.there.send(b"x")
            watch.wait(select.POLLIN, NEVER)
            self.here.recv(1)
        self.assertEqual(pulse.beats, [4, 8, 12, 16, 20])

    def test_a_clock_that_fired_goes_before_the_pulse(self) -> None:
        """Nobody is kept waiting for what is over."""
        pulse = Beats(self.clock, 1.0)
        with self.assertRaises(ExpiredError):
            self.watch(pulse=pulse).wait(select.POLLIN, Deadline(1.0, "idle"))
        self.assertEqual(pulse.beats, [])

    def test_what_a_beat_raises_ends_the_wait_as_a_cancellation(self) -> None:
        """Also when bytes are there."""
        self.there.send(b"x")
        trouble = Left()
        with self.assertRaises(CancelledError) as cancelled:
            self.watch(pulse=Beats(self.clock, 1.0, trouble=trouble)).wait(select.POLLIN, NEVER)
        self.assertIs(cancelled.exception.reason, trouble)

    def test_the_caller_of_the_transport_gets_what_the_beat_raised(self) -> None:
        """With the facts of the call as its cause."""
        trouble = Left()
        with self.assertRaises(Left) as raised:
            _fail(CancelledError(trouble), sent=True, first_byte_seen=False)
        self.assertIs(raised.exception, trouble)
        self.assertIsInstance(trouble.__cause__, ProviderError)

    def test_a_cancellation_goes_before_events_that_came_with_it(self) -> None:
        """A false alarm is none."""
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        os.close(writing)
        self.there.send(b"x")
        for reason in (Left(), None):
            cancel = Cancels(reading, reason)
            if reason is None:
                self.assertEqual(self.watch(cancel=cancel).wait(select.POLLIN, NEVER), select.POLLIN)
            else:
                with self.assertRaises(CancelledError):
                    self.watch(cancel=cancel).wait(select.POLLIN, NEVER)

    def test_a_look_neither_waits_nor_beats(self) -> None:
        """It only asks whether the call may still go on."""
        pulse = Beats(self.clock, 0.5)
        watch = self.watch(pulse=pulse, limit=Deadline(3.0, "client"))
        self.assertEqual(watch.ready(select.POLLIN), 0)
        self.there.send(b"x")
        self.assertEqual(watch.ready(select.POLLIN), select.POLLIN)
        with self.assertRaises(ExpiredError):
            watch.ready(select.POLLIN)
        self.assertEqual(pulse.beats, [])


class Cancels:
    """A client whose end fires; `why` is the reason it then gives."""

    def __init__(self, fd: int, why: Exception | None) -> None:
        self.fd = fd
        self.mask = select.POLLHUP
        self._why = why

    def reason(self) -> Exception | None:
        return self._why


if __name__ == "__main__":
    unittest.main()
