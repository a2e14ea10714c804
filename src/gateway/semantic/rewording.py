"""Rewording: a question in the one wording of those that ask the same, put so before its opening is read.

Decides what the first words are put as; what is in another order further on, `constructions` does. A row is a possible
wrong answer: what fills its slot may be anything. Rules:
- what English says with a noun or with an adjective is one measure: `the length of X` is how long X is, the duration
  of X how long it lasts; `X's age` is the age of X. (Not how hot, which is spicy too, nor high, which a plane is)
- `tell me the N` asks what the N is; so does a bare `capital of X`, of the few nouns that are never asked otherwise
- a preposition before `which` stands as well at the end; a place or a tool before the question stands behind it
- `can you write me a poem` asks for one: a verb of making, please or me, and a thing with an article
- where I find a thing, I can find it; where I live is not where I can live
- to do a thing and doing it are one behind what has a deadline, a price, an age or a process for it
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.semantic.constructions import Rule, Words, constructed, is_phrase
from gateway.semantic.conversions import conversion
from gateway.semantic.frames import Frame, framed
from gateway.semantic.grammar import ARTICLES, AUXILIARIES, CLOSED, POSSESSIVE, PREPOSITIONS, QUESTION_WORDS
from gateway.semantic.inflection import PROGRESSIVE, american, form_of
from gateway.semantic.patterns import Phrases, expand, word_set
from gateway.semantic.tokens import OF


class Wording(NamedTuple):
    """Words before and behind what follows an opening; `is_of_verb` if that must begin with a verb in -ing."""

    before: Words
    is_of_verb: bool
    after: Words


SLOT: Final = "..."

OPENINGS: Final = (
    ("tell|give me|us the", "what is the ..."),
    ("can|could|would|will you [please|kindly] tell|give me|us the", "what is the ..."),
    ("i|we want|need|wish to know the", "what is the ..."),
    ("i|we would like to know the", "what is the ..."),
    ("explain|describe [to] [me|us] the difference|differences between", "what is the difference between ..."),
    (
        "can|could|would|will you [please|kindly] explain|describe [to] [me|us] the difference|differences between",
        "what is the difference between ...",
    ),
    ("what is|are the differences between", "what is the difference between ..."),
    ("what is|are the causes of", "what is the cause of ..."),
    ("what were the causes of", "what was the cause of ..."),
    ("what is the length of", "how long is ..."),
    ("what was the length of", "how long was ..."),
    ("what is the speed of", "how fast is ..."),
    ("what was the speed of", "how fast was ..."),
    ("what was the age of", "how old was ..."),
    ("what was the height of", "how tall was ..."),
    ("what was the weight of", "how heavy was ..."),
    ("what was the depth of", "how deep was ..."),
    ("what was the width of", "how wide was ..."),
    ("what was the size of", "how big was ..."),
    ("what is the duration of", "how long does ... last"),
    ("what was the duration of", "how long did ... last"),
    ("what is|was the birthplace of", "where was ... born"),
    ("what is|was the place of birth of", "where was ... born"),
    ("what is|was the date of birth of", "when was ... born"),
    ("what is|was the birth date of", "when was ... born"),
    ("what is|was the place of death of", "where did ... die"),
    ("what is|was the date of death of", "when did ... die"),
    ("what|which city is the capital of", "what is the capital of ..."),
    ("what is the capital city of", "what is the capital of ..."),
    ("when is the best time", "what is the best time ..."),
    ("when is the deadline", "what is the deadline ..."),
    ("when was the deadline", "what was the deadline ..."),
    ("how frequently", "how often ..."),
    ("for how long", "how long ..."),
    ("[the|some] steps|ways to", "how to ..."),
    ("where do|can|could i|one find", "where can i find ..."),
    ("where do|can|could i|one buy", "where can i buy ..."),
    ("where do|can|could i|one download", "where can i download ..."),
    ("where to find", "where can i find ..."),
    ("where to buy", "where can i buy ..."),
    ("where to download", "where can i download ..."),
    ("what exactly", "what ..."),
    ("how exactly", "how ..."),
    ("why exactly", "why ..."),
    ("what is different between", "what is the difference between ..."),
    ("in what way|ways", "how ..."),
    ("in which ways", "how ..."),
    ("give|show me|us [some] examples of", "what are examples of ..."),
    ("what are some examples of", "what are examples of ..."),
    ("[some] examples of", "what are examples of ..."),
    ("what is the time needed|required to", "how long does it take to ..."),
    ("how much time is needed|required to", "how long does it take to ..."),
    ("how much is it to", "how much does it cost to ..."),
    ("how do|can|could i|one tell|know if|whether", "how can i know if ..."),
    ("what is|are the uses of", "what is ... used for"),
    ("what is the importance of", "why is ... important"),
    ("what|which ingredients are in", "what are the ingredients of ..."),
    ("what are the ingredients in|for", "what are the ingredients of ..."),
    ("on what|which day", "what day ..."),
    ("in what|which month", "what month ..."),
    ("in what|which century", "what century ..."),
    ("at what|which temperature", "what temperature ..."),
    ("at what|which speed", "what speed ..."),
    ("what is the cost to", "how much does it cost to ..."),
    ("how old do i|one|you have|need to be to", "what is the minimum age to ..."),
    ("how old must i|one|you be to", "what is the minimum age to ..."),
    ("at|from what age can|may i|one", "what is the minimum age to ..."),
    ("what age do i|one|you have|need to be to", "what is the minimum age to ..."),
    ("what age must i|one|you be to", "what is the minimum age to ..."),
    ("what is the minimum age for", "what is the minimum age to ...ing"),
    ("what is the deadline for", "what is the deadline to ...ing"),
    ("what is the best time for", "what is the best time to ...ing"),
    ("what is the best way of", "what is the best way to ...ing"),
    ("what are the requirements for", "what are the requirements to ...ing"),
    ("what is the cost of", "how much does it cost to ...ing"),
    ("what is the boiling point of", "what temperature does ... boil"),
    ("what is the melting point of", "what temperature does ... melt"),
    ("what is the freezing point of", "what temperature does ... freeze"),
    ("[give|show] [me|us] [the] instructions to", "how to ..."),
    ("what are the steps for", "how to ...ing"),
    ("what is the process|procedure for", "how to ...ing"),
    ("how do|can|could|would i|one go about", "how to ...ing"),
)
"""Openings, and what each is put as; what follows it stands at the slot, and at `...ing` only if it is a verb in -ing.
(The process of ageing is nobody's way to age.)"""

OWNED: Final = frozenset(
    {
        "age",
        "height",
        "weight",
        "size",
        "depth",
        "width",
        "length",
        "population",
        "location",
        "meaning",
        "birthplace",
        "place of birth",
        "date of birth",
    }
)
"""What is asked for in one frame whether it is X's or of X. (A price is, in clauses.py.)"""

ATTRIBUTES: Final = {
    "capital": "of",
    "population": "of",
    "currency": "of",
    "height": "of",
    "definition": "of",
    "symptoms": "of",
    "causes": "of",
    "difference": "between",
    "differences": "between",
    "distance": "between",
}
"""Nouns with which a text that is no sentence asks what they are, and the preposition behind each."""

COMMANDS: Final = word_set("write draft compose summarize recommend suggest create generate")
"""What one asks for, if it is said politely or for whom. (Can you write a will without a lawyer?)"""

MOST_OPENINGS: Final = 2
"""`tell me the capital city of` is `what is the capital city of` is `what is the capital of`."""

LONGEST_FRONT: Final = 5
"""Words of a phrase before a question without a comma, and one."""


def reworded(words: Words) -> Words:
    """A question in the wording in which it is compared; itself if no rule knows it."""
    if not words:
        return words
    if words[0] in _STARTS:
        words = _STARTS[words[0]](words)
    if not _OPENING_MARKS.isdisjoint(words):
        for _ in range(MOST_OPENINGS):
            found = _openings.at(words, 0)
            if found is None:
                break
            words = _put(found.value, words[found.length :]) or words
    return conversion(constructed(words))


def _wording(text: str) -> Wording:
    words = text.split()
    place = next(place for place, word in enumerate(words) if word.startswith(SLOT))
    return Wording(words[:place], words[place] != SLOT, words[place + 1 :])


def _put(wording: Wording, rest: Words) -> Words | None:
    """What follows an opening behind the wording that stands for it; None if it may not."""
    if not wording.is_of_verb:
        return [*wording.before, *rest, *wording.after]
    verb = form_of(rest[0]) if rest else None
    return [*wording.before, verb.base, *rest[1:]] if verb and verb.mark == PROGRESSIVE else None


def _possessed(words: Words) -> Words:
    """`what is X's height` as `what is the height of X`."""
    if POSSESSIVE not in words:
        return words
    mark = len(words) - 1 - words[::-1].index(POSSESSIVE)
    owner, owned = words[2:mark], words[mark + 1 :]
    if words[1] not in _ONCE or " ".join(owned) not in OWNED or not is_phrase(owner):
        return words
    return ["what", words[1], "the", *owned, OF, *owner]


def _bare(words: Words) -> Words:
    """`capital of X` and `name the capital of X` as `what is the capital of X`."""
    start = next((start for start in (["name", "the"], ["the"]) if words[: len(start)] == start), [])
    noun = words[len(start) :]
    if len(noun) < 3 or ATTRIBUTES.get(noun[0]) != noun[1] or not is_phrase(noun):
        return words
    return ["what", "are" if noun[0].endswith("s") else "is", "the", *noun]


def _commanded(words: Words) -> Words:
    """`please write a poem`, `can you write me a poem` as `write a poem`."""
    start = 0 if words[0] == "please" else 2
    if start and words[1:2] != ["you"]:
        return words
    is_polite = words[start : start + 1] in (["please"], ["kindly"])
    command = words[start + is_polite :]
    to_me = command[1:2] in (["me"], ["us"])
    thing = command[1 + to_me :]
    if not thing or not (is_polite or to_me) or thing[0] not in ARTICLES or american(command[0]) not in COMMANDS:
        return words
    return [command[0], *thing]


def _fronted(words: Words) -> Words:
    """`in which city is X` as `which city is X in`; `on Linux how do I` as `how do I ... on Linux`."""
    if len(words) > 3 and words[1] in _ASKED:
        if _openings.at(words, 0) or framed(words, embedded=False).opening.frame is not Frame.STATEMENT:
            return words
        return ["who" if words[1] == "whom" else words[1], *words[2:], words[0]]
    for place in range(2, min(len(words) - 2, LONGEST_FRONT)):
        if words[place] in QUESTION_WORDS and words[place + 1] in AUXILIARIES and is_phrase(words[1:place]):
            return [*words[place:], *words[:place]]
    return words


_ONCE: Final = frozenset({"is", "was"})
_ASKED: Final = frozenset({"what", "which", "whom", "whose"})
_STATEMENT_STARTS: Final = ATTRIBUTES.keys() | {"the", "name"}
_STARTS: Final[Mapping[str, Rule]] = (
    dict.fromkeys(PREPOSITIONS, _fronted)
    | dict.fromkeys(("please", "can", "could", "would", "will"), _commanded)
    | dict.fromkeys(_STATEMENT_STARTS, _bare)
    | {"what": _possessed}
)
_OPENING_MARKS: Final = frozenset(
    word for pattern, _ in OPENINGS for phrase in expand(pattern) for word in phrase if word not in CLOSED
)
"""Every opening has one of these; most questions have none."""
_openings: Final = Phrases((pattern, _wording(text)) for pattern, text in OPENINGS)
