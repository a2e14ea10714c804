"""Which texts are never looked up nor stored, and that ordinary questions are."""

import unittest

from gateway.semantic.eligible import LONGEST_CHARACTERS, MOST_WORDS, Ineligible, read_eligible, refusal
from gateway.semantic.verifier import read

ELIGIBLE = (
    "How do I reset my password?",
    "hi, how long does it take to fly to Rome?",
    "Is it safe to eat raw eggs?",
    "Is it bad for cats to drink milk?",
    "Will it rain in hell?",
    "Does it snow?  Does Peru?",
    "What is the capital of Chile and its population in 2000?",
    "If Brian and Lisa were married, would her family be happy?",
    "Who is the dog that is in Snoopy?",
    "How do I open a current account?",
    "Which foods should I eat 2 hours before a marathon?",
    "Is a fever above 39 degrees dangerous?",
    "What are the next steps?",
    "Why does my Brother printer show error 79?",
    "How do I enable dark mode on my GitHub account?",
    "Am I allowed to park in Rome?",
    "Am I eligible for a visa in Peru?",
    "What are your opening hours?",
    'Translate "hot" to French',
    "Cancel my subscription",
    "Is Klarna an option at checkout?",
    "Who won in Los Angeles?",
    "Where is café Zoë?",
    "what is 2+2",
    "List cities in Peru",
    "Can you tell me who wrote Dune?",
)

