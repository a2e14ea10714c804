"""The three verifiers that are compared: none, equal numbers and capitals, and the gateway's own.

What is measured of the last is what the cache would do: a text that it would neither store nor look up is refused, and
then nothing that it says is compared.
"""

import re
from functools import cache
from typing import Protocol

from gateway.semantic import verifier
from gateway.semantic.eligible import refusal

_NUMBER = re.compile(r"\d+(?:[.,:/]\d+)*")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


class Judge(Protocol):
    """Says why an answer to one question is not given to another."""

    @property
    def name(self) -> str:
        """As the command line calls it."""

    @property
    def version(self) -> int:
        """Changes with what it says."""

    @property
    def has_key(self) -> bool:
        """Whether it can say where a text is found."""

    def refusal(self, text: str) -> str | None:
        """Why this text is neither looked up nor stored; None if it is."""

    def key(self, text: str) -> bytes | None:
        """Equal for any two texts of which one may answer the other; None where there is none."""

    def difference(self, asked: str, stored: str) -> str | None:
        """Why the answer to `stored` is not given to `asked`; None if it is."""


class NoVerifier:
    """Nearness is all that counts."""

    name = "none"
    version = 1
    has_key = False

    def refusal(self, text: str) -> str | None:
        """No text is."""

    def key(self, text: str) -> bytes | None:
        """There is none."""

    def difference(self, asked: str, stored: str) -> str | None:
        """There is none."""


class NumbersAndCapitals:
    """What many put behind a threshold: the same numbers, and the same capitalised words but for the first."""

    name = "numbers-and-capitals"
    version = 1
    has_key = False

    def refusal(self, text: str) -> str | None:
        """No text is."""

    def key(self, text: str) -> bytes | None:
        """There is none."""

    def difference(self, asked: str, stored: str) -> str | None:
        """Numbers as they are written, capitals as words; how often each comes counts, their order does not."""
        if _numbers(asked) != _numbers(stored):
            return "numbers"
        return None if _capitals(asked) == _capitals(stored) else "capitals"


class ClosedWorld:
    """The gateway's: what is on no list counts as a difference. Each text is read once."""

    name = "closed-world"
    version = verifier.VERSION
    has_key = True

    def __init__(self, *, every_text: bool = False) -> None:
        """every_text: look up what the cache would not, to see what the verifier alone lets through."""
        self._read = cache(verifier.read)
        self._refusal = cache(_looked_up if every_text else refusal)

    def refusal(self, text: str) -> str | None:
        """As the cache refuses it."""
        why = self._refusal(text)
        return None if why is None else f"ineligible: {why}"

    def key(self, text: str) -> bytes | None:
        """The verifier's canonical key; None of a text that is refused."""
        return None if self.refusal(text) else self._read(text).key

    def difference(self, asked: str, stored: str) -> str | None:
        """The first that the verifier sees."""
        refutation = verifier.verify(self._read(asked), self._read(stored))
        return None if refutation is None else str(refutation.veto)


def _looked_up(_: str) -> None:
    """No text is refused."""


def judges() -> dict[str, Judge]:
    """All of them by name, with nothing read yet."""
    every: tuple[Judge, ...] = (NoVerifier(), NumbersAndCapitals(), ClosedWorld())
    return {judge.name: judge for judge in every}


def _numbers(text: str) -> list[str]:
    return sorted(_NUMBER.findall(text))


def _capitals(text: str) -> list[str]:
    words = _WORD.findall(text)
    return sorted(word for word in words[1:] if word[0].isupper())
