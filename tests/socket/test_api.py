"""What the routes do beside the wire's rules: operators, health, reload, drain, a row and a span per request."""

import json
import threading
from collections.abc import Mapping
from typing import ClassVar
from unittest import mock

from gateway.app import build_gateway
from gateway.config import load
from gateway.places import PlaceLimits
from gateway.readiness import Readiness
from gateway.server import FrontLimits
from gateway.turnstile import Turnstile
from tests.support.front import (
    CHAT,
    CONTROL_SECRET,
    END,
    PATIENCE_S,
    ROLE,
    STOP,
    STREAM_HEAD,
    Front,
    FrontCase,
    Reply,
    event,
    sse,
    stream,
    whole,
    words,
)
from tests.support.scripted_upstream import Peer, Request
from tests.support.world import CONFIG, chat


class OperatorTest(FrontCase):
    def test_the_command_line_is_served_by_its_token(self) -> None:
        """A command with its result; a bad one is told why."""
        front = self.front()
        asked = {"command": "keys.list", "arguments": {}}
        reply = front.ask("POST", "/control", asked, key=CONTROL_SECRET)
        self.assertEqual((reply.status, len(reply.json["result"])), (200, 1))
        for body in ({"command": "nope", "arguments": {}}, {"command": "keys.show", "arguments": {}}, {}, b"{", b"[]"):
            reply = front.ask("POST", "/control", body, key=CONTROL_SECRET)
            self.assertEqual(reply.status, 400)
            self.assertTrue(reply.json["error"])

    def test_for_everybody_else_it_is_not_there(self) -> None:
        """Without the token nothing tells it from any other path; no key opens it, and no other header."""
        front = self.front()
        asked = {"command": "keys.list", "arguments": {}}
        for key in (None, "", CONTROL_SECRET[:-1], CONTROL_SECRET + "c", "C" * 64, "\xff"):
            self.assert_error(front.ask("POST", "/control", asked, key=key), 404, "unknown_url")
        for header in ("x-api-key", "api-key"):
            reply = front.ask("POST", "/control", asked, [(header, CONTROL_SECRET)], key=None)
            self.assert_error(reply, 404, "unknown_url")

    def test_the_token_is_no_key(self) -> None:
        """It opens nothing else."""
        self.assert_error(self.front().chat(key=CONTROL_SECRET), 401, "invalid_api_key")


class HealthTest(FrontCase):
    def test_readiness_says_why_not(self) -> None:
        """503 with the reasons and what an operator wants to see beside them; the process is alive all the same."""
        front = self.front()
        for ready, reasons in (True, []), (False, ["draining", "store not writable"]):
            front.readiness = Readiness(ready, tuple(reasons), {"unresolved_usd": "1.5"})
            for path in "/readyz", "/health/readiness":
                reply = front.ask("GET", path, key=None)
                self.assertEqual((reply.status, reply.json["reasons"]), (200 if ready else 503, reasons))
                self.assertEqual(reply.json["unresolved_usd"], "1.5")
            self.assertEqual(front.ask("GET", "/healthz", key=None).json, {"status": "ok"})

    def test_health_is_answered_when_the_gateway_is_full(self) -> None:
        """A probe must not end a process for being busy; a chat is refused at once."""
        arrived, answer = threading.Event(), threading.Event()

        def waiting(peer: Peer, request: Request) -> None:
            arrived.set()
            self.wait(answer)
            whole()(peer, request)

        front = self.live(waiting, limits=FrontLimits(places=PlaceLimits(places=1, queue=0)))
        client = self.client(front)
        client.chat()
        self.wait(arrived)
        refused = front.chat()
        self.assert_error(refused, 503, "overloaded")
        self.assertEqual(refused.get("retry-after"), "1")
        self.assertEqual(front.ask("GET", "/healthz", key=None).status, 200)
        answer.set()
        self.assertEqual(client.reply().status, 200)


