"""The official `openai` client against the gateway: what its users see must not differ from a direct call."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from unittest import mock

import openai
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

from llmkit.sse import comment
from tests.support.front import (
    DONE,
    END,
    ONE_TRY,
    PATIENCE_S,
    ROLE,
    STREAM_HEAD,
    USAGE_EVENT,
    Answering,
    Front,
    FrontCase,
    LiveFront,
    ShiftedClock,
    Upstream,
    completion,
    either,
    event,
    fleet,
    sse,
    stream,
    whole,
    words,
)
from tests.support.scripted_upstream import Peer, Request, answer, chunk

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    for name in ("weather", "clock")
]
PLAIN: dict[str, Any] = {"trust_env": False, "verify": False}
"""No proxy and no roots to load: everything is on the loopback, without TLS."""

ANSWER = "日本語 🙂 and plain"
REASONING = "first think, then speak"
Call = tuple[str, str, str]
"""Id, name and arguments."""

CALLS = [("call_1", "weather", '{"city": "Zürich"}'), ("call_2", "clock", '{"city": "東京", "quoted": "\\"x\\""}')]
TOOL_CALLS = [
    {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
    for id_, name, arguments in CALLS
]


class City(BaseModel):
    """What `.parse()` is asked for."""

    name: str
    people: int


def tool_deltas() -> Iterable[bytes]:
    """Two parallel calls whose arguments come in pieces of three characters, by turns."""
    for index, (id_, name, _) in enumerate(CALLS):
        function = {"name": name, "arguments": ""}
        yield event({"tool_calls": [{"index": index, "id": id_, "type": "function", "function": function}]})
    for at in range(0, max(len(arguments) for _, _, arguments in CALLS), 3):
        for index, (_, _, arguments) in enumerate(CALLS):
            if piece := arguments[at : at + 3]:
                yield event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})


SPOKEN = [ROLE, *(event({"reasoning_content": text}) for text in REASONING.split(" "))]
SPOKEN += [*(event({"content": character}) for character in ANSWER), event(finish="stop"), USAGE_EVENT, DONE]
CALLED = [event({"role": "assistant", "content": None}), *tool_deltas(), event(finish="tool_calls"), USAGE_EVENT, DONE]


def joined(chunks: Iterable[ChatCompletionChunk]) -> tuple[str, str, list[Call], list[str]]:
    """What a stream says: content, reasoning, tool calls, finish reasons."""
    content, reasoning = "", ""
    finishes: list[str] = []
    calls: dict[int, Call] = {}
    for each in chunks:
        for choice in each.choices:
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            for call in choice.delta.tool_calls or ():
                id_, name, arguments = calls.get(call.index, ("", "", ""))
                function = call.function
                calls[call.index] = (
                    id_ + (call.id or ""),
                    name + ((function and function.name) or ""),
                    arguments + ((function and function.arguments) or ""),
                )
            finishes += [choice.finish_reason] if choice.finish_reason else []
    return content, reasoning, list(calls.values()), finishes


def endless(closed: threading.Event) -> Answering:
    """Says one word and then waits for the gateway to close the connection, which sets `closed`."""

    def reply(peer: Peer, request: Request) -> None:
        peer.send(STREAM_HEAD, sse(ROLE), sse(event({"content": "once"})))
        if peer.closed_within(2):
            closed.set()

    return reply


class OpenAICase(FrontCase):
    """Makes clients."""

    def connect(self, front: Front, *, key: str = "", max_retries: int = 0, **options: Any) -> openai.OpenAI:
        """A client of the gateway, as a user makes it."""
        client = openai.OpenAI(
            base_url=front.base_url,
            api_key=key or front.key,
            max_retries=max_retries,
            timeout=PATIENCE_S,
            http_client=openai.DefaultHttpxClient(**PLAIN),
            **options,
        )
        self.addCleanup(client.close)
        return client

    def both(self, front: LiveFront) -> tuple[openai.OpenAI, openai.OpenAI]:
        """A client of the upstream, and one of the gateway."""
        return self.connect(front).with_options(base_url=front.upstream.url), self.connect(front)


class AnswerTest(OpenAICase):
    def test_a_plain_answer_is_that_of_a_direct_call(self) -> None:
        """Content, reasoning, usage and fields that no client knows."""
        body = {**completion(ANSWER, reasoning_content=REASONING), "system_fingerprint": "fp", "vendor": {"x": [1]}}
        direct, through = (
            client.chat.completions.create(model="gw-mini", messages=HI) for client in self.both(self.live(whole(body)))
        )
        self.assertEqual(through.to_dict(), direct.to_dict())
        self.assertEqual(through.choices[0].message.content, ANSWER)
        self.assertEqual(through.usage and through.usage.total_tokens, 12)

    def test_the_request_id_is_that_of_the_row(self) -> None:
        """Header, client property and ledger agree, and the facts are there."""
        front = self.live(whole())
        raw = self.connect(front).chat.completions.with_raw_response.create(model="mini", messages=HI)
        (row,) = front.rows(1)
        self.assertEqual(raw.headers["x-request-id"], row["request_id"])
        self.assertEqual(raw.parse()._request_id, row["request_id"])
        self.assertEqual(raw.headers["x-gateway-cost-usd"], "0.000027")

    def test_a_stream_is_that_of_a_direct_call(self) -> None:
        """Content and reasoning, joined; and no usage for a client that did not ask."""
        direct, through = self.both(self.live(stream(*SPOKEN)))
        wanted = joined(direct.chat.completions.create(model="gw-mini", messages=HI, stream=True))
        chunks = list(through.chat.completions.create(model="gw-mini", messages=HI, stream=True))
        self.assertEqual(joined(chunks), wanted)
        self.assertEqual(wanted, (ANSWER, REASONING.replace(" ", ""), [], ["stop"]))
        self.assertTrue(all(chunk.choices and chunk.usage is None for chunk in chunks))

    def test_a_stream_ends_with_usage_and_cost_if_asked(self) -> None:
        """One chunk without choices, the last; the cost beside the counts."""
        client = self.connect(front := self.live(stream(*SPOKEN)))
        *chunks, last = client.chat.completions.create(
            model="mini", messages=HI, stream=True, stream_options={"include_usage": True}
        )
        self.assertTrue(all(chunk.choices and chunk.usage is None for chunk in chunks))
        assert last.usage is not None
        self.assertEqual((last.choices, last.usage.prompt_tokens, last.usage.completion_tokens), ([], 7, 5))
        self.assertEqual(last.usage.model_dump()["cost_usd"], 0.000027)
        self.assertEqual(front.rows(1)[0]["cost_nanousd"], 27_000)

    def test_the_stream_helper_sees_every_delta(self) -> None:
        """It skips chunks whose form it does not know, so all must have it."""
        front = self.live(stream(*SPOKEN))
        with self.connect(front).chat.completions.stream(model="mini", messages=HI) as events:
            deltas = [each.delta for each in events if each.type == "content.delta"]
            message = events.get_final_completion().choices[0].message
        self.assertEqual(deltas, ["", *ANSWER])
        self.assertEqual(message.content, ANSWER)

    def test_parse_gives_an_object(self) -> None:
        """The schema reaches the upstream as it was sent, and the answer comes back as a model."""
        front = self.live(whole(completion('{"name": "Zürich", "people": 448664}')))
        parsed = self.connect(front).chat.completions.parse(model="mini", messages=HI, response_format=City)
        self.assertEqual(parsed.choices[0].message.parsed, City(name="Zürich", people=448664))
        asked = front.upstream.body["response_format"]
        self.assertEqual((asked["type"], asked["json_schema"]["name"]), ("json_schema", "City"))


class ToolTest(OpenAICase):
    def test_a_round_trip_with_tools(self) -> None:
        """Both calls come whole; the messages that answer them reach the upstream untouched and in order."""
        front = self.live(whole(completion(None, tool_calls=TOOL_CALLS)), whole(completion("sunny")))
        client = self.connect(front)
        message = client.chat.completions.create(model="mini", messages=HI, tools=TOOLS).choices[0].message
        self.assertEqual([call.to_dict() for call in message.tool_calls or ()], TOOL_CALLS)
        results: list[ChatCompletionMessageParam] = [
            {"role": "tool", "tool_call_id": id_, "content": f"result of {name}"} for id_, name, _ in CALLS
        ]
        said: Any = message.model_dump(exclude_none=True)
        answer = client.chat.completions.create(model="mini", messages=[*HI, said, *results], tools=TOOLS)
        self.assertEqual(answer.choices[0].message.content, "sunny")
        self.assertEqual(front.upstream.body["messages"], [*HI, said, *results])
        self.assertEqual(front.upstream.body["tools"], TOOLS)

    def test_parallel_calls_of_a_stream_are_those_of_a_direct_call(self) -> None:
        """Arguments that come in pieces and by turns join to the same text."""
        direct, through = self.both(front := self.live(stream(*CALLED)))
        for client in (direct, through):
            chunks = client.chat.completions.create(model="gw-mini", messages=HI, tools=TOOLS, stream=True)
            self.assertEqual(joined(chunks), ("", "", CALLS, ["tool_calls"]))
        with self.connect(front).chat.completions.stream(model="mini", messages=HI, tools=TOOLS) as events:
            calls = events.get_final_completion().choices[0].message.tool_calls or []
        self.assertEqual([(call.id, call.function.name, call.function.arguments) for call in calls], CALLS)


class ErrorTest(OpenAICase):
    def refused(self, client: openai.OpenAI, **fields: Any) -> openai.APIStatusError:
        """The error of a chat that must fail."""
        with self.assertRaises(openai.APIStatusError) as caught:
            client.chat.completions.create(**{"model": "mini", "messages": HI, **fields})
        error = caught.exception
        self.assertTrue(error.message.startswith(f"Error code: {error.status_code} - "))
        self.assertTrue(error.request_id)
        return error

    def test_each_refusal_is_the_class_that_its_users_catch(self) -> None:
        """By status; code, type and param as the contract says. None reaches the upstream."""
        config = '[[tenants]]\nname = "acme"\nmodels = ["mini"]\n[[tenants]]\nname = "other"\nmodels = ["gw-*"]\n'
        front = self.live(whole(), more=config)
        client, other = self.connect(front), self.connect(front, key=front.world.key(tenant="other"))
        for error, kind, code, type_, param in (
            (
                self.refused(self.connect(front, key="sk-wrong")),
                openai.AuthenticationError,
                "invalid_api_key",
                "",
                None,
            ),
            (self.refused(client, model="nope"), openai.NotFoundError, "model_not_found", "", "model"),
            (self.refused(client, messages=[]), openai.BadRequestError, "invalid_request", "", "messages"),
            (self.refused(client, max_tokens=0), openai.BadRequestError, "invalid_request", "", "max_tokens"),
            (self.refused(other), openai.PermissionDeniedError, "model_not_allowed", "permission_error", "model"),
        ):
            self.assertIs(type(error), kind)
            self.assertEqual((error.code, error.type, error.param), (code, type_ or "invalid_request_error", param))
        self.assertEqual(front.upstream.requests, [])

    def test_a_stream_is_refused_by_its_status_too(self) -> None:
        """No 200 is opened before the upstream has said one."""
        front = self.live(
            whole({"error": {"message": "too long", "code": "context_length_exceeded"}}, status="400 Bad")
        )
        error = self.refused(self.connect(front), stream=True)
        self.assertIs(type(error), openai.BadRequestError)
        self.assertEqual(error.code, "context_length_exceeded")
        self.assertIn("too long", error.message)

    def test_a_budget_that_is_used_up_is_not_asked_again(self) -> None:
        """402, and the client is told not to retry, which it otherwise may."""
        front = self.front()
        client = self.connect(front, key=front.world.key("0"), max_retries=3)
        with mock.patch("time.sleep") as sleep:
            error = self.refused(client)
        self.assertEqual((error.status_code, error.code, error.type), (402, "budget_exceeded", "insufficient_quota"))
        self.assertEqual(error.response.headers["x-should-retry"], "false")
        self.assertNotIn("retry-after", error.response.headers)
        sleep.assert_not_called()
        self.assertEqual(len(front.rows(1)), 1)

    def test_a_rate_limit_is_waited_for_as_long_as_it_says(self) -> None:
        """The client sleeps for Retry-After, and its next try is served."""
        clock = ShiftedClock()
        tenant = '[[tenants]]\nname = "acme"\nrate_per_s = 0.05\nburst = 1\n'
        client = self.connect(front := self.live(whole(), more=tenant, clock=clock), max_retries=1)
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            clock.shift_s += seconds

        with mock.patch("time.sleep", sleep):
            for _ in range(2):
                client.chat.completions.create(model="mini", messages=HI)
        (seconds,) = slept
        self.assertTrue(0 < seconds <= 20, seconds)
        self.assertEqual([row["status"] for row in front.rows(3)], [200, 429, 200])

    def test_a_rate_limit_that_stays_is_its_own_class(self) -> None:
        """429 with the gateway's code."""
        tenant = '[[tenants]]\nname = "acme"\nrate_per_s = 0.001\nburst = 1\n'
        client = self.connect(self.live(whole(), more=tenant), max_retries=3)
        client.chat.completions.create(model="mini", messages=HI)
        with mock.patch("time.sleep") as sleep:
            error = self.refused(client)
        self.assertIs(type(error), openai.RateLimitError)
        self.assertEqual((error.code, error.type), ("rate_limit_exceeded", "rate_limit_error"))
        sleep.assert_not_called()
        self.assertTrue(900 < int(error.response.headers["retry-after"]) <= 1000, error.response.headers)

    def test_a_cut_stream_raises(self) -> None:
        """Half an answer is never taken for a whole one."""
        client = self.connect(self.live(stream(*words("half an")[:2])))
        chunks = client.chat.completions.create(model="mini", messages=HI, stream=True)
        self.assertEqual([next(chunks).choices[0].delta.content for _ in range(2)], ["", "half an"])
        with self.assertRaises(openai.APIError) as caught:
            next(chunks)
        self.assertEqual((caught.exception.code, caught.exception.type), ("stream_truncated", "server_error"))


