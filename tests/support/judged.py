"""One gateway whose semantic cache has a judge, for tests: scripted, and paid for by a tenant of the operator."""

import contextlib
import tempfile
import unittest
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.app import Books, build_gateway
from gateway.clock import FakeClock
from gateway.config import load
from gateway.fake_provider import FakeProvider
from gateway.gateway import Gateway
from gateway.judging import Judging
from gateway.semantic_cache import SemanticCache
from tests.support.world import CONFIG, RealWorld, chat

ASKED = "How do I cancel my gym membership?"
NEAR = "How do I end my gym membership?"
FAR = "Which plants are safe for cats?"
MILES, OTHER_MILES = "How do I convert 5 miles to kilometers?", "How do I convert 6 miles to kilometers?"

SAME, DIFFERENT = {"text": "SAME"}, {"text": "DIFFERENT"}
ANSWERS = [{"text": f"answer {number}"} for number in range(64)]

JUDGE = """
[[providers]]
name = "bench"
dialect = "fake"
script = [{ text = "DIFFERENT" }]

[[deployments]]
name = "wise"
provider = "bench"
model = "gw-wise"
price = { input = 1, output = 4 }
max_output_tokens = 16384
"""


def judged_config(cache: str = "", more: str = "") -> str:
    """A configuration with a judge; lines for [cache], and for the file."""
    audits = "" if "judge_audit_percent" in cache else "judge_audit_percent = 0\n"
    head = f'[cache]\nsemantic = true\njudge = "wise"\njudge_key_env = "JUDGE_KEY"\n{audits}'
    return f"{head}{cache}\n{CONFIG}{JUDGE}{more}"


class JudgedCase(unittest.TestCase):
    """One gateway whose upstream never says the same thing twice, and whose judge says what is scripted.

    verdicts  what the judge says, the last of it for ever
    budget    of the judge's key in USD
    """

    config = judged_config()
    verdicts: Sequence[Mapping[str, Any]] = (SAME,)
    budget = "5"

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.process = contextlib.ExitStack()
        self.addCleanup(self.process.close)
        self.clock = FakeClock()
        self.upstream = FakeProvider(ANSWERS, name="up")
        self.judge = FakeProvider(list(self.verdicts), name="bench")
        self.withheld: list[tuple[str, str, str, bool]] = []
        with RealWorld(folder=self.folder, clock=self.clock) as world:
            self.judge_key = world.key(self.budget, tenant="operator")
        self.env = {"JUDGE_KEY": self.judge_key}
        self.start()
        self.key = self.world.key("5")

    def start(self) -> None:
        """A process over the folder."""
        self.world: RealWorld = self.process.enter_context(
            RealWorld(config=self.config, clock=self.clock, folder=self.folder, env=self.env)
        )
        self.gateway = self.reloaded(self.config)

    def reloaded(self, config: str) -> Gateway:
        """A gateway over the same books and another configuration."""
        return build_gateway(
            load(config, self.env),
            self.books,
            clock=self.clock,
            providers={"up": self.upstream, "bench": self.judge},
            on_error=self.world.errors.append,
            on_shadow=lambda *told: self.withheld.append(told),
        )

    @property
    def books(self) -> Books:
        books: Books = self.world.books
        return books

    @property
    def semantic(self) -> SemanticCache:
        assert self.books.semantic is not None
        return self.books.semantic

    @property
    def judging(self) -> Judging:
        assert self.books.judging is not None
        return self.books.judging

    def ask(self, text: str, *, gateway: Gateway | None = None, key: str = "", **fields: Any) -> tuple[str, str]:
        """What the cache said of one request, and the answer; all that it was near to is judged by then."""
        answer = (gateway or self.gateway).handle(key or self.key, chat(text, **{"temperature": 0, **fields}))
        self.judging.flush()
        return answer["cache"], answer["text"]

    def ask_both(self, first: str = ASKED, second: str = NEAR, **fields: Any) -> None:
        """Two questions, of which the second is answered for ten seconds only."""
        self.ask(first, **fields)
        self.ask(second, **{"cache": {"ttl": 10}, **fields})
        self.clock.advance(11)

    def counted(self, family: str) -> dict[str, int]:
        """What the tier has counted, without zeros."""
        return {name: count for name, count in self.judging.stats()[family].items() if count}

    def judged(self) -> list[list[dict[str, str]]]:
        """What the judge was asked, call by call."""
        return [call.body["messages"] for call in self.judge.calls]
