"""The order in which parties are served."""

import unittest

from gateway.rotation import Rotation


class RotationTest(unittest.TestCase):
    def setUp(self) -> None:
        self.rotation = Rotation[str]()

    def put(self, *names: str) -> None:
        """Let them wait, each of the party that its first letter names; `-` is none that is known."""
        for name in names:
            self.rotation.put(None if name[0] == "-" else name[0], name)

    def taken(self, count: int) -> list[str | None]:
        """The next ones."""
        return [self.rotation.take() for _ in range(count)]

    def test_of_one_party_it_is_who_came_first(self) -> None:
        """Until nobody is left."""
        self.put("a0", "a1", "a2")
        self.assertEqual(self.taken(4), ["a0", "a1", "a2", None])
        self.assertFalse(self.rotation.parties)

    def test_nobody_waits_behind_a_second_one_of_another_party(self) -> None:
        """A thousand of one party, or of none that is known, are one after the other like the single ones."""
        self.put(*(f"a{number}" for number in range(1000)), "b0", *(f"-{number}" for number in range(1000)), "c0")
        self.assertEqual(self.taken(6), ["a0", "b0", "-0", "c0", "a1", "-1"])

    def test_a_party_that_comes_again_is_behind_the_others(self) -> None:
        """However soon it does."""
        self.put("a0", "b0", "b1")
        self.assertEqual(self.taken(1), ["a0"])
        self.put("a1")
        self.assertEqual(self.taken(4), ["b0", "a1", "b1", None])


if __name__ == "__main__":
    unittest.main()
