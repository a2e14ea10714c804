"""The OpenAI dialect: requests, whole answers, usage and errors."""

import json
import unittest
from typing import Any

from llmkit.openai import (
    CALL_FRAME_BYTES,
    GATEWAY_FIELDS,
    NEVER_FORWARD,
    Completion,
    Malformed,
    WireError,
    as_error,
    error_payload,
    from_wire,
    parse_error,
    parse_usage,
    random_id,
    to_wire,
    usage_of,
    with_usage,
)
from llmkit.types import Usage

USAGE: dict[str, Any] = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
TEXT = "pong: café ✓ 🚀 done"
MESSAGE: dict[str, Any] = {"role": "assistant", "content": TEXT, "refusal": None}


def wire(
    body: dict[str, Any], *, model: str = "up", cap_field: str = "max_completion_tokens", usage: bool = True
) -> dict[str, Any]:
    raw = to_wire(body, model=model, cap_field=cap_field, cap=50, stream_usage=usage)
    return dict(json.loads(raw))


def answer(message: dict[str, Any], finish: object = "stop", **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": USAGE,
        **more,
    }


def repair(document: dict[str, Any]) -> tuple[dict[str, Any], Completion]:
    """The answer as the client gets it, and what was read from it."""
    completion = from_wire(json.dumps(document).encode(), new_id=lambda: "n" * 24, created=5, model="fallback")
    return json.loads(completion.raw), completion


class RequestTest(unittest.TestCase):
    """What an upstream is asked for."""

    def test_values_and_order_are_kept(self) -> None:
        """Unknown fields, nested order, numbers and non-ASCII text too: provider prompt caches depend on it."""
        body = {
            "top_k": 3,
            "model": "fast",
            "messages": [{"role": "user", "zz": 1, "content": TEXT, "aa": None}],
            "temperature": 0.1,
            "max_tokens": 9,
            "provider": {"b": [1.0, 10**20], "a": True},
        }
        raw = to_wire(body, model="gpt-4o-mini", cap_field="max_completion_tokens", cap=9, stream_usage=True)
        self.assertEqual(
            raw.decode(),
            '{"top_k":3,"model":"gpt-4o-mini","messages":[{"role":"user","zz":1,"content":"' + TEXT + '","aa":null}],'
            '"temperature":0.1,"max_completion_tokens":9,"provider":{"b":[1.0,100000000000000000000],"a":true}}',
        )

    def test_the_body_of_the_caller_is_not_changed(self) -> None:
        """It is sent again to the next candidate."""
        body = {"model": "fast", "stream": True, "stream_options": {"x": 1}, "tags": ["a"]}
        wire(body)
        self.assertEqual(body, {"model": "fast", "stream": True, "stream_options": {"x": 1}, "tags": ["a"]})

    def test_fields_for_the_gateway_do_not_leave(self) -> None:
        """Nor those that would steer a client library; the same names deeper down are data."""
        kept = {"metadata": {"api_base": "x", "tags": "y"}, "provider": {"order": ["a"]}, "user": "u"}
        body = {**kept, **dict.fromkeys(GATEWAY_FIELDS, "x"), **dict.fromkeys(NEVER_FORWARD, "x")}
        self.assertEqual(wire(body), {**kept, "model": "up", "max_completion_tokens": 50})
        for name in (
            "api_base",
            "base_url",
            "api_key",
            "extra_headers",
            "extra_body",
            "aws_sts_endpoint",
            "user_config",
        ):
            self.assertIn(name, NEVER_FORWARD)

    def test_one_cap_leaves_under_the_name_the_upstream_knows(self) -> None:
        """At the place of the first that came, or at the end."""
        for body, keys in (
            ({"max_tokens": 1, "model": "a", "max_completion_tokens": 2}, ["cap", "model"]),
            ({"model": "a", "max_completion_tokens": 2, "n": 1, "max_tokens": 1}, ["model", "cap", "n"]),
            ({"model": "a", "n": 1}, ["model", "n", "cap"]),
        ):
            for field in ("max_tokens", "max_completion_tokens"):
                sent = wire(body, cap_field=field)
                self.assertEqual(list(sent), [field if key == "cap" else key for key in keys])
                self.assertEqual(sent[field], 50)

    def test_streams_are_asked_for_usage(self) -> None:
        """Whatever the client said; its other stream options are kept."""
        for options in ({"include_usage": False, "x_other": 1}, {"x_other": 1, "include_usage": True}):
            sent = wire({"model": "a", "stream": True, "stream_options": options})
            self.assertEqual(sent["stream_options"], {"include_usage": True, "x_other": 1})
        for body in ({"stream": True}, {"stream": True, "stream_options": None}):
            self.assertEqual(wire(body)["stream_options"], {"include_usage": True})

    def test_stream_options_never_reach_an_upstream_that_refuses_them(self) -> None:
        """One that does not know them, and any on a request that is no stream."""
        options = {"include_usage": True}
        self.assertNotIn("stream_options", wire({"stream": True, "stream_options": options}, usage=False))
        for stream in (False, None):
            self.assertNotIn("stream_options", wire({"stream": stream, "stream_options": options}))
        self.assertNotIn("stream_options", wire({"model": "a"}))
        self.assertNotIn("stream_options", wire({"stream_options": None}))

    def test_what_is_no_json_is_refused(self) -> None:
        """A lone surrogate, and numbers that would leave as null, also beside a real null."""
        for value in ("x \ud83d y", float("inf"), float("nan"), [None, float("-inf")]):
            with self.subTest(value=value), self.assertRaises(ValueError):
                wire({"model": "a", "seed": value})
        self.assertEqual(wire({"stop": None, "user": "null"})["stop"], None)


