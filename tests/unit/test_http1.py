"""The sans-IO reader of HTTP/1.1 answers."""

import unittest
from typing import NamedTuple

import h11

from llmkit.http1 import CHUNK_LINE_LIMIT, HEAD_LIMIT, TRAILER_LIMIT, BadResponse, ResponseReader

CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

WHOLE = {
    "length": b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{"hello":"you"}',
    "no reason phrase": b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nhi",
    "empty body": b"HTTP/1.1 529 Overloaded\r\nContent-Length: 0\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\nX-Request-Id: r\r\n\r\n",
    "the same length twice": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
    "spaces around values": b"HTTP/1.1 200 OK\r\nX-Empty:\r\nContent-Length: \t 2 \t\r\nX-Last:a b\r\n\r\nhi",
    "Latin-1": b"HTTP/1.1 200 D\xe9j\xe0\r\nX-Name: caf\xe9\r\nContent-Length: 1\r\n\r\n\xff",
    "chunked": CHUNKED_HEAD + b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    "chunks that look like framing": CHUNKED_HEAD + b"7\r\n\r\n0\r\n\r\n\r\n4\r\nHTTP\r\n0\r\n\r\n",
    "padded sizes, extensions, trailers": CHUNKED_HEAD
    + b'00A;name="a b"\r\n0123456789\r\n1 \r\nx\r\n000;last\r\nX-Sum: 1\r\nX-Two: 2\r\n\r\n',
    "interim heads": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    "until the end": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nto the very end",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
}

CUT = {
    "before anything": b"",
    "in the status line": b"HTTP/1.1 20",
    "in the head": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n",
    "after an interim head": b"HTTP/1.1 100 Continue\r\n\r\n",
    "before the body": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
    "in the body": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
    "before a chunk": CHUNKED_HEAD,
    "in a chunk size": CHUNKED_HEAD + b"5\r\nhello\r\n1",
    "in a chunk": CHUNKED_HEAD + b"5\r\nhell",
    "before the end of a chunk": CHUNKED_HEAD + b"5\r\nhello\r",
    "before the last chunk": CHUNKED_HEAD + b"5\r\nhello\r\n",
    "after the last chunk": CHUNKED_HEAD + b"5\r\nhello\r\n0\r\n",
    "in the trailers": CHUNKED_HEAD + b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n",
}

MALFORMED = {
    "garbage": b"\x16\x03\x01\x00\xeesomething binary",
    "HTTP/0.9": b"<html>no head at all</html>",
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\n\r\n",
    "HTTP/1.10": b"HTTP/1.10 200 OK\r\n\r\n",
    "lower case": b"http/1.1 200 OK\r\n\r\n",
    "status of two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "status above 599": b"HTTP/1.1 600 OK\r\n\r\n",
    "status below 100": b"HTTP/1.1 099 OK\r\n\r\n",
    "switching protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    "one bare LF": b"HTTP/1.1 200 OK\r\nX-A: 1\nContent-Length: 0\r\n\r\n",
    "bare CR in the head": b"HTTP/1.1 200 OK\r\nX-A: 1\rContent-Length: 0\r\n\r\n",
    "NUL in a value": b"HTTP/1.1 200 OK\r\nX-A: 1\x002\r\nContent-Length: 0\r\n\r\n",
    "folded line": b"HTTP/1.1 200 OK\r\nX-A: 1\r\n 2\r\nContent-Length: 0\r\n\r\n",
    "space before the colon": b"HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
    "no colon": b"HTTP/1.1 200 OK\r\nContent-Length\r\n\r\n",
    "no name": b"HTTP/1.1 200 OK\r\n: 0\r\n\r\n",
    "length beside chunked": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "unequal lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
    "unequal lengths in one line": b"HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nhi",
    "signed length": b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nhi",
    "negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nhi",
    "length with an underscore": b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n0123456789",
    "empty length": b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
    "length in other digits": b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\nhi",
    "unknown coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked from HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "signed size": CHUNKED_HEAD + b"+5\r\nhello\r\n0\r\n\r\n",
    "size with 0x": CHUNKED_HEAD + b"0x5\r\nhello\r\n0\r\n\r\n",
    "space before a size": CHUNKED_HEAD + b" 5\r\nhello\r\n0\r\n\r\n",
    "empty size": CHUNKED_HEAD + b"5\r\nhello\r\n\r\n",
    "size of seventeen digits": CHUNKED_HEAD + b"00000000000000005\r\nhello\r\n0\r\n\r\n",
    "bare LF after a size": CHUNKED_HEAD + b"5\nhello\r\n0\r\n\r\n",
    "bare CR in an extension": CHUNKED_HEAD + b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "chunk longer than its size": CHUNKED_HEAD + b"5\r\nhello\r\n4\r\nworld\r\n0\r\n\r\n",
    "chunk that ends in something else": CHUNKED_HEAD + b"5\r\nhelloXX0\r\n\r\n",
    "chunk shorter than its size": CHUNKED_HEAD + b"5\r\nhello\r\n6\r\nworld\r\n0\r\n\r\n",
    "malformed trailer": CHUNKED_HEAD + b"5\r\nhello\r\n0\r\nno colon\r\n\r\n",
}


