"""What the chunked-body reader decodes, refuses and leaves alone."""

import unittest

from gateway.errors import HttpRefusal
from gateway.http_body import MAX_CHUNKS, ChunkedReader
from tests.support.raw_requests import MALFORMED_CHUNKS


def refusal(raw: bytes, max_bytes: int = 1000) -> HttpRefusal | None:
    """How a body that arrives at once is refused, if it is."""
    try:
        ChunkedReader(max_bytes).feed(raw)
    except HttpRefusal as error:
        return error
    return None


class ChunkedReaderTest(unittest.TestCase):
    def test_chunks_are_joined_and_the_next_request_is_left_alone(self) -> None:
        """Sizes in either case, extensions and trailers dropped, the rest untouched."""
        reader = ChunkedReader(1000)
        chunks = b"5;name=value\r\nhello\r\n00A\r\n, wide wor\r\n2\r\nld\r\n0;last\r\n"
        trailers = b"X-Sum: 1\r\nServer-Timing: db\r\n\r\n"
        self.assertEqual(reader.feed(chunks + trailers + b"GET /"), b"hello, wide world")
        self.assertTrue(reader.complete)
        self.assertEqual(reader.rest, b"GET /")

    def test_content_comes_out_as_it_comes_in(self) -> None:
        """Nothing is held back that is known to be content; nothing is complete before the last line."""
        reader = ChunkedReader(1000)
        self.assertEqual(reader.feed(b"5\r\nhe"), b"he")
        self.assertEqual(reader.feed(b"llo\r"), b"llo")
        self.assertEqual(reader.feed(b"\n0\r\n"), b"")
        self.assertFalse(reader.complete)
        self.assertEqual(reader.rest, b"")
        self.assertEqual(reader.feed(b"\r\n"), b"")
        self.assertTrue(reader.complete)

    def test_bytes_after_the_end_are_kept_not_read(self) -> None:
        """Feeding on after the end only adds to the rest."""
        reader = ChunkedReader(1000)
        reader.feed(b"0\r\n\r\n")
        self.assertEqual(reader.feed(b"not a chunk"), b"")
        self.assertEqual(reader.rest, b"not a chunk")

    def test_malformed_bodies_are_refused(self) -> None:
        """At once and byte by byte, with 400."""
        for name, raw in MALFORMED_CHUNKS:
            with self.subTest(name):
                error = refusal(raw)
                assert error is not None
                self.assertEqual((error.status, error.code), (400, "invalid_request"))
                reader = ChunkedReader(1000)
                with self.assertRaises(HttpRefusal):
                    for byte in raw:
                        reader.feed(bytes([byte]))

    def test_a_body_may_be_as_large_as_the_limit_and_no_larger(self) -> None:
        """The chunk that would exceed it is refused before its content comes."""
        self.assertIsNone(refusal(b"4\r\nabcd\r\n4\r\nabcd\r\n0\r\n\r\n", max_bytes=8))
        for raw in (b"4\r\nabcd\r\n5\r\n", b"9\r\n", b"ffffffff\r\n"):
            error = refusal(raw, max_bytes=8)
            assert error is not None
            self.assertEqual((error.status, error.code), (413, "request_too_large"))

    def test_a_body_may_have_so_many_chunks_and_no_more(self) -> None:
        """The last, empty one included: reading a chunk of one byte costs as much as reading a large one."""
        for chunks, status in (MAX_CHUNKS - 1, None), (MAX_CHUNKS, 413):
            error = refusal(b"1\r\na\r\n" * chunks + b"0\r\n\r\n", max_bytes=MAX_CHUNKS)
            self.assertEqual(error and error.status, status)

    def test_an_empty_body_is_a_body(self) -> None:
        """Even when nothing is allowed."""
        reader = ChunkedReader(0)
        self.assertEqual(reader.feed(b"0\r\n\r\n"), b"")
        self.assertTrue(reader.complete)

    def test_lines_may_be_as_long_as_their_bounds(self) -> None:
        """256 bytes of size line and 8,192 of trailers, line ends included."""
        size_line = b"0;" + b"a" * 252 + b"\r\n"
        trailers = b"X: " + b"y" * (8192 - 7) + b"\r\n\r\n"
        self.assertEqual((len(size_line), len(trailers)), (256, 8192))
        self.assertIsNone(refusal(size_line + trailers))


if __name__ == "__main__":
    unittest.main()
