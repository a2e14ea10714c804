"""Reads the head of an HTTP/1 request, strictly: bytes in, a RequestHead or an HttpRefusal out.

Decides which heads are served and how the body behind them is framed. Knows no sockets, no clock, no routes and no
credentials. Rules:

- What two readers could understand differently is refused, never repaired: bare CR or LF, NUL and other control
  characters, folded lines, whitespace before a colon, a repeated header that has one value, two framings.
- A head is served whole or not at all. A stray control character, a malformed first line, and more bytes than the
  limits allow are refused before its end has come.
- Stricter than RFC 9112 on purpose: no absolute-form or `*` target, no CONNECT, no empty line before the request line,
  methods in upper case, no header whose name differs from a framing or credential header only by an underscore, and no
  trailer that would be one of them.
- A message never quotes what was sent.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from gateway.errors import HttpRefusal

_NAME = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_VALUE = r"[\t\x20-\x7e\x80-\xff]*+"  # visible, space, tab, obs-text: no control character
_REQUEST_LINE = re.compile(r"(?!CONNECT )([A-Z]{1,16}) (/[\x21\x22\x24-\x7e]*+) HTTP/1\.([01])\r\n")
_FIELD_LINE = re.compile(rf"{_NAME}:{_VALUE}\r\n")
_NAMES = re.compile(_NAME)
_BLANKS = " \t"
_NEVER_VALID = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?!\n|\Z)")
_HOST = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+;=%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_LENGTH_DIGITS = 12
_REMEMBERED_BYTES = 2048  # of a head that may come again; those of client libraries have about 700

_SINGLE_VALUED = frozenset({"host", "content-length", "transfer-encoding", "content-type", "expect"})
NO_CONTROL = bytes({0x09, *range(0x20, 0x7F), *range(0x80, 0x100)})
"""Every byte that a header's value may hold, as _VALUE has it: for translate(), which is faster than a search."""

CREDENTIALS = ("authorization", "x-api-key", "api-key")
"""Single-valued too, but whoever repeats one is told so as for any other wrong key."""

_UNDERSCORED = frozenset(name.replace("-", "_") for name in (*_SINGLE_VALUED, *CREDENTIALS) if "-" in name)
_ONLY_IN_HEADS = _SINGLE_VALUED.union(CREDENTIALS, _UNDERSCORED)
_NONE: Final[frozenset[str]] = frozenset()

_UNFRAMED = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
"""Methods whose requests may go without a framing header; behind any other, a body that nobody framed may follow."""


class HeadLimits(Struct, frozen=True):
    """Bounds of a request head, in bytes without line ends, in header fields, and in bytes over all."""

    line_bytes: int = 8192
    fields: int = 64
    head_bytes: int = 32768


class NoBody(Struct, frozen=True):
    """No framing header: the request ends with its head."""


class Sized(Struct, frozen=True):
    """A body of `length` bytes, 0 or more; the number is the client's and has no bound yet."""

    length: int


class Chunked(Struct, frozen=True):
    """A body in chunks; its length is known at its end."""


Body = NoBody | Sized | Chunked
_NO_BODY: Final = NoBody()
_CHUNKED: Final = Chunked()


