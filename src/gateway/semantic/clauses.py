"""Clauses: the few changes of order and construction that leave a question the same, made before two are compared.

Rules:
- a phrase before the question, up to a comma, goes behind it: `in Rome, can I pay` is `can I pay in Rome`
- behind `tell me` the verb goes forward: `what the price is` is `what is the price`
- a passive with `by` is active: `was the gun missed by Emily` is `did Emily miss the gun`
- `is a child able to drive` is `can a child drive`
- `who is the author of X` and `who was X written by` are `who wrote X`; `what does X mean` asks its meaning
- two single things joined by `and` or `or` have one order
- to change or turn one thing into another is to convert it to the other
- what something costs is its price; where something is located is where it is
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gateway.semantic.frames import Frame, Opening
from gateway.semantic.grammar import ARTICLES, AUXILIARIES, CLOSED, POSSESSIVE, PREPOSITIONS, QUESTION_WORDS
from gateway.semantic.inflection import PAST
from gateway.semantic.tokens import OF, Said, Token

_BE: Final = frozenset({"is", "are", "was", "were"})
_DETERMINERS: Final = ARTICLES | {"my", "your"}
_FRONTS: Final = PREPOSITIONS | {"if", "using"}
_STARTS: Final = QUESTION_WORDS | AUXILIARIES.keys()
_JOINS: Final = frozenset({"and", "or"})
_PRICES: Final = frozenset({"price", "cost"})
_CONVERTING: Final = frozenset({"change", "convert", "turn"})
_ENABLED: Final = frozenset({"able"})
_IN_ORDER: Final = frozenset({"quotient", "ratio", "product", "composition"})
"""What two things have in one order alone."""
_AGENTS: Final = {
    "author": "write",
    "composer": "compose",
    "creator": "create",
    "designer": "design",
    "discoverer": "discover",
    "founder": "establish",
    "inventor": "invent",
    "painter": "paint",
}
"""Who did it once, and what was done; all of these deeds are past, whatever the tense of the question."""
_PARTICIPLES: Final = {word: word for word in ("beat", "cut", "hit", "hurt", "put", "read")} | {
    "found": "find",
    "left": "leave",
}
"""Participles that are other words elsewhere."""


def unfronted(words: Sequence[str]) -> Sequence[str]:
    """A phrase in front of the question is put behind it."""
    if not words or words[0] not in _FRONTS or "," not in words:
        return words
    comma = words.index(",")
    question = comma + 1
    if question == len(words) or words[question] not in _STARTS or words[1] in QUESTION_WORDS:
        return words
    return [*words[question:], *words[:comma]]


def direct(words: Sequence[str]) -> Sequence[str]:
    """An embedded question as one that stands alone: `what the price of X is` as `what is the price of X`."""
    if not words or words[-1] not in _BE:
        return words
    place = next((place for place in (1, 2) if place < len(words) - 1 and words[place] in _DETERMINERS), None)
    return words if place is None else [*words[:place], words[-1], *words[place:-1]]


def settled(opening: Opening, said: Said) -> tuple[Opening, Said]:
    """The question in the one construction and order in which it is compared."""
    for construction in _CONSTRUCTIONS.get(opening.frame, ()):
        opening, said = construction(opening, said)
    tokens = _in_one_order(_converted(said.tokens))
    return opening, said if tokens is said.tokens else Said(tokens, said.kind, said.mode)


def _without_located(opening: Opening, said: Said) -> tuple[Opening, Said]:
    if said.kind == "be" and said.tokens and said.tokens[-1].key == "located":
        return opening, Said(said.tokens[:-1], said.kind, said.mode)
    return opening, said


def _meant(opening: Opening, said: Said) -> tuple[Opening, Said]:
    """`what does X mean` as `what is the meaning of X`."""
    if said.kind == "do" and not said.mode and len(said.tokens) > 1 and said.tokens[-1].key == "mean":
        return Opening(Frame.MEANING), Said(said.tokens[:-1], "", "")
    return opening, said


def _priced(opening: Opening, said: Said) -> tuple[Opening, Said]:
    """`how much does X cost in Y` and `what is X's price` as `what is the price of X`."""
    keys = [token.key for token in said.tokens]
    if (
        said.kind == "be"
        and len(keys) > 2
        and keys[-2] == POSSESSIVE
        and keys[-1] in _PRICES
        and opening.frame is Frame.WHAT
    ):
        return Opening(Frame.PRICE), Said(said.tokens[:-2], "", said.mode)
    if said.kind != "do":
        return opening, said
    for place in range(1, len(keys)):
        if keys[place] == "cost" and (place + 1 == len(keys) or keys[place + 1] in PREPOSITIONS):
            return Opening(Frame.PRICE), Said(said.tokens[:place] + said.tokens[place + 1 :], "", said.mode)
    return opening, said


def _possible(opening: Opening, said: Said) -> tuple[Opening, Said]:
    """`is X able to` and `is it possible for X to` as `can X`."""
    if said.kind != "be" or said.mode:
        return opening, said
    keys = [token.key for token in said.tokens]
    if keys[:3] == ["it", "possible", "for"] and "to" in keys[4:]:
        to = keys.index("to", 4)
        return opening, Said(said.tokens[3:to] + said.tokens[to + 1 :], "modal", "can")
    for place in range(1, len(keys) - 1):
        if keys[place] in _ENABLED and keys[place + 1] == "to":
            return opening, Said(said.tokens[:place] + said.tokens[place + 2 :], "modal", "can")
    return opening, said


def _agent(opening: Opening, said: Said) -> tuple[Opening, Said]:
    """`who is the author of X` and `who was X written by` as `who wrote X`."""
    keys = [token.key for token in said.tokens]
    if said.kind != "be" or len(keys) < 3:
        return opening, said
    if keys[1] == OF and keys[0] in _AGENTS:
        return opening, Said([Token(_AGENTS[keys[0]] + PAST), *said.tokens[2:]], "", "")
    if keys[-1] == "by" and keys[-2].endswith(PAST) and said.mode == "past":
        return opening, Said([said.tokens[-2], *said.tokens[:-2]], "", "")
    return opening, said


def _active(opening: Opening, said: Said) -> tuple[Opening, Said]:
    """`was the gun missed by Emily` as `did Emily miss the gun`."""
    keys = [token.key for token in said.tokens]
    if said.kind != "be" or keys.count("by") != 1:
        return opening, said
    by = keys.index("by")
    end = next((place for place in range(by + 1, len(keys)) if keys[place] in PREPOSITIONS), len(keys))
    participle = keys[by - 1] if by else ""
    if end == by + 1 or not (participle.endswith(PAST) or participle in _PARTICIPLES):
        return opening, said
    verb = Token(_PARTICIPLES.get(participle) or participle.removesuffix(PAST))
    tokens = [*said.tokens[by + 1 : end], verb, *said.tokens[: by - 1], *said.tokens[end:]]
    return opening, Said(tokens, "do", said.mode)


_CONSTRUCTIONS: Final[Mapping[Frame, Sequence[Callable[[Opening, Said], tuple[Opening, Said]]]]] = {
    Frame.WHERE: (_without_located,),
    Frame.WHAT: (_meant, _priced, _active),
    Frame.AMOUNT: (_priced,),
    Frame.YES_NO: (_possible, _active),
    Frame.WHO: (_agent,),
}
"""By what is asked for; each of them leaves nothing that the next would change."""


def _converted(tokens: list[Token]) -> list[Token]:
    """`change|turn X into Y` as `convert X to Y`."""
    keys = [token.key for token in tokens]
    if keys.count("into") != 1:
        return tokens
    into = keys.index("into")
    verbs = [place for place in range(into - 1) if keys[place] in _CONVERTING]
    if not verbs:
        return tokens
    tokens = list(tokens)
    tokens[into], tokens[verbs[-1]] = Token("to"), Token("convert")
    return tokens


def _in_one_order(tokens: list[Token]) -> list[Token]:
    """`a nurse and an actor` at the end, sorted: only where the small words show that each side is a single word.

    A way between two places has a direction; a difference has none.
    """
    if len(tokens) < 3 or tokens[-2].key not in _JOINS:
        return tokens
    left, join, right = tokens[-3:]
    if (
        not _begins_a_phrase(tokens, len(tokens) - 3)
        or bool(left.article) != bool(right.article)
        or right.key > left.key
    ):
        return tokens
    return [*tokens[:-3], right, join, left]


def _begins_a_phrase(tokens: list[Token], place: int) -> bool:
    if tokens[place].key in CLOSED or tokens[place + 2].key in CLOSED:
        return False
    if not _IN_ORDER.isdisjoint([token.key for token in tokens]):
        return False
    before = tokens[place - 1].key if place else ""
    if before == "between":
        return any(token.key == "difference" for token in tokens)
    return tokens[place].article != "" or before in PREPOSITIONS
