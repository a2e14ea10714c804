"""Which texts are never looked up and never stored, whatever the request around them allows.

Decides from the text of the last user message alone; what else the request holds is judged elsewhere. A text is left
out if its answer hangs on what is not in it (the talk before, the day, the person who asks), or if it is not a short
question in English. Rules:
- length first: nothing longer is ever looked at
- what is mine is personal if in doubt; the warranty of a maker that is named and known is one text for all
- the lists are open: a text that they do not catch is compared, and then compared in full
"""

import re
import unicodedata
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from gateway.semantic.frames import Frame, framed
from gateway.semantic.grammar import AUXILIARIES, CLOSED
from gateway.semantic.manners import Asked
from gateway.semantic.patterns import Phrases, word_set
from gateway.semantic.pauses import without_pauses
from gateway.semantic.question import Question, read_words
from gateway.semantic.text import in_words

LONGEST_CHARACTERS: Final = 400
"""About 40 words of 9 letters: looked at before anything else is done with a text."""

MOST_WORDS: Final = 40
"""Twice the longest question of the measured sets; a longer one carries more conditions than two people share."""


class Ineligible(StrEnum):
    """Why a text is neither looked up nor stored."""

    TOO_LONG = "too_long"
    EMPTY = "empty"
    LAYOUT = "layout"
    CODE = "code"
    LINK = "link"
    NOT_ENGLISH = "not_english"
    DEIXIS = "deixis"
    TIME_BOUND = "time_bound"
    PERSONAL = "personal"
    TOO_LITTLE = "too_little"


def refusal(text: str) -> Ineligible | None:
    """Why this text is left out; None if it may be looked up and stored."""
    return _form_refusal(text) or _words_refusal(in_words(text).asked)


def read_eligible(text: str) -> Question | Ineligible:
    """The text, read; or why it is left out. Its words are looked for once."""
    if form := _form_refusal(text):
        return form
    found = in_words(text)
    return _words_refusal(found.asked) or read_words(found)


def _words_refusal(asked: Asked) -> Ineligible | None:
    """What its words tell."""
    words = without_pauses(asked.words)
    if not words:
        return Ineligible.TOO_LITTLE
    if len(words) > MOST_WORDS:
        return Ineligible.TOO_LONG
    return _meaning_refusal(words, embedded=asked.embedded) if _is_english(words) else Ineligible.NOT_ENGLISH


def _form_refusal(text: str) -> Ineligible | None:
    """What the characters alone tell."""
    if len(text) > LONGEST_CHARACTERS:
        return Ineligible.TOO_LONG
    text = text.strip()
    if not text:
        return Ineligible.EMPTY
    if not (text.isascii() and text.isprintable()):
        if len(text.splitlines()) > 1 or "\t" in text:
            return Ineligible.LAYOUT
        if any(map(_is_foreign, text)):
            return Ineligible.NOT_ENGLISH
    if (":" in text or "." in text) and _LINK.search(text):
        return Ineligible.LINK
    return Ineligible.CODE if any(map(text.__contains__, _CODE_SIGNS)) else None


def _is_foreign(character: str) -> bool:
    """A letter that English has not got, or a sign that shows nothing."""
    if character.isascii():
        return not character.isprintable()
    if character.isalpha():
        return not unicodedata.name(character, "").startswith(("LATIN", "FULLWIDTH LATIN"))
    return unicodedata.category(character)[0] in "CM"


def _is_english(words: Sequence[str]) -> bool:
    """More small words of English than of its neighbours; two that they share will do where none is theirs."""
    if _FOREIGN.isdisjoint(words) and not _ENGLISH.isdisjoint(words):
        return True
    foreign = sum(map(_FOREIGN.__contains__, words))
    return sum(map(_ENGLISH.__contains__, words)) > foreign or (
        not foreign and sum(map(_SHARED.__contains__, words)) > 1
    )


