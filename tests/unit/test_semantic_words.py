"""Characters, words and capitals: what of a text says nothing, and that nothing else is lost."""

import unittest

from gateway.semantic.patterns import Phrases, expand
from gateway.semantic.plain import plain, quotations
from gateway.semantic.verifier import Veto
from gateway.semantic.words import scan
from tests.support.questions import QuestionCase


class PlainTest(QuestionCase):
    """One form of each character."""

    def test_typographic_marks_are_those_of_ascii(self) -> None:
        """Quotes, apostrophes, dashes, full width."""
        self.same('Is "hot" a word?', "Is “hot” a word?", "Is «hot» a word?", "Is ＂hot＂ a word?")
        self.same("Why can't cats swim?", "Why can’t cats swim?", "Why canʼt cats swim?")
        self.same("Is 5-3 odd?", "Is 5–3 odd?", "Is 5−3 odd?", "Ｉｓ 5—3 odd?")

    def test_a_raised_number_is_no_digit(self) -> None:
        """Nor a fraction, nor a number in a circle."""
        for one, other in (
            ("What is 10²?", "What is 102?"),
            ("What is x² at 3?", "What is x³ at 3?"),
            ("What is 1½?", "What is 11/2?"),
            ("What is step 1①?", "What is step 11?"),
        ):
            self.different(one, other)

    def test_ascii_is_left_alone(self) -> None:
        """It is returned as it came."""
        text = "Is 5 > 3?\x00"
        self.assertIs(plain(text), text)

    def test_what_is_quoted_is_kept_as_written(self) -> None:
        """Sorted, one space for white space, apostrophes are no quotes."""
        self.assertEqual(quotations("a \"B  c\" and 'd'"), ("B c", "d"))
        self.assertEqual(quotations("Bob's dog isn't Al's"), ())
        self.assertEqual(quotations("none"), ())


