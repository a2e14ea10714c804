"""Characters: one form for those that look and mean the same.

Decides what happens to a text before words are looked for. Rules:
- compatibility forms are folded (NFKC): full width, ligatures, composed accents
- typographic quotes, apostrophes and dashes become those of ASCII
- a raised, lowered or circled number or a fraction never joins the digits beside it: 10² is not 102, and 1½ is not 11/2
- nothing is dropped here, and a text that is far too long to be a question is left as it is
"""

import re
import unicodedata
from typing import Final

_ASCII_MARKS: Final = str.maketrans(
    dict.fromkeys("‘’ʼ‛′", "'") | dict.fromkeys("“”„‟«»″", '"') | dict.fromkeys("‐‑‒–—―−", "-")
)
_LONGEST_FOLDED: Final = 10_000
"""Characters; NFKC sorts runs of combining marks in quadratic time, and no text of this length is ever compared."""

_QUOTED: Final = re.compile(r"\"([^\"]{1,200})\"|(?<!\w)'([^']{1,80})'(?!\w)")


def plain(text: str) -> str:
    """The text in one form of each character."""
    if text.isascii() or len(text) > _LONGEST_FOLDED:
        return text
    return unicodedata.normalize("NFKC", "".join(map(_apart, text.translate(_ASCII_MARKS))))


def quotations(text: str) -> tuple[str, ...]:
    """What stands between quotes in a plain text, sorted; white space is one space there."""
    if '"' not in text and "'" not in text:
        return ()
    return tuple(sorted(" ".join((double or single).split()) for double, single in _QUOTED.findall(text)))


def _apart(character: str) -> str:
    if unicodedata.category(character) != "No":
        return character
    return f" _{character} " if unicodedata.decomposition(character).startswith("<sub>") else f" ^{character} "