class AnswerTest(unittest.TestCase):
    """What a client gets, and what is known about it."""

    def test_an_answer_in_form_keeps_its_bytes(self) -> None:
        """Spaces, escapes, unknown fields and all."""
        document = answer(MESSAGE, extra={"timings": [1.50]})
        document["choices"][0]["logprobs"] = None
        raw = json.dumps(document, indent=1).encode()
        completion = from_wire(raw)
        self.assertIs(completion.raw, raw)
        self.assertEqual(
            completion, Completion(raw, document, Usage(11, 0, 0, 7, 0), ("stop",), len(TEXT.encode()), True)
        )

    def test_the_document_is_what_the_bytes_say(self) -> None:
        """Of an answer in form, and of one that had to be repaired."""
        for document in (
            {"choices": [{"message": {"content": "b"}}]},
            {"choices": [{"message": {"content": [{"type": "text", "text": "a"}]}, "finish_reason": "end_turn"}]},
        ):
            fixed, completion = repair(document)
            self.assertEqual(completion.document, fixed)
            self.assertEqual(completion.document["object"], "chat.completion")

    def test_missing_keys_are_filled(self) -> None:
        """Everything the schema requires, and nothing that was there is lost."""
        fixed, _ = repair({"choices": [{"message": {"x": 1}}, {"message": {"content": "b"}}], "timings": 3})
        self.assertEqual(fixed["id"], "chatcmpl-" + "n" * 24)
        self.assertEqual((fixed["object"], fixed["created"], fixed["model"]), ("chat.completion", 5, "fallback"))
        self.assertEqual(fixed["timings"], 3)
        self.assertEqual(
            fixed["choices"][0],
            {
                "index": 0,
                "message": {"x": 1, "role": "assistant", "content": None, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            },
        )
        self.assertEqual(fixed["choices"][1]["index"], 1)

    def test_null_is_missing_where_the_form_has_none(self) -> None:
        """Client libraries refuse it, or read it as a value."""
        call = {"id": "a", "type": None, "function": {"name": "f", "arguments": None}}
        usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": None}
        document = answer(MESSAGE | {"role": None, "tool_calls": [call]}, usage=usage)
        document["choices"][0]["index"] = None
        fixed, _ = repair(document)
        choice = fixed["choices"][0]
        self.assertEqual((choice["index"], choice["message"]["role"]), (0, "assistant"))
        self.assertEqual(
            choice["message"]["tool_calls"],
            [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        )
        self.assertEqual(fixed["usage"]["total_tokens"], 3)

    def test_what_has_the_wrong_type_is_missing(self) -> None:
        """As in a stream: a numeral is no index, nobody else than the assistant answers, and a sum is a number."""
        usage = {"prompt_tokens": 1, "completion_tokens": 2}
        calls = [{"id": 7, "type": "function", "function": {"name": "f", "arguments": "{}"}}]
        for index, role, total in (("0", "model", "3"), (0.0, "", 3.0), (False, 1, True), ([], {}, [])):
            with self.subTest(index=index):
                document = answer(MESSAGE | {"role": role, "tool_calls": calls}, usage=usage | {"total_tokens": total})
                document["choices"][0]["index"] = index
                fixed, _ = repair(document)
                choice = fixed["choices"][0]
                self.assertEqual((type(choice["index"]), choice["index"]), (int, 0))
                self.assertEqual(choice["message"]["role"], "assistant")
                self.assertEqual(choice["message"]["tool_calls"][0]["id"], "call_" + "n" * 24)
                self.assertEqual(repr(fixed["usage"]["total_tokens"]), "3")

    def test_a_call_without_arguments_has_an_empty_object(self) -> None:
        """Client libraries parse them; a tool of another kind has none."""
        calls = [
            {"id": "a", "type": "function", "function": {"name": "f"}},
            {"id": "b", "type": "custom", "custom": {}},
        ]
        fixed, _ = repair(answer({"tool_calls": calls}))
        calls[0] |= {"function": {"name": "f", "arguments": "{}"}}
        self.assertEqual(fixed["choices"][0]["message"]["tool_calls"], calls)

    def test_head_of_the_wrong_type_is_replaced(self) -> None:
        """An empty id, a time with a fraction, a number for a name."""
        fixed, _ = repair(answer(MESSAGE, id="", created=1700000000.5, model=7))
        self.assertEqual(fixed["id"], "chatcmpl-" + "n" * 24)
        self.assertEqual((fixed["created"], fixed["model"]), (1700000000, "fallback"))
        self.assertEqual(repair(answer(MESSAGE, created=0.0))[0]["created"], 5)
        self.assertEqual(json.loads(from_wire(json.dumps(answer(MESSAGE, model=None)).encode()).raw)["model"], "")

    def test_finish_reasons_are_the_five_known(self) -> None:
        """Unknown ones are "stop"; one that means a cut answer stays a cut answer."""
        for came, left in (
            *((known, known) for known in ("stop", "length", "tool_calls", "content_filter", "function_call")),
            *((odd, "stop") for odd in ("eos", "end_turn", "", None, "STOP", "whatever", 7, ["stop"])),
            *((cut, "length") for cut in ("max_tokens", "MAX_TOKENS", "model_length")),
        ):
            with self.subTest(came=came):
                fixed, completion = repair(answer(MESSAGE, came))
                self.assertEqual(fixed["choices"][0]["finish_reason"], left)
                self.assertEqual(completion.finish_reasons, (left,))

    def test_a_reason_that_nobody_knows_may_be_that_of_a_broken_answer(self) -> None:
        """As one that is missing may; a known one under another name is known."""
        for came, finished in (
            *((known, True) for known in ("stop", "length", "eos", "end_turn", "stop_sequence", "MAX_TOKENS")),
            *((odd, False) for odd in ("abort", "RECITATION", "whatever", "", None, 7)),
        ):
            with self.subTest(came=came):
                self.assertEqual(repair(answer(MESSAGE, came))[1].finished, finished)

    def test_an_answer_that_calls_tools_says_so(self) -> None:
        """Id and type are filled, arguments are text, and "stop" becomes "tool_calls"; "length" does not."""
        call = {"function": {"name": "f", "arguments": {"city": "Zürich"}}}
        fixed, completion = repair(answer({"content": None, "tool_calls": [call]}))
        self.assertEqual(
            fixed["choices"][0]["message"]["tool_calls"],
            [
                {
                    "function": {"name": "f", "arguments": '{"city":"Zürich"}'},
                    "id": "call_" + "n" * 24,
                    "type": "function",
                }
            ],
        )
        self.assertEqual(completion.finish_reasons, ("tool_calls",))
        self.assertEqual(completion.text_bytes, CALL_FRAME_BYTES + len(b"f") + len('{"city":"Zürich"}'.encode()))
        self.assertEqual(repair(answer({"tool_calls": [call]}, "length"))[1].finish_reasons, ("length",))
        named = {"id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}
        self.assertEqual(repair(answer({"tool_calls": [named]}))[0]["choices"][0]["message"]["tool_calls"], [named])

    def test_a_single_fault_is_enough_to_be_repaired(self) -> None:
        """Each of them, in an answer that is in form but for it."""
        faults: tuple[tuple[str, Any, Any], ...] = (
            ("content", [{"text": "a"}], "a"),
            ("tool_calls", [{"id": "a", "type": "function", "function": {"arguments": {}}}],
             [{"id": "a", "type": "function", "function": {"arguments": "{}"}}]),
            ("tool_calls", [{"id": "a", "function": {}}], [{"id": "a", "function": {}, "type": "function"}]),
            ("tool_calls", [{"id": "", "type": "function"}], [{"id": "call_" + "n" * 24, "type": "function"}]),
        )  # fmt: skip
        for key, came, left in faults:
            document = answer(MESSAGE | {key: came}, "length")
            document["choices"][0]["logprobs"] = None
            self.assertEqual(repair(document)[0]["choices"][0]["message"], MESSAGE | {key: left})

    def test_content_in_parts_is_joined(self) -> None:
        """Thinking among the parts becomes reasoning."""
        parts = [
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
            {"type": "text", "text": "pong: "},
            "café",
            {"type": "reference"},
        ]
        fixed, completion = repair(answer({"content": parts}))
        message = fixed["choices"][0]["message"]
        self.assertEqual((message["content"], message["reasoning_content"]), ("pong: café", "hm"))
        self.assertEqual(completion.text_bytes, len("pong: caféhm".encode()))
        message = repair(answer({"content": ["a"]}))[0]["choices"][0]["message"]
        self.assertNotIn("reasoning_content", message)
        message = repair(answer({"content": parts, "reasoning_content": "own"}))[0]["choices"][0]["message"]
        self.assertEqual(message["reasoning_content"], "own")

    def test_everything_written_is_counted_once(self) -> None:
        """Reasoning under two names is one text; several choices add up; a call has a frame that no client sees."""
        message = {"content": "ab", "refusal": "c", "reasoning": "de", "reasoning_content": "de"}
        legacy = {"content": None, "reasoning": "f", "function_call": {"name": "g", "arguments": "hi"}}
        custom = {"tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "j", "input": "kl"}}]}
        document = answer(message)
        document["choices"] += [{"message": legacy}, {"message": custom}]
        self.assertEqual(repair(document)[1].text_bytes, 5 + 4 + 3 + 2 * CALL_FRAME_BYTES)

    def test_what_is_no_text_is_not_counted(self) -> None:
        """And does no harm."""
        odd = {
            "reasoning": {"text": "a"},
            "refusal": 5,
            "function_call": "b",
            "audio": {"name": "c"},
            "tool_calls": None,
        }
        self.assertEqual(repair(answer(odd))[1].text_bytes, 0)
        self.assertEqual(
            repair(answer({"tool_calls": [{"function": "f"}, {"function": {"name": 5}}]}))[1].text_bytes, 0
        )

    def test_lone_surrogates_survive(self) -> None:
        """As the same bytes, and as the same escape when something else is repaired."""
        raw = b'{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":'
        raw += b'"assistant","content":"x \\ud83d y","refusal":null},"logprobs":null,"finish_reason":"FINISH"}]}'
        kept = raw.replace(b"FINISH", b"stop")
        self.assertIs(from_wire(kept).raw, kept)
        self.assertEqual(from_wire(kept).text_bytes, 7)
        repaired = from_wire(raw.replace(b"FINISH", b"eos")).raw
        self.assertIn(b"x \\ud83d y", repaired)
        self.assertEqual(json.loads(repaired), json.loads(kept))

    def test_a_total_is_filled_but_not_corrected(self) -> None:
        """What an upstream counts beside prompt and completion is its own."""
        counts = {"prompt_tokens": 1, "completion_tokens": 2}
        self.assertEqual(repair(answer(MESSAGE, usage={"x": 1}))[0]["usage"], {"x": 1})
        copied = repair(answer(MESSAGE, usage=None, x_groq={"usage": counts}))[0]["usage"]
        self.assertEqual((copied["prompt_tokens"], copied["completion_tokens"], copied["total_tokens"]), (1, 2, 3))
        self.assertEqual(repair(answer(MESSAGE, usage=counts))[0]["usage"]["total_tokens"], 3)
        self.assertEqual(repair(answer(MESSAGE, usage={**counts, "total_tokens": 9}))[0]["usage"]["total_tokens"], 9)

    def test_a_path_on_the_upstreams_disk_is_no_name(self) -> None:
        """Model servers name themselves after the file they were started with."""
        for path in ("/models/secret/tiny.gguf", "./m.gguf", "../m", "~/m", "C:\\models\\m.gguf", "", None, 5):
            with self.subTest(path):
                raw = json.dumps(answer(MESSAGE, model=path)).encode()
                self.assertEqual(json.loads(from_wire(raw, model="fast").raw)["model"], "fast")
        for name in ("gpt-4o-mini", "org/model", "accounts/x/models/y", "model:8b"):
            self.assertEqual(repair(answer(MESSAGE, model=name))[0]["model"], name)

    def test_an_event_that_is_named_an_error_is_one(self) -> None:
        """Whatever its data is."""
        for data in (b'{"message": "busy", "code": "x"}', b'{"error": {"message": "busy", "code": "x"}}'):
            error = json.loads(as_error(data))["error"]
            self.assertEqual((error["message"], error["code"]), ("busy", "x"))
        self.assertEqual(json.loads(as_error(b"busy"))["error"], "busy")
        for nothing in (b"", b"{}", b"null", b"<html>"):
            self.assertTrue(json.loads(as_error(nothing))["error"])

    def test_usage_can_be_put_in(self) -> None:
        """An estimate for an upstream that reports none."""
        raw = with_usage(json.dumps(answer(MESSAGE, usage=None)).encode(), Usage(5, 1, 2, 3, 1))
        document = json.loads(raw)
        self.assertEqual(parse_usage(document["usage"]), Usage(5, 1, 2, 3, 1))
        self.assertEqual(document["usage"]["total_tokens"], 8)
        self.assertEqual(document["choices"][0]["message"], MESSAGE)

    def test_what_is_no_answer_is_malformed(self) -> None:
        """Never another exception, and the message holds nothing of it."""
        for raw in (
            b"",
            b"<html>secret</html>",
            b'{"choices": [',
            b"[]",
            b'"secret"',
            b"{}",
            b'{"choices":[],"usage":{"prompt_tokens":1}}',
            b'{"choices":{}}',
            b'{"choices":5}',
            b'{"choices":[{"message":{"tool_calls":5}}]}',
            b'{"choices":[null]}',
            b'{"choices":[{"message":null}]}',
            b'{"choices":[{"message":{"content":5}}]}',
            b'{"choices":[{"message":{"tool_calls":{"a":1}}}]}',
            b'{"choices":[{"message":{"tool_calls":["secret"]}}]}',
            b'{"choices":[{"message":{"content":"secret \xff"}}]}',
            b'{"choices":[{"message":{},"x":NaN}]}',
            b'{"choices":[{"message":{},"x":1e999}]}',
            b'{"choices":' + b"[" * 100_000,
        ):
            with self.subTest(raw=raw[:60]), self.assertRaises(Malformed) as caught:
                from_wire(raw)
            self.assertNotIn("secret", str(caught.exception))

    def test_what_is_no_answer_may_have_been_counted(self) -> None:
        """An upstream may bill what it filtered away; counts that are none are not believed."""
        junks: list[Any] = [{}, {"choices": []}, {"choices": [None]}, {"choices": [{"message": {"content": 5}}]}]
        for junk in junks:
            for reported, believed in (USAGE, Usage(11, 0, 0, 7, 0)), ({"prompt_tokens": 1}, None), (None, None):
                with self.subTest(junk=junk, reported=reported), self.assertRaises(Malformed) as caught:
                    repair({**junk, "usage": reported})
                self.assertEqual(caught.exception.usage, believed)

    def test_an_error_in_a_200_is_an_error(self) -> None:
        """With its usage; a null error is none."""
        with self.assertRaises(WireError) as caught:
            repair({"error": {"message": "overloaded", "code": 502}, "usage": USAGE})
        self.assertEqual((caught.exception.message, caught.exception.code), ("overloaded", "502"))
        self.assertEqual(caught.exception.usage, Usage(11, 0, 0, 7, 0))
        document = answer(MESSAGE, "error")
        document["choices"][0]["error"] = {"message": "cut", "type": "x"}
        with self.assertRaises(WireError) as caught:
            repair(document)
        self.assertEqual((caught.exception.message, caught.exception.usage), ("cut", Usage(11, 0, 0, 7, 0)))
        with self.assertRaises(WireError) as caught:
            repair({"error": {"x": 1}})
        self.assertEqual(caught.exception.message, "upstream reported an error")
        self.assertEqual(repair(answer(MESSAGE, error=None))[1].finish_reasons, ("stop",))

    def test_random_ids_have_24_characters(self) -> None:
        """And are not the same twice."""
        self.assertEqual(len(random_id()), 24)
        self.assertNotEqual(random_id(), random_id())


class UsageTest(unittest.TestCase):
    """What a provider reports, or nothing."""

    def test_every_class_of_tokens_is_read(self) -> None:
        """Where OpenAI puts it, where DeepSeek does, and as null."""
        details = {
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 3},
        }
        hit = {"prompt_cache_hit_tokens": 4}
        nulls = {"prompt_tokens_details": None, "completion_tokens_details": {"reasoning_tokens": None}}
        for more, usage in (
            ({}, Usage(11, 0, 0, 7, 0)),
            (details, Usage(11, 4, 2, 7, 3)),
            (hit, Usage(11, 4, 0, 7, 0)),
            (details | {"prompt_cache_hit_tokens": 9}, Usage(11, 4, 2, 7, 3)),
            ({"prompt_tokens_details": {"cached_tokens": None}, **hit}, Usage(11, 4, 0, 7, 0)),
            (nulls, Usage(11, 0, 0, 7, 0)),
            ({"prompt_tokens_details": []}, Usage(11, 0, 0, 7, 0)),
            ({"prompt_tokens_details": {"cached_tokens": 99}}, Usage(11, 99, 0, 7, 0)),
            ({"prompt_tokens": 2**53}, Usage(2**53, 0, 0, 7, 0)),
        ):
            with self.subTest(more=more):
                self.assertEqual(parse_usage({**USAGE, **more}), usage)

    def test_usage_that_makes_no_sense_is_none(self) -> None:
        """An estimate then stands in; never zero, which would be free."""
        senseless: tuple[object, ...] = (
            None,
            {},
            [],
            "11",
            USAGE | {"prompt_tokens": 0, "completion_tokens": 0},
            USAGE | {"prompt_tokens": -1},
            USAGE | {"prompt_tokens": 2**53 + 1},
            USAGE | {"completion_tokens": 7.0},
            USAGE | {"completion_tokens": True},
            USAGE | {"completion_tokens": None},
            USAGE | {"prompt_tokens": "11"},
            {"prompt_tokens": 11},
            {"completion_tokens": 11},
            USAGE | {"prompt_tokens_details": {"cached_tokens": "4"}},
            USAGE | {"completion_tokens_details": {"reasoning_tokens": -4}},
        )
        for value in senseless:
            with self.subTest(value=value):
                self.assertIsNone(parse_usage(value))

    def test_a_vendors_place_is_the_second_choice(self) -> None:
        """Groq's copy counts only if there is no other."""
        vendor = {"x_groq": {"usage": {**USAGE, "prompt_tokens": 99}}}
        self.assertEqual(usage_of({"usage": USAGE, **vendor}), Usage(11, 0, 0, 7, 0))
        self.assertEqual(usage_of({"usage": None, **vendor}), Usage(99, 0, 0, 7, 0))
        self.assertIsNone(usage_of({"x_groq": 5}))


class ErrorTest(unittest.TestCase):
    """What an upstream's failure says."""

    def facts(self, status: int, body: object) -> tuple[str, str, str | None, str | None]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        error = parse_error(status, raw)
        return error.message, error.type, error.code, error.param

    def test_every_form_of_error_is_understood(self) -> None:
        """OpenAI's, vLLM's, Gemini's, FastAPI's, Ollama's, a text, and llama.cpp's number for a code."""
        invalid = "invalid_request_error"
        whole = {"message": "m", "type": "t", "param": "p", "code": "c"}
        for status, body, facts in (
            (400, {"error": whole}, ("m", "t", "c", "p")),
            (400, {"object": "error", "message": "m", "type": "BadRequestError", "param": None, "code": 400},
             ("m", "BadRequestError", None, None)),
            (400, [{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}],
             ("m", "INVALID_ARGUMENT", None, None)),
            (422, {"detail": [{"loc": ["body", "foo", 0], "msg": "extra"}, {"loc": ["body", "bar"], "msg": "bad"}]},
             ("foo.0: extra; bar: bad", invalid, None, "foo.0")),
            (422, {"detail": [{"msg": "m"}]}, ("m", invalid, None, None)),
            (404, {"detail": "Not Found"}, ("Not Found", invalid, None, None)),
            (400, {"error": "model is loading"}, ("model is loading", invalid, None, None)),
            (400, "text", ("text", invalid, None, None)),
            (500, b"unknown model\n", ("unknown model", "server_error", None, None)),
            (400, {"error": {"message": "m", "code": 1234}}, ("m", invalid, "1234", None)),
            (429, {"error": {"message": "m"}}, ("m", "rate_limit_error", None, None)),
            (400, {"message": "m"}, ("m", invalid, None, None)),
        ):  # fmt: skip
            with self.subTest(body=body):
                self.assertEqual(self.facts(status, body), facts)

    def test_a_body_that_says_nothing_gives_our_words(self) -> None:
        """HTML, nothing at all, or objects that are no error."""
        silent: tuple[object, ...] = (
            *(b"", b"  ", b"<html>secret</html>", None, 5, True, [], [[]], {}),
            *({"error": None}, {"error": {}}, {"error": {"message": {"a": 1}, "code": [], "type": 5}}),
            *({"detail": {"a": 1}}, {"detail": []}, {"detail": ["x"]}, {"message": ""}),
        )
        for body in silent:
            with self.subTest(body=body):
                self.assertEqual(self.facts(502, body), ("upstream returned HTTP 502", "server_error", None, None))

    def test_texts_are_capped(self) -> None:
        """An upstream cannot fill logs through its errors."""
        long = "x" * 5000
        for body in ({"error": dict.fromkeys(("message", "type", "code", "param"), long)}, long, long.encode()):
            self.assertEqual({len(text) for text in self.facts(400, body) if text and text[0] == "x"}, {500})

    def test_a_credential_is_out_before_a_text_is_cut(self) -> None:
        """However it was escaped, and wherever the cut falls: no beginning of it is left."""
        for padding in range(484, 502):
            said = f"{'x' * padding} ab/cd+ef/gh="
            body = {"error": dict.fromkeys(("message", "type", "code", "param"), said)}
            for raw in json.dumps(body).encode(), json.dumps(body).replace("/", "\\/").encode(), said.encode():
                error = parse_error(400, raw, "ab/cd+ef/gh=")
                for text in error.message, error.type, error.code, error.param:
                    self.assertNotIn("ab", text or "")

    def test_any_bytes_give_an_error(self) -> None:
        """Total: nesting, lone surrogates, junk."""
        for raw in (b"[" * 100_000, b"\xff\xfe", b"\x00", b'{"error":{"message":"a \\ud83d"}}', b'{"error":1e999}'):
            self.assertTrue(parse_error(500, raw).message)

    def test_usage_in_an_error_is_read(self) -> None:
        """A failed call that was counted is not free."""
        self.assertEqual(
            parse_error(500, json.dumps({"error": "x", "usage": USAGE}).encode()).usage, Usage(11, 0, 0, 7)
        )
        self.assertIsNone(parse_error(500, b"{}").usage)

    def test_a_payload_has_all_four_keys(self) -> None:
        """Whatever is in them, it is JSON."""
        self.assertEqual(
            json.loads(error_payload('say "hi"\n', "t", None, "p")),
            {"error": {"message": 'say "hi"\n', "type": "t", "param": "p", "code": None}},
        )
        self.assertIn(b"\\ud83d", error_payload("\ud83d", "t", "c", None))
