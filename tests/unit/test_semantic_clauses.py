"""Changes of order and construction that leave a question the same, and those that do not."""

from gateway.semantic.verifier import Veto
from tests.support.questions import QuestionCase

ABOUT_WORDS = (
    "rhymes plural tense synonym synonyms antonym antonyms etymology comparative superlative verb noun"
    " adjective adverb sentence words"
)


class FrontingTest(QuestionCase):
    """A phrase before the question."""

    def test_it_may_stand_behind(self) -> None:
        """Up to the comma."""
        self.same("Can I pay by card at the pharmacy?", "At the pharmacy, can I pay by card?")
        self.same("What happens if I move?", "If I move, what happens?")
        self.same("With 2 stops, what is the fare to Rome?", "What is the fare to Rome with 2 stops?")

    def test_nothing_else_moves(self) -> None:
        """Who is where stays."""
        self.different("Did the man in Rome die?", "Did the man die in Rome?", Veto.ORDER)
        self.different("Compare a nurse in France to a cook in Spain", "Compare a nurse in Spain to a cook in France")
        self.different("Rome, can I pay by card?", "Can I pay by card Rome?")
        self.different("In Rome, pay by card", "pay by card In Rome")

    def test_a_question_about_the_phrase_is_none(self) -> None:
        """At what age is no place."""
        self.different("At what age, can I vote?", "Can I vote at what age?")


class PassiveTest(QuestionCase):
    """Who did what, said both ways."""

    def test_a_passive_with_by_is_active(self) -> None:
        """With what follows the doer."""
        self.same("Did Emily miss the gun?", "Was the gun missed by Emily?")
        self.same("Does Sean attack Bob?", "Is Bob attacked by Sean?")
        self.same("Did Microsoft buy Nokia in 2014?", "Was Nokia bought by Microsoft in 2014?")
        self.same("What did Bob write?", "What was written by Bob?")

    def test_a_participle_that_is_another_word_elsewhere_is_one_here(self) -> None:
        """Found is the past of find, where somebody found something."""
        for verb, participle in (
            ("find", "found"),
            ("leave", "left"),
            ("beat", "beat"),
            ("cut", "cut"),
            ("hit", "hit"),
            ("hurt", "hurt"),
            ("put", "put"),
            ("read", "read"),
        ):
            self.same(f"Did Emily {verb} the gun?", f"Was the gun {participle} by Emily?")
        self.different("Is he right?", "Is he left?")
        self.different("When was the firm founded?", "When was the firm found?")

    def test_the_doer_is_not_the_done_to(self) -> None:
        """Nor is by for."""
        self.different("Was Anna sued by Boris?", "Was Boris sued by Anna?", Veto.ORDER)
        self.different("Did Anna sue Boris?", "Was Anna sued by Boris?", Veto.ORDER)
        self.different("Was the book written by him?", "Was the book written for him?")
        self.different("Did Emily miss the gun?", "Is the gun missed by Emily?", Veto.MODE)

    def test_what_is_no_passive_stays(self) -> None:
        """No participle, no doer, or two."""
        self.different("Is the inn by the river?", "Does the river inn?")
        self.different("Was it sold by?", "Did it sell?")
        self.different("Was a gun sold by Al by car?", "Did Al by car sell a gun?")
        self.different("When was Nokia bought by Microsoft?", "When did Microsoft buy Nokia?")


class WhoTest(QuestionCase):
    """Who did it."""

    def test_the_author_is_who_wrote_it(self) -> None:
        """For deeds that are done once."""
        for noun, verb in (
            ("author", "wrote"),
            ("composer", "composed"),
            ("creator", "created"),
            ("designer", "designed"),
            ("discoverer", "discovered"),
            ("founder", "founded"),
            ("inventor", "invented"),
            ("painter", "painted"),
        ):
            self.same(f"Who {verb} Dune?", f"Who is the {noun} of Dune?", f"Who was the {noun} of Dune?")

    def test_who_was_it_written_by(self) -> None:
        """The passive of the same question."""
        self.same("Who wrote Dune?", "Who was Dune written by?")
        self.different("Who is Bob sued by?", "Who sued Bob?")
        self.different("Who was Bob near by?", "Who near Bob?")

    def test_other_offices_are_no_deeds(self) -> None:
        """The owner may have changed."""
        self.different("Who is the owner of Dune?", "Who owned Dune?")
        self.different("What is the author of Dune?", "Who wrote Dune?")
        self.different("Who is the author in Dune?", "Who wrote Dune?")


