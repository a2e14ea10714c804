"""The small words of English that other files need to tell apart. What is on no list here is content.

AUXILIARIES     the first one of a question says its kind and its tense or modality, and is not content
ARTICLES        are no content before a noun
SILENT          adverbs that ask nothing of their own
PRONOUNS        forms of one person
NEGATIONS       told apart only so that a refusal can say so
"""

from typing import Final, NamedTuple

from gateway.semantic.patterns import word_set


class Auxiliary(NamedTuple):
    """What an auxiliary says: its kind (`be`, `do`, `have` or `modal`), and the mode it adds, if any."""

    kind: str
    mode: str


AUXILIARIES: Final = {
    "is": Auxiliary("be", ""),
    "are": Auxiliary("be", ""),
    "am": Auxiliary("be", ""),
    "was": Auxiliary("be", "past"),
    "were": Auxiliary("be", "past"),
    "do": Auxiliary("do", ""),
    "does": Auxiliary("do", ""),
    "did": Auxiliary("do", "past"),
    "has": Auxiliary("have", ""),
    "have": Auxiliary("have", ""),
    "had": Auxiliary("have", "past"),
    "will": Auxiliary("modal", "will"),
    "shall": Auxiliary("modal", "shall"),
    "would": Auxiliary("modal", "would"),
    "should": Auxiliary("modal", "should"),
    "can": Auxiliary("modal", "can"),
    "could": Auxiliary("modal", "could"),
    "may": Auxiliary("modal", "may"),
    "might": Auxiliary("modal", "might"),
    "must": Auxiliary("modal", "must"),
}

ARTICLES: Final = frozenset({"the", "a", "an"})

SILENT: Final = frozenset({"currently"})

PRONOUNS: Final = {"me": "i", "us": "we", "him": "he", "them": "they"}

NEGATIONS: Final = frozenset({"not", "no", "never", "none", "neither", "nor", "without", "nobody", "nothing", "unless"})

PREPOSITIONS: Final = word_set(
    "of in on at for about into during via as per to from by with without before after until till since than off"
    " against over under above below between through across behind near within upon onto toward towards among along"
)

POSSESSIVE: Final = "'s"
"""What is parted from a noun; a word of its own from then on."""

MENTIONS: Final = word_set(
    "say spell spelled pronounce pronounced translate word words phrase letters syllables rhyme rhymes plural tense"
    " synonym synonyms antonym antonyms etymology comparative superlative verb noun adjective adverb sentence"
)
"""Words of a question about words, in which an article, a sound or a spelling may be what is asked about."""

QUESTION_WORDS: Final = word_set("what which who whom whose where when why how")

CLOSED: Final = (
    PREPOSITIONS
    | QUESTION_WORDS
    | ARTICLES
    | NEGATIONS
    | AUXILIARIES.keys()
    | frozenset(PRONOUNS)
    | word_set(
        "i my we our you your he his she her they their it its and or but if that this these those all so be been"
    )
)
"""Words that name nothing: an article before one of them is no article, and a capital on one of them is no name."""


def is_noun(word: str) -> bool:
    """Whether a word may name something: content that is no sign; "" is none."""
    return word[:1].isalnum() and word not in CLOSED
