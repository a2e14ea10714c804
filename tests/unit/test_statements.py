"""SQL that every supported Python sends alike."""

import ast
import re
import unittest
from collections.abc import Iterator
from pathlib import Path

from tests import _paths

STATEMENT = re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE|VALUES|WHERE)\b")
NUMBERED = re.compile(r"\?\d")


def texts(source: str) -> Iterator[str]:
    """Each string of a module, also the fixed parts of those that are put together."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def numbered(source: str) -> list[str]:
    """The statements of a module, and parts of statements, that number their parameters."""
    return [text for text in texts(source) if STATEMENT.search(text) and NUMBERED.search(text)]


class PlaceholderTest(unittest.TestCase):
    """Python 3.12 before 3.12.4 takes `?1` for a name, which a sequence may not fill (gh-117995)."""

    def test_no_statement_numbers_its_parameters(self) -> None:
        """Each would warn at each call; where warnings are errors, nothing would be settled."""
        for file in sorted(Path(_paths.SRC).rglob("*.py")):
            with self.subTest(file.name):
                self.assertEqual(numbered(file.read_text(encoding="utf-8")), [])

    def test_a_number_is_found_wherever_it_stands(self) -> None:
        """Also in a statement that is put together; a pattern is no statement."""
        for source in ('"UPDATE a SET b = ?1"', 'f"SELECT {x} FROM a WHERE b IN (?, ?2)"'):
            with self.subTest(source):
                self.assertEqual(len(numbered(source)), 1)
        self.assertEqual(numbered('("SELECT a FROM b WHERE c = ?", "a?1")'), [])


if __name__ == "__main__":
    unittest.main()
