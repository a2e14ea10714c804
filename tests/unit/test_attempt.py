"""What is sent to an upstream, what it can cost at most, and what is known of the call afterwards."""

import json
import unittest
from typing import Any

from gateway.attempt import Attempt, Upstreams, default_cap, predicted_bytes
from gateway.chat import ChatRequest, parse_chat
from gateway.clock import FakeClock
from gateway.config import load
from gateway.config_schema import Config
from gateway.context import Caller, Facts, Options, Principal, RequestContext
from gateway.drive import drive
from gateway.errors import ClientGone, Draining
from gateway.evidence import Evidence, Reach
from gateway.fake_provider import FakeProvider
from gateway.levels import Account
from gateway.providers import ProviderAnswer, UpstreamCall
from gateway.verdict import AttemptFailed, Verdict
from llmkit.errors import ProviderError, ProviderErrorKind
from llmkit.tokens import IMAGE_LOW_BOUND
from llmkit.types import Cancel, Pulse, Usage
from tests.support.world import CONFIG, chat
from tracekit.trace import Tracer

SMALL = CONFIG.replace("max_output_tokens = 16384", "max_output_tokens = 500\ncontext_window = 1000")


def second(**keys: str) -> str:
    """A deployment `other` like `mini`, but for `keys`, as TOML."""
    settings = {"provider": '"up"', "model": '"gw-mini"', "price": "{ input = 1, output = 4 }"} | keys
    return '\n[[deployments]]\nname = "other"\n' + "".join(f"{key} = {value}\n" for key, value in settings.items())


class QuietCaller:
    """A client that waits for ever; it keeps how long it was told to."""

    cancel: Cancel | None = None
    pulse: Pulse | None = None

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def will_wait(self, head_until_s: float | None) -> None: ...

    async def start(self) -> None: ...

    async def send(self, *frames: bytes) -> None: ...

    async def finish(self, last: bytes) -> None: ...

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


class FailingProvider:
    """An upstream whose every call ends in one way."""

    name = "up"

    def __init__(self, outcome: BaseException) -> None:
        self.outcome = outcome
        self.calls: list[UpstreamCall] = []

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        self.calls.append(call)
        raise self.outcome


def request(**fields: Any) -> ChatRequest:
    """A valid request."""
    return parse_chat(json.dumps(chat(**fields)).encode(), Options())


def prepared_all(config: str, *, at_ms: int = 0, **fields: Any) -> list[Attempt]:
    """The attempts for a request on every deployment of a configuration."""
    loaded: Config = load(config, {})
    upstreams = Upstreams({}, loaded.providers, FakeClock())
    return upstreams.prepare(request(**fields), loaded.deployments.values(), at_ms)


def prepared(config: str = CONFIG, *, at_ms: int = 0, **fields: Any) -> Attempt:
    """The attempt for a request on the deployment `mini`."""
    [attempt] = prepared_all(config, at_ms=at_ms, **fields)
    return attempt


def wire(config: str = CONFIG, **fields: Any) -> dict[str, Any]:
    """What is sent for a request."""
    return dict(json.loads(prepared(config, **fields).wire))


