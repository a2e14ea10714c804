"""Question frames: openings that ask for one thing, and openings that nearly do."""

import itertools

from gateway.semantic.verifier import Veto
from tests.support.questions import QuestionCase

SAME = (
    (
        "How do I reset a router?",
        "How can I reset a router?",
        "How could I reset a router?",
        "How would I reset a router?",
        "How might one reset a router?",
        "How may I reset a router?",
        "How does one reset a router?",
        "How to reset a router?",
        "What is the way to reset a router?",
        "What are the steps to reset a router?",
        "What is the procedure to reset a router?",
        "What steps do I take to reset a router?",
        "What steps should I follow to reset a router?",
        "What do I need to do to reset a router?",
        "What do I have to do to reset a router?",
        "In what way can I reset a router?",
        "Can you tell me how I reset a router?",
        "Do you know how I can reset a router?",
    ),
    (
        "How should I hold a violin?",
        "What is the right way to hold a violin?",
        "What is the proper method to hold a violin?",
        "Can you tell me how I should hold a violin?",
    ),
    ("How many people use Linux?", "What number of people use Linux?"),
    ("How many bones in a hand?", "What is the number of bones in a hand?"),
    ("How long do cats sleep?", "How much time do cats sleep?"),
    (
        "How long does it take to fly to Rome?",
        "How much time does it take to fly to Rome?",
        "How long does it usually take to fly to Rome?",
        "How much time does it normally take to fly to Rome?",
    ),
    ("How long did it take to build Rome?", "How much time did it take to build Rome?"),
    ("How long will it take to build Rome?", "How much time will it take to build Rome?"),
    (
        "How much is a boiler service?",
        "What is the price of a boiler service?",
        "What is the cost of a boiler service?",
        "What is the price for a boiler service?",
        "How much does a boiler service cost?",
        "What does a boiler service cost?",
        "How much do boiler services cost?",
    ),
    ("What is the price of a boiler?", "What is a boiler's price?", "What is a boiler's cost?"),
    ("How much was a loaf in 1950?", "What was the price of a loaf in 1950?", "How much did a loaf cost in 1950?"),
    ("How much does it cost to fly to Rome?", "What does it cost to fly to Rome?"),
    ("How much did it cost to build Rome?", "What did it cost to build Rome?"),
    ("How much sugar do cats need?", "What amount of sugar do cats need?"),
    ("How old is the Eiffel tower?", "What is the age of the Eiffel tower?"),
    ("How tall is the Eiffel tower?", "What is the height of the Eiffel tower?"),
    ("How big is Peru?", "How large is Peru?", "What is the size of Peru?"),
    ("How heavy is a whale?", "What is the weight of a whale?"),
    ("How deep is the Baltic?", "What is the depth of the Baltic?"),
    ("How wide is the Nile?", "What is the width of the Nile?"),
    ("How far is it from Rome to Bari?", "What is the distance from Rome to Bari?"),
    ("How many people live in Oslo?", "What number of people live in Oslo?", "What is the population of Oslo?"),
    (
        "How many people lived in Oslo in 1950?",
        "What number of people lived in Oslo in 1950?",
        "What was the population of Oslo in 1950?",
    ),
    ("What is the meaning of GDP?", "What is meant by GDP?", "What does GDP mean?"),
    ("What year did Elvis die?", "In what year did Elvis die?", "In which year did Elvis die?"),
    ("What time does the bank open?", "At what time does the bank open?", "At which time does the bank open?"),
    ("What date is Easter?", "On what date is Easter?", "On which date is Easter?"),
    (
        "Where is the stopcock?",
        "In what place is the stopcock?",
        "At which location is the stopcock?",
        "What is the location of the stopcock?",
    ),
    (
        "Why does my printer show error 79?",
        "How come my printer shows error 79?",
        "For what reason does my printer show error 79?",
        "What is the reason my printer shows error 79?",
        "What is the reason that my printer shows error 79?",
    ),
    ("Who wrote Dune?", "Which person wrote Dune?"),
    (
        "Can I park in Rome?",
        "Could I park in Rome?",
        "May I park in Rome?",
        "Can one park in Rome?",
        "Is it possible to park in Rome?",
        "Can you tell me if I can park in Rome?",
        "Do you know whether I could park in Rome?",
    ),
    (
        "Is it possible to park in Rome?",
        "Is it possible for me to park in Rome?",
        "Is there a way to park in Rome?",
        "Is there any way to park in Rome?",
        "Am I able to park in Rome?",
    ),
    (
        "Am I allowed to park in Rome?",
        "Am I permitted to park in Rome?",
        "Is it allowed to park in Rome?",
        "Is it permitted for me to park in Rome?",
        "Can I park in Rome?",
    ),
    ("Should I tip in Japan?", "Should one tip in Japan?", "Can you tell me if I should tip in Japan?"),
    (
        "Do I need to tip in Japan?",
        "Do I have to tip in Japan?",
        "Must I tip in Japan?",
        "Have I got to tip in Japan?",
        "Is it necessary to tip in Japan?",
        "Is it necessary for me to tip in Japan?",
        "Can you tell me if I need to tip in Japan?",
        "Can you tell me if I have to tip in Japan?",
    ),
    (
        "Must I tip in Japan?",
        "Am I required to tip in Japan?",
        "Am I obliged to tip in Japan?",
        "Is it compulsory to tip in Japan?",
        "Is it mandatory for me to tip in Japan?",
    ),
    ("What kind of money do Swedes use?", "Which type of money do Swedes use?", "What sort of money do Swedes use?"),
    ("What cities are in Peru?", "Which cities are in Peru?", "Which of the cities are in Peru?"),
    ("Is the bank open on Sunday?", "Can you tell me if the bank is open on Sunday?"),
    ("How does photosynthesis work?", "How photosynthesis works?"),
    ("When does the bank open?", "Can you tell me when the bank opens?"),
)

