"""Typed reading of a parsed TOML document, with every fault collected.

Decides whether one value has the right type, range and form, and says where it stands when it does not. Knows no key
of the gateway and nothing about how values belong together.

Rules:
- A `Rule` turns a raw value into a typed one, or raises ValueError with what the value must be. It never shows the
  value: a secret may stand in the wrong place.
- A fault does not stop the reading. The field gets a stand-in, and whoever reads looks at the faults in the end.
- A key that nobody asked for is a fault.
- A number is exact until its rule has checked it; a bool is never a number.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import FieldInfo, fields

T = TypeVar("T")
D = TypeVar("D")
K = TypeVar("K", bound=Struct)
S = TypeVar("S", bound=str)
Rule = Callable[[object], T]

DAY_S = 86_400
YEAR_S = 366 * DAY_S
_MAX_INTEGER = 2**53
"""Beyond it a JSON reader in another language loses digits."""
_STAND_IN: Any = ""
"""Takes the place of a required value that is missing or faulty; the document's faults keep it from being used."""
_NEAR = 0.7
"""How alike a misspelt key must be to one that is known: `teir` and `tier` are by 0.75, `extra` and `text` by 0.67."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def flag(value: object) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    raise ValueError("must be true or false")


def text(value: object) -> str:
    """Any text, the empty one too."""
    if isinstance(value, str):
        return value
    raise ValueError("must be a text")


def matching(pattern: str, meaning: str) -> Rule[str]:
    """A text that `pattern` matches from end to end; `meaning` completes "must be"."""
    form = re.compile(pattern)

    def rule(value: object) -> str:
        if isinstance(value, str) and form.fullmatch(value):
            return value
        raise ValueError(f"must be {meaning}")

    return rule


def decimal(low: Decimal | int, high: Decimal | int) -> Rule[Decimal]:
    """An exact number from `low` to `high`; a binary float counts as the decimal that it prints as."""

    def rule(value: object) -> Decimal:
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
            if number.is_finite() and low <= number <= high:
                return number
        raise ValueError(f"must be a number from {low} to {high}")

    return rule


def integer(low: int = 0, high: int = _MAX_INTEGER) -> Rule[int]:
    """A whole number from `low` to `high`, written without a point."""

    limits = f"of at least {low}" if high == _MAX_INTEGER else f"from {low} to {high}"

    def rule(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise ValueError(f"must be a whole number {limits}")

    return rule


def number(low: float, high: float) -> Rule[float]:
    """A number from `low` to `high`, where the nearest binary float will do."""
    exact = decimal(Decimal(str(low)), Decimal(str(high)))
    return lambda value: float(exact(value))


def seconds(*, high: int = DAY_S, zero: bool = False) -> Rule[float]:
    """A duration of at most `high` seconds; 0 only if `zero` says that it means something."""
    number = decimal(0, high)

    def rule(value: object) -> float:
        try:
            duration_s = float(number(value))
        except ValueError:
            duration_s = -1.0
        if duration_s > 0 or (zero and duration_s == 0):
            return duration_s
        raise ValueError(f"must be a number of seconds, {'0' if zero else 'more than 0'} to {high}")

    return rule


def one_of(*choices: S, later: Iterable[str] = ()) -> Rule[S]:
    """One of the texts; those in `later` are known words that this version does not support."""
    known = {str(choice): choice for choice in choices}
    planned = frozenset(later)

    def rule(value: object) -> S:
        if isinstance(value, str) and value in known:
            return known[value]
        if isinstance(value, str) and value in planned:
            raise ValueError(f"{value!r} is not supported in this version; supported: {', '.join(known)}")
        raise ValueError(f"must be one of {', '.join(known)}")

    return rule


def only(supported: T, rule: Rule[T]) -> Rule[T]:
    """What `rule` accepts, narrowed to the one value that this version supports."""

    def narrowed(value: object) -> T:
        if rule(value) == supported:
            return supported
        raise ValueError(f"only {json.dumps(supported)} is supported in this version")

    return narrowed


def plain_json(value: object, depth: int = 32) -> Any:
    """A value as JSON data: exact decimals become numbers; dates and anything deeper than `depth` are refused."""
    if depth == 0:
        raise ValueError("must not be nested so deeply")
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float | Decimal) and math.isfinite(number := float(value)):
        return number
    if isinstance(value, list):
        return [plain_json(item, depth - 1) for item in value]
    if isinstance(value, Mapping):
        return {key: plain_json(item, depth - 1) for key, item in value.items()}
    raise ValueError("must hold JSON data only")


def json_object(value: object) -> dict[str, Any]:
    """A table, as a JSON object."""
    if isinstance(value, Mapping):
        return dict(plain_json(value))
    raise ValueError("must be a table")


def rule_of(hint: Any) -> Rule[Any]:
    """The rule that a field's type states: its Annotated rule, the words of a Literal or StrEnum, flag or text."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is Annotated:
        return hint.__metadata__[0]  # type: ignore[no-any-return]  # the one thing our aliases annotate with
    if get_origin(hint) is Literal:
        return one_of(*get_args(hint))
    if issubclass(hint, StrEnum):
        return one_of(*hint)
    return {bool: flag, str: text}[hint]


