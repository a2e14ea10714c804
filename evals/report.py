"""The results as people read them: a summary for the terminal, a block for the README. Pure but for load().

Everything that is shown follows from the artifacts and the preregistration; a gate without an artifact is not measured.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.report import between
from evals import concurrency, overhead, retries, router, runaway, scenarios, waterfall
from evals.experiment import Artifact, Experiment
from evals.gates import PREREGISTRATION, Gate, gates

RESULTS = Path(__file__).resolve().parent / "results"
LIVE = RESULTS / "outage_live.json"
PICTURE = "evals/results/outage_live.png"
EXPERIMENTS: tuple[Experiment, ...] = (overhead, concurrency, scenarios, router, waterfall, runaway, retries)
TITLES = {
    "overhead": "What is added to a call",
    "concurrency": "Crowds",
    "scenarios": "Outages",
    "router": "The router",
    "waterfall": "Savings",
    "runaway": "A loop that runs away",
    "retries": "Retries in an outage",
}

Artifacts = Mapping[str, Artifact]
"""By name of the eval."""


def load(folder: Path = RESULTS) -> dict[str, Artifact]:
    """The artifacts of these evals that lie there."""
    paths = {name: folder / f"{name}.json" for name in TITLES}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()}


def judged(artifacts: Artifacts) -> list[Gate]:
    """Every gate of the preregistration, held against the artifacts."""
    measured: dict[str, float | None] = {}
    for experiment in _ran(artifacts):
        measured |= experiment.measured(artifacts[experiment.NAME])
    return gates(PREREGISTRATION.read_text(encoding="utf-8"), measured)


def failing(judgements: Sequence[Gate]) -> str:
    """One sentence for the top of the README."""
    failed = [f"{gate.name} ({gate.measured}; bound {gate.bound})" for gate in judgements if gate.status == "failed"]
    if not failed:
        return "Every eval that was run passed its gates."
    return "**Evals that fail today:** " + "; ".join(failed) + "."


def regressions(before: Artifacts, now: Artifacts) -> list[str]:
    """Gates that passed before and fail now, but for those that a busy machine alone can change."""
    passed = {gate.name for gate in judged(before) if gate.status == "passed"}
    return [
        gate.name
        for gate in judged(now)
        if gate.status == "failed" and gate.name in passed and gate.checks[0].unit not in ("us", "ms")
    ]


def table(judgements: Sequence[Gate]) -> list[str]:
    """A Markdown table of gates."""
    rows = [f"| {gate.name} | {gate.bound} | {gate.measured} | {gate.status} |" for gate in judgements]
    return ["| gate | bound | measured | status |", "|---|---|---|---|", *rows]


def summary(artifacts: Artifacts) -> str:
    """All that was run: each eval with its details, then every gate that it bears on, then the verdict."""
    lines: list[str] = []
    for experiment in _ran(artifacts):
        artifact = artifacts[experiment.NAME]
        lines += [f"# {TITLES[experiment.NAME]} ({_provenance(artifact)})", *experiment.lines(artifact), ""]
    judgements = _bearing(artifacts)
    counts = {status: sum(gate.status == status for gate in judgements) for status in ("passed", "failed")}
    lines += ["# Gates", *table(judgements), "", f"{counts['passed']} passed, {counts['failed']} failed."]
    return "\n".join([*lines, failing(judgements)])


def as_json(artifacts: Artifacts) -> str:
    """The same for programs."""
    judgements = [{"status": gate.status, **asdict(gate)} for gate in _bearing(artifacts)]
    return json.dumps({"gates": judgements, "artifacts": artifacts}, indent=1)


def render(readme: str, artifacts: Artifacts) -> str:
    """`readme` with the text between its markers replaced by what the artifacts say."""
    judgements = judged(artifacts)
    readme = between(readme, "failing-evals", failing(judgements))
    return between(readme, "evals", "\n".join(_block(artifacts, judgements)))


def render_live(readme: str, figures: Artifact) -> str:
    """`readme` with what `evals.outage_live` saw between its markers; `figures` is what lies in LIVE."""
    return between(readme, "outage", "\n".join(_live_lines(figures)))


def _live_lines(figures: Artifact) -> Iterator[str]:
    if "gates" not in figures:
        yield f"Not measured: {figures['why']}."
        return
    outage, machine = figures["outage"], figures["machine"]
    gone_s = outage["restarted_s"] - outage["killed_s"]
    yield (
        f"Two llama.cpp servers, {figures['clients']} clients that stream for {figures['seconds']:g} s; the primary is "
        f"killed with SIGKILL at {outage['killed_s']:g} s and started again {gone_s:.1f} s later. "
        f"The gateway's breaker opens after {outage['threshold']} failures, for {outage['cooldown_s']:g} s."
    )
    yield from (
        "",
        f"![streams, waits and the breaker over time]({PICTURE})",
        "",
        "| gate | seen | status |",
        "|---|---|---|",
    )
    for gate in figures["gates"]:
        yield f"| {gate['name']} | {gate['seen']} | {'passed' if gate['passed'] else 'failed'} |"
    yield from (
        "",
        f"`python -m evals.outage_live`; n = {figures['n']}, seed {figures['seed']}; commit {machine['commit']}, "
        f"Python {machine['python']}, {machine['cpus']} CPUs with a load of {machine['load_1m']:g}.",
    )


def _bearing(artifacts: Artifacts) -> list[Gate]:
    """The gates that these artifacts bear on."""
    return [gate for gate in judged(artifacts) if gate.name.partition(".")[0] in artifacts]


def _block(artifacts: Artifacts, judgements: Sequence[Gate]) -> Iterator[str]:
    yield from table(judgements)
    for experiment in _ran(artifacts):
        artifact = artifacts[experiment.NAME]
        yield from ("", f"### {TITLES[experiment.NAME]}", "", *experiment.lines(artifact), "", _provenance(artifact))


def _ran(artifacts: Artifacts) -> list[Experiment]:
    return [experiment for experiment in EXPERIMENTS if experiment.NAME in artifacts]


def _provenance(artifact: Artifact) -> str:
    machine = artifact["machine"]
    seed = f", seed {artifact['seed']}" if "seed" in artifact else ""
    quick = ", a quick run" if artifact["quick"] else ""
    return (
        f"n = {artifact['n']}{seed}{quick}; commit {machine['commit']}, Python {machine['python']}, "
        f"{machine['cpus']} CPUs with a load of {machine['load_average']:g}."
    )
