"""What a data directory holds, opened together and closed together: ledger, keys and caches.

Opening resolves what a dead process has left. Knows no providers and no requests.
"""

import functools
import os
import random  # noqa: TID251 - the source that randomness is handed in from
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from gateway.backup import Backups
from gateway.clock import Clock, RealClock
from gateway.commands import Commands
from gateway.config import ConfigError
from gateway.config_schema import CacheConfig, Config, TenantConfig
from gateway.data_dir import DataDir, machine_boot_id
from gateway.drive import drive
from gateway.errors import StoreUnavailable
from gateway.exact_cache import ExactCache
from gateway.holds import OnCrash
from gateway.keys import KeyRing
from gateway.ledger import Ledger
from gateway.levels import LevelLimit, Scope
from gateway.sqlite_file import NoRoomToOpen, StoreRefused
from gateway.sqlite_store import SqliteStore
from gateway.store import Doing, Durability
from gateway.types import Window

if TYPE_CHECKING:
    from gateway.judging import Judging
    from gateway.semantic_cache import SemanticCache


class Books(Struct):
    """The open ledger, key ring and caches of one data directory."""

    store: SqliteStore
    ledger: Ledger
    keys: KeyRing
    cache: ExactCache
    semantic: "SemanticCache | None"
    judging: "Judging | None"
    commands: Commands
    orphans: int

    def close(self) -> None:
        """Commit what is queued and mark a clean end."""
        if self.judging is not None:
            self.judging.close()
        try:
            self.store.flush()
            drive(self.ledger.close())
        except StoreUnavailable:
            pass
        self.store.close()
        self.cache.close()
        if self.semantic is not None:
            self.semantic.close()


def open_books(
    data_dir: DataDir,
    config: Config | None,
    *,
    clock: Clock | None = None,
    draw: Callable[[], float] = random.random,
    on_error: Callable[[BaseException], None] = lambda error: None,
    on_failed: Callable[[Doing, sqlite3.Error], None] = lambda doing, error: None,
    on_works: Callable[[Doing], None] = lambda doing: None,
    on_lost: Callable[[str], None] = lambda reason: None,
) -> Books:
    """Open the ledger of an owned directory and resolve what a dead process left in it.

    config     its [store], [cache] and budgets apply; None for a command line that serves nothing: if the ledger
               cannot be written now, it is left as it is, and can be read
    draw       gives numbers from [0, 1), for the lifetimes of answers that are kept
    on_failed, on_works  see SqliteStore
    on_lost    is told once why the ledger can commit nothing any more: the process must end
    Raises sqlite_store.StoreRefused, StoreUnavailable.
    """
    clock = clock or RealClock()
    durability = Durability(config.store.durability) if config else Durability.FULL
    opened = functools.partial(
        SqliteStore,
        data_dir.ledger,
        durability=durability,
        on_error=on_error,
        on_failed=on_failed,
        on_works=on_works,
        on_lost=on_lost,
    )
    try:
        store = opened()
    except NoRoomToOpen as refused:
        if config is not None:
            raise
        try:
            store = opened(unwritable=str(refused.__cause__))
        except sqlite3.Error:
            raise refused from None
    try:
        ledger = Ledger(store, clock, durability=durability)
        orphans = open_ledger(ledger, config)
        keys = KeyRing(store, clock, os.urandom)
        drive(keys.load())
        cache_config = config.cache if config else CacheConfig()
        cache = open_cache(data_dir, cache_config, clock, draw, on_error)
        semantic = None
        if (config and config.semantic_anywhere) or data_dir.words.exists():
            semantic = open_semantic_cache(data_dir, cache_config, cache, clock, draw, on_error)
        judging = None
        if semantic is not None and config is not None and config.judge_anywhere:
            judging = open_judging(cache_config, semantic, clock, draw, on_error)
        commands = Commands(store, ledger, keys, cache, semantic, judging, Backups(store, data_dir.ledger), clock)
        books = Books(store, ledger, keys, cache, semantic, judging, commands, orphans)
        if not ledger.has_level(Scope.GLOBAL, ""):
            drive(ledger.set_level(Scope.GLOBAL, "", Window.TOTAL, None))
        if config is not None:
            apply_budgets(config, books)
    except BaseException as error:
        store.close()
        if isinstance(error, sqlite3.IntegrityError):
            raise StoreRefused(f"{data_dir.ledger} contradicts itself and was not changed: {error}") from error
        raise
    return books


