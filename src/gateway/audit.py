"""Reading the book: verify it, list its rows and holds, tell who started a request lately. Changes nothing.

check_books() recomputes every balance from the holds and every settled row from its holds, in SQL over one snapshot
each, and reports each difference; find_damage() has SQLite check the structure of the file; verify() does both. It
proves that the running sums and the book agree; it cannot prove that a provider billed what it reported, nor find a
change of what is written down only once (a time, a name, a number of tokens, a limit).
"""

import json
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.rows import COLUMNS
from gateway.store import Readable, Record, Value

_BALANCE_DIFFERENCES = """
    SELECT balance, sum(spent), sum(held), sum(unresolved), sum(overage) FROM (
        SELECT id AS balance, spent_nanousd AS spent, held_nanousd AS held, unresolved_nanousd AS unresolved,
            overage_nanousd AS overage FROM balances
        UNION ALL
        SELECT balance, -iif(state = 'settled', cost_nanousd, 0), -iif(state = 'open', amount_nanousd, 0),
            -iif(state = 'unresolved', amount_nanousd, 0), -iif(state = 'settled', overage_nanousd, 0)
        FROM (
            SELECT key_balance AS balance, * FROM holds
            UNION ALL SELECT tenant_balance, * FROM holds
            UNION ALL SELECT global_balance, * FROM holds
        )
    ) GROUP BY balance
    HAVING sum(spent) <> 0 OR sum(held) <> 0 OR sum(unresolved) <> 0 OR sum(overage) <> 0
    ORDER BY balance LIMIT 100"""
_HOLD_DIFFERENCES = """
    SELECT id, state, amount_nanousd, cost_nanousd, overage_nanousd FROM holds
    WHERE overage_nanousd <> iif(state = 'settled', max(cost_nanousd - amount_nanousd, 0), 0)
        OR (state <> 'settled' AND cost_nanousd <> 0)
        OR (state IN ('settled', 'void')) <> (resolved_by IS NOT NULL)
        OR (state = 'open' AND id < (SELECT max(no_open_below) FROM boots))
    ORDER BY id LIMIT 100"""
_ROW_DIFFERENCES = """
    SELECT requests.request_id, requests.cost_nanousd, requests.overage_nanousd,
        coalesce(sum(holds.cost_nanousd), 0) AS held_cost, coalesce(sum(holds.overage_nanousd), 0) AS held_overage
    FROM requests LEFT JOIN holds ON holds.request_id = requests.request_id
    WHERE requests.state IN ('settled', 'void')
        AND NOT EXISTS (SELECT 1 FROM holds AS other WHERE other.request_id = requests.request_id
            AND (other.resolved_by IS NULL OR other.resolved_by <> 'request'))
    GROUP BY requests.id HAVING requests.cost_nanousd <> held_cost OR requests.overage_nanousd <> held_overage
    ORDER BY requests.id LIMIT 100"""
_ROWLESS_HOLDS = """
    SELECT holds.id, holds.request_id FROM holds LEFT JOIN requests ON requests.request_id = holds.request_id
    WHERE holds.state <> 'open' AND holds.resolved_by = 'request' AND requests.id IS NULL
        AND NOT EXISTS (SELECT 1 FROM holds AS other WHERE other.request_id = holds.request_id
            AND (other.resolved_by IS NULL OR other.resolved_by <> 'request'))
    ORDER BY holds.id LIMIT 100"""
_DAMAGE = "SELECT integrity_check FROM pragma_integrity_check(?) WHERE integrity_check <> 'ok'"
_COUNTS = """SELECT (SELECT count(*) FROM balances), (SELECT count(*) FROM holds), (SELECT count(*) FROM requests),
    (SELECT count(*) FROM holds WHERE state = 'open'), (SELECT count(*) FROM holds WHERE state = 'unresolved')"""


class Report(Struct, frozen=True):
    """What was found; `differences` is empty when the book is right."""

    balances: int
    holds: int
    rows: int
    open_holds: int
    unresolved_holds: int
    differences: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.differences


async def verify(store: Readable) -> Report:
    """check_books(), with the damage of the file among the differences. Safe at any time; a living gateway may go on.

    Raises StoreUnavailable if the file is so damaged that it cannot be read through.
    """
    report = await check_books(store)
    damage = [f"the file is damaged: {fault}" for fault in await find_damage(store, most=20)]
    return replace(report, differences=(*report.differences, *damage))


async def find_damage(store: Readable, *, most: int) -> list[str]:
    """The first `most` faults that SQLite finds in the structure of the file. It reads all of it.

    Raises StoreUnavailable as verify() does.
    """
    return [str(fault) for (fault,) in await store.read(_DAMAGE, (most,))]


