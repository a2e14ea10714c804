"""Which chat requests are served, and which field is named when one is not."""

import json
import unittest
from typing import Any

from gateway.chat import MAX_CAP, MAX_TAG_CHARS, MAX_TAGS, ChatRequest, check_tags, parse_chat
from gateway.context import Options
from gateway.errors import InvalidRequest
from gateway.router import needs
from llmkit.openai import MOST_CHOICES
from llmkit.tokens import prompt_bound, texts_bound

USER = {"role": "user", "content": "hi"}


def parsed(*, options: Options | None = None, **fields: Any) -> ChatRequest:
    """A request with `fields` beside a model and a message."""
    body = {"model": "mini", "messages": [USER], **fields}
    return parse_chat(json.dumps(body).encode(), options or Options())


def param_of(raw: bytes) -> str | None:
    """The field that `raw` is refused for."""
    try:
        request = parse_chat(raw, Options())
    except InvalidRequest as error:
        assert (error.status, error.code, error.type) == (400, "invalid_request", "invalid_request_error")
        return error.param
    raise AssertionError(f"accepted as {request!r:.80}")


def with_field(name: str, literal: str) -> bytes:
    """A request in which `name` stands with a literal piece of JSON, instead of the default if it has one."""
    fields = {"model": '"mini"', "messages": json.dumps([USER]), name: literal}
    return ("{" + ",".join(f'"{key}": {value}' for key, value in fields.items()) + "}").encode()