class RequestHead(Struct, frozen=True):
    """One accepted request head.

    target            as sent, beginning with "/"; `path` and `query` are its parts before and after the first "?"
    raw               the whole head as sent
    first_values      the first value of each header, by lower-case name, without outer blanks
    repeated          the lower-case names of the headers that have more than one line
    keep_alive        the client allows another request on this connection
    expects_continue  the client waits for `100 Continue` before it sends the body
    takes_chunks      the client speaks HTTP/1.1: an answer can come in chunks
    is_whole          nothing of the request follows, without a doubt
    memo              for readers: what they made of these headers. The next head of the connection brings it along, if
                      it is the same but for the length of its body
    """

    method: str
    target: str
    path: str
    query: str
    version: tuple[int, int]
    raw: bytes
    first_values: Mapping[str, str]
    repeated: frozenset[str]
    keep_alive: bool
    expects_continue: bool
    body: Body
    takes_chunks: bool
    is_whole: bool
    memo: dict[str, Any] = {}

    def __repr__(self) -> str:
        """Without the headers and the query: they hold credentials."""
        return f"RequestHead({self.method} {self.path})"

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Every (lower-case name, value without outer blanks), in the order sent."""
        return tuple(map(_split, self.raw.decode("latin-1").split("\r\n")[1:-2]))

    def get(self, name: str) -> str | None:
        """The first value of a header, by its lower-case name."""
        return self.first_values.get(name)

    def get_all(self, name: str) -> tuple[str, ...]:
        """Every value of a header, by its lower-case name, in the order sent."""
        if name in self.repeated:
            return tuple(value for key, value in self.headers if key == name)
        return (self.first_values[name],) if name in self.first_values else ()


def find_head_end(buffer: bytes | bytearray, limits: HeadLimits, start: int = 0) -> int | None:
    """Where the head at the beginning of `buffer` ends: the index after its blank line, or None if more must come.

    start  how many bytes an earlier call has already seen, so that a slow client costs no rescans.
    Raises HttpRefusal as soon as the bytes so far exceed a limit, hold a stray control character, or begin with a line
    that is no request line.
    """
    blank_line = buffer.find(b"\r\n\r\n", start - 3 if start > 3 else 0, limits.head_bytes)
    if blank_line >= 0:
        return blank_line + 4
    _check_unfinished(buffer, limits, start)
    return None


def parse_head(raw: bytes, limits: HeadLimits) -> RequestHead:
    """Read one whole head, its blank line included, as find_head_end delimits it.

    Raises HttpRefusal: 400 malformed, ambiguous or of another HTTP version; 414 request line and 431 header section
    beyond `limits`; 417 an expectation other than 100-continue.
    """
    text = raw.decode("latin-1")
    line = _match_request_line(text, limits)
    method, target, minor = line[1], line[2], int(line[3])
    path, _, query = target.partition("?")
    lines = _field_lines(raw, text, line.end(), limits)
    fields, repeated = _fields(lines)
    _check_host(fields.get("host"), minor)
    keep_alive = _keep_alive(lines, minor) if "connection" in fields else minor == 1
    expects_continue = "expect" in fields and _expects_continue(fields["expect"], minor)
    body = _body(fields.get("content-length"), fields.get("transfer-encoding"), minor)
    is_whole = not body.length if isinstance(body, Sized) else isinstance(body, NoBody) and method in _UNFRAMED
    return RequestHead(
        method,
        target,
        path,
        query,
        (1, minor),
        raw,
        fields,
        repeated,
        keep_alive,
        expects_continue,
        body,
        takes_chunks=minor == 1,
        is_whole=is_whole,
    )


class Heads:
    """Reads the heads of one connection. One that differs from the last in the length of its body alone is known again:
    client libraries send the same head with every request but for that. Not for two threads at once.
    """

    __slots__ = ("_before", "_behind", "_last")

    def __init__(self) -> None:
        self._last: RequestHead | None = None
        self._before = self._behind = b""  # what stands around the digits of the last head's Content-Length

    def take(self, buffer: bytes, limits: HeadLimits, start: int = 0) -> RequestHead | None:
        """The head at the beginning of `buffer`, whose `raw` says how long it is; None if more must come.

        The rules, `start` and what is raised are those of find_head_end and parse_head.
        """
        last = self._last
        if last is not None and buffer.startswith(self._before):
            if buffer.startswith(last.raw):
                return last
            if (head := self._with_another_length(last, buffer, limits)) is not None:
                return head
        end = find_head_end(buffer, limits, start)
        if end is None:
            return None
        head = parse_head(buffer[:end], limits)
        self._remember(head)
        return head

    def _with_another_length(self, last: RequestHead, buffer: bytes, limits: HeadLimits) -> RequestHead | None:
        """The last head with another number, if that is what the buffer begins with."""
        start = len(self._before)
        behind = buffer.find(self._behind[:1], start, start + _LENGTH_DIGITS + 1)
        digits, end = buffer[start:behind], behind + len(self._behind)
        if not digits.isdigit() or not buffer.startswith(self._behind, behind) or end > limits.line_bytes:
            return None
        fields = {**last.first_values, "content-length": digits.decode()}
        length = int(digits)
        self._last = replace(last, raw=buffer[:end], first_values=fields, body=Sized(length), is_whole=not length)
        return self._last

    def _remember(self, head: RequestHead) -> None:
        raw = head.raw
        if not isinstance(head.body, Sized) or len(raw) > _REMEMBERED_BYTES:
            self._last = None
            return
        start = raw.lower().index(b"\r\ncontent-length:") + len(b"\r\ncontent-length:")
        start = raw.index(head.first_values["content-length"].encode(), start)
        self._last, self._before = head, raw[:start]
        self._behind = raw[start + len(head.first_values["content-length"]) :]


def is_trailer_line(line: bytes) -> bool:
    """Whether `line` is one well-formed trailer field with its CRLF, and none that frames, routes or authorises.

    A reader that adds trailers to the headers would take such a one for the request's own.
    """
    text = line.decode("latin-1")
    return _FIELD_LINE.fullmatch(text) is not None and _split(text)[0] not in _ONLY_IN_HEADS


def _bad(message: str) -> HttpRefusal:
    return HttpRefusal(400, "invalid_request", message)


def _bad_line() -> HttpRefusal:
    return _bad("A header line is not of the form NAME: VALUE, or holds a control character.")


def _uri_too_long() -> HttpRefusal:
    return HttpRefusal(414, "uri_too_long", "The request line is too long.")


def _too_large(message: str) -> HttpRefusal:
    return HttpRefusal(431, "headers_too_large", message)


def _check_unfinished(buffer: bytes | bytearray, limits: HeadLimits, start: int) -> None:
    """Refuse a head without its end whose bytes so far are too many or can no longer become valid."""
    if _NEVER_VALID.search(buffer, max(start - 1, 0)):
        raise _bad("The request head holds a control character, or a CR or LF that is not part of a CRLF.")
    line_end = buffer.find(b"\r\n", 0, limits.line_bytes + 2)
    if line_end < 0 and len(buffer) >= limits.line_bytes + 2:
        raise _uri_too_long()
    if line_end >= max(start - 1, 0):
        _match_request_line(buffer[: line_end + 2].decode("latin-1"), limits)
    if len(buffer) >= limits.head_bytes:
        raise _too_large("The request head is too large.")


def _match_request_line(text: str, limits: HeadLimits) -> re.Match[str]:
    match = _REQUEST_LINE.match(text)
    if match is not None and match.end() <= limits.line_bytes + 2:
        return match
    if len(text.partition("\r\n")[0]) > limits.line_bytes:
        raise _uri_too_long()
    raise _bad("The first line must be METHOD /target HTTP/1.1, or HTTP/1.0.")


def _field_lines(raw: bytes, text: str, start: int, limits: HeadLimits) -> list[str]:
    """The lines between `start` and the blank line that ends `text`, which is `raw`; none holds a control character."""
    lines = text[start:].split("\r\n")
    if len(raw[start:].translate(None, NO_CONTROL)) != 2 * (len(lines) - 1) or lines[-2:] != ["", ""]:
        raise _bad_line()
    del lines[-2:]
    if len(lines) > limits.fields:
        raise _too_large("The request has too many header fields.")
    if len(text) > limits.line_bytes and max(map(len, lines), default=0) > limits.line_bytes:
        raise _too_large("A header line is too long.")
    return lines


def _fields(lines: list[str]) -> tuple[dict[str, str], frozenset[str]]:
    """The first value of each name, and the names that are repeated. Refuses what is not of the form NAME: VALUE, a
    second value where there may be one, and names that hide another.
    """
    try:
        fields = {name.lower(): value.strip(_BLANKS) for name, value in [line.split(":", 1) for line in lines]}
    except ValueError:
        raise _bad_line() from None
    names = "".join(fields)
    if (names and not _NAMES.fullmatch(names)) or "" in fields:
        raise _bad_line()
    if "_" in names and not _UNDERSCORED.isdisjoint(fields):
        raise _bad("A header name holds an underscore where it must hold a hyphen.")
    return (fields, _NONE) if len(fields) == len(lines) else _first_values(lines)


def _split(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.lower(), value.strip(_BLANKS)


def _first_values(lines: list[str]) -> tuple[dict[str, str], frozenset[str]]:
    """As _fields, where some names are repeated."""
    first: dict[str, str] = {}
    repeated: set[str] = set()
    for name, value in map(_split, lines):
        if name not in first:
            first[name] = value
        elif name in _SINGLE_VALUED:
            raise _bad(f"The header {name} may stand only once.")
        else:
            repeated.add(name)
    return first, frozenset(repeated)


def _check_host(host: str | None, minor: int) -> None:
    if host is None:
        if minor == 1:
            raise _bad("HTTP/1.1 needs a Host header.")
    elif not _HOST.fullmatch(host):
        raise _bad("The Host header is not a host name with an optional port.")


def _keep_alive(lines: list[str], minor: int) -> bool:
    values = [value for name, value in map(_split, lines) if name == "connection"]
    options = {option.strip(_BLANKS).lower() for option in ",".join(values).split(",")}
    return "close" not in options and (minor == 1 or "keep-alive" in options)


def _expects_continue(expect: str, minor: int) -> bool:
    """Whether to send `100 Continue`; HTTP/1.0 has no such answer, so there the header has no effect."""
    if expect.lower() != "100-continue":
        raise HttpRefusal(417, "expectation_failed", "The only supported expectation is 100-continue.")
    return minor == 1


def _body(length: str | None, coding: str | None, minor: int) -> Body:
    if coding is not None:
        if length is not None:
            raise _bad("A request must not have both Content-Length and Transfer-Encoding.")
        if minor == 0 or coding.lower() != "chunked":
            raise _bad("The only supported Transfer-Encoding is chunked, with HTTP/1.1.")
        return _CHUNKED
    if length is None:
        return _NO_BODY
    if not (length.isascii() and length.isdecimal() and len(length) <= _LENGTH_DIGITS):
        raise _bad("Content-Length must be 1 to 12 decimal digits.")
    return Sized(int(length))
