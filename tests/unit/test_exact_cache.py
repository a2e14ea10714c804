"""The exact cache over a real file: what it keeps, for how long and for whom, and what a broken file does to it."""

import contextlib
import functools
import os
import sqlite3
import tempfile
import threading
import unittest
import zlib
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from gateway import cache_file, exact_cache
from gateway.cache_entry import Entry
from gateway.cache_file import NO_BOUND, ROW_OVERHEAD_BYTES, CacheFile, Row
from gateway.clock import FakeClock
from gateway.drive import drive
from gateway.exact_cache import JITTER, REPORT_EVERY_S, CacheUnavailable, ExactCache, Hit
from tests.support.connections import Fuse, disk_error, watched

BODY = b'{"id":"chatcmpl-1","choices":[]}'


def digest_of(name: str) -> bytes:
    return zlib.crc32(name.encode()).to_bytes(4, "big") * 8


def execute(path: Path, *statements: str) -> None:
    """What another program does to the file."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


class CacheCase(unittest.TestCase):
    """A cache in a folder of its own, whose errors are collected."""

    ttl_s = 100.0
    max_bytes = 1_000_000

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "cache.db"
        self.clock = FakeClock()
        self.chance = 0.0
        self.errors: list[BaseException] = []
        self.fuse = Fuse()
        self.cache = self.open()

    def open(
        self, *, max_bytes: int | None = None, path: Path | None = None, max_partition: int = NO_BOUND
    ) -> ExactCache:
        with watched(before=lambda sql: self.fuse(sql)):
            cache = ExactCache(
                path or self.path,
                ttl_s=self.ttl_s,
                max_bytes=max_bytes or self.max_bytes,
                max_partition=max_partition,
                clock=self.clock,
                draw=lambda: self.chance,
                on_error=self.errors.append,
            )
        self.addCleanup(cache.close)
        return cache

    def reopen(self) -> None:
        self.cache.close()
        self.cache = self.open()

    def store(self, *names: str, tenant: str = "acme", body: bytes = BODY, ttl_s: float | None = None) -> None:
        for name in names:
            entry = Entry(tenant, self.cache.epoch(tenant), "mini", "primary", "cheap", body)
            self.cache.store(digest_of(name), entry, ttl_s=ttl_s)

    def find(self, name: str, tenant: str = "acme") -> Hit | None:
        return drive(self.cache.lookup(digest_of(name), tenant))

    def kept(self, *names: str) -> list[str]:
        """Those of the names that are hits."""
        return [name for name in names if self.find(name)]

    def places(self) -> list[Callable[[], object]]:
        """What to do so that a look-up finds an entry in memory, and then in the file."""
        return [list, self.cache.flush]

    def stat(self, name: str) -> int:
        return self.cache.stats()[name]


class KeepingTest(CacheCase):
    """What is kept, for how long, and for whom."""

    def test_what_was_stored_is_found(self) -> None:
        """At once, from the file, and after a restart: the same bytes and facts, and its age."""
        self.store("a")
        ages: list[int] = []
        for settle in (*self.places(), self.reopen):
            settle()
            self.clock.advance(1.5)
            hit = self.find("a")
            assert hit is not None
            self.assertEqual((hit.body, hit.deployment, hit.provider, hit.tier), (BODY, "mini", "primary", "cheap"))
            ages.append(hit.age_s)
        self.assertEqual(ages, [1, 3, 4])
        self.assertIsNone(self.find("b"))
        self.assertEqual(self.errors, [])

    def test_a_newer_answer_takes_the_place_of_an_older_one(self) -> None:
        """In memory and in the file, and the older one's size is free again."""
        for settle in self.places():
            self.store("a", body=b"old")
            settle()
            self.store("a", body=b"new")
            settle()
            hit = self.find("a")
            self.assertEqual(hit and hit.body, b"new")
        self.cache.flush()
        self.assertEqual(self.stat("entries"), 1)

    def test_an_entry_lives_for_the_shorter_time(self) -> None:
        """The cache's own, or what the client asked for; to the millisecond, in memory and in the file."""
        for settle in self.places():
            self.store("own")
            self.store("short", ttl_s=10)
            self.store("long", ttl_s=1000)
            self.store("none", ttl_s=0)
            settle()
            self.assertEqual(self.kept("own", "short", "long", "none"), ["own", "short", "long"])
            self.clock.advance(9.999)
            self.assertEqual(self.kept("own", "short", "long"), ["own", "short", "long"])
            self.clock.advance(0.001)
            self.assertEqual(self.kept("own", "short", "long"), ["own", "long"])
            self.clock.advance(90)
            self.assertEqual(self.kept("own", "short", "long"), [])
        self.assertEqual(self.stat("dropped"), 2)

    def test_chance_only_shortens_a_life(self) -> None:
        """By less than its tenth."""
        for chance, dies_at_s in ((0.0, 100.0), (0.5, 95.0), (1.0, 90.0)):
            self.chance = chance
            self.store("a")
            self.clock.advance(dies_at_s - 0.001)
            self.assertTrue(self.find("a"))
            self.clock.advance(0.001)
            self.assertIsNone(self.find("a"))
        self.assertEqual(JITTER, 0.1)

    def test_an_entry_of_the_future_is_not_served(self) -> None:
        """The wall clock was set back: nobody knows how old the answer is."""
        self.store("a")
        self.clock.jump_wall(-1)
        self.assertIsNone(self.find("a"))
        self.clock.jump_wall(1)
        self.assertTrue(self.find("a"))

    def test_another_tenant_is_never_served(self) -> None:
        """Under the same digest, from memory or from the file; the owner still is."""
        self.store("a")
        for settle in self.places():
            settle()
            self.assertIsNone(self.find("a", tenant="other"))
            self.assertTrue(self.find("a"))

    def test_expired_entries_go_with_the_next_write(self) -> None:
        """Their bytes are free then."""
        self.store("a", "b", ttl_s=1)
        self.cache.flush()
        self.clock.advance(1)
        self.store("c")
        self.cache.flush()
        self.assertEqual((self.stat("entries"), self.stat("expired"), self.stat("evicted")), (1, 2, 0))

    def test_everything_is_counted(self) -> None:
        """Hits, misses, stores and drops; entries and bytes as they lie in the file."""
        self.store("a", "b")
        self.store("large", body=bytes(self.max_bytes))
        self.kept("a", "a", "large")
        self.cache.flush()
        stats = self.cache.stats()
        size = stats.pop("bytes")
        self.assertEqual(
            stats,
            {"entries": 2, "hits": 2, "misses": 1, "stored": 2, "dropped": 1, "evicted": 0, "expired": 0},
        )
        self.assertGreater(size, 2 * ROW_OVERHEAD_BYTES)
        self.reopen()
        self.assertEqual((self.stat("entries"), self.stat("bytes")), (2, size))


