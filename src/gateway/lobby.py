"""Where connections wait that need no thread: for a request or the rest of its head, for a place, for a hang-up.

One thread with one epoll looks after all of them. It reads heads as they come; a whole one is handed on, a bad or a
late one is refused. Knows no routes and no answers. Rules:

- A connection in the lobby belongs to the lobby's thread; one that was handed on belongs to whoever got it.
- Descriptors are armed for one event at a time, and unregistered before they are closed.
- Each bench has one patience, counted from when a connection sat down on it: whoever sits longest is at its head.
- Where many have something to say, one party is heard after the other, by whose the last request of a connection was:
  beside busy threads a look at one takes milliseconds, and a thousand of one party would be heard before another one.
"""

import contextlib
import itertools
import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from gateway.clock import Clock
from gateway.connection import Connection
from gateway.errors import HttpRefusal
from gateway.http_head import HeadLimits, RequestHead
from gateway.refusals import REST_S
from gateway.rotation import Rotation

LEAVE_S = 1.0
"""How long a client may take to hang up once it has its last answer."""

HASTE_S = 1.0
"""How long a new connection may take to send its first request while the process ends."""

_MOST_TURNED_AWAY = 64
"""Connections beyond the limit that are kept open for a moment; closing at once could destroy their refusal."""

_EVENTS = 256
_LOOKS = 8  # at connections, before it is asked which others have something to say by now
_AWAKE = float("-inf")  # when a thread that is not asleep wakes up
_HANG_UP = select.EPOLLRDHUP | select.EPOLLONESHOT
_MASK = select.EPOLLIN | _HANG_UP


class Host(Protocol):
    """Who runs the lobby."""

    def hand_on(self, connection: Connection, head: RequestHead) -> None:
        """Take a connection over, with a request of it; without waiting."""
        ...

    def refuse(self, connection: Connection, refusal: HttpRefusal) -> None:
        """Answer a request that cannot be served and dismiss() the connection; without waiting."""
        ...

    def closed(self, connection: Connection) -> None:
        """The connection is closed."""
        ...

    def leaves_line(self, connection: Connection, *, late: bool) -> bool:
        """A connection in line has waited for too long, or else its client has left: take it, unless it has a place.

        Returns whether it was taken.
        """
        ...

    def on_error(self, error: BaseException) -> None:
        """Something went wrong that is nobody's refusal; never raises."""
        ...


class _Bench:
    """Connections that wait for the same thing, in the order in which their patience ends."""

    def __init__(self, patience_s: float, events: int = _MASK) -> None:
        self.patience_s = patience_s
        self.events = events
        self.waiting: dict[Connection, None] = {}

    def first_end_s(self) -> float | None:
        """When the patience of the first one ends."""
        first = next(iter(self.waiting), None)
        return first.deadline_s if first is not None else None

    def shorten(self, patience_s: float) -> None:
        """Let all that sit here, and will, be less patient."""
        less_s = max(self.patience_s - patience_s, 0)
        self.patience_s -= less_s
        for connection in self.waiting:
            connection.deadline_s -= less_s

    def overdue(self, now_s: float) -> list[Connection]:
        """Those whose patience has ended."""
        return list(itertools.takewhile(lambda connection: connection.deadline_s <= now_s, self.waiting))


