"""What makes two questions different: one rule for each kind of difference, asked in the order of RULES.

A rule names the difference that it sees, or None. No difference that no rule sees is served as the same question, so
content, which is everything the reader kept, is compared as a whole; the rules before it only say more precisely what
differs, for the one who reads the counts.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from gateway.semantic.frames import Frame
from gateway.semantic.grammar import NEGATIONS, POSSESSIVE, PREPOSITIONS
from gateway.semantic.letters import written_otherwise
from gateway.semantic.question import BINDERS, Question
from gateway.semantic.tokens import NUMBER, OF


class Veto(StrEnum):
    """Why an answer to one question is not given to the other."""

    FRAME = "frame"
    QUOTED = "quoted"
    CAPITALS = "capitals"
    SENSE = "sense"
    MODE = "mode"
    NUMBER = "number"
    NEGATION = "negation"
    PREPOSITION = "preposition"
    CONTENT = "content"
    TOO_LITTLE = "too_little"
    ORDER = "order"
    COUNT = "count"
    ARTICLE = "article"


class Refutation(Struct, frozen=True):
    """A difference of meaning, and for the log what differs."""

    veto: Veto
    detail: str


Rule = Callable[[Question, Question], str | None]
"""What differs, in words; None if nothing of the rule's kind does."""


def frame(asked: Question, stored: Question) -> str | None:
    """Something else is asked for."""
    return None if asked.frame is stored.frame else f"{asked.frame} / {stored.frame}"


def quoted(asked: Question, stored: Question) -> str | None:
    """Quoted texts are the same to the letter, and nothing is quoted on one side only."""
    return None if asked.quoted == stored.quoted else f"{asked.quoted} / {stored.quoted}"


def capitals(asked: Question, stored: Question) -> str | None:
    """A word that is a name here is a plain word there, or one of other letters: Turkey and turkey, mW and MW."""
    one, other = asked.capitals, stored.capitals
    return _opposed((one.upper, one.lower), (other.upper, other.lower)) or written_otherwise(one.exact, other.exact)


def sense(asked: Question, stored: Question) -> str | None:
    """What do cats eat is not what are cats; may I is not am I able to."""
    if "" in (asked.sense, stored.sense) or asked.sense == stored.sense:
        return None
    return f"{asked.sense} / {stored.sense}"


def mode(asked: Question, stored: Question) -> str | None:
    """Who is is not who was; should is not could."""
    return None if asked.mode == stored.mode else f"{asked.mode or 'present'} / {stored.mode or 'present'}"


def number(asked: Question, stored: Question) -> str | None:
    """Every number is on both sides, as often."""
    return _unmatched(asked, stored, lambda key: key.startswith(NUMBER))


def negation(asked: Question, stored: Question) -> str | None:
    """Every negation is on both sides, as often."""
    return _unmatched(asked, stored, NEGATIONS.__contains__)


def preposition(asked: Question, stored: Question) -> str | None:
    """Every preposition is on both sides, as often; `of` may be a possessive."""
    return _unmatched(asked, stored, lambda key: key in PREPOSITIONS and key != OF)


def content(asked: Question, stored: Question) -> str | None:
    """Everything said is on both sides, as often."""
    return _unmatched(asked, stored, lambda key: key not in BINDERS)


def too_little(asked: Question, stored: Question) -> str | None:
    """Where nearly nothing was understood, only the same words ask the same."""
    least = 2 if asked.frame is Frame.STATEMENT else 1
    if len(asked.keys) >= least or asked.text.split() == stored.text.split():
        return None
    return " ".join(asked.keys) or "nothing"


def order(asked: Question, stored: Question) -> str | None:
    """Who did what to whom: the same order, but for a possessive."""
    one, other = asked.keys, stored.keys
    if one == other or _is_possessive_of(one, other) or _is_possessive_of(other, one):
        return None
    place = next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
    return f"{' '.join(one[place : place + 3])} / {' '.join(other[place : place + 3])}"


def count(asked: Question, stored: Question) -> str | None:
    """The file is not the files; a file and files may be one question."""
    one, other = asked.counts, stored.counts
    return _opposed((one.one, one.many), (other.one, other.many))


def article(asked: Question, stored: Question) -> str | None:
    """The matrix is not a matrix, nor are the doors doors; beside other words an article may be left out."""
    if len(asked.keys) == 1 and asked.articles.definite != stored.articles.definite:
        return asked.keys[0]
    one, other = asked.articles, stored.articles
    return _opposed((one.definite, one.indefinite), (other.definite, other.indefinite))


RULES: Final[tuple[tuple[Veto, Rule], ...]] = (
    (Veto.FRAME, frame),
    (Veto.QUOTED, quoted),
    (Veto.CAPITALS, capitals),
    (Veto.MODE, mode),
    (Veto.SENSE, sense),
    (Veto.NUMBER, number),
    (Veto.NEGATION, negation),
    (Veto.PREPOSITION, preposition),
    (Veto.CONTENT, content),
    (Veto.TOO_LITTLE, too_little),
    (Veto.ORDER, order),
    (Veto.COUNT, count),
    (Veto.ARTICLE, article),
)

BESIDE_THE_KEY: Final = frozenset({Veto.CAPITALS, Veto.SENSE, Veto.TOO_LITTLE, Veto.ORDER, Veto.COUNT, Veto.ARTICLE})
"""In what two questions of one key may differ: all else is in the key."""

_RULES_WITHIN_A_KEY: Final = tuple((veto, rule) for veto, rule in RULES if veto in BESIDE_THE_KEY)


def difference(asked: Question, stored: Question) -> Refutation | None:
    """The first difference that a rule sees; None if no rule sees one."""
    for veto, rule in _RULES_WITHIN_A_KEY if asked.key == stored.key else RULES:
        detail = rule(asked, stored)
        if detail is not None:
            return Refutation(veto, detail)
    return None


def _opposed(one: Sequence[frozenset[str]], other: Sequence[frozenset[str]]) -> str | None:
    """What is only the first here and only the second there."""
    (left, right), (other_left, other_right) = one, other
    if left.isdisjoint(other_right) and right.isdisjoint(other_left):
        return None
    differs = ((left & other_right) - right - other_left) | ((other_left & right) - other_right - left)
    return " ".join(sorted(differs)) if differs else None


def _unmatched(asked: Question, stored: Question, is_of_kind: Callable[[str], bool]) -> str | None:
    one, other = (Counter(filter(is_of_kind, question.keys)) for question in (asked, stored))
    if one == other:
        return None
    return " ".join([*sorted((one - other).elements()), "/", *sorted((other - one).elements())])


def _is_possessive_of(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether `H of X` in one is `X 's H` in the other, and the rest is the same."""
    start = next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
    if OF not in one[start:] or POSSESSIVE not in other[start:]:
        return False
    of, mark = one.index(OF, start), other.index(POSSESSIVE, start)
    head, owner = one[start:of], other[start:mark]
    after_of, after_mark = one[of + 1 :], other[mark + 1 :]
    is_flipped = after_of[: len(owner)] == owner and after_mark[: len(head)] == head
    return bool(head and owner) and is_flipped and after_of[len(owner) :] == after_mark[len(head) :]
