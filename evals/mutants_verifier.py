"""Breaks the semantic verifier in one place at a time, and says which test notices.

    python -m evals.mutants_verifier [--only TEXT] [--write]

A mutant drops one row of a table, one word of a list, or one rule, or makes one step do nothing. One that no test
notices is a rule that nobody can trust: it is listed, and the exit status is 1. --write keeps the result in
evals/results/verifier_mutants.json. The tests with generated texts are left out: the others must do.
"""

import argparse
import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import sys
import unittest
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import NamedTuple, cast

from evals import ROOT

SOURCES = ROOT / "src" / "gateway" / "semantic"
RESULT = ROOT / "evals" / "results" / "verifier_mutants.json"
PACKAGE = "gateway.semantic"
SUITES = (
    *("grammar", "frames", "manners", "clauses", "words", "inflection", "counts", "lexicon", "eligible", "verifier"),
    *("grey", "turn", "rewording"),
)
NEAREST = {
    "rules": "verifier",
    "question": "verifier",
    "plain": "words",
    "patterns": "words",
    "expansion": "lexicon",
    "slots": "clauses",
    "tokens": "clauses",
    "letters": "words",
    "pauses": "words",
    "judgement": "grey",
    "constructions": "rewording",
    "conversions": "rewording",
}
"""The suite to begin with, where it has not the name of the module."""
GENERATED = "PromiseTest"

STEPS = (
    ("plain", "plain", "text"),
    ("plain", "quotations", "()"),
    ("plain", "_apart", "character"),
    ("words", "_is_titled", "False"),
    ("words", "_is_titled", "True"),
    ("pauses", "without_silent", "pieces"),
    ("pauses", "_is_marked_sign", "False"),
    ("pauses", "_is_marked_sign", "before.endswith(MARK)"),
    ("pauses", "_is_factorial", "False"),
    ("pauses", "_is_code", "False"),
    ("pauses", "_is_code", "True"),
    ("words", "_capitals", "Capitals(_NONE, _NONE, _NONE)"),
    ("letters", "exact", "frozenset()"),
    ("letters", "written_otherwise", "None"),
    ("letters", "_symbol", "''"),
    ("letters", "_short_name", "''"),
    ("words", "_named", "lower"),
    ("inflection", "_singular", "word"),
    ("inflection", "_with_ending", "None"),
    ("inflection", "_restored", "rest"),
    ("expansion", "_without_ending", "(word,)"),
    ("expansion", "_parted_number", "(word,)"),
    ("expansion", "_joined", "words"),
    ("slots", "_date", "None"),
    ("slots", "_times", "None"),
    ("manners", "_may_follow_a_greeting", "True"),
    ("manners", "_end", "len(words)"),
    ("grammar", "is_noun", "True"),
    ("counts", "_in_phrase", "[_ending(word) for word in phrase]"),
    ("counts", "_verb", "None"),
    ("counts", "is_cardinal", "False"),
    ("counts", "_shows", "False"),
    ("rules", "count", "None"),
    ("rules", "article", "None"),
    ("tokens", "_counted", "counted(words, frame, None)"),
    ("tokens", "_first_auxiliary", "None"),
    ("clauses", "unfronted", "words"),
    ("clauses", "direct", "words"),
    ("clauses", "_without_located", "(opening, said)"),
    ("clauses", "_meant", "(opening, said)"),
    ("clauses", "_priced", "(opening, said)"),
    ("clauses", "_possible", "(opening, said)"),
    ("clauses", "_agent", "(opening, said)"),
    ("clauses", "_active", "(opening, said)"),
    ("clauses", "_converted", "tokens"),
    ("clauses", "_in_one_order", "tokens"),
    ("clauses", "_begins_a_phrase", "True"),
    ("rewording", "_possessed", "words"),
    ("rewording", "_bare", "words"),
    ("rewording", "_fronted", "words"),
    ("rewording", "_commanded", "words"),
    ("conversions", "conversion", "words"),
    ("manners", "_may_be_claimed", "True"),
    ("manners", "_may_be_claimed", "False"),
    ("expansion", "_with_and", "words"),
    ("expansion", "_is_name", "True"),
    ("expansion", "_numbered", "parts"),
    ("constructions", "_eaten", "words"),
    ("constructions", "_moving", "words"),
    ("constructions", "_not_doing", "words"),
    ("constructions", "_differing", "words"),
    ("constructions", "_taking", "words"),
    ("constructions", "_weighed", "words"),
    ("constructions", "_lasting", "words"),
    ("constructions", "_reset", "words"),
    ("constructions", "_advised", "words"),
    ("constructions", "_got", "words"),
    ("constructions", "_related", "words"),
    ("constructions", "_needed", "words"),
    ("constructions", "_there", "words"),
    ("constructions", "_superlative", "words"),
    ("constructions", "_having", "words"),
    ("constructions", "_located", "words"),
    ("constructions", "_made_different", "words"),
    ("constructions", "_caused", "words"),
    ("constructions", "_allowed", "words"),
    ("constructions", "_far", "words"),
    ("constructions", "is_phrase", "True"),
    ("constructions", "_names", "True"),
    ("inflection", "american", "word"),
    ("rules", "_is_possessive_of", "False"),
    ("rules", "_is_possessive_of", "True"),
    ("eligible", "_form_refusal", "None"),
    ("eligible", "_is_foreign", "False"),
    ("eligible", "_is_english", "True"),
    ("eligible", "_says_enough", "True"),
    ("eligible", "_points_outside", "False"),
    ("eligible", "_has_antecedent", "True"),
    ("eligible", "_has_antecedent", "False"),
    ("eligible", "_is_dummy", "False"),
    ("eligible", "_is_joining", "True"),
    ("eligible", "_is_joining", "False"),
    ("eligible", "_is_what_is_asked_for", "False"),
    ("eligible", "_is_what_is_asked_for", "True"),
)
"""Module, function, and what it returns at once instead."""


