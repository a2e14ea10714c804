"""What the command line prints for people: a result of a command as lines of text.

Decides how a field is called and shown by its name alone: amounts in USD, moments in UTC. Knows no command.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from llmkit.money import format_usd

_FOR_PROGRAMS = frozenset(("window_number",))
"""Fields of a list's entries that tell people nothing: when the window ends is beside it."""

_PARTS = (dict, list, tuple)
"""What has no cell of its own in a table."""


def render(result: Any, width: int) -> str:
    """The result of a command, field by field. A list is a table if that has at most `width` columns of characters;
    else its entries follow each other, with an empty line between two.
    """
    if isinstance(result, list):
        return _table(result, width) or "\n\n".join(render(entry, width) for entry in result) or "nothing"
    return "\n".join(line for name, value in result.items() for line in _lines(name, value))


def _table(entries: list[dict[str, Any]], width: int) -> str:
    """A heading and a line for each entry; empty if they differ in their fields, hold more than plain values, or are
    wider than `width`.
    """
    names = list(entries[0]) if entries else []
    if any(list(entry) != names or any(isinstance(each, _PARTS) for each in entry.values()) for entry in entries):
        return ""
    lines = ["  ".join(cells).rstrip() for cells in zip(*(_column(name, entries) for name in names), strict=True)]
    return "\n".join(lines) if all(len(line) <= width for line in lines) else ""


def _column(name: str, entries: list[dict[str, Any]]) -> list[str]:
    """Its heading and its values, all equally long; numbers stand below each other, also where one is missing."""
    cells = [_label(name), *(_shown(name, entry[name]) for entry in entries)]
    longest = max(map(len, cells))
    is_number = {type(entry[name]) for entry in entries if entry[name] is not None} == {int}
    return [cell.rjust(longest) if is_number else cell.ljust(longest) for cell in cells]


def _lines(name: str, value: Any, indent: str = "") -> Iterator[str]:
    """A field of a result: an object's own fields under its name; of a list each entry is a line, but for numbers."""
    if isinstance(value, dict) and value:
        yield f"{indent}{_label(name)}"
        for field, each in value.items():
            yield from _lines(field, each, f"{indent}  ")
    elif isinstance(value, list | tuple) and not all(isinstance(each, int) for each in value):
        for each in value:
            yield f"{indent + _label(name):<18} {_shown(name, each)}"
    else:
        yield f"{indent + _label(name):<18} {_shown(name, value)}"


def _label(name: str) -> str:
    return name.removesuffix("_ms" if _is_moment(name) else "_nanousd")


def _is_moment(name: str) -> bool:
    return name.endswith("_ms") and name not in ("ttft_ms", "duration_ms")


def _shown(name: str, value: Any) -> str:
    if value is None or value in ("", [], (), {}):
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        shown = (field for field in value if field not in _FOR_PROGRAMS)
        return ", ".join(f"{_label(field)} {_shown(field, value[field])}" for field in shown)
    if _is_moment(name):
        try:
            return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        except (OverflowError, ValueError):
            return "after the year 9999"
    if isinstance(value, str) and not value.isprintable():
        return json.dumps(value)
    return f"{format_usd(value)} USD" if name.endswith("_nanousd") else str(value)
