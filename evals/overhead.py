"""What the gateway adds to a call of one caller: as a clock outside sees it, and as it tells itself.

A real server process in front of bench's mock, all on one CPU. "Added" is the difference of the quantiles through the
gateway and of the mock alone; "told" is what `x-gateway-overhead-ms` says, request by request.
"""

import http.client
import json
import statistics

from bench.machine import fsync_us, one_cpu
from bench.own import config
from bench.tools import free_port
from evals.experiment import Artifact, Options
from evals.process import Server, serving
from evals.stats import percentile

NAME = "overhead"
REPETITIONS, SECONDS, REQUESTS = 5, 3.0, 1_000
BODY = json.dumps(
    {
        "model": "mock-fast",
        "messages": [{"role": "user", "content": "Tell me in one sentence what the quick brown fox did."}],
        "max_tokens": 64,
    }
)


def run(options: Options) -> Artifact:
    """Medians of the repetitions; a quick run makes one short one."""
    repetitions, seconds, requests = (1, 1.0, 200) if options.quick else (REPETITIONS, SECONDS, REQUESTS)
    with serving(lambda upstream: config(upstream, free_port(), "normal")) as server:
        raw_key = server.key("bench")
        server.tools.load(server.port, raw_key, callers=8, seconds=min(seconds, 1.0))
        runs = [_repetition(server, raw_key, seconds, requests) for _ in range(repetitions)]
        return {"n": requests * repetitions, "seconds": seconds, "runs": runs, "fsync_us": fsync_us(server.folder)}


def _repetition(server: Server, raw_key: str, seconds: float, requests: int) -> dict[str, float]:
    with one_cpu(server.pid, server.mock_pid):
        direct = server.tools.load(server.upstream, raw_key, callers=1, seconds=seconds / 3)
        through = server.tools.load(server.port, raw_key, callers=1, seconds=seconds)
        told_us = _told_us(server.port, raw_key, requests)
    return {
        "requests": through["ok"],
        "bad": through["bad"],
        "added_p50_us": through["p50"] - direct["p50"],
        "added_p95_us": through["p95"] - direct["p95"],
        "told_p50_us": percentile(told_us, 0.50),
        "told_p95_us": percentile(told_us, 0.95),
    }


def _told_us(port: int, raw_key: str, requests: int) -> list[float]:
    """The header of each of `requests` calls over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": f"Bearer {raw_key}", "Content-Type": "application/json"}
    told = []
    for _ in range(requests):
        connection.request("POST", "/v1/chat/completions", BODY, headers)
        response = connection.getresponse()
        response.read()
        told.append(round(float(response.headers["x-gateway-overhead-ms"]) * 1000, 1))
    connection.close()
    return told


def measured(artifact: Artifact) -> dict[str, float | None]:
    """What the gates look at: medians over the repetitions."""
    names = ("added_p50", "added_p95", "told_p50", "told_p95")
    return {
        f"overhead.{name}": round(statistics.median(run[f"{name}_us"] for run in artifact["runs"]), 1) for name in names
    }


def lines(artifact: Artifact) -> list[str]:
    """A Markdown table: each repetition's spread beside the median."""
    rows = ["| one caller, us | median | least | most |", "|---|---|---|---|"]
    for name in ("added_p50_us", "added_p95_us", "told_p50_us", "told_p95_us"):
        values = [run[name] for run in artifact["runs"]]
        rows.append(f"| {name} | {statistics.median(values):g} | {min(values):g} | {max(values):g} |")
    return rows
