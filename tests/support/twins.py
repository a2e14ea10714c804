"""Ledgers, and a settlement, that are wrong on purpose, each by one mistake that real products shipped.

Every check of the money is run against the twins it is meant for and must fail: a check that no twin fails proves
nothing. A twin overrides as little as possible, keeps its books in order where its mistake allows it, and carries the
letter by which the test plan knows it.
"""

import copy
import re
from collections.abc import Sequence
from typing import Any

from gateway.errors import BudgetExceeded
from gateway.evidence import Evidence
from gateway.holds import _CLOSE, By, Purpose, Reservation
from gateway.ledger import Ledger
from gateway.levels import Account
from gateway.rows import MoneyState, RequestRow
from gateway.settlement import Settlement, _Held
from gateway.store import Record, Transaction
from llmkit.prices import PriceEntry

_UNGUARDED = _CLOSE.replace("AND (state = 'open' OR state = 'unresolved')", "")
_PENDING = ("open", "unresolved")
_CURRENT = "(SELECT balance_id FROM levels WHERE id = (SELECT level_id FROM balances WHERE balances.id = {}))"
_CARRY = "UPDATE holds SET " + ", ".join(
    f"{name} = {_CURRENT.format(name)}" for name in ("key_balance", "tenant_balance", "global_balance")
)


async def _hold(transaction: Transaction, hold_id: int) -> Record:
    """State, amount, cost and the three balances of a hold."""
    found = await transaction.execute(
        """SELECT state, amount_nanousd, cost_nanousd, key_balance, tenant_balance, global_balance
            FROM holds WHERE id = ?""",
        (hold_id,),
    )
    return found.records[0]


async def _add(transaction: Transaction, column: str, amount: int, balances: Sequence[int]) -> None:
    await transaction.execute(f"UPDATE balances SET {column} = {column} + ? WHERE id IN (?, ?, ?)", (amount, *balances))


async def _weaken(transaction: Transaction, trigger: str, guard: str) -> None:
    """Take out of a trigger what matches `guard`."""
    found = await transaction.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (trigger,))
    [(sql,)] = found.records
    if (weakened := re.sub(guard, "", sql)) != sql:
        await transaction.execute(f"DROP TRIGGER {trigger}")
        await transaction.execute(weakened)


async def _close_unguarded(
    transaction: Transaction, hold_id: int, state: MoneyState, cost: int, by: By, at_ms: int
) -> int:
    """Close a hold whatever state it is in, in a schema that lets it."""
    await _weaken(transaction, "a_hold_moves_its_money", r"SELECT RAISE\(ABORT, 'a hold is resolved once'\)[^;]*;")
    closed = await transaction.execute(_UNGUARDED, (state, cost, at_ms, by, cost, hold_id))
    return int(closed.records[0][0])


class BooksBlindly(Ledger):
    """A ledger whose schema books a hold whether there is room or not, or does not book it."""

    books = True

    async def _open_hold(
        self, transaction: Transaction, account: Account, amount: int, purpose: Purpose, *, earlier: bool = False
    ) -> Reservation:
        if self.books:
            await _weaken(transaction, "a_hold_is_booked", r" AND NEW.amount_nanousd <=[^;]*|SELECT RAISE[^;]*;")
        else:
            await transaction.execute("DROP TRIGGER IF EXISTS a_hold_is_booked")
        return await super()._open_hold(transaction, account, amount, purpose, earlier=earlier)


class ReadsThenAdds(BooksBlindly):
    """Reads the balances, checks them in Python, then adds whatever has happened in between."""

    async def reserve(self, account: Account, amount_nanousd: int, purpose: Purpose) -> Reservation:
        await self._held(account, amount_nanousd)
        return await super().reserve(account, amount_nanousd, purpose)

    async def _held(self, account: Account, amount: int) -> dict[int, int]:
        """What is held in each balance, outside of any transaction."""
        records = await self._store.read(
            """SELECT balances.id, held_nanousd, spent_nanousd + held_nanousd + unresolved_nanousd, limit_nanousd
                FROM levels JOIN balances ON balances.id = levels.balance_id WHERE levels.id IN (?, ?, ?)""",
            account.levels,
        )
        for _, _, used, limit in records:
            if limit is not None and used + amount > limit:
                raise BudgetExceeded("no room")
        return {balance: held for balance, held, _, _ in records}


