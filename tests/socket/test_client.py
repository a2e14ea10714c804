"""The client over real loopback sockets: what statuses mean, and how much of an answer is read."""

import gzip
import json
import os
import threading
import time
import tracemalloc
import unittest
import zlib
from collections.abc import Mapping
from contextlib import closing
from email.utils import formatdate
from unittest.mock import patch

from llmkit.client import OpenAICompatClient, Timeouts, UpstreamAnswer, approx_tokens, messages_tokens
from llmkit.errors import TOO_LARGE, ProviderError
from llmkit.packed import PIECE_BYTES
from llmkit.room import FREE_BYTES, STEP_BYTES, Room
from llmkit.types import Usage
from tests.support.scripted_upstream import (
    Peer,
    PipeCancel,
    Request,
    Script,
    ScriptedUpstream,
    answer,
    chunk,
    stream_head,
)

KEY = "sk-upstream-secret"
NOW_S = 1_700_000_000.0
PATIENT = Timeouts()
HURRIED = Timeouts(idle_s=0.05)
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}


def once(*pieces: bytes) -> Script:
    """Send pieces after one request, then wait for the client to close."""

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(*pieces)
        peer.closed_within(10)

    return script


def in_turn(*answers: bytes) -> Script:
    """One answer per request on one connection, then wait for the client to close."""

    def script(peer: Peer) -> None:
        for data in answers:
            peer.request()
            peer.send(data)
        peer.closed_within(10)

    return script


def event(payload: object) -> bytes:
    """A chunk that holds one event."""
    return chunk(b"data: " + (payload if isinstance(payload, bytes) else json.dumps(payload).encode()) + b"\n\n")


