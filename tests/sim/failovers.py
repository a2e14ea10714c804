"""Requests that fail over from a seed, under a tight budget, while clients leave and the process dies.

Like tests.sim.schedules, with three deployments, retries and a breaker in play: a request has several calls, of which
any may be billed without anybody knowing. Raises AssertionError if money is wrong; takes the ledger's type for twins.
"""

import contextlib
import json
import random
from pathlib import Path
from typing import Any

from gateway.attempt import Upstreams
from gateway.chat import parse_chat
from gateway.clock import FakeClock
from gateway.config import load
from gateway.context import Options
from gateway.engines.sim import SimulatedCrash
from gateway.errors import ClientGone, GatewayError
from gateway.ledger import Ledger
from gateway.levels import Scope
from gateway.store import Durability
from gateway.types import Window
from tests.sim.fleet import REFUSED, AnOutcome, Fails, TimedProvider
from tests.sim.schedules import Watch, expect, run
from tests.support.books import ledger_folder
from tests.support.world import SimWorld, chat, metered_nanousd_at, settle_story

NAMES = ("one", "two", "three")
CONFIG = load(
    """
[retry]
max_retries = 1
budget_floor = 100

[breaker]
threshold = 2
cooldown_s = 1

[server]
head_hold_s = 1
"""
    + "".join(
        f"""
[[providers]]
name = "{name}"
dialect = "fake"
script = [{{ text = "unused" }}]

[[deployments]]
name = "{name}"
provider = "{name}"
model = "gw-{name}"
tier = "{tier}"
price = {{ input = 0.06, output = {output} }}
"""
        for name, tier, output in zip(NAMES, ("cheap", "cheap", "standard"), (4, 5, 8), strict=True)
    )
    + '[[aliases]]\nname = "both"\ndeployments = ["one", "two"]\n',
    {},
)
CLOSED = Fails("server", first_byte_seen=False)
OUTCOMES: tuple[AnOutcome, ...] = (
    {"text": "a b c d e f"},
    {"text": "a b c d e f", "latency_s": 0.2},
    {"text": "a b c", "usage": "missing"},
    {"text": ""},
    {"text": "a b c d e f", "cut_after": 4},
    {"text": "a b c d e f", "malformed": True},
    {"status": 500},
    {"status": 400},
    {"status": 401},
    {"status": 429, "retry_after": 1},
    {"timeout": True, "latency_s": 2},
    {"timeout": True},
    REFUSED,
    CLOSED,
)
"""What an upstream may do; half of it needs another call. A timeout is billed for six words that nobody saw."""

_ORPHANS = """SELECT id, request_id FROM holds WHERE request_id NOT IN (SELECT request_id FROM requests)
    AND coalesce(resolved_by, '') NOT IN ('admin', 'policy')"""


def body(model: str, *, stream: bool) -> dict[str, Any]:
    """The request that all of them make."""
    usage = {"stream_options": {"include_usage": True}} if stream else {}
    return chat("hi", max_tokens=8, stream=stream) | usage | {"model": model}


def hold_nanousd() -> int:
    """What the dearest of the cheap deployments holds for a streamed request."""
    request = parse_chat(json.dumps(body("both", stream=True)).encode(), Options())
    deployments = [CONFIG.deployments[name] for name in NAMES[:2]]
    return max(
        each.bound_nanousd for each in Upstreams({}, CONFIG.providers, FakeClock()).prepare(request, deployments, 0)
    )


