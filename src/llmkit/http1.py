"""HTTP/1.1 answers from bytes: sans-IO, strict, bounded.

Decides what the bytes of one answer mean: its head, its body without the framing, whether all of it came, and whether
the connection may carry another. Knows no sockets, no clocks, and not what the body holds.

Rules: whatever two readers could understand differently is refused, not guessed (a length beside chunked, unequal
lengths, `+5`, a bare CR or LF, folded fields). An answer that ends early is an error, except one that is framed by the
end of the connection: there only the body's own end mark can tell. Interim 1xx heads are skipped. The request was not
HEAD or CONNECT. How the bytes were split never matters, also not for what can be taken before a fault.
"""

import functools
import re
from collections.abc import Callable

from msgspec import Struct

HEAD_LIMIT = 65_536  # what h11 and http.client allow: the heads of real providers are below 4 KiB
CHUNK_LINE_LIMIT = 4_096  # a size has 16 digits at most, the rest are extensions that nobody sends
TRAILER_LIMIT = 8_192

_PROTOCOL = b"HTTP/1."
_TEXT = rb"[\t\x20-\x7e\x80-\xff]*+"
_FIELD = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:" + _TEXT
_HEAD = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: " + _TEXT + rb")?((?:\r\n" + _FIELD + rb")*\r\n)\r\n")
_TRAILER = re.compile(_FIELD)
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[\t ]*(?:;" + _TEXT + rb")?")
_LENGTH_DIGITS = 18
_LENGTH, _CODING, _CONNECTION = "\r\ncontent-length:", "\r\ntransfer-encoding:", "\r\nconnection:"


class BadResponse(ValueError):
    """The bytes are not a whole, unambiguous HTTP/1.1 answer. The text holds nothing of the answer itself."""


