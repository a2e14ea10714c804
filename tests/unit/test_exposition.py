"""The text format: what Prometheus' own parser makes of it."""

import math
import unittest

from gateway.exposition import bucket_label, counter, counters, gauge, render


class RenderTest(unittest.TestCase):
    """Pages as bytes."""

    def test_a_family_is_its_help_its_type_and_its_samples(self) -> None:
        """Line by line, with a line end behind the last."""
        page = render(
            [counters("a_total", "What a is.", ("x", "y"), {("2", 1): 5, ("1", 2): 0.25}), gauge("b", "B.", 7)]
        )
        self.assertEqual(
            page.decode(),
            "# HELP a_total What a is.\n"
            "# TYPE a_total counter\n"
            'a_total{x="1",y="2"} 0.25\n'
            'a_total{x="2",y="1"} 5\n'
            "# HELP b B.\n"
            "# TYPE b gauge\n"
            "b 7\n",
        )

    def test_a_family_without_samples_is_left_out(self) -> None:
        """Also its name."""
        self.assertEqual(render([counters("a_total", "A.", ("x",), {})]), b"")

    def test_integers_keep_all_their_digits(self) -> None:
        """Money does not become a float here; a truth is 1 or 0."""
        page = render([counter("a_total", "A.", 2**60 + 1), gauge("b", "B.", True), gauge("c", "C.", 0.1)]).decode()
        self.assertIn(f"\na_total {2**60 + 1}\n", page)
        self.assertIn("\nb 1\n", page)
        self.assertIn("\nc 0.1\n", page)

    def test_bounds_are_written_as_people_write_them(self) -> None:
        """Nothing is appended to whole seconds."""
        self.assertEqual(
            [bucket_label(bound) for bound in (0.00015, 0.5, 1, 600, math.inf)], ["0.00015", "0.5", "1", "600", "+Inf"]
        )


if __name__ == "__main__":
    unittest.main()
