"""The results as people read them: a summary for the terminal, the gates for the README, all tables for RESULTS.md.

Pure but for load(). Everything that is shown follows from the artifacts and the preregistration; a gate without an
artifact is not measured.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.report import between
from evals import (
    ROOT,
    concurrency,
    overhead,
    overload_report,
    retries,
    router,
    runaway,
    scenarios,
    semantic_gate,
    semantic_report,
    soak_full_report,
    soak_report,
    waterfall,
)
from evals.experiment import Artifact, Experiment, LongRun
from evals.gates import PREREGISTRATION, Gate, gates
from evals.labels import LABELS, LONG_LABELS

RESULTS = Path(__file__).resolve().parent / "results"
DETAILS = RESULTS / "RESULTS.md"
LIVE = RESULTS / "outage_live.json"
PICTURE = "evals/results/outage_live.png"
EXPERIMENTS: tuple[Experiment, ...] = (
    *(overhead, concurrency, scenarios, router, waterfall, runaway, retries),
    semantic_gate,
)
TITLES = {
    "overhead": "What is added to a call",
    "concurrency": "Crowds",
    "scenarios": "Outages",
    "router": "The router",
    "waterfall": "Savings",
    "runaway": "A loop that runs away",
    "retries": "Retries in an outage",
    "semantic_gate": "The semantic cache",
}
LONG: Mapping[str, LongRun] = {
    "soak": soak_report,
    "soak_full": soak_full_report,
    "overload": overload_report,
    "semantic_cache": semantic_report,
}
"""Runs by themselves: `python -m evals.NAME`."""

Artifacts = Mapping[str, Artifact]
"""By name of the eval."""


_LIST = re.compile(r"\[[^\[\]{}]*\]")


def write(path: Path, artifact: object) -> None:
    """JSON for people and for `git diff`: one line per entry, lists of numbers on one."""
    text = json.dumps(artifact, indent=1)
    path.write_text(_LIST.sub(lambda match: " ".join(match[0].split()), text) + "\n", encoding="utf-8")


def load(folder: Path = RESULTS) -> dict[str, Artifact]:
    """The artifacts of these evals that lie there."""
    paths = {name: folder / f"{name}.json" for name in TITLES}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()}


def load_long(folder: Path = RESULTS) -> dict[str, Artifact]:
    """The artifacts of long runs that lie there."""
    paths = {name: folder / f"{name}.json" for name in LONG}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()}


def judged(artifacts: Artifacts) -> list[Gate]:
    """Every gate of the preregistration, held against the artifacts."""
    measured: dict[str, float | None] = {}
    for experiment in _ran(artifacts):
        measured |= experiment.measured(artifacts[experiment.NAME])
    return gates(PREREGISTRATION.read_text(encoding="utf-8"), measured)


def failing(judgements: Sequence[Gate]) -> str:
    """One sentence for the top of the README: how many, and which, each with its number."""
    failures = [gate.failures for gate in judgements if gate.status == "failed"]
    failed = [f"{_label(gate)} ({gate.measured}; bound {gate.bound})" for gate in failures]
    if not failed:
        return "Every eval that was run passed its gates."
    measured = sum(gate.status != "not measured" for gate in judgements)
    return f"**Evals: {len(failed)} of {measured} gates fail today:** {'; '.join(failed)}."


def regressions(before: Artifacts, now: Artifacts) -> list[str]:
    """Gates that passed before and fail now, but for those that a busy machine alone can change."""
    passed = {gate.name for gate in judged(before) if gate.status == "passed"}
    return [name for name in failed_firmly(judged(now)) if name in passed]


def failed_firmly(judgements: Sequence[Gate]) -> list[str]:
    """Names of the gates that failed, but for those that a busy machine alone can change."""
    return [
        gate.name for gate in judgements if gate.status == "failed" and gate.checks[0].unit not in ("us", "ms", "s")
    ]


def table(judgements: Sequence[Gate]) -> list[str]:
    """A Markdown table of gates, one row each, in words and in brief."""
    rows = [f"| {_cells(gate.brief)} |" for gate in judgements]
    return ["| gate | bound | measured | status |", "|---|---|---|---|", *rows]


def summary(artifacts: Artifacts) -> str:
    """All that was run: each eval with its details, then every gate that it bears on, then the verdict."""
    lines: list[str] = []
    for experiment in _ran(artifacts):
        artifact = artifacts[experiment.NAME]
        lines += [f"# {TITLES[experiment.NAME]} ({_provenance(artifact)})", *experiment.lines(artifact), ""]
    judgements = _bearing(artifacts)
    lines += ["# Gates", *table(judgements), "", f"{_counts(judgements)}."]
    return "\n".join([*lines, failing(judgements)])


def as_json(artifacts: Artifacts) -> str:
    """The same for programs."""
    judgements = [{"status": gate.status, **asdict(gate)} for gate in _bearing(artifacts)]
    return json.dumps({"gates": judgements, "artifacts": artifacts}, indent=1)


def render(readme: str, artifacts: Artifacts, long_runs: Artifacts) -> str:
    """`readme` with the text between its markers replaced by the gates, as the artifacts have them."""
    judgements = judged(artifacts)
    details = DETAILS.relative_to(ROOT).as_posix()
    block = [
        *table(judgements),
        "",
        f"Of {len(judgements)} gates: {_counts(judgements)}. [RESULTS.md]({details}) has each number with its bound, "
        "the tables of each eval, and the conditions under which they were measured.",
    ]
    long_judgements = [gate for name, figures in long_runs.items() for gate in LONG[name].gates(figures)]
    readme = between(readme, "failing-evals", failing([*judgements, *long_judgements]))
    for name, figures in long_runs.items():
        readme = between(readme, name, "\n".join(_long_brief(name, figures)))
    if waterfall.NAME in artifacts:
        readme = between(readme, waterfall.NAME, "\n".join(_savings(artifacts[waterfall.NAME])))
    return between(readme, "evals", "\n".join(block))


def _savings(artifact: Artifact) -> Iterator[str]:
    """The steps down to the semantic cache; the other workload is in DETAILS."""
    yield from waterfall.told(artifact, "in_other_words")
    yield from ("", *waterfall.told_wrong(artifact), "", _provenance(artifact))


def render_details(artifacts: Artifacts, long_runs: Artifacts) -> str:
    """The whole of DETAILS: for each eval its own tables, its provenance, and its gates, number by number."""
    told = [
        line
        for name, figures in long_runs.items()
        for line in ("", f"## {LONG[name].TITLE}", "", *long_lines(name, figures))
    ]
    return "\n".join([*_details(artifacts), *told]) + "\n"


def long_lines(name: str, figures: Artifact) -> list[str]:
    """A long run in full: what it shows of itself, its provenance, and its gates."""
    run = LONG[name]
    rows = [f"| `{gate.name}` | {_cells(gate)} |" for gate in run.gates(figures)]
    head = ("| name | gate | bound | measured | status |", "|---|---|---|---|---|")
    return [*run.lines(figures), "", _provenance(figures), "", *head, *rows]


def _long_brief(name: str, figures: Artifact) -> Iterator[str]:
    """A long run in brief, with what does not hold."""
    run = LONG[name]
    judgements = run.gates(figures)
    yield from run.summary(figures)
    for picture, shows in run.PICTURES.items():
        yield from ("", f"![{shows}]({picture})")
    rest = [gate for gate in judgements if gate.status != "passed"]
    told = "; ".join(f"{gate.status}: {_label(gate)} ({gate.measured}; bound {gate.bound})" for gate in rest)
    details = DETAILS.relative_to(ROOT).as_posix()
    yield from (
        "",
        f"Of {len(judgements)} gates: {_counts(judgements)}{f' ({told})' if told else ''}. `{run.COMMAND}`; "
        f"each number with its bound is in [RESULTS.md]({details}). {_provenance(figures)}",
    )


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


def _details(artifacts: Artifacts) -> Iterator[str]:
    yield "# Results of the evals, rendered from the artifacts in this folder"
    yield from (
        "",
        "`python -m evals --readme` writes this file; a test compares the two. The bounds and their reasons were",
        "[written down before](../PREREGISTRATION.md).",
    )
    for experiment in _ran(artifacts):
        artifact = artifacts[experiment.NAME]
        yield from ("", f"## {TITLES[experiment.NAME]}", "", *experiment.lines(artifact), "", _provenance(artifact), "")
        yield from ("| name | gate | bound | measured | status |", "|---|---|---|---|---|")
        for gate in _bearing({experiment.NAME: artifact}):
            yield from (f"| `{gate.name}` | {_cells(single)} |" for single in gate.singly)


def _cells(gate: Gate) -> str:
    return f"{_label(gate)} | {gate.bound} | {gate.measured} | {gate.status}"


def _label(gate: Gate) -> str:
    name = gate.name
    return LABELS[name] if name in LABELS else f"{name.partition('.')[0]}: {LONG_LABELS[name]}"


def _counts(judgements: Sequence[Gate]) -> str:
    counts = Counter(gate.status for gate in judgements)
    return ", ".join(f"{counts[status]} {status}" for status in ("passed", "failed", "not measured"))


def _ran(artifacts: Artifacts) -> list[Experiment]:
    return [experiment for experiment in EXPERIMENTS if experiment.NAME in artifacts]


def _provenance(artifact: Artifact) -> str:
    machine = artifact["machine"]
    seed = f", seed {artifact['seed']}" if "seed" in artifact else ""
    quick = ", a quick run" if artifact.get("quick") else ""
    return (
        f"n = {artifact['n']}{seed}{quick}; commit {machine['commit']}, Python {machine['python']}, "
        f"{machine['cpus']} CPUs with a load of {machine['load_average']:g}."
    )
