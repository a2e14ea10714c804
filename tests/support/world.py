"""Builds whole gateways for tests: in the simulation, and on real threads over a real file."""

import json
import os
import random
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gateway import audit
from gateway.admission import Admission
from gateway.app import build_fleet, build_gateway
from gateway.attempt import Upstreams
from gateway.books import Books, open_books
from gateway.caching import Caching
from gateway.clock import Clock, FakeClock, RealClock
from gateway.config import load
from gateway.config_schema import Config, Deployment
from gateway.data_dir import DataDir
from gateway.dispatch import Dispatcher
from gateway.engines.sim import Scheduler, SimCaller, SimStore, Task
from gateway.fake_provider import FakeProvider
from gateway.gateway import Gateway
from gateway.holds import OnCrash
from gateway.keys import KeyRing, ShownKey
from gateway.ledger import Ledger
from gateway.levels import LevelState, Scope
from gateway.providers import Provider
from gateway.router import Catalog
from gateway.store import Durability
from gateway.types import Window
from llmkit.room import Room
from tracekit.trace import Tracer

T = TypeVar("T")

CONFIG = """
[retry]
max_retries = 0

[breaker]
threshold = 1000

[[providers]]
name = "up"
dialect = "fake"
script = [{ text = "hello there friend" }]

[[deployments]]
name = "mini"
provider = "up"
model = "gw-mini"
price = { input = 1, cached_input = 0.1, output = 4 }
max_output_tokens = 16384
"""
"""One deployment at 1 and 4 USD per million tokens over a fake upstream; whatever it does is the request's outcome."""

UNPRICED = """
[[deployments]]
name = "later"
provider = "up"
model = "later"
price = [{ from = 9000-01-01T00:00:00Z, input = 1, output = 4 }]
"""
"""A deployment whose price is not in force yet."""

USD = 1_000_000_000


def chat(text: str = "hi", **fields: Any) -> dict[str, Any]:
    """A chat request for the model `mini`."""
    return {"model": "mini", "messages": [{"role": "user", "content": text}], **fields}


def settle_story(story: Coroutine[Any, Any, T]) -> T:
    """Run one story of the simulation to its end with nobody beside it."""
    try:
        while True:
            story.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class SimWorld:
    """One simulated process after another over one ledger file.

    config       TOML, or what was loaded from it
    ledger_type  a Ledger, or a broken twin of it
    on_commit    is called after every commit
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int = 0,
        config: str | Config = CONFIG,
        durability: Durability = Durability.FULL,
        ledger_type: type[Ledger] = Ledger,
        providers: Mapping[str, Provider] | None = None,
        crash_at: int | None = None,
        leave_chance: float = 0.0,
        on_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        self.seed = seed
        self.config = load(config, {}) if isinstance(config, str) else config
        self.durability = durability
        self.ledger_type = ledger_type
        self.clock = FakeClock()
        self.providers: dict[str, Provider] = {
            name: FakeProvider(provider.script, repeat=provider.repeat, name=name)
            for name, provider in self.config.providers.items()
        }
        self.providers |= dict(providers or {})
        self.errors: list[BaseException] = []
        self._on_commit = on_commit
        self._random = random.Random(seed)
        self.boot()
        self.scheduler = Scheduler(
            seed, self.clock, crash_at=crash_at, leave_chance=leave_chance, on_crash=self.store.detach
        )

    @property
    def upstream(self) -> FakeProvider:
        """The fake provider `up`."""
        provider = self.providers["up"]
        assert isinstance(provider, FakeProvider)
        return provider

    def boot(self) -> None:
        """Start a process over the file as it is."""
        self.store = SimStore(self.folder / "ledger.db", on_error=self.errors.append, on_commit=self._on_commit)
        self.ledger = self.ledger_type(self.store, self.clock, durability=self.durability)
        settle_story(self.ledger.open(pid=1, machine_boot="sim", on_crash=OnCrash(self.config.store.on_crash)))
        self.keys = KeyRing(self.store, self.clock, self._random.randbytes)
        settle_story(self.keys.load())
        budget = self.config.budget
        settle_story(self.ledger.set_level(Scope.GLOBAL, "", budget.window, budget.limit_nanousd))
        for tenant in self.config.tenants.values():
            settle_story(self.ledger.set_level(Scope.TENANT, tenant.name, tenant.budget_window, tenant.budget_nanousd))
        self.gateway = self._gateway()

    def _gateway(self) -> Gateway:
        serial = iter(range(1, 1 << 30))
        draw = self._random.random
        fleet = build_fleet(self.config)
        upstreams = Upstreams(self.providers, self.config.providers, self.clock)
        return Gateway(
            admission=Admission(self.keys, self.ledger, Catalog(self.config, draw), self.config.tenants, self.clock),
            caching=Caching(None, Room(0)),
            ledger=self.ledger,
            dispatcher=Dispatcher(upstreams, fleet, self.config.retry, self.clock, draw=draw),
            fleet=fleet,
            tracer=Tracer(random_bytes=self._random.randbytes),
            clock=self.clock,
            engine=_NoEngine(),
            head_hold_s=self.config.server.head_hold_s,
            new_request_id=lambda: f"req_{self.ledger.boot_id:04d}{next(serial):08d}",
            on_error=lambda error, request_id: self.errors.append(error),
        )

    def key(self, limit_nanousd: int | None, *, tenant: str = "acme", window: Window = Window.TOTAL) -> str:
        """Make a key with a budget; returns it whole."""
        settle_story(self.keys.make_tenant(tenant))
        if not self.ledger.has_level(Scope.TENANT, tenant):
            settle_story(self.ledger.set_level(Scope.TENANT, tenant, Window.TOTAL, None))
        key_id = self.keys.new_id()
        settle_story(self.ledger.set_level(Scope.KEY, key_id, window, limit_nanousd))
        return settle_story(self.keys.create(key_id, tenant))

    def request(self, raw_key: str, body: Mapping[str, Any]) -> tuple[Task, SimCaller]:
        """Put one request into the simulation."""
        caller = SimCaller(self.scheduler)
        context = self.gateway.context(
            self.gateway.authenticate(ShownKey.of(raw_key)), json.dumps(body).encode(), caller
        )
        return self.scheduler.spawn(f"request {len(self.scheduler.tasks)}", self.gateway.serve(context)), caller

    def run(self) -> None:
        """Run the simulation; if the process died on the way, start the next one."""
        self.scheduler.run()
        if self.scheduler.crashed:
            self.boot()
        else:
            settle_story(self.store.flush())

    def level(self, scope: Scope, name: str) -> LevelState:
        """A level as it stands."""
        state = settle_story(self.ledger.level(scope, name))
        assert state is not None
        return state

    def key_level(self, raw_key: str) -> LevelState:
        """The level of a key as it stands."""
        return self.level(Scope.KEY, self.keys.authenticate(ShownKey.of(raw_key)).id)

    def verify(self) -> audit.Report:
        """Recompute the books."""
        return settle_story(audit.verify(self.store))

    def rows(self) -> list[dict[str, Any]]:
        """Every row, oldest first."""
        return settle_story(audit.list_rows(self.store))

    def metered_nanousd(self) -> int:
        """What the upstream's own meter says, at the price of `mini`."""
        return metered_nanousd(self.config, self.upstream)

    def close(self) -> None:
        self.store.detach()


