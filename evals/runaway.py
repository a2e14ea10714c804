"""One key in a loop, as fast as eight connections go: what it spends, and what the tenant beside it notices.

A real server process in front of bench's mock. The loop first meets its bucket and then the end of its budget, and
never pauses; the other tenant asks one request after the other, first alone, then beside the loop.
"""

import sqlite3
import threading
from collections.abc import Mapping
from typing import Any

from evals.experiment import Artifact, Options
from evals.process import Server, serving
from llmkit.money import format_usd

NAME = "runaway"
SECONDS, QUICK_SECONDS, MOST_SECONDS = 60.0, 3.0, 120.0
CALLERS = 8
RATE_PER_S = 100
CALL_NANOUSD = 24 * 150 + 20 * 600
"""What one call costs: bench's mock always bills 24 and 20 tokens."""
CONFIG = """
[server]
announce_s = 0

[store]
durability = "normal"

[[providers]]
name = "mock"
base_url = "http://127.0.0.1:{upstream}/v1"

[[deployments]]
name = "mock-fast"
provider = "mock"
model = "mock-fast"
price = {{ input = 0.15, output = 0.60 }}

[[tenants]]
name = "runaway"
rate_per_s = {rate}
burst = {rate}

[[tenants]]
name = "steady"
"""


def run(options: Options) -> Artifact:
    """Let the loop run for `seconds`: a third of them until its budget is spent, the rest against the wall."""
    seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    limit = int(RATE_PER_S * seconds / 3) * CALL_NANOUSD
    with serving(lambda upstream: CONFIG.format(upstream=upstream, rate=RATE_PER_S)) as server:
        steady = server.key("steady")
        runaway = server.key("runaway", "--budget-usd", format_usd(limit))
        server.tools.load(server.port, steady, callers=1, seconds=0.5)
        alone = server.tools.load(server.port, steady, callers=1, seconds=seconds / 2)
        loop, beside = _both(server, runaway, steady, seconds)
        spent, unresolved, hold = _books(server)
    return {
        "n": beside["ok"],
        "seconds": seconds,
        "limit_nanousd": limit,
        "spent_nanousd": spent,
        "unresolved_nanousd": unresolved,
        "hold_nanousd": hold,
        "loop": {"served": loop["ok"], "refused": loop["bad"], "last_refusal": loop["badstatus"]},
        "alone": _told(alone),
        "beside": _told(beside),
    }


def _both(server: Server, runaway: str, steady: str, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """The loop and, within it, the other tenant."""
    loops: list[dict[str, Any]] = []

    def loop() -> None:
        loops.append(server.tools.load(server.port, runaway, callers=CALLERS, seconds=seconds))

    thread = threading.Thread(target=loop)
    thread.start()
    beside = server.tools.load(server.port, steady, callers=1, seconds=seconds * 0.9)
    thread.join()
    return loops[0], beside


def _books(server: Server) -> tuple[int, int, int]:
    """Of the key that ran away: spent, unresolved, and the most that one request of it held."""
    shown = server.cli("keys", "list")
    key = next(key for key in shown if key["tenant"] == "runaway")
    with sqlite3.connect(f"file:{server.folder}/gateway-data/ledger.db?mode=ro", uri=True) as ledger:
        (hold,) = ledger.execute("SELECT max(amount_nanousd) FROM holds WHERE key_id = ?", (key["id"],)).fetchone()
    ledger.close()
    return int(key["spent_nanousd"]), int(key["unresolved_nanousd"]), int(hold)


def _told(load: Mapping[str, Any]) -> dict[str, float]:
    """What one tenant's requests looked like; times in microseconds."""
    return {"requests": load["ok"], "errors": load["bad"], "p50_us": load["p50"], "p99_us": load["p99"]}


def measured(artifact: Artifact) -> dict[str, float | None]:
    """What the gates look at."""
    used = artifact["spent_nanousd"] + artifact["unresolved_nanousd"]
    beside = artifact["beside"]
    return {
        "runaway.overspent": max(used - artifact["limit_nanousd"], 0),
        "runaway.idle_budget": round((artifact["limit_nanousd"] - used) / artifact["hold_nanousd"], 3),
        "runaway.other_p50": round(beside["p50_us"] / 1000, 1),
        "runaway.other_p99": round(beside["p99_us"] / 1000, 1),
        "runaway.other_errors": beside["errors"],
    }


def lines(artifact: Artifact) -> list[str]:
    """A Markdown table: the other tenant without and with the loop, and what the loop came to."""
    rows = ["| the other tenant | requests | errors | p50, ms | p99, ms |", "|---|---|---|---|---|"]
    for name in ("alone", "beside"):
        one = artifact[name]
        rows.append(
            f"| {'alone' if name == 'alone' else 'beside the loop'} | {one['requests']} | {one['errors']} "
            f"| {one['p50_us'] / 1000:.1f} | {one['p99_us'] / 1000:.1f} |"
        )
    loop = artifact["loop"]
    rows += [
        "",
        f"The loop made {loop['served'] + loop['refused']} requests in {artifact['seconds']:g} s, was refused "
        f"{loop['refused']} times (at last with {loop['last_refusal']}), and spent "
        f"{artifact['spent_nanousd'] / 1e9:.6f} of {artifact['limit_nanousd'] / 1e9:.6f} USD.",
    ]
    return rows
