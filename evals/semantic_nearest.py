"""How long it takes to find the nearest learnt questions, off the request's path; and what requests notice of it.

    python -m evals.semantic_nearest [--entries 10000 100000] [--lookups 300] [--seed S] [--require] [--results DIR]

Fills one group of one partition with questions that no mark tells apart, which is the worst case: each is looked at.
Then searches for some of them in other words, slice by slice, as the judging thread does: how long a search works, how
long it works without letting other threads on, what is handed over on the request's own thread, and what the index
takes of memory. Beside it verified hits on another thread, with the judging thread idle and at work without a break.
"""

import argparse
import itertools
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.machine import machine, rss_mib
from evals import semantic_speed as speed
from evals.report import RESULTS, write
from evals.stats import percentile
from gateway.clock import RealClock
from gateway.drive import drive
from gateway.exact_cache import ExactCache
from gateway.judging import BREATH_S, Judge, Judging
from gateway.nearest import Nearest
from gateway.semantic.grey import mark
from gateway.semantic.verifier import read
from gateway.semantic_cache import SemanticCache
from llmkit.embed import HashEmbedder

LEAST = 0.6
"""The cosine from which on a judge is asked, as configured by default."""

HANDED_OVER_US = 5_000.0
"""What a request may wait for the judge's sake, in 99 of 100 cases; decided before it was measured."""

EXACT = 20
"""Searches whose nearest is looked for among all, too."""

HITS = 300
GROUP = b"g" * 16


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_VERBS = _words(
    "move clean paint open close lift carry fix store wrap wash dry heat cool fold pack sort label weigh ship"
)
_KINDS = _words(
    "small large green blue round flat heavy light broken empty wooden metal plastic paper glass"
    " old new tiny rusty dusty plain wet"
)
_THINGS = _words("lamp table chair box shelf desk cup plate bowl door carpet mirror clock bag vase crate ladder")
_PLACES = _words("kitchen cellar garden garage hall attic office barn shed loft porch studio chapel tower")


def run(entries: int, lookups: int, seed: int) -> dict[str, Any]:
    """Fill, search and measure one size; times in microseconds, memory in bytes."""
    draw = random.Random(seed)
    embedder = HashEmbedder()
    texts = _texts(entries, draw)
    if len({mark(read(text)) for text in texts[:200]}) != 1:
        raise SystemExit("the questions have several marks: this would not be the worst case")
    before_mib = rss_mib(os.getpid())
    index: Nearest[str] = Nearest(embedder.dim, 1 << 40)
    started = time.perf_counter()
    for text in texts:
        index.put(GROUP, text, embedder.embed([text])[0], text)
    put_us = (time.perf_counter() - started) / entries * 1e6
    resident = (rss_mib(os.getpid()) - before_mib) * 2**20
    whole_us, held_us, firsts, found = [], [], [], 0
    chosen = draw.sample(texts, lookups)
    vectors = embedder.embed([f"please, {text.lower()}" for text in chosen])
    for text, vector in zip(chosen, vectors, strict=True):
        near, spent_us = _search(index, vector)
        whole_us.append(sum(spent_us))
        held_us += spent_us
        firsts.append(near[0] if near else "")
        found += text in near
    nearest = _nearest(texts, vectors[:EXACT], embedder)
    missed = sum(first != best for first, best in zip(firsts, nearest, strict=False))
    return {
        "entries": index.entries,
        "searches": lookups,
        "put_us": round(put_us, 1),
        "search_us": _quantiles(whole_us),
        "without_a_pause_us": _quantiles(held_us),
        "found_its_own": found,
        "nearest_missed": f"{missed} of {min(EXACT, lookups)}",
        "counted_bytes_each": round(index.bytes / entries),
        "resident_bytes_each": round(resident / entries),
        **_beside(index, texts, draw),
    }


def failures(size: dict[str, Any]) -> list[str]:
    """What is not as it was promised."""
    found = []
    if size["handed_over_us"]["p99"] > HANDED_OVER_US:
        found.append(f"a request waited {size['handed_over_us']['p99']} us for the judge's sake")
    if size["found_its_own"] < size["searches"]:
        found.append(f"{size['searches'] - size['found_its_own']} questions did not find their other wording")
    if size["counted_bytes_each"] < size["resident_bytes_each"]:
        found.append("the index takes more memory than it counts")
    return found


def _texts(count: int, draw: random.Random) -> list[str]:
    every = list(itertools.product(_VERBS, _KINDS, _THINGS, _PLACES))
    if count > len(every):
        raise SystemExit(f"there are {len(every)} questions")
    return [f"How do I {a} the {b} {c} in the {d}?" for a, b, c, d in draw.sample(every, count)]


