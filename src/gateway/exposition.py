"""Numbers as Prometheus reads them: its text format, version 0.0.4.

Knows what a family of samples looks like on the wire, and nothing of what is counted.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Kind(StrEnum):
    """What a family may be used for: the rate of a counter, the value of a gauge, the quantiles of a histogram."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Sample(Struct, frozen=True):
    """One line. Its labels may hold any text; `suffix` follows the family's name."""

    labels: Mapping[str, str]
    value: float
    suffix: str = ""


class Family(Struct, frozen=True):
    """All samples of one name; `meaning` is a line for people, without a backslash."""

    name: str
    kind: Kind
    meaning: str
    samples: Sequence[Sample]


def counter(name: str, meaning: str, value: float) -> Family:
    """A counter of one sample."""
    return Family(name, Kind.COUNTER, meaning, [Sample({}, value)])


def gauge(name: str, meaning: str, value: float) -> Family:
    """A gauge of one sample."""
    return Family(name, Kind.GAUGE, meaning, [Sample({}, value)])


def counters(name: str, meaning: str, labels: Sequence[str], counts: Mapping[Any, float]) -> Family:
    """A counter of many samples: the names of the labels, and the counts by tuples of their values."""
    samples = [
        Sample(dict(zip(labels, map(str, values), strict=True)), count) for values, count in sorted(counts.items())
    ]
    return Family(name, Kind.COUNTER, meaning, samples)


def counters_by(name: str, meaning: str, label: str, counts: Mapping[str, float]) -> Family:
    """A counter of many samples that one label tells apart: the counts by its values."""
    return counters(name, meaning, (label,), {(value,): count for value, count in counts.items()})


def render(families: Iterable[Family]) -> bytes:
    """The page. A family without samples is left out."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines += (f"# HELP {family.name} {family.meaning}", f"# TYPE {family.name} {family.kind}")
            lines += [_line(family.name, sample) for sample in family.samples]
    return "".join(f"{line}\n" for line in lines).encode()


def bucket_label(bound: float) -> str:
    """The upper bound of a histogram's bucket as the label `le` says it: `0.005`, `1`, `+Inf`."""
    return "+Inf" if bound == math.inf else f"{bound:g}"


def _line(name: str, sample: Sample) -> str:
    labels = ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in sample.labels.items())
    return f"{name}{sample.suffix}{'{' + labels + '}' if labels else ''} {_number(sample.value)}"


def _number(value: float) -> str:
    """Integers digit by digit, however large; floats in the fewest digits that tell them apart."""
    return str(int(value)) if isinstance(value, int) else repr(value)
