"""Through the whole gateway: requests that differ in one thing never share an answer, equal ones always do."""

import itertools
import json
import unittest
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.app import build_gateway
from gateway.config import load
from gateway.fake_provider import FakeProvider
from gateway.gateway import Gateway
from tests.support.world import CONFIG, RealWorld

EXAMPLES = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TIERS = """
[[deployments]]
name = "maxi"
provider = "up"
model = "gw-maxi"
tier = "strong"
price = { input = 1, output = 4 }

[[aliases]]
name = "fast"
deployments = ["mini"]

[[tenants]]
name = "acme"
models = [%s]

[[tenants]]
name = "rival"
"""
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | TEXTS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2))
FIELDS = st.sampled_from(
    ["seed", "stop", "top_p", "user", "logit_bias", "metadata", "reasoning_effort", "x_vendor", "response_format"]
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": TEXTS}),
    min_size=1,
    max_size=3,
)


class CacheIsolationTest(unittest.TestCase):
    """An upstream that never says the same thing twice tells whether an answer was shared."""

    world: RealWorld
    keys: dict[str, str]
    narrower: Gateway

    @classmethod
    def setUpClass(cls) -> None:
        upstream = FakeProvider([{"text": f"answer {number}"} for number in range(10_000)], name="up", remembers=0)
        cls.world = RealWorld(config=CONFIG + TIERS % '"*"', providers={"up": upstream})
        cls.addClassCleanup(cls.world.__exit__)
        cls.keys = {tenant: cls.world.key(tenant=tenant) for tenant in ("acme", "rival")}
        narrower = load(CONFIG + TIERS % '"mini", "maxi", "fast", "auto"', {})
        cls.narrower = build_gateway(narrower, cls.world.books, providers={"up": upstream})

    def ask(self, body: dict[str, Any], *, tenant: str = "acme", gateway: Gateway | None = None) -> tuple[str, str]:
        """What the cache said, and the answer."""
        answer = (gateway or self.world.gateway).handle(self.keys[tenant], body)
        return answer["cache"], answer["text"]

    @EXAMPLES
    @given(MESSAGES, st.dictionaries(FIELDS, VALUES, min_size=1, max_size=2), st.data())
    def test_one_difference_is_another_question(
        self, messages: list[dict[str, Any]], fields: dict[str, Any], data: st.DataObject
    ) -> None:
        """A field, a message, a role, the tenant, the tier, the name, the prompt version, a permission."""
        body = {"model": "mini", "temperature": 0, "messages": messages, **fields}
        dropped = data.draw(st.sampled_from(sorted(fields)))
        *earlier, last = messages
        tail = data.draw(st.sampled_from(["?", "x", "\u00a0", "\nx", "  x", "'"]))
        others = [{**body, "model": name} for name in ("fast", "maxi", "gw-mini", "auto")] + [
            {**body, data.draw(FIELDS): data.draw(VALUES)},
            {field: value for field, value in body.items() if field != dropped},
            {**body, "messages": [*earlier, {**last, "role": "developer"}]},
            {**body, "messages": [*earlier, {**last, "content": last["content"] + tail}]},
            {**body, "messages": [*messages, {"role": "user", "content": data.draw(TEXTS)}]},
            {**body, "messages": [*messages, last]},
            {**body, "prompt_version": "2"},
        ]
        _, said = self.ask(body)
        self.assertEqual(self.ask(body), ("hit", said))
        for other in others:
            if json.dumps(other, sort_keys=True) != json.dumps(body, sort_keys=True):
                self.assertNotEqual(self.ask(other)[1], said, other)
        self.assertNotEqual(self.ask(body, tenant="rival")[1], said)
        self.assertNotEqual(self.ask(body, gateway=self.narrower)[1], said)
        self.assertEqual(self.ask(body), ("hit", said))

    @EXAMPLES
    @given(MESSAGES, st.dictionaries(FIELDS, VALUES, max_size=3), st.randoms(use_true_random=False))
    def test_the_same_question_is_the_same_in_any_order(
        self, messages: list[dict[str, Any]], fields: dict[str, Any], order: Any
    ) -> None:
        """Of its fields, and with other words to the gateway alone."""
        body = {"model": "mini", "temperature": 0, "messages": messages, **fields}
        _, said = self.ask(body)
        again = list({**body, "tags": ["nightly"], "cache": {"ttl": 60}, "stream_options": None}.items())
        order.shuffle(again)
        self.assertEqual(self.ask(dict(again)), ("hit", said))


