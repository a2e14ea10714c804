"""The upstream's own bill against the books: what must be equal, what must be a bound, and what is a leak."""

import sqlite3
import tempfile
import unittest
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from evals.metered import Manner, Metered
from evals.oracle import MOST_FAULTS, Audit, audit, groups, misrecorded
from evals.rows import Hold, Row, read_rows
from gateway.migrations import MIGRATIONS

CALL = Metered(1, "d0", Manner.GOOD, prompt=20, cached=10, completion=8, told=True)
BILL = CALL.billed_nanousd
REFUSED = Metered(1, "d0", Manner.ERROR_500, unbilled=True)
ROW = Row((Hold("settled", 50_000, BILL),), 1, "acme", "routed", 200, None, 0, 0, 1, 0, 8)


def row(*holds: Hold, **changes: object) -> Row:
    """ROW with these holds."""
    return replace(ROW, holds=holds, **changes)  # type: ignore[arg-type]


def settled(cost: int) -> Hold:
    """A hold that was settled at this."""
    return Hold("settled", 50_000, cost)


def differs(seen: Audit) -> tuple[int, int, int, int]:
    """misbooked, unmetered, unpaired, open."""
    return seen.misbooked, seen.unmetered, seen.unpaired, seen.open_holds


class BillTest(unittest.TestCase):
    """What a call costs."""

    def test_it_is_rounded_once_and_upward(self) -> None:
        """10 at 133.7, 10 at 33.3 and 8 at 600.1 nano-dollars."""
        self.assertEqual(BILL, 6_471)
        self.assertEqual(replace(CALL, completion=9).billed_nanousd, 7_071)
        self.assertEqual(CALL.prompt_nanousd, 1_670)


class AuditTest(unittest.TestCase):
    """One request at a time."""

    def test_what_was_told_is_booked_to_the_nano_dollar(self) -> None:
        """One less or one more is seen, whatever the row says of an estimate."""
        for estimated in (0, 1):
            self.assertEqual(differs(audit([CALL], [replace(ROW, estimated=estimated)])), (0, 0, 0, 0))
            for wrong in (BILL - 1, BILL + 1):
                seen = audit([CALL], [row(settled(wrong), estimated=estimated)])
                self.assertEqual((differs(seen), len(seen.faults)), ((1, 0, 0, 0), 1))

    def test_a_row_without_an_estimate_is_exact_although_its_client_left(self) -> None:
        """It says that the provider's own count was booked."""
        self.assertEqual(audit([CALL], [row(settled(BILL + 1), exit="client_gone")]).misbooked, 1)

    def test_an_estimate_bounds_its_bill(self) -> None:
        """From above."""
        cut = replace(CALL, told=False)
        above = audit([cut], [row(settled(BILL + 5), estimated=1)])
        self.assertEqual((differs(above), above.estimated.booked - above.estimated.billed), ((0, 0, 0, 0), 5))
        self.assertEqual(differs(audit([cut], [row(settled(BILL - 2), estimated=1)])), (0, 2, 0, 0))

    def test_a_stream_that_nobody_saw_owes_its_prompt(self) -> None:
        """But one of which content was seen owes what was billed, and so does one whose client stayed."""
        cut, prompt = replace(CALL, told=False), settled(CALL.prompt_nanousd)
        unseen = row(prompt, estimated=1, exit="client_gone", stream=1, completion_tokens=0)
        self.assertEqual(differs(audit([cut], [unseen])), (0, 0, 0, 0))
        short = row(settled(CALL.prompt_nanousd - 1), estimated=1, exit="client_gone", stream=1, completion_tokens=0)
        self.assertEqual(audit([cut], [short]).unmetered, 1)
        for seen in (replace(unseen, completion_tokens=1), replace(unseen, stream=0), replace(unseen, exit="routed")):
            self.assertEqual(audit([cut], [seen]).unmetered, BILL - CALL.prompt_nanousd)

    def test_usage_that_came_too_late_for_a_client_that_left_is_bounded(self) -> None:
        """Whether the gateway has read it, only its row says."""
        left = row(settled(BILL + 5), estimated=1, exit="client_gone")
        self.assertEqual(differs(audit([CALL], [left])), (0, 0, 0, 0))

    def test_what_a_row_sums_up_says_nothing_of_one_of_its_calls(self) -> None:
        """Content was seen of the first; of the second, whose client left, perhaps not."""
        cut = replace(CALL, told=False)
        both = row(
            settled(BILL), settled(CALL.prompt_nanousd), estimated=1, exit="client_gone", stream=1, completion_tokens=8
        )
        self.assertEqual(differs(audit([cut, cut], [both])), (0, 0, 0, 0))

    def test_what_is_unknown_counts_at_no_less_than_its_bill(self) -> None:
        """Until somebody decides."""
        self.assertEqual(differs(audit([CALL], [row(Hold("unresolved", BILL, 0))])), (0, 0, 0, 0))
        self.assertEqual(differs(audit([CALL], [row(Hold("unresolved", BILL - 1, 0))])), (0, 1, 0, 0))

    def test_a_hold_that_was_given_back_was_not_billed(self) -> None:
        """An error status bills nothing."""
        self.assertEqual(differs(audit([REFUSED], [row(Hold("void", 50_000, 0))])), (0, 0, 0, 0))
        self.assertEqual(differs(audit([CALL], [row(Hold("void", 50_000, 0))])), (BILL, 0, 0, 0))

    def test_an_open_hold_is_a_leak(self) -> None:
        """Whatever was billed."""
        self.assertEqual(audit([CALL], [row(Hold("open", 50_000, 0))]).open_holds, 1)

    def test_calls_that_bill_nothing_share_the_next_hold(self) -> None:
        """Any other has one of its own."""
        silent = replace(CALL, told=False, manner=Manner.HANG)
        self.assertEqual(groups([REFUSED, REFUSED, silent, CALL]), [[REFUSED, REFUSED, silent], [CALL]])
        both = row(Hold("unresolved", BILL, 0), settled(BILL))
        self.assertEqual(differs(audit([REFUSED, silent, CALL], [both])), (0, 0, 0, 0))

    def test_a_call_without_a_hold_is_seen_and_its_bill_with_it(self) -> None:
        """Two that may be billed never share one; and one whose row is missing has none at all."""
        self.assertEqual(differs(audit([CALL, CALL], [ROW])), (0, BILL, 1, 0))
        self.assertEqual(differs(audit([CALL], [])), (0, BILL, 1, 0))

    def test_a_hold_without_a_call_is_seen(self) -> None:
        """Unless its client left before the call arrived, or nothing was sent."""
        self.assertEqual(audit([CALL], [row(settled(BILL), settled(3))]).unpaired, 1)
        self.assertEqual(audit([], [row(settled(3), exit="client_gone", estimated=1)]).unpaired, 0)
        self.assertEqual(audit([], [row(settled(3), settled(3), exit="client_gone", estimated=1)]).unpaired, 2)
        self.assertEqual(audit([], [row(Hold("void", 9, 0), exit="failed")]).unpaired, 0)

    def test_rows_that_do_not_say_whose_they_are_are_held_against_what_is_left(self) -> None:
        """Those of a process that was killed."""
        lost = replace(CALL, number=9)
        nameless = row(Hold("unresolved", BILL, 0), number=None)
        self.assertEqual(differs(audit([CALL, lost], [ROW, nameless])), (0, 0, 0, 0))
        short = row(Hold("unresolved", BILL - 4, 0), number=None)
        self.assertEqual(differs(audit([CALL, lost], [ROW, short])), (0, 4, 0, 0))

    def test_spent_and_unresolved_is_the_bill_and_the_margin_of_the_bounds(self) -> None:
        """To the nano-dollar."""
        cut = replace(CALL, number=2, told=False)
        unknown = replace(CALL, number=3, told=False)
        seen = audit(
            [CALL, cut, unknown],
            [
                ROW,
                row(settled(BILL + 5), number=2, estimated=1),
                row(Hold("unresolved", BILL + 7, 0), number=3),
            ],
        )
        self.assertEqual(seen.booked - seen.billed, 5 + 7)

    def test_the_words_have_a_bound(self) -> None:
        """The sums go on."""
        seen = audit(
            [replace(CALL, number=number) for number in range(99)], [row(settled(0), number=n) for n in range(99)]
        )
        self.assertEqual((len(seen.faults), seen.misbooked), (MOST_FAULTS, 99 * BILL))

    def test_each_answer_has_one_row_that_says_its_status(self) -> None:
        """None, two, or another status are counted."""
        self.assertEqual(misrecorded({1: 200}, [ROW]), 0)
        self.assertEqual(misrecorded({1: 200, 2: 200}, [ROW]), 1)
        self.assertEqual(misrecorded({1: 200}, [ROW, ROW]), 1)
        self.assertEqual(misrecorded({1: 402}, [ROW]), 1)


