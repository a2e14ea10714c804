"""Whatever our readers accept, h11 accepts with the same meaning; and no cut into packets changes what they say.

h11 is laxer on purpose: it takes two framings, folded lines, bare LF, HTTP/2.0, and more. So only one direction is
asked for: what we accept, h11 reads as the same method, target, version, headers, body and rest.
"""

import unittest
from dataclasses import dataclass

import h11
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gateway.errors import HttpRefusal
from gateway.http_body import ChunkedReader
from gateway.http_head import Chunked, HeadLimits, RequestHead, Sized, find_head_end, parse_head
from tests.support.raw_requests import CUT_BODIES, HONEST, HOSTILE_HEADS, MALFORMED_CHUNKS, post

LIMITS = HeadLimits()
MAX_BODY = 1000
NEXT = b"GET /next HTTP/1.1\r\n"

_SEEDS = [
    *[case.raw for case in HONEST if len(case.raw) < 1000] * 8,
    *(raw for _, raw in CUT_BODIES),
    *(raw for _, raw, _ in HOSTILE_HEADS if len(raw) < 1000),
    *(post(b"Transfer-Encoding: chunked") + raw for _, raw in MALFORMED_CHUNKS if len(raw) < 1000),
]
_NASTY = (
    *(b"\r", b"\n", b"\r\n", b"\x00", b" ", b"\t", b":", b",", b";", b"0", b"4", b"a", b"\x0b", b"\x0c", b"\x1f"),
    *(b"\x7f", b"\x85", b"\xa0", b"\xff", b"_", b"-", b"+", b'"', b"=", b"\r\n\r\n", b"0\r\n\r\n", b"\r\n "),
    *(b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: gw\r\n", b"chunked", b"HTTP/1.1"),
)
_blank = st.sampled_from((b"", b" ", b"\t", b"  ", b" \t "))


@dataclass(frozen=True)
class Known:
    """A request as it is written: what a reader that takes it must have understood."""

    raw: bytes
    body: bytes


def _mostly(usual: tuple[bytes, ...], odd: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """One of the usual, now and then one of the odd."""
    return st.sampled_from(usual * (60 * len(odd) // len(usual) + 1) + odd)


_method = _mostly((b"GET", b"POST", b"HEAD"), (b"get", b"CONNECT", b"PROPFIND", b"M-SEARCH", b"", b"G\x00T"))
_target = _mostly(
    (b"/", b"/v1/models?a=b", b"//a/../b;c", b"/%00%0d%0a"),
    (b"*", b"http://evil/", b"gw:80", b"/a b", b"/\xe9", b"/a#b", b"", b"/\x7f"),
)
_version = _mostly((b"HTTP/1.1", b"HTTP/1.0"), (b"HTTP/2.0", b"HTTP/1.10", b"HTTP/0.9", b"http/1.1", b"HTTP/1.1 ", b""))
_host = _mostly((b"gw", b"[::1]:80", b"gw:"), (b"", b"a, b", b"a@b", b"a/b", b"::1"))
_name = _mostly(
    (b"X-A", b"Accept", b"Connection", b"Authorization", b"Expect", b"Upgrade", b"TE", b"x_y", b"!#$%&'*+.^`|~"),
    (
        b"Host",
        b"Content-Length",
        b"Transfer-Encoding",
        b"Content_Length",
        b"",
        b"X Y",
        b"X(",
        b" X",
        b"X\xe9",
        b"X\x00",
    ),
)
_value = _mostly(
    (b"", b"a", b"a \tb", b"\xe9\xff", b"close", b"keep-alive", b"100-continue", b'a:b, c;d="e"'),
    (b"2", b"chunked", b"identity", b"2, 2", b"+2", b"a\rb", b"a\nb", b"a\r\n b", b"\x00", b"\x7f", b"\x01", b"\x85"),
)
_before_colon = _mostly((b"",), (b" ", b"\t", b"\xa0"))
_behind_value = _mostly((b"", b" ", b"\t "), (b"\x0b", b"\xa0", b"\r\n ", b"\x00", b"\r"))
_length = _mostly((b"%d", b"0%d"), (b"+%d", b"%d, %d", b"%d_", b"0x%d", b"%d ", b"", b"%d;", b"-%d"))
_coding = _mostly(
    (b"chunked", b"Chunked"), (b"gzip, chunked", b"chunked, chunked", b"identity", b"xchunked", b"", b"\x0bchunked")
)
_extension = _mostly((b"", b";a", b';a="b c"', b";\xe9\t"), (b" ", b" ;a", b";\x00", b";\r", b";\n", b"a", b"_"))
_trailer = _mostly(
    (b"X-Sum: 1", b"x:", b"Server-Timing: a b"),
    (b"X : 1", b"junk", b" x: y", b": x", b"Content-Length: 9", b"Host: evil", b"Content-Length: x", b"X: \x00"),
)
_line_end = _mostly((b"\r\n",), (b"\n", b"\r", b"\r\r\n", b"", b"\n\r\n"))


@st.composite
def field_lines(draw: st.DrawFn) -> bytes:
    """One field line, with blanks where they may stand, and now and then where they may not."""
    return draw(_name) + draw(_before_colon) + b":" + draw(_blank) + draw(_value) + draw(_behind_value)


@st.composite
def chunked_bodies(draw: st.DrawFn) -> Known:
    """Chunks, honest or nearly so."""
    raw = body = b""
    for content in draw(st.lists(st.sampled_from((b"a", b"he\r\n", b"0\r\n\r\n", b"x" * 17)), max_size=4)):
        size = draw(_mostly((b"%x", b"%X", b"000%x"), (b"0x%x", b"+%x", b" %x", b"%x_", b"00000000%x", b"-%x")))
        raw += size % len(content) + draw(_extension) + draw(_line_end) + content + draw(_line_end)
        body += content
    raw += draw(_mostly((b"0", b"000"), (b"", b"00000000000", b"-0", b"0x0"))) + draw(_extension) + draw(_line_end)
    for line in draw(st.lists(_trailer, max_size=2)):
        raw += line + draw(_line_end)
    return Known(raw + draw(_line_end), body)


@st.composite
def requests(draw: st.DrawFn) -> Known:
    """A request from the grammar: mostly honest in each place, now and then not."""
    lines = [b"Host:" + draw(_blank) + draw(_host)] * draw(st.sampled_from((1, 1, 1, 1, 1, 1, 1, 0, 2)))
    lines += draw(st.lists(field_lines(), max_size=2))
    framing = draw(st.sampled_from(("none", "sized", "chunked", "chunked", "chunked", "both")))
    known = Known(b"", b"") if framing == "none" else draw(chunked_bodies())
    if framing in ("sized", "both"):
        lines.append(b"Content-Length:" + draw(_length).replace(b"%d", b"%d" % len(known.raw)))
    if framing in ("chunked", "both"):
        lines.append(b"Transfer-Encoding:" + draw(_blank) + draw(_coding))
    first = b" ".join((draw(_method), draw(_target), draw(_version))) + draw(_line_end)
    head = first + b"\r\n".join([*draw(st.permutations(lines)), b"", b""])
    return Known(head + known.raw + draw(st.sampled_from((b"", NEXT))), known.body)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A request of the tables with up to three places changed, added or lost."""
    raw = bytearray(draw(st.sampled_from(_SEEDS)) + draw(st.sampled_from((b"", NEXT))))
    for _ in range(draw(st.sampled_from((0, 1, 1, 1, 2, 3)))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 2))] = draw(st.sampled_from(_NASTY) | st.binary(max_size=1))
    return bytes(raw)


raws = requests().map(lambda known: known.raw) | mutated()


@st.composite
def packets(draw: st.DrawFn) -> list[bytes]:
    """One such request, cut anywhere."""
    raw = draw(raws)
    cuts = sorted(draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    return [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]


class Unfinished(Exception):
    """Not a whole request: a server would wait for more."""


def ours(pieces: list[bytes]) -> tuple[RequestHead, bytes, bytes]:
    """Head, body and rest of the request in `pieces`, read as the server reads; HttpRefusal or Unfinished otherwise."""
    buffer, end, index = b"", None, 0
    while end is None:
        if index == len(pieces):
            raise Unfinished
        seen = len(buffer)
        buffer += pieces[index]
        index += 1
        end = find_head_end(buffer, LIMITS, seen)
    head = parse_head(buffer[:end], LIMITS)
    return head, *_our_body(head, [buffer[end:], *pieces[index:]])


def _our_body(head: RequestHead, pieces: list[bytes]) -> tuple[bytes, bytes]:
    if isinstance(head.body, Chunked):
        reader = ChunkedReader(MAX_BODY)
        body = b"".join([reader.feed(piece) for piece in pieces])
        if not reader.complete:
            raise Unfinished
        return body, reader.rest
    raw = b"".join(pieces)
    length = head.body.length if isinstance(head.body, Sized) else 0
    if len(raw) < length:
        raise Unfinished
    return raw[:length], raw[length:]


def outcome(pieces: list[bytes]) -> object:
    """What is said of a request: its parts, or how it is refused, or that more must come."""
    try:
        return ours(pieces)
    except HttpRefusal as refusal:
        return refusal.status, refusal.code, refusal.message
    except Unfinished:
        return "unfinished"


def theirs(raw: bytes) -> tuple[h11.Request, bytes, bytes]:
    """What h11 makes of the same bytes; fails the test where it refuses."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=65536)
    connection.receive_data(raw)
    request = connection.next_event()
    if not isinstance(request, h11.Request):
        raise AssertionError(f"h11 sees no request in {raw!r}: {request!r}")
    body = b""
    while not isinstance(part := connection.next_event(), h11.EndOfMessage):
        if not isinstance(part, h11.Data):
            raise AssertionError(f"h11 sees no whole body in {raw!r}: {part!r}")
        body += bytes(part.data)
    return request, body, connection.trailing_data[0]


class AgreementTest(unittest.TestCase):
    @settings(max_examples=700)
    @given(raws)
    def test_what_we_accept_means_the_same_to_h11(self, raw: bytes) -> None:
        """Method, target, version, headers, body and what is left are equal; we raise nothing but our own refusal."""
        try:
            head, body, rest = ours([raw])
        except (HttpRefusal, Unfinished) as error:
            event(type(error).__name__)
            return
        event(f"accepted, {type(head.body).__name__}")
        request, their_body, their_rest = theirs(raw)
        self.assertEqual(head.method.encode(), request.method)
        self.assertEqual(head.target.encode("latin-1"), request.target)
        self.assertEqual(b"%d.%d" % head.version, request.http_version)
        self.assertEqual(_as_h11(head), [(bytes(name), bytes(value)) for name, value in request.headers])
        self.assertEqual((body, rest), (their_body, their_rest))

    @settings(max_examples=150)
    @given(requests())
    def test_a_body_that_is_accepted_is_the_one_that_was_written(self, known: Known) -> None:
        """No other bytes than those of the chunks, or of the length."""
        try:
            head, body, rest = ours([known.raw])
        except (HttpRefusal, Unfinished):
            return
        if isinstance(head.body, Chunked):
            self.assertEqual(body, known.body)
        self.assertTrue(known.raw.endswith(rest))

    @settings(max_examples=300)
    @given(packets())
    def test_packets_do_not_matter(self, pieces: list[bytes]) -> None:
        """Cut anywhere, a request is read as it is read whole, or refused."""
        whole = outcome([b"".join(pieces)])
        cut = outcome(pieces)
        if isinstance(whole, tuple) and isinstance(whole[0], int):
            self.assertTrue(isinstance(cut, tuple) and isinstance(cut[0], int), cut)
        else:
            self.assertEqual(cut, whole)

    def test_every_single_cut_of_an_honest_request_gives_the_same(self) -> None:
        """Two packets, cut at each byte, and byte by byte."""
        for case in HONEST:
            if len(case.raw) > 1000:
                continue
            whole = ours([case.raw])
            for cut in range(len(case.raw)):
                self.assertEqual(ours([case.raw[:cut], case.raw[cut:]]), whole, case.name)
            self.assertEqual(ours([case.raw[at : at + 1] for at in range(len(case.raw))]), whole, case.name)

    def test_every_honest_request_means_the_same_to_h11(self) -> None:
        """The properties are not empty: the table alone gives accepted requests of every framing."""
        for case in HONEST:
            head, body, rest = ours([case.raw])
            request, their_body, their_rest = theirs(case.raw)
            self.assertEqual(_as_h11(head), [(bytes(name), bytes(value)) for name, value in request.headers])
            self.assertEqual((body, rest, body), (their_body, their_rest, case.seen[0].body), case.name)


def _as_h11(head: RequestHead) -> list[tuple[bytes, bytes]]:
    """The headers as h11 gives them: it writes a coding in lower case."""
    return [
        (name.encode(), value.lower().encode() if name == "transfer-encoding" else value.encode("latin-1"))
        for name, value in head.headers
    ]


if __name__ == "__main__":
    unittest.main()
