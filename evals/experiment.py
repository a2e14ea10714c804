"""What every eval is: a module that runs, says what the gates look at, and shows itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from evals.gates import Gate

Artifact = Mapping[str, Any]
"""What one run of an eval left: JSON, with `n`, and `seed` where there is one."""


@dataclass(frozen=True, slots=True)
class Options:
    """How an eval is run.

    quick    smaller, for a look or for CI; the same code, but no result that is kept
    seconds  how long the loop of `runaway` runs; None for as long as it is meant to
    """

    quick: bool = False
    seconds: float | None = None


class Experiment(Protocol):
    """A module of this package."""

    NAME: str

    def run(self, options: Options) -> Artifact:
        """Measure. Raises whatever is no result."""
        ...

    def measured(self, artifact: Artifact) -> dict[str, float | None]:
        """What the gates look at, by name of the check. Pure."""
        ...

    def lines(self, artifact: Artifact) -> list[str]:
        """The result for people, as lines of Markdown. Pure."""
        ...


class LongRun(Protocol):
    """The part of a run by itself that judges and shows what it left."""

    TITLE: str
    COMMAND: str
    PICTURES: Mapping[str, str]
    """Where the README finds its pictures, and what each shows."""

    def gates(self, figures: Artifact) -> list[Gate]:
        """Its bounds, as PREREGISTRATION.md has them now, with what was measured."""
        ...

    def summary(self, figures: Artifact) -> Iterator[str]:
        """The result in brief, as lines of Markdown."""
        ...

    def lines(self, figures: Artifact) -> Iterator[str]:
        """The result for people, as lines of Markdown."""
        ...