async def check_books(store: Readable) -> Report:
    """Recompute every balance and row from the holds, of a file that is sound. Raises StoreUnavailable."""
    differences = [
        f"balance {balance} differs from its holds: spent {spent:+}, held {held:+}, unresolved {unresolved:+}, "
        f"overage {overage:+} nano-dollars"
        for balance, spent, held, unresolved, overage in await store.read(_BALANCE_DIFFERENCES)
    ]
    differences += [
        f"hold {hold} ({state}) is inconsistent: amount {amount}, cost {cost}, overage {overage}"
        for hold, state, amount, cost, overage in await store.read(_HOLD_DIFFERENCES)
    ]
    differences += [
        f"row {request} says {cost} and overage {overage}, its holds say {held_cost} and {held_overage} nano-dollars"
        for request, cost, overage, held_cost, held_overage in await store.read(_ROW_DIFFERENCES)
    ]
    differences += [f"hold {hold} of {request} has no row" for hold, request in await store.read(_ROWLESS_HOLDS)]
    counts = [int(count) for count in (await store.read(_COUNTS))[0]]
    return Report(counts[0], counts[1], counts[2], counts[3], counts[4], tuple(differences))


MOST_ROWS = 10_000
"""Rows that are listed when no other number is asked for."""

MOST_STARTS = 10_000
"""The newest rows, among which recent starts are looked for: a start takes no longer with the age of its ledger."""

_HOLD_FIELDS = (
    *("id", "request_id", "tenant", "key_id", "alias", "deployment", "amount_nanousd", "state", "opened_ms"),
    *("unresolved_ms", "unresolved_why"),
)


async def list_rows(
    store: Readable, *, key_id: str | None = None, request_id: str | None = None, limit: int = MOST_ROWS
) -> list[dict[str, Value]]:
    """The newest `limit` rows, oldest first, each with what its money has become by now (late settlements included).

    key_id, request_id  only rows of this key, only the row of this request; it has one once it has ended
    """
    wanted = {"key_id": key_id, "request_id": request_id}
    given = {name: value for name, value in wanted.items() if value is not None}
    conditions = " AND ".join(["TRUE", *(f"{name} = ?" for name in given)])
    records = await store.read(_rows_where(conditions), (*given.values(), limit))
    return [_row(record) for record in records]


async def recent_starts(store: Readable, since_ms: int) -> list[tuple[str, int]]:
    """Who started a request after `since_ms` (UTC), and when, oldest first: of the newest MOST_STARTS rows, those that
    were served or sent on, for a request that was refused before that counts for nothing.
    """
    starts = await store.read(
        """WITH newest AS (SELECT tenant, started_ms, attempts, exit FROM requests ORDER BY id DESC LIMIT ?)
        SELECT tenant, started_ms FROM newest
        WHERE started_ms > ? AND (attempts > 0 OR exit = 'cache_hit') ORDER BY started_ms""",
        (MOST_STARTS, since_ms),
    )
    return [(str(tenant), int(started_ms or 0)) for tenant, started_ms in starts]


def _rows_where(conditions: str) -> str:
    """Chosen rows by an index where there is one, and the holds of those alone."""
    return f"""WITH chosen AS (SELECT * FROM requests WHERE {conditions} ORDER BY id DESC LIMIT ?)
        SELECT {", ".join("chosen." + name for name in COLUMNS)}, latest.state, latest.cost, latest.overage
        FROM chosen LEFT JOIN (
            SELECT request_id, sum(cost_nanousd) AS cost, sum(overage_nanousd) AS overage,
                CASE WHEN sum(state = 'unresolved') > 0 THEN 'unresolved' WHEN sum(state = 'settled') > 0 THEN 'settled'
                     WHEN sum(state = 'open') > 0 THEN 'open' ELSE 'void' END AS state
            FROM holds WHERE request_id IN (SELECT request_id FROM chosen) GROUP BY request_id
        ) AS latest ON latest.request_id = chosen.request_id
        ORDER BY chosen.id"""  # noqa: S608 - names of our own fields


def _row(record: Record) -> dict[str, Value]:
    row = dict(zip(COLUMNS, record, strict=False))
    state, cost, overage = record[len(COLUMNS) :]
    if state is not None:
        row |= {"state": state, "cost_nanousd": cost, "overage_nanousd": overage}
    return row | {"stream": bool(row["stream"]), "estimated": bool(row["estimated"])}


async def list_holds(store: Readable) -> list[dict[str, Value]]:
    """Every hold that is open or unresolved, oldest first."""
    records = await store.read(
        f"SELECT {', '.join(_HOLD_FIELDS)} FROM pending_holds ORDER BY id"  # noqa: S608 - constants
    )
    return [dict(zip(_HOLD_FIELDS, record, strict=True)) for record in records]


EPOCH_FIELDS = (
    *("number", "restored_ms", "backup", "backup_until_ms", "replaced", "replaced_until_ms", "differences"),
    "confirmed_ms",
)
"""All that a ledger knows of a restore."""


async def list_epochs(store: Readable) -> list[dict[str, Any]]:
    """Every restore, oldest first: what it has replaced and forgotten; `differences` is None where nobody knows it."""
    records = await store.read(f"SELECT {', '.join(EPOCH_FIELDS)} FROM epochs ORDER BY number")  # noqa: S608 - constants
    epochs = [dict(zip(EPOCH_FIELDS, record, strict=True)) for record in records]
    return [epoch | {"differences": json.loads(epoch["differences"] or "null")} for epoch in epochs]


async def pending_nanousd(store: Readable, hold_id: int) -> int | None:
    """The amount of a hold that is open or unresolved; None if there is no such hold."""
    records = await store.read(
        "SELECT amount_nanousd FROM holds WHERE id = ? AND state IN ('open', 'unresolved')", (hold_id,)
    )
    return int(records[0][0]) if records else None
