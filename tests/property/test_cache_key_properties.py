"""The exact cache's key over requests of any shape: one difference, another digest."""

import copy
import json
import unittest
from collections.abc import Iterator
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.cache_key import NEUTRAL_FIELDS, cache_keys

UNTIMED = settings(deadline=None)
TEXTS = st.text("abAB'é\ud83d{}[],:0", max_size=6)
"""Without white space: what that means is another test's."""
SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | TEXTS
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
PARTS = st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url"])}, optional={"text": TEXTS, "x": JSON})
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"])},
    optional={"content": TEXTS | st.lists(PARTS | JSON, max_size=3) | JSON, "tool_call_id": TEXTS, "name": TEXTS},
)
BODIES = st.fixed_dictionaries(
    {"model": TEXTS, "messages": st.lists(MESSAGES, min_size=1, max_size=3)},
    optional=dict.fromkeys(("temperature", "seed", "stop", "response_format", "x_vendor", "stream", "tags"), JSON),
)
REQUESTS = st.fixed_dictionaries(
    {
        "tenant": TEXTS,
        "epoch": st.integers(0, 3),
        "route": st.lists(TEXTS, max_size=3),
        "permissions": JSON,
        "prompt_version": st.none() | TEXTS,
        "body": BODIES,
    }
)
Path = tuple[str | int, ...]


def places(value: Any, above: Path = ()) -> Iterator[Path]:
    """The place of every value within a value, but for neutral fields."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        if above != ("body",) or key not in NEUTRAL_FIELDS:
            yield (*above, key)
            yield from places(below, (*above, key))


def at(request: Any, place: Path) -> Any:
    for key in place:
        request = request[key]
    return request


def written(value: object) -> str:
    """A text that tells 1 from 1.0 and True, and one order of keys from another."""
    return json.dumps(value)


FIXED: tuple[Path, ...] = (("body",), ("body", "messages"))
"""Places whose values have a form of their own."""


def well_formed(request: dict[str, Any]) -> bool:
    """Whether the messages are still a list of objects, and the route is still one."""
    messages = request["body"]["messages"]
    return (
        isinstance(messages, list)
        and all(isinstance(message, dict) for message in messages)
        and isinstance(request["route"], list)
    )


def key_of(*, body: dict[str, Any], **facts: Any) -> bytes:
    return cache_keys(body=body, **facts)(body["messages"][-1])


def sorted_text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


class CacheKeyProperties(unittest.TestCase):
    """True of every pair of requests."""

    @UNTIMED
    @given(REQUESTS, st.data())
    def test_one_other_value_makes_another_key(self, request: dict[str, Any], data: st.DataObject) -> None:
        """Wherever it stands, and whatever it is: of another type, too."""
        changed = copy.deepcopy(request)
        place = data.draw(st.sampled_from([place for place in places(request) if place not in FIXED]))
        holder = at(changed, place[:-1])
        old = holder[place[-1]]
        twins = [twin for twin in (0, 0.0, False, 1, 1.0, True) if twin == old and type(twin) is not type(old)]
        holder[place[-1]] = data.draw(st.sampled_from(twins) | JSON if twins else JSON)
        assume(well_formed(changed) and written(holder[place[-1]]) != written(old))
        self.assertNotEqual(key_of(**changed), key_of(**request))

    @UNTIMED
    @given(REQUESTS, st.data())
    def test_one_value_more_or_less_makes_another_key(self, request: dict[str, Any], data: st.DataObject) -> None:
        """Null is not absent, an unknown field counts at every depth, and so does every item of a list."""
        changed = copy.deepcopy(request)
        holders = [holder for place in places(request) if isinstance(holder := at(changed, place), dict | list)]
        holder = data.draw(st.sampled_from(holders))
        if isinstance(holder, list):
            holder.insert(data.draw(st.integers(0, len(holder))), data.draw(JSON))
        else:
            name = data.draw(TEXTS)
            assume(name not in holder)
            holder[name] = data.draw(JSON)
        assume(well_formed(changed) and written(changed) != written(request))
        self.assertNotEqual(key_of(**changed), key_of(**request))

    @UNTIMED
    @given(REQUESTS, MESSAGES)
    def test_the_keys_of_a_request_are_those_of_its_variants(self, request: dict[str, Any], last: Any) -> None:
        """Whatever its last message is."""
        body = request["body"]
        variant = {**request, "body": {**body, "messages": [*body["messages"][:-1], last]}}
        self.assertEqual(cache_keys(**request)(last), key_of(**variant))

    @UNTIMED
    @given(REQUESTS, st.data())
    def test_two_messages_change_places_and_the_key_changes(self, request: dict[str, Any], data: st.DataObject) -> None:
        """Unless they are the same message."""
        messages = request["body"]["messages"]
        assume(len(messages) > 1)
        one, other = data.draw(st.permutations(range(len(messages))))[:2]
        assume(sorted_text(messages[one]) != sorted_text(messages[other]))
        turned = list(messages)
        turned[one], turned[other] = messages[other], messages[one]
        self.assertNotEqual(key_of(**{**request, "body": {**request["body"], "messages": turned}}), key_of(**request))

    @UNTIMED
    @given(REQUESTS, st.data())
    def test_what_is_neutral_never_changes_the_key(self, request: dict[str, Any], data: st.DataObject) -> None:
        """The order of the fields, and every neutral one."""
        fields = data.draw(st.permutations(list(request["body"].items())))
        neutral = data.draw(st.dictionaries(st.sampled_from(sorted(NEUTRAL_FIELDS)), JSON))
        body = {name: value for name, value in fields if name not in NEUTRAL_FIELDS} | neutral
        self.assertEqual(key_of(**{**request, "body": body}), key_of(**request))