def delta(text: str = "", finish: str | None = None) -> dict[str, object]:
    """One chunk of a chat completion."""
    content = {"content": text} if text else {}
    choice = {"index": 0, "delta": {"role": "assistant"} | content, "logprobs": None, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def every_event(upstream: UpstreamAnswer) -> list[bytes]:
    """The data of all events up to the end of the body."""
    return [data for events in iter(upstream.next_events, None) for data in events]


class ClientTest(unittest.TestCase):
    """What the tests below share."""

    def client(
        self,
        *scripts: Script,
        api_key: str | None = KEY,
        timeouts: Timeouts = PATIENT,
        max_event_bytes: int = 1_048_576,
        max_answer_bytes: int = 33_554_432,
        room: Room | None = None,
    ) -> OpenAICompatClient:
        """A client of an upstream that runs the scripts."""
        upstream = ScriptedUpstream(*scripts)
        self.addCleanup(upstream.close)
        client = OpenAICompatClient(
            upstream.url("/v1"),
            api_key,
            timeouts=timeouts,
            wall_s=lambda: NOW_S,
            max_event_bytes=max_event_bytes,
            max_answer_bytes=max_answer_bytes,
            room=room,
        )
        self.addCleanup(client.close)
        return client

    def refusal(self, data: bytes, timeouts: Timeouts = PATIENT) -> ProviderError:
        """What open() raises for an answer."""
        with self.assertRaises(ProviderError) as caught:
            self.client(once(data), timeouts=timeouts).open(b"{}", stream=False)
        return caught.exception

    def assert_unusable(self, error: ProviderError, why: str) -> None:
        """A malformed answer, sent and seen."""
        self.assertEqual((error.kind, error.sent, error.first_byte_seen), ("malformed", True, True))
        self.assertIn(why, error.message)


class OpenTest(ClientTest):
    """What is sent, and what a 2xx head tells."""

    def sent(self, *, stream: bool = False, client_key: str | None = KEY, **more: object) -> Request:
        """The request that open() makes."""
        seen = []

        def script(peer: Peer) -> None:
            seen.append(peer.request())
            peer.send(answer())

        client = self.client(script, api_key=client_key)
        client.open(b'{"a":1}', stream=stream, **more).close()  # type: ignore[arg-type]
        return seen[0]

    def test_a_call_is_a_post_with_the_key(self) -> None:
        """JSON to chat/completions below the base URL, with the client's key and identity encoding."""
        request = self.sent()
        self.assertEqual((request.line, request.body), ("POST /v1/chat/completions HTTP/1.1", b'{"a":1}'))
        self.assertEqual(request.get("authorization"), f"Bearer {KEY}")
        self.assertEqual(request.get("content-type"), "application/json")
        self.assertEqual(request.get("accept-encoding"), "identity")

    def test_a_call_can_have_a_key_path_and_headers_of_its_own(self) -> None:
        """The key replaces the client's; a stream says what it expects."""
        request = self.sent(stream=True, api_key="other", path="/embeddings?v=1", headers=[("x-request-id", "r-1")])
        self.assertEqual(request.line, "POST /v1/embeddings?v=1 HTTP/1.1")
        self.assertEqual(request.get("authorization"), "Bearer other")
        self.assertEqual(request.get("x-request-id"), "r-1")
        self.assertIn("text/event-stream", request.get("accept") or "")

    def test_without_a_key_no_authorization_is_sent(self) -> None:
        """Local servers need none."""
        self.assertIsNone(self.sent(client_key=None).get("authorization"))

    def test_a_key_cannot_smuggle_a_header(self) -> None:
        """Nothing is sent, and the error does not repeat it."""
        with self.assertRaises(ValueError) as caught:
            self.client(api_key="secret\r\nx: y").open(b"{}", stream=False)
        self.assertNotIn("secret", str(caught.exception))

    def test_the_head_names_the_call_and_its_form(self) -> None:
        """Whatever was asked for: the content type decides."""
        table = [
            ("content-type: application/json\r\nx-request-id: req_1", "req_1", False),
            ("content-type: Text/Event-Stream; charset=utf-8\r\nrequest-id: req_2", "req_2", True),
            ("x-other: text/event-stream", None, False),
            (f"x-request-id: {'r' * 1000}", "r" * 128, False),
        ]
        for headers, request_id, is_event_stream in table:
            with self.subTest(headers), closing(self.opened(answer(headers=headers))) as upstream:
                self.assertEqual((upstream.request_id, upstream.is_event_stream), (request_id, is_event_stream))

    def test_a_content_encoding_is_refused(self) -> None:
        """Nobody asked for one, and its bytes would be relayed as text."""
        for encoding in ("br", "identity, br", "gzip, gzip", "gzip\r\ncontent-encoding: deflate"):
            with self.subTest(encoding):
                error = self.refusal(answer(gzip.compress(b"{}"), headers=f"content-encoding: {encoding}"))
                self.assert_unusable(error, "content encoding")
                self.assertEqual(error.status, 200)
        self.opened(answer(headers="content-encoding: identity")).close()

    def opened(self, data: bytes) -> UpstreamAnswer:
        """The answer that data is the beginning of."""
        return self.client(once(data)).open(b"{}", stream=False)


class RefusalTest(ClientTest):
    """Answers with an error status."""

    def test_the_status_alone_decides_the_kind(self) -> None:
        """Rate limit, credentials, the server, the request itself."""
        kinds = {
            "rate_limit": (429,),
            "auth": (401, 402, 403),
            "server": (408, 500, 501, 502, 503, 504, 529, 599),
            "client": (400, 404, 405, 409, 413, 418, 422, 451, 499),
        }
        for kind, statuses in kinds.items():
            for status in statuses:
                with self.subTest(status):
                    error = self.refusal(answer(status=f"{status} No"))
                    self.assertEqual((error.kind, error.status), (kind, status))
                    self.assertEqual((error.sent, error.first_byte_seen), (True, True))

    def test_a_prompt_that_moderation_refused_is_the_callers_fault(self) -> None:
        """In the form that has a 403 for it; any other 403 is about the credential."""
        for metadata, kind, code in (
            ({"reasons": ["violence"], "flagged_input": "..."}, "client", "content_policy_violation"),
            ({"reasons": ["violence"]}, "auth", None),
            ("flagged_input, reasons", "auth", None),
            (None, "auth", None),
        ):
            body = {"error": {"code": 403, "message": "flagged", "metadata": metadata}}
            with self.subTest(metadata):
                error = self.refusal(answer(json.dumps(body).encode(), status="403 Forbidden"))
                self.assertEqual((error.kind, error.status, error.code), (kind, 403, code))
                self.assertEqual(error.message == "flagged", kind == "client")
        body = {"error": {"code": 401, "metadata": {"reasons": [], "flagged_input": ""}}}
        self.assertEqual(self.refusal(answer(json.dumps(body).encode(), status="401 No")).kind, "auth")

    def test_the_upstreams_words_are_kept_for_the_callers_own_fault(self) -> None:
        """Message, code, param and type; without the key, should they repeat it."""
        body = {"error": {"message": f"bad {KEY}", "type": "invalid_request_error", "param": "model", "code": "c"}}
        error = self.refusal(answer(json.dumps(body).encode(), status="404 Not Found"))
        self.assertEqual(
            (error.message, error.error_type, error.param, error.code),
            ("bad [key]", "invalid_request_error", "model", "c"),
        )

    def test_a_key_that_is_cut_in_two_is_removed_first(self) -> None:
        """A long message is shortened only after the key is out of it."""
        for padding in range(500 - len(KEY), 502, 3):
            body = {"error": {"message": "x" * padding + KEY}}
            self.assertNotIn(KEY[:6], self.refusal(answer(json.dumps(body).encode(), status="400 No")).message)

    def test_the_upstreams_words_are_not_repeated_for_other_faults(self) -> None:
        """Its code is a fact all the same."""
        body = {"error": {"message": "org-123 has no money", "code": "insufficient_quota", "type": "t"}}
        for status in (401, 429, 500):
            with self.subTest(status):
                error = self.refusal(answer(json.dumps(body).encode(), status=f"{status} No"))
                self.assertEqual(
                    (error.message, error.code), (f"the upstream answered HTTP {status}", "insufficient_quota")
                )

    def test_usage_in_an_error_is_a_fact(self) -> None:
        """What failed may still be billed."""
        body = {"error": {"message": "x"}, "usage": {"prompt_tokens": 7, "completion_tokens": 2}}
        error = self.refusal(answer(json.dumps(body).encode(), status="500 No"))
        self.assertEqual(error.usage, Usage(prompt_tokens=7, completion_tokens=2))

    def test_retry_after_is_seconds_or_a_date(self) -> None:
        """Never below zero; milliseconds go first; what makes no sense is nothing."""
        table = [
            ("retry-after: 2", 2.0),
            ("retry-after: 0.5", 0.5),
            ("retry-after: -3", 0.0),
            ("retry-after: 9\r\nretry-after-ms: 1500", 1.5),
            ("retry-after: 9\r\nretry-after-ms: soon", 9.0),
            (f"retry-after: {formatdate(NOW_S + 30, usegmt=True)}", 30.0),
            (f"retry-after: {formatdate(NOW_S - 30, usegmt=True)}", 0.0),
            ("retry-after: later", None),
            ("retry-after: Fri, 31 Dec 99999999999 23:59:59 GMT", None),
            ("retry-after: Fri, 31 Dec 2027 23:59:59 +99999999999999", None),
            ("retry-after: 1e300", 86_400.0),
            ("retry-after-ms: 1e308", 86_400.0),
            ("retry-after:", None),
            ("retry-after: nan", None),
            ("retry-after: inf", None),
            ("retry-after: Tue, 99 Nov 99999 22:13:30 GMT", None),
            ("x-other: 1", None),
        ]
        for headers, seconds in table:
            with self.subTest(headers):
                self.assertEqual(self.refusal(answer(status="429 No", headers=headers)).retry_after_s, seconds)

    def test_a_date_without_a_zone_is_utc(self) -> None:
        """Wherever the caller lives."""
        zone = os.environ.get("TZ")
        self.addCleanup(time.tzset)
        self.addCleanup(os.environ.pop, "TZ")
        if zone is not None:
            self.addCleanup(os.environ.__setitem__, "TZ", zone)
        os.environ["TZ"] = "JST-9"
        time.tzset()
        error = self.refusal(answer(status="429 No", headers="retry-after: Tue, 14 Nov 2023 22:13:30 -0000"))
        self.assertEqual(error.retry_after_s, 10.0)

    def test_a_huge_error_body_is_not_waited_for(self) -> None:
        """Its status was said, and no clock has to fire."""
        closed = threading.Event()

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(b"HTTP/1.1 500 No\r\ncontent-length: 100000000\r\n\r\n" + b"x" * 100_000)
            if peer.closed_within(5):
                closed.set()

        with self.assertRaises(ProviderError) as caught:
            self.client(script).open(b"{}", stream=False)
        self.assertEqual((caught.exception.kind, caught.exception.status), ("server", 500))
        self.assertTrue(closed.wait(5))

    def test_a_broken_error_body_does_not_hide_the_status(self) -> None:
        """Cut, endless, packed, silent, a page, nothing: it is still a 429 that says when to come back."""
        head = "HTTP/1.1 429 No\r\nretry-after: 7\r\n"
        for rest in (
            'content-length: 100\r\n\r\n{"err',
            "content-length: 1000000\r\n\r\n" + "x" * 100_000,
            "transfer-encoding: chunked\r\n\r\njunk\r\n",
            "content-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x08\x00",
            "content-length: 14\r\n\r\n<html>no</html",
            "content-length: 0\r\n\r\n",
        ):
            with self.subTest(rest[:60]):
                error = self.refusal((head + rest).encode("latin-1"), timeouts=HURRIED)
                self.assertEqual((error.kind, error.status, error.retry_after_s), ("rate_limit", 429, 7.0))

    def test_an_error_body_that_drips_is_not_waited_for(self) -> None:
        """The idle clock would never fire, and another deployment could have answered."""
        closed = threading.Event()

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(b"HTTP/1.1 429 No\r\nretry-after: 7\r\ncontent-length: 100000\r\n\r\n{")
            for _ in range(1000):
                if peer.closed_within(0.005):
                    return closed.set()
                peer.send(b" ")
            raise AssertionError("the body was waited for")

        with patch("llmkit.client._ERROR_BODY_S", 0.1), self.assertRaises(ProviderError) as caught:
            self.client(script).open(b"{}", stream=False)
        self.assertEqual((caught.exception.kind, caught.exception.retry_after_s), ("rate_limit", 7.0))
        self.assertTrue(closed.wait(5))

    def test_a_connection_survives_an_error(self) -> None:
        """The body was read to its end, so the next call does not connect again."""

        def script(peer: Peer) -> None:
            for data in (answer(b'{"error":"x"}', status="400 No"), answer(b"{}")):
                peer.request()
                peer.send(data)
            peer.closed_within(10)

        client = self.client(script)
        with self.assertRaises(ProviderError):
            client.open(b"{}", stream=False)
        with closing(client.open(b"{}", stream=False)) as upstream:
            self.assertEqual(upstream.whole(), b"{}")


class WholeTest(ClientTest):
    """Answers that are read as a whole."""

    def whole(self, *pieces: bytes, limit: int = 1000) -> bytes:
        """The body of an answer."""
        with closing(self.client(once(*pieces), max_answer_bytes=limit).open(b"{}", stream=False)) as upstream:
            return upstream.whole()

    def fault(self, *pieces: bytes, limit: int = 1000) -> ProviderError:
        """The error of a body that cannot be read."""
        with self.assertRaises(ProviderError) as caught:
            self.whole(*pieces, limit=limit)
        return caught.exception

    def test_white_space_before_the_body_is_dropped(self) -> None:
        """Blank lines that an upstream sends to stay connected, in however many pieces."""
        chunks = [chunk(piece) for piece in (b"\n", b"\r\n \t", b'\n{"a": 1}', b"\n", b"")]
        self.assertEqual(self.whole(stream_head("application/json"), *chunks), b'{"a": 1}\n')

    def test_an_answer_of_exactly_the_bound_is_read(self) -> None:
        """One more byte is too much, whether or not it was announced."""
        self.assertEqual(len(self.whole(answer(b"x" * 1000))), 1000)
        self.assert_unusable(self.fault(answer(b"x" * 1001)), "1000 bytes")
        self.assert_unusable(self.fault(stream_head(), *[chunk(b"x" * 143)] * 7, chunk(b"")), "1000 bytes")

    def test_a_huge_announced_answer_is_refused_before_it_is_read(self) -> None:
        """100 MB that never come."""
        self.assert_unusable(self.fault(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n"), "1000 bytes")

    def test_an_endless_answer_is_cut_off(self) -> None:
        """Memory stays within the bound, also for blank bytes, and the connection is closed."""
        closed = threading.Event()

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head("application/json"))
            peer.drip(chunk(b" " * 10_000), every_s=0)
            closed.set()

        client = self.client(script, max_answer_bytes=1_000_000)
        with closing(client.open(b"{}", stream=False)) as upstream, self.assertRaises(ProviderError) as caught:
            upstream.whole()
        self.assert_unusable(caught.exception, "1000000 bytes")
        self.assertTrue(closed.wait(10))

    def test_a_large_answer_is_told_from_none_without_end(self) -> None:
        """The one its request may have asked for; the other is the upstream's fault."""
        head, blank, words = stream_head("application/json"), chunk(b" " * 500), chunk(b"x" * 500)
        large = [(answer(b"x" * 1001),), (head, words, words, words)]
        self.assertEqual([self.fault(*pieces).failure for pieces in large], [TOO_LARGE] * 2)
        self.assertNotEqual(self.fault(head, blank, blank, blank).failure, TOO_LARGE)

    def test_blank_bytes_do_not_stop_the_first_byte_clock(self) -> None:
        """They are a sign of life, not the answer."""

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head("application/json"))
            peer.drip(chunk(b"\n"))

        client = self.client(script, timeouts=Timeouts(ttft_s=0.3))
        with closing(client.open(b"{}", stream=False)) as upstream, self.assertRaises(ProviderError) as caught:
            upstream.whole()
        self.assertEqual((caught.exception.kind, caught.exception.clock), ("timeout", "ttft"))


class EventsTest(ClientTest):
    """Answers that are read event by event."""

    def events(self, *pieces: bytes, max_event_bytes: int = 1000, max_answer_bytes: int = 10_000) -> list[bytes]:
        """The data of all events."""
        client = self.client(once(*pieces), max_event_bytes=max_event_bytes, max_answer_bytes=max_answer_bytes)
        with closing(client.open(b"{}", stream=True)) as upstream:
            return every_event(upstream)

    def test_events_come_one_by_one_however_they_were_cut(self) -> None:
        """Several in a chunk, one over several, the last without its blank line."""
        pieces = (b"data: 1\n\nda", b"ta: 2\r\n\r\n: comment\n\ndata:3\ndata: 4\n\ndata: \xc3", b"\xa9\n")
        self.assertEqual(
            self.events(stream_head(), *map(chunk, pieces), chunk(b"")), [b"1", b"2", b"3\n4", "é".encode()]
        )

    def test_events_that_came_together_are_given_together(self) -> None:
        """However their chunks were cut; what comes later is given later."""
        given = threading.Event()

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head() + event(b"1") + chunk(b"data: 2\n\ndata") + chunk(b": 3\n\nda"))
            if not given.wait(10):
                raise AssertionError("what has come was held back")
            peer.send(chunk(b"ta: 4\n\n") + event(b"[DONE]") + chunk(b""))

        with closing(self.client(script).open(b"{}", stream=True)) as upstream:
            self.assertEqual(upstream.next_events(), [b"1", b"2", b"3"])
            given.set()
            self.assertEqual([upstream.next_events() for _ in range(2)], [[b"4", b"[DONE]"], None])

    def test_an_event_is_given_before_the_next_is_sent(self) -> None:
        """Nothing is held back."""
        given = threading.Event()

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head(), event(b"1"))
            if not given.wait(10):
                raise AssertionError("the first event was held back")
            peer.send(event(b"2"), chunk(b""))

        with closing(self.client(script).open(b"{}", stream=True)) as upstream:
            self.assertEqual(upstream.next_events(), [b"1"])
            given.set()
            self.assertEqual([upstream.next_events() for _ in range(3)], [[b"2"], None, None])

    def test_a_cut_stream_is_an_error_after_its_whole_events(self) -> None:
        """Half an event is not given, and the end is not an end."""
        client = self.client(once(stream_head(), event(b"1"), b"100\r\ndata: 2"), timeouts=HURRIED)
        with closing(client.open(b"{}", stream=True)) as upstream:
            self.assertEqual(upstream.next_events(), [b"1"])
            with self.assertRaises(ProviderError):
                upstream.next_events()

    def test_an_endless_line_is_cut_off(self) -> None:
        """By the bound of one event, which comments and blank data lines count towards too."""
        for line in (b"data: " + b"x" * 1000, b"x" * 1100, b": comment\n" * 120, b"data:\n" * 200):
            with self.subTest(line[:10]), self.assertRaises(ProviderError) as caught:
                self.events(stream_head(), chunk(b"data: 1\n\n"), chunk(line))
            self.assert_unusable(caught.exception, "1000 bytes")

    def test_an_endless_stream_is_cut_off(self) -> None:
        """By the bound of an answer, although each event is small."""
        with self.assertRaises(ProviderError) as caught:
            self.events(stream_head(), *[event(b"x" * 500)] * 30)
        self.assert_unusable(caught.exception, "10000 bytes")

    def test_comments_keep_idle_at_bay_but_not_ttft(self) -> None:
        """Before the first event they do not help; after it they do, until the stream ends."""

        def silent_start(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head())
            peer.drip(chunk(b": keep-alive\n\n"))

        client = self.client(silent_start, timeouts=Timeouts(ttft_s=0.3))
        with closing(client.open(b"{}", stream=True)) as upstream, self.assertRaises(ProviderError) as caught:
            upstream.next_events()
        self.assertEqual(caught.exception.clock, "ttft")

        def silent_middle(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head(), event(b"1"))
            for _ in range(120):
                if peer.closed_within(0.01):
                    raise AssertionError("the client left")
                peer.send(chunk(b": keep-alive\n\n"))
            peer.send(event(b"2"), chunk(b""))

        client = self.client(silent_middle, timeouts=Timeouts(ttft_s=1))
        with closing(client.open(b"{}", stream=True)) as upstream:
            self.assertEqual(every_event(upstream), [b"1", b"2"])

    def test_a_stream_that_was_read_leaves_its_connection(self) -> None:
        """Also when the reader stopped at [DONE]."""

        def script(peer: Peer) -> None:
            for _ in range(2):
                peer.request()
                peer.send(stream_head() + event(b"1") + event(b"[DONE]") + chunk(b""))
            peer.closed_within(10)

        client = self.client(script)
        for _ in range(2):
            with closing(client.open(b"{}", stream=True)) as upstream:
                self.assertEqual(upstream.next_events(), [b"1", b"[DONE]"])

    def test_an_end_that_comes_behind_its_mark_is_waited_for(self) -> None:
        """For a moment, so that the connection can be used again."""

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head() + event(b"1") + event(b"[DONE]"))
            if peer.closed_within(0.1):
                raise AssertionError("the client left")
            peer.send(chunk(b""))
            peer.request()
            peer.send(answer(b"{}"))

        client = self.client(script)
        with patch("llmkit.transport.END_S", 10):
            upstream = client.open(b"{}", stream=True)
            self.assertEqual(upstream.next_events(), [b"1", b"[DONE]"])
            upstream.close()
        with closing(client.open(b"{}", stream=False)) as second:
            self.assertEqual(second.whole(), b"{}")

    def test_a_caller_can_leave_and_give_a_deadline(self) -> None:
        """Both reach the transport."""
        cancel = PipeCancel()
        self.addCleanup(cancel.close)
        client = self.client(once(), once(stream_head()))
        with self.assertRaises(ProviderError) as caught:
            client.open(b"{}", stream=True, deadline_s=time.monotonic() + 0.05)
        self.assertEqual(caught.exception.clock, "client")
        with closing(client.open(b"{}", stream=True, cancel=cancel)) as upstream:
            cancel.fire(InterruptedError("gone"))
            with self.assertRaisesRegex(InterruptedError, "gone"):
                upstream.next_events()


