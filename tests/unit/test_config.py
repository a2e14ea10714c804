"""The configuration file: what it may say, what it says by default, and how its faults are told."""

import itertools
import tempfile
import unittest
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gateway.config import ConfigError, from_mapping, load, load_file
from gateway.config_schema import (
    Alias,
    BreakerConfig,
    BudgetConfig,
    CacheConfig,
    ProviderConfig,
    RetryConfig,
    ScriptEntry,
    ServerConfig,
    StoreConfig,
    TenantConfig,
)
from gateway.types import Secret, Tier, Window
from llmkit.prices import Price, PriceBook

SPEC_EXAMPLE = """
[server]
max_body_bytes = 20_000_000    # 413 beyond it, before reading
max_connections = 2048         # RLIMIT_NOFILE is raised at start, or this is lowered with a warning
max_in_flight = 1024           # requests and streams being worked on
max_per_tenant = 512
queue = 256                    # waiting for a place, at most queue_wait_s
queue_wait_s = 1
header_timeout_s = 10
body_timeout_s = 30
write_timeout_s = 30
idle_timeout_s = 75
announce_s = 5
drain_s = 30
head_hold_s = 10               # how long a stream's 200 is held back while failover is still possible unseen

[store]
durability = "full"            # full | normal
on_crash = "unresolved"        # unresolved | void: what becomes of holds of a dead process
unresolved_after_s = 86400     # then unresolved_policy decides, marked in the row
unresolved_policy = "assume_spent"   # assume_spent | void
hold_ttl_s = 900               # a hold older than this, in a living process, becomes unresolved

[budget]                       # the whole gateway
usd = 1000
window = "month"               # total | day | week | month, UTC calendar
wait_s = 0                     # how long a request may wait for room that other requests hold

[[providers]]
name = "primary"
dialect = "openai"             # openai | anthropic | fake
base_url = "http://127.0.0.1:9001/v1"
api_key_env = "PRIMARY_KEY"    # optional; a list of names rotates over several credentials
connect_timeout_s = 5
ttft_timeout_s = 120           # to the first byte of the answer
idle_timeout_s = 60            # between two chunks
total_timeout_s = 600
max_event_bytes = 1_048_576
max_answer_bytes = 33_554_432

[[providers]]
name = "backup"
dialect = "openai"
base_url = "http://127.0.0.1:9002/v1"

[[deployments]]
name = "mini-primary"
provider = "primary"
model = "gpt-4o-mini"          # what the upstream is asked for
tier = "cheap"
price = { input = 0.15, cached_input = 0.075, output = 0.60 }   # USD per million tokens (also cache_write); or "free"
context_window = 128_000
max_output_tokens = 16384      # the cap sent when the client gives none: min(this, context_window - estimate of the prompt)
output_cap_field = "max_completion_tokens"   # or max_tokens: what this upstream understands
supports = ["tools", "vision", "json_schema"]                   # default: all
region = "us"
weight = 1

[[deployments]]
name = "mini-backup"
provider = "backup"
model = "gpt-4o-mini"
tier = "cheap"
price = { input = 0.15, cached_input = 0.075, output = 0.60 }
context_window = 128_000
max_output_tokens = 16384

[[aliases]]
name = "fast"
deployments = ["mini-primary", "mini-backup"]   # order = failover order
strategy = "ordered"                             # ordered | weighted (later: sticky, fastest)
escalate = false                                 # true: may climb tiers, as "auto" does

[router]                       # what the alias "auto" does; section 7
[retry]
max_retries = 2
base_s = 0.25
cap_s = 8
retry_after_max_s = 10         # a longer Retry-After is not waited for in place
pause_s = 5                    # pause of a deployment whose 429 names no time
budget_percent = 20            # retries per deployment, of its requests, plus budget_floor per minute
budget_floor = 10
[breaker]
threshold = 3
cooldown_s = 30
[cache]
exact_ttl_s = 3600             # 0 turns it off
exact_max_bytes = 1_000_000_000
semantic = false

[[tenants]]
name = "acme"
models = ["fast", "auto", "gpt-*"]               # names a client may ask for (whatever they lead to); default: all
budget_usd = 100
budget_window = "month"
rate_per_s = 50                                  # token bucket
burst = 100
"""  # noqa: E501 - as it is published
KEY = "sk-upstream-0123456789"
ENV = {"PRIMARY_KEY": KEY}
NOT_YET = ": accepted and checked, but not yet in effect in this version"

MINIMAL = """
[[providers]]
name = "primary"
base_url = "http://127.0.0.1:9001/v1"

[[deployments]]
name = "mini"
provider = "primary"
model = "gpt-4o-mini"
price = { input = 0.15, output = 0.60 }
"""


def document() -> dict[str, Any]:
    """The smallest sound document, parsed; each call gives its own copy."""
    return {
        "providers": [{"name": "primary", "base_url": "http://127.0.0.1:9001/v1"}],
        "deployments": [{"name": "mini", "provider": "primary", "model": "gpt-4o-mini", "price": "free"}],
    }


def with_section(name: str, section: object) -> dict[str, Any]:
    """A sound document plus one section."""
    return document() | {name: section}


def with_weights() -> dict[str, Any]:
    """An alias that draws the order of its deployments."""
    return {"name": "spread", "deployments": ["mini"], "strategy": "weighted"}


def with_provider(**keys: object) -> dict[str, Any]:
    """A sound document whose provider has these keys too."""
    data = document()
    data["providers"][0] |= keys
    return data


def with_deployment(**keys: object) -> dict[str, Any]:
    """A sound document whose deployment has these keys too."""
    data = document()
    data["deployments"][0] |= keys
    return data


def with_script(*entries: object, **keys: object) -> dict[str, Any]:
    """A sound document with a fake provider."""
    fake = {"name": "fake", "dialect": "fake", "script": list(entries)}
    return document() | {"providers": [*document()["providers"], fake | keys]}