class FailoverTest(OpenAICase):
    """Two upstreams, and what the failures of the first look like in a user's code."""

    def fleet_of(self, first: Answering, second: Answering, **options: Any) -> tuple[Front, list[Upstream]]:
        """A gateway in front of both, which asks each once for a request."""
        upstreams = [self.upstream(first), self.upstream(second)]
        more = options.pop("more", "") + ONE_TRY
        return self.front(fleet(*upstreams, more=more, **options)), upstreams

    def heard(self, client: openai.OpenAI) -> list[tuple[str | None, str]]:
        """Text and finish reason of each way of asking: plain, a stream, the helper."""
        create = client.chat.completions.create
        plain = create(model="mini", messages=HI).choices[0]
        text, _, _, finishes = joined(create(model="mini", messages=HI, stream=True))
        with client.chat.completions.stream(model="mini", messages=HI) as events:
            final = events.get_final_completion().choices[0]
        said = [(plain.message.content, plain.finish_reason), (final.message.content, final.finish_reason)]
        return [*said, (text, ",".join(finishes))]

    def test_a_failure_before_the_first_word_is_not_seen(self) -> None:
        """A refused key, an empty account, a busy server, junk, an answer that breaks off: the other answers."""
        refusals = [
            whole({"error": {"message": "no", "type": code, "code": code}}, status=status)
            for status, code in (
                ("401 No", "invalid_api_key"),
                ("403 No", "x"),
                ("429 No", "insufficient_quota"),
                ("429 Slow", "rate_limit_exceeded"),
                ("500 Oops", "x"),
                ("200 OK", "x"),
            )
        ]
        half = answer(b'{"id": "half', headers="content-type: application/json").replace(b": 12", b": 99")

        def breaks_off(peer: Peer, request: Request) -> None:
            if json.loads(request.body).get("stream"):
                peer.send(STREAM_HEAD, sse(ROLE))
                peer.reset()
            else:
                peer.send(half)

        second = either(completion("other"), *words("other"))
        for first in (*refusals, breaks_off):
            front, (one, two) = self.fleet_of(first, second)
            self.assertEqual(self.heard(self.connect(front)), [("other", "stop")] * 3)
            self.assertEqual({row["exit"] for row in front.rows(3)}, {"failed_over"})
            self.assertTrue(one.requests)
            self.assertEqual(len(two.requests), 3)

    def test_a_failure_after_the_first_word_is_raised_and_not_repeated(self) -> None:
        """The words that came stay, the client does not try again, and nobody begins anew."""

        def breaks_off(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD, sse(ROLE), sse(event({"content": "Hello wor"})), END)

        front, (one, two) = self.fleet_of(breaks_off, stream(*words("Hello world")))
        client = self.connect(front, max_retries=2)
        chunks = client.chat.completions.create(model="mini", messages=HI, stream=True)
        self.assertEqual([next(chunks).choices[0].delta.content for _ in range(2)], ["", "Hello wor"])
        with self.assertRaises(openai.APIError) as caught:
            next(chunks)
        self.assertEqual(caught.exception.code, "stream_truncated")
        said: list[str] = []
        with (
            self.assertRaises(openai.APIError) as caught,
            client.chat.completions.stream(model="mini", messages=HI) as events,
        ):
            said.extend(each.delta for each in events if each.type == "content.delta")
        self.assertEqual((caught.exception.code, "".join(said)), ("stream_truncated", "Hello wor"))
        self.assertEqual((len(one.requests), len(two.requests)), (2, 0))

    def test_when_both_fail_the_error_says_whose_fault_it_is(self) -> None:
        """The request's is told at once and asked of nobody else; an empty account is not asked again."""
        bad = {"message": "bad field", "type": "invalid_request_error", "param": "messages", "code": "some_code"}
        empty = {"message": "quota", "type": "insufficient_quota", "param": None, "code": "insufficient_quota"}
        for status, said, kind, code, calls in (
            ("400 Bad", bad, openai.BadRequestError, "some_code", (1, 0)),
            ("422 Bad", bad, openai.BadRequestError, "some_code", (1, 0)),
            ("429 No", empty, openai.RateLimitError, "insufficient_quota", (1, 1)),
            ("401 No", empty | {"code": "x"}, openai.InternalServerError, "upstream_error", (1, 1)),
            ("500 Oops", bad, openai.InternalServerError, "all_providers_failed", (1, 1)),
        ):
            for streams in False, True:
                fails = whole({"error": said}, status=status)
                front, (one, two) = self.fleet_of(fails, fails)
                with self.assertRaises(openai.APIStatusError) as caught:
                    self.connect(front).chat.completions.create(model="mini", messages=HI, stream=streams)
                self.assertEqual((type(caught.exception), caught.exception.code), (kind, code))
                self.assertEqual((len(one.requests), len(two.requests)), calls)
        front, (one, two) = self.fleet_of(
            whole({"error": empty}, status="429 No"), whole({"error": empty}, status="429")
        )
        with mock.patch("time.sleep") as sleep, self.assertRaises(openai.RateLimitError):
            self.connect(front, max_retries=3).chat.completions.create(model="mini", messages=HI)
        sleep.assert_not_called()

    def test_a_failure_behind_the_head_is_raised(self) -> None:
        """Both upstreams only say that they are busy: a class without a status, and no words."""

        def busy(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD)
            peer.drip(chunk(comment("PROCESSING")))

        front, (one, two) = self.fleet_of(
            busy, busy, more="[server]\nhead_hold_s = 0.05\n", provider="ttft_timeout_s = 0.3"
        )
        chunks = self.connect(front).chat.completions.create(model="mini", messages=HI, stream=True)
        with self.assertRaises(openai.APIError) as caught:
            next(chunks)
        self.assertIs(type(caught.exception), openai.APIError)
        self.assertEqual((caught.exception.code, len(one.requests), len(two.requests)), ("upstream_timeout", 1, 1))


