"""A client that asks when its timetable says so, whatever has been answered: open loop, so that waiting counts.

It behaves as the connection pool of an HTTP library does: a request takes the connection that was used last and idles,
or opens one; what is idle for IDLE_S is closed; a request that was refused is not tried again. Time runs from the
moment in the timetable, so a client that comes late counts its own lateness too. Everything happens on the loop, which
never waits for the gateway.
"""

import itertools
import resource
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Final, TypeVar

from evals.loop import READABLE, WRITABLE, Loop

T = TypeVar("T")

IDLE_S = 4.0
PATIENCE_S = 30.0
_RECV_BYTES = 65_536
_SLOW_BYTES, _SLOW_S = 16_384, 0.01
"""What a slow reader takes, and how often: 1.6 MB a second."""

_BIND_ADDRESS_NO_PORT = 24
_HOSTS = itertools.cycle(f"127.0.0.{number}" for number in range(1, 65))
"""Clients are many hosts: one would run out of ports, each of which is kept for a minute after its connection."""

_SMALL_BUFFER = 4_096
_LEAVE_S = 0.004
_END_OF_CHUNKS: Final = b"\r\n0\r\n\r\n"
_FIRST_CONTENT: Final = b'"content":"n'


class Conduct(Enum):
    """What a client does once it has asked."""

    STAYS = auto()
    LEAVES_BEFORE = auto()
    LEAVES_MIDWAY = auto()
    READS_SLOWLY = auto()


class End(Enum):
    """How an exchange ended for the client: with a whole message, cut by the other side, by itself, or not in time."""

    WHOLE = auto()
    CUT = auto()
    LEFT = auto()
    TIMEOUT = auto()


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as it is sent. `keeps_alive`: over the pool; else on a connection of its own."""

    number: int
    wire: bytes
    keeps_alive: bool = True
    conduct: Conduct = Conduct.STAYS


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of it.

    status  0 if no head came
    took_s  since the moment in the timetable; `late_s` is the part of it before the client asked
    """

    status: int
    head: bytes
    raw: bytes
    chunked: bool
    end: End
    took_s: float
    late_s: float

    @property
    def body(self) -> bytes:
        """Decoded. Raises ValueError for chunks that are none."""
        return unchunked(self.raw) if self.chunked else self.raw

    def header(self, name: bytes) -> bytes | None:
        """The value of a header; `name` in lower case."""
        _, found, rest = self.head.lower().partition(b"\r\n" + name + b": ")
        return rest.partition(b"\r\n")[0] if found else None


def unchunked(raw: bytes) -> bytes:
    """The body of complete chunks, as far as they come. Raises ValueError for what is no chunk."""
    parts, at = [], 0
    while at < len(raw):
        end = raw.index(b"\r\n", at)
        size = int(raw[at:end], 16)
        parts.append(raw[end + 2 : end + 2 + size])
        if raw[end + 2 + size : end + 4 + size] != b"\r\n" and len(raw) >= end + 4 + size:
            raise ValueError("a chunk does not end where it said")
        at = end + 4 + size
    return b"".join(parts)


def keep(loop: Loop, timetable: Iterator[tuple[float, T]], act: Callable[[T, float], None]) -> None:
    """Do what is due when it is due: `act` is given each entry and its moment, as soon as there is time from then on.

    timetable  moments on the loop's clock, in order
    """

    def go_on(due: tuple[float, T] | None) -> None:
        now_s = loop.now_s()
        while due is not None and due[0] <= now_s:  # what became due meanwhile waits until answers were read
            act(due[1], due[0])
            due = next(timetable, None)
        if due is not None:
            loop.at(due[0], partial(go_on, due))

    go_on(next(timetable, None))


