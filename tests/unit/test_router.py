"""Which tier `auto` means, and which deployments a name leads to, stage by stage."""

import itertools
import random
import unittest
from collections import Counter
from collections.abc import Callable
from typing import Any

from gateway.config import load
from gateway.errors import InvalidRequest, ModelNotFound, RegionNotAllowed
from gateway.router import LONG_TEXT_CHARS, Catalog, RoutePlan, needs, route
from gateway.types import Tier

PROVIDER = '[[providers]]\nname = "up"\ndialect = "fake"\nscript = [{ text = "x" }]\n'


def deployment(name: str, model: str = "m", tier: str = "cheap", **keys: object) -> str:
    """One deployment as TOML; `keys` are written as Python writes them."""
    return (
        f'[[deployments]]\nname = "{name}"\nprovider = "up"\nmodel = "{model}"\ntier = "{tier}"\n'
        "price = { input = 1, output = 4 }\n"
    ) + "".join(f"{key} = {value!r}\n" for key, value in keys.items())


def alias(name: str, *deployments: str, strategy: str = "ordered", escalate: bool = False) -> str:
    """One alias as TOML."""
    return (
        f'[[aliases]]\nname = "{name}"\ndeployments = {list(deployments)!r}\nstrategy = "{strategy}"\n'
        f"escalate = {str(escalate).lower()}\n"
    )


def no_draw() -> float:
    """Nothing is left to chance."""
    raise AssertionError("nothing is drawn here")


def catalog(*parts: str, draw: Callable[[], float] = no_draw) -> Catalog:
    """The catalog of a configuration."""
    return Catalog(load(PROVIDER + "".join(parts), {}), draw)


def stages(plan: RoutePlan) -> list[list[str]]:
    """Names of the deployments of each stage."""
    return [[each.name for each in stage] for stage in plan.stages]


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

    def stages(self, name: str, body: dict[str, Any] | None = None) -> list[list[str]]:
        """The stages for `name`."""
        return stages(self.catalog.plan(name, body or user("hi"), ()))

    def test_every_name_is_listed_once_in_file_order(self) -> None:
        """Aliases, then deployments, then model ids; `auto` first."""
        self.assertEqual(self.catalog.names(), ("auto", "fast", "a", "b", "c", "gpt-y", "gpt-x", "org/gpt-x", "other"))

    def test_an_alias_keeps_its_own_order(self) -> None:
        """It is the failover order."""
        self.assertEqual(self.stages("fast"), [["b", "a"]])
        self.assertEqual(self.catalog.plan("fast", user("hi"), ()).reason, "named")

    def test_a_deployment_is_taken_as_named(self) -> None:
        """Whatever its model is called."""
        self.assertEqual(self.stages("c"), [["c"]])

    def test_a_model_id_leads_to_all_that_serve_it(self) -> None:
        """In file order; ids may hold slashes."""
        self.assertEqual(self.stages("gpt-x"), [["a", "c"]])
        self.assertEqual(self.stages("org/gpt-x"), [["b"]])

    def test_auto_begins_in_the_tier_of_the_rules_and_may_climb(self) -> None:
        """Never down; and it says what was wanted."""
        self.assertEqual(self.stages("auto"), [["a", "gpt-y"], ["b"], ["c"]])
        self.assertEqual(self.stages("auto", user("x" * 900)), [["b"], ["c"]])
        plan = self.catalog.plan("auto", user("hi"), ["legal"])
        self.assertEqual((stages(plan), plan.alias, plan.reason), ([["c"]], "auto", "auto: strong"))

    def test_an_empty_tier_is_served_by_the_nearest_stronger_one(self) -> None:
        """Else by the strongest there is, alone; the reason tells."""
        only = catalog(deployment("weak"), deployment("mighty", tier="strong"))
        plan = only.plan("auto", user("x" * 900), ())
        self.assertEqual((stages(plan), plan.reason), ([["mighty"]], "auto: standard, which no deployment serves"))
        weak = catalog(deployment("weak"), deployment("fair", tier="standard"))
        plan = weak.plan("auto", user("hi"), ["math"])
        self.assertEqual((stages(plan), plan.reason), ([["fair"]], "auto: strong, which no deployment serves"))

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
        self.assertEqual(stages(named.plan("auto", user("hi"), ["math"])), [["b"]])


