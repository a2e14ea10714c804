"""Manners around a question: they go, unless they are what is asked about."""

from gateway.semantic import manners
from tests.support.questions import QuestionCase

QUESTION = "Why is the sky blue"

OPENERS = (
    "Hi",
    "Hello there",
    "Hey team",
    "Hiya all",
    "Yo",
    "Good morning",
    "Good evening",
    "Dear support",
    "OK",
    "So",
    "Um",
    "Btw",
    "Please",
    "Yes please",
    "Kindly",
    "Thanks",
    "Sorry",
    "Thank you",
    "Excuse me",
    "Sorry to bother you",
    "Sorry to bother you, but",
    "Quick question",
    "A quick question",
    "Just wondering",
    "By the way",
    "Good day",
    "Greetings",
    "I have a quick question",
    "Out of curiosity",
    "-",
)

OPENERS_WITH_A_PAUSE = (
    "Morning",
    "Evening",
    "Afternoon",
    "Help",
    "Urgent",
    "Well",
    "Right",
    "Listen",
    "Question",
    "Just one question",
    "I hope you are doing well",
    "Hope you are fine",
    "I need help",
    "Can you help",
    "Could you help me",
    "Q",
)

CLOSERS = (
    "please",
    "thanks",
    "cheers",
    "asap",
    "thank you",
    "many thanks",
    "thanks so much",
    "thank you very much",
    "thanks a lot",
    "thanks in advance",
    "do you know",
    "any idea",
    "if possible",
    "thanks for your help",
    "please advise",
    "any help would be appreciated",
    "kind regards",
    "best wishes",
)

ASKING = (
    "Can you tell me",
    "Could someone please advise us",
    "Would you explain",
    "Can you list",
    "Could you let me know",
    "Tell me",
    "Please show us",
    "Let me know",
    "Please let us know",
    "Explain",
    "Please explain to me",
    "Do you know",
    "Do you happen to know",
    "Does anyone know",
    "I want to know",
    "We need to find out",
    "I would like to know",
    "I'd like to understand",
    "I am wondering",
    "We were just curious",
    "I wonder",
    "Any idea",
    "May I ask",
    "Could you show me",
    "Can someone help me understand",
    "Would you mind explaining to me",
    "Would you be able to tell us",
    "Please teach me",
    "Guide me through",
    "Please walk us through",
    "Describe",
    "Help me understand",
    "Please clarify",
    "I'd love to understand",
    "I am trying to find out",
    "We're trying to understand",
    "I'm trying to figure out",
    "I don't know",
    "I'm not sure",
    "What I want to know is",
    "What we would like to know is",
    "My question is",
    "Is there anyone who knows",
    "Could I please know",
    "Do you have any idea",
)


