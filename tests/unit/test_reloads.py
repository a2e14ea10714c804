"""When reloads run."""

import threading
import unittest

from gateway.reloads import Reloads

WAIT_S = 10.0


class ReloadsTest(unittest.TestCase):
    """One at a time, in a thread of their own."""

    def test_those_that_are_asked_for_meanwhile_are_one_more(self) -> None:
        """What changes while one runs is read by the next, however often it was asked for."""
        began, go_on = threading.Semaphore(0), threading.Semaphore(0)

        def reload() -> None:
            began.release()
            go_on.acquire()

        reloads = Reloads(reload)
        reloads.ask()
        self.assertTrue(began.acquire(timeout=WAIT_S))
        for _ in range(3):
            reloads.ask()
        go_on.release()
        self.assertTrue(began.acquire(timeout=WAIT_S))
        go_on.release()
        reloads.close()
        self.assertFalse(began.acquire(blocking=False))

    def test_none_begins_after_the_end(self) -> None:
        """Also one that was asked for while another ran: there would be nothing to bring it into force in."""
        began, go_on, runs = threading.Event(), threading.Event(), []

        def reload() -> None:
            runs.append(1)
            began.set()
            go_on.wait(WAIT_S)

        reloads = Reloads(reload)
        reloads.ask()
        self.assertTrue(began.wait(WAIT_S))
        reloads.ask()
        ending = threading.Thread(target=reloads.close)
        ending.start()
        while not reloads.is_closed:
            pass
        go_on.set()
        ending.join(WAIT_S)
        self.assertEqual(len(runs), 1)
