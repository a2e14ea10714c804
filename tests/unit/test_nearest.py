"""The index of vectors: what is found, in which order, and what goes when there is no room."""

import math
import random
import unittest
from collections.abc import Generator
from typing import Any
from unittest import mock

from gateway import nearest
from gateway.nearest import GROUP_BYTES, ITEM_BYTES, RESCORED, SLICE, Near, Nearest
from llmkit.embed import HashEmbedder, unit

GROUP, OTHER = b"g" * 16, b"o" * 16
ROOMY = 1 << 30
WORDS = (
    "how",
    "do",
    "i",
    "cancel",
    "my",
    "gym",
    "plan",
    "fee",
    "lamp",
    "rome",
    "fix",
    "door",
    "cat",
    "tea",
    "egg",
    "car",
)


def finish(search: Generator[None, None, Any]) -> tuple[Any, int]:
    """What a search found, and in how many slices."""
    slices = 0
    while True:
        try:
            next(search)
        except StopIteration as done:
            return done.value, slices
        slices += 1


def dot(one: list[float], other: list[float]) -> float:
    """Of unit vectors: their cosine."""
    return math.fsum(left * right for left, right in zip(one, other, strict=True))


class SearchTest(unittest.TestCase):
    """What is near."""

    def setUp(self) -> None:
        self.embedder = HashEmbedder()
        self.index: Nearest[str] = Nearest(256, ROOMY)

    def put(self, *texts: str, group: bytes = GROUP) -> None:
        for text, vector in zip(texts, self.embedder.embed(texts), strict=True):
            self.index.put(group, text, vector, text)

    def found(self, text: str, least: float = 0.0, group: bytes = GROUP) -> list[Near[str]]:
        (vector,) = self.embedder.embed([text])
        near, _ = finish(self.index.search(group, vector, least))
        return list(near)

    def test_the_nearest_comes_first(self) -> None:
        """With its cosine, to a hundredth; what is less near than asked for is not there."""
        texts = ("how do i cancel my plan", "how do i cancel my plan now", "cancel it", "boil an egg")
        self.put(*texts)
        near = self.found(texts[0], 0.1)
        self.assertEqual([each.item for each in near], list(texts[:3]))
        (asked,) = self.embedder.embed([texts[0]])
        for each in near:
            self.assertAlmostEqual(each.cosine, dot(asked, self.embedder.embed([each.item])[0]), delta=0.01)
        self.assertEqual([each.item for each in self.found(texts[0], 0.99)], [texts[0]])

    def test_another_group_is_not_looked_at(self) -> None:
        """However near it is."""
        self.put("boil an egg", group=OTHER)
        self.assertEqual(self.found("boil an egg"), [])
        self.assertEqual([each.item for each in self.found("boil an egg", group=OTHER)], ["boil an egg"])

    def test_the_sketch_misses_next_to_nothing(self) -> None:
        """Of 1,200 random texts the nearest is found for all of 25 that one word was added to; in small slices."""
        draw = random.Random(5)
        texts = [" ".join(draw.choices(WORDS, k=7)) for _ in range(1200)]
        self.put(*texts)
        missed = 0
        vectors = dict(zip(texts, self.embedder.embed(texts), strict=True))
        for text in texts[:25]:
            (asked,) = self.embedder.embed([f"{text} please"])
            near, slices = finish(self.index.search(GROUP, asked, 0.6))
            best = max(vectors, key=lambda each: dot(vectors[each], asked))
            missed += near[0].cosine < dot(vectors[best], asked) - 0.01
            self.assertEqual(slices, math.ceil(self.index.entries / SLICE))
            self.assertLessEqual(len(near), RESCORED)
        self.assertEqual(missed, 0)

    def test_few_are_looked_at_and_the_nearest_among_them(self) -> None:
        """Wherever they stand."""
        self.put("how do i cancel my plan", "cancel it", "cancel plan", "my fee", "how do i cancel my plan now", "rome")
        with mock.patch.object(nearest, "SLICE", 1), mock.patch.object(nearest, "RESCORED", 2):
            near = self.found("how do i cancel my plan")
        self.assertEqual([each.item for each in near], ["how do i cancel my plan", "how do i cancel my plan now"])

    def test_a_sketch_tells_few_numbers_apart(self) -> None:
        """Vectors of next to nothing but zeros differ in half of their bits: else all would seem near."""
        sketches = [self.index._sketch([0.0] * place + [1.0] + [0.0] * (255 - place)) for place in range(16)]
        apart = [(one ^ other).bit_count() for one in sketches for other in sketches if one is not other]
        self.assertEqual({*apart}, {128})

    def test_any_length_and_any_vector_can_be_kept(self) -> None:
        """Also one of a single number, of more than a sketch has bits, or without a direction."""
        for dim in (1, 3, 600):
            draw = random.Random(dim)
            index: Nearest[int] = Nearest(dim, ROOMY)
            vectors = [unit([draw.gauss(0, 1) for _ in range(dim)]) for _ in range(20)]
            for number, vector in enumerate([*vectors, [0.0] * dim]):
                index.put(GROUP, str(number), vector, number)
            for number, vector in enumerate(vectors):
                near, _ = finish(index.search(GROUP, vector, 0.9))
                self.assertIn(number, [each.item for each in near])
                self.assertAlmostEqual(near[0].cosine, 1.0, delta=0.02)
            self.assertEqual(finish(index.search(GROUP, [0.0] * dim, 0.1))[0], [])