DIFFERENT = (
    ("How do I reset a router?", "Can I reset a router?"),
    ("How do I reset a router?", "How did I reset a router?"),
    ("How do I hold a violin?", "How should I hold a violin?"),
    ("How do I reset a router?", "What is the best way to reset a router?"),
    ("How do you handle my data?", "How do I handle my data?"),
    ("How do you store your data?", "How do I store your data?"),
    ("How do they vote?", "How do I vote?"),
    ("How many people use Linux?", "How much do people use Linux?"),
    ("How long do cats sleep?", "When do cats sleep?"),
    ("How long does it take to fly to Rome?", "How long did it take to fly to Rome?"),
    ("How long does it take to fly to Rome?", "How long will it take to fly to Rome?"),
    ("How long is the store open?", "How long has the store been open?"),
    ("How long do you bake bread?", "How long does it take to bake bread?"),
    ("How much is a loaf?", "How much was a loaf?"),
    ("How much does smoking cost the state?", "How much is smoking the state?"),
    ("How old is Bob?", "How tall is Bob?"),
    ("What year did Elvis die?", "When did Elvis die?"),
    ("What time does school start?", "When does school start?"),
    ("What date is Easter?", "What time is Easter?"),
    ("Where is the bank?", "When is the bank?"),
    ("In what city is the bank?", "Where is the bank?"),
    ("Why does my printer fail?", "When does my printer fail?"),
    ("Who wrote Dune?", "What wrote Dune?"),
    ("Can I park in Rome?", "Can you park in Rome?"),
    ("Am I allowed to park in Rome?", "Am I able to park in Rome?"),
    ("Is it possible to park in Rome?", "Is it permitted to park in Rome?"),
    ("Should I tip in Japan?", "Do I need to tip in Japan?"),
    ("Should I tip in Japan?", "Can I tip in Japan?"),
    ("What kind of dog is Rex?", "What dog is Rex?"),
    ("What cities are in Peru?", "Are cities in Peru?"),
    ("Which of my plans are free?", "Which plans are free?"),
    ("What is the population of Oslo?", "What was the population of Oslo?"),
    ("How photosynthesis works", "Why photosynthesis works"),
    ("How I reset routers", "How do I reset routers?"),
)


class FramesTest(QuestionCase):
    """What is asked for."""

    def test_openings_of_one_frame_ask_the_same(self) -> None:
        """The same answer serves them."""
        for questions in SAME:
            self.same(*questions)

    def test_openings_that_are_near_do_not(self) -> None:
        """A word more or another auxiliary asks something else."""
        for one, other in DIFFERENT:
            self.different(one, other)

    def test_another_frame_is_the_reason(self) -> None:
        """It is said what was asked for."""
        self.different("Where is the bank?", "When is the bank?", Veto.FRAME)

    def test_who_acts_is_part_of_what_is_asked(self) -> None:
        """What we can do not everybody can, and `you` may be the one who answers."""
        for question in (
            "how do {} store data",
            "how can {} store data",
            "how should {} store data",
            "can {} see infrared light",
            "should {} sleep",
            "do {} need to sleep",
            "must {} sleep",
            "have {} got to sleep",
            "tell me how {} store data",
            "tell me how {} can store data",
            "tell me if {} should store data",
        ):
            asked = [question.format(who) for who in ("I", "we", "you")]
            for one, other in itertools.combinations(asked, 2):
                self.different(one, other)

    def test_what_one_measure_holds_is_no_price(self) -> None:
        """Whatever is measured with it."""
        for word in ["acre", "cup", "gallon", "hectare", "ounce", "pint", "pound", "quart", "stone", "ton", "tonne"]:
            self.different(f"how much is a {word}?", f"what is the price of a {word}?", Veto.FRAME)
        self.same("how much is a pint?", "How much is a pint?")

    def test_narrower_senses_differ_from_each_other_only(self) -> None:
        """What can I do may mean either."""
        self.different("May I record a call?", "Is it possible to record a call?", Veto.SENSE)
        self.different("Do I need to wash rice?", "Am I required to wash rice?", Veto.SENSE)
        self.different("Am I allowed to park in Rome?", "Am I able to park in Rome?", Veto.SENSE)

    def test_an_embedded_question_is_one_behind_tell_me_only(self) -> None:
        """If I can is no question by itself."""
        self.different("If I can park in Rome", "Can I park in Rome?", Veto.FRAME)
        self.different("Whether I should tip in Japan", "Should I tip in Japan?", Veto.FRAME)
