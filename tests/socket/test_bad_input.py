"""Request bodies that cannot be served: each is refused by name, holds nothing, and leaves the connection alive."""

import gzip
import json
from typing import Any

from tests.support.front import CHAT, COST_NANOUSD, FrontCase, Reply, whole
from tests.support.world import chat

GOOD = json.dumps(chat()).encode()
HI = [{"role": "user", "content": "hi"}]


def body(text: str) -> bytes:
    """A good body with more text at the end of its object."""
    return GOOD[:-1] + b", " + text.encode() + b"}"


NOT_JSON = [
    b"",
    b" ",
    b"{",
    b"null",
    b"7",
    b'"text"',
    b"[]",
    b"[" * 100_000,
    b'{"model":' * 100_000,
    b"<xml/>",
    b"model=mini",
    GOOD[:-1],
    GOOD + b"}",
    GOOD + GOOD,
    GOOD.replace(b'"', b"'"),
    b"\xef\xbb\xbf" + GOOD,
    GOOD.replace(b"hi", b"\xff\xfe"),
    GOOD.replace(b"hi", b"\xed\xa0\xbd"),
    GOOD.replace(b"hi", b"\xc0\xaf"),
    GOOD.replace(b"hi", b"\x00"),
    GOOD.decode().encode("utf-16"),
    gzip.compress(GOOD),
]
"""Not the JSON object of a request at all; the fault is the body's."""

AMBIGUOUS: list[tuple[bytes, str]] = [
    (body('"model": "mini"'), "model"),
    (body('"max_tokens": 5, "max_tokens": 5000'), "max_tokens"),
    (GOOD.replace(b'"role"', b'"role": "system", "role"'), "messages"),
    (body('"metadata": {"a": {"b": 1, "b": 2}}'), "metadata"),
    (body('"temperature": NaN'), "temperature"),
    (body('"logit_bias": {"5": -Infinity}'), "logit_bias"),
    (body('"top_p": 1e999'), "top_p"),
    (body('"seed": 1' + "0" * 30), "seed"),
    (body('"seed": ' + "9" * 100_000), "seed"),
    (GOOD.replace(b"hi", rb"\ud83d"), "messages"),
    (GOOD.replace(b"hi", rb"\ude42\ud83d"), "messages"),
    (body(r'"user": "\udc00"'), "user"),
]
"""JSON that two readers could understand differently, or that one could not read at all."""

WRONG: dict[str, list[Any]] = {
    "model": [None, "", 5, ["mini"]],
    "messages": [None, [], {}, "hi", [1], [HI], ["hi"]],
    "stream": [1, 0, "true", [], {}],
    "n": [0, -1, 129, 1.5, 1.0, "2", True, []],
    "best_of": [0, 10**9, "1"],
    "max_tokens": [0, -1, 1.5, "5", True, 10**18, {}],
    "max_completion_tokens": [0, -1, "5", False],
    "tools": [{}, "x", 1],
    "functions": [{}, True],
    "service_tier": ["flex", "priority", "", 1],
    "audio": [{}, {"voice": "alloy"}],
    "modalities": [["text", "audio"]],
    "web_search_options": [{}],
    "tags": ["x", [1], [""], ["a,b"], ["a\n"], ["t" * 65], ["t"] * 17, {}],
    "private": ["yes", 1, []],
    "prompt_version": [5, "v" * 129, []],
    "cache": ["no-cache", True, []],
}
"""Fields of a type or a range that cannot be routed, metered or priced."""

WRONG_INSIDE: list[tuple[str, Any, str]] = [
    ("stream_options", "x", "stream_options"),
    ("stream_options", {"include_usage": "yes"}, "stream_options.include_usage"),
    ("cache", {"no-cache": 1}, "cache.no-cache"),
    ("cache", {"no-store": "x"}, "cache.no-store"),
]
"""Fields of fields, by their whole paths; stream_options only count on a stream."""


class BadBodyTest(FrontCase):
    def setUp(self) -> None:
        self.gateway = self.live(whole())
        self.connection = self.client(self.gateway)
        self.sent = 0

    def send(self, raw: bytes) -> Reply:
        """One request on the test's one connection."""
        self.sent += 1
        self.connection.request("POST", CHAT, raw, self.gateway.bearer())
        return self.connection.reply()

    def tearDown(self) -> None:
        """Nothing was sent or held for any of them, each has its row, and the same thread serves the next request."""
        front = self.gateway
        self.assertEqual((front.upstream.requests, front.money()), ([], (0, 0, 0)))
        rows = front.rows(self.sent)
        self.assertEqual({(row["exit"], row["status"], row["state"]) for row in rows}, {("rejected", 400, "none")})
        self.assertEqual(self.send(GOOD).status, 200)
        self.assertEqual(front.money(), (COST_NANOUSD, 0, 0))
        self.assertEqual(front.server.connections, 1)

    def test_what_is_not_a_json_object_is_refused(self) -> None:
        """Cut, doubled, of another encoding, compressed, or nested without end."""
        for raw in NOT_JSON:
            with self.subTest(raw=raw[:60]):
                self.assert_error(self.send(raw), 400, "invalid_request", "body")

    def test_what_could_be_read_in_two_ways_is_refused(self) -> None:
        """What is priced must be what is sent."""
        for raw, param in AMBIGUOUS:
            with self.subTest(raw=raw[-60:]):
                self.assert_error(self.send(raw), 400, "invalid_request", param)

    def test_a_wrong_field_is_named(self) -> None:
        """Of a wrong type, out of its range, or missing."""
        for name, value in [(name, value) for name, values in WRONG.items() for value in values]:
            with self.subTest(name=name, value=value):
                self.assert_error(self.send(json.dumps({**chat(), name: value}).encode()), 400, "invalid_request", name)
        for name in "model", "messages":
            fields = {key: value for key, value in chat().items() if key != name}
            self.assert_error(self.send(json.dumps(fields).encode()), 400, "invalid_request", name)

    def test_a_wrong_field_of_a_field_is_named(self) -> None:
        """Options inside of options."""
        for name, value, param in WRONG_INSIDE:
            with self.subTest(name=name, value=value):
                raw = json.dumps({**chat(), "stream": True, name: value}).encode()
                self.assert_error(self.send(raw), 400, "invalid_request", param)


class OddBodyTest(FrontCase):
    def test_odd_but_sound_bodies_are_served(self) -> None:
        """What a strict reader must not refuse: null for absent, deep schemas, escapes, large seeds, spaces."""
        front = self.live(whole())
        deep: Any = "leaf"
        for _ in range(90):
            deep = {"a": deep}
        nulls = dict.fromkeys(("stream", "stream_options", "n", "max_tokens", "tools", "cache", "tags", "private"))
        for raw in (
            b" \r\n\t" + GOOD + b"\n",
            json.dumps({**chat(), **nulls, "audio": None, "service_tier": None}).encode(),
            json.dumps({**chat(), "metadata": deep, "seed": 2**64 - 1}).encode(),
            GOOD.replace(b"hi", rb"\ud83d\ude42 \u0000 [[[[{{{{ \" \\"),
            GOOD.replace(b"hi", b"[" * 200),
            json.dumps({**chat(), "": 1, "toString": 2, "__proto__": {}}).encode(),
        ):
            with self.subTest(raw=raw[-60:]):
                self.assertEqual(front.ask("POST", CHAT, raw).status, 200)
        self.assertEqual(len(front.upstream.requests), 6)
