"""Small words: each of them does what its list says."""

from gateway.semantic import grammar
from gateway.semantic.eligible import Ineligible, refusal
from gateway.semantic.frames import HOLDS_AUXILIARY
from gateway.semantic.verifier import Veto, read
from tests.support.questions import QuestionCase

AUXILIARIES = (
    "is=be are=be am=be was=be_past were=be_past do=do does=do did=do_past has=have have=have had=have_past"
    " will=modal_will shall=modal_shall would=modal_would should=modal_should can=modal_can could=modal_could"
    " may=modal_may might=modal_might must=modal_must"
)

PREPOSITIONS = (
    "in on at for about into during via as per to from by with before after until since than off against over under"
    " above between through across behind near within upon onto toward towards among along"
)

NEGATIONS = "not no never none neither nor without nobody nothing unless"

CLOSED = (
    f"{PREPOSITIONS} {NEGATIONS} of till below what which who whom whose where when why how the a an is are am was were"
    " do does did has have had will shall would should can could may might must we me us our him them i my you your he"
    " his she her they their it its and or but if that this these those all so be been"
)

FRAMES = (
    "How {} it look?",
    "How many dogs {} it like?",
    "How long {} it last?",
    "How much sugar {} it like?",
    "What year {} it open?",
    "What time {} it open?",
    "What date {} it open?",
    "When {} it open?",
    "Where {} it open?",
    "Why {} it open?",
    "Who {} it call?",
    "What kind of dog {} it like?",
    "What {} it like?",
    "{} it open?",
)

FOREIGN = (
    "der das und ist nicht wie für mit auf ich ein eine kann wo wann warum wer welche le les des est une pour dans quel"
    " quelle comment où je mon avec sur qui que quoi pourquoi una para por como cómo qué cuál dónde con del está es"
    " quién il lo gli che di dove quando perché sono della cosa chi os uma não qual onde quem het een van voor hoe wat"
    " waar niet met jak gdzie co czy"
)

SHARED = "a an as at die in me on so"

VERBS = "list name show cancel only much many write explain describe translate convert calculate summarize make"


class SmallWordsTest(QuestionCase):
    """Word by word."""

    def test_the_first_auxiliary_says_kind_and_mode(self) -> None:
        """Every auxiliary there is."""
        for word, says in (row.split("=") for row in AUXILIARIES.split()):
            kind, _, mode = says.partition("_")
            question = read(f"what {word} tigers eat")
            self.assertEqual((question.sense, question.mode, question.keys), (kind, mode, ("tiger", "eat")), word)
        self.assertEqual({row.split("=")[0] for row in AUXILIARIES.split()}, set(grammar.AUXILIARIES))

    def test_a_frame_leaves_its_auxiliary_to_be_read(self) -> None:
        """What it did is not what it does."""
        for question in FRAMES:
            self.different(question.format("does"), question.format("did"), Veto.MODE)
        self.assertEqual({read(question.format("does")).frame for question in FRAMES}, HOLDS_AUXILIARY)

    def test_a_preposition_is_named_as_one(self) -> None:
        """Where there is one more on one side."""
        for word in PREPOSITIONS.split():
            self.different(f"do tigers hunt {word} rome", "do tigers hunt rome", Veto.PREPOSITION)
        self.assertEqual(set(PREPOSITIONS.split()) | {"of", "without", "till", "below"}, grammar.PREPOSITIONS)

    def test_a_negation_is_named_as_one(self) -> None:
        """In lower case too."""
        for word in NEGATIONS.split():
            self.different(f"do tigers hunt {word} deer", "do tigers hunt deer", Veto.NEGATION)
        self.assertEqual(set(NEGATIONS.split()), grammar.NEGATIONS)

    def test_an_article_before_a_small_word_is_none(self) -> None:
        """It names something there, since no noun follows."""
        for word in CLOSED.split():
            self.assertIn("the", read(f"do tigers hunt the {word}").keys, word)
        self.assertEqual(set(CLOSED.split()), grammar.CLOSED)

    def test_a_question_word_within_a_question_counts(self) -> None:
        """And behind tell me it begins one."""
        for word in ("what", "which", "who", "whom", "whose", "where", "when", "why", "how"):
            self.different(f"is it {word} tigers hunt", "is it tigers hunt", Veto.CONTENT)
            self.same(f"{word} tigers hunt deer", f"tell me {word} tigers hunt deer")


class EmbeddedTest(QuestionCase):
    """A question behind tell me."""

    def test_the_verb_goes_forward(self) -> None:
        """Before an article or a possessor, near the front."""
        for verb in ("is", "are", "was", "were"):
            for word in ("the", "a", "an", "my", "your"):
                self.same(f"how much {verb} {word} tiger", f"tell me how much {word} tiger {verb}")
        self.same("what is the price of tea", "tell me what the price of tea is")
        self.different("what time is the price of tea", "tell me what the time price of tea is")


class EnglishTest(QuestionCase):
    """Small words tell the language."""

    def test_a_foreign_word_outweighs(self) -> None:
        """More of them than of English ones."""
        for word in FOREIGN.split():
            self.assertEqual(refusal(f"is {word} {word} tiger"), Ineligible.NOT_ENGLISH, word)
            self.assertEqual(refusal(f"is {word} tiger"), Ineligible.NOT_ENGLISH, word)

    def test_a_word_that_languages_share_is_too_little(self) -> None:
        """Two of them will do."""
        for word in SHARED.split():
            self.assertEqual(refusal(f"tiger {word} deer"), Ineligible.NOT_ENGLISH, word)
            self.assertIsNone(refusal(f"tiger {word} deer {word} rome"), word)

    def test_a_verb_that_begins_a_task_is_english(self) -> None:
        """Alone."""
        for word in VERBS.split():
            self.assertIsNone(refusal(f"{word} tiger photos"), word)
