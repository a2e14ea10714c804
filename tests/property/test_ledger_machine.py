"""Any sequence of what can happen to a ledger, against dictionaries; and twins that the same sequences must catch."""

import contextlib
import copy
import sqlite3
import unittest
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from gateway.errors import BudgetExceeded, BudgetReserved
from gateway.holds import AlreadyResolved, OnCrash, Outcome, Policy, Reservation
from gateway.ledger import Ledger
from gateway.levels import LevelState, Scope
from gateway.store import Durability
from gateway.types import Window
from gateway.windows import window_number
from tests.support import twins
from tests.support.books import Book, ledger_folder, purpose, row


class Level(NamedTuple):
    """A level of the model: the same name with another window is another level."""

    scope: Scope
    name: str
    window: Window


Place = tuple[Level, int]
"""A level in one of its windows."""


@dataclass(slots=True)
class Hold:
    """A hold of the model, and the request it is for."""

    reservation: Reservation
    request: "Request"
    at: Sequence[Place]
    amount: int
    opened_s: float
    state: str = "open"
    cost: int = 0
    unresolved_ms: int = 0
    is_undecided: bool = False


@dataclass(slots=True)
class Request:
    """A request of the model: its holds, in order, and the call that is written in the last one.

    told     a call of the ledger was given its row
    written  what its row said when it was appended; None before
    """

    id: str
    holds: list[Hold] = field(default_factory=list)
    attempt: int = 1
    told: bool = False
    written: tuple[str, str, int] | None = None

    @property
    def fate(self) -> tuple[str, str, int]:
        """What its row tells by now: the worst state of its holds, and all that they cost."""
        states = [hold.state for hold in self.holds]
        state = next(state for state in ("unresolved", "settled", "open", "void") if state in states)
        return self.id, state, sum(hold.cost for hold in self.holds)


class Model:
    """The money of every level in every window, in dictionaries."""

    def __init__(self) -> None:
        self.limits: dict[Level, int | None] = {}
        self.reached: dict[Level, int] = {}
        self.money: dict[Place, Counter[str]] = {}

    def reach(self, levels: Sequence[Level], wall_ms: int) -> Sequence[Place]:
        """The windows of now, or the latest that were reached: they are open from now on."""
        at = [(level, max(window_number(level.window, wall_ms), self.reached.get(level, -1))) for level in levels]
        self.reached.update(at)
        for place in at:
            self.money.setdefault(place, Counter())
        return at

    def take(self, at: Sequence[Place], amount: int) -> None:
        """Hold `amount` at every place or at none."""
        for refusal, parts in ((BudgetExceeded, "spent unresolved"), (BudgetReserved, "spent unresolved open")):
            for level, number in at:
                money, limit = self.money[level, number], self.limits[level]
                if limit is not None and sum(money[part] for part in parts.split()) + amount > limit:
                    raise refusal("no room")
        for place in at:
            self.money[place]["open"] += amount

    def move(self, hold: Hold, state: str, cost: int = 0, at_most: int | None = None) -> bool:
        """Take a hold to `state`, once, where unresolved keeps `at_most` of it; False if that way is closed."""
        if hold.state not in ("open",) + ("unresolved",) * (state != "unresolved"):
            return False
        left = hold.amount if at_most is None else min(hold.amount, at_most)
        for place in hold.at:
            self.money[place][hold.state] -= hold.amount
            self.money[place]["unresolved"] += left if state == "unresolved" else 0
            self.money[place]["spent"] += cost
            self.money[place]["overage"] += max(cost - hold.amount, 0)
        hold.state, hold.cost, hold.amount = state, cost, left
        return True


KEYS = st.sampled_from(("key1", "key2"))
NAMES = ((Scope.KEY, "key1"), (Scope.KEY, "key2"), (Scope.TENANT, "acme"), (Scope.GLOBAL, ""))
LIMITS = st.sampled_from((300, 150, 1000, None, 0))
AMOUNTS = st.sampled_from((50, 100, 0))
NO_AMOUNTS: st.SearchStrategy[Any] = st.sampled_from((-50, True, 1.5))
MOST = st.sampled_from((None, 20, 70, 0))
"""What a call can come to at most, where more may be held."""

