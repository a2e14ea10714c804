"""Many threads at a breaker whose cooldown is just over: one of them calls the deployment."""

import unittest

from gateway.breaker import Breaker
from tests.support.breakers import HalfOpenWithoutGate, LooksThenGrants, check_one_probe

CALLERS = 50


class HalfOpenTest(unittest.TestCase):
    """Fifty callers on a barrier."""

    def test_exactly_one_probe_is_let_through(self) -> None:
        """Time after time."""
        for _ in range(20):
            check_one_probe(Breaker, CALLERS)

    def test_broken_gates_are_found(self) -> None:
        """The same check finds a half-open state without a gate, and one that looks before it grants."""
        for twin in (HalfOpenWithoutGate, LooksThenGrants):
            with self.subTest(twin=twin.__name__), self.assertRaises(AssertionError):
                check_one_probe(twin, CALLERS)
