"""Who may ask for what, and how often."""

import contextlib
import json
import random
import tempfile
import unittest
from fractions import Fraction
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gateway.admission import Admission, Admitted, may_ask
from gateway.chat import parse_chat
from gateway.context import Facts, Options
from gateway.errors import InvalidApiKey, InvalidRequest, ModelNotAllowed, ModelNotFound, RateLimited, RegionNotAllowed
from gateway.keys import ShownKey
from gateway.levels import Scope
from gateway.router import Catalog
from gateway.types import Window
from tests.support.world import CONFIG, SimWorld, chat, settle_story

LIMITED = (
    CONFIG
    + """
[[deployments]]
name = "european"
provider = "up"
model = "gw-mini"
region = "eu"
supports = []
price = { input = 1, output = 4 }

[[tenants]]
name = "acme"
models = ["mini", "gw-*"]
rate_per_s = 2
burst = 2

[[tenants]]
name = "closed"
models = []

[[tenants]]
name = "local"
regions = ["eu"]
rate_per_s = 1
burst = 1
"""
)


class PatternTest(unittest.TestCase):
    """Names against patterns."""

    def test_a_pattern_matches_the_whole_name(self) -> None:
        """With `*` and `?` as in file names, and exact case."""
        for name, matches in {"gpt-4": True, "gpt-": True, "GPT-4": False, "x-gpt-4": False, "gpt": False}.items():
            with self.subTest(name):
                self.assertIs(may_ask(("gpt-*",), name), matches)
        self.assertTrue(may_ask(("a?c", "b"), "abc"))
        self.assertTrue(may_ask(None, "anything"))
        self.assertFalse(may_ask((), "anything"))

    def test_nothing_but_the_star_and_the_question_mark_is_special(self) -> None:
        """Brackets stand for themselves: a name may hold them, and a list of characters would open other names."""
        for pattern in ("m[12]", "m[!3]", "m[", "m]", "[m]", "m[[]", "m[*]", "m{1,2}", "m\\1", "m.1", "^m$"):
            with self.subTest(pattern):
                self.assertTrue(may_ask((pattern,), pattern))
                self.assertFalse(any(may_ask((pattern,), name) for name in ("m1", "m2", "m", "m[1", "mx1")))


