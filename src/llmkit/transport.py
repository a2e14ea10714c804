"""Sockets to upstreams: the only file that opens them.

Decides when a connection is opened, reused and closed, and how far a failed call got. Knows HTTP/1.1 only through
`http1`, and nothing of what travels. Blocking for the caller, non-blocking underneath: one poll watches the upstream
and the caller's cancel descriptor, before every read and whenever a write would block.

Rules.
- Four clocks and the caller's deadline run side by side; the first to fire is named in the error. `ttft` runs until
  body bytes come (a head alone is no answer: reasoning models send it early), `idle` between body bytes, `total` over
  the whole call, a second connection included.
- Every failure is a ProviderError that says how far the call got, or what `cancel.reason()` gave, whose `__cause__`
  is then the ProviderError with those facts. The socket is closed before it is raised.
- A redirect is an error: headers, Authorization among them, go to the configured origin only.
- A pooled connection that ends without a byte of an answer is replaced by a fresh one, once.
- A connection is pooled only after a whole answer to a whole request. One that is given up within a request is reset.
"""

import errno
import functools
import math
import os
import re
import select
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NewType, NoReturn

from msgspec import Struct

from llmkit.base_url import BaseUrl
from llmkit.errors import ProviderError, ProviderErrorKind
from llmkit.http1 import BadResponse, ResponseHead, ResponseReader
from llmkit.resolver import Lookup, Resolver, system_lookup
from llmkit.types import Cancel, Pulse
from llmkit.watch import Call, CancelledError, Deadline, ExpiredError, Watch

RECV_BYTES = 65_536
SEND_BYTES = 262_144  # a larger body leaves in slices, so that it is not copied whole into a TLS buffer
END_S = 0.005  # far longer than the end takes to follow, and shorter than a connection takes to open
ONE_WRITE_BYTES = 65_536  # a body up to this size is copied behind its head, to leave in the same packet

RequestHead = NewType("RequestHead", bytes)
"""Of requests through one pool, but for what each has of its own; made by Pool.head alone."""

_NEVER = Deadline(math.inf, "rest")
_RESET = struct.pack("ii", 1, 0)  # half a request is not for delivery, and its reader may never make room for the rest
_METHODS = frozenset(("DELETE", "GET", "PATCH", "POST", "PUT"))  # not HEAD: its answer is framed otherwise
_OWN_HEADERS = frozenset(
    ("accept-encoding", "connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding")
) | {"upgrade"}
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NOT_IN_A_VALUE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
_PATH = re.compile(r"/[!$-~]*")


class Timeouts(Struct, frozen=True):
    """The clocks of one call, in seconds above zero; ValueError otherwise.

    connect_s  name resolution, TCP and TLS together
    ttft_s     from the first write to the first body byte of the answer
    idle_s     from asking for more of the body until some comes
    total_s    the whole call
    """

    connect_s: float = 5.0
    ttft_s: float = 120.0
    idle_s: float = 60.0
    total_s: float = 600.0

    def __post_init__(self) -> None:
        """Refuse a clock that would fire at once."""
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above zero")


