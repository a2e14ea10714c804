"""The money: reserve before a call, then settle, void or leave unresolved; each step once.

    open ──settle──> settled        unresolved ──late answer, admin, policy──> settled
      ├──void──────> void                └───────admin, policy───────────────> void
      └──timeout, crash, TTL──> unresolved

Three levels (key, tenant, global) each have a running balance per window: spent, held, unresolved. A reservation is one
conditional update over the three balances whose row count must be three, so `spent + held + unresolved + amount <=
limit` holds at every level or nothing is booked. A charge belongs to the windows of its reservation, however late it is
settled. What is billed above the hold is booked whole and marked as overage.

A request has one open hold at a time. Its next call takes the hold over (`carry`, `top_up`) if the last call is proven
to be unbilled; else `reserve_next` resolves that hold and books another in one transaction.

All amounts are nano-dollars. Every method is one transaction; `settle`, `void`, `leave_unresolved` and `record` never
fail for want of a disk: with durability `normal` they are queued, with `full` they are committed now or, if that is not
possible, queued until it is. Money that is merely queued still counts as held.

A ledger that was restored from a backup has forgotten what was spent since. It is in a new epoch, and makes no
reservation until an operator has confirmed that epoch.

The ledger does not know prices, providers or HTTP.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NoReturn

from gateway import rows
from gateway.clock import Clock
from gateway.errors import BudgetExceeded, BudgetReserved, LedgerUnconfirmed, StoreUnavailable
from gateway.migrations import MAX_NANOUSD
from gateway.reached import Reached, ReachedWindows
from gateway.rows import Exit, Money, MoneyState, RequestRow
from gateway.store import Durability, Record, Store, Transaction, Work
from gateway.types import Window
from gateway.windows import window_end_text, window_number
from llmkit.money import format_usd


class Scope(StrEnum):
    """What a level limits. The values are the table's."""

    KEY = "key"
    TENANT = "tenant"
    GLOBAL = "global"


class Policy(StrEnum):
    """What becomes of money whose outcome nobody will tell us any more."""

    ASSUME_SPENT = "assume_spent"
    VOID = "void"


class OnCrash(StrEnum):
    """What becomes of the open holds of a dead process."""

    UNRESOLVED = "unresolved"
    VOID = "void"


class By(StrEnum):
    """Who resolved a hold."""

    REQUEST = "request"
    RECOVERY = "recovery"
    POLICY = "policy"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Account:
    """Whose money: the three levels that a request of this key is charged to, key first."""

    tenant: str
    key_id: str
    levels: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a hold is for; kept with it so that a dead request can still be told from its hold."""

    request_id: str
    attempt: int
    alias: str
    deployment: str
    price_version: str


@dataclass(frozen=True, slots=True)
class Reservation:
    """A hold that waits for its outcome; `earlier` says that its request had others before."""

    id: int
    amount_nanousd: int
    request_id: str
    earlier: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a call that may have been billed: what it cost; or None, why nobody knows it, and the most that it
    can be (None: all that is held).
    """

    cost_nanousd: int | None
    why: str = ""
    at_most_nanousd: int | None = None


@dataclass(frozen=True, slots=True)
class LevelLimit:
    """What a level may reach per window of its kind; None is no limit."""

    scope: Scope
    name: str
    window: Window
    limit_nanousd: int | None


@dataclass(frozen=True, slots=True)
class LevelState:
    """One level in its current window."""

    limit_nanousd: int | None
    window: Window
    spent_nanousd: int = 0
    held_nanousd: int = 0
    unresolved_nanousd: int = 0
    overage_nanousd: int = 0


@dataclass(frozen=True, slots=True)
class NamedLevel:
    """Which level it is, how it stands, and when its window ends (UTC, ISO 8601); None for one that never ends."""

    scope: Scope
    name: str
    state: LevelState
    resets_at: str | None


class AlreadyResolved(Exception):
    """The hold is not there, or not in a state from which this step leads on. Nothing was changed."""


class NothingToConfirm(Exception):
    """No epoch of this number waits to be confirmed. Nothing was changed."""


class LedgerBroken(RuntimeError):
    """A balance does not match its holds: a programmer's error. The transaction was rolled back."""


