"""Who was refused so often that its connections rest."""

import unittest

from gateway.refusals import PER_S, Refusals


class RefusalsTest(unittest.TestCase):
    """Counted by party."""

    def setUp(self) -> None:
        self.refusals = Refusals()

    def too_many(self, party: str | None, now_s: float, count: int) -> int:
        """Of so many refusals at once, how many are too many."""
        return sum(self.refusals.are_too_many(party, now_s) for _ in range(count))

    def test_a_party_may_be_refused_so_many_times_a_second(self) -> None:
        """What is beyond that makes it rest; a second later it may again."""
        self.assertEqual(self.too_many("a", 5, PER_S + 3), 3)
        self.assertEqual(self.too_many("a", 5.5, PER_S), PER_S // 2)
        self.assertEqual(self.too_many("a", 7, PER_S), 0)

    def test_parties_are_counted_apart(self) -> None:
        """Those whose key is not known are one of them."""
        self.too_many("a", 5, PER_S)
        self.assertEqual(self.too_many("b", 5, PER_S) + self.too_many(None, 5, PER_S), 0)
        self.assertEqual(self.too_many(None, 5, 1), 1)


if __name__ == "__main__":
    unittest.main()