class Pool:
    """Connections to one origin, shared by many threads; the last one used is the first one used again.

    `_lock` guards `_idle` and `_room`; no I/O is done under it. At most max_idle connections wait, each at most
    max_idle_s seconds (4: below the 5 s after which common servers close theirs); what is too old or too many is
    closed when the next one comes back.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeouts: Timeouts,
        clock: Callable[[], float],
        ssl_context: ssl.SSLContext | None = None,
        max_idle_s: float = 4.0,
        max_idle: int = 64,
        lookup: Lookup = system_lookup,
    ) -> None:
        """ValueError if base_url is not one.

        clock        monotonic seconds
        ssl_context  used for https as it is; without one, certificates are verified against the system's roots
        lookup       resolves the host; blocks, in a thread of its own
        """
        self.base_url = BaseUrl.parse(base_url)
        self._timeouts = timeouts
        self._clock = clock
        self._tls = (ssl_context or _system_tls()) if self.base_url.scheme == "https" else None
        self._max_idle_s = max_idle_s
        self._room = max_idle  # for idle connections; none once closed
        self._resolver = Resolver(self.base_url.host, self.base_url.port, clock=clock, lookup=lookup)
        self._lock = threading.Lock()
        self._idle: deque[tuple[float, socket.socket]] = deque()  # since when, oldest first

    def head(self, method: str, path: str, headers: Sequence[tuple[str, str]]) -> RequestHead:
        """What many requests have in common, rendered once for all of them.

        path     appended to the base URL's; starts with a slash, may hold a query
        headers  beside Host, Content-Length and Accept-Encoding, which are the transport's own
        Raises ValueError if it cannot be written safely.
        """
        if method not in _METHODS or not _PATH.fullmatch(path):
            raise ValueError("a request needs a known method, and a path of visible ASCII that starts with a slash")
        target = f"{method} {self.base_url.path}{path} HTTP/1.1\r\nhost: {self.base_url.authority}\r\n"
        return RequestHead(f"{target}accept-encoding: identity\r\n{_header_lines(headers)}".encode("latin-1"))

    def request(
        self,
        head: RequestHead,
        body: bytes,
        headers: Sequence[tuple[str, str]] = (),
        *,
        cancel: Cancel | None = None,
        pulse: Pulse | None = None,
        deadline_s: float | None = None,
    ) -> "Exchange":
        """Send a request and wait for the head of its answer.

        head        of this pool
        headers     what this request has beside those of its head
        cancel      watched until the Exchange is closed
        pulse       beats while the call waits for anything, until then
        deadline_s  the point on `clock` at which the caller's own time is over
        Returns an Exchange whose head has any status from 200 but 3xx; close it.
        Raises ValueError, and nothing was sent, if the headers cannot be written safely; else see the module.
        """
        request = _request(head, body, headers)
        now_s = self._clock()
        limit = Deadline(now_s + self._timeouts.total_s, "total")
        if deadline_s is not None:
            limit = min(limit, Deadline(deadline_s, "client"))
        call = Call(self._clock, cancel, limit, pulse)
        pooled = self._take_idle(now_s)
        if pooled is not None:
            try:
                return Exchange(pooled, call, self._timeouts, self._give_back, reused=True).start(request)
            except _StaleError:
                pass
        return Exchange(self._connect(call), call, self._timeouts, self._give_back, reused=False).start(request)

    @property
    def idle(self) -> int:
        """How many connections wait to be used again."""
        return len(self._idle)

    def close(self) -> None:
        """Close what waits, and from now on what comes back. Exchanges that are out go on."""
        with self._lock:
            self._room = 0
            waiting, self._idle = self._idle, deque()
        for _, sock in waiting:
            sock.close()

    def _take_idle(self, now_s: float) -> socket.socket | None:
        with self._lock:
            if not self._idle:
                return None
            since_s, sock = self._idle.pop()
        if now_s - since_s <= self._max_idle_s:
            return sock
        sock.close()
        return None

    def _give_back(self, sock: socket.socket) -> None:
        now_s = self._clock()
        surplus, too_old_s = [], now_s - self._max_idle_s
        with self._lock:
            idle = self._idle
            idle.append((now_s, sock))
            while idle and (len(idle) > self._room or idle[0][0] < too_old_s):
                surplus.append(idle.popleft()[1])
        for old in surplus:
            old.close()

    def _connect(self, call: Call) -> socket.socket:
        """A fresh connection, TLS included, within the connect clock. Raises with nothing sent."""
        deadline = Deadline(self._clock() + self._timeouts.connect_s, "connect")
        try:
            call.check()
            sock = self._dial(call, deadline)
            return sock if self._tls is None else _secure(sock, self._tls, self.base_url.host, call, deadline)
        except _FAILURES as error:
            _fail(error, sent=False, first_byte_seen=False)

    def _dial(self, call: Call, deadline: Deadline) -> socket.socket:
        """A connection to the first address that takes one; each may use its even share of the time left."""

        def wait(fd: int) -> None:
            Watch(fd, call).wait(select.POLLIN, deadline)

        addresses = self._resolver.addresses(wait)
        failure: Exception | None = None
        for left, (family, address) in zip(range(len(addresses), 0, -1), addresses, strict=True):
            now_s = self._clock()
            share = Deadline(now_s + (deadline.at_s - now_s) / left, "connect")
            try:
                return _open(family, address, call, share)
            except (OSError, ExpiredError) as error:
                if isinstance(error, ExpiredError) and error.clock != "connect":
                    raise
                failure = error
        raise failure or OSError("the name has no address")


class Exchange:
    """One request and its answer on one connection; made by Pool.request, used by one thread, closed by its user."""

    head: ResponseHead

    def __init__(
        self,
        sock: socket.socket,
        call: Call,
        timeouts: Timeouts,
        give_back: Callable[[socket.socket], None],
        *,
        reused: bool,
    ) -> None:
        self._sock = sock
        self._tls = sock if isinstance(sock, ssl.SSLSocket) else None
        self._call = call
        self._watch = Watch(sock.fileno(), call)
        self._ttft = Deadline(call.clock() + timeouts.ttft_s, "ttft")
        self._idle_s = timeouts.idle_s
        self._rest = _NEVER
        self._give_back = give_back
        self._reused = reused
        self._reader = ResponseReader()
        self._fault: BadResponse | None = None  # raised once what came before it has been taken
        self._open = True
        self._sent = False
        self._request_is_out = False
        self._first_byte_seen = False
        self._body_seen = False

    def start(self, request: Sequence[bytes]) -> "Exchange":
        """Send the request and receive the head; for Pool.request alone."""
        try:
            if self._reused and self._watch.ready(select.POLLIN):
                raise ConnectionResetError(errno.ECONNRESET, "closed while it was idle")
            self._request_is_out = all(map(self._write, request))
            while (head := self._reader.head) is None:
                self._receive(self._ttft)
            if 300 <= head.status < 400:
                raise BadResponse("a redirect, which is never followed")
        except BaseException as error:  # noqa: BLE001 - raised again
            self._abandon(error)
        self.head = head
        return self

    def read(self, *, awaiting_first: bool = False) -> bytes | None:
        """The next bytes of the body, never empty; None at its complete end.

        awaiting_first  the ttft clock still runs although body bytes came: they were only a sign of life.
        Raises what Pool.request raises, but not before everything that came was returned; ValueError once closed.
        """
        if not self._open:
            raise ValueError("the exchange is closed")
        deadline = None
        try:
            while not (data := self._reader.take()):
                if self._reader.complete:
                    return None
                deadline = deadline or self._body_deadline(awaiting_first)
                self._receive(deadline)
        except BaseException as error:  # noqa: BLE001 - raised again
            self._abandon(error)
        self._body_seen = True
        return data

    @property
    def at_end(self) -> bool:
        """Whether read() has nothing more to give, and will say so at once."""
        return self._reader.at_end

    def hurry(self, seconds: float) -> None:
        """Let the rest of the body take so long at most, beside the other clocks; a clock named `rest` fires then."""
        self._rest = Deadline(self._call.clock() + seconds, "rest")

    def close(self, *, awaiting_end: bool = False) -> None:
        """Pool the connection if the answer is whole (its end may just have arrived), else close it. Idempotent.

        awaiting_end  the end is known to be on its way: some servers send it apart from the last event. Wait END_S.
        """
        if not self._open:
            return
        self._open = False
        if self._request_is_out and self._is_whole(awaiting_end) and self._reader.keep_alive:
            self._give_back(self._sock)
        else:
            self._hang_up()

    def _body_deadline(self, awaiting_first: bool) -> Deadline:
        if not self._body_seen:
            return min(self._ttft, self._rest)
        idle = min(Deadline(self._call.clock() + self._idle_s, "idle"), self._rest)
        return min(idle, self._ttft) if awaiting_first else idle

    def _write(self, data: bytes) -> bool:
        """Send all of data; False if the upstream answered or hung up before it took everything."""
        left: bytes | memoryview = data if len(data) <= SEND_BYTES else memoryview(data)
        mask = select.POLLOUT if self._tls else select.POLLOUT | select.POLLIN
        self._sent = self._sent or self._tls is not None  # TLS does not tell what a blocked write has let out
        while left:
            try:
                left = left[self._sock.send(left[:SEND_BYTES]) :]
                self._sent = True
            except ssl.SSLWantReadError:
                self._watch.wait(select.POLLIN, self._ttft)
            except (BlockingIOError, ssl.SSLWantWriteError):
                if self._watch.wait(mask, self._ttft) & select.POLLIN:
                    self._receive(self._ttft)
                    if self._reader.head is not None or self._fault is not None:
                        return False
            except ConnectionError:
                return False
        return True

    def _receive(self, deadline: Deadline) -> None:
        """Hand what arrives next to the reader."""
        if self._fault is not None:
            raise self._fault
        data = self._recv(deadline)
        if not data and not self._first_byte_seen:
            raise NoAnswerError(errno.ECONNRESET, "closed without an answer")
        self._first_byte_seen = True
        try:
            if data:
                self._reader.feed(data)
            else:
                self._reader.end()
        except BadResponse as fault:
            self._fault = fault

    def _recv(self, deadline: Deadline) -> bytes:
        mask = select.POLLIN
        while True:
            if self._tls is not None and self._tls.pending():
                self._watch.ready(mask)
            else:
                self._watch.wait(mask, deadline)
            try:
                return self._sock.recv(RECV_BYTES)
            except ssl.SSLWantWriteError:
                mask = select.POLLOUT
            except (BlockingIOError, ssl.SSLWantReadError):
                mask = select.POLLIN

    def _is_whole(self, awaiting_end: bool) -> bool:
        """Whether the answer is complete, after one look at what may have arrived."""
        if not self._reader.complete and self._fault is None:
            try:
                if awaiting_end:
                    self._watch.wait(select.POLLIN, Deadline(self._call.clock() + END_S, "end"))
                self._reader.feed(self._sock.recv(RECV_BYTES))
            except (OSError, BadResponse, ExpiredError, CancelledError):
                return False
        return self._reader.complete

    def _hang_up(self) -> None:
        """Close the socket; by a reset if half of the request is still on its way."""
        if self._sent and not self._request_is_out:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._sock.close()

    def _abandon(self, error: BaseException) -> NoReturn:
        """Close the socket, and raise what the error means."""
        self._open = False
        self._hang_up()
        if not isinstance(error, _FAILURES):
            raise error
        ended = isinstance(error, (ConnectionError, ssl.SSLError))
        if ended and self._reused and not self._first_byte_seen:
            raise _StaleError from error
        status = self._reader.head.status if self._reader.head else None
        _fail(error, sent=self._sent, first_byte_seen=self._first_byte_seen, status=status, reused=self._reused)


class NoAnswerError(ConnectionResetError):
    """The upstream closed the connection without a byte of an answer."""


class _StaleError(Exception):
    """A pooled connection ended without carrying a byte of an answer."""


_FAILURES = (OSError, BadResponse, ExpiredError, CancelledError)


def _fail(
    error: Exception, *, sent: bool, first_byte_seen: bool, status: int | None = None, reused: bool = False
) -> NoReturn:
    """Raise what ended a call as a ProviderError with the facts; every foreign exception goes through here."""
    kind = ProviderErrorKind.MALFORMED if first_byte_seen else ProviderErrorKind.SERVER
    clock = None
    match error:
        case ExpiredError():
            kind, clock = ProviderErrorKind.TIMEOUT, error.clock
            message = f"the upstream took too long ({clock})"
        case CancelledError():
            message = "the call was cancelled"
        case BadResponse():
            message = f"the upstream's answer is unusable: {error}"
        case _:
            message = f"the connection to the upstream failed: {getattr(error, 'strerror', None) or error}"
    facts = ProviderError(
        kind,
        message,
        sent=sent,
        first_byte_seen=first_byte_seen,
        status=status,
        reused_connection=reused,
        clock=clock,
        failure=_failure(error),
    )
    if isinstance(error, CancelledError):
        raise error.reason from facts
    raise facts from error


def _failure(error: BaseException) -> str:
    """The class of what failed, and which case it is if the class leaves that open: names of libraries, no text.

    What a look-up of a name ended in is the cause of the OSError that tells of it.
    """
    if type(error) is OSError and error.__cause__ is not None:
        error = error.__cause__
    case = None
    if isinstance(error, ssl.SSLError):
        case = error.reason
    elif isinstance(error, socket.gaierror):
        case = _LOOKUP_CASES.get(error.errno)
    elif type(error) is OSError:
        case = errno.errorcode.get(error.errno or 0)
    return f"{type(error).__name__} {case}" if case else type(error).__name__


_LOOKUP_CASES = {getattr(socket, name): name for name in dir(socket) if name.startswith("EAI_")}


def _open(family: socket.AddressFamily, address: Any, call: Call, deadline: Deadline) -> socket.socket:
    """A connected non-blocking TCP socket. Raises OSError, or what waiting raises."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        failed = sock.connect_ex(address)
        if failed == errno.EINPROGRESS:
            Watch(sock.fileno(), call).wait(select.POLLOUT, deadline)
            failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            raise OSError(failed, os.strerror(failed))
    except BaseException:
        sock.close()
        raise
    return sock