class RoomTest(ClientTest):
    """What the answers of many calls may hold of memory altogether."""

    LARGE = b"x" * (FREE_BYTES + 1)

    def test_a_whole_answer_counts_until_it_is_let_go(self) -> None:
        """Closing it gives its connection back, but whoever read it still has it."""
        room = Room(STEP_BYTES)
        client = self.client(once(answer(self.LARGE)), once(answer(self.LARGE)), once(answer(self.LARGE)), room=room)
        first, second, third = (client.open(b"{}", stream=False) for _ in range(3))
        self.assertEqual(first.whole(), self.LARGE)
        first.close()
        self.assertEqual(room.taken, STEP_BYTES)
        with second, self.assertRaises(ProviderError) as caught:
            second.whole()
        self.assert_unusable(caught.exception, "no room")
        first.let_go()
        first.let_go()
        with third:
            self.assertEqual(third.whole(), self.LARGE)
        self.assertEqual(room.taken, 0)

    def test_small_answers_need_no_room(self) -> None:
        """Nor does a stream whose reader lets everything go as it comes, however long it is."""
        room = Room(0)
        small = answer(b"x" * (FREE_BYTES - 1))
        stream = stream_head() + event(b"x" * 10_000) * 100 + chunk(b"")
        client = self.client(in_turn(small, stream, stream), room=room)
        with client.open(b"{}", stream=False) as upstream:
            self.assertEqual(len(upstream.whole()), FREE_BYTES - 1)
        with client.open(b"{}", stream=True) as upstream:
            upstream.let_go()
            self.assertEqual(len(every_event(upstream)), 100)
        with client.open(b"{}", stream=True) as upstream, self.assertRaises(ProviderError) as caught:
            every_event(upstream)
        self.assert_unusable(caught.exception, "no room")

    def test_an_event_that_is_not_complete_counts(self) -> None:
        """It is held by nobody but the reader; what was taken is given back when the answer is let go."""
        room = Room(STEP_BYTES)

        def cut(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head(), chunk(b"data: " + self.LARGE))

        client = self.client(cut, cut, room=room)
        first, second = (client.open(b"{}", stream=True) for _ in range(2))
        for upstream, why in ((first, "whole"), (second, "no room")):
            upstream.let_go()
            with self.assertRaisesRegex(ProviderError, why):
                upstream.next_events()
        self.assertEqual(room.taken, STEP_BYTES)
        first.let_go()
        second.let_go()
        self.assertEqual(room.taken, 0)

    def test_the_calls_for_library_users_leave_nothing_counted(self) -> None:
        """A completion, a stream, and one that fails."""
        room = Room(STEP_BYTES)
        large = json.dumps({**COMPLETION, "padding": "x" * FREE_BYTES}).encode()
        stream = stream_head() + event(delta("x" * FREE_BYTES, "stop")) + event(b"[DONE]") + chunk(b"")
        client = self.client(in_turn(answer(large), stream, answer(self.LARGE)), room=room)
        client.chat(LibraryTest.BODY)
        list(client.stream(LibraryTest.BODY))
        with self.assertRaises(ProviderError):
            client.chat(LibraryTest.BODY)
        self.assertEqual(room.taken, 0)