WHICH = st.integers(0, 9)
DAY_S = 86_400


class LedgerMachine(RuleBasedStateMachine):
    """What requests, operators, clocks and crashes may do, in any order, one at a time."""

    ledger_type: type[Ledger] = Ledger
    holds: Bundle[Hold] = Bundle("holds")

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.model = Model()
        self.active: dict[tuple[Scope, str], Level] = {}
        self.all: list[Hold] = []
        self.requests: list[Request] = []
        self.queued: list[Callable[[], object]] = []

    @initialize(
        target=holds,
        durability=st.sampled_from(Durability),
        limit=st.sampled_from((300, 1000)),
        amounts=st.lists(AMOUNTS, min_size=2, max_size=4),
    )
    def begin(self, durability: Durability, limit: int | None, amounts: list[int]) -> Any:
        """Two keys of one tenant, and some holds to begin with."""
        folder = self.stack.enter_context(ledger_folder())
        self.durability = durability
        self.book = Book(folder, ledger_type=self.ledger_type, durability=durability)
        windows = (Window.TOTAL, Window.WEEK, Window.DAY, Window.MONTH)
        for name, window in zip(NAMES, windows, strict=True):
            self.set_level(name, window, limit)
        held = [self.reserve("key1", amount) for amount in amounts]
        return multiple(*(hold for hold in held if isinstance(hold, Hold)))

    def teardown(self) -> None:
        if hasattr(self, "book"):
            self.book.close()
        self.stack.close()

    # --- what happens ---------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), window=st.sampled_from(Window), limit=LIMITS)
    def set_level(self, name: tuple[Scope, str], window: Window, limit: int | None) -> None:
        """An operator gives a level another limit, or another window."""
        self.apply_queued()
        self.book.run(self.book.ledger.set_level(*name, window, limit))
        level = self.active[name] = Level(*name, window)
        self.model.limits[level] = limit

    @rule(name=st.sampled_from(NAMES), window=st.none() | st.sampled_from(Window), limit=LIMITS)
    def change_budget(self, name: tuple[Scope, str], window: Window | None, limit: int | None) -> None:
        """An operator gives a level that has money another limit, in the window that it has or in another."""
        self.apply_queued()
        if window is None:
            self.book.run(self.book.ledger.set_limit(*name, limit))
        else:
            self.book.run(self.book.ledger.set_window(*name, window, limit))
            self.active[name] = Level(*name, window)
        self.model.limits[self.active[name]] = limit

    @rule(target=holds, key=KEYS, amount=AMOUNTS | NO_AMOUNTS)
    def reserve(self, key: str, amount: Any) -> Any:
        """A request begins, or is refused for the right reason."""
        account, request = self.book.ledger.account("acme", key), Request(f"req_{len(self.requests)}")
        real = self.ends(self.book.ledger.reserve(account, amount, purpose(request.id)))
        if type(amount) is not int or amount < 0:
            assert isinstance(real, ValueError), real
            return multiple()
        self.apply_queued()
        hold = self.booked(real, request, self.reached(key), amount)
        if hold is None:
            return multiple()
        self.requests.append(request)
        return hold

    @rule(
        target=holds,
        which=WHICH,
        cost=st.none() | st.sampled_from((30, 100, 250)),
        key=KEYS,
        amount=AMOUNTS,
        at_most=MOST,
    )
    def reserve_next(self, which: int, cost: int | None, key: str, amount: int, at_most: int | None) -> Any:
        """A call that may have been billed is followed by another, or by nothing at all.

        The former hold may have been decided about by then; a story knows of none but its last.
        """
        request = self.in_flight(which)
        if request is None:
            return multiple()
        hold = request.holds[-1]
        self.apply_queued()
        account, wall_ms = self.book.ledger.account("acme", key), self.book.clock.wall_ms()
        words = purpose(request.id, attempt=request.attempt + 1)
        outcome = Outcome(cost, "test", at_most)
        real = self.ends(self.book.ledger.reserve_next(hold.reservation, outcome, account, amount, words))
        at = self.reached(key)
        before = copy.deepcopy((self.model, hold.state, hold.cost, hold.amount, hold.unresolved_ms))
        if cost is None:
            self.give_up(hold, wall_ms, at_most)
        else:
            self.model.move(hold, "settled", cost)
        following = self.booked(real, request, at, amount)
        if following is None:
            self.model, hold.state, hold.cost, hold.amount, hold.unresolved_ms = before
            return multiple()
        request.attempt += 1
        return following

    @rule(which=WHICH)
    def carry(self, which: int) -> None:
        """An unbilled call hands its hold on to the next one, unless somebody has decided about it."""
        request = self.in_flight(which)
        if request is None:
            return
        hold = request.holds[-1]
        attempt = request.attempt + 1
        try:
            self.book.ledger.carry(hold.reservation, purpose(request.id, attempt=attempt))
        except AlreadyResolved:
            assert hold.state != "open"
            return
        assert hold.state == "open"
        self.queued.append(lambda: setattr(request, "attempt", attempt))

    @rule(hold=holds, extra=AMOUNTS)
    def top_up(self, hold: Hold, extra: int) -> None:
        """An open hold is raised in its own windows, or nothing happens; to be raised by nothing it needs no room."""
        self.apply_queued()
        words = purpose(hold.request.id, attempt=hold.request.attempt)
        real = self.ends(self.book.ledger.top_up(hold.reservation, extra, words))
        if hold.state != "open":
            assert isinstance(real, AlreadyResolved), real
            return
        try:
            self.model.take(hold.at if extra else (), extra)
        except (BudgetExceeded, BudgetReserved) as refusal:
            assert type(real) is type(refusal), (real, refusal)
            return
        assert isinstance(real, Reservation), real
        hold.reservation, hold.amount = real, hold.amount + extra

    @rule(hold=holds, cost=st.sampled_from((30, 50, 100, 250, 0)))
    def settle(self, hold: Hold, cost: int) -> None:
        """In time, late, again, or after somebody else decided; below, at or above the hold."""
        ends = partial(self.book.ledger.settle, hold.reservation, cost)
        self.finish(hold, ends, lambda: self.model.move(hold, "settled", cost))

    @rule(hold=holds, voids=st.booleans(), at_most=MOST)
    def end_without_cost(self, hold: Hold, voids: bool, at_most: int | None) -> None:
        """The call was proven to be unbilled, or nobody knows."""
        ledger, wall_ms = self.book.ledger, self.book.clock.wall_ms()
        if voids:
            self.finish(hold, partial(ledger.void, hold.reservation), lambda: self.model.move(hold, "void"))
        else:
            ends = partial(ledger.leave_unresolved, hold.reservation, "test", at_most_nanousd=at_most)
            self.finish(hold, ends, lambda: self.give_up(hold, wall_ms, at_most))

    @rule(hold=holds, cost=st.none() | AMOUNTS)
    def decide(self, hold: Hold, cost: int | None) -> None:
        """An admin settles or voids."""
        self.apply_queued()
        real = self.ends(self.book.ledger.resolve_by_admin(hold.reservation.id, cost))
        moved = self.model.move(hold, "void" if cost is None else "settled", cost or 0)
        assert real is None if moved else isinstance(real, AlreadyResolved), real

    @rule(ttl_s=st.sampled_from((10, DAY_S)), after_s=st.sampled_from((0, DAY_S)), policy=st.sampled_from(Policy))
    def sweep(self, ttl_s: int, after_s: int, policy: Policy) -> None:
        """Time gives holds up, and the policy ends what has long been unresolved."""
        self.book.clock.advance(60)
        self.apply_queued()
        now_s, wall_ms = self.book.clock.now_s(), self.book.clock.wall_ms()
        swept = self.book.run(self.book.ledger.sweep(hold_ttl_s=ttl_s, unresolved_after_s=after_s, policy=policy))
        stale = [hold for hold in self.all if now_s - hold.opened_s > ttl_s and self.give_up(hold, wall_ms)]
        old = [
            hold for hold in self.all if hold.state == "unresolved" and hold.unresolved_ms <= wall_ms - after_s * 1000
        ]
        for hold in old:
            self.model.move(hold, *(("settled", hold.amount) if policy is Policy.ASSUME_SPENT else ("void",)))
        assert swept == len(stale) + len(old)

    @rule(target=holds, days=st.sampled_from((1, 7, 31, 0.001, -1, -31)), key=KEYS, amount=AMOUNTS)
    def reserve_later(self, days: float, key: str, amount: int) -> Any:
        """Windows end, or somebody sets the wall clock back; then a request begins."""
        if days < 0:
            self.book.clock.jump_wall(days * DAY_S)
        else:
            self.book.clock.advance(days * DAY_S)
        return self.reserve(key, amount)

    @rule(on_crash=st.sampled_from((*OnCrash, None)))
    def crash(self, on_crash: OnCrash | None) -> None:
        """The process dies and loses what was queued; the next one resolves what was open, and what one that serves
        nothing has left to it, and writes missing rows.
        """
        self.queued.clear()
        self.book.crash()
        orphans = self.book.open(on_crash)
        opened = [hold for hold in self.all if hold.state == "open"]
        if on_crash is not None:
            opened += [hold for hold in self.all if hold.state == "unresolved" and hold.is_undecided]
        assert orphans == len(opened)
        rowless = []
        for request in self.requests:
            pending = any(hold.state in ("open", "unresolved") for hold in request.holds)
            request.told = True
            if pending and request.written is None:
                rowless.append(request)
        for hold in opened:
            if on_crash is OnCrash.VOID:
                self.model.move(hold, "void")
            else:
                self.give_up(hold, self.book.clock.wall_ms())
            hold.is_undecided = on_crash is None
        for request in rowless:
            request.written = request.fate

    # --- what must be true after each step --------------------------------------------------------------------------

    @invariant()
    def every_balance_is_the_models(self) -> None:
        """In every window of every level."""
        balances = self.book.select(
            """SELECT scope, name, window_kind, balances.window_number, spent_nanousd, held_nanousd,
                unresolved_nanousd, overage_nanousd FROM balances JOIN levels ON levels.id = balances.level_id"""
        )
        real = {
            (Level(Scope(scope), name, Window(kind)), number): Counter(
                spent=spent, open=held, unresolved=unresolved, overage=overage
            )
            for scope, name, kind, number, spent, held, unresolved, overage in balances
        }
        assert real == self.model.money

    @invariant()
    def every_level_is_told_right(self) -> None:
        """In the window of now, or the latest that was reached."""
        for name, level in self.active.items():
            number = max(window_number(level.window, self.book.clock.wall_ms()), self.model.reached.get(level, -1))
            money = self.model.money.get((level, number), Counter())
            expected = (money[part] for part in ("spent", "open", "unresolved", "overage"))
            assert self.book.level(*name) == LevelState(self.model.limits[level], level.window, *expected)

    @invariant()
    def every_row_is_there_once(self) -> None:
        """And says what its holds have become; what was appended was true then."""
        real = [(row["request_id"], row["state"], row["cost_nanousd"]) for row in self.book.rows()]
        rowed = [request.fate for request in self.requests if request.written]
        assert sorted(real) == sorted(rowed), (real, rowed)
        real = self.book.select("SELECT request_id, state, cost_nanousd FROM requests")
        written = [request.written for request in self.requests if request.written]
        assert sorted(real) == sorted(written), (real, written)

    @invariant()
    def the_last_hold_knows_its_call(self) -> None:
        """A dead request is told from it."""
        found = self.book.select(
            "SELECT request_id, attempt FROM holds WHERE id IN (SELECT max(id) FROM holds GROUP BY request_id)"
        )
        assert sorted(found) == sorted((request.id, request.attempt) for request in self.requests), found

    @invariant()
    def the_books_balance(self) -> None:
        """And nothing went wrong unheard."""
        report = self.book.verify()
        assert report.ok and not self.book.errors, (report.differences, self.book.errors)

    # --- the machine's own -------------------------------------------------------------------------------------------

    def ends(self, story: Coroutine[Any, Any, Any]) -> Any:
        """What a call of the ledger returns or refuses with."""
        try:
            return self.book.run(story)
        except (BudgetExceeded, BudgetReserved, AlreadyResolved, ValueError) as refusal:
            return refusal

    def in_flight(self, which: int) -> Request | None:
        """One of the requests whose stories go on."""
        living = [request for request in self.requests if not request.told]
        return living[which % len(living)] if living else None

    def reached(self, key: str) -> Sequence[Place]:
        """The windows in which a request of this key is decided: they are open now, also if it is refused."""
        levels = [self.active[name] for name in ((Scope.KEY, key), (Scope.TENANT, "acme"), (Scope.GLOBAL, ""))]
        return self.model.reach(levels, self.book.clock.wall_ms())

    def booked(self, real: Any, request: Request, at: Sequence[Place], amount: int) -> Hold | None:
        """The hold that the ledger has just made, or None if it refused; the model did the same."""
        try:
            self.model.take(at, amount)
        except (BudgetExceeded, BudgetReserved) as refusal:
            assert type(real) is type(refusal), (real, refusal)
            return None
        assert isinstance(real, Reservation), real
        hold = Hold(real, request, at, amount, self.book.clock.now_s())
        request.holds.append(hold)
        self.all.append(hold)
        return hold

    def finish(self, hold: Hold, end: Callable[..., Coroutine[Any, Any, None]], move: Callable[[], object]) -> None:
        """A call that ends a hold: committed at once, or queued. The first that ends a request's last brings a row."""
        request = hold.request
        brings_row = not request.told and hold is request.holds[-1]
        request.told |= brings_row

        def both() -> None:
            move()
            if brings_row:
                request.written = request.fate

        self.book.run(end(row(request.id) if brings_row else None))
        self.queued.append(both)
        if self.durability is Durability.FULL:
            self.apply_queued()

    def apply_queued(self) -> None:
        """A transaction begins with what was queued before it."""
        for move in self.queued:
            move()
        self.queued.clear()

    def give_up(self, hold: Hold, wall_ms: int, at_most: int | None = None) -> bool:
        """Take an open hold to unresolved."""
        hold.unresolved_ms = wall_ms if hold.state == "open" else hold.unresolved_ms
        return self.model.move(hold, "unresolved", at_most=at_most)