class LifeTest(FrontCase):
    def test_a_reload_counts_from_the_next_request(self) -> None:
        """A stream that runs ends with the gateway it began with."""
        first, go_on = threading.Event(), threading.Event()

        def halting(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD, sse(ROLE), sse(event({"content": "a"})))
            first.set()
            self.wait(go_on)
            peer.send(sse(event({"content": "b"})), sse(STOP), END)

        front = self.live(halting)
        client = self.client(front)
        client.chat(stream=True)
        self.wait(first)
        front.api.gateway = build_gateway(load(CONFIG.replace('"mini"', '"maxi"'), {}), front.world.books)
        self.assert_error(front.chat(), 404, "model_not_found", "model")
        self.assertEqual(front.chat(model="maxi").status, 200)
        go_on.set()
        self.assertEqual(client.reply().text, "ab")

    def test_a_drain_refuses_what_is_new_and_finishes_what_runs(self) -> None:
        """503 draining with Retry-After and the close; health is answered; the stream comes to its end."""
        first, go_on = threading.Event(), threading.Event()

        def halting(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD, sse(ROLE))
            first.set()
            self.wait(go_on)
            peer.send(sse(event({"content": "a"})), sse(STOP), END)

        front = self.live(halting)
        client = self.client(front)
        client.chat(stream=True)
        self.wait(first)
        front.server.stop_admitting()
        reply = front.chat()
        self.assert_error(reply, 503, "draining")
        self.assertEqual((reply.get("retry-after"), reply.get("connection")), ("1", "close"))
        self.assertEqual(front.ask("GET", "/healthz", key=None).status, 200)
        go_on.set()
        reply = client.reply()
        self.assertEqual((reply.text, reply.payloads[-1]), ("a", b"[DONE]"))

    @mock.patch("gateway.server._CUT_GRACE_S", PATIENCE_S)
    def test_a_stream_that_outlives_the_drain_is_told(self) -> None:
        """An error event and no end mark; what was said is billed, the upstream call ends."""
        closed = threading.Event()

        def endless(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD, sse(ROLE), sse(event({"content": "once"})))
            if peer.closed_within(5):
                closed.set()

        front = self.live(endless)
        client = self.client(front)
        client.chat(stream=True)
        self.assertEqual(client.head()[0], 200)
        self.assertTrue(client.piece() and client.piece())
        front.server.stop_admitting()
        front.server.finish(front.world.clock.now_s(), threading.Event())
        (last,) = client.pieces_to_the_cut()
        self.assertEqual(json.loads(last.removeprefix(b"data: "))["error"]["code"], "draining")
        self.wait(closed)
        (row,) = front.rows(1)
        self.assertEqual((row["exit"], row["state"], row["completion_tokens"]), ("failed", "settled", len("once")))

    def test_a_client_of_http_1_0_gets_its_stream(self) -> None:
        """Without chunks; the end is the close."""
        client = self.client(front := self.live(stream(*words("a", "b"))))
        body = json.dumps(chat(stream=True)).encode()
        head = f"POST {CHAT} HTTP/1.0\r\nx-api-key: {front.key}\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sock.sendall(head.encode() + body)
        _, headers = client.head()
        self.assertNotIn("transfer-encoding", dict(headers))
        self.assertTrue(client.rest().endswith(b"data: [DONE]\n\n"))


