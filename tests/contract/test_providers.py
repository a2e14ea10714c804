"""One contract for every provider, kept by the scripted fake and by the live one over real sockets alike."""

import json
import time
import unittest
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from gateway.config import load
from gateway.config_schema import ProviderConfig, ScriptEntry
from gateway.drive import drive
from gateway.fake_provider import FakeProvider
from gateway.providers import LiveProvider, Provider, ProviderAnswer, UpstreamCall
from gateway.types import Secret
from llmkit.client import OpenAICompatClient, Timeouts
from llmkit.errors import ProviderError, ProviderErrorKind
from llmkit.openai import from_wire
from llmkit.sse import frame
from llmkit.types import Cancel, Pulse
from tests.support.scripted_upstream import Peer, Request, ScriptedUpstream, answer, chunk, stream_head
from tests.support.world import CONFIG

DEPLOYMENT = load(CONFIG, {}).deployments["mini"]
TINY_S = 0.2
USAGE = {"prompt_tokens": 12, "completion_tokens": 34, "total_tokens": 46}
JUNK = b'{"id": "chatcmpl-fake", "choi'
Facts = tuple[ProviderErrorKind, bool, bool, int | None, float | None, str | None]


class PatientCaller:
    """A client that never leaves and for which no time passes."""

    cancel: Cancel | None = None
    pulse: Pulse | None = None

    def will_wait(self, head_until_s: float | None) -> None: ...

    async def start(self) -> None: ...

    async def send(self, *frames: bytes) -> None: ...

    async def finish(self, last: bytes) -> None: ...

    async def pause(self, seconds: float) -> None: ...