def packed(body: bytes, *, status: str = "200 OK", more: str = "") -> bytes:
    """An answer whose body is gzip, or says so."""
    return answer(body, status=status, headers=f"content-encoding: gzip{more}")


class PackedTest(ClientTest):
    """Gzip, which nobody asked for."""

    TEXT = json.dumps({"text": "日本語 " * 50_000}).encode()

    def whole(self, data: bytes, **bounds: int) -> bytes:
        """The body of an answer."""
        with self.client(once(data), **bounds).open(b"{}", stream=False) as upstream:  # type: ignore[arg-type]
            return upstream.whole()

    def test_it_is_unpacked(self) -> None:
        """Whatever size and however it comes; the connection is used again."""
        small = gzip.compress(b"{}")
        head = b"HTTP/1.1 200 OK\r\ncontent-encoding: identity, X-GZip\r\ntransfer-encoding: chunked\r\n\r\n"
        pieces = b"".join(chunk(small[at : at + 1]) for at in range(len(small))) + chunk(b"")
        client = self.client(in_turn(packed(gzip.compress(self.TEXT)), head + pieces, packed(small)))
        for body in self.TEXT, b"{}", b"{}":
            with client.open(b"{}", stream=False) as upstream:
                self.assertEqual(upstream.whole(), body)

    def test_events_come_as_they_are_flushed(self) -> None:
        """The next is sent only when the last has been read."""
        read = threading.Semaphore(0)
        packer = zlib.compressobj(wbits=31)

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head("text/event-stream\r\ncontent-encoding: gzip"))
            for number in range(3):
                peer.send(chunk(packer.compress(b"data: %d\n\n" % number) + packer.flush(zlib.Z_SYNC_FLUSH)))
                self.assertTrue(read.acquire(timeout=10))
            peer.send(chunk(packer.flush()) + chunk(b""))

        with self.client(script).open(b"{}", stream=True) as upstream:
            for number in range(3):
                self.assertEqual(upstream.next_events(), [b"%d" % number])
                read.release()
            self.assertIsNone(upstream.next_events())

    def test_what_is_not_packed_to_its_end_is_unusable(self) -> None:
        """Plain, cut, damaged, followed by more, empty, or without an end and nothing in it."""
        good = gzip.compress(self.TEXT)
        named = b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * (PIECE_BYTES + 1)
        for body in self.TEXT, good[:-1], good[:20], good[:-8] + bytes(8), good + b"x", good + good, b"", named:
            with self.subTest(body=body[:20], size=len(body)), self.assertRaises(ProviderError) as caught:
                self.whole(packed(body))
            self.assert_unusable(caught.exception, "content encoding")
            self.assertEqual((caught.exception.status, caught.exception.failure), (200, "content encoding"))

    def test_a_bomb_is_stopped_at_the_bound_of_an_answer(self) -> None:
        """After the piece that passes it."""
        bomb = gzip.compress(b"[" * 100_000_000)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        with self.assertRaises(ProviderError) as caught:
            self.whole(packed(bomb), max_answer_bytes=1_000_000)
        self.assertEqual(caught.exception.failure, TOO_LARGE)
        self.assertLess(tracemalloc.get_traced_memory()[1], 3_000_000)

    def test_an_error_is_read_too(self) -> None:
        """What it says is the client's to know if it is the client's fault; a broken one is still its status."""
        said = {"error": {"message": "bad field", "type": "invalid_request_error", "param": "n", "code": "c"}}
        body = gzip.compress(json.dumps(said).encode())
        error = self.refusal(packed(body, status="400 No"))
        self.assertEqual((error.kind, error.status, error.message, error.param), ("client", 400, "bad field", "n"))
        error = self.refusal(packed(body[:30], status="429 No", more="\r\nretry-after: 7"))
        self.assertEqual((error.kind, error.status, error.retry_after_s), ("rate_limit", 429, 7.0))


