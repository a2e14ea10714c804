"""Several deployments, and several credentials of one, over real sockets."""

import json
import threading
from unittest import mock

from llmkit.sse import frame
from tests.support.front import (
    COST_NANOUSD,
    DONE,
    ONE_TRY,
    PROVIDER_KEY,
    ROLE,
    SECOND_KEY,
    STREAM_HEAD,
    Answering,
    FrontCase,
    fleet,
    sse,
    stream,
    whole,
    words,
)
from tests.support.scripted_upstream import Peer, Request, ScriptedUpstream, answer

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
LIMITED = whole({"error": {"message": "slow down"}}, status="429 Slow", headers="retry-after: 30\r\n")


class CapabilityTest(FrontCase):
    """What a deployment cannot do is never asked of it."""

    def test_tools_never_go_to_a_deployment_without_them(self) -> None:
        """Not as the first, and not when everything else is down."""
        one, two = self.upstream(whole()), self.upstream(whole(), whole(b"", status="500 Oops"))
        config = fleet(one, two, more=ONE_TRY).replace(
            'name = "one"\nprovider', 'name = "one"\nsupports = []\nprovider'
        )
        front = self.front(config)
        self.assertEqual(front.chat(tools=TOOLS).get("x-gateway-route"), "two=ok")
        self.assert_error(front.chat(tools=TOOLS), 503, "all_providers_failed")
        self.assertEqual((len(one.requests), len(two.requests)), (0, 2))
        self.assertEqual(front.chat().get("x-gateway-deployment"), "one")

    def test_nobody_who_can_is_the_clients_fault(self) -> None:
        """400 that names the field; nothing is called."""
        one = self.upstream(whole())
        front = self.front(fleet(one, deployment="supports = []"))
        image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}]
        schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
        self.assert_error(front.chat(tools=TOOLS), 400, "invalid_request", "tools")
        self.assert_error(front.chat(messages=image), 400, "invalid_request", "messages")
        self.assert_error(front.chat(response_format=schema), 400, "invalid_request", "response_format")
        self.assertEqual((one.requests, {row["exit"] for row in front.rows(3)}), ([], {"rejected"}))


class CredentialsTest(FrontCase):
    """A provider with two keys: an upstream limits and refuses accounts, not addresses."""

    def test_what_is_wrong_with_one_key_moves_to_the_other_at_once(self) -> None:
        """A limit and a refusal: one more call, no wait, and the bad key rests from then on."""
        refused = whole({"error": {"message": "bad key"}}, status="401 No")
        for failure in LIMITED, refused:
            with self.subTest(failure=failure):
                upstream = self.upstream(failure, whole())
                config = fleet(upstream, more=ONE_TRY).replace('["UP_KEY"]', '["UP_KEY", "UP_KEY_2"]')
                front = self.front(config)
                reply = front.chat()
                self.assertEqual((reply.status, reply.get("x-gateway-attempts")), (200, "2"))
                for _ in range(3):
                    self.assertEqual(front.chat().get("x-gateway-attempts"), "1")
                bad, *good = [request.get("authorization") for request in upstream.requests]
                self.assertEqual({bad, *good}, {f"Bearer {PROVIDER_KEY}", f"Bearer {SECOND_KEY}"})
                self.assertEqual(len(set(good)), 1)
                self.assertEqual((front.rows(4)[0]["exit"], front.money()), ("retried", (4 * COST_NANOUSD, 0, 0)))

    def test_when_all_keys_are_limited_the_client_is_told(self) -> None:
        """After one call with each; then none."""
        upstream = self.upstream(LIMITED)
        front = self.front(fleet(upstream, more=ONE_TRY).replace('["UP_KEY"]', '["UP_KEY", "UP_KEY_2"]'))
        for _ in range(2):
            reply = front.chat()
            self.assert_error(reply, 429, "rate_limit_exceeded")
            self.assertTrue(0 < int(reply.get("retry-after") or 0) <= 30, reply.get("retry-after"))
        self.assertEqual(len(upstream.requests), 2)

    def test_calls_take_turns(self) -> None:
        """Both accounts carry the load."""
        upstream = self.upstream(whole())
        front = self.front(fleet(upstream).replace('["UP_KEY"]', '["UP_KEY", "UP_KEY_2"]'))
        for _ in range(4):
            front.chat()
        used = [request.get("authorization") for request in upstream.requests]
        self.assertEqual((used[0], used[1]), (used[2], used[3]))
        self.assertNotEqual(used[0], used[1])


