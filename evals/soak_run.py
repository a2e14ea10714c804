"""One soak: the gateway, its clients and its upstreams from the start to the drain, and what was seen of them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from evals.loop import Loop
from evals.metered import CACHED_USD, INPUT_USD, OUTPUT_USD, Meter, MeteredUpstream
from evals.openloop import PATIENCE_S, Ask, Client, Conduct, End, Reply, keep
from evals.oracle import audit, misrecorded
from evals.process import ask_gateway, gateway_child, look
from evals.rows import read_rows
from evals.soak_faults import Troublemaker
from evals.soak_load import Wires, chat, numbered
from evals.soak_plan import (
    BURST,
    CONDUCTS,
    LIMITED_PER_S,
    Arrival,
    Fault,
    Kind,
    Trouble,
    arrivals,
    faults,
    judge,
    read,
)
from evals.soak_report import is_quiet
from evals.soak_tally import Surroundings, Tally
from evals.stats import percentile
from llmkit.money import format_usd

LOOK_AT_KEYS = 4
"""Every so many samples the keys are listed."""

CLIENT_S = 2.0
"""For a head, and for a body: what comes slower is cut."""

POOL_S = 4.5
"""After so long no upstream connection that idled is used again."""

SETTLE_S = 10.0
LAST, LAST_LATENCY_S = 40, 1.0
"""What the drain meets: so many requests at the upstream, which takes so long to answer."""

MEAN_CALL_NANOUSD = 14_000
CONFIG = """
[server]
announce_s = 0
header_timeout_s = {client_s}
body_timeout_s = {client_s}
[store]
durability = "{durability}"
[retry]
base_s = 0.02
cap_s = 0.1
pause_s = 1
[breaker]
threshold = 6
cooldown_s = 1
[cache]
exact_ttl_s = 5
[[tenants]]
name = "limited"
rate_per_s = {rate}
burst = {burst}
[[aliases]]
name = "m"
deployments = ["d0", "d1"]
"""
DEPLOYMENT = """
[[providers]]
name = "p{number}"
base_url = "http://127.0.0.1:{port}/v1"
connect_timeout_s = 1
ttft_timeout_s = 1.5
idle_timeout_s = 1.5
total_timeout_s = 20
[[deployments]]
name = "d{number}"
provider = "p{number}"
model = "metered"
price = {{ input = {input}, cached_input = {cached}, output = {output} }}
context_window = 200_000
max_output_tokens = 100_000
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run. `kill` adds kill -9 to the faults."""

    seconds: float
    rate_per_s: float
    every_s: float
    sample_s: float
    seed: int
    durability: str
    kill: bool


@dataclass(slots=True)
class Sample:
    """The process at one moment: bytes, counts, seconds since the start.

    requests  that have been due; `waiting` of them have no answer yet
    p50_ms, p99_ms  of those that ended since the last sample
    in_flight, ready_s  what /readyz said, and after how long; PATIENCE_S if it was not ready
    """

    at_s: float
    requests: int
    rss: int
    threads: int
    fds: int
    wal: int
    ledger: int
    waiting: int
    p50_ms: float | None = None
    p99_ms: float | None = None
    in_flight: int | None = None
    ready_s: float | None = None


class Soak:
    """One run. Everything happens on the loop, but for what blocks: that is done by hand (`faults`)."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.data = folder / "gateway-data"
        self.meter, self.tally, self.around = Meter(), Tally(), Surroundings()
        self.samples: list[Sample] = []
        self.over_limit = 0
        self._loop = Loop()
        self._upstreams = [MeteredUpstream(self._loop, f"d{number}", self.meter) for number in range(2)]
        for upstream in self._upstreams:
            upstream.ways.latency_s = lambda number: 0.001 * (number % 16)
        self.gateway = gateway_child(folder, _config(plan, [upstream.port for upstream in self._upstreams]))
        self._client = Client(self._loop, self.gateway.port)
        self.faults = Troublemaker(self._loop, self.gateway, self._upstreams, self.around, self.data, seed=plan.seed)
        self._keys: dict[str, dict[str, Any]] = {}
        self._wires = Wires({})
        self._start_s = 0.0
        self._asked = 0

    # --- from the start to the end ------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Everything, in order; returns what was seen beside `samples`, `tally` and `meter`."""
        with self.gateway, self.faults:
            self._make_keys()
            self._start_s = self._loop.now_s()
            troubles = _troubles(self.plan)
            quiet = [self._quiet()]
            planned = faults(self.plan.seconds, self.plan.every_s, self.plan.seed, troubles)
            self._load(planned)
            quiet.append(self._quiet())
            status, drained = self._drain()
            books = self._read_books()
        for upstream in self._upstreams:
            upstream.close()
        self._loop.close()
        limited = [row for row in books["rows"] if row.tenant == "limited" and row.attempts]
        return {
            "quiet": quiet,
            "faults": planned,
            "exit_status": status,
            "drained": drained,
            "verify": books["verify"],
            "audit": audit(self.meter.calls, books["rows"]),
            "rows": len(books["rows"]),
            "misrecorded": misrecorded(self.tally.answered, books["rows"]),
            "limited": len(limited),
            "limited_s": (limited[-1].started_ms - limited[0].started_ms) / 1000 if limited else 0.0,
        }

    def _make_keys(self) -> None:
        spender = int(self.plan.rate_per_s * self.plan.seconds * 0.04 / 2) * MEAN_CALL_NANOUSD + 200_000
        budgets = {"tenant0": 10**12, "tenant1": 10**12, "broke": 1, "spender": spender, "limited": None}
        for name, budget in {**budgets, "blockable": None}.items():
            options = [] if budget is None else ["--budget-usd", format_usd(budget)]
            self._keys[name] = ask_gateway(self.data, "keys", "create", "--tenant", name, *options)
        self.faults.keys = self._keys
        self._wires = Wires({name: key["key"] for name, key in self._keys.items()})

    def _load(self, planned: Sequence[Fault]) -> None:
        """The mixed load with its faults, until every request of it is over."""
        start_s = self._loop.now_s()
        end_s = start_s + self.plan.seconds
        for fault in planned:
            self._loop.at(start_s + fault.at_s, partial(self.faults.begin, fault))
        self._loop.after(self.plan.sample_s, partial(self._sample, end_s))
        load = arrivals(self.plan.rate_per_s, self.plan.seconds, self.plan.seed, first=self._asked + 1)
        keep(self._loop, ((start_s + arrival.at_s, arrival) for arrival in load), self._ask)
        self._loop.run(lambda: self._loop.now_s() >= end_s and self._is_over())

    def _ask(self, arrival: Arrival, due_s: float) -> None:
        self._asked += 1
        if arrival.kind is Kind.HIT:
            self.around.asked[arrival.tenant, arrival.question].add(arrival.number)
        conduct = CONDUCTS.get(arrival.kind, Conduct.STAYS)
        ask = Ask(arrival.number, self._wires.of(arrival), arrival.keeps_alive, conduct)
        self._client.ask(ask, due_s, partial(self._told, arrival, due_s))

    def _told(self, arrival: Arrival, due_s: float, _: Ask, reply: Reply) -> None:
        done_s = self._loop.now_s()
        try:
            seen = read(reply.end, reply.status, reply.body)
        except ValueError:
            seen = read(End.CUT, reply.status, reply.raw)
        verdict = judge(arrival.kind, seen, self.around.circumstances(arrival, due_s, done_s))
        self.tally.add(arrival, reply, verdict, calm=self.around.is_calm(due_s, done_s))

    def _is_over(self) -> bool:
        return self.faults.is_over() and not self._client.in_flight

    # --- what is seen of the process ----------------------------------------------------------------------------------

    def _quiet(self) -> Sample:
        """The process without a client: what it keeps when nobody asks.

        One request to each upstream makes the gateway let go of connections that are too old to be used again.
        """
        self._client.close_idle()
        if self._asked:
            self._wait(POOL_S)
        for deployment in ("d0", "d1"):
            self._one(deployment)
        self._client.close_idle()
        end_s = self._loop.now_s() + SETTLE_S
        first = self.samples[0] if self.samples else None
        self._wait(0.3)
        while first and self._loop.now_s() < end_s and not is_quiet(asdict(first), asdict(self._look())):
            self._wait(0.3)
        sample = self._look()
        self.samples.append(sample)
        return sample

    def _wait(self, seconds: float) -> None:
        end_s = self._loop.now_s() + seconds
        self._loop.run(lambda: self._loop.now_s() >= end_s)

    def _one(self, deployment: str) -> None:
        """One good request for a deployment, and its answer."""
        self._asked += 1
        arrival = Arrival(self._asked, 0, Kind.WHOLE, keeps_alive=True, tenant=0, question=0)
        wire = numbered(chat(self._keys["tenant0"]["key"], deployment), arrival.number)
        now_s = self._loop.now_s()
        self._client.ask(Ask(arrival.number, wire), now_s, partial(self._told, arrival, now_s))
        self._loop.run(self._is_over)

    def _look(self) -> Sample:
        now_s = self._loop.now_s() - self._start_s
        return Sample(round(now_s, 2), self._asked, **look(self.gateway.pid, self.data), waiting=self._client.in_flight)

    def _sample(self, end_s: float) -> None:
        if self._loop.now_s() >= end_s:
            return
        self._loop.after(self.plan.sample_s, partial(self._sample, end_s))
        try:
            sample = self._look()
        except (ProcessLookupError, FileNotFoundError):
            return  # it was killed, and is about to be started again
        since, self.tally.since = self.tally.since, []
        if since:
            sample.p50_ms, sample.p99_ms = (round(percentile(since, share) * 1000, 2) for share in (0.5, 0.99))
        self.samples.append(sample)
        wire = b"GET /readyz HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n"
        self._client.ask(Ask(0, wire, keeps_alive=False), self._loop.now_s(), partial(self._ready, sample))
        if len(self.samples) % LOOK_AT_KEYS == 0:
            self.faults.by_hand("a look at the keys", self._look_at_keys)

    def _ready(self, sample: Sample, _: Ask, reply: Reply) -> None:
        if reply.status == 200 and reply.end is End.WHOLE:
            sample.ready_s = round(reply.took_s, 4)
            sample.in_flight = json.loads(reply.body).get("in_flight")
        elif not self.plan.kill:
            sample.ready_s = PATIENCE_S

    def _look_at_keys(self) -> None:
        """How far any key is above its limit: the most that was ever seen."""
        for key in self.faults.command("keys", "list"):
            if key["limit_nanousd"] is not None:
                used = key["spent_nanousd"] + key["held_nanousd"] + key["unresolved_nanousd"]
                self.over_limit = max(self.over_limit, used - key["limit_nanousd"])

    # --- the end ------------------------------------------------------------------------------------------------------

    def _drain(self) -> tuple[int | None, int]:
        """SIGTERM while requests are in flight; the exit status, None if it did not end, and how many of them were
        answered whole.
        """
        for upstream in self._upstreams:
            upstream.ways.latency_s = lambda number: LAST_LATENCY_S
        served: list[bool] = []

        def told(_: Ask, reply: Reply) -> None:
            served.append(reply.status == 200 and reply.end is End.WHOLE)

        for number in range(LAST):
            self._asked += 1
            form = chat(self._keys["tenant0"]["key"], "m", stream=number % 2 == 0)
            self._client.ask(Ask(self._asked, numbered(form, self._asked)), self._loop.now_s(), told)
        self._loop.run(lambda: self.meter.at_once == LAST or bool(served))
        stopped = self.faults.by_hand("SIGTERM", self.gateway.stop)
        self._loop.run(lambda: stopped.done() and len(served) == LAST)
        return (None if stopped.exception() else stopped.result()), sum(served)

    def _read_books(self) -> dict[str, Any]:
        self.faults.by_hand("a last look at the keys", self._look_at_keys)
        self._loop.run(self.faults.is_over)
        return {"verify": ask_gateway(self.data, "ledger", "verify"), "rows": read_rows(self.data / "ledger.db")}


def _config(plan: Plan, ports: Sequence[int]) -> str:
    head = CONFIG.format(client_s=CLIENT_S, durability=plan.durability, rate=LIMITED_PER_S, burst=BURST)
    prices = {"input": INPUT_USD, "cached": CACHED_USD, "output": OUTPUT_USD}
    return head + "".join(DEPLOYMENT.format(number=number, port=port, **prices) for number, port in enumerate(ports))


def _troubles(plan: Plan) -> list[Trouble]:
    return [trouble for trouble in Trouble if plan.kill or trouble is not Trouble.KILL]
