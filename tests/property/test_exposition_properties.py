"""Any label and any number, in the text format."""

import unittest

from hypothesis import given
from hypothesis import strategies as st

from gateway.exposition import Family, Kind, Sample, gauge, render
from tests.support.scrapes import Page


class RenderPropertyTest(unittest.TestCase):
    """What Prometheus' own parser makes of a page."""

    @given(st.text(st.characters(exclude_categories=["Cs"])), st.floats(allow_nan=False) | st.integers(-(2**53), 2**53))
    def test_any_label_and_any_number_come_through(self, text: str, value: float) -> None:
        """Quotes, backslashes and line ends too."""
        page = Page(
            render([Family("a", Kind.GAUGE, "A.", [Sample({"x": text, "y": "z"}, value)]), gauge("b", "B.", 1)])
        )
        self.assertEqual(page.value("a", x=text, y="z"), value)
        self.assertEqual(page.value("b"), 1)
