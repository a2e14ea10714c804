"""Who of those that never wait may run: few at a time, one party after the other. Knows no requests, no sockets.

A thread that waits for nothing keeps the interpreter's lock: whoever does wait, for a commit or an upstream, would have
to win it back from all of them at each step. So they take turns. Rules:

- Nobody waits in a call: whoever finds no turn leaves word what begins it. Thousands may, without a thread.
- A turn that ends goes to the next one in rotation: nobody waits behind a second one of another party.
"""

import threading
from collections.abc import Callable

from gateway.rotation import Rotation

WIDTH = 2
"""With one, the interpreter idles whenever the turn changes; with more, its lock is harder to win."""

Begin = Callable[[], bool]


class NoTurn(Exception):
    """There is no turn now: join the line."""


class Turnstile:
    """`_lock` guards what changes. Nobody waits in line while fewer than `width` are inside."""

    def __init__(self, width: int = WIDTH) -> None:
        self._width = width
        self._lock = threading.Lock()
        self._inside = 0
        self._line = Rotation[Begin]()

    def enter(self) -> None:
        """Take a turn; leave() ends it, exactly once. Raises NoTurn."""
        with self._lock:
            if self._inside >= self._width:
                raise NoTurn
            self._inside += 1

    def join(self, party: str | None, begin: Begin) -> bool:
        """Stand in line, unless there is a turn by now; whether it does.

        begin  called once the turn has come, by whoever's turn ended: enter() is not called then, leave() is; False if
               nobody needs the turn any more
        """
        with self._lock:
            if self._inside < self._width:
                return False
            self._line.put(party, begin)
            return True

    def leave(self) -> None:
        """End a turn: it is that of the next in line."""
        while (begin := self._next()) is not None and not begin():
            pass

    def _next(self) -> Begin | None:
        """Who has the turn that ended; None if nobody wants it."""
        with self._lock:
            begin = self._line.take()
            if begin is None:
                self._inside -= 1
            return begin