def call(*, stream: bool, time_left_s: float | None = None, now_s: float = 0.0) -> UpstreamCall:
    """A call for a short text; streams are asked for usage."""
    body: dict[str, Any] = {"model": "gw-mini", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    deadline_s = None if time_left_s is None else now_s + time_left_s
    return UpstreamCall(
        DEPLOYMENT,
        json.dumps(body).encode(),
        stream,
        0,
        deadline_s,
        time_left_s,
        "00-" + "a" * 32 + "-" + "b" * 16 + "-01",
    )


def facts_of(error: ProviderError) -> Facts:
    """What of a failure decisions are made from."""
    return (error.kind, error.sent, error.first_byte_seen, error.status, error.retry_after_s, error.clock)


def events(opened: ProviderAnswer) -> list[bytes]:
    """Every event up to the clean end."""
    found = []
    while (came := drive(opened.next_events())) is not None:
        found += came
    return found


def deltas(payloads: Sequence[bytes]) -> list[Any]:
    """What a stream says: text, finish reasons and usage, in order."""
    said: list[Any] = []
    for payload in payloads:
        if payload == b"[DONE]":
            said.append("DONE")
            continue
        event = json.loads(payload)
        assert event["object"] == "chat.completion.chunk" and event["model"] == "gw-mini"
        said += [choice["delta"].get("content") for choice in event["choices"] if choice["delta"]]
        said += [f"finish {choice['finish_reason']}" for choice in event["choices"] if choice["finish_reason"]]
        said += [event["usage"]["completion_tokens"]] if event.get("usage") else []
    return said


class ProviderContract(unittest.TestCase):
    """What is promised of any provider; run for each kind of them by the classes below."""

    def script(self, *entries: dict[str, Any]) -> Provider:
        """A provider that answers its calls with `entries`, in order."""
        raise NotImplementedError

    def now_s(self) -> float:
        """The provider's clock."""
        return 0.0

    def open(self, entry: dict[str, Any], *, stream: bool, time_left_s: float | None = None) -> ProviderAnswer:
        """Open the answer to one call."""
        provider = self.script(entry)
        return self.call(provider, call(stream=stream, time_left_s=time_left_s, now_s=self.now_s()))

    def call(self, provider: Provider, made: UpstreamCall) -> ProviderAnswer:
        """Make a call; its answer is closed in the end."""
        opened = drive(provider.open(made, PatientCaller()))
        self.addCleanup(opened.close)
        return opened

    def failure(self, entry: dict[str, Any], *, stream: bool, time_left_s: float | None = None) -> ProviderError:
        """How a call fails, wherever in it."""
        try:
            opened = self.open(entry, stream=stream, time_left_s=time_left_s)
            if stream:
                events(opened)
            else:
                drive(opened.whole())
        except ProviderError as error:
            return error
        raise AssertionError("the call succeeded")

    def test_a_whole_answer_is_one_json_body(self) -> None:
        """With its text and its usage."""
        raw = drive(self.open({"text": "hello there", "usage": USAGE}, stream=False).whole())
        completion = from_wire(raw)
        message = json.loads(raw)["choices"][0]["message"]
        self.assertEqual((message["content"], completion.finish_reasons), ("hello there", ("stop",)))
        self.assertEqual((completion.usage and completion.usage.completion_tokens, completion.raw), (34, raw))

    def test_a_stream_is_its_events_in_order_and_then_nothing(self) -> None:
        """Role, words, finish reason, usage, end mark; and again nothing."""
        opened = self.open({"text": "hello there", "usage": USAGE}, stream=True)
        self.assertEqual(deltas(events(opened)), ["", "hello ", "there", "finish stop", 34, "DONE"])
        self.assertIsNone(drive(opened.next_events()))

    def test_usage_may_be_missing(self) -> None:
        """Then there is none, and no chunk for it."""
        entry = {"text": "hello", "usage": "missing"}
        self.assertIsNone(from_wire(drive(self.open(entry, stream=False).whole())).usage)
        self.assertEqual(deltas(events(self.open(entry, stream=True))), ["", "hello", "finish stop", "DONE"])

    def test_calls_are_answered_in_order(self) -> None:
        """One entry each."""
        provider = self.script({"text": "one"}, {"status": 500}, {"text": "two"})
        first = from_wire(drive(self.call(provider, call(stream=False)).whole()))
        with self.assertRaises(ProviderError):
            self.call(provider, call(stream=False))
        second = from_wire(drive(self.call(provider, call(stream=False)).whole()))
        self.assertEqual((first.text_bytes, b'"one"' in first.raw, b'"two"' in second.raw), (3, True, True))

    def test_a_refusal_is_told_by_its_status(self) -> None:
        """Kind and status, before anything is read, streamed or not."""
        kinds = {
            **dict.fromkeys((401, 402, 403), ProviderErrorKind.AUTH),
            **dict.fromkeys((400, 404, 409, 413, 422), ProviderErrorKind.CLIENT),
            **dict.fromkeys((408, 500, 502, 503, 529), ProviderErrorKind.SERVER),
            302: ProviderErrorKind.MALFORMED,
        }
        for status, kind in kinds.items():
            for stream in (False, True):
                with self.subTest(status=status, stream=stream):
                    error = self.failure({"status": status}, stream=stream)
                    self.assertEqual(facts_of(error), (kind, True, True, status, None, None))

    def test_a_rate_limit_says_how_long_to_wait(self) -> None:
        """Or nothing."""
        for given, told in ((2, 2.0), (0.5, 0.5), (0, 0.0), (None, None)):
            with self.subTest(given):
                entry = {"status": 429} | ({} if given is None else {"retry_after": given})
                error = self.failure(entry, stream=False)
                self.assertEqual(facts_of(error), (ProviderErrorKind.RATE_LIMIT, True, True, 429, told, None))

    def test_an_upstreams_words_about_the_request_are_kept(self) -> None:
        """They are the client's to read."""
        self.assertEqual(self.failure({"status": 400, "error": "too long"}, stream=False).message, "too long")

    def test_usage_beside_an_error_is_kept(self) -> None:
        """It is billed."""
        error = self.failure({"status": 500, "usage": USAGE}, stream=False)
        self.assertEqual(error.usage and error.usage.completion_tokens, 34)
        self.assertIsNone(self.failure({"status": 500}, stream=False).usage)

    def test_silence_is_ended_by_a_clock(self) -> None:
        """Sent, and nothing came."""
        for stream in (False, True):
            error = self.failure({"timeout": True}, stream=stream)
            self.assertEqual(facts_of(error), (ProviderErrorKind.TIMEOUT, True, False, None, None, "ttft"))

    def test_the_clients_own_deadline_ends_the_wait(self) -> None:
        """Before any clock of the gateway's."""
        error = self.failure({"text": "late", "latency_s": 60}, stream=False, time_left_s=TINY_S)
        self.assertEqual(facts_of(error), (ProviderErrorKind.TIMEOUT, True, False, None, None, "client"))

    def test_junk_arrives_as_it_was_sent(self) -> None:
        """Whoever reads it decides what it is worth."""
        self.assertEqual(drive(self.open({"malformed": True}, stream=False).whole()), JUNK)
        self.assertEqual(drive(self.open({"malformed": True}, stream=True).next_events()), [JUNK])

    def test_a_cut_stream_gives_what_came_before_the_cut(self) -> None:
        """Then it fails, wherever the cut is: also after the last word."""
        for cut_after, said in ((0, [""]), (1, ["", "a "]), (2, ["", "a ", "b"]), (9, ["", "a ", "b"])):
            with self.subTest(cut_after=cut_after):
                opened = self.open({"text": "a b", "cut_after": cut_after}, stream=True)
                came: list[bytes] = []
                with self.assertRaises(ProviderError) as raised:
                    while (payloads := drive(opened.next_events())) is not None:
                        came += payloads
                self.assertEqual(deltas(came), said)
                expected = (ProviderErrorKind.MALFORMED, True, True, 200, None, None)
                self.assertEqual(facts_of(raised.exception), expected)

    def test_a_cut_answer_is_no_answer(self) -> None:
        """Half of a body is nothing."""
        error = self.failure({"text": "a b", "cut_after": 1}, stream=False)
        self.assertEqual(facts_of(error), (ProviderErrorKind.MALFORMED, True, True, 200, None, None))

    def test_an_answer_can_be_closed_at_any_time_and_again(self) -> None:
        """Unread, half read, read, failed."""
        for entry in ({"text": "a b c"}, {"text": "a b c", "cut_after": 1}):
            for reads in (0, 2, 99):
                with self.subTest(entry=entry, reads=reads):
                    opened = self.open(entry, stream=True)
                    try:
                        for _ in range(reads):
                            if drive(opened.next_events()) is None:
                                break
                    except ProviderError:
                        pass
                    opened.close()
                    opened.close()
        unread = self.open({"text": "a"}, stream=False)
        unread.close()
        unread.close()


class FakeProviderTest(ProviderContract):
    """The scripted fake."""

    def script(self, *entries: dict[str, Any]) -> Provider:
        return FakeProvider(entries)

    def test_a_script_repeats_or_its_last_entry_stays(self) -> None:
        """As it was told."""
        for repeat, texts in ((False, "abbb"), (True, "abab")):
            provider = FakeProvider([{"text": "a"}, {"text": "b"}], repeat=repeat)
            said = [drive(self.call(provider, call(stream=False)).whole()) for _ in range(4)]
            self.assertEqual("".join(json.loads(raw)["choices"][0]["message"]["content"] for raw in said), texts)

    def test_its_meter_counts_what_went_out(self) -> None:
        """A token per word; it bills what it reports if that makes sense, and its own count if not."""
        for usage, billed in ((None, 2), ("missing", 2), (USAGE, 34), ({"prompt_tokens": -1}, 2), ({"x": "y"}, 2)):
            provider = FakeProvider([{"text": "a b"} | ({} if usage is None else {"usage": usage})])
            for stream in (False, True):
                opened = self.call(provider, call(stream=stream))
                self.assertIsNone(provider.calls[-1].billed)
                drive(opened.whole()) if not stream else events(opened)
                metered = provider.calls[-1].billed
                self.assertEqual(metered and metered.completion_tokens, billed)
                self.assertFalse(provider.calls[-1].closed)
                opened.close()
                self.assertTrue(provider.calls[-1].closed)

    def test_its_meter_runs_with_the_stream(self) -> None:
        """The word that was cut off is billed too."""
        provider = FakeProvider([{"text": "a b c d", "cut_after": 2}])
        opened = self.call(provider, call(stream=True))
        with self.assertRaises(ProviderError):
            events(opened)
        metered = provider.calls[0].billed
        self.assertEqual(metered and metered.completion_tokens, 3)

    def test_a_cap_shortens_the_text(self) -> None:
        """And the finish reason says so."""
        provider = FakeProvider([{"text": "a b c"}])
        for name in ("max_tokens", "max_completion_tokens"):
            body = {"model": "gw-mini", "messages": [], "stream": True, name: 2}
            made = UpstreamCall(DEPLOYMENT, json.dumps(body).encode(), stream=True)
            self.assertEqual(deltas(events(self.call(provider, made))), ["", "a ", "b ", "finish length", "DONE"])

    def test_it_reasons_and_calls_tools(self) -> None:
        """Whole and streamed."""
        tool = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
        provider = FakeProvider([{"tool_calls": [tool], "reasoning": "let me see"}])
        choice = json.loads(drive(self.call(provider, call(stream=False)).whole()))["choices"][0]
        message = choice["message"]
        self.assertEqual(
            (message["tool_calls"], message["content"], choice["finish_reason"]), ([tool], None, "tool_calls")
        )
        self.assertEqual(message["reasoning_content"], "let me see")
        sent = [json.loads(payload) for payload in events(self.call(provider, call(stream=True)))[:-1]]
        said = [choice["delta"] for event in sent for choice in event["choices"]]
        self.assertEqual(said[1], {"reasoning_content": "let me see"})
        self.assertEqual(said[2], {"tool_calls": [{"index": 0, **tool}]})

    def test_a_script_may_come_from_a_configuration(self) -> None:
        """Or be written down; an empty one is none."""
        opened = self.call(FakeProvider([ScriptEntry(text="a")]), call(stream=False))
        self.assertIn(b'"a"', drive(opened.whole()))
        with self.assertRaises(ValueError):
            FakeProvider([])


class LiveProviderTest(ProviderContract):
    """The live provider, over loopback sockets to a server that does what the script says."""

    def script(self, *entries: dict[str, Any]) -> Provider:
        return self.live(entries, keys=())

    def live(self, entries: Sequence[dict[str, Any]], *, keys: tuple[str, ...]) -> Provider:
        """A live provider over one connection per entry."""
        self.requests: list[Request] = []
        upstream = ScriptedUpstream(*(self.served(entry) for entry in entries))
        self.addCleanup(upstream.close)
        timeouts = Timeouts(connect_s=5, ttft_s=5, idle_s=5, total_s=5)
        if entries[0].get("timeout"):
            timeouts = Timeouts(connect_s=5, ttft_s=TINY_S, idle_s=5, total_s=5)
        self.client = OpenAICompatClient(upstream.url("/v1"), timeouts=timeouts)
        self.addCleanup(self.client.close)
        return LiveProvider(ProviderConfig(name="up", api_keys=tuple(map(Secret, keys))), self.client)

    def now_s(self) -> float:
        return time.monotonic()

    def served(self, entry: dict[str, Any]) -> Any:
        """A server's side of one connection."""

        def serve(peer: Peer) -> None:
            request = peer.request()
            self.requests.append(request)
            if entry.get("timeout") or entry.get("latency_s"):
                peer.closed_within(10)
            elif "status" in entry:
                peer.send(refusal(entry))
            elif json.loads(request.body)["stream"]:
                serve_stream(peer, entry)
            else:
                serve_whole(peer, entry)

        return serve

    def test_the_call_leaves_with_its_body_its_key_and_its_trace(self) -> None:
        """With the credential that it names; without any there is none."""
        provider = self.live([{"text": "a"}] * 3, keys=("key-one", "key-two"))
        made = call(stream=False)
        for credential in (0, 1, 0):
            drive(self.call(provider, replace(made, credential=credential)).whole())
        self.assertEqual({request.body for request in self.requests}, {made.body})
        self.assertEqual(self.requests[0].line, "POST /v1/chat/completions HTTP/1.1")
        self.assertEqual({request.get("traceparent") for request in self.requests}, {made.traceparent})
        used = [request.get("authorization") for request in self.requests]
        self.assertEqual(used, ["Bearer key-one", "Bearer key-two", "Bearer key-one"])
        drive(self.call(self.script({"text": "a"}), made).whole())
        self.assertIsNone(self.requests[0].get("authorization"))

    def answering(self, reply: bytes, *, stream: bool) -> ProviderAnswer:
        """The open answer to a call to which the upstream sends these bytes, and then hangs up."""

        def serve(peer: Peer) -> None:
            peer.request()
            peer.send(reply)

        upstream = ScriptedUpstream(serve)
        self.addCleanup(upstream.close)
        client = OpenAICompatClient(upstream.url("/v1"))
        self.addCleanup(client.close)
        return self.call(LiveProvider(ProviderConfig(name="up"), client), call(stream=stream))

    def test_json_for_a_stream_is_one_event(self) -> None:
        """For whoever reads events to judge."""
        body = b'{"choices": []}'
        self.assertEqual(events(self.answering(answer(body), stream=True)), [body])

    def test_a_stream_that_nobody_asked_for_is_the_answer_that_was(self) -> None:
        """Its events are joined; an error stays one; of one that is broken off usage is left, if that counts all."""
        head = '"id": "c", "object": "chat.completion.chunk", "created": 5, "model": "m"'

        def told(*said: str) -> bytes:
            payloads = [f"data: {{{head}, {event}}}\n\n".encode() for event in said]
            return drive(
                self.answering(stream_head() + b"".join(map(chunk, payloads)) + chunk(b""), stream=False).whole()
            )

        first = '"choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": null}]'
        last = '"choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": "length"}]'
        choice = json.loads(told(first, last))["choices"][0]
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), ("Hello", "length"))
        self.assertEqual(told(first), b"{}")
        error = '"error": {"message": "busy", "code": "x"}'
        self.assertEqual(json.loads(told(first, error))["error"]["code"], "x")
        counted = '"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}'
        for end in '"choices": []', '"choices": 5', error:
            self.assertEqual(json.loads(told(first, counted, end))["usage"]["completion_tokens"], 2)
            self.assertNotIn("usage", json.loads(told(counted, first, end)))


