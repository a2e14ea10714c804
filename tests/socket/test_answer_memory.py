"""What upstreams' answers can take of memory: one event, one answer, all answers together."""

import json
import socket
import threading
from typing import Any

from tests.support.front import (
    CHAT,
    DONE,
    END,
    ONE_TRY,
    ROLE,
    STREAM_HEAD,
    Answering,
    Client,
    Front,
    FrontCase,
    completion,
    event,
    fleet,
    sse,
    whole,
)
from tests.support.scripted_upstream import Peer, Request, chunk
from tests.support.world import chat

BOUNDS = "max_event_bytes = 100_000\nmax_answer_bytes = 300_000"
HEL = event({"content": "hel"})
SENT_AT_MOST = 16_000_000
"""What a gateway that stops at its bounds lets an upstream send: they, and what the kernel takes on both sides."""

ENDLESS = {
    "a line": b"data: " + b"x" * 65_530,
    "a line of another field": b"x" * 65_536,
    "blank data lines": b"data:\n" * 10_000,
    "bare data lines": b"data\r" * 10_000,
    "comments in one event": b": wait\n" * 8_000,
    "comments": b": wait\n\n" * 8_000,
    "blank lines": b"\n" * 65_536,
    "blank lines of every kind": b"\r\n\r\n\n" * 10_000,
    "empty events": b"data:\n\n" * 8_000,
    "empty deltas": sse(event({})).split(b"\r\n")[1] * 300,
}
ONE_A_DAY = '[[tenants]]\nname = "acme"\nrate_per_s = 0.00001\nburst = 10\n'
LARGE_BYTES = 8_000_000
LARGE = completion("x" * LARGE_BYTES)