_BOOK = """UPDATE balances SET held_nanousd = held_nanousd + ?1
    WHERE id IN (?2, ?3, ?4) AND NOT EXISTS (
        SELECT 1 FROM balances AS full JOIN levels ON levels.id = full.level_id WHERE full.id IN (?2, ?3, ?4)
            AND full.spent_nanousd + full.held_nanousd + full.unresolved_nanousd + ?1 > levels.limit_nanousd)"""
"""All three or none, so that a refusal has changed nothing: a question that names no row of the update is asked once,
before the first of them is changed."""
_WINDOWS = "SELECT id, window_kind, window_number, balance_id FROM levels WHERE id IN (?, ?, ?)"
_OPEN_HOLD = """INSERT INTO holds (request_id, attempt, alias, deployment, price_version, boot_id, tenant, key_id,
        key_balance, tenant_balance, global_balance, amount_nanousd, state, opened_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', ?)"""
_PURPOSE = "attempt = ?, alias = ?, deployment = ?, price_version = ?"
_TOP_UP = f"""UPDATE holds SET amount_nanousd = amount_nanousd + ?, {_PURPOSE} WHERE id = ? AND state = 'open'
    RETURNING key_balance, tenant_balance, global_balance"""  # noqa: S608 - constants only
_CARRY = f"UPDATE holds SET {_PURPOSE} WHERE id = ? AND state = 'open'"  # noqa: S608 - constants only
_CLOSE = """UPDATE holds SET state = ?1, cost_nanousd = ?2, overage_nanousd = max(?2 - amount_nanousd, 0),
        resolved_ms = ?3, resolved_by = ?4
    WHERE id = ?5 AND state = ?6
    RETURNING amount_nanousd, overage_nanousd, key_balance, tenant_balance, global_balance"""
_HELD = """SELECT amount_nanousd, key_balance, tenant_balance, global_balance FROM holds
    WHERE id = ? AND state = 'open'"""
_PART = """UPDATE holds SET state = 'unresolved', amount_nanousd = ?, unresolved_ms = ?, unresolved_why = ?
    WHERE id = ? AND state = 'open'"""
_MOVE_OUT = {
    "open": """UPDATE balances SET held_nanousd = held_nanousd - ?1, spent_nanousd = spent_nanousd + ?2,
        overage_nanousd = overage_nanousd + ?3 WHERE id IN (?4, ?5, ?6)""",
    "unresolved": """UPDATE balances SET unresolved_nanousd = unresolved_nanousd - ?1,
        spent_nanousd = spent_nanousd + ?2, overage_nanousd = overage_nanousd + ?3 WHERE id IN (?4, ?5, ?6)""",
}
_MOVE_TO_UNRESOLVED = """UPDATE balances SET held_nanousd = held_nanousd - ?1,
    unresolved_nanousd = unresolved_nanousd + ?2 WHERE id IN (?3, ?4, ?5)"""

_RESTARTED = """SELECT stopped_ms IS NULL AND machine_boot <> ''
    AND machine_boot <> ? FROM boots ORDER BY id DESC LIMIT 1"""
_OPEN_HOLDS = "SELECT id FROM holds WHERE state = 'open' ORDER BY id"
_ROWLESS = """SELECT request_id, attempt, boot_id, opened_ms, tenant, key_id, alias, deployment, price_version
    FROM holds WHERE id IN (
        SELECT max(id) FROM holds AS pending WHERE state IN ('open', 'unresolved')
            AND NOT EXISTS (SELECT 1 FROM requests WHERE requests.request_id = pending.request_id)
        GROUP BY request_id)
    ORDER BY id"""
"""The last hold of each request that died before its row was written: it had one that was open, or given up."""

_LEVELS = """SELECT scope, name, limit_nanousd, window_kind, levels.window_number, coalesce(spent_nanousd, 0),
        coalesce(held_nanousd, 0), coalesce(unresolved_nanousd, 0), coalesce(overage_nanousd, 0)
    FROM levels LEFT JOIN balances ON balances.id = levels.balance_id
    WHERE active = 1"""

_MONEY_OF_REQUEST = """SELECT CASE WHEN sum(state = 'unresolved') > 0 THEN 'unresolved'
        WHEN sum(state = 'settled') > 0 THEN 'settled' ELSE 'void' END, sum(cost_nanousd), sum(overage_nanousd)
    FROM holds WHERE request_id = ?"""


