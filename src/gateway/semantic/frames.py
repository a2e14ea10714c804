"""Question frames: the ways in which English asks one kind of question.

Decides what is asked for (a way, a time, a reason, permission, ...) from the first words. A row is a possible wrong
answer, as in the lexicon. Rules:
- two openings share a frame only if the same answer serves both; a year is not a date, and `should` is not `need`
- who acts is part of what is asked: what `we` can do, mankind or a company, not everybody can, and `you` may be the one
  who answers
- what an opening says besides stays with it: a mode counts, a sense counts against another sense
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from gateway.semantic.grammar import AUXILIARIES
from gateway.semantic.patterns import Phrases, word_set


class Frame(StrEnum):
    """What a question asks for."""

    WAY = "way"
    PROPER_WAY = "proper_way"
    YOUR_WAY = "your_way"
    MANNER = "manner"
    COUNT = "count"
    DURATION = "duration"
    TIME_TAKEN = "time_taken"
    PRICE = "price"
    AMOUNT = "amount"
    AGE = "age"
    HEIGHT = "height"
    SIZE = "size"
    WEIGHT = "weight"
    DEPTH = "depth"
    WIDTH = "width"
    DISTANCE = "distance"
    POPULATION = "population"
    MEANING = "meaning"
    YEAR = "year"
    TIME = "time"
    DATE = "date"
    WHEN = "when"
    WHERE = "where"
    REASON = "reason"
    WHO = "who"
    POSSIBILITY = "possibility"
    ADVICE = "advice"
    DUTY = "duty"
    KIND = "kind"
    WHAT = "what"
    YES_NO = "yes_no"
    STATEMENT = "statement"


class Opening(NamedTuple):
    """The first words of a question: what they ask for, the mode they are in, and the sense they narrow it to."""

    frame: Frame
    mode: str = ""
    sense: str = ""


ROWS: Final = (
    ("how do|can|could|would|might|may i|one", Opening(Frame.WAY)),
    ("how does one", Opening(Frame.WAY)),
    ("how do you", Opening(Frame.YOUR_WAY)),
    ("how to", Opening(Frame.WAY)),
    ("what is|are [the|a] way|ways|method|methods|process|procedure|steps to", Opening(Frame.WAY)),
    ("what steps do|can|should|must i [need] [to] take|follow to", Opening(Frame.WAY)),
    ("what do i need|have to do to", Opening(Frame.WAY)),
    ("what can|could|do|must i|one do to", Opening(Frame.WAY)),
    ("how should i|one", Opening(Frame.PROPER_WAY)),
    ("what is the right|correct|proper way|method|procedure to", Opening(Frame.PROPER_WAY)),
    ("how", Opening(Frame.MANNER)),
    ("how many", Opening(Frame.COUNT)),
    ("what number of", Opening(Frame.COUNT)),
    ("what is the number of", Opening(Frame.COUNT)),
    ("how long", Opening(Frame.DURATION)),
    ("how much time", Opening(Frame.DURATION)),
    ("how long does|do it [usually|normally|typically] take", Opening(Frame.TIME_TAKEN)),
    ("how much time does|do it [usually|normally|typically] take", Opening(Frame.TIME_TAKEN)),
    ("how long did it take", Opening(Frame.TIME_TAKEN, "past")),
    ("how much time did it take", Opening(Frame.TIME_TAKEN, "past")),
    ("how long will it take", Opening(Frame.TIME_TAKEN, "will")),
    ("how much time will it take", Opening(Frame.TIME_TAKEN, "will")),
    ("how much is|are", Opening(Frame.PRICE)),
    ("how much was|were", Opening(Frame.PRICE, "past")),
    ("how much does it cost", Opening(Frame.PRICE)),
    ("how much did it cost", Opening(Frame.PRICE, "past")),
    ("what does it cost", Opening(Frame.PRICE)),
    ("what did it cost", Opening(Frame.PRICE, "past")),
    ("what is|are the price|cost|prices|costs of|for", Opening(Frame.PRICE)),
    ("what was|were the price|cost|prices|costs of|for", Opening(Frame.PRICE, "past")),
    ("how much", Opening(Frame.AMOUNT)),
    ("what amount|quantity of", Opening(Frame.AMOUNT)),
    ("how old is|are", Opening(Frame.AGE)),
    ("what is the age of", Opening(Frame.AGE)),
    ("how tall is|are", Opening(Frame.HEIGHT)),
    ("what is the height of", Opening(Frame.HEIGHT)),
    ("how big|large is|are", Opening(Frame.SIZE)),
    ("what is the size of", Opening(Frame.SIZE)),
    ("how heavy is|are", Opening(Frame.WEIGHT)),
    ("what is the weight of", Opening(Frame.WEIGHT)),
    ("how deep is|are", Opening(Frame.DEPTH)),
    ("what is the depth of", Opening(Frame.DEPTH)),
    ("how wide is|are", Opening(Frame.WIDTH)),
    ("what is the width of", Opening(Frame.WIDTH)),
    ("how far is it from", Opening(Frame.DISTANCE)),
    ("what is the distance from", Opening(Frame.DISTANCE)),
    ("how many people live in", Opening(Frame.POPULATION)),
    ("what number of people live in", Opening(Frame.POPULATION)),
    ("what is the population of", Opening(Frame.POPULATION)),
    ("how many people lived in", Opening(Frame.POPULATION, "past")),
    ("what number of people lived in", Opening(Frame.POPULATION, "past")),
    ("what was the population of", Opening(Frame.POPULATION, "past")),
    ("what is the meaning of", Opening(Frame.MEANING)),
    ("what is meant by", Opening(Frame.MEANING)),
    ("[in] what|which year", Opening(Frame.YEAR)),
    ("[at] what|which time", Opening(Frame.TIME)),
    ("[on] what|which date", Opening(Frame.DATE)),
    ("when", Opening(Frame.WHEN)),
    ("where", Opening(Frame.WHERE)),
    ("in|at what|which place|location", Opening(Frame.WHERE)),
    ("what is|are the location of", Opening(Frame.WHERE)),
    ("why", Opening(Frame.REASON)),
    ("how come", Opening(Frame.REASON)),
    ("for what|which reason", Opening(Frame.REASON)),
    ("what is|are the reason|reasons [that|why]", Opening(Frame.REASON)),
    ("who", Opening(Frame.WHO)),
    ("what|which person", Opening(Frame.WHO)),
    ("can|could i|one", Opening(Frame.POSSIBILITY)),
    ("may i|one", Opening(Frame.POSSIBILITY, sense="allowed")),
    ("is it possible to", Opening(Frame.POSSIBILITY, sense="possible")),
    ("is it possible for me to", Opening(Frame.POSSIBILITY, sense="possible")),
    ("is there [a] way to", Opening(Frame.POSSIBILITY, sense="possible")),
    ("am i able to", Opening(Frame.POSSIBILITY, sense="possible")),
    ("am i allowed|permitted to", Opening(Frame.POSSIBILITY, sense="allowed")),
    ("is it allowed|permitted to", Opening(Frame.POSSIBILITY, sense="allowed")),
    ("is it allowed|permitted for me to", Opening(Frame.POSSIBILITY, sense="allowed")),
    ("should i|one", Opening(Frame.ADVICE)),
    ("do i|one need to", Opening(Frame.DUTY, sense="need")),
    ("do i|one have to", Opening(Frame.DUTY)),
    ("have i got to", Opening(Frame.DUTY)),
    ("must i|one", Opening(Frame.DUTY)),
    ("am i required|obliged to", Opening(Frame.DUTY, sense="required")),
    ("is it necessary to", Opening(Frame.DUTY, sense="need")),
    ("is it required|mandatory|compulsory to", Opening(Frame.DUTY, sense="required")),
    ("is it necessary for me to", Opening(Frame.DUTY, sense="need")),
    ("is it required|mandatory|compulsory for me to", Opening(Frame.DUTY, sense="required")),
    ("what|which kind|kinds|type|types|sort|sorts of", Opening(Frame.KIND)),
    ("what|which", Opening(Frame.WHAT)),
    ("what|which of the", Opening(Frame.WHAT)),
    ("|".join(AUXILIARIES), Opening(Frame.YES_NO)),
)

EMBEDDED_ROWS: Final = (
    ("how i [can|could]", Opening(Frame.WAY)),
    ("how i should", Opening(Frame.PROPER_WAY)),
    ("if|whether i can|could|may", Opening(Frame.POSSIBILITY)),
    ("if|whether i should", Opening(Frame.ADVICE)),
    ("if|whether i need to", Opening(Frame.DUTY, sense="need")),
    ("if|whether i have to", Opening(Frame.DUTY)),
    ("if|whether", Opening(Frame.YES_NO)),
)
"""Openings that are questions only behind `tell me` and the like."""

HOLDS_AUXILIARY: Final = frozenset(
    {
        Frame.MANNER,
        Frame.COUNT,
        Frame.DURATION,
        Frame.AMOUNT,
        Frame.YEAR,
        Frame.TIME,
        Frame.DATE,
        Frame.WHEN,
        Frame.WHERE,
        Frame.REASON,
        Frame.WHO,
        Frame.KIND,
        Frame.WHAT,
        Frame.YES_NO,
    }
)
"""Frames whose auxiliary is not part of the opening."""

_YES_NO: Final = Opening(Frame.YES_NO)
_PRICE: Final = Opening(Frame.PRICE)
_MEASURES: Final = word_set("acre cup gallon hectare ounce pint pound quart stone ton tonne")
"""Of which `how much is one` asks how much it holds or weighs."""
_openings: Final = Phrases(ROWS)
_embedded_openings: Final = Phrases(EMBEDDED_ROWS)


class Framed(Struct, frozen=True):
    """A question behind its opening."""

    opening: Opening
    rest: Sequence[str]


def framed(words: Sequence[str], *, embedded: bool) -> Framed:
    """What the first words ask for, and the words that follow them."""
    found = (_embedded_openings.at(words, 0) if embedded else None) or _openings.at(words, 0)
    if found is None:
        return Framed(Opening(Frame.STATEMENT), words)
    opening, rest = found.value, words[found.length :]
    if opening == _YES_NO and words[0] in AUXILIARIES:
        rest = words
    elif opening == _PRICE and words[0] == "how" and not _MEASURES.isdisjoint(rest[:2]):
        opening, rest = Opening(Frame.AMOUNT), words[2:]
    return Framed(opening, rest)
