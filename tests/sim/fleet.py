"""Several deployments in the simulation, each over an upstream of its own that keeps when it was called."""

import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from gateway.clock import Clock
from gateway.context import Caller, Options
from gateway.engines.sim import SimCaller
from gateway.fake_provider import FakeProvider
from gateway.levels import LevelState
from gateway.providers import Provider, ProviderAnswer, UpstreamCall
from gateway.rows import MoneyState
from llmkit.errors import ProviderError, ProviderErrorKind
from llmkit.tokens import messages_tokens
from llmkit.types import Usage
from tests.sim.test_stories import IN_MEMORY, Outcome, Stories, WireProvider, usage
from tests.support.world import USD, SimWorld, chat, metered_nanousd_at, settle_story

GOOD: dict[str, Any] = {"text": "noon", "usage": usage(12, 34)}
COST = 148_000
"""Nano-dollars of a GOOD answer at 1 and 4 USD per million tokens."""


def provider_error(kind: str, *, status: int | None = None, **facts: Any) -> ProviderError:
    """What a provider raises; the request was sent and an answer had begun unless `facts` say otherwise."""
    return ProviderError(
        ProviderErrorKind(kind),
        "the words of the upstream",
        **{"sent": True, "first_byte_seen": True} | facts,
        status=status,
    )


class Fails:
    """An outcome: the call raises this error, made anew for each call, after so long, whatever the deadline was."""

    def __init__(self, kind: str, *, latency_s: float = 0, **facts: Any) -> None:
        self.latency_s = latency_s
        self._kind = kind
        self._facts = facts

    def error(self) -> ProviderError:
        return provider_error(self._kind, **self._facts)


class Sends:
    """An outcome: an answer of exactly these bytes, events or failures."""

    def __init__(self, *steps: bytes | BaseException | None) -> None:
        self.steps = steps


AnOutcome = Mapping[str, Any] | Fails | Sends
REFUSED = Fails("server", sent=False, first_byte_seen=False)
SILENT = {"timeout": True}


class TimedProvider:
    """An upstream: its n-th call ends as the n-th of `outcomes`, later ones as the last.

    times  when it was called
    meter  a fake that bills what its calls cost, also those that it never answers
    """

    def __init__(self, name: str, clock: Clock, order: list[str], *outcomes: AnOutcome) -> None:
        self.name = name
        self.times: list[float] = []
        self.meter = FakeProvider([GOOD], name=name)
        self._clock = clock
        self._order = order
        self._outcomes = outcomes

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        outcome = self._outcomes[min(len(self.times), len(self._outcomes) - 1)]
        self.times.append(self._clock.now_s())
        self._order.append(self.name)
        if isinstance(outcome, Fails):
            await caller.pause(outcome.latency_s)
            raise outcome.error()
        if isinstance(outcome, Sends):
            return await WireProvider(*outcome.steps).open(call, caller)
        fake = FakeProvider([outcome], name=self.name)
        try:
            return await fake.open(call, caller)
        finally:
            self.meter.calls += fake.calls
            if outcome.get("timeout"):
                body = json.loads(call.body)
                self.meter.calls[-1].billed = Usage(messages_tokens(body["messages"]), 6)


class FleetStories(Stories):
    """A simulated gateway over the upstreams `one`, `two` and `three`, as far as a test wants them, behind `all`."""

    RETRY = ""
    BREAKER = ""
    TIERS: ClassVar[Mapping[str, tuple[str, int]]] = {"one": ("cheap", 1), "two": ("cheap", 1), "three": ("cheap", 1)}
    """Tier and price of input, in USD per million tokens; output is four times as dear."""
    ALIAS = ""

    def setUp(self) -> None:
        self.lenient = False

    def fleet(
        self,
        *,
        limit_nanousd: int | None = USD,
        tiers: Mapping[str, tuple[str, int]] | None = None,
        more: str = "",
        **outcomes: AnOutcome | list[AnOutcome],
    ) -> None:
        """Begin anew with one deployment per name in `outcomes`, over an empty ledger."""
        config = more + f"\n[retry]\n{self.RETRY}\n[breaker]\n{self.BREAKER}\n"
        for name in outcomes:
            tier, price = (tiers or self.TIERS)[name]
            config += f"""
[[providers]]
name = "{name}"
dialect = "fake"
script = [{{ text = "unused" }}]

[[deployments]]
name = "{name}"
provider = "{name}"
model = "gw-{name}"
tier = "{tier}"
price = {{ input = {price}, output = {4 * price} }}
"""
        config += f'[[aliases]]\nname = "all"\ndeployments = {json.dumps(list(outcomes))}\n{self.ALIAS}\n'
        folder = self.enterContext(tempfile.TemporaryDirectory(dir=IN_MEMORY))
        self.world = self.enterContext(closing(SimWorld(Path(folder), config=config)))
        self.order: list[str] = []
        self.upstreams: dict[str, TimedProvider] = {}
        for name, scripted in outcomes.items():
            several = scripted if isinstance(scripted, list) else [scripted]
            self.upstreams[name] = TimedProvider(name, self.world.clock, self.order, *several)
        providers: dict[str, Provider] = dict(self.upstreams)
        self.world.providers.update(providers)
        self.raw_key = self.world.key(limit_nanousd)
        self.requests = 0

    def ask(self, *, timeout_s: float | None = None, **fields: Any) -> Outcome:
        """One request for `all`, from its start to its end, of at most 50 tokens."""
        options = None if timeout_s is None else Options(timeout_s=timeout_s)
        return self.play(chat() | {"model": "all", "max_tokens": 50} | fields, options=options)

    def at_once(self, count: int, **fields: Any) -> list[SimCaller]:
        """So many requests for `all` at the same moment; all must be served."""
        asked = [
            self.world.request(self.raw_key, chat() | {"model": "all", "max_tokens": 50} | fields) for _ in range(count)
        ]
        self.world.run()
        self.assertEqual([task.error for task, _ in asked if task.error is not None], [])
        self.requests += count
        self.check_books()
        return [caller for _, caller in asked]

    def many(self, count: int, each: Callable[[], object]) -> None:
        """Do something often, and look at the books once."""
        self.lenient = True
        for _ in range(count):
            each()
        self.lenient = False
        self.check_books()

    def check_books(self) -> None:
        if self.lenient:
            return
        super().check_books()
        level = self.level()
        self.assertLessEqual(self.metered(), level.spent_nanousd + level.unresolved_nanousd)

    def level(self) -> LevelState:
        """The key's, as it stands."""
        return self.world.key_level(self.raw_key)

    def metered(self) -> int:
        """What the upstreams bill together, at their own prices."""
        deployments = self.world.config.deployments
        return sum(metered_nanousd_at(deployments[name], each.meter) for name, each in self.upstreams.items())

    def hold_states(self) -> list[str]:
        """The state of every hold that was ever taken, oldest first."""
        return [state for (state,) in settle_story(self.world.store.read("SELECT state FROM holds ORDER BY id"))]

    def state(self, name: str) -> str:
        """How a deployment stands."""
        return self.world.gateway.deployment_states()[name]

    def bound(self) -> int:
        """What a request of ask() holds, read from a hold that was left unresolved."""
        self.fleet(one=SILENT)
        self.ask()
        self.assertEqual(self.hold_states(), [MoneyState.UNRESOLVED])
        return self.level().unresolved_nanousd