class Ledger:
    """The book of one data directory, owned by one process (`boot_id`).

    `_levels` and `_opened` (when each hold of this life was made) are changed by single dict operations only, which are
    atomic. Work forgets a hold as its last step, which may happen twice and does no harm; a hold whose work never ran
    stays there and is given up for its age. `boot_id` and `machine_restarted` are set once, by open().

    machine_restarted  the last life did not end cleanly, and the machine was restarted since: what was committed with
                       durability `normal` shortly before may be missing
    unconfirmed_epoch  the epoch that this ledger was restored into and that nobody has confirmed yet, or None
    """

    def __init__(self, store: Store, clock: Clock, *, durability: Durability = Durability.FULL) -> None:
        self._store = store
        self._clock = clock
        self._durability = durability
        self._levels: dict[tuple[Scope, str], int] = {}
        self._opened: dict[int, float] = {}
        self._reached = ReachedWindows()
        self.boot_id = 0
        self.machine_restarted = False
        self.unconfirmed_epoch: int | None = None

    # --- starting -----------------------------------------------------------------------------------------------

    async def open(self, *, pid: int, machine_boot: str, on_crash: OnCrash = OnCrash.UNRESOLVED) -> int:
        """Begin a new life of the process and resolve what the last ones left open; returns how many holds that were.

        Call once, before anything else.
        """
        started_ms = self._clock.wall_ms()

        async def work(transaction: Transaction) -> tuple[int, bool, int]:
            restarted = (await transaction.execute(_RESTARTED, (machine_boot,))).records
            boot = await transaction.execute(
                "INSERT INTO boots (started_ms, pid, machine_boot) VALUES (?, ?, ?)", (started_ms, pid, machine_boot)
            )
            orphans = await self._resolve_orphans(transaction, boot.last_id, on_crash, started_ms)
            return boot.last_id, restarted == [(1,)], orphans

        self.boot_id, self.machine_restarted, orphans = await self._store.transact(work)
        for scope, name, level in await self._store.read("SELECT scope, name, id FROM levels WHERE active = 1"):
            self._levels[Scope(scope), name] = level
        waiting = await self._store.read("SELECT max(number) FROM epochs WHERE confirmed_ms IS NULL")
        self.unconfirmed_epoch = waiting[0][0]
        return orphans

    async def close(self) -> None:
        """Mark a clean end of this life."""
        boot_id, stopped_ms = self.boot_id, self._clock.wall_ms()

        async def work(transaction: Transaction) -> None:
            await transaction.execute("UPDATE boots SET stopped_ms = ? WHERE id = ?", (stopped_ms, boot_id))

        await self._store.transact(work)

    async def confirm(self, epoch: int) -> None:
        """An operator has taken note of what the restore into `epoch` has forgotten: reservations are made from now on.

        Raises NothingToConfirm, StoreUnavailable.
        """
        if epoch != self.unconfirmed_epoch:
            raise NothingToConfirm(epoch)
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

    async def set_level(self, scope: Scope, name: str, window: Window, limit_nanousd: int | None) -> None:
        """Create the level or change its limit; None is no limit. Balances are never touched.

        Another kind of window is another level with a balance of its own; the former one keeps its history.
        """
        await self.set_levels([LevelLimit(scope, name, window, limit_nanousd)])

    async def set_levels(self, limits: Sequence[LevelLimit]) -> None:
        """set_level for each of `limits`, all in one transaction or none."""
        for limit in limits:
            if limit.limit_nanousd is not None:
                _check_amount(limit.limit_nanousd)

        async def work(transaction: Transaction) -> list[int]:
            return [await self._set_level(transaction, limit) for limit in limits]

        ids = await self._store.transact(work)
        self._levels |= {(limit.scope, limit.name): level for limit, level in zip(limits, ids, strict=True)}

    async def _set_level(self, transaction: Transaction, limit: LevelLimit) -> int:
        key = (limit.scope, limit.name)
        await transaction.execute("UPDATE levels SET active = 0 WHERE scope = ? AND name = ?", key)
        level = await transaction.execute(
            """INSERT INTO levels (scope, name, window_kind, limit_nanousd) VALUES (?, ?, ?, ?)
                ON CONFLICT (scope, name, window_kind)
                DO UPDATE SET limit_nanousd = excluded.limit_nanousd, active = 1 RETURNING id""",
            (*key, limit.window, limit.limit_nanousd),
        )
        return int(level.records[0][0])

    def has_level(self, scope: Scope, name: str) -> bool:
        """Whether set_level was ever called for it."""
        return (scope, name) in self._levels

    def account(self, tenant: str, key_id: str) -> Account:
        """The levels that requests of this key are charged to. KeyError if one of them was never set."""
        return Account(
            tenant,
            key_id,
            (self._levels[Scope.KEY, key_id], self._levels[Scope.TENANT, tenant], self._levels[Scope.GLOBAL, ""]),
        )

    # --- the life of a hold -------------------------------------------------------------------------------------

    async def reserve(self, account: Account, amount_nanousd: int, purpose: Purpose) -> Reservation:
        """Hold money for one upstream call before it is made.

        amount_nanousd  upper bound of the call's cost, >= 0.
        Returns a reservation; settle, void or leave it unresolved exactly once.
        Raises BudgetExceeded (402) if spent and unresolved money leave no room at some level, BudgetReserved (429) if
        only other requests' holds are in the way, LedgerUnconfirmed, StoreUnavailable; nothing is booked then.
        """
        _check_hold(amount_nanousd)
        if self.unconfirmed_epoch is not None:
            raise LedgerUnconfirmed
        await self._learn_windows(account)

        async def work(transaction: Transaction) -> Reservation:
            return await self._open_hold(transaction, account, amount_nanousd, purpose)

        reservation = await self._store.transact(work)
        self._opened[reservation.id] = self._clock.now_s()
        return reservation

    async def reserve_next(
        self, former: Reservation, outcome: Outcome, account: Account, amount_nanousd: int, purpose: Purpose
    ) -> Reservation:
        """Resolve the hold of a call that may have been billed, and hold money for the next call of its request.

        One transaction, so that a request in flight has one open hold at any moment. Raises as reserve() does, after
        counting the outcome; the former hold is open still, and nothing was booked.
        """
        _check_hold(amount_nanousd)
        _check_amount(outcome.cost_nanousd or 0)
        at_ms = self._clock.wall_ms()
        await self._learn_windows(account)

        async def work(transaction: Transaction) -> Reservation:
            if outcome.cost_nanousd is None:
                await self._part(transaction, former.id, outcome.why, at_ms, outcome.at_most_nanousd)
            else:
                await self._close_once(transaction, former.id, MoneyState.SETTLED, outcome.cost_nanousd, at_ms)
            return await self._open_hold(transaction, account, amount_nanousd, purpose, earlier=True)

        reservation = await self._store.transact(work)
        self._opened.pop(former.id, None)
        self._opened[reservation.id] = self._clock.now_s()
        return reservation

    async def top_up(self, reservation: Reservation, extra_nanousd: int, purpose: Purpose) -> Reservation:
        """Raise an open hold by `extra_nanousd` >= 0 in the windows it was made in, for another call of its request.

        Returns the larger reservation. Raises BudgetExceeded or BudgetReserved as reserve() does, AlreadyResolved;
        nothing is booked then.
        """
        _check_amount(extra_nanousd)
        _check_hold(reservation.amount_nanousd + extra_nanousd)

        async def work(transaction: Transaction) -> None:
            raised = await transaction.execute(_TOP_UP, (extra_nanousd, *_words(purpose), reservation.id))
            if not raised.records:
                raise AlreadyResolved(reservation.id)
            await self._book(transaction, raised.records[0], extra_nanousd)

        await self._store.transact(work)
        return replace(reservation, amount_nanousd=reservation.amount_nanousd + extra_nanousd)

    def carry(self, reservation: Reservation, purpose: Purpose) -> None:
        """The hold stands for another call now, the last one being unbilled. Queued: it moves no money.

        Raises AlreadyResolved if the hold was given up meanwhile: no money would stand behind the call.
        """
        if reservation.id not in self._opened:
            raise AlreadyResolved(reservation.id)

        async def work(transaction: Transaction) -> None:
            await transaction.execute(_CARRY, (*_words(purpose), reservation.id))

        self._store.enqueue(work, vital=False)

    async def settle(self, reservation: Reservation, cost_nanousd: int, row: RequestRow | None = None) -> None:
        """Replace the hold by what the call cost, and append the request's row in the same transaction.

        cost_nanousd  the actual cost, >= 0; above the hold it is booked whole and marked as overage.
        A hold that was already given up as unresolved is settled late, once. One that an admin resolved meanwhile
        keeps the admin's word; the row is appended all the same.
        """
        _check_amount(cost_nanousd)
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
        """Append the row of a request that moved no money. Queued: a crash, or a disk that stays full, may lose it."""

        async def work(transaction: Transaction) -> None:
            await rows.append(transaction, row, Money())

        self._store.enqueue(work, vital=False)

    # --- what time and operators decide -------------------------------------------------------------------------

    async def resolve_by_admin(self, hold_id: int, cost_nanousd: int | None) -> None:
        """Settle an open or unresolved hold at `cost_nanousd`, or void it (None). Raises AlreadyResolved."""
        state = MoneyState.VOID if cost_nanousd is None else MoneyState.SETTLED
        cost = cost_nanousd or 0
        _check_amount(cost)
        at_ms = self._clock.wall_ms()

        async def work(transaction: Transaction) -> None:
            await self._close(transaction, hold_id, state, cost, By.ADMIN, at_ms)

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
            old = await transaction.execute(
                "SELECT id, amount_nanousd FROM holds WHERE state = 'unresolved' AND unresolved_ms <= ?", (before_ms,)
            )
            for hold_id, amount in old.records:
                spent = policy is Policy.ASSUME_SPENT
                state = MoneyState.SETTLED if spent else MoneyState.VOID
                await self._close(transaction, hold_id, state, amount if spent else 0, By.POLICY, now_ms)
            return changed + len(old.records)

        changed = await self._store.transact(work)
        for hold in stale:
            self._opened.pop(hold, None)
        return changed

    async def level(self, scope: Scope, name: str) -> LevelState | None:
        """The level's limit and its balance in the window that holds the present; None for an unknown level."""
        records = await self._store.read(f"{_LEVELS} AND scope = ? AND name = ?", (scope, name))
        return self._present(records[0]).state if records else None

    async def levels(self) -> list[NamedLevel]:
        """Every level as level() tells it: the gateway, then tenants, then keys, each by name."""
        records = await self._store.read(f"{_LEVELS} ORDER BY scope = 'key', scope = 'tenant', name")
        return [self._present(record) for record in records]

    def _present(self, record: Record) -> NamedLevel:
        """The level in the window that holds the present: nothing was booked yet in one that nobody has opened."""
        scope, name, limit_nanousd, kind, reached, *amounts = record
        window = Window(kind)
        number = window_number(window, self._clock.wall_ms())
        booked = amounts if number <= reached else ()
        state = LevelState(limit_nanousd, window, *booked)
        return NamedLevel(Scope(scope), name, state, window_end_text(window, max(number, reached)))

    async def pending_totals(self) -> tuple[int, int]:
        """All money that is held, and all whose outcome is unknown, in nano-dollars. Raises StoreUnavailable."""
        held_and_unresolved = await self._store.read(
            """SELECT coalesce(sum(amount_nanousd) FILTER (WHERE state = 'open'), 0),
                      coalesce(sum(amount_nanousd) FILTER (WHERE state = 'unresolved'), 0)
                FROM holds WHERE state IN ('open', 'unresolved')"""
        )
        held, unresolved = held_and_unresolved[0]
        return held, unresolved

    # --- inside a transaction -----------------------------------------------------------------------------------

    async def _current_balances(self, transaction: Transaction, account: Account, now_ms: int) -> list[int]:
        """Ids of the three balances of the present windows, opening windows that begin now.

        A window number is only ever raised: a clock that is set back goes on in the window that was reached.
        """
        if (known := self._reached.balances(account.levels, now_ms)) is not None:
            return known
        levels = await transaction.execute(_WINDOWS, account.levels)
        found = {level: (kind, number, balance) for level, kind, number, balance in levels.records}
        return [await self._current_balance(transaction, level, found[level], now_ms) for level in account.levels]

    async def _current_balance(self, transaction: Transaction, level: int, current: Record, now_ms: int) -> int:
        kind, reached, balance = current
        number = window_number(Window(kind), now_ms)
        if number <= reached:
            return int(balance)
        self._reached.opens(level, number)
        opened = await transaction.execute(
            "INSERT INTO balances (level_id, window_number) VALUES (?, ?)", (level, number)
        )
        await transaction.execute(
            "UPDATE levels SET window_number = ?, balance_id = ? WHERE id = ?", (number, opened.last_id, level)
        )
        return opened.last_id

    async def _learn_windows(self, account: Account) -> None:
        """See that the windows which its levels have reached are known, unless the present ones are still to open."""
        if self._reached.balances(account.levels, self._clock.wall_ms()) is None:
            records = await self._store.read(_WINDOWS, account.levels)
            self._reached.learn(
                (level, Reached(Window(kind), number, balance)) for level, kind, number, balance in records
            )

    async def _book(self, transaction: Transaction, balances: Sequence[int], amount: int) -> None:
        """Hold `amount` at every level, or refuse it."""
        booked = await transaction.execute(_BOOK, (amount, *balances))
        if booked.rowcount != len(balances):
            await self._refuse(transaction, balances, amount)

    async def _refuse(self, transaction: Transaction, balances: Sequence[int], amount: int) -> NoReturn:
        """Say which level has no room, the narrowest first, and whether waiting for other requests could help."""
        levels = await transaction.execute(
            """SELECT scope, window_kind, balances.window_number, limit_nanousd, spent_nanousd + unresolved_nanousd,
                    held_nanousd
                FROM balances JOIN levels ON levels.id = balances.level_id
                WHERE balances.id IN (?1, ?2, ?3) AND limit_nanousd IS NOT NULL
                ORDER BY balances.id = ?1 DESC, balances.id = ?2 DESC""",
            balances,
        )
        reserved: BudgetReserved | None = None
        for scope, kind, number, limit, gone, held in levels.records:
            if gone + amount > limit:
                raise _exceeded(Scope(scope), Window(kind), number, limit, gone, amount)
            if gone + held + amount > limit:
                reserved = reserved or BudgetReserved(
                    f"The {scope} budget has room, but requests in flight hold it; try again shortly."
                )
        raise reserved or LedgerBroken(f"booked fewer than all of the balances {balances} without a limit in the way")

    async def _open_hold(
        self, transaction: Transaction, account: Account, amount: int, purpose: Purpose, *, earlier: bool = False
    ) -> Reservation:
        now_ms = self._clock.wall_ms()
        balances = await self._current_balances(transaction, account, now_ms)
        await self._book(transaction, balances, amount)
        hold = await transaction.execute(
            _OPEN_HOLD,
            (
                purpose.request_id,
                *_words(purpose),
                self.boot_id,
                account.tenant,
                account.key_id,
                *balances,
                amount,
                now_ms,
            ),
        )
        return Reservation(hold.last_id, amount, purpose.request_id, earlier)

    def _resolution(self, reservation: Reservation, state: MoneyState, cost: int, row: RequestRow | None) -> Work[None]:
        at_ms = self._clock.wall_ms()

        async def work(transaction: Transaction) -> None:
            overage = await self._close_once(transaction, reservation.id, state, cost, at_ms)
            if row is not None:
                if overage is None or reservation.earlier:
                    money = await self._money_of(transaction, reservation.request_id)
                else:
                    money = Money(state, cost, overage)
                await rows.append(transaction, row, money, once=overage is None)
            self._opened.pop(reservation.id, None)

        return work

    async def _close_once(
        self, transaction: Transaction, hold_id: int, state: MoneyState, cost: int, at_ms: int
    ) -> int | None:
        """Resolve a hold for its request and return its overage; None if somebody else has decided about it before."""
        try:
            return await self._close(transaction, hold_id, state, cost, By.REQUEST, at_ms)
        except AlreadyResolved:
            return None

    async def _money_of(self, transaction: Transaction, request_id: str) -> Money:
        """What all holds of a request have become, whoever decided it."""
        found = await transaction.execute(_MONEY_OF_REQUEST, (request_id,))
        state, cost, overage = found.records[0]
        return Money(MoneyState(state), cost, overage)

    async def _close(
        self, transaction: Transaction, hold_id: int, state: MoneyState, cost: int, by: By, at_ms: int
    ) -> int:
        """Take a hold from open or unresolved to `state`, move its money, and return its overage."""
        for source, move in _MOVE_OUT.items():
            closed = await transaction.execute(_CLOSE, (state, cost, at_ms, by, hold_id, source))
            if closed.records:
                amount, overage, *balances = closed.records[0]
                moved = await transaction.execute(move, (amount, cost, overage, *balances))
                _expect_all(moved.rowcount, balances)
                return int(overage)
        raise AlreadyResolved(hold_id)

    async def _part(
        self, transaction: Transaction, hold_id: int, why: str, at_ms: int, at_most_nanousd: int | None = None
    ) -> int:
        """Take a hold from open to unresolved, with no more than it can come to; 0 if it was not open."""
        found = await transaction.execute(_HELD, (hold_id,))
        if not found.records:
            return 0
        held, *balances = found.records[0]
        left = held if at_most_nanousd is None else min(held, at_most_nanousd)
        parted = await transaction.execute(_PART, (left, at_ms, why, hold_id))
        if parted.rowcount != 1:
            raise LedgerBroken(f"hold {hold_id} was open and is not")
        moved = await transaction.execute(_MOVE_TO_UNRESOLVED, (held, left, *balances))
        _expect_all(moved.rowcount, balances)
        return 1

    async def _resolve_orphans(self, transaction: Transaction, boot_id: int, on_crash: OnCrash, now_ms: int) -> int:
        """Resolve every open hold (their process is dead: we hold its lock) and give each dead request its row, also
        those whose hold had been given up before; returns how many holds were open.
        """
        dead = (await transaction.execute(_ROWLESS)).records
        orphans = (await transaction.execute(_OPEN_HOLDS)).records
        for (hold_id,) in orphans:
            if on_crash is OnCrash.VOID:
                await self._close(transaction, hold_id, MoneyState.VOID, 0, By.RECOVERY, now_ms)
            else:
                await self._part(transaction, hold_id, "crash", now_ms)
        for request_id, *facts in dead:
            money = await self._money_of(transaction, request_id)
            await rows.append(transaction, _row_of_the_dead(request_id, facts, now_ms), money)
        return len(orphans)

    async def _finish(self, work: Work[None]) -> None:
        """Commit `work` now (`full`) or soon (`normal`); if now fails, keep trying from memory."""
        if self._durability is Durability.NORMAL:
            self._store.enqueue(work)
        else:
            try:
                await self._store.transact(work)
            except StoreUnavailable:
                self._store.enqueue(work)


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


