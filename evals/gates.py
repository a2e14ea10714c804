"""Bounds, and whether what was measured keeps them.

The bounds stand in PREREGISTRATION.md and nowhere else; here they are read from its tables. A number that is missing is
"not measured", never passed. Pure but for preregistered(), which reads that file: text and numbers in, gates out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

PREREGISTRATION = Path(__file__).resolve().parent / "PREREGISTRATION.md"

Measured = Mapping[str, float | None]
"""What was measured, by name of the check; None or no entry: not measured."""


@dataclass(frozen=True, slots=True)
class Check:
    """One bound. relation is `<=`, `>=` or `=`; `measured` is None if it was not."""

    relation: str
    bound: float
    unit: str
    measured: float | None

    @property
    def holds(self) -> bool | None:
        """Whether the bound is kept; None if nobody knows."""
        if self.measured is None:
            return None
        match self.relation:
            case "<=":
                return self.measured <= self.bound
            case ">=":
                return self.measured >= self.bound
            case "=":
                return self.measured == self.bound
            case _:
                raise ValueError(f"{self.relation!r} is no relation of a bound")

    @property
    def limit(self) -> str:
        return f"{self.relation} {self.bound:g} {self.unit}"

    @property
    def seen(self) -> str:
        return f"{_number(self.measured)} {self.unit}"


@dataclass(frozen=True, slots=True)
class Gate:
    """What is claimed, as one or more checks that must all hold, the most telling first."""

    name: str
    checks: tuple[Check, ...]

    @property
    def status(self) -> str:
        verdicts = [check.holds for check in self.checks]
        if False in verdicts:
            return "failed"
        return "not measured" if None in verdicts or not verdicts else "passed"

    @property
    def bound(self) -> str:
        return ", ".join(check.limit for check in self.checks)

    @property
    def measured(self) -> str:
        return ", ".join(check.seen for check in self.checks)

    @property
    def brief(self) -> Self:
        """The first two checks, and each later one that is not known to hold: the status stays the same."""
        return replace(self, checks=self.checks[:2] + tuple(check for check in self.checks[2:] if not check.holds))

    @property
    def failures(self) -> Self:
        """Only the checks that do not hold."""
        return replace(self, checks=tuple(check for check in self.checks if check.holds is False))

    @property
    def singly(self) -> list[Self]:
        """A gate of the same name for each check."""
        return [replace(self, checks=(check,)) for check in self.checks]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def gates(document: str, measured: Measured) -> list[Gate]:
    """Every gate of the preregistration, in its order, with what was measured."""
    return [*gates_of(document, "gate", measured), *_scenarios(document, measured)]


def gates_of(document: str, first_column: str, measured: Measured) -> list[Gate]:
    """The gates of one table of single bounds: that whose head begins with `first_column`."""
    return [
        Gate(name, (Check(relation, float(bound), unit, measured.get(name)),))
        for name, relation, bound, unit, _ in _rows(document, first_column)
    ]


def preregistered(first_column: str, measured: Measured) -> list[Gate]:
    """The same, of PREREGISTRATION.md as it stands."""
    return gates_of(PREREGISTRATION.read_text(encoding="utf-8"), first_column, measured)


def _scenarios(document: str, measured: Measured) -> Iterator[Gate]:
    for scenario, success, attempts, calls, p95_s, _ in _rows(document, "scenario"):
        name = f"scenarios.{scenario}"
        yield Gate(
            name,
            (
                Check("=", float(success), "% success", measured.get(f"{name}.success")),
                Check("<=", float(attempts), "calls/request", measured.get(f"{name}.attempts")),
                Check("<=", float(calls), "to the primary", measured.get(f"{name}.primary_calls")),
                Check("<=", float(p95_s), "s p95", measured.get(f"{name}.p95_s")),
                Check("=", 0, "stray holds", measured.get(f"{name}.stray_unresolved")),
            ),
        )


def _rows(document: str, first_column: str) -> Iterator[list[str]]:
    """The body rows of the table whose head begins with `first_column`."""
    inside = False
    for line in document.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif inside and not set(line) <= set("|- "):
            yield cells
        inside = inside or (line.startswith("|") and cells[0] == first_column)