def _meaning_refusal(words: Sequence[str], *, embedded: bool) -> Ineligible | None:
    said = {found.value for _, found in _phrases.within(words)}
    if Ineligible.TIME_BOUND in said:
        return Ineligible.TIME_BOUND
    if Ineligible.DEIXIS in said or _points_outside(words):
        return Ineligible.DEIXIS
    if Ineligible.PERSONAL in said or (_personal_openings.at(words, 0) is not None and not _is_of_a_kind(words)):
        return Ineligible.PERSONAL
    return None if _says_enough(words, embedded=embedded) else Ineligible.TOO_LITTLE


def _says_enough(words: Sequence[str], *, embedded: bool) -> bool:
    """A word of content in a question, two where nothing shows that it is one."""
    content = len(words) - sum(map(CLOSED.__contains__, words))
    return content > 1 or (content == 1 and framed(words, embedded=embedded).opening.frame is not Frame.STATEMENT)


def _is_of_a_kind(words: Sequence[str]) -> bool:
    """`does my Samsung warranty cover`: terms that a known maker has written once for all."""
    return words[0] in _ASKS_TERMS and not _MAKERS.isdisjoint(words[2:3]) and _terms.at(words, 3) is not None


def _points_outside(words: Sequence[str]) -> bool:
    """Whether a word stands for something that was said or shown before."""
    if words[-1] == "above" or _continues.at(words, 0) is not None:
        return True
    return not _POINTING.isdisjoint(words) and any(
        (word in _PRONOUNS and not _has_antecedent(words, place))
        or (word == "it" and not (_has_antecedent(words, place) or _is_dummy(words, place)))
        or (word == "that" and not _is_joining(words, place))
        for place, word in enumerate(words)
    )


def _has_antecedent(words: Sequence[str], place: int) -> bool:
    """Whether a noun stands before it that is no part of the opening."""
    return any(word not in CLOSED and word not in _NO_ANTECEDENTS for word in words[:place])


def _is_dummy(words: Sequence[str], place: int) -> bool:
    """`is it safe to`, `does it take`, `will it rain`: an `it` that stands for nothing."""
    before, after = words[place - 1] if place else "", words[place + 1 :]
    return before in AUXILIARIES and ("to" in after[1:] or "for" in after[1:] or after[:1] in (["rain"], ["snow"]))


def _is_joining(words: Sequence[str], place: int) -> bool:
    """`the dog that is mine`: behind a noun, before a small word; behind `what is the river` before any."""
    if not 0 < place < len(words) - 1 or words[place - 1] in CLOSED:
        return False
    return words[place + 1] in CLOSED or _is_what_is_asked_for(words[:place])


def _is_what_is_asked_for(words: Sequence[str]) -> bool:
    """`what is the river`, `what is the name of the river`."""
    if words[0] != "what" or words[1] not in ("is", "are") or words[2:3] != ["the"]:
        return False
    return CLOSED.isdisjoint(words[6 if words[3:6] == ["name", "of", "the"] else 3 :])


_CODE_SIGNS: Final = ("`", "{", "}", "</", "/>", "=>", "->", "==", "!=", "&&", "||", "::", ");", "\\")
_LINK: Final = re.compile(r"https?:|www\.", re.IGNORECASE)

_SHARED: Final = word_set("a an as at die in me on so")
"""Small words of English that its neighbours have too."""

_ENGLISH: Final = (
    CLOSED
    | word_set("list name show cancel only much many write explain describe translate convert calculate summarize make")
) - _SHARED

_FOREIGN: Final = word_set(
    # German, French, Spanish, Italian, Portuguese, Dutch, Polish
    "der das und ist nicht wie für mit auf ich ein eine kann wo wann warum wer welche"
    " le les des est une pour dans quel quelle comment où je mon avec sur qui que quoi pourquoi"
    " una para por como cómo qué cuál dónde con del está es quién"
    " il lo gli che di dove quando perché sono della cosa chi"
    " os uma não qual onde quem"
    " het een van voor hoe wat waar niet met"
    " jak gdzie co czy"
)

_continues: Final = Phrases(
    [
        ("and|but|or|also|then|continue|again|more|another|yes|no", None),
        ("what|how about", None),
        ("why not", None),
        ("go on", None),
        ("tell me more", None),
    ]
)
_PRONOUNS: Final = word_set("he she they his her him them their its")
_POINTING: Final = _PRONOUNS | {"it", "that"}
_NO_ANTECEDENTS: Final = word_set(
    "much many long often far old big tall deep time year kind type sort way tell know explain mean happens"
)
"""Words that a pronoun behind them does not stand for."""

