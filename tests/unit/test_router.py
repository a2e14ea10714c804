"""Which tier `auto` means, and which deployments a name leads to."""

import unittest
from typing import Any

from gateway.config import load
from gateway.errors import ModelNotFound
from gateway.router import LONG_TEXT_CHARS, Catalog, route
from gateway.types import Tier

PROVIDER = '[[providers]]\nname = "up"\ndialect = "fake"\nscript = [{ text = "x" }]\n'


def deployment(name: str, model: str, tier: str = "cheap") -> str:
    """One deployment as TOML."""
    return (
        f'[[deployments]]\nname = "{name}"\nprovider = "up"\nmodel = "{model}"\ntier = "{tier}"\n'
        "price = { input = 1, output = 4 }\n"
    )


def alias(name: str, *deployments: str) -> str:
    """One alias as TOML."""
    return f'[[aliases]]\nname = "{name}"\ndeployments = {list(deployments)!r}\n'


def catalog(*parts: str) -> Catalog:
    """The catalog of a configuration."""
    return Catalog(load(PROVIDER + "".join(parts), {}))


def user(content: object) -> dict[str, Any]:
    """A request with one message."""
    return {"messages": [{"role": "user", "content": content}]}


class RouteTest(unittest.TestCase):
    """The rules of difficulty."""

    def test_easy_text_is_cheap(self) -> None:
        """Up to the bound, which counts characters and not bytes."""
        for content in ("", "hi", "x" * LONG_TEXT_CHARS, "日" * LONG_TEXT_CHARS, None):
            with self.subTest(str(content)[:5]):
                self.assertIs(route(user(content)), Tier.CHEAP)
        self.assertIs(route({}), Tier.CHEAP)

    def test_long_text_is_standard(self) -> None:
        """All messages together, texts in parts included."""
        half = "x" * (LONG_TEXT_CHARS // 2)
        parts = [{"type": "text", "text": half}, {"type": "text", "text": half + "x"}]
        longs: list[dict[str, Any]] = [
            user("x" * (LONG_TEXT_CHARS + 1)),
            user(parts),
            user([half, half + "x"]),
            {"messages": [{"role": "system", "content": half}, {"role": "user", "content": half + "x"}]},
        ]
        for body in longs:
            with self.subTest(str(body)[:60]):
                self.assertIs(route(body), Tier.STANDARD)

    def test_what_is_no_text_does_not_count(self) -> None:
        """The address of an image is not prose."""
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}
        self.assertIs(route(user([image, {"type": "text", "text": "what is this?"}])), Tier.CHEAP)
        self.assertIs(route({"messages": ["x" * 5000, {"content": {"text": "x" * 5000}}, None]}), Tier.CHEAP)

    def test_tools_are_strong(self) -> None:
        """Under either name; an empty list is no tool."""
        self.assertIs(route(user("hi") | {"tools": [{"type": "function"}]}), Tier.STRONG)
        self.assertIs(route(user("hi") | {"functions": [{"name": "f"}]}), Tier.STRONG)
        self.assertIs(route(user("hi") | {"tools": [], "functions": None}), Tier.CHEAP)

    def test_hard_tags_are_strong(self) -> None:
        """Those given beside the body count instead of the body's."""
        self.assertIs(route(user("hi") | {"tags": ["legal"]}), Tier.STRONG)
        self.assertIs(route(user("hi"), ["x", "math"]), Tier.STRONG)
        self.assertIs(route(user("x" * 900), ["math"]), Tier.STRONG)
        self.assertIs(route(user("hi") | {"tags": ["legal"]}, ()), Tier.CHEAP)
        self.assertIs(route(user("hi"), ["LEGAL", "mathematics"]), Tier.CHEAP)


class CatalogTest(unittest.TestCase):
    """The names that clients may ask for."""

    def setUp(self) -> None:
        self.catalog = catalog(
            deployment("a", "gpt-x"),
            deployment("b", "org/gpt-x", "standard"),
            deployment("c", "gpt-x", "strong"),
            deployment("gpt-y", "other"),
            alias("fast", "b", "a"),
        )

    def deployments(self, name: str, body: dict[str, Any] | None = None) -> list[str]:
        """Names of the candidates for `name`."""
        return [each.name for each in self.catalog.plan(name, body or user("hi"), ()).candidates]

    def test_every_name_is_listed_once_in_file_order(self) -> None:
        """Aliases, then deployments, then model ids; `auto` first."""
        self.assertEqual(self.catalog.names(), ("auto", "fast", "a", "b", "c", "gpt-y", "gpt-x", "org/gpt-x", "other"))

    def test_an_alias_keeps_its_own_order(self) -> None:
        """It is the failover order."""
        self.assertEqual(self.deployments("fast"), ["b", "a"])

    def test_a_deployment_is_taken_as_named(self) -> None:
        """Whatever its model is called."""
        self.assertEqual(self.deployments("c"), ["c"])

    def test_a_model_id_leads_to_all_that_serve_it(self) -> None:
        """In file order; ids may hold slashes."""
        self.assertEqual(self.deployments("gpt-x"), ["a", "c"])
        self.assertEqual(self.deployments("org/gpt-x"), ["b"])

    def test_auto_takes_the_tier_of_the_rules(self) -> None:
        """And says so."""
        self.assertEqual(self.deployments("auto"), ["a", "gpt-y"])
        self.assertEqual(self.deployments("auto", user("x" * 900)), ["b"])
        plan = self.catalog.plan("auto", user("hi"), ["legal"])
        self.assertEqual(([d.name for d in plan.candidates], plan.alias, plan.reason), (["c"], "auto", "auto: strong"))

    def test_an_empty_tier_is_served_by_the_nearest_stronger_one(self) -> None:
        """Else by the strongest there is."""
        only = catalog(deployment("weak", "w", "cheap"), deployment("mighty", "m", "strong"))
        self.assertEqual(only.plan("auto", user("x" * 900), ()).candidates[0].name, "mighty")
        weak = catalog(deployment("weak", "w", "cheap"), deployment("fair", "f", "standard"))
        plan = weak.plan("auto", user("hi"), ["math"])
        self.assertEqual(plan.candidates[0].name, "fair")
        self.assertIn("strong", plan.reason)

    def test_a_name_nobody_defined_is_not_found(self) -> None:
        """Names are exact."""
        for name in ("gpt", "FAST", " fast", "", "x" * 300):
            with self.subTest(name[:10]), self.assertRaises(ModelNotFound) as raised:
                self.catalog.plan(name, user("hi"), ())
            self.assertEqual((raised.exception.status, raised.exception.param), (404, "model"))
            self.assertLess(len(raised.exception.message), 250)

    def test_a_model_called_auto_does_not_take_the_routers_name(self) -> None:
        """Only the router decides what `auto` is."""
        named = catalog(deployment("a", "auto"), deployment("b", "x", "strong"))
        self.assertEqual(named.names().count("auto"), 1)
        self.assertEqual(named.plan("auto", user("hi"), ["math"]).candidates[0].name, "b")
