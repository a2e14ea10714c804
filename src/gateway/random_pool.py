"""Random bytes for ids, drawn from the system many at a time: a system call for each would cost more than the id.

Not for secrets: what will be given out lies in memory before.
"""

from collections.abc import Callable
from io import BytesIO

_DRAWN_BYTES = 1 << 12


class RandomPool:
    """Gives out what `draw` gave, each byte once, from any thread: one read of `_drawn` is atomic, and whoever finds it
    used up puts another in its place.

    draw  n random bytes; a process that is forked goes on with what was drawn before, and shares it
    """

    def __init__(self, draw: Callable[[int], bytes]) -> None:
        self._draw = draw
        self._drawn = BytesIO()

    def __call__(self, size: int) -> bytes:
        """`size` random bytes."""
        given = self._drawn.read(size)
        if len(given) == size:
            return given
        drawn = self._draw(size + _DRAWN_BYTES)
        self._drawn = BytesIO(drawn[size:])
        return drawn[:size]
