"""Any document at all, as a configuration file."""

import copy
import unittest
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.config import ConfigError, from_mapping, load
from gateway.config_schema import Config
from llmkit.prices import PriceBook
from tests.unit.test_config import ENV, KEY, faults, with_deployment, with_provider

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.decimals(allow_nan=True, allow_infinity=True)
    | st.text(max_size=8)
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.dates()
    | st.times()
    | st.sampled_from(["free", "fake", "primary", "mini", "PRIMARY_KEY", "missing", "2026-01-01T00:00:00Z"])
)
KEYS = st.text(max_size=4) | st.sampled_from(["name", "price", "input", "output", "from", "text", "status", "script"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


def full_document() -> dict[str, Any]:
    """A sound document that uses every kind of section."""
    entry = {"text": "hi", "latency_s": 0, "usage": {"prompt_tokens": 1}}
    dated = {"from": datetime(2026, 1, 1, tzinfo=UTC), "input": 1, "output": Decimal("0.5")}
    fake = {"name": "fake", "dialect": "fake", "script": [entry], "repeat": True}
    strong = {"name": "strong", "provider": "fake", "model": "m", "tier": "strong", "price": [dated]}
    return {
        "server": {"queue": 1, "drain_s": Decimal("0.5")},
        "store": {"durability": "normal", "hold_ttl_s": 5},
        "budget": {"usd": Decimal("0.5"), "window": "day", "wait_s": 0},
        "providers": [*with_provider(api_key_env=["PRIMARY_KEY"])["providers"], fake],
        "deployments": [*with_deployment(price={"input": 1, "output": 2}, supports=["tools"])["deployments"], strong],
        "aliases": [{"name": "fast", "deployments": ["mini", "strong"], "strategy": "weighted", "escalate": True}],
        "tenants": [
            {
                "name": "acme",
                "models": ["gpt-*"],
                "regions": ["eu"],
                "budget_usd": 1,
                "rate_per_s": Decimal("0.5"),
                "burst": 2,
            }
        ],
        "router": {},
        "retry": {"base_s": Decimal("0.1")},
        "breaker": {"threshold": 1},
        "cache": {"exact_ttl_s": 0},
    }


@st.composite
def damaged_documents(draw: st.DrawFn) -> dict[str, Any]:
    """A sound document in which some values, anywhere, are replaced by others."""
    data = full_document()
    for _ in range(draw(st.integers(1, 3))):
        node: Any = data
        while True:
            steps = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not steps:
                break
            step = draw(st.sampled_from(steps))
            if isinstance(node[step], dict | list) and draw(st.booleans()):
                node = node[step]
                continue
            node[step] = draw(VALUES)
            break
    return data


class TotalTest(unittest.TestCase):
    """Reading ends with a configuration or with its faults."""

    def assert_total(self, data: dict[str, Any]) -> None:
        """Reading gives a Config, or faults that are one line each; the document is left alone."""
        before = copy.deepcopy(data)
        try:
            config = from_mapping(data, ENV)
        except ConfigError as error:
            self.assertTrue(error.faults)
            self.assertEqual(str(error).splitlines(), list(error.faults))
            self.assertNotIn(KEY, str(error))
        else:
            self.assertIsInstance(config, Config)
            for deployment in config.deployments.values():
                self.assertIsInstance(deployment.prices, PriceBook)
                self.assertIn(deployment.provider, config.providers)
        self.assertEqual(repr(data), repr(before))

    def test_the_full_document_is_sound(self) -> None:
        """What the damaged ones start from has no fault."""
        self.assertEqual(faults(full_document(), ENV), ())

    @given(damaged_documents())
    def test_any_damage_gives_a_config_or_faults(self, data: dict[str, Any]) -> None:
        """No other exception, whatever stands where."""
        self.assert_total(data)

    @given(st.dictionaries(KEYS | st.sampled_from(sorted(full_document())), VALUES, max_size=5))
    def test_any_document_gives_a_config_or_faults(self, data: dict[str, Any]) -> None:
        """Documents that resemble no configuration at all."""
        self.assert_total(data)

    @given(st.text(max_size=60))
    def test_any_text_gives_a_config_or_faults(self, text: str) -> None:
        """Most of it is not TOML."""
        with self.assertRaises(ConfigError):
            load(text, {})