class WireTest(unittest.TestCase):
    """The body that leaves."""

    def test_messages_and_tools_leave_untouched(self) -> None:
        """Null, absent and empty content beside tool calls, any role, parts with their details."""
        call = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
        answer = {"role": "tool", "tool_call_id": "c1", "content": "12:00"}
        user = {"role": "user", "content": "time?"}
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
        table: dict[str, list[dict[str, Any]]] = {
            "null content": [user, {"role": "assistant", "content": None, "tool_calls": [call]}, answer],
            "no content": [user, {"role": "assistant", "tool_calls": [call]}, answer],
            "null tool calls": [user, {"role": "assistant", "content": "ok", "tool_calls": None}, user],
            "empty content": [user, {"role": "assistant", "content": ""}, user],
            "developer": [{"role": "developer", "content": "Answer in one word."}, user],
            "parts": [{"role": "user", "content": [{"type": "text", "text": "what is this?"}, image]}],
            "other image": [
                {"role": "user", "content": [{**image, "image_url": {"url": "data:image/png;base64,BBBB"}}]}
            ],
            "text parts": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
            "bare texts": [{"role": "user", "content": ["a", "b"]}],
            "unknown keys": [{"z": 1, "role": "user", "content": "x", "a": {"c": [None, 1.5, True]}}],
            "a smile": [{"role": "user", "content": "x \U0001f642 y é \u2028"}],
        }
        for name, messages in table.items():
            with self.subTest(name):
                sent = wire(messages=messages, tools=None)
                self.assertEqual(json.dumps(sent["messages"]), json.dumps(messages))
                self.assertIsNone(sent["tools"])

    def test_a_surrogate_pair_leaves_as_one_character(self) -> None:
        """In UTF-8, as the escape meant."""
        self.assertIn(
            "x \U0001f642 y".encode(), prepared(messages=[{"role": "user", "content": "x \U0001f642 y"}]).wire
        )

    def test_the_order_of_keys_is_kept(self) -> None:
        """What the gateway adds stands at the end."""
        fields: dict[str, Any] = {
            "seed": 18446744073709551615,
            "temperature": 0.0,
            "z_unknown": {"b": 1, "a": 2},
            "stop": ["\n"],
        }
        sent = wire(**fields)
        self.assertEqual(list(sent), ["model", "messages", *fields, "max_completion_tokens"])
        self.assertEqual({name: sent[name] for name in fields}, fields)

    def test_the_model_is_the_deployments(self) -> None:
        """And what speaks to the gateway, or would steer a client library, stays here."""
        sent = wire(tags=["legal"], private=True, prompt_version="7", cache={"no-store": True}, api_base="http://x")
        self.assertEqual(sent["model"], "gw-mini")
        self.assertEqual(set(sent), {"model", "messages", "max_completion_tokens"})

    def test_one_cap_leaves(self) -> None:
        """The client's own, under the name that the upstream knows; without one the gateway's."""
        self.assertEqual(wire(max_tokens=7)["max_completion_tokens"], 7)
        self.assertNotIn("max_tokens", wire(max_tokens=7))
        self.assertEqual(wire(max_tokens=7, max_completion_tokens=9)["max_completion_tokens"], 9)
        old = CONFIG + 'output_cap_field = "max_tokens"\n'
        self.assertEqual(wire(old, max_completion_tokens=9)["max_tokens"], 9)
        self.assertEqual(wire()["max_completion_tokens"], 16384)

    def test_the_default_cap_leaves_room_for_the_prompt(self) -> None:
        """The smaller of what the model allows and what its window holds, at least one token."""
        deployment = load(SMALL, {}).deployments["mini"]
        self.assertEqual(default_cap(request(), deployment), 500)
        middle = default_cap(request(text="x" * 2400), deployment)
        self.assertTrue(350 < middle < 410, middle)
        self.assertEqual(default_cap(request(text="x" * 9000), deployment), 1)
        self.assertEqual(wire(SMALL, max_tokens=100_000)["max_completion_tokens"], 100_000)

    def test_a_stream_is_asked_for_usage(self) -> None:
        """Other options are kept; none are sent to an upstream that does not know them, or without a stream."""
        self.assertEqual(wire(stream=True)["stream_options"], {"include_usage": True})
        options = {"include_usage": False, "x_other": 1}
        self.assertEqual(
            wire(stream=True, stream_options=options)["stream_options"], {"include_usage": True, "x_other": 1}
        )
        self.assertNotIn("stream_options", wire(stream=False, stream_options=options))
        old = CONFIG.replace('dialect = "fake"', 'dialect = "fake"\nstream_usage = false')
        self.assertNotIn("stream_options", wire(old, stream=True, stream_options=options))


