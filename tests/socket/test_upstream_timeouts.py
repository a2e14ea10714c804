"""Every clock of an upstream call fires, on silence and on drips, through the whole gateway.

Each case has one impatient clock and patient others, so that it fails if that one does not fire. What must follow:
the client is told, the upstream sees its connection closed, and no request is left (which stopping a front checks).
"""

import json
import socket
import threading
from contextlib import ExitStack
from itertools import starmap
from typing import Any
from unittest.mock import patch

from tests.support.front import (
    ONE_TRY,
    PATIENCE_S,
    ROLE,
    STREAM_HEAD,
    Answering,
    Client,
    Front,
    FrontCase,
    event,
    fleet,
    sse,
    whole,
)
from tests.support.scripted_upstream import Peer, Request, ScriptedUpstream, chunk

MINI = """
[retry]
max_retries = 0
[[providers]]
name = "up"
base_url = "{url}"
{provider}
[[deployments]]
name = "mini"
provider = "up"
model = "gw-mini"
price = {{ input = 1, output = 4 }}
"""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
WHOLE_HEAD = HEAD + b"content-length: 1000000\r\n\r\n"
HEL = event({"content": "hel"})
BEGUN = STREAM_HEAD + sse(ROLE) + sse(HEL)
LARGE = "x" * 12_000_000  # more than the kernel takes for a socket that nobody reads

