"""How many connections are affordable, and what the limit of open files is made to be for them."""

import resource
import unittest
from unittest import mock

from gateway.descriptors import afford


class AffordTest(unittest.TestCase):
    """A limit that is told here, and the one that is set."""

    def afford(self, connections: int, soft: int, hard: int) -> tuple[int, int]:
        """How many connections there are, and the limit after that."""
        limits = {"soft": soft}

        def change(kind: int, wanted: tuple[int, int]) -> None:
            self.assertEqual((kind, wanted[1]), (resource.RLIMIT_NOFILE, hard))
            limits["soft"] = wanted[0]

        with (
            mock.patch.object(resource, "getrlimit", return_value=(soft, hard)),
            mock.patch.object(resource, "setrlimit", change),
        ):
            return afford(connections), limits["soft"]

    def test_the_limit_is_raised_to_two_for_each_and_some_more(self) -> None:
        """As far as it may be, or without an end."""
        self.assertEqual(self.afford(100, 50, 1000), (100, 264))
        self.assertEqual(self.afford(100, 50, 264), (100, 264))
        self.assertEqual(self.afford(100, 50, resource.RLIM_INFINITY), (100, 264))

    def test_a_limit_that_suffices_stays(self) -> None:
        """It is never lowered."""
        self.assertEqual(self.afford(100, 264, 1000), (100, 264))
        self.assertEqual(self.afford(100, 900, 1000), (100, 900))
        self.assertEqual(self.afford(100, resource.RLIM_INFINITY, resource.RLIM_INFINITY)[0], 100)

    def test_fewer_connections_are_what_there_is_room_for(self) -> None:
        """One at least."""
        self.assertEqual(self.afford(100, 50, 263), (99, 263))
        self.assertEqual(self.afford(100, 50, 60), (1, 60))


if __name__ == "__main__":
    unittest.main()