class SignsTest(QuestionCase):
    """Signs count, but for pauses behind words and quotes in pairs."""

    def test_pauses_say_nothing(self) -> None:
        """Behind a word and at the end."""
        self.same("Is tea hot, or cold?", "Is tea hot or cold", "Is tea hot; or cold ?!", "Is tea hot: or cold...")

    def test_a_pause_that_is_asked_about_counts(self) -> None:
        """It stands where a word would."""
        self.different("What does ? mean", "What does ! mean", Veto.CONTENT)
        self.different("Where is the ; key", "Where is the key")

    def test_a_factorial_counts(self) -> None:
        """A number and an exclamation mark."""
        self.different("What is 5!", "What is 5?", Veto.CONTENT)
        self.different("what does ? do in Kotlin", "what does ?. do in Kotlin", Veto.CONTENT)
        self.different("what does cd .. do", "what does cd . do", Veto.CONTENT)
        self.same("Is it 5 km!", "Is it 5 km?")

    def test_every_other_sign_counts(self) -> None:
        """Operators, brackets, currencies, hashes, scripts that it cannot read."""
        for one, other in (
            ("What is 2+2?", "What is 2-2?"),
            ("What is 2-2?", "What is 22?"),
            ("What is -5?", "What is 5?"),
            ("Is x > 5 in it?", "Is x < 5 in it?"),
            ("What is (2+3)*4?", "What is 2+(3*4)?"),
            ("Is 50% enough?", "Is 50 enough?"),
            ("How do I learn C?", "How do I learn C#?"),
            ("How do I learn C?", "How do I learn C++?"),
            ("What is H2O?", "What is H20?"),
            ("Who is at bob@a.example?", "Who is at bob@b.example?"),
            ("What is A/B?", "What is AB?"),
            ("What is 東京?", "What is 京都?"),
            ("What is 😀?", "What is 😡?"),
            ("What is a\u200bb?", "What is ab?"),
            ('Is it 6" wide?', "Is it 6 wide?"),
        ):
            self.different(one, other)

    def test_an_ampersand_is_no_and(self) -> None:
        """Alone or inside a word."""
        self.different("what does & do in Excel?", "what does and do in Excel?", Veto.CONTENT)
        self.different("Is R&B music?", "Is RB music?")

    def test_a_lowered_number_is_not_a_raised_one(self) -> None:
        """A logarithm to the base of two is no square."""
        self.different("what is log₂ 8?", "what is log² 8?")

    def test_quotes_of_either_kind_quote(self) -> None:
        """In pairs."""
        self.same("Who wrote 'Dune' first?", 'Who wrote "Dune" first?')

    def test_a_single_apostrophe_says_something(self) -> None:
        """A derivative, feet; a pair of them quotes."""
        self.different("what is f'(x)?", "what is f(x)?", Veto.CONTENT)
        self.different("what is 5' in cm?", "what is 5 in cm?", Veto.CONTENT)

    def test_signs_of_programming_count(self) -> None:
        """Beside a word that says what it is about; commas, greetings and the end do not."""
        for one, other in (
            ("what does save! do in ruby?", "what does save do in ruby?"),
            ("what does int? mean in c#?", "what does int mean in c#?"),
            ("what does x = 1; do in c++?", "what does x = 1 do in c++?"),
            ("what is a[1:] in python?", "what is a[:1] in python?"),
        ):
            self.different(one, other)
        self.same(
            "Hi! How do I sort in Python?", "How do I sort, in Python?!", "Quick question: how do I sort in Python?"
        )
        self.same("What is n! by Bob?", "what is n! by bob?")
        self.different("what is the derivative of n!?", "what is the derivative of n?", Veto.CONTENT)

    def test_a_comma_behind_a_name_that_looks_like_a_small_word_says_nothing(self) -> None:
        """US is marked, and no sign: whatever makes the signs of a question be looked at."""
        self.same("In the US, who teaches Python?", "Who teaches Python in the US?")
        self.same('In the US, who wrote "Dune"?', 'Who wrote "Dune" in the US?')
        self.same("Hi! In the US, who pays?", "Who pays in the US?")
        self.different("what does ?. do in Kotlin", "what does ? do in Kotlin", Veto.CONTENT)
        self.different("what is ^, in Python", "what is ^ in Python", Veto.CONTENT)

    def test_a_sign_that_stands_alone_at_the_end_is_asked_about(self) -> None:
        """But one that ends a sentence."""
        self.different("when do I use a ;", "when do I use a :", Veto.CONTENT)
        self.same("when do I sleep ?", "when do I sleep", "when do I sleep !", "when do I sleep .")

    def test_a_hyphen_joins_words(self) -> None:
        """To re-sign is not to resign."""
        self.different("How do I re-sign it?", "How do I resign it?")
        self.different("What is a man-eating shark?", "What is a man eating shark?")

    def test_thousands_need_no_comma(self) -> None:
        """In groups of three only."""
        self.same("Is 40,000 enough?", "Is 40000 enough?")
        self.different("Is 1,5 enough?", "Is 15 enough?")
        self.different("Is 1,2,3 enough?", "Is 123 enough?")


