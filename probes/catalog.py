"""Every probe, in the order in which they run."""

from probes import caches, money, rates, retries, streams
from probes.lab import Probe

PROBES: tuple[Probe, ...] = (*money.PROBES, *rates.PROBES, *retries.PROBES, *streams.PROBES, *caches.PROBES)