class ModelTest(OpenAICase):
    def test_models_are_listed_and_shown(self) -> None:
        """Only those that the key may use; names with slashes, percent-encoded by the client or not."""
        deployment = '[[deployments]]\nname = "org/big:free"\nprovider = "up"\nmodel = "big"\nprice = "free"\n'
        config = deployment + '[[tenants]]\nname = "acme"\nmodels = ["mini", "org/*"]\n'
        client = self.connect(front := self.live(whole(), more=config))
        listed = {model.id: model for model in client.models.list()}
        self.assertEqual(list(listed), ["mini", "org/big:free"])
        for name, model in listed.items():
            self.assertEqual(client.models.retrieve(name).to_dict(), model.to_dict())
            self.assertEqual(front.ask("GET", f"/v1/models/{name}").json, model.to_dict())
        for name in ("big", "nope"):
            with self.assertRaises(openai.NotFoundError) as caught:
                client.models.retrieve(name)
            self.assertEqual((caught.exception.code, caught.exception.param), ("model_not_found", "model"))
        with self.assertRaises(openai.AuthenticationError):
            self.connect(front, key="sk-wrong").models.list()


class LeavingTest(OpenAICase):
    def test_a_stream_that_is_closed_early_ends_the_upstream_call(self) -> None:
        """The upstream sees its connection close, and what was said is billed."""
        closed = threading.Event()

        client = self.connect(front := self.live(endless(closed)))
        chunks = client.chat.completions.create(model="mini", messages=HI, stream=True)
        self.assertEqual([next(chunks).choices[0].delta.content for _ in range(2)], ["", "once"])
        chunks.close()
        self.wait(closed)
        (row,) = front.rows(1)
        self.assertEqual((row["exit"], row["state"]), ("client_gone", "settled"))
        self.assertGreater(row["completion_tokens"], 0)


