"""Places: who is worked on, who waits, who is refused; a fast line, and threads at a barrier."""

import random
import threading
import unittest
from collections import Counter
from collections.abc import Callable

from gateway.places import PlaceLimits, Places

PATIENCE_S = 10.0  # only a failing test waits so long


class Guest:
    """One that asks for a place on a thread of its own."""

    def __init__(self, places: Places, party: str) -> None:
        self.entered: bool | None = None
        self._thread = threading.Thread(target=self._ask, args=(places, party))
        self._thread.start()

    def _ask(self, places: Places, party: str) -> None:
        self.entered = places.enter(party)

    def answer(self) -> bool | None:
        """Whether it was let in, once that is known."""
        self._thread.join(PATIENCE_S)
        return self.entered


class PlacesTest(unittest.TestCase):
    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what another thread is about to do."""
        pause = threading.Event()
        for _ in range(round(PATIENCE_S * 1000)):
            if condition():
                return
            pause.wait(0.001)
        raise AssertionError("it did not happen")

    def in_line(self, places: Places, *parties: str) -> list[Guest]:
        """Guests that wait, in this order."""
        guests = []
        for party in parties:
            before = places.waiting
            guests.append(Guest(places, party))
            self.until(lambda before=before: places.waiting == before + 1)  # type: ignore[misc]
        return guests

    def test_as_many_enter_as_there_are_places(self) -> None:
        """One more is refused at once where there is no line, and let in when a place is free."""
        places = Places(PlaceLimits(places=2, per_party=2, queue=0))
        self.assertEqual([places.enter("a") for _ in range(3)], [True, True, False])
        self.assertFalse(places.enter_at_once("b"))
        places.leave("a")
        self.assertEqual((places.enter_at_once("b"), places.taken), (True, 2))

    def test_one_party_has_its_share_at_most(self) -> None:
        """The others' places stay free for them."""
        places = Places(PlaceLimits(places=4, per_party=2, queue=0))
        self.assertEqual([places.enter("a") for _ in range(3)], [True, True, False])
        self.assertEqual([places.enter("b") for _ in range(3)], [True, True, False])

    def test_a_free_place_goes_to_the_first_in_line(self) -> None:
        """Whoever comes later, or at that moment, is behind."""
        places = Places(PlaceLimits(places=1, per_party=1, queue=9, queue_wait_s=PATIENCE_S))
        places.enter("x")
        first, second = self.in_line(places, "a", "b")
        places.leave("x")
        self.assertTrue(first.answer())
        self.assertFalse(places.enter_at_once("c"))
        self.assertIsNone(second.entered)
        places.leave("a")
        self.assertTrue(second.answer())
        self.assertEqual((places.taken, places.waiting), (1, 0))

    def test_whoever_may_not_have_the_place_is_passed_over_and_keeps_its_turn(self) -> None:
        """A party at its share waits for a place of its own."""
        places = Places(PlaceLimits(places=2, per_party=1, queue=9, queue_wait_s=PATIENCE_S))
        places.enter("a")
        places.enter("b")
        of_a, of_c = self.in_line(places, "a", "c")
        places.leave("b")
        self.assertTrue(of_c.answer())
        self.assertIsNone(of_a.entered)
        places.leave("a")
        self.assertTrue(of_a.answer())

    def test_a_party_at_its_share_waits_beside_free_places(self) -> None:
        """And another one is let in past it."""
        places = Places(PlaceLimits(places=3, per_party=1, queue=9, queue_wait_s=PATIENCE_S))
        places.enter("a")
        (of_a,) = self.in_line(places, "a")
        self.assertTrue(places.enter_at_once("b"))
        places.leave("a")
        self.assertTrue(of_a.answer())

    def test_the_line_is_as_long_as_it_may_be(self) -> None:
        """Beyond it, and beyond a party's share of it, nobody waits."""
        limits = PlaceLimits(places=4, per_party=2, queue=4, queue_wait_s=PATIENCE_S)
        self.assertEqual(limits.queue_per_party, 2)
        places = Places(limits)
        for party in "abcd":
            places.enter(party)
        waiting = self.in_line(places, "e", "e")
        self.assertFalse(places.enter("e"))
        waiting += self.in_line(places, "f", "g")
        self.assertFalse(places.enter("h"))
        for party in "abcd":
            places.leave(party)
        self.assertEqual([guest.answer() for guest in waiting], [True] * 4)

    def test_the_share_of_a_line_is_one_at_least(self) -> None:
        """As long as there is a line at all, and never more than the whole of it."""
        shares = [
            PlaceLimits(places=1000, per_party=1, queue=10),
            PlaceLimits(places=10, per_party=10, queue=3),
            PlaceLimits(places=10, per_party=50, queue=3),
            PlaceLimits(places=10, per_party=5, queue=0),
        ]
        self.assertEqual([limits.queue_per_party for limits in shares], [1, 3, 3, 0])

    def test_nobody_waits_for_longer_than_the_line_allows(self) -> None:
        """Then the answer is no, and its turn is gone."""
        places = Places(PlaceLimits(places=1, per_party=1, queue=1, queue_wait_s=0.01))
        places.enter("a")
        self.assertFalse(places.enter("b"))
        self.assertEqual(places.waiting, 0)
        places.leave("a")
        self.assertEqual(places.taken, 0)

    def test_a_crowd_never_exceeds_a_bound_and_loses_no_place(self) -> None:
        """Many threads of a few parties; afterwards every place is free."""
        limits = PlaceLimits(places=4, per_party=2, queue=6, queue_wait_s=0.001)
        places, inside, lock = Places(limits), Counter[str](), threading.Lock()
        faults: list[str] = []
        barrier = threading.Barrier(16)

        def visit(number: int) -> None:
            draw, party = random.Random(number), "abcde"[number % 5]
            barrier.wait()
            for _ in range(200):
                if not places.enter(party):
                    continue
                with lock:
                    inside[party] += 1
                    if inside.total() > limits.places or inside[party] > limits.per_party:
                        faults.append(f"{dict(inside)}")
                if draw.random() < 0.3:
                    threading.Event().wait(0.0005)
                with lock:
                    inside[party] -= 1
                places.leave(party)

        crowd = [threading.Thread(target=visit, args=(number,)) for number in range(16)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()
        self.assertEqual((faults, places.taken, places.waiting), ([], 0, 0))
        self.assertTrue(all(places.enter_at_once(party) for party in "aabb"))


if __name__ == "__main__":
    unittest.main()
