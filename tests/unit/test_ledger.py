"""The ledger, one step at a time: what it books, what it refuses and with which words, what time and crashes do."""

import contextlib
import unittest
from typing import Any

from gateway.errors import BudgetExceeded, BudgetReserved, StoreUnavailable
from gateway.ledger import AlreadyResolved, Ledger, LevelState, OnCrash, Policy, Reservation, Scope
from gateway.migrations import MAX_NANOUSD
from gateway.store import Durability, T, Work
from gateway.types import Window
from tests.support.books import Book, ledger_folder, purpose, row

USD = 1_000_000_000
_COUNT = "SELECT count(*) FROM"
LEVELS = ((Scope.KEY, "key1"), (Scope.TENANT, "acme"), (Scope.GLOBAL, ""))
NO_AMOUNTS: tuple[Any, ...] = (-1, True, 1.0, "5")


class LedgerCase(unittest.TestCase):
    """A book of one tenant, and the promise that it balances at the end of every test."""

    durability = Durability.FULL

    def setUp(self) -> None:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.book = stack.enter_context(
            contextlib.closing(Book(stack.enter_context(ledger_folder()), durability=self.durability))
        )

    def tearDown(self) -> None:
        self.assertEqual((), self.book.verify().differences)
        self.assertEqual([], self.book.errors)

    def fates(self) -> list[tuple[Any, ...]]:
        """Request, state and cost of every row as it is told."""
        return [(line["request_id"], line["state"], line["cost_nanousd"]) for line in self.book.rows()]

    def written(self) -> list[tuple[Any, ...]]:
        """The same as it was appended, whatever came later."""
        return self.book.select("SELECT request_id, state, cost_nanousd FROM requests ORDER BY id")


class ReserveTest(LedgerCase):
    """reserve(): at all levels or at none."""

    def test_a_hold_counts_at_every_level(self) -> None:
        """Key, tenant and global."""
        self.book.reserve(self.book.set_limits(100, 100, 100), 40)
        for scope, name in LEVELS:
            self.assertEqual((0, 40, 0, 0), self.book.money(scope, name))

    def test_a_refusal_at_one_level_leaves_nothing_at_the_others(self) -> None:
        """Whichever level it is."""
        for limits in ((10, 100, 100), (100, 10, 100), (100, 100, 10)):
            account = self.book.set_limits(*limits)
            with self.subTest(limits=limits):
                with self.assertRaises(BudgetExceeded):
                    self.book.reserve(account, 11)
                self.assertEqual([(0,), (0,)], self.book.select(f"{_COUNT} balances UNION ALL {_COUNT} holds"))

    def test_the_last_nano_dollar_can_be_held(self) -> None:
        """The limit itself is allowed, one more is not."""
        account = self.book.set_limits(100)
        with self.assertRaises(BudgetExceeded):
            self.book.reserve(account, 101)
        self.book.reserve(account, 100)
        self.assertEqual((0, 100, 0, 0), self.book.money())

    def test_a_limit_of_zero_serves_what_is_free(self) -> None:
        """And refuses what costs anything."""
        account = self.book.set_limits(0)
        self.book.settle(self.book.reserve(account, 0), 0)
        with self.assertRaises(BudgetExceeded):
            self.book.reserve(account, 1, "req_2")

    def test_a_budget_that_is_spent_to_the_end_refuses_what_costs(self) -> None:
        """spent == limit leaves room for what is free alone."""
        account = self.book.set_limits(100)
        self.book.settle(self.book.reserve(account, 100), 100)
        with self.assertRaises(BudgetExceeded):
            self.book.reserve(account, 1, "req_2")
        self.book.reserve(account, 0, "req_3")

    def test_without_a_limit_nothing_is_refused_below_the_largest_amount(self) -> None:
        """Beyond it no budget is large enough."""
        account = self.book.set_limits()
        self.book.reserve(account, MAX_NANOUSD)
        with self.assertRaises(BudgetExceeded):
            self.book.reserve(account, MAX_NANOUSD + 1, "req_2")

    def test_what_is_no_amount_is_an_error(self) -> None:
        """Negative numbers, bools, floats and texts, in every call that takes an amount."""
        account = self.book.set_limits(100)
        hold = self.book.reserve(account, 10)
        ledger = self.book.ledger
        for wrong in NO_AMOUNTS:
            for call in (
                ledger.reserve(account, wrong, purpose("req_2")),
                ledger.top_up(hold, wrong),
                ledger.settle(hold, wrong),
                ledger.resolve_by_admin(hold.id, wrong),
                ledger.set_level(Scope.KEY, "key1", Window.TOTAL, wrong),
            ):
                with self.subTest(wrong=wrong, call=call), self.assertRaises(ValueError):
                    self.book.run(call)
        self.assertEqual((0, 10, 0, 0), self.book.money())


