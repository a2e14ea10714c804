"""Which two questions a judge may be asked about: those between which nothing is seen that settles it.

The verifier refuses a pair for want of proof that it is one question. Here a pair is refused for proof that it is not:
a judge that says yes to everything must not be able to make `5 miles` and `6 miles` one. Pure, and symmetric. Rules:

- numbers, units, days, months, negations, quoted texts, names, tense, and words that turn a meaning around (only,
  before, most) are the same on both sides, or no judge is asked; nor about a word here and its opposite there
- so is what is asked for, as far as it is told: a time is no place, and a yes or no is neither
- the same words in another order, one thing and many, a name and a plain word: the verifier knows what it sees there
- a text that speaks of answers, judges or instructions is shown to no judge
- all else is content, and so is a name that nothing marks as one (`capital of france`): that is what a judge is for
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from gateway.semantic.frames import Frame
from gateway.semantic.grammar import NEGATIONS
from gateway.semantic.patterns import word_set
from gateway.semantic.plain import plain
from gateway.semantic.question import Question
from gateway.semantic.rules import capitals, count, order
from gateway.semantic.tokens import key_of
from gateway.semantic.words import scan


class Bar(StrEnum):
    """Why no judge is asked about a pair."""

    QUOTED = "quoted"
    TENSE = "tense"
    NUMBER = "number"
    NEGATION = "negation"
    TURN = "turn"
    FRAME = "frame"
    CAPITALS = "capitals"
    NAME = "name"
    PERSON = "person"
    ORDER = "order"
    COUNT = "count"
    STEERING = "steering"


def bar(one: Question, other: Question) -> Bar | None:
    """The first difference that no judge may overrule; None if one may be asked, or if there is no difference."""
    return next((reason for reason, differs in _RULES if differs(one, other)), None)


def mark(question: Question) -> tuple[Any, ...]:
    """What two questions share, if none of the first rules tells them apart: others need not be compared at all."""
    return tuple(said(question) for said in _SAID.values())


def _numbers(question: Question) -> tuple[str, ...]:
    return _those(question, lambda key: _base(key) in _CALENDAR or key.endswith(" unit") or any(map(str.isdigit, key)))


def _negations(question: Question) -> tuple[str, ...]:
    return _those(question, NEGATIONS.__contains__)


def _turns(question: Question) -> tuple[str, ...]:
    return tuple(sorted(base for base in map(_base, question.keys) if base in _TURNS))


def _those(question: Question, is_of_kind: Callable[[str], bool]) -> tuple[str, ...]:
    return tuple(sorted(filter(is_of_kind, question.keys)))


def _tense(question: Question) -> str:
    return "" if question.mode in _UNTENSED else question.mode


def _frames(one: Question, other: Question) -> bool:
    first, second = one.frame, other.frame
    if first is second or Frame.STATEMENT in (first, second):
        return False
    if (first in _YES_NO) is not (second in _YES_NO):
        return True
    if first in _YES_NO:
        return Frame.YES_NO not in (first, second)
    return not (_OPEN & {first, second} or any({first, second} <= group for group in _GROUPS))


def _capitals(one: Question, other: Question) -> bool:
    return capitals(one, other) is not None


def _names(one: Question, other: Question) -> bool:
    """A name of one that the other does not say in any case."""
    return not (one.capitals.upper <= _words(other) and other.capitals.upper <= _words(one))


def _words(question: Question) -> set[str]:
    return {piece.partition("'")[0] for piece in scan(plain(question.text)).pieces}


def _prefixes(one: Question, other: Question) -> bool:
    """Safe and unsafe, where each is on one side only."""
    words, others = _words(one), _words(other)
    left, right = words - others, others - words
    return any(f"{no}{word}" in right for no in _NO for word in left) or any(
        f"{no}{word}" in left for no in _NO for word in right
    )


def _opposites(one: Question, other: Question) -> bool:
    """Enable and disable, where each is on one side only."""
    left, right = ({_base(key) for key in question.keys} for question in (one, other))
    return any(
        (first in left - right and second in right - left) or (first in right - left and second in left - right)
        for first, second in _OPPOSITES
    )


def _base(key: str) -> str:
    """Without what tells its form: fail and failed turn the same thing around."""
    return key.partition("~")[0]


def _keys(words: str) -> frozenset[str]:
    return frozenset(_base(key_of(word)) for word in word_set(words))


def _persons(one: Question, other: Question) -> bool:
    """His and mine; mine and nobody's may be one."""
    left, right = ({*question.keys} & _PERSONS for question in (one, other))
    return bool(left - right and right - left)


