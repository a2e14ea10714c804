"""Files of pairs and of questions, read strictly.

A line of pairs is an object with `a`, `b` (texts), `same` (whether one answer serves both) and `kind`; a line of a
stream is one with `q` (a text) and `key` (whatever its right answer is known by: equal keys, equal answers). `id` and
`split` may be there too, everything else is left alone. A line that is not that is refused with its place; blank lines
are not lines. Pure: bytes in, values out.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.strict_json import StrictJsonError, loads_object


class BadLine(ValueError):
    """A line that cannot be used; the message is `file:line: why`."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two questions, and whether one answer serves both. split is "" where the file says none."""

    id: str
    a: str
    b: str
    same: bool
    kind: str
    split: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of a stream; two with one key have one answer."""

    id: str
    text: str
    key: str


def read_pairs(source: str, raw: bytes) -> list[Pair]:
    """The pairs of a file, in its order. Raises BadLine; `source` is what its messages call the file."""
    pairs = []
    for place, line in _lines(source, raw):
        a, b, kind = (_text(place, line, name) for name in ("a", "b", "kind"))
        same = line.get("same")
        if type(same) is not bool:
            raise BadLine(f"{place}: `same` must be true or false")
        pairs.append(Pair(_name(place, line), a, b, same, kind, _text(place, {"split": ""} | line, "split", least=0)))
    if not pairs:
        raise BadLine(f"{source}:1: there is no pair in it")
    return pairs


def read_stream(source: str, raw: bytes) -> list[Asked]:
    """The distinct questions of a file, each where it first comes. Raises BadLine."""
    asked: dict[str, Asked] = {}
    for place, line in _lines(source, raw):
        text = _text(place, line, "q")
        if line.get("key") in (None, "", [], {}):
            raise BadLine(f"{place}: `key` is missing or empty")
        asked.setdefault(text, Asked(_name(place, line), text, json.dumps(line["key"], sort_keys=True)))
    if not asked:
        raise BadLine(f"{source}:1: there is no question in it")
    return list(asked.values())


def _lines(source: str, raw: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if line.strip():
            try:
                yield f"{source}:{number}", loads_object(line)
            except StrictJsonError:
                raise BadLine(f"{source}:{number}: not one JSON object in UTF-8 with each name once") from None


def _text(place: str, line: dict[str, Any], name: str, *, least: int = 1) -> str:
    value = line.get(name)
    if not isinstance(value, str) or len(value) < least:
        raise BadLine(f"{place}: `{name}` must be a text{' that is not empty' if least else ''}")
    return value


def _name(place: str, line: dict[str, Any]) -> str:
    return _text(place, {"id": place.rpartition(":")[2]} | line, "id")
