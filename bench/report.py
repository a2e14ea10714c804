"""The figures as the README shows them: each gate with its bound, what was measured, and its status.

Pure: figures in, Markdown out. A gate that was not measured says so; a gate that failed is listed first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results" / "latest.json"


@dataclass(frozen=True, slots=True)
class Gate:
    """One row: what is bounded, by what, and what was measured (None: not yet)."""

    what: str
    bound: float
    unit: str
    measured: float | None

    @property
    def status(self) -> str:
        if self.measured is None:
            return "not measured"
        return "passed" if self.measured <= self.bound else "failed"

    @property
    def row(self) -> str:
        measured = "-" if self.measured is None else f"{self.measured:g} {self.unit}"
        return f"| {self.what} | {self.bound:g} {self.unit} | {measured} | {self.status} |"


def gates(figures: Mapping[str, Any]) -> list[Gate]:
    """Every gate of the speed table, in its order."""
    normal, full, fsync_us = figures["normal"], figures["full"], figures["fsync_us"]
    bound_full = normal["added_p50_us"] + 2 * fsync_us + 50
    return [
        Gate("added latency, one caller, p50, `normal`", 150, "us", normal["added_p50_us"]),
        Gate("added latency, one caller, p99, `normal`", 400, "us", normal["added_p99_us"]),
        Gate(
            "added latency, one caller, p50, `full` (normal + 2 fsync + 50)",
            round(bound_full),
            "us",
            full["added_p50_us"],
        ),
        Gate("CPU per request, one caller", 200, "us", normal["cpu_us_per_request"]),
        Gate("CPU per request, 32 callers, one CPU", 250, "us", normal["c32_cpu_us_per_request"]),
        Gate("added time to a stream's first byte, one caller, p50", 250, "us", normal["stream_added_ttfb_p50_us"]),
        Gate("p99 with 32 callers", 20, "ms", round(normal["c32_p99_us"] / 1000, 1)),
        Gate("start to first answer", 0.35, "s", normal["start_s"]),
        Gate("memory, idle", 45, "MiB", normal["rss_mib"]),
        Gate("exact-cache hit, against a direct call, one caller, p50", 120, "us", normal["hit_added_p50_us"]),
        Gate(
            "failover after a refused connection, added, one caller, p50",
            1,
            "ms",
            round(normal["failover_added_p50_us"] / 1000, 2),
        ),
        Gate("memory with 500 streams", 90, "MiB", None),
        Gate("requests/s beside other gateways in one run", 1, "x", None),
    ]


def failing(figures: Mapping[str, Any]) -> str:
    """One sentence for the top of the README."""
    failed = [gate.what for gate in gates(figures) if gate.status == "failed"]
    if not failed:
        return "Every gate that was measured passed."
    return "**Gates that fail today:** " + "; ".join(failed) + "."


def table(figures: Mapping[str, Any]) -> str:
    """The gates, and under what conditions they were measured."""
    machine = figures["machine"]
    lines = ["| what | at most | measured | status |", "|---|---|---|---|", *(gate.row for gate in gates(figures))]
    lines += [
        "",
        f"`python -m bench` on {machine['cpus']} shared CPUs, Linux {machine['kernel'].split('-')[0]}, Python "
        f"{machine['python']}, SQLite {machine['sqlite']}, commit {machine['commit']}: medians of "
        f"{figures['repetitions']} repetitions of {figures['seconds']:g} s; one fsync of 4 KiB took "
        f"{figures['fsync_us']:g} us; {figures['normal']['c32_requests_per_s']:.0f} requests/s with 32 callers in "
        f"`normal`, {figures['full']['c32_requests_per_s']:.0f} in `full`.",
    ]
    return "\n".join(lines)


def first_figures(figures: Mapping[str, Any]) -> str:
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
    }
    normal, full = figures["normal"], figures["full"]
    lines = ["| | `normal` | `full` |", "|---|---|---|"]
    lines += [f"| {what} | {normal[name]:g} | {full[name]:g} |" for what, name in rows.items()]
    return "\n".join(lines)


def render(readme: str, figures: Mapping[str, Any]) -> str:
    """`readme` with the text between its markers replaced by what the figures say."""
    return between(between(readme, "failing", failing(figures)), "figures", table(figures))


def render_notes(notes: str, figures: Mapping[str, Any]) -> str:
    """The design notes likewise."""
    return between(notes, "first", first_figures(figures))


def between(document: str, marker: str, text: str) -> str:
    """`document` with `text` between the comments `<!-- marker -->` and `<!-- /marker -->`."""
    begin, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    before, _, rest = document.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n{end}{after}"
