"""The OpenAI dialect on documents of any shape: a value or one of its own errors, never another exception."""

import json
import unittest
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llmkit.openai import Malformed, WireError, from_wire, parse_error, parse_usage
from llmkit.openai_stream import ChunkShaper
from llmkit.sse import frame

TEXTS = st.sampled_from(["", "a", "é", "\ud83d", "stop", "error", "chat.completion.chunk", "{}", '{"a":1}'])
SCALARS = st.none() | st.booleans() | st.integers(-1, 2**54) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS


def objects(keys: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects with some of these keys; now and then something else."""
    return st.dictionaries(st.sampled_from(keys.split()), values, max_size=6) | SCALARS


def lists(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=3) | SCALARS


PARTS = objects("type text thinking", SCALARS | lists(objects("text", SCALARS)))
BODIES = objects("name arguments input", SCALARS | objects("a", SCALARS))
CALLS = objects("index id type function custom", SCALARS | BODIES)
MESSAGES = objects("role content reasoning reasoning_content refusal tool_calls function_call",
                   SCALARS | lists(PARTS) | lists(CALLS) | BODIES)  # fmt: skip
CHOICES = objects("index delta message finish_reason logprobs error", SCALARS | MESSAGES)
COUNTS = objects("prompt_tokens completion_tokens total_tokens prompt_tokens_details completion_tokens_details",
                 SCALARS | objects("cached_tokens reasoning_tokens", SCALARS))  # fmt: skip
ERRORS = objects("message type code param status", SCALARS | objects("a", SCALARS))
DOCUMENTS = objects("id object created model choices usage x_groq error detail message",
                    SCALARS | lists(CHOICES) | COUNTS | ERRORS | lists(objects("loc msg", lists(SCALARS))))  # fmt: skip


def bytes_of(document: object) -> bytes:
    return json.dumps(document).encode()


def unless_refused(read: Callable[[bytes], Any], raw: bytes) -> Any:
    try:
        return read(raw)
    except (Malformed, WireError):
        return None


class OpenAIProperties(unittest.TestCase):
    """True of every document."""

    @given(st.lists(DOCUMENTS, max_size=5))
    def test_chunks_of_any_shape_leave_in_form_or_are_refused(self, documents: list[Any]) -> None:
        """What leaves can be framed, and a second shaper passes the same bytes."""
        first, second = (ChunkShaper(want_usage=False, model="m", created=1) for _ in range(2))
        for document in documents:
            for payload in unless_refused(first.feed, bytes_of(document)) or []:
                frame(payload)
                self.assertIs(second.feed(payload)[0], payload)
        self.assertEqual((first.content_deltas, first.text_bytes), (second.content_deltas, second.text_bytes))

    @given(DOCUMENTS)
    def test_answers_of_any_shape_are_repaired_or_refused(self, document: Any) -> None:
        """What was repaired has the form and keeps its bytes from then on."""
        completion = unless_refused(from_wire, bytes_of(document))
        if completion is not None:
            again = from_wire(completion.raw)
            self.assertIs(again.raw, completion.raw)
            self.assertEqual(again, completion)

    @given(st.integers(400, 599), DOCUMENTS | lists(DOCUMENTS), st.binary())
    def test_every_error_body_gives_a_message(self, status: int, document: Any, junk: bytes) -> None:
        """All four facts are texts or absent."""
        for raw in (bytes_of(document), junk, bytes_of(document)[:-1]):
            error = parse_error(status, raw)
            self.assertTrue(error.message)
            self.assertTrue(error.type)
            for text in (error.message, error.type, error.code, error.param):
                self.assertTrue(text is None or (isinstance(text, str) and 0 < len(text) <= 500))

    @given(COUNTS)
    def test_usage_is_positive_or_absent(self, counts: Any) -> None:
        """Never zero, whatever is reported."""
        usage = parse_usage(counts)
        if usage is not None:
            self.assertGreater(usage.total_tokens + usage.cached_tokens + usage.reasoning_tokens, 0)
