"""What matches a JSON schema, keyword by keyword, and what is not judged."""

import unittest
from typing import Any
from unittest import mock

from gateway.json_schema import MAX_STEPS, _target, matches

Case = tuple[Any, list[Any], list[Any]]
"""A schema, values that match it, and values that do not."""


class SchemaCase(unittest.TestCase):
    """Tables of schemas."""

    def assert_table(self, table: list[Case]) -> None:
        for schema, good, bad in table:
            for value in good:
                with self.subTest(schema=schema, matches=value):
                    self.assertTrue(matches(value, schema))
            for value in bad:
                with self.subTest(schema=schema, fails=value):
                    self.assertFalse(matches(value, schema))

    def assert_unjudged(self, schemas: list[Any], value: object) -> None:
        """Neither a schema nor its opposite refuses the value."""
        for schema in schemas:
            with self.subTest(schema=schema):
                self.assertTrue(matches(value, schema))
                self.assertTrue(matches(value, {"not": schema}))


class ValueTest(SchemaCase):
    """Keywords for any value."""

    def test_types(self) -> None:
        """A boolean is no number, and a number without a fraction is an integer however it is written."""
        self.assert_table(
            [
                ({"type": "null"}, [None], [0, False, "", [], {}]),
                ({"type": "boolean"}, [True, False], [0, 1, None]),
                ({"type": "integer"}, [0, -7, 1.0, 2**70, 1e300], [0.5, True, "1", None]),
                ({"type": "number"}, [0, 1.5, -1e300], [False, "1"]),
                ({"type": "string"}, ["", "x"], [1, None, ["x"]]),
                ({"type": "array"}, [[], [1]], [{}, "[]"]),
                ({"type": "object"}, [{}, {"a": 1}], [[], None]),
                ({"type": ["string", "null"]}, ["x", None], [1, []]),
            ]
        )

    def test_equality_is_that_of_json(self) -> None:
        """1 is 1.0, neither is true, and the order of keys is nothing."""
        self.assert_table(
            [
                ({"const": 1}, [1, 1.0], [True, "1", [1]]),
                ({"const": True}, [True], [1, 1.0, "true"]),
                ({"const": 0}, [0, -0.0], [False, None, ""]),
                ({"const": None}, [None], [0, False, [], {}]),
                ({"const": [1, {"a": [False]}]}, [[1.0, {"a": [False]}]], [[1, {"a": [0]}], [{"a": [False]}, 1]]),
                ({"const": {"a": 1, "b": 2}}, [{"b": 2, "a": 1.0}], [{"a": 1}, {"a": 1, "b": 2, "c": 3}]),
                ({"const": {}}, [{}], [[], None]),
                ({"enum": ["a", 1, None, {"x": []}]}, ["a", 1.0, None, {"x": []}], ["b", True, 0, {"x": {}}]),
                ({"enum": []}, [], [None, 0]),
            ]
        )

    def test_schemas_may_be_booleans(self) -> None:
        """Everything matches true, nothing matches false."""
        self.assert_table(
            [
                (True, [0, None], []),
                (False, [], [0, None]),
                ({}, [0, None], []),
                ({"properties": {"a": False}}, [{}, {"b": 1}], [{"a": None}]),
            ]
        )


class BoundsTest(SchemaCase):
    """Keywords that measure; each concerns values of its own kind only."""

    def test_numbers(self) -> None:
        """The bound belongs to minimum and not to exclusiveMinimum."""
        self.assert_table(
            [
                ({"minimum": 2}, [2, 2.0, 3, "1", True], [1.999, -5]),
                ({"maximum": 2.5}, [2.5, 0, [9]], [2.6, 3]),
                ({"exclusiveMinimum": 2}, [2.001, False], [2, 1]),
                ({"exclusiveMaximum": 2}, [1.999, "3"], [2, 3]),
                ({"minimum": 2**64}, [2**64], [2**64 - 1]),
            ]
        )

    def test_multiples_are_those_of_the_decimals_as_written(self) -> None:
        """0.3 is three times 0.1 although no double is."""
        self.assert_table(
            [
                ({"multipleOf": 0.1}, [0.3, 0.7, 1, 4.35e1, 0, "x"], [0.35, 1.05]),
                ({"multipleOf": 0.01}, [19.99, 4.35, 1e300, 1.1], [0.015]),
                ({"multipleOf": 3}, [9, -6.0, True], [10, 4.5]),
                ({"multipleOf": 1e-300}, [1e300, 5e-300], [5e-301]),
                ({"multipleOf": 2}, [2**63], [2**63 + 1]),
            ]
        )

    def test_lengths(self) -> None:
        """Of strings in code points, of arrays in items."""
        self.assert_table(
            [
                ({"minLength": 2}, ["ab", "\U0001f600b", 1], ["a", "\U0001f600"]),
                ({"maxLength": 1}, ["", "\U0001f600", [1, 2]], ["ab"]),
                ({"minLength": 1.0}, ["a"], [""]),
                ({"minItems": 1}, [[0], "", {}], [[]]),
                ({"maxItems": 1}, [[], [0], "ab"], [[0, 0]]),
            ]
        )