class RefusalTest(LedgerCase):
    """Which refusal, and its words."""

    def refused(self, amount: int, *limits: int | None, window: Window = Window.TOTAL) -> str:
        """The message of a 402."""
        account = self.book.set_limits(*limits, window=window)
        with self.assertRaises(BudgetExceeded) as caught:
            self.book.reserve(account, amount, "refused")
        return caught.exception.message

    def test_it_names_the_level_that_has_no_room(self) -> None:
        """The narrowest, if there are several."""
        self.assertIn("The key budget of 1 USD (total)", self.refused(2 * USD, USD, 3 * USD, 3 * USD))
        self.assertIn("The tenant budget of 1 USD (total)", self.refused(2 * USD, 3 * USD, USD, 3 * USD))
        self.assertIn("The budget of the whole gateway", self.refused(2 * USD, None, None, USD))
        self.assertIn("The key budget", self.refused(2 * USD, USD, USD, USD))
        self.assertIn("The tenant budget", self.refused(2 * USD, None, USD, USD))

    def test_what_others_have_spent_is_not_said(self) -> None:
        """The gateway's own budget is the sum of all tenants."""
        self.assertNotRegex(self.refused(2 * USD, None, None, USD), r"\d")

    def test_it_says_when_the_budget_resets(self) -> None:
        """The end of the window, in UTC; the clock of the test stands at the beginning of Thursday 2026-01-01."""
        for window, words in (
            (Window.TOTAL, "It does not reset."),
            (Window.DAY, "It resets at 2026-01-02T00:00:00Z."),
            (Window.WEEK, "It resets at 2026-01-05T00:00:00Z."),
            (Window.MONTH, "It resets at 2026-02-01T00:00:00Z."),
        ):
            with self.subTest(window=window):
                self.assertIn(words, self.refused(2, 1, window=window))

    def test_it_says_the_amounts(self) -> None:
        """What is gone and what the request could cost, as exact decimals."""
        account = self.book.set_limits(USD)
        self.book.settle(self.book.reserve(account, USD), 700_000_001)
        message = self.refused(400_000_000, USD)
        self.assertIn("0.700000001 USD are spent or unresolved", message)
        self.assertIn("could cost up to 0.4 USD", message)

    def test_money_that_is_only_held_is_worth_waiting_for(self) -> None:
        """429 with a time to retry, against 402 that says not to."""
        account = self.book.set_limits(100)
        self.book.reserve(account, 60)
        with self.assertRaises(BudgetReserved) as waits:
            self.book.reserve(account, 60, "req_2")
        with self.assertRaises(BudgetExceeded) as never:
            self.book.reserve(account, 101, "req_3")
        self.assertEqual((429, "budget_reserved", 1), _told(waits.exception))
        self.assertEqual((402, "budget_exceeded", None), _told(never.exception))
        self.assertIn("The key budget has room", waits.exception.message)
        self.assertFalse(never.exception.should_retry)

    def test_unresolved_money_is_not_worth_waiting_for(self) -> None:
        """It counts as spent."""
        account = self.book.set_limits(100)
        self.book.run(self.book.ledger.leave_unresolved(self.book.reserve(account, 60), "timeout", row()))
        with self.assertRaises(BudgetExceeded):
            self.book.reserve(account, 60, "req_2")

    def test_a_level_without_room_outweighs_one_that_is_held(self) -> None:
        """Waiting for the key does not help if the tenant is at its end."""
        account = self.book.set_limits(100, 50)
        self.book.reserve(account, 50)
        with self.assertRaises(BudgetReserved):
            self.book.reserve(account, 50, "req_2")
        with self.assertRaisesRegex(BudgetExceeded, "The tenant budget"):
            self.book.reserve(account, 51, "req_3")


