"""Token estimates and the upper bound of a prompt."""

import json
import unittest
from typing import Any

from llmkit.tokens import (
    IMAGE_BOUND,
    IMAGE_LOW_BOUND,
    MESSAGE_ALLOWANCE,
    NOT_READ,
    REQUEST_ALLOWANCE,
    TOOLS_ALLOWANCE,
    Unbounded,
    approx_tokens,
    messages_tokens,
    prompt_bound,
)

_ONE = REQUEST_ALLOWANCE + MESSAGE_ALLOWANCE  # the allowances of a request with one message


def _size(value: object) -> int:
    """Bytes of a value as compact JSON."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _body(content: object, **fields: object) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], **fields}


def _with_part(part: object) -> dict[str, Any]:
    return _body([{"type": "text", "text": "What is this?"}, part])


def _image(url: str, **more: object) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def _audio(data: object, form: object = "wav") -> dict[str, object]:
    return {"type": "input_audio", "input_audio": {"data": data, "format": form}}


class ApproxTest(unittest.TestCase):
    """Estimates."""

    def test_it_is_about_four_bytes_per_token(self) -> None:
        """Rounded upward; nothing is 0, anything at least 1; bytes, not characters."""
        for text, tokens in (("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("é", 1), ("ééé", 2), ("漢字漢字", 3)):
            with self.subTest(text=text):
                self.assertEqual(approx_tokens(text), tokens)

    def test_half_a_surrogate_pair_is_counted(self) -> None:
        """An estimate never fails."""
        self.assertEqual(approx_tokens("\ud83d\ud83d"), 2)

    def test_a_list_of_messages_has_frames(self) -> None:
        """4 per message and 3 for the reply."""
        self.assertEqual(messages_tokens([]), 3)
        self.assertEqual(messages_tokens([{"role": "user", "content": "abcd"}]), 8)
        self.assertEqual(messages_tokens([{"role": "user", "content": "abcd"}, {"role": "assistant"}]), 12)

    def test_text_parts_and_tool_calls_are_text(self) -> None:
        """Media and odd shapes count nothing."""
        parts = [{"type": "text", "text": "abcd"}, "abcd", _image("x" * 400), 5, {"type": "text", "text": None}]
        call = {"id": "1", "function": {"name": "abcd", "arguments": "{}      "}}
        self.assertEqual(messages_tokens([{"content": parts}]), 3 + 4 + 2)
        self.assertEqual(messages_tokens([{"content": None, "tool_calls": [call, None, {}]}]), 3 + 4 + 3)


class TextBoundTest(unittest.TestCase):
    """The bound of what is only text."""

    def test_it_is_the_bytes_the_model_reads_and_the_allowances(self) -> None:
        """In UTF-8, unescaped."""
        body = _body("Grüße, 漢字 🎉")
        self.assertEqual(prompt_bound(body), _size({"messages": body["messages"]}) + _ONE)

    def test_each_message_has_its_allowance(self) -> None:
        """A thousand empty messages are a thousand frames."""
        body = {"messages": [{"role": "user", "content": ""}] * 1000}
        self.assertEqual(prompt_bound(body), _size(body) + REQUEST_ALLOWANCE + 1000 * MESSAGE_ALLOWANCE)

    def test_tools_have_their_allowance(self) -> None:
        """Once, and only when there are any."""
        tools = [{"type": "function", "function": {"name": "f"}}]
        for fields in ({"tools": tools}, {"functions": tools}, {"tools": tools, "functions": tools}):
            body: dict[str, object] = {"messages": [], **fields}
            self.assertEqual(prompt_bound(body), _size(body) + REQUEST_ALLOWANCE + TOOLS_ALLOWANCE)
        nothings: tuple[object, ...] = ([], None)
        for nothing in nothings:
            body = {"messages": [], "tools": nothing}
            self.assertEqual(prompt_bound(body), _size(body) + REQUEST_ALLOWANCE)

    def test_fields_that_the_model_does_not_read_cost_nothing(self) -> None:
        """Sampling, addressing and billing."""
        plain = prompt_bound(_body("hi"))
        for name in NOT_READ:
            with self.subTest(name=name):
                self.assertEqual(prompt_bound(_body("hi", **{name: "x" * 100})), plain)

    def test_every_other_field_is_counted(self) -> None:
        """Whether it is known to carry text or not known at all."""
        plain = prompt_bound(_body("hi"))
        for name in (
            "response_format",
            "tool_choice",
            "prediction",
            "reasoning_effort",
            "guided_json",
            "chat_template",
            "documents",
            "prompt",
            "input",
            "surprise",
        ):
            with self.subTest(name=name):
                self.assertGreaterEqual(prompt_bound(_body("hi", **{name: "x" * 100})), plain + 100)

    def test_every_field_of_a_message_is_counted(self) -> None:
        """Names, tool calls and their arguments, refusals, reasoning."""
        plain = prompt_bound({"messages": [{"role": "assistant"}]})
        for name in ("name", "refusal", "reasoning_content", "tool_calls", "surprise"):
            with self.subTest(name=name):
                self.assertGreaterEqual(
                    prompt_bound({"messages": [{"role": "assistant", name: "x" * 100}]}), plain + 100
                )

    def test_text_parts_are_text(self) -> None:
        """Text, refusal, thinking and bare strings."""
        parts = [{"type": kind, kind: "abc"} for kind in ("text", "refusal", "thinking")]
        body = _body([*parts, "abc"])
        self.assertEqual(prompt_bound(body), _size({"messages": body["messages"]}) + _ONE)

    def test_a_known_length_stands_in_for_an_encoding(self) -> None:
        """It bounds more loosely: the fields that are not read count too."""
        body = _body("hi", user="x" * 50)
        self.assertEqual(prompt_bound(body, encoded_len=_size(body)), _size(body) + _ONE)
        self.assertGreater(prompt_bound(body, encoded_len=_size(body)), prompt_bound(body))

    def test_a_known_length_is_not_used_for_media(self) -> None:
        """A short address may stand for a large image."""
        body = _with_part(_image("https://a.example/x.png"))
        self.assertEqual(prompt_bound(body, encoded_len=_size(body)), prompt_bound(body))

    def test_odd_shapes_count_by_their_bytes(self) -> None:
        """The bound is total: to refuse them is someone else's task."""
        bodies: tuple[dict[str, object], ...] = (
            {},
            {"messages": None},
            {"messages": "text"},
            {"messages": [None, 5, "text", {}, {"content": 5}, {"content": {"a": 1}}, {"content": []}]},
            {"messages": [{"content": "\ud83d"}]},
        )
        for body in bodies:
            with self.subTest(body=body):
                size = len(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
                self.assertGreaterEqual(prompt_bound(body), size)


class MediaBoundTest(unittest.TestCase):
    """The bounds of what is not text."""

    def test_an_image_counts_the_largest_known_figure(self) -> None:
        """gpt-4o-mini: 2,833 and 8 tiles of 5,667; the bytes of its address or data do not count."""
        self.assertEqual(IMAGE_BOUND, 2_833 + 8 * 5_667)
        expected = prompt_bound(_with_part({"type": "text", "image_url": {"url": ""}})) + IMAGE_BOUND
        for url in ("https://a.example/x.png", "data:image/png;base64," + "A" * 1_000_000):
            self.assertAlmostEqual(prompt_bound(_with_part(_image(url))), expected, delta=10)

    def test_the_tokens_of_an_image_do_not_depend_on_its_bytes(self) -> None:
        """Exactly."""
        self.assertEqual(prompt_bound(_with_part(_image("A"))), prompt_bound(_with_part(_image("A" * 9999))))

    def test_low_detail_has_its_own_bound(self) -> None:
        """Only the word itself lowers it."""
        full = prompt_bound(_with_part(_image("u")))
        self.assertEqual(IMAGE_LOW_BOUND, 16_400)
        low = prompt_bound(_with_part(_image("u", detail="low")))
        self.assertAlmostEqual(low, full - IMAGE_BOUND + IMAGE_LOW_BOUND, delta=20)
        for detail in ("high", "auto", "LOW", None, ["low"]):
            with self.subTest(detail=detail):
                self.assertGreaterEqual(prompt_bound(_with_part(_image("u", detail=detail))), full)

    def test_every_image_counts(self) -> None:
        """In any message, of any role."""
        message = {"role": "tool", "content": [_image("u"), _image("u")]}
        self.assertGreater(prompt_bound({"messages": [message, message]}), 4 * IMAGE_BOUND)

    def test_an_image_in_an_odd_shape_still_counts(self) -> None:
        """Some servers take the address without an object around it."""
        for image in ("https://a.example/x.png", None, 5):
            self.assertGreater(prompt_bound(_with_part({"type": "image_url", "image_url": image})), IMAGE_BOUND)

    def test_text_beside_an_image_counts(self) -> None:
        """In the same part, the same message and the same body."""
        plain = prompt_bound(_with_part(_image("u")))
        beside = {**_image("u", alt="x" * 100), "caption": "x" * 100}
        self.assertGreaterEqual(prompt_bound(_body([{"type": "text", "text": "x" * 100}, beside])), plain + 250)
        self.assertGreaterEqual(prompt_bound(_body([_image("u")], surprise="x" * 200)), plain + 100)

    def test_audio_counts_a_token_per_hundred_bytes(self) -> None:
        """Of what the base64 text decodes to, and one more."""
        empty = prompt_bound(_with_part(_audio("")))
        for form in ("wav", "mp3"):
            longer = prompt_bound(_with_part(_audio("A" * 400_000, form)))
            self.assertEqual(longer - empty, 300_000 // 100)

    def test_audio_without_a_bound_is_refused(self) -> None:
        """Another format may hold hours of silence in no bytes; an address says nothing of what it leads to."""
        for part in (
            _audio("AAAA", "flac"),
            _audio("AAAA", None),
            _audio("AAAA", ["wav"]),
            _audio(None),
            _audio("https://a.example/x.wav"),
            _audio("data:audio/wav;base64,AAAA"),
            {"type": "input_audio"},
        ):
            with self.subTest(part=part), self.assertRaises(Unbounded):
                prompt_bound(_with_part(part))

    def test_a_file_has_no_bound(self) -> None:
        """The error names the field and the kind of content, never the content."""
        part = {"type": "file", "file": {"file_data": "secret"}}
        with self.assertRaises(Unbounded) as caught:
            prompt_bound(_with_part(part), encoded_len=1000)
        self.assertEqual(caught.exception.param, "messages")
        self.assertIn("'file'", caught.exception.message)
        self.assertNotIn("secret", str(caught.exception))
        self.assertIsInstance(caught.exception, ValueError)

    def test_the_caller_may_bound_each_file(self) -> None:
        """By the context window; the file's own bytes do not count then."""
        part = {"type": "file", "file": {"file_data": "A" * 1000}}
        one = prompt_bound(_body([part]), file_bound=128_000)
        self.assertEqual(one, 128_000 + _size({"messages": [{"role": "user", "content": [None]}]}) + _ONE)
        self.assertEqual(prompt_bound(_body([part, part]), file_bound=128_000), one + 128_000 + len(",null"))

    def test_content_of_an_unknown_kind_is_like_a_file(self) -> None:
        """A few bytes may name an hour of video."""
        for part in ({"type": "video_url", "video_url": {"url": "u"}}, {"type": ["text"]}, {"image_url": "u"}, None, 5):
            with self.subTest(part=part):
                with self.assertRaises(Unbounded):
                    prompt_bound(_with_part(part))
                self.assertGreater(prompt_bound(_with_part(part), file_bound=9_000), 9_000)

    def test_a_field_that_others_read_as_another_one_lowers_no_bound(self) -> None:
        """Go's JSON takes `Type` for `type`, and the last one wins: a text may be an image there, an image a file."""
        low = {"url": "u", "detail": "low"}
        for part, least in (
            ({"type": "text", "text": "hi", "Type": "image_url", "image_url": {"url": "u"}}, 1_000_000),
            ({"type": "image_url", "image_url": low, "TYPE": "file", "file": {"file_id": "f"}}, 1_000_000),
            ({"type": "image_url", "image_url": {**low, "Detail": "high"}}, IMAGE_BOUND),
            ({"type": "image_url", "image_url": low, "Image_Url": {"url": "u"}}, IMAGE_BOUND),
        ):
            with self.subTest(part):
                body = {"messages": [{"role": "user", "content": [part]}]}
                self.assertGreaterEqual(prompt_bound(body, file_bound=1_000_000), least)

    def test_the_audio_of_a_former_answer_is_like_a_file(self) -> None:
        """Its id is short, its sound is not."""
        body = {"messages": [{"role": "assistant", "content": "x" * 100, "audio": {"id": "audio_1"}}]}
        with self.assertRaises(Unbounded):
            prompt_bound(body)
        self.assertGreater(prompt_bound(body, file_bound=9_000), 9_100)
        no_audio = {"messages": [{"role": "assistant", "audio": None}]}
        self.assertEqual(prompt_bound(no_audio), _size(no_audio) + _ONE)

    def test_the_body_is_not_changed(self) -> None:
        """It is sent afterwards."""
        body = _body([_image("u"), _audio("AAAA"), {"type": "file", "file": {}}])
        before = json.dumps(body)
        prompt_bound(body, file_bound=1)
        self.assertEqual(json.dumps(body), before)


if __name__ == "__main__":
    unittest.main()
