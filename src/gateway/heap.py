"""Memory that nobody uses: what the C library keeps of it, and how often the interpreter looks for it.

glibc keeps what threads have freed, in a heap for every few threads, and by itself gives back the end of a heap alone.
Under a mixed load that grew from 15 MB to 33 within ten minutes, while what was in use stayed at 10 to 13. Where the C
library has no such call, there is nothing to do.

The collector of cycles, left as it comes, looked at everything that a start makes whenever many requests began at once:
62 of the 500 ms that 500 streams took to begin, 31 of them in one pause. Requests leave no cycles, so it may wait.
"""

import functools
import gc
from collections.abc import Callable
from typing import Final

COLLECT_EVERY: Final = (10_000, 2, 3)
"""So many objects that came and did not go are looked at, then those that have been looked at so often: the young ones
less often than by default, the old ones as often (60,000 for 70,000), or garbage that has grown old would stay.
"""


def freeze() -> None:
    """What is there now stays: the collector looks at it no more, and less often at what comes."""
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)


def trim() -> None:
    """Give back every page of free memory. Some milliseconds at most, without the interpreter's lock."""
    if (malloc_trim := _malloc_trim()) is not None:
        malloc_trim(0)


@functools.cache
def _malloc_trim() -> Callable[[int], object] | None:
    import ctypes  # takes as long as all that a start imports, and is needed a while after it

    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
