"""What a cache would have served of pairs and streams, counted; and what the verifiers that are compared say."""

import unittest
from collections.abc import Sequence
from itertools import chain
from unittest import mock

from evals import vectors
from evals.semantic_judges import ClosedWorld, NumbersAndCapitals, judges
from evals.semantic_replay import MOST_TRIED, ByKey, ByVector, replay
from evals.semantic_replay import told as told_replay
from evals.semantic_score import Judged, Tally, by_kind, certainty, judged, tally, told, vetoes, wrong_hits
from evals.semantic_sets import Asked, Pair
from llmkit.embed import HashEmbedder


def pair(number: int, *, same: bool, kind: str = "k", a: str = "one", b: str = "other") -> Pair:
    """A pair of this label."""
    return Pair(f"p{number}", a, b, same, kind, "")


FOUND = [
    Judged(pair(1, same=True, kind="light"), 0.9, None),
    Judged(pair(2, same=True, kind="light"), 0.8, None),
    Judged(pair(3, same=True, kind="free"), 0.95, "content"),
    Judged(pair(4, same=False, kind="number"), 0.9, None),
    Judged(pair(5, same=False, kind="number"), 0.99, "number"),
    Judged(pair(6, same=False, kind="number"), 0.5, "number"),
]


class Keyed:
    """A judge whose key is the first letter, that refuses `x`, and finds a difference in the second letter."""

    name, version, has_key = "keyed", 1, True

    def refusal(self, text: str) -> str | None:
        """Of what begins with an x."""
        return "ineligible" if text.startswith("x") else None

    def key(self, text: str) -> bytes | None:
        """The first letter."""
        return text[:1].encode()

    def difference(self, asked: str, stored: str) -> str | None:
        """In the second letter."""
        return None if asked[1] == stored[1] else "second"


class PairsTest(unittest.TestCase):
    """Labelled pairs."""

    def test_what_is_near_enough_and_not_vetoed_is_served(self) -> None:
        """At the threshold too."""
        self.assertEqual(tally(FOUND, 0.9), Tally(3, 3, right=1, wrong=1))
        self.assertEqual(tally(FOUND, 0.8), Tally(3, 3, right=2, wrong=1))
        self.assertEqual(tally(FOUND, 0.91), Tally(3, 3))
        self.assertEqual([one.id for one in wrong_hits(FOUND, 0.8)], ["p4"])

    def test_without_an_embedder_every_pair_is_looked_at(self) -> None:
        """Whatever the threshold."""
        self.assertTrue(Judged(pair(1, same=True), None, None).is_served(1.0))
        self.assertFalse(Judged(pair(1, same=True), None, "content").is_served(-1.0))

    def test_kinds_are_counted_apart_in_their_order(self) -> None:
        """And a share of nothing is none."""
        kinds = by_kind(FOUND, 0.9)
        self.assertEqual(list(kinds), ["light", "free", "number"])
        self.assertEqual(kinds["light"], Tally(paraphrases=2, right=1))
        self.assertEqual((kinds["light"].recall, kinds["number"].recall), (0.5, None))

    def test_a_veto_counts_where_the_pair_was_near_enough(self) -> None:
        """What is too far was never asked about."""
        self.assertEqual(vetoes(FOUND, 0.9), {"content": 1, "number": 1})
        self.assertEqual(vetoes(FOUND, 0.0), {"number": 2, "content": 1})
        self.assertEqual(told(FOUND, 0.9)["too_far"], 2)

    def test_everything_is_told_with_its_interval(self) -> None:
        """Hits, precision, recall, kinds, and the wrong hits by name."""
        said = told(FOUND, 0.8)
        self.assertEqual((said["hits"], said["right"], said["wrong"]), (3, 2, 1))
        self.assertAlmostEqual(said["precision"], 2 / 3)
        low, high = said["precision_95"]
        self.assertTrue(0.09 < low < 0.1 and 0.99 < high < 0.992, (low, high))
        self.assertAlmostEqual(said["recall"], 2 / 3)
        self.assertEqual(said["kinds"]["number"]["wrong"], 1)
        self.assertEqual(said["wrong_hits"], [{"id": "p4", "kind": "number", "asked": "other", "stored": "one"}])

    def test_no_hits_have_no_precision(self) -> None:
        """Neither perfect nor zero."""
        self.assertEqual((certainty(0, 0)["precision"], certainty(0, 0)["precision_95"]), (None, (0.0, 1.0)))

    def test_the_second_question_is_asked_where_the_first_is_stored(self) -> None:
        """A text of either side that is refused is served nothing."""
        asked: list[tuple[str, str]] = []

        class Noting(Keyed):
            """Remembers what it was asked."""

            def difference(self, asked_text: str, stored: str) -> str | None:
                asked.append((asked_text, stored))
                return None

        pairs = [
            pair(number, same=True, a=a, b=b) for number, (a, b) in enumerate((("a1", "b1"), ("x", "b"), ("a", "x")))
        ]
        found = judged(pairs, Noting(), [None] * 3)
        self.assertEqual(asked, [("b1", "a1")])
        self.assertEqual([one.veto for one in found], [None, "ineligible", "ineligible"])


