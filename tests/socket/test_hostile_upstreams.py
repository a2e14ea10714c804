"""What an upstream can say on the wire that is no answer, and what it tries to make of its connection and its headers.

Seen from the client: told right, at once, and never another tenant's affair.
"""

import gzip
import json
import threading
from typing import Any

from llmkit.http1 import HEAD_LIMIT
from tests.support.front import (
    CHAT,
    ONE_TRY,
    PATIENCE_S,
    PROVIDER_KEY,
    Answering,
    Front,
    FrontCase,
    Reply,
    completion,
    either,
    fleet,
    stream,
    whole,
    words,
)
from tests.support.scripted_upstream import Peer, Request, ScriptedUpstream, answer, chunk, stream_head
from tests.support.world import chat

SOUND = json.dumps(completion()).encode()
HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
GIB = 1 << 30
OWN_HEADERS = ("host", "accept-encoding", "content-length", "content-type", "accept", "user-agent", "traceparent")


def with_head(*lines: bytes, body: bytes = SOUND) -> bytes:
    """An answer of these header lines, whatever they say, and a body."""
    return HEAD + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def length(value: bytes, body: bytes = SOUND) -> bytes:
    """An answer that announces some length."""
    return with_head(b"content-length: " + value, body=body)


JUNK = {
    "gzip that is none": with_head(b"content-encoding: gzip"),
    "gzip that is cut": with_head(b"content-encoding: gzip", body=gzip.compress(SOUND)[:-9]),
    "a decompression bomb": with_head(b"content-encoding: gzip", body=gzip.compress(bytes(40_000_000))),
    "br": with_head(b"content-encoding: br"),
    "an encoding nobody knows": with_head(b"content-encoding: x-unknown"),
    "transfer coding gzip": with_head(b"transfer-encoding: gzip"),
    "transfer codings": with_head(b"transfer-encoding: gzip, chunked", body=chunk(SOUND) + chunk(b"")),
    "chunked and a length": with_head(
        b"transfer-encoding: chunked", b"content-length: 5", body=chunk(SOUND) + chunk(b"")
    ),
    "two lengths": with_head(b"content-length: 5", b"content-length: %d" % len(SOUND)),
    "too high a length": length(b"%d" % (len(SOUND) + 1)),
    "too low a length": length(b"%d" % (len(SOUND) - 1)),
    "ten gibibytes announced": length(b"%d" % (10 * GIB)),
    "a length beyond counting": length(b"9" * 400),
    "a negative length": length(b"-%d" % len(SOUND)),
    "a signed length": length(b"+%d" % len(SOUND)),
    "a hexadecimal length": length(b"0x%x" % len(SOUND)),
    "a length with an underscore": length(b"1_0"),
    "no length at all": length(b""),
    "a signed chunk size": CHUNKED + b"+" + chunk(SOUND) + chunk(b""),
    "a prefixed chunk size": CHUNKED + b"0x" + chunk(SOUND) + chunk(b""),
    "a negative chunk size": CHUNKED + b"-" + chunk(SOUND) + chunk(b""),
    "no last chunk": CHUNKED + chunk(SOUND),
    "half a last chunk": CHUNKED + chunk(SOUND) + b"0\r\n",
    "a chunk of ten gibibytes": CHUNKED + b"%x\r\n" % (10 * GIB) + SOUND,
    "an endless chunk extension": CHUNKED + b"5;" + b"x" * 100_000,
    "an endless trailer": CHUNKED + chunk(SOUND) + b"0\r\n" + b"x: y\r\n" * 20_000,
    "switched protocols": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n" + length(b"%d" % len(SOUND)),
    "interim answers without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
    "interim answers and an end": b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 3,
    "204": b"HTTP/1.1 204 No Content\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(SOUND) + SOUND,
    "an endless status line": b"HTTP/1.1 200 " + b"O" * (HEAD_LIMIT + 1),
    "an endless header": HEAD + b"x: " + b"a" * (HEAD_LIMIT + 1),
    "headers without end": HEAD + b"x: a\r\n" * HEAD_LIMIT,
    "a status that is none": b"HTTP/1.1 2OO OK\r\n\r\n" + SOUND,
    "a status beyond all": b"HTTP/1.1 999 OK\r\n\r\n" + SOUND,
    "HTTP/2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18),
    "HTTP/2 in words": b"HTTP/2 200\r\n\r\n" + SOUND,
    "HTTP/0.9": SOUND,
    "HTTP/1.0, chunked": CHUNKED.replace(b"1.1", b"1.0", 1) + chunk(SOUND) + chunk(b""),
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a NUL in a header": with_head(b"x: a\0b"),
    "a bare CR in a header": with_head(b"x: a\rInjected: 1"),
    "a folded header": with_head(b"x-fold: a", b" b"),
    "a space before the colon": with_head(b"content-length : 5"),
    "a line that is no header": with_head(b"junk"),
    "bare line feeds": with_head().replace(b"\r\n", b"\n"),
    "an empty body": length(b"0", b""),
    "a body of nothing but blanks": length(b"1000", b" " * 1000),
    "no JSON": length(b"4", b"<ok>"),
    "nested without end": length(b"1000000", b"[" * 1_000_000),
    "numbers without end": length(b"1000000", b"1" * 1_000_000),
}
"""Each is followed by the end of the connection."""