class _NoEngine:
    """The simulation runs stories itself."""

    def run(self, story: Any, cancel: Any = None) -> Any:
        raise NotImplementedError

    def iterate(self, story: Any) -> Any:
        raise NotImplementedError


def metered_nanousd(config: Config, upstream: FakeProvider) -> int:
    """The cost of everything a fake upstream bills, at the price of the first deployment."""
    return metered_nanousd_at(next(iter(config.deployments.values())), upstream)


def metered_nanousd_at(deployment: Deployment, upstream: FakeProvider) -> int:
    """The cost of everything a fake upstream bills, at the price of `deployment`."""
    price = deployment.prices.at(1 << 50)
    assert price is not None
    return sum(price.price.cost_nanousd(call.billed) for call in upstream.calls if call.billed is not None)


class RealWorld:
    """A gateway on real threads over a ledger file of its own. Use as a context manager.

    folder  its data directory, which outlives it; a temporary one if it is None
    lost    why the ledger was lost; a process would have ended
    """

    def __init__(
        self,
        *,
        config: str = CONFIG,
        providers: Mapping[str, Provider] | None = None,
        clock: Clock | None = None,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory() if folder is None else None
        self.path = Path(self._folder.name) if self._folder else folder or Path()
        self.config = load(config, env or {})
        self.errors: list[BaseException] = []
        self.lost: list[str] = []
        self.clock = clock or RealClock()
        self._data_dir = DataDir.own(self.path)
        self.books: Books = open_books(
            self._data_dir,
            self.config,
            clock=self.clock,
            on_error=self.errors.append,
            on_failed=lambda doing, error: self.errors.append(error),
            on_lost=self.lost.append,
        )
        self.gateway = build_gateway(
            self.config,
            self.books,
            clock=self.clock,
            providers=providers,
            on_error=lambda error, request_id: self.errors.append(error),
        )

    def key(self, budget_usd: str | None = None, *, tenant: str = "acme") -> str:
        """Make a key; returns it whole."""
        made = self.books.commands.run("keys.create", {"tenant": tenant, "budget_usd": budget_usd})
        return str(made["key"])

    def run(self, command: str, **arguments: Any) -> Any:
        """Run an operator's command."""
        return self.books.commands.run(command, arguments)

    def shown(self, raw_key: str) -> dict[str, Any]:
        """`keys show` of a key."""
        return dict(self.run("keys.show", id=self.books.keys.authenticate(ShownKey.of(raw_key)).id))

    def rows(self) -> list[dict[str, Any]]:
        """Every row, oldest first."""
        return list(self.run("ledger.rows"))

    def __enter__(self) -> "RealWorld":
        return self

    def __exit__(self, *_: object) -> None:
        self.books.close()
        self.books.store._writer.close()  # of a lost ledger it is left to the end of the process
        self._data_dir.close()
        if self._folder:
            self._folder.cleanup()


def scripted(*entries: Mapping[str, Any], repeat: bool = False) -> dict[str, Provider]:
    """The provider `up` with a script of its own."""
    return {"up": FakeProvider(list(entries), repeat=repeat, name="up")}


def random_bytes(count: int) -> bytes:
    """Real randomness, for tests that only need ids to differ."""
    return os.urandom(count)


Check = Callable[[Sequence[Any]], None]