class BoundTest(unittest.TestCase):
    """The most that a call can cost."""

    def test_the_prompt_is_bounded_by_its_bytes(self) -> None:
        """Whatever its tokenizer does with them."""
        for text in ("", "x" * 5000, "日" * 1000, "\n" * 100):
            with self.subTest(text[:3]):
                attempt = prepared(text=text, max_tokens=10)
                self.assertGreaterEqual(attempt.prompt_bound, len(text.encode()))
                self.assertEqual(attempt.bound_nanousd, attempt.prompt_bound * 1000 + 10 * 4000)

    def test_every_choice_has_the_whole_cap(self) -> None:
        """`n` and `best_of` multiply the output."""
        self.assertEqual(prepared(max_tokens=10, n=4).output_bound, 40)
        self.assertEqual(prepared(max_tokens=10, n=2, best_of=5).output_bound, 50)

    def test_a_prediction_is_bounded_by_its_bytes(self) -> None:
        """For each of the choices; none counts nothing."""
        self.assertEqual(predicted_bytes(request()), 0)
        prediction = {"type": "content", "content": "日" * 100}
        one = predicted_bytes(request(prediction=prediction))
        self.assertGreaterEqual(one, 300)
        self.assertEqual(prepared(max_tokens=10, n=3, prediction=prediction).output_bound, 3 * (10 + one))

    def test_a_predicted_output_is_paid_for_beside_the_cap(self) -> None:
        """Its rejected tokens are billed as output."""
        attempt = prepared(max_tokens=10, prediction={"type": "content", "content": "é" * 100})
        self.assertGreaterEqual(attempt.output_bound, 10 + 200)

    def test_an_image_counts_by_its_stated_bound(self) -> None:
        """Not by the length of its base64."""
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 200_000, "detail": "low"}}
        attempt = prepared(messages=[{"role": "user", "content": [image]}])
        self.assertTrue(IMAGE_LOW_BOUND < attempt.prompt_bound < IMAGE_LOW_BOUND + 1000, attempt.prompt_bound)

    def test_the_price_is_the_one_in_force_at_the_start(self) -> None:
        """A deployment whose price is still to come gets no call."""
        dated = CONFIG.replace(
            "price = { input = 1, cached_input = 0.1, output = 4 }",
            'price = [{ from = "2026-01-01T00:00:00Z", input = 1, output = 4 },'
            ' { from = "2026-07-01T00:00:00Z", input = 1, output = 8 }]',
        )
        july_ms = 1_782_864_000_000
        for at_ms, version in ((july_ms - 1, "2026-01-01T00:00:00Z"), (july_ms, "2026-07-01T00:00:00Z")):
            self.assertEqual(prepared(dated, at_ms=at_ms).price.version, version)
        self.assertEqual(prepared_all(dated, at_ms=1_767_225_600_000 - 1), [])
        later = second(price='[{ from = "2026-01-01T00:00:00Z", input = 1, output = 4 }]')
        self.assertEqual([attempt.deployment.name for attempt in prepared_all(CONFIG + later)], ["mini"])

    def test_a_fresh_sheet_of_evidence_knows_only_the_bounds(self) -> None:
        """Nothing was sent yet."""
        attempt = prepared(max_tokens=10)
        self.assertEqual(attempt.evidence(), Evidence(attempt.prompt_bound, 10))
        self.assertIs(attempt.evidence().reach, Reach.NOT_SENT)