class ReadsThenSets(ReadsThenAdds):
    """Reads, checks, then writes what it computed from what it read."""

    books = False
    _seen: dict[int, int]

    async def reserve(self, account: Account, amount_nanousd: int, purpose: Purpose) -> Reservation:
        twin = copy.copy(self)
        twin._seen = await self._held(account, amount_nanousd)
        return await Ledger.reserve(twin, account, amount_nanousd, purpose)

    async def _open_hold(
        self, transaction: Transaction, account: Account, amount: int, purpose: Purpose, *, earlier: bool = False
    ) -> Reservation:
        reservation = await super()._open_hold(transaction, account, amount, purpose, earlier=earlier)
        _, _, _, *balances = await _hold(transaction, reservation.id)
        for balance in balances:
            held = self._seen.get(balance, 0) + amount
            await transaction.execute("UPDATE balances SET held_nanousd = ? WHERE id = ?", (held, balance))
        return reservation


class IgnoresRowCount(Ledger):
    """The right conditional insert, and nobody asks whether it made a hold."""

    async def _refuse(  # type: ignore[override]
        self, transaction: Transaction, balances: Sequence[int], amount: int
    ) -> None:
        """Nothing is wrong, is it?"""


class SettlesUnguarded(Ledger):
    """Closes a hold whatever its state is."""

    async def _close(
        self, transaction: Transaction, hold_id: int, state: MoneyState, cost: int, by: By, at_ms: int
    ) -> int | None:
        return await _close_unguarded(transaction, hold_id, state, cost, by, at_ms)


class GuardsOutside(Ledger):
    """Looks at the hold's state before its transaction, and trusts it inside."""

    _seen: str | None = None

    async def settle(self, reservation: Reservation, cost_nanousd: int, row: RequestRow | None = None) -> None:
        twin = copy.copy(self)
        [(twin._seen,)] = await self._store.read("SELECT state FROM holds WHERE id = ?", (reservation.id,))
        await Ledger.settle(twin, reservation, cost_nanousd, row)

    async def _close(
        self, transaction: Transaction, hold_id: int, state: MoneyState, cost: int, by: By, at_ms: int
    ) -> int | None:
        if self._seen is None:
            return await super()._close(transaction, hold_id, state, cost, by, at_ms)
        if self._seen not in _PENDING:
            return None
        return await _close_unguarded(transaction, hold_id, state, cost, by, at_ms)


class LeavesTheHold(Ledger):
    """A settlement books the cost and forgets to give the hold back."""

    async def _close(
        self, transaction: Transaction, hold_id: int, state: MoneyState, cost: int, by: By, at_ms: int
    ) -> int | None:
        overage = await super()._close(transaction, hold_id, state, cost, by, at_ms)
        if overage is None:
            return None
        _, amount, _, *balances = await _hold(transaction, hold_id)
        await _add(transaction, "held_nanousd", amount, balances)
        return overage


class BooksInTwoTransactions(BooksBlindly):
    """Raises the balances in one transaction and writes the hold in the next."""

    books = False

    async def reserve(self, account: Account, amount_nanousd: int, purpose: Purpose) -> Reservation:
        async def work(transaction: Transaction) -> None:
            balances = await self._current_balances(transaction, account, self._clock.wall_ms())
            for balance in balances:
                room = await transaction.execute("SELECT nanousd FROM room WHERE id = ?", (balance,))
                if room.records[0][0] < amount_nanousd:
                    await self._refuse(transaction, balances, amount_nanousd)
            await _add(transaction, "held_nanousd", amount_nanousd, balances)

        await self._store.transact(work)
        return await super().reserve(account, amount_nanousd, purpose)


class ReleasesTheSettled(Ledger):
    """Voiding a settled hold pays its cost back."""

    async def _close(
        self, transaction: Transaction, hold_id: int, state: MoneyState, cost: int, by: By, at_ms: int
    ) -> int | None:
        overage = await super()._close(transaction, hold_id, state, cost, by, at_ms)
        if overage is None and state is MoneyState.VOID:
            _, _, spent, *balances = await _hold(transaction, hold_id)
            await _add(transaction, "spent_nanousd", -spent, balances)
            return 0 if spent else None
        return overage


class ClampsToTheHold(Ledger):
    """Never books more than was held, whatever the provider bills."""

    async def settle(self, reservation: Reservation, cost_nanousd: int, row: RequestRow | None = None) -> None:
        await super().settle(reservation, min(cost_nanousd, reservation.amount_nanousd), row)


