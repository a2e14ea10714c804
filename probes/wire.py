"""A client that no library would be: exact bytes, ended as told, and every answer that came back on the connection."""

import contextlib
import re
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from probes.client import CHAT_PATH, Answer

PATIENCE_S = 15.0
"""A connection that should have been closed is waited for so long."""

_CONNECT_S = 10.0
"""For what cannot fail but by a machine that is busy."""

JUNK = 0
"""The status of bytes that are no answer."""

_STATUS_LINE = re.compile(r"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?")


class Ending(Enum):
    """What a client does once it has said all."""

    WAITS = "waits"
    HALF_CLOSES = "FIN"
    RESETS = "RST"


@dataclass(frozen=True, slots=True)
class Heard:
    """What came back.

    closed  whether the gateway ended the connection, by a FIN or by a reset
    took_s  from the first byte sent to the end
    """

    raw: bytes
    closed: bool
    took_s: float

    @property
    def answers(self) -> list[Answer]:
        """Every answer in order, interim ones too; the last one is JUNK if bytes are left that are none."""
        answers, rest = [], self.raw
        while rest:
            answer, rest = _take_answer(rest)
            answers.append(answer)
        return answers

    @property
    def statuses(self) -> tuple[int, ...]:
        """Their statuses."""
        return tuple(answer.status for answer in self.answers)


def _take_answer(raw: bytes) -> tuple[Answer, bytes]:
    head, blank_line, rest = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    matched = _STATUS_LINE.fullmatch(first)
    if not matched or not blank_line:
        return Answer(JUNK, {}, raw, whole=False), b""
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    status = int(matched[1])
    body, whole, rest = _take_body(status, headers, rest)
    return Answer(status, headers, body, whole), rest


def _take_body(status: int, headers: dict[str, str], rest: bytes) -> tuple[bytes, bool, bytes]:
    """The body, whether all of it came, and what stands behind it."""
    if status < 200 or status in (204, 304):
        return b"", True, rest
    if "chunked" in headers.get("transfer-encoding", ""):
        return _take_chunks(rest)
    length = int(headers.get("content-length", len(rest)))
    return rest[:length], len(rest) >= length, rest[length:]


def _take_chunks(rest: bytes) -> tuple[bytes, bool, bytes]:
    body = b""
    while True:
        size, line_end, rest = rest.partition(b"\r\n")
        if not line_end or len(rest) < int(size, 16) + 2:
            return body + rest, False, b""
        chunk, rest = rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        if not chunk:
            return body, True, rest
        body += chunk


class Wire:
    """One connection, of which the caller says every byte. Use as a context manager."""

    def __init__(self, address: tuple[str, int], *, receive_bytes: int | None = None) -> None:
        """receive_bytes  the size of the receive buffer, for a client that is to be slow to take an answer."""
        self.sock = socket.socket()
        if receive_bytes is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.settimeout(_CONNECT_S)
        try:
            self.sock.connect(address)
        except OSError:
            self.sock.close()
            raise
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._began_s = time.monotonic()

    def send(self, data: bytes) -> bool:
        """Send all of it; False if the gateway has ended the connection."""
        try:
            self.sock.sendall(data)
        except OSError:
            return False
        return True

    def end(self, ending: Ending) -> None:
        """End as told; after a reset there is nothing to hear."""
        with contextlib.suppress(OSError):
            if ending is Ending.HALF_CLOSES:
                self.sock.shutdown(socket.SHUT_WR)
            elif ending is Ending.RESETS:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.sock.close()

    def hear(self, patience_s: float | None = None) -> Heard:
        """Everything until the gateway ends the connection, or until nothing has come for so long (PATIENCE_S)."""
        raw, closed = bytearray(), False
        try:
            self.sock.settimeout(PATIENCE_S if patience_s is None else patience_s)
            while data := self.sock.recv(65_536):
                raw += data
            closed = True
        except TimeoutError:
            pass
        except OSError:
            closed = True
        return Heard(bytes(raw), closed, time.monotonic() - self._began_s)

    def hear_some(self, needle: bytes = b"\r\n\r\n") -> bytes:
        """Read until `needle` has come; ConnectionError if the connection ends before."""
        raw = b""
        while needle not in raw:
            data = self.sock.recv(4096)
            if not data:
                raise ConnectionError(f"the answer ended: {raw[-80:]!r}")
            raw += data
        return raw

    def close(self) -> None:
        """Leave."""
        self.sock.close()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def say(
    address: tuple[str, int], *pieces: bytes, ending: Ending = Ending.WAITS, patience_s: float | None = None
) -> Heard:
    """Send the pieces on a connection of their own, end as told, and listen."""
    with Wire(address) as wire:
        for piece in pieces:
            if not wire.send(piece):
                break
        wire.end(ending)
        return wire.hear(patience_s)


def head(first: str, *lines: str) -> bytes:
    """A request's first line, these header lines, and the blank line; each character is one byte."""
    return "\r\n".join([first, *lines, "", ""]).encode("latin-1")


def post(key: str | None, *lines: str, body: bytes = b"", first: str = f"POST {CHAT_PATH} HTTP/1.1") -> bytes:
    """A chat request with these header lines beside those that it needs, and exactly this body behind its head."""
    return head(first, "Host: gw", *bearer(key), "Content-Type: application/json", *lines) + body


def get(path: str, key: str | None, *lines: str, method: str = "GET", last: bool = True) -> bytes:
    """A request without a body; `last`: the last one on its connection."""
    return head(f"{method} {path} HTTP/1.1", "Host: gw", *bearer(key), *([CLOSE] if last else ()), *lines)


def bearer(key: str | None) -> Sequence[str]:
    """The header line of a credential; none for None."""
    return [] if key is None else [f"Authorization: Bearer {key}"]


def sized(body: bytes) -> str:
    """The header line of a length."""
    return f"Content-Length: {len(body)}"


CLOSE = "Connection: close"
CHUNKED = "Transfer-Encoding: chunked"


def chunks(*pieces: bytes) -> bytes:
    """A whole body in chunks."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