WORDINGS = (
    ("What is the capital of France?", "what is the capital of france", "What is the capital of France, please?"),
    ("How do I delete my account?", "how can I delete my account", "How do I remove my account?"),
)
SYSTEMS = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "developer"]), "content": TEXTS}), max_size=2
)


class SemanticIsolationTest(unittest.TestCase):
    """The same of the semantic cache: its partition is all of a request but the words of its question."""

    world: RealWorld
    keys: dict[str, str]
    narrower: Gateway
    serial = itertools.count()

    @classmethod
    def setUpClass(cls) -> None:
        upstream = FakeProvider([{"text": f"answer {number}"} for number in range(10_000)], name="up", remembers=0)
        on = "[cache]\nsemantic = true\n" + CONFIG
        cls.world = RealWorld(config=on + TIERS % '"*"', providers={"up": upstream})
        cls.addClassCleanup(cls.world.__exit__)
        cls.keys = {tenant: cls.world.key(tenant=tenant) for tenant in ("acme", "rival")}
        narrower = load(on + TIERS % '"mini", "maxi", "fast", "auto"', {})
        cls.narrower = build_gateway(narrower, cls.world.books, providers={"up": upstream})

    def ask(self, body: dict[str, Any], *, tenant: str = "acme", gateway: Gateway | None = None) -> tuple[str, str]:
        """What the cache said, and the answer."""
        answer = (gateway or self.world.gateway).handle(self.keys[tenant], body)
        return answer["cache"], answer["text"]

    @settings(EXAMPLES, max_examples=15)
    @given(
        SYSTEMS,
        st.dictionaries(FIELDS, VALUES, min_size=1, max_size=2),
        st.sampled_from(WORDINGS),
        st.sampled_from(["plain", "part"]),
        st.data(),
    )
    def test_other_words_are_only_shared_where_all_else_is_the_same(
        self,
        system: list[dict[str, Any]],
        fields: dict[str, Any],
        wordings: tuple[str, str, str],
        form: str,
        data: st.DataObject,
    ) -> None:
        """A field, an instruction, an earlier turn, the form of the text, the tenant, the name, a permission."""
        drawn, dropped = data.draw(st.sampled_from(sorted(fields))), data.draw(st.sampled_from(sorted(fields)))
        text, example = data.draw(TEXTS), f"example {next(self.serial)}"

        def said(words: str) -> dict[str, Any]:
            content = words if form == "plain" else [{"type": "text", "text": words}]
            return {"role": "user", "content": content}

        def asking(words: str) -> dict[str, Any]:
            messages = [*system, said(words)]
            return {"model": "mini", "temperature": 0, "prompt_version": example, "messages": messages, **fields}

        first, second, third = wordings
        body = asking(third)
        user, earlier = said(third), {"role": "assistant", "content": text}
        others = [{**body, "model": name} for name in ("fast", "maxi", "gw-mini", "auto")] + [
            {**body, drawn: data.draw(VALUES)},
            {name: value for name, value in body.items() if name != dropped},
            {**body, "max_tokens": 7},
            {**body, "temperature": 0.0},
            {**body, "prompt_version": f"{example}, 2"},
            {**body, "messages": [*system, {"role": "system", "content": text}, user]},
            {**body, "messages": [*system[1:], user]},
            {**body, "messages": [*system, user, earlier, user]},
            {**body, "messages": [earlier, user]},
            {**body, "messages": [*system, {**user, "name": "bob"}]},
            {**body, "messages": [*system, {**user, "content": [{"type": "text", "text": third, "x": 1}]}]},
            {**body, "private": True},
        ]
        _, answer = self.ask(asking(first))
        self.assertEqual(self.ask(asking(second))[1], answer)
        for other in others:
            if json.dumps(other, sort_keys=True) != json.dumps(body, sort_keys=True):
                self.assertNotEqual(self.ask(other)[1], answer, other)
        self.assertNotEqual(self.ask(body, tenant="rival")[1], answer)
        self.assertNotEqual(self.ask(body, gateway=self.narrower)[1], answer)
        self.assertEqual(self.ask(body), ("semantic", answer))