def _search(index: Nearest[str], vector: Sequence[float]) -> tuple[list[str], list[float]]:
    """What is near, nearest first; and how long each slice took."""
    search, spent_us = index.search(GROUP, vector, LEAST), []
    while True:
        started = time.perf_counter()
        try:
            next(search)
        except StopIteration as done:
            spent_us.append((time.perf_counter() - started) * 1e6)
            return [near.item for near in done.value], spent_us
        spent_us.append((time.perf_counter() - started) * 1e6)


def _nearest(texts: Sequence[str], vectors: Sequence[Sequence[float]], embedder: HashEmbedder) -> list[str]:
    """The nearest text to each vector, by whole vectors of all."""
    told = [[(place, value) for place, value in enumerate(vector) if value] for vector in vectors]
    best = [(-1.0, "")] * len(told)
    for text in texts:
        (other,) = embedder.embed([text])
        cosines = [sum(value * other[place] for place, value in each) for each in told]
        best = [max(known, (cosine, text)) for known, cosine in zip(best, cosines, strict=True)]
    return [text for _, text in best]


def _beside(index: Nearest[str], texts: Sequence[str], draw: random.Random) -> dict[str, Any]:
    """Verified hits of another thread, and what a request itself does for the judge."""
    with tempfile.TemporaryDirectory(prefix="semantic-nearest-") as folder:
        opened = partial(ExactCache, ttl_s=3600, max_bytes=1 << 28, clock=RealClock(), draw=float, on_error=_raise)
        answers, words = opened(Path(folder) / "cache.db"), opened(Path(folder) / "words.db")
        semantic = SemanticCache(answers, words, ttl_s=3600, clock=RealClock(), on_error=_raise)
        judging = Judging(
            semantic, HashEmbedder(), queue=1 << 16, max_bytes=1 << 40, clock=RealClock(), draw=float, on_error=_raise
        )
        try:
            speed.fill(semantic, answers, HITS)
            asked_again = [speed.wording(number, other=True) for number in range(HITS)]
            idle = speed.times(semantic, asked_again)
            over = threading.Event()
            worker = threading.Thread(target=_work, args=(index, texts, over, draw))
            worker.start()
            busy = speed.times(semantic, asked_again)
            over.set()
            worker.join()
            handed_us = _handed_over(judging, semantic)
        finally:
            judging.close()
            semantic.close()
            answers.close()
    return {"hit_idle_us": idle, "hit_while_searching_us": busy, "handed_over_us": handed_us}


def _work(index: Nearest[str], texts: Sequence[str], over: threading.Event, draw: random.Random) -> None:
    """Search without an end, letting others on as the judging thread does."""
    embedder = HashEmbedder()
    while True:
        (vector,) = embedder.embed([draw.choice(texts)])
        for _ in index.search(GROUP, vector, LEAST):
            if over.wait(BREATH_S):
                return


def _handed_over(judging: Judging, semantic: SemanticCache) -> dict[str, float]:
    """What a request does for the judge, on its own thread, while the judging thread is at work."""
    judge = Judge("judge", "judge", LEAST, 1.0, 1, 0.0, _never_asked)
    spent_us = []
    for number in range(HITS):
        messages = speed.messages_of(speed.wording(number, other=False))
        asked = drive(semantic.ask(messages, speed.TENANT, speed.keys_of(messages)))
        if asked is None:
            raise SystemExit(f"not a question that is looked up: {messages[-1]}")
        digest = asked.digest_of(asked.question.text)
        started = time.perf_counter()
        judging.learn(asked, digest, judge)
        spent_us.append((time.perf_counter() - started) * 1e6)
    judging.flush()
    return _quantiles(spent_us)


def _never_asked(*_: object) -> dict[str, Any]:
    return {}


def _quantiles(spent_us: Sequence[float]) -> dict[str, float]:
    return {name: round(percentile(spent_us, share), 1) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}


def _raise(error: BaseException) -> None:
    raise error


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write the artifact, print it; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m evals.semantic_nearest", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--entries", type=int, nargs="+", default=[10_000, 100_000], help="in the group, size by size")
    parser.add_argument("--lookups", type=int, default=300, help="of each size")
    parser.add_argument("--seed", type=int, default=7, help="of what is asked")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the artifact goes")
    parser.add_argument("--require", action="store_true", help="exit 1 if it is not as promised")
    arguments = parser.parse_args(argv)
    figures: dict[str, Any] = {"machine": {**machine(), "load_average": round(os.getloadavg()[0], 1)}}
    figures["sizes"] = [run(entries, arguments.lookups, arguments.seed) for entries in arguments.entries]
    arguments.results.mkdir(parents=True, exist_ok=True)
    write(arguments.results / "semantic_nearest.json", figures)
    failed = [fault for size in figures["sizes"] for fault in failures(size)]
    for size in figures["sizes"]:
        print("\n".join([*(f"{name:<24} {value}" for name, value in size.items()), ""]))
    print("\n".join(f"failed: {fault}" for fault in failed))
    return 1 if failed and arguments.require else 0


if __name__ == "__main__":
    sys.exit(main())