class SettleTest(LedgerCase):
    """settle(), void(), leave_unresolved(): each hold once."""

    def setUp(self) -> None:
        super().setUp()
        self.account = self.book.set_limits(100, 1000, 1000)
        self.hold = self.book.reserve(self.account, 60)

    def test_the_cost_takes_the_place_of_the_hold(self) -> None:
        """At every level, and in the row."""
        self.book.settle(self.hold, 25)
        for scope, name in LEVELS:
            self.assertEqual((25, 0, 0, 0), self.book.money(scope, name))
        self.assertEqual([("req_1", "settled", 25)], self.fates())

    def test_what_is_billed_above_the_hold_is_booked_whole(self) -> None:
        """It is overage, it may pass the limit, and the next request is refused."""
        self.book.settle(self.hold, 160)
        self.assertEqual((160, 0, 0, 100), self.book.money())
        self.assertEqual(100, self.book.rows()[0]["overage_nanousd"])
        with self.assertRaises(BudgetExceeded):
            self.book.reserve(self.account, 0, "req_2")

    def test_a_second_settlement_changes_nothing(self) -> None:
        """Nor does a void after it, and there is one row."""
        self.book.settle(self.hold, 25)
        self.book.settle(self.hold, 30)
        self.book.run(self.book.ledger.void(self.hold, row()))
        self.assertEqual((25, 0, 0, 0), self.book.money())
        self.assertEqual([("req_1", "settled", 25)], self.fates())

    def test_a_void_gives_the_hold_back(self) -> None:
        """And costs nothing."""
        self.book.run(self.book.ledger.void(self.hold, row()))
        self.assertEqual((0, 0, 0, 0), self.book.money())
        self.assertEqual([("req_1", "void", 0)], self.fates())

    def test_a_late_settlement_takes_the_money_out_of_unresolved(self) -> None:
        """Once; the row tells what became of it."""
        self.book.run(self.book.ledger.leave_unresolved(self.hold, "timeout", row()))
        self.assertEqual((0, 0, 60, 0), self.book.money())
        self.assertEqual([("req_1", "unresolved", 0)], self.written())
        for _ in range(2):
            self.book.run(self.book.ledger.settle(self.hold, 25))
        self.assertEqual((25, 0, 0, 0), self.book.money())
        self.assertEqual([("req_1", "settled", 25)], self.fates())

    def test_a_charge_belongs_to_the_window_of_its_hold(self) -> None:
        """However late it is settled."""
        account = self.book.set_limits(100, window=Window.DAY)
        hold = self.book.reserve(account, 60, "yesterday")
        self.book.clock.advance(86_400)
        other = self.book.reserve(account, 50, "today")
        self.book.settle(hold, 55)
        self.assertEqual((0, 50, 0, 0), self.book.money())
        self.book.settle(other, 50)
        spent = self.book.select(
            "SELECT spent_nanousd FROM balances JOIN levels ON levels.id = level_id"
            " WHERE scope = 'key' AND window_kind = 'day' ORDER BY balances.window_number"
        )
        self.assertEqual([(55,), (50,)], spent)

    def test_an_admins_word_stands(self) -> None:
        """The request that ends later writes its row with what was decided."""
        self.book.run(self.book.ledger.resolve_by_admin(self.hold.id, 10))
        self.book.settle(self.hold, 25)
        self.assertEqual((10, 0, 0, 0), self.book.money())
        self.assertEqual([("req_1", "settled", 10)], self.written())

    def test_an_admin_cannot_resolve_twice(self) -> None:
        """Nor what was never held."""
        self.book.run(self.book.ledger.resolve_by_admin(self.hold.id, None))
        for hold_id in (self.hold.id, 99):
            with self.assertRaises(AlreadyResolved):
                self.book.run(self.book.ledger.resolve_by_admin(hold_id, 5))
        self.assertEqual((0, 0, 0, 0), self.book.money())


