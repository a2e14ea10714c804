"""Files of pairs and questions: read whole or refused with the place of the fault."""

import json
import unittest
from typing import Any

from evals.semantic_sets import Asked, BadLine, Pair, read_fow, read_pairs, read_stream

PAIR: dict[str, Any] = {"a": "How?", "b": "How so?", "same": True, "kind": "light"}
FOW: dict[str, Any] = {"id": "n-1", "category": "negation", "a": "x", "b": "not x", "same_answer": False, "style": "s"}


def lines(*values: object) -> bytes:
    """One JSON value a line."""
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


class PairsTest(unittest.TestCase):
    """Lines of a, b, same and kind."""

    def assert_refused(self, raw: bytes, place: str, why: str) -> None:
        """With the file, the line and the reason."""
        with self.assertRaises(BadLine) as caught:
            read_pairs("some.jsonl", raw)
        self.assertTrue(str(caught.exception).startswith(f"some.jsonl:{place}: "), caught.exception)
        self.assertIn(why, str(caught.exception))

    def test_a_pair_has_the_name_and_split_that_its_line_gives(self) -> None:
        """Else the line's number, no split and no group; what else stands there is left alone."""
        raw = lines(PAIR | {"id": "x-1", "split": "test", "group": "g", "by": 7}, PAIR | {"same": False, "group": 7})
        self.assertEqual(
            read_pairs("some.jsonl", raw),
            [
                Pair("x-1", "How?", "How so?", True, "light", "test", "g"),
                Pair("2", "How?", "How so?", False, "light", ""),
            ],
        )

    def test_blank_lines_are_counted_and_passed_over(self) -> None:
        """So that the place of a fault is the one in an editor."""
        self.assertEqual(len(read_pairs("some.jsonl", b"\r\n" + lines(PAIR) + b"\n")), 1)
        self.assert_refused(b"\n\n" + lines({}), "3", "`a`")

    def test_every_field_is_there_and_of_its_type(self) -> None:
        """No truth value as a number, no empty question."""
        for field, value in (
            ("a", None),
            ("a", ""),
            ("b", 7),
            ("kind", ""),
            ("same", 1),
            ("same", "true"),
            ("same", None),
            ("id", 7),
            ("id", ""),
            ("split", None),
        ):
            with self.subTest(field, value=value):
                self.assert_refused(lines(PAIR, PAIR | {field: value}), "2", f"`{field}`")
        for field in PAIR:
            with self.subTest(field):
                self.assert_refused(lines({name: value for name, value in PAIR.items() if name != field}), "1", field)

    def test_a_line_is_one_json_object(self) -> None:
        """Not half of one, not two, not with a name twice, not in another encoding."""
        for raw in (
            b"{",
            b"[]",
            b'"x"',
            b"{} {}",
            b'{"a": "x", "a": "y"}',
            b'{"a": "\xff"}',
            b"\xef\xbb\xbf{}",
            b"NaN",
        ):
            with self.subTest(raw):
                self.assert_refused(lines(PAIR) + raw, "2", "JSON object")

    def test_a_file_without_pairs_measures_nothing(self) -> None:
        """It is refused, so that nobody reads no errors in it."""
        self.assert_refused(b"", "1", "no pair")
        self.assert_refused(b"\n \n", "1", "no pair")


class FowTest(unittest.TestCase):
    """Lines in the form of fow-cache."""

    def test_its_words_are_ours(self) -> None:
        """A category is a kind of paraphrases or of near-misses; what it calls ambiguous is left out."""
        raw = lines(
            FOW,
            FOW | {"id": "n-2", "ambiguous": "complementary"},
            FOW | {"id": "n-3", "ambiguous": "", "category": "reworded", "same_answer": True},
        )
        self.assertEqual(
            read_fow("fow", raw),
            [
                Pair("n-1", "x", "not x", False, "near_negation", ""),
                Pair("n-3", "x", "not x", True, "para_reworded", ""),
            ],
        )

    def test_another_form_is_refused(self) -> None:
        """With its place; nobody reads a file that is not what it was as no errors."""
        for field, value in (("a", ""), ("b", 7), ("category", None), ("same_answer", 0), ("ambiguous", True)):
            with self.subTest(field), self.assertRaisesRegex(BadLine, f"^fow:2: `{field}`"):
                read_fow("fow", lines(FOW, FOW | {field: value}))
        for raw in (b"", lines(FOW | {"ambiguous": "complementary"})):
            with self.assertRaisesRegex(BadLine, "no pair"):
                read_fow("fow", raw)


class StreamTest(unittest.TestCase):
    """Lines of q and key."""

    def test_each_distinct_question_is_kept_where_it_first_comes(self) -> None:
        """Under any key that is JSON; the order of names in it says nothing."""
        raw = lines(
            {"q": "who?", "key": ["b", "a"], "id": "q-1"},
            {"q": "when?", "key": {"x": 1, "y": 2}},
            {"q": "who?", "key": "other"},
        )
        same = lines({"q": "at what time?", "key": {"y": 2, "x": 1}})
        found = read_stream("some.jsonl", raw)
        self.assertEqual(found[0], Asked("q-1", "who?", '["b", "a"]'))
        self.assertEqual([asked.id for asked in found], ["q-1", "2"])
        self.assertEqual(read_stream("some.jsonl", same)[0].key, found[1].key)

    def test_a_question_without_a_key_is_refused(self) -> None:
        """Nobody could say whether its answer was right; nor is there a question without words."""
        keys: tuple[object, ...] = (None, "", [], {})
        for line in ({"q": "who?"}, *({"q": "who?", "key": key} for key in keys), {"key": "x"}):
            with self.subTest(str(line)), self.assertRaisesRegex(BadLine, "^some.jsonl:1: `"):
                read_stream("some.jsonl", lines(line))
        with self.assertRaisesRegex(BadLine, "no question"):
            read_stream("some.jsonl", b"")
