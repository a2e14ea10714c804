"""A real outage: one of two llama.cpp servers is killed under load, and comes back.

    python -m evals.outage_live [--seconds 36] [--clients 8] [--seed 7] [--engine-python P --engine-folder F]

Two llama.cpp servers with a tiny random model, the gateway as people run it in front of them, and a steady load of
streams. A third into the run the primary gets SIGKILL, as soon as there are streams with and without content; after
another third it is started again on its port. Every request is recorded, `/readyz` is asked for the breaker's state
all along, and once the gateway has ended its trace and its books are read. What was promised is judged in
`outage_verdict`. Writes outage_live.json and, if matplotlib is there, outage_live.png; exits 1 if a gate failed.

The engine is what `make clients` installs. Without it nothing is measured, the artifact says so, and the exit status is
0, or 1 with --require.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.machine import machine
from bench.tools import free_port
from evals import ROOT
from evals.outage_verdict import (
    BUCKET_S,
    Books,
    BreakerStory,
    Call,
    Gate,
    Outage,
    Outcome,
    Record,
    Reply,
    Sample,
    breaker_story,
    classify,
    events,
    first_content_ms,
    gates,
    has_content,
    is_from,
    read_calls,
    timeline,
)
from evals.process import END_S, Child, ask_gateway, gateway_child
from evals.report import RESULTS, write

WORK = ROOT / ".ci-work"
ENGINE_FILES = ("tiny_gguf.py", "llamacpp_server.py")
ARTIFACT = "outage_live.json"

ENGINE_ENV = {"OMP_THREAD_LIMIT": "1"}
"""Several threads of one engine wait for each other in a loop: on a busy machine that costs seconds per answer."""

THRESHOLD, COOLDOWN_S = 3, 2.0
SAMPLE_S = 0.05
AIM_S = 30.0
"""How long the kill waits for streams on both sides of their first content, and the end for those that came home."""

SEVERAL = 2

TOKENS = (96, 192)
PAUSE_S = (0.0, 0.2)
"""Each request asks for so many tokens, and each client waits so long between two: uniformly drawn."""

CONFIG = """
[server]
announce_s = 0
[breaker]
threshold = {threshold}
cooldown_s = {cooldown_s}
[[providers]]
name = "primary"
base_url = "http://127.0.0.1:{primary}/v1"
connect_timeout_s = 1
ttft_timeout_s = 10
idle_timeout_s = 3
total_timeout_s = 20
[[providers]]
name = "backup"
base_url = "http://127.0.0.1:{backup}/v1"
connect_timeout_s = 1
ttft_timeout_s = 10
idle_timeout_s = 3
total_timeout_s = 20
[[deployments]]
name = "tiny-primary"
provider = "primary"
model = "tiny"
price = {{ input = 1, output = 4 }}
max_output_tokens = 256
[[deployments]]
name = "tiny-backup"
provider = "backup"
model = "tiny"
price = {{ input = 1, output = 4 }}
max_output_tokens = 256
[[aliases]]
name = "tiny"
deployments = ["tiny-primary", "tiny-backup"]
"""


class Clock:
    """Seconds since the start of the run, on the wall clock, because the trace is."""

    def __init__(self) -> None:
        self._start_ns = time.time_ns()

    def now_s(self) -> float:
        return self.to_run_s(time.time_ns())

    def to_run_s(self, epoch_ns: int) -> float:
        return (epoch_ns - self._start_ns) / 1e9

    def wait_until(self, at_s: float) -> None:
        time.sleep(max(at_s - self.now_s(), 0))


# --- the load -----------------------------------------------------------------------------------------------------


class Load:
    """Clients that ask for one stream after the other. `_lock` guards `_records` and `_in_flight`."""

    def __init__(self, port: int, key: str, clock: Clock, *, clients: int, seed: int) -> None:
        self._port = port
        self._key = key
        self._clock = clock
        self._lock = threading.Lock()
        self._records: list[Record] = []
        self._in_flight: dict[int, bool] = {}
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run_client, args=(number, random.Random(f"{seed}/{number}")))
            for number in range(clients)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> list[Record]:
        """Let every client end what it has begun; returns all records in the order of their starts."""
        self._over.set()
        for thread in self._threads:
            thread.join(END_S)
        if any(thread.is_alive() for thread in self._threads):
            raise SystemExit(f"a client hangs after {END_S} s")
        return sorted(self._records, key=lambda record: record.started_s)

    def has_both_sides(self) -> bool:
        """Whether several streams in flight have content, and several others have none yet."""
        with self._lock:
            wrote = sum(self._in_flight.values())
            return min(wrote, len(self._in_flight) - wrote) >= SEVERAL

    def has_come_home(self, deployment: str, since_s: float) -> bool:
        """Whether more streams than there are clients have come whole from there since then: one at least began after
        another had come.
        """
        with self._lock:
            return sum(is_from(record, deployment, since_s) for record in self._records) > len(self._threads)

    def _run_client(self, number: int, rng: random.Random) -> None:
        while not self._over.is_set():
            record = self._request(number, f"say something about {rng.randrange(10_000)}", rng.randint(*TOKENS))
            with self._lock:
                del self._in_flight[number]
                self._records.append(record)
            self._over.wait(rng.uniform(*PAUSE_S))

    def _request(self, number: int, prompt: str, tokens: int) -> Record:
        """One stream, read to whatever end it comes to."""
        started_s, first_s = self._clock.now_s(), None
        self._note(number, wrote=False)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=END_S / 2)
        status, headers, body, complete = None, http.client.HTTPMessage(), b"", False
        try:
            connection.request("POST", "/v1/chat/completions", _body(prompt, tokens), self._headers())
            response = connection.getresponse()
            status, headers = response.status, response.headers
            while data := response.read1(65_536):
                body += data
                if first_s is None and any(map(has_content, events(body))):
                    first_s = self._clock.now_s()
                    self._note(number, wrote=True)
            complete = True
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        outcome, code = classify(Reply(status, headers.get("content-type", ""), body, complete))
        return Record(
            headers.get("x-request-id"),
            started_s,
            first_s,
            self._clock.now_s(),
            headers.get("x-gateway-deployment"),
            headers.get("x-gateway-exit"),
            outcome,
            code,
        )

    def _note(self, number: int, *, wrote: bool) -> None:
        with self._lock:
            self._in_flight[number] = wrote

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}


def _body(prompt: str, tokens: int) -> str:
    """`ignore_eos` is llama.cpp's own: a random model would end at random."""
    messages = [{"role": "user", "content": prompt}]
    return json.dumps({"model": "tiny", "stream": True, "messages": messages, "max_tokens": tokens, "ignore_eos": True})


