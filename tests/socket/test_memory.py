"""What is over is let go at once, not at the next full garbage collection."""

import gc
import unittest
from typing import Any

from gateway.context import RequestContext
from gateway.errors import InvalidRequest, forget
from tests.support.front import CHAT, DONE, ROLE, Answering, FrontCase, event, fleet, stream, whole, words
from tests.support.world import scripted


def contexts() -> list[RequestContext]:
    """Every request that is still in memory."""
    return [held for held in gc.get_objects() if isinstance(held, RequestContext)]


class ForgetTest(unittest.TestCase):
    """Exceptions that were dealt with."""

    def test_an_exception_and_its_causes_keep_no_frame(self) -> None:
        """However they are linked."""
        try:
            try:
                raise ValueError("first")
            except ValueError as first:
                raise InvalidRequest("second") from first
        except InvalidRequest as second:
            caught = second
        forget(caught)
        self.assertIsNone(caught.__traceback__)
        assert caught.__cause__ is not None
        self.assertIsNone(caught.__cause__.__traceback__)


class RefusalMemoryTest(FrontCase):
    """Requests that end in an exception."""

    def test_a_request_that_failed_is_forgotten(self) -> None:
        """Junk, an unknown model, no budget, an upstream that fails or cannot be used: none of their bodies stays."""
        front = self.front(providers=scripted({"text": "hi"}, {"status": 500}, {"malformed": True}, {"timeout": True}))
        poor = front.world.key("0")
        front.chat()
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        front.ask("POST", CHAT, b'{"model": "mini", "messages": "')
        front.chat(model="nobody")
        front.chat(key=poor)
        for _ in range(3):
            front.chat()
        front.wait_ended(7)
        keys = {front.key, poor}
        self.assertEqual(
            [held for held in contexts() if held.principal.key_id in {key.split("-")[2] for key in keys}], []
        )


class HeldMemoryTest(FrontCase):
    """Events that wait for the first content."""

    def test_an_upstream_that_goes_on_without_a_word_is_given_up(self) -> None:
        """A mebibyte of roles and empty deltas is held back, not more; then another deployment may answer."""
        silent = [event({"role": "assistant"}, padding="x" * 100_000)] * 13
        front = self.live(stream(*silent, *words("late")), stream(ROLE, *silent[:9], *words("in time")))
        self.assert_error(front.chat(stream=True), 502, "upstream_error")
        self.assertIn(b"in time", front.chat(stream=True).body)
        self.assertEqual([row["exit"] for row in front.rows(2)], ["failed", "routed"])


class DetourMemoryTest(FrontCase):
    """Requests that are answered in the end."""

    def test_a_request_that_took_a_detour_is_forgotten(self) -> None:
        """An error, junk, a cut, no answer, and an empty one that is given up for a stronger tier."""
        table: list[tuple[Answering, dict[str, Any]]] = [
            (whole(b"{}", status="500 Oops"), {}),
            (whole(b"junk"), {}),
            (stream(ROLE), {"stream": True}),
            (lambda peer, request: None, {}),
            (whole({"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}), {"model": "auto"}),
            (stream(ROLE, *words()[-2:], DONE), {"model": "auto", "stream": True}),
        ]
        for failing, asked in table:
            one = self.upstream(failing)
            two = self.upstream(stream(*words()) if asked.get("stream") else whole())
            config = fleet(one, two, more="[retry]\nmax_retries = 0\n")
            for name, tier in ("one", "cheap"), ("two", "strong"):
                config = config.replace(f'name = "{name}"\nprovider', f'name = "{name}"\ntier = "{tier}"\nprovider')
            front = self.front(config)
            gc.collect()
            gc.disable()
            self.addCleanup(gc.enable)
            with self.subTest(failing=failing, asked=asked):
                self.assertEqual(front.chat(**asked).get("x-gateway-deployment"), "two")
                front.wait_ended(1)
                key_id = front.key.split("-")[2]
                self.assertEqual([held.facts.hops for held in contexts() if held.principal.key_id == key_id], [])
