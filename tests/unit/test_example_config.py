"""The documented configuration."""

import unittest

from gateway.config import load_file
from gateway.config_schema import ServerConfig, StoreConfig
from tests import _paths


class ExampleConfigTest(unittest.TestCase):
    """`gateway.example.toml`."""

    def test_it_loads_without_a_warning_and_shows_the_defaults(self) -> None:
        """What it says of [server] and [store] is what holds without them."""
        config = load_file(_paths.ROOT / "gateway.example.toml", {"OPENAI_API_KEY": "sk-x"})
        self.assertEqual(config.warnings, ())
        self.assertEqual((config.server, config.store), (ServerConfig(), StoreConfig()))
        self.assertEqual(set(config.deployments), {"mini-primary", "strong-primary"})
