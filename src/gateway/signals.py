"""Signals as the serving process waits for them: in order, and none is late.

A signal may be handed to any thread, and under load often is. Python then only notes it, and runs its handler once the
main thread runs again; one that sleeps on a lock or a queue sleeps on, so that a SIGTERM could be without effect until
the next signal. Whichever thread is hit writes the number into a pipe at once, and that is what is waited for.
"""

import os
import signal


class Signals:
    """The signals that were caught and not yet taken."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def catch(self, *numbers: int) -> None:
        """From now on these are waited for and do nothing else. Only the main thread may call this."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, _note)

    def get(self) -> int:
        """Wait for the next signal; returns its number. Any thread may wait."""
        return os.read(self._read, 1)[0]


def _note(_number: int, _frame: object) -> None:
    """The pipe has it already."""