class Outcome(NamedTuple):
    """All that a reader says about some bytes."""

    status: int | None
    headers: list[tuple[str, str]] | None
    body: bytes
    complete: bool
    keep_alive: bool
    refused: bool


def read(*pieces: bytes, then_end: bool = False) -> Outcome:
    """Feed pieces, then perhaps the end of the connection, and tell what became of it."""
    reader = ResponseReader()
    body, refused = b"", False
    try:
        for piece in pieces:
            reader.feed(piece)
            body += reader.take()
        if then_end:
            reader.end()
    except BadResponse:
        refused = True
    body += reader.take()
    status, headers = (reader.head.status, reader.head.headers) if reader.head else (None, None)
    return Outcome(status, headers, body, reader.complete, reader.keep_alive, refused)


def splits(data: bytes) -> list[list[bytes]]:
    """Data byte by byte, and cut in two at every place."""
    bytewise = [data[at : at + 1] for at in range(len(data))]
    return [bytewise, *([data[:at], data[at:]] for at in range(len(data) + 1))]


class SplitTest(unittest.TestCase):
    """How bytes were split into reads never matters."""

    def test_every_split_of_an_answer_gives_the_same(self) -> None:
        """Byte by byte and at every cut: same head, body, completeness and keep-alive."""
        for name, data in WHOLE.items():
            expected = read(data)
            for pieces in splits(data):
                with self.subTest(name, pieces=len(pieces), first=pieces[:1]):
                    self.assertEqual(read(*pieces), expected)

    def test_every_split_of_a_cut_answer_gives_the_same(self) -> None:
        """What was taken before the cut does not depend on the reads."""
        for name, data in CUT.items():
            expected = read(data, then_end=True)
            for pieces in splits(data):
                with self.subTest(name, pieces=len(pieces)):
                    self.assertEqual(read(*pieces, then_end=True), expected)

    def test_every_split_of_a_malformed_answer_is_refused_with_the_same_body(self) -> None:
        """The bytes before a fault can be taken, whether or not they came with it."""
        for name, data in MALFORMED.items():
            expected = read(data, then_end=True)
            for pieces in splits(data):
                with self.subTest(name, pieces=len(pieces)):
                    self.assertEqual(read(*pieces, then_end=True), expected)


