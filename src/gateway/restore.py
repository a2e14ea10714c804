"""Putting a backup in the place of a ledger, whole or not at all, in a data directory that this process owns.

A restore forgets money: what was spent after the backup is not in it. Therefore the restored ledger is in a new epoch,
its row in `epochs` says what is forgotten as far as that is known, and the ledger makes no reservation until an
operator has confirmed that epoch. What the replaced ledger knew of earlier epochs is carried over: nothing that was
forgotten once, and perhaps not confirmed yet, is off the record because somebody restores again.

Order: the draft is copied, migrated, verified and marked; the cache is removed, because it knows answers from after the
backup; the replaced ledger gets a second name, under which it stays; the draft is renamed over it. A ledger that can be
read is one file by then. One that cannot is kept as it is, and may have its log beside it, which would be taken for the
new ledger's: then all of it is moved away, and until the draft is in place there is none, which every start refuses.
"""

import contextlib
import json
import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway import sqlite_copy
from gateway.audit import EPOCH_FIELDS
from gateway.backup import Contents, epoch_of, epochs_of, inspect, until_ms_of
from gateway.clock import Clock
from gateway.data_dir import DataDir
from gateway.db_files import INDEX, JOURNAL, beside, suffixes_of
from gateway.sqlite_file import StoreRefused, check_identity, connect, connect_unchanged, draft_of, migrate
from gateway.store import Record
from gateway.types import Window
from gateway.windows import window_end_text

_UNREADABLE = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
"""What SQLite says of a file that no waiting and no other disk will make readable."""

_INSERT_EPOCH = f"""INSERT OR REPLACE INTO epochs ({", ".join(EPOCH_FIELDS)})
    VALUES ({", ".join("?" * len(EPOCH_FIELDS))})"""  # noqa: S608 - names of our own

_MONEY = """SELECT scope, name, window_kind, balances.window_number, spent_nanousd + held_nanousd + unresolved_nanousd
    FROM balances JOIN levels ON levels.id = balances.level_id ORDER BY balances.id"""
_LIMITS = "SELECT name, window_kind, limit_nanousd FROM levels WHERE scope = 'key' AND active"
_KEYS = "SELECT id, tenant, digest, blocked, deleted_ms IS NOT NULL FROM keys ORDER BY created_ms, id"


class RestoreRefused(Exception):
    """The ledger is what it was: the reason is a sentence for the operator."""


class _Key(Struct, frozen=True):
    """What a ledger says of a key."""

    tenant: str
    digest: str
    blocked: bool
    deleted: bool


class _Book(Struct, frozen=True):
    """What a restore can forget of a ledger: its epochs, money by level and window, keys by id, and their limits."""

    epoch: int
    until_ms: int
    epochs: list[Record]
    money: dict[tuple[str, str, str, int], int]
    keys: dict[str, _Key]
    limits: dict[str, tuple[str, int | None]]


def restore(owned: DataDir, file: Path, clock: Clock, *, replace: bool) -> dict[str, Any]:
    """Make the backup `file` the ledger of `owned`; what was replaced, and what is forgotten by that.

    replace  whether a ledger that is there, or what is left of one, may be replaced; else what would be is told, and
             nothing is changed
    Raises RestoreRefused, sqlite3.Error or OSError: the ledger is the one that it was.
    """
    ledger, draft = owned.ledger, draft_of(owned.ledger)
    _refuse_own(file, ledger, draft)
    with sqlite_copy.drafted(draft):
        contents = _draft_of_backup(file, draft)
        own = suffixes_of(ledger)
        replaced = _book_at(ledger) if "" in own else None
        epoch = 1 + max(contents.epoch, replaced.epoch if replaced else 0, _last_epoch_set_aside(ledger))
        now_ms = clock.wall_ms()
        aside = sqlite_copy.free_name(ledger.with_name(f"ledger.db.epoch-{epoch - 1}.{_stamp(now_ms)}"))
        kept = [beside(aside, suffix).name for suffix in own if suffix != INDEX]
        facts: dict[str, Any] = {
            "backup": str(file),
            "backup_until_ms": contents.until_ms,
            "replaced": kept[0] if kept else None,
            "replaced_until_ms": replaced.until_ms if replaced else None,
        }
        differences, waiting = _mark(draft, {"number": epoch, "restored_ms": now_ms, **facts}, replaced)
        done = replace or not own
        if done:
            sqlite_copy.sync(draft)
            sqlite_copy.remove(owned.cache)
            sqlite_copy.remove(owned.words)
            if replaced:
                _fold(ledger)
            _swap(ledger, draft, aside)
    readable = replaced is not None if own else None
    return {
        "restored": done,
        "epoch": epoch,
        "unconfirmed_epochs": waiting,
        **facts,
        "replaced_is_readable": readable,
        **differences,
    }


