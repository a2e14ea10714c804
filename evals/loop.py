"""One thread that waits for many sockets and keeps a timetable. It knows nothing of what travels.

Whatever it runs must not block. Raising ends the run: there is nobody to tell but whoever runs it.
"""

import heapq
import select
import socket
import time
from collections.abc import Callable
from itertools import count

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
_LOOK_S = 0.05


class Loop:
    """Used by the thread that runs it alone."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._acts: dict[int, Callable[[int], None]] = {}
        self._timetable: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def now_s(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def at(self, at_s: float, act: Callable[[], None]) -> None:
        """Run `act` once, at this monotonic second or as soon after it as there is time."""
        heapq.heappush(self._timetable, (at_s, next(self._order), act))

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Run `act` once, so many seconds from now."""
        self.at(self.now_s() + seconds, act)

    def watch(self, sock: socket.socket, mask: int, act: Callable[[int], None]) -> None:
        """Call `act` with what epoll says whenever the socket is ready; instead of what was asked for it before.

        A socket that was closed and whose number is in use again may be called once too often: reads must not block.
        """
        number = sock.fileno()
        if number in self._acts:
            self._epoll.modify(number, mask)
        else:
            self._epoll.register(number, mask)
        self._acts[number] = act

    def forget(self, sock: socket.socket) -> None:
        """Watch it no longer; before it is closed. Does nothing for one that is not watched."""
        if self._acts.pop(sock.fileno(), None) is not None:
            self._epoll.unregister(sock.fileno())

    def run(self, until: Callable[[], bool]) -> None:
        """Wait and act until `until` says so; it is asked at least twenty times a second."""
        while not until():
            for number, mask in self._epoll.poll(self._wait_s()):
                act = self._acts.get(number)
                if act is not None:
                    act(mask)
            now_s = self.now_s()
            while self._timetable and self._timetable[0][0] <= now_s:
                heapq.heappop(self._timetable)[2]()

    def close(self) -> None:
        """Sockets stay open."""
        self._epoll.close()

    def _wait_s(self) -> float:
        if not self._timetable:
            return _LOOK_S
        return min(max(self._timetable[0][0] - self.now_s(), 0.0), _LOOK_S)
