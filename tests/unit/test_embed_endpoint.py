"""Which answers of an embeddings server are believed: all of them or none."""

import json
import math
import unittest
from typing import Any

from llmkit.embed_endpoint import MOST_DIM, EndpointEmbedder, read_vectors
from llmkit.openai import Malformed

GOOD: dict[str, Any] = {
    "object": "list",
    "data": [
        {"object": "embedding", "index": 1, "embedding": [0, 2]},
        {"object": "embedding", "index": 0, "embedding": [3.0, -4.0]},
    ],
    "model": "tiny",
}


def read(answer: object, *, count: int = 2, dim: int | None = 2) -> list[list[float]]:
    """The vectors of an answer to two texts."""
    return read_vectors(json.dumps(answer).encode(), count, dim)


class ReadTest(unittest.TestCase):
    """Strict reading."""

    def assert_refused(self, answer: object, *, count: int = 2, dim: int | None = 2) -> None:
        """Nothing of it is believed, nor repeated."""
        with self.assertRaises(Malformed) as caught:
            read(answer, count=count, dim=dim)
        self.assertNotIn("secret", str(caught.exception))

    def with_vector(self, *vector: object) -> dict[str, Any]:
        """An answer whose first vector is this one."""
        return {"data": [{"index": 0, "embedding": list(vector)}, {"index": 1, "embedding": [1.0, 0.0]}]}

    def test_vectors_are_put_in_order_and_made_unit_length(self) -> None:
        """By their index; whole numbers are numbers too."""
        self.assertEqual(read(GOOD), [[0.6, -0.8], [0.0, 1.0]])
        self.assertEqual(read(GOOD, dim=None), [[0.6, -0.8], [0.0, 1.0]])

    def test_there_is_one_vector_for_each_text(self) -> None:
        """Neither fewer nor more."""
        self.assert_refused(GOOD, count=1)
        self.assert_refused(GOOD, count=3)
        self.assert_refused({"data": []})
        self.assert_refused({"data": [*GOOD["data"], GOOD["data"][0]]})
        self.assert_refused({"data": [*GOOD["data"], "secret"]})

    def test_each_index_comes_once(self) -> None:
        """Not twice, not beyond, not missing, not a truth value."""
        for index in (1, 2, -1, None, "0", 0.0, False):
            with self.subTest(index):
                entries = [GOOD["data"][0], {"index": index, "embedding": [1.0, 0.0]}]
                self.assert_refused({"data": entries})
        self.assert_refused({"data": [GOOD["data"][0], {"embedding": [1.0, 0.0]}]})

    def test_every_vector_has_the_promised_length(self) -> None:
        """Or, where none was promised, that of the others."""
        self.assert_refused(GOOD, dim=3)
        self.assert_refused(self.with_vector(1.0), dim=None)
        self.assert_refused(self.with_vector(), dim=None)
        self.assert_refused({"data": [{"index": 0, "embedding": [0.0] * MOST_DIM + [1.0]}]}, count=1, dim=None)

    def test_every_number_is_one(self) -> None:
        """No text, truth value, null, list, or number beyond a double."""
        numbers: tuple[object, ...] = ("1", True, None, [1.0], {}, 10**400)
        for number in numbers:
            with self.subTest(number):
                self.assert_refused(self.with_vector(1.0, number))

    def test_numbers_that_are_not_finite_are_no_json(self) -> None:
        """Whatever Python's own parser takes for some."""
        for number in ("NaN", "Infinity", "1e999"):
            with self.subTest(number), self.assertRaises(Malformed):
                read_vectors(b'{"data": [{"index": 0, "embedding": [1.0, %b]}]}' % number.encode(), 1, 2)

    def test_a_vector_has_a_direction(self) -> None:
        """Not zero, not longer or shorter than a double can say."""
        for numbers in ((0.0, 0.0), (1.7e308, 1.7e308), (5e-324, 5e-324)):
            with self.subTest(numbers):
                self.assert_refused(self.with_vector(*numbers))
        self.assertAlmostEqual(math.hypot(*read(self.with_vector(1e300, 1e300))[0]), 1.0)

    def test_what_is_no_answer_is_refused(self) -> None:
        """Another form of JSON, or none."""
        answers: tuple[object, ...] = (
            {},
            [],
            "secret",
            {"data": "secret"},
            {"data": {"0": 1}},
            {"data": ["secret", 1]},
        )
        for answer in answers:
            with self.subTest(str(answer)):
                self.assert_refused(answer)
        self.assert_refused({"data": [{"index": 0}, {"index": 1}]})
        self.assert_refused({"data": [{"index": 0, "embedding": "c2VjcmV0"}, {"index": 1, "embedding": "c2VjcmV0"}]})
        with self.assertRaises(Malformed):
            read_vectors(b"<html>secret</html>", 2, 2)


class EndpointTest(unittest.TestCase):
    """What may be asked for."""

    def test_it_needs_a_model_a_version_a_length_and_a_url(self) -> None:
        """Each is refused at once, before anything is sent."""
        url = "http://127.0.0.1:1/v1"
        for base_url, model, dim, version in (
            ("ftp://127.0.0.1", "m", 2, "1"),
            (url, "", 2, "1"),
            (url, "m", 0, "1"),
            (url, "m", MOST_DIM + 1, "1"),
            (url, "m", 2, ""),
        ):
            with self.subTest((base_url, model, dim, version)), self.assertRaises(ValueError):
                EndpointEmbedder(base_url, model, dim, version=version)

    def test_another_model_or_version_is_another_embedder(self) -> None:
        """And none has the name of one that needs no server."""
        embedder = EndpointEmbedder("http://127.0.0.1:1/v1", "hash", 256, version="7")
        self.assertEqual((embedder.name, embedder.version, embedder.dim), ("endpoint hash", "7", 256))