class FrontRefusalTest(FrontCase):
    """What an answer that the front makes by itself tells of its request."""

    NOTHING_DONE: ClassVar = {"x-gateway-exit": "rejected", "x-gateway-attempts": "0", "x-gateway-cache": "bypass"}

    def assert_facts(self, reply: Reply, status: int, code: str, facts: Mapping[str, str] = NOTHING_DONE) -> None:
        """An error with exactly these facts beside its id."""
        self.assert_error(reply, status, code)
        told = {name: value for name, value in reply.headers if name.startswith("x-gateway-")}
        self.assertEqual(told, facts)

    def refused(self, front: Front, raw: bytes) -> Reply:
        """The answer to bytes as they are."""
        client = self.client(front)
        client.sock.sendall(raw)
        return client.reply()

    def test_what_is_refused_by_the_rules_of_http_was_rejected(self) -> None:
        """A head that is malformed, too large, or late: no call, no cache."""
        front = self.front(limits=FrontLimits(header_timeout_s=0.2))
        for raw, status, code in (
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "invalid_request"),
            (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n", 414, "uri_too_long"),
            (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 100 + b"\r\n", 431, "headers_too_large"),
            (b"GET / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n", 417, "expectation_failed"),
            (b"GET / HTTP/1.1\r\n", 408, "request_timeout"),
        ):
            with self.subTest(code):
                self.assert_facts(self.refused(front, raw), status, code)

    def test_who_finds_no_place_was_rejected(self) -> None:
        """Among the requests, or among the connections."""
        front = self.front(limits=FrontLimits(max_connections=1, places=PlaceLimits(places=1, queue=0)))
        places, client = front.server.places, self.client(front)
        self.assertTrue(places.expect() and places.enter("another"))
        client.chat()
        self.assert_facts(client.reply(), 503, "overloaded")
        self.assert_facts(self.client(front).reply(), 503, "overloaded")
        self.assertIsNone(places.leave("another"))

    def test_a_body_that_cannot_be_read_was_rejected(self) -> None:
        """By a request that has a key: such a refusal has a row, and says the same."""
        front = self.front(limits=FrontLimits(max_body_bytes=10))
        reply = front.chat()
        self.assert_error(reply, 413, "request_too_large")
        self.assertLessEqual(self.NOTHING_DONE.items(), dict(reply.headers).items())
        self.assertEqual(front.rows(1)[0]["exit"], "rejected")

    def failure(self, front: Front) -> Reply:
        """The answer to a chat request that a bug has ended; all is told by then."""
        client = self.client(front)
        client.chat()
        reply = client.reply()
        self.assert_facts(reply, 500, "internal_error", {"x-gateway-exit": "failed"})
        self.assertEqual(client.rest(), b"")
        front.errors.clear()
        return reply

    def test_an_error_of_ours_has_failed(self) -> None:
        """Whether something was called, nobody knows; the operator finds the failure by the id that the client has."""
        front = self.front()
        raises = mock.patch.object(front.api.gateway, "authenticate", side_effect=ZeroDivisionError)
        leaves_unanswered = mock.patch.object(front.api, "_chat", return_value=None)
        for bug in (raises, leaves_unanswered):
            with bug:
                reply = self.failure(front)
            told = json.loads(front.log.getvalue().splitlines()[-1])
            self.assertEqual((told["event"], told["request"]), ("error", reply.get("x-request-id")))

    def test_an_error_of_ours_after_the_row_names_the_row(self) -> None:
        """The answer was paid for, and then could not be given."""
        front = self.live(whole())
        with mock.patch("gateway.api.fact_headers", side_effect=ValueError):
            reply = self.failure(front)
        [row] = front.rows(1)
        self.assertEqual((row["request_id"], row["exit"]), (reply.get("x-request-id"), "routed"))


