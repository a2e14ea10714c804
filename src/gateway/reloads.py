"""When a reload runs: never in the thread that was asked for it, one at a time. Knows nothing of configurations.

A configuration may come from a pipe, or from a file server that does not answer: whoever hears signals must not wait
for either.
"""

import threading
from collections.abc import Callable

END_S = 1.0
"""How long the end of the process waits for a reload that runs: many times what one takes that nothing holds up."""


class Reloads:
    """Runs `reload` once for all that asked before it began. A reload that hangs holds up later ones, and nothing else.

    reload     must not raise
    is_closed  whether none begins any more
    """

    def __init__(self, reload: Callable[[], None]) -> None:
        self._reload = reload
        self._asked = threading.Event()
        self.is_closed = False
        self._thread = threading.Thread(target=self._run, name="reloads", daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Let a reload begin from now on. Waits for nothing."""
        self._asked.set()

    def close(self) -> None:
        """Begin none any more, and wait END_S for the one that runs."""
        self.is_closed = True
        self._asked.set()
        self._thread.join(END_S)

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self.is_closed:
                return
            self._reload()
