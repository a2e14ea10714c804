"""The front over real loopback sockets: honest, slow, rude and vanishing clients, and a process that ends."""

import contextlib
import errno
import io
import json
import select
import socket
import struct
import threading
import unittest
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

from gateway.answers import lines
from gateway.clock import RealClock
from gateway.errors import ClientGone, Draining, HttpRefusal, Overloaded
from gateway.exchange import Exchange
from gateway.places import PlaceLimits
from gateway.server import FrontLimits, FrontServer
from llmkit.types import Cancel

PATIENCE_S = 30.0  # only a failing test waits so long
GET = b"GET /hello HTTP/1.1\r\nHost: gw\r\n\r\n"
TEXT = lines("content-type: text/plain")

Handle = Callable[[Exchange], None]


def post(body: bytes, *lines: bytes) -> bytes:
    """A POST of `body`, with more field lines."""
    head = [b"POST /hello HTTP/1.1", b"Host: gw", b"Content-Length: %d" % len(body), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def echo(exchange: Exchange) -> None:
    """Answer with what was asked."""
    exchange.respond(200, TEXT, exchange.head.path.encode() + b" " + exchange.read_body())


@dataclass(frozen=True)
class Answer:
    """One whole answer as a client reads it."""

    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """A client that says and reads exactly what a test wants."""

    def __init__(self, server: FrontServer) -> None:
        self.sock = socket.create_connection(("127.0.0.1", server.server_port), PATIENCE_S)
        self._file = self.sock.makefile("rb")

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self._file.close()
        self.sock.close()

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next answer."""
        version, status, _ = self._file.readline().split(b" ", 2)
        if version != b"HTTP/1.1":
            raise AssertionError(f"not the beginning of an answer: {version!r}")
        headers = {}
        while (line := self._file.readline()) != b"\r\n":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name] = value.strip()
        return int(status), headers

    def chunk(self) -> bytes | None:
        """The next chunk; None at the last one."""
        data = self._file.read(int(self._file.readline(), 16))
        self._file.readline()
        return data or None

    def answer(self, method: str = "GET") -> Answer:
        """The next whole answer."""
        status, headers = self.head()
        if method == "HEAD":
            return Answer(status, headers, b"")
        if "content-length" in headers:
            return Answer(status, headers, self._file.read(int(headers["content-length"])))
        if "transfer-encoding" in headers:
            return Answer(status, headers, b"".join(iter(self.chunk, None)))
        return Answer(status, headers, b"" if status in (204, 304) else self._file.read())

    def rest(self) -> bytes:
        """Everything until the server closes; ConnectionResetError if it resets."""
        return self._file.read()


class RecordingSocket(socket.socket):
    """A socket that remembers its writes."""

    writes: list[bytes]

    def send(self, data: Any, flags: int = 0) -> int:
        self.writes.append(bytes(data))
        return super().send(data, flags)


class ShortSocket(socket.socket):
    """A socket that takes one byte less than it is given."""

    def send(self, data: Any, flags: int = 0) -> int:
        return super().send(data[:-1], flags)


class RecordingServer(FrontServer):
    """A server whose writes can be counted."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.writes: list[bytes] = []
        super().__init__(*args, **options)

    def get_request(self) -> tuple[socket.socket, Any]:
        accepted, address = super().get_request()
        recording = RecordingSocket(fileno=accepted.detach())
        recording.writes = self.writes
        return recording, address


class ShortServer(FrontServer):
    """A server whose writes are taken in part, as when a stalled client's time is over."""

    def get_request(self) -> tuple[socket.socket, Any]:
        accepted, address = super().get_request()
        return ShortSocket(fileno=accepted.detach()), address


class FrontCase(unittest.TestCase):
    """Starts servers and clients, and ends them."""

    def setUp(self) -> None:
        self.errors: list[BaseException] = []
        self.told = threading.Semaphore(0)

    def serve(
        self, handle: Handle, limits: FrontLimits | None = None, kind: type[FrontServer] = FrontServer, **options: Any
    ) -> FrontServer:
        server = kind(
            ("127.0.0.1", 0), handle, limits or FrontLimits(), RealClock(), on_error=self._on_error, **options
        )
        self.addCleanup(server.close)
        server.start()
        return server

    def connect(self, server: FrontServer) -> Client:
        client = Client(server)
        self.addCleanup(client.close)
        return client

    def _on_error(self, error: BaseException, request_id: str | None) -> None:
        self.errors.append(error)
        self.told.release()

    def next_error(self) -> BaseException:
        """What the server reports next."""
        self.assertTrue(self.told.acquire(timeout=PATIENCE_S), "the server reported nothing")
        return self.errors.pop(0)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what another thread is about to do."""
        pause = threading.Event()
        for _ in range(round(PATIENCE_S * 1000)):
            if condition():
                return
            pause.wait(0.001)
        raise AssertionError("it did not happen")

    def assert_refused(self, answer: Answer, status: int, code: str, *, closes: bool = True) -> None:
        """A JSON error that also announces the close, if the connection closes."""
        self.assertEqual(answer.status, status)
        self.assertEqual(json.loads(answer.body)["error"]["code"], code)
        self.assertEqual(answer.headers["content-type"], "application/json")
        self.assertEqual(answer.headers.get("connection"), "close" if closes else None)


class RequestTest(FrontCase):
    def test_a_connection_serves_one_request_after_the_other(self) -> None:
        """Keep-alive, with and without bodies, and no close announced."""
        client = self.connect(server := self.serve(echo))
        for body in (b"", b"one", b"x" * 300_000, b"two"):
            client.send(post(body))
            answer = client.answer()
            self.assertEqual((answer.status, answer.body), (200, b"/hello " + body))
            self.assertNotIn("connection", answer.headers)
            self.assertNotIn("server", answer.headers)
        self.assertEqual(server.connections, 1)

    def test_pipelined_requests_are_answered_in_order(self) -> None:
        """Bytes that have arrived are served before the client is waited for."""
        client = self.connect(self.serve(echo))
        chunked = b"POST /c HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        client.send(GET + post(b"one") + chunked + post(b"two") + GET)
        bodies = [client.answer().body for _ in range(5)]
        self.assertEqual(bodies, [b"/hello ", b"/hello one", b"/c abc", b"/hello two", b"/hello "])

    def test_a_request_may_come_byte_by_byte(self) -> None:
        """Head and chunked body, in packets of one byte."""
        client = self.connect(self.serve(echo))
        chunked = b"POST /c HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nA: b\r\n\r\n"
        for raw in (chunked, post(b"12345")):
            for byte in raw:
                client.send(bytes([byte]))
        self.assertEqual(client.answer().body, b"/c abc")
        self.assertEqual(client.answer().body, b"/hello 12345")

    def test_the_body_can_be_read_again(self) -> None:
        """Every call gives the same bytes, and a request without one gives none."""

        def twice(exchange: Exchange) -> None:
            exchange.respond(200, TEXT, exchange.read_body() + exchange.read_body())

        client = self.connect(self.serve(twice))
        client.send(post(b"ab") + GET)
        self.assertEqual([client.answer().body, client.answer().body], [b"abab", b""])

    def test_a_cut_head_is_never_handed_on(self) -> None:
        """Half a head and a FIN: the connection closes without an answer."""
        called: list[Exchange] = []
        server = self.serve(called.append)
        for raw in (b"G", GET[:-1], GET[:-2], GET[:-3], post(b"")[:40], b"GET /hello HTTP/1.1\r\n"):
            client = self.connect(server)
            client.send(raw)
            client.half_close()
            self.assertEqual(client.rest(), b"")
        self.assertEqual(called, [])

    def test_a_refused_head_is_answered_and_the_connection_closes(self) -> None:
        """One JSON error, and what stood behind it is not read as a request."""
        server = self.serve(echo)
        for raw, status, code in (
            (post(b"", b"Transfer-Encoding: chunked") + GET, 400, "invalid_request"),
            (post(b"ab", b"Expect: banana") + GET, 417, "expectation_failed"),
            (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n", 414, "uri_too_long"),
            (post(b"", *[b"X: y"] * 100), 431, "headers_too_large"),
        ):
            client = self.connect(server)
            client.send(raw)
            self.assert_refused(client.answer(), status, code)
            self.assertEqual(client.rest(), b"")
            self.assertIsInstance(self.next_error(), HttpRefusal)

    @mock.patch("gateway.lobby.LEAVE_S", 1000)
    def test_a_dripping_head_ends_at_its_deadline(self) -> None:
        """Each byte in time does not help: the deadline counts from the first."""
        called: list[Exchange] = []
        client = self.connect(self.serve(called.append, FrontLimits(header_timeout_s=0.3)))
        client.send(b"GET /hello HTTP/1.1\r\nX: ")
        while not select.select([client.sock], [], [], 0.02)[0]:
            client.send(b"a")
        self.assert_refused(client.answer(), 408, "request_timeout")
        self.assertEqual(called, [])

    def test_an_idle_connection_is_closed(self) -> None:
        """Before its first request and after an answer, without a word."""
        self.assertEqual(self.connect(self.serve(echo, FrontLimits(idle_timeout_s=0.1))).rest(), b"")
        server = self.serve(echo)
        with mock.patch.object(server._lobby._idle, "patience_s", 0.1):
            client = self.connect(server)
            client.send(GET)
            client.answer()
            self.assertEqual(client.rest(), b"")


class BodyTest(FrontCase):
    def test_a_body_over_the_limit_is_refused_before_it_is_asked_for(self) -> None:
        """Ten GiB and Expect: 413 at once, and no 100 Continue."""
        client = self.connect(self.serve(echo))
        client.send(b"POST / HTTP/1.1\r\nHost: gw\r\nContent-Length: 10737418240\r\nExpect: 100-continue\r\n\r\n")
        self.assert_refused(client.answer(), 413, "request_too_large")
        self.assertEqual(client.rest(), b"")

    @mock.patch("gateway.lobby.LEAVE_S", 1000)
    def test_a_client_that_sends_before_it_reads_still_gets_the_refusal(self) -> None:
        """What it still sends is read and thrown away: a reset would destroy the answer on its way."""
        client = self.connect(self.serve(echo, FrontLimits(max_body_bytes=1000)))
        client.send(b"POST / HTTP/1.1\r\nHost: gw\r\nContent-Length: 8000000\r\n\r\n" + b"x" * 8_000_000)
        self.assert_refused(client.answer(), 413, "request_too_large")

    def test_a_chunked_body_over_the_limit_is_refused(self) -> None:
        """As soon as a chunk states that it would exceed it."""
        client = self.connect(self.serve(echo, FrontLimits(max_body_bytes=10)))
        client.send(b"POST / HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n5\r\n")
        self.assert_refused(client.answer(), 413, "request_too_large")

    def test_a_malformed_chunk_is_refused(self) -> None:
        """400, and the connection closes."""
        client = self.connect(self.serve(echo))
        client.send(b"POST / HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n+6\r\nabcdef\r\n" + GET)
        self.assert_refused(client.answer(), 400, "invalid_request")
        self.assertEqual(client.rest(), b"")

    def test_a_client_that_asks_is_told_to_go_on_when_the_body_is_wanted(self) -> None:
        """100 Continue comes before the answer, and the connection stays open."""
        client = self.connect(self.serve(echo))
        for _ in range(2):
            client.send(post(b"abc", b"Expect: 100-continue")[:-3])
            self.assertEqual(client.head(), (100, {}))
            client.send(b"abc")
            self.assertEqual(client.answer().body, b"/hello abc")

    def test_a_client_that_does_not_wait_is_not_told_to_go_on(self) -> None:
        """Its body is there already."""
        client = self.connect(self.serve(echo))
        client.send(post(b"abc", b"Expect: 100-continue"))
        self.assertEqual(client.answer().body, b"/hello abc")

    def test_an_early_answer_closes_the_connection(self) -> None:
        """A body that was never read is not taken for a request, and is not asked for."""
        paths = []

        def refuse(exchange: Exchange) -> None:
            paths.append(exchange.head.path)
            exchange.respond(401, TEXT, b"no")

        server = self.serve(refuse)
        for raw in (post(GET), post(GET, b"Expect: 100-continue")[: -len(GET)]):
            client = self.connect(server)
            client.send(raw)
            answer = client.answer()
            self.assertEqual((answer.status, answer.headers["connection"], answer.body), (401, "close", b"no"))
            self.assertEqual(client.rest(), b"")
        self.assertEqual(paths, ["/hello", "/hello"])

    @mock.patch("gateway.lobby.LEAVE_S", 1000)
    def test_an_early_answer_reaches_a_client_that_is_still_sending(self) -> None:
        """No reset overtakes it: what the client still sends is read for a moment."""
        reached, more = threading.Event(), threading.Event()

        def refuse(exchange: Exchange) -> None:
            reached.set()
            more.wait(PATIENCE_S)
            exchange.respond(401, TEXT, b"no" * 1000)

        client = self.connect(self.serve(refuse))
        client.send(post(b"x" * 100_000)[:100])
        self.assertTrue(reached.wait(PATIENCE_S))
        client.send(b"x" * 40_000)
        more.set()
        self.assertTrue(select.select([client.sock], [], [], PATIENCE_S)[0])
        client.send(b"x" * 10_000)
        self.assertEqual(client.answer().body, b"no" * 1000)
        self.assertEqual(client.rest(), b"")

    def test_a_cut_body_is_never_handed_over(self) -> None:
        """The function handed in sees ClientGone, sized or chunked, closed or reset."""
        server = self.serve(echo)
        chunked = b"POST / HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabc"
        for raw in (post(b"abcdef")[:-1], chunked):
            client = self.connect(server)
            client.send(raw)
            client.half_close()
            self.assertEqual(client.rest(), b"")
            self.assertIsInstance(self.next_error(), ClientGone)

    @mock.patch("gateway.lobby.LEAVE_S", 1000)
    def test_a_slow_body_ends_at_its_deadline(self) -> None:
        """408, sized or chunked, however regularly the bytes come."""
        server = self.serve(echo, FrontLimits(body_timeout_s=0.2))
        chunked = b"POST / HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\nabc"
        for raw in (post(b"x" * 5000)[:-4000], chunked):
            client = self.connect(server)
            client.send(raw)
            while not select.select([client.sock], [], [], 0.02)[0]:
                client.send(b"x")
            self.assert_refused(client.answer(), 408, "request_timeout")


class AnswerTest(FrontCase):
    def test_an_answer_is_one_write(self) -> None:
        """Head and body together; a stream's head with its first events, its last event with its end.

        Several events that leave together are a chunk each.
        """

        def handle(exchange: Exchange) -> None:
            if exchange.head.path == "/whole":
                exchange.respond(200, TEXT, b"abc")
                return
            exchange.start_stream(200, TEXT)
            exchange.send(b"one")
            exchange.send(b"two", b"", b"three")
            exchange.finish(b"end")

        server = self.serve(handle, kind=RecordingServer)
        assert isinstance(server, RecordingServer)
        client = self.connect(server)
        client.send(GET.replace(b"hello", b"whole") + GET)
        self.assertEqual(client.answer().body, b"abc")
        self.assertEqual(client.answer().body, b"onetwothreeend")
        whole, first, second, last = server.writes
        self.assertTrue(whole.endswith(b"\r\n\r\nabc"))
        self.assertTrue(first.startswith(b"HTTP/1.1 200 OK\r\n") and first.endswith(b"\r\n\r\n3\r\none\r\n"))
        self.assertEqual((second, last), (b"3\r\ntwo\r\n5\r\nthree\r\n", b"3\r\nend\r\n0\r\n\r\n"))

    def test_a_stream_is_chunked_and_the_connection_goes_on(self) -> None:
        """Empty pieces do not end it; a stream without pieces is an empty answer."""

        def handle(exchange: Exchange) -> None:
            pieces = exchange.read_body().split(b",")
            exchange.start_stream(200, TEXT)
            for piece in pieces:
                exchange.send(piece)
            exchange.finish()

        client = self.connect(self.serve(handle))
        client.send(post(b"a,,b") + post(b"") + post(b"c"))
        self.assertEqual([client.answer().body for _ in range(3)], [b"ab", b"", b"c"])

    def test_the_first_piece_is_not_held_back(self) -> None:
        """It reaches the client while the stream goes on."""
        seen = threading.Event()

        def handle(exchange: Exchange) -> None:
            exchange.start_stream(200, TEXT)
            exchange.send(b"first")
            seen.wait(PATIENCE_S)
            exchange.finish()

        client = self.connect(self.serve(handle))
        client.send(GET)
        self.assertEqual(client.head()[0], 200)
        self.assertEqual(client.chunk(), b"first")
        seen.set()
        self.assertIsNone(client.chunk())

    def test_head_gets_the_headers_without_the_body(self) -> None:
        """For answers, refusals and streams; the next request is served."""

        def handle(exchange: Exchange) -> None:
            if exchange.head.path == "/stream":
                exchange.start_stream(200, TEXT)
                exchange.send(b"abc")
                exchange.finish(b"d")
            elif exchange.head.path == "/refused":
                raise HttpRefusal(400, "invalid_request", "no")
            else:
                exchange.respond(200, TEXT, b"abc")

        client = self.connect(self.serve(handle))
        for path in (b"/x", b"/stream", b"/refused"):
            client.send(b"HEAD " + path + b" HTTP/1.1\r\nHost: gw\r\n\r\n")
        self.assertEqual(client.answer("HEAD").headers["content-length"], "3")
        self.assertEqual(client.answer("HEAD").headers["transfer-encoding"], "chunked")
        self.assertEqual(client.answer("HEAD").status, 400)
        self.assertEqual(client.rest(), b"")

    def test_an_answer_without_content_has_no_length(self) -> None:
        """204 and 304 end with their head, and the connection goes on."""
        client = self.connect(self.serve(lambda exchange: exchange.respond(204, b"", b"none")))
        client.send(GET + GET)
        for _ in range(2):
            answer = client.answer()
            self.assertEqual((answer.status, answer.headers), (204, {}))

    def test_a_client_may_ask_to_close(self) -> None:
        """The answer says so too, and what follows is not served."""
        client = self.connect(self.serve(echo))
        client.send(GET[:-2] + b"Connection: close\r\n\r\n" + GET)
        self.assertEqual(client.answer().headers["connection"], "close")
        self.assertEqual(client.rest(), b"")

    @mock.patch("gateway.lobby.LEAVE_S", 1000)
    def test_the_end_of_the_last_answer_is_said_at_once(self) -> None:
        """The client is not kept waiting while the server reads on."""
        client = self.connect(self.serve(echo))
        client.send(GET[:-2] + b"Connection: close\r\n\r\n")
        self.assertTrue(client.rest().endswith(b"/hello "))

    def test_http_1_0_closes_unless_asked(self) -> None:
        """Keep-alive is said to a client that asked for it; a stream is as long as the connection."""

        def handle(exchange: Exchange) -> None:
            if exchange.head.path == "/stream":
                exchange.start_stream(200, TEXT)
                exchange.send(b"ab")
                exchange.finish(b"c")
            else:
                exchange.respond(200, TEXT, b"abc")

        server = self.serve(handle)
        client = self.connect(server)
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        self.assertTrue(client.rest().endswith(b"connection: close\r\n\r\nabc"))
        client = self.connect(server)
        client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        self.assertEqual(client.answer().headers["connection"], "keep-alive")
        client.send(b"GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        answer = client.answer()
        self.assertEqual((answer.headers["connection"], answer.body), ("close", b"abc"))

    def test_a_control_character_in_a_header_is_an_error_not_a_header(self) -> None:
        """ValueError where it is written; the client gets a clean 500."""
        for value in ("a\r\nset-cookie: b", "a\nb", "a\x00", "a\rb", "Ā"):

            def handle(exchange: Exchange, value: str = value) -> None:
                exchange.respond(200, lines(f"x: {value}"), b"")

            client = self.connect(self.serve(handle))
            client.send(GET)
            self.assert_refused(client.answer(), 500, "internal_error")
            self.assertIsInstance(self.next_error(), ValueError)

    def test_an_answer_is_given_once(self) -> None:
        """A second one, or a piece behind the end, is a programming error and never reaches the client."""
        misuses: list[Handle] = [
            lambda exchange: exchange.respond(200, TEXT, b"again"),
            lambda exchange: exchange.start_stream(200, TEXT),
            lambda exchange: exchange.send(b"more"),
            lambda exchange: exchange.finish(),
        ]
        for misuse in misuses:

            def handle(exchange: Exchange, misuse: Handle = misuse) -> None:
                exchange.respond(200, TEXT, b"once")
                misuse(exchange)

            client = self.connect(self.serve(handle))
            client.send(GET)
            self.assertTrue(client.rest().endswith(b"once"))
            self.assertIsInstance(self.next_error(), RuntimeError)

    def test_an_error_before_the_answer_is_answered(self) -> None:
        """With a code for each kind, and closed; an unknown error says nothing of itself."""
        cases: list[tuple[BaseException, int, str]] = [
            (Overloaded(), 503, "overloaded"),
            (HttpRefusal(413, "request_too_large", "no"), 413, "request_too_large"),
            (Draining(), 503, "draining"),
            (KeyError("secret"), 500, "internal_error"),
            (SystemExit(), 500, "internal_error"),
        ]
        for error, status, code in cases:

            def handle(exchange: Exchange, error: BaseException = error) -> None:
                raise error

            client = self.connect(self.serve(handle))
            client.send(GET + GET)
            answer = client.answer()
            self.assert_refused(answer, status, code)
            self.assertNotIn(b"secret", answer.body)
            self.assertEqual("retry-after" in answer.headers, status == 503)
            self.assertEqual(client.rest(), b"")
            self.assertIs(self.next_error(), error)

    def test_a_stream_that_has_not_begun_can_still_become_an_error(self) -> None:
        """As long as its head is held, nothing has left."""

        def handle(exchange: Exchange) -> None:
            exchange.start_stream(200, TEXT)
            raise KeyError

        client = self.connect(self.serve(handle))
        client.send(GET)
        self.assert_refused(client.answer(), 500, "internal_error")

    def test_no_answer_at_all_is_an_error(self) -> None:
        """A function that forgets to answer, or to end its stream, is reported."""
        client = self.connect(self.serve(lambda exchange: None))
        client.send(GET)
        self.assert_refused(client.answer(), 500, "internal_error")
        self.assertIsInstance(self.next_error(), RuntimeError)

        def forgets(exchange: Exchange) -> None:
            exchange.start_stream(200, TEXT)
            exchange.send(b"abc")

        client = self.connect(self.serve(forgets))
        client.send(GET)
        self.assertTrue(client.rest().endswith(b"\r\n\r\n3\r\nabc\r\n"))
        self.assertIsInstance(self.next_error(), RuntimeError)

    def test_an_aborted_stream_looks_cut(self) -> None:
        """What was sent arrives, the end does not; over HTTP/1.0, whose end is the close, it is a reset."""
        sent = threading.Event()

        def handle(exchange: Exchange) -> None:
            exchange.start_stream(200, TEXT)
            exchange.send(b"abc")
            sent.wait(PATIENCE_S)
            exchange.abort()

        server = self.serve(handle)
        client = self.connect(server)
        client.send(GET)
        sent.set()
        self.assertTrue(client.rest().endswith(b"\r\n\r\n3\r\nabc\r\n"))
        sent.clear()
        client = self.connect(server)
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        self.assertEqual(client.head()[0], 200)
        sent.set()
        with self.assertRaises(ConnectionResetError):
            client.rest()
        self.assertEqual(self.errors, [])


class ClientGoneTest(FrontCase):
    def test_a_client_that_leaves_makes_the_watch_fire(self) -> None:
        """Closed, reset, or closed on one side only: the poll fires and the reason is ClientGone."""
        waiting = threading.Event()
        reasons: list[Exception | None] = []

        def handle(exchange: Exchange) -> None:
            cancel: Cancel = exchange.cancel
            reasons.append(cancel.reason())
            poller = select.poll()
            poller.register(cancel.fd, cancel.mask)
            waiting.set()
            if poller.poll(PATIENCE_S * 1000):
                reasons.append(cancel.reason())
            raise reasons[-1] or AssertionError("the watch did not fire")

        server = self.serve(handle)
        for leave in (Client.close, Client.half_close, Client.reset):
            waiting.clear()
            client = self.connect(server)
            client.send(GET)
            self.assertTrue(waiting.wait(PATIENCE_S))
            leave(client)
            self.assertIsInstance(self.next_error(), ClientGone)
        self.assertEqual([type(reason) for reason in reasons], [type(None), ClientGone] * 3)

    def test_a_pipelined_request_is_no_departure(self) -> None:
        """Bytes that arrive during an exchange do not make the watch fire."""
        more, asked = threading.Event(), threading.Event()

        def handle(exchange: Exchange) -> None:
            asked.set()
            more.wait(PATIENCE_S)
            poller = select.poll()
            poller.register(exchange.cancel.fd, exchange.cancel.mask)
            exchange.respond(200, TEXT, str(poller.poll(0)).encode())

        client = self.connect(self.serve(handle))
        client.send(GET)
        self.assertTrue(asked.wait(PATIENCE_S))
        client.send(GET)
        more.set()
        self.assertEqual([client.answer().body, client.answer().body], [b"[]", b"[]"])

    def test_writing_to_a_client_that_left_raises(self) -> None:
        """ClientGone, which the server reports and never prints."""
        left = threading.Event()

        def handle(exchange: Exchange) -> None:
            exchange.start_stream(200, TEXT)
            left.wait(PATIENCE_S)
            for _ in range(1000):
                exchange.send(b"x" * 100_000)
            exchange.finish()

        with contextlib.redirect_stderr(io.StringIO()) as printed:
            client = self.connect(self.serve(handle))
            client.send(GET)
            client.close()
            left.set()
            self.assertIsInstance(self.next_error(), ClientGone)
        self.assertEqual(printed.getvalue(), "")

    def test_a_client_that_does_not_read_is_left(self) -> None:
        """A write that stalls for write_timeout_s raises ClientGone, in a stream and in a large answer."""

        def stream(exchange: Exchange) -> None:
            exchange.start_stream(200, TEXT)
            while True:
                exchange.send(b"x" * 100_000)

        def whole(exchange: Exchange) -> None:
            exchange.respond(200, TEXT, b"x" * 30_000_000)

        for handle in (stream, whole):
            client = self.connect(self.serve(handle, FrontLimits(write_timeout_s=0.1)))
            client.send(GET)
            self.assertIsInstance(self.next_error(), ClientGone)

    def test_a_write_taken_in_part_is_no_write(self) -> None:
        """The answer would be cut, so the client counts as gone."""
        client = self.connect(self.serve(echo, kind=ShortServer))
        client.send(GET)
        self.assertIsInstance(self.next_error(), ClientGone)

    def test_a_large_answer_arrives_whole(self) -> None:
        """More than one write's worth."""
        body = bytes(range(256)) * 20_000
        client = self.connect(self.serve(lambda exchange: exchange.respond(200, TEXT, body)))
        client.send(GET)
        self.assertEqual(client.answer().body, body)


class LimitTest(FrontCase):
    @mock.patch("gateway.lobby.LEAVE_S", 1000)
    def test_a_connection_too_many_is_turned_away(self) -> None:
        """503 with a hint, no reset for a client that is sending, and room again when another leaves."""
        server = self.serve(echo, FrontLimits(max_connections=1))
        first = self.connect(server)
        first.send(GET)
        first.answer()
        second = self.connect(server)
        self.assertTrue(select.select([second.sock], [], [], PATIENCE_S)[0])
        for _ in range(3):
            second.send(GET)
        answer = second.answer()
        self.assert_refused(answer, 503, "overloaded")
        self.assertEqual(answer.headers["retry-after"], "1")
        self.assertEqual(second.rest(), b"")
        self.assertEqual((server.connections, server.turned_away), (1, 1))
        first.close()
        self.assertEqual(self.eventually_served(server), b"/hello ")

    def eventually_served(self, server: FrontServer) -> bytes:
        """The body of the first answer that is no 503; a place becomes free a moment after its client left."""
        for _ in range(1000):
            client = self.connect(server)
            client.send(GET)
            if (answer := client.answer()).status == 200:
                return answer.body
        raise AssertionError("no place became free")

    @mock.patch("gateway.lobby.LEAVE_S", 1000)
    def test_connections_turned_away_do_not_pile_up(self) -> None:
        """At most 64 are kept open for a moment."""
        server = self.serve(echo, FrontLimits(max_connections=1))
        self.connect(server)
        clients = [self.connect(server) for _ in range(200)]
        for client in clients:
            self.assertTrue(client.rest().startswith(b"HTTP/1.1 503 "))
        self.until(lambda: server.parked <= 1 + 64)

    def test_a_request_too_many_is_refused_at_once_and_health_is_not(self) -> None:
        """503 beside a busy one; an exempt path is served."""
        asked, done = threading.Event(), threading.Event()

        def handle(exchange: Exchange) -> None:
            if exchange.head.path != "/healthz":
                exchange.enter("somebody")
            if exchange.head.path == "/hello":
                asked.set()
                done.wait(PATIENCE_S)
            exchange.respond(200, TEXT, b"ok")

        places = PlaceLimits(places=1, queue=0)
        server = self.serve(handle, FrontLimits(places=places), exempt=lambda path: path == "/healthz")
        busy, refused, health = (self.connect(server) for _ in range(3))
        busy.send(GET.replace(b"hello", b"first") + GET)
        self.assertEqual(busy.answer().status, 200)
        self.assertTrue(asked.wait(PATIENCE_S))
        refused.send(GET)
        answer = refused.answer()
        self.assert_refused(answer, 503, "overloaded", closes=False)
        self.assertEqual(answer.headers["retry-after"], "1")
        health.send(GET.replace(b"hello", b"healthz") * 2)
        self.assertEqual([health.answer().status, health.answer().status], [200, 200])
        self.assertGreaterEqual(server.in_flight, 1)
        done.set()
        self.assertEqual(busy.answer().status, 200)

    def test_a_lack_of_descriptors_pauses_the_accept_loop(self) -> None:
        """It is reported and waited out: the listening socket stays readable, so a loop would spin."""
        pauses: list[float] = []
        server = FrontServer(
            ("127.0.0.1", 0), echo, FrontLimits(), RealClock(), on_error=self._on_error, pause=pauses.append
        )
        self.addCleanup(server.close)
        for number, paused in ((errno.EMFILE, [0.05]), (errno.ECONNABORTED, [])):
            pauses.clear()
            with (
                mock.patch.object(server, "socket", mock.Mock(accept=mock.Mock(side_effect=OSError(number, "")))),
                self.assertRaises(OSError),
            ):
                server.get_request()
            self.assertEqual(pauses, paused)
        self.assertEqual([type(error) for error in self.errors], [OSError])

    def test_a_connection_without_a_thread_is_turned_away(self) -> None:
        """When no thread can be started the client hears 503, and its place is free again."""
        server = self.serve(echo)
        with mock.patch("gateway.workers.threading.Thread", side_effect=RuntimeError("can't start new thread")):
            client = self.connect(server)
            client.send(GET)
            self.assert_refused(client.answer(), 503, "overloaded", closes=False)
        self.assertEqual((server.in_flight, server.threads), (0, 0))
        client = self.connect(server)
        client.send(GET)
        self.assertEqual(client.answer().status, 200)

    def test_ipv6_is_served(self) -> None:
        """The address decides the family."""
        server = FrontServer(("::1", 0), echo, FrontLimits(), RealClock())
        self.addCleanup(server.close)
        server.start()
        with socket.create_connection(("::1", server.server_port), PATIENCE_S) as sock:
            sock.sendall(GET)
            self.assertTrue(sock.recv(1000).startswith(b"HTTP/1.1 200 OK"))


class DrainTest(FrontCase):
    """SIGTERM, in its steps and as a whole; who is cut, or new, has all the time that it needs."""

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch("gateway.server._CUT_GRACE_S", PATIENCE_S))
        self.enterContext(mock.patch("gateway.lobby.HASTE_S", PATIENCE_S))

    def in_background(self, server: FrontServer, stop_now: threading.Event) -> Callable[[], int]:
        """Drain on another thread; the function given back waits for its end and returns what was left."""
        results: list[int] = []
        thread = threading.Thread(target=lambda: results.append(server.drain(stop_now)))
        thread.start()

        def wait() -> int:
            thread.join(PATIENCE_S)
            return results[0]

        return wait

    def test_while_announcing_requests_are_served_and_their_connections_closed(self) -> None:
        """Old and new connections alike."""
        server = self.serve(lambda exchange: exchange.respond(200, TEXT, str(exchange.draining).encode()))
        old = self.connect(server)
        old.send(GET)
        self.assertNotIn("connection", old.answer().headers)
        server.begin_drain()
        for client in (old, self.connect(server)):
            client.send(GET)
            answer = client.answer()
            self.assertEqual((answer.headers["connection"], answer.body), ("close", b"False"))
            self.assertEqual(client.rest(), b"")

    def test_when_admitting_stops_idle_connections_close_and_new_requests_are_told(self) -> None:
        """The function handed in sees `draining` and refuses."""
        server = self.serve(lambda exchange: exchange.respond(200, TEXT, str(exchange.draining).encode()))
        served, fresh = self.connect(server), self.connect(server)
        for client in (served, fresh):
            client.send(GET)
            client.answer()
        server.begin_drain()
        server.stop_admitting()
        self.assertEqual([served.rest(), fresh.rest()], [b"", b""])
        late = self.connect(server)
        late.send(GET)
        answer = late.answer()
        self.assertEqual((answer.headers["connection"], answer.body), ("close", b"True"))

    def test_a_kept_connection_closes_when_its_stream_ends_in_the_drain(self) -> None:
        """Its head promised keep-alive before; there is no next request to wait for."""
        go_on = threading.Event()

        def handle(exchange: Exchange) -> None:
            exchange.start_stream(200, TEXT)
            exchange.send(b"abc")
            go_on.wait(PATIENCE_S)
            exchange.finish()

        server = self.serve(handle)
        client = self.connect(server)
        client.send(GET)
        client.head()
        server.stop_admitting()
        go_on.set()
        self.assertEqual([client.chunk(), client.chunk(), client.rest()], [b"abc", None, b""])

    def test_streams_in_flight_end_within_the_drain(self) -> None:
        """All of them arrive whole, nothing is left, and nobody can connect any more."""
        go_on = threading.Event()

        def handle(exchange: Exchange) -> None:
            exchange.start_stream(200, TEXT)
            exchange.send(b"begin ")
            go_on.wait(PATIENCE_S)
            exchange.finish(b"end")

        server = self.serve(handle, FrontLimits(announce_s=0, drain_s=PATIENCE_S))
        clients = [self.connect(server) for _ in range(5)]
        for client in clients:
            client.send(GET)
            client.head()
        left = self.in_background(server, threading.Event())
        self.assertEqual([client.chunk() for client in clients], [b"begin "] * 5)
        go_on.set()
        self.assertEqual([client.chunk() for client in clients], [b"end"] * 5)
        self.assertEqual(left(), 0)
        self.assertEqual((server.in_flight, server.connections), (0, 0))
        with self.assertRaises(ConnectionRefusedError):
            Client(server)

    def test_an_endless_stream_is_cut_at_the_deadline_and_may_say_so(self) -> None:
        """Its watch gives Draining, its last event arrives, its end does not."""

        def handle(exchange: Exchange) -> None:
            exchange.start_stream(200, TEXT)
            exchange.send(b"begin")
            poller = select.poll()
            poller.register(exchange.cancel.fd, exchange.cancel.mask)
            poller.poll(PATIENCE_S * 1000)
            exchange.send(type(exchange.cancel.reason()).__name__.encode())
            exchange.abort()

        server = self.serve(handle, FrontLimits(announce_s=0, drain_s=0.05))
        client = self.connect(server)
        client.send(GET)
        client.head()
        left = self.in_background(server, threading.Event())
        self.assertEqual([client.chunk(), client.chunk(), client.rest()], [b"begin", b"Draining", b""])
        self.assertEqual(left(), 0)

    def test_a_body_that_is_still_coming_is_cut_at_the_deadline(self) -> None:
        """The function handed in sees Draining, and the client 503."""
        server = self.serve(echo, FrontLimits(announce_s=0, drain_s=0.05))
        client = self.connect(server)
        client.send(post(b"abc", b"Expect: 100-continue")[:-3])
        self.assertEqual(client.head()[0], 100)
        left = self.in_background(server, threading.Event())
        self.assert_refused(client.answer(), 503, "draining")
        self.assertEqual(left(), 0)
        self.assertIsInstance(self.next_error(), Draining)

    def test_what_does_not_listen_is_left_and_counted(self) -> None:
        """The grace is bounded: a stuck exchange is cut from its client, and reported."""
        asked, done = threading.Event(), threading.Event()

        def handle(exchange: Exchange) -> None:
            asked.set()
            done.wait(PATIENCE_S)
            exchange.respond(200, TEXT, b"too late")

        server = self.serve(handle, FrontLimits(announce_s=0, drain_s=0.01))
        client = self.connect(server)
        client.send(GET)
        self.assertTrue(asked.wait(PATIENCE_S))
        with mock.patch("gateway.server._CUT_GRACE_S", 0.05):
            self.assertEqual(self.in_background(server, threading.Event())(), 1)
        self.assertEqual(client.rest(), b"")
        done.set()
        self.assertIsInstance(self.next_error(), ClientGone)

    def test_a_second_signal_ends_every_wait(self) -> None:
        """While announcing, and while exchanges are in flight."""
        asked, done = threading.Event(), threading.Event()

        def handle(exchange: Exchange) -> None:
            asked.set()
            done.wait(PATIENCE_S)
            exchange.respond(200, TEXT, b"too late")

        stop_now = threading.Event()
        server = self.serve(handle, FrontLimits(announce_s=1000, drain_s=1000))
        client = self.connect(server)
        client.send(GET)
        self.assertTrue(asked.wait(PATIENCE_S))
        left = self.in_background(server, stop_now)
        stop_now.set()
        self.assertEqual(left(), 1)
        done.set()

    def test_a_server_that_never_started_can_be_closed(self) -> None:
        """And closing twice is closing once."""
        server = FrontServer(("127.0.0.1", 0), echo, FrontLimits(), RealClock())
        server.close()
        server.close()


if __name__ == "__main__":
    unittest.main()
