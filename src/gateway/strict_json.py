"""A request body as JSON, read strictly: what is priced is what is sent.

Refused: anything but UTF-8 (a byte order mark too), duplicate keys, NaN and Infinity, numbers beyond 64 bits or a
double, nesting deeper than MAX_DEPTH, lone surrogates. Each is read differently by different parsers, or breaks one.

The fast codec refuses all of that but equal keys (it keeps the last), deep nesting and long numbers. So what it has
read is taken only if the text has no more colons behind quotes than the value has keys. Everything else is read again,
slowly: that decides, and says what is wrong.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, TypeVar

import msgspec

MAX_DEPTH = 100
"""Deeper than any tool schema seen in the wild; far below what exhausts a parser's stack."""

MAX_INTEGER = 1 << 64
"""Seeds use all 64 bits; nothing that a provider reads is larger."""

_MAX_NUMBER_CHARS = 40
MAX_VALUES = 250_000
"""Values in one body. Text is bounded by its size; so many values in few bytes cost seconds and gigabytes to read."""

_MOST_STRINGS = 2 * MAX_VALUES
"""A value and its name are two strings, and every one but the first follows a comma or a bracket."""

_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A string, or the rest of the text behind a quote that is never closed: were that no match, the search would begin
again at each of its escaped quotes, and 80 KB of them would hold the interpreter for a minute."""

_BACKSLASH = ord("\\")
_NO_BRACKETS = re.compile(rb"[^][{}]++")
_SURROGATE = re.compile("[\ud800-\udfff]")

T = TypeVar("T")


class StrictJsonError(ValueError):
    """The text is not JSON of the accepted kind; `param` is the top-level field at fault, if that is known."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


def loads_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that `raw` holds. Raises StrictJsonError."""
    if len(raw) > MAX_VALUES:
        _check_shape(raw)
    try:
        value = _decode(raw)
        if type(value) is dict and _count_keys(value, MAX_DEPTH) == _count_colons(raw):
            return value
    except (ValueError, RecursionError):
        pass
    return _read_slowly(raw)


def _count_keys(container: Any, most_levels: int) -> int:
    """The keys of all objects in it. Raises ValueError if an integer or the nesting is beyond its bound."""
    if not most_levels:
        raise ValueError("nested too deep")
    keys, values = 0, container
    if type(container) is dict:
        keys, values = len(container), container.values()
    for value in values:
        kind = type(value)
        if kind is str:
            continue
        if kind is dict or kind is list:
            keys += _count_keys(value, most_levels - 1)
        elif kind is int and not -MAX_INTEGER < value < MAX_INTEGER:
            raise ValueError("beyond 64 bits")
    return keys


def _count_colons(raw: bytes) -> int:
    """Those behind a quote that is not escaped, blanks apart: of valid JSON, one for each key as it is written. If that
    cannot be told from the characters around the colon, it is more.
    """
    dense = raw.translate(None, b" \t\r\n")
    colons = dense.count(b'":')
    if _BACKSLASH not in dense or b'\\\\":' in dense:
        return colons
    return colons - dense.count(b'\\":')


def _read_slowly(raw: bytes) -> dict[str, Any]:
    """As loads_object."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StrictJsonError("the body is not UTF-8") from error
    _check_shape(raw)
    reader = _Reader()
    try:
        value = json.loads(
            text,
            object_pairs_hook=reader.object,
            parse_int=partial(reader.number, _integer),
            parse_float=partial(reader.number, _float),
            parse_constant=partial(reader.number, _constant),
        )
    except ValueError as error:
        raise StrictJsonError(f"the body is not valid JSON: {error}") from error
    if reader.faults:
        raise StrictJsonError(reader.faults[0].message, _field_of(value, reader.faults[0]))
    if type(value) is not dict:
        raise StrictJsonError("the body is not a JSON object")
    if "\\u" in text:
        _check_surrogates(value)
    return value


def _check_shape(raw: bytes) -> None:
    """Refuse what is cheap to send and dear to read, before it is read."""
    if len(raw) <= MAX_VALUES and raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return
    bare = _STRINGS.sub(b"", raw, count=_MOST_STRINGS)
    if b'"' in bare or bare.count(b",") + bare.count(b"[") + bare.count(b"{") > MAX_VALUES:
        raise StrictJsonError(f"the body holds more than {MAX_VALUES} values")
    depth = 0
    for character in _NO_BRACKETS.sub(b"", bare):
        if character in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise StrictJsonError(f"the body is nested deeper than {MAX_DEPTH} levels")
        elif depth:
            depth -= 1
        else:
            return


# --- what a value may be ---------------------------------------------------------------------------------------------


def _integer(digits: str) -> int:
    if len(digits) > _MAX_NUMBER_CHARS or abs(value := int(digits)) >= MAX_INTEGER:
        raise ValueError("an integer is beyond 64 bits")
    return value


def _float(digits: str) -> float:
    value = float(digits)
    if len(digits) > _MAX_NUMBER_CHARS or not math.isfinite(value):
        raise ValueError("a number is beyond what a double holds")
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decode = msgspec.json.Decoder(float_hook=_float).decode


# --- what is wrong, and where ----------------------------------------------------------------------------------------


class _Fault:
    """Stands in the parsed value where something was refused, so that the field can be named."""

    def __init__(self, message: str) -> None:
        self.message = message


class _Reader:
    """The hooks again, which never raise: the first fault is reported with its place once all is read."""

    def __init__(self) -> None:
        self.faults: list[_Fault] = []

    def refuse(self, message: str) -> _Fault:
        self.faults.append(_Fault(message))
        return self.faults[-1]

    def object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            twice = next(key for key, count in counts.items() if count > 1)
            value[twice] = self.refuse(f"the key {json.dumps(twice[:64])} stands twice in one object")
        return value

    def number(self, read: Callable[[str], T], digits: str) -> T | _Fault:
        try:
            return read(digits)
        except ValueError as error:
            return self.refuse(str(error))


def _field_of(value: object, fault: _Fault) -> str | None:
    """The top-level key below which `fault` stands."""
    if type(value) is not dict:
        return None
    return next((_printable(key) for key, below in value.items() if _holds(below, fault)), None)


def _holds(value: object, fault: _Fault) -> bool:
    if isinstance(value, dict):
        return any(_holds(below, fault) for below in value.values())
    if isinstance(value, list):
        return any(_holds(below, fault) for below in value)
    return value is fault


def _check_surrogates(body: dict[str, Any]) -> None:
    if not _has_whole_characters(body):
        key = next(key for key, value in body.items() if not _has_whole_characters([key, value]))
        raise StrictJsonError("the text holds half of a surrogate pair", _printable(key))


def _has_whole_characters(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(key: str) -> str:
    return _SURROGATE.sub("?", key)[:64]
