"""A long mixed load with a fault every few seconds, and the upstream's own bill as the oracle of the books.

    python -m evals.soak [--seconds S | --requests N] [--rate R] [--seed S] [--kill] [--require] [--results DIR]

A real gateway in a process of its own; clients and two upstreams on one loop in this one. What is asked and what fails
when is drawn from the seed (`soak_plan`). At the end the gateway is drained under load, and every call that an upstream
has billed is compared with its hold (`oracle`). The bounds stand in PREREGISTRATION.md. Writes soak.json and, if
matplotlib is there, soak.png; with --require the exit status is 1 if a gate that applies failed.
"""

import argparse
import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.__main__ import machine
from evals import soak_report
from evals.hostile import Hostile, dripping, half_open, huge
from evals.loop import Loop
from evals.metered import CACHED_USD, INPUT_USD, OUTPUT_USD, Manner, Meter, MeteredUpstream
from evals.openloop import PATIENCE_S, Ask, Client, Conduct, End, Reply, keep
from evals.oracle import audit, misrecorded, read_rows
from evals.process import ask_gateway, gateway_child
from evals.report import RESULTS, failed_firmly, long_lines, write
from evals.soak_load import Wires, chat, numbered
from evals.soak_plan import (
    BURST,
    CONDUCTS,
    LIMITED_PER_S,
    MANNERS,
    Arrival,
    Fault,
    Kind,
    Trouble,
    arrivals,
    faults,
    judge,
    read,
    suffers,
)
from evals.soak_tally import Block, Surroundings, Tally, Window
from evals.stats import percentile
from llmkit.money import format_usd

RATE_PER_S, EVERY_S, SAMPLE_S = 60.0, 5.0, 5.0
FULL_REQUESTS = 210_000
LOOK_AT_KEYS = 4
"""Every so many samples the keys are listed."""

CLIENT_S, GONE_S = 2.0, 12.0
"""For a head, and for a body: what comes slower is cut; and when it must be gone, on a machine as busy as may be."""

LOCK_S, BUSY_S = 1.0, 2.5
"""A foreign lock, and how long after it requests may still be refused that met it: the gateway waits two seconds."""

POOL_S = 4.5
"""After so long no upstream connection that idled is used again."""

SETTLE_S = 10.0
LAST, LAST_LATENCY_S = 40, 1.0
"""What the drain meets: so many requests at the upstream, which takes so long to answer."""

