"""The exact cache as a request meets it: who is answered from it, what goes into it, and in which form it comes out."""

import json
import unittest
from typing import Any

from gateway.app import build_gateway
from gateway.clock import FakeClock
from gateway.config import load
from gateway.errors import ModelNotAllowed
from gateway.fake_provider import FakeProvider
from gateway.gateway import Gateway
from tests.support.world import CONFIG, RealWorld, chat

TENANTS = """
[[tenants]]
name = "acme"
models = {models}
"""
ANSWERS = [{"text": f"answer {number}"} for number in range(64)]
OBJECT = {"type": "json_object"}


class CachingTest(unittest.TestCase):
    """One gateway whose upstream never says the same thing twice."""

    def setUp(self) -> None:
        self.clock = FakeClock()
        self.upstream = FakeProvider(ANSWERS, name="up")
        self.world = RealWorld(clock=self.clock, providers={"up": self.upstream})
        self.addCleanup(self.world.__exit__)
        self.key = self.world.key("5")

    def ask(self, gateway: Gateway | None = None, key: str = "", **fields: Any) -> dict[str, Any]:
        """One request, at temperature 0 unless told otherwise."""
        body = chat(**{"temperature": 0, **fields})
        return (gateway or self.world.gateway).handle(key or self.key, body)

    def stream(self, **fields: Any) -> list[Any]:
        """The payloads of one stream, but for the end mark, which must be there."""
        text = "".join(self.world.gateway.stream(self.key, chat(**{"temperature": 0, **fields})))
        *events, done = [event.removeprefix("data: ") for event in text.split("\n\n") if event]
        self.assertEqual(done, "[DONE]")
        return [json.loads(event) for event in events]

    def reloaded(self, config: str) -> Gateway:
        """A gateway over the same books and another configuration."""
        return build_gateway(load(config, {}), self.world.books, clock=self.clock, providers={"up": self.upstream})

    def test_the_same_request_gets_the_same_answer_and_costs_nothing(self) -> None:
        """It is a row of its own, without a call, and no budget is needed for it."""
        first, second = self.ask(), self.ask()
        self.assertEqual((first["cache"], first["exit"], first["text"]), ("miss", "routed", "answer 0"))
        self.assertEqual((second["cache"], second["exit"], second["text"]), ("hit", "cache_hit", "answer 0"))
        self.assertEqual((second["cost_nanousd"], second["attempts"], second["deployment"]), (0, 0, "mini"))
        self.assertEqual(second["response"], first["response"])
        rows = self.world.rows()
        self.assertEqual([(row["exit"], row["cache"], row["state"]) for row in rows][-1], ("cache_hit", "hit", "none"))
        self.assertEqual((rows[-1]["cost_nanousd"], rows[-1]["prompt_tokens"]), (0, 0))
        poor = self.world.key("0")
        self.assertEqual(self.ask(key=poor)["text"], "answer 0")
        self.assertEqual(len(self.upstream.calls), 1)

    def test_streams_and_whole_answers_share(self) -> None:
        """Either may come first; the stream that comes out is well-formed, and says that it cost nothing."""
        self.assertEqual("".join(_said(self.stream(text="a"))), "answer 0")
        self.assertEqual(self.ask(text="a")["text"], "answer 0")
        self.assertEqual(self.ask(text="b")["text"], "answer 1")
        events = self.stream(text="b", stream_options={"include_usage": True})
        self.assertEqual("".join(_said(events)), "answer 1")
        self.assertEqual([event["choices"][0]["finish_reason"] for event in events[:-1]][-1], "stop")
        self.assertEqual((events[-1]["choices"], events[-1]["usage"]["cost_usd"]), ([], 0))
        self.assertEqual(events[-1]["usage"]["completion_tokens"], 2)
        self.assertEqual(len({event["id"] for event in events}), 1)
        self.assertEqual(len(self.upstream.calls), 2)

    def test_usage_leaves_only_for_who_asked(self) -> None:
        """As in any other stream."""
        self.ask()
        self.assertTrue(all(event["choices"] and "usage" not in event for event in self.stream()))

    def test_another_tenant_never_shares(self) -> None:
        """Whatever is the same otherwise."""
        rival = self.world.key("5", tenant="rival")
        self.assertEqual(self.ask()["text"], "answer 0")
        theirs = self.ask(key=rival)
        self.assertEqual((theirs["cache"], theirs["text"]), ("miss", "answer 1"))
        self.assertEqual(self.ask(key=rival)["text"], "answer 1")

    def test_another_permission_never_shares(self) -> None:
        """A name that may not be asked for any more is refused, and an answer from before a change is not served."""
        everything = self.reloaded(CONFIG + TENANTS.format(models='["*"]'))
        some = self.reloaded(CONFIG + TENANTS.format(models='["mi*"]'))
        none = self.reloaded(CONFIG + TENANTS.format(models='["other"]'))
        self.assertEqual(self.ask(everything)["text"], "answer 0")
        self.assertEqual(self.ask(some)["text"], "answer 1")
        with self.assertRaises(ModelNotAllowed):
            self.ask(none)
        self.assertEqual(self.ask(everything)["text"], "answer 0")

    def test_another_model_behind_the_same_name_never_shares(self) -> None:
        """The file may change while entries live."""
        self.ask()
        self.assertEqual(self.ask(self.reloaded(CONFIG.replace("gw-mini", "gw-maxi")))["text"], "answer 1")

    def test_what_takes_no_part_is_a_bypass(self) -> None:
        """No explicit zero, tools, several choices, privacy."""
        tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
        for fields in (
            {"temperature": 0.1},
            {"temperature": None},
            {"tools": [tool]},
            {"functions": [{"name": "f"}]},
            {"n": 2},
            {"private": True},
        ):
            with self.subTest(fields):
                answers = [self.ask(**fields) for _ in range(2)]
                self.assertEqual({answer["cache"] for answer in answers}, {"bypass"})
                self.assertNotEqual(answers[0]["text"], answers[1]["text"])

    def test_a_client_may_ask_for_a_fresh_answer(self) -> None:
        """no-cache replaces the old one; no-store keeps the new one out, but may be answered from what is there."""
        self.assertEqual(self.ask(cache={"no-store": True})["text"], "answer 0")
        self.assertEqual(self.ask()["text"], "answer 1")
        self.assertEqual(self.ask(cache={"no-store": True})["text"], "answer 1")
        fresh = self.ask(cache={"no-cache": True})
        self.assertEqual((fresh["cache"], fresh["text"]), ("bypass", "answer 2"))
        self.assertEqual(self.ask()["text"], "answer 2")
        self.assertEqual(self.ask(cache={"no-cache": True, "no-store": True})["text"], "answer 3")
        self.assertEqual(self.ask()["text"], "answer 2")

    def test_entries_expire(self) -> None:
        """After an hour, or sooner if the client says so."""
        self.ask(text="an hour")
        self.ask(text="a minute", cache={"ttl": 60})
        self.clock.advance(53)
        self.assertEqual(self.ask(text="a minute")["cache"], "hit")
        self.clock.advance(8)
        self.assertEqual(self.ask(text="a minute")["cache"], "miss")
        self.clock.advance(3000)
        self.assertEqual(self.ask(text="an hour")["cache"], "hit")
        self.clock.advance(600)
        self.assertEqual(self.ask(text="an hour")["cache"], "miss")

    def test_a_purge_is_of_one_tenant_or_of_all(self) -> None:
        """By the operator's command."""
        rival = self.world.key("5", tenant="rival")
        self.ask()
        self.ask(key=rival)
        self.assertEqual(self.world.run("cache.purge", tenant="acme"), {"tenant": "acme", "removed": 1})
        self.assertEqual((self.ask()["cache"], self.ask(key=rival)["cache"]), ("miss", "hit"))
        self.assertEqual(self.world.run("cache.purge", all=True)["removed"], 2)
        self.assertEqual((self.ask()["cache"], self.ask(key=rival)["cache"]), ("miss", "miss"))

    def test_only_a_whole_answer_that_is_what_was_asked_for_is_kept(self) -> None:
        """Cut at its cap, filtered, empty, not JSON, failed, cut in mid-stream: the next request gets its own."""
        entries: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({"text": "one two three", "finish_reason": "length"}, {}),
            ({"text": "half", "finish_reason": "content_filter"}, {}),
            ({"text": ""}, {}),
            ({"text": "no JSON"}, {"response_format": OBJECT}),
        ]
        for number, (entry, fields) in enumerate(entries):
            for stream in (False, True):
                with self.subTest(entry, stream=stream):
                    upstream = FakeProvider([entry, {"text": '{"whole": 1}'}], name="up")
                    gateway = build_gateway(
                        self.world.config, self.world.books, clock=self.clock, providers={"up": upstream}
                    )
                    body = chat(f"{number} {stream}", temperature=0, **fields)
                    if stream:
                        "".join(gateway.stream(self.key, body))
                    else:
                        gateway.handle(self.key, body)
                    self.assertEqual(gateway.handle(self.key, body)["text"], '{"whole": 1}')
                    self.assertEqual(gateway.handle(self.key, body)["cache"], "hit")

    def test_it_can_be_turned_off(self) -> None:
        """A lifetime of 0, also by a reload."""
        self.ask()
        off = self.reloaded("[cache]\nexact_ttl_s = 0\n" + CONFIG)
        self.assertEqual([self.ask(off)["cache"] for _ in range(2)], ["bypass", "bypass"])


def _said(events: list[Any]) -> list[str]:
    return [choice["delta"].get("content") or "" for event in events for choice in event["choices"]]
