"""The money: reserve before a call, then settle, void or leave unresolved; each step once, each call one transaction.

Which steps a hold can take, and where it is then, is told in holds.py; what a level may reach, in levels.py.

A request has one open hold at a time. Its next call takes the hold over (`carry`, `top_up`) if the last call is proven
to be unbilled; else `reserve_next` resolves that hold and books another in one transaction.

All amounts are nano-dollars. Every method is one transaction; `settle`, `void`, `leave_unresolved` and `record` never
fail for want of a disk: with durability `normal` they are queued, with `full` they are committed now or, if that is not
possible, queued until it is. Money that is merely queued still counts as held.

A ledger that was restored from a backup has forgotten what was spent since. It is in a new epoch, and makes no
reservation until an operator has confirmed that epoch.

The ledger does not know prices, providers or HTTP.
"""

import contextlib
from collections import deque
from typing import Final

from gateway import rows
from gateway.clock import Clock
from gateway.errors import LedgerUnconfirmed, StoreUnavailable
from gateway.holds import AlreadyResolved, By, Holds, OnCrash, Outcome, Policy, Purpose, Reservation
from gateway.levels import Account, check_amount, check_hold
from gateway.rows import Money, MoneyState, RequestRow
from gateway.store import Durability, Store, Transaction, Work


class NothingToConfirm(Exception):
    """No epoch of this number waits to be confirmed; the message says which one does. Nothing was changed."""

    def __init__(self, epoch: int, waiting: int | None) -> None:
        which = "no epoch does" if waiting is None else f"epoch {waiting} does, which confirms all before it"
        super().__init__(f"epoch {epoch} does not wait to be confirmed, {which}")


_RESTARTED = """SELECT stopped_ms IS NULL AND machine_boot <> ''
    AND machine_boot <> ? FROM boots ORDER BY id DESC LIMIT 1"""


ROWS_AT_ONCE: Final = 32
"""Rows in one statement: 29 values each, of the 32,766 that SQLite takes in one."""


