"""The OpenAI dialect on documents of any shape: a value or one of its own errors, never another exception."""

import json
import unittest
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from llmkit.openai import Malformed, WireError, from_wire, parse_error, parse_usage
from llmkit.openai_stream import ChunkShaper
from llmkit.sse import frame

TEXTS = st.sampled_from(["", "a", "é", "\ud83d", "{}", '{"a":1}'])
JUNK = st.none() | st.booleans() | st.integers(-1, 2**54) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
Strategy = st.SearchStrategy[Any]
UNTIMED = settings(deadline=None)


def mostly(good: Strategy) -> Strategy:
    """One time in eight something else."""
    return st.integers(0, 7).flatmap(lambda dice: good if dice else JUNK | st.just([]) | st.just({}))


def objects(**fields: Strategy) -> Strategy:
    """Objects with some of these keys."""
    return mostly(st.fixed_dictionaries({}, optional={key: mostly(value) for key, value in fields.items()}))


def lists(items: Strategy) -> Strategy:
    return mostly(st.lists(items, min_size=1, max_size=3))


COUNT = st.integers(0, 9)
PARTS = lists(objects(type=TEXTS, text=TEXTS, thinking=lists(objects(text=TEXTS))) | TEXTS)
BODY = objects(name=TEXTS, arguments=TEXTS | objects(a=TEXTS), input=TEXTS)
CALLS = lists(objects(index=COUNT, id=TEXTS, type=TEXTS, function=BODY, custom=BODY))
MESSAGE = objects(
    role=st.just("assistant"),
    content=TEXTS | PARTS,
    reasoning=TEXTS,
    reasoning_content=TEXTS,
    refusal=TEXTS,
    tool_calls=CALLS,
    function_call=BODY,
)
USAGE = objects(
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    total_tokens=COUNT,
    prompt_tokens_details=objects(cached_tokens=COUNT),
    completion_tokens_details=objects(reasoning_tokens=COUNT),
)
ERROR = objects(message=TEXTS, type=TEXTS, code=TEXTS | COUNT, param=TEXTS, status=TEXTS)
FINISH = st.sampled_from([None, None, "", "stop", "length", "eos", "error"])
CHOICE = objects(index=st.integers(0, 1), delta=MESSAGE, message=MESSAGE, finish_reason=FINISH, logprobs=st.none())
ANSWER = objects(
    id=TEXTS,
    object=st.sampled_from(["chat.completion.chunk", "chat.completion", "error"]),
    created=COUNT,
    model=TEXTS,
    choices=lists(CHOICE),
    usage=USAGE,
    x_groq=objects(usage=USAGE),
)
FAILURE = objects(
    error=ERROR | TEXTS, detail=TEXTS | lists(objects(loc=lists(TEXTS), msg=TEXTS)), message=TEXTS, usage=USAGE
)
DOCUMENTS = st.one_of(ANSWER, ANSWER, ANSWER, FAILURE)


def bytes_of(document: object) -> bytes:
    return json.dumps(document).encode()


def unless_refused(read: Callable[[bytes], Any], raw: bytes) -> Any:
    try:
        return read(raw)
    except (Malformed, WireError):
        return None


def _likely_chunk(kind: int, text: str, number: int) -> dict[str, Any]:
    """One of a stream of mostly alike chunks: `kind` says what may be odd about it."""
    delta: dict[str, Any] = {"reasoning_content" if kind == 1 else "content": text}
    if kind == 2:
        delta["role"] = "assistant"
    finish = "stop" if kind == 3 and number > 5 else None
    choice = {"index": number % 2 if kind == 4 else 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    usage = {"prompt_tokens": 1, "completion_tokens": number} if kind == 5 and number > 5 else None
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [choice, {**choice, "index": 1}] if kind == 6 else [choice]
    vendors = {"x_groq": {"usage": {"prompt_tokens": 1, "completion_tokens": 1}}} if kind == 7 else {}
    return {**head, "choices": choices, "usage": usage, **vendors}


def _noted(shaper: ChunkShaper) -> tuple[Any, ...]:
    return (shaper.content_deltas, shaper.text_bytes, shaper.finish_reasons, shaper.finished, shaper.usage)


class OpenAIProperties(unittest.TestCase):
    """True of every document."""

    @UNTIMED
    @given(st.lists(DOCUMENTS, max_size=5))
    def test_chunks_of_any_shape_leave_in_form_or_are_refused(self, documents: list[Any]) -> None:
        """What leaves can be framed, and a second shaper passes the same bytes and counts the same."""
        first, second = (ChunkShaper(want_usage=False, model="m", created=1) for _ in range(2))
        for document in documents:
            payloads = unless_refused(first.feed, bytes_of(document))
            if payloads is None:
                return
            for payload in payloads:
                frame(payload)
                self.assertIs(second.feed(payload)[0], payload)
            self.assertEqual((first.content_deltas, first.text_bytes), (second.content_deltas, second.text_bytes))
            self.assertEqual(first.finish_reasons, second.finish_reasons)

    @UNTIMED
    @given(DOCUMENTS)
    def test_answers_of_any_shape_are_repaired_or_refused(self, document: Any) -> None:
        """What was repaired has the form and keeps its bytes from then on."""
        completion = unless_refused(from_wire, bytes_of(document))
        if completion is not None:
            again = from_wire(completion.raw)
            self.assertIs(again.raw, completion.raw)
            self.assertEqual(again, replace(completion, finished=True))

    @UNTIMED
    @given(st.integers(400, 599), DOCUMENTS | lists(DOCUMENTS), st.binary())
    def test_every_error_body_gives_a_message(self, status: int, document: Any, junk: bytes) -> None:
        """All four facts are texts or absent."""
        for raw in (bytes_of(document), junk, bytes_of(document)[:-1]):
            error = parse_error(status, raw)
            self.assertTrue(error.message)
            self.assertTrue(error.type)
            for text in (error.message, error.type, error.code, error.param):
                self.assertTrue(text is None or (isinstance(text, str) and 0 < len(text) <= 500))

    @UNTIMED
    @given(st.lists(st.tuples(st.integers(0, 7), TEXTS, st.integers(0, 9)), max_size=12))
    def test_a_chunk_that_only_brings_more_text_is_shaped_as_if_it_were_read(
        self, drawn: list[tuple[int, str, int]]
    ) -> None:
        """Whatever comes between: the same payloads leave, and as much of them is noted."""
        knowing, reading = ChunkShaper(want_usage=True), ChunkShaper(want_usage=True)
        for kind, text, number in drawn:
            payload = bytes_of(_likely_chunk(kind, text, number))
            reading._form = reading._sample = None
            self.assertEqual(knowing.feed(payload), reading.feed(payload))
            self.assertEqual(_noted(knowing), _noted(reading))

    def test_a_stream_is_known_again_by_its_text(self) -> None:
        """The property above is not empty: a chunk that says more than one text is always read."""
        for kind, is_known in (
            (0, True),
            (1, True),
            (2, False),
            (3, False),
            (4, True),
            (5, False),
            (6, False),
            (7, False),
        ):
            shaper = ChunkShaper(want_usage=True)
            for each in (2, kind, kind, kind):
                shaper.feed(bytes_of(_likely_chunk(each, "a", 9)))
            self.assertEqual(shaper._form is not None, is_known)

    @UNTIMED
    @given(USAGE)
    def test_usage_is_positive_or_absent(self, counts: Any) -> None:
        """Never zero, whatever is reported."""
        usage = parse_usage(counts)
        if usage is not None:
            self.assertGreater(usage.total_tokens + usage.cached_tokens + usage.reasoning_tokens, 0)