class AdmissionTest(unittest.TestCase):
    """Admission over keys and levels of a simulated process."""

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.world = self.enterContext(contextlib.closing(SimWorld(Path(folder), config=LIMITED)))
        world = self.world
        catalog = Catalog(world.config, random.Random(1).random)
        self.admission = Admission(world.keys, world.ledger, catalog, world.config.tenants, world.clock)

    def admit(self, raw_key: str, model: str = "mini", facts: Facts | None = None, **fields: Any) -> Admitted:
        """Ask for a model."""
        body: dict[str, Any] = chat(**fields) | {"model": model}
        request = parse_chat(json.dumps(body).encode(), Options())
        return self.admission.admit(self.admission.authenticate(ShownKey.of(raw_key)), request, facts or Facts("r"))

    def test_who_asks_is_made_out_once(self) -> None:
        """Until the budget of the key gets another window, which is another level."""
        raw = self.world.key(None)
        first = self.admission.authenticate(ShownKey.of(raw))
        self.assertIs(self.admission.authenticate(ShownKey.of(raw)), first)
        settle_story(self.world.ledger.set_level(Scope.KEY, first.key_id, Window.DAY, 5))
        second = self.admission.authenticate(ShownKey.of(raw))
        self.assertNotEqual(second.account.levels, first.account.levels)
        self.assertEqual(second.account, self.world.ledger.account("acme", first.key_id))

    def test_a_key_is_its_tenants(self) -> None:
        """With the levels that its requests are charged to."""
        raw = self.world.key(None)
        principal = self.admission.authenticate(ShownKey.of(raw))
        key = self.world.keys.authenticate(ShownKey.of(raw))
        self.assertEqual((principal.key_id, principal.tenant, principal.models), (key.id, "acme", ("mini", "gw-*")))
        self.assertEqual(principal.account, self.world.ledger.account("acme", key.id))
        with self.assertRaises(InvalidApiKey):
            self.admission.authenticate(ShownKey.of("sk-gw-nobody-knows"))

    def test_a_tenant_without_configuration_may_ask_for_everything(self) -> None:
        """It was made by the command line."""
        raw = self.world.key(None, tenant="other")
        self.assertIsNone(self.admission.authenticate(ShownKey.of(raw)).models)
        admitted = self.admit(raw, "auto")
        self.assertEqual(admitted.plan.alias, "auto")
        admitted.give_back(0.0, Facts("req"))

    def test_names_outside_the_patterns_are_refused(self) -> None:
        """The name asked for counts, whatever it leads to; a name nobody defined is not there."""
        raw, closed = self.world.key(None), self.world.key(None, tenant="closed")
        self.assertEqual(self.admit(raw, "gw-mini").plan.stages[0][0].name, "mini")
        with self.assertRaises(ModelNotAllowed) as refused:
            self.admit(raw, "auto")
        self.assertEqual((refused.exception.status, refused.exception.param), (403, "model"))
        for unknown in ("gw-unknown", "gw-" * 1000):
            with self.subTest(unknown[:10]), self.assertRaises(ModelNotFound):
                self.admit(raw, unknown)
        with self.assertRaises(ModelNotAllowed):
            self.admit(closed)

    def test_a_key_is_kept_to_the_regions_of_its_tenant(self) -> None:
        """Whatever the name leads to elsewhere; who has none may go everywhere."""
        raw = self.world.key(None, tenant="local")
        self.assertEqual(self.admission.authenticate(ShownKey.of(raw)).regions, ("eu",))
        admitted = self.admit(raw, "gw-mini")
        self.assertEqual([each.name for each in admitted.plan.stages[0]], ["european"])
        with self.assertRaises(RegionNotAllowed):
            self.admit(raw)
        free = self.world.key(None, tenant="other")
        self.assertIsNone(self.admission.authenticate(ShownKey.of(free)).regions)
        self.assertEqual([each.name for each in self.admit(free, "gw-mini").plan.stages[0]], ["mini", "european"])

    def test_a_request_that_nobody_can_serve_takes_no_unit(self) -> None:
        """For want of a capability, or of a region."""
        raw = self.world.key(None, tenant="local")
        facts = Facts("r")
        for _ in range(3):
            with self.assertRaises(RegionNotAllowed):
                self.admit(raw, facts=facts)
            with self.assertRaises(InvalidRequest):
                self.admit(raw, "european", facts, tools=[{"type": "function", "function": {"name": "f"}}])
        self.assertIsNone(facts.rate)
        self.admit(raw, "european")
        with self.assertRaises(RateLimited):
            self.admit(raw, "european")

    def test_a_reload_keeps_the_buckets_whose_rates_are_the_same(self) -> None:
        """Else each reload would admit another burst."""
        raw = self.world.key(None)
        self.admit(raw)
        self.admit(raw)
        former, tenants = self.admission, self.world.config.tenants
        for rate, admits in (((Fraction(2), 2), False), ((Fraction(2), 3), True)):
            changed = dict(tenants) | {"acme": replace(tenants["acme"], rate_per_s=rate[0], burst=rate[1])}
            world = self.world
            catalog = Catalog(world.config, random.Random(1).random)
            self.admission = Admission(world.keys, world.ledger, catalog, changed, world.clock)
            self.admission.succeed(former)
            with self.subTest(rate):
                if admits:
                    self.admit(raw)
                else:
                    self.assertRaises(RateLimited, self.admit, raw)

    def test_a_start_remembers_what_was_admitted_before(self) -> None:
        """As far as it is not refilled, each tenant's for itself; nothing was later than now, whatever a row says."""
        raw, now_ms = self.world.key(None), self.world.clock.wall_ms()
        self.assertEqual(self.admission.memory_s, 1.0)
        self.admission.recall([("acme", now_ms - 499), ("nobody", now_ms), ("closed", now_ms), ("acme", now_ms + 5)])
        with self.assertRaises(RateLimited) as refused:
            self.admit(raw)
        self.assertEqual(refused.exception.retry_after_s, 0.001)
        self.world.clock.advance(0.001)
        self.admit(raw)
        self.assertRaises(RateLimited, self.admit, raw)

    def test_a_refused_name_takes_no_unit(self) -> None:
        """The rate is for requests that could have been served."""
        raw = self.world.key(None)
        for _ in range(5):
            with self.assertRaises(ModelNotAllowed):
                self.admit(raw, "auto")
        self.admit(raw)
        self.admit(raw)

    def test_the_rate_is_the_tenants(self) -> None:
        """Two keys of one tenant share it; the refusal names the instant of the next unit."""
        first, second = self.world.key(None), self.world.key(None)
        facts = Facts("r")
        self.admit(first)
        self.admit(second, facts=facts)
        assert facts.rate is not None
        self.assertEqual((facts.rate.limit, facts.rate.remaining), (2, 0))
        with self.assertRaises(RateLimited) as refused:
            self.admit(first)
        self.assertEqual(refused.exception.retry_after_s, 0.5)
        self.world.clock.advance(0.5)
        self.admit(second)

    def test_a_unit_that_is_given_back_can_be_taken_again(self) -> None:
        """By a request that was refused for another reason."""
        raw = self.world.key(None)
        for _ in range(5):
            self.admit(raw).give_back(self.world.clock.now_s(), Facts("req"))
        self.admit(raw)
        self.admit(raw)
        with self.assertRaises(RateLimited):
            self.admit(raw)

    def test_only_what_may_be_asked_for_is_visible(self) -> None:
        """In the order of the catalog."""
        visible = self.admission.visible_models
        self.assertEqual(visible(self.admission.authenticate(ShownKey.of(self.world.key(None)))), ("mini", "gw-mini"))
        self.assertEqual(visible(self.admission.authenticate(ShownKey.of(self.world.key(None, tenant="closed")))), ())
        other = self.admission.authenticate(ShownKey.of(self.world.key(None, tenant="other")))
        self.assertEqual(visible(other), ("auto", "mini", "european", "gw-mini"))
        local = self.admission.authenticate(ShownKey.of(self.world.key(None, tenant="local")))
        self.assertEqual(visible(local), ("auto", "european", "gw-mini"))
