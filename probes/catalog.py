"""Every probe, in the order in which they run."""

from probes import money, rates, retries
from probes.lab import Probe

PROBES: tuple[Probe, ...] = (*money.PROBES, *rates.PROBES, *retries.PROBES)
