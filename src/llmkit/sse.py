"""Server-sent events: bytes to events and back, without a socket.

Decides where an event ends. Does not know what its data means and decodes no data: a code point may span two reads.

Rules (the event stream format of the WHATWG HTML standard):
- a line ends at LF, CR or CRLF; an event ends at a blank line, the last one also at the end of the stream
- several data lines are joined by LF; the space after a colon is optional; comments, id and retry are skipped
- the same bytes give the same events, however they were cut into reads
- every line counts towards the bound of its event, comments and blank `data:` lines too, so memory has that bound
"""

from msgspec import Struct

DONE = b"[DONE]"
_BOM = b"\xef\xbb\xbf"
_LF, _CR = 0x0A, 0x0D
_FIELDS = (b"data", b"event")


class EventTooLarge(ValueError):
    """One event has more bytes than the reader may keep. The stream cannot be read on."""


class SSEEvent(Struct, frozen=True):
    """One event."""

    data: bytes
    event: str | None = None


class SSEReader:
    """Collects reads into events.

    max_event_bytes  bound of one event: all its lines with the blank one, one byte for the end of each; > 0
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._limit = max_event_bytes
        self._at_start = True
        self._after_cr = False
        self._too_large = False
        self._partial = bytearray()
        self._size = 0
        self._data: list[bytes] = []
        self._event: str | None = None

    @property
    def held(self) -> int:
        """Bytes that the reader keeps of the event that is not complete yet; at most max_event_bytes."""
        return self._size + len(self._partial)

    def feed(self, chunk: bytes) -> list[SSEEvent]:
        """Take the next read, of any size; the events that it completes come back, oldest first.

        Raises EventTooLarge; events completed before the large one are returned first, and the next call raises.
        """
        if self._too_large:
            raise self._refusal()
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        if not self.held and len(chunk) <= self._limit and (data := _plain_data(chunk)):
            self._at_start = False
            return list(map(SSEEvent, data))
        lines = chunk.splitlines()
        tail = b"" if chunk[-1] in (_LF, _CR) else lines.pop()
        self._after_cr = chunk[-1] == _CR
        if lines and (self._partial or self._at_start):
            self._complete_first(lines)
        self._partial += tail
        return self._bounded(self._take(lines))

    def end(self) -> list[SSEEvent]:
        """The stream ended: the last event comes back even if its blank line is missing. Raises EventTooLarge."""
        return self.feed(b"\n\n")

    def _complete_first(self, lines: list[bytes]) -> None:
        """Put what is left of earlier reads before the first line; the very first line may begin with a BOM."""
        if self._partial:
            lines[0] = bytes(self._partial) + lines[0]
            self._partial.clear()
        if self._at_start:
            self._at_start = False
            if lines[0].startswith(_BOM):
                lines[0] = lines[0][len(_BOM) :]
                self._size += len(_BOM)

    def _take(self, lines: list[bytes]) -> list[SSEEvent]:
        events = []
        size, limit, data = self._size, self._limit, self._data
        for line in lines:
            if line:
                size += len(line) + 1
                if size > limit:
                    break
                if line.startswith(b"data: "):
                    data.append(line[6:])
                elif line.startswith(_FIELDS):
                    self._field(line)
            elif size:  # else one of a run of blank lines: there is nothing to end
                size += 1
                if size > limit:
                    break
                if data:
                    events.append(SSEEvent(b"\n".join(data), self._event))
                    data = self._data = []
                self._event = None
                size = 0
        self._size = size
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.removeprefix(b" ").decode("utf-8", "replace") or None

    def _bounded(self, events: list[SSEEvent]) -> list[SSEEvent]:
        if self.held > self._limit:
            self._too_large = True
            self._forget()
            self._partial.clear()
            if not events:
                raise self._refusal()
        return events

    def _refusal(self) -> EventTooLarge:
        return EventTooLarge(f"an event is larger than {self._limit} bytes")

    def _forget(self) -> None:
        self._data = []
        self._event = None
        self._size = 0


def _plain_data(chunk: bytes) -> list[bytes] | None:
    """The data of each event, if these are whole events of one `data: ` line each, as most reads are; else None."""
    _, *data = (b"\n\n" + chunk).split(b"\n\ndata: ")
    if not chunk.endswith(b"\n\n") or chunk.count(b"\n") != 2 * len(data) or b"\r" in chunk:
        return None
    data[-1] = data[-1][:-2]
    return data


def frame(data: bytes) -> bytes:
    """One event of one data line. Raises ValueError if data holds a line end."""
    if _LF in data or _CR in data:
        raise ValueError("the data of an event is one line")
    return b"data: " + data + b"\n\n"


def comment(text: str) -> bytes:
    """A comment line, which every reader skips: it keeps a silent connection alive. Raises ValueError on a line end."""
    if "\n" in text or "\r" in text:
        raise ValueError("a comment is one line")
    return b": " + text.encode() + b"\n\n"
