"""What the semantic cache serves of the committed pairs, and of others' where they lie beside the checkout.

As the gateway does it: no embedder, its own verifier, nothing of a text that it would not look up. Beside that, what
the verifier alone would let through if every text were looked up.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from evals import semantic_corpus, semantic_replay, semantic_score, semantic_show
from evals.experiment import Artifact, Options
from evals.semantic_judges import ClosedWorld, Judge
from evals.semantic_sets import Asked, Pair

NAME = "semantic_gate"
STREAM = "webquestions"
OTHERS = ("fow", "checklist")
"""Sets whose texts stay where their terms are: results name them by id."""


def run(options: Options) -> Artifact:
    """Every set that is there; a quick run is the whole run. Raises BadLine."""
    del options
    return scored(semantic_corpus.sets(), semantic_corpus.stream(), semantic_corpus.readings())


def scored(
    sets: Mapping[str, Sequence[Pair]], stream: Sequence[Asked] | None, read: set[tuple[str, str]]
) -> dict[str, Any]:
    """What the cache would serve of these sets and this stream; `read` are the hits that a person has read. Pure."""
    judge, bare = ClosedWorld(), ClosedWorld(every_text=True)
    return {
        "n": sum(map(len, sets.values())) + len(stream or ()),
        "corpus": semantic_corpus.VERSION,
        "files": semantic_corpus.digests() | semantic_corpus.stream_digest(),
        "verifier": judge.version,
        "sets": {name: _without_texts(name, semantic_score.told(_judged(sets[name], judge), 0.0)) for name in sets},
        "every_text": {name: [pair.id for pair in _wrong(sets[name], bare)] for name in sets},
        "stream": None if stream is None else _replayed(stream, judge, read),
    }


def _judged(pairs: Sequence[Pair], judge: Judge) -> list[semantic_score.Judged]:
    return semantic_score.judged(pairs, judge, [None] * len(pairs))


def _wrong(pairs: Sequence[Pair], judge: Judge) -> list[Pair]:
    return list(semantic_score.wrong_hits(_judged(pairs, judge), 0.0))


def _replayed(stream: Sequence[Asked], judge: Judge, read: set[tuple[str, str]]) -> dict[str, Any]:
    index = semantic_replay.ByKey([judge.key(asked.text) for asked in stream])
    told = semantic_replay.told(stream, semantic_replay.replay(stream, index, judge))
    differing = [(hit["id"], hit["stored_id"]) for hit in told.pop("wrong_hits")]
    return {
        **told,
        "read": [f"{asked} / {stored}" for asked, stored in differing if (asked, stored) in read],
        "unread": [f"{asked} / {stored}" for asked, stored in differing if (asked, stored) not in read],
    }


def _without_texts(name: str, told: dict[str, Any]) -> dict[str, Any]:
    if name in OTHERS:
        told["wrong_hits"] = [{"id": hit["id"], "kind": hit["kind"]} for hit in told["wrong_hits"]]
    return told


def measured(artifact: Artifact) -> dict[str, float | None]:
    """What the gates look at."""
    sets, stream = artifact["sets"], artifact["stream"]
    generated = sets.get("generated")
    wrong = {name: sets[name]["wrong"] if name in sets else None for name in ("near_misses", *OTHERS, "adversarial")}
    return {
        "semantic_gate.precision": generated and generated["precision"],
        "semantic_gate.recall": generated and generated["recall"],
        "semantic_gate.near_misses": wrong["near_misses"],
        "semantic_gate.fow": wrong["fow"],
        "semantic_gate.checklist": wrong["checklist"],
        "semantic_gate.webquestions": None if stream is None else len(stream["unread"]),
        "semantic_gate.adversarial": wrong["adversarial"],
    }


def lines(artifact: Artifact) -> list[str]:
    """Tables of the sets with every kind, then what was wrong, by name."""
    sets, stream = artifact["sets"], artifact["stream"]
    streams = {} if stream is None else {STREAM: stream}
    rows = [f"Verifier {artifact['verifier']}, corpus {artifact['corpus']}.", ""]
    rows += semantic_show.table(sets | streams)
    rows += ["", *missing(sets), *_told_wrong(sets), f"If every text were looked up: {_slips(artifact['every_text'])}."]
    if stream is not None:
        rows.append(
            f"Of the hits of {STREAM} whose keys differ, {len(stream['read'])} were read and are one question"
            f"{_listed(stream['read'])}, {len(stream['unread'])} count as wrong{_listed(stream['unread'])}."
        )
    refused = {name: told["vetoes"] for name, told in (sets | streams).items()}
    rows += [f"Refused of {name}: {_counts(reasons)}." for name, reasons in refused.items()]
    return rows


def missing(sets: Mapping[str, Any]) -> list[str]:
    """How one gets each set that is not among these."""
    sources = semantic_corpus.SETS.items()
    return [f"Not measured: {name}. {source.name} {source.origin}." for name, source in sources if name not in sets]


def _told_wrong(sets: Mapping[str, Any]) -> list[str]:
    rows = []
    for name, told in sets.items():
        for hit in told["wrong_hits"]:
            texts = f": {hit['asked']!r} / {hit['stored']!r}" if "asked" in hit else ""
            rows.append(f"Wrong in {name}: {hit['id']} ({hit['kind']}){texts}.")
    return rows or ["No near-miss of any set was served."]


def _slips(every_text: Mapping[str, Sequence[str]]) -> str:
    told = [f"{len(slips)} near-misses of {name}{_listed(slips)}" for name, slips in every_text.items() if slips]
    return ", ".join(told) or "no near-miss would be served either"


def _listed(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{why} {count}" for why, count in reasons.items()) or "nothing"
