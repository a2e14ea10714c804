"""One serving process, from its configuration to its exit: start, signals, reload, drain.

SIGTERM, SIGINT   drain and exit 0, also while a reload hangs; a second one exits at once,
                  a third does not even wait for the disk: the status is a shell's for that signal
SIGHUP            reload the configuration, all or nothing

A ledger that is lost (a failed sync, a broken device, damage, a file that was taken away) ends the process at once with
STORE_LOST, from the thread that found it: nobody is answered any more, and nothing is closed, because that would sync
again. The next start reads what is there.
"""

import os
import queue
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NoReturn

from msgspec.structs import replace

from gateway import descriptors, heap, one_cpu
from gateway.api import EXEMPT_PATHS, Api
from gateway.app import answer_room, build_gateway
from gateway.books import Books, apply_budgets, open_books
from gateway.clock import Clock, RealClock
from gateway.config import ConfigError, load, load_file
from gateway.config_schema import CacheConfig, Config
from gateway.data_dir import Control, DataDir
from gateway.demo import DEMO_BUDGET_USD, DEMO_KEY_NAME, DEMO_TENANT, OPENAI_URL, demo_config, demo_lines
from gateway.drive import drive
from gateway.engines.threads import BlockingEffects
from gateway.errors import ClientGone, Draining, GatewayError, ShuttingDown, StoreUnavailable
from gateway.gateway import Gateway
from gateway.janitor import Janitor
from gateway.keys import unlisted
from gateway.metrics import Metrics
from gateway.oplog import OpLog
from gateway.ops import metrics_page
from gateway.places import PlaceLimits
from gateway.random_pool import RandomPool
from gateway.readiness import readiness
from gateway.reloads import Reloads
from gateway.server import FrontLimits, FrontServer
from gateway.sqlite_file import has_wal_reset_bug
from gateway.store_log import StoreLog
from gateway.verdict import Verdict
from llmkit.client import OpenAICompatClient
from llmkit.errors import ProviderError
from llmkit.transport import Timeouts
from tracekit.sinks import JsonlSink, MemorySink
from tracekit.trace import Tracer

DEFAULT_CONFIG = "gateway.toml"
_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})

STORE_LOST = 74
"""The exit status of a process that lost its ledger; EX_IOERR of sysexits.h."""

_LOOK = Timeouts(connect_s=2, ttft_s=5, idle_s=5, total_s=10)
"""For asking a demo's upstream what it serves: nobody waits longer for a start."""

_RELOADED = (
    "semantic",
    "semantic_mode",
    "judge",
    "judge_key",
    "judge_auditor",
    "judge_min_cosine",
    "judge_max_cosine",
    "judge_per_minute",
    "judge_timeout_s",
    "judge_audit_percent",
)
"""Keys of [cache] that a reload brings into force; the bounds of files and memory are those of the start."""


def find_config(argument: str | None, env: Mapping[str, str]) -> Path | None:
    """The configuration file: the flag, else GATEWAY_CONFIG, else gateway.toml if it is there; None for the demo."""
    named = argument or env.get("GATEWAY_CONFIG")
    if named:
        return Path(named)
    return Path(DEFAULT_CONFIG) if Path(DEFAULT_CONFIG).exists() else None


def load_config(path: Path | None, env: Mapping[str, str]) -> Config:
    """The configuration at `path`, or the demo's. Raises ConfigError."""
    if path is not None:
        return load_file(path, env)
    return load(demo_config(env, _served_models(env)), env)


def _served_models(env: Mapping[str, str]) -> tuple[str, ...]:
    """What a compatible upstream named by the environment serves; empty if it does not say."""
    base_url, key = env.get("OPENAI_BASE_URL"), env.get("OPENAI_API_KEY")
    if not key or not base_url or base_url.rstrip("/") == OPENAI_URL:
        return ()
    try:
        with closing(OpenAICompatClient(base_url, key, timeouts=_LOOK)) as client:
            return client.models()
    except (ProviderError, ValueError) as error:
        print(f"{base_url} does not say which models it serves: {error}", file=sys.stderr)
        return ()


