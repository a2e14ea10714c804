"""Inflection: the base of a word, and the ending that was taken off.

Plural and third person fold into the base, since a question about one is answered by the answer about many. The past
and -ing keep a mark: a process is not processing. Rules:
- two different words of one mark never get one base: hoping is hope, hopping is hop; scared is scare, scarred is scar
- a plural that is another thing than many of the singular is left alone (KEPT), and so is the third person of a verb
  whose past is its base: who cuts the rope is not who cut it
- -our, -ise and a doubled l behind e are American: no two words are told apart by them alone, if they are long enough
- a wrong base costs a missed hit, never a wrong one
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from gateway.semantic.patterns import REMEMBERED, word_set

PAST: Final = "~ed"
PROGRESSIVE: Final = "~ing"

KEPT: Final = (
    # another meaning than the singular
    word_set(
        "arms arts ashes brains colors compasses contents customs damages drugs dues forces glasses goods grounds"
        " hives honors jeans looks manners means mechanics minutes news notes numbers odds pages pains papers"
        " photos pictures premises quarters remains savings scales securities shingles shorts spectacles spirits"
        " stairs statistics stocks teams terms thanks times troops weeds windows"
    )
    # not the past: the base may be
    | word_set(
        "beats bets bids broadcasts bursts casts cuts fits forecasts hits hurts knits lets puts quits reads resets rids"
        " sets sheds shuts slits spits splits spreads thrusts upsets weds wets"
    )
    # no plural at all
    | word_set(
        "always besides does has his its less lens perhaps rails series sometimes species texas this towards unless yes"
    )
    # names: Adams is not Adam
    | word_set(
        "adams andrews brooks daniels edwards james jones matthews michaels peters philips phillips richards roberts"
        " simmons stevens williams"
    )
)

_IRREGULAR_PLURALS: Final = {
    "axes": "axe",
    "aches": "ache",
    "buses": "bus",
    "children": "child",
    "cookies": "cookie",
    "feet": "foot",
    "geese": "goose",
    "heroes": "hero",
    "lies": "lie",
    "men": "man",
    "mice": "mouse",
    "movies": "movie",
    "people": "person",
    "pies": "pie",
    "potatoes": "potato",
    "quizzes": "quiz",
    "teeth": "tooth",
    "ties": "tie",
    "tomatoes": "tomato",
    "women": "woman",
}

_IRREGULAR_PASTS: Final = {
    "ate": "eat",
    "beaten": "beat",
    "began": "begin",
    "begun": "begin",
    "bitten": "bite",
    "bought": "buy",
    "broke": "break",
    "broken": "break",
    "brought": "bring",
    "built": "build",
    "came": "come",
    "caught": "catch",
    "completed": "complete",
    "created": "create",
    "deleted": "delete",
    "chose": "choose",
    "chosen": "choose",
    "drank": "drink",
    "drawn": "draw",
    "drew": "draw",
    "driven": "drive",
    "drove": "drive",
    "eaten": "eat",
    "fallen": "fall",
    "flew": "fly",
    "flown": "fly",
    "forgot": "forget",
    "forgotten": "forget",
    "fought": "fight",
    "gave": "give",
    "given": "give",
    "gone": "go",
    "grew": "grow",
    "grown": "grow",
    "heard": "hear",
    "held": "hold",
    "hidden": "hide",
    "kept": "keep",
    "knew": "know",
    "known": "know",
    "lost": "lose",
    "made": "make",
    "met": "meet",
    "paid": "pay",
    "ran": "run",
    "said": "say",
    "sang": "sing",
    "sent": "send",
    "shown": "show",
    "slept": "sleep",
    "sold": "sell",
    "spent": "spend",
    "spoke": "speak",
    "spoken": "speak",
    "stole": "steal",
    "stolen": "steal",
    "sung": "sing",
    "taken": "take",
    "taught": "teach",
    "thought": "think",
    "threw": "throw",
    "thrown": "throw",
    "told": "tell",
    "took": "take",
    "understood": "understand",
    "went": "go",
    "won": "win",
    "written": "write",
    "wrote": "write",
}

_BRITISH: Final = (
    (
        re.compile(
            "(?<=[a-z]{3})(?<!^lab)(?<!^endeav)our(?=(?:s|ed|ing|er|ers|ful|less|able|al|ite|ites|hood|hoods)?$)"
        ),
        "or",
    ),
    (re.compile("(?<=[a-z]{4})is(?=(?:e|es|ed|er|ers|ing|ation|ations)$)"), "iz"),
    (re.compile("(?<=[a-z]{2}ly)s(?=(?:e|ed|er|ers|ing)$)"), "z"),
)
"""What an ending has, behind as many letters as part `colour` from `hour` and `organise` from `raise`, and what stands
for it. Analyses are of an analysis too; Labour and Labor, Endeavour and Endeavor are two names."""
_VOWEL: Final = re.compile("[aeiouy]")
_ONE_SHORT_SYLLABLE: Final = re.compile("[^aeiouy]*[aeiouy][^aeiouywx]")
_LOST_E: Final = re.compile("(?:[cvuz]|[aeirdn]g|[btdgpk]l|[rnaiou]s|ib|[^eo]a[tdr]|[^ao]i[rdn]|[^ao]u[rd])$")
"""Ends that English verbs have only before an e, or nearly so: forc(e), lov(e), chang(e), purchas(e), includ(e)."""
_LONGEST_IN_ELL: Final = 5
"""Of verbs such as dwell and smell; in longer ones the l is doubled before an ending, or is not: travelled."""
_DOUBLE_AT_END: Final = frozenset("lsz")


class Form(NamedTuple):
    """A base, and the mark of the ending: PAST, PROGRESSIVE or nothing."""

    base: str
    mark: str


@lru_cache(REMEMBERED)
def american(word: str) -> str:
    """A word in American spelling; of those that are no variants of each other none becomes another word."""
    if word in KEPT:
        return word
    for ending, written in _BRITISH:
        word = ending.sub(written, word)
    return word


@lru_cache(REMEMBERED)
def form_of(word: str) -> Form:
    """The form of a lower-case word, or of a phrase that was given its mark when it was put together."""
    if word in KEPT or (len(word) < 4 and word not in _IRREGULARS):
        return Form(word, "")
    if irregular := _IRREGULARS.get(word):
        return irregular
    if not word.isalpha():
        base, sign, ending = word.partition("~")
        return Form(base, sign + ending)
    return _with_ending(word, "ing", PROGRESSIVE) or _with_ending(word, "ed", PAST) or Form(_singular(word), "")


_IRREGULARS: Final = {word: Form(base, "") for word, base in _IRREGULAR_PLURALS.items()} | {
    word: Form(base, PAST) for word, base in _IRREGULAR_PASTS.items()
}


def _singular(word: str) -> str:
    if not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1]


def _with_ending(word: str, ending: str, mark: str) -> Form | None:
    rest = word.removesuffix(ending)
    least = 2 if ending == "ed" else 3
    if rest == word or len(rest) < least or rest.endswith("e") or not _VOWEL.search(rest):
        return None
    return Form(_restored(rest, ending), mark)


def _restored(rest: str, ending: str) -> str:
    """What a word was before an ending: the doubled letter once, the lost e again, y for i."""
    if ending == "ed" and rest.endswith("i"):
        return rest + "e" if len(rest) == 2 else rest[:-1] + "y"
    if rest.endswith("ell") and len(rest) > _LONGEST_IN_ELL:
        return rest[:-1]
    if rest[-1] == rest[-2]:
        return rest if rest[-1] in _DOUBLE_AT_END else rest[:-1]
    if _LOST_E.search(rest) or _ONE_SHORT_SYLLABLE.fullmatch(rest):
        return rest + "e"
    return rest