class OrderTest(QuestionCase):
    """One order for what has none."""

    def test_two_single_things_have_no_order(self) -> None:
        """With articles, or right behind a preposition, at the end."""
        self.same("Is Ann a nurse and an actor?", "Is Ann an actor and a nurse?")
        self.same("Is Ann a nurse or an actor?", "Is Ann an actor or a nurse?")
        self.same("What is the difference between tea and coffee?", "What is the difference between coffee and tea?")

    def test_anything_longer_keeps_its_order(self) -> None:
        """What belongs to which is not known."""
        self.different("Does Ann owe Bob and Carl?", "Does Carl owe Bob and Ann?")
        self.different("Do you sell hot tea and coffee?", "Do you sell hot coffee and tea?", Veto.ORDER)
        self.different("Is Ann a nurse and actor?", "Is Ann an actor and nurse at home?")
        self.different("What is the fare between Rome and Bari?", "What is the fare between Bari and Rome?")
        self.different("Is Ann a nurse and an actor at sea?", "Is Ann an actor and a nurse at sea?")
        self.different("Can I go from Rome and to Bari?", "Can I go from to and Rome Bari?")
        self.different("Is tea for me and not for her?", "Is tea for her and not for me?", Veto.ORDER)

    def test_and_is_not_or(self) -> None:
        """Both is not either."""
        self.different("Is Ann a nurse and an actor?", "Is Ann a nurse or an actor?", Veto.CONTENT)

    def test_a_possessive_is_of(self) -> None:
        """Once, the same head and the same owner."""
        self.same("What is the capital of Chile?", "What is Chile's capital?")
        self.same("What is the capital of Chile and its size?", "What is Chile's capital and its size?")
        self.same("Who is the wife of Michael J Fox?", "Who is Michael J Fox's wife?")

    def test_the_mark_of_a_possessive_may_not_be_missing(self) -> None:
        """The cat's fish is no cat fish, and Wendy's is not Wendy."""
        self.different("Who is Bob's wife?", "Who is Bob wife?", Veto.ORDER)
        self.different("Can I feed my cat's fish?", "Can I feed my cat fish?", Veto.ORDER)
        self.different("Who owns Wendy's?", "Who owns Wendy?", Veto.ORDER)

    def test_of_may_not(self) -> None:
        """A glass of wine is no wine glass."""
        self.different("Where can I buy a glass of wine?", "Where can I buy a wine glass?", Veto.ORDER)
        self.different("Who is the wife of Bob?", "Who is Bob wife?", Veto.ORDER)
        self.different("Who is the wife of Bob?", "Who is the wife Bob?", Veto.ORDER)

    def test_the_owner_is_not_the_owned(self) -> None:
        """Nor does a second owner move."""
        self.different("Is it the dog of Bob?", "Is it the dog's Bob?", Veto.ORDER)
        self.different("Is it the son of the king of Spain?", "Is it Spain's son of the king?", Veto.ORDER)
        self.different("Is it the aunt of Al or Bo?", "Is it Al's aunt Bo or?", Veto.ORDER)


