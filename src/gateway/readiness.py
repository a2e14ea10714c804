"""Whether the gateway can serve, and what an operator wants to see beside that: what `/readyz` says.

A deployment that is down is a detail and no reason: another gateway would fare no better. Waits for no writer.
"""

from collections.abc import Mapping

from msgspec import Struct

from gateway.books import Books
from gateway.drive import drive
from gateway.errors import StoreUnavailable
from gateway.gateway import Gateway
from llmkit.money import format_usd


class Readiness(Struct, frozen=True):
    """`ready` if there is no reason against it; `details` are JSON values by name."""

    ready: bool
    reasons: tuple[str, ...]
    details: Mapping[str, object]


def readiness(books: Books, gateway: Gateway, *, draining: bool, in_flight: int) -> Readiness:
    """How things stand.

    draining   the process is ending, announced or not yet
    in_flight  exchanges that are being worked on
    """
    reasons = ["draining"] if draining else []
    details: dict[str, object] = {
        "in_flight": in_flight,
        "wal_bytes": books.store.wal_bytes,
        "deployments": gateway.deployment_states(),
        "overage_deployments": gateway.overbilled,
    }
    try:
        _, unresolved = drive(books.ledger.pending_totals())
        details |= {"unresolved_nanousd": unresolved, "unresolved_usd": format_usd(unresolved)}
    except StoreUnavailable:
        reasons.append("store not readable")
    if not books.store.writable:
        reasons.append("store not writable")
    if (epoch := books.ledger.unconfirmed_epoch) is not None:
        reasons.append(f"ledger restored from a backup: gateway ledger confirm {epoch}")
    return Readiness(not reasons, tuple(reasons), details)