class BoundTest(unittest.TestCase):
    """What is kept, and what goes."""

    def put(self, index: Nearest[str], text: str, group: bytes = GROUP) -> None:
        index.put(group, text, [1.0], text)

    def texts(self, index: Nearest[str], group: bytes = GROUP) -> set[str]:
        near, _ = finish(index.search(group, [1.0], 0.0))
        return {each.item for each in near}

    def test_the_first_goes_first(self) -> None:
        """A text that is put again is the last."""
        size = ITEM_BYTES + 1 + 4
        index: Nearest[str] = Nearest(1, GROUP_BYTES + 3 * size)
        for text in ("a", "b", "c", "a", "d"):
            self.put(index, text)
        self.assertEqual(self.texts(index), {"c", "a", "d"})
        self.assertEqual((index.entries, index.bytes), (3, GROUP_BYTES + 3 * size))

    def test_a_group_counts_too(self) -> None:
        """Many small ones stay under the bound, and leave nothing behind."""
        index: Nearest[str] = Nearest(1, 3 * (GROUP_BYTES + ITEM_BYTES + 16))
        for number in range(50):
            self.put(index, "a", b"%016d" % number)
            self.assertLessEqual(index.bytes, 3 * (GROUP_BYTES + ITEM_BYTES + 16))
        self.assertEqual(index.entries, 3)
        self.assertEqual(len(index._groups), 3)
        index.keep(lambda text: False)
        self.assertEqual((index.entries, index.bytes, index._groups), (0, 0, {}))

    def test_a_new_group_finds_its_room(self) -> None:
        """It costs more than an item."""
        size = ITEM_BYTES + 1 + 4
        index: Nearest[str] = Nearest(1, GROUP_BYTES + 4 * size)
        for text in ("a", "b", "c", "d"):
            self.put(index, text)
        self.put(index, "e", OTHER)
        self.assertLessEqual(index.bytes, GROUP_BYTES + 4 * size)
        self.assertEqual(self.texts(index, OTHER), {"e"})

    def test_what_has_no_room_at_all_is_not_kept(self) -> None:
        """And pushes out nothing, but for its older self."""
        index: Nearest[str] = Nearest(1, GROUP_BYTES + ITEM_BYTES + 100)
        self.put(index, "a")
        self.put(index, "b" * 100)
        self.assertEqual(self.texts(index), {"a"})

    def test_what_is_not_wanted_goes(self) -> None:
        """And the others stay where they can be found."""
        index: Nearest[str] = Nearest(1, ROOMY)
        for number in range(10):
            self.put(index, str(number))
        index.keep(lambda text: int(text) % 3 == 0)
        self.assertEqual(self.texts(index), {"0", "3", "6", "9"})
        for text in ("3", "0", "x"):
            self.put(index, text)
        self.assertEqual(self.texts(index), {"0", "3", "6", "9", "x"})

    def test_a_sketch_is_the_same_in_every_process(self) -> None:
        """Nothing of it is left to chance."""
        self.assertEqual(nearest._signs(16), [-1, 1, 1, 1, -1, -1, -1, -1, 1, -1, -1, 1, 1, 1, -1, 1])