class TopUpTest(LedgerCase):
    """top_up(): an escalation raises its hold."""

    def setUp(self) -> None:
        super().setUp()
        self.hold = self.book.reserve(self.book.set_limits(100), 60)

    def top_up(self, extra: int) -> Reservation:
        """Raise the hold."""
        return self.book.run(self.book.ledger.top_up(self.hold, extra))

    def test_the_larger_hold_is_one_hold(self) -> None:
        """Overage begins above the sum."""
        larger = self.top_up(40)
        self.assertEqual((100, (0, 100, 0, 0)), (larger.amount_nanousd, self.book.money()))
        self.book.settle(larger, 90)
        self.assertEqual((90, 0, 0, 0), self.book.money())

    def test_a_refused_top_up_leaves_the_hold_as_it_was(self) -> None:
        """In the book as in the balances."""
        with self.assertRaises(BudgetExceeded):
            self.top_up(101)
        with self.assertRaises(BudgetReserved):
            self.top_up(41)
        self.assertEqual((0, 60, 0, 0), self.book.money())

    def test_a_hold_that_is_resolved_cannot_be_raised(self) -> None:
        """Its money is gone."""
        self.book.settle(self.hold, 10)
        with self.assertRaises(AlreadyResolved):
            self.top_up(1)

    def test_a_hold_beyond_every_budget_is_refused(self) -> None:
        """Also where there is no limit."""
        self.book.set_limits()
        with self.assertRaises(BudgetExceeded):
            self.top_up(MAX_NANOUSD - 59)


class SweepTest(LedgerCase):
    """sweep(): what time decides."""

    def setUp(self) -> None:
        super().setUp()
        self.hold = self.book.reserve(self.book.set_limits(100), 60)

    def sweep(self, policy: Policy = Policy.ASSUME_SPENT) -> int:
        """With the documented times."""
        return self.book.run(self.book.ledger.sweep(hold_ttl_s=900, unresolved_after_s=86_400, policy=policy))

    def test_an_old_hold_becomes_unresolved(self) -> None:
        """Not before its time, and once."""
        self.book.clock.advance(900)
        self.assertEqual(0, self.sweep())
        self.book.clock.advance(1)
        self.assertEqual([1, 0], [self.sweep(), self.sweep()])
        self.assertEqual((0, 0, 60, 0), self.book.money())

    def test_the_wall_clock_makes_no_hold_old(self) -> None:
        """Only the monotonic one does."""
        self.book.clock.jump_wall(86_400)
        self.assertEqual(0, self.sweep())

    def test_a_request_that_outlives_its_hold_settles_late(self) -> None:
        """With its row."""
        self.book.clock.advance(901)
        self.sweep()
        self.book.settle(self.hold, 25)
        self.assertEqual((25, 0, 0, 0), self.book.money())
        self.assertEqual([("req_1", "settled", 25)], self.fates())

    def test_a_resolved_hold_is_not_given_up(self) -> None:
        """However it was resolved."""
        self.book.settle(self.hold, 25)
        self.book.clock.advance(901)
        self.assertEqual(0, self.sweep())

    def test_the_policy_ends_what_was_long_unresolved(self) -> None:
        """Assumed spent, or given back; marked as the policy's word."""
        for policy, money, state in (
            (Policy.ASSUME_SPENT, (60, 0, 0, 0), "settled"),
            (Policy.VOID, (60, 0, 0, 0), "void"),
        ):
            with self.subTest(policy=policy):
                hold = self.hold if policy is Policy.ASSUME_SPENT else self.book.reserve(self.book.set_limits(100), 40)
                self.book.run(self.book.ledger.leave_unresolved(hold, "timeout"))
                self.book.clock.advance(86_399)
                self.assertEqual(0, self.sweep(policy))
                self.book.clock.advance(1)
                self.assertEqual(1, self.sweep(policy))
                self.assertEqual(money, self.book.money())
                told = self.book.select(f"SELECT state, resolved_by FROM holds WHERE id = {hold.id}")
                self.assertEqual([(state, "policy")], told)