class FailoverWorld:
    """A simulated gateway over three upstreams that do what was drawn for each of their calls."""

    def __init__(self, folder: Path, watch: Watch, outcomes: dict[str, list[AnOutcome]], **options: Any) -> None:
        self.world = SimWorld(folder, config=CONFIG, on_commit=watch.look, **options)
        self.watch = watch
        self.upstreams = {
            name: TimedProvider(name, self.world.clock, [], *several) for name, several in outcomes.items()
        }
        self.world.providers.update(self.upstreams)

    def metered(self) -> int:
        """What the upstreams bill together."""
        return sum(metered_nanousd_at(CONFIG.deployments[name], each.meter) for name, each in self.upstreams.items())

    def check_money(self) -> set[str]:
        """What must be true once everything has ended, the process died or not; returns words for what happened."""
        world, rows, report = self.world, self.world.rows(), self.world.verify()
        unexpected = [error for error in world.errors if not isinstance(error, SimulatedCrash)]
        expect(not unexpected, "unexpected", unexpected)
        expect(not self.watch.overdrawn, "above a limit", self.watch.overdrawn)
        expect(report.ok, report.differences)
        expect(report.open_holds == 0, "still held", report)
        orphans = settle_story(world.store.read(_ORPHANS))
        expect(not orphans, "admitted without a row", orphans)
        expect(len({line["request_id"] for line in rows}) == len(rows), "more than one row", rows)
        level, metered = world.level(Scope.GLOBAL, ""), self.metered()
        booked = level.spent_nanousd + level.unresolved_nanousd
        expect(metered <= booked, f"the upstreams bill {metered}, booked are {booked}", rows)
        expect(sum(line["cost_nanousd"] for line in rows) == level.spent_nanousd, "rows and spending differ", rows)
        happened = {line["exit"] for line in rows} | {line["state"] for line in rows}
        happened |= {"crashed"} if world.scheduler.crashed else set()
        happened |= {"several calls"} if any(line["attempts"] > 1 for line in rows) else set()
        happened |= {"several holds"} if report.holds > len({line["request_id"] for line in rows}) else set()
        if not happened & {"unresolved", "crashed"} and not any(line["estimated"] for line in rows):
            expect(metered == level.spent_nanousd, f"the upstreams bill {metered}, not {level.spent_nanousd}", rows)
            happened |= {"exact"} if metered else set()
        return happened


def check_schedule(seed: int, ledger_type: type[Ledger] = Ledger) -> set[str]:
    """Run the schedule of `seed` and check its money; returns words for what happened in it."""
    source = random.Random(seed)
    count = source.randint(3, 5)
    outcomes = {name: [source.choice(OUTCOMES) for _ in range(3 * count)] for name in NAMES}
    with ledger_folder() as folder, contextlib.closing(Watch(folder)) as watch:
        fleet = FailoverWorld(
            folder,
            watch,
            outcomes,
            seed=seed,
            durability=source.choice(tuple(Durability)),
            ledger_type=ledger_type,
            crash_at=source.choice((None, None, source.randrange(30 * count))),
            leave_chance=source.choice((0.0, 0.02, 0.1)),
        )
        with contextlib.closing(fleet.world) as world:
            _draw_requests(world, source, count)
            run(world)
            happened = fleet.check_money()
            for task in world.scheduler.tasks:
                known = isinstance(task.error, SimulatedCrash | GatewayError | ClientGone)
                expect(task.error is None or known, task)
            if "crashed" not in happened:
                expect(len(world.rows()) == count, "a request without a row", world.rows())
            return happened


def _draw_requests(world: SimWorld, source: random.Random, count: int) -> None:
    """Requests of one or two keys of one tenant, with room for one to three holds at each level."""

    def limit() -> int | None:
        rooms = source.choice((1, 2, 3, None))
        return None if rooms is None else rooms * hold_nanousd() + source.choice((-1, 0, 0))

    settle_story(world.ledger.set_level(Scope.TENANT, "acme", Window.DAY, limit()))
    settle_story(world.ledger.set_level(Scope.GLOBAL, "", Window.MONTH, limit()))
    keys = [world.key(limit(), window=source.choice(tuple(Window))) for _ in range(source.randint(1, 2))]
    for _ in range(count):
        model = source.choice(("both", "both", "auto"))
        world.request(source.choice(keys), body(model, stream=source.random() < 0.5))


def check_crash_point(
    point: int | None, *, stream: bool, durability: Durability, ledger_type: type[Ledger] = Ledger
) -> int:
    """One request whose first call ends in silence, whose second is retried and then answered; the process dies before
    effect number `point`. Returns how many effects happened; without a `point`, all that there are.
    """
    outcomes: dict[str, list[AnOutcome]] = {
        "one": [{"timeout": True, "latency_s": 2}],
        "two": [{"status": 500}, {"text": "a b c d e f"}],
    }
    with ledger_folder() as folder, contextlib.closing(Watch(folder)) as watch:
        fleet = FailoverWorld(folder, watch, outcomes, durability=durability, ledger_type=ledger_type, crash_at=point)
        with contextlib.closing(fleet.world) as world:
            key = world.key(2 * hold_nanousd())
            task, caller = world.request(key, body("both", stream=stream))
            run(world)
            happened = fleet.check_money()
            answered = caller.finished if stream else task.result is not None
            [*rows] = world.rows()
            if answered and durability is Durability.FULL:
                expect([line["exit"] for line in rows] == ["failed_over"], "answered, but not settled", rows)
            if point is None:
                expect({"several calls", "several holds", "failed_over"} <= happened, happened)
            return world.scheduler.effects
