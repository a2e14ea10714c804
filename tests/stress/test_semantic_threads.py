"""The semantic cache under many threads at once."""

import tempfile
import threading
import unittest
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gateway.cache_entry import Entry
from gateway.cache_key import KeyOf, cache_keys
from gateway.clock import FakeClock
from gateway.drive import drive
from gateway.exact_cache import ExactCache
from gateway.judging import Judge, Judging
from gateway.semantic_cache import Asked, SemanticCache
from llmkit.embed import HashEmbedder
from llmkit.types import Cancel

NEAR = ("How do I cancel my plan?", "How do I end my plan?", "how can I quit my plan", "how do i terminate my plan")
"""About each two of which a judge may be asked."""

THREADS = 12
ROUNDS = 60
PAIRS = (
    ("How do I get from Paris to Rome?", "how can I get from paris to rome, please"),
    ("How do I get from Rome to Paris?", "how can I get from rome to paris, please"),
    ("What is the capital of France?", "what is the capital of france"),
    ("What is the capital of Spain?", "what is the capital of spain"),
)
"""Two wordings of each question; the first two questions share a canonical key."""


class SemanticThreadsTest(unittest.TestCase):
    """Twelve threads of three tenants that ask, learn and purge."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.errors: list[BaseException] = []
        clock = FakeClock()
        opened = partial(ExactCache, ttl_s=60, max_bytes=200_000, clock=clock, draw=float, on_error=self.errors.append)
        self.answers = opened(Path(folder.name) / "cache.db")
        self.addCleanup(self.answers.close)
        index = opened(Path(folder.name) / "words.db", max_partition=3)
        self.semantic = SemanticCache(self.answers, index, ttl_s=60, clock=clock, on_error=self.errors.append)
        self.addCleanup(self.semantic.close)
        self.barrier = threading.Barrier(THREADS)
        self.hits = 0

    def keys(self, tenant: str, epoch: int, text: str) -> tuple[list[dict[str, str]], KeyOf]:
        """The messages of a request, and its keys."""
        messages = [{"role": "user", "content": text}]
        body = {"messages": messages}
        return messages, cache_keys(
            tenant=tenant, epoch=epoch, route=[], permissions=None, prompt_version=None, body=body
        )

    def work(self, number: int) -> None:
        """An answer says of which tenant, question and epoch it is; a hit must be of these, or newer."""
        tenant = f"tenant-{number % 3}"
        self.barrier.wait()
        for turn in range(ROUNDS):
            question = (number + turn) % len(PAIRS)
            text = PAIRS[question][turn % 2]
            epoch = self.answers.epoch(tenant)
            messages, key_of = self.keys(tenant, epoch, text)
            asked = drive(self.semantic.ask(messages, tenant, key_of))
            assert asked is not None
            found = drive(self.semantic.find(asked, serve=True))
            if found is None:
                body = f"{tenant} {question} {epoch}".encode()
                self.answers.store(key_of(messages[0]), Entry(tenant, epoch, "d", "p", "cheap", body), ttl_s=None)
                self.semantic.remember(asked)
            else:
                self.assertEqual(found.match.hit.body.decode(), f"{tenant} {question} {epoch}")
                self.hits += 1
            if turn % 20 == 19 and number < 3:
                drive(self.answers.purge(tenant))
                drive(self.semantic.purge(tenant))

    def work_with_a_judge(self, number: int, judging: Judging, judge: Judge) -> None:
        """Near questions, whose answers say of which tenant and epoch they are; a hit must be of these."""
        tenant = f"tenant-{number % 3}"
        self.barrier.wait()
        for turn in range(ROUNDS):
            epoch = self.answers.epoch(tenant)
            messages, key_of = self.keys(tenant, epoch, NEAR[(number + turn) % len(NEAR)])
            asked = drive(self.semantic.ask(messages, tenant, key_of))
            assert asked is not None
            found = drive(self.semantic.find(asked, serve=True, judge=judge.name))
            if found is not None:
                self.assertEqual(found.match.hit.body.decode(), f"{tenant} {epoch}")
                self.hits += found.alias is not None
                if found.alias is not None:
                    judging.note_hit(asked, found.alias, judge)
            if found is None or turn % 3 == 0:
                self.learn(asked, key_of(messages[0]), judging, judge)
            if turn % 20 == 19 and number < 3:
                drive(self.answers.purge(tenant))
                judging.forget(tenant)
                drive(self.semantic.purge(tenant))
                judging.flush()

    def learn(self, asked: Asked, digest: bytes, judging: Judging, judge: Judge) -> None:
        """Keep an answer that says of which tenant and epoch it is."""
        body = f"{asked.tenant} {asked.epoch}".encode()
        self.answers.store(digest, Entry(asked.tenant, asked.epoch, "d", "p", "cheap", body), ttl_s=None)
        self.semantic.remember(asked)
        judging.learn(asked, digest, judge)

    def learn_alone(self, tenant: str, text: str, judging: Judging, judge: Judge) -> None:
        """As long as nobody else does anything."""
        messages, key_of = self.keys(tenant, self.answers.epoch(tenant), text)
        asked = drive(self.semantic.ask(messages, tenant, key_of))
        assert asked is not None
        self.learn(asked, key_of(messages[0]), judging, judge)
        judging.flush()

    def run_safely(self, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            self.errors.append(error)

    def run_all(self, work: Callable[[int], None]) -> None:
        """On all threads at once, to the end."""
        threads = [threading.Thread(target=self.run_safely, args=(work, number)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.semantic.flush()
        self.assertEqual(self.errors, [])

    def test_a_judge_that_says_yes_to_all_crosses_no_tenant(self) -> None:
        """Nor an epoch; and every index stays under its bound."""
        asked: list[str] = []

        def ask(model: str, messages: Sequence[Mapping[str, str]], cancel: Cancel) -> dict[str, Any]:
            asked.append(messages[-1]["content"])
            return {"choices": [{"finish_reason": "stop", "message": {"content": "SAME"}}]}

        judging = Judging(
            self.semantic,
            HashEmbedder(),
            queue=1024,
            max_bytes=16_384,
            clock=FakeClock(),
            draw=lambda: 0.5,
            on_error=self.errors.append,
        )
        self.addCleanup(judging.close)
        judge = Judge("wise", "wise", 0.3, 1.0, 6000, 100.0, ask)
        for text in NEAR[:2]:
            self.learn_alone("tenant-0", text, judging, judge)
        self.assertEqual(len(asked), 1)
        self.run_all(partial(self.work_with_a_judge, judging=judging, judge=judge))
        judging.flush()
        stats = judging.stats()
        self.assertEqual(len(asked), sum(stats["verdicts"].values()) + stats["audits"]["same"])
        self.assertEqual(self.hits, sum(stats["audits"].values()))
        self.assertLessEqual(stats["bytes"], 16_384)
        self.assertLessEqual(self.semantic.stats()["entries"], 3 * 3)

    def test_everybody_gets_the_answer_to_their_own_question(self) -> None:
        """Of their own tenant and epoch; and the partitions stay under their bound."""
        self.run_all(self.work)
        stats = self.semantic.stats()
        self.assertEqual(sum(stats["lookups"].values()), THREADS * ROUNDS)
        self.assertGreater(self.hits, 0)
        self.assertLessEqual(stats["entries"], 3 * 3)