TOOLS = user("hi") | {"tools": [{"type": "function"}]}
SCHEMA = user("hi") | {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}
IMAGE = user([{"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}])


class NeedsTest(unittest.TestCase):
    """What a request asks of a deployment."""

    def test_each_capability_has_the_field_that_asks_for_it(self) -> None:
        """An error names it."""
        table: list[tuple[dict[str, Any], dict[str, str]]] = [
            (user("hi"), {}),
            (TOOLS, {"tools": "tools"}),
            (user("hi") | {"functions": [{"name": "f"}]}, {"tools": "functions"}),
            (user("hi") | {"tools": [], "functions": None}, {}),
            (SCHEMA, {"json_schema": "response_format"}),
            (user("hi") | {"response_format": {"type": "json_object"}}, {}),
            (IMAGE, {"vision": "messages"}),
            (TOOLS | SCHEMA | IMAGE, {"tools": "tools", "json_schema": "response_format", "vision": "messages"}),
        ]
        for body, expected in table:
            with self.subTest(expected):
                self.assertEqual(needs(body), expected)

    def test_a_body_of_another_shape_needs_nothing(self) -> None:
        """It is for the upstream to complain about it."""
        for messages in (None, "x", [None], [{"content": None}], [{"content": ["image_url", {"type": []}]}]):
            with self.subTest(str(messages)):
                self.assertEqual(needs({"messages": messages, "response_format": "json_schema"}), {})


class FittingTest(unittest.TestCase):
    """Capabilities and regions."""

    def setUp(self) -> None:
        self.catalog = catalog(
            deployment("plain", supports=[], region="eu"),
            deployment("tools", supports=["tools"], region="us"),
            deployment("seeing", tier="standard", supports=["vision", "json_schema"], region="eu"),
            deployment("all", tier="strong"),
            alias("any", "plain", "tools", "seeing", "all"),
            alias("cheap", "plain", "tools"),
        )

    def names(self, name: str, body: dict[str, Any], regions: tuple[str, ...] | None = None) -> list[list[str]]:
        """The stages of a request."""
        return stages(self.catalog.plan(name, body, (), regions))

    def test_what_no_region_serves_is_not_named_there(self) -> None:
        """A name is there if one deployment behind it is, on whatever tier a request may climb to."""
        regional = catalog(
            deployment("here", region="us", model="m"),
            deployment("there", tier="strong", region="eu"),
            deployment("nowhere", tier="standard", model="m"),
            alias("both", "here", "there"),
            alias("stays", "here", strategy="weighted"),
            alias("climbs", "here", escalate=True),
        )
        self.assertEqual(regional.names(("us",)), ("auto", "both", "stays", "climbs", "here", "m"))
        self.assertEqual(regional.names(("eu",))[:3], ("auto", "both", "climbs"))
        self.assertEqual(regional.names(("asia",)), ())
        self.assertEqual(regional.names(("us", "eu")), tuple(n for n in regional.names() if n != "nowhere"))

    def test_what_lacks_a_capability_is_left_out(self) -> None:
        """The order of the others stays."""
        self.assertEqual(self.names("any", user("hi")), [["plain", "tools", "seeing", "all"]])
        self.assertEqual(self.names("any", TOOLS), [["tools", "all"]])
        self.assertEqual(self.names("any", SCHEMA), [["seeing", "all"]])
        self.assertEqual(self.names("any", TOOLS | IMAGE), [["all"]])

    def test_a_plan_is_made_once_for_all_that_it_depends_on(self) -> None:
        """The name, what `auto` means for the body, what the body needs, and the regions; nothing else of a request."""
        asked: list[tuple[str, dict[str, Any], tuple[str, ...] | None]] = [
            (name, body, regions)
            for name in ("any", "cheap", "auto")
            for body in (user("hi"), user("x" * 900), TOOLS)
            for regions in (None, ("us",), ("us", "eu"))
        ]
        first = [self.catalog.plan(name, body, ("some",), regions) for name, body, regions in asked]
        again = [self.catalog.plan(name, dict(body), (), regions) for name, body, regions in asked]
        fresh = [self.plan_of_another_catalog(*one) for one in asked]
        self.assertTrue(all(one is other for one, other in zip(first, again, strict=True)))
        self.assertEqual(
            [(stages(plan), plan.reason) for plan in again], [(stages(plan), plan.reason) for plan in fresh]
        )

    def plan_of_another_catalog(self, name: str, body: dict[str, Any], regions: tuple[str, ...] | None) -> RoutePlan:
        """A plan that nothing was asked before."""
        self.setUp()
        return self.catalog.plan(name, body, (), regions)

    def test_a_stage_that_is_left_empty_is_none(self) -> None:
        """`auto` climbs over it."""
        self.assertEqual(self.names("auto", IMAGE), [["seeing"], ["all"]])
        self.assertEqual(self.names("auto", user("hi"), ("us",)), [["tools"]])

    def test_auto_goes_down_only_if_nothing_above_fits(self) -> None:
        """Tools want `strong`; in the one region that is left only a cheap one has them."""
        plan = self.catalog.plan("auto", TOOLS, (), ("us",))
        self.assertEqual((stages(plan), plan.reason), ([["tools"]], "auto: strong, which no deployment serves"))

    def test_a_capability_that_nobody_has_is_the_requests_fault(self) -> None:
        """The error names the model, the capability and the field."""
        with self.assertRaises(InvalidRequest) as refused:
            self.names("cheap", IMAGE)
        error = refused.exception
        self.assertEqual((error.status, error.param), (400, "messages"))
        self.assertEqual(error.message, "No deployment of `cheap` supports vision.")
        with self.assertRaisesRegex(InvalidRequest, "json_schema and vision"):
            self.names("tools", SCHEMA | IMAGE)

    def test_a_region_keeps_the_others_out(self) -> None:
        """A deployment without a region is nowhere in particular: it serves only who may go everywhere."""
        self.assertEqual(self.names("any", user("hi"), ("eu",)), [["plain", "seeing"]])
        self.assertEqual(self.names("any", user("hi"), ("us", "eu")), [["plain", "tools", "seeing"]])
        self.assertEqual(self.names("m", user("hi"), ("us",)), [["tools"]])

    def test_a_model_that_is_served_elsewhere_only_is_not_allowed(self) -> None:
        """A 403; the regions are not told."""
        for name, body, regions in (
            ("all", user("hi"), ("eu",)),
            ("any", user("hi"), ("mars",)),
            ("any", TOOLS, ("eu",)),
        ):
            with self.subTest(name), self.assertRaises(RegionNotAllowed) as refused:
                self.names(name, body, regions)
            self.assertEqual((refused.exception.status, refused.exception.code), (403, "model_not_allowed"))
            self.assertNotRegex(refused.exception.message, r"\b(eu|us|mars)\b")

    def test_a_want_of_capability_is_told_before_a_region(self) -> None:
        """No other region would help."""
        with self.assertRaises(InvalidRequest):
            self.names("cheap", IMAGE, ("mars",))


class EscalateTest(unittest.TestCase):
    """Aliases that may climb."""

    def test_its_own_stronger_deployments_are_its_later_stages(self) -> None:
        """Tier by tier, whatever their order in the file; a tier of which it names none is all of that tier."""
        climbing = catalog(
            deployment("c1"),
            deployment("c2"),
            deployment("s1", tier="standard"),
            deployment("s2", tier="standard"),
            deployment("x1", tier="strong"),
            deployment("x2", tier="strong"),
            alias("own", "c2", "x1", "s2", escalate=True),
            alias("bare", "c1", escalate=True),
            alias("flat", "c2", "x1", "s2"),
            alias("high", "s1", "c1", escalate=True),
            alias("top", "x2", escalate=True),
        )
        for name, expected in {
            "own": [["c2"], ["s2"], ["x1"]],
            "bare": [["c1"], ["s1", "s2"], ["x1", "x2"]],
            "flat": [["c2", "x1", "s2"]],
            "high": [["s1", "c1"], ["x1", "x2"]],
            "top": [["x2"]],
        }.items():
            with self.subTest(name):
                plan = climbing.plan(name, user("hi"), ())
                self.assertEqual((stages(plan), plan.reason), (expected, "named"))

    def test_a_tier_that_nobody_serves_is_no_stage(self) -> None:
        """It climbs over it, or stays."""
        self.assertEqual(
            stages(
                catalog(deployment("c"), deployment("x", tier="strong"), alias("up", "c", escalate=True)).plan(
                    "up", user("hi"), ()
                )
            ),
            [["c"], ["x"]],
        )
        self.assertEqual(
            stages(catalog(deployment("c"), alias("up", "c", escalate=True)).plan("up", user("hi"), ())), [["c"]]
        )

    def test_a_first_stage_that_does_not_fit_leaves_the_later_ones(self) -> None:
        """The plan begins with what can serve the request."""
        climbing = catalog(
            deployment("c", supports=[]), deployment("x", tier="strong"), alias("up", "c", escalate=True)
        )
        self.assertEqual(stages(climbing.plan("up", TOOLS, ())), [["x"]])


class WeightedTest(unittest.TestCase):
    """Orders that are drawn."""

    def orders(self, parts: list[str], count: int) -> Counter[str]:
        """How often each order of the alias `w` was drawn, with a seed."""
        drawn = catalog(*parts, alias("w", "a", "b", "c", strategy="weighted"), draw=random.Random(7).random)
        return Counter("".join(stages(drawn.plan("w", user("hi"), ()))[0]) for _ in range(count))

    def test_each_place_goes_by_the_weights_of_those_left(self) -> None:
        """All six orders of three, against their exact chances (chi-square, five degrees, one in ten thousand)."""
        weights = {"a": 1, "b": 2, "c": 5}
        count = 4000
        seen = self.orders([deployment(name, weight=weight) for name, weight in weights.items()], count)
        statistic = 0.0
        for order in itertools.permutations(weights):
            left, chance = sum(weights.values()), 1.0
            for name in order:
                chance *= weights[name] / left
                left -= weights[name]
            statistic += (seen["".join(order)] - count * chance) ** 2 / (count * chance)
        self.assertLess(statistic, 25.75, seen)

    def test_one_draw_per_deployment_and_request(self) -> None:
        """Whatever was drawn, also 0, nobody is lost."""
        for value in (0.0, 0.5, 1 - 2**-53):
            draws: list[float] = []

            def draw(value: float = value, draws: list[float] = draws) -> float:
                draws.append(value)
                return value

            drawn = catalog(deployment("a"), deployment("b"), alias("w", "a", "b", strategy="weighted"), draw=draw)
            [stage] = stages(drawn.plan("w", user("hi"), ()))
            self.assertEqual((sorted(stage), len(draws)), (["a", "b"], 2))

    def test_a_climb_keeps_the_drawn_order_within_each_stage(self) -> None:
        """And the first stage is the tier of the deployment that the file names first, whichever is drawn."""
        draws = iter((0.9, 0.5, 0.6, 0.1))
        drawn = catalog(
            deployment("c1"),
            deployment("c2"),
            deployment("x1", tier="strong"),
            deployment("x2", tier="strong"),
            alias("w", "c1", "c2", "x1", "x2", strategy="weighted", escalate=True),
            draw=lambda: next(draws),
        )
        self.assertEqual(stages(drawn.plan("w", user("hi"), ())), [["c2", "c1"], ["x2", "x1"]])
