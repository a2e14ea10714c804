"""Which requests are the same to the exact cache, and which answers may be kept."""

import unittest
from typing import Any

from gateway.cache_key import NEUTRAL_FIELDS, cache_keys, may_be_stored

Body = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
OTHER_ORDER = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "t", "parameters": SCHEMA}}


def key_of(body: Body, **changes: Any) -> bytes:
    """The digest of a request of acme, unless the test says otherwise."""
    arguments: dict[str, Any] = {
        "tenant": "acme",
        "epoch": 0,
        "route": ("fast", "cheap", "gpt-4o-mini"),
        "permissions": None,
        "prompt_version": None,
    }
    return cache_keys(**{**arguments, **changes}, body=body)(body["messages"][-1])


def asking(content: object, **more: Any) -> Body:
    return {"model": "gw-mini", "temperature": 0, "messages": [{"role": "user", "content": content}], **more}


def text(content: str) -> Body:
    return {"type": "text", "text": content}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}}


def schema_bound(schema: Body) -> Body:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}}


class KeyTest(unittest.TestCase):
    """One digest for one question."""

    def test_every_field_that_changes_the_answer_changes_the_key(self) -> None:
        """Each of these, added to the base on its own, and the base: no two share a digest."""
        variants: list[Body] = [
            {},
            schema_bound({"type": "object"}),
            schema_bound(SCHEMA),
            schema_bound(OTHER_ORDER),
            {"tools": [TOOL]},
            {"tools": [TOOL], "tool_choice": "none"},
            {"seed": 7},
            {"seed": None},
            {"stop": ["x"]},
            {"stop": "x"},
            {"max_tokens": 5},
            {"max_tokens": 6},
            {"max_completion_tokens": 5},
            {"top_p": 0.5},
            {"temperature": 1},
            {"temperature": 0.0},
            {"temperature": False},
            {"n": 2},
            {"logit_bias": {"1": 5}},
            {"logit_bias": {"1": 5, "2": 6}},
            {"logit_bias": {"2": 6, "1": 5}},
            {"logprobs": True},
            {"reasoning_effort": "low"},
            {"x_vendor": 1},
            {"x_vendor": 1.0},
            {"x_vendor": True},
            {"x_vendor": "1"},
            {"x_vendor": None},
            {"user": "someone"},
            {"messages": [{"role": "system", "content": "be rude"}, *asking("describe a bike")["messages"]]},
            {"messages": [{"role": "developer", "content": "describe a bike"}]},
            {"messages": [{"role": "user", "name": "a", "content": "describe a bike"}]},
            {"messages": [{"role": "user", "content": [text("describe a bike")]}]},
            {"messages": [{"role": "user", "content": "Describe a bike"}]},
            {"messages": [{"role": "user", "content": "ｄescribe a bike"}]},
            {"messages": [{"role": "user", "content": None}]},
            {"messages": [{"role": "user"}]},
        ]
        keys = [key_of(asking("describe a bike") | variant) for variant in variants]
        self.assertEqual(len(set(keys)), len(variants))

    def test_histories_that_differ_in_a_tool_call_id_differ(self) -> None:
        """A message is compared whole, whatever its role."""
        one, other = (
            asking("go on") | {"messages": [{"role": "tool", "tool_call_id": call_id, "content": "ok"}]}
            for call_id in ("call_1", "call_2")
        )
        self.assertNotEqual(key_of(one), key_of(other))

    def test_what_is_given_beside_the_body_is_part_of_the_key(self) -> None:
        """Tenant, epoch, route, permissions and prompt version; nothing slides from one into the next."""
        changes: list[Body] = [
            {},
            {"tenant": "other"},
            {"epoch": 1},
            {"route": ("smart", "cheap", "gpt-4o-mini")},
            {"route": ("fast", "strong", "gpt-4o-mini")},
            {"route": ("fast", "cheap", "gpt-4o-mini", "x")},
            {"route": ("fast", "cheapgpt-4o-mini")},
            {"permissions": ["fast"]},
            {"permissions": ["fast", "gpt-*"]},
            {"permissions": "fast"},
            {"prompt_version": ""},
            {"prompt_version": "v1"},
        ]
        keys = [key_of(asking("hi"), **change) for change in changes]
        self.assertEqual(len(set(keys)), len(changes))

    def test_neutral_fields_are_not_part_of_the_key(self) -> None:
        """Present, absent or other: one digest. Streaming and not streaming share entries."""
        plain = key_of(asking("hi"))
        for name in sorted(NEUTRAL_FIELDS):
            for value in (True, None, {"include_usage": True}):
                with self.subTest(name, value=value):
                    self.assertEqual(key_of(asking("hi") | {name: value}), plain)

    def test_key_order_counts_only_where_a_model_reads_it(self) -> None:
        """Sorted at the top, in messages and in parts; as it came in schemas and in what lies within a part."""
        body = asking([text("a"), IMAGE], seed=1, stop=["x"])
        turned = {name: body[name] for name in reversed(body)}
        turned["messages"] = [
            {"content": [{"text": "a", "type": "text"}, dict(reversed(IMAGE.items()))], "role": "user"},
        ]
        self.assertEqual(key_of(turned), key_of(body))
        within = {**IMAGE, "image_url": dict(reversed(IMAGE["image_url"].items()))}  # type: ignore[attr-defined]
        self.assertNotEqual(key_of(asking([text("a"), within], seed=1, stop=["x"])), key_of(body))

    def test_the_order_of_messages_and_parts_counts(self) -> None:
        """Lists stay as they came."""
        first, second = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
        self.assertNotEqual(
            key_of(asking("") | {"messages": [first, second]}), key_of(asking("") | {"messages": [second, first]})
        )
        self.assertNotEqual(key_of(asking([text("a"), IMAGE])), key_of(asking([IMAGE, text("a")])))

    def test_any_json_has_a_key(self) -> None:
        """Odd content, lone surrogates and empty lists too."""
        odd = ["", [], [None, 1, "x", {}, {"type": "text"}, {"type": "text", "text": 1}], {}, 7, "\ud83d", [text("")]]
        self.assertEqual(len({key_of(asking(content)) for content in odd}), len(odd))


