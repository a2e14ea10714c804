"""Whether a JSON value matches a JSON schema, as far as that can be told cheaply and for certain.

Checked: type, enum, const, properties, required, additionalProperties, items, prefixItems, the bounds of lengths and
numbers, multipleOf, uniqueItems, anyOf, oneOf, allOf, not, if, and $ref within the document. Everything else is not
judged: `pattern` (a regular expression can run for ever), `format`, references to elsewhere, keywords with a value of
the wrong kind, cycles of references, and whatever comes after MAX_STEPS or exhausts the stack.

What is not judged refuses nothing. So there are three verdicts: True, False, and None where it is not known; `not` of
what is not known is not known, and of `oneOf` two alternatives must match for certain before it fails.
"""

import math
import operator
import re
from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from typing import Any
from urllib.parse import unquote

MAX_STEPS = 100_000
"""Keywords, items and names looked at for one value: some tenths of a second at most. Real answers need thousands."""

_CHARS_PER_STEP = 1024
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")

_Verdict = bool | None
_Schema = dict[str, Any]


class _OutOfSteps(Exception):
    """The value cannot be judged with a bearable amount of work."""


def matches(value: object, schema: object) -> bool:
    """Whether `value` matches, or cannot be told not to. Both are JSON with finite numbers, as a strict parser gives
    it; `schema` may be anything. Never raises; takes at most MAX_STEPS steps.
    """
    try:
        return _Matcher(schema).match(value, schema) is not False
    except (_OutOfSteps, RecursionError):
        return True


def _all(verdicts: Iterable[_Verdict]) -> _Verdict:
    known = True
    for verdict in verdicts:
        if verdict is False:
            return False
        known = known and verdict is not None
    return True if known else None


def _not(verdict: _Verdict) -> _Verdict:
    return None if verdict is None else not verdict


def _any(verdicts: Iterable[_Verdict]) -> _Verdict:
    return _not(_all(map(_not, verdicts)))


