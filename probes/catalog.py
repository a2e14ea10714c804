"""Every probe, in the order in which they run."""

from probes import attempts, bodies, caches, crashes, estimates, framing, heads, leaks, money, rates, retries, sizes, slow, streams
from probes.lab import Probe

PROBES: tuple[Probe, ...] = (
    *leaks.PROBES,
    *bodies.PROBES,
    *money.PROBES,
    *estimates.PROBES,
    *attempts.PROBES,
    *crashes.PROBES,
    *caches.PROBES,
    *rates.PROBES,
    *retries.PROBES,
    *streams.PROBES,
    *framing.PROBES,
    *heads.PROBES,
    *sizes.PROBES,
    *slow.PROBES,
)