class Ledger(Holds):
    """The book of one data directory, owned by one process (`boot_id`).

    `_opened` (when each hold of this life was made) is changed by single dict operations only, which are atomic, and
    `_rows` (those that wait to be written) by the atomic ends of a deque. Work forgets a hold as its last step, which
    may happen twice and does no harm; a hold whose work never ran stays there and is given up for its age. `boot_id`
    and `machine_restarted` are set once, by open().

    machine_restarted  the last life did not end cleanly, and the machine was restarted since: what was committed with
                       durability `normal` shortly before may be missing
    unconfirmed_epoch  the epoch that this ledger was restored into and that nobody has confirmed yet, or None
    """

    def __init__(self, store: Store, clock: Clock, *, durability: Durability = Durability.FULL) -> None:
        super().__init__(store, clock)
        self._durability = durability
        self._opened: dict[int, float] = {}
        self._rows: deque[RequestRow] = deque()
        self.machine_restarted = False
        self.unconfirmed_epoch: int | None = None

    # --- starting -----------------------------------------------------------------------------------------------

    async def open(self, *, pid: int, machine_boot: str, on_crash: OnCrash | None = OnCrash.UNRESOLVED) -> int:
        """Begin a new life of the process and resolve what the last ones left open; returns how many holds that were.

        on_crash  None for a life that serves nothing: what it finds is unresolved until one begins that decides
        Call once, before anything else.
        """
        started_ms = self._clock.wall_ms()

        async def work(transaction: Transaction) -> tuple[int, bool, int]:
            restarted = (await transaction.execute(_RESTARTED, (machine_boot,))).records
            boot = await transaction.execute(
                "INSERT INTO boots (started_ms, pid, machine_boot) VALUES (?, ?, ?)", (started_ms, pid, machine_boot)
            )
            orphans = await self._resolve_orphans(transaction, boot.last_id, on_crash, started_ms)
            await self._note_open(transaction, boot.last_id)
            return boot.last_id, restarted == [(1,)], orphans

        self.boot_id, self.machine_restarted, orphans = await self._store.transact(work)
        await self.look()
        return orphans

    async def look(self) -> None:
        """Learn what there is. Alone, it begins no life: for an owner that only reads, and cannot write now."""
        await self._load_levels()
        waiting = await self._store.read("SELECT max(number) FROM epochs WHERE confirmed_ms IS NULL")
        self.unconfirmed_epoch = waiting[0][0]

    async def close(self) -> None:
        """Mark a clean end of this life."""
        boot_id, stopped_ms = self.boot_id, self._clock.wall_ms()

        async def work(transaction: Transaction) -> None:
            await transaction.execute("UPDATE boots SET stopped_ms = ? WHERE id = ?", (stopped_ms, boot_id))

        await self._store.transact(work)

    async def confirm(self, epoch: int) -> None:
        """An operator has taken note of what the restores into `epoch` and before have forgotten: reservations are made
        from now on.

        Raises NothingToConfirm, StoreUnavailable.
        """
        if epoch != self.unconfirmed_epoch:
            raise NothingToConfirm(epoch, self.unconfirmed_epoch)
        at_ms = self._clock.wall_ms()

        async def work(transaction: Transaction) -> None:
            await transaction.execute("UPDATE epochs SET confirmed_ms = ? WHERE confirmed_ms IS NULL", (at_ms,))

        await self._store.transact(work)
        self.unconfirmed_epoch = None

    async def touch(self) -> None:
        """Write something that changes nothing, to learn whether writing works again. Raises StoreUnavailable.

        SQLite does not write a page that stays as it was, so one statement changes it and the next one back.
        """
        boot_id = self.boot_id

        async def work(transaction: Transaction) -> None:
            await transaction.execute("UPDATE boots SET stopped_ms = 0 WHERE id = ?", (boot_id,))
            await transaction.execute("UPDATE boots SET stopped_ms = NULL WHERE id = ?", (boot_id,))

        await self._store.transact(work)

    # --- the life of a hold -------------------------------------------------------------------------------------

    async def reserve(self, account: Account, amount_nanousd: int, purpose: Purpose) -> Reservation:
        """Hold money for one upstream call before it is made.

        amount_nanousd  upper bound of the call's cost, >= 0.
        Returns a reservation; settle, void or leave it unresolved exactly once.
        Raises BudgetExceeded (402) if spent and unresolved money leave no room at some level, BudgetReserved (429) if
        only other requests' holds are in the way, LedgerUnconfirmed, StoreUnavailable; nothing is booked then.
        """
        check_hold(amount_nanousd)
        if self.unconfirmed_epoch is not None:
            raise LedgerUnconfirmed
        if self._reached.balances(account.levels, self._clock.wall_ms()) is None:
            await self._learn_windows(account)
        reservation = await self._store.transact(
            lambda transaction: self._open_hold(transaction, account, amount_nanousd, purpose)
        )
        self._opened[reservation.id] = self._clock.now_s()
        return reservation

    async def reserve_next(
        self, former: Reservation, outcome: Outcome, account: Account, amount_nanousd: int, purpose: Purpose
    ) -> Reservation:
        """Resolve the hold of a call that may have been billed, and hold money for the next call of its request.

        One transaction, so that a request in flight has one open hold at any moment. Raises as reserve() does, after
        counting the outcome; the former hold is open still, and nothing was booked.
        """
        check_hold(amount_nanousd)
        check_amount(outcome.cost_nanousd or 0)
        at_ms = self._clock.wall_ms()
        if self._reached.balances(account.levels, at_ms) is None:
            await self._learn_windows(account)

        async def work(transaction: Transaction) -> Reservation:
            if outcome.cost_nanousd is None:
                await self._part(transaction, former.id, outcome.why, at_ms, outcome.at_most_nanousd)
            else:
                await self._close(transaction, former.id, MoneyState.SETTLED, outcome.cost_nanousd, By.REQUEST, at_ms)
            return await self._open_hold(transaction, account, amount_nanousd, purpose, earlier=True)

        reservation = await self._store.transact(work)
        self._opened.pop(former.id, None)
        self._opened[reservation.id] = self._clock.now_s()
        return reservation

    async def top_up(self, reservation: Reservation, extra_nanousd: int, purpose: Purpose) -> Reservation:
        """Raise an open hold by `extra_nanousd` >= 0 in the windows it was made in, for another call of its request.

        Returns the larger reservation. Raises AlreadyResolved; BudgetExceeded or BudgetReserved as reserve() does, but
        not for an extra of 0. Nothing is booked then.
        """
        check_amount(extra_nanousd)
        check_hold(reservation.amount_nanousd + extra_nanousd)

        async def work(transaction: Transaction) -> Reservation:
            return await self._raise(transaction, reservation, extra_nanousd, purpose)

        return await self._store.transact(work)

    def carry(self, reservation: Reservation, purpose: Purpose) -> None:
        """The hold stands for another call now, the last one being unbilled. Queued: it moves no money.

        Raises AlreadyResolved if the hold was given up meanwhile: no money would stand behind the call.
        """
        if reservation.id not in self._opened:
            raise AlreadyResolved(reservation.id)

        async def work(transaction: Transaction) -> None:
            await self._dedicate(transaction, reservation.id, purpose)

        self._store.enqueue(work, vital=False)

    async def settle(self, reservation: Reservation, cost_nanousd: int, row: RequestRow | None = None) -> None:
        """Replace the hold by what the call cost, and append the request's row in the same transaction.

        cost_nanousd  the actual cost, >= 0; above the hold it is booked whole and marked as overage.
        A hold that was already given up as unresolved is settled late, once. One that an admin resolved meanwhile
        keeps the admin's word; the row is appended all the same.
        """
        check_amount(cost_nanousd)
        await self._finish(self._resolution(reservation, MoneyState.SETTLED, cost_nanousd, row))

    async def void(self, reservation: Reservation, row: RequestRow | None = None) -> None:
        """Give the hold back: the call was proven to be unbilled."""
        await self._finish(self._resolution(reservation, MoneyState.VOID, 0, row))

    async def leave_unresolved(
        self,
        reservation: Reservation,
        why: str,
        row: RequestRow | None = None,
        *,
        at_most_nanousd: int | None = None,
    ) -> None:
        """The outcome of the call is unknown: its hold goes on counting against every limit until it is resolved.

        at_most_nanousd  the most that this call can have cost, where more is held for dearer ones; the rest comes back
        """
        at_ms = self._clock.wall_ms()

        async def work(transaction: Transaction) -> None:
            parted = await self._part(transaction, reservation.id, why, at_ms, at_most_nanousd)
            if row is not None:
                money = Money(MoneyState.UNRESOLVED)
                if reservation.earlier or not parted:
                    money = await self._money_of(transaction, reservation.request_id)
                await rows.append(transaction, row, money)
            self._opened.pop(reservation.id, None)

        await self._finish(work)

    def record(self, row: RequestRow) -> None:
        """Append the row of a request that moved no money. Queued: a crash, or a disk that stays full, may lose it.

        The first of the rows that wait for a commit takes others along: a loop that is refused makes thousands a
        second, and other requests' commits carry them. Where they are refused together, each is tried alone.
        """
        self._rows.append(row)
        taken: list[RequestRow] = []

        async def work(transaction: Transaction) -> None:
            with contextlib.suppress(IndexError):
                while len(taken) < ROWS_AT_ONCE:
                    taken.append(self._rows.popleft())
            if taken:
                await self._append_together(transaction, taken)

        if not self._store.enqueue(work, vital=False):
            with contextlib.suppress(IndexError):
                self._rows.pop()

    async def _append_together(self, transaction: Transaction, taken: list[RequestRow]) -> None:
        """Insert the rows. Where several are refused, each is queued alone, in their order, and `taken` is empty."""
        try:
            await rows.append_all(transaction, taken)
        except Exception:
            if len(taken) > 1:
                for row in taken:
                    self._store.enqueue(_alone(row))
                taken.clear()
            raise

    # --- what time and operators decide -------------------------------------------------------------------------

    async def resolve_by_admin(self, hold_id: int, cost_nanousd: int | None) -> None:
        """Settle an open or unresolved hold at `cost_nanousd`, or void it (None). Raises AlreadyResolved."""
        state = MoneyState.VOID if cost_nanousd is None else MoneyState.SETTLED
        cost = cost_nanousd or 0
        check_amount(cost)
        at_ms = self._clock.wall_ms()

        async def work(transaction: Transaction) -> None:
            if await self._close(transaction, hold_id, state, cost, By.ADMIN, at_ms) is None:
                raise AlreadyResolved(hold_id)

        await self._store.transact(work)
        self._opened.pop(hold_id, None)

    async def sweep(self, *, hold_ttl_s: float, unresolved_after_s: float, policy: Policy) -> int:
        """Give up holds older than `hold_ttl_s` of this process, and apply `policy` to money that has been unresolved
        for `unresolved_after_s`. Returns how many holds changed state.
        """
        now_s, now_ms = self._clock.now_s(), self._clock.wall_ms()
        stale = [hold for hold, opened_s in list(self._opened.items()) if now_s - opened_s > hold_ttl_s]
        before_ms = now_ms - round(unresolved_after_s * 1000)

        async def work(transaction: Transaction) -> int:
            changed = 0
            for hold in stale:
                changed += await self._part(transaction, hold, "ttl", now_ms)
            await self._note_open(transaction, self.boot_id)
            return changed + await self._apply_policy(transaction, policy, before_ms, now_ms)

        changed = await self._store.transact(work)
        for hold in stale:
            self._opened.pop(hold, None)
        return changed

    def _resolution(self, reservation: Reservation, state: MoneyState, cost: int, row: RequestRow | None) -> Work[None]:
        at_ms = self._clock.wall_ms()

        async def work(transaction: Transaction) -> None:
            overage = await self._close(transaction, reservation.id, state, cost, By.REQUEST, at_ms)
            if row is not None:
                if overage is None or reservation.earlier:
                    money = await self._money_of(transaction, reservation.request_id)
                else:
                    money = Money(state, cost, overage)
                await rows.append(transaction, row, money, once=overage is None)
            self._opened.pop(reservation.id, None)

        return work

    async def _finish(self, work: Work[None]) -> None:
        """Commit `work` now (`full`) or soon (`normal`); if now fails, keep trying from memory."""
        if self._durability is Durability.NORMAL:
            self._store.enqueue(work)
        else:
            try:
                await self._store.transact(work)
            except StoreUnavailable:
                self._store.enqueue(work)


def _alone(row: RequestRow) -> Work[object]:
    async def work(transaction: Transaction) -> None:
        await rows.append(transaction, row, Money())

    return work