class DropsLateSettlements(Ledger):
    """An answer that comes after its hold was given up is not booked."""

    async def _close(
        self, transaction: Transaction, hold_id: int, state: MoneyState, cost: int, by: By, at_ms: int
    ) -> int | None:
        found, *_ = await _hold(transaction, hold_id)
        if by is By.REQUEST and found == "unresolved":
            return None
        return await super()._close(transaction, hold_id, state, cost, by, at_ms)


class ForgetsTheGivenUp(Ledger):
    """Giving up on a hold returns its amount instead of leaving it unresolved."""

    async def _part(
        self, transaction: Transaction, hold_id: int, why: str, at_ms: int, at_most_nanousd: int | None = None
    ) -> int:
        parted = await super()._part(transaction, hold_id, why, at_ms, at_most_nanousd)
        _, amount, _, *balances = await _hold(transaction, hold_id)
        await _add(transaction, "unresolved_nanousd", -amount * parted, balances)
        return parted


class KeepsWhatCannotBeBilled(Ledger):
    """Giving up on a hold leaves all of it unresolved in the balances, and the call's own bound in the hold."""

    async def _part(
        self, transaction: Transaction, hold_id: int, why: str, at_ms: int, at_most_nanousd: int | None = None
    ) -> int:
        _, held, *_ = await _hold(transaction, hold_id)
        parted = await super()._part(transaction, hold_id, why, at_ms, at_most_nanousd)
        _, left, _, *balances = await _hold(transaction, hold_id)
        await _add(transaction, "unresolved_nanousd", (held - left) * parted, balances)
        return parted


class ClearsHeldAtReset(Ledger):
    """A window that begins sets what the last one still holds to nothing."""

    async def _current_balance(self, transaction: Transaction, level: int, current: Record, now_ms: int) -> int:
        balance = await super()._current_balance(transaction, level, current, now_ms)
        if balance != current[2]:
            await transaction.execute("UPDATE balances SET held_nanousd = 0 WHERE id = ?", (current[2],))
        return balance


class ChargesTheCurrentWindow(Ledger):
    """A charge goes to the window in which it is settled. The books of this twin balance."""

    async def _close(
        self, transaction: Transaction, hold_id: int, state: MoneyState, cost: int, by: By, at_ms: int
    ) -> int | None:
        found, amount, _, *former = await _hold(transaction, hold_id)
        if found in _PENDING:
            column = "held_nanousd" if found == "open" else "unresolved_nanousd"
            await transaction.execute("DROP TRIGGER IF EXISTS a_hold_stays_where_it_is")
            await transaction.execute(f"{_CARRY} WHERE id = ?", (hold_id,))
            _, _, _, *current = await _hold(transaction, hold_id)
            await _add(transaction, column, -amount, former)
            await _add(transaction, column, amount, current)
        return await super()._close(transaction, hold_id, state, cost, by, at_ms)


class OverlooksOpenHolds(Ledger):
    """Looks for open holds no further back than to the last hold that was made."""

    async def _note_open(self, transaction: Transaction, boot_id: int) -> None:
        last = "SELECT coalesce(max(id), 0) FROM holds"
        await transaction.execute(f"UPDATE boots SET no_open_below = ({last}) WHERE id = ?", (boot_id,))


class AdmitsNegativeAmounts(Ledger):
    """A negative amount makes room."""

    async def reserve(self, account: Account, amount_nanousd: int, purpose: Purpose) -> Reservation:
        reservation = await super().reserve(account, max(amount_nanousd, 0), purpose)

        async def work(transaction: Transaction) -> Any:
            _, _, _, *balances = await _hold(transaction, reservation.id)
            await transaction.execute(
                "UPDATE balances SET spent_nanousd = max(spent_nanousd + ?, 0) WHERE id IN (?, ?, ?)",
                (min(amount_nanousd, 0), *balances),
            )

        await self._store.transact(work)
        return reservation


class SharesOneHold(Settlement):
    """Whatever became of the last call, the next one goes on with its hold."""

    async def cover(
        self, purpose: Purpose, bound_nanousd: int, evidence: Evidence, price: PriceEntry, *, former: str = "unknown"
    ) -> None:
        if self._held is None:
            await super().cover(purpose, bound_nanousd, evidence, price, former=former)
        else:
            self.ledger.carry(self._held.reservation, purpose)
            self._held = _Held(self._held.reservation, purpose, evidence, price)
