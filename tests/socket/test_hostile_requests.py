"""Hostile, cut and honest requests, sent to a listening front: what reaches a handler, and what a client is told.

Each goes out whole and in packets cut by a seeded die, the small ones also byte by byte. Behind each that is complete
stands one more request, which must be served after an honest one and never after a hostile one.
"""

import contextlib
import errno
import json
import random
import select
import socket
import unittest
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.answers import JSON
from gateway.clock import RealClock
from gateway.errors import ClientGone, HttpRefusal
from gateway.exchange import Exchange
from gateway.http_body import MAX_CHUNKS
from gateway.server import FrontLimits, FrontServer
from tests.support.raw_requests import (
    CUT_BODIES,
    CUT_HEADS,
    HONEST,
    HOSTILE_HEADS,
    MALFORMED_CHUNKS,
    Seen,
    post,
)

PATIENCE_S = 10.0  # only a failing test waits so long
SMALL_BYTES = 400
MAX_BODY_BYTES = 200_000
CODES = {
    400: "invalid_request",
    413: "request_too_large",
    414: "uri_too_long",
    417: "expectation_failed",
    431: "headers_too_large",
}
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: gw\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: gw\r\nConnection: close\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

TOO_LARGE: list[tuple[str, bytes]] = [
    ("a length beyond the limit", post(b"Content-Length: 200001")),
    ("a length beyond the limit that is asked about", post(b"Content-Length: 99999999999", b"Expect: 100-continue")),
    ("a chunk beyond the limit", post(b"Transfer-Encoding: chunked") + b"30d41\r\n"),
    ("a last chunk beyond the limit", post(b"Transfer-Encoding: chunked") + b"1\r\na\r\nffffffff\r\n"),
    ("too many chunks", post(b"Transfer-Encoding: chunked") + b"1\r\na\r\n" * (MAX_CHUNKS + 1)),
]


@dataclass(frozen=True)
class Answer:
    """One answer as a client reads it."""

    status: int
    headers: dict[str, str]
    body: bytes


class Recorder:
    """Serves every request and remembers it.

    early  answers without reading the body
    begun  how many requests reached it
    seen   those whose body was handed over
    """

    def __init__(self, early: bool) -> None:
        self.begun = 0
        self.seen: list[Seen] = []
        self._early = early

    def __call__(self, exchange: Exchange) -> None:
        self.begun += 1
        head = exchange.head
        if self._early:
            exchange.respond(401, b"", b"")
            return
        body = exchange.read_body()
        self.seen.append(Seen(head.method, head.target, body, dict(head.headers)))
        exchange.respond(200, JSON, b"{}")