def _mark(draft: Path, row: dict[str, Any], replaced: _Book | None) -> tuple[dict[str, Any], list[int]]:
    """Begin an epoch in the draft, after all that the replaced ledger has been in.

    Returns what is forgotten by that, nothing if nobody knows it, and the epochs that wait to be confirmed. An epoch
    that both ledgers know is what the replaced one says: it may have been confirmed since.
    """
    with contextlib.closing(connect(draft)) as connection:
        differences = _differences(_book(connection), replaced) if replaced else {}
        row = row | {"differences": json.dumps(differences) if replaced else None}
        connection.execute("BEGIN IMMEDIATE")
        for epoch in (*(replaced.epochs if replaced else ()), tuple(row.get(name) for name in EPOCH_FIELDS)):
            connection.execute(_INSERT_EPOCH, epoch)
        connection.execute("COMMIT")
        waiting = connection.execute("SELECT number FROM epochs WHERE confirmed_ms IS NULL ORDER BY number").fetchall()
    return differences, [number for (number,) in waiting]


def refuse_no_file(file: Path) -> None:
    """Raise RestoreRefused, and say what is there, unless `file` is a file or leads to one."""
    if file.is_file():
        return
    if file.is_dir():
        raise RestoreRefused(f"{file} is a directory: name the backup in it")
    if file.exists():
        raise RestoreRefused(f"{file} is no file but a device, a pipe or a socket: a backup is read more than once")
    raise RestoreRefused(f"there is no file {file}")


def _refuse_own(file: Path, ledger: Path, draft: Path) -> None:
    refuse_no_file(file)
    for own in (ledger, draft):
        if own.exists() and own.samefile(file):
            raise RestoreRefused(f"{file} is no backup: it is the data directory's own")


def _draft_of_backup(file: Path, draft: Path) -> Contents:
    """Copy, migrate and check the backup. Raises RestoreRefused."""
    try:
        with contextlib.closing(connect_unchanged(file)) as source:
            check_identity(source, file)
            sqlite_copy.copy(source, draft)
        with contextlib.closing(connect(draft)) as connection:
            migrate(connection)
            contents = inspect(connection, file)
    except (sqlite3.Error, StoreRefused) as error:
        said = str(error)
        raise RestoreRefused(said if str(file) in said else f"{file} cannot be restored: {said}") from error
    if not contents.report.ok:
        raise RestoreRefused(f"{file} cannot be restored, its books do not balance: {contents.report.differences[0]}")
    return contents


def _book_at(ledger: Path) -> _Book | None:
    """What is known of the ledger that is to be replaced; None if it is damaged, or none that we know.

    It has a journal only if its owner died while it switched to the write-ahead log: then SQLite undoes that first.
    """
    died_at_a_switch = beside(ledger, JOURNAL).exists()
    try:
        with contextlib.closing(connect(ledger) if died_at_a_switch else connect_unchanged(ledger)) as connection:
            check_identity(connection, ledger)
            sound = connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
            return _book(connection) if sound else None
    except StoreRefused:
        return None
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _UNREADABLE:
            return None
        raise


