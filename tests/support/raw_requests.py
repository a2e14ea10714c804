"""Requests as bytes: those that must be refused, those that are cut, and those that must be served.

Three suites read these tables: the readers' own tests, the tests of the front over sockets, and the properties that
compare with h11.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gw:8080\r\n"
GET = b"GET /v1/models HTTP/1.1\r\nHost: gw:8080\r\n"


def post(*lines: bytes) -> bytes:
    """A POST head with these field lines after Host."""
    return POST + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def first_line(line: bytes) -> bytes:
    """A head with this request line and a Host."""
    return line + b"\r\nHost: gw\r\n\r\n"


HOSTILE_HEADS: list[tuple[str, bytes, int]] = [
    # two framings, or one said twice
    ("both framings", post(b"Content-Length: 4", b"Transfer-Encoding: chunked"), 400),
    ("both framings, reversed", post(b"Transfer-Encoding: chunked", b"Content-Length: 4"), 400),
    ("two lengths that differ", post(b"Content-Length: 4", b"Content-Length: 0"), 400),
    ("two lengths that agree", post(b"Content-Length: 4", b"content-length: 4"), 400),
    ("a list of lengths", post(b"Content-Length: 4, 4"), 400),
    ("an underscored length beside a length", post(b"Content_Length: 0", b"Content-Length: 44"), 400),
    ("an underscored coding", post(b"Transfer_Encoding: chunked"), 400),
    ("an underscored key", post(b"x_api_key: k"), 400),
    ("two codings", post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 400),
    ("an underscored content type", post(b"Content_Type: text/plain"), 400),
    ("an underscored key of the other kind", post(b"api_key: k"), 400),
    ("a good length behind an empty one", post(b"Content-Length:", b"Content-Length: 4"), 400),
    # lengths that int() takes
    ("a plus sign", post(b"Content-Length: +4"), 400),
    ("a minus sign", post(b"Content-Length: -1"), 400),
    ("an underscore in the length", post(b"Content-Length: 1_0"), 400),
    ("hexadecimal", post(b"Content-Length: 0x4"), 400),
    ("an exponent", post(b"Content-Length: 1e3"), 400),
    ("a fraction", post(b"Content-Length: 4.0"), 400),
    ("letters", post(b"Content-Length: abc"), 400),
    ("no length at all", post(b"Content-Length:"), 400),
    ("thirteen digits", post(b"Content-Length: 1000000000000"), 400),
    ("Arabic digits in UTF-8", post(b"Content-Length: \xd9\xa4"), 400),
    ("a superscript digit", post(b"Content-Length: \xb2"), 400),
    ("a blank inside the length", post(b"Content-Length: 4 4"), 400),
    ("a quoted length", post(b'Content-Length: "4"'), 400),
    ("a length with a parameter", post(b"Content-Length: 4;q=1"), 400),
    ("a length with a comma behind it", post(b"Content-Length: 4,"), 400),
    ("a length of twenty digits", post(b"Content-Length: 18446744073709551620"), 400),
    ("a wide digit in UTF-8", post(b"Content-Length: \xef\xbc\x94"), 400),
    ("a no-break space behind the length", post(b"Content-Length: 4\xa0"), 400),
    ("NUL behind the length", post(b"Content-Length: 4\x00"), 400),
    # codings
    ("chunked last in a list", post(b"Transfer-Encoding: gzip, chunked"), 400),
    ("chunked first in a list", post(b"Transfer-Encoding: chunked, identity"), 400),
    ("identity", post(b"Transfer-Encoding: identity"), 400),
    ("no coding", post(b"Transfer-Encoding:"), 400),
    ("a near miss", post(b"Transfer-Encoding: xchunked"), 400),
    ("a quoted coding", post(b'Transfer-Encoding: "chunked"'), 400),
    ("a vertical tab before the coding", post(b"Transfer-Encoding: \x0bchunked"), 400),
    ("a no-break space behind the coding", post(b"Transfer-Encoding: chunked\xa0"), 400),
    ("chunked in HTTP/1.0", b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ("gzip alone", post(b"Transfer-Encoding: gzip"), 400),
    ("chunked twice in a list", post(b"Transfer-Encoding: chunked, chunked"), 400),
    ("chunked and a comma", post(b"Transfer-Encoding: chunked,"), 400),
    ("a comma and chunked", post(b"Transfer-Encoding: ,chunked"), 400),
    ("a coding with a parameter", post(b"Transfer-Encoding: chunked;q=1"), 400),
    ("half a quote around the coding", post(b'Transfer-Encoding: "chunked'), 400),
    ("a coding that goes on on the next line", post(b"Transfer-Encoding:", b" chunked"), 400),
    ("NUL within the coding", post(b"Transfer-Encoding: chun\x00ked"), 400),
    ("a coding behind a bare CR", post(b"X-A: 1\rTransfer-Encoding: chunked"), 400),
    ("a space behind the coding's name", post(b"Transfer-Encoding : chunked"), 400),
    ("a blank before the coding's name", post(b"X-A: 1", b" Transfer-Encoding: chunked"), 400),
    ("a vertical tab behind the coding's name", post(b"Transfer-Encoding\x0b: chunked"), 400),
    ("the other case, a second coding", post(b"Transfer-Encoding: chunked", b"TRANSFER-ENCODING: identity"), 400),
    # field lines
    ("a space before the colon", post(b"Content-Length : 4"), 400),
    ("a tab before the colon", post(b"Content-Length\t: 4"), 400),
    ("a line without a colon", post(b"garbage", b"Authorization: Bearer k"), 400),
    ("an empty name", post(b": x"), 400),
    ("a name that is no token", post(b"X(y): x"), 400),
    ("a name with a byte above 127", post(b"X\xe9: x"), 400),
    ("a blank inside a name", post(b"X Y: x"), 400),
    ("a folded line", post(b"X-A: 1", b" folded"), 400),
    ("a line folded with a tab", post(b"X-A: 1", b"\tfolded"), 400),
    ("a folded first line", first_line(b"GET / HTTP/1.1\r\n X-A: 1"), 400),
    ("a bare CR in a value", post(b"X-A: 1\rContent-Length: 4"), 400),
    ("a bare LF in a value", post(b"X-A: 1\nContent-Length: 4"), 400),
    ("bare LF throughout", b"GET / HTTP/1.1\nHost: gw\n\n", 400),
    ("bare LF at the end only", b"GET / HTTP/1.1\r\nHost: gw\r\n\n", 400),
    ("CR CR LF", b"GET / HTTP/1.1\r\nHost: gw\r\r\n\r\n", 400),
    ("NUL in a value", post(b"X-A: a\x00b"), 400),
    ("NUL in a name", post(b"X\x00A: b"), 400),
    ("escape in a value", post(b"X-A: \x1b[2J"), 400),
    ("DEL in a value", post(b"X-A: \x7f"), 400),
    ("form feed in a value", post(b"X-A: a\x0cb"), 400),
    ("a byte order mark first", b"\xef\xbb\xbf" + GET + b"\r\n", 400),
    ("a line of nothing but a colon", post(b":"), 400),
    ("a line of nothing but blanks", post(b"X-A: 1", b"   "), 400),
    ("a request within a header line", post(b"X-A: 1\n\nGET /evil HTTP/1.1"), 400),
    ("a control character in a Connection option", post(b"Connection: close\x00"), 400),
    ("backspace in a value", post(b"X-A: a\x08b"), 400),
    # the request line
    ("lower-case method", first_line(b"get / HTTP/1.1"), 400),
    ("mixed-case method", first_line(b"Get / HTTP/1.1"), 400),
    ("a method of 17 letters", first_line(b"A" * 17 + b" / HTTP/1.1"), 400),
    ("a method with a hyphen", first_line(b"M-SEARCH / HTTP/1.1"), 400),
    ("no method", first_line(b" / HTTP/1.1"), 400),
    ("two spaces", first_line(b"GET  / HTTP/1.1"), 400),
    ("a tab for a space", first_line(b"GET\t/ HTTP/1.1"), 400),
    ("a space inside the target", first_line(b"GET /a b HTTP/1.1"), 400),
    ("a trailing space", first_line(b"GET / HTTP/1.1 "), 400),
    ("HTTP/0.9", b"GET /\r\n", 400),
    ("HTTP/0.9 with a version", first_line(b"GET / HTTP/0.9"), 400),
    ("HTTP/2.0", first_line(b"GET / HTTP/2.0"), 400),
    ("HTTP/1.2", first_line(b"GET / HTTP/1.2"), 400),
    ("HTTP/1.10", first_line(b"GET / HTTP/1.10"), 400),
    ("HTTP/01.1", first_line(b"GET / HTTP/01.1"), 400),
    ("HTTP/1", first_line(b"GET / HTTP/1"), 400),
    ("lower-case protocol", first_line(b"GET / http/1.1"), 400),
    ("the HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    ("an absolute target", first_line(b"GET http://evil/ HTTP/1.1"), 400),
    ("an authority target", first_line(b"CONNECT evil:443 HTTP/1.1"), 400),
    ("an asterisk target", first_line(b"OPTIONS * HTTP/1.1"), 400),
    ("a relative target", first_line(b"GET v1/models HTTP/1.1"), 400),
    ("a fragment", first_line(b"GET /v1/models#x HTTP/1.1"), 400),
    ("a byte above 127 in the target", first_line(b"GET /\xe9 HTTP/1.1"), 400),
    ("NUL in the target", first_line(b"GET /\x00 HTTP/1.1"), 400),
    ("an empty line first", b"\r\nGET / HTTP/1.1\r\nHost: gw\r\n\r\n", 400),
    ("nothing but empty lines", b"\r\n\r\n", 400),
    ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00", 400),
    ("CONNECT to a path", first_line(b"CONNECT /v1/models HTTP/1.1"), 400),
    ("https in an absolute target", first_line(b"POST https://evil/v1/chat/completions HTTP/1.1"), 400),
    ("a method with a sign", first_line(b"G@T / HTTP/1.1"), 400),
    ("NUL behind the method", first_line(b"GET\x00 / HTTP/1.1"), 400),
    ("no target", first_line(b"GET HTTP/1.1"), 400),
    ("no version", first_line(b"GET /"), 400),
    ("HTTP/1.1.1", first_line(b"GET / HTTP/1.1.1"), 400),
    ("a comma in the version", first_line(b"GET / HTTP/1,1"), 400),
    ("a space in the version", first_line(b"GET / HTTP/ 1.1"), 400),
    ("a sign in the version", first_line(b"GET / HTTP/+1.1"), 400),
    ("HTTPS", first_line(b"GET / HTTPS/1.1"), 400),
    ("a tab behind the version", first_line(b"GET / HTTP/1.1\t"), 400),
    ("a bare CR before the target", first_line(b"GET \r/ HTTP/1.1"), 400),
    ("a blank first", b" " + GET + b"\r\n", 400),
    ("two empty lines first", b"\r\n\r\n" + GET + b"\r\n", 400),
    ("the PROXY protocol", b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + GET + b"\r\n", 400),
    ("the PROXY protocol, version 2", b"\r\n\r\n\x00\r\nQUIT\n" + GET + b"\r\n", 400),
    ("an SSH hello", b"SSH-2.0-evil\r\n", 400),
    ("an answer for a question", b"HTTP/1.1 200 OK\r\nHost: gw\r\n\r\n", 400),
    # Host
    ("no Host", b"GET / HTTP/1.1\r\n\r\n", 400),
    ("two Hosts", GET + b"Host: evil\r\n\r\n", 400),
    ("two Hosts in HTTP/1.0", b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    ("an empty Host", b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
    ("a Host with user information", b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
    ("a Host with a path", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    ("a list of Hosts", b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
    ("an unclosed address as Host", b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400),
    ("an address without brackets as Host", b"GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", 400),
    ("a Host with two ports", b"GET / HTTP/1.1\r\nHost: gw:80:80\r\n\r\n", 400),
    ("a Host with a port of letters", b"GET / HTTP/1.1\r\nHost: gw:http\r\n\r\n", 400),
    ("a Host with a port of six digits", b"GET / HTTP/1.1\r\nHost: gw:100000\r\n\r\n", 400),
    ("a Host with a blank", b"GET / HTTP/1.1\r\nHost: gw evil\r\n\r\n", 400),
    ("a Host with a scheme", b"GET / HTTP/1.1\r\nHost: http://gw\r\n\r\n", 400),
    ("a Host with a byte above 127", b"GET / HTTP/1.1\r\nHost: g\xfc\r\n\r\n", 400),
    ("a Host with a backslash", b"GET / HTTP/1.1\r\nHost: gw\\evil\r\n\r\n", 400),
    # other headers of one value
    ("two Content-Types", post(b"Content-Type: text/plain", b"Content-Type: application/json"), 400),
    ("two Expects", post(b"Expect: 100-continue", b"Expect: 100-continue"), 400),
    ("two Content-Types that agree", post(b"Content-Type: a/b", b"content-type: a/b"), 400),
    # expectations
    ("an unknown expectation", post(b"Content-Length: 2", b"Expect: banana"), 417),
    ("an empty expectation", post(b"Expect:"), 417),
    ("an expectation of two", post(b"Content-Length: 2", b"Expect: 100-continue, 200-ok"), 417),
    ("an expectation with a parameter", post(b"Content-Length: 2", b"Expect: 100-continue;x=y"), 417),
    # sizes
    ("a request line of 9 KB, unfinished", b"GET /" + b"a" * 9000, 414),
    ("a request line of 9 KB", first_line(b"GET /" + b"a" * 9000 + b" HTTP/1.1"), 414),
    ("a method without end", b"A" * 9000, 414),
    ("a header line of 9 KB", post(b"X-A: " + b"a" * 9000), 431),
    ("65 fields", post(*[b"X-%d: 1" % i for i in range(64)]), 431),
    ("200 fields", post(*[b"X-%d: 1" % i for i in range(200)]), 431),
    ("33 KB of fields", post(*[b"X-%d: " % i + b"a" * 8000 for i in range(5)]), 431),
    ("33 KB of fields, unfinished", post(*[b"X-%d: " % i + b"a" * 8000 for i in range(5)])[:-4], 431),
    ("a header without end", POST + b"X-A: " + b"a" * 40_000, 431),
]
"""(name, bytes, status) of heads that no reader accepts, whole or not; nothing may be waited for either."""

MALFORMED_CHUNKS: list[tuple[str, bytes]] = [
    ("no size", b"\r\n"),
    ("a size that is no number", b"x\r\n"),
    ("a prefixed size", b"0x2\r\nab\r\n"),
    ("a signed size", b"+2\r\nab\r\n"),
    ("a negative size", b"-1\r\n"),
    ("a size with an underscore", b"1_0\r\n"),
    ("a space before the size", b" 2\r\nab\r\n"),
    ("a space behind the size", b"2 \r\nab\r\n"),
    ("a space before the extension", b"2 ;a=b\r\nab\r\n"),
    ("nine digits", b"000000002\r\nab\r\n"),
    ("a bare LF behind the size", b"2\nab\r\n"),
    ("a bare LF behind an extension", b"2;a\nab\r\n"),
    ("a CR inside an extension", b"2;a\rb\r\nab\r\n"),
    ("NUL inside an extension", b"2;a\x00\r\nab\r\n"),
    ("a size line of 257 bytes", b"2;" + b"a" * 253 + b"\r\nab\r\n"),
    ("a size line without end", b"2;" + b"a" * 300),
    ("more content than stated", b"2\r\nabc\r\n"),
    ("a bare LF behind the content", b"2\r\nab\n0\r\n\r\n"),
    ("a bare CR behind the content", b"2\r\nab\r0\r\n\r\n"),
    ("no CRLF behind the content", b"2\r\nab0\r\n\r\n"),
    ("two other bytes behind the content", b"2\r\nabxx0\r\n\r\n"),
    ("a CR and another byte behind the content", b"2\r\nab\rx0\r\n\r\n"),
    ("a bare LF at the end", b"0\r\n\n"),
    ("a trailer without a colon", b"0\r\ngarbage\r\n\r\n"),
    ("a trailer with a space before the colon", b"0\r\nX : y\r\n\r\n"),
    ("a folded trailer", b"0\r\nX: y\r\n z\r\n\r\n"),
    ("a trailer that ends with a bare LF", b"0\r\nX: y\n\r\n"),
    ("trailers of 9 KB", b"0\r\n" + b"X: yyyyyyy\r\n" * 800 + b"\r\n"),
    ("a trailer without end", b"0\r\nX: " + b"y" * 9000),
    ("an empty trailer name", b"0\r\n: x\r\n\r\n"),
    ("NUL in a trailer", b"0\r\nX: \x00\r\n\r\n"),
    ("a trailer that frames", b"0\r\nContent-Length: 9\r\n\r\n"),
    ("a trailer that frames otherwise", b"0\r\ntransfer-encoding: chunked\r\n\r\n"),
    ("a trailer that routes", b"0\r\nHost: evil\r\n\r\n"),
    ("a trailer that authorises", b"0\r\nX-A: 1\r\nAuthorization: Bearer evil\r\n\r\n"),
    ("a trailer that frames, underscored", b"0\r\nContent_Length: 9\r\n\r\n"),
    ("a size of seventeen digits", b"10000000000000002\r\nab\r\n0\r\n\r\n"),
    ("a wide digit", b"\xef\xbc\x92\r\nab\r\n0\r\n\r\n"),
    ("a tab behind the size", b"2\t\r\nab\r\n0\r\n\r\n"),
    ("a quoted size", b'"2"\r\nab\r\n0\r\n\r\n'),
    ("a size with a comma", b"2,2\r\nab\r\n0\r\n\r\n"),
    ("an empty line before the size", b"\r\n2\r\nab\r\n0\r\n\r\n"),
    ("less content than stated", b"5\r\nab\r\n0\r\n\r\n"),
    ("a request where a size should be", b"2\r\nab\r\nGET /evil HTTP/1.1\r\nHost: gw\r\n\r\n"),
    ("a CR CR LF behind the size", b"2\r\r\nab\r\n0\r\n\r\n"),
]
"""(name, bytes behind a head) of chunked bodies that are refused with 400."""


@dataclass(frozen=True)
class Seen:
    """A request as whoever serves it sees it; `headers` are those that a test looks at."""

    method: str
    target: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Honest:
    """Bytes that are one or more requests; `closes` says that the client ends the connection with the last one."""

    name: str
    raw: bytes
    seen: Sequence[Seen]
    closes: bool = False


def full_head() -> bytes:
    """A head that is as large as the limits allow in each way at once."""
    line = b"GET /" + b"a" * (8192 - len(b"GET / HTTP/1.1")) + b" HTTP/1.1\r\n"
    fields = b"Host: gw\r\n" + b"".join(b"X-%02d: 1\r\n" % i for i in range(60))
    long_ones = b"".join(b"Y-%d: " % i + b"b" * (8192 - 5) + b"\r\n" for i in range(2))
    left = 32768 - len(line + fields + long_ones) - len(b"Z: \r\n\r\n")
    return line + fields + long_ones + b"Z: " + b"c" * left + b"\r\n\r\n"


_POSTED = ("POST", "/v1/chat/completions")
_CHUNKED = post(b"Transfer-Encoding: chunked")

HONEST: list[Honest] = [
    Honest("the least", b"GET / HTTP/1.1\r\nHost: gw\r\n\r\n", [Seen("GET", "/")]),
    Honest("HTTP/1.0 without a Host", b"GET /a HTTP/1.0\r\n\r\n", [Seen("GET", "/a")], closes=True),
    Honest("HTTP/1.0 that stays", b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", [Seen("GET", "/a")]),
    Honest(
        "HTTP/1.0 with a body",
        b"POST /a HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nab",
        [Seen("POST", "/a", b"ab")],
        closes=True,
    ),
    Honest("a sized body", post(b"Content-Length: 5") + b"hello", [Seen(*_POSTED, b"hello")]),
    Honest("a body of no bytes", post(b"Content-Length: 0"), [Seen(*_POSTED)]),
    Honest("a length with zeros before it", post(b"Content-Length: 0005") + b"hello", [Seen(*_POSTED, b"hello")]),
    Honest("a length between tabs", post(b"Content-Length:\t5\t ") + b"hello", [Seen(*_POSTED, b"hello")]),
    Honest("a body that looks like a request", post(b"Content-Length: 6") + b"GET /\r", [Seen(*_POSTED, b"GET /\r")]),
    Honest(
        "names in any case",
        b"POST /a HTTP/1.1\r\nhOST: gw\r\ncONTENT-lENGTH: 2\r\nX-MiXeD: Yes\r\n\r\nab",
        [Seen("POST", "/a", b"ab", {"x-mixed": "Yes"})],
    ),
    Honest("chunks", _CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", [Seen(*_POSTED, b"hello")]),
    Honest(
        "a coding in capitals", post(b"Transfer-Encoding:  CHUNKED ") + b"1\r\na\r\n0\r\n\r\n", [Seen(*_POSTED, b"a")]
    ),
    Honest("no content in chunks", _CHUNKED + b"0\r\n\r\n", [Seen(*_POSTED)]),
    Honest(
        "chunks with extensions",
        _CHUNKED + b'5;a=b;c="d e"\r\nhello\r\n0;last\r\n\r\n',
        [Seen(*_POSTED, b"hello")],
    ),
    Honest(
        "sizes in both cases",
        _CHUNKED + b"00A\r\n0123456789\r\na\r\n0123456789\r\n0000\r\n\r\n",
        [Seen(*_POSTED, b"0123456789" * 2)],
    ),
    Honest("trailers", _CHUNKED + b"1\r\na\r\n0\r\nX-Sum: 1\r\nX-Empty:\r\n\r\n", [Seen(*_POSTED, b"a")]),
    Honest("a CRLF within chunks", _CHUNKED + b"4\r\n\r\n0\r\r\n0\r\n\r\n", [Seen(*_POSTED, b"\r\n0\r")]),
    Honest(
        "a body that is waited for",
        post(b"Content-Length: 2", b"Expect: 100-Continue") + b"ab",
        [Seen(*_POSTED, b"ab")],
    ),
    Honest("an expectation without a body", post(b"Expect: 100-continue"), [Seen(*_POSTED)]),
    Honest(
        "a pair", GET + b"\r\n" + post(b"Content-Length: 2") + b"ab", [Seen("GET", "/v1/models"), Seen(*_POSTED, b"ab")]
    ),
    Honest(
        "four in a row",
        (_CHUNKED + b"1\r\na\r\n0\r\n\r\n" + post(b"Content-Length: 1") + b"b") * 2,
        [Seen(*_POSTED, b"a"), Seen(*_POSTED, b"b")] * 2,
    ),
    Honest(
        "the last of a pair",
        GET + b"\r\n" + GET + b"Connection: close\r\n\r\n",
        [Seen("GET", "/v1/models")] * 2,
        closes=True,
    ),
    Honest(
        "close among other options", GET + b"Connection: x,, Close\r\n\r\n", [Seen("GET", "/v1/models")], closes=True
    ),
    Honest(
        "close in the second line",
        GET + b"Connection: keep-alive\r\nConnection: close\r\n\r\n",
        [Seen("GET", "/v1/models")],
        closes=True,
    ),
    Honest(
        "a Connection that names our headers",
        post(b"Connection: content-length, host, authorization", b"Content-Length: 2", b"Authorization: Bearer k")
        + b"ab",
        [Seen(*_POSTED, b"ab", {"authorization": "Bearer k", "host": "gw:8080"})],
    ),
    Honest(
        "an upgrade that is not taken",
        GET
        + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
        [Seen("GET", "/v1/models")],
    ),
    Honest(
        "a websocket that is not opened",
        GET + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        [Seen("GET", "/v1/models")],
    ),
    Honest(
        "an IPv6 Host",
        b"GET / HTTP/1.1\r\nHost: [2001:db8::1]:8080\r\n\r\n",
        [Seen("GET", "/", headers={"host": "[2001:db8::1]:8080"})],
    ),
    Honest("a Host with an empty port", b"GET / HTTP/1.1\r\nHost: gw:\r\n\r\n", [Seen("GET", "/")]),
    Honest(
        "bytes above 127 in a value",
        GET + b"X-A: \xe9\tb\xff \r\n\r\n",
        [Seen("GET", "/v1/models", headers={"x-a": "é\tbÿ"})],
    ),
    Honest(
        "empty values", GET + b"X-A:\r\nX-B: \t \r\n\r\n", [Seen("GET", "/v1/models", headers={"x-a": "", "x-b": ""})]
    ),
    Honest("a colon in a value", GET + b"X-A::b: c\r\n\r\n", [Seen("GET", "/v1/models", headers={"x-a": ":b: c"})]),
    Honest(
        "an underscore in another name",
        GET + b"X_Other_Name: 1\r\n\r\n",
        [Seen("GET", "/v1/models", headers={"x_other_name": "1"})],
    ),
    Honest(
        "a query of odd characters",
        b"GET /a?b=%00&c=d?e&f=%C3%A9{}|^` HTTP/1.1\r\nHost: gw\r\n\r\n",
        [Seen("GET", "/a?b=%00&c=d?e&f=%C3%A9{}|^`")],
    ),
    Honest("a path of two slashes", b"GET //a/../b HTTP/1.1\r\nHost: gw\r\n\r\n", [Seen("GET", "//a/../b")]),
    Honest(
        "another method",
        b"PROPFIND /a HTTP/1.1\r\nHost: gw\r\nContent-Length: 1\r\n\r\na",
        [Seen("PROPFIND", "/a", b"a")],
    ),
    Honest("HEAD", b"HEAD /a HTTP/1.1\r\nHost: gw\r\n\r\n", [Seen("HEAD", "/a")]),
    Honest("GET with a body", GET + b"Content-Length: 3\r\n\r\nabc", [Seen("GET", "/v1/models", b"abc")]),
    Honest("sixty-four fields", post(*[b"X-%d: 1" % i for i in range(63)]), [Seen(*_POSTED, headers={"x-62": "1"})]),
    Honest("a head at every limit", full_head(), [Seen("GET", "/" + "a" * (8192 - len("GET / HTTP/1.1")))]),
]

_CUT_HEADS = [b"GET", b"GET / HTTP/1.1\r", GET, GET + b"\r", post(b"Content-Length: 5")[:-1]]
CUT_HEADS: list[tuple[str, bytes]] = [(f"a head cut behind {raw[-9:]!r}", raw) for raw in _CUT_HEADS]
CUT_BODIES: list[tuple[str, bytes]] = [
    ("no body", post(b"Content-Length: 5")),
    ("a short body", post(b"Content-Length: 5") + b"hell"),
    ("a short body that was waited for", post(b"Content-Length: 5", b"Expect: 100-continue") + b"hell"),
    ("no chunk", _CHUNKED),
    ("half a size", _CHUNKED + b"5"),
    ("half a chunk", _CHUNKED + b"5\r\nhe"),
    ("no CRLF behind a chunk", _CHUNKED + b"5\r\nhello"),
    ("no last chunk", _CHUNKED + b"5\r\nhello\r\n"),
    ("half a last chunk", _CHUNKED + b"5\r\nhello\r\n0\r\n"),
    ("half a trailer", _CHUNKED + b"5\r\nhello\r\n0\r\nX: y\r\n"),
    ("half an end", _CHUNKED + b"5\r\nhello\r\n0\r\n\r"),
]
