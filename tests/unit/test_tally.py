"""What happened is counted by family and name, and what never happened is told as well."""

import unittest

from gateway.tally import Tally


class TallyTest(unittest.TestCase):
    """Tally."""

    def test_every_name_is_told(self) -> None:
        """Each in its own family, though another has one of the same name."""
        tally = Tally({"verdicts": ("same", "different"), "audits": ("same",)})
        tally.count("verdicts", "same")
        tally.count("audits", "same")
        tally.count("verdicts", "same")
        self.assertEqual(tally.told(), {"verdicts": {"same": 2, "different": 0}, "audits": {"same": 1}})


if __name__ == "__main__":
    unittest.main()