def faults(data: Mapping[str, object], env: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """What is wrong with a parsed document; empty if it is sound."""
    try:
        from_mapping(data, env or {})
    except ConfigError as error:
        return error.faults
    return ()


def places(data: Mapping[str, object], env: Mapping[str, str] | None = None) -> list[str]:
    """Where something is wrong."""
    return [fault.split(": ")[0] for fault in faults(data, env)]


def text_faults(text: str) -> tuple[str, ...]:
    """What is wrong with a document as written."""
    try:
        load(text, ENV)
    except ConfigError as error:
        return error.faults
    return ()


def read_prices(price: object) -> PriceBook:
    """The prices of the one deployment when its `price` is this."""
    return from_mapping(with_deployment(price=price), {}).deployments["mini"].prices


def read_entry(**keys: object) -> ScriptEntry:
    """A script's only entry, read."""
    return from_mapping(with_script(keys), {}).providers["fake"].script[0]


class ExampleTest(unittest.TestCase):
    def setUp(self) -> None:
        self.config = load(SPEC_EXAMPLE, ENV)

    def test_the_documented_example_loads_as_written(self) -> None:
        """Providers, deployments, aliases and tenants are there by name, in the order of the file."""
        self.assertEqual(list(self.config.providers), ["primary", "backup"])
        self.assertEqual(list(self.config.deployments), ["mini-primary", "mini-backup"])
        self.assertEqual(self.config.aliases, {"fast": Alias("fast", ("mini-primary", "mini-backup"))})
        self.assertEqual(self.config.providers["primary"].api_keys, (Secret(KEY),))
        self.assertEqual(self.config.deployments["mini-primary"].region, "us")
        acme = TenantConfig(
            name="acme",
            models=("fast", "auto", "gpt-*"),
            budget_nanousd=100_000_000_000,
            budget_window=Window.MONTH,
            rate_per_s=Fraction(50),
            burst=100,
        )
        self.assertEqual(self.config.tenants, {"acme": acme})

    def test_its_values_are_the_defaults(self) -> None:
        """The example shows the defaults of every section; only the budget has no amount unless one is given, and a
        semantic cache that is off for all differs from one that nobody has turned on.
        """
        default = load(MINIMAL, {})
        self.assertEqual(self.config.cache, replace(default.cache, semantic=False))
        for section in ("server", "store", "retry", "breaker"):
            with self.subTest(section):
                self.assertEqual(getattr(self.config, section), getattr(default, section))
        self.assertEqual(self.config.budget, BudgetConfig(1_000_000_000_000, default.budget.window))
        backup = self.config.providers["backup"]
        self.assertEqual(backup, ProviderConfig(name="backup", base_url="http://127.0.0.1:9002/v1"))

    def test_prices_are_read_without_loss(self) -> None:
        """0.075 USD per million tokens is 75,000 pico-dollars per token, and not a float near it."""
        entry = self.config.deployments["mini-primary"].prices.at(0)
        assert entry is not None
        self.assertEqual(entry.price, Price(150_000, 75_000, 150_000, 600_000))
        self.assertEqual(entry.version, "1")
        self.assertEqual(load(MINIMAL + "[budget]\nusd = 0.1", {}).budget.limit_nanousd, 100_000_000)

    def test_it_warns_once_of_each_key_that_has_no_effect_yet(self) -> None:
        """A key that is checked but not acted on is named once, however often it is set; others are not named."""
        self.assertEqual(self.config.warnings, ("router" + NOT_YET,))

    def test_a_file_that_sets_none_of_them_has_no_warning(self) -> None:
        """Defaults are not warned of."""
        self.assertEqual(load(MINIMAL, {}).warnings, ())
        self.assertEqual(from_mapping(with_section("router", {}), {}).warnings, ("router" + NOT_YET,))
        for section in ("retry", "breaker", "cache"):
            self.assertEqual(from_mapping(with_section(section, {}), {}).warnings, ())
        self.assertEqual(from_mapping(with_deployment(weight=2, region="eu"), {}).warnings, ())


class DefaultsTest(unittest.TestCase):
    def test_every_section_has_the_documented_defaults(self) -> None:
        """A file without a section gets these values."""
        config = load(MINIMAL, {})
        self.assertEqual(
            config.server,
            ServerConfig(
                max_body_bytes=20_000_000,
                request_memory_bytes=268_435_456,
                max_connections=2048,
                max_in_flight=1024,
                max_per_tenant=512,
                answer_memory_bytes=268_435_456,
                queue=256,
                queue_wait_s=1,
                header_timeout_s=10,
                body_timeout_s=30,
                write_timeout_s=30,
                idle_timeout_s=75,
                announce_s=5,
                drain_s=30,
                head_hold_s=10,
                cpu="any",
            ),
        )
        self.assertEqual(config.store, StoreConfig("full", "unresolved", 86_400, "assume_spent", 900))
        self.assertEqual(config.budget, BudgetConfig(None, Window.MONTH))
        self.assertEqual(config.retry, RetryConfig(2, 0.25, 8, 10, 5, 20, 10))
        self.assertEqual(config.breaker, BreakerConfig(3, 30))
        self.assertEqual(config.cache, CacheConfig(3600, 1_000_000_000, None, "serve", 3600, 100_000, 268_435_456))
        self.assertEqual((config.aliases, config.tenants), ({}, {}))

    def test_a_provider_has_the_documented_defaults(self) -> None:
        """Four separate clocks, two bounds, no credential."""
        self.assertEqual(
            load(MINIMAL, {}).providers["primary"],
            ProviderConfig(
                name="primary",
                dialect="openai",
                base_url="http://127.0.0.1:9001/v1",
                api_keys=(),
                connect_timeout_s=5,
                ttft_timeout_s=120,
                idle_timeout_s=60,
                total_timeout_s=600,
                max_event_bytes=1_048_576,
                max_answer_bytes=33_554_432,
                script=(),
                repeat=False,
                stream_usage=True,
            ),
        )

    def test_a_deployment_has_the_documented_defaults(self) -> None:
        """Everything but its name, its provider, its model and its price."""
        mini = load(MINIMAL, {}).deployments["mini"]
        self.assertEqual((mini.name, mini.provider, mini.model), ("mini", "primary", "gpt-4o-mini"))
        self.assertEqual((mini.tier, mini.context_window, mini.max_output_tokens), (Tier.CHEAP, 128_000, 16_384))
        self.assertEqual(mini.output_cap_field, "max_completion_tokens")
        self.assertEqual(mini.supports, {"tools", "vision", "json_schema"})
        self.assertEqual((mini.region, mini.weight, mini.quarantine_on_overage), (None, 1, False))

    def test_an_alias_is_ordered_and_stays_in_its_tier(self) -> None:
        """Strategy and escalation need not be given."""
        config = from_mapping(with_section("aliases", [{"name": "fast", "deployments": ["mini"]}]), {})
        self.assertEqual(config.aliases["fast"], Alias("fast", ("mini",), "ordered", False))

    def test_an_alias_may_draw_its_order_and_climb(self) -> None:
        """By the weights of its deployments, and through the tiers."""
        data = with_section("aliases", [with_weights() | {"escalate": True}]) | {"deployments": []}
        data["deployments"] = with_deployment(weight=7)["deployments"]
        config = from_mapping(data, {})
        self.assertEqual(config.aliases["spread"], Alias("spread", ("mini",), "weighted", True))
        self.assertEqual(config.deployments["mini"].weight, 7)

    def test_a_tenant_is_unlimited_by_default(self) -> None:
        """Every model, no budget, no rate."""
        config = from_mapping(with_section("tenants", [{"name": "acme"}]), {})
        self.assertEqual(config.tenants["acme"], TenantConfig("acme", None, None, None, Window.MONTH, None, None))


class FaultsTest(unittest.TestCase):
    def test_a_file_with_a_dozen_faults_reports_all_of_them(self) -> None:
        """Each fault has its own line with its place; none hides another."""
        text = """
            [server]
            max_body_bytes = 0
            drain_s = "long"
            colour = "blue"
            [store]
            durability = "maybe"
            [[providers]]
            name = "primary"
            base_url = "ftp://example.org"
            api_key_env = "NO_SUCH_KEY"
            [[providers]]
            name = "primary"
            dialect = "fake"
            [[deployments]]
            name = "auto"
            provider = "nobody"
            model = "m"
            tier = "medium"
            [[aliases]]
            name = "fast"
            deployments = ["gone"]
            [[tenants]]
            name = "ACME"
            budget_usd = -1
        """
        with self.assertRaises(ConfigError) as caught:
            load(text, {})
        lines = str(caught.exception).splitlines()
        self.assertEqual(lines, list(caught.exception.faults))
        self.assertCountEqual(
            [line.split(": ")[0] for line in lines],
            [
                "server.max_body_bytes",
                "server.drain_s",
                "server.colour",
                "store.durability",
                "providers[0].base_url",
                "providers[1].name",
                "providers[1].script",
                "deployments[0].name",
                "deployments[0].provider",
                "deployments[0].tier",
                "deployments[0].price",
                "aliases[0].deployments[0]",
                "tenants[0].name",
                "tenants[0].budget_usd",
            ],
        )

    def test_each_value_that_is_not_built_yet_is_refused(self) -> None:
        """It is a fault at its place which says so, not a value that is quietly ignored."""
        aliases = [
            {"name": strategy, "deployments": ["mini"], "strategy": strategy} for strategy in ("sticky", "fastest")
        ]
        unbuilt = {
            "providers[0].dialect": with_provider(dialect="anthropic"),
            "aliases[0].strategy": with_section("aliases", aliases[:1]),
            "aliases[1].strategy": with_section("aliases", [with_weights(), aliases[1]]),
            "budget.wait_s": with_section("budget", {"wait_s": 1}),
        }
        for place, data in unbuilt.items():
            with self.subTest(place):
                (fault,) = faults(data)
                self.assertTrue(fault.startswith(f"{place}: "))
                self.assertIn("supported in this version", fault)

    def test_the_values_that_turn_unbuilt_things_off_are_accepted(self) -> None:
        """The documented file may spell out what it does not use."""
        alias = {"name": "fast", "deployments": ["mini"], "strategy": "ordered", "escalate": False}
        data = document() | {
            "aliases": [alias],
            "cache": {"semantic": False},
            "budget": {"wait_s": 0},
            "router": {},
        }
        self.assertEqual(faults(data), ())

    def test_the_semantic_cache_needs_the_exact_one(self) -> None:
        """Wherever it is turned on; where it is off for all there is nothing to need."""
        alias = {"name": "fast", "deployments": ["mini"], "semantic": True}
        for cache, more in (
            ({"semantic": True}, {}),
            ({}, {"tenants": [{"name": "acme", "semantic": True}]}),
            ({}, {"aliases": [alias]}),
        ):
            data = document() | {"cache": {"exact_ttl_s": 0, **cache}} | more
            self.assertEqual(places(data), ["cache.exact_ttl_s"])
            self.assertEqual(faults(data | {"cache": {"exact_ttl_s": 0, "semantic": False}}), ())

    def test_bounds_of_the_semantic_cache(self) -> None:
        """A day at most, and at least one entry and byte; two modes."""
        sound = {
            "semantic_mode": "shadow",
            "semantic_ttl_s": 86_400,
            "semantic_max_entries": 1,
            "semantic_max_bytes": 1,
        }
        self.assertEqual(faults(with_section("cache", sound)), ())
        faulty = {"semantic": "yes", "semantic_mode": "on", "semantic_ttl_s": 86_401}
        faulty |= {"semantic_max_entries": 0, "semantic_max_bytes": 0}
        for key, value in faulty.items():
            self.assertEqual(places(with_section("cache", {key: value})), [f"cache.{key}"])
        self.assertEqual(places(with_section("cache", {"semantic_ttl_s": 0})), ["cache.semantic_ttl_s"])

    def test_a_judge_is_somebody_who_can_be_asked_and_paid(self) -> None:
        """A name that is served, and the variable that holds a key; bounds of all that is said of it."""
        sound = {"judge": "mini", "judge_key_env": "JUDGE_KEY"}
        for name in ("auto", "gpt-4o-mini"):
            self.assertEqual(faults(with_section("cache", sound | {"judge": name, "judge_auditor": name})), ())
        limits = {"judge_min_cosine": 0, "judge_max_cosine": 1, "judge_audit_percent": Decimal("0.5")}
        limits |= {"judge_per_minute": 1, "judge_timeout_s": 600, "judge_queue": 1, "judge_max_bytes": 1}
        self.assertEqual(faults(with_section("cache", sound | limits | {"judge_embedder": "use"})), ())
        faulty: dict[str, object] = {"judge": "nobody", "judge_auditor": "nobody", "judge_key_env": "sk gw"}
        faulty |= {"judge_embedder": "endpoint", "judge_min_cosine": -1, "judge_max_cosine": 1.1}
        faulty |= {"judge_per_minute": 0, "judge_timeout_s": 0, "judge_audit_percent": 101}
        faulty |= {"judge_queue": 65_537, "judge_max_bytes": 0}
        for key, value in faulty.items():
            with self.subTest(key):
                self.assertEqual(places(with_section("cache", sound | {key: value})), [f"cache.{key}"])
        turned = {"judge_min_cosine": 0.9, "judge_max_cosine": 0.8}
        self.assertEqual(places(with_section("cache", sound | turned)), ["cache.judge_min_cosine"])
        self.assertEqual(places(with_section("cache", {"judge": "mini"})), ["cache.judge_key_env"])
        self.assertEqual(places(with_section("cache", {"judge": 1})), ["cache.judge", "cache.judge_key_env"])

    def test_what_is_said_of_a_judge_needs_one(self) -> None:
        """Each key of it; and the key itself never stands in the file."""
        for key, value in (("judge_key_env", "JUDGE_KEY"), ("judge_audit_percent", 1), ("judge_auditor", "mini")):
            self.assertEqual(places(with_section("cache", {key: value})), [f"cache.{key}"])
        pasted = {"judge": "mini", "judge_key_env": "K", "judge_key": "sk-gw-1"}
        told = "cache.judge_key: unknown key; did you mean judge_key_env?"
        self.assertEqual(faults(with_section("cache", pasted)), (told,))

    def test_a_judge_without_its_key_is_a_warning(self) -> None:
        """So that a file can be checked where there are no secrets; the value is shown nowhere."""
        data = with_section("cache", {"semantic": True, "judge": "mini", "judge_key_env": "JUDGE_KEY"})
        unset = from_mapping(data, {})
        self.assertEqual(unset.warnings, ("cache.judge_key_env: JUDGE_KEY is not set: nobody judges",))
        self.assertFalse(unset.judge_anywhere or unset.uses_judge("acme"))
        config = from_mapping(data, {"JUDGE_KEY": "sk-gw-secret"})
        self.assertTrue(config.judge_anywhere and config.uses_judge("acme"))
        self.assertNotIn("secret", repr(config))
        self.assertFalse(
            from_mapping(data | {"cache": data["cache"] | {"semantic": False}}, {"JUDGE_KEY": "k"}).judge_anywhere
        )

    def test_a_judge_is_in_the_regions_of_those_it_sees(self) -> None:
        """Every deployment that may serve it or the auditor, however they are named."""
        cache = {"semantic": True, "judge_key_env": "K"}
        base = document()
        far = base["deployments"][0] | {"name": "far", "region": "us"}
        near = base["deployments"][0] | {"name": "near", "region": "eu", "model": "other"}
        aliases = [
            {"name": "home", "deployments": ["near"]},
            {"name": "both", "deployments": ["near", "far"]},
            {"name": "climbs", "deployments": ["near"], "escalate": True},
        ]
        tenants = [{"name": "acme", "regions": ["eu"]}, {"name": "mute", "judge": False}, {"name": "free"}]
        for judge, auditor, sees in (
            ("near", None, True),
            ("home", None, True),
            ("other", None, True),
            ("far", None, False),
            ("both", None, False),
            ("climbs", None, False),
            ("auto", None, False),
            ("gpt-4o-mini", None, False),
            ("near", "far", False),
        ):
            named = {"judge": judge} | ({"judge_auditor": auditor} if auditor else {})
            data = base | {"deployments": [far, near], "aliases": aliases, "tenants": tenants, "cache": cache | named}
            with self.subTest(judge, auditor=auditor):
                config = from_mapping(data, {"K": "k"})
                self.assertEqual(config.uses_judge("acme"), sees)
                self.assertEqual([config.uses_judge(name) for name in ("mute", "free", "nobody")], [False, True, True])

    def test_unknown_keys_are_refused_at_every_level(self) -> None:
        """A misspelt key never passes for a default."""
        levels = {
            "extra": with_section("extra", {}),
            "providers[0].extra": with_provider(extra=1),
            "deployments[0].extra": with_deployment(extra=1),
            "deployments[0].price.extra": with_deployment(price={"input": 1, "output": 1, "extra": 1}),
            "deployments[0].price.from": with_deployment(price={"input": 1, "output": 1, "from": "x"}),
            "providers[1].script[0].extra": with_script({"text": "x", "extra": 1}),
            "aliases[0].extra": with_section("aliases", [{"name": "a", "deployments": ["mini"], "extra": 1}]),
            "tenants[0].extra": with_section("tenants", [{"name": "a", "extra": 1}]),
        }
        for section in ("server", "store", "budget", "router", "retry", "breaker", "cache"):
            levels[f"{section}.extra"] = with_section(section, {"extra": 1})
        for place, data in levels.items():
            with self.subTest(place):
                self.assertEqual(faults(data), (f"{place}: unknown key",))

    def test_a_key_that_is_nearly_right_is_told_the_right_one(self) -> None:
        """At every level; a credential in the file is told of the variable that belongs there."""
        for place, meant, data in (
            ("deployments[0].teir", "tier", with_deployment(teir="cheap")),
            ("providers[0].api_key", "api_key_env", with_provider(api_key="sk-secret")),
            ("tenant", "tenants", with_section("tenant", [])),
            ("budget.windows", "window", with_section("budget", {"windows": "day"})),
            ("cache.semantik", "semantic", with_section("cache", {"semantik": True})),
            ("tenants[0].window", "budget_window", with_section("tenants", [{"name": "a", "window": "day"}])),
            ("tenants[0].rate", "rate_per_s", with_section("tenants", [{"name": "a", "rate": 5}])),
        ):
            with self.subTest(place):
                self.assertEqual(faults(data), (f"{place}: unknown key; did you mean {meant}?",))

    def test_a_word_of_several_keys_means_none_of_them(self) -> None:
        """One of them would be a guess."""
        self.assertEqual(faults(with_section("server", {"max": 1})), ("server.max: unknown key",))

    def test_where_it_listens_is_an_argument(self) -> None:
        """Of `serve`: the first keys that one looks for in [server] are none."""
        for key, option in (("host", "--host"), ("port", "--port")):
            told = f"server.{key}: is no key: where it listens is said at the start, `gateway serve {option}`"
            self.assertEqual(faults(with_section("server", {key: "0.0.0.0"})), (told,))

    def test_the_address_of_a_request_is_no_base_url(self) -> None:
        """The path is appended; twice it would be a 404 at each call."""
        for path in ("/v1/chat/completions", "/v1/chat/completions/"):
            (told,) = faults(with_provider(base_url=f"http://upstream{path}"))
            self.assertEqual(told, "providers[0].base_url: must end before /chat/completions, which is appended to it")

    def test_a_field_is_known_by_its_key_in_the_file_only(self) -> None:
        """The names inside the program (amounts in nano-dollars, credentials) are no keys."""
        self.assertEqual(places(with_section("budget", {"limit_nanousd": 1})), ["budget.limit_nanousd"])
        self.assertEqual(places(with_provider(api_keys=["x"])), ["providers[0].api_keys"])
        self.assertEqual(places(with_deployment(prices=1)), ["deployments[0].prices"])

    def test_an_odd_key_stays_on_its_line(self) -> None:
        """A key with a line end is shown quoted, so one fault is one line."""
        self.assertEqual(faults(with_section("a\nb", 1)), ('"a\\nb": unknown key',))
        self.assertEqual(faults(with_section("", 1)), ('"": unknown key',))

    def test_sections_of_the_wrong_shape_are_faults(self) -> None:
        """A table where an array belongs, an array where a table belongs, and items that are no tables."""
        self.assertEqual(faults(with_section("server", [])), ("server: must be a table",))
        brackets = "must be an array of tables, each with a header in double brackets"
        self.assertEqual(faults(with_section("aliases", {})), (f"aliases: {brackets}",))
        self.assertEqual(faults(with_section("tenants", [1])), ("tenants[0]: must be a table",))
        everything = with_section("tenants", [{"name": "acme", "models": "*"}])
        self.assertEqual(faults(everything), ("tenants[0].models: must be an array, in brackets",))

    def test_required_keys_are_named(self) -> None:
        """What has no default must be there."""
        data: dict[str, object] = {"providers": [{}], "deployments": [{}], "aliases": [{}], "tenants": [{}]}
        self.assertCountEqual(
            places(data),
            [
                "providers[0].name",
                "providers[0].base_url",
                "deployments[0].name",
                "deployments[0].provider",
                "deployments[0].model",
                "deployments[0].price",
                "aliases[0].name",
                "aliases[0].deployments",
                "tenants[0].name",
            ],
        )

    def test_at_least_one_deployment_is_needed(self) -> None:
        """A gateway in front of nothing is a mistake."""
        self.assertEqual(text_faults(""), ("deployments: at least one is needed",))


class TomlTest(unittest.TestCase):
    def test_a_syntax_error_names_its_line(self) -> None:
        """The line is in the fault, at the end of the document too."""
        (fault,) = text_faults("[server]\nqueue = = 1\n")
        self.assertIn("line 2", fault)
        (fault,) = text_faults("[server]\nqueue =")
        self.assertIn("line 2", fault)

    def test_documents_that_upset_the_parser_are_faults(self) -> None:
        """Deep nesting and endless numbers end in a ConfigError."""
        self.assertEqual(len(text_faults("a = " + "[" * 100_000)), 1)
        self.assertEqual(len(text_faults("a = " + "1" * 5_000)), 1)

    def test_numbers_beyond_every_range_are_faults_of_their_fields(self) -> None:
        """An exponent that no decimal holds, infinity and not-a-number are refused where they stand."""
        for number in ("1e9999999999999999999", "1e999999", "1e-999999", "inf", "-inf", "nan", "-0.1"):
            for key in ("server.drain_s", "budget.usd", "tenants.rate_per_s"):
                section, name = key.split(".")
                header = f"[[{section}]]\nname = 'a'" if section == "tenants" else f"[{section}]"
                if (number, key) == ("1e-999999", "server.drain_s"):
                    continue  # as good as 0, which a drain may take
                with self.subTest(key, number=number):
                    (fault,) = text_faults(f"{MINIMAL}\n{header}\n{name} = {number}")
                    self.assertIn(name, fault)

    def test_a_file_is_read_from_its_path(self) -> None:
        """UTF-8, with or without a byte-order mark; anything else is a ConfigError that names the file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "gateway.toml"
            path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
            self.assertEqual(list(load_file(path, {}).deployments), ["mini"])
            path.write_bytes(b"# caf\xe9")
            for unreadable, words in ((path, "UTF-8"), (Path(folder) / "none", "No such file"), (Path(folder), "dir")):
                with self.subTest(words), self.assertRaisesRegex(ConfigError, words) as caught:
                    load_file(unreadable, {})
                self.assertIn(str(unreadable), str(caught.exception))


class NumbersTest(unittest.TestCase):
    def test_a_bool_is_never_a_number(self) -> None:
        """TOML's true is not 1, for whole numbers, durations, money, prices and rates."""
        self.assertEqual(places(with_section("server", {"queue": True})), ["server.queue"])
        self.assertEqual(places(with_section("server", {"drain_s": True})), ["server.drain_s"])
        self.assertEqual(places(with_section("budget", {"usd": True})), ["budget.usd"])
        self.assertEqual(
            places(with_section("tenants", [{"name": "a", "rate_per_s": True}])), ["tenants[0].rate_per_s"]
        )
        price = {"input": True, "output": 1}
        self.assertEqual(places(with_deployment(price=price)), ["deployments[0].price.input"])

    def test_durations_take_whole_and_broken_numbers(self) -> None:
        """5, 0.5 as a decimal and 0.5 as a float are all seconds."""
        for value in (5, Decimal("0.5"), 0.5):
            with self.subTest(value):
                config = from_mapping(with_section("server", {"header_timeout_s": value}), {})
                self.assertEqual(config.server.header_timeout_s, float(value))
                self.assertIs(type(config.server.header_timeout_s), float)

    def test_counts_take_whole_numbers_only(self) -> None:
        """A number with a point is not a count, even if nothing stands behind the point."""
        for value in (Decimal("5.0"), 5.0, "5", -1, 2**60):
            with self.subTest(value):
                self.assertEqual(places(with_section("server", {"queue": value})), ["server.queue"])

    def test_zero_is_taken_where_it_means_something(self) -> None:
        """No queue, no wait, no cache, no pause; but a timeout, a bound or a threshold of 0 could never work."""
        meaningful = {
            "server": ["queue", "queue_wait_s", "announce_s", "drain_s", "head_hold_s"],
            "retry": [
                "max_retries",
                "base_s",
                "cap_s",
                "retry_after_max_s",
                "pause_s",
                "budget_percent",
                "budget_floor",
            ],
            "cache": ["exact_ttl_s"],
        }
        meaningless = {
            "server": [
                *("max_body_bytes", "request_memory_bytes", "max_connections", "max_in_flight", "max_per_tenant"),
                *("header_timeout_s", "body_timeout_s", "write_timeout_s", "idle_timeout_s"),
            ],
            "store": ["unresolved_after_s", "hold_ttl_s"],
            "breaker": ["threshold", "cooldown_s"],
            "cache": ["exact_max_bytes"],
        }
        for section, keys in meaningful.items():
            self.assertEqual(places(with_section(section, dict.fromkeys(keys, 0))), [])
        for section, keys in meaningless.items():
            found = places(with_section(section, dict.fromkeys(keys, 0)))
            self.assertCountEqual(found, [f"{section}.{key}" for key in keys])
        clocks = ["connect_timeout_s", "ttft_timeout_s", "idle_timeout_s", "total_timeout_s"]
        keys = [*clocks, "max_event_bytes", "max_answer_bytes"]
        found = places(with_provider(**dict.fromkeys(keys, 0)))
        self.assertCountEqual(found, [f"providers[0].{key}" for key in keys])

    def test_durations_have_an_upper_bound(self) -> None:
        """A number that the system's clocks cannot take is refused at the start, not at the first wait."""
        self.assertEqual(places(with_section("server", {"drain_s": 86_400})), [])
        self.assertEqual(places(with_section("server", {"drain_s": 86_401})), ["server.drain_s"])
        self.assertEqual(places(with_section("store", {"unresolved_after_s": 86_401})), [])


class NamesTest(unittest.TestCase):
    def test_names_are_visible_ascii_without_the_separators_of_a_route(self) -> None:
        """They travel in headers; comma and equals sign separate the hops of a route."""
        self.assertEqual(places(with_deployment(name="!~-<>+.:/" + "x" * 119)), [])
        for name in ("", "a b", "a,b", "a=b", "caf\u00e9", "a\tb", "a\n", "x" * 129, 1):
            with self.subTest(name):
                self.assertIn("deployments[0].name", places(with_deployment(name=name)))
                self.assertIn("providers[0].name", places(with_provider(name=name)))
                alias = {"name": name, "deployments": ["mini"]}
                self.assertEqual(places(with_section("aliases", [alias])), ["aliases[0].name"])

    def test_tenant_names_are_lower_case_words(self) -> None:
        """Up to 63 of a-z, 0-9 and hyphen, no hyphen first."""
        for name in ("a", "0", "a-b-", "a" * 63):
            self.assertEqual(places(with_section("tenants", [{"name": name}])), [])
        for name in ("", "-a", "A", "a_b", "a.b", "a" * 64, "a\n"):
            with self.subTest(name):
                self.assertEqual(places(with_section("tenants", [{"name": name}])), ["tenants[0].name"])

    def test_a_name_is_given_once_per_kind(self) -> None:
        """The second bearer is the fault."""
        for kind in ("providers", "deployments", "aliases", "tenants"):
            data = document() | {
                "aliases": [{"name": "fast", "deployments": ["mini"]}],
                "tenants": [{"name": "acme"}],
            }
            data[kind] = data[kind] * 2
            with self.subTest(kind):
                self.assertEqual(places(data), [f"{kind}[1].name"])

    def test_auto_belongs_to_the_router(self) -> None:
        """Neither an alias nor a deployment may take the name."""
        alias = {"name": "auto", "deployments": ["mini"]}
        self.assertEqual(places(with_section("aliases", [alias])), ["aliases[0].name"])
        self.assertEqual(places(with_deployment(name="auto")), ["deployments[0].name"])

    def test_an_alias_does_not_hide_a_deployment(self) -> None:
        """A deployment's name is an alias already."""
        alias = {"name": "mini", "deployments": ["mini"]}
        self.assertEqual(places(with_section("aliases", [alias])), ["aliases[0].name"])

    def test_an_alias_leads_to_deployments_that_exist_each_once(self) -> None:
        """Unknown, repeated, no, and oddly typed deployments are faults at their place."""
        cases: list[tuple[object, str]] = [
            (["mini", "gone"], "aliases[0].deployments[1]"),
            (["mini", "mini"], "aliases[0].deployments[1]"),
            ([["mini"]], "aliases[0].deployments[0]"),
            ([], "aliases[0].deployments"),
            ("mini", "aliases[0].deployments"),
        ]
        for deployments, place in cases:
            with self.subTest(deployments):
                alias = {"name": "fast", "deployments": deployments}
                self.assertEqual(places(with_section("aliases", [alias])), [place])

    def test_a_deployment_needs_a_provider_that_exists(self) -> None:
        """The fault names the provider that is missing."""
        self.assertEqual(
            faults(with_deployment(provider="other")),
            ("deployments[0].provider: there is no provider named 'other'",),
        )


class ProviderTest(unittest.TestCase):
    def test_base_urls_are_plain_addresses(self) -> None:
        """http or https, a host, perhaps a port and a path; the slash at the end is dropped."""
        for url in (
            "http://localhost",
            "https://api.example.org/v1",
            "http://10.0.0.1:65535/a/b",
            "http://[::1]:8000/v1",
            "http://my_service:80",
        ):
            for written in (url, url + "/"):
                with self.subTest(written):
                    config = from_mapping(with_provider(base_url=written), {})
                    self.assertEqual(config.providers["primary"].base_url, url)

    def test_other_base_urls_are_refused_and_not_shown(self) -> None:
        """No userinfo, query, fragment, odd port, odd host or odd character; a password in it is not repeated."""
        for url in (
            "https://user:hunter2@example.org/v1",
            "https://hunter2@example.org",
            "https://example.org/v1?key=hunter2",
            "https://example.org/v1?",
            "https://example.org/v1#hunter2",
            "ftp://example.org",
            "example.org",
            "https://",
            "https:///v1",
            "http://example.org:0",
            "http://example.org:65536",
            "http://example.org:",
            "http://example.org:80x",
            "http://example..org",
            f"http://{'x' * 64}.org",
            "http://exa mple.org",
            "http://example.org/a b",
            "http://example.org\\@evil.org",
            "http://example.org/v1\n",
            "http://caf\u00e9.org",
            "http://-example.org",
            f"http://{'a.' * 127}org",
            "http://[127.0.0.1]",
            "http://[:::]",
            "http://[::1]x",
            "HTTP://example.org",
            7,
        ):
            with self.subTest(url):
                (fault,) = faults(with_provider(base_url=url))
                self.assertTrue(fault.startswith("providers[0].base_url: must be http(s)://"))
                self.assertNotIn("hunter2", fault)

    def test_credentials_come_from_the_environment(self) -> None:
        """One name, or several that are rotated over."""
        env = {"A": "key-a", "B": "key-b"}
        self.assertEqual(
            from_mapping(with_provider(api_key_env="A"), env).providers["primary"].api_keys, (Secret("key-a"),)
        )
        both = from_mapping(with_provider(api_key_env=["B", "A"]), env).providers["primary"].api_keys
        self.assertEqual([key.reveal() for key in both], ["key-b", "key-a"])

    def test_a_variable_that_cannot_serve_is_named(self) -> None:
        """Characters that no header carries are a fault; the value itself is never told."""
        env = {"BROKEN": "hunter2\n", "GOOD": "key"}
        (fault,) = faults(with_provider(api_key_env="BROKEN"), env)
        self.assertIn("the environment variable BROKEN holds", fault)
        self.assertNotIn("hunter2", fault)
        self.assertEqual(places(with_provider(api_key_env=["GOOD", "GOOD"]), env), ["providers[0].api_key_env[1]"])
        self.assertEqual(places(with_provider(api_key_env=[]), env), ["providers[0].api_key_env"])

    def test_a_variable_that_is_not_set_is_a_warning(self) -> None:
        """The file can be checked where there are no secrets; what is set is used."""
        env = {"EMPTY": "", "GOOD": "key"}
        config = from_mapping(with_provider(api_key_env=["GONE", "GOOD", "EMPTY"]), env)
        self.assertEqual([secret.reveal() for secret in config.providers["primary"].api_keys], ["key"])
        self.assertEqual(
            config.warnings,
            tuple(f"providers[0].api_key_env: {name} is not set: no credential is sent" for name in ("GONE", "EMPTY")),
        )

    def test_a_credential_in_place_of_a_name_is_not_shown(self) -> None:
        """Somebody pastes the key itself into api_key_env: the fault does not repeat it."""
        for pasted in (KEY, [KEY]):
            with self.subTest(type(pasted)):
                (fault,) = faults(with_provider(api_key_env=pasted))
                self.assertNotIn(KEY, fault)

    def test_secrets_are_in_no_printed_form(self) -> None:
        """Neither the configuration nor the text of its faults holds a credential."""
        config = load(SPEC_EXAMPLE, ENV)
        self.assertNotIn(KEY, repr(config))
        self.assertIn("***", repr(config))
        with self.assertRaises(ConfigError) as caught:
            load(SPEC_EXAMPLE + "\n[extra]\n", ENV)
        self.assertNotIn(KEY, str(caught.exception))

    def test_real_and_fake_providers_have_their_own_keys(self) -> None:
        """A fake needs a script and no address; a real one needs an address and no script."""
        self.assertEqual(places(with_script()), ["providers[1].script"])
        self.assertEqual(places(with_script({"text": "x"}, base_url="http://h")), ["providers[1].base_url"])
        script = [{"text": "x"}]
        self.assertEqual(
            places(with_provider(script=script, repeat=True)), ["providers[0].script", "providers[0].repeat"]
        )


class ScriptTest(unittest.TestCase):
    def test_the_documented_entries_are_read(self) -> None:
        """Each outcome with the details that may stand beside it."""
        self.assertEqual(read_entry(text="hello"), ScriptEntry(text="hello"))
        self.assertEqual(read_entry(status=429, retry_after=2), ScriptEntry(status=429, retry_after=2.0))
        self.assertEqual(read_entry(status=500, error="no"), ScriptEntry(status=500, error="no"))
        self.assertEqual(read_entry(timeout=True), ScriptEntry(timeout=True))
        self.assertEqual(read_entry(malformed=True), ScriptEntry(malformed=True))
        cut = read_entry(text="hello", latency_s=Decimal("0.2"), cut_after=3)
        self.assertEqual(cut, ScriptEntry(text="hello", latency_s=0.2, cut_after=3))
        self.assertEqual(read_entry(text="x", usage="missing"), ScriptEntry(text="x", usage="missing"))
        thought = read_entry(text="", reasoning="hm", finish_reason="length", timeout=False)
        self.assertEqual(thought, ScriptEntry(text="", reasoning="hm", finish_reason="length"))

    def test_tool_calls_and_usage_are_plain_json(self) -> None:
        """Decimals of the file become numbers that a JSON encoder takes."""
        calls = [{"name": "f", "arguments": {"x": Decimal("0.5"), "y": [1, "a", True]}}]
        entry = read_entry(tool_calls=calls, usage={"prompt_tokens": 3})
        self.assertEqual(entry.tool_calls, ({"name": "f", "arguments": {"x": 0.5, "y": [1, "a", True]}},))
        self.assertEqual(entry.usage, {"prompt_tokens": 3})

    def test_data_that_json_does_not_have_is_refused(self) -> None:
        """Dates, infinities, endless nesting, and things that are no tables."""
        endless: dict[str, Any] = {}
        for _ in range(40):
            endless = {"a": endless}
        for usage in ({"a": date(2026, 1, 1)}, {"a": Decimal("inf")}, {"a": Decimal("1e999")}, endless, "none", 1):
            with self.subTest(usage):
                self.assertEqual(places(with_script({"text": "x", "usage": usage})), ["providers[1].script[0].usage"])
        tool_calls: list[object] = [[], [1], "f", {}]
        for calls in tool_calls:
            with self.subTest(calls):
                self.assertEqual(places(with_script({"tool_calls": calls})), ["providers[1].script[0].tool_calls"])

    def test_an_entry_has_exactly_one_outcome(self) -> None:
        """None, two, and one that is switched off are refused."""
        for entry in ({}, {"text": "x", "status": 500}, {"timeout": False}, {"reasoning": "x"}):
            with self.subTest(entry):
                self.assertEqual(places(with_script(entry)), ["providers[1].script[0]"])

    def test_details_belong_to_their_outcome(self) -> None:
        """A detail that the outcome would ignore is refused."""
        wrong: list[tuple[dict[str, object], str]] = [
            ({"text": "x", "retry_after": 1}, "retry_after"),
            ({"text": "x", "error": "no"}, "error"),
            ({"status": 500, "cut_after": 1}, "cut_after"),
            ({"timeout": True, "usage": "missing"}, "usage"),
            ({"malformed": True, "finish_reason": "stop"}, "finish_reason"),
        ]
        for entry, key in wrong:
            with self.subTest(entry):
                self.assertEqual(places(with_script(entry)), [f"providers[1].script[0].{key}"])

    def test_a_scripted_status_is_not_a_success(self) -> None:
        """A success is written as a text or as tool calls."""
        for status in (200, 299, 600, "500"):
            with self.subTest(status):
                self.assertEqual(places(with_script({"status": status})), ["providers[1].script[0].status"])


class PriceTest(unittest.TestCase):
    def test_a_missing_price_is_not_zero(self) -> None:
        """The fault says so, of which model, and how one that is free is written; it shows no name that is none."""
        data = document()
        del data["deployments"][0]["price"]
        why = 'an unknown price is never zero (a model that costs nothing says "free")'
        self.assertEqual(faults(data), (f"deployments[0].price: is required for mini (gpt-4o-mini): {why}",))
        data["deployments"][0]["name"] = "no name"
        self.assertIn(f"deployments[0].price: is required: {why}", faults(data))

    def test_free_is_a_price(self) -> None:
        """It holds from the beginning."""
        entry = read_prices("free").at(0)
        assert entry is not None
        self.assertEqual(entry.price, Price.FREE)

    def test_dated_prices_follow_each_other(self) -> None:
        """Each entry holds from its moment, given as a TOML time or as text; its version is that moment in UTC."""
        start = datetime(2026, 7, 1, 2, tzinfo=timezone(timedelta(hours=2)))
        book = read_prices(
            [
                {"from": start, "input": 2, "output": 2},
                {"from": "2026-01-01T00:00:00Z", "input": 1, "output": 1},
            ]
        )
        january, july = (int(datetime(2026, month, 1, tzinfo=UTC).timestamp()) * 1000 for month in (1, 7))
        self.assertIsNone(book.at(january - 1))
        found = [book.at(ms) for ms in (january, july - 1, july)]
        self.assertEqual([entry and entry.price.input_pico for entry in found], [1_000_000, 1_000_000, 2_000_000])
        self.assertEqual([entry.version for entry in book.entries], ["2026-01-01T00:00:00Z", "2026-07-01T00:00:00Z"])

    def test_times_of_prices_are_unmistakable(self) -> None:
        """An offset, whole seconds, 1970 or later, no moment twice."""
        for start in (
            datetime(2026, 1, 1),  # noqa: DTZ001 - what TOML's local date-time becomes
            date(2026, 1, 1),
            datetime(1969, 12, 31, tzinfo=UTC),
            datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=5))),
            datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-13-01T00:00:00Z",
            "20260101T000000Z",
            1_700_000_000,
        ):
            with self.subTest(start):
                data = with_deployment(price=[{"from": start, "input": 1, "output": 1}])
                self.assertEqual(places(data), ["deployments[0].price[0].from"])
        entry = {"from": "2026-01-01T00:00:00Z", "input": 1, "output": 1}
        same = entry | {"from": "2026-01-01T01:00:00+01:00"}
        self.assertEqual(places(with_deployment(price=[entry, same])), ["deployments[0].price[1].from"])
        self.assertEqual(places(with_deployment(price=[{"input": 1, "output": 1}])), ["deployments[0].price[0].from"])

    def test_a_deployment_whose_prices_begin_later_is_warned_of(self) -> None:
        """Until they do; it is no fault, for a price may be written down before it is in force."""
        starts = ("2026-02-01T00:00:00Z", "2026-01-01T01:00:00+01:00")
        config = from_mapping(with_deployment(price=[{"from": each, "input": 1, "output": 1} for each in starts]), {})
        begin_ms = 1_767_225_600_000
        warning = "deployments: mini has no price before 2026-01-01T00:00:00Z, and gets no call until then"
        self.assertEqual([*config.warnings_at(begin_ms - 1)], [warning])
        self.assertEqual([*config.warnings_at(begin_ms)], [])
        self.assertEqual([*from_mapping(with_deployment(price="free"), {}).warnings_at(0)], [])

    def test_every_fault_of_a_price_is_told(self) -> None:
        """Each key on its own line; too many decimals are not rounded."""
        price = {"input": -1, "cached_input": "cheap", "cache_write": Decimal("0.0000001"), "typo": 1}
        self.assertCountEqual(
            places(with_deployment(price=price)),
            [f"deployments[0].price.{key}" for key in ("input", "output", "cached_input", "cache_write", "typo")],
        )

    def test_other_prices_are_refused(self) -> None:
        """Words, numbers and empty arrays."""
        prices: list[object] = ["Free", 0, [], True]
        for price in prices:
            with self.subTest(price):
                self.assertEqual(places(with_deployment(price=price)), ["deployments[0].price"])


