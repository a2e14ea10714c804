"""The HTTP front: sockets, limits and drain. It knows no routes, no keys and no JSON but its own refusals.

Decides which connections and requests are served, for how long they may take, and how the process stops. What a
request means is decided by the one function handed in, which gets an Exchange for each. Rules:

- One thread per connection, of which there are at most `max_connections`. Only that thread reads, writes and closes
  its socket; other threads may only shut it down.
- Every wait for a client ends at an absolute deadline. A write may stall for `write_timeout_s`.
- A request that is cut before its head is whole is never handed on; a body that is cut is never handed over.
- A connection goes on only after the request body was read whole: otherwise what is left of it would be taken for the
  next request.
- An answer leaves in one write. Before a connection closes, what the client still sends is read for a moment, since
  closing with unread bytes resets the connection and can destroy the answer on its way.
- Pipelined bytes are served before the thread waits for the client again.

The threads of a life: `accept` takes connections, or turns them away without ever blocking; a connection's thread
reads a head, runs the function handed in to its end, and waits for the next; whoever calls `drain` waits for them.

TLS is not spoken here: put a terminating proxy in front.
"""

import collections
import contextlib
import errno
import json
import re
import select
import socket
import socketserver
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any

from gateway.clock import Clock
from gateway.errors import ClientGone, Draining, forget
from gateway.http_body import ChunkedReader, too_large
from gateway.http_head import (
    HeadLimits,
    HttpRefusal,
    NoBody,
    RequestHead,
    Sized,
    find_head_end,
    parse_head,
)

_READ_BYTES = 65_536
_BODY_READ_BYTES = 262_144
_WRITE_BYTES = 262_144  # a client must take so much per write_timeout_s
_LINGER_S = 1.0
_LINGER_BYTES = 67_108_864  # a client that sends a body it was refused for reads its answer only afterwards
_CUT_GRACE_S = 2.0  # for the last event of an exchange that is cut, and for the threads to end
_LOOK_S = 0.05  # how often a drain looks whether it should hurry
_ACCEPT_PAUSE_S = 0.05
_TURNED_AWAY = 64  # refused connections that are kept open for a moment
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_WITHOUT_BODY = frozenset({204, 304})
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class FrontLimits:
    """What a client may take of this process; seconds above 0 (the two of the drain 0 or more), counts above 0.

    max_in_flight  exchanges being worked on, streams included; one more is answered 503 at once
    """

    max_body_bytes: int = 20_000_000
    max_connections: int = 2048
    max_in_flight: int = 1024
    header_timeout_s: float = 10
    body_timeout_s: float = 30
    write_timeout_s: float = 30
    idle_timeout_s: float = 75
    announce_s: float = 5
    drain_s: float = 30
    head: HeadLimits = field(default_factory=HeadLimits)


class Phase(IntEnum):
    """The stages of a server's life, in order; only the first is false."""

    SERVING = 0
    ANNOUNCING = 1  # serves as before, and closes each connection after its answer
    DRAINING = 2  # what is in flight ends; what arrives is to be refused
    CLOSED = 3


class ClientWatch:
    """Tells an upstream call that its client no longer waits: the socket to poll, and why it fired.

    A client that closes only its sending half counts as gone. `drained` is set by the thread that drains, before it
    makes the socket fire.
    """

    __slots__ = ("drained", "fd", "mask")

    def __init__(self, sock: socket.socket) -> None:
        self.fd = sock.fileno()
        self.mask = select.POLLRDHUP | select.POLLHUP | select.POLLERR
        self.drained = False

    def reason(self) -> Exception | None:
        """Draining, ClientGone, or None if the client is still there."""
        if self.drained:
            return Draining()
        poller = select.poll()
        poller.register(self.fd, self.mask)
        return ClientGone() if poller.poll(0) else None


class _Stage(Enum):
    """How far the answer of an exchange has come."""

    UNANSWERED = 0
    HELD = 1  # a stream's head waits for the first event
    STREAMING = 2
    ENDED = 3


_UNANSWERED, _HELD, _STREAMING, _ENDED = _Stage  # a look-up in an Enum is slow, and these are on every write's path


