"""Whole answers told as streams, and streams as whole answers."""

import json
import unittest
from typing import Any

from llmkit.openai import Malformed, from_wire
from llmkit.openai_collect import Assembler
from llmkit.openai_replay import PIECE_CHARS, replay
from llmkit.openai_stream import ChunkShaper
from llmkit.types import Usage

Json = dict[str, Any]
USAGE = Usage(11, 3, 0, 7, 2)
LOGPROBS = {"content": [{"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}], "refusal": None}


def answer(message: Json, *more_choices: Json, choice: Json | None = None, **more: Any) -> bytes:
    """A whole answer in form."""
    whole = {"role": "assistant", "content": None, "refusal": None, **message}
    first = {"index": 0, "message": whole, "logprobs": None, "finish_reason": "stop", **(choice or {})}
    document = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m",
        "choices": [first, *more_choices],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        **more,
    }
    return from_wire(json.dumps(document).encode()).raw


def chunk(delta: Json, *, finish: str | None = None, choice: Json | None = None, **more: Any) -> bytes:
    """A chunk as it leaves."""
    one = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, **(choice or {})}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 5, "model": "m"}
    return json.dumps({**head, "choices": [one], **more}).encode()


def replayed(completion: bytes) -> list[Json]:
    return [json.loads(payload) for payload in replay(completion)]


def deltas(completion: bytes) -> list[Json]:
    return [chunk["choices"][0]["delta"] for chunk in replayed(completion)]


ROLE = {"role": "assistant", "content": ""}


