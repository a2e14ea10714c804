"""The hash embedder: unit vectors, the same everywhere, near for near texts."""

import math
import os
import subprocess
import sys
import unittest

from llmkit.embed import Embedder, HashEmbedder
from tests import _paths


def _cosine(first: str, second: str) -> float:
    a, b = HashEmbedder().embed([first, second])
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


class HashEmbedderTest(unittest.TestCase):
    """Feature hashing."""

    def test_every_vector_has_the_dimension_and_unit_length(self) -> None:
        """Whatever the text."""
        texts = ["hello", "", "   ", "?", "漢字 かな", "\ud83d", "a" * 5000, "é\u0000\n"]
        for dim in (1, 7, 256):
            embedder: Embedder = HashEmbedder(dim)
            vectors = embedder.embed(texts)
            self.assertEqual(embedder.dim, dim)
            self.assertEqual(len(vectors), len(texts))
            for vector in vectors:
                self.assertEqual(len(vector), dim)
                self.assertAlmostEqual(math.hypot(*vector), 1.0, places=12)

    def test_features_have_both_signs(self) -> None:
        """So that collisions cancel as often as they add."""
        (vector,) = HashEmbedder().embed(["several words, hence many features"])
        self.assertLess(min(vector), 0)
        self.assertGreater(max(vector), 0)

    def test_a_text_without_features_has_a_fixed_vector(self) -> None:
        """The empty text, and nothing but space."""
        first = [1.0] + [0.0] * 255
        self.assertEqual(HashEmbedder().embed(["", " \n\t"]), [first, first])

    def test_features_that_cancel_leave_a_unit_vector(self) -> None:
        """In one dimension signs meet; no vector is divided by zero."""
        texts = [f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij"]
        self.assertEqual({abs(vector[0]) for vector in HashEmbedder(1).embed(texts)}, {1.0})

    def test_another_process_gives_the_same_vector(self) -> None:
        """Python's own hash, which differs between processes, is not used."""
        script = "from llmkit.embed import HashEmbedder; print(HashEmbedder(16).embed(['where is my parcel?'])[0])"
        outputs = {
            subprocess.run(
                [sys.executable, "-c", script],
                env={**os.environ, "PYTHONPATH": str(_paths.SRC), "PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            for seed in ("1", "2")
        }
        self.assertEqual(outputs, {str(HashEmbedder(16).embed(["where is my parcel?"])[0])})

    def test_the_vectors_of_a_version_never_change(self) -> None:
        """What is kept under the version stays comparable: another vector needs another version."""
        self.assertEqual((HashEmbedder.name, HashEmbedder.version), ("hash", "1"))
        golden = [0.478091, -0.119523, -0.358569, -0.358569, 0.0, 0.119523, -0.597614, -0.358569]
        (vector,) = HashEmbedder(8).embed(["Where is my parcel, No 7?"])
        self.assertEqual([round(value, 6) for value in vector], golden)

    def test_near_texts_are_nearer_than_far_ones(self) -> None:
        """An inflected word, another word order, another subject."""
        question = "How do I reset my password?"
        self.assertGreater(_cosine(question, "How do I reset my passwords?"), 0.8)
        self.assertGreater(_cosine(question, "how do i reset MY password ?"), 0.8)
        self.assertLess(_cosine(question, "Train times from Lyon to Bern"), 0.3)

    def test_the_order_of_words_matters(self) -> None:
        """Through pairs of words."""
        self.assertLess(_cosine("dog bites man", "man bites dog"), 0.99)

    def test_case_and_unicode_form_do_not_matter(self) -> None:
        """Composed or not, full width or not."""
        self.assertAlmostEqual(_cosine("CAFÉ", "cafe\u0301"), 1.0)
        self.assertAlmostEqual(_cosine("\uff21BC", "abc"), 1.0)

    def test_texts_do_not_influence_each_other(self) -> None:
        """A batch is the same as one at a time."""
        embedder = HashEmbedder()
        self.assertEqual(embedder.embed(["a", "b"]), [*embedder.embed(["a"]), *embedder.embed(["b"])])
        self.assertEqual(embedder.embed([]), [])

    def test_a_vector_needs_a_dimension(self) -> None:
        """Below 1 is refused."""
        with self.assertRaises(ValueError):
            HashEmbedder(0)


if __name__ == "__main__":
    unittest.main()