class TenantAndBudgetTest(unittest.TestCase):
    def test_money_is_exact(self) -> None:
        """Decimals, whole numbers and text become nano-dollars; what has no exact amount is refused."""
        for usd, nanousd in ((Decimal("0.1"), 100_000_000), (3, 3_000_000_000), ("0.000000001", 1), (0, 0)):
            with self.subTest(usd):
                self.assertEqual(from_mapping(with_section("budget", {"usd": usd}), {}).budget.limit_nanousd, nanousd)
        inexact: list[object] = [Decimal("1e-10"), -1, 0.1, "much", 10**12, [], Decimal("nan")]
        for wrong in inexact:
            with self.subTest(wrong):
                self.assertEqual(places(with_section("budget", {"usd": wrong})), ["budget.usd"])
                self.assertEqual(
                    places(with_section("tenants", [{"name": "a", "budget_usd": wrong}])), ["tenants[0].budget_usd"]
                )

    def test_rates_are_exact_and_bring_a_burst(self) -> None:
        """A burst that is not given is what a second refills, at least 1."""
        for rate, burst in ((50, 50), (Decimal("0.1"), 1), (Decimal("2.5"), 3)):
            with self.subTest(rate):
                tenant = from_mapping(with_section("tenants", [{"name": "a", "rate_per_s": rate}]), {}).tenants["a"]
                self.assertEqual((tenant.rate_per_s, tenant.burst), (Fraction(rate), burst))

    def test_rates_that_cannot_be_kept_are_refused(self) -> None:
        """Zero, below a millionth, above a million; a burst without a rate, and an empty bucket."""
        for rate in (0, Decimal("1e-7"), 1_000_001, "50"):
            with self.subTest(rate):
                tenant = {"name": "a", "rate_per_s": rate, "burst": 1}
                self.assertEqual(places(with_section("tenants", [tenant])), ["tenants[0].rate_per_s"])
        self.assertEqual(places(with_section("tenants", [{"name": "a", "burst": 1}])), ["tenants[0].burst"])
        empty = {"name": "a", "rate_per_s": 1, "burst": 0}
        self.assertEqual(places(with_section("tenants", [empty])), ["tenants[0].burst"])

    def test_a_pattern_that_matches_nothing_is_a_warning(self) -> None:
        """The tenant may ask for less than was meant; every alias, deployment, model id and `auto` is a name."""
        matching = ["auto", "fast", "mini", "gpt-4o-mini", "gpt-*", "?ini", "*"]
        tenants = [{"name": "a"}, {"name": "b", "models": [*matching, "gtp-*", "Mini"]}]
        data = with_section("tenants", tenants) | {"aliases": [{"name": "fast", "deployments": ["mini"]}]}
        said = [f"tenants[1].models: {each} matches no alias, deployment or model" for each in ("'gtp-*'", "'Mini'")]
        self.assertEqual(from_mapping(data, {}).warnings, tuple(said))

    def test_a_tenant_without_models_differs_from_one_with_all(self) -> None:
        """An empty list allows nothing; no list allows everything."""
        config = from_mapping(with_section("tenants", [{"name": "a", "models": []}, {"name": "b"}]), {})
        self.assertEqual((config.tenants["a"].models, config.tenants["b"].models), ((), None))

    def test_regions_without_a_deployment_are_a_warning(self) -> None:
        """Nothing can serve the tenant; a slip in a name would show in its refusals only."""
        tenants = [{"name": "a"}, {"name": "b", "regions": ["us", "eu"]}, {"name": "c", "regions": ["uss"]}]
        data = with_section("tenants", tenants)
        data["deployments"][0]["region"] = "us"
        self.assertEqual(from_mapping(data, {}).warnings, ("tenants[2].regions: no deployment stands in any of them",))

    def test_a_tenant_may_be_kept_to_regions(self) -> None:
        """No list is everywhere; a list that allows nowhere, twice the same or no name is a fault."""
        config = from_mapping(with_section("tenants", [{"name": "a", "regions": ["eu", "us"]}, {"name": "b"}]), {})
        self.assertEqual((config.tenants["a"].regions, config.tenants["b"].regions), (("eu", "us"), None))
        for regions, place in (
            ([], "regions"),
            (["eu", "eu"], "regions[1]"),
            (["e u"], "regions[0]"),
            ("eu", "regions"),
        ):
            with self.subTest(regions):
                self.assertEqual(
                    places(with_section("tenants", [{"name": "a", "regions": regions}])), [f"tenants[0].{place}"]
                )

    def test_the_words_of_each_choice_are_checked(self) -> None:
        """A word outside its list is a fault that tells the list."""
        cases = {
            "store.durability": with_section("store", {"durability": "half"}),
            "store.on_crash": with_section("store", {"on_crash": "forget"}),
            "store.unresolved_policy": with_section("store", {"unresolved_policy": "forget"}),
            "budget.window": with_section("budget", {"window": "year"}),
            "tenants[0].budget_window": with_section("tenants", [{"name": "a", "budget_window": "hour"}]),
            "aliases[0].strategy": with_section("aliases", [with_weights() | {"strategy": "random"}]),
            "aliases[0].escalate": with_section("aliases", [with_weights() | {"escalate": 1}]),
            "deployments[0].weight": with_deployment(weight=0),
            "deployments[0].region": with_deployment(region="e,u"),
            "deployments[0].tier": with_deployment(tier="Cheap"),
            "deployments[0].output_cap_field": with_deployment(output_cap_field="max"),
            "deployments[0].supports[1]": with_deployment(supports=["tools", "audio"]),
            "deployments[0].quarantine_on_overage": with_deployment(quarantine_on_overage="yes"),
            "providers[0].dialect": with_provider(dialect="smoke signals"),
        }
        for place, data in cases.items():
            with self.subTest(place):
                self.assertEqual(places(data), [place])


