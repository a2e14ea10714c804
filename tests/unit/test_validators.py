"""Which whole answers are refused, and why."""

import json
import unittest
from typing import Any

from gateway.validators import Refusal, refusal

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
OBJECT = {"type": "json_object"}
BY_SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def answer(*messages: object) -> dict[str, Any]:
    """A completion with one choice for each message."""
    choices = [
        {"index": at, "message": message, "finish_reason": "stop", "logprobs": None}
        for at, message in enumerate(messages)
    ]
    return {"object": "chat.completion", "choices": choices}


def says(content: object, **more: object) -> dict[str, Any]:
    """A message of the model."""
    return {"role": "assistant", "content": content, **more}


class EmptyTest(unittest.TestCase):
    """Whether there is an answer at all."""

    def test_something_is_an_answer(self) -> None:
        """Text, a refusal by the model, a tool call, a function call, sound."""
        for message in (
            says("hello"),
            says(" 0 "),
            says(None, refusal="I will not."),
            says(None, tool_calls=[CALL]),
            says("", function_call={"name": "f", "arguments": ""}),
            says(None, audio={"id": "a", "data": "", "transcript": "hello"}),
        ):
            with self.subTest(message):
                self.assertIsNone(refusal(answer(message), None))

    def test_nothing_is_none(self) -> None:
        """White space is nothing; neither is thought without a word."""
        for message in (
            says(""),
            says(None),
            says(" \n\t\u00a0\u2003"),
            says("", reasoning_content="Let me think."),
            says(None, refusal="", tool_calls=[], function_call=None, audio=None),
            says(None, refusal=" "),
            {},
        ):
            with self.subTest(message):
                self.assertIs(refusal(answer(message), None), Refusal.EMPTY)

    def test_what_a_filter_took_away_is_not_asked_for_elsewhere(self) -> None:
        """An answer that a content filter emptied or cut is the answer."""
        for content in ("", None, '{"n": '):
            filtered = answer(says(content))
            filtered["choices"][0]["finish_reason"] = "content_filter"
            self.assertIsNone(refusal(filtered, BY_SCHEMA))

    def test_every_choice_must_pass(self) -> None:
        """The first that does not says why."""
        self.assertIsNone(refusal(answer(says("a"), says("b")), None))
        self.assertIs(refusal(answer(says("a"), says("")), None), Refusal.EMPTY)
        self.assertIs(refusal(answer(says("{}"), says("{"), says("")), OBJECT), Refusal.NOT_JSON)

    def test_shapes_that_cannot_happen_are_empty(self) -> None:
        """No choices, or what is none."""
        choices: list[Any] = [[], None, "x", 5, {}, [None], ["x"], [[]], [{}], [{"message": None}]]
        messages: list[Any] = [None, "x", says(5), says(["x"]), says({}), says(None, refusal=5)]
        for shape in ({}, *({"choices": each} for each in choices), *map(answer, messages)):
            with self.subTest(shape):
                self.assertIs(refusal(shape, OBJECT), Refusal.EMPTY)


class FormatTest(unittest.TestCase):
    """Whether it is the JSON that was asked for."""

    def test_an_object_is_what_was_asked_for(self) -> None:
        """Any object, with any space that JSON allows around it."""
        for content in ("{}", '\r\n\t {"a": [1, 2.5e3, null]} ', '{"a": 1, "a": 2}', '{"a": "\\ud83d"}'):
            with self.subTest(content):
                self.assertIsNone(refusal(answer(says(content)), OBJECT))

    def test_other_json_and_other_text_are_not(self) -> None:
        """Lists, fences, words before it, numbers that JSON has not, halves, other white space."""
        deep = "[" * 100_000
        for content in (
            *("[]", "1", "null", '"{}"', "```json\n{}\n```", "Here it is: {}", '{"a": NaN}', '{"a": -Infinity}'),
            *('{"a": 1', "{} {}", "{'a': 1}", "\u00a0{}", "\ufeff{}", '{"a": 1,}', '{"a": "\n"}', "\ud800"),
            *(deep, deep + "]" * 100_000, '{"a":' * 100_000),
        ):
            with self.subTest(content[:20]):
                self.assertIs(refusal(answer(says(content)), OBJECT), Refusal.NOT_JSON)

    def test_a_schema_asks_for_what_matches_it(self) -> None:
        """What is JSON and does not match is refused as such."""
        self.assertIsNone(refusal(answer(says('{"n": 1.0}')), BY_SCHEMA))
        for content in ("{}", '{"n": "1"}', '{"n": 1, "m": 2}', "[]"):
            with self.subTest(content):
                self.assertIs(refusal(answer(says(content)), BY_SCHEMA), Refusal.SCHEMA)
        self.assertIs(refusal(answer(says('{"n": 1')), BY_SCHEMA), Refusal.NOT_JSON)

    def test_a_refusal_and_a_call_are_not_held_to_the_format(self) -> None:
        """They are answers of another kind; sound without text is not the JSON that was asked for."""
        for format_ in (OBJECT, BY_SCHEMA):
            for message in (
                says("no JSON", refusal="I will not."),
                says("I call:", tool_calls=[CALL]),
                says("I call:", function_call={"name": "f", "arguments": "{}"}),
            ):
                with self.subTest(message, format=format_["type"]):
                    self.assertIsNone(refusal(answer(message), format_))
            self.assertIs(refusal(answer(says(None, audio={"id": "a"})), format_), Refusal.NOT_JSON)

    def test_what_nobody_understands_was_not_asked_for(self) -> None:
        """Plain text, no format, malformed formats."""
        formats: list[Any] = [
            *(None, {"type": "text"}, {}, "json_object", ["json_object"], {"type": "json"}, {"type": None}, 5),
            *({"type": "json_schema"}, {"type": "json_schema", "json_schema": None}, {"type": ["json_object"]}),
            *({"type": "json_schema", "json_schema": {"name": "a"}}, {"type": "json_schema", "schema": SCHEMA}),
            {"type": "json_schema", "json_schema": {"schema": None}},
            {"type": "json_schema", "json_schema": {"schema": False}},
        ]
        for format_ in formats:
            with self.subTest(format_):
                self.assertIsNone(refusal(answer(says("no JSON")), format_))

    def test_the_words_are_those_of_the_records(self) -> None:
        """Reasons are written down as they are named here."""
        self.assertEqual(json.dumps(list(Refusal)), '["empty", "not_json", "schema"]')