class Mutant(NamedTuple):
    """A module in which one thing is broken, and what that is."""

    module: str
    broken: str
    tree: ast.Module


def mutants() -> Iterator[Mutant]:
    """Every mutant, module by module; the tree of one is whole again when the next is asked for."""
    for path in sorted(SOURCES.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        for name, place in list(_places(tree)):
            yield Mutant(path.stem, f"{name}: {place.drop()}", tree)
            place.restore()
        for module, function, result in STEPS:
            if module == path.stem:
                yield Mutant(module, f"{function}() returns {result}", _with_step(source, function, result))


class _Element:
    """One element of a table in a tree."""

    def __init__(self, table: ast.Tuple | ast.List | ast.Set | ast.Dict, at: int) -> None:
        lists = [table.keys, table.values] if isinstance(table, ast.Dict) else [table.elts]
        self._lists = cast(list[list[ast.expr | None]], lists)
        self._at = at
        self._dropped: list[ast.expr | None] = []

    def drop(self) -> str:
        """Take it out; returns what it was."""
        self._dropped = [elements.pop(self._at) for elements in self._lists]
        return " = ".join(ast.unparse(node) for node in self._dropped if node is not None)

    def restore(self) -> None:
        """Put it back."""
        for elements, node in zip(self._lists, self._dropped, strict=True):
            elements.insert(self._at, node)


class _Word:
    """One word of a text that is a list of words."""

    def __init__(self, text: ast.Constant, at: int) -> None:
        self._text, self._at = text, at
        self._whole = str(text.value)

    def drop(self) -> str:
        """Take it out; returns the word."""
        words = self._whole.split()
        word = words.pop(self._at)
        self._text.value = " ".join(words)
        return word

    def restore(self) -> None:
        """Put it back."""
        self._text.value = self._whole


def _places(tree: ast.Module) -> Iterator[tuple[str, _Element | _Word]]:
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            name = ast.unparse(statement.target)
            yield from ((name, place) for place in _of(statement.value))


def _of(node: ast.expr) -> Iterator[_Element | _Word]:
    match node:
        case ast.Tuple() | ast.List() | ast.Set():
            yield from (_Element(node, at) for at in range(len(node.elts)))
            for element in node.elts:
                yield from _members(element)
        case ast.Dict():
            yield from (_Element(node, at) for at, key in enumerate(node.keys) if key is not None)
        case ast.BinOp():
            yield from _of(node.left)
            yield from _of(node.right)
        case ast.Call(func=ast.Name(id="word_set"), args=[ast.Constant() as words]):
            yield from _words(words)
        case ast.Call(func=ast.Name(id="frozenset" | "Phrases")):
            for argument in node.args:
                yield from _of(argument)
        case _:
            pass


def _members(element: ast.expr) -> Iterator[_Word]:
    """Words of a row of synonyms or of names of a unit."""
    match element:
        case ast.Call(func=ast.Name(id="Synonyms"), args=[ast.Constant() as words, _]):
            yield from _words(words)
        case ast.Constant(value=str(text)) if " " in text and "|" not in text and "[" not in text:
            yield from _words(element)
        case _:
            pass


def _words(node: ast.Constant) -> Iterator[_Word]:
    return (_Word(node, at) for at in range(len(str(node.value).split())))


def _with_step(source: str, function: str, result: str) -> ast.Module:
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            node.body = ast.parse(f"return {result}").body
            return ast.fix_missing_locations(tree)
    raise LookupError(function)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module from a tree instead of its file."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = f"{PACKAGE}.{mutant.module}"
        self._code = compile(mutant.tree, f"<mutant of {mutant.module}>", "exec")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module, if it is the broken one."""
        del path, target
        return importlib.util.spec_from_loader(fullname, self) if fullname == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        """Run the broken source."""
        exec(self._code, module.__dict__)


@contextmanager
def _broken(mutant: Mutant) -> Iterator[None]:
    finder = _Finder(mutant)
    sys.meta_path.insert(0, finder)
    _forget()
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _forget()


def _forget() -> None:
    for name in [name for name in sys.modules if name.startswith((PACKAGE, "tests.unit.test_semantic_"))]:
        del sys.modules[name]
    sys.modules.pop("tests.support.questions", None)


def killer(mutant: Mutant) -> str | None:
    """The first test that notices; None if none does."""
    with _broken(mutant):
        nearest = NEAREST.get(mutant.module, mutant.module)
        for suite in sorted(SUITES, key=lambda suite: suite != nearest):
            try:
                module = importlib.import_module(f"tests.unit.test_semantic_{suite}")
            except (KeyError, IndexError, ValueError, TypeError, AttributeError, AssertionError) as error:
                return f"import: {type(error).__name__}"
            noticed = _failure(unittest.defaultTestLoader.loadTestsFromModule(module))
            if noticed is not None:
                return f"test_semantic_{suite}: {noticed}"
    return None


def _failure(suite: unittest.TestSuite) -> str | None:
    tests = unittest.TestSuite(test for test in _cases(suite) if type(test).__name__ != GENERATED)
    result = unittest.TextTestRunner(stream=io.StringIO(), failfast=True).run(tests)
    failed = [test for test, _ in result.failures + result.errors]
    return failed[0].id().split()[0].split(".", 3)[-1] if failed else None


def _cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _cases(test)
        else:
            yield test


def main(arguments: Sequence[str] | None = None) -> int:
    """Try every mutant; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="evals.mutants_verifier", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="mutants of which `module table: what` contains this")
    parser.add_argument("--write", action="store_true", help="keep the result")
    wanted = parser.parse_args(arguments)
    killed: dict[str, str] = {}
    survived: list[str] = []
    for mutant in mutants():
        name = f"{mutant.module}.{mutant.broken}"
        if wanted.only not in name:
            continue
        noticed = killer(mutant)
        if noticed is None:
            survived.append(name)
            print(f"SURVIVED {name}", flush=True)
        else:
            killed[name] = noticed
    print(f"{len(killed)} of {len(killed) + len(survived)} mutants are noticed")
    if wanted.write:
        document = {"mutants": len(killed) + len(survived), "survived": survived, "killed_by": killed}
        RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
