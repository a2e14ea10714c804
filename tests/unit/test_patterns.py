"""Regular expressions that every supported Python reads alike."""

import importlib
import pkgutil
import re
import unittest
from collections.abc import Iterable, Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

PACKAGES = ("gateway", "llmkit", "tracekit")
ONE_CHARACTER = (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN)
PROVEN = {
    # what is tried in vain is a backslash at the very end: to have passed it changes nothing that is looked for
    "gateway.strict_json._STRINGS",
}


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Each that a module keeps, by the name it has there."""
    for package in map(importlib.import_module, PACKAGES):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                module = importlib.import_module(found.name)
                for name, value in vars(module).items():
                    if isinstance(value, re.Pattern):
                        yield f"{found.name}.{name}", value


def possessive_groups(items: Iterable[Any]) -> Iterator[Any]:
    """What of a parsed pattern is repeated possessively and longer than one character."""
    for operation, argument in items:
        if operation is codes.POSSESSIVE_REPEAT:
            body = list(argument[2])
            if len(body) > 1 or body[0][0] not in ONE_CHARACTER:
                yield body
        for inner in argument if isinstance(argument, (tuple, list)) else ():
            for sub in inner if isinstance(inner, list) else (inner,):
                if isinstance(sub, parser.SubPattern):
                    yield from possessive_groups(sub)


class PossessiveTest(unittest.TestCase):
    """Before Python 3.11.5 a possessive group keeps what its last, vain turn had begun to read (gh-106052)."""

    def test_no_pattern_repeats_a_group_possessively(self) -> None:
        """A head that 3.11.7 reads was malformed for 3.11.2, which Debian 12 has."""
        found = {
            name for name, pattern in patterns() if any(possessive_groups(parser.parse(pattern.pattern, pattern.flags)))
        }
        self.assertEqual(found, PROVEN)

    def test_a_group_is_found_wherever_it_stands(self) -> None:
        """Also in another group, a choice or a look ahead; one character is no group."""
        for pattern in ("(?:ab)*+", "x(?:y|(?:ab)++)z", "(?=(?:a|bc)?+)", "((?:a*+b){2,3}+)*"):
            with self.subTest(pattern):
                self.assertTrue(any(possessive_groups(parser.parse(pattern))))
        self.assertFalse(any(possessive_groups(parser.parse("[ab]*+c++.?+(?:ab)*"))))


if __name__ == "__main__":
    unittest.main()
