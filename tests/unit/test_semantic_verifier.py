"""The verifier as a whole: its vetoes, its promise about keys, and any text there is."""

import unittest
from itertools import product

from gateway.semantic.rules import BESIDE_THE_KEY, RULES
from gateway.semantic.verifier import VERSION, Refutation, Veto, read, verify
from tests.support.questions import QuestionCase

NEAR_MISSES = (
    (Veto.FRAME, "When was Nokia founded?", "Why was Nokia founded?"),
    (Veto.QUOTED, 'Translate "the" to French', 'Translate "The" to French'),
    (Veto.QUOTED, "What does 'hot' mean?", "What does hot mean?"),
    (Veto.CAPITALS, "Where is Turkey?", "Where is turkey?"),
    (Veto.MODE, "Who is the president?", "Who was the president?"),
    (Veto.SENSE, "What is she like?", "What does she like?"),
    (Veto.SENSE, "Am I allowed to swim in Rome?", "Am I able to swim in Rome?"),
    (Veto.NUMBER, "How do I add 10 users?", "How do I add 25 users?"),
    (Veto.NUMBER, "Can I take two pills at once?", "Can I take pills at once?"),
    (Veto.NEGATION, "Why did the build fail?", "Why did the build not fail?"),
    (Veto.NEGATION, "why does it work", "why doesn't it work"),
    (Veto.NEGATION, "do cats never sleep", "do cats sleep"),
    (Veto.NEGATION, "Can I get a refund if I cancel?", "Can I get a refund unless I cancel?"),
    (Veto.PREPOSITION, "How do I send mail to Japan?", "How do I send mail from Japan?"),
    (Veto.PREPOSITION, "Who is on the bus?", "Who is in the bus?"),
    (Veto.PREPOSITION, "Can I eat before a scan?", "Can I eat after a scan?"),
    (Veto.CONTENT, "How do I get a refund?", "How do I get a receipt?"),
    (Veto.CONTENT, "Do all plans include support?", "Do some plans include support?"),
    (Veto.CONTENT, "Who created Dune and when?", "Who created Dune?"),
    (Veto.CONTENT, "How do I reset Gmail?", "How do I reset my Gmail?"),
    (Veto.CONTENT, "How do I process mail?", "How do I processing mail?"),
    (Veto.TOO_LITTLE, "refunds", "refund"),
    (Veto.TOO_LITTLE, "who?", "who"),
    (Veto.ORDER, "How do I fly from Rome to Bari?", "How do I fly from Bari to Rome?"),
    (Veto.COUNT, "How do I open the file?", "How do I open the files?"),
    (Veto.ORDER, "What does Ann think of Bob?", "What does Bob think of Ann?"),
    (Veto.ARTICLE, "what is the matrix", "what is a matrix"),
)

HOSTILE = (
    "please " * 2000,
    "hi " * 3333,
    "um " * 3333,
    "can you tell me " * 666 + "why",
    "a" * 10000,
    "aa ed ing " * 1000,
    "," * 10000,
    "' " * 3333,
    '" ' * 3333,
    "'" + "a " * 3333,
    "1," * 5000,
    "1-" * 5000,
    "a-" * 5000,
    "a." * 5000,
    "of 's " * 1666,
    "in " * 3333 + ", can",
    "is it allowed to " * 666,
    "what by " * 1333,
    "how much cost " * 666,
    "٣²½" * 1000,
    "\u0300" * 1666,
    "\ufdfa" * 666,
    "\ud800" * 1000,
    "a" + "\u0300\u0316" * 4000,
    "A" + "\u0301" * 666,
)


class VetoTest(QuestionCase):
    """Why an answer is not given to another question."""

    def test_each_difference_is_named(self) -> None:
        """The first rule that sees it."""
        for veto, one, other in NEAR_MISSES:
            self.different(one, other, veto)

    def test_every_veto_is_tried(self) -> None:
        """A rule that is added needs a pair here."""
        self.assertEqual({veto for veto, _, _ in NEAR_MISSES}, set(Veto))

    def test_the_detail_says_what_differs(self) -> None:
        """For the log: both sides."""
        for one, other, detail in (
            ("How do I add 10 users?", "How do I add 25 users?", "#10 / #25"),
            ("When was Nokia founded?", "Why was Nokia founded?", "when / reason"),
            ("Who is the president?", "Who was the president?", "present / past"),
            ("What is she like?", "What does she like?", "be / do"),
            ("Where is Turkey?", "Where is turkey?", "turkey"),
            ("refunds", "refund", "refund"),
            ("?", "", "nothing"),
            ("Who saw Bob and Al?", "Who saw Al and Bob?", "bob and al / al and bob"),
            ('Say "a" to Bob', 'Say "b" to Bob', "('a',) / ('b',)"),
        ):
            refutation = verify(read(one), read(other))
            self.assertIsInstance(refutation, Refutation)
            self.assertEqual(refutation and refutation.detail, detail)

    def test_the_same_words_are_the_same_however_little_they_say(self) -> None:
        """White space apart."""
        self.same("refunds", " refunds ")
        self.same("?", "?")
        self.same("", "  ")

    def test_light_edits_ask_the_same(self) -> None:
        """Case, punctuation, manners, contractions, spelling."""
        self.same(
            "What's the cost of a large parcel to Japan?",
            "what is the price of a big package to japan",
            "Hi, could you tell me what the price of a large parcel to Japan is? Thanks",
        )


class PromiseTest(unittest.TestCase):
    """What a caller may build on."""

    def test_the_version_is_part_of_the_key(self) -> None:
        """A change of the rules finds no old entry: this digest changes with VERSION only, or VERSION was forgotten."""
        key = read("How do I cancel my order?").key.hex()
        self.assertEqual((VERSION, key[:16]), (6, "ef69251bb2fd2a27"))

    def test_what_a_key_holds_is_the_same_within_it(self) -> None:
        """Questions of one key differ in nothing but what is compared beside it; those of two keys always do."""
        texts = [text for _, *pair in NEAR_MISSES for text in pair]
        questions = [read(text) for text in texts]
        for one, other in product(questions, repeat=2):
            seen = {veto for veto, rule in RULES if rule(one, other) is not None}
            self.assertEqual(bool(seen - BESIDE_THE_KEY), one.key != other.key, (one.text, other.text))

    def test_no_text_is_too_much(self) -> None:
        """Long, broken and foreign texts are read, and agree with themselves."""
        for text in HOSTILE:
            question = read(text)
            self.assertIsNone(verify(question, read(text)))
