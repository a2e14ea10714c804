"""How long the semantic cache takes from a request's text to a verified hit, with a full partition.

    python -m evals.semantic_speed [--entries 100000] [--lookups 5000] [--seed S] [--require] [--results DIR]

Fills one partition of a cache on a disk with questions, each with an answer in the exact cache, then asks some of them
in other words, drawn at random, so that neither a parse nor a row is met twice. A look-up is everything that a request
takes beyond a miss of the exact cache: whether the question may be looked up at all, its parse, its keys, the row, the
parse of the stored wording, the verdict, and the answer with its checks. Beside it: questions that nobody asked, and
such as are refused unread.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.machine import machine, rss_mib
from evals.report import RESULTS, write
from evals.stats import percentile
from gateway.cache_entry import Entry
from gateway.cache_key import KeyOf, cache_keys
from gateway.clock import RealClock
from gateway.drive import drive
from gateway.exact_cache import MOST_PENDING, ExactCache
from gateway.semantic_cache import SemanticCache

HIT_US = 300.0
"""The median of a verified hit at 100,000 entries; decided before it was measured."""

TTL_S = 86_400.0
MAX_BYTES = 1_000_000_000
TENANT = "acme"
ANSWER = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"%d"},"finish_reason":"stop"}]}'
SYSTEM = {"role": "system", "content": "You are the help desk of a company. Answer shortly. " * 8}
WORDINGS = (
    ("How do I reset the router of office {n}?", "how can I reset the router of office {n}, please"),
    ("What is the phone number of branch {n}?", "please tell me what is the phone number of branch {n}"),
    ("When does shop {n} open on Sunday?", "when does shop {n} open on sunday"),
    ("How do I delete the account of customer {n}?", "How can I remove the account of customer {n}?"),
)
UNKNOWN = "Where is the spare part for machine {n}?"
REFUSED = "What does this mean for order {n}?"


def run(entries: int, lookups: int, seed: int, folder: Path) -> dict[str, Any]:
    """Fill, look up and measure; times in microseconds, memory in MiB, sizes in bytes."""
    draw = random.Random(seed)
    before_mib = rss_mib(os.getpid())
    open_cache = partial(
        ExactCache, ttl_s=TTL_S, max_bytes=MAX_BYTES, clock=RealClock(), draw=lambda: 0.0, on_error=_raise
    )
    answers = open_cache(folder / "cache.db")
    index = open_cache(folder / "words.db", max_partition=entries)
    semantic = SemanticCache(answers, index, ttl_s=TTL_S, clock=RealClock(), on_error=_raise)
    started = time.perf_counter()
    fill(semantic, answers, entries)
    fill_s = time.perf_counter() - started
    chosen = draw.sample(range(entries), min(lookups, entries))
    figures = {
        "entries": semantic.stats()["entries"],
        "lookups": len(chosen),
        "seed": seed,
        "fill_s": round(fill_s, 1),
        "hit_us": times(semantic, [wording(n, other=True) for n in chosen]),
        "unknown_us": times(semantic, [UNKNOWN.format(n=n) for n in chosen]),
        "refused_us": times(semantic, [REFUSED.format(n=n) for n in chosen]),
        "outcomes": {name: count for name, count in semantic.stats()["lookups"].items() if count},
        "rss_growth_mib": round(rss_mib(os.getpid()) - before_mib, 1),
        "index_counted_bytes": semantic.stats()["bytes"],
        "index_file_bytes": (folder / "words.db").stat().st_size,
    }
    semantic.close()
    answers.close()
    return figures


def failures(figures: Mapping[str, Any]) -> list[str]:
    """What is not as it was promised."""
    hits, all_hit = figures["outcomes"].get("hit", 0), figures["lookups"]
    found = [f"{all_hit - hits} of {all_hit} look-ups in other words were no hit"] if hits != all_hit else []
    if figures["hit_us"]["p50"] > HIT_US:
        found.append(f"the median of a hit is {figures['hit_us']['p50']} us, above {HIT_US:g}")
    return found


def fill(semantic: SemanticCache, answers: ExactCache, entries: int) -> None:
    """Let a cache learn so many questions, each with an answer."""
    for number in range(entries):
        messages = messages_of(wording(number, other=False))
        keys = keys_of(messages)
        entry = Entry(TENANT, answers.epoch(TENANT), "mini", "primary", "cheap", ANSWER % number)
        answers.store(keys(messages[-1]), entry, ttl_s=None)
        asked = drive(semantic.ask(messages, TENANT, keys))
        if asked is None:
            raise SystemExit(f"not a question that is looked up: {messages[-1]}")
        semantic.remember(asked)
        if number % (MOST_PENDING // 2) == 0:
            answers.flush()
            semantic.flush()
    answers.flush()
    semantic.flush()


def times(semantic: SemanticCache, texts: Sequence[str]) -> dict[str, float]:
    """Quantiles of a look-up of each text."""
    spent_us = []
    for text in texts:
        messages = messages_of(text)
        keys = keys_of(messages)
        started = time.perf_counter()
        asked = drive(semantic.ask(messages, TENANT, keys))
        if asked is not None:
            drive(semantic.find(asked, serve=True))
        spent_us.append((time.perf_counter() - started) * 1e6)
    return {name: round(percentile(spent_us, share), 1) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}


def wording(number: int, *, other: bool) -> str:
    """The question of this number, as it was asked first, or in other words."""
    return WORDINGS[number % len(WORDINGS)][other].format(n=number)


def messages_of(text: str) -> list[dict[str, Any]]:
    """The messages of a request that asks `text`."""
    return [SYSTEM, {"role": "user", "content": text}]


def keys_of(messages: Sequence[Mapping[str, Any]]) -> KeyOf:
    """Where its answer is kept."""
    body = {"model": "fast", "temperature": 0, "max_tokens": 256, "messages": messages}
    route = ["fast", "cheap", "gpt-4o-mini"]
    return cache_keys(tenant=TENANT, epoch=0, route=route, permissions=None, prompt_version=None, body=body)


def _raise(error: BaseException) -> None:
    raise error


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write the artifact, print it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m evals.semantic_speed", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--entries", type=int, default=100_000, help="in the partition")
    parser.add_argument("--lookups", type=int, default=5_000, help="of each kind")
    parser.add_argument("--seed", type=int, default=7, help="of what is looked up")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the artifact goes")
    parser.add_argument("--require", action="store_true", help="exit 1 if it is not as promised")
    arguments = parser.parse_args(argv)
    about = {"machine": {**machine(), "load_average": round(os.getloadavg()[0], 1)}}
    with tempfile.TemporaryDirectory(prefix="semantic-speed-") as folder:
        figures = about | run(arguments.entries, arguments.lookups, arguments.seed, Path(folder))
    arguments.results.mkdir(parents=True, exist_ok=True)
    write(arguments.results / "semantic_speed.json", figures)
    failed = failures(figures)
    told = (f"{name:<20} {value}" for name, value in figures.items())
    print("\n".join([*told, *(f"failed: {fault}" for fault in failed)]))
    return 1 if failed and arguments.require else 0


if __name__ == "__main__":
    sys.exit(main())
