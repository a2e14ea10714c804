"""Clients that leave: the upstream call ends with them, what was produced is billed, and nothing stays open or held."""

import queue
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from gateway.server import FrontLimits
from llmkit.openai import usage_object
from llmkit.types import Usage
from tests.support.front import (
    PATIENCE_S,
    ROLE,
    STREAM_HEAD,
    Answering,
    Client,
    FrontCase,
    LiveFront,
    Upstream,
    event,
    sse,
)
from tests.support.scripted_upstream import Peer, Request
from tests.support.world import scripted

CLOSE_WITHIN_S = 10
"""It is promised within 2 s, and takes some milliseconds; but the machine may be busy."""
HALF_BODY = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"id": "chatcmpl-1", '
SAID = [sse(ROLE), sse(event({"content": "once "})), sse(event({"content": "upon"}))]
SAID_BYTES = len("once upon")


class Watched:
    """An upstream that sends what it is given and then only watches its connection.

    reached  set once everything was sent
    """

    def __init__(self, *pieces: bytes) -> None:
        self.reached = threading.Event()
        self._pieces = pieces
        self._closed: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def reply(self, peer: Peer, request: Request) -> None:
        """As Answering."""
        try:
            peer.send(*self._pieces)
            self.reached.set()
            self._closed.put(peer.closed_within(CLOSE_WITHIN_S))
        except ConnectionError:
            self._closed.put(True)

    def saw_the_close(self) -> bool:
        """Whether the gateway closed in time, once that is decided."""
        return self._closed.get(timeout=PATIENCE_S)


def close(client: Client) -> None:
    """Close, as a client that ends does."""
    client.close()


def half_close(client: Client) -> None:
    """Close the sending half only."""
    client.half_close()


def reset(client: Client) -> None:
    """Close with a reset, as a client that is killed with unread data does."""
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


EAGER = "[server]\nhead_hold_s = 0\n"
"""A stream's head goes out at once, with a comment, whatever the upstream has to say."""

WAYS: tuple[Callable[[Client], None], ...] = (close, half_close, reset)