class Sampler:
    """Asks the gateway every SAMPLE_S how a deployment stands."""

    def __init__(self, port: int, deployment: str, clock: Clock) -> None:
        self._port = port
        self._deployment = deployment
        self._clock = clock
        self._over = threading.Event()
        self._samples: list[Sample] = []
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> list[Sample]:
        self._over.set()
        self._thread.join(END_S)
        return self._samples

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=END_S / 2)
        while not self._over.wait(SAMPLE_S):
            connection.request("GET", "/readyz")
            state = json.loads(connection.getresponse().read())["deployments"][self._deployment]
            self._samples.append(Sample(self._clock.now_s(), state))
        connection.close()


# --- the run ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: seconds of load, its clients and seed, and the engine's python, and folder of its two programs."""

    seconds: float
    clients: int
    seed: int
    python: Path
    folder: Path

    @property
    def missing(self) -> list[str]:
        """What the engine lacks."""
        return [
            str(path) for path in (self.python, *(self.folder / name for name in ENGINE_FILES)) if not path.exists()
        ]


@dataclass(frozen=True, slots=True)
class Run:
    """What was seen."""

    outage: Outage
    records: list[Record]
    samples: list[Sample]
    calls: list[Call]
    books: Books
    exit_status: int


def run(plan: Plan, work: Path) -> Run:
    """Start everything, kill the primary and bring it back; everything is stopped again at the end."""
    model = work / "tiny.gguf"
    subprocess.run([plan.python, plan.folder / ENGINE_FILES[0], model], check=True, stdout=subprocess.DEVNULL)
    trace, data = work / "trace.jsonl", work / "gateway-data"
    with ExitStack() as stack:
        primary = stack.enter_context(_engine(plan, model, "primary"))
        backup = stack.enter_context(_engine(plan, model, "backup"))
        config = CONFIG.format(threshold=THRESHOLD, cooldown_s=COOLDOWN_S, primary=primary.port, backup=backup.port)
        gateway = stack.enter_context(gateway_child(work, config, "--trace-file", str(trace)))
        key = ask_gateway(data, "keys", "create", "--tenant", "evals", "--budget-usd", "100")["key"]
        clock = Clock()
        load = Load(gateway.port, key, clock, clients=plan.clients, seed=plan.seed)
        sampler = Sampler(gateway.port, "tiny-primary", clock)
        sampler.start()
        load.start()
        try:
            killed_s, restarted_s = _let_it_fail(primary, load, clock, plan.seconds)
        finally:
            records = load.finish()
            samples = sampler.finish()
        ended_s = clock.now_s()
        exit_status = gateway.stop()
    outage = Outage("tiny-primary", "tiny-backup", killed_s, restarted_s, ended_s, THRESHOLD, COOLDOWN_S)
    calls = read_calls(trace.read_text().splitlines(), clock.to_run_s)
    return Run(outage, records, samples, calls, _read_books(data), exit_status)