def _exceeded(scope: Scope, kind: Window, number: int, limit: int, gone: int, amount: int) -> BudgetExceeded:
    end = window_end_text(kind, number)
    resets = f"It resets at {end}." if end else "It does not reset."
    if scope is Scope.GLOBAL:
        return BudgetExceeded(f"The budget of the whole gateway has too little left for this request. {resets}")
    return BudgetExceeded(
        f"The {scope} budget of {format_usd(limit)} USD ({kind}) has too little left for this request: "
        f"{format_usd(gone)} USD are spent or unresolved, and it could cost up to {format_usd(amount)} USD; a smaller "
        f"output cap lowers that. {resets}"
    )


def _check_amount(nanousd: int) -> None:
    """Refuse what is not an amount: a bool, a float, a negative or an absurd number."""
    if type(nanousd) is not int or not 0 <= nanousd <= MAX_NANOUSD:
        raise ValueError(f"not an amount in nano-dollars: {nanousd!r}")


def _check_hold(nanousd: int) -> None:
    """Refuse what is not an amount, and a hold beyond any budget."""
    if type(nanousd) is int and nanousd > MAX_NANOUSD:
        raise BudgetExceeded("The request could cost more than any budget allows.")
    _check_amount(nanousd)


def _expect_all(rowcount: int, balances: Sequence[int]) -> None:
    if rowcount != len(balances):
        raise LedgerBroken(f"moved money in {rowcount} of the balances {balances}")
