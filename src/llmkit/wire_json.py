"""JSON as it stands on the wire: fast where the fast codec agrees, exact where it does not.

Decides what counts as JSON: strict UTF-8, finite numbers, no more than MOST_LEVELS of nesting. Does not know what a
document means. A lone surrogate escape, which the fast codec refuses both ways, is decoded and leaves as an escape.
"""

import json
import math
from collections.abc import Callable
from typing import Any, Never

import msgspec

JsonObject = dict[str, Any]

_CONTAINERS = (dict, list)

MOST_LEVELS = 200
"""Deeper than any answer, and a fifth of what the interpreter survives: a document that was read can be written, and
read again, however deep in the program that happens.
"""

_decode_fast = msgspec.json.Decoder().decode
_encode_fast = msgspec.json.Encoder().encode
_encode_escaped = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode
_encode_exact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def decode(raw: bytes) -> Any:
    """The value that raw is. Raises ValueError, which holds nothing of raw, if it is none."""
    try:
        value = _decode_fast(raw)
    except (ValueError, RecursionError):
        value = _decode_slowly(raw)
    if raw.count(b"{") + raw.count(b"[") > MOST_LEVELS and _is_too_deep(value):
        raise ValueError("nested too deep")
    return value


decode_text: Callable[[bytes], str] = msgspec.json.Decoder(str).decode
"""The text that some bytes are as JSON. Raises ValueError if they are none, or one with a lone surrogate."""


def encode(value: object) -> bytes:
    """Compact JSON of a value that decode gave."""
    try:
        return _encode_fast(value)
    except UnicodeEncodeError:
        return _encode_escaped(value).encode()


def encode_strictly(value: object) -> bytes:
    """Compact JSON of any value. Raises ValueError if it holds a lone surrogate or a number that is not finite.

    The fast encoder writes such a number as null, so where no null was written there was none.
    """
    raw = _encode_fast(value)
    return _encode_exact(value).encode() if raw.find(b"null") >= 0 else raw


def text_of(value: object) -> str:
    """Compact JSON as text, non-ASCII characters as they are."""
    return _encode_exact(value)


def _is_too_deep(value: object) -> bool:
    level: list[Any] = [[value]]
    for _ in range(MOST_LEVELS + 1):
        around = (outer.values() if type(outer) is dict else outer for outer in level)
        level = [inner for values in around for inner in values if type(inner) in _CONTAINERS]
        if not level:
            return False
    return True


def _decode_slowly(raw: bytes) -> object:
    try:
        return json.loads(raw.decode(), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse(digits)


def _refuse(_: str) -> Never:
    raise ValueError("not a finite number")