class Client:
    """Asks one address.

    in_flight  what has been asked and not answered
    _idle      the pool, last used last: since when, and the connection
    """

    def __init__(self, loop: Loop, port: int) -> None:
        self.loop = loop
        self.address = ("127.0.0.1", port)
        self.in_flight = 0
        self._idle: list[tuple[float, socket.socket]] = []

    def ask(self, ask: Ask, due_s: float, tell: Callable[[Ask, Reply], None]) -> None:
        """Send a request that was due at `due_s`; `tell` is called once, when it is over."""
        self.in_flight += 1

        def told(reply: Reply) -> None:
            self.in_flight -= 1
            tell(ask, reply)

        sock = self._take() if ask.keeps_alive else None
        _Exchange(self, ask, due_s, told, sock or self._open(ask))

    @property
    def idle(self) -> int:
        """How many connections wait to be used again."""
        return len(self._idle)

    def close_idle(self) -> None:
        """Close the pool."""
        for _, sock in self._idle:
            self._close(sock)
        self._idle.clear()

    def keep(self, sock: socket.socket) -> None:
        """Take a connection back whose answer has been read to its end."""
        now_s = self.loop.now_s()
        self._idle.append((now_s, sock))
        self.loop.watch(sock, READABLE, lambda _: self._drop(sock))
        while self._idle and now_s - self._idle[0][0] > IDLE_S:
            self._close(self._idle.pop(0)[1])

    def _take(self) -> socket.socket | None:
        if not self._idle:
            return None
        since_s, sock = self._idle.pop()
        if self.loop.now_s() - since_s <= IDLE_S:
            return sock
        self._close(sock)
        return None

    def _open(self, ask: Ask) -> socket.socket:
        return connect(self.address, receive_bytes=_SMALL_BUFFER if ask.conduct is Conduct.READS_SLOWLY else None)

    def _drop(self, sock: socket.socket) -> None:
        """The gateway has closed a connection that idles."""
        self._idle = [entry for entry in self._idle if entry[1] is not sock]
        self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        self.loop.forget(sock)
        sock.close()


def open_files() -> None:
    """Let this process have as many connections as the system allows: an open loop does not know how many it needs."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def connect(address: tuple[str, int], *, receive_bytes: int | None = None) -> socket.socket:
    """A socket that connects by itself; whoever writes to it waits until it can."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
    sock.bind((next(_HOSTS), 0))
    if receive_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.connect_ex(address)
    return sock


class _Exchange:
    """One request on its connection."""

    def __init__(
        self, client: Client, ask: Ask, due_s: float, tell: Callable[[Reply], None], sock: socket.socket
    ) -> None:
        self._client = client
        self._loop = client.loop
        self._ask = ask
        self._due_s = due_s
        self._tell = tell
        self._sock = sock
        self._out = ask.wire
        self._in = bytearray()
        self._body_at = 0
        self._size: int | None = None
        self._over = False
        self._late_s = self._loop.now_s() - due_s
        self._loop.at(due_s + PATIENCE_S, lambda: self._finish(End.TIMEOUT))
        if ask.conduct is Conduct.LEAVES_BEFORE:
            self._loop.after(_LEAVE_S, lambda: self._finish(End.LEFT))
        self._send()

    def _send(self) -> None:
        try:
            self._out = self._out[self._sock.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError:
            self._finish(End.CUT)
            return
        if self._out:
            self._loop.watch(self._sock, WRITABLE, lambda _: self._send())
        elif self._ask.conduct is Conduct.READS_SLOWLY:
            self._loop.forget(self._sock)
            self._loop.after(_SLOW_S, self._read_slowly)
        else:
            self._loop.watch(self._sock, READABLE, lambda _: self._receive(_RECV_BYTES))

    def _read_slowly(self) -> None:
        if not self._over:
            self._receive(_SLOW_BYTES)
            self._loop.after(_SLOW_S, self._read_slowly)

    def _receive(self, size: int) -> None:
        try:
            data = self._sock.recv(size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._finish(End.CUT)
            return
        self._in += data
        if self._is_whole():
            self._finish(End.WHOLE)
        elif self._ask.conduct is Conduct.LEAVES_MIDWAY and _FIRST_CONTENT in data:
            self._finish(End.LEFT)

    def _is_whole(self) -> bool:
        if not self._body_at:
            end = self._in.find(b"\r\n\r\n")
            if end < 0:
                return False
            self._body_at = end + 4
            _, sized, rest = bytes(self._in[:end]).lower().partition(b"\r\ncontent-length: ")
            self._size = int(rest.partition(b"\r\n")[0]) if sized else None
        if self._size is not None:
            return len(self._in) - self._body_at >= self._size
        return self._in.endswith(_END_OF_CHUNKS)

    def _finish(self, end: End) -> None:
        if self._over:
            return
        self._over = True
        head, raw = bytes(self._in[: self._body_at]), bytes(self._in[self._body_at :])
        stays = end is End.WHOLE and self._ask.keeps_alive and b"connection: close" not in head.lower()
        if stays:
            self._client.keep(self._sock)
        else:
            self._loop.forget(self._sock)
            self._sock.close()
        status = int(head[9:12]) if head else 0
        took_s = self._loop.now_s() - self._due_s
        self._tell(Reply(status, head, raw, self._size is None, end, took_s, self._late_s))