class ReplayTest(unittest.TestCase):
    """Streams of questions."""

    def stream(self, *texts: str, keys: Sequence[str] | None = None) -> list[Asked]:
        """One question for each text; the key is its second letter, if none are given."""
        return [Asked(f"q{number}", text, keys[number] if keys else text[1:2]) for number, text in enumerate(texts)]

    def played(self, stream: Sequence[Asked]) -> tuple[tuple[tuple[int, int], ...], dict[str, int]]:
        """Hits and vetoes by the key of Keyed."""
        judge = Keyed()
        found = replay(stream, ByKey([judge.key(asked.text) for asked in stream]), judge)
        return found.hits, dict(found.vetoes)

    def test_a_question_is_stored_where_nothing_was_served(self) -> None:
        """A hit is not stored: what comes later is held against what was answered."""
        self.assertEqual(self.played(self.stream("aa1", "aa2", "aa3")), (((1, 0), (2, 0)), {}))

    def test_of_equal_keys_each_is_tried_the_newest_first(self) -> None:
        """Each that differs is a veto."""
        hits, vetoes_seen = self.played(self.stream("aa", "ab", "ac", "ab2", "aa2"))
        self.assertEqual(hits, ((3, 1), (4, 0)))
        self.assertEqual(vetoes_seen, {"second": 1 + 2 + 1 + 2})

    def test_no_more_than_the_cache_keeps_are_tried(self) -> None:
        """The oldest is out of reach behind so many others."""
        letters = "abcdefghijkl"
        texts = [f"a{letter}" for letter in letters[: MOST_TRIED + 1]]
        self.assertEqual(self.played(self.stream(*texts, "ab2"))[0], ((MOST_TRIED + 1, 1),))
        self.assertEqual(self.played(self.stream(*texts, "aa2"))[0], ())

    def test_a_refused_question_is_neither_looked_up_nor_stored(self) -> None:
        """It is counted by its reason."""
        self.assertEqual(self.played(self.stream("xa", "xa2")), ((), {"ineligible": 2}))

    def test_a_hit_with_another_key_is_wrong(self) -> None:
        """Told with both questions, and per 1,000 questions."""
        stream = self.stream("aa", "aa2", "aa3", "bb", keys=("k", "other", "k", "k"))
        judge = Keyed()
        said = told_replay(stream, replay(stream, ByKey([judge.key(asked.text) for asked in stream]), judge))
        self.assertEqual((said["hits"], said["right"], said["wrong"], said["wrong_per_1000"]), (2, 1, 1, 250))
        self.assertEqual(said["wrong_hits"], [{"id": "q1", "stored_id": "q0", "asked": "aa2", "stored": "aa"}])
        self.assertEqual((said["answerable"], said["oracle_rate"], said["hit_rate"]), (2, 0.5, 0.5))

    def test_the_nearest_stored_question_is_the_only_one_that_is_tried(self) -> None:
        """At the threshold or above; one that was itself served is not stored."""
        stream = self.stream("aa", "ab", "aa2", "ab2")
        neighbours = [[], [(0.9, 0)], [(0.95, 1), (0.94, 0)], [(0.99, 2), (0.9, 1)]]
        judge = Keyed()
        self.assertEqual(replay(stream, ByVector(neighbours, 0.9), judge).hits, ())
        served = [[], [], [(0.99, 0)], [(0.99, 2), (0.9, 1)]]
        self.assertEqual(replay(stream, ByVector(served, 0.9), judge).hits, ((2, 0), (3, 1)))
        self.assertEqual(replay(stream, ByVector(served, 0.91), judge).hits, ((2, 0),))


