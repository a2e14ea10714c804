"""What was used, by whatever it is asked for by."""

import unittest
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from gateway.rows import Exit
from gateway.usage import GROUPS, usage
from tests.support.books import opened_book, row


def ms(day: str) -> int:
    """The first moment of a day, UTC."""
    return round(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)


class UsageTest(unittest.TestCase):
    """A book with two requests that cost something, one whose outcome is unknown, and one that moved no money."""

    def setUp(self) -> None:
        self.book = book = self.enterContext(opened_book())
        account = book.set_limits(1000, 1000, 1000)
        one, two, self.unknown = (book.reserve(account, 100, f"req_{number}") for number in range(3))
        january = replace(row("req_0"), started_ms=ms("2026-01-31"), deployment="small", prompt_tokens=10, tags="a,b")
        february = replace(row("req_1"), started_ms=ms("2026-02-01"), deployment="large", completion_tokens=4)
        lost = replace(row("req_2"), started_ms=ms("2026-02-01") - 1, deployment="large", exit=Exit.FAILED)
        book.run(book.ledger.settle(one, 70, january))
        book.run(book.ledger.settle(two, 30, february))
        book.run(book.ledger.leave_unresolved(self.unknown, "timeout", lost))
        book.ledger.record(replace(row("req_3", key_id="key2"), started_ms=ms("2026-02-02"), exit=Exit.REJECTED))
        book.flush()

    def used(self, *by: str, **which: Any) -> list[tuple[Any, ...]]:
        """The entries as tuples: names, requests, prompt and completion tokens, cost."""
        return [tuple(entry.values()) for entry in self.book.run(usage(self.book.store, by, **which))]

    def test_it_is_summed_per_tenant_key_and_alias(self) -> None:
        """Requests, tokens and cost; a late settlement counts, though its row was never rewritten."""
        self.book.run(self.book.ledger.settle(self.unknown, 55))
        first, second = self.book.run(usage(self.book.store))
        self.assertEqual(
            first,
            {
                "tenant": "acme",
                "key_id": "key1",
                "alias": "mini",
                "requests": 3,
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "cost_nanousd": 155,
            },
        )
        self.assertEqual(tuple(second.values()), ("acme", "key2", "mini", 1, 0, 0, 0))

    def test_it_is_told_apart_by_what_is_asked_for(self) -> None:
        """In the order of the names; a request that had no deployment is one of none."""
        self.assertEqual(self.used("deployment"), [(None, 1, 0, 0, 0), ("large", 2, 0, 4, 30), ("small", 1, 10, 0, 70)])
        self.assertEqual(
            self.used("month", "exit"),
            [
                ("2026-01", "failed", 1, 0, 0, 0),
                ("2026-01", "routed", 1, 10, 0, 70),
                ("2026-02", "rejected", 1, 0, 0, 0),
                ("2026-02", "routed", 1, 0, 4, 30),
            ],
        )
        self.assertEqual(
            [entry[:2] for entry in self.used("day")], [("2026-01-31", 2), ("2026-02-01", 1), ("2026-02-02", 1)]
        )
        self.assertEqual(self.used("tags"), [("", 3, 0, 4, 30), ("a,b", 1, 10, 0, 70)])

    def test_every_name_can_be_asked_for(self) -> None:
        """Each splits the same requests and the same money."""
        for name in GROUPS:
            entries = self.used(name)
            self.assertEqual((sum(entry[1] for entry in entries), sum(entry[-1] for entry in entries)), (4, 100), name)

    def test_a_time_is_from_its_first_moment_to_before_its_last(self) -> None:
        """By when a request arrived."""
        start, end = ms("2026-02-01"), ms("2026-02-02")
        self.assertEqual(self.used("alias", since_ms=start, until_ms=end), [("mini", 1, 0, 4, 30)])
        self.assertEqual(self.used("alias", until_ms=start), [("mini", 2, 10, 0, 70)])
        self.assertEqual(self.used("alias", since_ms=end), [("mini", 1, 0, 0, 0)])
        self.assertEqual(self.used("alias", since_ms=end + 1), [])

    def test_it_is_that_of_one_key_or_tenant(self) -> None:
        """Nobody else's is in it."""
        self.assertEqual(self.used("key_id", key_id="key2"), [("key2", 1, 0, 0, 0)])
        self.assertEqual(self.used("tenant", tenant="acme", key_id="key1"), [("acme", 3, 10, 4, 100)])
        self.assertEqual(self.used("tenant", tenant="other"), [])


if __name__ == "__main__":
    unittest.main()