def refusal(entry: dict[str, Any]) -> bytes:
    """An error answer."""
    headers = "content-type: application/json"
    if "retry_after" in entry:
        headers += f"\r\nretry-after: {entry['retry_after']}"
    body: dict[str, Any] = {"error": {"message": entry.get("error", "no"), "type": "x", "param": None, "code": None}}
    if "usage" in entry:
        body["usage"] = entry["usage"]
    return answer(json.dumps(body).encode(), status=f"{entry['status']} Because", headers=headers)


def serve_whole(peer: Peer, entry: dict[str, Any]) -> None:
    """A whole answer: right, junk, or cut in its middle."""
    message = {"role": "assistant", "content": entry.get("text"), "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "gw-mini"}
    usage = None if entry.get("usage") == "missing" else entry.get("usage")
    raw = JUNK if entry.get("malformed") else json.dumps(head | {"choices": [choice], "usage": usage}).encode()
    sent = answer(raw)
    peer.send(sent[:-9] if "cut_after" in entry else sent)


def serve_stream(peer: Peer, entry: dict[str, Any]) -> None:
    """A stream: right, junk, or cut after so many words."""
    peer.send(stream_head())
    if entry.get("malformed"):
        return peer.send(chunk(frame(JUNK)), chunk(b""))
    words = entry["text"].replace(" ", " \n").split("\n")
    said: list[dict[str, Any]] = [{"delta": {"role": "assistant", "content": ""}}]
    said += [{"delta": {"content": word}} for word in words[: entry.get("cut_after")]]
    if "cut_after" in entry:
        return peer.send(*(chunk(frame(event(choice))) for choice in said))
    said.append({"delta": {}, "finish_reason": "stop"})
    payloads = [event(choice) for choice in said]
    if entry.get("usage", "missing") != "missing":
        payloads.append(event(None, usage=entry["usage"]))
    return peer.send(*(chunk(frame(payload)) for payload in (*payloads, b"[DONE]")), chunk(b""))


def event(choice: dict[str, Any] | None, **fields: Any) -> bytes:
    """One chunk of a stream."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gw-mini"}
    choices = [] if choice is None else [{"index": 0, "logprobs": None, "finish_reason": None} | choice]
    return json.dumps(head | {"choices": choices} | fields).encode()


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: str | None) -> unittest.TestSuite:
    """The suite runs for each provider, not by itself."""
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in (FakeProviderTest, LiveProviderTest))