class LibraryTest(ClientTest):
    """The two calls for people who use the client on its own."""

    BODY: Mapping[str, object] = {"model": "m", "messages": [{"role": "user", "content": "hé"}]}

    def test_chat_gives_the_completion(self) -> None:
        """As the API documents it; the request is the body and says that it is no stream."""
        seen = []

        def script(peer: Peer) -> None:
            seen.append(json.loads(peer.request().body))
            peer.send(answer(json.dumps(COMPLETION).encode()))

        self.assertEqual(self.client(script).chat(self.BODY), COMPLETION)
        self.assertEqual(seen, [{**self.BODY, "stream": False}])

    def test_chat_refuses_what_is_no_completion(self) -> None:
        """Junk is malformed; a reported error is the server's, with its code; what was counted all the same is told."""
        usage = b'"usage": {"prompt_tokens": 7, "completion_tokens": 2}'
        for body, kind, code in (
            (b"<html>", "malformed", None),
            (b'{"id": "1"}', "malformed", None),
            (b'{"choices": [], %s}' % usage, "malformed", None),
            (b'{"error": {"message": "x", "code": "overloaded"}}', "server", "overloaded"),
            (b'{"error": {"message": "x", "code": "overloaded"}, %s}' % usage, "server", "overloaded"),
        ):
            with self.subTest(body), self.assertRaises(ProviderError) as caught:
                self.client(once(answer(body))).chat(self.BODY)
            self.assertEqual((caught.exception.kind, caught.exception.code), (kind, code))
            self.assertEqual(caught.exception.usage, Usage(7, completion_tokens=2) if usage in body else None)

    def test_chat_refuses_what_is_no_json(self) -> None:
        """Before anything is sent."""
        for value in (float("nan"), "\ud800"):
            with self.subTest(repr(value)), self.assertRaises(ValueError):
                self.client().chat({"model": value})

    def test_stream_gives_the_chunks_and_the_usage_last(self) -> None:
        """If usage was asked for."""
        usage = {"id": "1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
        pieces = [*map(event, (delta("hel"), delta("lo"), delta(finish="stop"), usage, b"[DONE]")), chunk(b"")]
        for options, texts, last in (
            ({"stream_options": {"include_usage": True}}, ["hel", "lo", "", None], 5),
            ({}, ["hel", "lo", ""], None),
        ):
            with self.subTest(options):
                chunks = list(self.client(once(stream_head(), *pieces)).stream({**self.BODY, **options}))
                deltas = [chunk["choices"][0]["delta"] if chunk["choices"] else {"content": None} for chunk in chunks]
                self.assertEqual([delta.get("content", "") for delta in deltas], texts)
                self.assertEqual((chunks[-1].get("usage") or {}).get("total_tokens"), last)

    def test_stream_raises_unless_it_was_finished(self) -> None:
        """A clean end without a finish reason, an error event, junk, and JSON instead of a stream."""
        for pieces, kind in (
            ([stream_head(), event(delta("hel")), chunk(b"")], "malformed"),
            ([stream_head(), event(delta("hel")), event(b"[DONE]"), chunk(b"")], "malformed"),
            ([stream_head(), event(delta("hel")), event(b"junk"), chunk(b"")], "malformed"),
            ([stream_head(), event(delta("hel")), event({"error": {"message": "x"}}), chunk(b"")], "server"),
            ([answer(json.dumps(COMPLETION).encode())], "malformed"),
        ):
            with self.subTest(pieces[1:]), self.assertRaises(ProviderError) as caught:
                list(self.client(once(*pieces)).stream(self.BODY))
            self.assertEqual(caught.exception.kind, kind)

    def test_leaving_a_stream_closes_its_connection(self) -> None:
        """A generator that is closed early stops the upstream."""
        closed = threading.Event()

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head(), event(delta("hel")))
            if peer.closed_within(10):
                closed.set()

        with closing(self.client(script).stream(self.BODY)) as chunks:
            next(chunks)
        self.assertTrue(closed.wait(10))

    def test_the_estimates_come_with_the_client(self) -> None:
        """They are re-exported."""
        self.assertGreater(approx_tokens("hello"), 0)
        self.assertGreater(messages_tokens([{"role": "user", "content": "hello"}]), 0)