SOUND_BUT_ODD = {
    "interim answers first": b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 3 + length(b"%d" % len(SOUND)),
    "ended by the connection": with_head(),
    "HTTP/1.0": with_head().replace(b"1.1", b"1.0", 1),
    "the same length twice": with_head(*[b"content-length: %d" % len(SOUND)] * 2),
    "a longer content than its length": length(b"%d" % len(SOUND), SOUND + b"more"),
    "chunk extensions and trailers": CHUNKED + b"%x;a=b\r\n" % len(SOUND) + SOUND + b"\r\n0\r\nx: y\r\n\r\n",
    "an encoding that is none": with_head(b"content-encoding: identity"),
    "gzip": with_head(b"content-encoding: gzip", body=gzip.compress(SOUND)),
    "a media type that is none": with_head().replace(b"application/json", b"\xff/;"),
}


def raw(*pieces: bytes) -> Answering:
    """Sends these bytes and closes."""
    return lambda peer, request: peer.send(*pieces)


class JunkTest(FrontCase):
    """Bytes that are no answer."""

    def test_it_is_502_and_costs_what_it_may(self) -> None:
        """Whole and streamed; nothing stays held, and not a byte of it reaches the client."""
        cases = [(name, streamed) for name in JUNK for streamed in (False, True)]
        front = self.live(*[raw(JUNK[name]) for name, _ in cases])
        for name, streamed in cases:
            with self.subTest(name, streamed=streamed):
                reply = front.chat(stream=streamed)
                self.assert_error(reply, 502, "upstream_error")
                self.assertEqual(reply.get("x-gateway-route"), "mini=malformed")
                self.assertNotIn(b"chatcmpl", reply.body)
        self.assertEqual({(row["state"], row["estimated"]) for row in front.rows(len(cases))}, {("settled", True)})
        self.assertEqual(front.money()[1:], (0, 0))

    def test_the_next_deployment_answers(self) -> None:
        """At once: no clock has to fire."""
        one, two = self.upstream(*map(raw, JUNK.values())), self.upstream(whole())
        front = self.front(fleet(one, two, more=ONE_TRY))
        for name in JUNK:
            with self.subTest(name):
                reply = front.chat()
                self.assertEqual((reply.status, reply.get("x-gateway-route")), (200, "one=malformed, two=ok"))

    def test_what_is_only_odd_is_read(self) -> None:
        """A whole answer is a whole answer."""
        front = self.live(*map(raw, SOUND_BUT_ODD.values()))
        for name in SOUND_BUT_ODD:
            with self.subTest(name):
                self.assertEqual(front.chat().json["choices"], completion()["choices"])


