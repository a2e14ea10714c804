"""Whether the gateway can serve: each reason against it, and what is told beside that."""

import unittest
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from gateway.errors import StoreUnavailable
from gateway.readiness import Readiness, readiness


def found(
    *, draining: bool = False, readable: bool = True, writable: bool = True, epoch: int | None = None
) -> Readiness:
    """How a gateway stands whose books are as they are told here."""

    async def pending_totals() -> tuple[int, int]:
        if not readable:
            raise StoreUnavailable
        return 7, 1_500_000_000

    states: Mapping[str, str] = {"mini": "open"}
    books: Any = SimpleNamespace(
        store=SimpleNamespace(writable=writable, wal_bytes=4096),
        ledger=SimpleNamespace(pending_totals=pending_totals, unconfirmed_epoch=epoch),
    )
    gateway: Any = SimpleNamespace(deployment_states=lambda: states, overbilled=("mini",))
    return readiness(books, gateway, draining=draining, in_flight=3)


class ReadinessTest(unittest.TestCase):
    """One reason at a time."""

    def test_a_deployment_that_is_down_is_no_reason(self) -> None:
        """It is told, with the money whose outcome is unknown."""
        self.assertEqual((found().ready, found().reasons), (True, ()))
        self.assertEqual(
            found().details,
            {
                "in_flight": 3,
                "wal_bytes": 4096,
                "deployments": {"mini": "open"},
                "overage_deployments": ("mini",),
                "unresolved_nanousd": 1_500_000_000,
                "unresolved_usd": "1.5",
            },
        )

    def test_each_reason_is_named(self) -> None:
        """All of them, if there are several."""
        for standing, reason in (
            (found(draining=True), "draining"),
            (found(readable=False), "store not readable"),
            (found(writable=False), "store not writable"),
            (found(epoch=4), "ledger restored from a backup: gateway ledger confirm 4"),
        ):
            with self.subTest(reason):
                self.assertEqual((standing.ready, standing.reasons), (False, (reason,)))
        self.assertEqual(len(found(draining=True, readable=False, writable=False, epoch=4).reasons), 4)

    def test_money_that_cannot_be_read_is_left_out(self) -> None:
        """It is not told as none."""
        self.assertNotIn("unresolved_nanousd", found(readable=False).details)


if __name__ == "__main__":
    unittest.main()
