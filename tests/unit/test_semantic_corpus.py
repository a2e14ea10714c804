"""Where the pairs of others come from: the installed package, or nowhere."""

import json
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path
from unittest import mock

from evals import semantic_corpus
from tests import _paths

FOW = {"fow": semantic_corpus.SETS["fow"]}
LINE = {"id": "n-1", "category": "negation", "a": "x", "b": "not x", "same_answer": False, "style": "s"}


class FowCacheTest(unittest.TestCase):
    """The package fow-cache, made by hand where the path is looked at for packages."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.site = Path(folder.name)
        path = mock.patch.object(sys, "path", [str(self.site)])
        path.start()
        self.addCleanup(path.stop)

    def install(self, version: str, *, data: bool = True) -> None:
        """Put it there; importing it would fail."""
        about = self.site / f"fow_cache-{version}.dist-info" / "METADATA"
        about.parent.mkdir()
        about.write_text(f"Metadata-Version: 2.1\nName: fow-cache\nVersion: {version}\n", encoding="utf-8")
        package = self.site / "fow_cache"
        package.mkdir()
        (package / "__init__.py").write_text("raise AssertionError('imported')\n", encoding="utf-8")
        if data:
            (package / "data").mkdir()
            (package / "data" / "pairs.jsonl").write_text(json.dumps(LINE) + "\n", encoding="utf-8")

    def test_its_pairs_are_read_where_it_is_installed(self) -> None:
        """By name, with a digest of the file, and without importing it."""
        self.install(semantic_corpus.FOW_CACHE)
        (pair,) = semantic_corpus.sets(FOW)["fow"]
        self.assertEqual((pair.id, pair.a, pair.b, pair.same, pair.kind), ("n-1", "x", "not x", False, "near_negation"))
        self.assertEqual(list(semantic_corpus.digests(FOW)), ["fow_cache/data/pairs.jsonl"])

    def test_without_it_there_are_none(self) -> None:
        """Nor a digest."""
        self.assertEqual((semantic_corpus.sets(FOW), semantic_corpus.digests(FOW)), ({}, {}))

    def test_another_version_has_none(self) -> None:
        """Its pairs may be others."""
        self.install("0.2.0")
        self.assertEqual(semantic_corpus.sets(FOW), {})

    def test_a_package_without_its_data_has_none(self) -> None:
        """As if it were not there."""
        self.install(semantic_corpus.FOW_CACHE, data=False)
        self.assertEqual(semantic_corpus.sets(FOW), {})

    def test_the_extra_installs_the_version_that_is_read(self) -> None:
        """Pinned."""
        project = tomllib.loads((_paths.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        extra = project["project"]["optional-dependencies"]["evals"]
        self.assertIn(f"fow-cache=={semantic_corpus.FOW_CACHE}", extra)


class OwnTest(unittest.TestCase):
    """The sets that were written for this project."""

    def test_they_are_all_there(self) -> None:
        """Wherever the checkout is, each with pairs and a digest."""
        names = {"generated", "near_misses", "rewordings"}
        self.assertEqual(set(semantic_corpus.sets(semantic_corpus.WRITTEN)), names)
        self.assertEqual(len(semantic_corpus.digests(semantic_corpus.WRITTEN)), len(names))