class ReadTest(unittest.TestCase):
    """The ledger's file."""

    def test_rows_come_with_their_holds_in_order(self) -> None:
        """And with the number that their tag says, if it does."""
        with tempfile.TemporaryDirectory() as folder:
            ledger = Path(folder) / "ledger.db"
            with closing(sqlite3.connect(ledger)) as books, books:
                for statement in MIGRATIONS[0]:
                    if statement.startswith("CREATE TABLE"):
                        books.execute(statement)
                books.execute("INSERT INTO boots VALUES (1, 0, NULL, 1, 'x')")
                for name, tag in (("a", "n7"), ("b", "")):
                    books.execute(
                        "INSERT INTO requests VALUES (NULL, ?, 1, 5, 6, 'acme', 'k', 'm', 1, 'routed', 200, NULL, 'm',"
                        " 'cheap', 'd0', 'p0', 2, 'settled', 9, 0, 0, 1, 0, 0, 4, 0, 'v', 1, 1, ?)",
                        (name, tag),
                    )
                for state, cost in (("unresolved", 0), ("settled", 9)):
                    books.execute(
                        "INSERT INTO holds VALUES (NULL, 'a', 1, 1, 'acme', 'k', 'm', 'd0', 'v', 1, 1, 1, 30, ?, ?, 0,"
                        " 5, NULL, NULL, NULL, NULL)",
                        (state, cost),
                    )
            named, nameless = read_rows(ledger)
        holds = (Hold("unresolved", 30, 0), Hold("settled", 30, 9))
        self.assertEqual(named, Row(holds, 7, "acme", "routed", 200, None, 1, 0, 2, 5, 4))
        self.assertEqual((nameless.number, nameless.holds), (None, ()))