def packets(raw: bytes, name: str) -> Iterator[list[bytes]]:
    """The ways in which `raw` is sent."""
    yield [raw]
    die = random.Random(name)
    cuts = sorted(die.randrange(len(raw) + 1) for _ in range(die.randint(1, 6)))
    yield [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    if len(raw) <= SMALL_BYTES:
        yield [raw[at : at + 1] for at in range(len(raw))]


def answers(raw: bytes, methods: Sequence[str]) -> list[Answer]:
    """The answers in `raw`, one per method, without `100 Continue`; anything else in it is a failure."""
    found = []
    raw = raw.replace(CONTINUE, b"")
    for method in methods:
        head, _, raw = raw.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        version, status, _ = line.split(" ", 2)
        if version != "HTTP/1.1":
            raise AssertionError(f"not an answer: {head!r}")
        headers = dict(field.split(": ", 1) for field in lines)
        if len(headers) != len(lines):
            raise AssertionError(f"a header came twice: {lines}")
        length = 0 if method == "HEAD" else int(headers["content-length"])
        found.append(Answer(int(status), headers, raw[:length]))
        raw = raw[length:]
    if raw:
        raise AssertionError(f"more than was asked for: {raw[:200]!r}")
    return found


class RawCase(unittest.TestCase):
    """A front whose handler records, and clients that speak bytes."""

    def setUp(self) -> None:
        self.errors: list[BaseException] = []
        self.recorder = Recorder(early=False)
        self.front = FrontServer(
            ("127.0.0.1", 0),
            lambda exchange: self.recorder(exchange),
            FrontLimits(max_body_bytes=MAX_BODY_BYTES),
            RealClock(),
            on_error=lambda error, request_id: self.errors.append(error),
        )
        self.addCleanup(self.front.close)
        self.front.start()

    def exchange(self, pieces: Sequence[bytes], *, half_close: bool = False, early: bool = False) -> bytes:
        """All that comes back until the front closes; the recorder is fresh, and answers early if it shall."""
        self.recorder = Recorder(early)
        with socket.create_connection(("127.0.0.1", self.front.server_port), PATIENCE_S) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(ConnectionError):  # it may close before the last byte was sent
                for piece in pieces:
                    client.sendall(piece)
            if half_close:
                client.shutdown(socket.SHUT_WR)
            with client.makefile("rb") as file:
                return file.read()

    def assert_refused(self, raw: bytes, status: int) -> None:
        """One answer in the form of every error, and the end of the connection."""
        (answer,) = answers(raw, ["GET"])
        self.assertEqual(answer.status, status)
        self.assertEqual(answer.headers["connection"], "close")
        self.assertEqual(answer.headers["content-type"], "application/json")
        error = json.loads(answer.body)["error"]
        self.assertEqual((error["code"], error["type"], error["param"]), (CODES[status], "invalid_request_error", None))
        self.assertNotIn("evil", error["message"])


class HostileRequestTest(RawCase):
    def test_a_hostile_head_reaches_no_handler(self) -> None:
        """Each is answered with its status and closed, and what stands behind it is not served."""
        self.assertGreaterEqual(len(HOSTILE_HEADS), 100)
        for name, raw, status in HOSTILE_HEADS:
            for pieces in packets(raw + SMUGGLED, name):
                with self.subTest(name, pieces=len(pieces)):
                    self.assert_refused(self.exchange(pieces), status)
                    self.assertEqual(self.recorder.begun, 0)
        self.assertEqual({type(error) for error in self.errors}, {HttpRefusal})

    def test_a_malformed_body_is_not_handed_over(self) -> None:
        """The handler gets no byte of it, and what stands behind it is not served."""
        for name, raw in MALFORMED_CHUNKS:
            for pieces in packets(post(b"Transfer-Encoding: chunked") + raw + SMUGGLED, name):
                with self.subTest(name, pieces=len(pieces)):
                    self.assert_refused(self.exchange(pieces), 400)
                    self.assertEqual((self.recorder.begun, self.recorder.seen), (1, []))

    def test_a_body_that_is_too_large_is_not_read(self) -> None:
        """Nor asked for: the refusal comes before `100 Continue`."""
        for name, raw in TOO_LARGE:
            for pieces in packets(raw + SMUGGLED, name):
                with self.subTest(name, pieces=len(pieces)):
                    got = self.exchange(pieces)
                    self.assertNotIn(CONTINUE, got)
                    self.assert_refused(got, 413)
                    self.assertEqual((self.recorder.begun, self.recorder.seen), (1, []))

    def test_what_follows_an_answer_that_came_early_is_not_served(self) -> None:
        """A handler that answers without the body ends the connection, however the body is framed."""
        for name, raw in (
            ("a body that is there", post(b"Content-Length: 36") + SMUGGLED),
            ("a body that is not there", post(b"Content-Length: 100") + SMUGGLED),
            ("chunks", post(b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + SMUGGLED),
            ("a body that is waited for", post(b"Content-Length: 36", b"Expect: 100-continue") + SMUGGLED),
        ):
            for pieces in packets(raw, name):
                with self.subTest(name, pieces=len(pieces)):
                    (answer,) = answers(self.exchange(pieces, early=True), ["POST"])
                    self.assertEqual((answer.status, answer.headers["connection"]), (401, "close"))
                    self.assertEqual(self.recorder.begun, 1)


class CutRequestTest(RawCase):
    def test_a_cut_head_is_no_request(self) -> None:
        """A client that leaves within a head is answered nothing."""
        for name, raw in CUT_HEADS:
            for pieces in packets(raw, name):
                with self.subTest(name, pieces=len(pieces)):
                    self.assertEqual(self.exchange(pieces, half_close=True), b"")
                    self.assertEqual(self.recorder.begun, 0)

    def test_a_cut_body_is_not_handed_over(self) -> None:
        """A client that leaves within a body is gone: the handler learns it, and gets no byte."""
        for name, raw in CUT_BODIES:
            for pieces in packets(raw, name):
                with self.subTest(name, pieces=len(pieces)):
                    got = self.exchange(pieces, half_close=True)
                    self.assertEqual(got.replace(CONTINUE, b""), b"")
                    self.assertEqual((self.recorder.begun, self.recorder.seen), (1, []))
        self.assertEqual({type(error) for error in self.errors}, {ClientGone})


class HonestRequestTest(RawCase):
    def test_an_honest_request_is_served_as_it_was_meant(self) -> None:
        """Method, target, headers and body, and then the request behind it."""
        self.assertGreaterEqual(len(HONEST), 20)
        for case in HONEST:
            last = [] if case.closes else [Seen("GET", "/last")]
            wanted = [*case.seen, *last]
            for pieces in packets(case.raw + (b"" if case.closes else LAST), case.name):
                with self.subTest(case.name, pieces=len(pieces)):
                    got = answers(self.exchange(pieces), [request.method for request in wanted])
                    self.assertEqual({answer.status for answer in got}, {200})
                    seen = [(request.method, request.target, request.body) for request in self.recorder.seen]
                    self.assertEqual(seen, [(request.method, request.target, request.body) for request in wanted])
                    for request, expected in zip(self.recorder.seen, wanted, strict=True):
                        self.assertLessEqual(expected.headers.items(), request.headers.items())
        self.assertEqual(self.errors, [])


class CrowdTest(unittest.TestCase):
    def test_clients_that_come_at_once_are_all_let_in(self) -> None:
        """Four hundred connects before the first accept: the kernel keeps them, and none has to come again."""
        front = FrontServer(("127.0.0.1", 0), Recorder(early=False), FrontLimits(), RealClock())
        self.addCleanup(front.close)
        poller = select.poll()
        with contextlib.ExitStack() as clients:
            for _ in range(400):
                client = clients.enter_context(socket.socket())
                client.setblocking(False)
                self.assertEqual(client.connect_ex(("127.0.0.1", front.server_port)), errno.EINPROGRESS)
                poller.register(client, select.POLLOUT)
            let_in = 0
            while ready := poller.poll(0 if let_in == 400 else PATIENCE_S * 1000):
                let_in += len(ready)
                for descriptor, _ in ready:
                    poller.unregister(descriptor)
            self.assertEqual(let_in, 400)


if __name__ == "__main__":
    unittest.main()