class CapitalsTest(QuestionCase):
    """A capital is compared where both texts show that they use capitals."""

    def test_a_name_is_not_a_word(self) -> None:
        """Within a sentence."""
        self.different("Where is Turkey?", "Where is turkey?", Veto.CAPITALS)
        self.different("Is he from Reading?", "Is he from reading?", Veto.CAPITALS)

    def test_texts_without_capitals_do_not_tell(self) -> None:
        """Nor do those in capitals, in title case, or with no capital but I."""
        self.same(
            "Can I eat in Reading if I like?",
            "can i eat in reading if i like?",
            "can I eat in reading if I like?",
            "CAN I EAT IN READING IF I LIKE?",
            "Can I Eat In Reading If I Like?",
        )

    def test_i_is_no_name_however_contracted(self) -> None:
        """A text with no other capital does not use any."""
        for i in ("I", "I'm", "I've", "I'd", "I'll"):
            self.same(f"Is it true that {i} seen Reading?", f"is it true that {i} seen reading?")

    def test_the_first_word_does_not_tell(self) -> None:
        """Of a text, of a sentence, behind a colon, behind a quote."""
        self.same("Hi Bob. reading is fun?", "Hi Bob. Reading is fun?")
        self.same("Hi Bob: reading is fun?", "Hi Bob: Reading is fun?")
        self.same('"reading" is by Bob?', '"reading" is by Bob')

    def test_a_word_in_both_forms_does_not_tell(self) -> None:
        """The text has both."""
        self.same("Is Reading or reading by Bob fun?", "Is reading or reading by Bob fun?")

    def test_small_words_and_contractions_do_not_tell(self) -> None:
        """Nor do names of units."""
        self.same("Does Bob know if I'm late?", "Does Bob know if i'm late?")
        self.same("Is 5 Grams of Edam enough?", "Is 5 grams of Edam enough?")

    def test_a_small_word_in_capitals_is_a_name(self) -> None:
        """US, IT, WHO, and vitamin A."""
        for one, other in (
            ("What is the US rate?", "What is the us rate?"),
            ("Is he in IT?", "Is he in it?"),
            ("Is Bob in OR?", "Is Bob in or?"),
            ("Which foods have vitamin A in them?", "Which foods have vitamin in them?"),
        ):
            self.different(one, other)
        self.same("Can I Have A Dog In Rome?", "Can I have a dog in Rome?")

    def test_an_article_with_a_capital_before_a_name_is_part_of_it(self) -> None:
        """The Rock; but not in a title, nor before a small letter."""
        for one, other in (
            ("Who is The Rock?", "Who is the Rock?"),
            ("Who directed The Suicide Squad?", "Who directed Suicide Squad?"),
            ("Who wrote A Star Is Born?", "Who wrote Star Is Born?"),
        ):
            self.different(one, other, Veto.CONTENT)
        self.different("Who is The Rock?", "Who is a rock?")
        self.same("What Is The Capital of Peru?", "What is the capital of Peru?")
        self.same("Where is The bank in Rome?", "Where is the bank in Rome?")


