"""What the sweep over thresholds concludes, and how it is shown."""

import tempfile
import unittest
from pathlib import Path
from typing import Any

from evals import report, semantic_report, semantic_sweep
from evals.labels import LONG_LABELS
from evals.semantic_report import THRESHOLDS, best_recall, measured
from llmkit.embed import HashEmbedder
from tests.unit.test_semantic_gate import OTHER, SAME, SETS, SLIP, STREAM

POINTS = len(THRESHOLDS)


def curve(embedder: str, verifier: str, *, right: int = 0, wrong: int = 0, replay_wrong: int = 0) -> dict[str, Any]:
    """One that is flat."""
    return {
        "embedder": embedder,
        "verifier": verifier,
        "pairs": {"right": [right] * POINTS, "wrong": [wrong] * POINTS},
        "kinds": {},
        "replay": {"hits": [replay_wrong] * POINTS, "wrong": [replay_wrong] * POINTS},
    }


def one(paraphrases: int, near_misses: int, right: int, wrong: int) -> dict[str, Any]:
    """One set, half of whose paraphrases are light."""
    light = {"paraphrases": 1, "near_misses": 0, "right": 1, "wrong": 0, "recall": 1.0}
    return {
        "paraphrases": paraphrases,
        "near_misses": near_misses,
        "right": right,
        "wrong": wrong,
        "hits": right + wrong,
        "precision": 1.0,
        "precision_95": [0.9, 1.0],
        "recall": 0.5,
        "recall_95": [0.4, 0.6],
        "kinds": {"para_light": light, "para_medium": light | {"recall": 0.5}},
    }


def figures(**changes: Any) -> dict[str, Any]:
    """An artifact in which all that was hoped for came true."""
    sets = {name: one(200, 300, 40, 0) for name in ("generated", "near_misses", "rewordings", "fow", "checklist")}
    usual: dict[str, Any] = {
        "machine": {"commit": "abc", "python": "3.11", "cpus": 2, "load_average": 1.0},
        "n": 7,
        "sets": sets | {"adversarial": one(0, 54, 0, 3), "later": one(150, 400, 90, 2)},
        "stream": {
            "questions": 1000,
            "answerable": 300,
            "hits": 9,
            "wrong": 1,
            "wrong_per_1000": 1.0,
            "hit_rate": 0.009,
            "oracle_rate": 0.3,
            "read": ["a / b"],
            "unread": [],
        },
        "unkeyed": [],
        "embedders": {"hash": {}, "use": {}},
        "curves": [
            curve("hash", "none", right=50, wrong=1),
            curve("use", "none", right=900, wrong=100, replay_wrong=40),
            curve("use", "numbers-and-capitals", right=98, wrong=2),
        ],
    }
    return usual | changes


