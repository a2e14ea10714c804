"""Who of those that never wait may run: few at a time, in the order in which they came. Knows no requests, no sockets.

A thread that waits for nothing keeps the interpreter's lock: whoever does wait, for a commit or an upstream, would have
to win it back from all of them at each step. Behind a turnstile they wait for each other instead, without that lock.
"""

import threading
from collections import deque

WIDTH = 2
"""With one, the interpreter idles whenever the turn changes; with more, its lock is harder to win."""


class Turnstile:
    """`_lock` guards what changes. Nobody waits in line while fewer than `width` are inside."""

    def __init__(self, width: int = WIDTH) -> None:
        self._width = width
        self._lock = threading.Lock()
        self._inside = 0
        self._line: deque[threading.Lock] = deque()

    def enter(self) -> None:
        """Wait for a turn; leave() gives it on, exactly once."""
        with self._lock:
            if self._inside < self._width:
                self._inside += 1
                return
            turn = threading.Lock()
            turn.acquire()
            self._line.append(turn)
        turn.acquire()

    def leave(self) -> None:
        """End a turn: the first in line has it."""
        with self._lock:
            turn = self._line.popleft() if self._line else None
            if turn is None:
                self._inside -= 1
        if turn is not None:
            turn.release()
