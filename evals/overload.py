"""Five times what the gateway can do, for a minute, whatever it answers.

    python -m evals.overload [--seconds 60] [--times 5] [--seed S] [--require] [--results DIR]

An upstream that takes 100 ms and a gateway that works on 32 requests at a time, each in a process of its own; clients
on one loop in this one, on a timetable that does not care about answers (`openloop`). Before and after it half of the
capacity is asked for. The bounds stand in PREREGISTRATION.md. Writes overload.json; with --require the exit status is
1 if a gate failed, unless it is one of time.
"""

import gc
import http.client
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from bench.machine import machine
from bench.tools import free_port
from evals.long_run import conclude, new_parser, publish
from evals.loop import Loop
from evals.metered import CACHED_USD, INPUT_USD, OUTPUT_USD, Manner, Metered
from evals.openloop import Ask, Client, End, Reply, keep, open_files
from evals.oracle import audit
from evals.overload_plan import IN_FLIGHT, LATENCY_S, moments, phases
from evals.overload_report import gates
from evals.overload_tally import Tally, told
from evals.process import END_S, Child, ask_gateway, gateway_child, look
from evals.rows import read_rows
from evals.soak_load import chat, numbered
from evals.soak_plan import read

TENANTS = 4
HEALTH_S = 0.1
LOOK_S = 1.0
CONFIG = """
[server]
announce_s = 0
max_in_flight = {in_flight}
[store]
durability = "{durability}"
[[providers]]
name = "up"
base_url = "http://127.0.0.1:{port}/v1"
[[deployments]]
name = "m"
provider = "up"
model = "metered"
price = {{ input = {input}, cached_input = {cached}, output = {output} }}
"""


class Overload:
    """One run, on the loop."""

    def __init__(self, port: int, keys: Sequence[str], pid: int, data: Path, tally: Tally, *, seed: int) -> None:
        self.tally = tally
        self.asked = 0
        self.health_s: list[float] = []
        self.health_failures = 0
        self.seen: list[dict[str, int]] = []
        self._loop = Loop()
        self._client = Client(self._loop, port)
        self._forms = [chat(key, "m") for key in keys]
        self._pid, self._data, self._seed = pid, data, seed

    def run(self) -> None:
        """The whole timetable, until every request is over.

        Without the garbage collector: with so many requests in flight it would stop the client for a second at a time.
        """
        gc.disable()
        start_s, seconds = self._loop.now_s() + LOOK_S, self.tally.plan[-1].end_s
        keep(self._loop, ((start_s + at_s, at_s) for at_s in moments(self.tally.plan, self._seed)), self._ask)
        keep(self._loop, _ticks(start_s, seconds, HEALTH_S), self._ask_health)
        keep(self._loop, _ticks(start_s, seconds, LOOK_S), self._look)
        self._loop.run(lambda: self._loop.now_s() >= start_s + seconds and not self._client.in_flight)
        gc.enable()
        self._client.close_idle()
        self._loop.close()

    def _ask(self, at_s: float, due_s: float) -> None:
        self.asked += 1
        ask = Ask(self.asked, numbered(self._forms[self.asked % len(self._forms)], self.asked))
        self._client.ask(ask, due_s, partial(self._told, at_s))

    def _told(self, at_s: float, ask: Ask, reply: Reply) -> None:
        self.tally.late_s.append(reply.late_s)
        self.tally.add(at_s, reply.took_s, outcome(ask.number, reply))

    def _ask_health(self, _: float, due_s: float) -> None:
        for path in (b"healthz", b"readyz"):
            wire = b"GET /%b HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n" % path
            self._client.ask(Ask(0, wire, keeps_alive=False), due_s, self._told_health)

    def _told_health(self, _: Ask, reply: Reply) -> None:
        self.health_s.append(reply.took_s)
        self.health_failures += reply.status != 200 or reply.end is not End.WHOLE

    def _look(self, *_: float) -> None:
        self.seen.append(look(self._pid, self._data))


def _ticks(start_s: float, seconds: float, every_s: float) -> Iterator[tuple[float, float]]:
    return ((start_s + number * every_s, 0.0) for number in range(int(seconds / every_s)))


def outcome(number: int, reply: Reply) -> str:
    """How a request ended: "served" or "refused" if it may end so, else what it was."""
    seen = read(reply.end, reply.status, reply.raw)
    if reply.end is not End.WHOLE:
        return f"{reply.end.name.lower()} with status {reply.status}"
    if reply.status == 200:
        return "served" if seen.numbers == {number} else "another's answer"
    honest = (reply.status, seen.code) == (503, "overloaded") and reply.header(b"retry-after") is not None
    return "refused" if honest else f"{reply.status} {seen.code}"


def run(seconds: float, times: float, seed: int, durability: str, folder: Path) -> dict[str, Any]:
    """Everything, in processes that end with it; the artifact."""
    data, port = folder / "gateway-data", free_port()
    prices = {"input": INPUT_USD, "cached": CACHED_USD, "output": OUTPUT_USD}
    config = CONFIG.format(in_flight=IN_FLIGHT, durability=durability, port=port, **prices)
    upstream = Child([sys.executable, "-m", "evals.metered", str(port), str(LATENCY_S)], port, folder / "upstream.log")
    with upstream, gateway_child(folder, config) as gateway:
        keys = [
            str(ask_gateway(data, "keys", "create", "--tenant", f"tenant{number}", "--budget-usd", "1000")["key"])
            for number in range(TENANTS)
        ]
        overload = Overload(gateway.port, keys, gateway.pid, data, Tally(phases(seconds, times)), seed=seed)
        overload.run()
        status = gateway.stop()
        meter = _read_meter(port)
    verify = ask_gateway(data, "ledger", "verify")
    calls = [Metered(**{**call, "manner": Manner(call["manner"])}) for call in meter["calls"]]
    return {
        "machine": {**machine(), "load_average": round(os.getloadavg()[0], 1)},
        "n": overload.asked,
        "seed": seed,
        "settings": {"seconds": seconds, "times": times, "durability": durability, "tenants": TENANTS},
        **told(overload.tally),
        "health": {
            "n": len(overload.health_s),
            "failures": overload.health_failures,
            "took_s": [round(took_s, 4) for took_s in sorted(overload.health_s)[-20:]],
        },
        "most_at_once": meter["most_at_once"],
        "most": {name: max(look[name] for look in overload.seen) for name in overload.seen[0]},
        "exit_status": status,
        "books": {**asdict(audit(calls, read_rows(data / "ledger.db"))), "verify": verify},
    }


def _read_meter(port: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=END_S)
    connection.request("GET", "/meter")
    told_meter = json.loads(connection.getresponse().read())
    connection.close()
    return dict(told_meter)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, write the artifact, print the gates; returns the exit status."""
    parser = new_parser("overload", __doc__, seed_of="the timetable")
    parser.add_argument("--seconds", type=float, default=60, help="of the overload")
    parser.add_argument("--times", type=float, default=5, help="how many times the capacity is asked for")
    arguments = parser.parse_args(argv)
    open_files()
    folder = Path(tempfile.mkdtemp(prefix="overload-"))
    figures = run(arguments.seconds, arguments.times, arguments.seed, arguments.durability, folder)
    publish(
        "overload", figures, arguments.results, [f"not honest: {figures['dishonest']}", *figures["books"]["faults"]]
    )
    return conclude(gates(figures), folder, require=arguments.require)


if __name__ == "__main__":
    sys.exit(main())
