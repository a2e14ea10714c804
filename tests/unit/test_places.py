"""Places: who is worked on, who waits, who is refused; a crowd of threads never exceeds a bound."""

import random
import threading
import unittest
from collections import Counter

from gateway.places import Admittance, PlaceLimits, Places

SEATED, IN_LINE, REFUSED = Admittance


class PlacesTest(unittest.TestCase):
    def test_as_many_enter_as_there_are_places(self) -> None:
        """One more is refused where there is no line, and let in when a place is free."""
        places = Places[str](PlaceLimits(places=2, per_party=2, queue=0))
        self.assertEqual([places.enter("a") for _ in range(3)], [True, True, False])
        self.assertEqual(places.join("b", "waiter"), REFUSED)
        self.assertIsNone(places.leave("a"))
        self.assertEqual((places.enter("b"), places.taken), (True, 2))

    def test_one_party_has_its_share_at_most(self) -> None:
        """The others' places stay free for them."""
        places = Places[str](PlaceLimits(places=4, per_party=2, queue=0))
        self.assertEqual([places.enter("a") for _ in range(3)], [True, True, False])
        self.assertEqual([places.enter("b") for _ in range(3)], [True, True, False])

    def test_whoever_joins_as_a_place_becomes_free_is_seated(self) -> None:
        """It may have become free between the two calls."""
        places = Places[str](PlaceLimits(places=1, per_party=1, queue=9))
        self.assertEqual((places.join("a", "first"), places.join("a", "second")), (SEATED, IN_LINE))
        self.assertEqual((places.taken, places.waiting), (1, 1))

    def test_a_free_place_goes_to_the_first_in_line(self) -> None:
        """Whoever comes at that moment is behind."""
        places = Places[str](PlaceLimits(places=1, per_party=1, queue=9))
        places.enter("x")
        self.assertEqual([places.join(party, party.upper()) for party in "ab"], [IN_LINE, IN_LINE])
        self.assertEqual(places.leave("x"), "A")
        self.assertFalse(places.enter("c"))
        self.assertEqual((places.leave("a"), places.taken, places.waiting), ("B", 1, 0))

    def test_a_long_line_is_served_from_its_end(self) -> None:
        """Only while more than half of it is taken; a party at its share is passed over there, too."""
        places = Places[int](PlaceLimits(places=2, per_party=1, queue=6))
        places.enter("x")
        places.enter("y")
        for number, party in enumerate("abcde"):
            self.assertEqual(places.join(party, number), IN_LINE)
        self.assertEqual([places.leave(party) for party in "xye"], [4, 3, 0])
        self.assertEqual(places.join("a", 5), IN_LINE)
        self.assertEqual(places.join("f", 6), IN_LINE)
        self.assertEqual(places.leave("d"), 6)

    def test_whoever_may_not_have_the_place_is_passed_over_and_keeps_its_turn(self) -> None:
        """A party at its share waits for a place of its own."""
        places = Places[str](PlaceLimits(places=2, per_party=1, queue=9))
        places.enter("a")
        places.enter("b")
        self.assertEqual([places.join(party, party.upper()) for party in "ac"], [IN_LINE, IN_LINE])
        self.assertEqual(places.leave("b"), "C")
        self.assertEqual(places.leave("a"), "A")

    def test_a_party_at_its_share_waits_beside_free_places(self) -> None:
        """And another one is let in past it."""
        places = Places[str](PlaceLimits(places=3, per_party=1, queue=9))
        places.enter("a")
        self.assertEqual(places.join("a", "A"), IN_LINE)
        self.assertTrue(places.enter("b"))
        self.assertIsNone(places.leave("b"))
        self.assertEqual(places.leave("a"), "A")

    def test_the_line_is_as_long_as_it_may_be(self) -> None:
        """Beyond it, and beyond a party's share of it, nobody waits."""
        limits = PlaceLimits(places=4, per_party=2, queue=4)
        self.assertEqual(limits.queue_per_party, 2)
        places = Places[int](limits)
        for party in "abcd":
            places.enter(party)
        admitted = [places.join(party, number) for number, party in enumerate("eeefgh")]
        self.assertEqual(admitted, [IN_LINE, IN_LINE, REFUSED, IN_LINE, IN_LINE, REFUSED])
        self.assertEqual([places.leave(party) for party in "abcd"], [4, 3, 0, 1])

    def test_no_more_are_expected_than_may_find_a_place_or_a_turn(self) -> None:
        """Those who are here count, and those who have not asked yet; each until it asks or turns back."""
        places = Places[str](PlaceLimits(places=2, per_party=1, queue=1))
        self.assertEqual([places.expect() for _ in range(4)], [True, True, True, False])
        places.turn_back()
        self.assertTrue(places.expect())
        self.assertTrue(places.enter("a"))
        self.assertFalse(places.enter("a"))
        self.assertFalse(places.expect())
        self.assertEqual(places.join("a", "A"), IN_LINE)
        self.assertTrue(places.enter("b"))
        self.assertFalse(places.expect())
        self.assertEqual(places.leave("a"), "A")
        self.assertEqual([places.expect(), places.expect()], [True, False])
        self.assertTrue(places.quit("A") is False and places.leave("b") is None)
        self.assertEqual([places.expect(), places.expect()], [True, False])

    def test_whoever_had_turned_back_is_expected_again_however_many_there_are(self) -> None:
        """Others count it as before."""
        places = Places[str](PlaceLimits(places=1, per_party=1, queue=0))
        self.assertTrue(places.expect())
        places.turn_back()
        self.assertTrue(places.expect())
        places.expect_again()
        places.turn_back()
        self.assertFalse(places.expect())
        places.turn_back()
        self.assertTrue(places.expect())

    def test_whoever_is_refused_is_expected_no_more(self) -> None:
        """A party beyond its share leaves the turns to the others."""
        places = Places[str](PlaceLimits(places=2, per_party=1, queue=0))
        self.assertTrue(places.expect() and places.enter("a"))
        for _ in range(3):
            self.assertTrue(places.expect())
            self.assertEqual(places.join("a", "A"), REFUSED)
        self.assertTrue(places.expect() and places.enter("b"))
        self.assertFalse(places.expect())

    def test_the_share_of_a_line_is_one_at_least(self) -> None:
        """As long as there is a line at all, and never more than the whole of it."""
        shares = [
            PlaceLimits(places=1000, per_party=1, queue=10),
            PlaceLimits(places=10, per_party=10, queue=3),
            PlaceLimits(places=10, per_party=50, queue=3),
            PlaceLimits(places=10, per_party=5, queue=0),
        ]
        self.assertEqual([limits.queue_per_party for limits in shares], [1, 3, 3, 0])

    def test_whoever_quits_is_never_called(self) -> None:
        """Once only; and one whose turn has come can no longer quit. Who is equal is not the same."""
        places = Places[list[int]](PlaceLimits(places=1, per_party=1, queue=2))
        first, second = [1], [1]
        places.enter("x")
        for waiter in (first, second):
            places.join("a" if waiter is first else "b", waiter)
        self.assertEqual([places.quit(first), places.quit(first), places.waiting], [True, False, 1])
        self.assertIs(places.leave("x"), second)
        self.assertFalse(places.quit(second))

    def test_a_crowd_never_exceeds_a_bound_and_loses_no_place(self) -> None:
        """Many threads of a few parties, of which some quit; afterwards every place is free."""
        limits = PlaceLimits(places=4, per_party=2, queue=6)
        places, inside, lock = Places[threading.Event](limits), Counter[str](), threading.Lock()
        faults: list[str] = []
        barrier = threading.Barrier(16)

        def visit(number: int) -> None:
            draw, party = random.Random(number), "abcde"[number % 5]
            barrier.wait()
            for _ in range(200):
                if not places.enter(party):
                    called = threading.Event()
                    admittance = places.join(party, called)
                    if admittance is REFUSED:
                        continue
                    if admittance is IN_LINE and not called.wait(0.001) and places.quit(called):
                        continue
                with lock:
                    inside[party] += 1
                    if inside.total() > limits.places or inside[party] > limits.per_party:
                        faults.append(f"{dict(inside)}")
                if draw.random() < 0.3:
                    threading.Event().wait(0.0005)
                with lock:
                    inside[party] -= 1
                heir = places.leave(party)
                if heir is not None:
                    heir.set()

        crowd = [threading.Thread(target=visit, args=(number,)) for number in range(16)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()
        self.assertEqual((faults, places.taken, places.waiting), ([], 0, 0))
        self.assertTrue(all(places.enter(party) for party in "aabb"))


if __name__ == "__main__":
    unittest.main()