class Table:
    """One table of a document: read key by key, then closed, which reports the keys that nobody read.

    `faults` is shared by all tables of the document.
    """

    def __init__(self, data: Mapping[str, object], place: str = "", faults: list[str] | None = None) -> None:
        self._data = data
        self._place = place
        self._read: set[str] = set()
        self._children: list[Table] = []
        self.faults = [] if faults is None else faults

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def raw(self, key: str) -> object:
        """The value as parsed, unread still; None if it is not set. For values whose type decides how to read them."""
        return self._data.get(key)

    def fault(self, key: str | None, message: str, index: int | None = None) -> None:
        """Note a fault of `key`, of its item `index`, or, without a key, of the table itself."""
        self.faults.append(f"{self._at(key, index)}: {message}")

    def get(self, key: str, rule: Rule[T], default: D) -> T | D:
        """The value under `key` as `rule` types it; `default` if it is not set, or faulty."""
        self._read.add(key)
        if key not in self:
            return default
        try:
            return rule(self._data[key])
        except ValueError as error:
            self.fault(key, str(error))
            return default

    def need(self, key: str) -> None:
        """Note a fault if `key` is not set."""
        if key not in self:
            self.fault(key, "is required")

    def require(self, key: str, rule: Rule[T], stand_in: D) -> T | D:
        """As `get`, but a key that is not set is a fault."""
        self.need(key)
        return self.get(key, rule, stand_in)

    def refuse(self, keys: Collection[str], why: str) -> None:
        """Note a fault of each of `keys` that is set: it means something elsewhere, but nothing here."""
        self._read.update(keys)
        for key in keys:
            if key in self:
                self.fault(key, why)

    def array(self, key: str, rule: Rule[T], *, empty: bool = True) -> tuple[T, ...] | None:
        """Every item under `key` as `rule` types it, none of them twice; None if it is not set, or no array."""
        raw = self.get(key, _array, None)
        if raw is None:
            return None
        if not raw and not empty:
            self.fault(key, "must not be empty")
        items: list[T] = []
        for index, value in enumerate(raw):
            try:
                items.append(rule(value))
            except ValueError as error:
                self.fault(key, str(error), index)
            else:
                if value in raw[:index]:
                    self.fault(key, "stands in the array twice", index)
        return tuple(items)

    def table(self, key: str) -> "Table":
        """The table under `key`, an empty one if it is not set."""
        return self._child(key, self.get(key, _mapping, {}))

    def tables(self, key: str) -> "list[Table]":
        """The array of tables under `key`, in the order of the file, empty if it is not set."""
        found = []
        for index, value in enumerate(self.get(key, _tables, [])):
            if isinstance(value, Mapping):
                found.append(self._child(key, value, index))
            else:
                self.fault(key, "must be a table", index)
        return found

    def fill(self, kind: type[K], **given: object) -> K:
        """A `kind`: `given` as handed in, every other field by its name, type and default."""
        wanted = [field for field in fields(kind) if field.name not in given]
        return kind(**given, **{field.name: self._field(field) for field in wanted})

    def close(self) -> None:
        """Report every key that was never read, here and in the tables below."""
        for key in self._data:
            if key not in self._read:
                self.fault(key, f"unknown key{_did_you_mean(key, self._read)}")
        for child in self._children:
            child.close()

    def _field(self, field: FieldInfo) -> Any:
        if field.required:
            return self.require(field.name, rule_of(field.type), _STAND_IN)
        return self.get(field.name, rule_of(field.type), field.default)

    def _child(self, key: str, data: Mapping[str, object], index: int | None = None) -> "Table":
        child = Table(data, self._at(key, index), self.faults)
        self._children.append(child)
        return child

    def _at(self, key: str | None, index: int | None = None) -> str:
        if key is None:
            return self._place
        shown = key if _BARE_KEY.fullmatch(key) else json.dumps(key)
        place = f"{self._place}.{shown}" if self._place else shown
        return place if index is None else f"{place}[{index}]"


def _did_you_mean(key: str, known: Iterable[str]) -> str:
    # late: only a faulty document needs it
    from difflib import get_close_matches

    meant = get_close_matches(key, known, n=1, cutoff=_NEAR) or _with_words_of(key, known)
    return f"; did you mean {meant[0]}?" if meant else ""


def _with_words_of(key: str, known: Iterable[str]) -> list[str]:
    """The one known key that has all words of this one, in their order and side by side; none if there are several."""
    found = [each for each in known if f"_{key}_" in f"_{each}_"]
    return found if len(found) == 1 else []


def _list(fault: str) -> Rule[list[object]]:
    """An array; `fault` says what it must be, as one writes it."""

    def rule(value: object) -> list[object]:
        if isinstance(value, list):
            return value
        raise ValueError(fault)

    return rule


_array = _list("must be an array, in brackets")
_tables = _list("must be an array of tables, each with a header in double brackets")


def _mapping(value: object) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    raise ValueError("must be a table")
