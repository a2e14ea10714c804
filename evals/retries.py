"""A thousand requests into an outage within one minute: how many calls the sick upstream gets.

With the breaker as it is, with a breaker that never opens (the retry budget alone must hold), and with an upstream that
fails every second call, so that no breaker ever sees three failures in a row.
"""

from collections.abc import Mapping
from typing import Any

from evals.experiment import Artifact, Options
from evals.scenarios import Entry
from evals.world import VirtualWorld
from gateway.fake_provider import FakeProvider

NAME = "retries"
REQUESTS = 1_000
WITHIN_S = 50.0
SEED = 20260102
CONFIG = """
[store]
durability = "normal"

[breaker]
threshold = {threshold}

[[providers]]
name = "up"
dialect = "fake"
script = [{{ text = "never used" }}]

[[deployments]]
name = "only"
provider = "up"
model = "m"
price = {{ input = 1, output = 4 }}
"""
NEVER = 1_000_000
"""Failures in a row that never come."""
GOOD: Entry = {"text": "hello there friend", "latency_s": 0.02}
ERROR: Entry = {"status": 500, "latency_s": 0.02}
"""As quick as a good answer, so that calls end in the order in which they were made."""
CASES: Mapping[str, tuple[int, tuple[Entry, ...]]] = {
    "outage": (3, (ERROR,)),
    "outage_without_breaker": (NEVER, (ERROR,)),
    "half_sick": (3, (GOOD, ERROR)),
}
"""The breaker's threshold, and what the upstream answers in turn."""


def run(options: Options) -> Artifact:
    """Play the three cases; a quick run is the whole run, because the bound belongs to this number of requests."""
    del options
    return {
        "n": REQUESTS,
        "seed": SEED,
        "cases": {name: _play(threshold, script, REQUESTS) for name, (threshold, script) in CASES.items()},
    }


def _play(threshold: int, script: tuple[Entry, ...], requests: int) -> dict[str, Any]:
    upstream = FakeProvider(script, repeat=True, name="up")
    with VirtualWorld(CONFIG.format(threshold=threshold), providers={"up": upstream}, seed=SEED) as world:
        raw_key = world.key()
        body = {"model": "only", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50}
        asked = [world.ask(raw_key, body, at_s=serial * WITHIN_S / requests) for serial in range(requests)]
        world.run()
        return {
            "calls": len(upstream.calls),
            "attempts_per_request": len(upstream.calls) / requests,
            "success_percent": 100 * sum(one.succeeded for one in asked) / requests,
            "spent_nanousd": world.spent_nanousd(),
        }


def measured(artifact: Artifact) -> dict[str, float | None]:
    """What the gates look at."""
    return {f"retries.{name}": case["attempts_per_request"] for name, case in artifact["cases"].items()}


def lines(artifact: Artifact) -> list[str]:
    """A Markdown table of the cases."""
    rows = ["| a thousand requests, case | calls | per request | success |", "|---|---|---|---|"]
    for name, case in artifact["cases"].items():
        calls, per_request = case["calls"], case["attempts_per_request"]
        rows.append(f"| {name} | {calls} | {per_request:g} | {case['success_percent']:g} % |")
    return rows
