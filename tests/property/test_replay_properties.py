"""Answers of any text, told as a stream and back."""

import json
import unittest
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from llmkit.openai import from_wire
from llmkit.openai_collect import Assembler
from llmkit.openai_replay import replay
from llmkit.openai_stream import ChunkShaper
from llmkit.sse import frame
from llmkit.types import Usage
from tests.property.test_openai_properties import ANSWER, bytes_of, unless_refused

UNTIMED = settings(deadline=None)
TEXTS = st.none() | st.text(st.characters() | st.sampled_from("\n\r\u2028\ud83d"), max_size=8).map(
    lambda text: text * 100
)
TOKENS = st.none() | st.lists(st.fixed_dictionaries({"token": st.text(max_size=2), "logprob": st.floats(-9, 0)}))
LOGPROBS = st.none() | st.fixed_dictionaries({}, optional={"content": TOKENS, "refusal": TOKENS})
MESSAGES = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": TEXTS, "refusal": TEXTS},
    optional={"reasoning": TEXTS.filter(bool), "reasoning_content": TEXTS.filter(bool)},
)
ANSWERS = st.fixed_dictionaries(
    {
        "id": st.text("ab-", min_size=1),
        "object": st.just("chat.completion"),
        "created": st.integers(1, 2**40),
        "model": st.text("ab-", min_size=1),
        "choices": st.tuples(
            st.fixed_dictionaries(
                {"index": st.just(0), "message": MESSAGES, "logprobs": LOGPROBS, "finish_reason": st.just("stop")}
            )
        ).map(list),
    },
    optional={"system_fingerprint": st.text("f"), "service_tier": st.text("t")},
)


class ReplayProperties(unittest.TestCase):
    """True of every answer."""

    @UNTIMED
    @given(ANSWERS)
    def test_an_answer_comes_back_from_its_replay(self, document: dict[str, Any]) -> None:
        """Equal, but for its usage; the shaper passes its chunks as the same bytes, which can be framed."""
        payloads = replay(from_wire(bytes_of(document)).raw)
        shaper = ChunkShaper(want_usage=False)
        assembler = Assembler(10**6)
        for payload in payloads:
            frame(payload)
            [shaped] = shaper.feed(payload)
            self.assertIs(shaped, payload)
            assembler.feed(shaped)
        self.assertTrue(shaper.finished)
        completion = assembler.completion(Usage(1, 0, 0, 1, 0))
        assert completion is not None
        again = json.loads(completion)
        self.assertEqual(again.pop("usage")["total_tokens"], 2)
        self.assertEqual(again, document)

    @UNTIMED
    @given(ANSWER)
    def test_answers_of_any_shape_can_be_replayed(self, document: Any) -> None:
        """What the wire format lets pass has a replay that its shaper passes, and whose choices all finish."""
        answer = unless_refused(from_wire, bytes_of(document))
        if answer is None or "tool_calls" in answer.finish_reasons:
            return
        shaper = ChunkShaper(want_usage=False, model="m", created=1)
        for payload in replay(answer.raw):
            shaper.feed(payload)
        self.assertTrue(shaper.finished)
