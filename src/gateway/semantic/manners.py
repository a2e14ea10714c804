"""Manners: greetings, thanks, and `can you tell me`, around a question. They ask nothing, so they are taken off.

Rules:
- a greeting goes only before a pause, a word that begins a question, or the end: `Hello Kitty` stays
- thanks go only from the end and behind a pause: `who wrote Cheers` stays; please needs no pause, but is kept where it
  is what is asked about: `how do I say please`; in a question about words nothing goes from the end
- `is it true that` goes before a sentence, which is asked about then
- `can you tell me` goes only before a question: `can you tell me a story` stays
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from gateway.semantic.grammar import ARTICLES, AUXILIARIES, MENTIONS, PREPOSITIONS, QUESTION_WORDS
from gateway.semantic.patterns import Phrases
from gateway.semantic.pauses import PAUSES

OPENERS: Final = (
    "hi|hello|hey|hiya|yo [there|all|everyone|team|guys]",
    "good morning|afternoon|evening",
    "dear team|all|support",
    "ok|okay|so|um|uh|erm|er|hmm|btw",
    "morning|evening|afternoon|help|urgent|well|right|listen ,|.|!|:",
    "[yes] please|pls|kindly",
    "thanks|sorry",
    "thank you",
    "excuse me",
    "sorry to bother you [,] [but]",
    "[a] quick question",
    "just wondering|curious",
    "by the way",
    "good day",
    "q :",
    "-|*",
    "[i] hope you are [doing] well|fine ,|.|!",
    "can|could you help [me] ?|,|.",
    "[i] need help ,|.|!|:",
    "greetings",
    "[just] [a|one] question ,|.|!|:",
    "i|we have a|one [quick|simple] question",
    "out of curiosity",
)

CLOSERS: Final = (
    "please|pls|thanks|thx|cheers|kindly|asap",
    "thank you",
    "many thanks",
    "thanks so much",
    "thank you so|very much",
    "thanks [a] lot",
    "thanks in advance",
    "do you know",
    "any idea",
    "if possible",
    "thanks for your|the|any help",
    "please help|advise",
    "[best|kind] regards",
    "best wishes",
    "any help is|would [be] appreciated",
)

ASKING: Final = (
    "can|could|would|will you|someone|anyone [please|kindly] tell|inform|advise me|us",
    "can|could|would|will you|someone|anyone [please|kindly] explain|say|list [to] [me|us]",
    "can|could|would|will you|someone|anyone [please|kindly] let me|us know",
    "[please] tell|show me|us",
    "[please] let me|us know",
    "can|could|would|will you|someone|anyone [please|kindly] show|teach me|us",
    "can|could you|someone|anyone [please|kindly] help me|us understand",
    "would you mind telling|explaining [to] [me|us]",
    "would you be able to tell|explain [to] [me|us]",
    "[please] teach me|us",
    "[please] guide me|us on|through",
    "[please] walk me|us through",
    "[please] explain|list|describe [to] [me|us]",
    "[please] help me|us understand",
    "[please] advise|clarify [me|us]",
    "do you know",
    "do you happen to know",
    "does anyone|anybody|someone know",
    "i|we want|need|wanted|wish to know|understand|ask",
    "i|we want|need|wanted|wish to find out",
    "i|we would like to know|understand|ask",
    "i|we am|are|was|were [just] wondering|curious",
    "i|we would love to know|understand",
    "i|we am|are trying to find out",
    "i|we am|are trying to understand",
    "i|we am|are trying to figure out",
    "i|we do not know|understand",
    "i|we am|are not sure",
    "what i|we want|need to know is",
    "what i|we would like to know is",
    "my question is",
    "is there anyone|anybody|someone who knows",
    "i wonder",
    "any idea",
    "may|can|could i [please] ask|know",
    "do you have [any|an] idea",
)

CLAIMS: Final = ("is it true|correct [that]",)
"""Before a sentence they ask whether it is so; without a sentence they are kept."""

FILLERS: Final = frozenset({"um", "uh", "erm", "hmm"})
"""Sounds; they go wherever they stand, unless a question is about words."""
_ABOUT_WORDS: Final = MENTIONS | {"mean", "meaning", "definition"}

_DIRECT_STARTS: Final = QUESTION_WORDS | AUXILIARIES.keys()
_EMBEDDED_STARTS: Final = QUESTION_WORDS | {"if", "whether"}
_PLEASE: Final = frozenset({"please", "pls"})
_HOLDS_THANKS: Final = ARTICLES | PREPOSITIONS | MENTIONS | {"and", "or", "write"}
"""Words after which thanks are what is asked about."""

_NO_CLAIM: Final = PREPOSITIONS | QUESTION_WORDS | AUXILIARIES.keys() | PAUSES | {"or", "and", "if", "not"}
_claiming: Final = Phrases((pattern, None) for pattern in CLAIMS)
_opening: Final = Phrases((pattern, None) for pattern in OPENERS)
_closing: Final = Phrases((" ".join(reversed(pattern.split())), None) for pattern in CLOSERS)
_asking: Final = Phrases((pattern, None) for pattern in ASKING)
_PREFACES: Final = _opening.starts | _asking.starts | _claiming.starts


class Asked(Struct, frozen=True):
    """A question without manners; `embedded` if it stood behind `tell me` and the like."""

    words: Sequence[str]
    embedded: bool


def bare(words: Sequence[str]) -> Asked:
    """What is asked, without what is said around it. Each word is looked at a bounded number of times."""
    if not FILLERS.isdisjoint(words) and _ABOUT_WORDS.isdisjoint(words):
        words = [word for word in words if word not in FILLERS]
    if MENTIONS.isdisjoint(words):
        words = words[: _end(words)]
    start, embedded = 0, False
    while (place := _skip_pauses(words, start)) < len(words) and words[place] in _PREFACES:
        if found := _asking.at(words, place):
            after = _skip_pauses(words, place + found.length)
            if after < len(words) and words[after] in _EMBEDDED_STARTS:
                start, embedded = after, True
                continue
        if (found := _opening.at(words, place)) and _may_follow_a_greeting(words, place + found.length):
            start = place + found.length
            continue
        if (found := _claiming.at(words, place)) and _may_be_claimed(words, place + found.length):
            return Asked(["if", *words[place + found.length :]], True)
        break
    return Asked(words[place:], embedded)


def _may_follow_a_greeting(words: Sequence[str], place: int) -> bool:
    if place == len(words) or words[place] in PAUSES or words[place] in _DIRECT_STARTS:
        return True
    return _opening.at(words, place) is not None or _asking.at(words, place) is not None


def _may_be_claimed(words: Sequence[str], place: int) -> bool:
    """Whether a clause may begin there: `is it true or false` is none."""
    return place < len(words) and words[place] not in _NO_CLAIM


def _skip_pauses(words: Sequence[str], place: int) -> int:
    while place < len(words) and words[place] in PAUSES:
        place += 1
    return place


def _end(words: Sequence[str]) -> int:
    """Where the thanks at the end begin."""
    backwards = words[::-1]
    place = _skip_pauses(backwards, 0)
    while found := _closing.at(backwards, place):
        after = place + found.length
        if after >= len(backwards) or backwards[after] in _HOLDS_THANKS:
            break
        if backwards[after] not in PAUSES and backwards[place] not in _PLEASE:
            break
        place = _skip_pauses(backwards, after)
    return len(words) - place