class BoundTest(CacheCase):
    """The bound of bytes."""

    max_bytes = 16 * 2048
    body = os.urandom(2048 - ROW_OVERHEAD_BYTES - 200)
    """An entry of this is a little less than a sixteenth of the bound."""

    def fill(self, *names: str) -> None:
        self.store(*names, body=self.body)
        self.cache.flush()

    def test_the_least_recently_used_goes_first(self) -> None:
        """A look-up is a use, and so is a store; a restart forgets neither."""
        names = [f"e{number}" for number in range(16)]
        self.fill(*names)
        self.assertEqual(self.stat("entries"), 16)
        self.kept("e0", "e2")
        self.reopen()
        self.store("e1", body=self.body)
        self.fill("x", "y")
        self.assertEqual(self.kept(*names, "x", "y"), ["e0", "e1", "e2", *names[5:], "x", "y"])
        self.assertEqual(self.stat("evicted"), 2)

    def test_a_use_before_the_write_counts(self) -> None:
        """An entry that is found while it waits for the writer was used after those stored with it."""
        self.store(*(f"e{number}" for number in range(16)), body=self.body)
        self.kept("e0")
        self.cache.flush()
        self.fill("x")
        self.assertEqual(self.kept("e0", "e1"), ["e0"])

    def test_a_row_larger_than_the_file_may_be_is_left_out(self) -> None:
        """Nothing makes room for it."""
        file = CacheFile(self.path.with_name("small.db"), 1000)
        file.write([Row(digest_of("a"), "acme", 10, 1, bytes(1000))], {}, 0)
        self.assertEqual((file.entries, file.bytes), (0, 0))
        file.close()

    def test_the_expired_go_before_the_least_recently_used(self) -> None:
        """However recently they were used, and however many they are."""
        with mock.patch.object(cache_file, "MOST_DELETED", 3):
            self.fill(*(f"e{number}" for number in range(8)))
            self.store(*(f"x{number}" for number in range(8)), body=self.body, ttl_s=1)
            self.cache.flush()
            self.clock.advance(1)
            self.fill(*(f"n{number}" for number in range(8)))
        self.assertEqual((self.stat("expired"), self.stat("evicted"), self.stat("entries")), (8, 0, 16))

    def test_many_small_ones_make_room_for_a_large_one(self) -> None:
        """Step by step, none of which is long, and none of which is over the bound."""
        committed: list[int] = []
        file = self.cache._file
        assert file is not None
        self.fuse = lambda sql: committed.append(file.bytes) if sql == "COMMIT" else None  # type: ignore[assignment]
        with mock.patch.object(cache_file, "MOST_DELETED", 2):
            self.store(*(f"e{number}" for number in range(40)), body=b"")
            self.cache.flush()
            self.store(*(f"n{number}" for number in range(8)), body=os.urandom(3300))
            self.cache.flush()
        self.assertLessEqual(max(committed), self.max_bytes)
        self.assertGreater(len(committed), 15)
        self.assertEqual(len(self.kept(*(f"n{number}" for number in range(8)))), 8)
        self.assertGreater(self.stat("evicted"), 30)

    def test_an_entry_of_more_than_an_eighth_is_not_stored(self) -> None:
        """One that is exactly that is."""
        largest = self.max_bytes // 8 - ROW_OVERHEAD_BYTES
        self.store("fits", body=bytes(largest))
        self.store("too large", body=bytes(largest + 1))
        self.assertEqual(self.kept("fits", "too large"), ["fits"])
        self.assertEqual(self.stat("dropped"), 1)

    def test_a_lower_bound_holds_from_the_start(self) -> None:
        """Without any store: the oldest entries are gone once the cache has settled."""
        names = [f"e{number}" for number in range(16)]
        self.fill(*names)
        self.cache.close()
        self.cache = self.open(max_bytes=4 * 2048)
        self.cache.flush()
        self.assertEqual(self.kept(*names), names[12:])

    def test_rows_that_somebody_else_removed_are_not_waited_for(self) -> None:
        """A full file that was emptied by hand takes entries again, and counts what it holds."""
        self.fill(*(f"e{number}" for number in range(16)))
        full = self.stat("bytes")
        execute(self.path, "DELETE FROM entries")
        self.fill("x")
        self.assertEqual(self.kept("e15", "x"), ["x"])
        self.assertEqual(self.stat("entries"), 1)
        self.assertLess(self.stat("bytes"), full // 8)

    def test_uses_are_written_without_a_store(self) -> None:
        """As soon as there are many; fewer wait for the next write."""
        self.fill("a", "b")
        with mock.patch.object(exact_cache, "MOST_USES", 2):
            with self.cache._changed:
                self.kept("a")
                self.assertFalse(self.cache._has_work())
                self.kept("b")
                self.assertTrue(self.cache._has_work())
            self.cache.flush()
            self.assertEqual(self.cache._uses, {})


class RecentTest(CacheCase):
    """What is found again without a look at the file."""

    max_bytes = BoundTest.max_bytes

    def setUp(self) -> None:
        super().setUp()
        self.reads: list[bytes] = []
        read = CacheFile.read

        def noted(file: CacheFile, digest: bytes) -> bytes | None:
            self.reads.append(digest)
            return read(file, digest)

        patched = mock.patch.object(CacheFile, "read", noted)
        patched.start()
        self.addCleanup(patched.stop)

    def put(self, *names: str, body: bytes = BODY) -> None:
        self.store(*names, body=body)
        self.cache.flush()

    def body_of(self, name: str) -> bytes | None:
        hit = self.find(name)
        return None if hit is None else hit.body

    def test_an_entry_is_read_once(self) -> None:
        """Also by who looks it up uncounted; what nobody has asked for is looked for again."""
        self.put("a")
        self.kept("a", "a")
        drive(self.cache.find(digest_of("a"), "acme"))
        self.assertEqual(self.reads, [digest_of("a")])
        self.kept("b", "b")
        self.assertEqual(len(self.reads), 3)
        self.assertEqual((self.stat("hits"), self.stat("misses")), (2, 2))

    def test_it_is_checked_each_time(self) -> None:
        """Whose it is, and whether it is alive; its age grows."""
        self.put("a")
        self.assertTrue(self.find("a"))
        self.assertIsNone(self.find("a", tenant="other"))
        self.clock.advance(2)
        hit = self.find("a")
        self.assertEqual(hit and hit.age_s, 2)
        self.clock.advance(self.ttl_s)
        self.assertIsNone(self.find("a"))
        self.assertEqual(len(self.reads), 1)

    def test_what_may_not_be_served_is_not_kept(self) -> None:
        """A stranger's look-up makes nothing recent."""
        self.put("a")
        self.find("a", tenant="other")
        self.find("a", tenant="other")
        self.assertEqual(len(self.reads), 2)

    def test_a_newer_answer_takes_its_place(self) -> None:
        """While it waits for the writer, and from then on."""
        self.put("a", body=b"old")
        self.find("a")
        self.store("a", body=b"new")
        self.assertEqual(self.body_of("a"), b"new")
        self.cache.flush()
        self.assertEqual(self.body_of("a"), b"new")

    def test_what_was_read_while_the_writer_wrote_is_not_kept(self) -> None:
        """It may have been replaced meanwhile, or purged: the one look-up has it, and none after it."""
        replacing = functools.partial(self.put, "a", body=b"new")
        purging = lambda: drive(self.cache.purge("acme"))  # noqa: E731
        for meanwhile, later in ((replacing, b"new"), (purging, None)):
            self.put("a", body=b"old")
            read = CacheFile.read

            def slowly(file: CacheFile, digest: bytes, read=read, meanwhile=meanwhile) -> bytes | None:  # type: ignore[no-untyped-def]
                sealed: bytes | None = read(file, digest)
                meanwhile()
                return sealed

            with mock.patch.object(CacheFile, "read", slowly):
                self.find("a")
            self.assertEqual(self.body_of("a"), later)

    def test_what_leaves_the_file_is_found_no_more(self) -> None:
        """Evicted, expired and removed before the wall clock was set back, purged, or lost with the file."""

        def evict() -> None:
            with mock.patch.object(exact_cache, "MOST_USES", 0):
                self.put(*(f"e{number}" for number in range(64)), body=BoundTest.body)

        def expire() -> None:
            self.clock.jump_wall(self.ttl_s)
            self.put("x")
            self.clock.jump_wall(-self.ttl_s)

        def damage() -> None:
            execute(self.path, "DROP TABLE entries")
            self.find("x")
            self.cache.flush()

        ways: list[Callable[[], object]] = [evict, expire, lambda: drive(self.cache.purge("acme")), damage]
        for leave in ways:
            self.put("a")
            self.assertTrue(self.find("a"))
            leave()
            self.assertIsNone(self.find("a"))
            self.assertEqual(self.cache._recent.get(digest_of("a")), None)

    def test_a_write_that_fails_leaves_what_the_file_has(self) -> None:
        """What was to take its place is dropped, and nothing is taken for recent any more."""
        self.put("a")
        self.find("a")
        self.fuse.times = 1
        self.put("a", body=b"new")
        self.assertEqual((self.body_of("a"), len(self.reads)), (BODY, 2))

    def test_nothing_is_left_of_a_cache_that_was_closed(self) -> None:
        """Not in memory either."""
        self.put("a")
        self.find("a")
        self.cache.close()
        self.assertIsNone(self.find("a"))
        self.assertEqual(self.cache._recent.bytes, 0)


class PartitionTest(CacheCase):
    """At most three entries in each partition."""

    def setUp(self) -> None:
        super().setUp()
        self.bound(3)

    def bound(self, most: int) -> None:
        """Go on with another bound."""
        self.cache.close()
        self.cache = self.open(max_partition=most)

    def put(self, partition: str, *names: str) -> None:
        """Store each, and let the writer write it."""
        for name in names:
            entry = Entry("acme", self.cache.epoch("acme"), "", "", "", BODY, partition.encode())
            self.cache.store(digest_of(name), entry, ttl_s=None)
            self.cache.flush()

    def test_the_least_recently_used_of_the_partition_goes_first(self) -> None:
        """What other partitions, and entries of none, have does not matter."""
        self.store("free 1", "free 2", "free 3", "free 4")
        self.put("a", "1", "2", "3")
        self.put("b", "4", "5", "6")
        self.find("1")
        self.cache.flush()
        self.put("a", "7")
        self.assertEqual(self.kept("1", "2", "3", "7", "4", "5", "6"), ["1", "3", "7", "4", "5", "6"])
        self.assertEqual(self.kept("free 1", "free 2", "free 3", "free 4"), ["free 1", "free 2", "free 3", "free 4"])
        self.assertEqual((self.stat("entries"), self.stat("evicted")), (10, 1))

    def test_an_expired_entry_makes_room(self) -> None:
        """Before a living one has to go."""
        entry = Entry("acme", 0, "", "", "", BODY, b"a")
        self.put("a", "1")
        self.cache.store(digest_of("short"), entry, ttl_s=10)
        self.put("a", "2")
        self.clock.advance(10)
        self.put("a", "3")
        self.assertEqual(self.kept("1", "2", "3", "short"), ["1", "2", "3"])
        self.assertEqual((self.stat("evicted"), self.stat("expired")), (0, 1))

    def test_the_same_entry_again_crowds_nobody_out(self) -> None:
        """It takes its own place."""
        self.put("a", "1", "2", "3", "3", "3")
        self.assertEqual(self.kept("1", "2", "3"), ["1", "2", "3"])

    def test_counts_survive_restarts_and_purges(self) -> None:
        """And a lower bound holds in a partition from its next entry on, however far above it is."""
        self.put("a", "1", "2", "3")
        self.reopen()
        self.bound(3)
        self.put("a", "4")
        self.assertEqual(self.kept("1", "2", "3", "4"), ["2", "3", "4"])
        self.bound(1)
        with mock.patch.object(cache_file, "MOST_DELETED", 2):
            self.put("a", "5")
        self.assertEqual(self.kept("2", "3", "4", "5"), ["5"])
        drive(self.cache.purge(None))
        self.put("a", "6")
        self.assertEqual((self.kept("5", "6"), self.stat("entries")), (["6"], 1))

    def test_many_at_once_stay_under_the_bound(self) -> None:
        """One write of more than the bound keeps the newest."""
        for number in range(9):
            entry = Entry("acme", 0, "", "", "", BODY, b"a")
            self.cache.store(digest_of(str(number)), entry, ttl_s=None)
        self.cache.flush()
        self.assertEqual(self.kept(*map(str, range(9))), ["6", "7", "8"])


class PurgeTest(CacheCase):
    """What must not be served any more."""

    def purge(self, tenant: str | None) -> int:
        return drive(self.cache.purge(tenant))

    def test_a_tenant_is_purged_alone(self) -> None:
        """Its entries are removed and counted, also those that wait; its epoch is another one."""
        self.store("a", "b")
        self.store("c", tenant="other")
        epochs = self.cache.epoch("acme"), self.cache.epoch("other")
        self.assertEqual(self.purge("acme"), 2)
        self.assertGreater(self.cache.epoch("acme"), epochs[0])
        self.assertEqual(self.cache.epoch("other"), epochs[1])
        self.assertEqual(self.kept("a", "b"), [])
        self.assertTrue(self.find("c", tenant="other"))

    def test_all_are_purged_at_once(self) -> None:
        """Tenants that were never seen get another epoch, too; in steps, if there are many entries."""
        self.store("a", "b", "c", "d", "e")
        self.store("x", tenant="other")
        before = self.cache.epoch("unseen")
        with mock.patch.object(cache_file, "MOST_DELETED", 2):
            self.assertEqual(self.purge(None), 6)
        self.assertGreater(self.cache.epoch("unseen"), before)
        self.assertEqual(self.stat("entries"), 0)

    def test_every_purge_makes_an_epoch_that_never_was(self) -> None:
        """Whatever their order, and over restarts."""
        seen = {self.cache.epoch("acme")}
        for tenant in ("acme", None, "acme", "other", None, None, "acme", "other"):
            before = self.cache.epoch("acme")
            self.purge(tenant)
            self.reopen()
            epoch = self.cache.epoch("acme")
            if tenant == "other":
                self.assertEqual(epoch, before)
            else:
                self.assertGreater(epoch, max(seen))
            seen.add(epoch)

    def test_an_answer_in_flight_is_not_served_after_a_purge(self) -> None:
        """It was asked for before, and comes after: in memory, and in the file."""
        epoch = self.cache.epoch("acme")
        self.purge("acme")
        self.cache.store(digest_of("late"), Entry("acme", epoch, "mini", "primary", "cheap", BODY), ttl_s=None)
        self.assertIsNone(self.find("late"))
        self.cache.flush()
        self.assertIsNone(self.find("late"))
        self.assertEqual((self.stat("entries"), self.stat("dropped")), (0, 1))

    def test_a_purge_holds_before_its_rows_are_gone(self) -> None:
        """The disk refuses to remove anything: they stay, and are not served, not even after a restart."""
        self.store("a")
        self.cache.flush()
        with mock.patch.object(CacheFile, "remove_all", side_effect=disk_error()):
            self.assertEqual(self.purge("acme"), 0)
        self.assertEqual(self.stat("entries"), 1)
        self.assertIsNone(self.find("a"))
        self.reopen()
        self.assertIsNone(self.find("a"))
        self.assertEqual(len(self.errors), 1)

    def test_a_purge_that_is_not_durable_fails_aloud(self) -> None:
        """The epoch is as it was; the next purge succeeds, and is synced to the disk."""
        self.store("a")
        self.cache.flush()
        statements: list[str] = []

        def refuse(sql: str) -> None:
            statements.append(sql)
            if sql.startswith("DELETE FROM purges"):
                raise disk_error()

        self.fuse = refuse  # type: ignore[assignment]
        self.assertRaises(CacheUnavailable, self.purge, "acme")
        self.assertEqual(self.cache.epoch("acme"), 0)
        self.assertTrue(self.find("a"))
        self.fuse = statements.append  # type: ignore[assignment]
        statements.clear()
        self.assertEqual(self.purge("acme"), 1)
        synced = statements[
            statements.index("PRAGMA synchronous = FULL") : statements.index("PRAGMA synchronous = NORMAL")
        ]
        self.assertEqual((synced[1], synced[-1]), ("BEGIN IMMEDIATE", "COMMIT"))


class BrokenFileTest(CacheCase):
    """A file that cannot be used is a cache that is empty, and nothing worse."""

    def check_works(self) -> None:
        self.assertIsNone(self.find("a"))
        self.store("a")
        self.cache.flush()
        self.assertTrue(self.find("a"))

    def test_what_is_no_cache_is_replaced(self) -> None:
        """Junk, nothing, another program's database, another schema, tables that are not there, half a file."""

        def half() -> None:
            self.path.write_bytes(self.path.read_bytes()[:8192])

        damages: list[Callable[[], object]] = [
            lambda: self.path.write_bytes(b"junk" * 5000),
            lambda: self.path.write_bytes(b""),
            self.path.unlink,
            functools.partial(execute, self.path, "DROP TABLE purges", "DROP TABLE entries", "CREATE TABLE t (a)"),
            functools.partial(execute, self.path, "PRAGMA application_id = 7"),
            functools.partial(execute, self.path, "PRAGMA user_version = 99"),
            functools.partial(execute, self.path, "DROP TABLE purges"),
            functools.partial(execute, self.path, "DROP TABLE entries"),
            half,
        ]
        for damage in damages:
            self.store("a")
            self.cache.close()
            damage()
            self.cache = self.open()
            self.check_works()
        self.assertEqual(self.errors, [])

    def test_a_file_that_is_damaged_while_it_is_open_is_replaced(self) -> None:
        """Seen by a look-up or by a write; the epochs are kept, so nothing old can come back."""
        notices: list[Callable[[], object]] = [lambda: self.find("a"), lambda: self.store("b")]
        for notice in notices:
            self.store("a")
            drive(self.cache.purge("acme"))
            epoch = self.cache.epoch("acme")
            execute(self.path, "DROP TABLE entries")
            notice()
            self.cache.flush()
            self.cache.flush()
            self.check_works()
            self.store("c")
            self.cache.flush()
            self.assertEqual(self.kept("a", "c"), ["a", "c"])
            self.reopen()
            self.assertEqual(self.cache.epoch("acme"), epoch)
            self.clock.advance(REPORT_EVERY_S)
        self.assertEqual(len(self.errors), 2)

    def test_a_file_that_could_not_be_replaced_is_replaced_later(self) -> None:
        """A moment without descriptors costs entries, not the cache."""
        self.store("a")
        drive(self.cache.purge("acme"))
        epoch = self.cache.epoch("acme")
        for refused in (OSError("no descriptors"), disk_error(sqlite3.SQLITE_CANTOPEN)):
            execute(self.path, "DROP TABLE entries")
            with mock.patch.object(cache_file, "connect", side_effect=refused):
                self.find("a")
                self.cache.flush()
                self.cache.flush()
                self.assertIsNone(self.find("a"))
                self.cache.flush()
            self.store("b")
            self.cache.flush()
            self.cache.flush()
            self.check_works()
        self.reopen()
        self.assertEqual(self.cache.epoch("acme"), epoch)

    def test_a_changed_bit_hides_an_entry(self) -> None:
        """Wherever it is in what is sealed, and it is replaced by the next answer."""
        self.enterContext(mock.patch.object(exact_cache, "MOST_RECENT_BYTES", 0))
        self.reopen()
        self.store("a")
        self.cache.flush()
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            [(sealed,)] = connection.execute("SELECT sealed FROM entries").fetchall()
            for bit in range(0, 8 * len(sealed), 7):
                changed = bytearray(sealed)
                changed[bit // 8] ^= 1 << bit % 8
                connection.execute("UPDATE entries SET sealed = ?", (bytes(changed),))
                connection.commit()
                hit = self.find("a")
                self.assertIn(hit and hit.body, (None, BODY), bit)
        self.check_works()

    def test_a_row_under_another_digest_is_not_served(self) -> None:
        """Its seal names the digest and the tenant it belongs to, whatever the columns say."""
        self.store("a")
        self.cache.flush()
        execute(self.path, f"UPDATE entries SET digest = x'{digest_of('b').hex()}', tenant = 'other'")
        self.assertIsNone(self.find("b"))
        self.assertIsNone(self.find("b", tenant="other"))

    def test_a_place_that_cannot_be_written_is_an_empty_cache(self) -> None:
        """Misses and drops, one report; only a purge is refused."""
        for path in (self.path.parent / "nowhere" / "cache.db", self.path.parent):
            self.errors.clear()
            self.cache = self.open(path=path)
            self.store("a")
            self.assertIsNone(self.find("a"))
            self.assertEqual((self.stat("misses"), self.stat("dropped"), self.cache.epoch("acme")), (1, 1, 0))
            self.assertRaises(CacheUnavailable, drive, self.cache.purge(None))
            self.cache.flush()
            self.cache.close()
            self.assertEqual(len(self.errors), 1)

    def test_a_file_that_cannot_be_reached_now_is_left_alone(self) -> None:
        """It may be healthy: the next start finds what it holds."""
        self.store("a")
        self.cache.close()
        self.fuse = Fuse("PRAGMA journal_mode")
        self.fuse.times = 1
        self.cache = self.open()
        self.assertIsNone(self.find("a"))
        self.assertEqual(len(self.errors), 1)
        self.cache = self.open()
        self.assertTrue(self.find("a"))

    def test_a_disk_that_refuses_costs_entries_only(self) -> None:
        """What could not be written is dropped, and the totals are those of the file; then all is well again."""
        self.store("a")
        self.cache.flush()
        size = self.stat("bytes")
        self.fuse.times = 1
        self.store("b")
        self.cache.flush()
        self.assertEqual(self.kept("a", "b"), ["a"])
        self.assertEqual((self.stat("entries"), self.stat("bytes"), self.stat("dropped")), (1, size, 1))
        self.store("b")
        self.cache.flush()
        self.assertEqual(self.kept("a", "b"), ["a", "b"])

    def test_one_report_stands_for_many_errors(self) -> None:
        """Until some time has passed."""
        self.fuse = Fuse("SELECT sealed")
        self.fuse.times = 5
        self.kept("a", "a", "a", "a")
        self.assertEqual(len(self.errors), 1)
        self.clock.advance(REPORT_EVERY_S)
        self.kept("a", "a")
        self.assertEqual(len(self.errors), 2)
        self.assertEqual(self.stat("misses"), 6)

    def test_a_lock_of_somebody_else_is_a_miss_at_once(self) -> None:
        """The reader does not wait for it."""
        self.assertEqual(self.cache._file and self.cache._file._reader.execute("PRAGMA busy_timeout").fetchone(), (0,))


class WriterTest(CacheCase):
    """The thread behind it."""

    def test_stores_never_wait_for_the_disk(self) -> None:
        """While it hangs they are kept in memory and found there, up to a bound of entries and of bytes."""
        hangs, goes_on = threading.Event(), threading.Event()

        def hang(sql: str) -> None:
            if sql == "COMMIT":
                hangs.set()
                goes_on.wait()

        self.cache.flush()
        self.fuse = hang  # type: ignore[assignment]
        self.store("first")
        hangs.wait()
        self.store("first", body=b"newer")
        with mock.patch.object(exact_cache, "MOST_PENDING", 3):
            self.store("a", "b", "c")
        self.assertEqual(self.kept("first", "a", "b", "c"), ["first", "a", "b"])
        with mock.patch.object(exact_cache, "MOST_PENDING_BYTES", 4 * (ROW_OVERHEAD_BYTES + len(BODY))):
            self.store("d", "e")
        self.assertEqual(self.kept("d", "e"), ["d"])
        goes_on.set()
        self.cache.flush()
        self.assertEqual((self.stat("entries"), self.stat("dropped")), (4, 2))
        self.assertEqual((self.cache._pending, self.cache._pending_bytes), ({}, 0))
        hit = self.find("first")
        self.assertEqual(hit and hit.body, b"newer")

    def test_the_writer_survives_what_nobody_foresaw(self) -> None:
        """An errand or a write that raises fails alone."""
        self.cache.flush()
        with mock.patch.object(CacheFile, "write", side_effect=MemoryError):
            self.store("a")
            self.cache.flush()
        with mock.patch.object(CacheFile, "raise_epoch", side_effect=MemoryError):
            self.assertRaises(CacheUnavailable, drive, self.cache.purge(None))
        self.store("b")
        self.cache.flush()
        self.assertEqual(self.kept("a", "b"), ["b"])

    def test_close_writes_what_waits_and_ends_the_thread(self) -> None:
        """Twice is as good as once; from then on nothing is found, kept or raised."""
        self.store("a")
        self.cache.close()
        self.cache.close()
        self.assertNotIn("cache-write", [thread.name for thread in threading.enumerate()])
        self.store("b")
        self.cache.flush()
        self.assertEqual(self.kept("a", "b"), [])
        self.assertRaises(CacheUnavailable, drive, self.cache.purge(None))
        self.assertEqual(self.errors, [])
        self.cache = self.open()
        self.assertEqual(self.kept("a", "b"), ["a"])
