"""An upstream's stream made the stream that clients can read: every oddity, and nothing lost."""

import json
import unittest
from typing import Any

from llmkit.openai import CALL_FRAME_BYTES, MOST_CHOICES, Malformed, WireError
from llmkit.openai_stream import MOST_CALLS, ChunkShaper
from llmkit.types import Usage

PARTS = ["pong: ", "café ", "✓ 🚀", " done"]
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
REPORTED = Usage(11, 0, 0, 7, 0)
ROLE = {"role": "assistant"}
Chunk = dict[str, Any]


def chunk(delta: object, finish: object = None, *, index: int = 0, **more: Any) -> Chunk:
    """A chunk in form, but for what the test puts in."""
    return {
        "id": "chatcmpl-q",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "m",
        "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}],
        **more,
    }


def without(document: Chunk, *keys: str) -> Chunk:
    return {key: value for key, value in document.items() if key not in keys}


def called(*calls: Chunk, **more: Any) -> Chunk:
    return chunk({"tool_calls": list(calls)}, **more)


def call(arguments: object = None, **more: Any) -> Chunk:
    """A tool call delta; `name` goes where it belongs, other keys stand beside it."""
    body = {} if arguments is None else {"arguments": arguments}
    if "name" in more:
        body["name"] = more.pop("name")
    return {**more, "function": body}


def text_stream(*tail: Chunk) -> list[Chunk]:
    return [chunk({**ROLE, "content": ""}), *(chunk({"content": part}) for part in PARTS), *tail]


def shaper(*, want_usage: bool = True) -> ChunkShaper:
    """A shaper whose ids can be foretold."""
    count = iter(range(1000))
    return ChunkShaper(want_usage=want_usage, new_id=lambda: f"{next(count):024}", created=5, model="fallback")


def shape(chunks: list[Chunk], shaped_by: ChunkShaper | None = None) -> list[Chunk]:
    """What leaves of these chunks."""
    shaped_by = shaped_by or shaper()
    return [json.loads(payload) for each in chunks for payload in shaped_by.feed(json.dumps(each).encode())]


def deltas(chunks: list[Chunk]) -> list[Chunk]:
    return [choice["delta"] for each in chunks for choice in each["choices"]]


def finishes(chunks: list[Chunk]) -> list[Any]:
    return [choice["finish_reason"] for each in chunks for choice in each["choices"]]


def calls_of(chunks: list[Chunk]) -> list[Chunk]:
    return [each for delta in deltas(chunks) for each in delta.get("tool_calls") or []]


