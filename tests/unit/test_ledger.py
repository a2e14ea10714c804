"""The ledger, one step at a time: what it books, what it refuses and with which words, what time and crashes do."""

import unittest
from typing import Any
from unittest import mock

from gateway import rows
from gateway.errors import BudgetExceeded, BudgetReserved, StoreUnavailable
from gateway.holds import AlreadyResolved, OnCrash, Outcome, Policy, Purpose, Reservation
from gateway.ledger import ROWS_AT_ONCE, Ledger
from gateway.levels import CALL_MOST_NANOUSD, LevelState, NamedLevel, Scope
from gateway.store import Durability, T, Work
from gateway.types import Window
from tests.support.books import Book, opened_book, purpose, row

USD = 1_000_000_000
_COUNT = "SELECT count(*) FROM"
_MONEY = "SELECT DISTINCT spent_nanousd, held_nanousd, unresolved_nanousd, overage_nanousd FROM balances"
LEVELS = ((Scope.KEY, "key1"), (Scope.TENANT, "acme"), (Scope.GLOBAL, ""))
NO_AMOUNTS: tuple[Any, ...] = (-1, True, 1.0, "5")


class LedgerCase(unittest.TestCase):
    """A book of one tenant, and the promise that it balances at the end of every test."""

    durability = Durability.FULL

    def setUp(self) -> None:
        self.book = self.enterContext(opened_book(durability=self.durability))

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

    def test_a_refusal_at_one_level_leaves_no_money_at_the_others(self) -> None:
        """Whichever level it is; their windows are open now, and empty."""
        for limits in ((10, 100, 100), (100, 10, 100), (100, 100, 10)):
            account = self.book.set_limits(*limits)
            with self.subTest(limits=limits):
                with self.assertRaises(BudgetExceeded):
                    self.book.reserve(account, 11)
                self.assertEqual([(0, 0, 0, 0)], self.book.select(_MONEY))
                self.assertEqual([(0,)], self.book.select(f"{_COUNT} holds"))

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

    def test_without_a_limit_nothing_is_refused_below_the_most_of_a_call(self) -> None:
        """No call costs more, and sums of what is held must fit into a balance."""
        account = self.book.set_limits()
        self.book.reserve(account, CALL_MOST_NANOUSD)
        with self.assertRaises(BudgetExceeded):
            self.book.reserve(account, CALL_MOST_NANOUSD + 1, "req_2")

    def test_what_is_no_amount_is_an_error(self) -> None:
        """Negative numbers, bools, floats and texts, in every call that takes an amount."""
        account = self.book.set_limits(100)
        hold = self.book.reserve(account, 10)
        ledger = self.book.ledger
        for wrong in NO_AMOUNTS:
            for call in (
                ledger.reserve(account, wrong, purpose("req_2")),
                ledger.reserve_next(hold, Outcome(5), account, wrong, purpose("req_1", attempt=2)),
                ledger.reserve_next(hold, Outcome(wrong), account, 5, purpose("req_1", attempt=2)),
                ledger.top_up(hold, wrong, purpose("req_1", attempt=2)),
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

    def spend(self, amount: int, window: Window = Window.TOTAL) -> None:
        """Spend so much at every level."""
        hold = self.book.reserve(self.book.set_limits(window=window), amount, f"req_{len(self.book.rows())}")
        self.book.settle(hold, amount)

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
                self.spend(5, window)
                self.assertTrue(self.refused(5, 9, window=window).endswith(words))

    def test_it_says_that_waiting_does_not_help_a_request_that_never_fits(self) -> None:
        """At every level, with what does help."""
        for limits in ((1, None, None), (None, 1, None), (None, None, 1)):
            for window, waiting in (
                (Window.TOTAL, "."),
                (Window.DAY, ". Waiting until it resets at 2026-01-02T00:00:00Z does not help."),
            ):
                with self.subTest(limits=limits, window=window):
                    said = self.refused(2, *limits, window=window)
                    self.assertRegex(
                        said, f"is below what this request could cost.*a smaller output cap lowers [a-z ]+{waiting}$"
                    )
        self.assertIn("a smaller output cap", self.refused(CALL_MOST_NANOUSD + 1, None))

    def test_a_smaller_output_cap_is_named_where_waiting_helps_too(self) -> None:
        """Also of the gateway's own budget."""
        self.spend(5)
        for limits in ((9, None, None), (None, 9, None), (None, None, 9)):
            with self.subTest(limits):
                said = self.refused(5, *limits)
                self.assertRegex(said, r"has too little left.*a smaller output cap lowers .*\. It does not reset\.$")

    def test_no_output_cap_is_small_enough_for_a_budget_that_is_used_up(self) -> None:
        """Only a reset helps, if there is one; a request that is larger than the whole budget needs both."""
        for limits in ((5, None, None), (None, 5, None), (None, None, 5)):
            for window, waiting in (
                (Window.TOTAL, "It does not reset."),
                (Window.DAY, "It resets at 2026-01-02T00:00:00Z."),
            ):
                with self.subTest(limits=limits, window=window):
                    self.spend(5, window)
                    said = self.refused(1, *limits, window=window)
                    self.assertRegex(said, f"has nothing left.*{waiting}$")
                    self.assertNotIn("cap", said)
        self.assertRegex(self.refused(6, 5), "has nothing left.* It does not reset.$")
        self.spend(5, Window.DAY)
        self.assertRegex(self.refused(6, 5, window=Window.DAY), "is below .*a smaller output cap .* does not help.$")

    def test_a_level_that_it_never_fits_outweighs_one_that_is_used_up(self) -> None:
        """The key resets, but the tenant's whole budget is too small."""
        self.spend(5)
        self.assertRegex(self.refused(7, 9, 6), "^The tenant budget .* is below")

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

    def test_what_this_call_cannot_have_cost_comes_back(self) -> None:
        """The hold may have been for a dearer one; above its own bound a late bill is overage."""
        self.book.run(self.book.ledger.leave_unresolved(self.hold, "timeout", row(), at_most_nanousd=20))
        self.assertEqual((0, 0, 20, 0), self.book.money())
        self.assertEqual([20], [line[0] for line in self.book.select("SELECT amount_nanousd FROM holds")])
        self.book.run(self.book.ledger.settle(self.hold, 25))
        self.assertEqual((25, 0, 0, 5), self.book.money())
        other = self.book.reserve(self.account, 10, "req_2")
        self.book.run(self.book.ledger.leave_unresolved(other, "timeout", row("req_2"), at_most_nanousd=99))
        self.assertEqual((25, 0, 10, 5), self.book.money())

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

    def test_an_admins_word_stands_though_the_request_knows_nothing(self) -> None:
        """Its row does not call unresolved what was decided."""
        self.book.run(self.book.ledger.resolve_by_admin(self.hold.id, 10))
        self.book.run(self.book.ledger.leave_unresolved(self.hold, "timeout", row()))
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
        return self.book.run(self.book.ledger.top_up(self.hold, extra, purpose(attempt=2)))

    def test_the_larger_hold_is_one_hold(self) -> None:
        """For the call that it was raised for; overage begins above the sum."""
        larger = self.top_up(40)
        self.assertEqual((100, (0, 100, 0, 0)), (larger.amount_nanousd, self.book.money()))
        self.assertEqual([(100, 2)], self.book.select("SELECT amount_nanousd, attempt FROM holds"))
        self.book.settle(larger, 90)
        self.assertEqual((90, 0, 0, 0), self.book.money())

    def test_a_refused_top_up_leaves_the_hold_as_it_was(self) -> None:
        """In the book as in the balances."""
        with self.assertRaises(BudgetExceeded):
            self.top_up(101)
        with self.assertRaises(BudgetReserved):
            self.top_up(41)
        self.assertEqual((0, 60, 0, 0), self.book.money())
        self.assertEqual([(60, 1)], self.book.select("SELECT amount_nanousd, attempt FROM holds"))

    def test_nothing_more_needs_no_room(self) -> None:
        """Though a limit was lowered below what is held: the money for the call is there."""
        self.book.set_limits(50)
        self.assertEqual(60, self.top_up(0).amount_nanousd)
        self.assertEqual([(60, 2)], self.book.select("SELECT amount_nanousd, attempt FROM holds"))

    def test_a_hold_that_is_resolved_cannot_be_raised(self) -> None:
        """Its money is gone."""
        self.book.settle(self.hold, 10)
        with self.assertRaises(AlreadyResolved):
            self.top_up(1)

    def test_a_hold_beyond_every_budget_is_refused(self) -> None:
        """Also where there is no limit."""
        self.book.set_limits()
        with self.assertRaises(BudgetExceeded):
            self.top_up(CALL_MOST_NANOUSD - 59)


class CarryTest(LedgerCase):
    """carry(): an unbilled call hands its hold on."""

    def test_the_hold_stands_for_the_next_call(self) -> None:
        """Once it is written; no money moves."""
        hold = self.book.reserve(self.book.set_limits(100), 60)
        self.book.ledger.carry(hold, Purpose("req_1", 2, "fast", "other", "7"))
        words = "SELECT attempt, alias, deployment, price_version FROM holds"
        self.assertEqual([(1, "mini", "mini", "1")], self.book.select(words))
        self.book.flush()
        self.assertEqual([(2, "fast", "other", "7")], self.book.select(words))
        self.assertEqual((0, 60, 0, 0), self.book.money())
        self.book.settle(hold, 25)
        self.assertEqual([("req_1", "settled", 25)], self.fates())

    def test_a_hold_that_was_given_up_is_not_carried(self) -> None:
        """By an operator, or for its age: no call goes out without money behind it."""
        for gives_up in ("admin", "ttl"):
            with self.subTest(gives_up):
                self.setUp()
                hold = self.book.reserve(self.book.set_limits(100), 60)
                if gives_up == "admin":
                    self.book.run(self.book.ledger.resolve_by_admin(hold.id, None))
                else:
                    self.book.clock.advance(901)
                    self.book.run(self.book.ledger.sweep(hold_ttl_s=900, unresolved_after_s=1e9, policy=Policy.VOID))
                with self.assertRaises(AlreadyResolved):
                    self.book.ledger.carry(hold, purpose(attempt=2))
                self.tearDown()

    def test_a_hold_that_is_resolved_before_it_is_written_keeps_its_words(self) -> None:
        """It is told of the call that it was resolved for."""
        hold = self.book.reserve(self.book.set_limits(100), 60)
        self.book.run(Ledger(self.book.store, self.book.clock).resolve_by_admin(hold.id, None))
        self.book.ledger.carry(hold, purpose(attempt=2))
        self.book.flush()
        self.assertEqual([("void", 1)], self.book.select("SELECT state, attempt FROM holds"))

    def test_a_dead_request_is_told_of_the_call_that_was_written_last(self) -> None:
        """A crash may lose that there was another."""
        for written, attempts in ((True, 2), (False, 1)):
            with self.subTest(written=written):
                self.setUp()
                hold = self.book.reserve(self.book.set_limits(100), 60)
                self.book.ledger.carry(hold, Purpose("req_1", 2, "mini", "other", "1"))
                if written:
                    self.book.flush()
                self.book.crash()
                self.assertEqual(1, self.book.open())
                [line] = self.book.rows()
                self.assertEqual((attempts, "unresolved"), (line["attempts"], line["state"]))
                self.tearDown()


class ReserveNextTest(LedgerCase):
    """reserve_next(): a call that may have been billed is followed by another."""

    def setUp(self) -> None:
        super().setUp()
        self.account = self.book.set_limits(200, 1000, 1000)
        self.first = self.book.reserve(self.account, 60)

    def next(self, cost: int | None, amount: int = 60, *, after: Reservation | None = None) -> Reservation:
        """The hold of the next call; the last one cost `cost`, or nobody knows."""
        former = after or self.first
        outcome = Outcome(cost, "timeout")
        story = self.book.ledger.reserve_next(former, outcome, self.account, amount, purpose(attempt=2))
        return self.book.run(story)

    def states(self) -> list[tuple[Any, ...]]:
        """State, amount, cost and attempt of every hold."""
        return self.book.select("SELECT state, amount_nanousd, cost_nanousd, attempt FROM holds ORDER BY id")

    def test_the_last_call_is_settled_and_the_next_one_held(self) -> None:
        """At every level, in one transaction; no row is written yet."""
        hold = self.next(25, 70)
        for scope, name in LEVELS:
            self.assertEqual((25, 70, 0, 0), self.book.money(scope, name))
        self.assertEqual([("settled", 60, 25, 1), ("open", 70, 0, 2)], self.states())
        self.assertEqual((70, "req_1", True), (hold.amount_nanousd, hold.request_id, hold.earlier))
        self.assertEqual([], self.fates())

    def test_a_call_of_unknown_outcome_goes_on_counting(self) -> None:
        """Beside the next one, with its reason."""
        self.next(None)
        self.assertEqual((0, 60, 60, 0), self.book.money())
        told = self.book.select("SELECT state, unresolved_why FROM holds ORDER BY id")
        self.assertEqual([("unresolved", "timeout"), ("open", None)], told)

    def test_the_row_has_the_money_of_every_hold(self) -> None:
        """Its state is unresolved if any part is, else settled if anything was paid."""
        for last, expected in (
            ("settle", ("settled", 25 + 30)),
            ("void", ("settled", 25)),
            ("leave", ("unresolved", 25)),
        ):
            with self.subTest(last):
                self.setUp()
                hold = self.next(25)
                if last == "leave":
                    self.book.run(self.book.ledger.leave_unresolved(hold, "timeout", row()))
                elif last == "void":
                    self.book.run(self.book.ledger.void(hold, row()))
                else:
                    self.book.settle(hold, 30)
                self.assertEqual([("req_1", *expected)], self.written())
                self.assertEqual([("req_1", *expected)], self.fates())
                self.tearDown()

    def test_an_unknown_part_outweighs_what_was_paid_later(self) -> None:
        """Until it is resolved; the row tells."""
        self.book.settle(self.next(None), 30)
        self.assertEqual([("req_1", "unresolved", 30)], self.written())
        self.book.run(self.book.ledger.settle(self.first, 20))
        self.assertEqual([("req_1", "settled", 50)], self.fates())
        self.assertEqual([("req_1", "unresolved", 30)], self.written())

    def test_overage_of_every_call_is_in_the_row(self) -> None:
        """Each above its own hold."""
        self.book.settle(self.next(70, 40), 45)
        self.assertEqual((115, 0, 0, 15), self.book.money())
        self.assertEqual([(115, 15)], self.book.select("SELECT cost_nanousd, overage_nanousd FROM requests"))

    def test_there_may_be_any_number_of_calls(self) -> None:
        """One open hold at a time."""
        hold = self.first
        for _ in range(5):
            hold = self.next(10, 50, after=hold)
            self.assertEqual([(1,)], self.book.select(f"{_COUNT} holds WHERE state = 'open'"))
        self.book.settle(hold, 10)
        self.assertEqual([("req_1", "settled", 60)], self.fates())

    def test_a_refusal_leaves_everything_as_it_was(self) -> None:
        """For want of room beside what the last call cost, or may have cost; the former hold can still be resolved."""
        for cost, amount in ((50, 151), (None, 141), (250, 0)):
            with self.subTest(cost=cost, amount=amount):
                with self.assertRaises(BudgetExceeded):
                    self.next(cost, amount)
                self.assertEqual((0, 60, 0, 0), self.book.money())
                self.assertEqual([("open", 60, 0, 1)], self.states())
        self.book.settle(self.first, 50)
        self.assertEqual([("req_1", "settled", 50)], self.fates())

    def test_the_last_nano_dollar_is_counted_after_the_outcome(self) -> None:
        """What the last call did not use is free for the next one."""
        self.next(50, 150)
        self.assertEqual((50, 150, 0, 0), self.book.money())

    def test_what_others_hold_is_worth_waiting_for(self) -> None:
        """And nothing was changed."""
        self.book.reserve(self.account, 100, "req_2")
        with self.assertRaises(BudgetReserved):
            self.next(10, 100)
        self.assertEqual((0, 160, 0, 0), self.book.money())

    def test_a_former_hold_that_was_decided_already_stays_so(self) -> None:
        """An admin's word stands; what time gave up is settled late."""
        self.book.run(self.book.ledger.resolve_by_admin(self.first.id, 10))
        self.book.settle(self.next(25), 30)
        self.assertEqual(((40, 0, 0, 0), [("req_1", "settled", 40)]), (self.book.money(), self.written()))
        self.setUp()
        self.give_up()
        self.assertEqual((0, 0, 60, 0), self.book.money())
        self.book.settle(self.next(25), 30)
        self.assertEqual(((55, 0, 0, 0), [("req_1", "settled", 55)]), (self.book.money(), self.written()))

    def give_up(self) -> None:
        """Let the time of every open hold pass."""
        self.book.clock.advance(901)
        self.book.run(self.book.ledger.sweep(hold_ttl_s=900, unresolved_after_s=1e9, policy=Policy.VOID))

    def test_what_time_gave_up_stays_unresolved_if_nobody_knows(self) -> None:
        """It is counted once, with the reason of the first who gave it up."""
        self.give_up()
        self.next(None)
        self.assertEqual((0, 60, 60, 0), self.book.money())
        self.assertEqual([("ttl",)], self.book.select("SELECT unresolved_why FROM holds WHERE id = 1"))

    def test_a_late_word_between_two_calls_is_in_the_row(self) -> None:
        """Whoever resolves the first hold while the second call runs."""
        hold = self.next(None)
        self.book.run(self.book.ledger.resolve_by_admin(self.first.id, 15))
        self.book.settle(hold, 30)
        self.assertEqual([("req_1", "settled", 45)], self.written())
        self.assertEqual((45, 0, 0, 0), self.book.money())

    def test_the_end_of_a_request_whose_last_hold_was_decided_has_the_money_of_all(self) -> None:
        """The row is appended once, with what was decided."""
        hold = self.next(25)
        self.book.run(self.book.ledger.resolve_by_admin(hold.id, None))
        self.assertEqual((), self.book.verify().differences)
        self.book.settle(hold, 30)
        self.book.settle(hold, 30)
        self.assertEqual([("req_1", "settled", 25)], self.written())

    def test_each_hold_belongs_to_the_window_of_its_reservation(self) -> None:
        """A request may end in another window than it began in."""
        self.account = self.book.set_limits(200, window=Window.DAY)
        self.first = self.book.reserve(self.account, 60)
        self.book.clock.advance(86_400)
        self.book.settle(self.next(25, 70), 30)
        spent = self.book.select(
            "SELECT spent_nanousd FROM balances JOIN levels ON levels.id = level_id"
            " WHERE scope = 'key' AND window_kind = 'day' ORDER BY balances.window_number"
        )
        self.assertEqual([(25,), (30,)], spent)

    def test_a_dead_request_has_one_row_with_the_money_of_all_its_holds(self) -> None:
        """As its last hold knows it."""
        for cost, on_crash, expected in (
            (25, OnCrash.UNRESOLVED, ("unresolved", 25)),
            (25, OnCrash.VOID, ("settled", 25)),
            (None, OnCrash.VOID, ("unresolved", 0)),
            (None, OnCrash.UNRESOLVED, ("unresolved", 0)),
        ):
            with self.subTest(cost=cost, on_crash=on_crash):
                self.setUp()
                self.next(cost)
                self.book.crash()
                self.assertEqual(1, self.book.open(on_crash))
                self.assertEqual([("req_1", *expected)], self.written())
                self.assertEqual([(2, "process_died")], self.book.select("SELECT attempts, code FROM requests"))
                self.book.crash()
                self.assertEqual(0, self.book.open(on_crash))
                self.assertEqual([("req_1", *expected)], self.written())
                self.tearDown()

    def test_a_request_whose_every_hold_was_given_up_has_one_row_after_a_crash(self) -> None:
        """Not one per hold."""
        self.next(None)
        self.give_up()
        self.book.crash()
        self.assertEqual(0, self.book.open())
        self.assertEqual([("req_1", "unresolved", 0)], self.written())
        self.assertEqual((0, 0, 120, 0), self.book.money())

    def test_without_a_disk_nothing_follows(self) -> None:
        """The former hold is open still, and can be settled later."""
        with _FullDisk(self.book), self.assertRaises(StoreUnavailable):
            self.next(25)
        self.assertEqual([("open", 60, 0, 1)], self.states())
        self.book.settle(self.first, 25)
        self.assertEqual([("req_1", "settled", 25)], self.fates())

    def test_the_former_hold_does_not_grow_old(self) -> None:
        """It is forgotten at once; the next one's age is its own."""
        self.book.clock.advance(500)
        hold = self.next(25)
        self.assertEqual([hold.id], list(self.book.ledger._opened))
        self.book.clock.advance(500)
        self.assertEqual(
            0, self.book.run(self.book.ledger.sweep(hold_ttl_s=900, unresolved_after_s=1, policy=Policy.VOID))
        )
        self.give_up()
        self.assertEqual((25, 0, 60, 0), self.book.money())


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

    def test_an_open_hold_is_found_however_old_it_is(self) -> None:
        """A sweep notes where the first of them is, behind it many have come and gone, and the process dies."""
        account = self.book.set_limits(100)
        other = self.book.reserve(account, 10, "other")
        for number in range(3):
            self.book.settle(self.book.reserve(account, 1, f"settled_{number}"), 1)
            self.sweep()
            self.assertEqual(self.hold.id, self.none_open_below())
        self.assertEqual((70, 0), self.book.run(self.book.ledger.pending_totals()))
        self.book.settle(self.hold, 60)
        self.sweep()
        self.assertEqual(other.id, self.none_open_below())
        self.book.crash()
        self.assertEqual(1, self.book.open())
        self.assertEqual((63, 0, 10, 0), self.book.money())
        self.assertEqual(other.id + 4, self.none_open_below())

    def none_open_below(self) -> int:
        """Where a search for open holds begins."""
        return int(self.book.select("SELECT max(no_open_below) FROM boots")[0][0])

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

    def die(self, on_crash: OnCrash | None = OnCrash.UNRESOLVED) -> int:
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

    def test_a_life_that_serves_nothing_leaves_the_decision_to_the_next(self) -> None:
        """Meanwhile the holds count and have their rows; it is decided once, whatever a later life would do."""
        for decides, becomes, counted in ((OnCrash.VOID, "void", 0), (OnCrash.UNRESOLVED, "unresolved", 60)):
            with self.subTest(decides):
                self.setUp()
                self.book.reserve(self.account, 60)
                for found in (1, 0):
                    self.assertEqual(found, self.die(None))
                    self.assertEqual((0, 0, 60, 0), self.book.money())
                    self.assertEqual([("req_1", "unresolved", 0)], self.fates())
                for found, on_crash in ((1, decides), (0, OnCrash.VOID)):
                    self.assertEqual(found, self.die(on_crash))
                    self.assertEqual((0, 0, counted, 0), self.book.money())
                    self.assertEqual([("req_1", becomes, 0)], self.fates())
                self.tearDown()

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

    def test_a_machine_that_restarted_under_it_is_noticed(self) -> None:
        """After a life without a clean end, and in another boot of the machine, both of which are known."""
        for former, clean, present, restarted in (
            ("one", False, "two", True),
            ("one", False, "one", False),
            ("one", True, "two", False),
            ("", False, "two", False),
        ):
            with self.subTest(former=former, clean=clean, present=present):
                self.book.crash()
                self.book.open(machine_boot=former)
                if clean:
                    self.book.run(self.book.ledger.close())
                self.book.crash()
                self.book.open(machine_boot=present)
                self.assertIs(self.book.ledger.machine_restarted, restarted)

    def test_a_clean_end_is_marked(self) -> None:
        """A dead process leaves no mark."""
        self.die()
        self.book.run(self.book.ledger.close())
        self.assertEqual([(1, None), (2, 1_767_225_600_000)], self.book.select("SELECT id, stopped_ms FROM boots"))


class LevelTest(LedgerCase):
    """set_level(), level(), levels(), account()."""

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

    def test_every_level_is_told_and_when_it_resets(self) -> None:
        """The gateway first, then tenants, then keys by name; one that never ends does not reset."""
        self.book.set_limits(3, 2, 1)
        self.book.settle(self.book.reserve(self.book.set_limits(90, 80, 70, window=Window.DAY), 9), 8)
        self.book.set_limits(4, 2, 1, key_id="a")
        self.assertEqual(
            [
                NamedLevel(Scope.GLOBAL, "", LevelState(1, Window.TOTAL), None),
                NamedLevel(Scope.TENANT, "acme", LevelState(2, Window.TOTAL), None),
                NamedLevel(Scope.KEY, "a", LevelState(4, Window.TOTAL), None),
                NamedLevel(Scope.KEY, "key1", LevelState(90, Window.DAY, spent_nanousd=8), "2026-01-02T00:00:00Z"),
            ],
            self.book.run(self.book.ledger.levels()),
        )

    def test_the_window_that_resets_is_the_one_that_is_told(self) -> None:
        """A window that is over is empty and the next one's end counts; a clock that is set back changes nothing."""
        account = self.book.set_limits(100, window=Window.DAY)
        for jump_s, spent, resets_at in (
            (0, 0, "2026-01-02T00:00:00Z"),
            (0, 1, "2026-01-02T00:00:00Z"),
            (86_400, 0, "2026-01-03T00:00:00Z"),
            (0, 1, "2026-01-03T00:00:00Z"),
            (-2 * 86_400, 1, "2026-01-03T00:00:00Z"),
        ):
            self.book.clock.jump_wall(jump_s)
            if not jump_s and spent:
                self.book.settle(self.book.reserve(account, 1, f"req_{resets_at}"), 1)
            told = {(level.state.spent_nanousd, level.resets_at) for level in self.book.run(self.book.ledger.levels())}
            with self.subTest(jump_s=jump_s, spent=spent):
                self.assertEqual({(spent, resets_at)}, told)

    def test_all_unresolved_money_is_summed(self) -> None:
        """Over every key; what is held or spent is not."""
        account = self.book.set_limits(100)
        self.book.settle(self.book.reserve(account, 5, "settled"), 5)
        self.book.reserve(account, 7, "open")
        for number, key_id in enumerate(("key1", "key2")):
            hold = self.book.reserve(self.book.set_limits(100, key_id=key_id), 30 + number, f"req_{number}")
            self.book.run(self.book.ledger.leave_unresolved(hold, "timeout", row(f"req_{number}", key_id=key_id)))
        self.assertEqual(61, self.book.run(self.book.ledger.pending_totals())[1])


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

    def test_rows_without_money_are_written_many_at_once(self) -> None:
        """In their order."""
        self.book.set_limits(100)
        names = [f"refused_{number:02}" for number in range(ROWS_AT_ONCE + 8)]
        with mock.patch.object(rows, "append_all", wraps=rows.append_all) as written:
            for name in names:
                self.book.ledger.record(row(name))
            self.book.flush()
        self.assertEqual([ROWS_AT_ONCE, 8], [len(call.args[1]) for call in written.call_args_list])
        self.assertEqual([(name, "none", 0) for name in names], self.fates())

    def test_a_row_that_is_refused_takes_no_others_along(self) -> None:
        """Each of its group is written alone then; a second row of one request is an error, and the first stays."""
        self.book.set_limits(100)
        for name in ("first", "second", "first", "third"):
            self.book.ledger.record(row(name))
        self.book.flush()
        self.assertEqual([(name, "none", 0) for name in ("first", "second", "third")], self.fates())
        self.assertEqual(2, len(self.book.errors))
        for error in self.book.errors:
            self.assertRegex(str(error), "UNIQUE constraint failed: requests.request_id")
        self.book.errors.clear()


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

    def enqueue(self, work: Work[object], *, vital: bool = True) -> bool:
        return self._store.enqueue(work, vital=vital)

    async def read(self, sql: str, params: Any = ()) -> Any:
        return await self._store.read(sql, params)


def _told(refusal: BudgetExceeded | BudgetReserved) -> tuple[int, str, float | None]:
    return refusal.status, refusal.code, refusal.retry_after_s


if __name__ == "__main__":
    unittest.main()
