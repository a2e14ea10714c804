"""The levels that a request is charged to: what each may reach, how it stands, and its balance in the present window.

Three levels (key, tenant, global) each have a running balance per window: spent, held, unresolved. The schema lets no
hold in unless `spent + held + unresolved + amount <= limit` at each of them; here it is said which one had no room.

All amounts are nano-dollars. Knows no holds and no requests: which money leaves a balance again is decided elsewhere.
"""

import contextlib
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NoReturn

from msgspec import Struct

from gateway.clock import Clock
from gateway.errors import BudgetExceeded, BudgetReserved, StoreUnavailable
from gateway.reached import Reached, ReachedWindows
from gateway.store import Record, Store, Transaction
from gateway.types import MAX_NANOUSD, Window
from gateway.windows import window_end_ms, window_end_text, window_number
from llmkit.money import format_usd

CALL_MOST_NANOUSD = 100_000 * 10**9
"""What one call may hold, and be believed to cost: 100,000 USD. No call costs so much, and a balance takes ninety
thousand of them, but only eight of the largest amounts.
"""


class Scope(StrEnum):
    """What a level limits. The values are the table's."""

    KEY = "key"
    TENANT = "tenant"
    GLOBAL = "global"


class Account(Struct, frozen=True):
    """Whose money: the three levels that a request of this key is charged to, key first."""

    tenant: str
    key_id: str
    levels: tuple[int, int, int]


class LevelLimit(Struct, frozen=True):
    """What a level may reach per window of its kind; None is no limit."""

    scope: Scope
    name: str
    window: Window
    limit_nanousd: int | None


class LevelState(Struct, frozen=True):
    """One level in its current window."""

    limit_nanousd: int | None
    window: Window
    spent_nanousd: int = 0
    held_nanousd: int = 0
    unresolved_nanousd: int = 0
    overage_nanousd: int = 0


class NamedLevel(Struct, frozen=True):
    """Which level it is, how it stands, and when its window ends (UTC, ISO 8601); None for one that never ends."""

    scope: Scope
    name: str
    state: LevelState
    resets_at: str | None


class LevelChanged(Exception):
    """Somebody else gave the level another window at the same time; nothing was changed."""


class LedgerBroken(RuntimeError):
    """What the ledger says contradicts itself: a programmer's error. The transaction was rolled back."""


_WINDOWS = "SELECT id, window_kind, window_number, balance_id FROM levels WHERE id IN (?, ?, ?)"
_LEVELS = """SELECT scope, name, limit_nanousd, window_kind, levels.window_number, coalesce(spent_nanousd, 0),
        coalesce(held_nanousd, 0), coalesce(unresolved_nanousd, 0), coalesce(overage_nanousd, 0)
    FROM levels LEFT JOIN balances ON balances.id = levels.balance_id
    WHERE active = 1"""