class WholeTest(unittest.TestCase):
    """Answers that are whole."""

    def test_a_body_by_length_is_complete_with_its_last_byte(self) -> None:
        """Names are in lower case, and the connection can be used again."""
        headers = [("content-type", "application/json"), ("content-length", "15")]
        self.assertEqual(read(WHOLE["length"]), Outcome(200, headers, b'{"hello":"you"}', True, True, False))

    def test_a_chunked_body_loses_its_framing(self) -> None:
        """Sizes, extensions and trailers are not part of the body."""
        self.assertEqual(read(WHOLE["chunked"]).body, b"hello world")
        self.assertEqual(read(WHOLE["padded sizes, extensions, trailers"]).body, b"0123456789x")
        self.assertEqual(read(WHOLE["chunks that look like framing"]).body, b"\r\n0\r\n\r\nHTTP")

    def test_every_whole_answer_is_complete(self) -> None:
        """Only the one that is framed by the end of the connection waits for it."""
        for name, data in WHOLE.items():
            with self.subTest(name):
                self.assertEqual(read(data).complete, name != "until the end")
                ended = read(data, then_end=True)
                self.assertEqual((ended.complete, ended.keep_alive, ended.refused), (True, False, False))

    def test_interim_heads_are_skipped(self) -> None:
        """100 and 103 are not the answer."""
        outcome = read(WHOLE["interim heads"])
        self.assertEqual((outcome.status, outcome.body), (200, b"hi"))

    def test_values_lose_the_spaces_around_them(self) -> None:
        """Only those: spaces within, and empty values, stay."""
        headers = [("x-empty", ""), ("content-length", "2"), ("x-last", "a b")]
        self.assertEqual(read(WHOLE["spaces around values"]).headers, headers)

    def test_a_head_gives_first_values_and_lists(self) -> None:
        """get() is the first line's value; listed() splits all of them at commas."""
        reader = ResponseReader()
        reader.feed(b"HTTP/1.1 200 OK\r\nVary: Origin, X\r\nVary: y\r\nContent-Length: 0\r\n\r\n")
        head = reader.head
        assert head is not None
        self.assertEqual(head.get("vary"), "Origin, X")
        self.assertEqual(head.listed("vary"), ["origin", "x", "y"])
        self.assertIsNone(head.get("missing"))

    def test_part_of_a_chunk_can_be_taken_before_the_rest(self) -> None:
        """A drip inside one chunk is passed on as it comes."""
        reader = ResponseReader()
        reader.feed(CHUNKED_HEAD + b"ff\r\nhel")
        self.assertEqual(reader.take(), b"hel")
        reader.feed(b"lo")
        self.assertEqual((reader.take(), reader.take()), (b"lo", b""))

    def test_h11_reads_the_same(self) -> None:
        """A second opinion: every answer that is accepted here, h11 accepts with the same meaning."""
        for name, data in WHOLE.items():
            with self.subTest(name):
                ours = read(data, then_end=True)
                self.assertEqual(_as_h11_reads(data), (ours.status, dict(ours.headers or ()), ours.body))