def _engine(plan: Plan, model: Path, name: str) -> Child:
    port = free_port()
    command = [str(plan.python), str(plan.folder / ENGINE_FILES[1]), str(model), str(port), "tiny"]
    return Child(command, port, model.parent / f"{name}.log", ENGINE_ENV)


def _let_it_fail(primary: Child, load: Load, clock: Clock, seconds: float) -> tuple[float, float]:
    """Kill the primary and start it again; returns both instants once the run is over, which may be late."""
    clock.wait_until(seconds / 3)
    while not load.has_both_sides() and clock.now_s() < seconds / 3 + AIM_S:
        time.sleep(0.001)
    killed_s = clock.now_s()
    primary.kill()
    clock.wait_until(killed_s + seconds / 3)
    primary.start()
    restarted_s = clock.now_s()
    clock.wait_until(seconds)
    while not load.has_come_home("tiny-primary", restarted_s) and clock.now_s() < max(seconds, restarted_s) + AIM_S:
        time.sleep(0.01)
    return killed_s, restarted_s


def _read_books(data: Path) -> Books:
    verdict = ask_gateway(data, "ledger", "verify")
    rows = ask_gateway(data, "ledger", "rows")
    holds = ask_gateway(data, "ledger", "holds")
    return Books(
        ok=verdict["ok"],
        open_holds=verdict["open_holds"],
        unresolved=tuple(hold["deployment"] for hold in holds if hold["state"] == "unresolved"),
        rows={row["request_id"]: (row["exit"], row["code"]) for row in rows},
        rows_total=len(rows),
    )


# --- the report ---------------------------------------------------------------------------------------------------


