"""How many connections the limit of open files has room for."""

import resource

_SPARE = 64
"""Beside the connections: the ledger, logs, the listener. Each connection may need a second one for its upstream."""


def afford(connections: int) -> int:
    """Raise the limit of this process to what so many connections need; how many it has room for, 1 at least."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections * 2 + _SPARE
    granted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < granted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
    return max((granted - _SPARE) // 2, 1)
