"""One client's socket: what has arrived and was not read yet, heads, bodies and writes, each with its deadline.

Knows no routes, no answers' form and no threads. One thread at a time owns a connection; other threads may only
shut() it down or cut() it. Rules:

- Every wait for a client ends at an absolute deadline. Each write must be taken within its own.
- Bytes that have arrived are served before the client is waited for again.
- A body that is cut is never handed over.
"""

import contextlib
import select
import socket
import struct
from collections.abc import Callable

from gateway.answers import CONTINUE
from gateway.clock import Clock
from gateway.errors import ClientGone, Draining, HttpRefusal
from gateway.http_body import ChunkedReader, too_large
from gateway.http_head import (
    Chunked,
    HeadLimits,
    Heads,
    NoBody,
    RequestHead,
    Sized,
)

LINGER_S = 0.005
"""How long a thread stays with a connection that it has just served: a busy client's next request comes sooner."""

_READ_BYTES = 65_536
_BODY_READ_BYTES = 262_144
_WRITE_BYTES = 262_144  # a client must take so much per write_timeout_s
_DISCARD_BYTES = 67_108_864  # a client that sends a body it was refused for reads its answer only afterwards


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


class Connection:
    """A client's connection.

    fd          the descriptor; it stays the key of the connection after close()
    watch       fires when the client leaves, or when the connection is cut
    gone        nobody is there to read: close without ado
    is_quick    its last request was answered without waiting for anything, so its next one takes a turn: the server's
    party       whose its last request was, if that is known: the server's
    registered, deadline_s  whether the lobby's epoll knows it, and when its wait there ends: the lobby's
    """

    __slots__ = (
        "_can_linger",
        "_discarded",
        "_heads",
        "_scanned",
        "_sock",
        "_unread",
        "deadline_s",
        "fd",
        "gone",
        "is_quick",
        "party",
        "registered",
        "watch",
    )

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._unread = b""
        self._scanned = 0
        self._heads = Heads()
        self._discarded = 0
        self._can_linger = False
        self.fd = sock.fileno()
        self.watch = ClientWatch(sock)
        self.gone = False
        self.is_quick = False
        self.party: str | None = None
        self.registered = False
        self.deadline_s = 0.0

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that no request has used yet."""
        return bool(self._unread)

    def is_silent(self) -> bool:
        """Whether nothing has arrived that was not used, in the socket neither."""
        return not self._unread and not self.pull()

    def drop_body(self, head: RequestHead) -> bool:
        """Throw the body away that `head` frames if it has arrived, and nothing behind it; whether that was so."""
        length = head.body.length if isinstance(head.body, Sized) else 0
        if len(self._unread) != length or isinstance(head.body, Chunked):
            return False
        self._unread = b""
        return True

    # --- heads --------------------------------------------------------------------------------------------------

    def pull(self) -> bool:
        """Read what has arrived, without waiting; whether anything had. At its end the client is gone."""
        return self._read_some(socket.MSG_DONTWAIT)

    def linger(self) -> bool:
        """Read what arrives within LINGER_S, in one system call; whether anything did."""
        if not self._can_linger:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(LINGER_S))
            self._can_linger = True
        return self._read_some(0)

    def take_head(self, limits: HeadLimits) -> RequestHead | None:
        """The head at the beginning of what has arrived; None if more must come. Raises HttpRefusal."""
        head = self._heads.take(self._unread, limits, self._scanned)
        if head is None:
            self._scanned = len(self._unread)
        else:
            self._unread, self._scanned = self._unread[len(head.raw) :], 0
        return head

    def _read_some(self, flags: int) -> bool:
        try:
            data = self._sock.recv(_READ_BYTES, flags)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._unread += data
        self.gone = not data
        return bool(data)

    # --- bodies -------------------------------------------------------------------------------------------------

    def read_body(
        self,
        head: RequestHead,
        max_bytes: int,
        timeout_s: float,
        clock: Clock,
        *,
        keep: Callable[[int], None],
        will_wait: Callable[[], None],
    ) -> bytes:
        """The body that `head` frames, decoded. A client that asked for it is told to go on first.

        keep       called with the number of bytes each time that some have been read; may raise
        will_wait  called before the client is waited for; also where chunks may all have arrived
        Raises HttpRefusal: 413 beyond max_bytes (a stated length before anything is read), 408 after timeout_s, 400
        malformed chunks; ClientGone or Draining if the body was cut.
        """
        if isinstance(head.body, NoBody):
            return b""
        if isinstance(head.body, Sized):
            length = head.body.length
            if length > max_bytes:
                raise too_large()
            if length <= len(self._unread):
                keep(length)
                content, self._unread = self._unread[:length], self._unread[length:]
                return content
        will_wait()
        if head.expects_continue and not self._unread:
            self.write(CONTINUE)
        deadline_s = clock.now_s() + timeout_s

        def more(at_most: int) -> bytes:
            data = self._receive(deadline_s, clock, at_most)
            keep(len(data))
            return data

        try:
            keep(len(self._unread))
            if isinstance(head.body, Sized):
                return self._read_sized(head.body.length, more)
            return self._read_chunked(max_bytes, more)
        except TimeoutError:
            raise HttpRefusal(408, "request_timeout", "The request body did not arrive in time.") from None

    def _read_sized(self, length: int, more: Callable[[int], bytes]) -> bytes:
        content = bytearray(self._unread[:length])
        self._unread = self._unread[length:]
        while missing := length - len(content):
            content += more(min(missing, _BODY_READ_BYTES))
        return bytes(content)

    def _read_chunked(self, max_bytes: int, more: Callable[[int], bytes]) -> bytes:
        reader = ChunkedReader(max_bytes)
        content = bytearray(reader.feed(self._unread))
        while not reader.complete:
            content += reader.feed(more(_BODY_READ_BYTES))
        self._unread = reader.rest
        return bytes(content)

    def _receive(self, deadline_s: float, clock: Clock, max_bytes: int) -> bytes:
        """More bytes before the deadline, else TimeoutError. Raises Draining or ClientGone once none can come."""
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        while (left_s := deadline_s - clock.now_s()) > 0:
            if poller.poll(left_s * 1000):
                try:
                    data = self._sock.recv(max_bytes, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    continue
                except OSError:
                    data = b""
                if not data:
                    raise Draining if self.watch.drained else ClientGone
                return data
        raise TimeoutError

    # --- answers ------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send all of `data`, in one call unless it is large. Raises ClientGone if the client does not take it."""
        try:
            for start in range(0, len(data), _WRITE_BYTES):
                piece = data[start : start + _WRITE_BYTES]
                if self._sock.send(piece) != len(piece):
                    raise TimeoutError
        except OSError as error:
            raise ClientGone from error

    def write_at_once(self, data: bytes) -> int:
        """Send what can be sent of `data` without waiting; how many bytes that was."""
        try:
            return self._sock.send(data, socket.MSG_DONTWAIT)
        except OSError:
            return 0

    def say_end(self) -> None:
        """Tell the client that nothing more comes."""
        self.shut(socket.SHUT_WR)

    # --- the end ------------------------------------------------------------------------------------------------

    def discard(self) -> bool:
        """Throw away what has arrived, without waiting; whether the client may still send some more.

        Closing with unread bytes would reset the connection, which can destroy an answer on its way.
        """
        self._unread = b""
        try:
            data = self._sock.recv(_BODY_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._discarded += len(data)
        return bool(data) and self._discarded < _DISCARD_BYTES

    def cut(self) -> None:
        """For the thread that drains: make the watch of the exchange fire."""
        self.watch.drained = True
        self.shut(socket.SHUT_RD)

    def shut(self, how: int) -> None:
        """For any thread: wake whoever waits for the client; bytes that have arrived can still be read."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(how)

    def reset_on_close(self) -> None:
        """Let the close be a reset, which discards what is on its way."""
        self.gone = True
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self) -> None:
        """Close the socket; more than once is once."""
        self._sock.close()


def prepare(listener: socket.socket, write_timeout_s: float) -> None:
    """Set the options of every connection that a listener will accept: on Linux they inherit them."""
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(write_timeout_s))


def _timeval(seconds: float) -> bytes:
    """A socket option's struct timeval; rounded up to a microsecond, since 0 would mean for ever."""
    micros = max(int(seconds * 1_000_000), 1)
    return struct.pack("ll", micros // 1_000_000, micros % 1_000_000)