class StaleConnectionTest(FrontCase):
    """A pooled connection that the upstream has closed."""

    def test_it_is_replaced_without_a_trace(self) -> None:
        """Closed while idle, or just as the request arrived: one attempt, nothing unresolved, paid once."""
        body = json.dumps({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}).encode()

        last = "content-type: application/json\r\nconnection: close"

        def answer_one(peer: Peer) -> None:
            peer.request()
            peer.send(answer(body))

        def answer_the_last(peer: Peer) -> None:
            peer.request()
            peer.send(answer(body, headers=last))

        def answer_one_and_drop_one(peer: Peer) -> None:
            answer_one(peer)
            peer.request()

        for first in answer_one, answer_one_and_drop_one:
            with self.subTest(first=first.__name__):
                upstream = ScriptedUpstream(first, answer_the_last)
                self.addCleanup(upstream.close)
                config = fleet(self.upstream(), more=ONE_TRY)
                at = config.index('base_url = "') + len('base_url = "')
                front = self.front(config[:at] + upstream.url("/v1") + config[config.index('"', at) :])
                for _ in range(2):
                    self.assertEqual(front.chat(max_tokens=9).status, 200)
                rows = front.rows(2)
                self.assertEqual(
                    [(row["attempts"], row["exit"], row["state"]) for row in rows], [(1, "routed", "settled")] * 2
                )
                self.assertEqual(front.money()[1:], (0, 0))
                self.assertEqual(upstream.connections, 2)


class PulseTest(FrontCase):
    """A stream whose upstream thinks for a long time."""

    EAGER = ONE_TRY + "[server]\nhead_hold_s = 0.05\n"

    def test_comments_come_during_the_silence(self) -> None:
        """Again and again, before the first token; then the stream, whole. The upstream waits for the client's word."""
        heard = threading.Event()

        def think(peer: Peer, request: Request) -> None:
            self.wait(heard)
            peer.send(STREAM_HEAD, *map(sse, words("noon")))

        with mock.patch("gateway.api.SILENCE_S", 0.05):
            client = self.client(self.live(think, more="[server]\nhead_hold_s = 0.05\n"))
            client.chat(stream=True)
            self.assertEqual(client.head()[0], 200)
            self.assertEqual([client.piece() for _ in range(3)], [b": ping\n\n"] * 3)
            heard.set()
            pieces = [piece for piece in iter(client.piece, None) if piece != b": ping\n\n"]
        self.assertEqual((pieces[0], pieces[-1]), (frame(ROLE), frame(DONE)))
        self.assertEqual(b"".join(pieces).count(b"noon"), 1)

    def test_failover_goes_on_behind_the_head(self) -> None:
        """The first is dropped after the head went out; the client sees the second's stream only."""
        heard = threading.Event()

        def die_late(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD, sse(ROLE))
            self.wait(heard)

        one, two = self.upstream(die_late), self.upstream(stream(*words("noon")))
        front = self.front(fleet(one, two, more=self.EAGER))
        client = self.client(front)
        client.chat(stream=True)
        self.assertEqual(client.head()[0], 200)
        self.assertEqual(client.piece(), b": ping\n\n")
        heard.set()
        body = b"".join(piece for piece in iter(client.piece, None) if piece != b": ping\n\n")
        self.assertEqual(
            body, b"".join(map(frame, [payload for payload in words("noon") if b'"usage": {' not in payload]))
        )
        self.assertEqual(front.rows(1)[0]["exit"], "failed_over")

    def test_everything_down_behind_the_head_is_told_in_band(self) -> None:
        """One error event, no end mark, and a message that is not finished."""
        heard = threading.Event()

        def die_late(peer: Peer, request: Request) -> None:
            self.wait(heard)

        down: Answering = whole(b"", status="500 Oops")
        front = self.front(fleet(self.upstream(die_late), self.upstream(down), more=self.EAGER))
        client = self.client(front)
        client.chat(stream=True)
        self.assertEqual(client.head()[0], 200)
        self.assertEqual(client.piece(), b": ping\n\n")
        heard.set()
        [*_, last] = [piece for piece in client.pieces_to_the_cut() if piece != b": ping\n\n"]
        error = json.loads(last.removeprefix(b"data: "))["error"]
        self.assertEqual((error["code"], set(error)), ("all_providers_failed", {"message", "type", "param", "code"}))
        row = front.rows(1)[0]
        self.assertEqual((row["exit"], row["status"], row["state"]), ("failed", 503, "unresolved"))
