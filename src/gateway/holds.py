"""The life of a hold, step by step, each step inside a transaction that somebody else has begun.

    open ──settle──> settled        unresolved ──late answer, admin, policy──> settled
      ├──void──────> void                └───────admin, policy───────────────> void
      └──timeout, crash, TTL──> unresolved

Each step is taken once: it is guarded by the state of the hold. The schema's triggers move its money in the balances
that it was made in, however late that is. What is billed above the hold is booked whole and marked as overage.

All amounts are nano-dollars. Knows what a hold is for only as far as its row says it.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway import rows
from gateway.clock import Clock
from gateway.levels import Account, Levels
from gateway.rows import Exit, Money, MoneyState, RequestRow
from gateway.store import Store, Transaction
from gateway.types import MAX_NANOUSD


class Policy(StrEnum):
    """What becomes of money whose outcome nobody will tell us any more."""

    ASSUME_SPENT = "assume_spent"
    VOID = "void"


class OnCrash(StrEnum):
    """What becomes of the open holds of a dead process, when a gateway starts."""

    UNRESOLVED = "unresolved"
    VOID = "void"


class By(StrEnum):
    """Who resolved a hold."""

    REQUEST = "request"
    RECOVERY = "recovery"
    POLICY = "policy"
    ADMIN = "admin"


class Purpose(Struct, frozen=True):
    """What a hold is for; kept with it so that a dead request can still be told from its hold."""

    request_id: str
    attempt: int
    alias: str
    deployment: str
    price_version: str


class Reservation(Struct, frozen=True):
    """A hold that waits for its outcome; `earlier` says that its request had others before."""

    id: int
    amount_nanousd: int
    request_id: str
    earlier: bool = False


class Outcome(Struct, frozen=True):
    """What became of a call that may have been billed: what it cost; or None, why nobody knows it, and the most that it
    can be (None: all that is held).
    """

    cost_nanousd: int | None
    why: str = ""
    at_most_nanousd: int | None = None


class AlreadyResolved(Exception):
    """The hold is not there, or not in a state from which this step leads on. Nothing was changed."""


_OPEN_HOLD = """INSERT INTO holds (request_id, attempt, alias, deployment, price_version, boot_id, tenant, key_id,
        key_balance, tenant_balance, global_balance, amount_nanousd, state, opened_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', ?)"""
"""Changes no row if a level has no room. A refusal has so changed nothing."""
_PURPOSE = "attempt = ?, alias = ?, deployment = ?, price_version = ?"
_TOP_UP = f"UPDATE holds SET amount_nanousd = amount_nanousd + ?, {_PURPOSE} WHERE id = ? AND state = 'open'"  # noqa: S608 - constants only
_CARRY = f"UPDATE holds SET {_PURPOSE} WHERE id = ? AND state = 'open'"  # noqa: S608 - constants only
_CLOSE_WITHIN = """UPDATE holds SET state = ?, cost_nanousd = ?, resolved_ms = ?, resolved_by = ?
    WHERE amount_nanousd >= ? AND id = ? AND state = 'open'"""
_CLOSE = """UPDATE holds SET state = ?, cost_nanousd = ?, resolved_ms = ?, resolved_by = ?,
        overage_nanousd = max(? - amount_nanousd, 0)
    WHERE id = ? AND (state = 'open' OR state = 'unresolved')
    RETURNING overage_nanousd"""
_PART = """UPDATE holds SET state = 'unresolved', amount_nanousd = min(amount_nanousd, ?), unresolved_ms = ?,
        unresolved_why = ?
    WHERE id = ? AND state = 'open'"""
_BALANCES = "SELECT key_balance, tenant_balance, global_balance FROM holds WHERE id = ? AND state = 'open'"

_OPEN_HOLDS = "SELECT id FROM pending_holds WHERE state = 'open' ORDER BY id"
_CRASH = "crash"
_UNDECIDED = "crash, undecided"
"""Why a hold is unresolved whose process died, once a gateway's `on_crash` has decided about it, and before."""
_UNDECIDED_HOLDS = "SELECT id FROM pending_holds WHERE state = 'unresolved' AND unresolved_why = ? ORDER BY id"
_DECIDED = "UPDATE holds SET unresolved_why = ? WHERE id = ? AND state = 'unresolved'"
_NONE_OPEN_BELOW = """WITH first_open (hold) AS MATERIALIZED (
        SELECT coalesce((SELECT min(id) FROM holds WHERE state = 'open'
                             AND id >= (SELECT max(no_open_below) FROM boots)),
                        (SELECT max(id) + 1 FROM holds), 0))
    UPDATE boots SET no_open_below = hold FROM first_open WHERE id = ? AND no_open_below < hold"""
_ROWLESS = """SELECT request_id, attempt, boot_id, opened_ms, tenant, key_id, alias, deployment, price_version
    FROM holds WHERE id IN (
        SELECT max(id) FROM pending_holds AS pending
            WHERE NOT EXISTS (SELECT 1 FROM requests WHERE requests.request_id = pending.request_id)
        GROUP BY request_id)
    ORDER BY id"""
"""The last hold of each request that died before its row was written: it had one that was open, or given up."""

_MONEY_OF_REQUEST = """SELECT CASE WHEN sum(state = 'unresolved') > 0 THEN 'unresolved'
        WHEN sum(state = 'settled') > 0 THEN 'settled' ELSE 'void' END, sum(cost_nanousd), sum(overage_nanousd)
    FROM holds WHERE request_id = ?"""


class Holds(Levels):
    """The holds of one data directory. `boot_id` is this life of its owner."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock)
        self.boot_id = 0

    async def pending_totals(self) -> tuple[int, int]:
        """All money that is held, and all whose outcome is unknown, in nano-dollars. Raises StoreUnavailable.

        Each hold is booked in one window of the whole gateway, among others.
        """
        records = await self._store.read(
            """SELECT coalesce(sum(held_nanousd), 0), coalesce(sum(unresolved_nanousd), 0)
                FROM levels JOIN balances ON balances.level_id = levels.id WHERE scope = 'global'"""
        )
        held, unresolved = records[0]
        return held, unresolved

    # --- inside a transaction -----------------------------------------------------------------------------------

    async def _open_hold(
        self, transaction: Transaction, account: Account, amount: int, purpose: Purpose, *, earlier: bool = False
    ) -> Reservation:
        now_ms = self._clock.wall_ms()
        known = self._reached.balances(account.levels, now_ms)
        balances = known or await self._current_balances(transaction, account, now_ms)
        words = (purpose.request_id, *_words(purpose), self.boot_id, account.tenant, account.key_id)
        hold = await transaction.execute(_OPEN_HOLD, (*words, *balances, amount, now_ms))
        if not hold.rowcount:
            await self._refuse(transaction, balances, amount)
        return Reservation(hold.last_id, amount, purpose.request_id, earlier)

    async def _raise(
        self, transaction: Transaction, reservation: Reservation, extra: int, purpose: Purpose
    ) -> Reservation:
        """Hold `extra` more, in the windows that the hold was made in, for another call."""
        raised = await transaction.execute(_TOP_UP, (extra, *_words(purpose), reservation.id))
        if not raised.rowcount:
            found = await transaction.execute(_BALANCES, (reservation.id,))
            if not found.records:
                raise AlreadyResolved(reservation.id)
            await self._refuse(transaction, found.records[0], extra)
        return replace(reservation, amount_nanousd=reservation.amount_nanousd + extra)

    async def _dedicate(self, transaction: Transaction, hold_id: int, purpose: Purpose) -> None:
        """Let an open hold stand for another call."""
        await transaction.execute(_CARRY, (*_words(purpose), hold_id))

    async def _money_of(self, transaction: Transaction, request_id: str) -> Money:
        """What all holds of a request have become, whoever decided it."""
        found = await transaction.execute(_MONEY_OF_REQUEST, (request_id,))
        state, cost, overage = found.records[0]
        return Money(MoneyState(state), cost, overage)

    async def _close(
        self, transaction: Transaction, hold_id: int, state: MoneyState, cost: int, by: By, at_ms: int
    ) -> int | None:
        """Take a hold from open or unresolved to `state` and return its overage: nearly always there is none.

        None if somebody else has decided about it before; nothing was changed then.
        """
        words = (str(state), cost, at_ms, str(by), cost, hold_id)
        if (await transaction.execute(_CLOSE_WITHIN, words)).rowcount:
            return 0
        closed = await transaction.execute(_CLOSE, words)
        return int(closed.records[0][0]) if closed.records else None

    async def _part(
        self, transaction: Transaction, hold_id: int, why: str, at_ms: int, at_most_nanousd: int | None = None
    ) -> int:
        """Take a hold from open to unresolved, with no more than it can come to; 0 if it was not open."""
        at_most = MAX_NANOUSD if at_most_nanousd is None else at_most_nanousd
        return (await transaction.execute(_PART, (at_most, at_ms, why, hold_id))).rowcount

    async def _note_open(self, transaction: Transaction, boot_id: int) -> None:
        """Note below which id no hold is open, so that those that are open are found among the later ones alone."""
        await transaction.execute(_NONE_OPEN_BELOW, (boot_id,))

    async def _apply_policy(self, transaction: Transaction, policy: Policy, before_ms: int, now_ms: int) -> int:
        """Decide about the holds that have been unresolved since `before_ms`; how many those were."""
        old = await transaction.execute(
            "SELECT id, amount_nanousd FROM holds WHERE state = 'unresolved' AND unresolved_ms <= ?", (before_ms,)
        )
        for hold_id, amount in old.records:
            spent = policy is Policy.ASSUME_SPENT
            state = MoneyState.SETTLED if spent else MoneyState.VOID
            await self._close(transaction, hold_id, state, amount if spent else 0, By.POLICY, now_ms)
        return len(old.records)

    async def _resolve_orphans(
        self, transaction: Transaction, boot_id: int, on_crash: OnCrash | None, now_ms: int
    ) -> int:
        """Resolve every open hold (their process is dead: we hold its lock) and give each dead request its row, also
        those whose hold had been given up before; returns how many holds were decided about.

        on_crash  None leaves the decision to the next life that has one: until then they are unresolved
        """
        dead = (await transaction.execute(_ROWLESS)).records
        orphans = (await transaction.execute(_OPEN_HOLDS)).records
        if on_crash is not None:
            orphans = [*orphans, *(await transaction.execute(_UNDECIDED_HOLDS, (_UNDECIDED,))).records]
        for (hold_id,) in orphans:
            if on_crash is None:
                await self._part(transaction, hold_id, _UNDECIDED, now_ms)
            elif on_crash is OnCrash.VOID:
                await self._close(transaction, hold_id, MoneyState.VOID, 0, By.RECOVERY, now_ms)
            elif not await self._part(transaction, hold_id, _CRASH, now_ms):
                await transaction.execute(_DECIDED, (_CRASH, hold_id))
        for request_id, *facts in dead:
            money = await self._money_of(transaction, request_id)
            await rows.append(transaction, _row_of_the_dead(request_id, facts, now_ms), money)
        return len(orphans)


def _words(purpose: Purpose) -> tuple[int, str, str, str]:
    """What of a purpose changes from call to call, in the order of the statements."""
    return (purpose.attempt, purpose.alias, purpose.deployment, purpose.price_version)


def _row_of_the_dead(request_id: str, hold: Sequence[Any], now_ms: int) -> RequestRow:
    """The row of a request that died with its process, as far as its last hold knows it."""
    attempt, boot_id, opened_ms, tenant, key_id, alias, deployment, price_version = hold
    return RequestRow(
        request_id=request_id,
        boot_id=boot_id,
        started_ms=opened_ms,
        ended_ms=now_ms,
        tenant=tenant,
        key_id=key_id,
        alias=alias,
        stream=False,
        exit=Exit.FAILED,
        status=500,
        code="process_died",
        deployment=deployment,
        attempts=attempt,
        price_version=price_version,
        duration_ms=max(now_ms - opened_ms, 0),
    )