class BadInputTest(unittest.TestCase):
    """Everything that is refused, with the field that is named."""

    def test_a_field_of_a_wrong_type_or_range_is_named(self) -> None:
        """Types are exact: no bool for an integer, no float, no numeral in a text."""
        counts = ["0", "-1", "1.0", "1.5", "true", "false", '"5"', "[]", "{}", "1e308", "1e3", "9" * 20]
        table: dict[str, list[str]] = {
            "model": ["null", "1", "true", '""', '["mini"]', "{}"],
            "messages": ["null", "[]", "{}", '"hi"', "1", '["hi"]', "[null]", f"[{json.dumps(USER)}, 1]", "[[]]"],
            "stream": ["0", "1", '"true"', "[]", "{}", "1.0"],
            "max_tokens": [*counts, str(MAX_CAP + 1)],
            "max_completion_tokens": [*counts, str(MAX_CAP + 1)],
            "n": [*counts, str(MOST_CHOICES + 1)],
            "best_of": [*counts, str(MOST_CHOICES + 1)],
            "tools": ["{}", '"x"', "1", "true"],
            "functions": ["{}", '"x"', "1", "true"],
            "service_tier": ['"flex"', '"priority"', '"scale"', '""', '"AUTO"', "1", "[]", '["auto"]', "true"],
            "audio": ['{"voice": "alloy", "format": "wav"}', "{}", "true"],
            "modalities": ['["text", "audio"]'],
            "web_search_options": ["{}", '{"search_context_size": "low"}', "true"],
            "search_parameters": ["{}", '{"mode": "on"}'],
            "enable_search": ["true", "1"],
            "n_predict": ["-1", "5", "1e3"],
            "n_cmpl": ["2", '"2"'],
            "tags": ['"legal"', "{}", "[1]", '[""]', "[null]", '["a,b"]', '["a\\n"]', '[["a"]]', "true"],
            "private": ["0", '"yes"', "[]"],
            "prompt_version": ["1", "[]", json.dumps("v" * 129)],
            "cache": ['"no-store"', "[]", "true"],
        }
        for name, literals in table.items():
            for literal in literals:
                with self.subTest(field=name, value=literal[:40]):
                    self.assertEqual(param_of(with_field(name, literal)), name)

    def test_a_name_that_others_read_as_a_known_one_is_refused(self) -> None:
        """Go's JSON takes any case, the long s and the sign of the kelvin too: it would be sent and not be priced."""
        for name in (
            *("Model", "MESSAGES", "Max_Tokens", "max_completion_tokenS", "N", "Stream", "Best_Of", "Service_Tier"),
            *(
                "Tools",
                "Prediction",
                "API_BASE",
                "Extra_Body",
                "Private",
                "\u017ftream",
                "max_to\u212aens",
                "N_Predict",
            ),
        ):
            with self.subTest(name):
                self.assertEqual(param_of(with_field(json.dumps(name)[1:-1], "1")), name)
        for name in ("X-Model", "topK", "Seed", "\u00e9tat", "models_", "0", ""):
            fields: dict[str, Any] = {name: 1}
            self.assertEqual(parsed(**fields).body[name], 1)
            self.assertTrue(parsed(messages=[{**USER, name: 1}]).body)
        for name in ("Content", "ROLE", "Audio"):
            self.assertEqual(param_of(with_field("messages", json.dumps([USER, {**USER, name: []}]))), "messages")

    def test_a_tool_that_the_provider_runs_is_refused(self) -> None:
        """It costs by the use, for which there is no price; what is no kind at all is the upstream's to refuse."""
        for kind in ("web_search", "browser_search", "code_interpreter", "builtin_function", "Function", "mcp", ""):
            for tools in ([{"type": kind}], [{"type": "function"}, {"type": kind, "function": {"name": "f"}}]):
                with self.subTest(kind):
                    self.assertEqual(param_of(with_field("tools", json.dumps(tools))), "tools")
        for tool in ({"type": "function"}, {"type": "custom"}, {"type": None}, {"type": 5}, {}, None, "web_search"):
            self.assertEqual(parsed(tools=[tool]).body["tools"], [tool])

    def test_every_field_is_refused_for_what_no_json_holds(self) -> None:
        """NaN, infinities, numbers beyond a double, and halves of characters."""
        for name in ("model", "messages", "max_tokens", "n", "temperature", "user", "tools", "unknown_field"):
            for literal in ("NaN", "Infinity", "-Infinity", "1e400", "9" * 400, '"\\ud83d"', '["\\udc00"]'):
                with self.subTest(field=name, value=literal[:10]):
                    self.assertEqual(param_of(with_field(name, literal)), name)

    def test_half_a_character_is_found_wherever_it_stands(self) -> None:
        """In a text, a part, a tool argument, a role or a key."""
        half = "\\ud83d"
        for message in (
            f'{{"role": "user", "content": "x {half} y"}}',
            f'{{"role": "user", "content": [{{"type": "text", "text": "{half}"}}]}}',
            f'{{"role": "assistant", "tool_calls": [{{"function": {{"name": "f", "arguments": "{half}"}}}}]}}',
            f'{{"role": "{half}", "content": "x"}}',
            f'{{"role": "user", "content": "x", "{half}": 1}}',
        ):
            with self.subTest(message):
                self.assertEqual(param_of(with_field("messages", f"[{message}]")), "messages")

    def test_a_field_given_twice_is_named(self) -> None:
        """What is priced is what is sent: no parser may choose between two caps."""
        raw = b'{"model": "mini", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "max_tokens": 9999}'
        self.assertEqual(param_of(raw), "max_tokens")

    def test_what_is_no_json_object_is_the_body(self) -> None:
        """Other values, encodings and depths."""
        whole = with_field("stream", "false").decode()
        deep = "[" * 10_000 + "]" * 10_000
        bodies = [b"", b"null", b"[]", b'"x"', b"1", b"{", whole.encode("utf-16"), whole.encode("utf-32")]
        bodies += [b"\xef\xbb\xbf" + whole.encode(), b"\xff" + whole.encode(), with_field("messages", deep)]
        for raw in bodies:
            with self.subTest(raw[:20]):
                self.assertEqual(param_of(raw), "body")

    def test_options_inside_objects_are_checked(self) -> None:
        """A cache rule and the wish for usage are booleans."""
        self.assertEqual(param_of(with_field("cache", '{"no-store": "yes"}')), "cache.no-store")
        self.assertEqual(param_of(with_field("cache", '{"no-cache": 1}')), "cache.no-cache")
        self.assertEqual(param_of(with_field("cache", '{"nocache": true}')), "cache")
        for odd in ("0", "-1", '"60"', "true", "1e12"):
            self.assertEqual(param_of(with_field("cache", f'{{"ttl": {odd}}}')), "cache.ttl")
        for options in ('"x"', "[]", "true"):
            raw = json.dumps({"model": "m", "messages": [USER], "stream": True}).encode()
            self.assertEqual(param_of(raw[:-1] + f', "stream_options": {options}}}'.encode()), "stream_options")
        raw = with_field("stream", 'true, "stream_options": {"include_usage": 1}')
        self.assertEqual(param_of(raw), "stream_options.include_usage")

    def test_wrong_functions_beside_right_tools_are_refused(self) -> None:
        """One of the two does not excuse the other."""
        raw = with_field("tools", '[{"type": "function"}], "functions": "x"')
        self.assertEqual(param_of(raw), "functions")


