"""Memory that is counted."""

import threading
import unittest

from llmkit.room import FREE_BYTES, STEP_BYTES, Claim, Room, Shares


class RoomTest(unittest.TestCase):
    """What many hold together."""

    def test_no_more_is_granted_than_there_is(self) -> None:
        """All of what is asked for or none of it; what was given back can be taken again."""
        room = Room(10)
        self.assertEqual([room.take(6), room.take(5), room.take(4), room.take(1)], [True, False, True, False])
        room.give(4)
        self.assertEqual((room.taken, room.take(5), room.take(4), room.taken), (6, False, True, 10))

    def test_a_share_is_bounded_by_itself_and_by_the_whole(self) -> None:
        """One holder of a share leaves the others theirs; a refusal by the whole takes nothing from the share."""
        whole = Room(10)
        one, two = Room(6, within=whole), Room(6, within=whole)
        self.assertEqual([one.take(7), one.take(6), two.take(5)], [False, True, False])
        self.assertEqual((one.taken, two.taken, whole.taken), (6, 0, 6))
        one.give(6)
        self.assertEqual((two.take(6), whole.taken), (True, 6))

    def test_many_threads_never_hold_too_much(self) -> None:
        """And everything comes back: no count is lost."""
        whole = Room(8)
        shares = [Room(5, within=whole) for _ in range(2)]
        barrier = threading.Barrier(8)
        most: list[int] = []

        def work(room: Room) -> None:
            barrier.wait(10)
            for _ in range(2_000):
                if room.take(2):
                    most.append(max(whole.taken - 8, room.taken - 5))
                    room.give(2)

        threads = [threading.Thread(target=work, args=(shares[number % 2],)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertLessEqual(max(most), 0)
        self.assertEqual([room.taken for room in (whole, *shares)], [0, 0, 0])


class SharesTest(unittest.TestCase):
    """A room for parties."""

    def test_each_is_bounded_by_its_share_and_all_by_the_room(self) -> None:
        """A refusal by the room takes nothing from the share."""
        room = Room(10)
        shares = Shares(6, within=room)
        one, two = shares.of("one"), shares.of("two")
        self.assertEqual([one.take(7), one.take(6), two.take(5), room.taken], [False, True, False, 6])
        one.give(6)
        self.assertEqual([two.take(6), one.take(5), one.take(4), room.taken], [True, False, True, 10])

    def test_a_share_is_the_same_whoever_asks_for_it(self) -> None:
        """What was taken through one is given back through another, also after its party was forgotten."""
        shares = Shares(6, within=Room(10))
        first, second = shares.of(None), shares.of(None)
        self.assertEqual([first.take(4), second.take(3), second.take(2)], [True, False, True])
        second.give(6)
        self.assertEqual((shares.parties, first.take(6), second.take(1)), (0, True, False))

    def test_who_holds_nothing_is_forgotten(self) -> None:
        """However many there were, and whoever refused them."""
        room = Room(10)
        shares = Shares(6, within=room)
        for number in range(100):
            share = shares.of(number)
            self.assertEqual((share.take(7), share.take(6), shares.of("other").take(6)), (False, True, False))
            self.assertEqual(shares.parties, 1)
            share.give(4)
            self.assertEqual(shares.parties, 1)
            share.give(2)
        self.assertEqual((shares.parties, room.taken), (0, 0))

    def test_many_threads_never_hold_too_much_of_a_share_that_is_often_forgotten(self) -> None:
        """And everything comes back: no count is lost."""
        room = Room(8)
        shares = Shares(3, within=room)
        barrier, wrong = threading.Barrier(8), threading.Event()

        def work(party: int) -> None:
            barrier.wait(10)
            for _ in range(2_000):
                share = shares.of(party)
                if share.take(2):
                    holders[party].append(1)
                    if len(holders[party]) > 1 or room.taken > 8:
                        wrong.set()
                    holders[party].pop()
                    share.give(2)

        holders: list[list[int]] = [[], []]
        threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertFalse(wrong.is_set())
        self.assertEqual((room.taken, shares.parties), (0, 0))


class ClaimTest(unittest.TestCase):
    """What one of them holds."""

    def test_a_small_holder_takes_nothing(self) -> None:
        """Up to FREE_BYTES, also where there is no room at all."""
        room = Room(0)
        claim = Claim(room)
        self.assertEqual((claim.covers(FREE_BYTES), claim.covers(FREE_BYTES + 1)), (True, False))
        claim.close()
        self.assertEqual(room.taken, 0)

    def test_it_grows_in_steps(self) -> None:
        """As many as are needed, and none for less than was held before."""
        room = Room(10 * STEP_BYTES)
        claim = Claim(room)
        table = [(1, 1), (STEP_BYTES, 1), (STEP_BYTES + 1, 2), (5 * STEP_BYTES, 5), (1, 5), (11 * STEP_BYTES, 5)]
        for more, steps in table:
            with self.subTest(more=more):
                self.assertEqual(claim.covers(FREE_BYTES + more), more <= 10 * STEP_BYTES)
                self.assertEqual(room.taken, steps * STEP_BYTES)

    def test_everything_is_given_back_once(self) -> None:
        """Closing twice is closing once; it may grow again."""
        room = Room(2 * STEP_BYTES)
        claim, other = Claim(room), Claim(room)
        self.assertTrue(other.covers(FREE_BYTES + 1))
        self.assertTrue(claim.covers(FREE_BYTES + 1))
        claim.close()
        claim.close()
        self.assertEqual(room.taken, STEP_BYTES)
        self.assertTrue(claim.covers(FREE_BYTES + 1))
        self.assertEqual(room.taken, 2 * STEP_BYTES)