MANY = {Trouble.HALF_OPEN: 150, Trouble.DRIPS: 30, Trouble.HUGE: 20}
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
    """One run. Everything happens on the loop but for what `_hands` do: commands and locks, which block.

    `_one_command` is held by a command and by kill -9 until the next start: a command that finds no living owner of the
    data directory takes its place.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.data = folder / "gateway-data"
        self.meter, self.tally, self.around = Meter(), Tally(), Surroundings()
        self.samples: list[Sample] = []
        self.over_limit = 0
        self.overstayed = self.hostile = 0
        self._loop = Loop()
        self._upstreams = [MeteredUpstream(self._loop, f"d{number}", self.meter) for number in range(2)]
        self._manner = Manner.GOOD
        for upstream in self._upstreams:
            upstream.ways.latency_s = lambda number: 0.001 * (number % 16)
        self._upstreams[0].ways.manner = self._manner_of
        self.gateway = gateway_child(folder, _config(plan, [upstream.port for upstream in self._upstreams]))
        self._client = Client(self._loop, self.gateway.port)
        self._hands = ThreadPoolExecutor(4)
        self._one_command = threading.Lock()
        self._busy: list[Future[Any]] = []
        self._keys: dict[str, dict[str, Any]] = {}
        self._wires = Wires({})
        self._start_s = 0.0
        self._asked = 0
        self._hostile_left = 0

    # --- from the start to the end ------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Everything, in order; returns what was seen beside `samples`, `tally` and `meter`."""
        with self.gateway, self._hands:
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
        self._wires = Wires({name: key["key"] for name, key in self._keys.items()})

    def _load(self, planned: Sequence[Fault]) -> None:
        """The mixed load with its faults, until every request of it is over."""
        start_s = self._loop.now_s()
        end_s = start_s + self.plan.seconds
        for fault in planned:
            self._loop.at(start_s + fault.at_s, partial(self._begin, fault))
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
        for done in [hand for hand in self._busy if hand.done()]:
            self._busy.remove(done)
            done.result()
        return not (self._client.in_flight or self._busy or self._hostile_left)

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
        while first and self._loop.now_s() < end_s and not soak_report.is_quiet(asdict(first), asdict(self._look())):
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
            self._by_hand(self._look_at_keys)

    def _ready(self, sample: Sample, _: Ask, reply: Reply) -> None:
        if reply.status == 200 and reply.end is End.WHOLE:
            sample.ready_s = round(reply.took_s, 4)
            sample.in_flight = json.loads(reply.body).get("in_flight")
        elif not self.plan.kill:
            sample.ready_s = PATIENCE_S

    def _look_at_keys(self) -> None:
        """How far any key is above its limit: the most that was ever seen."""
        for key in self._command("keys", "list"):
            if key["limit_nanousd"] is not None:
                used = key["spent_nanousd"] + key["held_nanousd"] + key["unresolved_nanousd"]
                self.over_limit = max(self.over_limit, used - key["limit_nanousd"])

    # --- faults -------------------------------------------------------------------------------------------------------

    def _manner_of(self, number: int) -> Manner:
        if self._manner is Manner.GOOD or not suffers(number, self.plan.seed):
            return Manner.GOOD
        if self._manner is Manner.CUT_AFTER:
            self.around.cut.add(number)
        return self._manner

    def _begin(self, fault: Fault) -> None:
        trouble = fault.trouble
        window = Window(self._loop.now_s())
        self.around.windows.append(window)
        if trouble in MANNERS:
            self._manner = MANNERS[trouble]
            self._loop.after(fault.seconds, partial(self._be_good, window))
        elif trouble is Trouble.UPSTREAM_HANGS_UP:
            for upstream in self._upstreams:
                upstream.hang_up()
            window.end_s = self._loop.now_s()
        elif trouble in MANY:
            self._send_hostile(trouble, window)
        else:
            self._by_hand(partial(self._act, trouble, fault.seconds, window))

    def _be_good(self, window: Window) -> None:
        self._manner = Manner.GOOD
        window.end_s = self._loop.now_s()

    def _by_hand(self, act: Callable[[], None]) -> None:
        self._busy.append(self._hands.submit(act))

    def _act(self, trouble: Trouble, seconds: float, window: Window) -> None:
        """A fault that takes a hand; its window ends with it."""
        try:
            match trouble:
                case Trouble.RELOAD:
                    os.kill(self.gateway.pid, signal.SIGHUP)
                case Trouble.BLOCK:
                    self._block(seconds)
                case Trouble.BACKUP:
                    self._back_up()
                case Trouble.LOCK:
                    self._lock(window)
                case Trouble.KILL:
                    with self._one_command:
                        window.codes = frozenset({"*"})
                        self.gateway.kill()
                        self.gateway.start()
        finally:
            window.end_s = self._loop.now_s()

    def _command(self, *words: str) -> Any:
        with self._one_command:
            return ask_gateway(self.data, *words)

    def _back_up(self) -> None:
        copy = self.data.parent / "backup.db"
        self._command("backup", str(copy))
        copy.unlink()

    def _block(self, seconds: float) -> None:
        key = self._keys["blockable"]["id"]
        block = Block(self._loop.now_s())
        self.around.blocks.append(block)
        self._command("keys", "block", key)
        block.is_s = self._loop.now_s()
        time.sleep(seconds)
        block.may_end_s = self._loop.now_s()
        self._command("keys", "unblock", key)
        block.ended_s = self._loop.now_s()

    def _lock(self, window: Window) -> None:
        window.codes = frozenset({"store_unavailable"})
        with closing(sqlite3.connect(self.data / "ledger.db", isolation_level=None, timeout=BUSY_S)) as foreign:
            foreign.execute("BEGIN IMMEDIATE")
            time.sleep(LOCK_S)
            foreign.execute("ROLLBACK")
        time.sleep(BUSY_S)

    def _send_hostile(self, trouble: Trouble, window: Window) -> None:
        """A crowd of them; the window ends with the last."""
        left = MANY[trouble]
        self.hostile += left
        self._hostile_left += left

        def told(ended: bool) -> None:
            nonlocal left
            left -= 1
            self._hostile_left -= 1
            self.overstayed += not ended
            if not left:
                window.end_s = self._loop.now_s()

        for number in range(MANY[trouble]):
            pieces = _pieces(trouble, self._keys["tenant0"]["key"], number)
            Hostile(self._loop, self._client.address, pieces, self._loop.now_s() + GONE_S, told)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _drain(self) -> tuple[int, int]:
        """SIGTERM while requests are in flight; the exit status, and how many of them were answered whole."""
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
        stopped = self._hands.submit(self.gateway.stop)
        self._loop.run(lambda: stopped.done() and len(served) == LAST)
        return stopped.result(), sum(served)

    def _read_books(self) -> dict[str, Any]:
        self._look_at_keys()
        return {"verify": ask_gateway(self.data, "ledger", "verify"), "rows": read_rows(self.data / "ledger.db")}


def _pieces(trouble: Trouble, key: str, number: int) -> list[bytes]:
    """What such a client sends."""
    match trouble:
        case Trouble.HALF_OPEN:
            return half_open()
        case Trouble.DRIPS:
            return dripping(GONE_S)
        case _:
            return huge(key, number)