class Lobby:
    """The parked connections. `_lock` guards the benches, `_where`, `_open` and `_wakes_at_s`, but that its thread
    may write _AWAKE. `_crowd` is its thread's alone: those that wait for a look at them.

    idle_timeout_s, header_timeout_s  patience for the first byte of a request, and from then on for its whole head
    queue_wait_s                      patience for a place
    """

    def __init__(
        self,
        host: Host,
        limits: HeadLimits,
        clock: Clock,
        *,
        idle_timeout_s: float,
        header_timeout_s: float,
        queue_wait_s: float,
    ) -> None:
        self._host = host
        self._limits = limits
        self._clock = clock
        self._new = _Bench(idle_timeout_s)
        self._idle = _Bench(idle_timeout_s)
        self._reading = _Bench(header_timeout_s)
        self._in_line = _Bench(queue_wait_s, _HANG_UP)
        self._resting = _Bench(REST_S, _HANG_UP)
        self._leaving = _Bench(LEAVE_S)
        self._turned_away = _Bench(LEAVE_S)
        self._lock = threading.Lock()
        self._where: dict[int, tuple[Connection, _Bench]] = {}
        self._wakes_at_s = float("inf")
        self._open = True
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._thread: threading.Thread | None = None
        self._crowd = Rotation[tuple[Connection, _Bench]]()

    @property
    def parked(self) -> int:
        """How many connections wait here, whatever for."""
        return len(self._where)

    def start(self) -> None:
        """Look after the connections on a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="lobby", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and close every connection that waits here or comes from now on."""
        with self._lock:
            was_open, self._open = self._open, False
        if not was_open:
            return
        self._rouse()
        if self._thread is not None:
            self._thread.join()
        for connection in [connection for connection, _ in self._where.values()]:
            self.let_go(connection)
        with self._lock:
            self._epoll.close()
        os.close(self._wake)

    # --- for whoever owns a connection ----------------------------------------------------------------------------

    def welcome(self, connection: Connection) -> None:
        """Take a new connection: its first request may have arrived already; else it waits for it here."""
        self._attend(self._greet, connection, self._new)

    def park(self, connection: Connection) -> None:
        """Let a connection wait for its next request, of which some bytes may have arrived."""
        self._sit(connection, self._reading if connection.has_unread else self._idle)

    def rest(self, connection: Connection) -> None:
        """Look for a connection's next request only after REST_S."""
        self._sit(connection, self._resting)

    def line_up(self, connection: Connection) -> None:
        """Seat a connection whose request is about to wait for a place: from now on it may get one."""
        with self._lock:
            self._place(connection, self._in_line)

    def watch(self, connection: Connection) -> None:
        """Notice if a connection that lined up hangs up or waits for too long, unless it has a place already.

        Bytes that arrive meanwhile are left where they are.
        """
        rouse = False
        try:
            with self._lock:
                if self._sits(connection, self._in_line) and self._open:
                    rouse = connection.deadline_s < self._wakes_at_s
                    self._arm(connection, self._in_line)
        finally:
            if rouse:
                self._rouse()

    def take(self, connection: Connection) -> None:
        """Take a connection back from the lobby."""
        with self._lock:
            self._stand_up(connection)

    def dismiss(self, connection: Connection) -> None:
        """Wait for a moment until the client hangs up; it has been told that nothing more comes."""
        self._sit(connection, self._leaving)

    def turn_away(self, connection: Connection) -> None:
        """As dismiss(), for a connection beyond the limit: few are kept, the oldest are closed for new ones."""
        self._sit(connection, self._turned_away)
        with self._lock:
            waiting = self._turned_away.waiting
            oldest = list(itertools.islice(waiting, max(len(waiting) - _MOST_TURNED_AWAY, 0)))
        for one in oldest:
            one.shut(socket.SHUT_RDWR)

    def let_go(self, connection: Connection) -> None:
        """Close a connection; its owner calls this."""
        with self._lock:
            self._stand_up(connection)
            if connection.registered and not self._epoll.closed:
                self._epoll.unregister(connection.fd)
            connection.registered = False
        connection.close()
        self._host.closed(connection)

    def empty_idle(self) -> None:
        """Dismiss those that have been served and wait for a next request, now and from now on.

        New connections are still welcome, but must be quick.
        """
        with self._lock:
            self._new.shorten(HASTE_S)
            self._idle.shorten(0)
            self._resting.shorten(0)
        self._rouse()

    def _greet(self, connection: Connection, bench: _Bench) -> None:
        if connection.pull():
            self._read(connection, bench)
        elif connection.gone:
            self.let_go(connection)
        else:
            self._sit(connection, bench)

    def _sit(self, connection: Connection, bench: _Bench) -> None:
        """Seat a connection, or close it: the lobby is closed, or the kernel watches no more descriptors."""
        try:
            with self._lock:
                is_seated = self._open
                if is_seated:
                    self._place(connection, bench)
                    self._arm(connection, bench)
                    rouse = connection.deadline_s < self._wakes_at_s
        except OSError as error:
            is_seated = False
            self._host.on_error(error)
        if not is_seated:
            self.let_go(connection)
        elif rouse:
            self._rouse()

    def _place(self, connection: Connection, bench: _Bench) -> None:
        connection.deadline_s = self._clock.now_s() + bench.patience_s
        bench.waiting[connection] = None
        self._where[connection.fd] = (connection, bench)

    def _arm(self, connection: Connection, bench: _Bench) -> None:
        if connection.registered:
            self._epoll.modify(connection.fd, bench.events)
        else:
            self._epoll.register(connection.fd, bench.events)
            connection.registered = True

    def _sits(self, connection: Connection, bench: _Bench) -> bool:
        return self._where.get(connection.fd) == (connection, bench)

    def _stand_up(self, connection: Connection) -> None:
        connection_there, bench = self._where.get(connection.fd, (None, None))
        if connection_there is connection and bench is not None:
            del self._where[connection.fd]
            del bench.waiting[connection]

    def _rouse(self) -> None:
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wake, 1)

    # --- the lobby's thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._open:
            events = self._epoll.poll(0 if self._crowd.parties else self._patience_s(), _EVENTS)
            self._wakes_at_s = _AWAKE
            is_crowded = bool(self._crowd.parties) or len(events) > _LOOKS
            for fd, _ in events:
                if fd == self._wake:
                    os.eventfd_read(self._wake)
                    continue
                with self._lock:
                    seat = self._where.get(fd)
                if seat is not None and is_crowded:
                    self._crowd.put(seat[0].party, seat)
                elif seat is not None:
                    self._attend(self._look_at, *seat)
            if is_crowded:
                self._look_at_some()
            for connection, bench in self._overdue():
                self._attend(self._lose_patience, connection, bench)

    def _look_at_some(self) -> None:
        """A few looks into the crowd; not at those that have been taken from here, or moved, meanwhile."""
        for _ in range(_LOOKS):
            seat = self._crowd.take()
            if seat is None:
                return
            with self._lock:
                is_there = self._sits(*seat)
            if is_there:
                self._attend(self._look_at, *seat)

    def _attend(self, act: Callable[[Connection, _Bench], None], connection: Connection, bench: _Bench) -> None:
        """Do something for one connection; whatever goes wrong with it, the others are looked after."""
        try:
            act(connection, bench)
        except BaseException as error:  # noqa: BLE001 - the thread of all connections outlives each
            self._host.on_error(error)
            self.let_go(connection)

    def _patience_s(self) -> float | None:
        """How long nothing ends by itself; None if nothing does."""
        with self._lock:
            ends = [end_s for bench in self._benches() if (end_s := bench.first_end_s()) is not None]
            self._wakes_at_s = min(ends, default=float("inf"))
        return max(min(ends) - self._clock.now_s(), 0) if ends else None

    def _benches(self) -> tuple[_Bench, ...]:
        return self._new, self._idle, self._reading, self._in_line, self._resting, self._leaving, self._turned_away

    def _look_at(self, connection: Connection, bench: _Bench) -> None:
        """Something has arrived, or the client has left."""
        if bench is self._leaving or bench is self._turned_away:
            if connection.discard():
                self._go_on_waiting(connection, bench)
            else:
                self.let_go(connection)
        elif bench is self._in_line:
            self._host.leaves_line(connection, late=False)
        elif connection.pull():
            self._read(connection, bench)
        elif connection.gone:
            self.let_go(connection)
        else:
            self._go_on_waiting(connection, bench)

    def _read(self, connection: Connection, bench: _Bench) -> None:
        try:
            head = connection.take_head(self._limits)
        except HttpRefusal as refusal:
            self._refuse(connection, refusal)
            return
        if head is not None:
            self.take(connection)
            self._host.hand_on(connection, head)
        elif bench is self._reading:
            self._go_on_waiting(connection, bench)
        else:
            self.take(connection)
            self.park(connection)

    def _refuse(self, connection: Connection, refusal: HttpRefusal) -> None:
        self.take(connection)
        self._host.refuse(connection, refusal)

    def _go_on_waiting(self, connection: Connection, bench: _Bench) -> None:
        with self._lock:
            self._arm(connection, bench)

    def _wait_longer(self, connection: Connection, bench: _Bench) -> None:
        """Start its patience anew: it has a place, and whoever serves it is about to take it."""
        with self._lock:
            if self._sits(connection, bench):
                self._stand_up(connection)
                self._place(connection, bench)

    def _lose_patience(self, connection: Connection, bench: _Bench) -> None:
        if bench is self._reading:
            self._refuse(connection, _LATE)
        elif bench is self._in_line:
            if not self._host.leaves_line(connection, late=True):
                self._wait_longer(connection, bench)
        elif bench is self._resting:
            self._read(connection, bench)
        elif bench is self._idle or bench is self._new:
            self._part(connection, bench)
        else:
            self.let_go(connection)

    def _part(self, connection: Connection, bench: _Bench) -> None:
        """End a connection that waits for a request, unless one has arrived at the last moment."""
        if connection.pull():
            self._read(connection, bench)
        elif connection.gone:
            self.let_go(connection)
        else:
            self.take(connection)
            connection.say_end()
            self.dismiss(connection)

    def _overdue(self) -> list[tuple[Connection, _Bench]]:
        now_s = self._clock.now_s()
        with self._lock:
            return [(connection, bench) for bench in self._benches() for connection in bench.overdue(now_s)]


_LATE = HttpRefusal(408, "request_timeout", "The request head did not arrive in time.")
