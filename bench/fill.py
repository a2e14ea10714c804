"""Fills a data directory that nobody has open with what years of use leave: rows of the ledger, keys, cached answers.

    python -m bench.fill DATA_DIR [--rows N] [--entries N]

Rows and entries are copies of the newest one, so that their shape is what this gateway writes: at least one request
must have been served, and one answer cached. The copies cost nothing, so the books still balance. Keys are made by the
gateway's own command, one for each tenant that the standard input names; they are printed as a JSON list.
"""

import argparse
import json
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from gateway.books import open_books
from gateway.config import load_file
from gateway.data_dir import DataDir

STEP = 100_000
"""Copies in one transaction: a write-ahead log of some tens of megabytes."""

_NUMBERS = "WITH RECURSIVE numbers (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n < :last) "
_REQUEST_ID = "'req_' || printf('%032x', n)"

LEDGER: Mapping[str, Mapping[str, str]] = {
    "requests": {"id": "NULL", "request_id": _REQUEST_ID, "cost_nanousd": "0", "overage_nanousd": "0"},
    "holds": {
        "id": "NULL",
        "request_id": _REQUEST_ID,
        "amount_nanousd": "0",
        "cost_nanousd": "0",
        "overage_nanousd": "0",
    },
}
"""By table, the columns in which a copy differs, as SQL over its number `n`."""

CACHE: Mapping[str, Mapping[str, str]] = {"entries": {"id": "NULL", "digest": "randomblob(32)", "used": "-n"}}


def multiply(path: Path, tables: Mapping[str, Mapping[str, str]], count: int) -> None:
    """Add so many copies of the newest row of each table. Raises ValueError for a table without a row."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous = OFF")
        for table, changed in tables.items():
            names = [name for (name,) in database.execute("SELECT name FROM pragma_table_info(?)", (table,))]
            if not database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]:
                raise ValueError(f"{path.name} has no row in {table} to copy")
            values = ", ".join(changed.get(name, f'newest."{name}"') for name in names)
            columns = ", ".join(f'"{name}"' for name in names)
            newest = f"(SELECT * FROM {table} ORDER BY id DESC LIMIT 1) AS newest"
            database.execute(f"CREATE TEMP TABLE newest_{table} AS SELECT * FROM {newest}")
            copy = f"INSERT INTO {table} ({columns}) {_NUMBERS} SELECT {values} FROM numbers, newest_{table} AS newest"
            for first in range(1, count + 1, STEP):
                database.execute(copy, {"first": first, "last": min(first + STEP - 1, count)})
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def make_keys(folder: Path, tenants: list[str]) -> list[str]:
    """A key for each, raw, in the gateway of a prepared folder that does not run."""
    config = load_file(folder / "gateway.toml", {})
    with closing(DataDir.own(folder / "gateway-data")) as data_dir, closing(open_books(data_dir, config)) as books:
        return [str(books.commands.run("keys.create", {"tenant": tenant})["key"]) for tenant in tenants]


def main() -> None:
    """Make keys, then copies."""
    parser = argparse.ArgumentParser(prog="bench.fill", description=__doc__)
    parser.add_argument("folder", type=Path, help="with gateway.toml and gateway-data")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--entries", type=int, default=0)
    arguments = parser.parse_args()
    tenants = sys.stdin.read().split()
    if tenants:
        print(json.dumps(make_keys(arguments.folder, tenants)))
    for count, file, tables in ((arguments.rows, "ledger.db", LEDGER), (arguments.entries, "cache.db", CACHE)):
        if count:
            multiply(arguments.folder / "gateway-data" / file, tables, count)


if __name__ == "__main__":
    main()
