"""Clients that mean no good: they send half a head, or drip it, or announce a body that never comes, and stay.

Each waits to be ended by the gateway. One that is still there at its deadline has overstayed: it holds something for as
long as it likes. Everything happens on the loop.
"""

from collections.abc import Callable
from itertools import cycle

from evals.loop import READABLE, WRITABLE, Loop
from evals.openloop import connect

_DRIP_S = 0.1
_HALF_A_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bear"
_ANNOUNCED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer %b\r\n%bcontent-length: %d\r\n\r\n{"
)
_TOO_LARGE, _ALLOWED = 5_000_000_000, 1_000_000


class Hostile:
    """One such client.

    pieces      what it sends: the first at once, the others one by one
    deadline_s  the moment by which it must have been ended
    tell        is called once: whether it was
    """

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        pieces: list[bytes],
        deadline_s: float,
        tell: Callable[[bool], None],
    ) -> None:
        self._loop = loop
        self._pieces = pieces
        self._tell = tell
        self._over = False
        self._sock = connect(address)
        loop.watch(self._sock, WRITABLE, lambda _: self._send())
        loop.at(deadline_s, lambda: self._finish(ended=False))

    def _send(self) -> None:
        if self._over:
            return
        try:
            self._sock.send(self._pieces.pop(0))
        except OSError:
            self._finish(ended=True)
            return
        self._loop.watch(self._sock, READABLE, lambda _: self._receive())
        if self._pieces:
            self._loop.after(_DRIP_S, self._send)

    def _receive(self) -> None:
        try:
            data = self._sock.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._finish(ended=True)

    def _finish(self, *, ended: bool) -> None:
        if self._over:
            return
        self._over = True
        self._loop.forget(self._sock)
        self._sock.close()
        self._tell(ended)


def half_open() -> list[bytes]:
    """Half a head, and silence."""
    return [_HALF_A_HEAD]


def dripping(seconds: float) -> list[bytes]:
    """A head that comes byte by byte and never ends, for longer than so many seconds."""
    endless = cycle(b"x-drip: ")
    return [b"GET /healthz HTTP/1.1\r\n", *(bytes([next(endless)]) for _ in range(int(2 * seconds / _DRIP_S)))]


def huge(key: str, number: int) -> list[bytes]:
    """A body that is announced, too large or just allowed, with or without waiting to be asked for it; none comes."""
    expect = b"expect: 100-continue\r\n" if number % 2 else b""
    return [_ANNOUNCED % (key.encode(), expect, _TOO_LARGE if number % 4 < 2 else _ALLOWED)]