_settings = settings(
    max_examples=100,
    stateful_step_count=25,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
_until_caught = settings(_settings, max_examples=400, phases=[Phase.generate])
"""The rarest twin needs some fifty examples, rarely more than a hundred; the first failure ends the search."""


class LedgerMachineTest(unittest.TestCase):
    """The right ledger and the wrong ones, on the same machine."""

    def test_the_ledger_is_its_model(self) -> None:
        """Whatever happens, in whatever order."""
        run_state_machine_as_test(LedgerMachine, settings=_settings)

    def test_every_twin_is_caught(self) -> None:
        """Each mistake shows up in some sequence."""
        for twin in (
            twins.SettlesUnguarded,
            twins.LeavesTheHold,
            twins.ReleasesTheSettled,
            twins.ClampsToTheHold,
            twins.DropsLateSettlements,
            twins.ForgetsTheGivenUp,
            twins.KeepsWhatCannotBeBilled,
            twins.ClearsHeldAtReset,
            twins.ChargesTheCurrentWindow,
            twins.OverlooksOpenHolds,
            twins.AdmitsNegativeAmounts,
        ):
            machine = type(twin.__name__, (LedgerMachine,), {"ledger_type": twin})
            with self.subTest(twin=twin.__name__), self.assertRaises((AssertionError, sqlite3.IntegrityError)):
                run_state_machine_as_test(machine, settings=_until_caught)


if __name__ == "__main__":
    unittest.main()