class ResponseHead(Struct, frozen=True):
    """The status, 200 to 599 (101 and other 1xx never appear), and the header fields.

    A provider sends twenty fields and more, of which a few are asked for: they are looked up in the text.

    length   the bytes of the body as announced, None if they are not
    _fields  well-formed lines, with a CRLF before, between and after them; `_lower` is the same in lower case
    """

    status: int
    length: int | None
    _fields: str
    _lower: str

    @classmethod
    def of(cls, status: int, fields: str) -> "ResponseHead":
        """The head of these lines. BadResponse if they state lengths that differ, or one that is none."""
        lower = fields.lower()
        return cls(status, _one_length(_listed(lower, _LENGTH)), fields, lower)

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The fields in order, names in lower case."""
        return [_field(line) for line in self._fields.split("\r\n")[1:-1]]

    def get(self, name: str) -> str | None:
        """The first value of a field, without the spaces around it; name in lower case."""
        key = f"\r\n{name}:"
        at = self._lower.find(key)
        if at < 0:
            return None
        at += len(key)
        return self._fields[at : self._fields.find("\r\n", at)].strip(" \t")

    def listed(self, name: str) -> list[str]:
        """The elements of a comma-separated field, over all its lines, in lower case."""
        return _listed(self._lower, f"\r\n{name}:")


class ResponseReader:
    """Reads one answer. Feed it what was received, take the decoded body at any time.

    head      None until the final head has come
    complete  the whole answer is there; take() may still hold some of it
    keep_alive  meaningful once complete: the connection is in a clean state and the server keeps it open

    A BadResponse leaves takeable what was decoded before the fault; do not feed the reader after it.
    """

    def __init__(self, *, head_limit: int = HEAD_LIMIT) -> None:
        self.head: ResponseHead | None = None
        self.complete = False
        self.keep_alive = False
        self._head_limit = head_limit
        self._head_seen = 0  # bytes of interim heads already skipped
        self._persistent = False
        self._buffer = b""  # received last, and what was not understood before
        self._at = 0  # bytes of the buffer that are understood
        self._looked_at = 0  # bytes of the buffer that do not end a head: a drip is not searched again and again
        self._body: list[bytes] = []  # decoded and not yet taken
        self._remaining = 0  # bytes left of the body or of the chunk
        self._trailers = 0
        self._step: Callable[[ResponseReader], bool] = ResponseReader._read_head

    def feed(self, data: bytes) -> None:
        """Understand some received bytes. Raises BadResponse."""
        if not data:
            return
        self._buffer += data
        while self._step(self):
            pass
        self._buffer = self._buffer[self._at :]
        self._at = 0
        if self.complete and self._buffer:
            self.keep_alive = False

    def end(self) -> None:
        """The server closed the connection. Raises BadResponse if that cut the answer short."""
        if self._step is ResponseReader._read_to_the_end:
            self._finish()
        if not self.complete:
            raise BadResponse("the connection closed before the answer was whole")
        self.keep_alive = False

    def take(self) -> bytes:
        """The body decoded since the last call, empty if nothing."""
        body = self._body
        if not body:
            return b""
        taken = body[0] if len(body) == 1 else b"".join(body)
        body.clear()
        return taken

    @property
    def at_end(self) -> bool:
        """Whether the answer is complete and all of it was taken."""
        return self.complete and not self._body

    def _read_head(self) -> bool:
        buffer, start = self._buffer, self._at
        limit = start + self._head_limit - self._head_seen
        end = buffer.find(b"\r\n\r\n", start + max(self._looked_at - 3, 0), limit)
        if end < 0:
            self._refuse_early(buffer[start:])
            return False
        self._at = end + 4
        self._looked_at = 0
        matched = _HEAD.fullmatch(buffer, start, self._at)
        if matched is None:
            raise BadResponse("a status line or a header line that is malformed")
        status = int(matched[2])
        if status == 101:
            raise BadResponse("the protocol was switched unasked")
        if status < 200:
            self._head_seen += self._at - start
            return True
        self.head = self._framed(ResponseHead.of(status, matched[3].decode("latin-1")), http_1_0=matched[1] == b"0")
        return True

    def _refuse_early(self, begun: bytes) -> None:
        """Refuse a head that no further byte can mend, so that junk does not have to wait for a clock."""
        if not begun.startswith(_PROTOCOL[: len(begun)]):
            raise BadResponse("not an HTTP/1.1 answer")
        if begun.count(b"\n", self._looked_at) != begun.count(b"\r\n", max(self._looked_at - 1, 0)):
            raise BadResponse("a line of the head ends in a bare LF")
        if len(begun) >= self._head_limit - self._head_seen:
            raise BadResponse(f"the head is longer than {self._head_limit} bytes")
        self._looked_at = len(begun)

    def _framed(self, head: ResponseHead, *, http_1_0: bool) -> ResponseHead:
        """Choose how the body ends (RFC 9112 section 6.3), and whether the connection outlives it."""
        codings, options = _listed(head._lower, _CODING), _listed(head._lower, _CONNECTION)
        self._persistent = "close" not in options and (not http_1_0 or "keep-alive" in options)
        if codings and (head.length is not None or http_1_0 or codings != ["chunked"]):
            raise BadResponse("a transfer coding that is unknown, or beside a length, or from HTTP/1.0")
        if head.status in (204, 304):
            self._finish()
        elif codings:
            self._step = ResponseReader._read_chunk_size
        elif head.length is not None:
            self._remaining = head.length
            self._step = ResponseReader._read_length
        else:
            self._step = ResponseReader._read_to_the_end
        return head

    def _read_length(self) -> bool:
        self._decode()
        if self._remaining == 0:
            self._finish()
        return False

    def _read_to_the_end(self) -> bool:
        self._remaining = len(self._buffer) - self._at
        self._decode()
        return False

    def _read_chunk_size(self) -> bool:
        buffer, at = self._buffer, self._at
        while (end := buffer.find(b"\r\n", at, at + CHUNK_LINE_LIMIT)) >= 0:
            size, at = _chunk_size(buffer[at:end]), end + 2
            end = at + size
            if not size or buffer[end : end + 2] != b"\r\n":
                self._at = at
                self._remaining = size
                self._step = ResponseReader._read_chunk if size else ResponseReader._read_trailer
                return True
            self._body.append(buffer[at:end])  # all of it is here, as on most reads of a stream
            self._at = at = end + 2
            if at == len(buffer):
                return False
        self._line(CHUNK_LINE_LIMIT)  # refuses one that is too long
        return False

    def _read_chunk(self) -> bool:
        self._decode()
        if self._remaining or len(self._buffer) < self._at + 2:
            return False
        if not self._buffer.startswith(b"\r\n", self._at):
            raise BadResponse("a chunk that is longer than its size")
        self._at += 2
        self._step = ResponseReader._read_chunk_size
        return True

    def _read_trailer(self) -> bool:
        line = self._line(TRAILER_LIMIT - self._trailers)
        if line is None:
            return False
        if not line:
            self._finish()
            return False
        if not _TRAILER.fullmatch(line):
            raise BadResponse("a trailer that is malformed")
        self._trailers += len(line) + 2
        return True

    def _decode(self) -> None:
        """Move what is there of the remaining bytes from the buffer to the body."""
        piece = self._buffer[self._at : self._at + self._remaining]
        if piece:
            self._body.append(piece)
            self._at += len(piece)
            self._remaining -= len(piece)

    def _line(self, limit: int) -> bytes | None:
        """The next line without its CRLF, or None until it is whole; with it, it has at most limit bytes."""
        start = self._at
        end = self._buffer.find(b"\r\n", start, start + max(limit, 0))
        if end < 0:
            if len(self._buffer) - start >= limit:
                raise BadResponse("a chunk size line or the trailers are too long")
            return None
        self._at = end + 2
        return self._buffer[start:end]

    def _finish(self) -> None:
        self.complete = True
        self.keep_alive = self._persistent
        self._step = ResponseReader._read_nothing

    def _read_nothing(self) -> bool:
        return False


def _listed(lower: str, key: str) -> list[str]:
    """See ResponseHead.listed; `key` is the name between the end of a line and a colon."""
    if key not in lower:
        return []
    elements: list[str] = []
    for found in lower.split(key)[1:]:
        elements += map(str.strip, found.partition("\r\n")[0].split(","))
    return elements


def _one_length(lengths: list[str]) -> int | None:
    """The length that all of these say, None if there are none. Raises BadResponse."""
    if not lengths:
        return None
    length, *others = lengths
    if others.count(length) != len(others) or not (
        length.isdecimal() and length.isascii() and len(length) <= _LENGTH_DIGITS
    ):
        raise BadResponse("the content length is not one plain number")
    return int(length)


@functools.lru_cache(maxsize=256)  # the chunks of a stream have few sizes
def _chunk_size(line: bytes) -> int:
    """The size that a line in front of a chunk says. Raises BadResponse."""
    matched = _CHUNK_SIZE.fullmatch(line)
    if matched is None:
        raise BadResponse("a chunk size that is not a hexadecimal number")
    return int(matched[1], 16)


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.lower(), value.strip(" \t")
