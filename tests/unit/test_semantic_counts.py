"""One or many: where the number of a noun is part of what is asked, and where it is not."""

from gateway.semantic.counts import Count, counted
from gateway.semantic.frames import Frame
from gateway.semantic.verifier import Veto
from tests.support.questions import QuestionCase

DEFINITE = ("the", "my", "our", "your", "his", "her", "its", "their", "Bob's")
INDEFINITE = ("a", "an", "any", "some", "no", "each", "every")


class DefiniteTest(QuestionCase):
    """Behind a word that says which."""

    def test_the_file_is_not_the_files(self) -> None:
        """Behind each definite word, with words between, and behind a plural verb."""
        for word in DEFINITE:
            self.different(f"how do I open {word} file in Rome", f"how do I open {word} files in Rome", Veto.COUNT)
            self.different(f"why does {word} file vanish", f"why do {word} files vanish", Veto.COUNT)
        self.different("is the old file safe", "are the old files safe", Veto.COUNT)
        self.different("is my kid ill", "are my children ill", Veto.COUNT)
        self.different("who was the first king of Rome", "who were the first kings of Rome", Veto.COUNT)

    def test_the_file_is_not_files(self) -> None:
        """One of them is certain, and so is that the other is many."""
        self.different("how do I open the file", "how do I open files", Veto.COUNT)

    def test_one_and_many_of_a_thing_together_agree_with_both(self) -> None:
        """Which of them differs cannot be told."""
        self.same("is the dog of the dogs safe", "is the dogs of the dogs safe")


class BareTest(QuestionCase):
    """With no word before a noun that says which."""

    def test_a_bare_singular_is_a_name(self) -> None:
        """At the end and before a small word, behind a verb in any form."""
        self.different("who directed alien", "who directed aliens", Veto.COUNT)
        self.different("who directed alien in 1979", "who directed aliens in 1979", Veto.COUNT)
        self.different("who plays alien", "who plays aliens", Veto.COUNT)
        self.different("who stars in alien", "who stars in aliens", Veto.COUNT)

    def test_a_file_is_files(self) -> None:
        """And behind any other word that leaves open which."""
        self.same("how do I open a file", "how do I open files")
        for word in INDEFINITE:
            self.same(f"how do I open {word} file", f"how do I open {word} files")

    def test_nouns_after_the_first_of_a_phrase_are_counted(self) -> None:
        """Where a verb stands before them; what stands first in a longer phrase may be that verb."""
        self.different("how do I watch alien online", "how do I watch aliens online", Veto.COUNT)
        self.different("who sold ticket offices", "who sold tickets offices", Veto.COUNT)
        self.same("how do I play for ticket offices", "how do I play for tickets offices")

    def test_a_bare_subject_is_a_name(self) -> None:
        """Behind an auxiliary, whatever follows it."""
        for asked in (
            "when was {} released",
            "what year was {} filmed in",
            "what is {} about",
            "who was {} directed by",
            "when did {} come out",
            "how many oscars did {} win",
            "how much did {} cost",
            "does {} have a sequel",
            "is {} scary",
            "what is {}",
        ):
            self.different(asked.format("alien"), asked.format("aliens"), Veto.COUNT)
        self.different("is cars a good film", "is car a good film", Veto.COUNT)
        self.different("What is Alien about?", "What is Aliens about?", Veto.COUNT)

    def test_a_bare_subject_is_no_indefinite_one(self) -> None:
        """What is asked of a dog is asked of dogs."""
        self.same("how long does a dog live", "how long do dogs live")
        self.same("what is a password", "what are passwords")

    def test_a_subject_behind_a_whole_opening_is_counted(self) -> None:
        """Where the auxiliary is part of what is asked for; but the meaning of a word is that of its plural."""
        self.different("what is the price of apple", "what is the price of apples", Veto.COUNT)
        self.different("how old is alien", "how old are aliens", Veto.COUNT)
        self.same("what is the meaning of ghost", "what is the meaning of ghosts")

    def test_what_is_asked_for_is_not_counted(self) -> None:
        """Between the question word and the auxiliary."""
        self.same("what ticket office is open in Rome", "what tickets office is open in Rome")
        self.same("what ticket office is open in Rome", "what ticket offices are open in Rome")
        self.different("what part of the old file is safe", "what part of the old files is safe", Veto.COUNT)


class VerbTest(QuestionCase):
    """An ending that may be a verb's is none of a noun."""

    def test_a_third_person_is_no_plural(self) -> None:
        """Behind a subject in the singular, where no auxiliary is."""
        self.same("why does my program crash at night", "what is the reason my program crashes at night")
        self.same("where does missouri river end", "where the missouri river ends")
        self.same("what happens if I pay late", "what will happen if I pay late")

    def test_a_word_behind_a_plural_is_its_verb(self) -> None:
        """And is not told."""
        self.same("what animals live in Peru", "what animal lives in Peru")

    def test_only_the_first_phrase_has_the_subject(self) -> None:
        """Two nouns later on are two nouns."""
        self.different("where Bob opens the ticket office", "where Bob opens the ticket offices", Veto.COUNT)

    def test_what_is_counted_needs_no_ending(self) -> None:
        """Units and the like, behind digits and words."""
        self.same("can I send my 5 kg parcel", "can I send my 5 kilos parcel")
        self.same("how do I send two kg of flour", "how do I send two kilos of flour")
        self.same("how do I send a parcel of 5 kg", "how do I send a parcel of 5 kilos")


class CountedTest(QuestionCase):
    """Word by word."""

    def test_each_word_has_a_count(self) -> None:
        """Small words, pasts and nothing at all too."""
        self.assertEqual(counted([], None, None), [])
        self.assertEqual(counted([], Frame.WHO, None), [])
        self.assertEqual(counted([], None, 0), [])
        self.assertEqual(
            counted(["directed", "the", "files", "of", "dog"], Frame.WHO, None),
            [Count.UNTOLD, Count.UNTOLD, Count.MANY, Count.UNTOLD, Count.ONE],
        )
        self.assertEqual(
            counted(["old", "cars", "are", "files"], None, 2), [Count.UNTOLD, Count.UNTOLD, Count.UNTOLD, Count.MANY]
        )
        self.assertEqual(counted(["dogs", "a", "dog"], None, 1), [Count.UNTOLD, Count.UNTOLD, Count.UNTOLD])
