"""The exact cache against a small model: what it holds after any sequence of stores, look-ups, purges and time."""

import random
import tempfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.cache_entry import Entry, Record, row_of
from gateway.clock import FakeClock
from gateway.drive import drive
from gateway.exact_cache import ExactCache

MAX_BYTES = 16_384
NAMES = st.integers(0, 9)
TENANTS = st.sampled_from(["acme", "other"])
LARGEST = MAX_BYTES // 8 - 512


@dataclass
class Kept:
    """What the model knows of an entry."""

    tenant: str
    body: bytes
    stored_ms: int
    expires_ms: int
    size: int


def digest_of(name: int) -> bytes:
    return bytes([name]) * 32


def body_of(seed: int, size: int) -> bytes:
    """Bytes that hardly get smaller."""
    return random.Random(seed).randbytes(size)


class ExactCacheMachine(RuleBasedStateMachine):
    """Each step is flushed, so that the order of uses is known."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FakeClock()
        self.model: OrderedDict[int, Kept] = OrderedDict()
        self.epochs = {"acme": 0, "other": 0}
        self.open()

    def open(self) -> None:
        self.cache = ExactCache(
            Path(self.folder.name) / "cache.db",
            ttl_s=60,
            max_bytes=MAX_BYTES,
            clock=self.clock,
            draw=lambda: 0.5,
            on_error=self.refuse,
        )

    def refuse(self, error: BaseException) -> None:
        raise AssertionError from error

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            self.cache.close()
            self.folder.cleanup()

    def sweep(self) -> None:
        """What every write does first."""
        for name in [name for name, kept in self.model.items() if kept.expires_ms <= self.clock.wall_ms()]:
            del self.model[name]

    @rule(
        name=NAMES, tenant=TENANTS, seed=st.integers(0, 99), size=st.integers(0, LARGEST + 50), ttl_s=st.integers(0, 90)
    )
    def store(self, name: int, tenant: str, seed: int, size: int, ttl_s: int) -> None:
        """Expired ones go, then the one that is replaced, then the least recently used."""
        now_ms = self.clock.wall_ms()
        entry = Entry(tenant, self.cache.epoch(tenant), "d", "p", "cheap", body_of(seed, size))
        self.cache.store(digest_of(name), entry, ttl_s=ttl_s)
        self.cache.flush()
        self.sweep()
        if ttl_s == 0 or size > LARGEST:
            return
        expires_ms = now_ms + int(min(60, ttl_s) * 0.95 * 1000)
        needed = row_of(Record(digest_of(name), now_ms, expires_ms, entry), 0).size
        self.model.pop(name, None)
        while sum(kept.size for kept in self.model.values()) + needed > MAX_BYTES:
            self.model.popitem(last=False)
        self.model[name] = Kept(tenant, entry.body, now_ms, expires_ms, needed)

    @rule(name=NAMES, tenant=TENANTS)
    def lookup(self, name: int, tenant: str) -> None:
        """A hit is a use."""
        hit = drive(self.cache.lookup(digest_of(name), tenant))
        kept = self.model.get(name)
        now_ms = self.clock.wall_ms()
        if kept and kept.tenant == tenant and kept.stored_ms <= now_ms < kept.expires_ms:
            assert hit is not None
            assert (hit.body, hit.age_s) == (kept.body, (now_ms - kept.stored_ms) // 1000)
            self.model.move_to_end(name)
        else:
            assert hit is None

    @rule(tenant=TENANTS | st.none())
    def purge(self, tenant: str | None) -> None:
        """The tenant's entries are gone, and all that expired."""
        self.sweep()
        gone = [name for name, kept in self.model.items() if tenant in (None, kept.tenant)]
        assert drive(self.cache.purge(tenant)) == len(gone)
        for name in gone:
            del self.model[name]
        for other, epoch in self.epochs.items():
            now = self.cache.epoch(other)
            assert (now > epoch) == (tenant in (None, other))
            self.epochs[other] = now

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.integers(-30, 30))
    def the_wall_clock_jumps(self, seconds: int) -> None:
        self.clock.jump_wall(seconds)

    @rule()
    def restart(self) -> None:
        """Nothing is lost but what expired."""
        self.cache.close()
        self.open()
        self.cache.flush()
        self.sweep()

    @invariant()
    def the_totals_are_the_models(self) -> None:
        """And never above the bound."""
        if not hasattr(self, "cache"):
            return
        stats = self.cache.stats()
        assert stats["bytes"] <= MAX_BYTES
        assert (stats["entries"], stats["bytes"]) == (
            len(self.model),
            sum(kept.size for kept in self.model.values()),
        )


ExactCacheTest = ExactCacheMachine.TestCase
ExactCacheTest.settings = settings(deadline=None, max_examples=40, stateful_step_count=40)
