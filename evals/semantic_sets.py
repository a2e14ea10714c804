"""Files of pairs and of questions, read strictly.

A line of pairs is an object with `a`, `b` (texts), `same` (whether one answer serves both) and `kind`; a line of a
stream is one with `q` (a text) and `key` (whatever its right answer is known by: equal keys, equal answers). `id` and
`split` may be there too, and a text `group`; everything else is left alone. A line that is not that is refused with its
place; blank lines are not lines. Pure: bytes in, values out.
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
    """Two questions, and whether one answer serves both.

    split, group  what the file says of it; "" where it says nothing
    """

    id: str
    a: str
    b: str
    same: bool
    kind: str
    split: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of a stream; two with one key have one answer."""

    id: str
    text: str
    key: str


def read_pairs(source: str, raw: bytes) -> list[Pair]:
    """The pairs of a file, in its order. Raises BadLine; `source` is what its messages call the file."""
    return _some_of(source, [_pair(place, line) for place, line in _lines(source, raw)])


def read_fow(source: str, raw: bytes) -> list[Pair]:
    """The pairs of a file in the form of fow-cache, but for those that it calls ambiguous. Raises BadLine.

    A category's paraphrases and near-misses are two kinds here.
    """
    pairs = []
    for place, line in _lines(source, raw):
        same, category = _truth(place, line, "same_answer"), _text(place, line, "category")
        a, b, name = _text(place, line, "a"), _text(place, line, "b"), _name(place, line)
        if not _text(place, {"ambiguous": ""} | line, "ambiguous", least=0):
            pairs.append(Pair(name, a, b, same, f"{'para' if same else 'near'}_{category}", ""))
    return _some_of(source, pairs)


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


def _pair(place: str, line: dict[str, Any]) -> Pair:
    a, b, kind = (_text(place, line, name) for name in ("a", "b", "kind"))
    same, split = _truth(place, line, "same"), _text(place, {"split": ""} | line, "split", least=0)
    group = line.get("group")
    return Pair(_name(place, line), a, b, same, kind, split, group if isinstance(group, str) else "")


def _some_of(source: str, pairs: list[Pair]) -> list[Pair]:
    if not pairs:
        raise BadLine(f"{source}:1: there is no pair in it")
    return pairs


def _lines(source: str, raw: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if line.strip():
            try:
                yield f"{source}:{number}", loads_object(line)
            except StrictJsonError:
                raise BadLine(f"{source}:{number}: not one JSON object in UTF-8 with each name once") from None


def _truth(place: str, line: dict[str, Any], name: str) -> bool:
    value = line.get(name)
    if type(value) is not bool:
        raise BadLine(f"{place}: `{name}` must be true or false")
    return value


def _text(place: str, line: dict[str, Any], name: str, *, least: int = 1) -> str:
    value = line.get(name)
    if not isinstance(value, str) or len(value) < least:
        raise BadLine(f"{place}: `{name}` must be a text{' that is not empty' if least else ''}")
    return value


def _name(place: str, line: dict[str, Any]) -> str:
    return _text(place, {"id": place.rpartition(":")[2]} | line, "id")