class RecordTest(FrontCase):
    def test_every_request_of_a_key_has_one_row_and_one_span(self) -> None:
        """Served or refused; ids differ and are those that the clients were told."""
        front = self.live(whole())
        wrong: list[dict[str, object]] = [{"n": 0}, {"model": "nope"}, {"messages": []}]
        replies = [front.chat(), *(front.ask("POST", CHAT, {**chat(), **fields}) for fields in wrong)]
        rows = front.rows(4)
        ids = [reply.get("x-request-id") for reply in replies]
        self.assertEqual([row["request_id"] for row in rows], ids)
        self.assertEqual([(row["exit"], row["status"]) for row in rows[1:]], [("rejected", s) for s in (400, 404, 400)])
        spans = [span for span in front.spans.records() if span.name == "request"]
        self.assertEqual([span.attributes["request_id"] for span in spans], ids)
        self.assertEqual(len(set(ids)), 4)

    def test_a_span_goes_on_with_the_clients_trace(self) -> None:
        """The client's span is its parent; a header that is no trace is none."""
        front = self.live(whole())
        trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
        front.chat([("traceparent", f"00-{trace}-{span}-01")])
        front.chat([("traceparent", "00-junk")])
        first, second = (span for span in front.spans.records() if span.name == "request")
        self.assertEqual((first.trace_id, first.parent_id), (trace, span))
        self.assertNotEqual(second.trace_id, trace)
        self.assertIsNone(second.parent_id)

    def test_a_request_that_is_refused_for_a_header_has_its_row_too(self) -> None:
        """Its key is known by then: a bad header, or a body that is too large."""
        front = self.live(whole(), limits=FrontLimits(max_body_bytes=1000))
        self.assertEqual(front.chat([("x-gateway-timeout-s", "soon")]).status, 400)
        self.assertEqual(front.chat(text="x" * 2000).status, 413)
        self.assertEqual([row["status"] for row in front.rows(2)], [400, 413])

    def test_every_answer_has_a_request_id(self) -> None:
        """Also where the rules of HTTP refuse it, and on the pages for operators."""
        front = self.front()
        for path in "/v1/models", "/v1/nope", "/healthz", "/readyz":
            self.assertTrue(front.ask("GET", path).get("x-request-id"), path)
        self.assertTrue(front.ask("POST", "/control", {}, key=CONTROL_SECRET).get("x-request-id"))
        client = self.client(front)
        client.sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        self.assertTrue(client.reply().get("x-request-id"))

    def test_an_encoded_body_is_refused_before_it_is_read(self) -> None:
        """415 with what is accepted instead, also where one coding of several is plain; the refusal is a row."""
        front = self.front()
        for codings in (["gzip"], ["identity, GZip"], ["identity", "br"], ["x-unknown"]):
            with self.subTest(codings):
                client = self.client(front)
                lines = [f"Content-Encoding: {coding}" for coding in codings]
                head = [f"POST {CHAT} HTTP/1.1", "Host: gw", f"Authorization: Bearer {front.key}", *lines]
                client.sock.sendall("\r\n".join([*head, "Content-Length: 5", "", ""]).encode())
                reply = client.reply()
                self.assert_error(reply, 415, "unsupported_content_encoding", "body")
                self.assertEqual((reply.get("accept-encoding"), reply.get("connection")), ("identity", "close"))
        self.assertEqual([row["status"] for row in front.rows(4)], [415] * 4)

    def test_a_body_that_is_said_to_be_plain_is_taken(self) -> None:
        """In any case, and also where nothing is said."""
        front = self.front()
        for coding in ("identity", "Identity , identity", ""):
            with self.subTest(coding):
                client = self.client(front)
                client.chat([("Content-Encoding", coding)])
                self.assertEqual(client.reply().status, 200)

    def test_a_post_that_says_nothing_of_its_length_is_told_so(self) -> None:
        """411: neither a length nor chunks."""
        reply = self.front().ask("POST", CHAT)
        self.assertEqual((reply.status, reply.error["code"]), (411, "length_required"))


class TurnTest(FrontCase):
    """Clients that were answered without a call, and now need one."""

    def test_who_waits_for_an_upstream_has_no_turn(self) -> None:
        """However few may have one: with a turn kept, the second call would never be made."""
        reached, go_on = threading.Semaphore(0), threading.Event()
        self.addCleanup(go_on.set)

        def slow(peer: Peer, request: Request) -> None:
            reached.release()
            self.wait(go_on)
            whole()(peer, request)

        with mock.patch.object(Turnstile.__init__, "__defaults__", (1,)):
            front = self.live(slow)
        clients = [self.client(front) for _ in range(2)]
        for client in clients:
            client.chat(model="nobody-defined-it")
            self.assertEqual(client.reply().status, 404)
        for client in clients:
            client.chat()
            self.assertTrue(reached.acquire(timeout=PATIENCE_S))
        go_on.set()
        self.assertEqual([client.reply().status for client in clients], [200, 200])