class ConstructionTest(QuestionCase):
    """One question, built in several ways."""

    def test_able_is_can(self) -> None:
        """Whoever is asked about; not allowed, and not once."""
        self.same("Can a child drive?", "Is a child able to drive?", "Is it possible for a child to drive?")
        self.different("Can a child drive?", "Is a child allowed to drive?", Veto.MODE)
        self.different("Can a child drive?", "Could a child drive?", Veto.MODE)
        self.different("Can a child drive?", "Was a child able to drive?", Veto.MODE)
        self.different("Can a child drive?", "Is a child able drive?")
        self.different("Why can a child drive?", "Why is a child able to drive?")

    def test_an_auxiliary_behind_other_words_is_another(self) -> None:
        """How late can it be is not how can it be late; behind tell me it always stands there."""
        self.different("how late can fees be paid?", "how can late fees be paid?", Veto.SENSE)
        self.different("what cats are hunting?", "what are cats hunting?", Veto.SENSE)
        self.same("what is entropy?", "tell me what entropy is")

    def test_what_has_one_order_keeps_it(self) -> None:
        """A quotient, a ratio, a product, a composition."""
        for word in ("quotient", "ratio", "product", "composition"):
            self.different(f"what is the {word} of x and y?", f"what is the {word} of y and x?", Veto.ORDER)
        self.same("what is the sum of x and y?", "what is the sum of y and x?")

    def test_to_turn_into_is_to_convert(self) -> None:
        """And to change into; not to change."""
        self.same("How do I convert miles to km?", "How do I change miles into km?", "How do I turn miles into km?")
        self.same("How do I convert miles to km?", "How do I convert miles into km?")
        self.different("How do I convert miles to km?", "How do I convert km to miles?", Veto.ORDER)
        self.different("What did it change into?", "What did it turn into?")
        self.different("How do I look into km?", "How do I look to km?")
        self.different("How do I turn to km?", "How do I convert to km?")

    def test_where_something_is_located_is_where_it_is(self) -> None:
        """And situated."""
        self.same("Where is the bank?", "Where is the bank located?", "Where is the bank situated?")
        self.different("Where is the bank?", "Where is the bank open?")
        self.different("When is the bank located?", "When is the bank?")
        self.different("Where was the bank located?", "Where is the bank?", Veto.MODE)

    def test_the_cost_is_the_price_at_the_end_of_a_phrase_only(self) -> None:
        """Behind it may stand where, and nothing else."""
        self.same("How much does a pass cost in Oslo?", "What is the price of a pass in Oslo?")
        self.same("What is the price of a pass?", "What is a pass's price?")
        self.different("What is the price of a pass?", "What is a pass's price label?")
        self.different("Which is the best price?", "What is the price of the best?")
        self.different("How much do passes cost the state?", "How much are passes the state?")
        self.different("How much is cost?", "How much does cost?")
        self.different("When does a pass cost?", "What is the price of a pass?")

    def test_to_mean_is_to_have_a_meaning(self) -> None:
        """At the end, in the present."""
        self.same("What does a red light mean?", "What is the meaning of a red light?")
        self.different("What did a red light mean?", "What is the meaning of a red light?")
        self.different("What does a mean teacher do?", "What is the meaning of a teacher do?")


