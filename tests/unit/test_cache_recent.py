"""The entries that were looked up last: which are kept, and for how many bytes."""

import tracemalloc
import unittest

from gateway.cache_entry import Entry, Record
from gateway.cache_recent import LARGEST_SHARE, RECORD_BYTES, Recent


def record_of(name: str, body: bytes = b"") -> Record:
    return Record(name.encode(), 1, 2, Entry("acme", 0, "mini", "primary", "cheap", body))


class RecentTest(unittest.TestCase):
    """Sixteen records without a body."""

    def setUp(self) -> None:
        self.recent = Recent(16 * RECORD_BYTES)

    def kept(self, *names: str) -> list[str]:
        return [name for name in names if self.recent.get(name.encode())]

    def test_what_was_put_is_found(self) -> None:
        """As it is, under its digest alone."""
        record = record_of("a", b"body")
        self.recent.put(record)
        self.assertIs(self.recent.get(b"a"), record)
        self.assertIsNone(self.recent.get(b"b"))
        self.assertEqual(self.recent.bytes, RECORD_BYTES + 4)

    def test_a_newer_record_takes_the_place_of_an_older_one(self) -> None:
        """And its bytes."""
        self.recent.put(record_of("a", b"older"))
        newer = record_of("a", b"new")
        self.recent.put(newer)
        self.assertIs(self.recent.get(b"a"), newer)
        self.assertEqual(self.recent.bytes, RECORD_BYTES + 3)

    def test_the_least_recently_looked_up_goes_first(self) -> None:
        """As soon as the bytes of all are above the bound; a look-up is a use."""
        names = [f"r{number}" for number in range(16)]
        for name in names:
            self.recent.put(record_of(name))
        self.assertEqual(self.kept(*names), names)
        self.kept("r0")
        self.recent.put(record_of("x", b"1"))
        self.assertEqual(self.kept("r0", *names[1:], "x"), ["r0", *names[3:], "x"])
        self.assertLessEqual(self.recent.bytes, 16 * RECORD_BYTES)

    def test_a_record_that_is_too_large_is_not_kept(self) -> None:
        """Nor is the older one that it replaces; one of exactly the share is."""
        share = 16 * RECORD_BYTES // LARGEST_SHARE
        self.recent.put(record_of("fits", bytes(share - RECORD_BYTES)))
        self.recent.put(record_of("grows"))
        self.recent.put(record_of("grows", bytes(share - RECORD_BYTES + 1)))
        self.assertEqual(self.kept("fits", "grows"), ["fits"])
        self.assertEqual(self.recent.bytes, share)

    def test_what_is_forgotten_is_gone(self) -> None:
        """What is not there is no fault; the room is free again."""
        for name in "abcd":
            self.recent.put(record_of(name, b"1"))
        self.recent.forget([b"a", b"x", b"a"])
        self.assertEqual(self.kept("a", "b", "c", "d"), ["b", "c", "d"])
        self.assertEqual(self.recent.bytes, 3 * (RECORD_BYTES + 1))
        self.recent.clear()
        self.assertEqual((self.kept("b", "c", "d"), self.recent.bytes), ([], 0))

    def test_a_record_takes_no_more_memory_than_is_counted(self) -> None:
        """However short its body is."""
        recent = Recent(1 << 40)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1000):
            texts = [f"{text}-{number:06}" for text in ("tenant", "deployment", "provider", "tier")]
            entry = Entry(texts[0], 10_000 + number, texts[1], texts[2], texts[3], b"%8d" % number)
            recent.put(Record(b"%032d" % number, (1 << 40) + number, (1 << 41) + number, entry))
        after, _ = tracemalloc.get_traced_memory()
        self.assertLess((after - before) / 1000, RECORD_BYTES)
        self.assertGreater((after - before) / 1000, RECORD_BYTES / 3)
