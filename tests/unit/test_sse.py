"""The event stream reader and writer, byte by byte."""

import unittest

from llmkit.sse import DONE, EventTooLarge, SSEEvent, SSEReader, comment, frame


def read(*chunks: bytes, limit: int = 1000) -> list[SSEEvent]:
    """Every event of a stream that came in these reads and then ended."""
    reader = SSEReader(limit)
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    return events + reader.end()


def data_of(*chunks: bytes, limit: int = 1000) -> list[bytes]:
    return [event.data for event in read(*chunks, limit=limit)]


class ReadTest(unittest.TestCase):
    """What an event is."""

    def test_an_event_ends_at_its_blank_line(self) -> None:
        """It comes back from the read that completes it, not later."""
        reader = SSEReader(1000)
        self.assertEqual(reader.feed(b"data: a\n"), [])
        self.assertEqual(reader.feed(b"\n"), [SSEEvent(b"a", None)])

    def test_every_line_end_is_one(self) -> None:
        """LF, CR, CRLF, and all of them in one stream."""
        for stream in (b"data: a\n\ndata: b\n\n", b"data: a\r\rdata: b\r\r", b"data: a\r\n\r\ndata: b\r\n\r\n"):
            self.assertEqual(data_of(stream), [b"a", b"b"])
        self.assertEqual(data_of(b"data: a\r\ndata: b\rdata: c\n\r\ndata: d\n\r"), [b"a\nb\nc", b"d"])
        self.assertEqual(data_of(b"data: a\rdata: b\n\ndata: c\n\n"), [b"a\nb", b"c"])

    def test_a_crlf_cut_in_two_is_one_line_end(self) -> None:
        """Otherwise its LF would be a blank line and end the event early."""
        self.assertEqual(data_of(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n"), [b"a\nb"])
        self.assertEqual(data_of(b"data: a\r", b"", b"\ndata: b\n\n"), [b"a\nb"])
        self.assertEqual(data_of(b"data: a\r", b"\n", b"\n", b"data: b\n\n"), [b"a", b"b"])

    def test_an_event_that_ends_in_cr_does_not_wait_for_its_lf(self) -> None:
        """The reader must not hold a token back for a byte that may never come."""
        self.assertEqual(SSEReader(1000).feed(b"data: a\r\n\r"), [SSEEvent(b"a", None)])

    def test_the_space_after_the_colon_is_optional(self) -> None:
        """One space is taken away, a second belongs to the data."""
        self.assertEqual(data_of(b"data:a\n\ndata: a\n\ndata:  a\n\n"), [b"a", b"a", b" a"])

    def test_data_lines_are_joined_by_lf(self) -> None:
        """Blank ones count, with and without a colon."""
        self.assertEqual(data_of(b'data: {\ndata: "a": 1}\ndata:\ndata\n\n'), [b'{\n"a": 1}\n\n'])

    def test_comments_ids_and_retries_are_skipped(self) -> None:
        """They neither make an event nor break one, and neither do blank lines."""
        stream = b": PROCESSING\n\n\n\nid: 7\nretry: 10\nother: x\ndata: a\n:\n: more\ndata: b\n\n: bye\n\n"
        self.assertEqual(read(stream), [SSEEvent(b"a\nb", None)])

    def test_the_event_name_belongs_to_its_event_only(self) -> None:
        """An empty name is none."""
        stream = b"event: error\ndata: a\n\ndata: b\n\nevent:\ndata: c\n\nevent: lost\n\ndata: d\n\n"
        self.assertEqual(
            read(stream),
            [SSEEvent(b"a", "error"), SSEEvent(b"b", None), SSEEvent(b"c", None), SSEEvent(b"d", None)],
        )

    def test_the_last_event_may_lack_its_blank_line(self) -> None:
        """Even its line end."""
        self.assertEqual(data_of(b"data: a\n\ndata: [DONE]"), [b"a", DONE])
        self.assertEqual(data_of(b"data: [DONE]\r"), [DONE])

    def test_a_byte_order_mark_is_skipped_at_the_start_only(self) -> None:
        """Also when it is cut."""
        self.assertEqual(data_of(b"\xef\xbb", b"\xbfdata: a\n\n"), [b"a"])
        self.assertEqual(data_of(b"data: a\n\n\xef\xbb\xbfdata: b\n\n"), [b"a"])
        self.assertEqual(data_of(b"data: a\n\n", b"\xef\xbb\xbfdata: b\n\n"), [b"a"])

    def test_bytes_are_not_decoded(self) -> None:
        """A code point may span two reads, and what is no UTF-8 is the next reader's business."""
        text = "café 🚀".encode()
        whole = b"data: " + text + b"\n\n"
        for cut in range(len(whole)):
            self.assertEqual(data_of(whole[:cut], whole[cut:]), [text])
        self.assertEqual(data_of(b"data: \xff\x85\x0c\n\n"), [b"\xff\x85\x0c"])


class BoundTest(unittest.TestCase):
    """What a hostile stream can make the reader keep."""

    def test_an_event_may_be_as_large_as_the_bound(self) -> None:
        """Its lines count with one byte for the end of each."""
        self.assertEqual(data_of(b"data: abc\n\n", limit=11), [b"abc"])
        with self.assertRaises(EventTooLarge):
            read(b"data: abcd\n\n", limit=11)

    def test_a_line_without_end_is_refused(self) -> None:
        """Before its end came."""
        reader = SSEReader(100)
        with self.assertRaises(EventTooLarge):
            for _ in range(101):
                reader.feed(b"x")

    def test_lines_without_payload_count(self) -> None:
        """Blank data lines, comments and ids are as good as any for filling memory."""
        for line in (b"data:\n", b"data\r\n", b":\n", b"id: 1\n", b": ping\r"):
            reader = SSEReader(600)
            with self.subTest(line=line), self.assertRaises(EventTooLarge):
                for _ in range(600):
                    reader.feed(line)

    def test_the_bound_is_for_each_event(self) -> None:
        """A long stream of small events, and of comments with blank lines, is no large event."""
        reader = SSEReader(100)
        for _ in range(1000):
            self.assertEqual(reader.feed(b"data: a\n\n: ping\n\n"), [SSEEvent(b"a", None)])

    def test_events_before_the_large_one_are_not_lost(self) -> None:
        """They come back first; the reader refuses from then on, also to end."""
        reader = SSEReader(20)
        self.assertEqual(reader.feed(b"data: a\n\ndata: " + b"b" * 30), [SSEEvent(b"a", None)])
        with self.assertRaises(EventTooLarge):
            reader.feed(b"\n\n")
        with self.assertRaises(EventTooLarge):
            reader.end()


class WriteTest(unittest.TestCase):
    """What leaves is one line per event."""

    def test_a_frame_is_one_data_line_and_a_blank_one(self) -> None:
        """The form every client reads."""
        self.assertEqual(frame(DONE), b"data: [DONE]\n\n")

    def test_a_line_end_cannot_be_framed(self) -> None:
        """It would end the event early."""
        for data in (b"a\nb", b"a\rb", b"\n"):
            with self.assertRaises(ValueError):
                frame(data)

    def test_a_comment_is_skipped_by_a_reader(self) -> None:
        """And cannot smuggle a line."""
        self.assertEqual(comment("ping"), b": ping\n\n")
        self.assertEqual(read(comment("ping"), frame(b"a")), [SSEEvent(b"a", None)])
        for text in ("a\nb", "a\rb"):
            with self.assertRaises(ValueError):
                comment(text)
