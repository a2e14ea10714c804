"""Turns of those that never wait."""

import contextlib
import threading
import unittest

from gateway.turnstile import NoTurn, Turnstile

PATIENCE_S = 30.0


class TurnstileTest(unittest.TestCase):
    """Few inside, the others in line."""

    def setUp(self) -> None:
        self.turnstile = Turnstile(2)
        self.began: list[str] = []

    def waiting(self) -> int:
        """How many are in line."""
        return sum(map(len, self.turnstile._line.parties.values()))

    def fill(self) -> None:
        """Take the two turns that there are."""
        self.turnstile.enter()
        self.turnstile.enter()

    def line_up(self, *names: str, still_there: bool = True) -> None:
        """Let them wait, each for the party that its first letter names."""
        for name in names:

            def begin(name: str = name) -> bool:
                self.began.append(name)
                return still_there

            self.assertTrue(self.turnstile.join(name[0], begin))

    def test_each_turn_that_ends_is_that_of_the_first_in_line(self) -> None:
        """And no more than two are inside: whoever comes meanwhile has to join the line."""
        self.fill()
        names = [f"a{number}" for number in range(5)]
        self.line_up(*names)
        self.assertEqual(self.began, [])
        for count in range(1, 6):
            self.turnstile.leave()
            self.assertEqual((self.began, self.waiting()), (names[:count], 5 - count))
            self.assertRaises(NoTurn, self.turnstile.enter)

    def test_parties_have_their_turns_one_after_the_other(self) -> None:
        """A thousand of one in line do not keep another one waiting; nor does one that joins again at once."""
        self.fill()
        self.line_up(*(f"a{number}" for number in range(1000)), "b0", "c0", "b1")
        for _ in range(3):
            self.turnstile.leave()
        self.line_up("c1")
        for _ in range(4):
            self.turnstile.leave()
        self.assertEqual(self.began, ["a0", "b0", "c0", "a1", "b1", "c1", "a2"])

    def test_a_turn_that_nobody_waits_for_is_there_again(self) -> None:
        """As often as it is taken; then there is no line to join."""
        for _ in range(5):
            self.fill()
            self.turnstile.leave()
            self.assertFalse(self.turnstile.join("a", lambda: True))
            self.turnstile.leave()
        self.assertEqual(self.waiting(), 0)

    def test_a_turn_that_is_of_no_use_any_more_is_that_of_the_next(self) -> None:
        """However many do not need it; if nobody does, it is free."""
        self.fill()
        self.line_up(*["a"] * 5000, still_there=False)
        self.line_up("b")
        self.turnstile.leave()
        self.assertEqual(self.began, ["a", "b"])
        self.turnstile.leave()
        self.assertEqual((len(self.began), self.waiting()), (5001, 0))
        self.turnstile.enter()
        self.assertRaises(NoTurn, self.turnstile.enter)

    def test_whoever_was_given_a_turn_gives_it_on_like_any_other(self) -> None:
        """It does not enter."""
        self.fill()
        self.line_up("a", "b")
        self.turnstile.leave()
        self.turnstile.leave()
        self.assertEqual(self.began, ["a", "b"])
        self.turnstile.leave()
        self.turnstile.leave()
        self.fill()

    def test_in_a_crowd_nobody_is_forgotten_and_no_turn_is_lost(self) -> None:
        """Threads that come and go between each other's steps: all have their turns, and then two are free."""
        together, ended = threading.Lock(), threading.Semaphore(0)
        inside, most = 0, 0

        def work() -> bool:
            nonlocal inside, most
            with together:
                inside += 1
                most = max(most, inside)
            threading.Thread(target=end, daemon=True).start()
            return True

        def end() -> None:
            nonlocal inside
            with together:
                inside -= 1
            self.turnstile.leave()
            ended.release()

        def come(party: str) -> None:
            for _ in range(100):
                while not self.turnstile.join(party, work):
                    with contextlib.suppress(NoTurn):
                        self.turnstile.enter()
                        work()
                        break

        for party in "aabc":
            threading.Thread(target=come, args=(party,), daemon=True).start()
        for _ in range(400):
            self.assertTrue(ended.acquire(timeout=PATIENCE_S))
        self.assertEqual((inside, most, self.waiting()), (0, 2, 0))
        self.fill()


if __name__ == "__main__":
    unittest.main()
