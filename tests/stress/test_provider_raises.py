"""A provider adapter that raises what no contract allows, at each of its three methods: a stated end every time."""

import asyncio
import threading
import unittest
from collections.abc import Callable, Mapping
from typing import Any

from gateway.context import Caller
from gateway.errors import GatewayError
from gateway.fake_provider import FakeProvider
from gateway.keys import ShownKey
from gateway.providers import ProviderAnswer, UpstreamCall
from llmkit.money import format_usd
from tests.support.world import CONFIG, RealWorld, chat

PATIENCE_S = 20.0


class Unheard(BaseException):
    """What nobody catches by name."""


SECRET = "sk-upstream-secret"
EXCEPTIONS: tuple[Callable[[], BaseException], ...] = (
    lambda: ValueError(SECRET),
    lambda: KeyError(SECRET),
    lambda: MemoryError(SECRET),
    lambda: RecursionError(SECRET),
    lambda: StopIteration(SECRET),
    lambda: OSError(5, SECRET),
)
BASE_EXCEPTIONS: tuple[Callable[[], BaseException], ...] = (
    lambda: SystemExit(3),
    lambda: KeyboardInterrupt(),
    lambda: asyncio.CancelledError(),
    lambda: Unheard(SECRET),
)
PLACES = ("open", "whole", "next_events 0", "next_events 2")
"""Where it raises: at a call, at a body, at the first event of a stream, after content went out."""


class RaisingProvider:
    """A fake upstream whose adapter raises once at the place it was told, and works otherwise."""

    name = "up"

    def __init__(self) -> None:
        self.fake = FakeProvider([{"text": "hello there friend"}])
        self.place = ""
        self.error: Callable[[], BaseException] = ValueError

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        self.strike("open")
        return RaisingAnswer(self, await self.fake.open(call, caller))

    def strike(self, place: str) -> None:
        if place == self.place:
            self.place = ""
            raise self.error()


class RaisingAnswer:
    def __init__(self, provider: RaisingProvider, answer: ProviderAnswer) -> None:
        self._provider = provider
        self._answer = answer
        self._reads = 0

    async def whole(self) -> bytes:
        self._provider.strike("whole")
        return await self._answer.whole()

    async def next_events(self) -> list[bytes] | None:
        self._provider.strike(f"next_events {self._reads}")
        self._reads += 1
        return await self._answer.next_events()

    def close(self) -> None:
        self._answer.close()


class ProviderRaisesTest(unittest.TestCase):
    """One request that meets the exception, then one that does not, on the same thread."""

    def setUp(self) -> None:
        self.up = RaisingProvider()
        self.world = RealWorld(config=CONFIG + '\n[store]\ndurability = "normal"\n', providers={"up": self.up})
        self.addCleanup(self.world.__exit__)
        self.raw_key = ""

    def test_an_exception_is_an_internal_error_that_says_only_the_id(self) -> None:
        """500 internal_error at every place; the cause is told to the operator alone."""
        for place in PLACES:
            for error in EXCEPTIONS:
                with self.subTest(place=place, error=type(error()).__name__):
                    raised, row = self.ask(place, error)
                    assert isinstance(raised, GatewayError)
                    self.assertEqual((raised.status, raised.code), (500, "internal_error"))
                    self.assertIn(row["request_id"], raised.message)
                    self.assertNotIn(SECRET, raised.message)
                    self.assert_over(place, row)

    def test_a_base_exception_passes_through(self) -> None:
        """It is raised as it is, after the money was resolved and the row written."""
        for place in PLACES:
            for error in BASE_EXCEPTIONS:
                with self.subTest(place=place, error=type(error()).__name__):
                    raised, row = self.ask(place, error)
                    self.assertIs(type(raised), type(error()))
                    self.assert_over(place, row)

    def test_money_whose_outcome_is_unknown_counts(self) -> None:
        """Beside an unresolved hold there is room for another in twice its amount, and in a nano-dollar less not."""
        self.ask("whole", ValueError)
        amount = self.world.shown(self.raw_key)["unresolved_nanousd"]
        for limit, served in ((2 * amount, True), (2 * amount - 1, False)):
            self.raw_key = self.world.key(format_usd(limit))
            self.up.place = "whole"
            with self.assertRaises(GatewayError):
                self.request(stream=False)
            if served:
                self.request(stream=False)
                continue
            with self.assertRaises(GatewayError) as refused:
                self.request(stream=False)
            self.assertEqual((refused.exception.status, refused.exception.code), (402, "budget_exceeded"))

    def ask(self, place: str, error: Callable[[], BaseException]) -> tuple[BaseException, Mapping[str, Any]]:
        """Meet `error` at `place` on a thread of its own, which must then serve another request; what was raised, and
        the first request's row.
        """
        self.raw_key = self.world.key("1")
        self.up.place, self.up.error = place, error
        raised: list[BaseException] = []

        def run() -> None:
            for _ in range(2):
                try:
                    self.request(stream=place.startswith("next_events"))
                except BaseException as met:
                    raised.append(met)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(PATIENCE_S)
        self.assertFalse(thread.is_alive())
        self.assertEqual(len(raised), 1, "the second request is served")
        key_id = self.world.books.keys.authenticate(ShownKey.of(self.raw_key)).id
        first, second = self.world.run("ledger.rows", key=key_id)
        self.assertEqual((second["exit"], second["state"]), ("routed", "settled"))
        return raised[0], first

    def request(self, *, stream: bool) -> None:
        if stream:
            for _ in self.world.gateway.stream(self.raw_key, chat(max_tokens=20)):
                pass
        else:
            self.world.gateway.handle(self.raw_key, chat(max_tokens=20))

    def assert_over(self, place: str, row: Mapping[str, Any]) -> None:
        """The outcome is unknown, so the hold goes on counting; once something was produced, that is settled."""
        produced = place == "next_events 2"
        self.assertEqual((row["exit"], row["status"], row["code"]), ("failed", 500, "internal_error"))
        self.assertEqual(row["state"], "settled" if produced else "unresolved")
        shown = self.world.shown(self.raw_key)
        self.assertEqual(shown["held_nanousd"], 0)
        self.assertEqual(shown["unresolved_nanousd"] > 0, not produced)
        self.assertEqual(row["cost_nanousd"] > 0, produced)
        self.assertEqual(row["estimated"], produced)
        self.assertTrue(all(call.closed for call in self.up.fake.calls))
        report = self.world.run("ledger.verify")
        self.assertTrue(report["ok"], report["differences"])
        self.assertEqual(report["open_holds"], 0)
        self.assertEqual(type(self.world.errors[-1]).__name__, type(self.raised_by(place)).__name__)

    def raised_by(self, place: str) -> BaseException:
        """What the operator is told: a StopIteration cannot leave a coroutine as it is."""
        error = self.up.error()
        return RuntimeError() if isinstance(error, StopIteration) else error