class VectorsTest(unittest.TestCase):
    """Cosines."""

    TEXTS = ("how do i pay", "how do i pay?", "where is my parcel", "how do I pay", "a")

    def test_neighbours_are_the_earlier_ones_the_nearest_first(self) -> None:
        """Of equals the earlier; those below the floor are left out."""
        near = vectors.neighbours([[1.0, 0.0], [0.6, 0.8], [1.0, 0.0], [0.8, 0.6]], 0.7)
        self.assertEqual([[place for _, place in row] for row in near], [[], [], [0], [1, 0, 2]])

    def test_with_and_without_numpy_they_are_the_same(self) -> None:
        """It is only faster."""
        embedded = HashEmbedder().embed(self.TEXTS)
        with mock.patch.dict("sys.modules", {"numpy": None}):
            plain = vectors.neighbours(embedded, 0.1)
        fast = vectors.neighbours(embedded, 0.1)
        places = [[[place for _, place in row] for row in found] for found in (plain, fast)]
        self.assertEqual(places[0], places[1])
        self.assertGreater(sum(map(len, plain)), 2)
        for one, other in zip(chain(*plain), chain(*fast), strict=True):
            self.assertAlmostEqual(one[0], other[0], places=12)

    def test_the_cosine_of_a_pair_is_between_its_own_questions(self) -> None:
        """In the order of the pairs."""
        pairs = [pair(1, same=True, a="pay", b="pay"), pair(2, same=False, a="pay", b="parcels from Lyon")]
        same, other = vectors.cosines(HashEmbedder(), pairs)
        self.assertAlmostEqual(same, 1.0)
        self.assertLess(other, 0.5)


class JudgesTest(unittest.TestCase):
    """The three verifiers."""

    def test_numbers_are_compared_as_they_are_written(self) -> None:
        """As often as they come, in any order."""
        judge = NumbersAndCapitals()
        self.assertIsNone(judge.difference("Is 5 of 10 more?", "is it 10 if 5"))
        for asked, stored in (("in 2024", "in 2025"), ("in 5", "in 5 or 5"), ("at 5.0", "at 5"), ("on 3/4", "on 4/3")):
            with self.subTest(asked):
                self.assertEqual(judge.difference(asked, stored), "numbers")

    def test_capitals_are_compared_but_for_the_first_word(self) -> None:
        """Names in another order are the same names."""
        judge = NumbersAndCapitals()
        self.assertIsNone(judge.difference("Where is Lyon?", "so where's Lyon"))
        self.assertIsNone(judge.difference("does Anna know Boris", "does Boris know Anna"))
        self.assertEqual(judge.difference("where is Lyon", "where is lyon"), "capitals")
        self.assertEqual(judge.difference("is it in Lyon", "is it in Bern"), "capitals")

    def test_the_gateways_verifier_refuses_what_the_cache_refuses(self) -> None:
        """Unless every text is to be looked up."""
        text = "What does this mean?"
        self.assertEqual(ClosedWorld().refusal(text), "ineligible: deixis")
        self.assertIsNone(ClosedWorld(every_text=True).refusal(text))

    def test_the_gateways_verifier_has_keys_and_names_its_vetoes(self) -> None:
        """The others have no key."""
        judge = ClosedWorld()
        asked, stored = "How do I cancel order 7?", "how do i cancel order 8, please?"
        self.assertEqual(judge.difference(asked, stored), "number")
        self.assertIsNone(judge.difference(asked, "hi, how can I cancel order 7"))
        self.assertEqual(judge.key(asked), judge.key("hi, how can I cancel order 7"))
        self.assertIsNone(judge.key("?"))
        for other in judges().values():
            self.assertEqual(other.key(asked) is not None, other.has_key)
        self.assertEqual([other.name for other in judges().values() if other.has_key], ["closed-world"])