class TokensTest(QuestionCase):
    """What counts as said."""

    def test_articles_may_be_left_out_before_a_noun(self) -> None:
        """And say something before anything else."""
        self.same("Where do the Ravens play?", "Where do Ravens play?")
        self.different("How do I cancel a table?", "How do I cancel the table?", Veto.ARTICLE)
        self.different("Which foods have vitamin a?", "Which foods have vitamin?")
        self.different("Who sang with the who?", "Who sang with who?")
        self.different("Is hepatitis a or b worse?", "Is hepatitis or b worse?")
        self.different("What does the mean?", "What does a mean?")
        self.different("Where is the @ sign?", "Where is @ sign?")

    def test_the_is_not_a(self) -> None:
        """Nor is either of them nothing, where nothing else is said."""
        self.different("what is the matrix?", "what is a matrix?", Veto.ARTICLE)
        self.different("who sang in the band?", "who sang in a band?", Veto.ARTICLE)
        self.different("what are the doors?", "what are doors?", Veto.ARTICLE)
        self.different("what is ten to the six?", "what is ten to six?", Veto.CONTENT)
        self.same("what is a diesel engine?", "what is diesel engine?", "what are diesel engines?")

    def test_stress_says_nothing(self) -> None:
        """Currently."""
        self.same("Do cats need milk?", "Do cats currently need milk?")

    def test_stress_in_a_list_or_at_the_end_says_something(self) -> None:
        """It is what is asked about there."""
        for one, other in (
            ("Is it now and currently Latin?", "Is it now and Latin?"),
            ("Is it now or currently Latin?", "Is it now or Latin?"),
            ("Is it currently and fully Latin?", "Is it and fully Latin?"),
            ("Is it currently or fully Latin?", "Is it or fully Latin?"),
            ("Do they speak Latin currently?", "Do they speak Latin?"),
        ):
            self.different(one, other, Veto.CONTENT)

    def test_doubt_says_something(self) -> None:
        """Really, actually, exactly."""
        for word in ("really", "actually", "exactly"):
            self.different("Did Bacon write Hamlet?", f"Did Bacon {word} write Hamlet?", Veto.CONTENT)

    def test_some_are_not_hardly_any(self) -> None:
        """A few, a little."""
        self.different("Which cats need few toys?", "Which cats need a few toys?", Veto.CONTENT)
        self.different("Which cats need little milk?", "Which cats need a little milk?", Veto.CONTENT)
        self.same("Which cats need a little milk?", "which cats need a little milk")

    def test_a_question_about_words_keeps_all_of_them(self) -> None:
        """Sounds, articles and stress are words too."""
        for one, other in (
            ("What does um mean?", "What does uh mean?"),
            ("What is the meaning of um?", "What is the meaning of uh?"),
            ("Does the meaning of um differ?", "Does the meaning of uh differ?"),
            ("Does the definition of um differ?", "Does the definition of uh differ?"),
            ("Is it really and truly Latin?", "Is it actually and truly Latin?"),
            ("Is it really or nearly Latin?", "Is it actually or nearly Latin?"),
            ("Is it and really Latin?", "Is it and actually Latin?"),
            ("Is it or really Latin?", "Is it or actually Latin?"),
            ("What does really mean?", "What does actually mean?"),
            ("How do you say the dog in French?", "How do you say a dog in French?"),
            ("How do you pronounce a tree?", "How do you pronounce the tree?"),
            ("How do you spell um now?", "How do you spell uh now?"),
            ("Is color a word in Rome?", "Is colour a word in Rome?"),
            ("Are colors words in Rome?", "Are color words in Rome?"),
            ("How many letters does color have?", "How many letters does colour have?"),
            ("How many syllables does pants have?", "How many syllables does trousers have?"),
            ("How is color spelled?", "How is colour spelled?"),
            ("How do you spell can't?", "How do you spell cannot?"),
            ("How do you say, please?", "How do you say?"),
            ("Does color rhyme with dollar?", "Does colour rhyme with dollar?"),
            *[(f"Is color the {word} of it?", f"Is colour the {word} of it?") for word in ABOUT_WORDS.split()],
            ("How is color pronounced?", "How is colour pronounced?"),
            ("How do you pronounce color?", "How do you pronounce colour?"),
            ("Translate color to French", "Translate colour to French"),
            ("Is the phrase color Latin?", "Is the phrase colour Latin?"),
            ("How many syllables does color have?", "How many syllables does colour have?"),
            ("Is really word of Latin origin?", "Is actually word of Latin origin?"),
            ("Is the phrase really Latin?", "Is the phrase actually Latin?"),
            ("Translate the tree to French", "Translate a tree to French"),
            ("Is it between really and actually?", "Is it between currently and exactly?"),
            ("What is similar to really?", "What is similar to actually?"),
            ("Does one end in really?", "Does one end in actually?"),
            ("Do they rhyme really with Ely?", "Do they rhyme actually with Ely?"),
            ("Does it rhyme with Ely really?", "Does it rhyme with Ely actually?"),
        ):
            self.different(one, other)

    def test_other_adverbs_say_something(self) -> None:
        """Each of them can change the answer."""
        for word in ("always", "very", "only", "still", "again", "both", "some", "any", "all", "not", "never", "also"):
            self.different("Do cats need milk?", f"Do cats {word} need milk?")

    def test_have_at_the_end_says_nothing_with_do(self) -> None:
        """And something everywhere else."""
        self.same("What money does Peru have?", "What money does Peru?")
        self.different("What is it like to have a dog?", "What is it like to be a dog?", Veto.CONTENT)
        self.different("What can Peru have?", "What can Peru?")

    def test_no_person_is_another(self) -> None:
        """In whatever form."""
        for one, other in (("I", "me"), ("we", "us"), ("he", "him"), ("they", "them")):
            self.same(f"Who met {one}?", f"Who met {other}?")
        self.different("Who pays my aunt?", "Who pays our aunt?", Veto.CONTENT)
        for other in ("we", "you", "he", "she", "they", "her", "it"):
            self.different("What does it cost if I pay?", f"What does it cost if {other} pay?")
        self.different("Is her family rich?", "Is his family rich?")
        self.different("Where is my bank?", "Where is your bank?")

    def test_the_first_auxiliary_is_the_mode(self) -> None:
        """And every later one is content."""
        self.different("Who is the king?", "Who was the king?", Veto.MODE)
        self.different("Who was king when Bob was born?", "Who was king when Bob is born?", Veto.CONTENT)
        for one, other in (
            ("What should I eat?", "What could I eat?"),
            ("What may I eat?", "What might I eat?"),
            ("What will I eat?", "What would I eat?"),
            ("What shall I eat?", "What must I eat?"),
            ("What do I eat?", "What did I eat?"),
            ("What has it eaten?", "What had it eaten?"),
            ("What are we eating?", "What were we eating?"),
        ):
            self.different(one, other, Veto.MODE)

    def test_forms_of_one_auxiliary_are_one(self) -> None:
        """Is, are and am; do and does; has and have."""
        self.same("Where is a dog?", "Where are dogs?", "Where am a dog?")
        self.same("Where does a dog eat?", "Where do dogs eat?")
        self.same("Where has a dog eaten?", "Where have dogs eaten?")
        self.same("Where was a dog?", "Where were dogs?")

    def test_of_says_nothing_behind_a_unit(self) -> None:
        """50 GB of storage is 50GB storage."""
        self.same("Which plans include 50 GB of storage?", "Which plans include 50GB storage?")

    def test_a_compound_with_a_number_is_parted(self) -> None:
        """Digits or words."""
        self.same("Can a 16 year old drive?", "Can a 16-year-old drive?")
        self.same("Is a two hour walk long?", "Is a two-hour walk long?")
        self.same("Is 7g enough?", "Is 7 grams enough?")
        for network in ("2g", "3g", "4g", "5g", "6g"):
            self.different(f"Is {network} safe?", f"Is {network[0]} grams safe?")
        self.different("Is a two-factor walk long?", "Is a two walk long?")

    def test_dates_have_one_order(self) -> None:
        """Day and month, either first."""
        self.same("Who died on 5 May 2020?", "Who died on May 5, 2020?", "Who died on the 5th of May 2020?")
        for full, short in (
            ("January", "Jan"),
            ("February", "Feb"),
            ("March", "Mar"),
            ("April", "Apr"),
            ("June", "Jun"),
            ("July", "Jul"),
            ("August", "Aug"),
            ("September", "Sep"),
            ("September", "Sept"),
            ("October", "Oct"),
            ("November", "Nov"),
            ("December", "Dec"),
        ):
            self.same(f"Who died on 5 {full}?", f"Who died on {short} 5th?")
            self.different(f"Who died on 5 {full}?", "Who died on 5 May?")
        self.different("Who died on 5 May?", "Who died on 6 May?", Veto.NUMBER)
        self.different("Who died on 32 June?", "Who died on June 32?", Veto.ORDER)

    def test_sums_and_large_numbers_have_one_form(self) -> None:
        """Signs behind, thousands in full."""
        self.same("Is $5 enough?", "Is 5 dollars enough?")
        self.same("Is £5 million enough?", "Is 5000000 quid enough?", "Is £5,000,000 enough?")
        self.same("Is two million enough?", "Is 2,000,000 enough?")
        self.same("Is 2.5 thousand enough?", "Is 2500 enough?")
        self.same("Is 2 billion enough?", "Is 2000000000 enough?")
        for half in ("am", "pm", "a.m", "p.m"):
            self.same(f"Is it open at 3 {half}?", f"Is it open at 3:00 {half}?")
        self.different("Is it open at 3pm?", "Is it open at 3:30 pm?")
        self.different("Is it open at 3:00?", "Is it open at 3?")
        self.different("Is $5 enough?", "Is £5 enough?")