class SmugglingTest(FrontCase):
    """An upstream, or somebody who answers through it, that sends one answer more than was asked for."""

    MINE, YOURS, EVIL = (json.dumps(completion(text)).encode() for text in ("mine", "yours", "evil"))

    def ask_twice(self, front: Front) -> list[str]:
        """What two tenants are told, one after the other."""
        replies = front.chat(), front.chat(key=front.world.key(tenant="other"))
        return [text_of(reply) for reply in replies]

    def test_bytes_behind_an_answer_are_nobodys(self) -> None:
        """The connection they came over is not used again."""

        def lingering(sent: bytes) -> Answering:
            def reply(peer: Peer, request: Request) -> None:
                peer.send(sent)
                self.assertTrue(peer.closed_within(PATIENCE_S))

            return reply

        for first in (answer(self.MINE), stream_head("application/json") + chunk(self.MINE) + chunk(b"")):
            one = self.upstream(lingering(first + answer(self.EVIL)), whole(self.YOURS))
            self.assertEqual(self.ask_twice(self.front(fleet(one, more=ONE_TRY))), ["mine", "yours"])
            self.assertEqual(len(one.requests), 2)

    def test_an_answer_that_nobody_asked_for_is_nobodys(self) -> None:
        """It came while the connection was idle, which is looked at before it is used again."""
        answered, sent = threading.Event(), threading.Event()

        def reply(peer: Peer, request: Request) -> None:
            peer.send(answer(self.MINE))
            self.wait(answered)
            peer.send(answer(self.EVIL))
            sent.set()
            self.assertTrue(peer.closed_within(PATIENCE_S))

        one = self.upstream(reply, whole(self.YOURS))
        front = self.front(fleet(one, more=ONE_TRY))
        first = front.chat()
        answered.set()
        self.wait(sent)
        second = front.chat(key=front.world.key(tenant="other"))
        self.assertEqual((text_of(first), text_of(second), len(one.requests)), ("mine", "yours", 2))


class HeaderTest(FrontCase):
    """Nothing travels in a header but what is listed, in either direction."""

    UPSTREAMS = (
        "set-cookie: a=b\r\nconnection: x-foo, x-request-id, content-type\r\nx-foo: 1\r\nkeep-alive: timeout=9\r\n"
        "proxy-authenticate: Basic\r\nserver: secret/1.0\r\nx-ratelimit-remaining-requests: 7\r\nlocation: http://x/\r\n"
        "x-gateway-exit: cache_hit\r\nx-gateway-cost-usd: 0\r\nx-request-id: theirs\r\nvia: x\r\n"
        "access-control-allow-origin: *\r\nx-should-retry: true\r\nx-latin: \xff\r\ntrailer: x\r\nupgrade: h2c\r\n"
    )
    CLIENTS = (
        ("Connection", "authorization, content-type, traceparent, content-length, host, accept-encoding, x-hop"),
        ("x-hop", "1"),
        ("Keep-Alive", "timeout=9"),
        ("Proxy-Authorization", "Basic eDp5"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "trailers"),
        ("Accept-Encoding", "gzip, br"),
        ("Forwarded", "host=evil"),
        ("X-Forwarded-Host", "evil"),
        ("X-HTTP-Method-Override", "DELETE"),
        ("User-Agent", "evil"),
        ("Accept", "text/evil"),
        ("x-request-id", "evil"),
        ("tracestate", "evil=1"),
        ("baggage", "evil=1"),
        ("Range", "bytes=0-1"),
        ("If-None-Match", "evil"),
        ("Idempotency-Key", "evil"),
    )
    LINES = "\r\nx-evil: 1\r\n\r\n\0"

    def test_of_an_upstreams_headers_none_reaches_the_client(self) -> None:
        """Whole, streamed and refused: the names are those of an answer without them."""
        refused = whole({"error": {"code": "x"}}, status="400 No")
        for reply, streamed in (
            (whole(), False),
            (stream(*words("hi")), True),
            (whole(b"", status="500 Oops"), True),
            (refused, False),
        ):
            plain = self.live(reply).chat(stream=streamed)
            upstream = self.upstream(added(reply, self.UPSTREAMS))
            told = self.front(fleet(upstream, more=ONE_TRY)).chat(stream=streamed)
            self.assertEqual(told.status, plain.status)
            self.assertEqual([name for name, _ in told.headers], [name for name, _ in plain.headers])
            self.assertNotIn("theirs", repr(told.headers))

    def test_of_a_clients_headers_none_reaches_the_upstream(self) -> None:
        """And naming the gateway's own in Connection does not strip them."""
        front = self.live(whole())
        self.assertEqual(front.chat(self.CLIENTS).status, 200)
        (request,) = front.upstream.requests
        self.assert_own_head(front, request)

    def test_no_text_of_a_client_becomes_a_line_of_the_upstreams_request(self) -> None:
        """Line ends and NUL in a model, a user, a tag, a version, a name: refused, or carried as JSON."""
        front = self.live(either(None, *words("hi")))
        evil = "evil" + self.LINES
        fields: list[dict[str, Any]] = [
            {"model": evil},
            {"user": evil},
            {"metadata": {evil: evil}},
            {"messages": [{"role": "user", "content": evil, "name": evil}]},
            {evil: evil},
            {"tags": [evil]},
            {"prompt_version": evil},
            {"stop": evil, "stream": True},
            {"service_tier": evil},
        ]
        for each in fields:
            self.assertIn(front.chat(**each).status, (200, 400, 404), each)
        for name in ("x-request-id", "traceparent", "x-gateway-tags", "x-gateway-prompt-version", "user-agent"):
            client = self.client(front)
            client.request("POST", CHAT, chat(), [*front.bearer(), (name, "evil\rx-evil: 1")])
            self.assertEqual(client.reply().status, 400, name)
        self.assertGreaterEqual(len(front.upstream.requests), 4)
        for request in front.upstream.requests:
            self.assert_own_head(front, request)
            self.assertIsInstance(json.loads(request.body), dict)

    def assert_own_head(self, front: Front, request: Request) -> None:
        """The head is the gateway's own, once each, whatever the client sent."""
        self.assertEqual(request.line, "POST /v1/chat/completions HTTP/1.1")
        self.assertCountEqual([name for name, _ in request.headers], [*OWN_HEADERS, "authorization"])
        self.assertEqual(request.get("authorization"), f"Bearer {PROVIDER_KEY}")
        self.assertEqual(request.get("accept-encoding"), "identity")
        self.assertNotIn("evil", repr(request.headers))


