"""Labelled pairs of any shape, made into questions: either as they were labelled, or refused."""

import unittest

from hypothesis import given
from hypothesis import strategies as st

from evals.semantic_sets import Pair
from evals.wordings import Contradiction, families

TEXTS = st.integers(0, 6).map(lambda number: f"{'T' if number % 2 else 't'}{number // 2}")
"""Some of which differ in their capital alone."""

LABELLED = st.builds(Pair, st.just("id"), TEXTS, TEXTS, st.booleans(), st.just("kind"), st.just(""))


class FamiliesTest(unittest.TestCase):
    """Whatever the labels say."""

    @given(st.lists(LABELLED, min_size=1, max_size=8))
    def test_every_pair_is_kept_as_it_was_labelled(self, pairs: list[Pair]) -> None:
        """In one family, under one number or two; every text stands in one family alone."""
        try:
            found = [{wording.text: wording.question for wording in family} for family in families(pairs)]
        except Contradiction:
            return
        self.assertEqual(sum(map(len, found)), len({text for pair in pairs for text in (pair.a, pair.b)}))
        for pair in pairs:
            (family,) = [family for family in found if pair.a in family]
            self.assertEqual(family[pair.a] == family[pair.b], pair.same)