def _orders(one: Question, other: Question) -> bool:
    return one.key == other.key and order(one, other) is not None


def _counts(one: Question, other: Question) -> bool:
    return count(one, other) is not None


def _steers(one: Question, other: Question) -> bool:
    return not _STEERING.isdisjoint(_words(one) | _words(other))


def _unequal(said: Callable[[Question], Any]) -> Callable[[Question, Question], bool]:
    return lambda one, other: said(one) != said(other)


_UNTENSED: Final = frozenset({"can", "may", "would"})
"""Modes that a rewording puts for none, and for each other: where can I park, where is it possible to park."""

_YES_NO: Final = frozenset({Frame.YES_NO, Frame.POSSIBILITY, Frame.ADVICE, Frame.DUTY})
_OPEN: Final = frozenset({Frame.WHAT, Frame.MANNER})
"""Frames that ask for anything: what is the price, how expensive is."""

_GROUPS: Final = (
    {Frame.WAY, Frame.PROPER_WAY},
    {Frame.DURATION, Frame.TIME_TAKEN},
    {Frame.PRICE, Frame.AMOUNT},
    {Frame.COUNT, Frame.POPULATION},
    {Frame.WHEN, Frame.DATE},
    {Frame.WHEN, Frame.TIME},
    {Frame.WHEN, Frame.YEAR},
)
"""Frames that one answer may serve; all others differ. A year is no date, though either says when."""

_CALENDAR: Final = _keys(
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june july august"
    " september october november december spring summer autumn winter morning afternoon evening night"
    " second minute hour day week month year daily weekly monthly yearly annual half double twice celsius fahrenheit"
)
_TURNS: Final = _keys(
    "before after until till since between above below over under against off from only almost except but all every"
    " both either each most least more less fewer last next best worst maximum minimum high low"
    " stop fail avoid lack cease prevent"
)
_STEERING: Final = word_set(
    "same different equal equivalent identical ignore disregard override instruct instruction instructions prompt"
    " assistant judge verdict answer answers reply respond output json"
)
_OPPOSITES: Final = tuple(
    (key_of(first), key_of(second))
    for first, second in (
        ("accept", "reject"),
        ("add", "remove"),
        ("allow", "ban"),
        ("and", "or"),
        ("approve", "reject"),
        ("arrive", "depart"),
        ("benefit", "drawback"),
        ("big", "small"),
        ("borrow", "lend"),
        ("buy", "sell"),
        ("cheap", "expensive"),
        ("compulsory", "optional"),
        ("enable", "disable"),
        ("export", "import"),
        ("hide", "show"),
        ("in", "out"),
        ("increase", "reduce"),
        ("join", "leave"),
        ("legal", "illegal"),
        ("lock", "unlock"),
        ("lose", "win"),
        ("open", "close"),
        ("pull", "push"),
        ("raise", "lower"),
        ("send", "receive"),
        ("start", "end"),
        ("up", "down"),
        ("upload", "download"),
    )
)
_PERSONS: Final = word_set("my your his her its their you he she they")
_NO: Final = ("un", "in", "im", "il", "ir", "non", "non-", "dis", "mis", "de")

_SAID: Final[dict[Bar, Callable[[Question], Any]]] = {
    Bar.QUOTED: lambda question: question.quoted,
    Bar.TENSE: _tense,
    Bar.NUMBER: _numbers,
    Bar.NEGATION: _negations,
    Bar.TURN: _turns,
}

_RULES: Final[tuple[tuple[Bar, Callable[[Question, Question], bool]], ...]] = (
    *((reason, _unequal(said)) for reason, said in _SAID.items()),
    (Bar.FRAME, _frames),
    (Bar.NEGATION, _prefixes),
    (Bar.TURN, _opposites),
    (Bar.CAPITALS, _capitals),
    (Bar.NAME, _names),
    (Bar.PERSON, _persons),
    (Bar.ORDER, _orders),
    (Bar.COUNT, _counts),
    (Bar.STEERING, _steers),
)
