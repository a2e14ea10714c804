"""Metrics pages as Prometheus' own client reads them."""

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families


class Page:
    """A metrics page, read by somebody else's parser; AssertionError if a sample stands in it twice.

    text      as it came
    families  in their order
    """

    def __init__(self, raw: bytes) -> None:
        self.text = raw.decode()
        self.families: list[Metric] = list(text_string_to_metric_families(self.text))
        self._values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in self.families:
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                if key in self._values:
                    raise AssertionError(f"{key} stands in the page twice")
                self._values[key] = sample.value

    def value(self, name: str, **labels: str) -> float | None:
        """The sample of this name with just these labels; None if there is none."""
        return self._values.get((name, frozenset(labels.items())))

    def series(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """Labels and value of each sample of this name."""
        return ((dict(labels), value) for (key, labels), value in self._values.items() if key == name)

    def total(self, name: str) -> float:
        """The sum over all labels."""
        return sum(value for _, value in self.series(name))
