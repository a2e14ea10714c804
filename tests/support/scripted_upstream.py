"""A loopback server that does, connection by connection, exactly what a test scripted.

Each accepted connection runs the next script in a thread of its own; more connections than scripts is a failure, which
close() raises, as it does with whatever else went wrong in a script.
"""

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass

_PATIENCE_S = 30  # a script that waits longer for its client is stuck


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sent."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def get(self, name: str) -> str | None:
        """The value of a header that was sent at most once; name in lower case."""
        values = [value for key, value in self.headers if key == name]
        if len(values) > 1:
            raise AssertionError(f"{name} was sent {len(values)} times")
        return values[0] if values else None


class Peer:
    """One connection, seen from the server's side."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._received = bytearray()

    def request(self) -> Request:
        """Read one whole request."""
        while b"\r\n\r\n" not in self._received:
            self._more()
        end = self._received.index(b"\r\n\r\n")
        line, *lines = self._received[:end].decode("latin-1").split("\r\n")
        del self._received[: end + 4]
        headers = [(name.lower(), value.strip()) for name, _, value in (text.partition(":") for text in lines)]
        length = int(dict(headers).get("content-length", "0"))
        while len(self._received) < length:
            self._more()
        body = bytes(self._received[:length])
        del self._received[:length]
        return Request(line, headers, body)

    def send(self, *pieces: bytes) -> None:
        """Send each piece on its own."""
        for piece in pieces:
            self.sock.sendall(piece)

    def drip(self, piece: bytes, every_s: float = 0.005) -> None:
        """Send a piece again and again until the client leaves."""
        with contextlib.suppress(ConnectionError):
            while not self.closed_within(every_s):
                self.send(piece)

    def closed_within(self, seconds: float) -> bool:
        """Whether the client closed the connection, after waiting at most so long for it."""
        poll = select.poll()
        poll.register(self.sock, select.POLLRDHUP)
        return bool(poll.poll(seconds * 1000))

    def reset(self) -> None:
        """Close with a TCP reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def _more(self) -> None:
        data = self.sock.recv(65_536)
        if not data:
            raise ConnectionError("the client left within a request")
        self._received += data


Script = Callable[[Peer], None]


class ScriptedUpstream:
    """Serves scripts[0] to the first connection, scripts[1] to the second, and so on; close() it."""

    def __init__(self, *scripts: Script, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.connections = 0
        self._scripts = scripts
        self._tls = tls
        self._faults: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._socks: list[socket.socket] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name="scripted upstream")
        self._acceptor.start()

    def url(self, path: str = "") -> str:
        """The base URL of this server."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}{path}"

    def join(self) -> None:
        """Wait until every script that was started has ended."""
        for thread in self._threads:
            thread.join(_PATIENCE_S)

    def close(self) -> None:
        """End every connection and raise the first failure of a script."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        for sock in self._socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.join()
        if self._faults:
            raise AssertionError("a script failed") from self._faults[0]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(sock, self.connections), name="scripted peer")
                self._socks.append(sock)
                self._threads.append(thread)
                thread.start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        sock.settimeout(_PATIENCE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if number > len(self._scripts):
                raise AssertionError(f"connection {number} was not expected")
            if self._tls is not None:
                with sock:
                    sock = self._tls.wrap_socket(sock, server_side=True)
                self._socks.append(sock)
            self._scripts[number - 1](Peer(sock))
        except (AssertionError, LookupError, TypeError, ValueError, TimeoutError) as fault:
            if not isinstance(fault, ssl.SSLError):
                self._faults.append(fault)
        except OSError:
            pass  # the client left: what that means is for the test to say
        finally:
            sock.close()


class PipeCancel:
    """A Cancel that fires when told to."""

    def __init__(self) -> None:
        self._read_end, self._write_end = socket.socketpair()
        self.fd = self._read_end.fileno()
        self.mask = int(select.POLLIN)
        self.false_alarms = 0
        self._reason: Exception | None = None

    def fire(self, reason: Exception) -> None:
        """From now on the work is not wanted any more."""
        self._reason = reason
        self._write_end.send(b"x")

    def cry_wolf(self) -> None:
        """Make the descriptor ready for no reason."""
        self._write_end.send(b"x")

    def reason(self) -> Exception | None:
        """What fired, once; a false alarm is counted and cleared."""
        if self._reason is None:
            self._read_end.recv(1)
            self.false_alarms += 1
        return self._reason

    def close(self) -> None:
        """Close both ends."""
        self._read_end.close()
        self._write_end.close()


def answer(body: bytes = b"{}", *, status: str = "200 OK", headers: str = "content-type: application/json") -> bytes:
    """One answer with a length; headers is lines joined by CRLF."""
    return f"HTTP/1.1 {status}\r\n{headers}\r\ncontent-length: {len(body)}\r\n\r\n".encode("latin-1") + body


def stream_head(content_type: str = "text/event-stream") -> bytes:
    """The head of a chunked answer."""
    return f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; of no data: the last."""
    return b"%x\r\n%b\r\n" % (len(data), data)
