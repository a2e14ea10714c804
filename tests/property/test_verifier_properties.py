"""What holds of any two texts that the semantic verifier reads."""

import string
import unittest

from hypothesis import given
from hypothesis import strategies as st

from gateway.semantic.grey import Bar, bar, mark
from gateway.semantic.verifier import read, verify

VOCABULARY = (
    "how do i what is are the a an of 's who was by can could in at to from please hi , . ? ! 5 km $ two may and or not"
    " did dog dogs bob's wrote written author turn on off need have price cost mean into convert US it located"
)
words = st.sampled_from(VOCABULARY.split())
texts = st.one_of(
    st.lists(words, max_size=14).map(" ".join),
    st.text(max_size=40),
    st.text(alphabet=string.printable, max_size=60),
)


class PromiseTest(unittest.TestCase):
    """What a caller may build on."""

    @given(texts, texts)
    def test_the_same_question_has_the_same_key(self, one: str, other: str) -> None:
        """So an index on the key finds every candidate."""
        asked, stored = read(one), read(other)
        refuted = verify(asked, stored) is not None
        self.assertEqual(refuted, verify(stored, asked) is not None)
        self.assertTrue(refuted or asked.key == stored.key)
        self.assertEqual(len(asked.key), 32)

    @given(texts, texts)
    def test_what_bars_a_judge_does_so_both_ways(self, one: str, other: str) -> None:
        """And what has another mark is barred, so that it need not be compared."""
        first, second = read(one), read(other)
        self.assertEqual(bar(first, second), bar(second, first))
        self.assertTrue(mark(first) == mark(second) or bar(first, second) is not None)
        self.assertIn(bar(first, first), (None, Bar.STEERING))

    @given(texts)
    def test_a_text_asks_what_it_asks(self, text: str) -> None:
        """Whatever it is, and always with one key."""
        question = read(text)
        self.assertEqual(question.text, text)
        self.assertIsNone(verify(question, read(text)))
        self.assertEqual(question.key, read(text).key)

    @given(texts, texts)
    def test_content_is_never_lost(self, text: str, more: str) -> None:
        """A word that is on no list makes another question."""
        self.assertIsNotNone(verify(read(f"{text} {more}"), read(f"{text} zyzzyva {more}")))
