"""The pairs and questions that the semantic cache is measured on; PREREGISTRATION.md has the rubric.

Those that were written for this project lie in evals/data/semantic, those of others beside the checkout, where their
terms are. What is not there is not measured.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from evals import ROOT
from evals.semantic_sets import Asked, Pair, read_pairs, read_stream

VERSION = 1
"""Of the rubric and of the choice of sets; each result also has the digest of every file."""

OWN = Path(__file__).resolve().parent / "data" / "semantic"
BESIDE = ROOT.parent / "shared" / "data" / "semantic"
READINGS = OWN / "readings.json"
"""Hits of the stream whose keys differ and that a person has read as one question, each with the reason."""


def generated(raw: bytes) -> list[Pair]:
    """The half that no rule was tried on."""
    return [pair for pair in read_pairs("generated_pairs.jsonl", raw) if pair.split == "test"]


def adversarial(raw: bytes) -> list[Pair]:
    """Near-misses that were written against a verifier."""
    return [
        Pair(f"adversarial {number}", a, b, False, "attack", "")
        for number, (a, b) in enumerate(json.loads(raw)["pairs"], start=1)
    ]


def _pairs(name: str) -> Callable[[bytes], list[Pair]]:
    return lambda raw: read_pairs(name, raw)


POOLED: dict[str, tuple[Path, Callable[[bytes], list[Pair]]]] = {
    "generated": (OWN / "generated_pairs.jsonl", generated),
    "near_misses": (OWN / "near_misses.jsonl", _pairs("near_misses.jsonl")),
    "rewordings": (OWN / "rewordings.jsonl", _pairs("rewordings.jsonl")),
    "fow": (BESIDE / "fow_pairs.jsonl", _pairs("fow_pairs.jsonl")),
    "checklist": (BESIDE / "checklist_pairs.jsonl", _pairs("checklist_pairs.jsonl")),
}
"""The sets that are also counted together."""

ATTACKS = {"adversarial": (BESIDE / "adversarial.json", adversarial)}
STREAM = BESIDE / "webquestions_stream.jsonl"


def sets() -> dict[str, list[Pair]]:
    """The pairs that are there, by name of the set. Raises BadLine."""
    every = {**POOLED, **ATTACKS}
    return {name: read(path.read_bytes()) for name, (path, read) in every.items() if path.exists()}


def stream() -> list[Asked] | None:
    """The questions of WebQuestions; None if they are not there. Raises BadLine."""
    return read_stream(STREAM.name, STREAM.read_bytes()) if STREAM.exists() else None


def digests() -> dict[str, str]:
    """The first half of the SHA-256 of each file that is there."""
    paths = [*(path for path, _ in {**POOLED, **ATTACKS}.values()), STREAM]
    return {path.name: sha256(path.read_bytes()).hexdigest()[:32] for path in paths if path.exists()}


def readings() -> set[tuple[str, str]]:
    """The read hits: the asked question and the stored one, by their ids."""
    entries: list[dict[str, Any]] = json.loads(READINGS.read_text(encoding="utf-8")) if READINGS.exists() else []
    return {(entry["asked"], entry["stored"]) for entry in entries}