class ReplayTest(unittest.TestCase):
    """The chunks of a stored answer."""

    def test_an_answer_is_a_role_its_text_and_a_finish(self) -> None:
        """In this order, under the answer's own id, created and model; no usage."""
        chunks = replayed(answer({"content": "hello"}, system_fingerprint="fp", service_tier="default"))
        self.assertEqual(
            [one["choices"] for one in chunks],
            [
                [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
                for delta, finish in ((ROLE, None), ({"content": "hello"}, None), ({}, "stop"))
            ],
        )
        for one in chunks:
            del one["choices"]
            self.assertEqual(
                one,
                {
                    "object": "chat.completion.chunk",
                    "id": "chatcmpl-1",
                    "created": 1700000000,
                    "model": "m",
                    "system_fingerprint": "fp",
                    "service_tier": "default",
                },
            )

    def test_long_texts_leave_in_pieces(self) -> None:
        """Of whole characters; joined they are the text."""
        text = "é🚀" * PIECE_CHARS + "!"
        pieces = [delta["content"] for delta in deltas(answer({"content": text}))[1:-1]]
        self.assertEqual("".join(pieces), text)
        self.assertEqual([len(piece) for piece in pieces], [PIECE_CHARS, PIECE_CHARS, 1])

    def test_reasoning_and_refusal_leave_before_the_text(self) -> None:
        """Each in deltas of its own."""
        message = {"content": "c", "refusal": "r", "reasoning": "t", "reasoning_content": "u"}
        self.assertEqual(
            deltas(answer(message)),
            [ROLE, {"reasoning_content": "u"}, {"reasoning": "t"}, {"refusal": "r"}, {"content": "c"}, {}],
        )

    def test_an_answer_without_text_stays_one(self) -> None:
        """Null content is null, an empty text is empty."""
        self.assertEqual(deltas(answer({})), [{"role": "assistant", "content": None}, {}])
        self.assertEqual(deltas(answer({"content": "", "refusal": ""})), [{**ROLE, "refusal": ""}, {}])

    def test_log_probabilities_leave_with_the_first_text(self) -> None:
        """Not with reasoning, which has none; with the finish if there is no text."""
        for message, place in (({"content": "a", "reasoning": "t"}, 2), ({"refusal": "a"}, 1), ({}, 1)):
            chunks = replayed(answer(message, choice={"logprobs": LOGPROBS}))
            with self.subTest(message):
                self.assertEqual([place for place, one in enumerate(chunks) if one["choices"][0]["logprobs"]], [place])
                self.assertEqual(chunks[place]["choices"][0]["logprobs"], LOGPROBS)

    def test_unknown_fields_leave_once(self) -> None:
        """An answer's with the first chunk, a message's with the role, a choice's with the finish; nulls do not."""
        chunks = replayed(
            answer(
                {"content": "a", "annotations": [], "audio": None},
                choice={"stop_reason": "eos", "delta": {"content": "no"}, "token_ids": None},
                provider="P",
                x_groq={"id": "req", "usage": {"prompt_tokens": 1}},
                prompt_logprobs=None,
            )
        )
        self.assertEqual([one.get("provider") for one in chunks], ["P", None, None])
        self.assertEqual(chunks[0]["choices"][0]["delta"], {**ROLE, "annotations": []})
        finish = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop", "stop_reason": "eos"}
        self.assertEqual(chunks[-1]["choices"][0], finish)
        self.assertNotIn("x_groq", chunks[0])
        self.assertNotIn("prompt_logprobs", chunks[0])

    def test_every_choice_has_its_own_role_and_finish(self) -> None:
        """One after the other, each under its index."""
        second = {"index": None, "message": {"content": "b"}, "finish_reason": "length"}
        chunks = replayed(answer({"content": "a"}, second))
        said = [(one["index"], one["delta"], one["finish_reason"]) for each in chunks for one in each["choices"]]
        self.assertEqual(
            said,
            [
                *((0, ROLE, None), (0, {"content": "a"}, None), (0, {}, "stop")),
                *((1, ROLE, None), (1, {"content": "b"}, None), (1, {}, "length")),
            ],
        )

    def test_what_is_no_answer_is_refused(self) -> None:
        """Before anything of it leaves."""
        self.assertRaises(Malformed, replay, b"{")


class AssemblerTest(unittest.TestCase):
    """The answer that a stream amounts to."""

    def assemble(self, *payloads: bytes, max_bytes: int = 1000) -> Json | None:
        """What the chunks amount to, after a shaper has let them leave."""
        shaper = ChunkShaper(want_usage=True)
        assembler = Assembler(max_bytes)
        for payload in payloads:
            for shaped in shaper.feed(payload):
                assembler.feed(shaped)
        completion = assembler.completion(USAGE)
        return None if completion is None else json.loads(completion)

    def assert_unfit(self, *payloads: bytes) -> None:
        """That a stream that is fine but for these chunks amounts to nothing."""
        fine = (chunk(ROLE), chunk({"content": "a"}))
        self.assertIsNotNone(self.assemble(*fine, chunk({}, finish="stop")))
        self.assertIsNone(self.assemble(*fine, *payloads, chunk({}, finish="stop")))

    def test_a_stream_is_joined(self) -> None:
        """Into the whole answer that the upstream would have given, with the usage that was settled."""
        completion = self.assemble(
            chunk({"role": "assistant", "content": "", "refusal": None}, obfuscation="xx", service_tier="default"),
            chunk({"reasoning_content": "t1"}, choice={"logprobs": {"content": None}}),
            chunk({"reasoning_content": "t2", "tool_calls": None}),
            chunk({"content": "a"}, choice={"logprobs": LOGPROBS, "stop_reason": None}, usage=None),
            chunk({"content": "é"}, choice={"logprobs": LOGPROBS}, system_fingerprint="fp"),
            chunk({}, finish="stop"),
        )
        message = {"role": "assistant", "content": "aé", "refusal": None, "reasoning_content": "t1t2"}
        logprobs = {"content": LOGPROBS["content"] * 2, "refusal": None}  # type: ignore[operator]
        self.assertEqual(
            completion,
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 5,
                "model": "m",
                "service_tier": "default",
                "system_fingerprint": "fp",
                "choices": [{"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop"}],
                "usage": {
                    "prompt_tokens": 11,
                    "completion_tokens": 7,
                    "total_tokens": 18,
                    "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
                    "completion_tokens_details": {"reasoning_tokens": 2},
                },
            },
        )
        raw = json.dumps(completion).encode()
        self.assertIs(from_wire(raw).raw, raw)

    def test_a_stream_without_its_one_stop_is_no_answer(self) -> None:
        """Cut, cut off at its limit, filtered, or finished twice over."""
        role = chunk(ROLE)
        self.assertIsNone(self.assemble())
        self.assertIsNone(self.assemble(role, chunk({"content": "a"})))
        for reason in ("length", "content_filter", "tool_calls", "function_call"):
            self.assertIsNone(self.assemble(role, chunk({"content": "a"}, finish=reason)))
        self.assert_unfit(chunk({}, finish="stop"), chunk({"content": "more"}))
        self.assert_unfit(chunk({}, finish="length"))

    def test_two_choices_are_no_answer(self) -> None:
        """Whether they share a chunk or not, and one alone is none if it is not the first."""
        second = {"index": 1, "delta": {"content": "b"}, "logprobs": None, "finish_reason": "stop"}
        self.assert_unfit(chunk({"content": "b"}, choice={"index": 1}))
        first = json.loads(chunk({"content": "a"}, finish="stop"))
        first["choices"].append(second)
        self.assertIsNone(self.assemble(json.dumps(first).encode()))
        self.assertIsNone(self.assemble(chunk({"content": "b"}, finish="stop", choice={"index": 1})))

    def test_what_has_no_place_in_the_answer_makes_it_none(self) -> None:
        """Calls, unknown fields of a chunk, a choice or a delta, texts that are none, another head."""
        call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        deltas: list[Json] = [
            {"tool_calls": [call]},
            {"function_call": {"name": "f", "arguments": "{}"}},
            {"audio": {"data": "AA"}},
            {"annotations": []},
            {"reasoning_details": [{}]},
            {"refusal": 1},
            {"reasoning": {"text": "t"}},
        ]
        for delta in deltas:
            with self.subTest(delta):
                self.assert_unfit(chunk(delta))
        self.assert_unfit(chunk({"content": "b"}, provider="P"))
        self.assert_unfit(chunk({"content": "b"}, x_groq={"id": "req"}))
        self.assert_unfit(chunk({"content": "b"}, choice={"content_filter_results": {}}))
        self.assert_unfit(chunk({"content": "b"}, service_tier="a"), chunk({"content": "b"}, service_tier="b"))

    def test_odd_log_probabilities_make_it_none(self) -> None:
        """They are joined list by list, or not at all."""
        odd: list[Any] = [[], {"content": {}}, {"tokens": []}, 1]
        for logprobs in odd:
            with self.subTest(logprobs=logprobs):
                self.assert_unfit(chunk({"content": "b"}, choice={"logprobs": logprobs}))

    def test_a_long_answer_is_let_go(self) -> None:
        """One byte more than the bound; log probabilities count with their whole chunk."""
        role, finish = chunk(ROLE), chunk({}, finish="stop")
        texts = [chunk({"content": "é"})] * 5
        self.assertIsNotNone(self.assemble(role, *texts, finish, max_bytes=10))
        self.assertIsNone(self.assemble(role, *texts, finish, max_bytes=9))
        weighed = chunk({"content": "a"}, choice={"logprobs": LOGPROBS})
        self.assertIsNotNone(self.assemble(role, weighed, finish, max_bytes=len(weighed)))
        self.assertIsNone(self.assemble(role, weighed, finish, max_bytes=len(weighed) - 1))