class ContainerTest(SchemaCase):
    """Objects and arrays."""

    def test_objects(self) -> None:
        """Properties are checked where they are; the others are additional."""
        self.assert_table(
            [
                ({"properties": {"a": {"type": "string"}}}, [{"a": "x"}, {}, {"b": 1}, [1], "a"], [{"a": 1}]),
                ({"required": ["a", "b"]}, [{"a": None, "b": 0, "c": 1}, []], [{"a": 1}, {}]),
                ({"properties": {"a": True}, "additionalProperties": False}, [{}, {"a": 1}, 1], [{"b": 1}]),
                ({"additionalProperties": {"type": "integer"}}, [{"x": 1}], [{"x": 1, "y": "z"}]),
                ({"additionalProperties": {"type": "integer"}, "properties": {"y": True}}, [{"x": 1, "y": "z"}], []),
            ]
        )

    def test_arrays(self) -> None:
        """The first items by prefixItems, the others by items."""
        self.assert_table(
            [
                ({"items": {"type": "integer"}}, [[], [1, 2], "x", {}], [[1, "2"]]),
                ({"items": False}, [[]], [[1]]),
                ({"prefixItems": [{"const": 1}, {"const": 2}]}, [[], [1], [1, 2, 3], {}], [[2], [1, 1]]),
                ({"prefixItems": [{"const": 1}], "items": {"const": 2}}, [[1, 2, 2], []], [[1, 2, 1], [2]]),
                ({"uniqueItems": True}, [[], [1, True, "1", [1]], [{"a": 1}, {"a": 2}], "aa"], [[1, 1.0], [{}, {}]]),
                ({"uniqueItems": False}, [[1, 1]], []),
            ]
        )


class SchemasInSchemasTest(SchemaCase):
    """Combinations and references."""

    def test_combinations(self) -> None:
        """All, any, exactly one, none."""
        small, even = {"maximum": 10}, {"multipleOf": 2}
        self.assert_table(
            [
                ({"allOf": [small, even]}, [4], [5, 12]),
                ({"anyOf": [small, even]}, [5, 12], [13]),
                ({"oneOf": [small, even]}, [5, 12], [4, 13]),
                ({"not": small}, [11], [5]),
                ({"not": {"not": small}}, [5], [11]),
                ({"if": small, "then": even, "else": {"const": 99}}, [4, 99], [5, 12]),
                ({"if": small, "then": even}, [4, 99], [5]),
                ({"if": small, "else": even}, [5, 12], [13]),
                ({"then": False, "else": False}, [1], []),
            ]
        )

    def test_references_within_the_document(self) -> None:
        """The whole, its definitions under either name, and any other place, escaped as pointers are."""
        tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}}
        linked: dict[str, Any] = {
            "$ref": "#/$defs/node",
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                    "required": ["next"],
                    "additionalProperties": False,
                }
            },
        }
        number, text = {"type": "number"}, {"type": "string"}
        self.assert_table(
            [
                (tree, [{"kids": [{"kids": []}, {}]}], [{"kids": [{"kids": [1]}]}]),
                (linked, [{"next": {"next": None}}], [{"next": {}}, {"next": {"next": 1}}, None]),
                ({"$ref": "#/definitions/n", "definitions": {"n": number}}, [1], ["x"]),
                ({"$ref": "#/$defs/a~1b~0c%25", "$defs": {"a/b~c%": number}}, [1], ["x"]),
                ({"$ref": "#/$defs/~01", "$defs": {"~1": number, "/": text}}, [1], ["x"]),
                ({"anyOf": [number, {"$ref": "#/anyOf/0"}]}, [1], ["x"]),
                ({"$ref": "#/$defs/", "$defs": {"": number}}, [1], ["x"]),
                ({"$ref": "#/$defs/n", "maximum": 3, "$defs": {"n": number}}, [1], ["x", 4]),
                ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": False}}, [], [1]),
            ]
        )

    def test_a_reference_may_be_followed_again(self) -> None:
        """Twice for one value is no cycle, and it is looked up once."""
        schema = {"anyOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/n"}], "$defs": {"n": {"type": "string"}}}
        with mock.patch("gateway.json_schema._target", wraps=_target) as looked_up:
            self.assertFalse(matches(1, schema))
        looked_up.assert_called_once()

    def test_a_cycle_without_progress_is_not_judged(self) -> None:
        """Around the cycle is nothing; beside it is."""
        loop = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
        self.assert_unjudged([{"$ref": "#/$defs/a", **loop}], 1)
        self.assertTrue(matches(1, {"not": {"$ref": "#/$defs/a"}, **loop}))
        self.assertTrue(matches(1, {"$ref": "#"}))
        self.assertTrue(matches(1, {"anyOf": [{"$ref": "#"}, {"type": "string"}]}))
        self.assertFalse(matches(1, {"$ref": "#", "type": "string"}))
        self.assertFalse(matches(1, {"allOf": [{"$ref": "#"}], "type": "string"}))