REFUSED = {
    Ineligible.EMPTY: ("", "   ", "\n"),
    Ineligible.LAYOUT: ("How do I\nreset it?", "a\tb\tc of the table", "one\u2028two of the lines"),
    Ineligible.CODE: (
        "Why does `ls` fail?",
        "Why is { open?",
        "Why is } open?",
        "What does f() => x do?",
        "What does a->b do in the struct?",
        "Why is a == b?",
        "Why is a != b?",
        "Is a && b true?",
        "Is a || b true?",
        "What is std::move?",
        "Why does f(x); fail?",
        "Why does f(); fail?",
        "What does </p> do?",
        "What does <br/> do?",
        "What does \\n do?",
    ),
    Ineligible.LINK: (
        "Summarise https://a.example/b for me",
        "What is HTTP://a.example?",
        "Who owns www.a.example?",
    ),
    Ineligible.NOT_ENGLISH: (
        "Wie heißt die Hauptstadt von Chile?",
        "Was ist das?",
        "Quelle est la capitale du Chili?",
        "¿Cuál es la capital de Chile?",
        "Como posso cancelar a conta?",
        "Qual é a capital do Chile?",
        "Wat is de hoofdstad van Chili?",
        "Dove si trova il Cile?",
        "Gdzie jest Chile?",
        "チリの首都は?",
        "Где находится Чили?",
        "What does 東京 mean?",
        "What is a\u200bb?",
        "What is \x07?",
        "What is e\u0301\u0301?",
        "Chile capital city",
    ),
    Ineligible.DEIXIS: (
        "where is the nearest pharmacy",
        "where are the closest hotels",
        "where is the closest bank",
        "What does this mean?",
        "Are these safe?",
        "Are those safe?",
        "Is there a bank here?",
        "What is the aforementioned rule?",
        "Is it a friend of yours?",
        "Is he a friend of mine?",
        "Explain the above rule",
        "What does the text say above",
        "Answer the following question",
        "Is the former better than Bob?",
        "Is the latter better than Bob?",
        "Summarize the attached file",
        "Can I have the same?",
        "Which one is better for kids?",
        "As above for cats?",
        "and in Paris?",
        "But why is the sky blue?",
        "Or is the sky green?",
        "Also who wrote Dune?",
        "What about the dogs in Paris?",
        "How about the dogs?",
        "Why not the dogs?",
        "go on with the story",
        "tell me more of the story",
        "yes the first",
        "What is it?",
        "Is it raining?",
        "what did he say to Bob",
        "Are they worse than mice?",
        "How do I fix that?",
        "is that true of dogs",
        "How much does it weigh?",
    ),
    Ineligible.TIME_BOUND: (
        "Is the bank open today?",
        "What is on TV tonight?",
        "Where is Bob now?",
        "Who is the current king of Spain?",
        "What is the latest version of Linux?",
        "What is the weather in Rome?",
        "Who won the match last week?",
        "Who plays next Sunday?",
        "When is the next train to Rome?",
        "Who has won so far?",
        "Who leads as of May?",
        "Who is king at the moment?",
        "How many have died to date?",
        "What time is it in Rome?",
        "Which day is it in Rome?",
        "What is the share price of Nokia?",
        "What is the exchange rate of the euro?",
        "What is the price of gold?",
        "Can I restore a file from 3 days ago?",
    ),
    Ineligible.PERSONAL: (
        "Where is my order?",
        "Where is my dog?",
        "How do I cancel my booking?",
        "What is my balance?",
        "How much was my bill?",
        "Is my plane ticket transferable?",
        "Did my payment arrive?",
        "Was I charged twice?",
        "How much was I charged for January?",
        "Am I pregnant?",
        "Does my warranty cover theft?",
        "Does my extended warranty cover theft?",
        "Does my phone warranty cover theft?",
        "Does my Samsung order include a charger?",
        "Does my Samsung account include storage?",
        "Does my Samsung balance cover a phone?",
        "Does my Samsung invoice include tax?",
        "Does my Samsung appointment include a repair?",
        "Does my Samsung booking include a repair?",
        "Does my Samsung ticket include a repair?",
        "Does my Samsung plan cover theft?",
        "Does my Samsung insurance cover theft?",
        "Does my Samsung warranty expire?",
        "Does my Samsung warranty still cover theft?",
        "Does my Samsung",
        "Is my Samsung warranty cover ready?",
        "Did my Samsung warranty cover theft?",
        "Has my Samsung warranty covered theft?",
        "my name is Bob",
        "Do you remember me?",
    ),
    Ineligible.TOO_LITTLE: (
        "hello",
        "thanks!",
        "why?",
        "what",
        "please",
        "the dogs",
        "?!",
    ),
    Ineligible.TOO_LONG: (
        "a" * (LONGEST_CHARACTERS + 1),
        "why is the sky blue " * 1_000,
        "is the " * (MOST_WORDS // 2) + "end?",
        "`" * 1_000_000,
    ),
}


MAKERS = (
    "acer aeg airpods apple asus audi beko blackberry bmw bosch bose braun breville canon casio daikin dell"
    " delonghi dewalt dyson electrolux epson fairphone fitbit ford fujifilm garmin google gopro haier hisense"
    " hitachi honda hp htc huawei hyundai ikea ipad iphone irobot jbl kenwood kia kindle kitchenaid lenovo lexus"
    " lg logitech macbook makita mazda mercedes microsoft miele motorola msi nespresso nikon nintendo nissan nokia"
    " oneplus oppo panasonic peloton peugeot philips playstation porsche razer renault roku rolex roomba samsung"
    " sennheiser siemens skoda smeg sonos sony subaru tcl tefal tesla thinkpad tissot toshiba toyota vizio"
    " volkswagen volvo whirlpool xbox xiaomi yamaha zanussi"
)

NO_NOUNS = "much many long often far old big tall deep time year kind type sort way tell know explain mean happens"


class EligibleTest(unittest.TestCase):
    """What the text of a user's message alone tells."""

    def test_ordinary_questions_are_compared(self) -> None:
        """Short, in English, and about what they name."""
        for text in ELIGIBLE:
            with self.subTest(text=text):
                self.assertIsNone(refusal(text))

    def test_the_rest_is_refused_with_its_reason(self) -> None:
        """The first that holds."""
        for reason, texts in REFUSED.items():
            for text in texts:
                with self.subTest(text=text[:60]):
                    self.assertEqual(refusal(text), reason)

    def test_a_pronoun_needs_a_noun_before_it(self) -> None:
        """Whom it stands for; how much and how often are no nouns."""
        for pronoun in ["he", "she", "they", "his", "her", "him", "them", "their", "its"]:
            self.assertEqual(refusal(f"why are {pronoun} cats"), Ineligible.DEIXIS, pronoun)
            self.assertIsNone(refusal(f"why are Bob and {pronoun} cats"), pronoun)
        for word in NO_NOUNS.split():
            self.assertEqual(refusal(f"how {word} is it of cats"), Ineligible.DEIXIS, word)
            self.assertEqual(refusal(f"how {word} are their cats"), Ineligible.DEIXIS, word)

    def test_what_a_known_maker_promises_is_not_personal(self) -> None:
        """One text for all who have such a thing, however it is written."""
        for maker in MAKERS.split():
            self.assertIsNone(refusal(f"does my {maker} warranty cover theft"), maker)
        for text in (
            "Does my Sony guarantee cover a broken screen?",
            "Will our Bosch warranty include repairs?",
            "Does my Sony warranty exclude theft?",
            "Does my Sony TV warranty cover theft?",
        ):
            self.assertIsNone(refusal(text), text)

    def test_every_reason_is_tried(self) -> None:
        """A reason that is added needs a text here."""
        self.assertEqual(set(REFUSED), set(Ineligible))

    def test_the_longest_text_is_allowed(self) -> None:
        """The bounds themselves are inside."""
        most = "Is the " + "sky " * (MOST_WORDS - 2)
        self.assertIsNone(refusal(most.strip()))
        self.assertIsNone(refusal("Why is the " + "x" * (LONGEST_CHARACTERS - 11)))

    def test_what_is_read_at_once_is_what_is_read_alone(self) -> None:
        """The same reason, or the same question to the last field; blanks around a text are part of it."""
        texts = [*ELIGIBLE, *(text for texts in REFUSED.values() for text in texts)]
        for text in (*texts, *(f"\u2003 {text.upper()} \n" for text in texts)):
            with self.subTest(text):
                self.assertEqual(read_eligible(text), refusal(text) or read(text))