class AsyncTest(OpenAICase):
    def test_the_asynchronous_client_is_served_the_same(self) -> None:
        """A plain answer, a stream, the helper, and an error class."""
        front = self.live(either(completion(ANSWER), *SPOKEN))

        async def use(client: openai.AsyncOpenAI) -> None:
            plain = await client.chat.completions.create(model="mini", messages=HI)
            self.assertEqual(plain.choices[0].message.content, ANSWER)
            chunks = await client.chat.completions.create(model="mini", messages=HI, stream=True)
            self.assertEqual(joined([chunk async for chunk in chunks])[0], ANSWER)
            async with client.chat.completions.stream(model="mini", messages=HI) as events:
                final = await events.get_final_completion()
            self.assertEqual(final.choices[0].message.content, ANSWER)
            with self.assertRaises(openai.AuthenticationError) as caught:
                await client.with_options(api_key="sk-wrong").models.list()
            self.assertEqual(caught.exception.code, "invalid_api_key")

        self.run_async(front, use)

    def test_an_asynchronous_stream_can_be_left(self) -> None:
        """Closing it is leaving."""
        closed = threading.Event()

        async def use(client: openai.AsyncOpenAI) -> None:
            chunks = await client.chat.completions.create(model="mini", messages=HI, stream=True)
            await anext(chunks)
            await chunks.close()

        self.run_async(front := self.live(endless(closed)), use)
        self.wait(closed)
        self.assertEqual(front.rows(1)[0]["exit"], "client_gone")

    def run_async(self, front: Front, use: Callable[[openai.AsyncOpenAI], Awaitable[None]]) -> None:
        """Let `use` have an asynchronous client of the gateway."""

        async def session() -> None:
            http = openai.DefaultAsyncHttpxClient(**PLAIN)
            options: Any = {"max_retries": 0, "timeout": PATIENCE_S, "http_client": http}
            async with openai.AsyncOpenAI(base_url=front.base_url, api_key=front.key, **options) as client:
                await use(client)

        asyncio.run(session())


class UpstreamViewTest(OpenAICase):
    def test_what_a_client_library_adds_stays_at_the_gateway(self) -> None:
        """No header of it travels on, and `extra_body` reaches the upstream as fields of the body."""
        front = self.live(whole())
        client = self.connect(front, organization="org-1", project="proj-1", default_headers={"X-Secret": "s"})
        client.chat.completions.create(
            model="mini", messages=HI, extra_body={"top_k": 5, "guided_json": {"a": None}}, extra_query={"q": "1"}
        )
        (request,) = front.upstream.requests
        self.assertEqual(request.line, "POST /v1/chat/completions HTTP/1.1")
        names = {name for name, _ in request.headers}
        allowed = {"host", "accept-encoding", "content-length", "content-type", "accept", "user-agent"}
        self.assertLessEqual(names, allowed | {"authorization", "traceparent"})
        body = json.loads(request.body)
        self.assertEqual((body["top_k"], body["guided_json"]), (5, {"a": None}))
