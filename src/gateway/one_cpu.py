"""The process on one CPU: a threaded interpreter runs one thread at a time, and handing its lock from CPU to CPU costs.

Other processes may still use that CPU; one that serves many requests at a time gains from it, one that shares the CPU
with a busy neighbour loses. To be called before the first thread starts: threads inherit it.
"""

import os


def pin() -> int | None:
    """Run on the last of the CPUs that this process may use, for most interrupts go to the first; which one that is.

    None where the system has no such call, or refuses it; nothing has changed then.
    """
    try:
        cpu = max(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpu})
    except (AttributeError, OSError):
        return None
    return cpu
