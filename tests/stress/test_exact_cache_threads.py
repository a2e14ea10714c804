"""The exact cache under many threads at once."""

import tempfile
import threading
import unittest
from pathlib import Path

from gateway.cache_entry import Entry
from gateway.clock import FakeClock
from gateway.drive import drive
from gateway.exact_cache import ExactCache

THREADS = 16
ROUNDS = 150


class ExactCacheThreadsTest(unittest.TestCase):
    """Sixteen threads that store, look up and purge."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.errors: list[BaseException] = []
        self.cache = ExactCache(
            Path(folder.name) / "cache.db",
            ttl_s=60,
            max_bytes=200_000,
            clock=FakeClock(),
            draw=lambda: 0.0,
            on_error=self.errors.append,
        )
        self.addCleanup(self.cache.close)
        self.barrier = threading.Barrier(THREADS)

    def work(self, number: int) -> None:
        """Every body says whose it is, of which digest and epoch; what comes back must say the same or newer."""
        tenant = f"tenant-{number % 4}"
        self.barrier.wait()
        for turn in range(ROUNDS):
            digest = bytes([number % 4, turn % 30]) * 16
            epoch = self.cache.epoch(tenant)
            hit = drive(self.cache.lookup(digest, tenant))
            if hit is None:
                body = f"{tenant} {digest.hex()} {epoch}".encode()
                self.cache.store(digest, Entry(tenant, epoch, "d", "p", "cheap", body), ttl_s=None)
            else:
                owner, key, stored_in = hit.body.decode().split()
                self.assertEqual((owner, key), (tenant, digest.hex()))
                self.assertGreaterEqual(int(stored_in), epoch)
            self.assertIsNone(drive(self.cache.lookup(digest, "stranger")))
            if turn % 50 == 49 and number < 4:
                drive(self.cache.purge(tenant))
                self.assertGreater(self.cache.epoch(tenant), epoch)

    def run_safely(self, number: int) -> None:
        try:
            self.work(number)
        except BaseException as error:
            self.errors.append(error)

    def test_everybody_gets_their_own_answers(self) -> None:
        """Of an epoch that is not over, and the counters add up in the end."""
        threads = [threading.Thread(target=self.run_safely, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.cache.flush()
        self.assertEqual(self.errors, [])
        stats = self.cache.stats()
        self.assertEqual(stats["hits"] + stats["misses"], 2 * THREADS * ROUNDS)
        self.assertLessEqual(stats["bytes"], 200_000)
        self.assertGreater(stats["hits"], 0)
