"""Ten outages, fifty requests each, in virtual time: what the clients got, and what it cost them and the upstreams.

A primary and a backup stand behind one alias with the default retry and breaker settings. Each outage is a script of
the two upstreams; everything else is the gateway.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals.experiment import Artifact, Options
from evals.silent import SilentUpstream
from evals.stats import percentile
from evals.world import Asked, VirtualWorld
from gateway.fake_provider import FakeProvider
from gateway.providers import Provider

NAME = "scenarios"
REQUESTS = 50
EVERY_S = 1.0
SEED = 20260101
CONFIG = """
[store]
durability = "normal"

[[providers]]
name = "primary"
dialect = "fake"
script = [{ text = "never used" }]

[[providers]]
name = "backup"
dialect = "fake"
script = [{ text = "never used" }]

[[deployments]]
name = "primary"
provider = "primary"
model = "m"
price = { input = 1, output = 4 }

[[deployments]]
name = "backup"
provider = "backup"
model = "m"
price = { input = 2, output = 8 }

[[aliases]]
name = "chat"
deployments = ["primary", "backup"]
"""

Entry = Mapping[str, Any]

GOOD: Entry = {"text": "hello there friend", "latency_s": 0.3}
SPARE: Entry = {"text": "hello there friend", "latency_s": 0.4}
ERROR: Entry = {"status": 500, "latency_s": 0.1}
TTFT_S = 5.0
"""When the first-byte clock fires on a silent upstream."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What the upstreams do, entry by entry; then the last stays, or `repeats` starts the primary's entries again. A
    primary without entries takes calls and is silent.
    """

    name: str
    primary: tuple[Entry, ...]
    backup: tuple[Entry, ...] = (SPARE,)
    repeats: bool = False
    streams: bool = False


SCENARIOS = (
    Scenario("healthy", (GOOD,)),
    Scenario("primary_500", (ERROR,)),
    Scenario("primary_429", ({"status": 429, "retry_after": 20, "latency_s": 0.1},)),
    Scenario("primary_timeout", ()),
    Scenario("malformed_stream", ({"malformed": True, "latency_s": 0.3},), streams=True),
    Scenario("flapping", (GOOD,) * 5 + (ERROR,) * 5, repeats=True),
    Scenario("one_500", (ERROR, GOOD)),
    Scenario("two_429", ({"status": 429, "retry_after": 2, "latency_s": 0.1},) * 2 + (GOOD,)),
    Scenario("slow", ({**GOOD, "latency_s": 4.0},)),
    Scenario("everything_down", (ERROR,), backup=(ERROR,)),
)


def run(options: Options) -> Artifact:
    """Play every scenario; a quick run is the whole run."""
    del options
    return {
        "n": REQUESTS,
        "seed": SEED,
        "scenarios": {scenario.name: play(scenario) for scenario in SCENARIOS},
    }


def play(scenario: Scenario) -> dict[str, Any]:
    """One outage. Money in nano-dollars, times in virtual seconds."""
    silent = SilentUpstream("primary", ttft_s=TTFT_S)
    primary = FakeProvider(scenario.primary, repeat=scenario.repeats, name="primary") if scenario.primary else silent
    backup = FakeProvider(scenario.backup, name="backup")
    providers: dict[str, Provider] = {"primary": primary, "backup": backup}
    with VirtualWorld(CONFIG, providers=providers, seed=SEED) as world:
        raw_key = world.key()
        body = {
            "model": "chat",
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": 50,
            "stream": scenario.streams,
        }
        asked = [world.ask(raw_key, body, at_s=serial * EVERY_S) for serial in range(REQUESTS)]
        world.run()
        level, report = world.level(), world.audit()
        return {
            **told(asked),
            "attempts_per_request": (len(primary.calls) + len(backup.calls)) / REQUESTS,
            "primary_calls": len(primary.calls),
            "spent_nanousd": level.spent_nanousd,
            "unresolved_nanousd": level.unresolved_nanousd,
            "metered_nanousd": world.metered_nanousd(),
            "unmetered_nanousd": world.unmetered_nanousd(),
            "timed_out_calls": len(silent.calls),
            "unresolved_holds": report["unresolved_holds"],
            "open_holds": report["open_holds"],
            "differences": report["differences"],
        }


def told(asked: Sequence[Asked]) -> dict[str, Any]:
    """What the clients saw."""
    failures = [one.error for one in asked if not one.succeeded]
    honest = [error for error in failures if error and error.status == 503 and error.retry_after_s is not None]
    return {
        "success_percent": 100 * sum(one.succeeded for one in asked) / len(asked),
        "exits": dict(sorted(Counter(str(one.facts.exit) for one in asked).items())),
        "failures": dict(sorted(Counter(f"{e.status} {e.code}" if e else "cut" for e in failures).items())),
        "dishonest_failures": len(failures) - len(honest),
        "p50_s": round(percentile([one.took_s for one in asked], 0.50), 3),
        "p95_s": round(percentile([one.took_s for one in asked], 0.95), 3),
    }


def measured(artifact: Artifact) -> dict[str, float | None]:
    """What the gates look at."""
    played: Mapping[str, Any] = artifact["scenarios"]
    numbers: dict[str, float | None] = {
        "scenarios.dishonest": sum(one["dishonest_failures"] for one in played.values()),
        "scenarios.unmetered": sum(one["unmetered_nanousd"] for one in played.values()),
        "scenarios.differences": sum(len(one["differences"]) + one["open_holds"] for one in played.values()),
    }
    for name, one in played.items():
        numbers |= {
            f"scenarios.{name}.success": one["success_percent"],
            f"scenarios.{name}.attempts": one["attempts_per_request"],
            f"scenarios.{name}.primary_calls": one["primary_calls"],
            f"scenarios.{name}.p95_s": one["p95_s"],
            f"scenarios.{name}.stray_unresolved": abs(one["unresolved_holds"] - one["timed_out_calls"]),
        }
    return numbers


def lines(artifact: Artifact) -> list[str]:
    """A Markdown table of the outages."""
    rows = [
        "| outage | success | ended as | calls per request | to the primary | p95, s | cost, USD | unresolved, USD |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, one in artifact["scenarios"].items():
        exits = ", ".join(f"{count} {exit_}" for exit_, count in (one["exits"] | one["failures"]).items())
        rows.append(
            f"| {name} | {one['success_percent']:g} % | {exits} | {one['attempts_per_request']:g} "
            f"| {one['primary_calls']} | {one['p95_s']:g} | {one['spent_nanousd'] / 1e9:.6f} "
            f"| {one['unresolved_nanousd'] / 1e9:.6f} |"
        )
    return rows