class CrashTest(LedgerCase):
    """open(): what the next process makes of a dead one's holds."""

    def setUp(self) -> None:
        super().setUp()
        self.account = self.book.set_limits(100)

    def die(self, on_crash: OnCrash = OnCrash.UNRESOLVED) -> int:
        """Crash and start again."""
        self.book.crash()
        return self.book.open(on_crash)

    def test_open_holds_become_unresolved(self) -> None:
        """They go on counting, and each dead request gets its row."""
        self.book.reserve(self.account, 60)
        self.assertEqual(1, self.die())
        self.assertEqual((0, 0, 60, 0), self.book.money())
        [line] = self.book.rows()
        self.assertEqual(
            ("req_1", "unresolved", "failed", 500, "process_died", "acme", "key1", "mini", 1),
            tuple(
                line[name]
                for name in (
                    *("request_id", "state", "exit", "status", "code"),
                    *("tenant", "key_id", "deployment", "attempts"),
                )
            ),
        )

    def test_open_holds_are_given_back_if_so_configured(self) -> None:
        """The row says void."""
        self.book.reserve(self.account, 60)
        self.assertEqual(1, self.die(OnCrash.VOID))
        self.assertEqual((0, 0, 0, 0), self.book.money())
        self.assertEqual([("req_1", "void", 0)], self.written())

    def test_what_was_resolved_is_left_alone(self) -> None:
        """Settled, void and unresolved alike."""
        settled, void, unresolved = (self.book.reserve(self.account, 30, f"req_{number}") for number in range(3))
        self.book.settle(settled, 30)
        self.book.run(self.book.ledger.void(void, row(void.request_id)))
        self.book.run(self.book.ledger.leave_unresolved(unresolved, "timeout", row(unresolved.request_id)))
        before = self.fates()
        self.assertEqual(0, self.die())
        self.assertEqual(before, self.fates())

    def test_a_request_whose_hold_was_given_up_before_the_crash_gets_its_row(self) -> None:
        """It had none yet: its story was still going on."""
        self.book.reserve(self.account, 60)
        self.book.clock.advance(2)
        self.book.run(self.book.ledger.sweep(hold_ttl_s=1, unresolved_after_s=1e9, policy=Policy.VOID))
        self.assertEqual(0, self.die(OnCrash.VOID))
        self.assertEqual([("req_1", "unresolved", 0)], self.fates())
        self.assertEqual((0, 0, 60, 0), self.book.money())

    def test_levels_are_known_after_a_restart(self) -> None:
        """With their limits."""
        self.die()
        self.assertEqual(self.account, self.book.ledger.account("acme", "key1"))
        with self.assertRaises(BudgetExceeded):
            self.book.reserve(self.account, 101)

    def test_a_clean_end_is_marked(self) -> None:
        """A dead process leaves no mark."""
        self.die()
        self.book.run(self.book.ledger.close())
        self.assertEqual([(1, None), (2, 1_767_225_600_000)], self.book.select("SELECT id, stopped_ms FROM boots"))


class LevelTest(LedgerCase):
    """set_level(), level(), account()."""

    def test_a_level_that_was_never_set_is_unknown(self) -> None:
        """It has no state and no account."""
        self.assertIsNone(self.book.run(self.book.ledger.level(Scope.KEY, "nobody")))
        self.assertFalse(self.book.ledger.has_level(Scope.KEY, "nobody"))
        with self.assertRaises(KeyError):
            self.book.ledger.account("acme", "nobody")

    def test_a_new_limit_leaves_the_balance(self) -> None:
        """And decides about the next request."""
        account = self.book.set_limits(100)
        self.book.settle(self.book.reserve(account, 60), 60)
        account = self.book.set_limits(70)
        self.assertEqual(LevelState(70, Window.TOTAL, spent_nanousd=60), self.book.level())
        with self.assertRaises(BudgetExceeded):
            self.book.reserve(account, 20, "req_2")

    def test_another_window_is_another_balance(self) -> None:
        """The former one is found again when the window is changed back."""
        self.book.settle(self.book.reserve(self.book.set_limits(100), 60), 60)
        self.book.set_limits(100, window=Window.DAY)
        self.assertEqual(LevelState(100, Window.DAY), self.book.level())
        self.book.set_limits(100)
        self.assertEqual((60, 0, 0, 0), self.book.money())

    def test_a_window_that_nobody_has_used_yet_is_told_as_empty(self) -> None:
        """Though the book still stands in the former one."""
        account = self.book.set_limits(100, window=Window.DAY)
        self.book.settle(self.book.reserve(account, 60), 60)
        self.book.clock.advance(86_400)
        self.assertEqual(LevelState(100, Window.DAY), self.book.level())

    def test_all_unresolved_money_is_summed(self) -> None:
        """Over every key; what is held or spent is not."""
        account = self.book.set_limits(100)
        self.book.settle(self.book.reserve(account, 5, "settled"), 5)
        self.book.reserve(account, 7, "open")
        for number, key_id in enumerate(("key1", "key2")):
            hold = self.book.reserve(self.book.set_limits(100, key_id=key_id), 30 + number, f"req_{number}")
            self.book.run(self.book.ledger.leave_unresolved(hold, "timeout", row(f"req_{number}", key_id=key_id)))
        self.assertEqual(61, self.book.run(self.book.ledger.unresolved_total()))


