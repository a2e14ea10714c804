"""Random bytes for ids, drawn from the system many at a time: a system call for each would cost more than the id.

Not for secrets: what will be given out lies in memory before.
"""

from collections import deque
from collections.abc import Callable

PIECE_BYTES = 16
"""As many as the longest id has."""

_PIECES = 256


class RandomPool:
    """Gives out pieces of what `draw` gave, each once, from any thread: `_pieces` is touched by its atomic ends alone.

    draw  n random bytes; a process that is forked goes on with what was drawn before, and shares it
    """

    def __init__(self, draw: Callable[[int], bytes]) -> None:
        self._draw = draw
        self._pieces: deque[bytes] = deque()

    def __call__(self, size: int) -> bytes:
        """`size` random bytes, at most PIECE_BYTES."""
        if size > PIECE_BYTES:
            raise ValueError(f"at most {PIECE_BYTES} bytes at a time")
        try:
            return self._pieces.popleft()[:size]
        except IndexError:
            drawn = self._draw(_PIECES * PIECE_BYTES)
            pieces = [drawn[at : at + PIECE_BYTES] for at in range(0, len(drawn), PIECE_BYTES)]
            self._pieces.extend(pieces[1:])
            return pieces[0][:size]