class TypesTest(unittest.TestCase):
    def test_tiers_are_ordered_by_strength(self) -> None:
        """Weakest first, by declaration and by comparison."""
        self.assertEqual(sorted(Tier), list(Tier))
        self.assertEqual(list(Tier), ["cheap", "standard", "strong"])
        self.assertEqual(list(Window), ["total", "day", "week", "month"])

    def test_a_secret_shows_itself_to_reveal_only(self) -> None:
        """repr, str and formatting give three asterisks."""
        secret = Secret("hunter2")
        self.assertEqual((repr(secret), str(secret), f"{secret}", "%s" % secret), ("***",) * 4)  # noqa: UP031
        self.assertEqual(secret.reveal(), "hunter2")

    def test_secrets_compare_by_value(self) -> None:
        """A reloaded configuration can be told from the one before."""
        self.assertEqual(Secret("a"), Secret("a"))
        self.assertEqual(hash(Secret("a")), hash(Secret("a")))
        self.assertNotEqual(Secret("a"), Secret("b"))
        self.assertNotEqual(Secret("a"), "a")


class SemanticTest(unittest.TestCase):
    """Where the semantic cache may be used."""

    def test_one_level_says_yes_and_none_says_no(self) -> None:
        """[cache], the tenant, the alias: all 27 ways to say yes, no or nothing."""
        for said in itertools.product((True, False, None), repeat=3):
            cache, tenant, alias = ({} if value is None else {"semantic": value} for value in said)
            data = document() | {
                "cache": cache,
                "tenants": [{"name": "acme", **tenant}, {"name": "other"}],
                "aliases": [{"name": "fast", "deployments": ["mini"], **alias}],
            }
            config = from_mapping(data, {})
            with self.subTest(said):
                self.assertEqual(config.uses_semantic("acme", "fast"), True in said and False not in said)
                self.assertEqual(config.uses_semantic("nobody", "mini"), said[0] is True)
                anywhere = [(tenant, name) for tenant in ("acme", "other") for name in ("fast", "mini")]
                self.assertEqual(
                    config.semantic_anywhere, any(config.uses_semantic(tenant, name) for tenant, name in anywhere)
                )
