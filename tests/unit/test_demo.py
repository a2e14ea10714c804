"""What runs without a configuration."""

import unittest

from gateway.config import ConfigError, load
from gateway.config_schema import Config
from gateway.demo import OPENAI_URL, demo_config, demo_lines
from gateway.types import Tier

KEY = {"OPENAI_API_KEY": "sk-demo-CANARY"}
COMPATIBLE = KEY | {"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1"}


def demo(env: dict[str, str], *served: str) -> Config:
    """The demo's configuration, loaded as any other."""
    return load(demo_config(env, served), env)


class DemoTest(unittest.TestCase):
    """Every form of the demo is a configuration without a fault."""

    def test_without_a_key_it_is_scripted_in_all_tiers(self) -> None:
        """It answers at once, and its answers cost something."""
        for env in ({}, {"OPENAI_API_KEY": ""}, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}):
            with self.subTest(env):
                config = demo(env)
                self.assertEqual({d.tier for d in config.deployments.values()}, set(Tier))
                self.assertEqual([p.dialect for p in config.providers.values()], ["fake"])
                for deployment in config.deployments.values():
                    entry = deployment.prices.at(0)
                    assert entry is not None
                    self.assertGreater(entry.price.output_pico, 0)

    def test_a_key_alone_means_openai(self) -> None:
        """With list prices in all tiers, whatever else is said of models."""
        for env in (KEY, KEY | {"OPENAI_BASE_URL": ""}, KEY | {"OPENAI_BASE_URL": OPENAI_URL + "/"}):
            with self.subTest(env):
                config = demo(env, "ignored")
                self.assertEqual([p.base_url for p in config.providers.values()], [OPENAI_URL])
                self.assertEqual({d.tier for d in config.deployments.values()}, set(Tier))
                self.assertNotIn("ignored", [d.model for d in config.deployments.values()])

    def test_the_key_is_named_and_never_written(self) -> None:
        """The text of a configuration may be shown."""
        self.assertNotIn("CANARY", demo_config(COMPATIBLE, ("m",)))

    def test_a_compatible_server_serves_its_first_three_models(self) -> None:
        """One per tier; fewer of them serve several, and without a list there is a default."""
        for served, models in {
            ("a", "b", "c", "d"): ["a", "b", "c"],
            ("a", "b"): ["a", "b", "b"],
            ("a",): ["a", "a", "a"],
            (): ["default"] * 3,
        }.items():
            with self.subTest(served):
                config = demo(COMPATIBLE, *served)
                self.assertEqual([d.model for d in config.deployments.values()], models)
                self.assertEqual([d.tier for d in config.deployments.values()], list(Tier))
                self.assertEqual(config.providers["upstream"].base_url, COMPATIBLE["OPENAI_BASE_URL"])

    def test_only_a_server_of_ones_own_is_free(self) -> None:
        """Where nobody has stated a price, the budget is a bound all the same; and what it counts is said."""
        for host, is_free in {
            "127.0.0.1:11434": True,
            "10.1.2.3": True,
            "[::1]:8000": True,
            "localhost": True,
            "ollama:11434": True,
            "llm.example": False,
            "8.8.8.8": False,
            "127.0.0.1.example": False,
            "localhost.example": False,
        }.items():
            with self.subTest(host):
                url = f"http://{host}/v1"
                for deployment in demo(KEY | {"OPENAI_BASE_URL": url}, "gpt-4o-mini").deployments.values():
                    entry = deployment.prices.at(0)
                    assert entry is not None
                    self.assertEqual((entry.price.input_pico, entry.price.output_pico) == (0, 0), is_free)
                said = "\n".join(demo_lines("http://here", "key", url))
                self.assertEqual(("count as free" in said, "counted at 10 USD" in said), (is_free, not is_free))

    def test_nobody_is_told_that_requests_need_no_key(self) -> None:
        """Only an upstream's is not needed."""
        said = "\n".join(demo_lines("http://here", "key", None))
        self.assertIn("no upstream key needed", said)
        self.assertNotIn("no key needed", said)

    def test_what_is_no_base_url_is_a_fault_of_the_configuration(self) -> None:
        """And nothing else is: whatever was typed into the environment."""
        for url in ("http://[::1", "http://[zz]/v1", "http://a b/v1", "here", "http://", "//[", "\x00"):
            with self.subTest(url), self.assertRaises(ConfigError) as raised:
                demo(KEY | {"OPENAI_BASE_URL": url})
            self.assertRegex(str(raised.exception), r"\Aproviders\[0\]\.base_url: .*\Z")

    def test_names_that_no_configuration_may_hold_are_passed_over(self) -> None:
        """A server chooses the names of its models; quotes and backslashes are fine."""
        odd = ("", "日本", "a\nb", "x" * 257, "\U0001f642", "\ud83d", 'quo"ted\\path', "ok")
        self.assertEqual([d.model for d in demo(COMPATIBLE, *odd).deployments.values()], ['quo"ted\\path', "ok", "ok"])