class RedirectTest(FrontCase):
    """3xx is no answer, and leads nowhere."""

    def test_it_is_never_followed(self) -> None:
        """502, no call and no key go elsewhere; it is sickness but no money; the next one answers."""
        canary = ScriptedUpstream()
        self.addCleanup(canary.close)
        for status in (300, 301, 302, 303, 304, 305, 307, 308, 399):
            away = added(whole(b"", status=f"{status} Away"), f"location: {canary.url('/v1/chat/completions')}\r\n")
            with self.subTest(status):
                one = self.upstream(away)
                alone = self.front(fleet(one, more="[breaker]\nthreshold = 1\n[retry]\nmax_retries = 2\n"))
                self.assert_error(alone.chat(stream=bool(status % 2)), 502, "upstream_error")
                self.assertEqual(len(one.requests), 1)
                self.assertEqual(alone.world.gateway.deployment_states(), {"one": "open"})
                self.assertEqual(alone.money(), (0, 0, 0))
        two = self.upstream(either(None, *words("hi")))
        front = self.front(fleet(self.upstream(away), two, more=ONE_TRY))
        for streamed in (False, True):
            self.assertEqual(front.chat(stream=streamed).get("x-gateway-route"), "one=malformed, two=ok")
        self.assertEqual(canary.connections, 0)


def added(reply: Answering, lines: str) -> Answering:
    """The same answer with these header lines, each with its CRLF."""

    def reply_with(peer: Peer, request: Request) -> None:
        send, extra = peer.send, lines.encode("latin-1")

        class Adding(Peer):
            def send(self, *pieces: bytes) -> None:
                head, end, rest = pieces[0].partition(b"\r\n")
                send(head + end + extra + rest, *pieces[1:])

        reply(Adding(peer.sock), request)

    return reply_with


def text_of(reply: Reply) -> str:
    """What a whole answer says."""
    return str(reply.json["choices"][0]["message"]["content"])
