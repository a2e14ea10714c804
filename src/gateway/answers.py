"""The bytes of answers: status line, headers, framing, and what an error looks like.

Pure. Decides nothing but how an answer looks on the wire; a header with a control character is an error, never sent.
"""

import math
from http import HTTPStatus

from gateway.errors import Draining, GatewayError, InternalError, MethodNotAllowed, ShuttingDown
from gateway.http_head import NO_CONTROL
from gateway.redaction import without_secrets
from llmkit.openai import error_payload

Headers = bytes
"""Whole header lines, each with its end, as lines() makes them: none holds a control character."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
CLOSE = b"connection: close\r\n"
KEEP_ALIVE = b"connection: keep-alive\r\n"

LONG_WAIT_S = 120
"""Client libraries sleep through any Retry-After; beyond this they are told not to retry."""

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


def error_headers(error: GatewayError) -> Headers:
    """What the headers of an answer say of the error that it is: what else would do, and when to try again."""
    headers = []
    if error.status == 401:
        headers.append("www-authenticate: Bearer")
    if error.status == 415:
        headers.append("accept-encoding: identity")
    if isinstance(error, MethodNotAllowed):
        headers.append(f"allow: {', '.join(error.allowed)}")
    should_retry = error.should_retry
    if error.retry_after_s is not None:
        wait_s = max(math.ceil(error.retry_after_s), 1)
        headers.append(f"retry-after: {wait_s}")
        should_retry = False if wait_s > LONG_WAIT_S else should_retry
    if should_retry is not None:
        headers.append(f"x-should-retry: {str(should_retry).lower()}")
    return JSON + lines(*headers)


def error_body(error: GatewayError) -> bytes:
    """What a client is told: a key that it sent in the place of a model or a field is not repeated."""
    param = error.param and without_secrets(error.param)
    return error_payload(without_secrets(error.message), error.type, error.code, param)


def refusal_answer(error: GatewayError, stamp: Headers, *, with_body: bool = True, closes: bool = True) -> bytes:
    """The whole answer to a request that the front refuses.

    stamp   what is known of the request
    closes  announce that the connection does
    """
    body = error_body(error)
    framing = content_length(len(body)) + (CLOSE if closes else b"")
    head = answer_head(error.status, error_headers(error) + stamp, framing)
    return head + body if with_body else head


def told_of(error: BaseException, request_id: str | None) -> GatewayError:
    """What a client is told when the function that was to answer it raised."""
    if isinstance(error, GatewayError):
        return error
    return ShuttingDown() if isinstance(error, Draining) else InternalError(request_id)