class AcceptedTest(unittest.TestCase):
    """What a served request says."""

    def test_the_least_request_asks_for_one_whole_answer(self) -> None:
        """Model and messages are all that is needed."""
        request = parsed()
        self.assertEqual((request.model, request.stream, request.cap, request.choices), ("mini", False, None, 1))
        self.assertEqual((request.wants_usage, request.options), (False, Options()))

    def test_null_means_absent(self) -> None:
        """In every optional field that the gateway reads."""
        names = [
            "stream",
            "stream_options",
            "max_tokens",
            "max_completion_tokens",
            "n",
            "best_of",
            "tools",
            "functions",
        ]
        names += ["service_tier", "audio", "modalities", "web_search_options", "prediction", "temperature"]
        names += ["tags", "private", "prompt_version", "cache"]
        request = parsed(**dict.fromkeys(names))
        self.assertEqual((request.stream, request.cap, request.choices), (False, None, 1))
        self.assertEqual(request.options, Options())
        self.assertIsNone(request.body["n"])

    def test_the_newer_cap_wins_and_both_are_checked(self) -> None:
        """Either field, or both."""
        self.assertEqual(parsed(max_tokens=7).cap, 7)
        self.assertEqual(parsed(max_completion_tokens=9).cap, 9)
        self.assertEqual(parsed(max_tokens=7, max_completion_tokens=9).cap, 9)
        self.assertEqual(parsed(max_tokens=7, max_completion_tokens=None).cap, 7)
        self.assertEqual(parsed(max_tokens=MAX_CAP).cap, MAX_CAP)

    def test_every_choice_is_counted(self) -> None:
        """The larger of `n` and `best_of` is what the upstream generates."""
        self.assertEqual(parsed(n=3).choices, 3)
        self.assertEqual(parsed(n=2, best_of=5).choices, 5)
        self.assertEqual(parsed(n=MOST_CHOICES).choices, MOST_CHOICES)

    def test_usage_is_wanted_only_by_a_stream_that_asks(self) -> None:
        """An answer that is no stream always has it."""
        asks = {"include_usage": True}
        self.assertTrue(parsed(stream=True, stream_options=asks).wants_usage)
        for fields in ({"stream": True}, {"stream": True, "stream_options": {"x_other": 1}}, {"stream_options": asks}):
            with self.subTest(fields):
                self.assertFalse(parsed(**fields).wants_usage)

    def test_tools_may_be_absent_null_or_empty(self) -> None:
        """Under both names."""
        for tools, functions in (([{"type": "function"}], None), (None, [{"name": "f"}]), ([], None)):
            self.assertEqual(parsed(tools=tools, functions=functions).model, "mini")

    def test_standard_priced_fields_pass(self) -> None:
        """The tiers that cost what is configured, and text."""
        for fields in ({"service_tier": "auto"}, {"service_tier": "default"}, {"modalities": ["text"]}):
            with self.subTest(fields):
                self.assertEqual(parsed(**fields).body | fields, parsed(**fields).body)

    def test_what_the_gateway_does_not_read_is_not_judged(self) -> None:
        """Any role, any content, any unknown field: the upstream's business."""
        message = {"role": "developer", "content": {"odd": [1, None]}, "name": 5, "tool_calls": None}
        request = parsed(messages=[message, {}], temperature="hot", logit_bias=[], extra={"a": [1]})
        self.assertEqual(request.body["messages"], [message, {}])
        self.assertEqual(request.body["extra"], {"a": [1]})

    def test_a_plain_request_holds_nothing_but_texts(self) -> None:
        """It needs no capability, and its bytes alone bound its tokens."""
        part = [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "u"}}]
        audio = {"role": "assistant", "content": "hi", "audio": {"id": "a"}}
        requests = [
            parsed(),
            parsed(messages=[USER, USER], temperature=0, stream=True, max_tokens=2),
            parsed(tools=[]),
            parsed(tools=[{}]),
            parsed(functions=[{}]),
            parsed(response_format={"type": "json_schema"}),
            *(parsed(messages=[USER, message]) for message in (audio, {"content": None}, {}, {"content": part})),
        ]
        self.assertEqual([request.is_plain for request in requests], [True, True] + [False] * 8)
        for request in requests[:2]:
            self.assertEqual(needs(request.body), {})
            self.assertEqual(prompt_bound(request.body, encoded_len=1000), texts_bound(request.body, 1000))

    def test_the_body_wins_over_the_headers(self) -> None:
        """Where both name something; a promise of privacy made in either is kept."""
        headers = Options(tags=("a",), prompt_version="h", no_cache=True, timeout_s=3.0)
        request = parsed(options=headers, tags=["b"], private=True, prompt_version="b", cache={"no-store": True})
        self.assertEqual(
            request.options,
            Options(tags=("b",), private=True, prompt_version="b", no_cache=True, no_store=True, timeout_s=3.0),
        )
        self.assertEqual(parsed(options=headers, tags=None, private=False).options, headers)
        self.assertTrue(parsed(options=Options(private=True), private=False).options.private)

    def test_tags_are_short_words(self) -> None:
        """As many and as long as the bounds allow."""
        most = [f"{number:0{MAX_TAG_CHARS}d}" for number in range(MAX_TAGS)]
        self.assertEqual(check_tags(most), tuple(most))
        self.assertEqual(check_tags(["été", "a b", "日本"]), ("été", "a b", "日本"))
        for wrong in ([*most, "x"], ["x" * (MAX_TAG_CHARS + 1)], ["a\x7f"], ("a",), None):
            with self.subTest(str(wrong)[:20]), self.assertRaises(InvalidRequest) as raised:
                check_tags(wrong)
            self.assertEqual(raised.exception.param, "tags")
        with self.assertRaises(InvalidRequest) as raised:
            check_tags([""], "x-gateway-tags")
        self.assertEqual(raised.exception.param, "x-gateway-tags")