class CandidatesTest(unittest.TestCase):
    """Several deployments for one request."""

    def test_candidates_come_in_the_order_they_were_given(self) -> None:
        """Each with a bound at its own price."""
        first, other = prepared_all(CONFIG + second(price="{ input = 2, output = 8 }"), max_tokens=10)
        self.assertEqual((first.deployment.name, other.deployment.name), ("mini", "other"))
        self.assertEqual(other.bound_nanousd, 2 * first.bound_nanousd)

    def test_deployments_that_are_asked_for_the_same_share_its_bytes(self) -> None:
        """A large body is encoded once, whatever it costs at each of them."""
        first, other = prepared_all(CONFIG + second(price="{ input = 2, output = 8 }"))
        self.assertIs(first.wire, other.wire)

    def test_whatever_differs_in_the_body_is_encoded_for_itself(self) -> None:
        """Model, name of the cap, cap, and whether usage is asked for."""
        silent = '[[providers]]\nname = "silent"\ndialect = "fake"\nstream_usage = false\nscript = [{ text = "x" }]\n'
        for keys in (
            {"model": '"gw-other"'},
            {"output_cap_field": '"max_tokens"'},
            {"max_output_tokens": "100"},
            {"provider": '"silent"'},
        ):
            with self.subTest(keys):
                first, other = prepared_all(CONFIG + silent + second(**keys), stream=True)
                self.assertNotEqual(first.wire, other.wire)
        sent = json.loads(other.wire)
        self.assertEqual((sent["model"], "stream_options" in sent), ("gw-mini", False))

    def test_a_file_is_bounded_by_the_window_of_each_deployment(self) -> None:
        """Though they share the bytes."""
        file = {"type": "file", "file": {"file_id": "file-1"}}
        first, other = prepared_all(
            CONFIG + second(context_window="1000000"), max_tokens=5, messages=[{"role": "user", "content": [file]}]
        )
        self.assertIs(first.wire, other.wire)
        self.assertEqual(other.prompt_bound - first.prompt_bound, 1_000_000 - 128_000)


