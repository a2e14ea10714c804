"""The figures as people read them: each gate with its bound and status, the peers side by side, what grows.

render(), render_notes() and lines() are pure: figures in, Markdown out. Everything that is shown follows from the
artifact. A gate that failed is named first.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gates import NOT_MEASURED, Figures, Gate, Spread, gates, growth_ratio, number, of, spread
from bench.own import DURABILITIES
from bench.tools import ROOT

RESULTS = Path(__file__).resolve().parent / "results" / "latest.json"
SOAK = ROOT / "evals" / "results" / "soak.json"
PICTURES: Mapping[str, str] = {
    "concurrency.png": "latency and throughput over the number of callers",
    "scale.png": "latency over ledger rows, cached answers, keys and tenants",
}
ABSENT = "-"


def load() -> dict[str, Any]:
    """The committed artifact."""
    return dict(json.loads(RESULTS.read_text(encoding="utf-8")))


def write(path: Path, figures: Figures) -> None:
    """JSON for people and for `git diff`: one line for each repetition."""
    text = json.dumps(figures, indent=1)
    flat = re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda match: " ".join(match[0].split()), text)
    path.write_text(flat + "\n", encoding="utf-8")


def growth() -> dict[str, Any]:
    """How memory grew in the committed soak, and of which commit that was; None if it was not long enough."""
    # late: evals look at this package's reports, and this is the one thing that it reads of theirs
    from evals.soak_report import rss_growth_mib

    if not SOAK.exists():
        return {"mib": None, "commit": None}
    soak = json.loads(SOAK.read_text(encoding="utf-8"))
    return {"mib": rss_growth_mib(soak["samples"]), "commit": soak["machine"]["commit"]}


def write_documents(figures: Figures) -> None:
    """Put the figures between their markers in the README and the design notes."""
    for name, render_one in (("README.md", render), ("DESIGN_NOTES.md", render_notes)):
        document = ROOT / name
        document.write_text(render_one(document.read_text(encoding="utf-8"), figures), encoding="utf-8")


def lines(figures: Figures) -> Iterator[str]:
    """The whole result as lines of Markdown: the gates, the machine, the peers, what grows."""
    yield from table(gates(figures))
    yield ""
    yield conditions(figures)
    if any(not about["ours"] for about in figures["subjects"].values()):
        yield ""
        yield from beside(figures)
    if figures["scale"]:
        yield ""
        yield from grown(figures)


def table(judged: Sequence[Gate]) -> Iterator[str]:
    """One row for each gate."""
    yield "| what | bound | aim | measured (least to most) | status |"
    yield "|---|---|---|---|---|"
    yield from (gate.row for gate in judged)


def conditions(figures: Figures) -> str:
    """One paragraph: the machine, and how much was measured."""
    machine = figures["machine"]
    foreign = spread_of(
        [run["foreign_cpus"] for about in figures["subjects"].values() for run in about.get("runs", ())]
    )
    return (
        f"`python -m bench` on {machine['cpus']} CPUs ({machine['cpu']}), {machine['memory_gib']:g} GiB, Linux "
        f"{machine['kernel'].split('-')[0]}, Python {machine['python']}, SQLite {machine['sqlite']}, commit "
        f"{machine['commit']}: medians of {figures['repetitions']} repetitions of {figures['seconds']:g} s; one fsync "
        f"of 4 KiB took {spread_of(figures['fsync_us']).text('us')}; others used {number(foreign.median)} CPUs "
        f"meanwhile, {number(foreign.most)} at the most."
    )


def spread_of(values: Sequence[float]) -> Spread:
    """The spread of at least one value."""
    known = spread(values)
    if known is None:
        raise ValueError("nothing was measured")
    return known


def beside(figures: Figures) -> Iterator[str]:
    """Everything that was compared, one row each, and why a peer is not there."""
    yield (
        "| | added, one caller, p50 / p99 | CPU per request | requests/s, 32 callers | of ours | p99 | 20-event "
        "streams/s | added to a stream's first byte | 500 streams: complete, first byte p99 | start | memory idle / "
        "after / with 500 streams | wrong |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for name, about in figures["subjects"].items():
        if "runs" in about:
            yield _row(figures, name, about)
    yield ""
    yield from _notes(figures)


def _row(figures: Figures, name: str, about: Mapping[str, Any]) -> str:
    def median(figure: str, unit: str, factor: float = 1, part: str = "runs") -> str:
        known = of(figures, name, figure, part)
        return f"{number(known.median * factor)} {unit}".strip() if known else ABSENT

    ours = of(figures, "normal", "c32_requests_per_s")
    rate = of(figures, name, "c32_requests_per_s")
    against = f"{number(rate.median / ours.median)} x" if rate and ours and ours.median else ABSENT
    cells = (
        f"**{name}**" if about["ours"] else f"{name} {about['release']}",
        f"{median('added_p50_us', '')} / {median('added_p99_us', 'us')}",
        median("cpu_us_per_request", "us"),
        rate.text() if rate else ABSENT,
        against,
        median("c32_p99_us", "ms", 1e-3),
        median("c32_streams_per_s", ""),
        median("stream_added_ttfb_p50_us", "us"),
        f"{median('streams_complete', '', part='streams')}, {median('streams_ttfb_p99_us', 'ms', 1e-3, 'streams')}",
        f"{number(spread_of(about['start_s']).median)} s",
        f"{about['rss_mib']:.0f} / {about['rss_after_mib']:.0f} / {median('streams_rss_mib', 'MiB', part='streams')}",
        number(sum(run["bad"] for run in about["runs"])),
    )
    return f"| {' | '.join(cell.strip() for cell in cells)} |"


def _notes(figures: Figures) -> Iterator[str]:
    subjects = figures["subjects"]
    said = [f"{name}: {about['note']}" for name, about in subjects.items() if "note" in about]
    yield f"Not one of the others keeps a durable budget. {'; '.join(said)}. Ours runs on one CPU, the others on all."
    absent = [f"{name}: {about['missing']}" for name, about in subjects.items() if "missing" in about]
    if absent:
        yield f"Not measured: {'; '.join(absent)}."


def grown(figures: Figures) -> Iterator[str]:
    """What a request costs at each size, one row for each axis."""
    yield "| as these grow | one caller, p50 at each size | largest against smallest |"
    yield "|---|---|---|"
    for axis, runs in figures["scale"].items():
        sizes = sorted(runs, key=int)
        each = [
            f"{int(size):,}: {number(spread_of([run['p50_us'] for run in runs[size]]).median)} us" for size in sizes
        ]
        against = growth_ratio(runs, "p50_us")
        yield f"| {axis} | {', '.join(each)} | {against.text('x') if against else ABSENT} |"


def failing(figures: Figures) -> str:
    """One sentence for the top of the README: how many, and which."""
    measured = [gate for gate in gates(figures) if gate.status != NOT_MEASURED]
    failed = [gate.what for gate in measured if gate.status == "failed"]
    if not failed:
        return "Every gate that was measured passed."
    named = "; ".join(_together(failed))
    return f"**Speed: {len(failed)} of {len(measured)} gates fail today** ([their numbers](#numbers)): {named}."


def _together(names: Iterable[str]) -> Iterator[str]:
    """What differs in one figure alone, under the name of what is measured."""
    cases: dict[str, list[str]] = {}
    for name in names:
        subject, _, case = name.partition(", ")
        cases.setdefault(subject, []).extend([case] if case else [])
    return (f"{subject} ({' / '.join(of_it)})" if of_it else subject for subject, of_it in cases.items())


def first_figures(figures: Figures) -> Iterator[str]:
    """Both durabilities side by side."""
    rows = {
        "added p50, us": "added_p50_us",
        "added p99, us": "added_p99_us",
        "CPU per request, us": "cpu_us_per_request",
        "added time to a stream's first byte, us": "stream_added_ttfb_p50_us",
        "exact-cache hit against a direct call, p50, us": "hit_added_p50_us",
        "failover after a refused connection, added p50, us": "failover_added_p50_us",
        "requests/s with 32 callers": "c32_requests_per_s",
        "CPU per request with 32 callers, us": "c32_cpu_us_per_request",
        "20-event streams/s with 32 callers": "c32_streams_per_s",
    }
    yield f"| | {' | '.join(f'`{each}`' for each in DURABILITIES)} |"
    yield f"|---|{'---|' * len(DURABILITIES)}"
    for what, name in rows.items():
        cells = [of(figures, durability, name) for durability in DURABILITIES]
        yield f"| {what} | {' | '.join(cell.text() if cell else ABSENT for cell in cells)} |"


def render(readme: str, figures: Figures) -> str:
    """`readme` with the text between its markers replaced by what the figures say."""
    pictures = [f"![{says}](bench/results/{name})" for name, says in PICTURES.items()] if figures["scale"] else []
    shown = [*lines(figures), *(["", *pictures] if pictures else [])]
    return between(between(readme, "failing", failing(figures)), "figures", "\n".join(shown))


def render_notes(notes: str, figures: Figures) -> str:
    """The design notes likewise."""
    return between(notes, "first", "\n".join(first_figures(figures)))


def between(document: str, marker: str, text: str) -> str:
    """`document` with `text` between the comments `<!-- marker -->` and `<!-- /marker -->`."""
    begin, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    before, _, rest = document.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n{end}{after}"