class KeepAliveTest(unittest.TestCase):
    """Whether a connection may carry another request."""

    def test_the_version_and_the_connection_header_decide(self) -> None:
        """HTTP/1.1 keeps unless told to close; HTTP/1.0 closes unless told to keep."""
        table = [
            (b"HTTP/1.1 200 OK\r\n", True),
            (b"HTTP/1.1 200 OK\r\nConnection: Close\r\n", False),
            (b"HTTP/1.1 200 OK\r\nConnection: keep-alive, close\r\n", False),
            (b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nConnection: close\r\n", False),
            (b"HTTP/1.0 200 OK\r\n", False),
            (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n", True),
        ]
        for head, expected in table:
            with self.subTest(head):
                self.assertEqual(read(head + b"Content-Length: 2\r\n\r\nhi").keep_alive, expected)

    def test_more_than_the_announced_length_ends_the_connection(self) -> None:
        """A length that lies low: the rest is not the body, and not the next answer either."""
        for pieces in ((b"hi and more",), (b"hi", b" and more")):
            outcome = read(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", *pieces)
            self.assertEqual((outcome.body, outcome.complete, outcome.keep_alive), (b"hi", True, False))

    def test_bytes_after_the_last_chunk_end_the_connection(self) -> None:
        """So does what follows a chunked body."""
        self.assertFalse(read(WHOLE["chunked"] + b"HTTP/1.1 200 OK\r\n").keep_alive)

    def test_a_body_on_an_answer_without_one_ends_the_connection(self) -> None:
        """204 has no body, whatever it announces."""
        outcome = read(b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nhi")
        self.assertEqual((outcome.body, outcome.complete, outcome.keep_alive), (b"", True, False))


class RefusalTest(unittest.TestCase):
    """Answers that are not whole or not unambiguous."""

    def test_a_cut_answer_is_refused(self) -> None:
        """A length that lies high, a missing last chunk, half a head: the end of the connection is an error."""
        for name, data in CUT.items():
            with self.subTest(name):
                self.assertTrue(read(data, then_end=True).refused)
                self.assertFalse(read(data).refused)

    def test_malformed_framing_is_refused(self) -> None:
        """Before the connection ends: nobody has to wait for a clock."""
        for name, data in MALFORMED.items():
            with self.subTest(name):
                self.assertTrue(read(data).refused)

    def test_what_came_before_a_fault_can_be_taken(self) -> None:
        """The first chunk was fine."""
        self.assertEqual(read(CHUNKED_HEAD + b"5\r\nhello\r\nXYZ\r\n").body, b"hello")

    def test_garbage_is_refused_at_its_first_wrong_byte(self) -> None:
        """Neither a whole line nor the end of the connection is waited for."""
        self.assertTrue(read(b"HTTQ").refused)
        self.assertFalse(read(b"HTT").refused)

    def test_a_head_is_bounded(self) -> None:
        """One endless header, and endless interim heads, end at the limit; a head just below it is read."""
        fill = HEAD_LIMIT - len(b"HTTP/1.1 200 OK\r\nX-A: \r\nContent-Length: 0\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nX-A: %b\r\nContent-Length: 0\r\n\r\n"
        self.assertTrue(read(head % (b"a" * fill)).complete)
        self.assertTrue(read(head % (b"a" * (fill + 1))).refused)
        self.assertTrue(read(b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * HEAD_LIMIT).refused)
        self.assertTrue(read(b"HTTP/1.1 100 Continue\r\n\r\n" * (HEAD_LIMIT // 25 + 1)).refused)

    def test_a_chunk_size_line_is_bounded(self) -> None:
        """Also when it is whole, so that the reads do not matter."""
        fits = b"1;" + b"a" * (CHUNK_LINE_LIMIT - 4) + b"\r\n"
        self.assertEqual(read(CHUNKED_HEAD + fits + b"x\r\n0\r\n\r\n").body, b"x")
        self.assertTrue(read(CHUNKED_HEAD + b"1;a" + fits[2:]).refused)
        self.assertTrue(read(CHUNKED_HEAD + b"1;" + b"a" * CHUNK_LINE_LIMIT).refused)

    def test_trailers_are_bounded(self) -> None:
        """Together, not one by one."""
        trailer = b"X-A: 12345678\r\n"
        fits = (TRAILER_LIMIT - 2) // len(trailer)
        self.assertTrue(read(CHUNKED_HEAD + b"0\r\n" + trailer * fits + b"\r\n").complete)
        self.assertTrue(read(CHUNKED_HEAD + b"0\r\n" + trailer * (fits + 1) + b"\r\n").refused)
        self.assertTrue(read(CHUNKED_HEAD + b"0\r\n" + trailer * (fits + 1)).refused)

    def test_the_error_says_nothing_of_the_answer(self) -> None:
        """It may be shown and logged."""
        for name, data in MALFORMED.items():
            with self.subTest(name), self.assertRaises(BadResponse) as caught:
                ResponseReader().feed(data.replace(b"X-A", b"X-Secret").replace(b"hello", b"secre"))
            self.assertNotIn("ecre", str(caught.exception))


def _as_h11_reads(data: bytes) -> tuple[int | None, dict[str, str], bytes]:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "a"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    connection.receive_data(b"")
    status, headers, body = None, {}, b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
    return status, headers, body
