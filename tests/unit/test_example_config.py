"""The documented configuration."""

import unittest

from gateway.config import load_file
from gateway.config_schema import BreakerConfig, CacheConfig, RetryConfig, ServerConfig, StoreConfig
from tests import _paths


class ExampleConfigTest(unittest.TestCase):
    """`gateway.example.toml`."""

    def test_it_loads_without_a_warning_and_shows_the_defaults(self) -> None:
        """What it says of a section is what holds without it; only the budget has no amount then."""
        config = load_file(_paths.ROOT / "gateway.example.toml", {"OPENAI_API_KEY": "sk-x"})
        self.assertEqual(config.warnings, ())
        self.assertEqual((config.server, config.store), (ServerConfig(), StoreConfig()))
        self.assertEqual((config.retry, config.breaker, config.cache), (RetryConfig(), BreakerConfig(), CacheConfig()))
        self.assertEqual(set(config.deployments), {"mini-primary", "strong-primary"})
