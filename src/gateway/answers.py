"""The bytes of answers: status line, headers, framing, and the refusals that the front makes by itself.

Pure. Decides nothing but how an answer looks on the wire; a header with a control character is an error, never sent.
"""

import json
from http import HTTPStatus

from gateway.errors import Draining
from gateway.http_head import NO_CONTROL, HttpRefusal

Headers = bytes
"""Whole header lines, each with its end, as lines() makes them: none holds a control character."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
CLOSE = b"connection: close\r\n"
KEEP_ALIVE = b"connection: keep-alive\r\n"

TOO_MANY_CONNECTIONS = HttpRefusal(503, "overloaded", "Too many connections are open.")
TOO_MANY_REQUESTS = HttpRefusal(503, "overloaded", "Too many requests are in flight.")

DRAINING = HttpRefusal(503, "draining", "The gateway is shutting down.")
TOO_MUCH_IN_FLIGHT = HttpRefusal(503, "overloaded", "The bodies of the requests in flight take too much memory.")

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_WITHOUT_BODY = frozenset({204, 304})


def lines(*headers: str) -> Headers:
    """Header lines, `name: value`. Raises ValueError for a control character, or for what Latin-1 does not have."""
    fields = "\r\n".join([*headers, ""]).encode("latin-1")
    if len(fields.translate(None, NO_CONTROL)) != 2 * len(headers):
        raise ValueError("a response header holds a control character")
    return fields


JSON = lines("content-type: application/json", "cache-control: no-store")
"""Of every answer in JSON: a shared cache in front must not give it to another tenant."""

_RETRY_AFTER = lines("retry-after: 1")
"""What a client is told when there is no place for it: places change hands within a second or two."""


def has_body(status: int) -> bool:
    """Whether an answer of this status has a body, and a length."""
    return status not in _WITHOUT_BODY


def content_length(length: int) -> bytes:
    """The framing of an answer whose body has `length` bytes."""
    return b"content-length: %d\r\n" % length


def answer_head(status: int, headers: Headers, framing: bytes) -> bytes:
    """The head of an answer, blank line included.

    status   HTTP status, 200..599
    framing  whole header lines that say where the answer ends and whether the connection goes on
    """
    return b"%b%b%b\r\n" % (_STATUS_LINES[status], headers, framing)


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked answer; `data` is not empty."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def refusal_answer(refusal: HttpRefusal, stamp: Headers, *, with_body: bool = True, closes: bool = True) -> bytes:
    """The whole answer to a request that the front refuses.

    stamp   what is known of the request
    closes  announce that the connection does
    """
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    error = {"message": refusal.message, "type": kind, "param": None, "code": refusal.code}
    body = json.dumps({"error": error}).encode()
    headers = JSON + stamp
    if refusal.status == 503:
        headers += _RETRY_AFTER
    head = answer_head(refusal.status, headers, content_length(len(body)) + (CLOSE if closes else b""))
    return head + body if with_body else head


def refusal_for(error: BaseException) -> HttpRefusal:
    """What a client is told when the function that was to answer it raised."""
    if isinstance(error, HttpRefusal):
        return error
    if isinstance(error, Draining):
        return DRAINING
    return HttpRefusal(500, "internal_error", "The gateway failed to handle this request.")
