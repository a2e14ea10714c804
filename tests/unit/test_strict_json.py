"""Which bytes are a request body, and which field is named when they are not."""

import json
import tracemalloc
import unittest

from gateway.strict_json import MAX_DEPTH, StrictJsonError, loads_object


def refusal(raw: bytes) -> StrictJsonError:
    """The error that `raw` is refused with."""
    try:
        value = loads_object(raw)
    except StrictJsonError as error:
        return error
    raise AssertionError(f"accepted as {value!r:.80}")


class AcceptedTest(unittest.TestCase):
    """What is read."""

    def test_an_object_is_read_as_it_stands(self) -> None:
        """Values, their types and the order of keys are what the text says."""
        text = '{"z": [1, -2.5, 1e2, true, null, "\\u00e9 é \\n"], "a": {"b": {}}, "": 0}'
        value = loads_object(text.encode())
        self.assertEqual(repr(value), repr(json.loads(text)))

    def test_quotes_and_colons_in_texts_are_no_keys(self) -> None:
        """Escaped once, twice and thrice, with blanks, and in names."""
        text: object = {'":': ':"', '": ': 'a\\":', "\\": '\\" :', '\\":': {"": [{":": '"'}]}}
        for _ in range(3):
            text = {"arguments": json.dumps(text)}
            self.assertEqual(loads_object(json.dumps(text).encode()), text)

    def test_the_extremes_of_numbers_are_read(self) -> None:
        """All 64 bits of an integer, and the largest and smallest doubles."""
        value = loads_object(b'{"seed": 18446744073709551615, "low": -9223372036854775808, "f": [1e308, 5e-324, -0.0]}')
        self.assertEqual(value["seed"], 2**64 - 1)
        self.assertEqual(value["low"], -(2**63))
        self.assertEqual(value["f"], [1e308, 5e-324, 0.0])

    def test_a_pair_of_surrogate_escapes_is_one_character(self) -> None:
        """Half of a pair is refused, a whole one is not."""
        self.assertEqual(loads_object(b'{"x": "\\ud83d\\ude42"}'), {"x": "\U0001f642"})

    def test_nesting_up_to_the_bound_is_read(self) -> None:
        """The outer object counts as one level."""
        deep = b'{"a":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"
        self.assertIn("a", loads_object(deep))

    def test_brackets_in_strings_are_no_nesting(self) -> None:
        """Nor are those behind an escaped quote."""
        text = json.dumps({"a": "[{" * 1000, "b": '\\"' + "[" * 1000, "c": "\\", "d": ["{" * 200]})
        self.assertEqual(loads_object(text.encode()), json.loads(text))

    def test_many_siblings_are_no_nesting(self) -> None:
        """Only what is open at once counts."""
        self.assertEqual(len(loads_object(b'{"a":[' + b"{}," * 5000 + b"{}]}")["a"]), 5001)