class _Matcher:
    """Matches values with parts of one document. `_enums` and `_targets` remember what was worked out of the schema;
    `_following` are the references, each with its value, that are being followed just now.
    """

    def __init__(self, document: object) -> None:
        self._document = document
        self._steps = 0
        self._enums: dict[int, frozenset[Hashable]] = {}
        self._targets: dict[str, object] = {}
        self._following: set[tuple[str, int]] = set()

    def match(self, value: object, schema: object) -> _Verdict:
        self._spend(1)
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            return None
        self._spend(len(schema))
        return _all(self._keyword(name, operand, value, schema) for name, operand in schema.items())

    def _keyword(self, name: str, operand: Any, value: Any, schema: _Schema) -> _Verdict:
        if (check := _CHECKS.get(name)) is not None:
            return check(self, operand, value, schema)
        if (bound := _BOUNDS.get(name)) is not None:
            return _within(bound, operand, value)
        return True if name in _SILENT else None

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise _OutOfSteps

    # --- any value ---

    def type(self, operand: Any, value: Any, _: _Schema) -> _Verdict:
        names = operand if operand and isinstance(operand, list) else [operand]
        self._spend(len(names))
        return _any(_is_type(name, value) for name in names)

    def enum(self, operand: Any, value: Any, _: _Schema) -> _Verdict:
        if not isinstance(operand, list):
            return None
        if id(operand) not in self._enums:
            self._enums[id(operand)] = frozenset(map(self._key, operand))
        return self._key(value) in self._enums[id(operand)]

    def const(self, operand: Any, value: Any, _: _Schema) -> _Verdict:
        return self._key(value) == self._key(operand)

    def _key(self, value: Any) -> Hashable:
        """Equal for values that are equal in JSON, where 1 is 1.0 and neither is true."""
        self._spend(1 + len(value) // _CHARS_PER_STEP if isinstance(value, str) else 1)
        if isinstance(value, dict):
            return (dict, frozenset((self._key(name), self._key(below)) for name, below in value.items()))
        if isinstance(value, list):
            return (list, tuple(map(self._key, value)))
        return (bool, value) if isinstance(value, bool) else value

    def multiple_of(self, operand: Any, value: Any, _: _Schema) -> _Verdict:
        """In decimals, as they were written: 0.3 is three times 0.1."""
        if not _is_positive(operand):
            return None
        if not _is_number(value):
            return True
        dividend, divisor = str(value), str(operand)
        self._spend(len(dividend) + len(divisor))
        return Fraction(dividend) % Fraction(divisor) == 0

    # --- objects and arrays ---

    def properties(self, operand: Any, value: Any, _: _Schema) -> _Verdict:
        if not isinstance(operand, dict):
            return None
        if not isinstance(value, dict):
            return True
        self._spend(len(value))
        return _all(self.match(below, operand[name]) for name, below in value.items() if name in operand)

    def required(self, operand: Any, value: Any, _: _Schema) -> _Verdict:
        if not isinstance(operand, list):
            return None
        if not isinstance(value, dict):
            return True
        self._spend(len(operand))
        return _all(name in value if isinstance(name, str) else None for name in operand)

    def additional_properties(self, operand: Any, value: Any, schema: _Schema) -> _Verdict:
        if not isinstance(value, dict):
            return True
        named = schema.get("properties", {})
        if "patternProperties" in schema or not isinstance(named, dict):
            return None
        return _all(self.match(below, operand) for name, below in value.items() if name not in named)

    def items(self, operand: Any, value: Any, schema: _Schema) -> _Verdict:
        if not isinstance(value, list):
            return True
        first = schema.get("prefixItems", [])
        if not isinstance(first, list):
            return None
        return _all(self.match(value[at], operand) for at in range(len(first), len(value)))

    def prefix_items(self, operand: Any, value: Any, _: _Schema) -> _Verdict:
        if not isinstance(operand, list):
            return None
        if not isinstance(value, list):
            return True
        return _all(map(self.match, value, operand))

    def unique_items(self, operand: Any, value: Any, _: _Schema) -> _Verdict:
        if not isinstance(operand, bool):
            return None
        if not operand or not isinstance(value, list):
            return True
        return len(set(map(self._key, value))) == len(value)

    # --- schemas in schemas ---

    def all_of(self, operand: Any, value: Any, _: _Schema) -> _Verdict:
        return _all(self._each(operand, value))

    def any_of(self, operand: Any, value: Any, _: _Schema) -> _Verdict:
        return _any(self._each(operand, value))

    def one_of(self, operand: Any, value: Any, _: _Schema) -> _Verdict:
        verdicts = list(self._each(operand, value))
        if verdicts.count(True) > 1:
            return False
        return _any(verdicts) if None not in verdicts else None

    def _each(self, operand: Any, value: Any) -> Iterable[_Verdict]:
        return (self.match(value, schema) for schema in operand) if operand and isinstance(operand, list) else (None,)

    def not_(self, operand: Any, value: Any, _: _Schema) -> _Verdict:
        return _not(self.match(value, operand))

    def if_(self, operand: Any, value: Any, schema: _Schema) -> _Verdict:
        met = self.match(value, operand)
        then, otherwise = schema.get("then", True), schema.get("else", True)
        if met is not None:
            return self.match(value, then if met else otherwise)
        verdict = self.match(value, then)
        return verdict if verdict is self.match(value, otherwise) else None

    def ref(self, operand: Any, value: Any, _: _Schema) -> _Verdict:
        if not isinstance(operand, str):
            return None
        self._spend(len(operand) // _CHARS_PER_STEP)
        if (step := (operand, id(value))) in self._following:
            return None
        if operand not in self._targets:
            self._targets[operand] = _target(self._document, operand)
        self._following.add(step)
        verdict = self.match(value, self._targets[operand])
        self._following.remove(step)
        return verdict


def _target(document: object, reference: str) -> object:
    """The part of the document that a reference within it points to; None if there is none."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    target: Any = document
    for escaped in unquote(reference[1:]).split("/")[1:]:
        token = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and token in target:
            target = target[token]
        elif isinstance(target, list) and _INDEX.fullmatch(token) and int(token) < len(target):
            target = target[int(token)]
        else:
            return None
    return target


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and value == value // 1


_TYPES: dict[str, Callable[[object], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _is_type(name: object, value: object) -> _Verdict:
    return _TYPES[name](value) if isinstance(name, str) and name in _TYPES else None


def _is_count(operand: Any) -> bool:
    return _is_integer(operand) and operand >= 0


def _is_positive(operand: Any) -> bool:
    return _is_number(operand) and 0 < operand < math.inf


_Test = Callable[[Any], bool]
_Compare = Callable[[Any, Any], bool]


def _within(bound: tuple[_Test, _Test, _Compare], operand: Any, value: Any) -> _Verdict:
    concerns, is_bound, holds = bound
    if not is_bound(operand):
        return None
    return not concerns(value) or holds(value, operand)


_BOUNDS: dict[str, tuple[_Test, _Test, _Compare]] = {
    "minItems": (_TYPES["array"], _is_count, lambda value, least: len(value) >= least),
    "maxItems": (_TYPES["array"], _is_count, lambda value, most: len(value) <= most),
    "minLength": (_TYPES["string"], _is_count, lambda value, least: len(value) >= least),
    "maxLength": (_TYPES["string"], _is_count, lambda value, most: len(value) <= most),
    "minimum": (_is_number, _is_number, operator.ge),
    "maximum": (_is_number, _is_number, operator.le),
    "exclusiveMinimum": (_is_number, _is_number, operator.gt),
    "exclusiveMaximum": (_is_number, _is_number, operator.lt),
}
"""Which values are concerned, which operands make sense, and what must hold of the two."""

_CHECKS: dict[str, Callable[[_Matcher, Any, Any, _Schema], _Verdict]] = {
    "type": _Matcher.type,
    "enum": _Matcher.enum,
    "const": _Matcher.const,
    "multipleOf": _Matcher.multiple_of,
    "properties": _Matcher.properties,
    "required": _Matcher.required,
    "additionalProperties": _Matcher.additional_properties,
    "items": _Matcher.items,
    "prefixItems": _Matcher.prefix_items,
    "uniqueItems": _Matcher.unique_items,
    "allOf": _Matcher.all_of,
    "anyOf": _Matcher.any_of,
    "oneOf": _Matcher.one_of,
    "not": _Matcher.not_,
    "if": _Matcher.if_,
    "$ref": _Matcher.ref,
}

_SILENT = frozenset(
    {
        *("$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples"),
        *("deprecated", "readOnly", "writeOnly", "then", "else"),
    }
)
"""Keywords that refuse nothing by themselves."""