class MannersTest(QuestionCase):
    """What is said around a question."""

    def test_greetings_go(self) -> None:
        """With a pause and without one."""
        for opener in OPENERS:
            self.same(f"{QUESTION}?", f"{opener}, {QUESTION.lower()}?", f"{opener} {QUESTION.lower()}")
        for opener in OPENERS_WITH_A_PAUSE:
            pause = {"Q": ":", "Can you help": "?", "Could you help me": "?"}.get(opener, "!")
            self.same(f"{QUESTION}?", f"{opener}{pause} {QUESTION}?")
            self.different(f"{QUESTION}?", f"{opener} {QUESTION.lower()}")

    def test_thanks_go(self) -> None:
        """Behind a pause; please needs none."""
        for closer in CLOSERS:
            self.same(f"{QUESTION}?", f"{QUESTION}, {closer}?", f"{QUESTION}? {closer.capitalize()}!")

    def test_tell_me_goes_before_a_question(self) -> None:
        """However politely it is said."""
        for asking in ASKING:
            self.same(f"{QUESTION}?", f"{asking} why the sky is blue", f"{asking}, {QUESTION.lower()}?")

    def test_every_kind_of_manners_is_tried(self) -> None:
        """A row that is added needs a line here."""
        tried = len(OPENERS) + 1, len(CLOSERS), len(ASKING)
        self.assertGreaterEqual(tried, (len(manners.OPENERS), len(manners.CLOSERS), len(manners.ASKING)))

    def test_a_claim_is_asked_about(self) -> None:
        """Whether it is true is whether it is so."""
        self.same("Can cats see in the dark?", "Is it true that cats can see in the dark?")
        self.same(
            "Does water conduct heat?", "Is it true water conducts heat?", "Is it correct that water conducts heat?"
        )
        self.same("Can I park in Rome?", "Is it true that I can park in Rome?")
        self.different("Is it true that cats can see in the dark?", "Is it false that cats can see in the dark?")
        self.different("Is it true that cats can see in the dark?", "Can cats not see in the dark?")
        self.different("Is it true that cats can see in the dark?", "Is it true that dogs can see in the dark?")
        self.different("Is it true that cats saw in the dark?", "Do cats see in the dark?")
        self.different("Was it true that cats can see in the dark?", "Can cats see in the dark?")
        self.different("Is it true that cats could see in the dark?", "Can cats see in the dark?")
        self.different("Is it true of cats?", "Is of cats?")
        for rest in ("or false", "of cats", "why cats purr", "and fair", "if cats purr", "not false", "is it"):
            words = f"is it true {rest}".split()
            self.assertEqual(list(manners.bare(words).words), words)
        self.assertEqual(list(manners.bare(["is", "it", "true"]).words), ["is", "it", "true"])

    def test_they_may_be_heaped(self) -> None:
        """Greeting, apology, request, thanks."""
        self.same(f"{QUESTION}?", "Hi please tell me why the sky is blue", f"Hi um sorry {QUESTION.lower()}")
        self.same(f"{QUESTION}?", f"Hi! Sorry, um, could you please tell me, {QUESTION.lower()}? Thanks, cheers!!")

    def test_sounds_go_from_anywhere(self) -> None:
        """People dictate."""
        for sound in ("um", "uh", "erm", "hmm"):
            self.same(f"{QUESTION}?", f"Why is {sound} the sky blue?")

    def test_a_greeting_that_names_something_stays(self) -> None:
        """No pause and no question behind it."""
        self.different("Hello Kitty age", "Kitty age")
        self.different("evening flights to Rome", "flights to Rome")
        self.different("Help files in Linux", "files in Linux")

    def test_thanks_that_are_asked_about_stay(self) -> None:
        """Please and thank you are words too."""
        self.different("How do you say please?", "How do you say?")
        self.different("Who wrote Cheers?", "Who wrote Thanks?")
        self.same("Can I pay by card please", "Can I pay by card pls", "Can I pay by card?")
        self.different("How do you say hello and thank you?", "How do you say hello and?")
        for word in ("and", "or", "write", "the", "to"):
            self.different(f"Is it thanks {word} please?", f"Is it thanks {word}?")
        self.different("Where is the word for thanks?", "Where is the word for?")

    def test_a_request_for_something_else_stays(self) -> None:
        """A story is no question."""
        self.different("Tell them the capital of Peru", "the capital of Peru")
        self.different("Would you be able to tell me a story", "story")
        self.different("I'm not sure about Peru", "about Peru")
        self.different("My question is Peru", "Peru")
        self.different("Help me understand Peru", "understand Peru")
        self.different("Question time", "time")
        self.different("I need help why", "why")
        self.different("Can you help why", "why")
        self.different("best wishes to Bob", "to Bob")
        self.different("Is it nice to send kind regards?", "Is it nice to send?")
        self.different("Can you teach me chess?", "chess")
        self.different("Out of curiosity killed the cat", "killed the cat")
        self.different("Who wrote any help would be appreciated?", "Who wrote?")
        self.different("Can you tell me a story", "story")
        self.different("Show me why-not.txt", "why-not.txt")