def open_ledger(ledger: Ledger, config: Config | None) -> int:
    """Begin a life of the ledger; how many holds a dead process had left open. See open_books."""
    on_crash = OnCrash(config.store.on_crash) if config else None
    try:
        return drive(ledger.open(pid=os.getpid(), machine_boot=machine_boot_id(), on_crash=on_crash))
    except StoreUnavailable:
        if config is not None:
            raise
        drive(ledger.look())
        return 0


def open_cache(
    data_dir: DataDir,
    config: CacheConfig,
    clock: Clock,
    draw: Callable[[], float],
    on_error: Callable[[BaseException], None],
) -> ExactCache:
    """The exact cache of an owned directory."""
    return ExactCache(
        data_dir.cache,
        ttl_s=config.exact_ttl_s,
        max_bytes=config.exact_max_bytes,
        clock=clock,
        draw=draw,
        on_error=on_error,
    )


def open_semantic_cache(
    data_dir: DataDir,
    config: CacheConfig,
    answers: ExactCache,
    clock: Clock,
    draw: Callable[[], float],
    on_error: Callable[[BaseException], None],
) -> "SemanticCache":
    """The semantic cache of an owned directory, over its exact one."""
    # late: its rules take as long to load as all else, and few gateways need them
    from gateway.semantic_cache import SemanticCache

    index = ExactCache(
        data_dir.words,
        ttl_s=config.semantic_ttl_s,
        max_bytes=config.semantic_max_bytes,
        max_partition=config.semantic_max_entries,
        clock=clock,
        draw=draw,
        on_error=on_error,
    )
    return SemanticCache(answers, index, ttl_s=config.semantic_ttl_s, clock=clock, on_error=on_error)


def open_judging(
    config: CacheConfig,
    semantic: "SemanticCache",
    clock: Clock,
    draw: Callable[[], float],
    on_error: Callable[[BaseException], None],
) -> "Judging":
    """The judged tier over a semantic cache, with its thread. Raises ConfigError if there is no such embedder here."""
    # late, as the semantic cache
    from gateway.judging import Judging
    from llmkit.embed import HashEmbedder
    from llmkit.embed_use import EmbedderMissing, UseEmbedder

    try:
        embedder = UseEmbedder() if config.judge_embedder == "use" else HashEmbedder()
    except EmbedderMissing as error:
        raise ConfigError((f"cache.judge_embedder: {error}",)) from error
    return Judging(
        semantic,
        embedder,
        queue=config.judge_queue,
        max_bytes=config.judge_max_bytes,
        clock=clock,
        draw=draw,
        on_error=on_error,
    )


def apply_budgets(config: Config, books: Books) -> None:
    """Give the ledger the limits of the configuration, all or none; tenants that it no longer names lose theirs.

    The commands know by then which tenants are listed.
    """
    for name in config.tenants:
        drive(books.keys.make_tenant(name))
    limits = [LevelLimit(Scope.GLOBAL, "", config.budget.window, config.budget.limit_nanousd)]
    for name in books.keys.tenants():
        tenant = config.tenants.get(name, TenantConfig(name, budget_window=Window.TOTAL))
        limits.append(LevelLimit(Scope.TENANT, name, tenant.budget_window, tenant.budget_nanousd))
    drive(books.ledger.set_levels(limits))
    books.commands.listed = config.tenants.keys()