class Levels:
    """The levels of one data directory, owned by one process.

    `_levels` and `_accounts` are changed by single dict operations only, which are atomic.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._levels: dict[tuple[Scope, str], int] = {}
        self._accounts: dict[tuple[str, str], Account] = {}
        self._reached = ReachedWindows()

    async def _load_levels(self) -> None:
        """Learn which levels there are."""
        for scope, name, level in await self._store.read("SELECT scope, name, id FROM levels WHERE active = 1"):
            self._levels[Scope(scope), name] = level
        self._accounts = {}

    async def set_level(self, scope: Scope, name: str, window: Window, limit_nanousd: int | None) -> None:
        """Create the level or change its limit; None is no limit. Balances are never touched.

        Another kind of window is another level with a balance of its own; the former one keeps its history.
        """
        await self.set_levels([LevelLimit(scope, name, window, limit_nanousd)])

    async def set_levels(self, limits: Sequence[LevelLimit]) -> None:
        """set_level for each of `limits`, all in one transaction or none."""
        for limit in limits:
            if limit.limit_nanousd is not None:
                check_amount(limit.limit_nanousd)

        async def work(transaction: Transaction) -> list[int]:
            return [await self._set_level(transaction, limit) for limit in limits]

        ids = await self._store.transact(work)
        self._levels |= {(limit.scope, limit.name): level for limit, level in zip(limits, ids, strict=True)}
        self._accounts = {}  # what is made of the old levels meanwhile goes into the old dict

    async def set_limit(self, scope: Scope, name: str, limit_nanousd: int | None) -> None:
        """Change what a level may reach in the windows that it has; None is no limit. Balances are never touched.

        It is in force from the next reservation and top-up on, whoever makes it: each reads the limit in its own
        transaction. What is held stays held, also if that is more than the limit by now. Raises LedgerBroken if there
        is no such level.
        """
        if limit_nanousd is not None:
            check_amount(limit_nanousd)

        async def work(transaction: Transaction) -> None:
            changed = await transaction.execute(
                "UPDATE levels SET limit_nanousd = ? WHERE scope = ? AND name = ? AND active = 1",
                (limit_nanousd, scope, name),
            )
            if changed.rowcount != 1:
                raise LedgerBroken(f"{changed.rowcount} levels are in force for {scope} {name!r}")

        await self._store.transact(work)

    async def set_window(self, scope: Scope, name: str, window: Window, limit_nanousd: int | None) -> None:
        """Give a level that there is another kind of window, and a limit in it; see set_level.

        Requests that have begun go on in the former one, within its limit. Raises LevelChanged.
        """
        former = self._levels[scope, name]
        if limit_nanousd is not None:
            check_amount(limit_nanousd)

        async def work(transaction: Transaction) -> int:
            left = await transaction.execute("UPDATE levels SET active = 0 WHERE id = ? AND active = 1", (former,))
            if not left.rowcount:
                raise LevelChanged(name)
            return await self._set_level(transaction, LevelLimit(scope, name, window, limit_nanousd))

        self._levels[scope, name] = await self._store.transact(work)
        self._accounts = {}

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
        """The levels that requests of this key are charged to; the same object until a level is set anew.

        KeyError if one of them was never set.
        """
        known = self._accounts
        account = known.get((tenant, key_id))
        if account is None:
            levels = self._levels
            account = known[tenant, key_id] = Account(
                tenant,
                key_id,
                (levels[Scope.KEY, key_id], levels[Scope.TENANT, tenant], levels[Scope.GLOBAL, ""]),
            )
        return account

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

    # --- inside a transaction -----------------------------------------------------------------------------------

    async def _current_balances(self, transaction: Transaction, account: Account, now_ms: int) -> Sequence[int]:
        """Ids of the three balances of the present windows, as the table knows them, opening windows that begin now.

        A window number is only ever raised: a clock that is set back goes on in the window that was reached.
        """
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
        """See that the present windows of its levels are open and known, before anything is decided in them.

        A transaction that finds them open changes nothing before it refuses, and so undoes nothing of what it shares a
        commit with. If another window begins meanwhile, the transaction sees that and opens it itself. Raises
        StoreUnavailable.
        """
        now_ms = self._clock.wall_ms()

        async def work(transaction: Transaction) -> list[Record]:
            await self._current_balances(transaction, account, now_ms)
            return (await transaction.execute(_WINDOWS, account.levels)).records

        with contextlib.suppress(StoreUnavailable):
            self._learn(await self._store.read(_WINDOWS, account.levels))
        if self._reached.balances(account.levels, now_ms) is None:
            self._learn(await self._store.transact(work))

    def _learn(self, committed: Iterable[Record]) -> None:
        self._reached.learn(
            (level, Reached(number, window_end_ms(Window(kind), number), balance))
            for level, kind, number, balance in committed
            if balance is not None
        )

    async def _refuse(self, transaction: Transaction, balances: Sequence[int], amount: int) -> NoReturn:
        """Say which level has no room, and whether waiting could help: for other requests, or for the next window.

        A level that one such request could exceed alone goes first, for then it never does; else the narrowest.
        """
        levels = await transaction.execute(
            """SELECT scope, window_kind, balances.window_number, limit_nanousd, spent_nanousd + unresolved_nanousd,
                    held_nanousd
                FROM balances JOIN levels ON levels.id = balances.level_id
                WHERE balances.id IN (?, ?, ?) AND limit_nanousd IS NOT NULL
                ORDER BY scope = 'key' DESC, scope = 'tenant' DESC""",
            balances,
        )
        reserved: BudgetReserved | None = None
        for scope, kind, number, limit, gone, held in sorted(levels.records, key=lambda level: amount <= level[3]):
            if gone + amount > limit:
                raise _exceeded(Scope(scope), Window(kind), number, limit, gone, amount)
            if gone + held + amount > limit:
                reserved = reserved or BudgetReserved(
                    f"The {scope} budget has room, but requests in flight hold it; try again shortly."
                )
        raise reserved or LedgerBroken(f"no room in the balances {balances}, and no limit in the way")


def _exceeded(scope: Scope, kind: Window, number: int, limit: int, gone: int, amount: int) -> BudgetExceeded:
    """The refusal. Of the gateway's own budget it says no amount: that is the sum of all tenants'."""
    end = window_end_text(kind, number)
    resets = f" It resets at {end}." if end else " It does not reset."
    if gone >= limit and (amount <= limit or not end):
        why, cap_helps, waiting = "has nothing left", False, resets
    elif amount > limit:
        why, cap_helps = "is below what this request could cost", True
        waiting = f" Waiting until it resets at {end} does not help." if end else ""
    else:
        why, cap_helps, waiting = "has too little left for this request", True, resets
    if scope is Scope.GLOBAL:
        lowers = "; a smaller output cap lowers what it could cost" if cap_helps else ""
        return BudgetExceeded(f"The budget of the whole gateway {why}{lowers}.{waiting}")
    lowers = "; a smaller output cap lowers that" if cap_helps else ""
    return BudgetExceeded(
        f"The {scope} budget of {format_usd(limit)} USD ({kind}) {why}: {format_usd(gone)} USD are spent or "
        f"unresolved, and this request could cost up to {format_usd(amount)} USD{lowers}.{waiting}"
    )


def check_amount(nanousd: int) -> None:
    """Refuse what is not an amount: a bool, a float, a negative or an absurd number."""
    if type(nanousd) is not int or not 0 <= nanousd <= MAX_NANOUSD:
        raise ValueError(f"not an amount in nano-dollars: {nanousd!r}")


def check_hold(nanousd: int) -> None:
    """Refuse what is not an amount, and a hold that no call needs."""
    if type(nanousd) is int and nanousd > CALL_MOST_NANOUSD:
        most = format_usd(CALL_MOST_NANOUSD)
        raise BudgetExceeded(f"The request could cost more than {most} USD; a smaller output cap lowers that.")
    check_amount(nanousd)