class LettersTest(QuestionCase):
    """Words that are compared as they are written."""

    def test_the_case_of_a_single_letter_tells(self) -> None:
        """Wherever it stands, whatever the rest looks like."""
        self.different("what does d do in vim", "what does D do in vim", Veto.CAPITALS)
        self.different("Is vitamin d a drug?", "Is vitamin D a drug?", Veto.CAPITALS)
        self.different("What is g in physics?", "What is G in physics?", Veto.CAPITALS)
        self.same("Do I need a dog?", "do i need a dog?")

    def test_the_case_of_a_command_tells(self) -> None:
        """Behind a hyphen, a percent sign, a backslash."""
        for one, other in (
            ("what does git branch -d do", "what does git branch -D do"),
            ("what does ls -la do", "what does ls -lA do"),
            ("what does java -version do", "what does java -Version do"),
            ("what is %mm in strftime", "what is %MM in strftime"),
            ("what is \\dd in a regex", "what is \\DD in a regex"),
            ("what is $path in a shell", "what is $PATH in a shell"),
            ("what is @override in java", "what is @Override in java"),
        ):
            self.different(one, other, Veto.CAPITALS)

    def test_the_case_of_a_measure_tells(self) -> None:
        """Behind a number, joined to it, or by itself; a number is written in either way."""
        for one, other in (
            ("how many watts is 5 mW", "how many watts is 5 MW"),
            ("how many watts is 5mW", "how many watts is 5MW"),
            ("how fast is 10 mbps in rome", "how fast is 10 Mbps in rome"),
            ("how long is one mm in rome", "how long is one Mm in rome"),
            ("Is 1 mg of lead harmful?", "Is 1 Mg of lead harmful?"),
            ("How many Mb are in a TB?", "How many MB are in a TB?"),
        ):
            self.different(one, other, Veto.CAPITALS)
        for symbol in ["kg", "mg", "km", "cm", "mm", "ml", "mb", "gb", "tb"]:
            self.different(f"what is one {symbol} in rome", f"what is one {symbol.title()} in rome", Veto.CAPITALS)
        for ordinal in ("1st", "2nd", "3rd", "4th"):
            self.same(f"was he {ordinal} in rome", f"Was he {ordinal.upper()} in Rome")
        self.same("Is 5kg of Edam enough?", "is 5 kg of edam enough?")
        self.same("Is 2FA safe on the 3rd of June?", "is 2fa safe on 3RD June?")
        self.same("is 5 kg enough", "is 5 kilograms enough")

    def test_the_letters_of_a_short_name_tell(self) -> None:
        """Where capitals tell anything, and both have some."""
        self.different("What is the boiling point of CO?", "What is the boiling point of Co?", Veto.CAPITALS)
        self.different("Does Bob pay for 10 MBps in Rome?", "Does Bob pay for 10 Mbps in Rome?", Veto.CAPITALS)
        self.different("Is LaTeX for Bob?", "Is Latex for Bob?", Veto.CAPITALS)
        self.different("Co is what?", "CO is what?", Veto.CAPITALS)
        self.same("Is GitHub for Bob?", "Is Github for Bob?")
        self.same("Does Bob use the API?", "Does Bob use the api?", "Does Bob use the Api?")
        self.same("Near Rome?", "NEAR ROME?", "near rome?")

    def test_letters_without_a_case_leave_the_others_theirs(self) -> None:
        """In a text of small letters alone, capitals tell nothing."""
        self.assertEqual(scan("where is asia").capitals.lower, frozenset())
        self.assertIn("asia", scan("where is 日本 in asia").capitals.lower)


class PatternsTest(unittest.TestCase):
    """Phrases as data."""

    def test_a_pattern_is_every_phrase_of_it(self) -> None:
        """Alternatives and what may be missing."""
        self.assertEqual(
            set(expand("a|b [c|d] e")),
            {("a", "e"), ("b", "e"), ("a", "c", "e"), ("b", "c", "e"), ("a", "d", "e"), ("b", "d", "e")},
        )

    def test_a_bracket_around_two_words_is_refused(self) -> None:
        """It would never be found."""
        for pattern in ("a [b c]", "a [b", "a b]"):
            with self.assertRaises(ValueError):
                expand(pattern)

    def test_the_longest_phrase_is_found(self) -> None:
        """From the given place, also at the end."""
        phrases = Phrases([("a", 1), ("a b c", 3), ("a", 0)])
        self.assertEqual(phrases.at(["a", "b", "c"], 0), (3, 3))
        self.assertEqual(phrases.at(["a", "b", "x"], 0), (1, 1))
        self.assertEqual(phrases.at(["a", "b"], 0), (1, 1))
        self.assertIsNone(phrases.at(["a", "b"], 1))
        self.assertIsNone(phrases.at(["a"], 1))

    def test_every_phrase_of_a_text_is_found(self) -> None:
        """At each place where one begins, also inside another; where no word begins one, none is there."""
        phrases = Phrases([("a b c", 3), ("b", 1), ("x y", 2)])
        self.assertEqual(phrases.within(["a", "b", "c", "b", "a"]), [(0, (3, 3)), (1, (1, 1)), (3, (1, 1))])
        for words in (["x", "c"], ["y", "c"], []):
            self.assertEqual(phrases.within(words), [])

    def test_the_words_with_which_a_phrase_begins_are_known(self) -> None:
        """So that nothing is looked for where none can be."""
        self.assertEqual(set(Phrases([("a|b c", 1), ("[x] y", 2)]).starts), {"a", "b", "x", "y"})