def report(plan: Plan, seen: Run, story: BreakerStory, judged: Sequence[Gate]) -> dict[str, Any]:
    """The artifact: figures, gates, the timeline, and every request that did not end as usual."""
    outage = seen.outage
    during = [r for r in seen.records if outage.killed_s < r.started_s < outage.restarted_s]
    before = [r for r in seen.records if r.ended_s < outage.killed_s]
    met = [r for r in seen.records if r.started_s <= outage.killed_s < r.ended_s]
    return {
        "status": "passed" if all(gate.passed for gate in judged) else "failed",
        "machine": {**machine(), "load_1m": round(os.getloadavg()[0], 1)},
        "n": len(seen.records),
        "seed": plan.seed,
        "clients": plan.clients,
        "seconds": plan.seconds,
        "outage": _rounded(asdict(outage)),
        "gates": [asdict(gate) for gate in judged],
        "outcomes": dict(Counter(record.outcome for record in seen.records)),
        "exits": dict(Counter(record.exit for record in seen.records if record.outcome is Outcome.WHOLE)),
        "unresolved_holds": len(seen.books.unresolved),
        "first_content_ms": {
            "before": first_content_ms(before),
            "in flight at the kill": first_content_ms(met),
            "during": first_content_ms(during),
        },
        "breaker": _rounded(asdict(story)),
        "bucket_s": BUCKET_S,
        "timeline": timeline(seen.records, seen.samples, outage),
        "met_by_the_kill": [_rounded(asdict(record)) for record in met],
        "not_whole": [_rounded(asdict(r)) for r in seen.records if r.outcome is not Outcome.WHOLE],
    }


def _rounded(value: Any) -> Any:
    """Milliseconds are exact enough."""
    match value:
        case float():
            return round(value, 3)
        case Mapping():
            return {key: _rounded(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_rounded(entry) for entry in value]
    return value


def _draw(results: Path, figures: Mapping[str, Any]) -> str:
    """Draw the picture beside the artifact; returns what to tell about it."""
    try:
        from evals.plot_outage import draw
    except ImportError:
        return "matplotlib is not installed (the extra [evals]): no picture"
    picture = (results / ARTIFACT).with_suffix(".png")
    draw(figures, picture)
    return f"picture: {picture}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run, write the artifact, print the gates; returns the exit status."""
    arguments = _parser().parse_args(argv)
    plan = Plan(arguments.seconds, arguments.clients, arguments.seed, arguments.engine_python, arguments.engine_folder)
    arguments.results.mkdir(parents=True, exist_ok=True)
    artifact = arguments.results / ARTIFACT
    if plan.missing:
        why = f"there is no {', no '.join(plan.missing)}"
        write(artifact, {"status": "not measured", "why": why})
        print(f"not measured: {why}")
        return 1 if arguments.require else 0
    work = Path(tempfile.mkdtemp(prefix="outage-"))
    seen = run(plan, work)
    story = breaker_story(seen.calls, seen.outage)
    judged = gates(seen.records, seen.samples, story, seen.books, seen.outage)
    judged.append(Gate("the gateway ended well", seen.exit_status == 0, f"exit status {seen.exit_status}"))
    figures = report(plan, seen, story, judged)
    write(artifact, figures)
    for gate in judged:
        print(f"{'passed' if gate.passed else 'FAILED'}  {gate.name}: {gate.seen}")
    print(_draw(arguments.results, figures))
    if figures["status"] == "failed":
        write(work / "records.json", [asdict(record) for record in seen.records])
        print(f"logs, trace, records and books: {work}")
        return 1
    shutil.rmtree(work)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evals.outage_live", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=36, help="of load; the primary is away for a third of them")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=7, help="of prompts, lengths and pauses")
    parser.add_argument(
        "--engine-python", type=Path, default=WORK / "upstreams/bin/python", help="has xllamacpp and gguf"
    )
    parser.add_argument(
        "--engine-folder", type=Path, default=WORK / "clients/upstreams", help=f"holds {' and '.join(ENGINE_FILES)}"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the artifact goes")
    parser.add_argument("--require", action="store_true", help="exit 1 if nothing could be measured")
    return parser


if __name__ == "__main__":
    sys.exit(main())
