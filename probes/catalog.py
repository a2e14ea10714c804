"""Every probe, in the order in which they run."""

from probes import ambiguity, answers, attempts, bodies, caches, crashes, credentials, estimates, framing, heads, injection, leaks, money, overload, rates, retries, rights, sizes, slow, steering, streams
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
    *credentials.PROBES,
    *rights.PROBES,
    *steering.PROBES,
    *ambiguity.PROBES,
    *answers.PROBES,
    *injection.PROBES,
    *slow.PROBES,
    *overload.PROBES,
)