class UnjudgedTest(SchemaCase):
    """What is not judged refuses nothing."""

    def test_patterns_and_unknown_keywords(self) -> None:
        """Nor do they let `not` or `oneOf` refuse what they might tell apart."""
        self.assert_unjudged([{"pattern": "^b"}, {"format": "date"}, {"x-kind": 1}, {"propertyNames": False}], "a")
        self.assertTrue(matches("a", {"oneOf": [{"pattern": "^a"}, {"pattern": "^b"}]}))
        self.assertTrue(matches("a", {"oneOf": [{"type": "string"}, {"pattern": "^b"}]}))
        self.assertTrue(matches("a", {"not": {"oneOf": [{"type": "string"}, {"pattern": "^b"}]}}))
        self.assertTrue(matches("a", {"if": {"pattern": "^b"}, "then": False}))
        self.assertFalse(matches("a", {"if": {"pattern": "^b"}, "then": False, "else": {"type": "null"}}))
        self.assertTrue(matches("a", {"not": {"if": {"pattern": "^b"}, "then": False}}))
        self.assertFalse(matches("a", {"not": {"if": {"pattern": "^b"}, "then": {"type": "string"}}}))

    def test_what_is_certain_refuses_beside_what_is_not(self) -> None:
        """An unknown keyword excuses nothing else."""
        self.assertFalse(matches("a", {"pattern": "^a", "type": "integer"}))
        self.assertFalse(matches("a", {"anyOf": [{"pattern": "^a", "maxLength": 0}, {"const": "b"}]}))
        self.assertFalse(matches("a", {"oneOf": [{"type": "string"}, {"minLength": 1}, {"pattern": "^b"}]}))
        self.assertFalse(matches("a", {"not": {"anyOf": [{"pattern": "^b"}, {"type": "string"}]}}))

    def test_annotations_say_nothing(self) -> None:
        """With them a schema is as certain as without."""
        said = {"title": "t", "description": "d", "default": 0, "examples": [1], "$comment": "c", "$defs": {}}
        self.assertFalse(matches("a", {"not": {"type": "string", **said}}))

    def test_properties_that_a_pattern_may_name_are_not_additional(self) -> None:
        """Beside patternProperties nobody knows which are."""
        self.assertTrue(matches({"x-a": 1}, {"patternProperties": {"^x-": {}}, "additionalProperties": False}))

    def test_references_that_lead_nowhere(self) -> None:
        """Elsewhere, to an anchor, to nothing, to what is no schema."""
        references: list[Any] = [
            *("https://example.com/s", "other.json#/list/0", "", "#anchor", "#/$defs/none", "#/$defs/n", "#/list/2"),
            *("#/list/00", "#/list/-1", "#/list/\u0661", f"#/list/{'9' * 5000}", "#/%", "#/%ff", "#/list", 5, None, {}),
        ]
        schemas = [{"$ref": at, "$defs": {"n": 3}, "list": [False, False]} for at in references]
        for schema in schemas:
            with self.subTest(schema["$ref"]):
                self.assertTrue(matches(1, schema))
        self.assertFalse(matches(1, {"$ref": "#/list/1", "list": [True, False]}))

    def test_keywords_with_a_value_of_the_wrong_kind(self) -> None:
        """The upstream is there to complain about the schema."""
        wrong: list[tuple[str, list[Any], object]] = [
            ("type", ["text", 5, None, {}, [], ["text"], [5]], "a"),
            ("enum", ["a", None, {}], "a"),
            ("minLength", [-1, 0.5, True, "1", None], "a"),
            ("maxLength", [-1, 0.5, True, "1", None], "a"),
            ("minItems", [-1, 0.5, True, "1", None], [1]),
            ("maxItems", [-1, 0.5, True, "1", None], [1]),
            ("minimum", [True, "1", None, []], 0),
            ("maximum", [True, "1", None, []], 9),
            ("exclusiveMinimum", [True, "1", None], 0),
            ("exclusiveMaximum", [True, "1", None], 9),
            ("multipleOf", [0, -1, True, "2", None, float("inf")], 1),
            ("properties", [[], "a", None], {"a": 1}),
            ("required", ["a", None, {}, [1]], {}),
            ("additionalProperties", ["a", None, []], {"a": 1}),
            ("items", ["a", None, [], [False]], [1]),
            ("prefixItems", ["a", None, {}], [1]),
            ("uniqueItems", ["a", None, 1], [1, 1]),
            *((name, [[], {}, "a", None, True], 1) for name in ("allOf", "anyOf", "oneOf")),
            ("not", ["a", None, []], 1),
        ]
        for keyword, operands, value in wrong:
            self.assert_unjudged([{keyword: operand} for operand in operands], value)
        self.assert_unjudged([{"properties": [], "additionalProperties": False}], {"a": 1})
        self.assert_unjudged([{"prefixItems": {}, "items": False}], [1])
        self.assert_unjudged([{"if": "a", "then": False}, {"if": None, "then": False}, {"if": [], "then": False}], 1)
        self.assert_unjudged([None, 5, "x", []], 1)

    def test_half_of_required_may_make_sense(self) -> None:
        """The names that are names are required."""
        self.assertFalse(matches({}, {"required": [1, "a"]}))