class Exchange:
    """One request and its one answer. Used by the connection's thread alone.

    The answer is either one `respond`, or `start_stream`, any number of `send`, and `finish` or `abort`; RuntimeError
    for any other order. content-length, transfer-encoding and connection are written here: never pass them. The
    connection goes on only if the request body was read before the answer began.

    head    the request head
    cancel  a llmkit.types.Cancel that fires when the client leaves, or when the drain's deadline has passed
    """

    __slots__ = ("_body", "_chunked", "_connection", "_held", "_keep", "_stage", "cancel", "head")

    def __init__(self, connection: "_Connection", head: RequestHead) -> None:
        self.head = head
        self.cancel = connection.watch
        self._connection = connection
        self._body = b"" if isinstance(head.body, NoBody) else None
        self._stage = _UNANSWERED
        self._chunked = head.version == (1, 1)
        self._held = b""
        self._keep = False

    @property
    def closing(self) -> bool:
        """Whether the connection closes after this answer whatever it is: the client or the process wants to end."""
        return not self.head.keep_alive or bool(self._connection.server.phase)

    @property
    def draining(self) -> bool:
        """Whether new work is to be refused, since the process is ending."""
        return self._connection.server.draining

    @property
    def ended(self) -> bool:
        """Whether the answer was completed or given up."""
        return self._stage is _ENDED

    @property
    def keep(self) -> bool:
        """Whether the connection may serve another request."""
        return self._keep and self.ended

    def read_body(self) -> bytes:
        """The whole request body, decoded; the same bytes on every call.

        A client that asked for it is told to go on first. Raises HttpRefusal: 413 beyond max_body_bytes (a stated
        length before anything is read), 408 after body_timeout_s, 400 malformed chunks; ClientGone or Draining if
        the body was cut.
        """
        if self._body is None:
            self._body = self._connection.read_body(self.head)
        return self._body

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send the whole answer in one write and end the exchange.

        status   HTTP status, 200..599
        headers  names and values without control characters, else ValueError and nothing is sent
        body     left out for HEAD, 204 and 304
        Raises ClientGone if the client does not take it.
        """
        self._expect_stage(_UNANSWERED)
        framing = "" if status in _WITHOUT_BODY else f"content-length: {len(body)}\r\n"
        answer = self._answer_head(status, headers, framing, delimited=True)
        if self.head.method != "HEAD" and framing:
            answer += body
        self._stage = _ENDED
        self._connection.write(answer)

    def start_stream(self, status: int, headers: Headers) -> None:
        """Begin an answer of unknown length. Its head is held until the first `send`, so that both leave together.

        Raises ValueError for a control character in `headers`. Chunked for HTTP/1.1; for 1.0 the end is the close.
        """
        self._expect_stage(_UNANSWERED)
        framing = "transfer-encoding: chunked\r\n" if self._chunked else ""
        self._held = self._answer_head(status, headers, framing, delimited=self._chunked)
        self._stage = _HELD

    def send(self, data: bytes) -> None:
        """Send the next piece of a stream in one write; nothing for no bytes. Raises ClientGone."""
        self._expect_stage(_HELD, _STREAMING)
        if data:
            self._emit(self._framed(data))

    def finish(self, last: bytes = b"") -> None:
        """End a stream as complete; `last` leaves in the same write as the end. Raises ClientGone."""
        self._expect_stage(_HELD, _STREAMING)
        end = _LAST_CHUNK if self._chunked and self.head.method != "HEAD" else b""
        self._emit((self._framed(last) if last else b"") + end)
        self._stage = _ENDED

    def abort(self) -> None:
        """End without completing the answer: the connection closes, and the client sees that something is missing.

        What has been sent still arrives, except over HTTP/1.0, where only a reset shows that a stream was cut.
        """
        if self._stage is _STREAMING and not self._chunked:
            self._connection.reset_on_close()
        self._stage = _ENDED
        self._keep = False

    def fail(self, error: BaseException) -> None:
        """Called by the server: end by an error of the function handed in, and answer it if nothing was sent yet."""
        sent = self._stage in (_STREAMING, _ENDED)
        self.abort()
        if isinstance(error, ClientGone):
            self._connection.gone = True
        elif not sent:
            with contextlib.suppress(ClientGone):
                refusal = _refusal_for(error)
                self._connection.write(self._connection.server.refusal(refusal, with_body=self.head.method != "HEAD"))

    def _answer_head(self, status: int, headers: Headers, framing: str, *, delimited: bool) -> bytes:
        """The head, which says whether the connection goes on: only if the answer ends before the connection does."""
        self._keep = delimited and self._body is not None and not self.closing
        if not self._keep:
            framing += "connection: close\r\n"
        elif not self._chunked:
            framing += "connection: keep-alive\r\n"
        return _answer_head(status, headers, framing)

    def _framed(self, data: bytes) -> bytes:
        if self.head.method == "HEAD":
            return b""
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _emit(self, data: bytes) -> None:
        self._stage = _STREAMING
        if self._held:
            data, self._held = self._held + data, b""
        self._connection.write(data)

    def _expect_stage(self, *stages: _Stage) -> None:
        if self._stage not in stages:
            raise RuntimeError(f"not possible for an answer that is {self._stage.name.lower()}")


class _Connection(socketserver.BaseRequestHandler):
    """One client's connection: drives one exchange after the other until one side wants to end.

    parked  waiting for the first byte of a request: may be closed by a drain. Written before `phase` is read, as the
            drain writes `phase` before it reads `parked`: one of the two sees the other.
    busy    an exchange is being worked on
    gone    nobody is there to read: close without ado
    """

    server: "FrontServer"
    request: socket.socket

    def setup(self) -> None:
        self.watch = ClientWatch(self.request)
        self.parked = False
        self.busy = False
        self.gone = False
        self._served = False
        self._unread = b""
        limits = self.server.limits
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(limits.idle_timeout_s))
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(limits.write_timeout_s))
        self.server.attach(self)

    def handle(self) -> None:
        try:
            while head := self._read_head():
                exchange = Exchange(self, head)
                self.server.serve(self, exchange)
                self._served = True
                if not exchange.keep:
                    return
            self.gone = True
        except HttpRefusal as refusal:
            with contextlib.suppress(ClientGone):
                self.write(self.server.refusal(refusal))
            self.server.on_error(refusal)

    def finish(self) -> None:
        """Say that nothing more comes, then read on for a moment, so that no reset overtakes the answer."""
        if self.gone:
            return
        with contextlib.suppress(OSError):
            self.request.shutdown(socket.SHUT_WR)
            deadline_s = self.server.clock.now_s() + _LINGER_S
            left = _LINGER_BYTES
            while left > 0 and (data := self._receive(deadline_s)):
                left -= len(data)

    def cut(self) -> None:
        """Called by the drain: make the watch of the exchange fire."""
        self.watch.drained = True
        self.shut(socket.SHUT_RD)

    def shut(self, how: int) -> None:
        """Called by the drain: wake the connection's thread; bytes that have arrived can still be read."""
        with contextlib.suppress(OSError):
            self.request.shutdown(how)

    def reset_on_close(self) -> None:
        """Let the close be a reset, which discards what is on its way."""
        self.gone = True
        with contextlib.suppress(OSError):
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def write(self, data: bytes) -> None:
        """Send all of `data`, in one call unless it is large. Raises ClientGone if the client does not take it."""
        try:
            for start in range(0, len(data), _WRITE_BYTES):
                piece = data[start : start + _WRITE_BYTES]
                if self.request.send(piece) != len(piece):
                    raise TimeoutError
        except OSError as error:
            raise ClientGone from error

    def read_body(self, head: RequestHead) -> bytes:
        """The body that `head` frames; see Exchange.read_body."""
        limits = self.server.limits
        if isinstance(head.body, Sized) and head.body.length > limits.max_body_bytes:
            raise too_large()
        if head.expects_continue and not self._unread:
            self.write(_CONTINUE)
        deadline_s = self.server.clock.now_s() + limits.body_timeout_s
        try:
            if isinstance(head.body, Sized):
                return self._read_sized(head.body.length, deadline_s)
            return self._read_chunked(deadline_s)
        except TimeoutError:
            raise HttpRefusal(408, "request_timeout", "The request body did not arrive in time.") from None

    def _read_sized(self, length: int, deadline_s: float) -> bytes:
        pieces = [self._unread[:length]]
        self._unread = self._unread[length:]
        missing = length - len(pieces[0])
        while missing:
            pieces.append(self._receive_body(deadline_s, min(missing, _BODY_READ_BYTES)))
            missing -= len(pieces[-1])
        return b"".join(pieces)

    def _read_chunked(self, deadline_s: float) -> bytes:
        reader = ChunkedReader(self.server.limits.max_body_bytes)
        pieces = [reader.feed(self._unread)]
        while not reader.complete:
            pieces.append(reader.feed(self._receive_body(deadline_s, _BODY_READ_BYTES)))
        self._unread = reader.rest
        return b"".join(pieces)

    def _receive_body(self, deadline_s: float, max_bytes: int) -> bytes:
        data = self._receive(deadline_s, max_bytes)
        if not data:
            raise Draining if self.watch.drained else ClientGone
        return data

    def _read_head(self) -> RequestHead | None:
        """The next request's head, or None if there is none: the client closed, cut its head, or was idle too long."""
        if not self._unread:
            self._unread = self._wait_for_request()
            if not self._unread:
                return None
        limits = self.server.limits.head
        end = find_head_end(self._unread, limits)
        if end is None:
            end = self._read_rest_of_head(limits)
            if end is None:
                return None
        raw, self._unread = self._unread[:end], self._unread[end:]
        return parse_head(raw, limits)

    def _wait_for_request(self) -> bytes:
        """The first bytes of a request, in one system call; none if the wait is over for whatever reason."""
        self.parked = True
        flags = socket.MSG_DONTWAIT if self._served and self.server.draining else 0
        try:
            return self.request.recv(_READ_BYTES, flags)
        except OSError:
            return b""
        finally:
            self.parked = False

    def _read_rest_of_head(self, limits: HeadLimits) -> int | None:
        deadline_s = self.server.clock.now_s() + self.server.limits.header_timeout_s
        end = None
        while end is None:
            try:
                data = self._receive(deadline_s)
            except TimeoutError:
                raise HttpRefusal(408, "request_timeout", "The request head did not arrive in time.") from None
            if not data:
                return None
            seen = len(self._unread)
            self._unread += data
            end = find_head_end(self._unread, limits, seen)
        return end

    def _receive(self, deadline_s: float, max_bytes: int = _READ_BYTES) -> bytes:
        """More bytes before the deadline, else TimeoutError; none once the client has closed or reset."""
        poller = select.poll()
        poller.register(self.request, select.POLLIN)
        while (left_s := deadline_s - self.server.clock.now_s()) > 0:
            if poller.poll(left_s * 1000):
                try:
                    return self.request.recv(max_bytes, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    continue
                except OSError:
                    return b""
        raise TimeoutError


class FrontServer(ThreadingHTTPServer):
    """Accepts connections, runs `handle` once per request, and drains.

    handle    called on the connection's thread; may raise HttpRefusal, ClientGone, Draining or anything else, which is
              answered, if nothing was sent yet, and closes the connection
    exempt    whether a path (health) is served even above max_in_flight
    on_error  told of every exception that ended an exchange or a head, and of a lack of file descriptors; sorts by
              type, writes no secrets, never raises
    stamp     headers of each answer that the front makes by itself: a request id

    `_lock` guards `_in_flight`, `_connections` and `turned_away`; it is held for no call of a caller's function and
    for no I/O. `phase` only grows.
    """

    request_queue_size = 512
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        address: tuple[str, int],
        handle: Callable[[Exchange], None],
        limits: FrontLimits,
        clock: Clock,
        *,
        exempt: Callable[[str], bool] = lambda path: False,
        on_error: Callable[[BaseException], None] = lambda error: None,
        stamp: Callable[[], Headers] = lambda: (),
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """Bind and listen; OSError if the address is taken. Connections are accepted after `start`."""
        self.limits = limits
        self.clock = clock
        self.on_error = on_error
        self.phase = Phase.SERVING
        self.turned_away = 0
        self._handle = handle
        self._exempt = exempt
        self._stamp = stamp
        self._pause = pause or threading.Event().wait
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._in_flight = 0
        self._connections: dict[socket.socket, _Connection | None] = {}
        self._refused: collections.deque[tuple[float, socket.socket]] = collections.deque()
        self._acceptor: threading.Thread | None = None
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Connection)

    @property
    def draining(self) -> bool:
        """Whether new requests are to be refused."""
        return self.phase >= Phase.DRAINING

    @property
    def in_flight(self) -> int:
        """Exchanges being worked on."""
        return self._in_flight

    @property
    def connections(self) -> int:
        """Connections that have a thread."""
        return len(self._connections)

    def start(self) -> None:
        """Accept connections on a thread of its own."""
        self._acceptor = threading.Thread(target=self.serve_forever, name="accept", daemon=True)
        self._acceptor.start()

    def drain(self, stop_now: threading.Event) -> int:
        """Stop gently and return how many exchanges were left behind.

        Announces for announce_s, then finishes what is in flight within drain_s, then closes everything. `stop_now`
        cuts every wait short. Blocks; call it on no thread of this server.
        """
        self.begin_drain()
        stop_now.wait(self.limits.announce_s)
        self.stop_admitting()
        return self.finish(self.clock.now_s() + self.limits.drain_s, stop_now)

    def begin_drain(self) -> None:
        """From now on every answer closes its connection; requests are still served."""
        self._advance(Phase.ANNOUNCING)

    def stop_admitting(self) -> None:
        """Close idle connections, and let `draining` tell the function handed in to refuse what arrives."""
        self._advance(Phase.DRAINING)
        for connection in self._snapshot():
            if connection.parked:
                connection.shut(socket.SHUT_RD)

    def finish(self, deadline_s: float, stop_now: threading.Event) -> int:
        """Wait for the exchanges in flight until `deadline_s` of the clock, cut the others, and close.

        A cut exchange's `cancel` gives Draining; it has two seconds to tell its client. Returns how many were left.
        """
        if not self._wait_until(self._is_quiet, deadline_s, stop_now):
            for connection in self._snapshot():
                if connection.busy:
                    connection.cut()
            self._wait_until(self._is_quiet, self.clock.now_s() + _CUT_GRACE_S, stop_now)
        left = self._in_flight
        self.close()
        self._wait_until(self._is_deserted, self.clock.now_s() + _CUT_GRACE_S, stop_now)
        return left

    def close(self) -> None:
        """Stop accepting and cut every connection at once."""
        self._advance(Phase.CLOSED)
        if self._acceptor is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)  # wakes the accept loop
            self.shutdown()
            self._acceptor.join()
        self.server_close()
        for connection in self._snapshot():
            connection.shut(socket.SHUT_RDWR)
        for _, refused in self._refused:
            refused.close()

    def attach(self, connection: _Connection) -> None:
        """Called by a connection's thread: the connection can be reached by a drain."""
        with self._lock:
            self._connections[connection.request] = connection
        if self.phase is Phase.CLOSED:
            connection.shut(socket.SHUT_RDWR)

    def serve(self, connection: _Connection, exchange: Exchange) -> None:
        """Called by a connection's thread: run one exchange to its end, whatever happens."""
        if not self._enter(exchange.head.path):
            self._fail(exchange, HttpRefusal(503, "overloaded", "Too many requests are in flight."))
            return
        connection.busy = True
        try:
            self._handle(exchange)
            if not exchange.ended:
                raise RuntimeError("a request was left without an end of its answer")
        except BaseException as error:  # noqa: BLE001 - nothing may leave an exchange open
            self._fail(exchange, error)
        finally:
            connection.busy = False
            self._leave()

    def refusal(self, refusal: HttpRefusal, *, with_body: bool = True) -> bytes:
        """The front's own answer, whole; it also announces the close."""
        kind = "invalid_request_error" if refusal.status < 500 else "server_error"
        error = {"message": refusal.message, "type": kind, "param": None, "code": refusal.code}
        body = json.dumps({"error": error}).encode()
        headers = [("content-type", "application/json"), *self._stamp()]
        if refusal.status == 503:
            headers.append(("retry-after", "1"))
        head = _answer_head(refusal.status, headers, f"content-length: {len(body)}\r\nconnection: close\r\n")
        return head + body if with_body else head

    def server_bind(self) -> None:
        """Bind without http.server's look-up of the host's name, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept; when descriptors have run out, pause, since the listening socket stays readable."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self.on_error(error)
                self._pause(_ACCEPT_PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread if there is room for it."""
        with self._lock:
            room = len(self._connections) < self.limits.max_connections
            if room:
                self._connections[request] = None
        if not room:
            self._turn_away(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError as error:  # no thread can be started
            self._forget(request)
            self._turn_away(request)
            self.on_error(error)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The life of a connection's thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def shutdown_request(self, request: Any) -> None:
        """Close; whether to end politely first was the connection's decision."""
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report instead of printing."""
        error = sys.exc_info()[1]
        if error is not None:
            self.on_error(error)

    def service_actions(self) -> None:
        """Called by the accept loop: close the connections turned away a moment ago."""
        while self._refused and (self._refused[0][0] <= self.clock.now_s() or len(self._refused) > _TURNED_AWAY):
            self._refused.popleft()[1].close()

    def _turn_away(self, request: socket.socket) -> None:
        """Answer 503 without waiting. The close comes later: a client that is still sending would be reset by it."""
        self.turned_away += 1
        with contextlib.suppress(OSError):
            request.setblocking(False)
            request.send(self.refusal(_TOO_MANY_CONNECTIONS))
            request.shutdown(socket.SHUT_WR)
        self._refused.append((self.clock.now_s() + _LINGER_S, request))

    def _enter(self, path: str) -> bool:
        with self._lock:
            if self._in_flight < self.limits.max_in_flight:
                self._in_flight += 1
                return True
        if not self._exempt(path):
            return False
        with self._lock:
            self._in_flight += 1
        return True

    def _leave(self) -> None:
        with self._lock:
            self._in_flight -= 1
            if self.phase and not self._in_flight:
                self._changed.notify_all()

    def _fail(self, exchange: Exchange, error: BaseException) -> None:
        exchange.fail(error)
        self.on_error(error)
        forget(error)

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            del self._connections[request]
            if not self._connections:
                self._changed.notify_all()

    def _advance(self, phase: Phase) -> None:
        self.phase = max(self.phase, phase)

    def _snapshot(self) -> list[_Connection]:
        with self._lock:
            return [connection for connection in self._connections.values() if connection is not None]

    def _is_quiet(self) -> bool:
        return not self._in_flight

    def _is_deserted(self) -> bool:
        return not self._connections

    def _wait_until(self, condition: Callable[[], bool], deadline_s: float, stop_now: threading.Event) -> bool:
        """Wait for `condition` until the deadline or until told to hurry; whether it holds."""
        with self._lock:
            while not condition() and not stop_now.is_set():
                left_s = deadline_s - self.clock.now_s()
                if left_s <= 0:
                    break
                self._changed.wait(min(left_s, _LOOK_S))
            return condition()


def _timeval(seconds: float) -> bytes:
    """A socket option's struct timeval; rounded up to a microsecond, since 0 would mean for ever."""
    micros = max(int(seconds * 1_000_000), 1)
    return struct.pack("ll", micros // 1_000_000, micros % 1_000_000)


def _answer_head(status: int, headers: Headers, framing: str) -> bytes:
    if _CONTROL.search("".join(map("".join, headers))):
        raise ValueError("a response header holds a control character")
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers])
    return f"{_STATUS_LINES[status]}{fields}{framing}\r\n".encode("latin-1")


def _refusal_for(error: BaseException) -> HttpRefusal:
    """What a client is told when the function handed in did not answer."""
    if isinstance(error, HttpRefusal):
        return error
    if isinstance(error, Draining):
        return HttpRefusal(503, "draining", "The gateway is shutting down.")
    return HttpRefusal(500, "internal_error", "The gateway failed to handle this request.")


_TOO_MANY_CONNECTIONS = HttpRefusal(503, "overloaded", "Too many connections are open.")
