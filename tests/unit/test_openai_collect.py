"""A stream that nobody asked for becomes the answer that was asked for."""

import json
import unittest
from typing import Any

from llmkit.openai import from_wire
from llmkit.openai_collect import Collector
from llmkit.openai_stream import MOST_CALLS, ChunkShaper
from llmkit.types import Usage


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    """One event of an upstream."""
    choice = {"index": index, "delta": delta, "finish_reason": finish, **more}
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "m"}
    return json.dumps({**head, "choices": [choice]}).encode()


def collected(*events: bytes, usage: Usage | None = None) -> dict[str, Any]:
    """The answer that they are."""
    shaper, collector = ChunkShaper(want_usage=False), Collector()
    for event in events:
        for payload in shaper.feed(event):
            collector.feed(payload)
    return dict(json.loads(collector.completion(usage)))


class CollectorTest(unittest.TestCase):
    """How deltas join."""

    def test_texts_are_joined(self) -> None:
        """Content, reasoning and refusal, each by itself."""
        answer = collected(
            chunk({"role": "assistant", "content": ""}),
            chunk({"reasoning_content": "let "}),
            chunk({"reasoning_content": "me"}),
            chunk({"content": "Hel"}),
            chunk({"content": "lo"}),
            chunk({}, "length"),
        )
        message = answer["choices"][0]["message"]
        self.assertEqual((message["content"], message["reasoning_content"]), ("Hello", "let me"))
        self.assertEqual((message["role"], message["refusal"]), ("assistant", None))
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual((answer["object"], answer["id"], answer["model"]), ("chat.completion", "c1", "m"))

    def test_calls_are_joined_by_their_index(self) -> None:
        """Two calls whose arguments come in turns."""
        first = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x"'}}
        second = {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{"}}
        answer = collected(
            chunk({"role": "assistant", "content": None, "tool_calls": [first]}),
            chunk({"tool_calls": [second]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}),
            chunk({"tool_calls": [{"index": 1, "function": {"arguments": "}"}}]}),
            chunk({}, "tool_calls"),
        )
        calls = answer["choices"][0]["message"]["tool_calls"]
        self.assertEqual([call["id"] for call in calls], ["a", "b"])
        self.assertEqual([call["function"]["name"] for call in calls], ["f", "g"])
        self.assertEqual([call["function"]["arguments"] for call in calls], ['{"x": 1}', "{}"])

    def test_what_only_looks_like_calls_is_any_other_field(self) -> None:
        """Whatever it holds and wherever it stands beside a message."""
        for odd in ([{"id": "a"}], "x", 5):
            extra = {"vendor": {"tool_calls": odd}, "content": "a"}
            answer = collected(chunk(extra), chunk(extra, tool_calls=odd), chunk({}, "stop", tool_calls=odd))
            self.assertEqual(answer["choices"][0]["message"]["content"], "aa")

    def test_an_answer_in_many_pieces_is_joined_at_once(self) -> None:
        """Text and calls: what there is already is not copied for each of them."""
        calls = [{"index": at, "id": f"c{at}", "function": {"name": "f"}} for at in range(MOST_CALLS)]
        answer = collected(
            *(chunk({"content": "x" * 500}) for _ in range(20_000)),
            *(chunk({"tool_calls": [call]}) for call in calls),
            chunk({}, "stop"),
        )
        message = answer["choices"][0]["message"]
        self.assertEqual((len(message["content"]), len(message["tool_calls"])), (500 * 20_000, MOST_CALLS))

    def test_choices_and_log_probabilities_keep_their_place(self) -> None:
        """By index, in order."""
        tokens: list[dict[str, Any]] = [{"token": "a"}, {"token": "b"}]
        answer = collected(
            chunk({"role": "assistant", "content": "B"}, index=1),
            chunk({"role": "assistant", "content": "A"}, logprobs={"content": tokens[:1]}),
            chunk({"content": "a"}, logprobs={"content": tokens[1:]}),
            chunk({}, "stop"),
            chunk({}, "stop", index=1),
        )
        self.assertEqual([choice["message"]["content"] for choice in answer["choices"]], ["Aa", "B"])
        self.assertEqual(answer["choices"][0]["logprobs"], {"content": tokens})

    def test_a_reason_that_nobody_knows_is_left_open(self) -> None:
        """The answer is one, but does not pass for one that is known to be whole; a known reason stays."""
        for reasons, left in ((("abort", "length"), ("stop", "length")), (("stop", "eos"), ("stop", "stop"))):
            shaper, collector = ChunkShaper(want_usage=False), Collector()
            for index, reason in enumerate(reasons):
                for payload in shaper.feed(chunk({"content": "hi"}, reason, index=index)):
                    collector.feed(payload)
            completion = from_wire(collector.completion(None, ends_oddly=shaper.ends_oddly))
            self.assertEqual((completion.finish_reasons, completion.finished), (left, "abort" not in reasons))

    def test_the_answer_is_one(self) -> None:
        """Nothing has to be repaired in it, and its usage is what was reported."""
        events = [chunk({"role": "assistant", "content": "hi"}), chunk({}, "stop")]
        raw = json.dumps(collected(*events, usage=Usage(3, 0, 0, 2, 0))).encode()
        completion = from_wire(raw)
        self.assertEqual((completion.usage, completion.finish_reasons), (Usage(3, 0, 0, 2, 0), ("stop",)))
        self.assertIs(completion.raw, raw)
