"""Reading the book: each kind of tampering is found and named; rows and holds are listed as they are."""

import unittest
from typing import Any

from msgspec.structs import replace

from gateway import audit
from gateway.holds import Outcome, Reservation
from gateway.rows import Exit
from tests.support.books import opened_book, purpose, row

_REWRITABLE = tuple(
    f"DROP TRIGGER {trigger}"
    for trigger in (
        "requests_are_never_rewritten",
        "requests_are_never_deleted",
        "a_hold_moves_its_money",
        "a_hold_stays_where_it_is",
        "holds_are_never_deleted",
    )
)


class AuditCase(unittest.TestCase):
    """A book with a settled request with overage, a void one, an unresolved one and an open hold."""

    def setUp(self) -> None:
        self.book = book = self.enterContext(opened_book())
        account = book.set_limits(1000, 1000, 1000)
        settled, void, self.unresolved, self.open = (
            book.reserve(account, 100, f"req_{name}") for name in ("settled", "void", "unresolved", "open")
        )
        book.settle(settled, 130)
        book.run(book.ledger.void(void, row("req_void")))
        book.run(book.ledger.leave_unresolved(self.unresolved, "timeout", row("req_unresolved")))
        self.settled: Reservation = settled


class VerifyTest(AuditCase):
    """verify()."""

    def test_an_honest_book_has_no_difference(self) -> None:
        """And everything in it was counted."""
        self.assertEqual(audit.Report(3, 4, 3, 1, 1, ()), self.book.verify())
        self.assertTrue(self.book.verify().ok)

    def found(self, *statements: str) -> tuple[str, ...]:
        """The differences after some tampering."""
        self.book.tamper(*_REWRITABLE, *statements)
        report = self.book.verify()
        self.assertEqual(not report.differences, report.ok)
        return report.differences

    def test_each_sum_of_a_balance_is_recomputed(self) -> None:
        """The difference says where and how much, with its sign."""
        for change, words in (
            ("spent_nanousd = spent_nanousd - 7", "spent -7, held +0, unresolved +0, overage +0"),
            ("held_nanousd = held_nanousd + 1", "spent +0, held +1, unresolved +0, overage +0"),
            ("unresolved_nanousd = 0", "spent +0, held +0, unresolved -100, overage +0"),
            ("overage_nanousd = 31", "spent +0, held +0, unresolved +0, overage +1"),
        ):
            with self.subTest(change=change):
                self.setUp()
                difference = f"balance 2 differs from its holds: {words} nano-dollars"
                self.assertEqual((difference,), self.found(f"UPDATE balances SET {change} WHERE id = 2"))

    def test_a_hold_that_was_changed_is_found_in_its_balances(self) -> None:
        """Its amount, its cost, its state, the balances that it names, the hold itself."""
        for change in (
            f"UPDATE holds SET amount_nanousd = 99 WHERE id = {self.open.id}",
            f"UPDATE holds SET cost_nanousd = 131, overage_nanousd = 31 WHERE id = {self.settled.id}",
            f"UPDATE holds SET state = 'open' WHERE id = {self.unresolved.id}",
            f"UPDATE holds SET tenant_balance = key_balance WHERE id = {self.open.id}",
            f"DELETE FROM holds WHERE id = {self.unresolved.id}",
        ):
            with self.subTest(change=change):
                self.setUp()
                self.assertRegex(" ".join(self.found(change)), "balance 1 differs")

    def test_a_file_that_contradicts_itself_is_found(self) -> None:
        """An index that lacks a row is no difference of any sum."""
        rows = "UPDATE sqlite_schema SET sql = replace(sql, '(request_id)', '(tenant)') WHERE name = 'holds_of_request'"
        self.found("PRAGMA writable_schema = ON", rows)
        self.book.close()
        self.book.open()
        self.assertRegex(" ".join(self.book.verify().differences), "the file is damaged: row 1 missing from index")

    def test_a_balance_without_its_holds_is_found(self) -> None:
        """Also one that no hold ever named."""
        self.assertRegex(
            " ".join(self.found("INSERT INTO balances (level_id, window_number, spent_nanousd) VALUES (1, 9, 5)")),
            r"balance 4 differs from its holds: spent \+5",
        )

    def test_a_hold_that_contradicts_itself_is_found(self) -> None:
        """Overage that is not the part above the amount, a cost that nobody settled, a resolution without an author,
        one that is open where nobody would look for it.
        """
        for change in (
            f"UPDATE boots SET no_open_below = {self.open.id + 1}",
            f"UPDATE holds SET overage_nanousd = 0 WHERE id = {self.settled.id}",
            f"UPDATE holds SET cost_nanousd = 5 WHERE id = {self.open.id}",
            f"UPDATE holds SET resolved_by = NULL WHERE id = {self.settled.id}",
            f"UPDATE holds SET resolved_by = 'admin' WHERE id = {self.open.id}",
        ):
            with self.subTest(change=change):
                self.setUp()
                self.assertRegex(" ".join(self.found(change)), r"hold \d \(\w+\) is inconsistent")

    def test_a_row_that_says_something_else_than_its_holds_is_found(self) -> None:
        """Its cost or its overage; a void one too."""
        for change, words in (
            ("cost_nanousd = 129 WHERE state = 'settled'", "row req_settled says 129 and overage 30, .* 130 and 30"),
            ("overage_nanousd = 0 WHERE state = 'settled'", "row req_settled says 130 and overage 0, .* 130 and 30"),
            ("cost_nanousd = 1 WHERE state = 'void'", "row req_void says 1 and overage 0, its holds say 0 and 0"),
        ):
            with self.subTest(change=change):
                self.setUp()
                self.assertRegex(" ".join(self.found(f"UPDATE requests SET {change}")), words)

    def test_a_settled_row_without_a_hold_is_found(self) -> None:
        """Money that was never held."""
        forged = "UPDATE holds SET request_id = 'other' WHERE request_id = 'req_settled'"
        self.assertRegex(" ".join(self.found(forged)), "row req_settled says 130 .* its holds say 0")

    def test_a_resolved_hold_without_a_row_is_found(self) -> None:
        """A request is missing."""
        self.assertEqual(
            (f"hold {self.settled.id} of req_settled has no row",),
            self.found("DELETE FROM requests WHERE request_id = 'req_settled'"),
        )

    def test_a_request_in_flight_has_no_row_yet(self) -> None:
        """Though an earlier call of it is settled, or given up; also once somebody has decided about the last one."""
        book, account = self.book, self.book.ledger.account("acme", "key1")
        paid = book.reserve(account, 100, "req_paid")
        lost = book.reserve(account, 100, "req_lost")
        for former, outcome in ((paid, Outcome(10)), (lost, Outcome(None, "timeout"))):
            story = book.ledger.reserve_next(former, outcome, account, 5, purpose(former.request_id, attempt=2))
            last = book.run(story)
            self.assertEqual((), book.verify().differences)
            book.run(book.ledger.resolve_by_admin(last.id, 3))
            self.assertEqual((), book.verify().differences)
            book.run(book.ledger.settle(last, 4, row(former.request_id)))
            self.assertEqual((), book.verify().differences)

    def test_a_request_whose_every_call_was_settled_needs_its_row(self) -> None:
        """Each of its holds is named."""
        book, account = self.book, self.book.ledger.account("acme", "key1")
        first = book.reserve(account, 100, "req_two")
        second = book.run(book.ledger.reserve_next(first, Outcome(10), account, 5, purpose("req_two", attempt=2)))
        book.run(book.ledger.settle(second, 4))
        self.assertEqual(
            (f"hold {first.id} of req_two has no row", f"hold {second.id} of req_two has no row"),
            book.verify().differences,
        )

    def test_a_row_of_several_calls_is_the_sum_of_its_holds(self) -> None:
        """Anything else is found."""
        book, account = self.book, self.book.ledger.account("acme", "key1")
        first = book.reserve(account, 100, "req_two")
        second = book.run(book.ledger.reserve_next(first, Outcome(130), account, 5, purpose("req_two", attempt=2)))
        book.run(book.ledger.settle(second, 4, row("req_two")))
        self.assertTrue(book.verify().ok)
        changed = self.found("UPDATE requests SET cost_nanousd = 4 WHERE request_id = 'req_two'")
        self.assertEqual(("row req_two says 4 and overage 30, its holds say 134 and 30 nano-dollars",), changed)

    def test_what_operators_decided_is_no_difference(self) -> None:
        """A row is never rewritten, so it may say what was true when it was written."""
        former = self.book.reserve(self.book.ledger.account("acme", "key1"), 10, "req_settled")
        self.book.run(self.book.ledger.leave_unresolved(former, "timeout"))
        self.book.run(self.book.ledger.resolve_by_admin(former.id, 7))
        self.book.run(self.book.ledger.resolve_by_admin(self.unresolved.id, 55))
        self.book.run(self.book.ledger.resolve_by_admin(self.open.id, None))
        self.book.run(self.book.ledger.settle(self.open, 70, row("req_open")))
        self.assertEqual((), self.book.verify().differences)

    def test_rows_cannot_be_rewritten_or_deleted(self) -> None:
        """The table refuses it."""
        for statement in ("UPDATE requests SET cost_nanousd = 0", "DELETE FROM requests"):
            with self.subTest(statement=statement), self.assertRaisesRegex(Exception, "append-only"):
                self.book.tamper(statement)


