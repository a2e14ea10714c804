"""Which texts are one question, by the labels of pairs and by spelling."""

import unittest

from evals import semantic_corpus
from evals.semantic_sets import Pair
from evals.wordings import Contradiction, families


def pair(a: str, b: str, *, same: bool, group: str = "") -> Pair:
    """One pair."""
    return Pair(f"{a} / {b}", a, b, same, "kind", "", group)


def found(*pairs: Pair) -> list[dict[str, int]]:
    """The families as question by text."""
    return [{wording.text: wording.question for wording in family} for family in families(pairs)]


class FamiliesTest(unittest.TestCase):
    """Questions, their wordings, and what lies near them."""

    def test_what_pairs_call_the_same_is_one_question(self) -> None:
        """Also over a third text."""
        self.assertEqual(
            found(pair("a", "b", same=True), pair("c", "b", same=True), pair("x", "y", same=True)),
            [{"a": 0, "b": 0, "c": 0}, {"x": 1, "y": 1}],
        )

    def test_a_near_miss_is_another_question_of_the_family(self) -> None:
        """And what is the same as it is that one, too."""
        self.assertEqual(found(pair("a", "b", same=False), pair("b", "c", same=True)), [{"a": 0, "b": 1, "c": 1}])

    def test_spelling_alone_makes_no_other_question(self) -> None:
        """Capitals, white space and marks at the end; what they join is one family."""
        self.assertEqual(
            found(pair("How is a cat fed?", "x", same=False), pair("how is  a Cat fed", "y", same=False)),
            [{"How is a cat fed?": 0, "x": 1, "how is  a Cat fed": 0, "y": 2}],
        )
        self.assertEqual(found(pair("in 1.5", "in 15", same=False)), [{"in 1.5": 0, "in 15": 1}])

    def test_a_label_is_stronger_than_spelling(self) -> None:
        """Also where it was given to other wordings of the two."""
        self.assertEqual(found(pair("a Jaguar", "a jaguar", same=False)), [{"a Jaguar": 0, "a jaguar": 1}])
        (family,) = found(
            pair("a big Jaguar", "a Jaguar", same=True),
            pair("a big jaguar", "a jaguar", same=True),
            pair("a Jaguar", "a jaguar", same=False),
        )
        self.assertNotEqual(family["a big Jaguar"], family["a big jaguar"])

    def test_labels_that_contradict_each_other_are_refused(self) -> None:
        """By the name of the pair that cannot be true."""
        with self.assertRaisesRegex(Contradiction, "a / c: 'a' and 'c'"):
            families([pair("a", "b", same=True), pair("b", "c", same=True), pair("a", "c", same=False)])

    def test_a_group_that_nothing_connects_is_left_out(self) -> None:
        """With all that is connected to it; other groups stay, and texts without a group are none."""
        torn = [pair("a", "b", same=False, group="g"), pair("c", "d", same=True, group="g")]
        self.assertEqual(found(*torn, pair("d", "e", same=True, group="h")), [])
        self.assertEqual([list(family) for family in found(*torn, pair("x", "y", same=True, group="k"))], [["x", "y"]])
        self.assertEqual(len(found(pair("a", "b", same=False), pair("c", "d", same=True))), 2)
        self.assertEqual(len(found(*torn, pair("B!", "D!", same=False, group="g"))), 1)


class CommittedTest(unittest.TestCase):
    """The pairs of this project."""

    def test_they_contradict_neither_each_other_nor_their_spelling(self) -> None:
        """Each pair that is kept is as it was labelled."""
        written = semantic_corpus.sets(semantic_corpus.WRITTEN)
        pairs = [one for ones in written.values() for one in ones]
        number = {wording.text: wording.question for family in families(pairs) for wording in family}
        kept = [one for one in pairs if one.a in number]
        self.assertGreater(len(kept), 1_100)
        self.assertEqual([one.id for one in kept if (number[one.a] == number[one.b]) != one.same], [])
