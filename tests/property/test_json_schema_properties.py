"""The schema checker on any schema and any value, sensible or not."""

import json
import unittest
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.json_schema import matches
from gateway.validators import refusal

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**63), 2**64),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["a", "b", "type", "string", "object", "#", "#/$defs/a", "#/$defs/b", "#/properties/a"]),
    st.text(max_size=4),
)
KEYWORDS = st.sampled_from(
    [
        *("type", "enum", "const", "properties", "required", "additionalProperties", "items", "prefixItems"),
        *("minItems", "maxItems", "uniqueItems", "minLength", "maxLength", "minimum", "maximum", "multipleOf"),
        *("exclusiveMinimum", "exclusiveMaximum", "anyOf", "oneOf", "allOf", "not", "if", "then", "else"),
        *("$ref", "$defs", "pattern", "patternProperties", "title", "a", "b"),
    ]
)
JSON = st.recursive(
    SCALARS,
    lambda below: st.one_of(
        st.lists(below, max_size=4),
        st.dictionaries(st.sampled_from(["a", "b", "c"]), below, max_size=3),
        st.dictionaries(KEYWORDS, below, max_size=4),
    ),
    max_leaves=20,
)
SCHEMAS = st.one_of(JSON, st.dictionaries(KEYWORDS, JSON, max_size=6))


class SchemaPropertyTest(unittest.TestCase):
    """All schemas and values."""

    @settings(max_examples=300, deadline=None)
    @given(JSON, SCHEMAS)
    def test_it_always_ends_with_an_answer(self, value: Any, schema: Any) -> None:
        """No schema makes it raise, and a schema and its opposite never refuse the same value."""
        self.assertTrue(matches(value, schema) or matches(value, {"not": schema}))

    @settings(max_examples=150, deadline=None)
    @given(JSON, SCHEMAS)
    def test_a_value_is_what_it_is(self, value: Any, other: Any) -> None:
        """Everything matches the schema that names it, also written out and read again, and fails its opposite."""
        again = json.loads(json.dumps(value))
        self.assertTrue(matches(again, {"const": value, "enum": [other, value]}))
        self.assertFalse(matches(again, {"not": {"const": value}}))
        self.assertFalse(matches([value, again], {"uniqueItems": True}))

    @settings(max_examples=150, deadline=None)
    @given(JSON, st.lists(SCHEMAS, min_size=1, max_size=3))
    def test_combinations_agree_with_their_parts(self, value: Any, schemas: list[Any]) -> None:
        """What all parts accept is accepted by allOf, what none accepts is refused by anyOf."""
        alone = [{"$defs": {}, "allOf": [schema]} for schema in schemas if "$ref" not in json.dumps(schema)]
        if alone:
            verdicts = [matches(value, schema) for schema in alone]
            self.assertEqual(matches(value, {"allOf": alone}), all(verdicts))
            self.assertEqual(matches(value, {"anyOf": alone}), any(verdicts))

    @settings(max_examples=150, deadline=None)
    @given(JSON, JSON, JSON)
    def test_no_answer_and_no_format_raises(self, message: Any, more: Any, format_: Any) -> None:
        """Whatever the shapes are."""
        for completion in ({"choices": [{"message": message}, more]}, {"choices": more}):
            refusal(completion, format_)
        refusal(
            {"choices": [{"message": {"content": json.dumps(more)}}]},
            {"type": "json_schema", "json_schema": {"schema": format_}},
        )