class QuirkTest(unittest.TestCase):
    """Every oddity seen upstream leaves as a clean stream that says the same."""

    def quirks(self) -> dict[str, list[Chunk]]:
        end = chunk({}, "stop")
        usage = without(chunk({}), "choices") | {"choices": [], "usage": USAGE}
        azure = {**usage, "id": "", "model": "", "usage": None, "prompt_filter_results": [{"prompt_index": 0}]}
        tool = call('{"city": "Paris"}', type="function", name="get_weather")
        thing = call({"city": "Zürich"}, type="function", name="get_weather", id="call_1", index=0)
        return {
            "plain": text_stream(end, usage),
            "nothing but a finish": [chunk({}, "length")],
            "no role": text_stream(end)[1:],
            "role in every chunk": [chunk({**ROLE, "content": part}) for part in PARTS] + [chunk(ROLE, "stop")],
            "role null": [chunk({"role": None, "content": part}) for part in PARTS] + [end],
            "another id in every chunk": [{**each, "id": f"id-{at}"} for at, each in enumerate(text_stream(end))],
            "another model and time later": [
                {**each, "model": f"m{at}", "created": at + 9} for at, each in enumerate(text_stream(end))
            ],
            "no id, object, created or model": [
                without(each, "id", "object", "created", "model") for each in text_stream(end)
            ],
            "another object": [{**each, "object": "text"} for each in text_stream(end)],
            "time with a fraction": [{**each, "created": 1700000000.5} for each in text_stream(end)],
            "running usage": [{**each, "usage": {**USAGE, "completion_tokens": 1}} for each in text_stream(end)]
            + [usage],
            "usage in the finish chunk": text_stream({**end, "usage": USAGE}),
            "usage null": [{**each, "usage": None} for each in text_stream(end)],
            "usage under x_groq": text_stream({**end, "x_groq": {"id": "r", "usage": USAGE}}),
            "x_groq without usage": text_stream({**end, "x_groq": {"id": "r"}}),
            "usage with an empty choice after the end": text_stream(end, chunk({**ROLE, "content": ""}, usage=USAGE)),
            "azure": [azure, *text_stream(end)],
            "finish with the last text": [*text_stream()[:-1], chunk({"content": PARTS[-1]}, "stop")],
            "finish with the only text": [chunk({"content": "all"}, "stop")],
            "finish twice": text_stream(end, end, chunk({}, "length")),
            "text after the finish": text_stream(end, chunk({"content": "more"}, "stop")),
            "finish eos": text_stream(chunk({}, "eos")),
            "finish empty everywhere": [chunk({"content": part}, "") for part in PARTS] + [chunk({}, "length")],
            "finish empty at the end": text_stream(chunk({}, "")),
            "no finish key": [
                *(chunk({"content": part}) | {"choices": [{"index": 0, "delta": {"content": part}}]} for part in PARTS),
                end,
            ],
            "no index and no delta": [
                chunk({"content": "a"}) | {"choices": [{"delta": {"content": "a"}, "finish_reason": None}]},
                chunk({}) | {"choices": [{"finish_reason": "stop"}]},
            ],
            "tool call that ends with stop": [called(tool | {"id": "call_1", "index": 0}), end],
            "tool call without index and id": [called(tool), chunk({}, "tool_calls")],
            "tool arguments as an object": [called(thing), chunk({}, "tool_calls")],
            "tool calls one by one, whole, without index": [called(tool), called(tool), called(thing), end],
            "reasoning_content": [
                chunk(ROLE),
                chunk({"reasoning_content": "thin"}),
                chunk({"reasoning_content": "king", "content": None}),
                *text_stream(end)[1:],
            ],
            "reasoning": [chunk({**ROLE, "reasoning": "thinking"}), *text_stream(end)[1:]],
            "content as parts": [chunk({"content": [{"type": "text", "text": part}]}) for part in PARTS] + [end],
            "thinking among the parts": [
                chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, "ok"]}),
                end,
            ],
            "two choices": [
                *(chunk({"content": part}, index=at % 2) for at, part in enumerate(PARTS)),
                chunk({}, "stop", index=1),
                chunk({}, "length"),
            ],
            "two choices in one chunk": [
                chunk({})
                | {"choices": chunk({"content": "a"})["choices"] + chunk({"content": "b"}, index=1)["choices"]},
                chunk({}) | {"choices": end["choices"] + chunk({}, "stop", index=1)["choices"]},
            ],
            "lone surrogate": [chunk({"content": "x \ud83d"}), chunk({**ROLE, "content": " y \ude42"}), end],
            "an event without data, and one of an unknown kind": [*text_stream(), {"type": "ping"}, end],
        }

    def test_a_message_instead_of_a_delta_is_not_lost(self) -> None:
        """A whole answer as the only event is a whole stream; beside a delta, a message is an unknown field."""
        shaping = shaper()
        said = {**ROLE, "content": "all", "tool_calls": [call({"a": 1}, name="f", id="call_1", type="function")]}
        whole = without(chunk({}), "choices") | {"object": "chat.completion", "usage": USAGE}
        (left,) = shape([whole | {"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}], shaping)
        self.assertEqual(left["object"], "chat.completion.chunk")
        self.assertEqual((deltas([left])[0]["content"], finishes([left])), ("all", ["tool_calls"]))
        self.assertEqual(calls_of([left])[0]["function"]["arguments"], '{"a":1}')
        self.assertNotIn("message", left["choices"][0])
        self.assertEqual((shaping.usage, shaping.finished, shaping.started), (REPORTED, True, True))
        both = {"index": 0, "delta": {"content": "a"}, "message": {"content": "all"}, "finish_reason": None}
        self.assertEqual(deltas(shape([chunk({}) | {"choices": [both]}])), [{"content": "a", **ROLE}])

    def test_what_is_said_is_what_came(self) -> None:
        """Text, reasoning and tool arguments, joined per choice."""
        for name, chunks in self.quirks().items():
            with self.subTest(name):
                self.assertEqual(joined(shape(chunks)), joined(chunks))

    def test_the_stream_is_clean(self) -> None:
        """One head, one role and one finish reason per choice, no usage, no empty choices."""
        for name, chunks in self.quirks().items():
            with self.subTest(name):
                shaping = shaper()
                shaped = shape(chunks, shaping)
                self.assertEqual(len({(each["id"], each["created"], each["model"]) for each in shaped}), 1)
                self.assertEqual({each["object"] for each in shaped}, {"chat.completion.chunk"})
                self.assertTrue(all(type(each["created"]) is int for each in shaped))
                self.assertTrue(all(each["choices"] and each.get("usage") is None for each in shaped))
                for index in {choice["index"] for each in shaped for choice in each["choices"]}:
                    choices = [choice for each in shaped for choice in each["choices"] if choice["index"] == index]
                    roles = [choice["delta"].get("role") for choice in choices]
                    self.assertEqual([roles[0], *filter(None, roles[1:])], ["assistant"])
                    self.assertEqual(len([choice for choice in choices if choice["finish_reason"]]), 1)
                self.assertLessEqual({type(delta.get("content")) for delta in deltas(shaped)}, {str, type(None)})
                for each in calls_of(shaped):
                    self.assertIs(type(each["index"]), int)
                    self.assertIs(type(each["function"].get("arguments", "")), str)
                self.assertTrue(shaping.finished)

    def test_a_clean_stream_is_not_touched_again(self) -> None:
        """What left has the form, so another gateway behind this one would pass the same bytes."""
        for name, chunks in self.quirks().items():
            again = shaper()
            for document in shape(chunks):
                raw = json.dumps(document).encode()
                with self.subTest(name, raw=raw):
                    self.assertIs(again.feed(raw)[0], raw)


class FormTest(unittest.TestCase):
    """A chunk that already has the form leaves as the same bytes object."""

    def test_every_kind_of_chunk_in_form(self) -> None:
        """Whatever its spaces, escapes, unknown fields and numbers look like."""
        stream = [
            *text_stream(),
            chunk({"content": "x", "extra": 1.50}, system_fingerprint="f", obfuscation="zz", usage=None),
            chunk({"reasoning_content": "a"}),
            chunk({"content": None, "reasoning": "a"}),
            chunk({"refusal": "no"}),
            chunk({"content": "x \ud83d y"}),
            called(call("", index=0, id="a", type="function", name="f")),
            called(call('{"a', index=0), call("", index=1, id="b", type="function", name="f")),
            called(call('":1}', index=0), call("{}", index=1, id=None)),
            called({"index": 2, "id": "c", "type": "custom", "custom": {"name": "g", "input": "i"}}),
            chunk({"function_call": {"name": "g", "arguments": ""}}),
            chunk({"content": "last"}, "tool_calls"),
            chunk({"content": "b"}, "stop", index=1) | {"error": None},
        ]
        stream[-1]["choices"][0]["delta"]["role"] = "assistant"
        for separators in ((",", ":"), (" , ", " : ")):
            shaping = shaper()
            for each in stream:
                raw = json.dumps(each, separators=separators).encode()
                with self.subTest(raw=raw):
                    (left,) = shaping.feed(raw)
                    self.assertIs(left, raw)

    def test_a_line_end_between_tokens_is_not_in_form(self) -> None:
        """An event is one line: several data lines leave as one."""
        for indented in (json.dumps(chunk(ROLE), indent=1), json.dumps(chunk(ROLE)).replace(", ", ",\r")):
            (left,) = shaper().feed(indented.encode())
            self.assertNotIn(b"\n", left)
            self.assertNotIn(b"\r", left)
            self.assertEqual(json.loads(left), chunk(ROLE))

    def test_unknown_fields_are_kept_when_a_chunk_is_edited(self) -> None:
        """At every level."""
        extras = {"content_filter_results": {"hate": {"filtered": False}}, "stop_reason": None}
        sent = chunk({"content": "a", "extra_content": {"google": {"thought_signature": "s"}}}, provider="x")
        sent["choices"][0].update(extras)
        (left,) = shape([sent])
        self.assertEqual(left["provider"], "x")
        self.assertEqual(left["choices"][0] | extras, left["choices"][0])
        self.assertEqual(deltas([left]), [{**sent["choices"][0]["delta"], **ROLE}])

    def test_the_head_is_that_of_the_first_chunk_that_has_one(self) -> None:
        """Also if that chunk is dropped; what no chunk has is handed in."""
        azure = {"id": "", "model": "", "created": 1, "choices": []}
        head = shape([azure, *text_stream()])[0]
        self.assertEqual((head["id"], head["created"], head["model"]), ("chatcmpl-q", 1, "m"))
        head = shape([{"choices": [{"delta": {}}]}])[0]
        self.assertEqual((head["id"], head["created"], head["model"]), ("chatcmpl-" + "0" * 24, 5, "fallback"))

    def test_an_event_that_says_nothing_is_dropped(self) -> None:
        """Blank data, no choices, or the echo of a choice that has finished; its extras are no echo."""
        shaping = shaper()
        self.assertEqual(shaping.feed(b""), [])
        self.assertEqual(shaping.feed(b" \n"), [])
        self.assertEqual(shape([{"choices": []}, {"choices": None}, {"type": "ping"}], shaping), [])
        shape(text_stream(chunk({}, "stop")), shaping)
        echoes = [chunk({}, "stop"), chunk({**ROLE, "content": ""}), chunk(None), chunk({"tool_calls": []})]
        self.assertEqual(shape(echoes, shaping), [])
        late = chunk({})
        late["choices"][0]["content_filter_results"] = {"hate": {}}
        self.assertEqual(shape([late], shaping), [late])

    def test_only_the_echo_is_dropped_of_two_choices(self) -> None:
        """The other still writes."""
        shaping = shaper()
        shape([chunk({}, "stop"), chunk(ROLE, index=1)], shaping)
        both = chunk({}) | {"choices": [*chunk({}, "stop")["choices"], *chunk({"content": "b"}, index=1)["choices"]]}
        self.assertEqual(shape([both], shaping), [chunk({"content": "b"}, index=1)])


class FinishTest(unittest.TestCase):
    """How a choice ends."""

    def test_one_known_finish_reason_per_choice(self) -> None:
        """The first; odd names are mapped, and a choice that called tools did not just stop."""
        tool = called(call("{}", index=0, id="a", type="function", name="f"))
        for chunks, reason in (
            ([chunk({}, "length"), chunk({"content": "x"}, "stop")], "length"),
            ([chunk({}, "eos")], "stop"),
            ([chunk({}, "end_turn")], "stop"),
            ([chunk({}, "MAX_TOKENS")], "length"),
            ([tool, chunk({}, "stop")], "tool_calls"),
            ([tool, chunk({}, "")], "tool_calls"),
            ([tool, chunk({}, "length")], "length"),
            ([chunk({"tool_calls": tool["choices"][0]["delta"]["tool_calls"]}, "stop")], "tool_calls"),
        ):
            with self.subTest(reason=reason):
                shaping = shaper()
                left = shape([chunk(ROLE), *chunks], shaping)
                self.assertEqual([finish for finish in finishes(left) if finish is not None], [reason])
                self.assertEqual(shaping.finish_reasons, (reason,))

    def test_tools_of_one_choice_say_nothing_about_another(self) -> None:
        """Each choice has its own."""
        tool = called(call("{}", index=0, id="a", type="function", name="f"), index=1)
        shaping = shaper()
        shape([chunk(ROLE), tool, chunk({}, "stop", index=1), chunk({}, "stop")], shaping)
        self.assertEqual(shaping.finish_reasons, ("stop", "tool_calls"))

    def test_a_finish_reason_is_a_word(self) -> None:
        """A number, a flag or an object ends nothing."""
        odd_ones: list[Any] = [7, 0, False, True, {}, ["stop"]]
        for odd in odd_ones:
            with self.subTest(odd):
                shaping = shaper()
                left = shape([chunk({"content": "a"}), chunk({}, odd)], shaping)
                self.assertEqual((finishes(left), shaping.finished), ([None, None], False))

    def test_a_stream_is_finished_when_every_choice_is(self) -> None:
        """And not before one was seen."""
        shaping = shaper()
        self.assertFalse(shaping.finished)
        for each, finished in (
            (chunk(ROLE), False),
            (chunk(ROLE, index=1), False),
            (chunk({}, "stop", index=1), False),
            (chunk({"content": "x"}, ""), False),
            ({"choices": [{"index": 0, "delta": {}}]}, False),
            (chunk({}, "stop"), True),
        ):
            shape([each], shaping)
            self.assertEqual(shaping.finished, finished)


class ToolTest(unittest.TestCase):
    """One index, one id and one name per call."""

    def assert_calls(self, sent: list[Chunk], *expected: Chunk) -> None:
        self.assertEqual(calls_of(shape([chunk(ROLE), *map(called, sent)])), list(expected))

    def test_missing_index_id_and_type_are_filled(self) -> None:
        """Once."""
        self.assert_calls(
            [call('{"a"', name="f"), call(":1}")],
            call('{"a"', name="f", index=0, id="call_" + "0" * 24, type="function"),
            call(":1}", index=0),
        )

    def test_a_single_gap_is_filled(self) -> None:
        """In a delta that is in form but for it; what is no index or id counts as a gap."""
        whole = call("{}", index=0, id="a", name="f", type="function")
        made = whole | {"id": "call_" + "0" * 24}
        for came, left in (
            (without(whole, "type"), whole),
            (without(whole, "index"), whole),
            (whole | {"index": None}, whole),
            (whole | {"index": "0"}, whole),
            (whole | {"index": -1}, whole),
            (without(whole, "id"), made),
            (whole | {"id": 7}, made),
        ):
            with self.subTest(came=came):
                self.assert_calls([came], left)

    def test_without_index_a_call_is_known_by_its_id(self) -> None:
        """Also when two are sent in turns; the id leaves once."""
        f, g = {"index": 0, "id": "a", "type": "function"}, {"index": 1, "id": "b", "type": "function"}
        self.assert_calls(
            [call("1", id="a", name="f"), call("2", id="b", name="g"), call("3", id="a"), call("4", id="b", name="g")],
            call("1", name="f", **f),
            call("2", name="g", **g),
            call("3", index=0),
            call("4", index=1),
        )

    def test_without_index_a_delta_without_id_goes_on_with_the_last_call(self) -> None:
        """An id that is new opens the next call, a name that comes late does not."""
        sent = [
            call("1", id="a", name="f"),
            call("2"),
            call("3", id="b"),
            call("4", name="g"),
            call("5"),
            call("6", id="a"),
        ]
        left = calls_of(shape([called(each) for each in sent]))
        self.assertEqual([each["index"] for each in left], [0, 0, 1, 1, 1, 0])
        self.assertEqual([each.get("id") for each in left], ["a", None, "b", None, None, None])
        self.assertEqual([each["function"].get("name") for each in left], ["f", None, None, "g", None, None])

    def test_without_index_and_id_another_name_is_another_call(self) -> None:
        """The same name goes on, unless its arguments begin anew."""
        left = calls_of(
            shape([called(call("", name="f")), called(call('{"a"', name="f")), called(call(":1}", name="f"))])
            + shape([called(call("{}", name="f"), call(" {}", name="f"), call({}, name="f"), call("", name="g"))])
        )
        self.assertEqual([each["index"] for each in left], [0, 0, 0, 0, 1, 2, 3])
        self.assertEqual([each["function"].get("name") for each in left], ["f", None, None, "f", "f", "f", "g"])
        self.assertEqual(len({each["id"] for each in left[3:]}), 4)

    def test_id_and_name_repeated_with_an_index_leave_once(self) -> None:
        """Even if every delta has an id of its own."""
        self.assert_calls(
            [call("{", index=0, id="a", name="f", type="function"), call("}", index=0, id="a", name="f")],
            call("{", index=0, id="a", name="f", type="function"),
            call("}", index=0),
        )
        self.assert_calls(
            [call("{", index=0, id="a", name="f", type="function"), call("}", index=0, id="other")],
            call("{", index=0, id="a", name="f", type="function"),
            call("}", index=0),
        )

    def test_a_name_in_pieces_is_one_name(self) -> None:
        """A piece that is not the name again belongs to it, as long as the index says so."""
        self.assert_calls(
            [
                call(index=0, id="a", name="get_", type="function"),
                call(index=0, name="time"),
                call("{}", index=0, name="get_"),
            ],
            call(index=0, id="a", name="get_", type="function"),
            call(index=0, name="time"),
            call("{}", index=0),
        )

    def test_an_id_that_comes_late_is_too_late(self) -> None:
        """The call already left with one; a name that comes late is the first and leaves."""
        self.assert_calls(
            [call("", index=0, id=""), call("", index=0), call("{}", index=0, id="a", name="f")],
            call("", index=0, id="call_" + "0" * 24, type="function"),
            call("", index=0),
            call("{}", index=0, name="f"),
        )

    def test_one_index_for_all_calls_is_taken_apart(self) -> None:
        """By id and name, or by name and arguments that begin anew; what follows belongs to the latest."""
        self.assert_calls(
            [
                call('{"x":', index=0, id="a", name="f", type="function"),
                call("1}", index=0),
                call('{"y":', index=0, id="b", name="f", type="function"),
                call("2}", index=0),
                call("{}", index=1, id="c", name="f", type="function"),
            ],
            call('{"x":', index=0, id="a", name="f", type="function"),
            call("1}", index=0),
            call('{"y":', index=1, id="b", name="f", type="function"),
            call("2}", index=1),
            call("{}", index=2, id="c", name="f", type="function"),
        )
        left = calls_of(shape([called(call("{}", index=0, name="f")), called(call("{}", index=0, name="f"))]))
        self.assertEqual([each["index"] for each in left], [0, 1])

    def test_calls_in_turns_by_index_are_not_mixed_up(self) -> None:
        """The plain case of parallel calls, whatever order they start in."""
        sent = [
            call("", index=1, id="b", name="g", type="function"),
            call("", index=0, id="a", name="f", type="function"),
            call("1", index=1),
            call("2", index=0),
        ]
        self.assert_calls(sent, *sent)

    def test_an_index_given_late_finds_its_call(self) -> None:
        """The first delta came without one."""
        self.assert_calls(
            [call("", id="a", name="f", type="function"), call("{}", index=0)],
            call("", index=0, id="a", name="f", type="function"),
            call("{}", index=0),
        )

    def test_each_choice_counts_its_own_calls(self) -> None:
        """Two choices, each with its first call."""
        left = calls_of(shape([called(call("{}", name="f")), called(call("{}", name="f"), index=1)]))
        self.assertEqual([each["index"] for each in left], [0, 0])


class AccountTest(unittest.TestCase):
    """What is known about the stream beside its text."""

    def test_the_last_usage_wins(self) -> None:
        """Wherever it is, unless it makes no sense."""
        for chunks, usage in (
            (text_stream(), None),
            (text_stream(chunk({}, "stop", usage=USAGE)), REPORTED),
            (text_stream({"choices": [], "usage": USAGE}), REPORTED),
            (text_stream(chunk({}, usage=USAGE | {"completion_tokens": 1}), chunk({}, "stop", usage=USAGE)), REPORTED),
            (text_stream({"choices": [], "usage": USAGE}, {"choices": [], "usage": {"prompt_tokens": 0}}), REPORTED),
            (text_stream(chunk({}, "stop", x_groq={"usage": USAGE})), REPORTED),
            (text_stream({"choices": [], "usage": USAGE}, chunk({}, x_groq={"usage": USAGE | {"a": 1}})), REPORTED),
            (text_stream(chunk({}, x_groq={"usage": USAGE | {"prompt_tokens": 9}}, usage=USAGE)), REPORTED),
            (text_stream(chunk({}, x_groq={"usage": USAGE}), chunk({}, x_groq={"usage": {}})), REPORTED),
            (text_stream(chunk({}, x_groq={"usage": USAGE}), chunk({}, x_groq="usage")), REPORTED),
        ):
            shaping = shaper()
            shape(chunks, shaping)
            self.assertEqual(shaping.usage, usage)

    def test_a_vendors_usage_leaves_only_when_usage_was_asked_for(self) -> None:
        """The rest of the vendor's field is kept."""
        sent = text_stream(chunk({}, "stop", x_groq={"id": "r", "usage": USAGE}))
        self.assertEqual(shape(sent, shaper(want_usage=True))[-1]["x_groq"], {"id": "r", "usage": USAGE})
        self.assertEqual(shape(sent, shaper(want_usage=False))[-1]["x_groq"], {"id": "r"})

    def test_the_closing_chunk_has_usage_and_no_choices(self) -> None:
        """The head of the stream, counts, and the cost to the last digit."""
        shaping = shaper()
        shape(text_stream(), shaping)
        raw = shaping.usage_payload(Usage(10, 4, 1, 5, 2), "0.0000010")
        self.assertIn(b'"cost_usd":0.0000010}', raw)
        closing = json.loads(raw)
        self.assertEqual(without(closing, "usage"), without(chunk({}), "choices") | {"choices": []})
        self.assertEqual(
            closing["usage"],
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
                "completion_tokens_details": {"reasoning_tokens": 2},
                "cost_usd": 1e-6,
            },
        )
        self.assertNotIn("cost_usd", json.loads(shaping.usage_payload(REPORTED, None))["usage"])
        self.assertEqual(json.loads(shaper().usage_payload(REPORTED, None))["model"], "fallback")

    def test_what_the_upstream_reports_beside_the_counts_comes_back(self) -> None:
        """With its own counts, not with an estimate; its idea of our cost does not."""
        extra = {"cost": 0.5, "queue_time": 0.01, "prompt_tokens_details": None, "cost_usd": 7}
        shaping = shaper()
        shape(text_stream({"choices": [], "usage": USAGE | extra}), shaping)
        raw = shaping.usage_payload(REPORTED, "0.1")
        self.assertEqual(raw.count(b"cost_usd"), 1)
        closing = json.loads(raw)["usage"]
        self.assertEqual((closing["cost"], closing["queue_time"], closing["cost_usd"]), (0.5, 0.01, 0.1))
        self.assertEqual(closing["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertNotIn("cost", json.loads(shaping.usage_payload(Usage(1), None))["usage"])

    def test_a_reported_sum_that_is_no_number_is_added_up(self) -> None:
        """As in a whole answer."""
        totals: tuple[object, ...] = ("15", 15.0, [], True)
        for total in totals:
            shaping = shaper()
            shape(text_stream({"choices": [], "usage": USAGE | {"total_tokens": total}}), shaping)
            closing = json.loads(shaping.usage_payload(REPORTED, None))
            self.assertEqual(repr(closing["usage"]["total_tokens"]), repr(REPORTED.total_tokens))

    def test_only_what_the_model_wrote_is_content(self) -> None:
        """Roles, empty texts, filters and ends are not; every delta counts once."""
        shaping = shaper()
        silent = [
            chunk({**ROLE, "content": ""}),
            chunk({"content": None, "reasoning": "", "refusal": None}),
            chunk({"content": []}),
            called(call("", index=0, id="a", type="function")),
            chunk({}, "stop", index=1),
        ]
        shape(silent, shaping)
        self.assertEqual((shaping.started, shaping.content_deltas, shaping.text_bytes), (False, 0, 0))
        for each, size in (
            (chunk({"content": "é🚀"}), 6),
            (chunk({"content": "a", "reasoning": "bc", "reasoning_content": "bc"}), 3),
            (chunk({"refusal": "no"}), 2),
            (called(call("", index=0, name="f"), call({"a": 1}, index=1)), CALL_FRAME_BYTES + 1 + len('{"a":1}')),
            (chunk({"content": [{"text": "ab"}]}), 2),
            (chunk({"content": "\ud83d"}), 3),
        ):
            before, deltas_before = shaping.text_bytes, shaping.content_deltas
            shape([each], shaping)
            self.assertTrue(shaping.started)
            self.assertEqual((shaping.text_bytes - before, shaping.content_deltas - deltas_before), (size, 1))

    def test_text_in_a_form_that_is_known_is_counted_in_bytes(self) -> None:
        """However it is written: one text that differs is not read beyond that."""
        shaping = shaper()
        shape([chunk({**ROLE, "content": ""}), chunk({"content": "a"})], shaping)
        for text, size in (("b", 1), ("é🚀", 6), ('"', 1)):
            for escaped in (True, False):
                before, deltas_before = shaping.text_bytes, shaping.content_deltas
                payload = json.dumps(chunk({"content": text}), ensure_ascii=escaped).encode()
                self.assertIs(shaping.feed(payload)[0], payload)
                self.assertEqual((shaping.text_bytes - before, shaping.content_deltas - deltas_before), (size, 1))


class FailureTest(unittest.TestCase):
    """A stream that reports an error or is none."""

    def test_an_error_ends_the_stream(self) -> None:
        """As an object, a text, vLLM's bare form, or a finish reason; code is text."""
        failed = chunk({"content": ""}, "error")
        failed["choices"][0]["error"] = {"message": "m", "code": 502}
        for document, code in (
            ({"error": {"message": "m", "type": "server_error", "param": None, "code": "internal"}}, "internal"),
            ({"error": "m"}, None),
            ({"object": "error", "message": "m", "type": "x", "code": 400}, "400"),
            (chunk({}, "error", error={"message": "m", "code": 502}), "502"),
            (failed, "502"),
        ):
            with self.subTest(document=document), self.assertRaises(WireError) as caught:
                shape([*text_stream(), document])
            self.assertEqual((caught.exception.message, caught.exception.code), ("m", code))

    def test_usage_of_a_failed_stream_is_kept(self) -> None:
        """With the error, and in the shaper."""
        shaping = shaper()
        for failure in (chunk({}, "error", usage=USAGE), {"error": {"message": "m"}}):
            with self.assertRaises(WireError) as caught:
                shape([failure], shaping)
            self.assertEqual((caught.exception.usage, shaping.usage), (REPORTED, REPORTED))

    def test_more_choices_than_can_be_asked_for_are_no_answer(self) -> None:
        """At once or one by one: each costs work with every event that follows."""
        shaping = shaper()
        shape([chunk(ROLE, index=index) for index in range(MOST_CHOICES)], shaping)
        shape([chunk({"content": "x"}, index=0)], shaping)
        with self.assertRaises(Malformed):
            shape([chunk(ROLE, index=MOST_CHOICES)], shaping)
        with self.assertRaises(Malformed):
            shape([{"choices": [{"delta": {}} for _ in range(MOST_CHOICES + 1)]}])

    def test_more_tool_calls_than_any_answer_makes_are_no_answer(self) -> None:
        """At once or one by one: each stays in memory until the stream ends."""
        shaping = shaper()
        shape([called(*(call(name="f", id=f"c{number}") for number in range(MOST_CALLS)))], shaping)
        shape([called(call("{}", index=0))], shaping)
        with self.assertRaises(Malformed):
            shape([called(call(name="f", id="one more"))], shaping)
        with self.assertRaises(Malformed):
            shape([called(*(call(index=number, id=f"c{number}") for number in range(MOST_CALLS + 1)))])

    def test_what_is_no_chunk_is_malformed(self) -> None:
        """Never another exception."""
        for raw in (
            b'{"id": "chatcmpl-q", "choi',
            b"[]",
            b"null",
            b"[DONE]",
            b'{"choices":5}',
            b'{"choices":[5]}',
            b'{"choices":[{"delta":"x"}]}',
            b'{"choices":[{"message":"x"}]}',
            b'{"choices":[{"delta":{"content":5}}]}',
            b'{"choices":[{"delta":{"tool_calls":"x"}}]}',
            b'{"choices":[{"delta":{"tool_calls":[null]}}]}',
            b'{"choices":[{"delta":{"content":"\xff"}}]}',
            b'{"x":' + b"[" * 100_000,
        ):
            with self.subTest(raw=raw[:40]), self.assertRaises(Malformed):
                shaper().feed(raw)


def joined(chunks: list[Chunk]) -> dict[tuple[int, str], str]:
    """All that was said, per choice and kind; tool arguments of all its calls in a row."""
    said: dict[tuple[int, str], str] = {}
    for each in chunks:
        for choice in each.get("choices") or []:
            for kind, text in spoken(choice.get("delta") or {}):
                place = (choice.get("index", 0), kind)
                said[place] = said.get(place, "") + text
    return {place: text for place, text in said.items() if text}


def spoken(delta: Chunk) -> list[tuple[str, str]]:
    content = delta.get("content") or ""
    parts = content if isinstance(content, list) else [content]
    texts = [part if isinstance(part, str) else part.get("text", "") for part in parts]
    thoughts = [part["thinking"][0]["text"] for part in parts if isinstance(part, dict) and "thinking" in part]
    arguments = [each["function"].get("arguments", "") for each in delta.get("tool_calls") or []]
    return [
        ("content", "".join(texts)),
        ("reasoning", delta.get("reasoning") or ""),
        ("reasoning_content", "".join([delta.get("reasoning_content") or "", *thoughts])),
        ("arguments", "".join(map(as_text, arguments))),
    ]


def as_text(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
