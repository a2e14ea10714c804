"""A gateway as the process builds it, over a ledger of its own, with upstreams that are handed in.

World serves on real threads. VirtualWorld runs requests in virtual time, on one thread: whoever waits lets the clock
run on, so an outage of a minute takes as long as its requests take to compute.
"""

import json
import random
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from evals.silent import SilentUpstream
from gateway.app import build_gateway
from gateway.books import open_books
from gateway.clock import Clock, FakeClock, RealClock
from gateway.config import load
from gateway.context import Answer, Facts
from gateway.data_dir import DataDir
from gateway.drive import drive
from gateway.engines.sim import Scheduler, SimCaller
from gateway.errors import GatewayError
from gateway.fake_provider import FakeProvider
from gateway.keys import ShownKey
from gateway.levels import LevelState, Scope
from gateway.providers import Provider
from llmkit.money import format_usd


class BooksDiffer(Exception):
    """The ledger contradicts itself, so that nothing that follows from it is a result."""


class World:
    """Use as a context manager.

    providers  by name; they replace those of the configuration
    clock      the machine's unless one is given
    errors     whatever was raised and was no outcome of a request
    """

    def __init__(
        self, config: str, *, providers: Mapping[str, Provider], clock: Clock | None = None, seed: int = 0
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.config = load(config, {})
        self.providers = dict(providers)
        self.clock = clock or RealClock()
        self.errors: list[BaseException] = []
        self._data_dir = DataDir.own(Path(self._folder.name))
        self.books = open_books(self._data_dir, self.config, clock=self.clock, on_error=self.errors.append)
        self.gateway = build_gateway(
            self.config,
            self.books,
            clock=self.clock,
            providers=self.providers,
            draw=random.Random(seed).random,
            on_error=lambda error, request_id: self.errors.append(error),
        )

    def key(self, budget_nanousd: int | None = None, *, tenant: str = "acme") -> str:
        """Make a key; returns it whole."""
        usd = None if budget_nanousd is None else format_usd(budget_nanousd)
        return str(self.books.commands.run("keys.create", {"tenant": tenant, "budget_usd": usd})["key"])

    def shown(self, raw_key: str) -> dict[str, Any]:
        """`keys show` of a key."""
        return dict(self.books.commands.run("keys.show", {"id": self.books.keys.authenticate(ShownKey.of(raw_key)).id}))

    def rows(self) -> list[dict[str, Any]]:
        """Every row, oldest first."""
        return list(self.books.commands.run("ledger.rows", {}))

    def level(self, scope: Scope = Scope.GLOBAL, name: str = "") -> LevelState:
        """A level with all that is queued; the whole gateway's unless another is named."""
        self.books.store.flush()
        state = drive(self.books.ledger.level(scope, name))
        if state is None:
            raise LookupError(f"there is no level {scope} {name!r}")
        return state

    def audit(self) -> dict[str, Any]:
        """`ledger verify`."""
        return dict(self.books.commands.run("ledger.verify", {}))

    def spent_nanousd(self) -> int:
        """What the whole gateway has spent, by books that balance. Raises BooksDiffer."""
        report = self.audit()
        if report["differences"] or report["open_holds"]:
            raise BooksDiffer(f"{report['differences']}, {report['open_holds']} open holds")
        return self.level().spent_nanousd

    def metered_nanousd(self) -> int:
        """What the upstreams' own meters say, each at the price of the deployment that it serves."""
        total = 0
        for deployment in self.config.deployments.values():
            price, provider = deployment.prices.at(self.clock.wall_ms()), self.providers[deployment.provider]
            if price is not None and isinstance(provider, FakeProvider | SilentUpstream):
                total += sum(price.price.cost_nanousd(call.billed) for call in provider.calls if call.billed)
        return total

    def unmetered_nanousd(self) -> int:
        """What the upstreams' meters say beyond what is spent or unresolved: what nobody would pay."""
        state = self.level()
        return max(self.metered_nanousd() - state.spent_nanousd - state.unresolved_nanousd, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.books.close()
        self._data_dir.close()
        self._folder.cleanup()


@dataclass(slots=True)
class Asked:
    """One request in virtual time: what became of it, and when."""

    facts: Facts
    caller: SimCaller
    answer: Answer | None = None
    error: GatewayError | None = None
    began_s: float = 0.0
    ended_s: float = 0.0

    @property
    def succeeded(self) -> bool:
        """Whether a whole answer came."""
        return self.answer is not None and not self.answer.cut

    @property
    def took_s(self) -> float:
        return self.ended_s - self.began_s


class VirtualWorld(World):
    """A World on a fake clock. Which of the requests that are due goes on first is drawn from the seed."""

    def __init__(self, config: str, *, providers: Mapping[str, Provider], seed: int = 0) -> None:
        self.fake_clock = FakeClock()
        super().__init__(config, providers=providers, clock=self.fake_clock, seed=seed)
        self._scheduler = Scheduler(seed, self.fake_clock)

    def ask(self, raw_key: str, body: Mapping[str, Any], *, at_s: float) -> Asked:
        """Put a request into the timetable, `at_s` virtual seconds from the start."""
        asked = Asked(self.gateway.new_facts(), SimCaller(self._scheduler))
        self._scheduler.spawn(f"request at {at_s}", self._serve(asked, raw_key, json.dumps(body).encode(), at_s))
        return asked

    def run(self) -> None:
        """Run the timetable to its end. Raises what was raised and is no outcome of a request."""
        self._scheduler.run()
        for error in [*self.errors, *(task.error for task in self._scheduler.tasks if task.error)]:
            raise error

    async def _serve(self, asked: Asked, raw_key: str, raw: bytes, at_s: float) -> None:
        await self._scheduler.sleep(at_s - self.clock.now_s())
        asked.began_s = self.clock.now_s()
        principal = self.gateway.authenticate(ShownKey.of(raw_key))
        try:
            asked.answer = await self.gateway.serve(
                self.gateway.context(principal, raw, asked.caller, facts=asked.facts)
            )
        except GatewayError as error:
            asked.error = error
        finally:
            asked.ended_s = self.clock.now_s()