class QueuedTest(LedgerCase):
    """Durability `normal`: settlements are queued, and every reservation sees them."""

    durability = Durability.NORMAL

    def test_a_queued_settlement_is_seen_by_the_next_reservation(self) -> None:
        """It is still held until then."""
        account = self.book.set_limits(100)
        self.book.settle(self.book.reserve(account, 100), 30)
        self.assertEqual((0, 100, 0, 0), self.book.money())
        self.book.reserve(account, 70, "req_2")
        self.assertEqual((30, 70, 0, 0), self.book.money())

    def test_a_crash_loses_the_settlement_but_not_the_money(self) -> None:
        """The hold is unresolved, at its whole amount."""
        self.book.settle(self.book.reserve(self.book.set_limits(100), 100), 30)
        self.book.crash()
        self.assertEqual(1, self.book.open())
        self.assertEqual((0, 0, 100, 0), self.book.money())

    def test_a_row_without_money_is_queued(self) -> None:
        """It costs no commit of its own."""
        self.book.set_limits(100)
        self.book.ledger.record(row("refused"))
        self.assertEqual([], self.fates())
        self.book.flush()
        self.assertEqual([("refused", "none", 0)], self.fates())


class FullDiskTest(LedgerCase):
    """A disk that refuses one commit."""

    def setUp(self) -> None:
        super().setUp()
        self.account = self.book.set_limits(100)
        self.hold = self.book.reserve(self.account, 60)
        self.disk = _FullDisk(self.book)

    def test_a_settlement_is_kept_until_it_can_be_committed(self) -> None:
        """The request does not fail for it, and the hold stays until then."""
        with self.disk:
            self.book.settle(self.hold, 25)
        self.assertEqual((0, 60, 0, 0), self.book.money())
        self.book.flush()
        self.assertEqual((25, 0, 0, 0), self.book.money())
        self.assertEqual([("req_1", "settled", 25)], self.fates())

    def test_a_reservation_is_refused(self) -> None:
        """Nothing is sent to an upstream that cannot be booked."""
        with self.disk, self.assertRaises(StoreUnavailable):
            self.book.reserve(self.account, 1, "req_2")
        with self.disk, self.assertRaises(StoreUnavailable):
            self.book.run(self.book.ledger.touch())
        self.book.run(self.book.ledger.touch())


class _FullDisk:
    """The store of a book while it cannot commit."""

    def __init__(self, book: Book) -> None:
        self._ledger: Ledger = book.ledger
        self._store = book.store

    def __enter__(self) -> None:
        self._ledger._store = self

    def __exit__(self, *_: object) -> None:
        self._ledger._store = self._store

    async def transact(self, work: Work[T]) -> T:
        raise StoreUnavailable

    def enqueue(self, work: Work[object], *, vital: bool = True) -> None:
        self._store.enqueue(work, vital=vital)

    async def read(self, sql: str, params: Any = ()) -> Any:
        return await self._store.read(sql, params)


def _told(refusal: BudgetExceeded | BudgetReserved) -> tuple[int, str, float | None]:
    return refusal.status, refusal.code, refusal.retry_after_s


if __name__ == "__main__":
    unittest.main()