class WhiteSpaceTest(unittest.TestCase):
    """What of a message's text is normalised."""

    def test_texts_that_are_the_same(self) -> None:
        """As a text and as the only part."""
        for one, other in (
            ("ping", " \t\r\n ping\n\n "),
            ("a b", "a    b"),
            ("  a  b  c ", "a b c"),
            ("a\nb", "a\r\nb"),
            ("a\n  b", "a\r\n  b "),
            ("", "  \n"),
        ):
            with self.subTest(one=one, other=other):
                self.assertEqual(key_of(asking(one)), key_of(asking(other)))
                self.assertEqual(key_of(asking([text(one)])), key_of(asking([text(other)])))

    def test_texts_that_are_not_the_same(self) -> None:
        """Runs stay wherever a character suggests that the layout matters; only ASCII white space is stripped."""
        pairs = [("a b", "ab"), ("a\nb", "a b"), ("a\rb", "a\nb"), ("a\n\nb", "a\nb"), ("a\tb", "a b"), ("a", "A")]
        pairs += [("é", "e\u0301"), ("a b", "a\u00a0b"), ("a", "a\u00a0"), ("a", "a\u3000"), ("a", "a\v"), ("a", "\fa")]
        marks = "\n\r\t\v\f\x85\u2028\u2029`\"'‘’‚‛“”„‟«»‹›「」『』〝〞〟＂＇"
        pairs += [(f"a  b{mark}c", f"a b{mark}c") for mark in marks]
        pairs += [("a  b\n", "a b\n"), ("a  b\n", "a b")]
        for one, other in pairs:
            with self.subTest(one=one, other=other):
                self.assertNotEqual(key_of(asking(one)), key_of(asking(other)))
                self.assertNotEqual(key_of(asking([text(one)])), key_of(asking([text(other)])))

    def test_one_part_decides_for_its_whole_message(self) -> None:
        """A quote in one part keeps the runs of all; another message is judged by itself."""
        for keeps in ("'", "`", "\n"):
            one, other = ([text(run), text(f"x{keeps}x")] for run in ("a  b", "a b"))
            self.assertNotEqual(key_of(asking(one)), key_of(asking(other)))
        one_body, other_body = (
            asking("") | {"messages": [{"role": "system", "content": "'"}, {"role": "user", "content": run}]}
            for run in ("a  b", "a b")
        )
        self.assertEqual(key_of(one_body), key_of(other_body))

    def test_ends_are_those_of_the_message(self) -> None:
        """White space between two parts stays, beside an image too: upstreams join parts as they are."""
        same = [([text(" a "), text(" b ")], [text("a "), text(" b")]), ([text(" a"), IMAGE], [text("a"), IMAGE])]
        for one, other in same:
            self.assertEqual(key_of(asking(one)), key_of(asking(other)))
        differing = [
            ([text("a "), text("b")], [text("a"), text("b")]),
            ([text("a"), text(" b")], [text("a"), text("b")]),
            ([text("a "), IMAGE], [text("a"), IMAGE]),
            ([IMAGE, text(" a")], [IMAGE, text("a")]),
        ]
        for one, other in differing:
            with self.subTest(one=one):
                self.assertNotEqual(key_of(asking(one)), key_of(asking(other)))

    def test_other_texts_stay_as_they_are(self) -> None:
        """A name, a tool call's arguments, a part that is no text, a text of the top level."""
        for one, other in (
            ({"name": "a"}, {"name": "a "}),
            ({"refusal": "a"}, {"refusal": "a "}),
            ({"content": [{"type": "file", "text": "a"}]}, {"content": [{"type": "file", "text": "a "}]}),
            ({"content": ["a"]}, {"content": ["a "]}),
        ):
            with self.subTest(one=one):
                bodies = [
                    asking("x") | {"messages": [{"role": "user", "content": "x", **more}]} for more in (one, other)
                ]
                self.assertNotEqual(key_of(bodies[0]), key_of(bodies[1]))
        self.assertNotEqual(key_of(asking("x", user="a")), key_of(asking("x", user="a ")))


class StorableTest(unittest.TestCase):
    """Which answers may be kept."""

    def judge(self, *, private: bool = False, no_store: bool = False, choices: int = 1, **fields: Any) -> bool:
        body = {name: value for name, value in {"temperature": 0, **fields}.items() if value != "absent"}
        return may_be_stored(body, private=private, no_store=no_store, choices=choices)

    def test_a_request_for_one_exact_answer_may_be(self) -> None:
        """Temperature 0 in any spelling; tools that are null are none."""
        self.assertTrue(self.judge())
        self.assertTrue(self.judge(temperature=0.0))
        self.assertTrue(self.judge(tools=None, functions=None))

    def test_no_other_may_be(self) -> None:
        """Each of these alone forbids it."""
        refused: list[Body] = [
            {"temperature": "absent"},
            {"temperature": None},
            {"temperature": False},
            {"temperature": "0"},
            {"temperature": 1e-9},
            {"temperature": 1},
            {"tools": []},
            {"tools": [TOOL]},
            {"functions": []},
        ]
        for fields in refused:
            with self.subTest(fields):
                self.assertFalse(self.judge(**fields))
        self.assertFalse(self.judge(private=True))
        self.assertFalse(self.judge(no_store=True))
        self.assertFalse(self.judge(choices=2))
