"""The blocking calls of a library user: whole answers, streams, leaving early, and stories that suspend."""

import gc
import json
import math
import select
import socket
import threading
import unittest
import weakref
from collections.abc import Callable, Generator
from typing import Any

from gateway.context import Caller
from gateway.drive import StorySuspendedError, drive
from gateway.engines.threads import StoryStream, ThreadsEngine, pause
from gateway.errors import (
    AllProvidersFailed,
    BudgetExceeded,
    ClientGone,
    GatewayError,
    InvalidApiKey,
    InvalidRequest,
    ModelNotFound,
)
from gateway.fake_provider import FakeProvider
from gateway.providers import ProviderAnswer, UpstreamCall
from llmkit.types import Cancel
from tests.support.world import CONFIG, RealWorld, chat, scripted

PATIENCE_S = 10.0


class Suspends:
    """An effect that gives control away."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class SuspendingProvider:
    """An upstream written for an event loop."""

    name = "up"

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        await Suspends()
        raise AssertionError("the story went on")


class DriveTest(unittest.TestCase):
    """Stories on the calling thread."""

    def test_a_story_is_run_to_its_result(self) -> None:
        """Its exceptions pass through."""

        async def story(result: int) -> int:
            if result < 0:
                raise KeyError(result)
            return result

        self.assertEqual(drive(story(5)), 5)
        with self.assertRaises(KeyError):
            drive(story(-1))

    def test_a_story_that_suspends_is_stopped_by_an_error(self) -> None:
        """It is told first, so that its guards run."""
        guarded = []

        async def story() -> None:
            try:
                await Suspends()
            finally:
                guarded.append(True)

        with self.assertRaises(StorySuspendedError):
            drive(story())
        self.assertEqual(guarded, [True])

    def test_a_story_that_insists_on_suspending_is_stopped_too(self) -> None:
        """Whatever it does with what it was told."""

        async def story() -> None:
            try:
                await Suspends()
            except StorySuspendedError:
                await Suspends()

        insisting = story()
        with self.assertRaises(StorySuspendedError):
            drive(insisting)
        insisting.close()

    def test_a_wait_without_a_client_is_just_that(self) -> None:
        """No time is no wait."""
        pause(0)
        pause(0.001)

    def test_a_request_that_suspends_leaves_no_open_hold(self) -> None:
        """The guard around its money ran; the client hears of an internal error, the operator of the cause."""
        with RealWorld(providers={"up": SuspendingProvider()}) as world:
            raw = world.key("1")
            with self.assertRaises(GatewayError) as raised:
                world.gateway.handle(raw, chat())
            self.assertEqual(raised.exception.code, "internal_error")
            self.assertIsInstance(world.errors[-1], StorySuspendedError)
            self.assertEqual((world.shown(raw)["held_nanousd"], world.rows()[0]["exit"]), (0, "failed"))


class HandleTest(unittest.TestCase):
    """`Gateway.handle`: one whole answer."""

    def setUp(self) -> None:
        self.world = self.enterContext(RealWorld())
        self.raw = self.world.key("1")

    def test_a_result_tells_the_answer_and_how_it_came(self) -> None:
        """Every promised key, and the row agrees."""
        result = self.world.gateway.handle(self.raw, chat())
        expected: dict[str, Any] = {"text": "hello there friend", "cache": "bypass", "tier": "cheap", "provider": "up"}
        expected |= {"deployment": "mini", "attempts": 1, "exit": "routed"}
        self.assertEqual({name: result[name] for name in expected}, expected)
        self.assertEqual(set(result) - set(expected), {"response", "cost_nanousd", "request_id"})
        self.assertEqual(result["response"]["choices"][0]["finish_reason"], "stop")
        [row] = self.world.rows()
        self.assertEqual((row["request_id"], row["cost_nanousd"]), (result["request_id"], result["cost_nanousd"]))
        self.assertGreater(result["cost_nanousd"], 0)
        self.assertIs(type(result["cost_nanousd"]), int)

    def test_a_wish_to_stream_is_not_heard(self) -> None:
        """The call itself says what is wanted."""
        result = self.world.gateway.handle(self.raw, chat(stream=True))
        self.assertEqual(result["text"], "hello there friend")

    def test_an_answer_without_text_has_none(self) -> None:
        """A call of a tool, for one."""
        call = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
        with RealWorld(providers=scripted({"tool_calls": [call]})) as world:
            result = world.gateway.handle(world.key(), chat(tools=[{"type": "function", "function": {"name": "now"}}]))
        self.assertIsNone(result["text"])
        self.assertEqual(result["response"]["choices"][0]["message"]["tool_calls"][0]["id"], "c1")

    def test_errors_are_raised_with_their_facts(self) -> None:
        """Status, code and message."""
        poor = self.world.key("0.000001")
        table: list[tuple[str | None, Any, type[GatewayError]]] = [
            (None, chat(), InvalidApiKey),
            ("sk-gw-x-y", chat(), InvalidApiKey),
            (self.raw, chat() | {"model": "nobody"}, ModelNotFound),
            (self.raw, {}, InvalidRequest),
            (self.raw, None, InvalidRequest),
            (self.raw, chat(temperature=float("nan")), InvalidRequest),
            (self.raw, chat(text="\ud83d"), InvalidRequest),
            (self.raw, chat(extra={1, 2}), InvalidRequest),
            (poor, chat(), BudgetExceeded),
        ]
        for raw, body, kind in table:
            with self.subTest(kind.__name__), self.assertRaises(kind) as raised:
                self.world.gateway.handle(raw, body)
            self.assertEqual((raised.exception.status, raised.exception.code), (kind.status, kind.code))
            self.assertTrue(raised.exception.message)

    def test_a_body_may_hold_what_json_can(self) -> None:
        """Tuples and any text."""
        body = {"model": "mini", "messages": ({"role": "user", "content": "\U0001f642 \x00 \u2028"},)}
        self.assertEqual(self.world.gateway.handle(self.raw, body)["exit"], "routed")


class StreamTest(unittest.TestCase):
    """`Gateway.stream`: an iterator over events."""

    def world(self, *entries: dict[str, Any], config: str = CONFIG) -> RealWorld:
        """A gateway over a script."""
        return self.enterContext(RealWorld(config=config, providers=scripted(*entries) if entries else None))

    def test_a_stream_is_its_events_as_text(self) -> None:
        """Framed as on the wire, one by one, with one end mark."""
        world = self.world()
        events = list(world.gateway.stream(world.key(), chat(stream_options={"include_usage": True})))
        self.assertTrue(all(event.startswith("data: ") and event.endswith("\n\n") for event in events))
        self.assertTrue(all(event.count("\n\n") == 1 for event in events))
        self.assertEqual(events[-1], "data: [DONE]\n\n")
        chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1])
        self.assertEqual(text, "hello there friend")
        self.assertGreater(chunks[-1]["usage"]["completion_tokens"], 0)
        self.assertEqual([row["exit"] for row in world.rows()], ["routed"])

    def test_an_event_is_there_before_the_next_was_asked_for(self) -> None:
        """Nothing is collected first."""
        world = self.world()
        stream = world.gateway.stream(world.key(), chat())
        self.assertIn('"role":"assistant"', next(stream))
        self.assertIn("hello ", next(stream))
        self.assertEqual(world.rows(), [])
        self.assertEqual(len(list(stream)), 4)
        self.assertEqual(list(stream), [])

    def test_a_bad_key_is_refused_at_once(self) -> None:
        """Everything else when the first event is asked for."""
        world = self.world({"status": 500})
        with self.assertRaises(InvalidApiKey):
            world.gateway.stream("sk-gw-x-y", chat())
        stream = world.gateway.stream(world.key(), chat())
        with self.assertRaises(AllProvidersFailed):
            next(stream)
        self.assertEqual(list(stream), [])
        with self.assertRaises(InvalidRequest):
            world.gateway.stream(world.key(), {"x": object()})

    def test_a_cut_stream_ends_with_an_error_and_no_end_mark(self) -> None:
        """As on the wire."""
        world = self.world({"text": "a b c", "cut_after": 2})
        events = list(world.gateway.stream(world.key(), chat()))
        self.assertEqual(json.loads(events[-1][6:])["error"]["code"], "stream_truncated")
        self.assertNotIn("data: [DONE]\n\n", events)

    def test_closing_early_ends_the_request_as_for_a_client_that_left(self) -> None:
        """What was seen is billed; nothing is held when close() returns."""
        upstream = FakeProvider([{"text": "a b c d"}])
        world = self.enterContext(RealWorld(providers={"up": upstream}))
        raw = world.key("1")
        stream = world.gateway.stream(raw, chat(max_tokens=50))
        for _ in range(3):
            next(stream)
        stream.close()  # type: ignore[attr-defined]
        stream.close()  # type: ignore[attr-defined]
        self.assertEqual(list(stream), [])
        [row] = world.rows()
        self.assertEqual(
            (row["exit"], row["status"], row["state"], row["estimated"]), ("client_gone", 499, "settled", True)
        )
        self.assertGreaterEqual(row["completion_tokens"], 2)
        self.assertEqual(world.shown(raw)["held_nanousd"], 0)
        [call] = upstream.calls
        self.assertTrue(call.closed)

    def test_a_stream_that_was_never_begun_is_no_request(self) -> None:
        """Nothing was sent, held or written."""
        world = self.world()
        stream = world.gateway.stream(world.key(), chat())
        stream.close()  # type: ignore[attr-defined]
        world.gateway.stream(world.key(), chat())
        gc.collect()
        self.assertEqual((world.rows(), world.errors), ([], []))

    def test_a_forgotten_stream_is_ended_by_the_reaper(self) -> None:
        """Also when it is found by the collector while its thread holds a lock that the ending needs."""
        written = threading.Event()
        world = self.world({"text": "a b c d"})
        raw = world.key("1")
        ledger, settle = world.books.ledger, world.books.ledger.settle
        lock = threading.Lock()

        async def settle_under_a_lock(*arguments: Any) -> None:
            if not lock.acquire(timeout=PATIENCE_S):
                raise TimeoutError("the story was ended by the thread that holds the lock")
            lock.release()
            await settle(*arguments)
            written.set()

        ledger.settle = settle_under_a_lock  # type: ignore[assignment,method-assign]
        stream: Any = world.gateway.stream(raw, chat())
        next(stream)
        trash = [stream]
        trash.append(trash)  # only the collector can find it
        forgotten = weakref.ref(stream)
        del stream, trash
        with lock:
            gc.collect()
            self.assertIsNone(forgotten())
            self.assertFalse(written.is_set())
        self.assertTrue(written.wait(PATIENCE_S))
        self.assertEqual([row["exit"] for row in world.rows()], ["client_gone"])
        self.assertEqual(world.shown(raw)["held_nanousd"], 0)

    def test_one_story_that_fails_does_not_stop_the_reaper(self) -> None:
        """The next forgotten stream is ended all the same."""
        engine, ended = ThreadsEngine(), threading.Event()

        async def fails(caller: Caller) -> None:
            try:
                await caller.send(b"data: x\n\n")
            except ClientGone as error:
                raise ValueError("a fault of the story") from error

        async def ends(caller: Caller) -> None:
            try:
                await caller.send(b"data: y\n\n")
            finally:
                ended.set()

        for story in (fails, ends):
            self.assertIn("data: ", next(engine.iterate(story)))
        gc.collect()
        self.assertTrue(ended.wait(PATIENCE_S))

    def test_what_a_story_sends_after_its_client_left_is_dropped(self) -> None:
        """It is run to its end."""
        reached = []

        async def story(caller: Caller) -> None:
            try:
                await caller.send(b"data: x\n\n")
            except ClientGone:
                await caller.send(b"data: y\n\n")
                reached.append(True)

        stream: StoryStream = ThreadsEngine().iterate(story)
        next(stream)
        stream.close()
        self.assertEqual((reached, list(stream)), ([True], []))

    def test_an_engine_without_streams_has_no_thread_of_its_own(self) -> None:
        """A front brings its own threads."""
        before = threading.active_count()

        async def story(caller: Caller) -> int:
            return 1

        self.assertEqual(ThreadsEngine().run(story), 1)
        self.assertEqual(threading.active_count(), before)

    def test_a_whole_answer_cannot_be_streamed(self) -> None:
        """That is a fault of the story."""
        for effect in ("start", "send", "finish"):

            async def story(caller: Caller, effect: str = effect) -> None:
                await (caller.start() if effect == "start" else getattr(caller, effect)(b""))

            with self.subTest(effect), self.assertRaises(TypeError):
                ThreadsEngine().run(story)


class OverageTest(unittest.TestCase):
    """An upstream that bills more than its hold."""

    def test_a_deployment_is_flagged_before_the_end_of_a_stream(self) -> None:
        """Whoever has the last byte and asks again meets a deployment that is known for it."""
        usage = {"prompt_tokens": 7, "completion_tokens": 900_000}
        with RealWorld(providers=scripted({"text": "hi", "usage": usage})) as world:
            events = world.gateway.stream(world.key(), chat(max_tokens=10))
            while not next(events).endswith("[DONE]\n\n"):
                self.assertEqual(world.gateway.overbilled, ())
            self.assertEqual(world.gateway.overbilled, ("mini",))
            self.assertEqual(list(events), [])


class PauseTest(unittest.TestCase):
    """A wait that a client can end."""

    def test_a_client_that_leaves_ends_the_wait(self) -> None:
        """With the reason it gives."""
        here, there = socket.socketpair()
        self.addCleanup(here.close)
        there.close()

        class Left:
            fd, mask = here.fileno(), select.POLLRDHUP

            def reason(self) -> Exception | None:
                return ClientGone()

        cancel: Cancel = Left()
        with self.assertRaises(ClientGone):
            pause(PATIENCE_S, cancel)

    def test_a_pulse_beats_while_a_wait_goes_on(self) -> None:
        """Whenever it is due, and at once if it is overdue."""

        class Beats:
            due_s = 0.0
            beats = 0

            def beat(self) -> None:
                self.beats += 1
                self.due_s = 0.0 if self.beats < 3 else math.inf

        pulse = Beats()
        pause(0.001, pulse=pulse)
        self.assertEqual(pulse.beats, 3)

    def test_what_a_beat_raises_ends_the_wait(self) -> None:
        """The client may have left, or the process may drain."""

        class Leaves:
            due_s = 0.0

            def beat(self) -> None:
                raise ClientGone

        with self.assertRaises(ClientGone):
            pause(PATIENCE_S, pulse=Leaves())

    def test_no_wait_needs_no_pulse(self) -> None:
        """Nor one that is never due."""

        class Silent:
            due_s = math.inf

            def beat(self) -> None:
                raise AssertionError("nothing was due")

        pause(0, pulse=Silent())
        pause(0.001, pulse=Silent())


class CallerTest(unittest.TestCase):
    """The clients of a library's user."""

    def test_who_asked_for_a_whole_answer_is_not_streamed_to(self) -> None:
        """That is a fault of the story."""
        actions: tuple[Callable[[Caller], Any], ...] = (
            lambda caller: caller.will_wait(1.0),
            lambda caller: drive(caller.start()),
            lambda caller: drive(caller.send(b"x")),
            lambda caller: drive(caller.finish(b"x")),
        )
        for action in actions:

            async def story(caller: Caller, action: Callable[[Caller], Any] = action) -> None:
                action(caller)

            with self.assertRaises(TypeError):
                ThreadsEngine().run(story)

    def test_who_pulls_has_no_head(self) -> None:
        """It is promised nothing by holding it back, and nothing beats."""

        async def story(caller: Caller) -> None:
            caller.will_wait(0.0)
            self.assertEqual((caller.cancel, caller.pulse), (None, None))
            await caller.pause(0)
            await caller.start()
            await caller.finish(b"data: x\n\n")

        self.assertEqual(list(ThreadsEngine().iterate(story)), ["data: x\n\n"])
