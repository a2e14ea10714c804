"""The question pairs that judge the semantic cache are what their README says."""

import json
import re
import unittest
from collections import Counter
from typing import Any

from tests import _paths

FOLDER = _paths.ROOT / "evals" / "data" / "semantic"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
FIELDS = ["id", "a", "b", "same", "kind", "group", "split"]
LABELS = {True: "same", False: "different"}


def _pairs(name: str) -> list[dict[str, Any]]:
    text = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


WRITTEN = {name: _pairs(name) for name in ("near_misses", "rewordings")}
ALL = {**WRITTEN, "generated_pairs": _pairs("generated_pairs")}


class SemanticPairsTest(unittest.TestCase):
    """evals/data/semantic."""

    def test_every_kind_has_the_count_and_the_label_that_the_readme_states(self) -> None:
        """A rate per kind means something only beside the count it is over."""
        stated = re.findall(r"^\| (\w+) \| (\w+) \| (\d+) \| (same|different) \|", README, re.MULTILINE)
        found = Counter((name, pair["kind"], LABELS[pair["same"]]) for name, pairs in ALL.items() for pair in pairs)
        self.assertEqual([(*row[:2], row[3], int(row[2])) for row in stated], [(*key, n) for key, n in found.items()])

    def test_every_pair_has_the_same_fields_and_two_questions_without_spare_space(self) -> None:
        """Whoever reads the files needs no rule for a single line."""
        for pair in (pair for pairs in ALL.values() for pair in pairs):
            with self.subTest(pair["id"]):
                self.assertEqual(list(pair), FIELDS)
                self.assertIs(type(pair["same"]), bool)
                for side in (pair["a"], pair["b"]):
                    self.assertTrue(side)
                    self.assertEqual(side, " ".join(side.split()))

    def test_no_id_is_used_twice(self) -> None:
        """Over all files: a report names a pair by its id alone."""
        ids = Counter(pair["id"] for pairs in ALL.values() for pair in pairs)
        self.assertEqual([key for key, n in ids.items() if n > 1], [])

    def test_no_pair_comes_twice_in_either_direction(self) -> None:
        """Not with another label, not in another file."""
        pairs = Counter(frozenset((pair["a"], pair["b"])) for pairs in ALL.values() for pair in pairs)
        self.assertEqual([sorted(key) for key, n in pairs.items() if n > 1], [])

    def test_the_written_pairs_differ_and_only_judge(self) -> None:
        """A pair of equal strings judges nothing, and nothing may be tuned on these."""
        for pair in (pair for pairs in WRITTEN.values() for pair in pairs):
            with self.subTest(pair["id"]):
                self.assertNotEqual(pair["a"], pair["b"])
                self.assertEqual(pair["split"], "test")

    def test_a_typing_mistake_is_in_one_word(self) -> None:
        """The other words are equal, so that nothing else is judged."""
        for pair in (pair for pair in WRITTEN["rewordings"] if pair["kind"] == "typo"):
            with self.subTest(pair["id"]):
                words = zip(pair["a"].split(), pair["b"].split(), strict=True)
                self.assertEqual(sum(one != other for one, other in words), 1)

    def test_the_near_misses_are_over_as_many_questions_and_domains_as_stated(self) -> None:
        """A group is a domain and a base question."""
        groups = {pair["group"] for pair in WRITTEN["near_misses"]}
        domains = {group.partition(".")[0] for group in groups}
        self.assertIn(f"{len(groups)} base questions, {len(domains)} domains", README)

    def test_the_spot_check_shows_fifty_pairs_with_their_labels(self) -> None:
        """The table would outlive a changed label."""
        rows = re.findall(r"^\| (gen-\d+) \| (\w+) \| (\w+) \| (same|different|doubtful) \|", README, re.MULTILINE)
        labels = {pair["id"]: (pair["kind"], LABELS[pair["same"]]) for pair in ALL["generated_pairs"]}
        self.assertEqual(len({row[0] for row in rows}), 50)
        for key, kind, label, _ in rows:
            self.assertEqual((kind, label), labels[key], key)
