"""One gateway with a semantic cache over a folder of its own, for tests: what it answers, learns and counts."""

import contextlib
import json
import tempfile
import unittest
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.app import build_gateway
from gateway.books import Books
from gateway.clock import FakeClock
from gateway.config import load
from gateway.fake_provider import FakeProvider
from gateway.gateway import Gateway
from gateway.other_words import ShadowLog
from gateway.providers import Provider
from gateway.semantic_cache import SemanticCache
from tests.support.world import CONFIG, RealWorld, chat

ASKED = "What is the capital of France?"
ON = "[cache]\nsemantic = true\n"
ANSWERS = [{"text": f"answer {number}"} for number in range(64)]


class SemanticCase(unittest.TestCase):
    """One gateway whose upstream never says the same thing twice."""

    config = ON + CONFIG
    answers: Sequence[Mapping[str, Any]] = ANSWERS

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.process = contextlib.ExitStack()
        self.addCleanup(self.process.close)
        self.clock = FakeClock()
        self.env: dict[str, str] = {}
        self.upstream = FakeProvider(list(self.answers), name="up")
        self.withheld: list[tuple[str, str, str, bool]] = []
        self.prepare()
        self.start()
        self.key = self.world.key("5")

    def prepare(self) -> None:
        """What must be there before the first start."""

    def providers(self) -> dict[str, Provider]:
        """By the names of the configuration."""
        return {"up": self.upstream}

    def start(self) -> None:
        """A process over the folder."""
        self.world: RealWorld = self.process.enter_context(
            RealWorld(config=self.config, clock=self.clock, folder=self.folder, env=self.env)
        )
        self.gateway = self.reloaded(self.config)

    def restart(self) -> None:
        """Another process over the folder."""
        self.process.close()
        self.start()

    def reloaded(self, config: str) -> Gateway:
        """A gateway over the same books and another configuration."""
        log: ShadowLog = lambda *told: self.withheld.append(told)  # noqa: E731 - typed
        return build_gateway(
            load(config, self.env),
            self.books,
            clock=self.clock,
            providers=self.providers(),
            on_error=lambda error, request_id: self.world.errors.append(error),
            on_shadow=log,
        )

    @property
    def books(self) -> Books:
        books: Books = self.world.books
        return books

    @property
    def semantic(self) -> SemanticCache:
        assert self.books.semantic is not None
        return self.books.semantic

    def ask(
        self, text: str = ASKED, *, gateway: Gateway | None = None, key: str = "", **fields: Any
    ) -> tuple[str, str]:
        """What the cache said of one request, and the answer."""
        answer = (gateway or self.gateway).handle(key or self.key, chat(text, **{"temperature": 0, **fields}))
        return answer["cache"], answer["text"]

    def stream(self, text: str, **fields: Any) -> str:
        """The content of one stream, which must end well."""
        *events, done = "".join(self.gateway.stream(self.key, chat(text, **{"temperature": 0, **fields}))).split(
            "\n\n"
        )[:-1]
        self.assertEqual(done, "data: [DONE]")
        chunks = [json.loads(event.removeprefix("data: ")) for event in events]
        return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])

    def stats(self) -> dict[str, Any]:
        """What the cache tells of itself."""
        return self.semantic.stats()

    def counted(self, family: str) -> dict[str, int]:
        """What was counted, without zeros."""
        return {name: count for name, count in self.stats()[family].items() if count}
