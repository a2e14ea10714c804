"""Payloads that differ in one text: told apart from all others, and read no further."""

import json
import unittest
from typing import Any

from llmkit.text_form import TextForm


def form_of(payload: bytes, key: str = "content") -> TextForm | None:
    """The form around the text of that key in the first choice's delta."""
    document = json.loads(payload)
    form = TextForm.of(payload, document, document["choices"][0]["delta"], key)
    if document != json.loads(payload):
        raise AssertionError("the document was changed")
    return form


def chunk(delta: dict[str, Any], **more: Any) -> bytes:
    """A payload as most upstreams write it."""
    return json.dumps({**more, "choices": [{"delta": delta}], "id": "x"}, separators=(",", ":")).encode()


class TextFormTest(unittest.TestCase):
    """One form, and what has it."""

    def test_the_text_of_a_payload_that_has_the_form_is_read(self) -> None:
        """However it is written: escapes are undone."""
        form = form_of(chunk({"content": "pong"}))
        assert form is not None
        for text in ("ping", "", 'a"b\\', "caf\u00e9 \u2713 \U0001f680", "x" * 5000):
            self.assertEqual(form.text_of(chunk({"content": text})), text)
        self.assertEqual(form.text_of(chunk({"content": "?"}).replace(b"?", "\u00e9".encode())), "\u00e9")

    def test_white_space_around_the_colon_is_part_of_the_form(self) -> None:
        """Python's encoder writes some; a payload without it has another form."""
        form = form_of(json.dumps({"choices": [{"delta": {"content": "pong"}}]}).encode())
        assert form is not None
        self.assertEqual(form.text_of(b'{"choices": [{"delta": {"content": "b"}}]}'), "b")
        self.assertIsNone(form.text_of(b'{"choices": [{"delta": {"content":"b"}}]}'))

    def test_what_differs_elsewhere_has_another_form(self) -> None:
        """Another key, another value, more or less of it."""
        form = form_of(chunk({"content": "pong"}))
        assert form is not None
        for payload in (
            b"",
            chunk({"refusal": "pong"}),
            chunk({"content": "pong", "role": "assistant"}),
            chunk({"content": "pong"}, created=1),
            chunk({"content": "pong"})[:-1],
            chunk({"content": "pong"}) + b" ",
            chunk({"content": None}),
            chunk({"content": ["pong"]}),
            chunk({"content": ""}).replace(b'""', b'"'),
        ):
            with self.subTest(payload):
                self.assertIsNone(form.text_of(payload))

    def test_what_is_no_one_text_is_left_to_others(self) -> None:
        """A text that ends early, line ends, half a character, half a surrogate pair."""
        form = form_of(chunk({"content": "?"}))
        assert form is not None
        for written in (b'a","x":"b', b'a"', b"\n", b"\r", b"\x00", b"\\", b"\xc3", b"\\ud83d"):
            with self.subTest(written):
                self.assertIsNone(form.text_of(chunk({"content": "?"}).replace(b"?", written)))

    def test_a_text_in_another_place_is_not_taken_for_it(self) -> None:
        """The key that counts may be written with escapes, or twice; the same text may stand elsewhere."""
        for payload in (
            b'{"x":{"content":"a"},"choices":[{"delta":{"c\\u006fntent":"a"}}]}',
            b'{"x":{"content":"?"},"choices":[{"delta":{"c\\u006fntent":"?"}}]}',
            b'{"choices":[{"delta":{"content":"a","content":"a"}}]}',
            b'{"x":{"content":"a"},"choices":[{"delta":{"content":"a"}}]}',
        ):
            with self.subTest(payload):
                self.assertIsNone(form_of(payload))

    def test_a_text_that_is_written_otherwise_gives_no_form(self) -> None:
        """Escapes where none are needed."""
        self.assertIsNone(form_of(b'{"choices":[{"delta":{"content":"\\u0061"}}]}'))

    def test_a_key_of_the_same_name_before_it_is_passed_over(self) -> None:
        """Unless it says the same."""
        form = form_of(b'{"content":"x","choices":[{"delta":{"content":"a"}}]}')
        assert form is not None
        self.assertEqual(form.text_of(b'{"content":"x","choices":[{"delta":{"content":"b"}}]}'), "b")


if __name__ == "__main__":
    unittest.main()
