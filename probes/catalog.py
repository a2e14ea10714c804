"""Every probe, in the order in which they run."""

from probes import caches, crashes, money, rates, requests, retries, secrets, streams
from probes.lab import Probe

PROBES: tuple[Probe, ...] = (
    *secrets.PROBES,
    *requests.PROBES,
    *money.PROBES,
    *crashes.PROBES,
    *caches.PROBES,
    *rates.PROBES,
    *retries.PROBES,
    *streams.PROBES,
)
