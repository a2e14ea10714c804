"""Whatever our readers accept, h11 accepts with the same meaning; and no cut into packets changes what they say."""

import unittest

import h11
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.http_body import ChunkedReader
from gateway.http_head import Chunked, HeadLimits, HttpRefusal, RequestHead, Sized, find_head_end, parse_head

LIMITS = HeadLimits()
MAX_BODY = 1000

_HONEST_LINES = (
    b"Content-Length: 5",
    b"Transfer-Encoding: chunked",
    b"Authorization: Bearer k",
    b"Connection: keep-alive",
    b"Connection: close",
    b"Accept: */*",
    b"X-A:\tb \xe9",
    b"X-Empty:",
)
_HONEST_BODIES = (b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX: y\r\n\r\n")
_NASTY = (b"\r", b"\n", b"\r\n", b"\x00", b" ", b"\t", b":", b",", b";", b"0", b"4", b"\x0b", b"\xa0", b"\xff", b"_")

_lines = st.lists(st.sampled_from(_HONEST_LINES), max_size=5, unique=True)
_first = st.sampled_from(
    (b"POST /v1/chat/completions HTTP/1.1", b"GET /v1/models?a=b HTTP/1.1", b"POST / HTTP/1.0", b"HEAD /x HTTP/1.1")
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Requests that are honest or nearly so: some lines, some body, and up to three bytes changed, added or lost."""
    lines = [draw(_first), b"Host: gw", *draw(_lines)]
    raw = bytearray(b"\r\n".join(lines) + b"\r\n\r\n" + draw(st.sampled_from(_HONEST_BODIES)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 2))] = draw(st.sampled_from(_NASTY) | st.binary(max_size=1))
    return bytes(raw)


@st.composite
def packets(draw: st.DrawFn) -> list[bytes]:
    """One such request, cut anywhere."""
    raw = draw(requests())
    cuts = sorted(draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    return [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]


class Refused(Exception):
    """Refused, or not a whole request."""


def ours(pieces: list[bytes]) -> tuple[RequestHead, bytes, bytes]:
    """Head, body and rest of the request in `pieces`, read as the server reads; Refused otherwise."""
    try:
        buffer, end, index = b"", None, 0
        while end is None:
            if index == len(pieces):
                raise Refused
            seen = len(buffer)
            buffer += pieces[index]
            index += 1
            end = find_head_end(buffer, LIMITS, seen)
        head = parse_head(buffer[:end], LIMITS)
        body, rest = _our_body(head, [buffer[end:], *pieces[index:]])
    except HttpRefusal as refusal:
        raise Refused from refusal
    return head, body, rest


def _our_body(head: RequestHead, pieces: list[bytes]) -> tuple[bytes, bytes]:
    if isinstance(head.body, Chunked):
        reader = ChunkedReader(MAX_BODY)
        body = b"".join([reader.feed(piece) for piece in pieces])
        if not reader.complete:
            raise Refused
        return body, reader.rest
    raw = b"".join(pieces)
    length = head.body.length if isinstance(head.body, Sized) else 0
    if len(raw) < length:
        raise Refused
    return raw[:length], raw[length:]


def theirs(raw: bytes) -> tuple[h11.Request, bytes]:
    """What h11 makes of the same bytes; fails the test where it refuses."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=65536)
    connection.receive_data(raw)
    request = connection.next_event()
    if not isinstance(request, h11.Request):
        raise AssertionError(f"h11 sees no request in {raw!r}: {request!r}")
    body = b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        if not isinstance(event, h11.Data):
            raise AssertionError(f"h11 sees no whole body in {raw!r}: {event!r}")
        body += bytes(event.data)
    return request, body


class AgreementTest(unittest.TestCase):
    @settings(max_examples=400, deadline=None)
    @given(requests())
    def test_what_we_accept_means_the_same_to_h11(self, raw: bytes) -> None:
        """Method, target, version, headers and body are equal."""
        try:
            head, body, _ = ours([raw])
        except Refused:
            return
        request, their_body = theirs(raw)
        self.assertEqual(head.method.encode(), request.method)
        self.assertEqual(head.target.encode("latin-1"), request.target)
        self.assertEqual(b"%d.%d" % head.version, request.http_version)
        headers = [(name.encode(), value.encode("latin-1")) for name, value in head.headers]
        self.assertEqual(headers, [(bytes(name), bytes(value)) for name, value in request.headers])
        self.assertEqual(body, their_body)

    @settings(max_examples=400, deadline=None)
    @given(packets())
    def test_packets_do_not_matter(self, pieces: list[bytes]) -> None:
        """Cut anywhere, a request is read as it is read whole, or refused as it is refused whole."""
        try:
            whole = ours([b"".join(pieces)])
        except Refused:
            self.assertRaises(Refused, ours, pieces)
        else:
            self.assertEqual(ours(pieces), whole)

    def test_every_single_cut_of_an_honest_request_gives_the_same(self) -> None:
        """Two packets, cut at each byte, with a second request behind."""
        raw = (
            b"POST /x HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n"
            + _HONEST_BODIES[3]
            + b"GET / HTTP/1.1"
        )
        whole = ours([raw])
        self.assertEqual(whole[1:], (b"hello", b"GET / HTTP/1.1"))
        for cut in range(len(raw)):
            self.assertEqual(ours([raw[:cut], raw[cut:]]), whole)
        self.assertEqual(ours([raw[i : i + 1] for i in range(len(raw))]), whole)

    def test_many_of_the_requests_drawn_are_accepted(self) -> None:
        """The properties are not empty: the honest lines alone give accepted requests."""
        raw = b"\r\n".join([b"POST /x HTTP/1.1", b"Host: gw", *_HONEST_LINES[:1], *_HONEST_LINES[2:4], b"", b"hello"])
        self.assertEqual(ours([raw])[1], b"hello")


if __name__ == "__main__":
    unittest.main()
