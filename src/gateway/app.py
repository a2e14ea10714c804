"""The composition root: builds everything from a configuration, once, and takes it apart again.

The only file, besides the command line, that reads the environment of the process.
"""

import functools
import itertools
import os
import random  # noqa: TID251 - the source that randomness is handed in from
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gateway import heap
from gateway.admission import Admission
from gateway.attempt import Upstreams
from gateway.backup import Backups
from gateway.caching import Caching
from gateway.clock import Clock, RealClock
from gateway.commands import Commands
from gateway.config import ConfigError
from gateway.config_schema import CacheConfig, Config, ProviderConfig, TenantConfig
from gateway.data_dir import DataDir, machine_boot_id
from gateway.dispatch import Dispatcher
from gateway.drive import drive
from gateway.engines.threads import ThreadsEngine
from gateway.errors import StoreUnavailable
from gateway.exact_cache import ExactCache
from gateway.fake_provider import FakeProvider
from gateway.gateway import Gateway
from gateway.health import DeploymentHealth, Fleet
from gateway.holds import OnCrash, Policy
from gateway.keys import KeyRing
from gateway.ledger import Ledger
from gateway.levels import LevelLimit, Scope
from gateway.metrics import Metrics
from gateway.oplog import OpLog
from gateway.other_words import InOtherWords, Judged, ShadowLog
from gateway.providers import LiveProvider, Provider
from gateway.random_pool import RandomPool
from gateway.router import Catalog
from gateway.sqlite_file import NoRoomToOpen, StoreRefused
from gateway.sqlite_store import SqliteStore
from gateway.store import Doing, Durability
from gateway.types import Window
from gateway.verdict import Verdict
from llmkit.client import OpenAICompatClient
from llmkit.room import STEP_BYTES, Room
from llmkit.transport import Timeouts
from llmkit.types import Cancel
from tracekit.trace import Tracer

if TYPE_CHECKING:
    from gateway.judging import Judging
    from gateway.semantic_cache import SemanticCache

SWEEP_EVERY_S = 2.0
"""How soon a hold that is too old, a store that can be written again, or a ledger that was taken away, is noticed."""

_TRIM_EVERY = 15  # sweeps: half a minute's freed memory is a few megabytes

LARGE_WAL_BYTES = 64 << 20
"""A write-ahead log of this size is not copied back any more: somebody reads in the ledger without an end."""


def request_ids(clock: Clock, random_bytes: Callable[[int], bytes]) -> Callable[[], str]:
    """Ids that sort by time, so that rows are appended at one end of their index: `req_` and 32 hex digits."""
    return lambda: "req_" + (clock.wall_ms().to_bytes(6, "big") + random_bytes(10)).hex()


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
    on_crash = OnCrash(config.store.on_crash) if config else OnCrash.UNRESOLVED
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


def build_provider(config: ProviderConfig, clock: Clock, room: Room) -> Provider:
    """The provider that a configuration describes. `room` is what its answers may hold of memory."""
    if config.dialect == "fake" or config.base_url is None:
        return FakeProvider(config.script, repeat=config.repeat, name=config.name, remembers=0)
    timeouts = Timeouts(
        connect_s=config.connect_timeout_s,
        ttft_s=config.ttft_timeout_s,
        idle_s=config.idle_timeout_s,
        total_s=config.total_timeout_s,
    )
    client = OpenAICompatClient(
        config.base_url,
        timeouts=timeouts,
        clock=clock.now_s,
        wall_s=lambda: clock.wall_ms() / 1000,
        max_event_bytes=config.max_event_bytes,
        max_answer_bytes=config.max_answer_bytes,
        room=room,
    )
    return LiveProvider(config, client)


def answer_room(config: Config) -> Room:
    """The memory that answers may hold together: what is configured, and never less than the largest answer takes."""
    largest = max((provider.max_answer_bytes for provider in config.providers.values()), default=0)
    return Room(max(config.server.answer_memory_bytes, largest + STEP_BYTES))


def build_providers(config: Config, clock: Clock, room: Room) -> dict[str, Provider]:
    """All of them, by name. Where there are several, none can take more than half of the room, or one whole answer."""
    live = sum(provider.base_url is not None for provider in config.providers.values())
    size = config.server.answer_memory_bytes // (1 if live == 1 else 2)
    return {
        name: build_provider(provider, clock, Room(max(size, provider.max_answer_bytes + STEP_BYTES), within=room))
        for name, provider in config.providers.items()
    }


def build_fleet(config: Config) -> Fleet:
    """The health of every deployment. One is the same after a reload if nothing that bears on it has changed."""
    healths, identities = {}, {}
    for name, deployment in config.deployments.items():
        provider = config.providers[deployment.provider]
        healths[name] = DeploymentHealth(config.breaker, config.retry, len(provider.api_keys))
        identities[name] = (deployment, provider, config.breaker, config.retry)
    return Fleet(healths, identities)