class WorkTest(unittest.TestCase):
    """The work is bounded whatever the schema and the value; what lies beyond the bound is not judged."""

    def test_alternatives_within_alternatives_end(self) -> None:
        """Two to the power of forty judgements are not made."""
        defs: dict[str, Any] = {"d0": {"type": "string"}}
        for level in range(1, 41):
            defs[f"d{level}"] = {"anyOf": [{"$ref": f"#/$defs/d{level - 1}"}, {"$ref": f"#/$defs/d{level - 1}"}]}
        self.assertTrue(matches(1, {"$ref": "#/$defs/d40", "$defs": defs}))

    def test_each_keyword_counts_its_work(self) -> None:
        """A thousand alternatives times a thousand names, items or values: the last one fails, and is never reached."""
        names = [f"n{at}" for at in range(1000)]
        big = dict.fromkeys(names, 0)
        table: list[tuple[str, Any, object]] = [
            ("required", {"required": names}, big),
            ("properties", {"properties": {"none": False}}, big),
            ("additionalProperties", {"additionalProperties": True}, big),
            ("items", {"items": True}, names),
            ("prefixItems", {"prefixItems": [True] * 1000}, names),
            ("uniqueItems", {"uniqueItems": True}, names),
            ("const", {"const": big}, big),
            ("a long text", {"const": "x" * 2_000_000}, "x" * 2_000_000),
            ("a long reference", {"$ref": "#/" + "x" * 2_000_000}, 1),
            ("multipleOf", {"items": {"multipleOf": 1e-300}}, [1e300] * 20),
            ("type", {"type": [*["null"] * 1000, "array", "object", "string"]}, names),
            ("unknown", dict.fromkeys(names, 0), 1),
        ]
        for name, schema, value in table:
            with self.subTest(name):
                self.assertTrue(matches(value, schema))
                self.assertTrue(matches(value, {"allOf": [*[schema] * 1000, False]}))

    def test_an_enum_is_read_once(self) -> None:
        """Many items may be held against many values."""
        values = [f"v{at}" for at in range(5000)]
        self.assertTrue(matches(values, {"items": {"enum": values}}))
        self.assertFalse(matches([*values, "other"], {"items": {"enum": values}}))

    def test_a_large_answer_is_judged(self) -> None:
        """Three thousand rows of a table fit into the steps."""
        schema = {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
                "required": ["id", "name"],
                "additionalProperties": False,
            },
        }
        rows: list[Any] = [{"id": at, "name": f"row {at}"} for at in range(3000)]
        self.assertTrue(matches(rows, schema))
        self.assertFalse(matches([*rows, {"id": 1}], schema))
        self.assertTrue(matches([*([0] * MAX_STEPS), ""], {"items": {"type": "integer"}}))

    def test_nesting_beyond_the_stack_is_not_judged(self) -> None:
        """In the value, in the schema, in both; and what is compared with it."""
        deep: Any = 1
        nested: Any = {"type": "string"}
        for _ in range(5000):
            deep, nested = [deep], {"allOf": [nested]}
        self.assertTrue(matches(deep, {"items": {"$ref": "#"}, "type": "array"}))
        self.assertTrue(matches(1, nested))
        self.assertTrue(matches(deep, {"const": deep}))
        self.assertTrue(matches(deep, {"enum": [1]}))
        self.assertTrue(matches([deep], {"uniqueItems": True}))
        self.assertFalse(matches(deep, {"type": "object"}))

    def test_a_list_of_thirty_links_is_judged_to_its_end(self) -> None:
        """Ordinary recursion is far from the bound."""
        link: dict[str, Any] = {"properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}
        link |= {"type": "object", "required": ["next"]}
        good: Any = None
        bad: Any = 1
        for _ in range(30):
            good, bad = {"next": good}, {"next": bad}
        self.assertTrue(matches(good, link))
        self.assertFalse(matches(bad, link))