class MeasuredTest(unittest.TestCase):
    """Hypotheses as gates."""

    def test_all_that_was_written_down_is_judged(self) -> None:
        """A good sweep passes every gate, each of which has words."""
        judgements = semantic_report.gates(figures())
        self.assertEqual({gate.status for gate in judgements}, {"passed"})
        labelled = [name for name in LONG_LABELS if name.startswith("semantic_cache.")]
        self.assertEqual([gate.name for gate in judgements], labelled)

    def test_the_best_recall_is_where_the_precision_is_kept(self) -> None:
        """At any threshold, by any embedder; what is served otherwise is nothing."""
        self.assertEqual(best_recall(figures(), "none"), 5.0)
        self.assertEqual(best_recall(figures(), "numbers-and-capitals"), 9.8)
        self.assertEqual(best_recall(figures(), "closed-world"), 0.0)

    def test_what_was_not_there_is_not_measured(self) -> None:
        """A set, an embedder, the stream."""
        sets = figures()["sets"]
        del sets["fow"]
        missing = {name for name, value in measured(figures(sets=sets)).items() if value is None}
        self.assertEqual(
            {name.partition(".")[2] for name in missing},
            {"cosine_recall", "capitals_recall", "wrong", "unkeyed", "near_miss_rate", "precision"},
        )
        self.assertIn("\nNot measured: fow. fow_cache/", "\n".join(semantic_report.summary(figures(sets=sets))))
        self.assertNotIn("Not measured", "\n".join(semantic_report.summary(figures())))
        alone = measured(figures(embedders={"hash": {}}, curves=figures()["curves"][:1], stream=None))
        self.assertEqual(
            {name.partition(".")[2] for name, value in alone.items() if value is None},
            {"cosine_recall", "capitals_recall", "replay_cosine", "replay_wrong"},
        )

    def test_attacks_are_not_counted_with_the_others(self) -> None:
        """They are no sample of anything."""
        self.assertEqual(measured(figures())["semantic_cache.wrong"], 0)

    def test_one_wrong_answer_fails_its_gates(self) -> None:
        """The bounds move with it."""
        sets = figures()["sets"] | {"fow": one(200, 300, 39, 1)}
        failed = [gate.name for gate in semantic_report.gates(figures(sets=sets)) if gate.status == "failed"]
        self.assertEqual(failed, ["semantic_cache.wrong", "semantic_cache.near_miss_rate", "semantic_cache.precision"])

    def test_a_pair_that_passes_without_equal_keys_fails(self) -> None:
        """An index on the key would not find it."""
        judged = semantic_report.gates(figures(unkeyed=["x"]))
        self.assertEqual([gate.name for gate in judged if gate.status == "failed"], ["semantic_cache.unkeyed"])

    def test_it_is_shown_with_its_pictures(self) -> None:
        """In the README and the details; another number changes both."""
        readme = "".join(f"<!-- {name} -->\n<!-- /{name} -->\n" for name in ("failing-evals", "evals", *report.LONG))
        runs = {"semantic_cache": figures()}
        shown, details = report.render(readme, {}, runs), report.render_details({}, runs)
        for picture in semantic_report.PICTURES:
            self.assertIn(f"]({picture})", shown)
        self.assertIn("precision 1.000 [0.982, 1.000]", shown)
        self.assertIn("| hash, none | 50 / 1 |", details)
        other = {"semantic_cache": figures(sets=figures()["sets"] | {"fow": one(200, 300, 39, 1)})}
        self.assertNotEqual(report.render(readme, {}, other), shown)


class SweepTest(unittest.TestCase):
    """The sweep itself, over a handful of pairs."""

    SETS = SETS | {"rewordings": [SAME]}

    def test_each_verifier_stands_behind_each_embedder(self) -> None:
        """At every threshold, of pairs and of the stream; fewer are served the nearer they must be."""
        swept = semantic_sweep.run(self.SETS, STREAM, {"hash": HashEmbedder()})
        names = [(one_curve["embedder"], one_curve["verifier"]) for one_curve in swept["curves"]]
        self.assertEqual(names, [("hash", "none"), ("hash", "numbers-and-capitals"), ("hash", "closed-world")])
        for one_curve in swept["curves"]:
            for served in (*one_curve["pairs"].values(), one_curve["replay"]["hits"]):
                self.assertEqual(len(served), POINTS)
            self.assertEqual(one_curve["pairs"]["wrong"], sorted(one_curve["pairs"]["wrong"], reverse=True))
        alone, behind = swept["curves"][0], swept["curves"][2]
        self.assertGreater(alone["pairs"]["wrong"][0], behind["pairs"]["wrong"][0])
        self.assertEqual(swept["unkeyed"], [])
        self.assertEqual({gate.status for gate in semantic_report.gates(swept)}, {"passed", "failed", "not measured"})

    def test_without_a_stream_there_is_no_replay(self) -> None:
        """And it is not measured."""
        swept = semantic_sweep.run({"generated": [SAME, OTHER, SLIP]}, None, {"hash": HashEmbedder()})
        self.assertIsNone(swept["stream"])
        self.assertEqual(set(swept["curves"][0]["replay"]["hits"]), {0})

    def test_it_can_be_drawn(self) -> None:
        """Into one file for each picture, where matplotlib is installed."""
        try:
            from evals.plot_semantic import draw
        except ImportError:
            self.skipTest("the extra [evals] is not installed")
        swept = semantic_sweep.run(self.SETS, STREAM, {"hash": HashEmbedder()})
        with tempfile.TemporaryDirectory() as folder:
            pictures = draw(swept, Path(folder))
            self.assertEqual({path.name for path in pictures}, {Path(name).name for name in semantic_report.PICTURES})
            self.assertTrue(all(path.stat().st_size for path in pictures))