def build_gateway(
    config: Config,
    books: Books,
    *,
    clock: Clock | None = None,
    tracer: Tracer | None = None,
    providers: Mapping[str, Provider] | None = None,
    room: Room | None = None,
    draw: Callable[[], float] = random.random,
    on_error: Callable[[BaseException, str], None] = lambda error, request_id: None,
    on_failed: Callable[[str, Verdict], None] = lambda deployment, verdict: None,
    on_state: Callable[[str, str], None] = lambda deployment, state: None,
    on_shadow: ShadowLog = lambda request_id, entry, question, judged: None,
    on_overbilled: Callable[[str, int, int], None] = lambda deployment, held_nanousd, cost_nanousd: None,
    metrics: Metrics | None = None,
) -> Gateway:
    """A gateway over open books. `providers` replaces those of the configuration by name, for tests.

    room      what all answers may hold of memory together; shared with the gateway that this one succeeds
    draw      gives numbers from [0, 1), for jitter and weights
    on_error  see Gateway
    on_failed is told of each call that failed before its client had content: the deployment, and the verdict
    on_state  is told of a deployment whose state has changed, and the state
    on_shadow is told of each answer that the semantic cache withholds in its shadow mode
    on_overbilled  see Gateway
    metrics   counts requests and calls
    """
    clock, metrics = clock or RealClock(), metrics or Metrics()
    room = room or answer_room(config)
    built = build_providers(config, clock, room)
    live = [provider for provider in built.values() if isinstance(provider, LiveProvider)]

    def release() -> None:
        for provider in live:
            provider.close()

    fleet = build_fleet(config)
    upstreams = Upstreams(built | dict(providers or {}), config.providers, clock)
    judged = build_judged(config, books, lambda *asked, **how: gateway.handle(*asked, **how))
    gateway = Gateway(
        admission=Admission(books.keys, books.ledger, Catalog(config, draw), config.tenants, clock),
        caching=build_caching(config, books, room, on_shadow, judged),
        ledger=books.ledger,
        dispatcher=Dispatcher(
            upstreams,
            fleet,
            config.retry,
            clock,
            draw=draw,
            on_failed=on_failed,
            on_state=on_state,
            on_call=metrics.note_call,
        ),
        fleet=fleet,
        tracer=tracer or Tracer(),
        clock=clock,
        engine=ThreadsEngine(),
        head_hold_s=config.server.head_hold_s,
        new_request_id=request_ids(clock, RandomPool(os.urandom)),
        on_error=on_error,
        on_ended=metrics.note_request,
        on_overbilled=on_overbilled,
        release=release,
    )
    return gateway


def build_judged(config: Config, books: Books, handle: Callable[..., Mapping[str, Any]]) -> Judged | None:
    """Who judges, as a configuration has it; None if nobody does. The tier must have been opened with the books.

    handle  the Gateway's: a judge is a client as any other, but that its requests are private: nothing of them is
            looked up, kept, or taught to the semantic cache
    """
    cache = config.cache
    if books.judging is None or cache.judge is None or cache.judge_key is None:
        return None
    # late, as the semantic cache
    from gateway.judging import Judge
    from gateway.semantic.judgement import MOST_TOKENS

    key = cache.judge_key

    def ask(model: str, messages: Sequence[Mapping[str, str]], cancel: Cancel) -> Mapping[str, Any]:
        body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": MOST_TOKENS}
        told = {"private": True, "tags": ["semantic-judge"]}
        answer = handle(key.reveal(), body | told, timeout_s=cache.judge_timeout_s, cancel=cancel)
        return dict(answer["response"])

    judge = Judge(
        name=cache.judge,
        auditor=cache.judge_auditor or cache.judge,
        least=cache.judge_min_cosine,
        most=cache.judge_max_cosine,
        per_minute=cache.judge_per_minute,
        audit_percent=cache.judge_audit_percent,
        ask=ask,
    )
    return Judged(books.judging, judge, functools.cache(config.uses_judge))


def build_caching(
    config: Config, books: Books, room: Room, on_shadow: ShadowLog, judged: Judged | None = None
) -> Caching:
    """The caches as a configuration has them. The semantic one must have been opened with the books."""
    if not config.cache.exact_ttl_s:
        return Caching(None, room)
    semantic = None
    if books.semantic is not None and config.semantic_anywhere:
        serves = config.cache.semantic_mode == "serve"
        semantic = InOtherWords(books.semantic, config.uses_semantic, serves=serves, on_shadow=on_shadow, judged=judged)
    return Caching(books.cache, room, semantic)


class Janitor:
    """Every SWEEP_EVERY_S, on a thread: looks at the ledger's files, gives up holds that are too old, and applies the
    policy to unresolved money; every now and then gives free memory back.
    """

    def __init__(self, books: Books, config: Config, log: OpLog) -> None:
        self._books = books
        self._config = config
        self._log = log
        self._wal_was_large = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="janitor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for round_ in itertools.count(1):
            if self._stop.wait(SWEEP_EVERY_S):
                return
            if round_ % _TRIM_EVERY == 0:
                heap.trim()
            try:
                self._sweep()
            except StoreUnavailable:
                continue
            except Exception as error:  # noqa: BLE001 - the next round may succeed
                self._log.error(error)

    def _sweep(self) -> None:
        self._look_at_files()
        if not self._books.store.writable:
            drive(self._books.ledger.touch())
        store = self._config.store
        changed = drive(
            self._books.ledger.sweep(
                hold_ttl_s=store.hold_ttl_s,
                unresolved_after_s=store.unresolved_after_s,
                policy=Policy(store.unresolved_policy),
            )
        )
        if changed:
            self._log.event("holds_swept", holds=changed)

    def _look_at_files(self) -> None:
        self._books.store.check_files()
        wal_bytes = self._books.store.wal_bytes
        large = wal_bytes > LARGE_WAL_BYTES
        if large and not self._wal_was_large:
            detail = "a program, or a backup to a slow disk, reads in ledger.db without an end"
            self._log.event("large_wal", bytes=wal_bytes, detail=detail)
        self._wal_was_large = large


def data_dir_path(argument: str | None, env: Mapping[str, str]) -> Path:
    """Where the ledger lives: the flag, else GATEWAY_DATA_DIR, else ./gateway-data."""
    return Path(argument or env.get("GATEWAY_DATA_DIR") or "gateway-data")
