"""Ledger files as tests compare them: whole, table by table; and as older releases have left them."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any
from unittest import mock

from gateway import sqlite_file
from gateway.errors import GatewayError
from gateway.migrations import MIGRATIONS
from gateway.sqlite_file import PAGE_BYTES, connect, migrate
from tests.support.world import RealWorld, chat, scripted

Dump = dict[str, list[tuple[Any, ...]]]
"""All rows by table."""


def dump(path: Path) -> Dump:
    """All rows of a ledger that nobody has open; its log, if there is one, is brought in."""
    with contextlib.closing(connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for name in tables}


def of_columns(dumped: Dump, former: Dump) -> Dump:
    """What of a ledger a former release knew: its tables, and their columns; later ones stand behind them."""
    return {
        table: [record[: len(before[0])] for record in dumped[table]] if before else dumped[table]
        for table, before in former.items()
    }


def schema(path: Path) -> tuple[int, list[tuple[str, str]]]:
    """The version of a ledger that nobody has open, and what it consists of."""
    with contextlib.closing(connect(path)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        return version, connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()


def used_ledger() -> bytes:
    """A ledger of today's schema with a bit of everything in it: keys, settled, void and unresolved holds, rows."""
    script = scripted({"text": "hello"}, {"timeout": True}, {"text": "there"}, {"status": 400, "error": "no"})
    with RealWorld(providers=script) as world:
        raw = world.key("5")
        world.run("keys.delete", id=world.shown(world.key())["id"])
        for _ in range(4):
            with contextlib.suppress(GatewayError):
                world.gateway.handle(raw, chat(max_tokens=5))
        world.books.store.flush()
        copied = world.path / "copied"
        copied.touch()
        world.books.store.copy_to(copied)
        return copied.read_bytes()


def at_schema(version: int, path: Path, content: bytes) -> None:
    """Write the ledger that the release of this schema would have made of the same events, with its log beside it."""
    whole = path.with_name("whole.db")
    whole.write_bytes(content)
    with contextlib.closing(connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        with mock.patch.object(sqlite_file, "MIGRATIONS", MIGRATIONS[:version]):
            migrate(connection)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("ATTACH ? AS whole", (str(whole),))
        for (table,) in connection.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'").fetchall():
            columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
            names = ", ".join(columns)
            connection.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM whole.{table}")
        connection.execute("DETACH whole")
    whole.unlink()


def execute(path: Path, *statements: str) -> None:
    """Change a database file behind everybody's back."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def rows_of(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """The records of a SELECT on a file that nobody has open."""
    with contextlib.closing(connect(path)) as connection:
        return connection.execute(sql).fetchall()
