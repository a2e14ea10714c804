"""The semantic cache under many threads at once."""

import tempfile
import threading
import unittest
from functools import partial
from pathlib import Path

from gateway.cache_entry import Entry
from gateway.cache_key import KeyOf, cache_keys
from gateway.clock import FakeClock
from gateway.drive import drive
from gateway.exact_cache import ExactCache
from gateway.semantic_cache import SemanticCache

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

    def run_safely(self, number: int) -> None:
        try:
            self.work(number)
        except BaseException as error:
            self.errors.append(error)

    def test_everybody_gets_the_answer_to_their_own_question(self) -> None:
        """Of their own tenant and epoch; and the partitions stay under their bound."""
        threads = [threading.Thread(target=self.run_safely, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.semantic.flush()
        self.assertEqual(self.errors, [])
        stats = self.semantic.stats()
        self.assertEqual(sum(stats["lookups"].values()), THREADS * ROUNDS)
        self.assertGreater(self.hits, 0)
        self.assertLessEqual(stats["entries"], 3 * 3)
