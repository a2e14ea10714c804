"""The schema: released steps stay what they were, and what a migration leaves behind."""

import hashlib
import tempfile
import unittest
from pathlib import Path

from gateway.drive import drive
from gateway.ledger import Ledger
from gateway.migrations import MIGRATIONS
from gateway.sqlite_file import StoreRefused, connect_writer
from gateway.store import Durability
from tests.support.ledgers import at_schema, dump, execute, of_columns, schema, used_ledger
from tests.support.world import RealWorld

RELEASED = (
    "5cbba6d8e5dd5f8d5fea2998d5643e21384f1695722b5f1a4b5f325206f61749",
    "8348ed2f5181cfb13afbf690d2a6667ce4474335ed895d12c7da21006d2e6f71",
    "04760fc0abb31a1dfc6496cf789d08901e2ae23a909f3858fb1f113aeacd1474",
    "e72a4ef596768b745e09eea1c0685c893cf5dc137d1fd68d8fd9ff73f95162aa",
)
"""SHA-256 of each step, first to last: a ledger in the field was made by exactly these statements."""


class MigrationsTest(unittest.TestCase):
    """Ledgers of every schema there has been."""

    content: bytes

    @classmethod
    def setUpClass(cls) -> None:
        cls.content = used_ledger()

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "ledger.db"

    def start(self) -> None:
        connect_writer(self.path, Durability.FULL).close()

    def names(self) -> list[str]:
        return sorted(file.name for file in self.path.parent.iterdir())

    def test_released_steps_are_never_edited(self) -> None:
        """A change of the schema is a new step."""
        digests = tuple(hashlib.sha256("\0".join(step).encode()).hexdigest() for step in MIGRATIONS)
        self.assertEqual(digests, RELEASED)

    def test_every_schema_becomes_todays_and_is_copied_first(self) -> None:
        """Nothing of what was in it is changed, and the copy is what it was, for its user alone."""
        self.start()
        today = schema(self.path)
        for version in range(1, len(MIGRATIONS)):
            with self.subTest(version=version):
                self.path.unlink()
                at_schema(version, self.path, self.content)
                before = dump(self.path)
                self.start()
                self.assertEqual(schema(self.path), today)
                after = dump(self.path)
                self.assertEqual(of_columns(after, before), before)
                kept = self.path.with_name(f"ledger.db.schema-{version}")
                self.assertEqual((dump(kept), schema(kept)[0]), (before, version))
                self.assertEqual(kept.stat().st_mode & 0o777, 0o600)
                self.assertEqual(self.names(), ["ledger.db", kept.name])
                kept.unlink()

    def test_a_ledger_of_today_is_not_copied(self) -> None:
        """Nor is one that has just been made."""
        self.start()
        self.start()
        self.assertEqual(self.names(), ["ledger.db"])

    def test_two_ledgers_of_one_schema_are_both_kept(self) -> None:
        """An older copy is never written over; one that is the same already is enough."""
        at_schema(1, self.path, self.content)
        older = self.path.read_bytes()
        self.start()
        for _ in range(2):
            self.path.write_bytes(older)
            self.start()
        self.assertEqual(self.names(), ["ledger.db", "ledger.db.schema-1"])
        self.path.write_bytes(older)
        execute(self.path, "UPDATE keys SET name = 'changed since'")
        changed = self.path.read_bytes()
        for _ in range(2):
            self.path.write_bytes(changed)
            self.start()
        self.assertEqual(self.names(), ["ledger.db", "ledger.db.schema-1", "ledger.db.schema-1.2"])

    def test_a_ledger_that_cannot_be_copied_is_not_migrated(self) -> None:
        """It is what it was, and the operator is told."""
        at_schema(1, self.path, self.content)
        self.path.with_name("ledger.db.new").mkdir()
        with self.assertRaisesRegex(StoreRefused, "cannot be copied before its schema is changed"):
            self.start()
        self.assertEqual(schema(self.path)[0], 1)

    def test_no_empty_ledger_is_made_where_a_copy_is(self) -> None:
        """Its ledger was taken away: that is for a person to put right."""
        at_schema(1, self.path, self.content)
        self.start()
        self.path.unlink()
        with self.assertRaisesRegex(StoreRefused, r"is gone but ledger\.db\.schema-1 is there"):
            self.start()
        self.assertEqual(self.names(), ["ledger.db.schema-1"])

    def test_a_ledger_that_was_never_restored_waits_for_nobody(self) -> None:
        """An upgrade is no restore."""
        with RealWorld() as world:
            ledger: Ledger = world.books.ledger
            self.assertIsNone(ledger.unconfirmed_epoch)
            self.assertEqual(world.run("ledger.epochs"), [])
            self.assertTrue(drive(ledger.levels()))
