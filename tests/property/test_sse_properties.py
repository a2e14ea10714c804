"""The event stream reader against a model of ten lines, on streams cut anywhere."""

import re
import unittest
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from llmkit.sse import EventTooLarge, SSEEvent, SSEReader, frame

LINE_ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
VALUES = st.binary(max_size=12).map(lambda raw: raw.replace(b"\n", b"").replace(b"\r", b""))
FIELDS = st.sampled_from([b"data:", b"data: ", b"data", b":", b"event: ", b"id: ", b"retry:", b"x", b"", b""])
LINES = st.builds(lambda field, value: field + value if field else b"", FIELDS, VALUES)
STREAMS = st.builds(
    lambda bom, lines, tail: bom + b"".join(line + end for line, end in lines) + tail,
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(st.tuples(LINES, LINE_ENDS), max_size=20),
    LINES,
)
UNBOUNDED = 1 << 30
UNTIMED = settings(deadline=None)


def model(stream: bytes) -> list[SSEEvent]:
    """The events of a whole stream, read at leisure."""
    events: list[SSEEvent] = []
    data: list[bytes] = []
    name = b""
    for line in [*re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf")), b""]:
        if not line:
            if data:
                events.append(SSEEvent(b"\n".join(data), name.decode("utf-8", "replace") or None))
            data, name = [], b""
        elif match := re.fullmatch(rb"(data|event)(?:: ?(.*))?", line, re.DOTALL):
            if match[1] == b"data":
                data.append(match[2] or b"")
            else:
                name = match[2] or b""
    return events


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    """The stream in reads that end at the cuts; a cut named twice is an empty read."""
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in pairwise(places)]


def read(reads: list[bytes], limit: int) -> tuple[list[SSEEvent], bool]:
    """The events of these reads, and whether the reader refused one as too large."""
    reader = SSEReader(limit)
    events: list[SSEEvent] = []
    try:
        for chunk in reads:
            events += reader.feed(chunk)
        events += reader.end()
    except EventTooLarge:
        return events, True
    return events, False


class SSEProperties(unittest.TestCase):
    """True of every stream and of every way to cut it."""

    @UNTIMED
    @given(STREAMS)
    def test_a_whole_stream_gives_the_events_of_the_model(self, stream: bytes) -> None:
        """Line ends mixed, fields of every kind, with and without an end."""
        self.assertEqual(read([stream], UNBOUNDED), (model(stream), False))

    @UNTIMED
    @given(STREAMS, st.lists(st.integers(0, 400), max_size=12), st.integers(1, 120))
    def test_reads_do_not_matter(self, stream: bytes, cuts: list[int], limit: int) -> None:
        """Whole, cut anywhere or byte by byte: the same events, and the same one is too large."""
        whole = read([stream], limit)
        self.assertEqual(read(pieces(stream, cuts), limit), whole)
        self.assertEqual(read([stream[at : at + 1] for at in range(len(stream))], limit), whole)

    @UNTIMED
    @given(STREAMS, st.integers(1, 60))
    def test_memory_has_the_bound_of_an_event(self, stream: bytes, limit: int) -> None:
        """What the reader keeps between reads, blank data lines with their line ends included, is within the limit."""
        reader = SSEReader(limit)
        for at in range(len(stream)):
            try:
                reader.feed(stream[at : at + 1])
            except EventTooLarge:
                self.assertEqual(kept_bytes(reader), 0)
                return
            self.assertLessEqual(kept_bytes(reader), limit)

    @UNTIMED
    @given(st.lists(VALUES), st.lists(st.integers(0, 400), max_size=12))
    def test_what_was_framed_is_read(self, payloads: list[bytes], cuts: list[int]) -> None:
        """Every payload once, in order, byte for byte."""
        stream = b"".join(map(frame, payloads))
        events, refused = read(pieces(stream, cuts), UNBOUNDED)
        self.assertFalse(refused)
        self.assertEqual([event.data for event in events], payloads)


def kept_bytes(reader: SSEReader) -> int:
    """What a reader holds: the data lines, one byte for the end of each, and the unfinished line."""
    return sum(len(line) + 1 for line in reader._data) + len(reader._partial)
