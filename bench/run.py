"""A whole measurement: everything that is measured runs at once, and is measured in turn, repetition by repetition.

Each repetition begins with another of them, so that what changes on the machine while it lasts hits all alike. What is
idle meanwhile sleeps. A peer that is not there, or does not start, is told of and left out.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import install, own, scale
from bench.machine import fsync_us, machine, rss_mib
from bench.measure import Bench, Figures, at_once, many_streams, repetition, warm_up
from bench.peers import PEERS, Peer
from bench.subject import NotStarted, Subject, started
from bench.tools import Tools, free_port, running, wait_for

CALLERS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    seconds      of one load; of a point of the curve, half as long
    repetitions  of every load; of the streams at once and of the curve, `passes`
    starts       how often our gateway is started, its compiled files being there
    peers        where installed peers lie; None to measure the gateway alone, without curve and scale
    most         the largest size on the axes of scale
    """

    seconds: float
    repetitions: int
    passes: int
    starts: int
    peers: Path | None = None
    most: int = 1_000_000

    @property
    def quick(self) -> bool:
        return self.repetitions == 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One of those that are compared: what the artifact will say of it, and the subject while it runs."""

    about: dict[str, Any]
    subject: Subject


def measure(plan: Plan) -> dict[str, Any]:
    """Everything of a plan, as it lies in the artifact."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, ExitStack() as stack:
        folder = Path(name)
        tools, port = Tools(folder), free_port()
        mock = stack.enter_context(running([str(folder / "mock"), str(port)], folder / "mock.log"))
        wait_for(port)
        bench = Bench(tools, Subject("mock", port, mock.pid), plan.seconds, ())
        figures: dict[str, Any] = {
            "machine": {**machine(), "load_average": round(os.getloadavg()[0], 1)},
            "quick": plan.quick,
            "seconds": plan.seconds,
            "repetitions": plan.repetitions,
            "fsync_us": [],
            "install_mb": install.installed_mb(),
            "subjects": {},
            "scale": {},
        }
        with ExitStack() as compared:
            entries = _start_all(bench, plan, folder, figures["subjects"], compared)
            watched = replace(bench, watched=tuple(entry.subject.pid for entry in entries))
            _measure(watched, plan, entries, lambda: figures["fsync_us"].append(fsync_us(folder)))
        for axis in scale.AXES if plan.peers is not None else ():
            _say(axis.name)
            figures["scale"][axis.name] = scale.measure(bench, axis, folder, plan.repetitions, plan.most)
        return figures


def _start_all(
    bench: Bench, plan: Plan, folder: Path, compared: dict[str, dict[str, Any]], stack: ExitStack
) -> list[Entry]:
    """All that can be compared, until `stack` ends; what is known of each, and of those that cannot, is `compared`."""
    entries = [_start_ours(bench, plan, durability, folder, stack) for durability in own.DURABILITIES]
    compared |= {entry.subject.name: entry.about for entry in entries}
    for peer in PEERS if plan.peers is not None else ():
        entry = _start_peer(bench, peer, plan, folder, stack)
        if isinstance(entry, Entry):
            entries.append(entry)
            compared[peer.name] = entry.about
        else:
            compared[peer.name] = {"ours": False, "note": peer.note, "missing": entry}
    return entries


def _start_ours(bench: Bench, plan: Plan, durability: str, folder: Path, stack: ExitStack) -> Entry:
    _say(f"start, {durability}")
    place = folder / durability
    own.prepare(place, bench.mock.port, durability)
    key = own.create_key(place, own.environment())
    taken: list[float] = []
    for _ in range(plan.starts + 1):
        with own.serving(durability, place, [key]) as (_, started_s):
            taken.append(round(started_s, 3))
    subject, _ = stack.enter_context(own.serving(durability, place, [key]))
    return Entry({"ours": True, "start_s": taken[1:], "rss_mib": rss_mib(subject.pid)}, subject)


def _start_peer(bench: Bench, peer: Peer, plan: Plan, folder: Path, stack: ExitStack) -> Entry | str:
    """The peer, or why it is left out."""
    _say(f"start, {peer.name}")
    installed = plan.peers or folder
    missing = peer.missing(installed)
    if missing is not None:
        return missing
    how = peer.start(installed, folder / peer.name, bench.mock.port)
    try:
        process, started_s = stack.enter_context(started(how))
    except NotStarted as why:
        return f"did not start: {why}"
    subject = Subject(peer.name, how.port, process.pid, headers=how.headers, fixed_model=how.fixed_model)
    about: dict[str, Any] = {"ours": False, "note": peer.note, "release": peer.found(installed)}
    return Entry({**about, "start_s": [round(started_s, 3)], "rss_mib": rss_mib(process.pid)}, subject)


def _measure(bench: Bench, plan: Plan, entries: list[Entry], before_each: Callable[[], None]) -> None:
    """Adds to what is known of each: its runs, its streams and, beside peers, its curve.

    before_each  is called before each repetition
    """
    for entry in entries:
        _say(f"warm-up, {entry.subject.name}")
        warm_up(bench, entry.subject)
    for number in range(plan.repetitions):
        before_each()
        for entry in _turned(entries, number):
            _say(f"repetition {number + 1}, {entry.subject.name}")
            entry.about.setdefault("runs", []).append(repetition(bench, entry.subject))
    for number in range(plan.passes):
        for entry in _turned(entries, number):
            _say(f"streams at once, {entry.subject.name}")
            entry.about.setdefault("streams", []).append(many_streams(bench, entry.subject))
    for entry in entries:
        entry.about["rss_after_mib"] = rss_mib(entry.subject.pid)
    if plan.peers is not None:
        for number in range(plan.passes):
            for callers in CALLERS:
                _say(f"{callers} callers")
                for entry in _turned(entries, number):
                    curve: dict[str, list[Figures]] = entry.about.setdefault("curve", {})
                    curve.setdefault(str(callers), []).append(at_once(bench, entry.subject, callers))


def _turned(entries: list[Entry], number: int) -> list[Entry]:
    """Another begins each time."""
    first = number % len(entries)
    return entries[first:] + entries[:first]


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
