"""Money and rates under real threads that meet at the upstream: exactly what fits passes, and the books are exact.

Every case says how much room there is and how many want it. `admitted` are the calls that stood at the upstream at the
same time; `served` are the answers. Each caller that found no room must have been told so by the gateway.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from evals.crowd import PATIENCE_S, GatedProvider, meet
from evals.experiment import Artifact, Options
from evals.silent import SilentUpstream
from evals.world import World
from gateway.errors import RateLimited
from gateway.fake_provider import FakeProvider
from gateway.keys import ShownKey
from gateway.levels import LevelState, Scope
from llmkit.money import format_usd

NAME = "concurrency"
ROUNDS = 30
CONFIG = """
[store]
durability = "{durability}"

[retry]
max_retries = 0

[breaker]
threshold = 1000

[[providers]]
name = "up"
dialect = "fake"
script = [{{ text = "never used" }}]

[[providers]]
name = "backup"
dialect = "fake"
script = [{{ text = "never used" }}]

[[deployments]]
name = "mini"
provider = "up"
model = "m"
price = {{ input = 1, output = 4 }}

[[deployments]]
name = "spare"
provider = "backup"
model = "m"
price = {{ input = 1, output = 4 }}

[[aliases]]
name = "both"
deployments = ["mini", "spare"]
"""
TENANT = """
[[tenants]]
name = "acme"
budget_usd = "{budget_usd}"
budget_window = "total"
"""
BUCKET = """
[[tenants]]
name = "acme"
rate_per_s = 0.001
burst = {burst}
"""
"""Refills one unit in a thousand seconds: nothing comes back while it is measured."""


@dataclass(frozen=True, slots=True)
class Case:
    """One crowd. Amounts in nano-dollars.

    expected        answers that there must be
    over_admitted   admitted or answered beyond that; `under_admitted` short of it
    over_limit      spent + held + unresolved above the limit, at the gate or afterwards
    differences     of `ledger verify`, and whatever was raised and is no outcome
    """

    name: str
    callers: int
    room: int
    admitted: int
    expected: int
    served: int
    over_admitted: int
    under_admitted: int
    spent: int
    unresolved: int
    over_limit: int
    unmetered: int
    differences: tuple[str, ...]


class CrowdedWorld(World):
    """A world whose first upstream is gated."""

    def __init__(self, config: str, behind: FakeProvider | SilentUpstream) -> None:
        self.up = GatedProvider(behind)
        super().__init__(config, providers={"up": self.up, "backup": _good("backup")})
        self.providers["up"] = behind  # it keeps the meter

    def worst_case_nanousd(self, body: Mapping[str, Any]) -> int:
        """What one such request holds, seen while it is held; asked by a tenant of its own."""
        raw_key = self.key(tenant="probe")
        seen: list[int] = []
        meet(self.gateway, self.up, [(raw_key, body)], lambda: seen.append(int(self.shown(raw_key)["held_nanousd"])))
        return seen[0]


def _good(name: str = "up") -> FakeProvider:
    return FakeProvider([{"text": "hello there friend"}], name=name)


def _failing() -> FakeProvider:
    return FakeProvider([{"status": 500}], name="up")


def _body(model: str = "mini") -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50}


def run(options: Options) -> Artifact:
    """Every case, at both durabilities where it is about money; a quick run makes fewer rounds for the one slot."""
    rounds = 5 if options.quick else ROUNDS
    cases: list[Case] = []
    for durability in ("full", "normal"):
        config = CONFIG.format(durability=durability)
        cases += [
            fifty(f"twelve of fifty, {durability}", config, _good(), expected=12),
            fifty(f"twelve of fifty, the upstream times out, {durability}", config, SilentUpstream("up"), expected=0),
            fifty(f"twelve of fifty, failing over, {durability}", config, _failing(), expected=12, model="both"),
            fifty(
                f"twelve of fifty, timing out and over, {durability}",
                config,
                SilentUpstream("up"),
                expected=0,
                model="both",
            ),
            _one_slot(f"one slot, 32 callers, {rounds} rounds, {durability}", config, rounds),
            _four_keys(f"four keys of one tenant, {durability}", config),
        ]
    cases.append(_bucket("a bucket of 100, 16 threads", burst=100, threads=16, each=20))
    return {"n": sum(case.callers for case in cases), "rounds": rounds, "cases": [asdict(case) for case in cases]}


def fifty(name: str, config: str, behind: FakeProvider | SilentUpstream, *, expected: int, model: str = "mini") -> Case:
    """Fifty callers, and money for exactly twelve at once. A timed-out call keeps its hold, so no second one fits."""
    body = _body(model)
    with CrowdedWorld(config, _good()) as probe:
        amount = probe.worst_case_nanousd(body)
    with CrowdedWorld(config, behind) as world:
        raw_key = world.key(12 * amount)
        return _met(name, world, [(raw_key, body)] * 50, room=12, expected=expected)


def _one_slot(name: str, config: str, rounds: int) -> Case:
    """Thirty-two callers and money for one, again and again, each time on a key of its own."""
    with CrowdedWorld(config, _good()) as world:
        amount = world.worst_case_nanousd(_body())
        return _together(
            [_met(name, world, [(world.key(amount), _body())] * 32, room=1, expected=1) for _ in range(rounds)]
        )


def _four_keys(name: str, config: str) -> Case:
    """Four keys without a limit, eight callers each, and a tenant's budget for seven."""
    with CrowdedWorld(config, _good()) as probe:
        amount = probe.worst_case_nanousd(_body())
    with CrowdedWorld(config + TENANT.format(budget_usd=format_usd(7 * amount)), _good()) as world:
        keys = [world.key() for _ in range(4)]
        return _met(name, world, [(raw_key, _body()) for raw_key in keys] * 8, room=7, expected=7)