def look(pid: int, data: Path) -> dict[str, int]:
    """What the system knows of a process and the files of its ledger."""
    process, ledger = Path(f"/proc/{pid}"), data / "ledger.db"
    log = data / "ledger.db-wal"
    return {
        "rss": int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "threads": sum(1 for _ in (process / "task").iterdir()),
        "fds": sum(1 for _ in (process / "fd").iterdir()),
        "wal": log.stat().st_size if log.exists() else 0,
        "ledger": ledger.stat().st_size,
    }


def _config(plan: Plan, ports: Sequence[int]) -> str:
    head = CONFIG.format(client_s=CLIENT_S, durability=plan.durability, rate=LIMITED_PER_S, burst=BURST)
    prices = {"input": INPUT_USD, "cached": CACHED_USD, "output": OUTPUT_USD}
    return head + "".join(DEPLOYMENT.format(number=number, port=port, **prices) for number, port in enumerate(ports))


def _troubles(plan: Plan) -> list[Trouble]:
    return [trouble for trouble in Trouble if plan.kill or trouble is not Trouble.KILL]


# --- the report -------------------------------------------------------------------------------------------------------


def report(plan: Plan, soak: Soak, seen: Mapping[str, Any]) -> dict[str, Any]:
    """The artifact: what was run and seen; the gates follow from it."""
    tally = soak.tally
    return {
        "machine": {**machine(), "load_average": round(os.getloadavg()[0], 1)},
        "n": sum(sum(counts.values()) for counts in tally.verdicts.values()),
        "seed": plan.seed,
        "settings": asdict(plan),
        "exit_status": seen["exit_status"],
        "last": {"asked": LAST, "served": seen["drained"]},
        "verdicts": {kind: dict(counts) for kind, counts in sorted(tally.verdicts.items())},
        "latency_ms": {
            "all": soak_report.latencies(tally.took_s),
            "calm": soak_report.latencies(tally.calm_s),
            "client_late": soak_report.latency(tally.late_s),
        },
        "faults": soak_report.counted(fault.trouble for fault in seen["faults"]),
        "hostile": {"sent": soak.hostile, "overstayed": soak.overstayed},
        "books": {
            **asdict(seen["audit"]),
            "rows": seen["rows"],
            "misrecorded": seen["misrecorded"],
            "calls": len(soak.meter.calls),
            "verify": seen["verify"],
            "over_limit": soak.over_limit,
            "limited": {"admitted": seen["limited"], "seconds": seen["limited_s"]},
        },
        "quiet": [asdict(sample) for sample in seen["quiet"]],
        "samples": soak_report.columns([asdict(sample) for sample in soak.samples]),
        "strange": tally.strange,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run, write the artifact, print the gates; returns the exit status."""
    arguments = _parser().parse_args(argv)
    seconds = arguments.seconds or arguments.requests / arguments.rate
    plan = Plan(
        seconds, arguments.rate, arguments.every, arguments.sample, arguments.seed, arguments.durability, arguments.kill
    )
    work = Path(tempfile.mkdtemp(prefix="soak-"))
    soak = Soak(plan, work)
    figures = report(plan, soak, soak.run())
    arguments.results.mkdir(parents=True, exist_ok=True)
    write(arguments.results / "soak.json", figures)
    print("\n".join([*long_lines("soak", figures), *figures["strange"], *figures["books"]["faults"]]))
    print(draw_beside(arguments.results / "soak.json", figures))
    failed = failed_firmly(soak_report.gates(figures))
    if failed:
        print(f"failed: {', '.join(failed)}; logs and books: {work}", file=sys.stderr)
    else:
        shutil.rmtree(work)
    return 1 if failed and arguments.require else 0


def draw_beside(artifact: Path, figures: Mapping[str, Any]) -> str:
    """Draw the picture beside the artifact; returns what to tell about it."""
    try:
        from evals.plot_soak import draw
    except ImportError:
        return "matplotlib is not installed (the extra [evals]): no picture"
    picture = artifact.with_suffix(".png")
    draw(figures, picture)
    return f"picture: {picture}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evals.soak", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, help="of load; else as long as --requests take")
    parser.add_argument("--requests", type=int, default=FULL_REQUESTS)
    parser.add_argument("--rate", type=float, default=RATE_PER_S, help="requests per second")
    parser.add_argument("--every", type=float, default=EVERY_S, help="seconds between two faults")
    parser.add_argument("--sample", type=float, default=SAMPLE_S, help="seconds between two looks at the process")
    parser.add_argument("--seed", type=int, default=7, help="of the load and of the faults")
    parser.add_argument("--durability", choices=("full", "normal"), default="normal")
    parser.add_argument("--kill", action="store_true", help="kill -9 is one of the faults")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the artifact goes")
    parser.add_argument(
        "--require",
        action="store_true",
        help="exit 1 if a gate fails, but for those that a busy machine alone can change",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
