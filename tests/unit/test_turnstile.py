"""Turns of those that never wait."""

import threading
import unittest

from gateway.turnstile import Turnstile

PATIENCE_S = 30.0


class TurnstileTest(unittest.TestCase):
    """Few inside, the others in line."""

    def setUp(self) -> None:
        self.turnstile = Turnstile(2)
        self.had: list[int] = []
        self.changed = threading.Condition()

    def until(self, count: int) -> None:
        """Wait until so many have had their turn."""
        with self.changed:
            self.assertTrue(self.changed.wait_for(lambda: len(self.had) == count, PATIENCE_S))

    def line_up(self, number: int) -> threading.Thread:
        """Somebody who is in line when this returns."""

        def wait() -> None:
            self.turnstile.enter()
            with self.changed:
                self.had.append(number)
                self.changed.notify_all()

        ahead = len(self.turnstile._line)
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        while len(self.turnstile._line) == ahead:
            thread.join(0.001)
        return thread

    def test_each_turn_that_ends_is_that_of_the_first_in_line(self) -> None:
        """And no more than two are inside."""
        self.turnstile.enter()
        self.turnstile.enter()
        threads = [self.line_up(number) for number in range(5)]
        self.assertEqual(self.had, [])
        for count in range(1, 6):
            self.turnstile.leave()
            self.until(count)
        self.assertEqual(self.had, [0, 1, 2, 3, 4])
        for thread in threads:
            thread.join(PATIENCE_S)

    def test_a_turn_that_nobody_waits_for_is_there_again(self) -> None:
        """As often as it is taken."""
        for _ in range(5):
            self.turnstile.enter()
            self.turnstile.enter()
            self.turnstile.leave()
            self.turnstile.leave()
        self.assertEqual(len(self.turnstile._line), 0)


if __name__ == "__main__":
    unittest.main()