class EndlessTest(FrontCase):
    """Streams that never end a line, an event, or anything."""

    def endless(self, first: bytes, again: bytes) -> Answering:
        """Sends without end; fails if the gateway takes more than it may."""

        def reply(peer: Peer, request: Request) -> None:
            peer.send(first)
            for _ in range(SENT_AT_MOST // len(again)):
                peer.send(chunk(again))
            raise AssertionError("the gateway takes everything")

        return reply

    def test_before_content_it_is_no_answer(self) -> None:
        """502 by the bound of an event or of an answer, whichever comes first; the connection is closed."""
        front = self.live(*[self.endless(STREAM_HEAD, again) for again in ENDLESS.values()], provider=BOUNDS)
        for name in ENDLESS:
            with self.subTest(name):
                self.assert_error(front.chat(stream=True), 502, "upstream_error")
        self.assertEqual({row["state"] for row in front.rows(len(ENDLESS))}, {"settled"})

    def test_behind_content_it_is_cut(self) -> None:
        """Told in-band, without an end mark."""
        begun = STREAM_HEAD + sse(ROLE) + sse(HEL)
        front = self.live(*[self.endless(begun, again) for again in ENDLESS.values()], provider=BOUNDS)
        for name in ENDLESS:
            with self.subTest(name):
                client = self.client(front)
                client.chat(stream=True)
                reply = client.cut_reply()
                self.assertEqual(json.loads(reply.payloads[1]), json.loads(HEL))
                self.assertIn(b'"code":"stream_truncated"', reply.payloads[-1])
                self.assertNotIn(DONE, reply.payloads)

    def test_a_stream_that_nobody_asked_for_has_the_bounds_of_an_answer(self) -> None:
        """It is collected: text, and calls, without end."""
        for again in (HEL, event({"tool_calls": [{"index": 0, "function": {"arguments": "x" * 100}}]})):
            front = self.live(self.endless(STREAM_HEAD, sse(again).split(b"\r\n")[1] * 300), provider=BOUNDS)
            self.assert_error(front.chat(), 502, "upstream_error")


class SumTest(FrontCase):
    """Large answers at the same time."""

    def ask_large(self, front: Front, model: str, **fields: Any) -> Client:
        """A client that has its answer's head and does not read on: the gateway holds the rest."""
        client = self.client(front)
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        client.request("POST", CHAT, chat(model=model, **fields), [*front.bearer(), ("Connection", "close")])
        self.assertEqual(client.head()[0], 200)
        return client

    def test_an_answer_counts_until_its_client_has_it(self) -> None:
        """What has no room beside it is 502 with its money settled; small ones and later ones are served."""
        reply = whole(LARGE)
        front = self.live(
            reply, reply, whole(), reply, provider="max_answer_bytes = 9_000_000", more=memory(10_000_000)
        )
        slow = self.ask_large(front, "mini")
        self.assertGreaterEqual(front.answer_room.taken, LARGE_BYTES - 65_536)
        self.assert_error(front.chat(), 502, "upstream_error")
        self.assertEqual(front.chat().status, 200)
        self.assertGreater(len(slow.rest()), LARGE_BYTES)
        front.wait_ended(3)
        self.assertEqual((front.answer_room.taken, front.chat().status), (0, 200))
        self.assertEqual({row["state"] for row in front.rows(4)}, {"settled"})

    def test_want_of_room_makes_no_deployment_sick(self) -> None:
        """One tenant's large answers must not open the breaker in front of everybody else."""
        limits = "max_answer_bytes = 9_000_000"
        more = memory(10_000_000) + "[retry]\nmax_retries = 0\n[breaker]\nthreshold = 1\n"
        front = self.front(fleet(self.upstream(whole(LARGE), whole(LARGE), whole()), provider=limits, more=more))
        slow = self.ask_large(front, "one")
        self.assert_error(front.chat(model="one"), 502, "upstream_error")
        self.assertEqual(front.chat(model="one").status, 200)
        slow.rest()

    def test_an_answer_beyond_the_bound_makes_no_deployment_sick(self) -> None:
        """Its request may have asked for so much: whole, or as a stream that is cut behind its content."""
        words = [*[event({"content": "x" * 50_000})] * 10, event(finish="stop"), DONE]

        def stream(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD, *map(sse, [ROLE, HEL, *words]), END)

        more = "[retry]\nmax_retries = 0\n[breaker]\nthreshold = 1\n"
        front = self.front(fleet(self.upstream(whole(LARGE), stream, whole()), provider=BOUNDS, more=more))
        self.assert_error(front.chat(model="one"), 502, "upstream_error")
        client = self.client(front)
        client.chat(model="one", stream=True)
        self.assertEqual(client.head()[0], 200)
        self.assertIn(b"stream_truncated", client.rest())
        self.assertEqual(front.chat(model="one").status, 200)
        self.assertEqual([row["state"] for row in front.rows(3)], ["settled"] * 3)

    def test_a_remembered_answer_counts_too(self) -> None:
        """It is free, so nothing else would bound how many are held for clients that do not read."""
        provider, more = "max_answer_bytes = 9_000_000", memory(10_000_000) + ONE_A_DAY
        front = self.live(whole(LARGE), whole(), provider=provider, more=more)
        asked: dict[str, Any] = {"temperature": 0, "messages": [{"role": "user", "content": "large"}]}
        self.assertEqual(front.chat(**asked).status, 200)
        front.wait_ended(1)
        slow = self.ask_large(front, "mini", **asked)
        reply = front.chat(**asked)
        self.assert_error(reply, 503, "overloaded")
        self.assertEqual((reply.get("retry-after"), reply.get("x-ratelimit-remaining-requests")), ("1", "8"))
        self.assertGreater(len(slow.rest()), LARGE_BYTES)
        front.wait_ended(3)
        self.assertEqual(front.chat(**asked).get("x-gateway-cache"), "hit")

    def test_a_stream_that_has_no_room_is_not_remembered(self) -> None:
        """It is relayed all the same; once there is room the next one is."""
        asked: dict[str, Any] = {"temperature": 0, "stream": True}
        words = [*[event({"content": "x" * 50_000})] * 4, event(finish="stop"), DONE]
        is_heard = threading.Event()

        def reply(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD, sse(ROLE), sse(HEL))
            self.assertTrue(is_heard.wait(10))
            peer.send(*map(sse, words), END)

        front = self.live(reply, more=memory(40_000_000))
        self.assertTrue(front.answer_room.take(40_000_000))
        client = self.client(front)
        client.chat(**asked)
        self.assertEqual(client.head()[0], 200)
        heard = [client.piece()]
        is_heard.set()
        while (piece := client.piece()) is not None:
            heard.append(piece)
        self.assertEqual(b"".join(filter(None, heard)).count(b"x" * 50_000), 4)
        front.answer_room.give(40_000_000)
        self.assertEqual([front.chat(**asked).get("x-gateway-cache") for _ in range(2)], ["miss", "hit"])

    def test_one_upstream_cannot_take_it_all(self) -> None:
        """Half of it is for the others."""
        one, two = self.upstream(whole(LARGE)), self.upstream(whole(LARGE))
        limits = "max_answer_bytes = 9_000_000"
        front = self.front(fleet(one, two, provider=limits, more=ONE_TRY + memory(20_000_000)))
        self.ask_large(front, "one")
        self.assert_error(front.chat(model="one"), 502, "upstream_error")
        self.assertEqual(front.chat(model="two").status, 200)

    def test_streams_hold_only_what_is_not_complete(self) -> None:
        """However long they are, and however many answers they are the size of."""
        words = [event({"content": "x" * 50_000})] * 40
        front = self.live(
            lambda peer, request: peer.send(STREAM_HEAD, *map(sse, [ROLE, *words])),
            provider="max_answer_bytes = 9_000_000",
            more=memory(9_000_000),
        )
        client = self.client(front)
        client.chat(stream=True)
        client.head()
        for _ in range(35):
            client.piece()
        self.assertEqual(front.answer_room.taken, 0)
        client.pieces_to_the_cut()


def memory(size: int) -> str:
    """The bound of all answers together."""
    return f"[server]\nanswer_memory_bytes = {size}\n"
