"""Constructions: two orders of the same words, or nearly the same, that ask one thing, and the one that is compared.

Decides by the small words alone which construction a question has. Does not know what fills it: a rule holds for
whatever stands in its slots, or names what may stand there. No slot holds an auxiliary, so that no rule reaches over a
second clause. Rules:
- `how does A differ from B` asks their difference, which has no direction; where a third thing may be meant, nothing
- how far A is from B is one number both ways, and is put in the order in which they were named
- what bread takes to rise, it takes for bread to rise; what lasts in a place, lasts, whatever stands before or behind
- to be reset is what somebody does who asks for the way; to be infected is not: the verbs are listed
- how often a thing should be cleaned, I should clean it; how it should be treated may be for others to do
- what people eat, drink, speak or wear is eaten, whoever they are
- to get to a place from another is to get from that to this; only where both are bare names and nothing follows
- `why is my printer not working` is why it isn't: behind a subject that has no verb in it
- what is needed for a thing, I need for it; `required to` may be said of one who acts, so it is a matter of things only
- `how many X are there in Y` says `there` of nothing; `is there` does. What is located in a place is in it; what was,
  may have been found
- `which N is the best` is the best N, for superlatives that compare and for nothing between them
- `what is the N that flows` is which N flows, and is one or many as it was
- `what effect does X have on Y` is the effect of X on Y; not so benefits or fears, which X has and gives
- `is smoking allowed` is whether it is allowed to smoke: in a place or at a time, not by or for somebody
- beside a sign, or in a question about words, nothing is put otherwise
Not here: `the card that is used` is the card used, but not where `is` or `get` stands before it.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final, NamedTuple

from gateway.semantic.grammar import ARTICLES, AUXILIARIES, CLOSED, MENTIONS, PREPOSITIONS, QUESTION_WORDS, is_noun
from gateway.semantic.inflection import PAST, PROGRESSIVE, form_of
from gateway.semantic.patterns import word_set
from gateway.semantic.pauses import PAUSES
from gateway.semantic.tokens import OF

Words = list[str]
Rule = Callable[[Words], Words]
"""The words put otherwise; themselves if the rule has nothing to say."""


class Marked(NamedTuple):
    """A rule, and words of which a question has one for which it is."""

    marks: Set[str]
    rule: Rule


SUPERLATIVES: Final = word_set(
    "best worst biggest largest smallest highest longest shortest tallest deepest oldest youngest fastest slowest"
    " cheapest closest nearest strongest"
)
HAD: Final = word_set("symptom symptoms effect effects population currency")
"""What X has is what is of X. (Not benefits, fears or photos: those of X may be whose it is, or what it gives.)"""
HAD_ON: Final = word_set("effect effects impact influence")

HANDLED: Final = word_set(
    "reset install uninstall configure activate deactivate upgrade downgrade export enable disable"
)
"""Verbs of which the one who asks for the way is who does it. (A flight is cancelled by others.)"""

GOT: Final = {"found": "find", "bought": "buy", "purchased": "buy", "downloaded": "download"}
"""Participles of what is there for everybody to get."""

EATEN: Final = {
    "speak": "spoken",
    "eat": "eaten",
    "drink": "drunk",
    "wear": "worn",
    "use": "used",
    "play": "played",
    "celebrate": "celebrated",
}
"""What people do, whoever is not named, and its participle."""

MOVING: Final = word_set("get go travel fly drive walk flight flights train trains bus buses way")
"""Behind these a start and an end have no order of their own: what is sent to a man from Rome is not sent from Rome."""

THINGS: Final = word_set("visa visas passport document documents licence license permit prescription deposit")
"""What nothing can be required of: required to is needed to."""


def constructed(words: Words) -> Words:
    """A question in the construction in which it is compared; itself if no rule knows it."""
    if len(words) < 3 or _MARKS.isdisjoint(words):
        return words
    if not (PAUSES.isdisjoint(words) and MENTIONS.isdisjoint(words)):
        return words
    for marks, rule in _RULES.get(words[0], ()):
        if not marks.isdisjoint(words):
            words = rule(words)
    return words


def is_phrase(words: Words) -> bool:
    """Whether words may be the name of something, and are no clause."""
    return bool(words) and AUXILIARIES.keys().isdisjoint(words) and QUESTION_WORDS.isdisjoint(words)


def _differing(words: Words) -> Words:
    """`how does A differ from B` and `how are A and B different` as `what is the difference between A and B`."""
    place = next((place for place, word in enumerate(words) if word in _DIFFER), 0)
    is_adjective, one, rest = words[place] == "different", words[1:place], words[place + 1 :]
    auxiliaries, auxiliary = (_BE, "") if is_adjective else (_DO, "does")
    if one and one[0] in auxiliaries:
        auxiliary, one = one[0], one[1:]
    elif one and is_adjective and one[-1] in auxiliaries:
        auxiliary, one = one[-1], one[:-1]
    if not one or not auxiliary:
        return words
    if rest in _EACH_OTHER:
        rest = []
    is_apart = rest[:1] == ["from"] or (is_adjective and rest[:1] in (["to"], ["than"]))
    if (is_apart and not rest[1:]) or (rest and not is_apart and rest[0] != "in"):
        return words
    both = [*one, "and", *rest[1:]] if is_apart else [*one, *rest]
    if both.count("and") != 1 or "or" in both or not is_phrase(both):
        return words
    be = "was" if AUXILIARIES[auxiliary].mode else "is"
    return ["what", be, "the", "difference", "between", *both]


def _taking(words: Words) -> Words:
    """`how long does X take to rise` and `how long does it take X to rise` as `how long does it take for X to rise`."""
    start = 3 if words[1:3] == ["much", "time"] else 2
    if words[1] not in ("long", "much") or "take" not in words[4:] or words[start] not in _TAKES:
        return words
    take = words.index("take")
    subject, rest = words[start + 1 : take], words[take + 1 :]
    if subject == ["it"] and rest and rest[0] not in PREPOSITIONS and "to" in rest:
        subject, rest = rest[: rest.index("to")], rest[rest.index("to") :]
    if not subject or subject[0] == "it" or rest[:1] != ["to"] or not is_phrase(subject):
        return words
    return [*words[: start + 1], "it", "take", "for", *subject, *rest]


def _weighed(words: Words) -> Words:
    """`how much does X weigh` as `how heavy is X`."""
    if words[1] != "much" or words[2] not in _DO:
        return words
    place = words.index("weigh")
    subject, rest = words[3:place], words[place + 1 :]
    if not is_phrase(subject) or (rest and rest[0] not in PREPOSITIONS):
        return words
    return ["how", "heavy", "was" if words[2] == "did" else "is", *subject, *rest]


def _lasting(words: Words) -> Words:
    """`how long does X last in Y` as `how long does X in Y last`."""
    place = next((place for place, word in enumerate(words) if word in ("last", "lasts")), 0)
    follows = words[place + 1 : place + 2]
    if words[1] != "long" or place < 3 or not follows or follows[0] not in PREPOSITIONS or follows == [OF]:
        return words
    return [*words[:place], *words[place + 1 :], words[place]]


def _reset(words: Words) -> Words:
    """`how can X be reset` as `how can I reset X`, and `can X be reset` likewise."""
    start = 1 if words[0] == "how" else 0
    if words[start] not in ("can", "could") or "by" in words:
        return words
    place = words.index("be")
    thing, rest = words[start + 1 : place], words[place + 1 :]
    verb = form_of(rest[0]).base if rest else ""
    if verb not in HANDLED or not is_phrase(thing) or not _names(thing):
        return words
    return [*words[:start], "can", "i", verb, *thing, *rest[1:]]


def _advised(words: Words) -> Words:
    """`how often should X be cleaned` as `how often should I clean X`."""
    if words[1] not in ("often", "long") or words[2] != "should" or "be" not in words or "by" in words:
        return words
    be = words.index("be")
    thing, rest = words[3:be], words[be + 1 :]
    if not rest or not is_phrase(thing) or not _names(thing):
        return words
    verb = form_of(rest[0])
    return [*words[:3], "i", verb.base, *thing, *rest[1:]] if verb.mark == PAST else words


def _got(words: Words) -> Words:
    """`where can X be found` as `where can I find X`."""
    if words[1] not in ("can", "could") or "by" in words:
        return words
    be = words.index("be")
    thing, rest = words[2:be], words[be + 1 :]
    if not rest or rest[0] not in GOT or not is_phrase(thing):
        return words
    return ["where", "can", "i", GOT[rest[0]], *thing, *rest[1:]]


def _related(words: Words) -> Words:
    """`what is the [name of the] N that flows through X` as `which N flows through X`."""
    if words[1] not in ("is", "are") or words[2] != "the":
        return words
    start = 6 if words[3:6] == ["name", OF, "the"] else 3
    that = words.index("that")
    noun, rest = words[start:that], words[that + 1 :]
    if not noun or not rest or not all(map(is_noun, [*noun, rest[0]])) or noun[-1] in ("reason", "reasons"):
        return words
    return ["which", "the", *noun, *rest]


def _eaten(words: Words) -> Words:
    """`what languages do people speak in X` as `what languages are spoken in X`."""
    place = next((place for place, word in enumerate(words) if word == "people"), 0)
    verb, rest = words[place + 1 : place + 2], words[place + 2 :]
    if place < 2 or words[place - 1] != "do" or not verb or verb[0] not in EATEN or "by" in rest:
        return words
    if rest[:1] and rest[0] not in PREPOSITIONS:
        return words
    return [*words[: place - 1], "are", EATEN[verb[0]], *rest]


def _moving(words: Words) -> Words:
    """`get to B from A` at the end as `get from A to B`."""
    to = next((place for place, word in enumerate(words) if word == "to" and words[place - 1] in MOVING), 0)
    there = words[to + 1 :]
    if not to or there.count("from") != 1:
        return words
    place = there.index("from")
    end, start = there[:place], there[place + 1 :]
    if not end or not start or not all(map(is_noun, [*end, *start])):
        return words
    return [*words[:to], "from", *start, "to", *end]


def _not_doing(words: Words) -> Words:
    """`why is my printer not working` as `why isn't my printer working`."""
    if words.count("not") != 1 or words[1] not in AUXILIARIES:
        return words
    place = words.index("not")
    subject, rest = words[2:place], words[place + 1 :]
    is_one = len(subject) == 1 and subject[0] in _SUBJECTS
    is_told = len(subject) == _DETERMINED and subject[0] in _DETERMINERS and is_noun(subject[1])
    return [*words[:2], "not", *subject, *rest] if rest and (is_one or is_told) else words


def _needed(words: Words) -> Words:
    """`what is needed for X` as `what do I need for X`, `is a visa needed to` as `do I need a visa to`."""
    place = next((place for place, word in enumerate(words) if word in ("needed", "required")), 0)
    follows = words[place + 1 : place + 2]
    if place < 2 or follows not in (["to"], ["for"]) or "by" in words:
        return words
    if words[0] in _BE:
        be, asked, thing = words[0], [], words[1:place]
        is_told = is_phrase(thing) and _names(thing)
    else:
        be, asked, thing = words[place - 1], words[: place - 1], []
        is_told = be in _BE and AUXILIARIES.keys().isdisjoint(asked) and (words[0] != "how" or words[1] in _MANY)
    needed = thing or asked
    may_act = needed != ["what"] and needed[1:2] != ["much"] and needed[-1] not in THINGS
    if not is_told or (may_act and words[place] == "required" and follows == ["to"]):
        return words
    return [*asked, "did" if AUXILIARIES[be].mode else "do", "i", "need", *thing, *words[place + 1 :]]


def _there(words: Words) -> Words:
    """`how many X are there in Y` as `how many X are in Y`."""
    if words[0] == "how" and words[1] not in _MANY:
        return words
    place = words.index("there")
    follows = words[place + 1 : place + 2]
    if words[place - 1] not in _BE or not follows or follows[0] not in ("in", "on", "at"):
        return words
    return [*words[:place], *words[place + 1 :]]


def _superlative(words: Words) -> Words:
    """`which mountain is the highest in X` as `which is the highest mountain in X`."""
    place = next((place for place, word in enumerate(words) if word in _BE), 0)
    noun, rest = words[1:place], words[place + 1 :]
    if rest[:1] == ["the"]:
        rest = rest[1:]
    end = 2 if rest[:1] in (["most"], ["least"]) and is_noun("".join(rest[1:2])) else 1
    if noun == _PERSON or not rest or not all(map(is_noun, noun)) or not (end == 2 or rest[0] in SUPERLATIVES):
        return words
    if rest[end:] and rest[end] not in PREPOSITIONS:
        return words
    return [words[0], words[place], "the", *rest[:end], *noun, *rest[end:]]


def _having(words: Words) -> Words:
    """`what effect does X have on Y` as `what is the effect of X on Y`."""
    place = next((place for place, word in enumerate(words) if word in _DO), 0)
    if place < 2 or "have" not in words[place:]:
        return words
    have = words.index("have", place)
    noun, owner, rest = words[1:place], words[place + 1 : have], words[have + 1 :]
    if noun[-1] not in (HAD_ON if rest else HAD) or (rest and rest[0] != "on") or not is_phrase(owner):
        return words
    return ["what", "was" if words[place] == "did" else "is", "the", *noun, OF, *owner, *rest]


def _located(words: Words) -> Words:
    """`which country is X located in` as `which country is X in`."""
    place = next((place for place, word in enumerate(words) if word in _LOCATED), 0)
    if words[place + 1 : place + 2] not in (["in"], ["on"], ["at"], ["near"]) or not place:
        return words
    is_there = not {"is", "are"}.isdisjoint(words[:place]) and is_noun(words[place - 1])
    return [*words[:place], *words[place + 1 :]] if is_there else words


def _made_different(words: Words) -> Words:
    """`what makes A different from B` as `how is A different from B`."""
    if words[1] != "makes":
        return words
    return _differing(["how", "is", *words[2:]])


def _caused(words: Words) -> Words:
    """`what causes X` as `what is the cause of X`."""
    if words[1] not in _CAUSES or not words[2:] or (words[2] in CLOSED and words[2] not in ARTICLES):
        return words
    return ["what", _CAUSES[words[1]], "the", "cause", OF, *words[2:]] if is_phrase(words[2:]) else words


def _allowed(words: Words) -> Words:
    """`is smoking allowed in X` as `is it allowed to smoke in X`."""
    place = next((place for place, word in enumerate(words) if word in _POSSIBLE), 0)
    follows = words[place + 1 : place + 2]
    if place < 2 or (follows and follows[0] not in _PLACES) or not is_phrase(words[1:place]):
        return words
    verb = form_of(words[1])
    if verb.mark != PROGRESSIVE:
        return words
    return ["is", "it", words[place], "to", verb.base, *words[2:place], *words[place + 1 :]]


def _far(words: Words) -> Words:
    """`what is the distance between A and B` and `how far is A from B` as `how far is it from A to B`: one number."""
    if words[:5] == ["what", "is", "the", "distance", "between"]:
        places = words[5:]
        if places.count("and") != 1 or not is_phrase(places):
            return words
        joined = places.index("and")
        return ["how", "far", "is", "it", "from", *places[:joined], "to", *places[joined + 1 :]]
    start = 4 if words[2:3] == ["away"] else 3
    if words[1] != "far" or "from" not in words[4:] or words[start - 1] != "is":
        return words
    there = words[start:]
    begin = there.index("from")
    one, other = there[begin + 1 :], there[:begin]
    if not one or not other or "it" in other or not PREPOSITIONS.isdisjoint([*one, *other]) or not is_phrase(there):
        return words
    return ["how", "far", "is", "it", "from", *other, "to", *one]


def _names(words: Words) -> bool:
    """Whether no pronoun is among words, nor anything else that is small but articles and prepositions."""
    return all(word not in CLOSED or word in ARTICLES or word in PREPOSITIONS for word in words)


_BE: Final = frozenset({"is", "are", "was", "were"})
_DO: Final = frozenset({"do", "does", "did"})
_TAKES: Final = _DO | {"will"}
_MANY: Final = frozenset({"many", "much"})
_DIFFER: Final = frozenset({"differ", "differs", "different"})
_EACH_OTHER: Final = (["from", "each", "other"], ["from", "one", "another"])
_CAUSES: Final = {"causes": "is", "caused": "was"}
_POSSIBLE: Final = frozenset({"allowed", "permitted", "possible"})
_LOCATED: Final = frozenset({"located", "situated"})
_PLACES: Final = word_set("in on at during before after near")

_PERSON: Final = ["person"]
"""The noun with which one asks who it is."""
_SUBJECTS: Final = word_set("i we you he she it they")
_DETERMINERS: Final = ARTICLES | word_set("my our your his her its their")
_DETERMINED: Final = 2
"""Words of a subject that cannot have a verb in it."""

_WHICH: Final = (
    Marked({"people"}, _eaten),
    Marked({"from"}, _moving),
    Marked({"needed", "required"}, _needed),
    Marked({"there"}, _there),
    Marked(SUPERLATIVES | {"most", "least"}, _superlative),
    Marked({"have"}, _having),
    Marked(_LOCATED, _located),
)
_RULES: Final[Mapping[str, Sequence[Marked]]] = {
    "how": (
        Marked(_DIFFER, _differing),
        Marked({"take"}, _taking),
        Marked({"weigh"}, _weighed),
        Marked({"last", "lasts"}, _lasting),
        Marked({"be"}, _reset),
        Marked({"should"}, _advised),
        Marked({"needed", "required"}, _needed),
        Marked({"there"}, _there),
        Marked({"far"}, _far),
        Marked({"from"}, _moving),
    ),
    "can": (Marked({"be"}, _reset),),
    "could": (Marked({"be"}, _reset),),
    "why": (Marked({"not"}, _not_doing),),
    "what": (
        Marked({"that"}, _related),
        *_WHICH,
        Marked(_CAUSES.keys(), _caused),
        Marked({"distance"}, _far),
        Marked({"different"}, _made_different),
    ),
    "which": _WHICH,
    "where": (Marked({"be"}, _got),),
    "is": (Marked({"needed", "required"}, _needed), Marked(_POSSIBLE, _allowed), Marked(_LOCATED, _located)),
    "are": (Marked({"needed", "required"}, _needed), Marked(_LOCATED, _located)),
}
_MARKS: Final = frozenset(mark for rules in _RULES.values() for rule in rules for mark in rule.marks)
