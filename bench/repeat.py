"""Whether a second run says the same as the first: which figures lie wholly outside the spread of the former ones.

    python -m bench.repeat OLD.json NEW.json

Exit status: 0 if every figure repeats, 1 if one does not.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.gates import Figures, Spread, number, of

PARTS = ("runs", "streams")
UNSTEADY = frozenset({"foreign_cpus", "bad"})
"""Not figures of a subject, or bounded on their own."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One figure of one subject in both runs."""

    subject: str
    name: str
    old: Spread
    new: Spread

    @property
    def repeats(self) -> bool:
        """Whether the spreads of the repetitions meet."""
        return self.old.least <= self.new.most and self.new.least <= self.old.most

    @property
    def line(self) -> str:
        change = f"{(self.new.median / self.old.median - 1) * 100:+.0f} %" if self.old.median else "-"
        return f"{self.subject} {self.name}: {self.old.text()}, then {self.new.text()} ({change})"


def pairs(old: Figures, new: Figures) -> Iterator[Pair]:
    """Every figure that both have."""
    for subject in old["subjects"]:
        for part in PARTS:
            runs = old["subjects"][subject].get(part, ())
            for name in runs[0] if runs else ():
                before, after = of(old, subject, name, part), of(new, subject, name, part)
                if name not in UNSTEADY and before is not None and after is not None:
                    yield Pair(subject, name, before, after)


def main() -> int:
    """Print each figure that does not repeat, and how many do."""
    parser = argparse.ArgumentParser(prog="bench.repeat", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    arguments = parser.parse_args()
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (arguments.old, arguments.new))
    known = list(pairs(old, new))
    strays = [pair for pair in known if not pair.repeats]
    print("\n".join(pair.line for pair in strays))
    print(f"{number(len(known) - len(strays))} of {number(len(known))} figures repeat within their spread")
    return 1 if strays else 0


if __name__ == "__main__":
    sys.exit(main())
