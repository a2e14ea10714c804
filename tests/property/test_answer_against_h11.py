"""Whatever our reader of answers accepts, h11 accepts with the same meaning; and no cut into reads matters."""

import unittest
from typing import NamedTuple

import h11
from hypothesis import given, settings
from hypothesis import strategies as st

from llmkit.http1 import BadResponse, ResponseReader

_FIRST = (b"HTTP/1.1 200 OK", b"HTTP/1.1 200", b"HTTP/1.1 503 Busy", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 No Content")
_INTERIM = (b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n")
_LINES = (
    b"Content-Type: application/json",
    b"Connection: keep-alive",
    b"Connection: close",
    b"X-A:\tb \xe9",
    b"X-Empty:",
    b"Content-Length: 4",
)
_LENGTH, _CHUNKED = b"Content-Length: 5", b"Transfer-Encoding: chunked"
_FRAMED = (
    (_LENGTH, b"hello"),
    (_LENGTH, b"hello, and more"),
    (b"Content-Length: +5", b"hello"),
    (b"Content-Length: 5, 5", b"hello"),
    (b"X-None: to the end", b"hello"),
    (_CHUNKED, b"5\r\nhello\r\n0\r\n\r\n"),
    (_CHUNKED, b"2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX: y\r\n\r\n"),
    (_CHUNKED, b"+5\r\nhello\r\n0\r\n\r\n"),
    (_CHUNKED, b"0x5\r\nhello\r\n0\r\n\r\n"),
    (_CHUNKED, b"5\r\nhello\n0\r\n\r\n"),
)
_NASTY = (b"\r", b"\n", b"\r\n", b"\x00", b" ", b"\t", b":", b",", b";", b"0", b"4", b"+", b"-", b"x", b"_", b"\xff")


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Answers that are honest or nearly so: some lines, some body, and up to two places changed."""
    framing, body = draw(st.sampled_from(_FRAMED))
    lines = [draw(st.sampled_from(_FIRST)), framing, *draw(st.lists(st.sampled_from(_LINES), max_size=2))]
    raw = bytearray(draw(st.sampled_from(_INTERIM)) + b"\r\n".join([*lines, b"", body]))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 2))] = draw(st.sampled_from(_NASTY) | st.binary(max_size=1))
    return bytes(raw)


_FRAMING = ("content-length", "transfer-encoding")


class Said(NamedTuple):
    """What some bytes and then the end of the connection are taken for; status None if there is no head.

    headers  without those that frame the body, which h11 gives in a form of its own: the body tells how they were read
    """

    status: int | None
    headers: list[tuple[str, str]]
    body: bytes
    whole: bool
    keep_alive: bool


def ours(pieces: list[bytes]) -> Said:
    """What our reader says."""
    reader, body, keep_alive = ResponseReader(), b"", False
    try:
        for piece in pieces:
            reader.feed(piece)
            body += reader.take()
        keep_alive = reader.complete and reader.keep_alive
        reader.end()
    except BadResponse:
        whole = False
    else:
        whole = reader.complete
    status, headers = (reader.head.status, reader.head.headers) if reader.head else (None, [])
    return Said(
        status, [field for field in headers if field[0] not in _FRAMING], body + reader.take(), whole, keep_alive
    )


def theirs(raw: bytes) -> Said:
    """What h11 says; fails the test where it refuses."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "a"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(raw)
    connection.receive_data(b"")
    status, headers, body = None, [], b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Response):
            status = event.status_code
            fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers]
            headers = [field for field in fields if field[0] not in _FRAMING]
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif not isinstance(event, h11.InformationalResponse):
            raise AssertionError(f"h11 sees no whole answer in {raw!r}: {event!r}")
    return Said(status, headers, body, True, connection.their_state is h11.DONE and not connection.trailing_data[0])


class AgreementTest(unittest.TestCase):
    """True of every answer and of every way to cut it."""

    @settings(max_examples=150, deadline=None)
    @given(answers())
    def test_what_we_accept_means_the_same_to_h11(self, raw: bytes) -> None:
        """Status, headers and body are equal; a connection that we would use again, h11 would too."""
        said = ours([raw])
        if said.whole:
            known = theirs(raw)
            self.assertEqual(said._replace(keep_alive=known.keep_alive), known)
            self.assertLessEqual(said.keep_alive, known.keep_alive)

    @settings(max_examples=60, deadline=None)
    @given(answers(), st.lists(st.integers(0, 200), max_size=8))
    def test_reads_do_not_matter(self, raw: bytes, at: list[int]) -> None:
        """Cut anywhere or byte by byte: the same head, the same body before the same fault."""
        cuts = sorted(min(cut, len(raw)) for cut in at)
        pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
        self.assertEqual(ours(pieces), ours([raw]))
        self.assertEqual(ours([raw[i : i + 1] for i in range(len(raw))]), ours([raw]))

    def test_some_of_the_answers_drawn_are_whole(self) -> None:
        """The properties are not empty."""
        whole = [ours([b"\r\n".join([_FIRST[0], line, b"", body])]).whole for line, body in _FRAMED]
        self.assertEqual(whole, [True, True, False, True, True, True, True, False, False, False])
