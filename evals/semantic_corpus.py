"""The pairs and questions that the semantic cache is measured on; PREREGISTRATION.md has the rubric.

Those that were written for this project lie in evals/data/semantic. Those of others stay where their terms are: beside
the checkout, and in the package fow-cache. What is not there is not measured.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from evals import ROOT
from evals.semantic_sets import Asked, Pair, read_fow, read_pairs, read_stream

VERSION = 1
"""Of the rubric and of the choice of sets; each result also has the digest of every file."""

OWN = Path(__file__).resolve().parent / "data" / "semantic"
BESIDE = ROOT.parent / "shared" / "data" / "semantic"
READINGS = OWN / "readings.json"
"""Hits of the stream whose keys differ and that a person has read as one question, each with the reason."""

FOW_CACHE = "0.1.0"
"""The version whose pairs are measured; the extra [evals] pins it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file of pairs.

    name    what results call the file
    find    where it lies, if it is there
    read    its bytes as pairs; raises BadLine
    origin  how one gets it
    """

    name: str
    find: Callable[[], Path | None]
    read: Callable[[bytes], list[Pair]]
    origin: str


def generated(raw: bytes) -> list[Pair]:
    """The half that no rule was tried on."""
    return [pair for pair in read_pairs("generated_pairs.jsonl", raw) if pair.split == "test"]


def adversarial(raw: bytes) -> list[Pair]:
    """Near-misses that were written against a verifier."""
    return [
        Pair(f"adversarial {number}", a, b, False, "attack", "")
        for number, (a, b) in enumerate(json.loads(raw)["pairs"], start=1)
    ]


def packaged(file: str) -> Path | None:
    """A file of the installed fow-cache, of which nothing is imported; None without that version of it."""
    try:
        package = distribution("fow-cache")
    except PackageNotFoundError:
        return None
    return _there(Path(str(package.locate_file(file)))) if package.version == FOW_CACHE else None


def _there(path: Path) -> Path | None:
    return path if path.is_file() else None


def _own(name: str, read: Callable[[bytes], list[Pair]] | None = None) -> Source:
    return Source(name, lambda: _there(OWN / name), read or partial(read_pairs, name), "is part of the checkout")


def _beside(name: str, read: Callable[[bytes], list[Pair]] | None = None) -> Source:
    origin = "lies beside the checkout, in ../shared/data/semantic"
    return Source(name, lambda: _there(BESIDE / name), read or partial(read_pairs, name), origin)


_FOW = "fow_cache/data/pairs.jsonl"

WRITTEN: Mapping[str, Source] = {
    "generated": _own("generated_pairs.jsonl", generated),
    "near_misses": _own("near_misses.jsonl"),
    "rewordings": _own("rewordings.jsonl"),
}
"""The sets that were written for this project."""

POOLED: Mapping[str, Source] = {
    **WRITTEN,
    "fow": Source(
        name=_FOW,
        find=partial(packaged, _FOW),
        read=partial(read_fow, _FOW),
        origin=f"comes with fow-cache {FOW_CACHE}, which `pip install -e '.[evals]'` installs",
    ),
    "checklist": _beside("checklist_pairs.jsonl"),
}
"""The sets that are also counted together."""

SETS: Mapping[str, Source] = {
    **POOLED,
    "adversarial": _beside("adversarial.json", adversarial),
    "later": _own("later.jsonl"),
}
STREAM = BESIDE / "webquestions_stream.jsonl"


def sets(sources: Mapping[str, Source] = SETS) -> dict[str, list[Pair]]:
    """The pairs that are there, by name of the set. Raises BadLine."""
    found = {name: (source, source.find()) for name, source in sources.items()}
    return {name: source.read(path.read_bytes()) for name, (source, path) in found.items() if path is not None}


def stream() -> list[Asked] | None:
    """The questions of WebQuestions; None if they are not there. Raises BadLine."""
    return read_stream(STREAM.name, STREAM.read_bytes()) if STREAM.exists() else None


def digests(sources: Mapping[str, Source] = SETS) -> dict[str, str]:
    """The first half of the SHA-256 of each file of these sets that is there, by its name."""
    found = {source.name: source.find() for source in sources.values()}
    return {name: _digest(path) for name, path in found.items() if path is not None}


def stream_digest() -> dict[str, str]:
    """The same of the stream."""
    return {STREAM.name: _digest(STREAM)} if STREAM.exists() else {}


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()[:32]


def readings() -> set[tuple[str, str]]:
    """The read hits: the asked question and the stored one, by their ids."""
    entries: list[dict[str, Any]] = json.loads(READINGS.read_text(encoding="utf-8")) if READINGS.exists() else []
    return {(entry["asked"], entry["stored"]) for entry in entries}
