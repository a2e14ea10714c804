"""A request is held and charged at the price of the deployment that serves it, and at no other."""

import contextlib
import tempfile
import unittest
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

from msgspec.structs import replace

from gateway.attempt import Attempt, Upstreams
from gateway.chat import ChatRequest
from gateway.config_schema import Deployment
from tests.sim.test_stories import IN_MEMORY
from tests.support.world import SimWorld, metered_nanousd_at

CONFIG = """
[[providers]]
name = "up"
dialect = "fake"
script = [{ text = "hello there friend" }]
""" + "".join(
    f"""
[[deployments]]
name = "{tier}-one"
provider = "up"
model = "gw-{tier}"
tier = "{tier}"
price = {{ input = {price}, output = {4 * price} }}
"""
    for tier, price in (("cheap", 1), ("standard", 10), ("strong", 100))
)
REQUESTS: dict[str, dict[str, Any]] = {
    "cheap": {"messages": [{"role": "user", "content": "hi"}]},
    "standard": {"messages": [{"role": "user", "content": "long " * 200}]},
    "strong": {"messages": [{"role": "user", "content": "hi"}], "tags": ["math"]},
}


class CheapestPrice(Upstreams):
    """A broken twin: every tier at the price of the first deployment."""

    first: Deployment

    def prepare(self, request: ChatRequest, deployments: Iterable[Deployment], started_ms: int) -> list[Attempt]:
        price = CheapestPrice.first.prices.at(started_ms)
        assert price is not None
        return [replace(attempt, price=price) for attempt in super().prepare(request, deployments, started_ms)]


class TierPriceTest(unittest.TestCase):
    """One request of each tier through `auto`."""

    def check(self) -> None:
        """What was spent is what the upstream meters at the price of the tier that was asked."""
        folder = self.enterContext(tempfile.TemporaryDirectory(dir=IN_MEMORY))
        with contextlib.closing(SimWorld(Path(folder), config=CONFIG)) as world:
            CheapestPrice.first = next(iter(world.config.deployments.values()))
            for tier, fields in REQUESTS.items():
                raw_key = world.key(None)
                world.upstream.calls.clear()
                world.request(raw_key, {"model": "auto", **fields})
                world.run()
                metered = metered_nanousd_at(world.config.deployments[f"{tier}-one"], world.upstream)
                self.assertEqual((world.rows()[-1]["tier"], world.key_level(raw_key).spent_nanousd), (tier, metered))

    def test_each_tier_costs_its_own_price(self) -> None:
        """To the nano-dollar."""
        self.check()

    def test_the_price_of_another_tier_is_noticed(self) -> None:
        """The same check fails for the twin."""
        with mock.patch("tests.support.world.Upstreams", CheapestPrice), self.assertRaises(AssertionError):
            self.check()