def _book(connection: sqlite3.Connection) -> _Book:
    money = {(scope, name, kind, number): total for scope, name, kind, number, total in connection.execute(_MONEY)}
    keys = {
        id_: _Key(tenant, digest, bool(blocked), bool(deleted))
        for id_, tenant, digest, blocked, deleted in connection.execute(_KEYS)
    }
    limits = {id_: (window, limit) for id_, window, limit in connection.execute(_LIMITS)}
    return _Book(epoch_of(connection), until_ms_of(connection), epochs_of(connection), money, keys, limits)


def _last_epoch_set_aside(ledger: Path) -> int:
    """An epoch that has surely been reached, from the names of the ledgers that were replaced here: each was followed
    by another. It stands in for a ledger that cannot be read.
    """
    epochs = [name.split("-", 1)[1].split(".", 1)[0] for name in _names(ledger, "epoch-*")]
    return max((int(epoch) + 1 for epoch in epochs if epoch.isdecimal()), default=1)


def _names(ledger: Path, pattern: str) -> list[str]:
    return [path.name.removeprefix(f"{ledger.name}.") for path in ledger.parent.glob(f"{ledger.name}.{pattern}")]


def _differences(restored: _Book, replaced: _Book) -> dict[str, Any]:
    """What the replaced ledger knew and the restored one does not: money per level and window, and what was done to
    keys; a key that was rotated works with its old secret again, and no more with its new one. Budgets that were
    changed since are told as they are again.
    """
    missing = [
        {
            "scope": scope,
            "name": name,
            "window": kind,
            "window_number": number,
            "window_ends": window_end_text(Window(kind), number),
            "missing_nanousd": difference,
        }
        for (scope, name, kind, number), total in replaced.money.items()
        if (difference := total - restored.money.get((scope, name, kind, number), 0))
    ]
    valid_again: list[dict[str, str]] = []
    lost: list[dict[str, str]] = []
    for id_, after in replaced.keys.items():
        before = restored.keys.get(id_)
        if before is None:
            if not after.deleted:
                lost.append({"id": id_, "tenant": after.tenant, "after": "created"})
        elif (why := _undone(before, after)) is not None:
            (lost if why == "unblocked" else valid_again).append({"id": id_, "tenant": after.tenant, "after": why})
    budgets = [
        {"id": id_, "tenant": key.tenant, "window": restored.limits[id_][0], "limit_nanousd": restored.limits[id_][1]}
        for id_, key in restored.keys.items()
        if id_ in replaced.limits and replaced.limits[id_] != restored.limits[id_] and not key.deleted
    ]
    return {"missing": missing, "keys_valid_again": valid_again, "keys_lost": lost, "budgets_again": budgets}


def _undone(before: _Key, after: _Key) -> str | None:
    """What happened to a key between `before` and `after` that bears on who may use it; None if nothing did."""
    if before.deleted:
        return None
    if after.deleted:
        return "deleted"
    if after.blocked is not before.blocked:
        return "blocked" if after.blocked else "unblocked"
    return "rotated" if after.digest != before.digest else None


def _swap(ledger: Path, draft: Path, aside: Path) -> None:
    """Keep what is at `ledger` as `aside`, and put `draft` there."""
    own = suffixes_of(ledger)
    for suffix in own:
        if suffix != INDEX:
            _keep(beside(ledger, suffix), beside(aside, suffix))
    sqlite_copy.sync(ledger.parent)
    if own != [""]:
        for suffix in own:
            beside(ledger, suffix).unlink(missing_ok=True)
        sqlite_copy.sync(ledger.parent)
    draft.replace(ledger)
    sqlite_copy.sync(ledger.parent)


def _fold(ledger: Path) -> None:
    """Make a ledger that can be read one file."""
    with contextlib.closing(connect(ledger)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()


def _keep(path: Path, aside: Path) -> None:
    """Give the file a second name; only that one where the file system cannot."""
    try:
        os.link(path, aside)
    except OSError:
        path.rename(aside)


def _stamp(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