class OpenTest(unittest.TestCase):
    """The call itself."""

    def setUp(self) -> None:
        self.clock = FakeClock(now_s=100.0)
        self.config = load(CONFIG, {})
        self.caller = QuietCaller()
        self.tracer = Tracer()
        self.facts = Facts("req_1")
        self.evidence = Evidence(300, 10)
        self.deadline_s: float | None = None

    def open(self, provider: Any, *, credential: int = 0, **fields: Any) -> ProviderAnswer:
        """Call `provider`."""
        upstreams = Upstreams({"up": provider}, self.config.providers, self.clock)
        asked = request(**fields)
        context = RequestContext(
            principal=Principal("k", "acme", Account("acme", "k", (1, 2, 3)), None),
            raw=b"",
            caller=self.caller,
            options=Options(),
            facts=self.facts,
            started_s=self.clock.now_s(),
            started_ms=0,
            deadline_s=self.deadline_s,
        )
        [attempt] = upstreams.prepare(asked, [self.config.deployments["mini"]], 0)
        with self.tracer.start("attempt") as span:
            return drive(upstreams.open(context, asked, attempt, self.evidence, span, credential=credential))

    def failed(self, outcome: BaseException) -> Verdict:
        """The verdict on a failing call."""
        with self.assertRaises(AttemptFailed) as raised:
            self.open(FailingProvider(outcome))
        self.assertIs(raised.exception.__cause__, outcome)
        return raised.exception.verdict

    def test_an_open_answer_is_a_call_whose_outcome_is_unknown(self) -> None:
        """The facts name who was asked."""
        provider = FakeProvider([{"text": "hello"}])
        answer = self.open(provider, max_tokens=10)
        self.assertIs(self.evidence.reach, Reach.UNKNOWN)
        facts = self.facts
        self.assertEqual((facts.deployment, facts.provider, facts.tier, facts.attempts), ("mini", "up", "cheap", 1))
        self.assertEqual(facts.hops, [])
        answer.close()
        self.assertTrue(provider.calls[0].closed)

    def test_a_failure_leaves_its_facts(self) -> None:
        """In the evidence, in the route and in the span."""
        usage = Usage(prompt_tokens=5, completion_tokens=1)
        verdict = self.failed(
            ProviderError(ProviderErrorKind.SERVER, "x", sent=True, first_byte_seen=True, status=500, usage=usage)
        )
        self.assertEqual((verdict.error.code, verdict.outcome), ("all_providers_failed", "server"))
        self.assertEqual((self.evidence.reach, self.evidence.usage), (Reach.UNBILLED, usage))
        self.assertEqual((self.facts.hops, self.facts.attempts), (["mini=server"], 1))

    def test_a_call_that_failed_unsent_is_not_sent(self) -> None:
        """It carries no money."""
        self.failed(ProviderError(ProviderErrorKind.SERVER, "refused", sent=False, first_byte_seen=False))
        self.assertIs(self.evidence.reach, Reach.NOT_SENT)

    def test_an_answer_that_could_not_be_opened_may_have_been_written(self) -> None:
        """A whole body for a stream, or one in an encoding: nobody saw it, so its bound is the cap."""
        self.failed(ProviderError(ProviderErrorKind.MALFORMED, "no stream", sent=True, first_byte_seen=True))
        self.assertEqual((self.evidence.reach, self.evidence.output_bytes), (Reach.PRODUCED, 10))
        self.setUp()
        self.failed(ProviderError(ProviderErrorKind.SERVER, "x", sent=True, first_byte_seen=True, status=500))
        self.assertIsNone(self.evidence.output_bytes)

    def test_a_client_that_leaves_before_anything_was_sent_owes_nothing(self) -> None:
        """The transport says how far the call got, also when the process drains."""
        for left in (ClientGone(), Draining()):
            for sent, reach in ((False, Reach.NOT_SENT), (True, Reach.UNKNOWN)):
                with self.subTest(left=type(left).__name__, sent=sent):
                    left.__cause__ = ProviderError(ProviderErrorKind.SERVER, "x", sent=sent, first_byte_seen=False)
                    with self.assertRaises(type(left)):
                        self.open(FailingProvider(left))
                    self.assertIs(self.evidence.reach, reach)

    def test_a_client_that_leaves_without_facts_may_owe(self) -> None:
        """What is not known to be unsent counts as sent."""
        with self.assertRaises(ClientGone):
            self.open(FailingProvider(ClientGone()))
        self.assertIs(self.evidence.reach, Reach.UNKNOWN)

    def test_any_other_exception_passes_through(self) -> None:
        """It is a fault of ours; the call may have been sent."""
        with self.assertRaises(ZeroDivisionError):
            self.open(FailingProvider(ZeroDivisionError()))
        self.assertIs(self.evidence.reach, Reach.UNKNOWN)

    def test_the_upstream_is_told_the_deadline_and_the_trace(self) -> None:
        """As an instant, and as the time that is left."""
        provider = FailingProvider(ClientGone())
        self.deadline_s = 103.5
        with self.assertRaises(ClientGone):
            self.open(provider)
        [call] = provider.calls
        self.assertEqual((call.deadline_s, call.time_left_s), (103.5, 3.5))
        self.assertRegex(call.traceparent or "", r"^00-[0-9a-f]{32}-[0-9a-f]{16}-01$")

    def test_a_deadline_ends_the_wait_for_a_slow_upstream(self) -> None:
        """After the time that was left, not after the upstream's."""
        self.deadline_s = 101.5
        with self.assertRaises(AttemptFailed) as failed:
            self.open(FakeProvider([{"text": "late", "latency_s": 60}]))
        self.assertEqual((failed.exception.verdict.error.status, failed.exception.verdict.sick), (504, False))
        self.assertEqual(self.caller.pauses, [1.5])
        self.assertEqual((self.evidence.reach, self.facts.hops), (Reach.UNKNOWN, ["mini=timeout"]))

    def test_the_wait_for_an_upstream_is_not_the_gateways(self) -> None:
        """It is kept apart, whatever became of it."""
        clock = self.clock

        class Slow(FailingProvider):
            async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
                clock.advance(2)
                return await super().open(call, caller)

        with self.assertRaises(ClientGone):
            self.open(Slow(ClientGone()))
        self.assertEqual(self.facts.upstream_s, 2)

    def test_the_upstream_is_told_which_credential_to_use(self) -> None:
        """The first one unless another is named."""
        provider = FailingProvider(ClientGone())
        for credential in (0, 2):
            with self.assertRaises(ClientGone):
                self.open(provider, credential=credential)
        self.assertEqual([call.credential for call in provider.calls], [0, 2])

    def test_every_call_is_counted(self) -> None:
        """And the facts name the deployment that was called last."""
        for attempts in (1, 2):
            self.failed(ProviderError(ProviderErrorKind.SERVER, "x", sent=True, first_byte_seen=True, status=500))
            self.assertEqual(self.facts.attempts, attempts)
        self.assertEqual(self.facts.hops, ["mini=server", "mini=server"])