BEFORE_CONTENT = {
    "silence": (b"", b""),
    "a status line that drips": (b"HTTP/1.1 200 ", b"O"),
    "a header that drips": (HEAD + b"x: ", b"a"),
    "headers that drip": (HEAD, b"x: a\r\n"),
    "interim answers that drip": (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "a head alone": (HEAD + b"\r\n", b""),
    "a chunk size that drips": (STREAM_HEAD, b"0"),
    "a chunk extension that drips": (STREAM_HEAD + b"5;", b"x"),
    "blanks that drip": (WHOLE_HEAD, b" "),
    "comments that drip": (STREAM_HEAD, chunk(b": wait\n\n")),
    "blank lines that drip": (STREAM_HEAD, chunk(b"\n")),
    "blank data lines that drip": (STREAM_HEAD, chunk(b"data:\n")),
    "a line that drips": (STREAM_HEAD + chunk(b"data: "), chunk(b"x")),
}
"""What is sent first, and then again and again; none of it stops the clock of the first byte."""

AFTER_CONTENT = (chunk(b"x"), chunk(b": wait\n\n"), chunk(b"data:\n"), chunk(b"\n"), sse(event({})), b"0")
"""What is sent again and again behind the first word; none of it lets the idle clock fire."""


class ClockCase(FrontCase):
    """What the tests below share."""

    def setUp(self) -> None:
        """No connection has been closed yet."""
        self.closed = threading.Semaphore(0)

    def dripping(self, first: bytes, again: bytes = b"") -> Answering:
        """Sends something, then something again and again, or nothing; until the gateway closes."""

        def reply(peer: Peer, request: Request) -> None:
            peer.send(first)
            if again:
                peer.drip(again, every_s=0.02)
            elif not peer.closed_within(PATIENCE_S):
                raise AssertionError("the gateway never closed")
            self.closed.release()

        return reply

    def ask(self, front: Front, count: int, *headers: tuple[str, str], streamed: bool = True) -> list[Client]:
        """So many clients that have asked at once."""
        clients = [self.client(front) for _ in range(count)]
        for client in clients:
            client.chat(headers, stream=streamed)
        return clients

    def assert_late(self, front: Front, clients: list[Client], state: str = "unresolved") -> None:
        """504 for each of them, no connection is left open, and the money is what the table says."""
        for client in clients:
            self.assert_error(client.reply(), 504, "upstream_timeout")
        self.assert_closed(len(clients))
        self.assertEqual({(row["exit"], row["state"]) for row in front.rows(len(clients))}, {("failed", state)})

    def assert_cut(self, front: Front, clients: list[Client]) -> None:
        """Each is told in-band that its stream was cut, and not that it ended; what was seen is settled."""
        for client in clients:
            reply = client.cut_reply()
            self.assertEqual((reply.status, json.loads(reply.payloads[1])), (200, json.loads(HEL)))
            self.assertIn(b'"code":"stream_truncated"', reply.payloads[-1])
        self.assert_closed(len(clients))
        self.assertEqual({(row["exit"], row["state"]) for row in front.rows(len(clients))}, {("failed", "settled")})

    def assert_closed(self, count: int) -> None:
        """So many upstream connections were seen to close."""
        for _ in range(count):
            self.assertTrue(self.closed.acquire(timeout=PATIENCE_S), "a connection was never closed")


class FirstByteTest(ClockCase):
    """From the request until there is something of an answer."""

    def test_nothing_but_an_answer_stops_the_clock(self) -> None:
        """Streamed or whole."""
        for streamed in (False, True):
            front = self.live(*starmap(self.dripping, BEFORE_CONTENT.values()), provider="ttft_timeout_s = 0.3")
            self.assert_late(front, self.ask(front, len(BEFORE_CONTENT), streamed=streamed))

    def test_an_upstream_that_does_not_read_is_left(self) -> None:
        """With a request that is larger than what the kernel takes for it."""

        def script(peer: Peer) -> None:
            if peer.closed_within(PATIENCE_S):
                self.closed.release()

        deaf = ScriptedUpstream(script)
        self.addCleanup(deaf.close)
        front = self.at(deaf.url("/v1"), "ttft_timeout_s = 0.3")
        self.assert_error(front.chat(messages=[{"role": "user", "content": LARGE}]), 504, "upstream_timeout")
        self.assert_closed(1)

    def test_the_next_deployment_answers(self) -> None:
        """As long as the client has seen nothing."""
        slow, two = self.upstream(self.dripping(HEAD, b"x: a\r\n")), self.upstream(whole())
        front = self.front(fleet(slow, two, provider="ttft_timeout_s = 1", more=ONE_TRY))
        self.assertEqual(front.chat().get("x-gateway-route"), "one=timeout, two=ok")
        self.assert_closed(1)

    def at(self, url: str, provider: str) -> Front:
        """A gateway in front of whatever is there."""
        return self.front(MINI.format(url=url, provider=provider))


class IdleTest(ClockCase):
    """Between two pieces of an answer."""

    def test_silence_ends_it(self) -> None:
        """In a stream between events, within a line and within a chunk; in a whole answer."""
        pieces = (BEGUN, BEGUN + chunk(b"data: "), BEGUN + b"ff\r\ndata: ")
        front = self.live(*map(self.dripping, pieces), provider="idle_timeout_s = 0.2")
        self.assert_cut(front, self.ask(front, len(pieces)))
        front = self.live(self.dripping(WHOLE_HEAD + b"{"), provider="idle_timeout_s = 0.2")
        self.assert_late(front, self.ask(front, 1, streamed=False))


class TotalTest(ClockCase):
    """The whole call, and the whole request."""

    LIMITS: tuple[tuple[str, list[tuple[str, str]]], ...] = (
        ("total_timeout_s = 1", []),
        ("", [("x-gateway-timeout-s", "1")]),
    )
    """Long enough for the first word to come through on a busy machine."""

    def test_no_drip_outlasts_it(self) -> None:
        """The upstream's clock or the client's own: none of these lets the idle clock fire."""
        for provider, headers in self.LIMITS:
            with self.subTest(provider or headers):
                front = self.live(*[self.dripping(BEGUN, again) for again in AFTER_CONTENT], provider=provider)
                self.assert_cut(front, self.ask(front, len(AFTER_CONTENT), *headers))
                front = self.live(self.dripping(WHOLE_HEAD + b"{", b'"'), provider=provider)
                self.assert_late(front, self.ask(front, 1, *headers, streamed=False))

    def test_no_silence_outlasts_it(self) -> None:
        """Before the first byte too."""
        for provider, headers in self.LIMITS:
            with self.subTest(provider or headers):
                front = self.live(*starmap(self.dripping, BEFORE_CONTENT.values()), provider=provider)
                self.assert_late(front, self.ask(front, len(BEFORE_CONTENT), *headers))


class ConnectTest(ClockCase):
    """Until there is a connection: nothing was sent, and nothing is owed."""

    LIMITS: tuple[tuple[str, list[tuple[str, str]]], ...] = (
        ("connect_timeout_s = 0.2", []),
        ("connect_timeout_s = 60\ntotal_timeout_s = 0.2", []),
        ("connect_timeout_s = 60", [("x-gateway-timeout-s", "0.2")]),
    )

    def assert_not_connected(self, url: str) -> None:
        """Each clock fires; 504, and the money is void."""
        for provider, headers in self.LIMITS:
            with self.subTest(provider):
                front = self.front(MINI.format(url=url, provider=provider))
                self.assert_error(front.chat(headers), 504, "upstream_timeout")
                self.assertEqual([row["state"] for row in front.rows(1)], ["void"])
                self.assertEqual(front.money(), (0, 0, 0))

    def test_a_name_server_that_hangs(self) -> None:
        """One thread waits for it, however many ask, and only until it answers."""
        hangs, ask = threading.Event(), socket.getaddrinfo

        def lookup(host: bytes, *more: Any, **options: Any) -> Any:
            if host == b"hangs.invalid" and not options.get("flags"):
                hangs.wait(PATIENCE_S)
                raise socket.gaierror(socket.EAI_AGAIN, "no answer")
            return ask(host, *more, **options)

        with patch("socket.getaddrinfo", lookup):
            self.assert_not_connected("http://hangs.invalid/v1")
            waiting = [thread for thread in threading.enumerate() if thread.name == "resolve hangs.invalid"]
            self.assertEqual(len(waiting), len(self.LIMITS))
            hangs.set()
            for thread in waiting:
                thread.join(PATIENCE_S)
                self.assertFalse(thread.is_alive())

    def test_an_address_that_does_not_answer(self) -> None:
        """Its queue is full: whoever connects hears nothing."""
        with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as stack:
            for _ in range(4):
                sock = stack.enter_context(socket.socket())
                sock.setblocking(False)
                sock.connect_ex(listener.getsockname())
            self.assert_not_connected(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")

    def test_a_handshake_that_hangs(self) -> None:
        """TLS is part of connecting, also when its first record drips."""

        def silent(peer: Peer) -> None:
            if peer.closed_within(PATIENCE_S):
                self.closed.release()

        def dripping(peer: Peer) -> None:
            peer.send(b"\x16\x03\x03\x40\x00")
            peer.drip(b"\x02", every_s=0.02)
            self.closed.release()

        for script in (silent, dripping):
            upstream = ScriptedUpstream(*[script] * len(self.LIMITS))
            self.addCleanup(upstream.close)
            self.assert_not_connected(upstream.url("/v1").replace("http:", "https:"))
            self.assert_closed(len(self.LIMITS))
