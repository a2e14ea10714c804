"""What the semantic cache's gate looks at; and that its committed numbers are those of the code beside them."""

import json
import unittest
from typing import Any

from evals import report, semantic_corpus, semantic_gate
from evals.semantic_sets import Asked, Pair

SAME = Pair("s-1", "How do I cancel order 7?", "hi, how can i cancel order 7", True, "para_light", "test")
FREE = Pair("s-2", "How do I cancel order 7?", "how do I get rid of my purchase?", True, "para_medium", "test")
OTHER = Pair("d-1", "How do I cancel order 7?", "How do I cancel order 8?", False, "number", "test")
SLIP = Pair("d-2", "How do I cancel order 7?", "how can I cancel order 7", False, "slip", "test")
UNSEEN = Pair("d-3", "How do I cancel this order?", "how can I cancel this order", False, "slip", "test")
STREAM = [
    Asked("q-1", "How do I cancel order 7?", "7"),
    Asked("q-2", "how can I cancel order 7?", "seven"),
    Asked("q-3", "hi, how do I cancel order 7?", "7"),
]
SETS = {
    "generated": [SAME, FREE, OTHER],
    "near_misses": [OTHER, SLIP, UNSEEN],
    "fow": [SLIP],
    "checklist": [OTHER],
    "adversarial": [SLIP, OTHER],
}


def scored(**changes: Any) -> dict[str, Any]:
    """What is measured of these sets."""
    arguments: dict[str, Any] = {"sets": SETS, "stream": STREAM, "read": set()} | changes
    return semantic_gate.scored(**arguments)


class MeasuredTest(unittest.TestCase):
    """What the gates look at."""

    def test_each_set_has_its_gate(self) -> None:
        """Wrong answers are counted; of the generated pairs their precision and recall."""
        self.assertEqual(
            semantic_gate.measured(scored()),
            {
                "semantic_gate.precision": 1.0,
                "semantic_gate.recall": 0.5,
                "semantic_gate.near_misses": 1,
                "semantic_gate.fow": 1,
                "semantic_gate.checklist": 0,
                "semantic_gate.webquestions": 1,
                "semantic_gate.adversarial": 1,
            },
        )

    def test_a_set_that_is_not_there_is_not_measured(self) -> None:
        """Nor passed."""
        measured = semantic_gate.measured(scored(sets={}, stream=None))
        self.assertEqual(set(measured.values()), {None})
        self.assertNotIn("webquestions", "\n".join(semantic_gate.lines(scored(stream=None))))

    def test_what_is_not_measured_says_how_to_get_it(self) -> None:
        """Where the file is to lie, or what installs it; nothing of what is there."""
        some = {name: pairs for name, pairs in SETS.items() if name not in ("fow", "adversarial")} | {
            "rewordings": [SAME]
        }
        fow, attacks, _ = semantic_gate.missing(scored(sets=some)["sets"])
        self.assertTrue(
            fow.startswith("Not measured: fow. fow_cache/data/pairs.jsonl comes with fow-cache 0.1.0, which `")
        )
        self.assertIn("`pip install -e '.[evals]'`", fow)
        self.assertIn("adversarial.json lies beside the checkout, in ../shared/data/semantic.", attacks)
        self.assertIn("Not measured: fow.", "\n".join(semantic_gate.lines(scored(sets=some))))

    def test_a_differing_key_that_was_read_is_not_wrong(self) -> None:
        """It is told beside those that nobody has read; another pair of ids says nothing of it."""
        read = scored(read={("q-2", "q-1")})
        self.assertEqual((read["stream"]["read"], read["stream"]["unread"]), (["q-2 / q-1"], []))
        self.assertEqual(semantic_gate.measured(read)["semantic_gate.webquestions"], 0)
        for other in (("q-1", "q-2"), ("q-2", "q-3"), ("q-3", "q-1")):
            self.assertEqual(scored(read={other})["stream"]["unread"], ["q-2 / q-1"])
        self.assertEqual((read["stream"]["hits"], read["stream"]["wrong"]), (2, 1))

    def test_texts_of_others_are_not_in_the_result(self) -> None:
        """Their ids are; our own are told in words."""
        found = scored()
        self.assertEqual(found["sets"]["fow"]["wrong_hits"], [{"id": "d-2", "kind": "slip"}])
        self.assertEqual(found["sets"]["adversarial"]["wrong_hits"][0]["asked"], SLIP.b)
        self.assertNotIn("cancel order", json.dumps(found["stream"]))

    def test_what_the_verifier_alone_lets_through_is_told_too(self) -> None:
        """Of texts that the cache would not look up."""
        found = scored()
        self.assertEqual(found["every_text"]["near_misses"], ["d-2", "d-3"])
        self.assertEqual(found["sets"]["near_misses"]["vetoes"]["ineligible: deixis"], 1)

    def test_every_slip_is_named(self) -> None:
        """In the lines for people."""
        said = "\n".join(semantic_gate.lines(scored()))
        self.assertIn(
            "Wrong in near_misses: d-2 (slip): 'how can I cancel order 7' / 'How do I cancel order 7?'.", said
        )
        self.assertIn("Wrong in fow: d-2 (slip).", said)
        self.assertIn("2 near-misses of near_misses (d-2, d-3)", said)
        self.assertIn("1 count as wrong (q-2 / q-1)", said)


class CommittedTest(unittest.TestCase):
    """evals/results/semantic_gate.json."""

    def setUp(self) -> None:
        self.artifact = report.load()["semantic_gate"]

    def test_it_is_what_the_code_beside_it_says_of_the_pairs_beside_it(self) -> None:
        """Another verifier or another pair turns this red until `python -m evals --only semantic_gate` was run."""
        sets = {name: pairs for name, pairs in semantic_corpus.sets().items() if name in self.artifact["sets"]}
        own = {name: sets[name] for name in (*semantic_corpus.WRITTEN, "later")}
        now = json.loads(json.dumps(semantic_gate.scored(own, None, set())))
        self.assertEqual({name: self.artifact["sets"][name] for name in own}, now["sets"])
        self.assertEqual(self.artifact["verifier"], now["verifier"])
        digests = semantic_corpus.digests() | semantic_corpus.stream_digest()
        self.assertLessEqual(set(semantic_corpus.digests(semantic_corpus.WRITTEN)), set(self.artifact["files"]))
        for name in digests.keys() & self.artifact["files"].keys():
            self.assertEqual(self.artifact["files"][name], digests[name])

    def test_the_sweep_is_of_the_same_verifier_and_pairs(self) -> None:
        """`python -m evals.semantic_cache --sweep` says the same of every set where no embedder is asked."""
        swept = report.load_long()["semantic_cache"]
        for part in ("files", "verifier", "sets", "stream", "every_text"):
            self.assertEqual(swept[part], self.artifact[part])

    def test_each_reading_is_of_a_hit_and_has_a_reason(self) -> None:
        """None is kept for a hit that is none any more."""
        entries = json.loads(semantic_corpus.READINGS.read_text(encoding="utf-8"))
        self.assertTrue(all(entry["why"] for entry in entries))
        read = [f"{entry['asked']} / {entry['stored']}" for entry in entries]
        self.assertEqual(sorted(read), sorted(self.artifact["stream"]["read"]))