def _secure(sock: socket.socket, context: ssl.SSLContext, host: str, call: Call, deadline: Deadline) -> ssl.SSLSocket:
    """TLS over a connected socket, verified as the context says. Whatever happens, the plain socket is gone."""
    with sock:
        tls = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    watch = Watch(tls.fileno(), call)
    try:
        while True:
            try:
                tls.do_handshake()
                return tls
            except ssl.SSLWantReadError:
                watch.wait(select.POLLIN, deadline)
            except ssl.SSLWantWriteError:
                watch.wait(select.POLLOUT, deadline)
    except BaseException:
        tls.close()
        raise


def _request(head: RequestHead, body: bytes, headers: Sequence[tuple[str, str]]) -> list[bytes]:
    """The bytes to send, head and body in one piece when that is cheap."""
    whole_head = b"%b%bcontent-length: %d\r\n\r\n" % (head, _header_lines(headers).encode("latin-1"), len(body))
    return [whole_head + body] if len(body) <= ONE_WRITE_BYTES else [whole_head, body]


def _header_lines(headers: Sequence[tuple[str, str]]) -> str:
    lines = ""
    for name, value in headers:
        if not (value.isascii() and value.isprintable()) and _NOT_IN_A_VALUE.search(value):
            raise ValueError(f"the value of header {name!r} holds a control character, or one beyond Latin-1")
        lines += f"{_header_name(name)}: {value}\r\n"
    return lines


@functools.lru_cache(maxsize=128)  # callers have a few
def _header_name(name: str) -> str:
    if not _TOKEN.fullmatch(name) or name.lower() in _OWN_HEADERS:
        raise ValueError(f"not a header for a caller to set: {name!r}")
    return name


@functools.cache
def _system_tls() -> ssl.SSLContext:
    """Verifies against the system's roots. Once, because loading them takes milliseconds."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