class RefusedTest(unittest.TestCase):
    """What is not."""

    def test_many_small_strings_are_refused_before_they_are_looked_at(self) -> None:
        """Six megabytes of empty strings take no more than a few times as much memory to refuse as to hold."""
        raw = b'{"a":[' + b'"",' * 2_000_000 + b'""]}'
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        self.assertIn("values", str(refusal(raw)))
        self.assertLess(tracemalloc.get_traced_memory()[1], 20 * len(raw))

    def test_a_fault_names_its_top_level_field(self) -> None:
        """Numbers, constants, keys and halves of characters that parsers read differently."""
        long_number = b"9" * 400
        table: list[tuple[str, bytes, str]] = [
            ("NaN", b'{"model": "m", "temperature": NaN}', "temperature"),
            ("Infinity", b'{"model": "m", "top_p": Infinity}', "top_p"),
            ("-Infinity", b'{"x": [{"y": -Infinity}]}', "x"),
            ("beyond a double", b'{"n": 1e309}', "n"),
            ("beyond a double, below zero", b'{"n": -1e309}', "n"),
            ("a 400 digit integer", b'{"seed": ' + long_number + b"}", "seed"),
            ("a 400 digit fraction", b'{"seed": 0.' + long_number + b"}", "seed"),
            ("65 bits", b'{"seed": 18446744073709551616}', "seed"),
            ("65 bits below zero", b'{"seed": -18446744073709551616}', "seed"),
            ("duplicate key", b'{"model": "a", "model": "b"}', "model"),
            ("the same key, once escaped", b'{"model": "a", "mo\\u0064el": "b"}', "model"),
            ("duplicate key, a blank before its colon", b'{"model": "a", "model"\n: "b"}', "model"),
            ("duplicate key beside a colon in a text", b'{"n": 1, "n": 2, "x": "\\":"}', "n"),
            ("duplicate key beside one that ends with a backslash", b'{"n": 1, "n": 2, "x\\\\": 3}', "n"),
            (
                "duplicate key that ends with a backslash and a blank",
                b'{"n\\\\ ": 1, "n\\\\ ": 2, "x": "\\":"}',
                "n\\ ",
            ),
            ("duplicate key below", b'{"model": "m", "metadata": {"a": [{"b": 1, "b": 1}]}}', "metadata"),
            ("half a character in a value", b'{"model": "m", "user": "x \\ud83d y"}', "user"),
            ("half a character in a key", b'{"metadata": {"\\udc00": 1}}', "metadata"),
            ("half a character in a list", b'{"stop": ["a", "\\ud83d"]}', "stop"),
            ("halves in the wrong order", b'{"user": "\\ude42\\ud83d"}', "user"),
            ("half a character in a top-level key", b'{"a\\ud83d": 1}', "a?"),
        ]
        for name, raw, param in table:
            with self.subTest(name):
                self.assertEqual(refusal(raw).param, param)

    def test_what_is_no_object_names_no_field(self) -> None:
        """Other values, other encodings, broken text, nesting beyond the bound."""
        deep = 10_000
        table = {
            "nothing": b"",
            "space": b"  ",
            "null": b"null",
            "a number": b"1",
            "a text": b'"x"',
            "an array": b'[{"model": "m"}]',
            "NaN alone": b"NaN",
            "a byte order mark": b'\xef\xbb\xbf{"model": "m"}',
            "UTF-16": '{"model": "m"}'.encode("utf-16"),
            "UTF-16 without a mark": '{"model": "m"}'.encode("utf-16-le"),
            "UTF-32": '{"model": "m"}'.encode("utf-32"),
            "UTF-32 without a mark": '{"model": "m"}'.encode("utf-32-be"),
            "Latin-1": '{"model": "é"}'.encode("latin-1"),
            "an overlong form": b'{"model": "\xc0\xaf"}',
            "an encoded surrogate": b'{"model": "\xed\xa0\xbd"}',
            "a byte FF": b'{"model": "\xff"}',
            "a control character": b'{"model": "\x01"}',
            "two values": b"{} {}",
            "a comma too many": b'{"a": 1,}',
            "an open string": b'{"a": "[[[',
            "single quotes": b"{'a': 1}",
            "deep arrays": b'{"a":' + b"[" * deep + b"]" * deep + b"}",
            "deep objects": b'{"a":' * deep + b"1" + b"}" * deep,
            "deep and never closed": b"[" * deep,
            "one level too deep": b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
        }
        for name, raw in table.items():
            with self.subTest(name):
                self.assertIsNone(refusal(raw).param)

    def test_a_duplicate_among_very_many_keys_is_found_in_one_pass(self) -> None:
        """Comparing every key with every other would take minutes here."""
        keys = ",".join(f'"k{number}":0' for number in range(90_000))
        self.assertEqual(refusal(f'{{{keys},"last":1,"last":2}}'.encode()).param, "last")

    def test_a_string_without_end_is_looked_at_once(self) -> None:
        """What stands in it is text to its end; looking again at each escaped quote would take days here."""
        for text in b"," * 200, b"[" * 200:
            error = refusal(b'{"a": "' + text + rb"\"" * 500_000)
            self.assertIn("Unterminated string", str(error))

    def test_the_message_does_not_repeat_the_text(self) -> None:
        """What a client typed stays out of messages, but for the name of a key."""
        for raw in (b'{"a": "CANARY" x}', b'{"a": CANARY}', b'{"a": ["CANARY", 1e999]}', b'{"CANARY": "\xff"}'):
            with self.subTest(raw):
                self.assertNotIn("CANARY", str(refusal(raw)))