class LeavingTest(FrontCase):
    def leave(self, fields: Mapping[str, Any], *pieces: bytes, reads: int = 0, more: str = "") -> list[dict[str, Any]]:
        """Leave in each way once the upstream has sent `pieces` and the client has read so many events: the rows."""
        watched = [Watched(*pieces) for _ in WAYS]
        front = self.live(*(upstream.reply for upstream in watched), more=more)
        for leave, upstream in zip(WAYS, watched, strict=True):
            with self.subTest(leave=leave.__name__):
                client = self.client(front)
                client.chat(**fields)
                self.wait(upstream.reached)
                if reads:
                    client.head()
                for _ in range(reads):
                    self.assertIsNotNone(client.piece())
                leave(client)
                self.assertTrue(upstream.saw_the_close(), "the upstream call went on")
        rows = front.rows(len(WAYS))
        for row in rows:
            self.assertEqual((row["exit"], row["status"], row["state"]), ("client_gone", 499, "settled"))
            self.assertGreater(row["prompt_tokens"], 0)
            self.assertTrue(row["estimated"])
        self.assertEqual(front.money(), (sum(row["cost_nanousd"] for row in rows), 0, 0))
        return rows

    def test_in_the_middle_of_a_stream(self) -> None:
        """What the model has said so far is billed by its bytes."""
        for row in self.leave({"stream": True}, STREAM_HEAD, *SAID, reads=len(SAID)):
            self.assertEqual(row["completion_tokens"], SAID_BYTES)
            self.assertIsNotNone(row["ttft_ms"])

    def test_before_the_first_token(self) -> None:
        """The upstream has sent its head, and a role, which says nothing yet."""
        for row in self.leave({"stream": True}, STREAM_HEAD):
            self.assertEqual((row["completion_tokens"], row["ttft_ms"]), (0, None))
        for row in self.leave({"stream": True}, STREAM_HEAD, sse(ROLE)):
            self.assertEqual((row["completion_tokens"], row["ttft_ms"]), (0, None))
        for row in self.leave({"stream": True}, STREAM_HEAD, sse(ROLE), reads=1, more=EAGER):
            self.assertEqual((row["completion_tokens"], row["ttft_ms"]), (0, None))

    def test_before_the_upstream_answers(self) -> None:
        """The upstream has the request and says nothing; a stream has not begun, a whole answer may be written."""
        for fields, tokens in ({"stream": True}, 0), ({"max_tokens": 99}, 99):
            for row in self.leave(fields):
                self.assertEqual(row["completion_tokens"], tokens)

    def test_while_a_whole_answer_is_on_its_way(self) -> None:
        """Half of the answer has arrived; all of it may have been written, up to the cap."""
        for row in self.leave({"max_tokens": 99}, HALF_BODY):
            self.assertEqual(row["completion_tokens"], 99)

    def test_usage_that_was_reported_before_is_what_is_billed(self) -> None:
        """Some upstreams count along; then nothing is estimated."""
        usage = usage_object(Usage(prompt_tokens=7, completion_tokens=2))
        upstream = Watched(STREAM_HEAD, sse(ROLE), sse(event({"content": "once"}, usage=usage)))
        client = self.client(front := self.live(upstream.reply))
        client.chat(stream=True)
        client.head()
        self.assertEqual([client.piece() is not None for _ in range(2)], [True, True])
        client.close()
        self.assertTrue(upstream.saw_the_close())
        (row,) = front.rows(1)
        self.assertEqual((row["exit"], row["cost_nanousd"], row["estimated"]), ("client_gone", 7_000 + 8_000, False))

    def test_a_client_that_does_not_read_is_billed_for_all_that_it_was_sent(self) -> None:
        """It is left after write_timeout_s, and everything that can still reach it has been billed."""
        piece = "x" * 900_000

        def flood(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD, *[sse(event({"content": piece}))] * 30)

        front = self.live(flood, limits=FrontLimits(write_timeout_s=0.2))
        client = self.client(front)
        client.chat(stream=True, max_tokens=1_000_000_000)
        (row,) = front.rows(1)
        self.assertEqual((row["exit"], row["state"]), ("client_gone", "settled"))
        self.assertGreaterEqual(row["completion_tokens"], client.rest().count(b"x"))

    def test_a_scripted_upstream_is_left_too(self) -> None:
        """A pause of a fake ends when its client leaves."""
        front = self.front(providers=scripted({"text": "late", "latency_s": 60}))
        for leave in WAYS:
            client = self.client(front)
            client.chat()
            leave(client)
        self.assertEqual([row["exit"] for row in front.rows(len(WAYS))], ["client_gone"] * len(WAYS))

    def test_a_request_that_never_came_whole_costs_nothing(self) -> None:
        """Half a body, and then nobody: no call, no hold."""
        front = self.live(Watched().reply)
        client = self.client(front)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\nx-api-key: {front.key}\r\nContent-Length: 99\r\n\r\n"
        client.sock.sendall(head.encode() + b'{"model": "mini"')
        client.close()
        front.wait_ended(1)
        self.assertEqual((front.upstream.requests, front.money()), ([], (0, 0, 0)))


class ManyRoundsTest(FrontCase):
    ROUNDS = 50

    def test_nothing_stays_open_after_many_rounds(self) -> None:
        """No connection to the upstream, no file, no thread, no hold; every row is settled once."""
        upstreams = [Watched(STREAM_HEAD, *SAID) for _ in range(self.ROUNDS)]
        replies: list[Answering] = [upstream.reply for upstream in upstreams]
        upstream = Upstream(*replies)
        self.addCleanup(upstream.close)
        with mock.patch("gateway.server.IDLE_S", 0.01):
            front = LiveFront(upstream, durability="full")
        self.addCleanup(front.stop)
        files, threads = open_files(), threading.active_count()
        for watched in upstreams:
            client = Client(front)
            client.chat(stream=True)
            client.head()
            client.piece()
            client.close()
            self.assertTrue(watched.saw_the_close())
        rows = front.rows(self.ROUNDS)
        self.assertEqual({(row["exit"], row["state"]) for row in rows}, {("client_gone", "settled")})
        self.assertEqual(front.money(), (sum(row["cost_nanousd"] for row in rows), 0, 0))
        self.assertEqual(len({row["request_id"] for row in rows}), self.ROUNDS)
        self.assert_soon(lambda: open_files() <= files and threading.active_count() <= threads)

    def assert_soon(self, condition: Callable[[], bool]) -> None:
        """The last connection's thread is just ending: what must hold then."""
        tick = threading.Event()
        for _ in range(round(CLOSE_WITHIN_S / 0.005)):
            if condition():
                return
            tick.wait(0.005)
        self.fail(f"{open_files()} files and {threading.active_count()} threads are open")


def open_files() -> int:
    """How many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))