class ListTest(AuditCase):
    """list_rows(), list_holds(), recent_starts(), pending_nanousd()."""

    def test_rows_come_oldest_first_and_tell_what_became_of_their_money(self) -> None:
        """A late settlement shows, though the row was never rewritten."""
        self.book.run(self.book.ledger.settle(self.unresolved, 55))
        self.assertEqual(
            [("req_settled", "settled", 130), ("req_void", "void", 0), ("req_unresolved", "settled", 55)],
            [(line["request_id"], line["state"], line["cost_nanousd"]) for line in self.book.rows()],
        )
        self.assertEqual([(0,)], self.book.select("SELECT cost_nanousd FROM requests WHERE id = 3"))

    def test_the_newest_rows_are_chosen(self) -> None:
        """Of one key, if one is named."""
        self.book.ledger.record(row("req_other", key_id="key2"))
        self.book.flush()

        def ids(**which: Any) -> list[Any]:
            return [line["request_id"] for line in self.book.run(audit.list_rows(self.book.store, **which))]

        self.assertEqual(["req_unresolved", "req_other"], ids(limit=2))
        self.assertEqual(["req_other"], ids(key_id="key2"))
        self.assertEqual(["req_unresolved"], ids(key_id="key1", limit=1))

    def test_recent_starts_are_told_in_order(self) -> None:
        """Of requests that were served or sent on: a refusal took nothing that lasts."""
        for name, started_ms, attempts, exit_ in (
            ("late", 30, 1, Exit.FAILED),
            ("early", 20, 2, Exit.ROUTED),
            ("old", 10, 1, Exit.ROUTED),
            ("hit", 40, 0, Exit.CACHE_HIT),
            ("refused", 50, 0, Exit.REJECTED),
        ):
            said = {"tenant": f"of-{name}", "started_ms": started_ms, "attempts": attempts, "exit": exit_}
            self.book.ledger.record(replace(row(name), **said))
        self.book.flush()
        starts = self.book.run(audit.recent_starts(self.book.store, 10))
        self.assertEqual(starts, [("of-early", 20), ("of-late", 30), ("of-hit", 40)])

    def test_the_row_of_a_request_is_found(self) -> None:
        """With its money; none while it is in flight, of another key, or for an id that nobody was given."""

        def found(request_id: str, **which: Any) -> list[Any]:
            lines = self.book.run(audit.list_rows(self.book.store, request_id=request_id, **which))
            return [(line["request_id"], line["state"], line["cost_nanousd"]) for line in lines]

        self.assertEqual([("req_settled", "settled", 130)], found("req_settled"))
        self.assertEqual([("req_settled", "settled", 130)], found("req_settled", key_id="key1", limit=1))
        self.assertEqual([], found("req_settled", key_id="key2"))
        for request_id in ("req_open", "req_", "", "' OR 1 --"):
            self.assertEqual([], found(request_id))

    def test_what_is_pending_has_an_amount(self) -> None:
        """Nothing else has."""
        for reservation, amount in ((self.open, 100), (self.unresolved, 100), (self.settled, None)):
            self.assertEqual(amount, self.book.run(audit.pending_nanousd(self.book.store, reservation.id)))
        self.assertIsNone(self.book.run(audit.pending_nanousd(self.book.store, 99)))

    def test_a_row_without_a_hold_says_what_it_said(self) -> None:
        """Flags are booleans."""
        self.book.ledger.record(row("req_refused"))
        self.book.flush()
        told = [self.book.rows()[-1][name] for name in ("state", "cost_nanousd", "stream", "estimated")]
        self.assertEqual(["none", 0, False, False], told)

    def test_pending_holds_are_listed(self) -> None:
        """Open and unresolved ones, oldest first, with the reason."""
        holds = self.book.run(audit.list_holds(self.book.store))
        self.assertEqual(
            [("req_unresolved", "unresolved", 100, "timeout"), ("req_open", "open", 100, None)],
            [tuple(hold[n] for n in ("request_id", "state", "amount_nanousd", "unresolved_why")) for hold in holds],
        )


if __name__ == "__main__":
    unittest.main()