class Process:
    """A serving gateway. run() returns its exit status.

    announce  is given the lines for people: where it listens, and the demo's key and curl line
    """

    def __init__(
        self,
        config: Config,
        data_dir: DataDir,
        *,
        host: str,
        port: int,
        reload: Callable[[], Config],
        demo: bool = False,
        trace_file: Path | None = None,
        announce: Callable[[str], None] = print,
        clock: Clock | None = None,
    ) -> None:
        self._config = self._started_with = config
        self._data_dir = data_dir
        self._address = (host, port)
        self._reload = reload
        self._demo = demo
        self._trace_file = trace_file
        self._announce = announce
        self._clock = clock or RealClock()
        self._started_ms = self._clock.wall_ms()
        self._log = OpLog(self._clock)
        self._metrics = Metrics()
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._answer_room = answer_room(config)

    def run(self) -> int:
        """Serve until a signal ends it. Raises sqlite_store.StoreRefused, StoreUnavailable, OSError at the start."""
        with ExitStack() as stack:
            stack.enter_context(held_back(_SIGNALS))
            self._choose_cpu()
            store_log = StoreLog(self._log, self._clock)
            books = open_books(
                self._data_dir,
                self._config,
                clock=self._clock,
                on_error=self._log.error,
                on_failed=store_log.failed,
                on_works=store_log.works,
                on_lost=self._lose_store,
            )
            stack.callback(books.close)
            self._tell_of_store(books)
            self._warn(self._config)
            spans = self._span_file(stack)
            tracer = Tracer(MemorySink() if spans is None else spans, random_bytes=RandomPool(os.urandom))
            gateway = self._build(self._config, books, tracer)
            janitor = Janitor(books, self._config, self._log)
            stack.callback(janitor.close)
            secret = os.urandom(32).hex()
            api = Api(
                gateway,
                commands=books.commands,
                control_secret=secret,
                effects=BlockingEffects(),
                readiness=lambda: readiness(
                    books, api.gateway, draining=bool(server.phase), in_flight=server.in_flight
                ),
                metrics=metrics_page(
                    self._metrics,
                    books,
                    self._log,
                    front=lambda: server,
                    gateway=lambda: api.gateway,
                    started_ms=self._started_ms,
                    on_error=self._log.error,
                    spans=spans,
                ),
                clock=self._clock,
                on_refused=self._metrics.note_refusal,
            )
            server = self._listen(api)
            stack.callback(server.close)
            threading.Thread(target=self._hear_signals, name="signals", daemon=True).start()
            delete_demo_keys(books)
            self._warn_of_tenants(self._config, books)
            heap.freeze()
            server.start()
            host, port = server.server_address[:2]
            self._data_dir.publish(Control(str(host), int(port), os.getpid(), secret))
            self._greet(books, str(host), int(port))
            return self._serve(server, api, books, tracer)

    def _choose_cpu(self) -> None:
        if self._config.server.cpu == "one" and one_cpu.pin() is None:
            self._log.event("config_warning", detail="server.cpu: this system does not keep a process on one CPU")

    def _listen(self, api: Api) -> FrontServer:
        host, port = self._address
        try:
            return FrontServer(
                self._address,
                api,
                self._limits(),
                self._clock,
                exempt=EXEMPT_PATHS.__contains__,
                on_error=self._report,
                stamp=api.stamp,
            )
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error} (--host, --port)") from error

    def _serve(self, server: FrontServer, api: Api, books: Books, tracer: Tracer) -> int:
        with closing(Reloads(lambda: self._reload_into(api, books, tracer))) as reloads:
            while (number := self._signals.get()) == signal.SIGHUP:
                reloads.ask()
            server.begin_drain()
            announce_s = self._config.server.announce_s
            how_to_hurry = "a second signal ends it at once"
            self._log.event("draining", signal=number, serving_for_s=announce_s, detail=how_to_hurry)
            stop_now = threading.Event()
            watcher = threading.Thread(target=self._hurry, args=(stop_now,), name="next-signals", daemon=True)
            watcher.start()
            left = server.drain(stop_now)
            self._log.event("drained", left_behind=left)
            return 0

    def _tell_of_store(self, books: Books) -> None:
        store = self._config.store
        facts = {"sqlite": sqlite3.sqlite_version, "durability": store.durability}
        if has_wal_reset_bug():
            facts["warning"] = (
                "SQLite below 3.51.3, but for 3.44.6 and 3.50.7, can damage a file that two programs write: "
                "let no other program write to ledger.db; the gateway and its own commands are safe"
            )
        self._log.event("store_opened", **facts)
        if self._data_dir.exposed:
            self._log.event("files_open_to_others", directory=str(self._data_dir.path), files=self._data_dir.exposed)
        if books.orphans:
            self._log.event("holds_of_a_dead_process", holds=books.orphans, on_crash=store.on_crash)
        if (epoch := books.ledger.unconfirmed_epoch) is not None:
            self._log.event("ledger_unconfirmed", epoch=epoch, detail="nothing is sent until gateway ledger confirm")
        if books.ledger.machine_restarted and store.durability == "normal":
            self._log.event(
                "machine_restarted",
                detail="without a clean stop: the last settlements may be missing; compare with the provider's usage",
            )

    def _lose_store(self, reason: str) -> NoReturn:
        self._log.last_words("store_lost", reason=reason, exit_status=STORE_LOST)
        os._exit(STORE_LOST)

    def _report(self, error: BaseException, request_id: str | None) -> None:
        """Count what ended an exchange, and log it unless it is an outcome."""
        if isinstance(error, GatewayError):
            self._metrics.note_refusal(error.code)
        elif isinstance(error, Draining):
            self._metrics.note_refusal(ShuttingDown.code)
        elif not isinstance(error, ClientGone):
            self._log.error(error, request_id)

    def _hurry(self, stop_now: threading.Event) -> NoReturn:
        """Cut the drain short at the next signal, and at the one after it whatever holds up the end, as a disk can."""
        self._next_to_end()
        stop_now.set()
        os._exit(128 + self._next_to_end())

    def _next_to_end(self) -> int:
        while (number := self._signals.get()) == signal.SIGHUP:
            continue
        return number

    def _reload_into(self, api: Api, books: Books, tracer: Tracer) -> None:
        """Bring a changed configuration into force: the last step is the only one that shows, and cannot fail."""
        try:
            config = self._reload()
            started = self._started_with
            fresh = replace(config, server=started.server, store=started.store, cache=self._cache_of(config))
            gateway = self._build(fresh, books, tracer)
            apply_budgets(fresh, books)
        except ConfigError as error:
            self._log.event("reload_refused", faults=error.faults)
        except StoreUnavailable:
            self._log.event("reload_refused", faults=["the ledger cannot be read or written"])
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a new file, the old one is in force
            self._log.error(error)
            self._log.event("reload_refused", faults=[type(error).__name__])
        else:
            self._warn(config)
            self._warn_of_tenants(config, books)
            for name in ("server", "store", "cache"):
                if getattr(config, name) != getattr(fresh, name):
                    self._log.event("config_warning", detail=f"[{name}] changed: it is only read at the start")
            if fresh.semantic_anywhere and books.semantic is None:
                self._log.event(
                    "config_warning", detail="the semantic cache is turned on: it is only opened at the start"
                )
            if fresh.judge_anywhere and books.judging is None:
                self._log.event("config_warning", detail="a judge is named: judging is only opened at the start")
            gateway.succeed(api.gateway)
            api.gateway, self._config = gateway, fresh
            self._log.event("reloaded")

    def _cache_of(self, config: Config) -> CacheConfig:
        """[cache] after a reload: caches can be turned off and on, but keep the bounds that they were opened with."""
        fresh = config.cache
        if not fresh.exact_ttl_s:
            return fresh
        changed = {name: getattr(fresh, name) for name in _RELOADED}
        return replace(self._started_with.cache, **changed)

    def _warn(self, config: Config) -> None:
        for warning in config.warnings_at(self._clock.wall_ms()):
            self._log.event("config_warning", detail=warning)

    def _warn_of_tenants(self, config: Config, books: Books) -> None:
        if warning := unlisted(books.keys.holders(), config.tenants):
            self._log.event("config_warning", detail=warning)

    def _build(self, config: Config, books: Books, tracer: Tracer) -> Gateway:
        return build_gateway(
            config,
            books,
            clock=self._clock,
            tracer=tracer,
            room=self._answer_room,
            on_error=self._log.error,
            metrics=self._metrics,
            on_call_failed=self._tell_failure,
            on_state=lambda deployment, state: self._log.event("deployment_state", deployment=deployment, state=state),
            on_shadow=lambda request_id, entry, question, judged: self._log.routine(
                "semantic_shadow", request=request_id, entry=entry, question=question, judged=judged
            ),
            on_overbilled=self._tell_overage,
        )

    def _tell_failure(self, deployment: str, verdict: Verdict) -> None:
        if verdict.alarm:
            self._log.seldom("deployment_alarm", deployment=deployment, why=verdict.absence, status=verdict.status)
        else:
            self._log.seldom(
                "call_failed",
                deployment=deployment,
                outcome=verdict.outcome,
                status=verdict.status,
                failure=verdict.failure,
            )

    def _tell_overage(self, deployment: str, held_nanousd: int, cost_nanousd: int) -> None:
        amounts = {"held_nanousd": held_nanousd, "cost_nanousd": cost_nanousd}
        self._log.seldom("deployment_alarm", beside=amounts, deployment=deployment, why="overage")

    def _span_file(self, stack: ExitStack) -> JsonlSink | None:
        """Where spans go, if anywhere; a file that cannot be written is refused now, for later that is only counted."""
        path = self._trace_file
        if path is None:
            return None
        try:
            os.close(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600))
        except OSError as error:
            raise OSError(f"cannot write {path}: {error.strerror or error} (--trace-file)") from error
        file = JsonlSink(path)
        stack.callback(file.close)
        return file

    def _limits(self) -> FrontLimits:
        server = self._config.server
        connections = descriptors.afford(server.max_connections)
        if connections < server.max_connections:
            detail = f"max_connections lowered to {connections}: too few file descriptors"
            self._log.event("config_warning", detail=detail)
        return FrontLimits(
            max_body_bytes=server.max_body_bytes,
            max_connections=connections,
            request_memory_bytes=server.request_memory_bytes,
            places=PlaceLimits(
                places=server.max_in_flight,
                per_party=server.max_per_tenant,
                queue=server.queue,
                queue_wait_s=server.queue_wait_s,
            ),
            header_timeout_s=server.header_timeout_s,
            body_timeout_s=server.body_timeout_s,
            write_timeout_s=server.write_timeout_s,
            idle_timeout_s=server.idle_timeout_s,
            announce_s=server.announce_s,
            drain_s=server.drain_s,
        )

    def _hear_signals(self) -> None:
        while True:
            self._signals.put(signal.sigwait(_SIGNALS))

    def _greet(self, books: Books, host: str, port: int) -> None:
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        lines = [f"listening on {url}"]
        if self._demo:
            upstream = next(iter(self._config.providers.values())).base_url
            lines += demo_lines(url, mint_demo_key(books), upstream)
        for line in lines:
            self._announce(line)
        sys.stdout.flush()


@contextmanager
def held_back(signals: Iterable[signal.Signals]) -> Iterator[None]:
    """Keep signals pending, for this thread and those that it starts from now on, until somebody asks for them.

    A handler in Python runs when the main thread comes back to the interpreter; a signal that arrives just before that
    thread goes to sleep on a lock would be heard only with the next one.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def delete_demo_keys(books: Books) -> None:
    """Take away the demo key of a former start: it must not outlive the demo."""
    for key in books.keys.all():
        if key.tenant == DEMO_TENANT and key.name == DEMO_KEY_NAME:
            drive(books.keys.delete(key.id))


def mint_demo_key(books: Books) -> str:
    """A fresh demo key."""
    made = books.commands.run(
        "keys.create", {"tenant": DEMO_TENANT, "name": DEMO_KEY_NAME, "budget_usd": DEMO_BUDGET_USD}
    )
    return str(made["key"])
