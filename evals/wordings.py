"""Which texts of labelled pairs are wordings of one question, and which questions lie near each other. Pure.

Rules:
- texts that a pair calls the same are one question, and so is all that such pairs connect
- so are texts that differ in capitals, white space and the marks at their end alone, unless a pair calls them different
- a family is all that pairs and spelling connect: questions with their wordings and their near-misses
- a group of a file that falls into several families is left out, with these families: it is about one thing, and nobody
  has said which of their texts are one question
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evals.semantic_sets import Pair

_END_MARKS = "?!. "


class Contradiction(ValueError):
    """Pairs that call two texts one question, and another pair that calls them different."""


@dataclass(frozen=True, slots=True)
class Wording:
    """A text; two with one number ask one question."""

    text: str
    question: int


def families(pairs: Sequence[Pair]) -> list[list[Wording]]:
    """The families, in the order in which their first texts come. Raises Contradiction."""
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.a, pair.b)))
    questions = _questions(pairs, texts)
    related = _Joined(texts)
    for text in texts:
        related.join(questions.of(text), text)
    for pair in pairs:
        related.join(pair.a, pair.b)
    left_out = _torn(pairs, related)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(map(questions.of, texts)))}
    found: dict[str, list[Wording]] = {}
    for text in texts:
        found.setdefault(related.of(text), []).append(Wording(text, numbers[questions.of(text)]))
    return [family for name, family in found.items() if name not in left_out]


class _Joined:
    """Texts in sets that do not overlap, each named after one of them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._above = {text: text for text in texts}

    def of(self, text: str) -> str:
        """The name of its set."""
        while self._above[text] != text:
            text = self._above[text]
        return text

    def join(self, one: str, other: str) -> None:
        """Make one set of two."""
        self._above[self.of(other)] = self.of(one)


def _questions(pairs: Sequence[Pair], texts: Sequence[str]) -> _Joined:
    questions = _Joined(texts)
    for pair in pairs:
        if pair.same:
            questions.join(pair.a, pair.b)
    for pair in pairs:
        if not pair.same and questions.of(pair.a) == questions.of(pair.b):
            raise Contradiction(f"{pair.id}: {pair.a!r} and {pair.b!r} are one question by other pairs")
    alike: dict[str, str] = {}
    for text in texts:
        other = alike.setdefault(_spelling(text), text)
        both = {questions.of(text), questions.of(other)}
        if len(both) > 1 and both not in _kept_apart(pairs, questions):
            questions.join(other, text)
    return questions


def _kept_apart(pairs: Sequence[Pair], questions: _Joined) -> list[set[str]]:
    """The questions of each near-miss, as things stand."""
    return [{questions.of(pair.a), questions.of(pair.b)} for pair in pairs if not pair.same]


def _spelling(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(_END_MARKS)


def _torn(pairs: Sequence[Pair], related: _Joined) -> set[str]:
    """The families of groups that have several."""
    of_group: dict[str, set[str]] = {}
    for pair in pairs:
        if pair.group:
            of_group.setdefault(pair.group, set()).add(related.of(pair.a))
    return {name for names in of_group.values() if len(names) > 1 for name in names}
