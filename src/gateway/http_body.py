"""Decodes a chunked request body, strictly: bytes in, content out, in whatever pieces they come.

Decides where the body ends and whether it is well formed. Knows no sockets and no clock. Rules: sizes are 1 to 8 hex
digits, every line ends with CRLF, extensions and trailers are checked, bounded and dropped, and a chunk that would
exceed a limit, in bytes or in number, is refused before its content is read.
"""

import re
from collections.abc import Callable

from gateway.errors import HttpRefusal
from gateway.http_head import is_trailer_line

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[\t\x20-\x7e\x80-\xff]*+)?\r\n")
_SIZE_LINE_BYTES = 256
_TRAILER_BYTES = 8192
MAX_CHUNKS = 100_000
"""In one body, the empty last one included. Each costs 3 us and up to 260 bytes beside its content: a large body in
chunks of one byte would keep a core busy for a minute. Encoders that write value by value make one chunk per value."""


class ChunkedReader:
    """One body in chunks. After a refusal the reader is of no further use. Not for use by several threads.

    complete  the last chunk and its trailers have been read
    rest      the bytes after the body; only once complete
    """

    def __init__(self, max_bytes: int) -> None:
        self._budget = max_bytes
        self._chunk_budget = MAX_CHUNKS
        self._trailer_budget = _TRAILER_BYTES
        self._buffer = bytearray()
        self._content = bytearray()
        self._left = 0
        self._step: Callable[[ChunkedReader], bool] = ChunkedReader._read_size
        self.complete = False

    @property
    def rest(self) -> bytes:
        return bytes(self._buffer) if self.complete else b""

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the connection and return the content they complete, possibly none.

        Raises HttpRefusal: 400 malformed, 413 more than max_bytes of content or MAX_CHUNKS chunks.
        """
        self._buffer += data
        while not self.complete and self._step(self):
            pass
        content = bytes(self._content)
        self._content.clear()
        return content

    def _read_size(self) -> bool:
        line = self._take_line(_SIZE_LINE_BYTES)
        if line is None:
            return False
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise _malformed()
        self._left = int(match[1], 16)
        if self._left > self._budget or not self._chunk_budget:
            raise too_large()
        self._budget -= self._left
        self._chunk_budget -= 1
        self._step = ChunkedReader._read_content if self._left else ChunkedReader._read_trailer
        return True

    def _read_content(self) -> bool:
        piece = self._buffer[: self._left]
        del self._buffer[: self._left]
        self._content += piece
        self._left -= len(piece)
        if self._left:
            return False
        self._step = ChunkedReader._read_content_end
        return True

    def _read_content_end(self) -> bool:
        if not b"\r\n".startswith(self._buffer[:2]):
            raise _malformed()
        if len(self._buffer) < 2:
            return False
        del self._buffer[:2]
        self._step = ChunkedReader._read_size
        return True

    def _read_trailer(self) -> bool:
        line = self._take_line(self._trailer_budget)
        if line is None:
            return False
        self._trailer_budget -= len(line)
        if line == b"\r\n":
            self.complete = True
        elif not is_trailer_line(line):
            raise _malformed()
        return True

    def _take_line(self, max_bytes: int) -> bytes | None:
        """The next line with its LF, or None if its end has not come yet."""
        end = self._buffer.find(b"\n", 0, max_bytes) + 1
        if end:
            line = bytes(self._buffer[:end])
            del self._buffer[:end]
            return line
        if len(self._buffer) >= max_bytes:
            raise _malformed()
        return None


def too_large() -> HttpRefusal:
    """The refusal of a body beyond its limit, however it is framed."""
    return HttpRefusal(413, "request_too_large", "The request body is too large.")


def _malformed() -> HttpRefusal:
    return HttpRefusal(400, "invalid_request", "The chunked request body is malformed.")
