"""Virtual keys: how they look, who may use one, and what an operator can do to it."""

import contextlib
import hashlib
import re
import tempfile
import unittest
from pathlib import Path

from gateway.clock import FakeClock
from gateway.engines.sim import Scheduler, SimStore
from gateway.errors import InvalidApiKey
from gateway.keys import InvalidTenant, KeyChanged, KeyRing, ShownKey, UnknownKey, base62, hash_key
from tests.support.world import random_bytes, settle_story


class FormTest(unittest.TestCase):
    """The text of a key and what is kept of it."""

    def test_a_key_is_hashed_with_sha_256(self) -> None:
        """Lower-case hex, of any text."""
        self.assertEqual(hash_key("sk-gw-x"), hashlib.sha256(b"sk-gw-x").hexdigest())
        self.assertEqual(len(hash_key("\ud83d")), 64)

    def test_base62_has_a_width(self) -> None:
        """Digits, then capitals, then small letters."""
        self.assertEqual((base62(0, 3), base62(61, 1), base62(62, 1), base62(62**2 - 1, 2)), ("000", "z", "10", "zz"))
        self.assertEqual(len(base62(2**256 - 1, 43)), 43)


class RingTest(unittest.TestCase):
    """A key ring over a ledger file."""

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.clock = FakeClock()
        self.store = SimStore(Path(folder) / "ledger.db")
        self.addCleanup(self.store.detach)
        self.ring = self.loaded()
        settle_story(self.ring.make_tenant("acme"))

    def loaded(self) -> KeyRing:
        """A ring as a new process reads it."""
        ring = KeyRing(self.store, self.clock, random_bytes)
        settle_story(ring.load())
        return ring

    def make(self, *, expires_ms: int | None = None) -> tuple[str, str]:
        """A new key: its id and the whole of it."""
        key_id = self.ring.new_id()
        return key_id, settle_story(self.ring.create(key_id, "acme", name="ci", expires_ms=expires_ms))

    def refuses(self, raw: str | None, ring: KeyRing | None = None) -> bool:
        """Whether `raw` opens nothing, with the one message there is."""
        try:
            (ring or self.ring).authenticate(ShownKey.of(raw))
        except InvalidApiKey as error:
            assert error.message == "Missing or invalid API key." and error.status == 401
            return True
        return False

    def test_a_key_opens_its_own_door(self) -> None:
        """Here and after a restart; only its digest is in the file."""
        key_id, raw = self.make()
        self.assertRegex(raw, r"\Ask-gw-[0-9A-Za-z]{12}-[0-9A-Za-z]{43}\Z")
        for ring in (self.ring, self.loaded()):
            key = ring.authenticate(ShownKey.of(raw))
            self.assertEqual((key.id, key.tenant, key.name, key.digest), (key_id, "acme", "ci", hash_key(raw)))
        stored = settle_story(self.store.read("SELECT * FROM keys"))
        self.assertNotIn(raw.rpartition("-")[2], str(stored))

    def test_any_other_text_is_refused(self) -> None:
        """Nothing, near misses, another key's secret, other alphabets."""
        _, raw = self.make()
        other_id, _ = self.make()
        head, _, secret = raw.rpartition("-")
        near = ["", " ", raw[:-1], raw + "x", raw.upper(), f" {raw}", f"{raw}\n", raw.replace("sk-gw", "sk"), head]
        near += [
            f"sk-gw-{other_id}-{secret}",
            f"{head}-",
            secret,
            raw.replace(raw[8], "é", 1),
            raw + "\ud83d",
            "x" * 9999,
        ]
        self.assertTrue(self.refuses(None))
        for text in near:
            with self.subTest(text[:70]):
                self.assertTrue(self.refuses(text))

    def test_ids_and_secrets_do_not_repeat(self) -> None:
        """All from the random source that was handed in."""
        made = [self.make() for _ in range(50)]
        self.assertEqual(len({key_id for key_id, _ in made}), 50)
        self.assertEqual(len({raw.rpartition("-")[2] for _, raw in made}), 50)

    def test_a_key_expires_at_its_instant(self) -> None:
        """Not a millisecond later."""
        _, raw = self.make(expires_ms=self.clock.wall_ms() + 1000)
        self.clock.advance(0.999)
        self.assertFalse(self.refuses(raw))
        self.clock.advance(0.001)
        self.assertTrue(self.refuses(raw))

    def test_rotation_keeps_the_id_and_ends_the_old_secret(self) -> None:
        """At once, and for good."""
        key_id, old = self.make()
        new = settle_story(self.ring.rotate(key_id))
        for ring in (self.ring, self.loaded()):
            self.assertTrue(self.refuses(old, ring))
            self.assertEqual(ring.authenticate(ShownKey.of(new)).id, key_id)

    def test_a_blocked_key_is_refused_until_it_is_unblocked(self) -> None:
        """Rotating it does not unblock it."""
        key_id, raw = self.make()
        settle_story(self.ring.set_blocked(key_id, True))
        self.assertTrue(self.refuses(raw))
        self.assertTrue(self.refuses(raw, self.loaded()))
        new = settle_story(self.ring.rotate(key_id))
        self.assertTrue(self.refuses(new))
        settle_story(self.ring.set_blocked(key_id, False))
        self.assertFalse(self.refuses(new))

    def test_a_deleted_key_is_gone(self) -> None:
        """From the list too, and every command then says so."""
        key_id, raw = self.make()
        settle_story(self.ring.delete(key_id))
        for ring in (self.ring, self.loaded()):
            self.assertTrue(self.refuses(raw, ring))
            self.assertEqual(ring.all(), [])
        for story in (self.ring.rotate(key_id), self.ring.delete(key_id), self.ring.set_blocked(key_id, False)):
            with self.assertRaises(UnknownKey):
                settle_story(story)

    def test_two_commands_at_once_never_undo_each_other(self) -> None:
        """Whatever the schedule, the ring says what the file says, and no block or deletion is lost."""
        for seed in range(60):
            key_id, _ = self.make()
            scheduler = Scheduler(seed, self.clock)
            block = scheduler.spawn("block", self.ring.set_blocked(key_id, True))
            scheduler.spawn("rotate", self.ring.rotate(key_id))
            delete = scheduler.spawn("delete", self.ring.delete(key_id)) if seed % 2 else None
            scheduler.run()
            with self.subTest(seed=seed):
                for task in scheduler.tasks:
                    self.assertIsInstance(task.error, KeyChanged | UnknownKey | None)
                here, there = self.found(self.ring, key_id), self.found(self.loaded(), key_id)
                self.assertEqual(here, there)
                if block.error is None and here:
                    self.assertTrue(here[1])
                if delete and delete.error is None:
                    self.assertIsNone(here)

    def found(self, ring: KeyRing, key_id: str) -> tuple[str, bool] | None:
        """What a ring knows of a key."""
        with contextlib.suppress(UnknownKey):
            key = ring.get(key_id)
            return key.digest, key.blocked
        return None

    def test_a_tenant_is_made_once(self) -> None:
        """Its name is a short word that also stands in addresses and labels."""
        settle_story(self.ring.make_tenant("acme"))
        settle_story(self.ring.make_tenant("b-2"))
        self.assertEqual(self.loaded().tenants(), ["acme", "b-2"])
        for name in ("", "-a", "Acme", "a b", "a_b", "é", "a" * 64, "a\n"):
            with self.subTest(name), self.assertRaises(InvalidTenant):
                settle_story(self.ring.make_tenant(name))

    def test_new_ids_are_base62(self) -> None:
        """Whatever the random bytes are."""
        for byte in (b"\x00", b"\xff"):
            key_id = KeyRing(self.store, self.clock, lambda size, byte=byte: byte * size).new_id()  # type: ignore[misc]
            self.assertTrue(re.fullmatch("[0-9A-Za-z]{12}", key_id))