def _met(
    name: str, world: CrowdedWorld, requests: Sequence[tuple[str, Mapping[str, Any]]], *, room: int, expected: int
) -> Case:
    reached, over = world.up.reached, [0]

    def look() -> None:
        levels = [world.level(Scope.TENANT, "acme")]
        levels += [
            world.level(Scope.KEY, world.books.keys.authenticate(ShownKey.of(raw_key)).id) for raw_key, _ in requests
        ]
        over.append(max(map(_over, levels)))

    crowd = meet(world.gateway, world.up, requests, look)
    look()
    report, state = world.audit(), world.level()
    admitted, served = world.up.reached - reached, len(crowd.answers)
    return Case(
        name=name,
        callers=len(requests),
        room=room,
        admitted=admitted,
        expected=expected,
        served=served,
        over_admitted=max(admitted - room, served - expected, 0),
        under_admitted=max(room - admitted, expected - served, 0),
        spent=state.spent_nanousd,
        unresolved=state.unresolved_nanousd,
        over_limit=max(over),
        unmetered=world.unmetered_nanousd(),
        differences=(*report["differences"], *map(repr, [*crowd.broken, *world.errors])),
    )


def _over(state: LevelState) -> int:
    """How far a level is above its limit."""
    used = state.spent_nanousd + state.held_nanousd + state.unresolved_nanousd
    return 0 if state.limit_nanousd is None else max(used - state.limit_nanousd, 0)


def _together(rounds: Sequence[Case]) -> Case:
    """All rounds as one case; a round that admitted too many is not made good by one that admitted too few."""
    return replace(
        rounds[-1],
        callers=sum(case.callers for case in rounds),
        room=sum(case.room for case in rounds),
        admitted=sum(case.admitted for case in rounds),
        expected=sum(case.expected for case in rounds),
        served=sum(case.served for case in rounds),
        over_admitted=sum(case.over_admitted for case in rounds),
        under_admitted=sum(case.under_admitted for case in rounds),
        over_limit=max(case.over_limit for case in rounds),
        unmetered=max(case.unmetered for case in rounds),
        differences=tuple(difference for case in rounds for difference in case.differences),
    )


def _bucket(name: str, *, burst: int, threads: int, each: int) -> Case:
    """Many threads that draw on one bucket as fast as they can."""
    served, strange = [0] * threads, list[BaseException]()
    config = CONFIG.format(durability="normal") + BUCKET.format(burst=burst)
    with CrowdedWorld(config, _good()) as world:
        raw_key = world.key()
        start = threading.Barrier(threads)

        def hammer(at: int) -> None:
            start.wait(PATIENCE_S)
            for _ in range(each):
                try:
                    world.gateway.handle(raw_key, _body())
                except RateLimited:
                    continue
                except BaseException as error:  # noqa: BLE001 - shown in the result
                    strange.append(error)
                else:
                    served[at] += 1

        hammers = [threading.Thread(target=hammer, args=(at,)) for at in range(threads)]
        for one in hammers:
            one.start()
        for one in hammers:
            one.join()
        report, state = world.audit(), world.level()
        return Case(
            name=name,
            callers=threads * each,
            room=burst,
            admitted=world.up.reached,
            expected=burst,
            served=sum(served),
            over_admitted=max(world.up.reached - burst, 0),
            under_admitted=max(burst - sum(served), 0),
            spent=state.spent_nanousd,
            unresolved=state.unresolved_nanousd,
            over_limit=0,
            unmetered=world.unmetered_nanousd(),
            differences=(*report["differences"], *map(repr, [*strange, *world.errors])),
        )


def measured(artifact: Artifact) -> dict[str, float | None]:
    """What the gates look at."""
    cases = artifact["cases"]
    return {
        "concurrency.over_admitted": sum(case["over_admitted"] for case in cases),
        "concurrency.under_admitted": sum(case["under_admitted"] for case in cases),
        "concurrency.over_limit": max(case["over_limit"] for case in cases),
        "concurrency.unmetered": max(case["unmetered"] for case in cases),
        "concurrency.differences": sum(len(case["differences"]) for case in cases),
    }


def lines(artifact: Artifact) -> list[str]:
    """A Markdown table of the cases."""
    rows = ["| callers who meet | room for | admitted | answered | unresolved, USD |", "|---|---|---|---|---|"]
    rows += [
        f"| {case['name']} | {case['room']} of {case['callers']} | {case['admitted']} | {case['served']} "
        f"| {case['unresolved'] / 1e9:.6f} |"
        for case in artifact["cases"]
    ]
    return rows
