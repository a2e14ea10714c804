"""Filling a data directory with what years of use leave."""

import io
import json
import sqlite3
import tempfile
import unittest
from contextlib import closing
from pathlib import Path
from unittest import mock

from bench import fill, own
from gateway.books import open_books
from gateway.data_dir import DataDir
from gateway.keys import ShownKey
from tests.support.world import RealWorld, chat


class FillTest(unittest.TestCase):
    """Copies of what this gateway has written."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name)

    def count(self, file: str, table: str) -> int:
        """Rows of a table."""
        with closing(sqlite3.connect(self.path / file)) as database:
            return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def serve(self, times: int) -> None:
        """So many different questions, each of which may be cached."""
        with RealWorld(folder=self.path) as world:
            raw = world.key()
            for number in range(times):
                world.gateway.handle(raw, chat(f"question {number}", temperature=0))

    def test_the_books_still_balance(self) -> None:
        """Copies cost nothing; the next life of the gateway finds nothing wrong and serves."""
        self.serve(2)
        with mock.patch.object(fill, "STEP", 100):
            fill.multiply(self.path / "ledger.db", fill.LEDGER, 201)
        self.assertEqual(self.count("ledger.db", "requests"), 203)
        self.assertEqual(self.count("ledger.db", "holds"), 203)
        self.serve(1)
        with RealWorld(folder=self.path) as world:
            self.assertTrue(world.run("ledger.verify")["ok"])
            self.assertEqual(len(world.rows()), 204)

    def test_the_cache_still_answers(self) -> None:
        """Among all the copies it finds what it had."""
        self.serve(1)
        fill.multiply(self.path / "cache.db", fill.CACHE, 250)
        self.assertEqual(self.count("cache.db", "entries"), 251)
        with RealWorld(folder=self.path) as world:
            answer = world.gateway.handle(world.key(), chat("question 0", temperature=0))
            self.assertEqual(answer["cache"], "hit")

    def test_without_anything_to_copy_it_says_so(self) -> None:
        """No row is made up."""
        self.serve(0)
        with self.assertRaisesRegex(ValueError, "no row in requests"):
            fill.multiply(self.path / "ledger.db", fill.LEDGER, 1)

    def test_keys_work(self) -> None:
        """They are the gateway's own, in the order of the tenants that were named."""
        place = self.path / "gateway"
        own.prepare(place, 1, "normal", ["one", "two"])
        arguments = ["bench.fill", str(place)]
        with (
            mock.patch("sys.argv", arguments),
            mock.patch("sys.stdin", io.StringIO("two\none\n")),
            mock.patch("sys.stdout", io.StringIO()) as printed,
        ):
            fill.main()
        raw = json.loads(printed.getvalue())
        with (
            closing(DataDir.own(place / "gateway-data")) as data_dir,
            closing(open_books(data_dir, None)) as books,
        ):
            self.assertEqual([books.keys.authenticate(ShownKey.of(each)).tenant for each in raw], ["two", "one"])
