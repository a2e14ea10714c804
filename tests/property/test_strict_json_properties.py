"""The reader of request bodies is total and strict: a value that means one thing, or a refusal."""

import json
import math
import unittest
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import strict_json
from gateway.strict_json import MAX_INTEGER, StrictJsonError, loads_object

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ('"', "\\", "[{", "é\u2028", "\0")
)
_leaf = (
    st.none()
    | st.booleans()
    | st.integers(1 - MAX_INTEGER, MAX_INTEGER - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _text
)
_value = st.recursive(
    _leaf, lambda below: st.lists(below, max_size=4) | st.dictionaries(_text, below, max_size=4), max_leaves=20
)
_objects = st.dictionaries(_text, _value, max_size=4)
_NASTY = (
    b'"',
    b"\\",
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b"\\u",
    b"\\ud83d",
    b"1e999",
    b"NaN",
    b'"a":1,',
    b'"a\\\\":1,',
    b'\\":',
    b"\n",
    b"\xff",
    b"\0",
    b"0",
)


@st.composite
def nearly_json(draw: st.DrawFn) -> bytes:
    """The text of an object with up to three places changed, added or lost."""
    raw = bytearray(json.dumps(draw(_objects), ensure_ascii=draw(st.booleans())).encode())
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 2))] = draw(st.sampled_from(_NASTY) | st.binary(max_size=1))
    return bytes(raw)


class StrictJsonProperties(unittest.TestCase):
    @settings(max_examples=100)
    @given(_objects, st.booleans(), st.sampled_from((None, 1)))
    def test_every_object_is_read_as_it_was_written(
        self, value: dict[str, Any], ascii_only: bool, indent: int | None
    ) -> None:
        """Whatever its layout and its escapes."""
        self.assertEqual(loads_object(json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()), value)

    @settings(max_examples=200)
    @given(nearly_json() | st.binary(max_size=40))
    def test_what_is_accepted_means_one_thing(self, raw: bytes) -> None:
        """The first of two equal keys and the last are the same, and what is sent on is what was read."""
        try:
            value = loads_object(raw)
        except StrictJsonError as error:
            self.assertTrue(str(error))
            return
        first_wins = json.loads(raw.decode(), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
        self.assertEqual(value, first_wins)
        self.assertEqual(json.loads(json.dumps(value, allow_nan=False, ensure_ascii=False).encode()), value)
        self.assertTrue(all(map(math.isfinite, _floats(value))))

    @settings(max_examples=300)
    @given(nearly_json() | st.binary(max_size=40))
    def test_reading_it_quickly_changes_nothing(self, raw: bytes) -> None:
        """The same value, or the same refusal, as when all of it is read slowly."""
        self.assertEqual(_outcome(loads_object, raw), _outcome(strict_json._read_slowly, raw))


def _outcome(read: Callable[[bytes], object], raw: bytes) -> str:
    """What became of a text, types and the order of keys included."""
    try:
        return repr(read(raw))
    except StrictJsonError as error:
        return f"{error} ({error.param})"


def _floats(value: object) -> list[float]:
    """Every float in a value."""
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] if isinstance(value, float) else [number for part in below for number in _floats(part)]


if __name__ == "__main__":
    unittest.main()
