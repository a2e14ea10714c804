"""Thousands of random usages against an independent recomputation in exact fractions, to the nano-dollar."""

import contextlib
import json
import math
import random
import tempfile
import unittest
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from gateway.config import load
from gateway.engines.sim import SimCaller
from gateway.evidence import Evidence, Reach, assess
from gateway.fake_provider import FakeProvider
from gateway.keys import ShownKey
from gateway.levels import Scope
from llmkit.prices import Price, PriceEntry
from llmkit.types import Usage
from tests.support.world import CONFIG, SimWorld, chat, settle_story

USAGES = 10_000
ESTIMATES = 2_000
REQUESTS = 300
USD_PER_MILLION = {"input": "1", "cached_input": "0.1", "cache_write": "1.25", "output": "4"}
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def exact_nanousd(usd_per_million: dict[str, str], counts: dict[str, int]) -> int:
    """The cost as a person would work it out: each token at its class's price, rounded upward once at the end."""
    cached, written = counts["cached_tokens"], counts["cache_write_tokens"]
    plain = counts["prompt_tokens"] - cached - written
    usd = Fraction(0)
    for tokens, name in (
        (plain if plain > 0 else 0, "input"),
        (cached, "cached_input"),
        (written, "cache_write"),
        (counts["completion_tokens"], "output"),
    ):
        usd += Fraction(tokens) * Fraction(Decimal(usd_per_million[name])) / 1_000_000
    return math.ceil(usd * 1_000_000_000)


def draw_price(source: random.Random) -> dict[str, str]:
    """Any price from nothing to 100 USD per million, with up to six decimals."""
    return {name: f"{source.randrange(10 ** source.randint(1, 8))}e-6" for name in USD_PER_MILLION}


def plain(price: dict[str, str]) -> dict[str, Decimal]:
    """The prices as a configuration holds them."""
    return {name: Decimal(text) for name, text in price.items()}


def draw_counts(source: random.Random) -> dict[str, int]:
    """Any usage of which a provider may be believed, contradictory ones too, with at least one token of each kind."""

    def tokens(least: int = 0) -> int:
        return source.randint(least, 10 ** source.randint(1, 7))

    counts = {"prompt_tokens": tokens(1), "cached_tokens": 0, "cache_write_tokens": 0, "completion_tokens": tokens(1)}
    if source.random() < 0.5:
        counts["cached_tokens"] = source.choice((tokens(), counts["prompt_tokens"]))
    if source.random() < 0.3:
        counts["cache_write_tokens"] = tokens()
    return counts | {"reasoning_tokens": source.randint(0, counts["completion_tokens"])}


def draw_evidence(source: random.Random, usage: Usage | None) -> Evidence:
    """A call that was seen to produce something."""
    return Evidence(
        prompt_bound=source.randint(1, 10**6),
        output_bound=source.randint(1, 10**5),
        reach=Reach.PRODUCED,
        usage=usage,
        deltas=source.randint(0, 10**5),
        output_bytes=source.randint(0, 10**6),
    )


class ChargesTest(unittest.TestCase):
    """What is charged is what the prices say."""

    def test_reported_usage_costs_what_the_prices_say(self) -> None:
        """Whatever else was seen of the call; and it is no estimate."""
        source = random.Random(1)
        for number in range(USAGES):
            price, counts = draw_price(source), draw_counts(source)
            entry = PriceEntry(0, Price.parse(plain(price)), "1")
            usage = Usage(**counts)
            charge = assess(draw_evidence(source, usage), entry, streamed=source.random() < 0.5)
            expected = (exact_nanousd(price, counts), usage, False)
            if (charge.cost_nanousd, charge.usage, charge.estimated) != expected:
                self.fail(f"usage {number}: {counts} at {price} is charged {charge}, expected {expected}")

    def test_an_estimate_is_never_below_what_was_seen(self) -> None:
        """Every count of tokens that fits the bytes costs at most as much."""
        source = random.Random(2)
        for number in range(ESTIMATES):
            price = draw_price(source)
            entry = PriceEntry(0, Price.parse(plain(price)), "1")
            evidence = draw_evidence(source, None)
            charge = assess(evidence, entry, streamed=True)
            seen = source.randint(0, min(evidence.output_bytes or 0, evidence.output_bound))
            possible = Usage(
                prompt_tokens=source.randint(0, evidence.prompt_bound), completion_tokens=max(seen, evidence.deltas)
            )
            least = exact_nanousd(price, asdict(possible))
            if not charge.estimated or charge.cost_nanousd < least:
                self.fail(f"evidence {number}: {evidence} at {price} is charged {charge}, {possible} costs {least}")

    def test_the_whole_ledger_says_so_too(self) -> None:
        """Row by row, and summed up at every level, whole and streamed."""
        source = random.Random(3)
        price = ", ".join(f"{name} = {usd}" for name, usd in USD_PER_MILLION.items())
        config = CONFIG.replace("input = 1, cached_input = 0.1, output = 4", price)
        drawn = [draw_counts(source) for _ in range(REQUESTS)]
        upstream = FakeProvider([{"text": "x", "usage": reported(counts)} for counts in drawn], name="up")
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            world = SimWorld(Path(folder), config=load(config, {}), providers={"up": upstream})
            with contextlib.closing(world):
                raw_key = world.key(None)
                for _ in drawn:
                    body = json.dumps(chat(stream=source.random() < 0.5, max_tokens=10**7)).encode()
                    principal = world.gateway.authenticate(ShownKey.of(raw_key))
                    context = world.gateway.context(principal, body, SimCaller(world.scheduler))
                    settle_story(world.gateway.serve(context))
                expected = [exact_nanousd(USD_PER_MILLION, counts) for counts in drawn]
                rows = world.rows()
                self.assertEqual([row["cost_nanousd"] for row in rows], expected)
                self.assertEqual(
                    [{name: row[name] for name in counts} for row, counts in zip(rows, drawn, strict=True)], drawn
                )
                self.assertFalse(any(row["estimated"] for row in rows))
                for scope, name in ((Scope.KEY, rows[0]["key_id"]), (Scope.TENANT, "acme"), (Scope.GLOBAL, "")):
                    self.assertEqual(world.level(scope, name).spent_nanousd, sum(expected))
                self.assertTrue(world.verify().ok, world.verify().differences)


def reported(counts: dict[str, int]) -> dict[str, Any]:
    """Usage as an upstream reports it."""
    return {
        "prompt_tokens": counts["prompt_tokens"],
        "completion_tokens": counts["completion_tokens"],
        "total_tokens": counts["prompt_tokens"] + counts["completion_tokens"],
        "prompt_tokens_details": {
            "cached_tokens": counts["cached_tokens"],
            "cache_write_tokens": counts["cache_write_tokens"],
        },
        "completion_tokens_details": {"reasoning_tokens": counts["reasoning_tokens"]},
    }