_personal_openings: Final = Phrases([("is|are|was|were|has|have|did|will|does|do my|our", None)])
_ASKS_TERMS: Final = word_set("does will")
_MAKERS: Final = word_set(
    "acer aeg airpods apple asus audi beko blackberry bmw bosch bose braun breville canon casio daikin dell"
    " delonghi dewalt dyson electrolux epson fairphone fitbit ford fujifilm garmin google gopro haier hisense"
    " hitachi honda hp htc huawei hyundai ikea ipad iphone irobot jbl kenwood kia kindle kitchenaid lenovo lexus"
    " lg logitech macbook makita mazda mercedes microsoft miele motorola msi nespresso nikon nintendo nissan nokia"
    " oneplus oppo panasonic peloton peugeot philips playstation porsche razer renault roku rolex roomba samsung"
    " sennheiser siemens skoda smeg sonos sony subaru tcl tefal tesla thinkpad tissot toshiba toyota vizio"
    " volkswagen volvo whirlpool xbox xiaomi yamaha zanussi"
)
"""And names of what they make; none is a word that says whose a thing is, as my brother would."""

_terms: Final = Phrases(
    [("[camera|car|fridge|laptop|oven|phone|printer|tablet|tv|watch] warranty|guarantee cover|include|exclude", None)]
)
"""What a maker promises of a thing of a kind. Orders, accounts, plans, policies and all else are one person's."""

_phrases: Final[Phrases[Ineligible | None]] = Phrases(
    [
        ("today|tonight|tomorrow|yesterday|now|nowadays", Ineligible.TIME_BOUND),
        ("currently|presently|lately|soon|ago|anymore", Ineligible.TIME_BOUND),
        ("current|latest|newest|recent|recently|upcoming", Ineligible.TIME_BOUND),
        ("current account|accounts", None),
        ("weather|forecast|news|trending", Ineligible.TIME_BOUND),
        (
            "last|next|past|coming day|week|weekend|month|year|quarter|season|night|summer|winter|spring|autumn",
            Ineligible.TIME_BOUND,
        ),
        ("last|next monday|tuesday|wednesday|thursday|friday|saturday|sunday", Ineligible.TIME_BOUND),
        ("next game|match|election|train|bus|flight|episode", Ineligible.TIME_BOUND),
        ("so far", Ineligible.TIME_BOUND),
        ("as of", Ineligible.TIME_BOUND),
        ("at the moment", Ineligible.TIME_BOUND),
        ("to date", Ineligible.TIME_BOUND),
        ("what time is it", Ineligible.TIME_BOUND),
        ("what|which day|date is it", Ineligible.TIME_BOUND),
        ("stock|share price", Ineligible.TIME_BOUND),
        ("exchange rate", Ineligible.TIME_BOUND),
        ("price of gold|silver|oil|bitcoin|gas", Ineligible.TIME_BOUND),
        ("this|these|those|here|aforementioned|yours|mine|ours", Ineligible.DEIXIS),
        ("the above|following|former|latter|attached|same", Ineligible.DEIXIS),
        ("which|what one|ones", Ineligible.DEIXIS),
        ("as|see above", Ineligible.DEIXIS),
        ("where is|are the nearest|closest", Ineligible.DEIXIS),
        ("where|what|when|who|how is|are|was|were my|our", Ineligible.PERSONAL),
        ("how much|many is|are|was|were my|our", Ineligible.PERSONAL),
        ("my|our order|orders|parcel|package|refund|booking|reservation|balance", Ineligible.PERSONAL),
        ("my name is", Ineligible.PERSONAL),
        ("do you remember|know me|my", Ineligible.PERSONAL),
        ("did|was|were|have|has i|we", Ineligible.PERSONAL),
        ("am i", Ineligible.PERSONAL),
        ("am i allowed|permitted|able|required|obliged|entitled|eligible", None),
    ]
)
"""What each says of a text, wherever it stands; None takes back what a shorter phrase at its place says."""
