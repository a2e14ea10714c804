"""The wire rules of an OpenAI-compatible endpoint, one by one, over real sockets on both sides."""

import json
import threading
from collections.abc import Mapping
from typing import Any

from gateway.headers import go_duration
from gateway.server import FrontLimits
from llmkit.openai import GATEWAY_FIELDS, NEVER_FORWARD
from tests.support.front import (
    CHAT,
    COST_NANOUSD,
    DONE,
    END,
    PROVIDER_KEY,
    ROLE,
    STOP,
    STREAM_HEAD,
    USAGE,
    USAGE_EVENT,
    USAGE_WANTED,
    Front,
    FrontCase,
    LiveFront,
    Reply,
    ShiftedClock,
    completion,
    either,
    event,
    sse,
    stream,
    whole,
    words,
)
from tests.support.scripted_upstream import Peer, Request
from tests.support.world import chat, scripted

Fields = dict[str, Any]
PLAIN: Fields = {}
STREAMED: Fields = {"stream": True}
FACTS = {
    "x-gateway-exit": "routed",
    "x-gateway-cache": "bypass",
    "x-gateway-deployment": "mini",
    "x-gateway-provider": "up",
    "x-gateway-tier": "cheap",
    "x-gateway-attempts": "1",
    "x-gateway-route": "mini=ok",
}


class PathTest(FrontCase):
    def test_a_path_is_served_where_clients_expect_it(self) -> None:
        """Any query string and a slash at the end change nothing; there are no redirects."""
        front = self.live(whole())
        for path in (CHAT, CHAT + "?api-version=2024-10-21&x=%00", CHAT + "/"):
            self.assertEqual(front.ask("POST", path, chat()).status, 200)
        self.assertEqual(front.upstream.requests[1].line, "POST /v1/chat/completions HTTP/1.1")
        self.assertEqual(front.ask("GET", "/v1/models?limit=1").json["object"], "list")

    def test_an_unknown_path_is_a_json_error(self) -> None:
        """Never a page; the query, which may hold a secret, is not repeated."""
        front = self.front()
        for path in ("/v1/chat", "/v1/chat/completions/x", "/v1/embeddings", "/v2/models", "/", "/admin/keys", "/v1"):
            reply = front.ask("POST", path + "?token=abc", {})
            self.assert_error(reply, 404, "unknown_url")
            self.assertNotIn(b"token", reply.body)

    def test_a_base_url_without_its_version_is_told_the_right_path(self) -> None:
        """Or with two of them; no other path is guessed at."""
        front = self.front()
        for asked, meant in (
            ("/chat/completions?token=abc", "/v1/chat/completions"),
            ("/v1/v1/chat/completions/", "/v1/chat/completions"),
            ("/models", "/v1/models"),
            ("/models/mini", "/v1/models/mini"),
        ):
            reply = front.ask("POST", asked, {})
            self.assert_error(reply, 404, "unknown_url")
            self.assertTrue(reply.json["error"]["message"].endswith(f" Did you mean {meant}?"), reply.body)
        for asked in ("/", "/completions", "/v1/embeddings", "/v2/chat/completions"):
            self.assertNotIn(b"Did you mean", front.ask("POST", asked, {}).body)

    def test_a_wrong_method_says_which_are_right(self) -> None:
        """405 with Allow."""
        front = self.front()
        for method, path, allowed in (
            ("GET", CHAT, "POST"),
            ("DELETE", CHAT, "POST"),
            ("POST", "/v1/models", "GET, HEAD"),
            ("PUT", "/v1/models/mini", "GET, HEAD"),
        ):
            reply = front.ask(method, path)
            self.assert_error(reply, 405, "method_not_allowed")
            self.assertEqual(reply.get("allow"), allowed)

    def test_head_is_get_without_the_body(self) -> None:
        """The same headers; an error too."""
        front = self.front()
        for path, key in ("/v1/models", ""), ("/v1/models/mini", ""), ("/v1/models/nope", ""), ("/v1/models", None):
            get, head = (front.ask(method, path, key=key) for method in ("GET", "HEAD"))
            self.assertEqual((head.status, head.body), (get.status, b""))
            for name in ("content-type", "content-length", "www-authenticate"):
                self.assertEqual(head.get(name), get.get(name))
        self.assertEqual(front.ask("HEAD", "/healthz", key=None).status, 200)

    def test_model_ids_may_hold_slashes(self) -> None:
        """Percent-encoded or not; everything behind /models/ is the id."""
        front = self.front(more_models("org/big:free", "a%2Fb"))
        for path, name in (
            ("org%2Fbig%3Afree", "org/big:free"),
            ("org/big:free", "org/big:free"),
            ("org/big:free?x=1", "org/big:free"),
            ("a%252Fb", "a%2Fb"),
            ("org%2Fbig%3Afree/", "org/big:free"),
        ):
            model = front.ask("GET", f"/v1/models/{path}").json
            self.assertEqual((model["id"], model["object"]), (name, "model"))
            self.assertIs(type(model["created"]), int)
        for path in ("a/b", "org", "%ff", "org%2Fbig:free/x"):
            self.assert_error(front.ask("GET", f"/v1/models/{path}"), 404, "model_not_found", "model")

    def test_health_needs_no_key(self) -> None:
        """Under the names that orchestrators use."""
        front = self.front()
        for path in ("/healthz", "/readyz", "/health/liveliness", "/health/liveness", "/health/readiness"):
            self.assertEqual(front.ask("GET", path, key=None).status, 200)
            self.assertEqual(front.ask("HEAD", path, key=None).status, 200)
            for method in ("POST", "PUT", "DELETE"):
                self.assert_error(front.ask(method, path, b"", key=None), 405, "method_not_allowed")

    def test_browsers_are_not_invited(self) -> None:
        """Without CORS a preflight is refused, but not for want of a key, and nothing allows an origin."""
        front = self.live(whole())
        origin = [("Origin", "https://app.example"), ("Access-Control-Request-Method", "POST")]
        for path, allowed in (CHAT, "POST"), ("/v1/models", "GET, HEAD"), ("/v1/models/mini", "GET, HEAD"):
            for key in None, "":
                preflight = front.ask("OPTIONS", path, headers=origin, key=key)
                self.assert_error(preflight, 405, "method_not_allowed")
                self.assertEqual(preflight.get("allow"), allowed)
                self.assert_uninvited(preflight)
        self.assert_uninvited(front.chat(origin))
        refused = front.chat(origin, key=None)
        self.assert_error(refused, 401, "invalid_api_key")
        self.assert_uninvited(refused)
        for path in "/v1/nope", "/v1/messages":
            nowhere = front.ask("OPTIONS", path, headers=origin, key=None)
            self.assert_error(nowhere, 404, "unknown_url")
            self.assert_uninvited(nowhere)
        self.assertEqual(len(front.upstream.requests), 1)

    def assert_uninvited(self, reply: Reply) -> None:
        """No origin is allowed anything."""
        self.assertFalse([name for name, _ in reply.headers if name.startswith("access-control-")])


def more_models(*names: str) -> str:
    """The configuration of the other tests, with more deployments of the same upstream."""
    base = '[[providers]]\nname = "up"\ndialect = "fake"\nscript = [{ text = "hi" }]\n'
    return base + "".join(
        f'[[deployments]]\nname = "{name}"\nprovider = "up"\nmodel = "m"\nprice = "free"\n' for name in names
    )


class KeyTest(FrontCase):
    def test_a_key_may_come_in_each_of_its_headers(self) -> None:
        """The scheme and the names in any case; the same key twice is one key."""
        front = self.front()
        key = front.key
        for headers in (
            [("Authorization", f"Bearer {key}")],
            [("authorization", f"bearer {key}")],
            [("AUTHORIZATION", f"BEARER   {key}  ")],
            [("x-api-key", key)],
            [("API-Key", key)],
            [("api-key", key), ("x-api-key", key), ("authorization", f"Bearer {key}")],
        ):
            self.assertEqual(front.chat(headers, key=None).status, 200, headers)

    def test_what_is_no_key_is_401_with_one_message(self) -> None:
        """Missing, unknown, expired, blocked, deleted, mangled, in the wrong scheme, or two different ones."""
        front = self.front(clock=(clock := ShiftedClock()))
        key, other = front.key, front.world.key()
        blocked, deleted = (front.world.run("keys.create", tenant="acme") for _ in range(2))
        expired = front.world.run("keys.create", tenant="acme", expires_in_s=60)
        self.assertEqual(front.chat(key=expired["key"]).status, 200)
        clock.shift_s = 60
        front.world.run("keys.block", id=blocked["id"])
        front.world.run("keys.delete", id=deleted["id"])
        messages = set()
        for headers in (
            [],
            [("Authorization", "Bearer")],
            [("Authorization", "Bearer ")],
            [("Authorization", key)],
            [("Authorization", f"Basic {key}")],
            [("Authorization", f"Bearer {key} extra")],
            [("Authorization", f"Bearer {key.lower()}")],
            [("Authorization", f"Bearer {key[:-1]}")],
            [("Authorization", f"Bearer {key}x")],
            [("Authorization", f"Bearer {blocked['key']}")],
            [("Authorization", f"Bearer {deleted['key']}")],
            [("Authorization", f"Bearer {expired['key']}")],
            [("Authorization", "Bearer sk-gw-unknown00000-" + "x" * 43)],
            [("Authorization", f"Bearer {key}"), ("x-api-key", other)],
            [("Authorization", f"Bearer {key}"), ("Authorization", f"Bearer {other}")],
            [("Authorization", f"Bearer {key}"), ("authorization", f"Bearer {key}")],
            [("x-api-key", key), ("X-API-Key", key)],
            [("api-key", key), ("api-key", other)],
            [("x-api-key", "\xff\xfe")],
        ):
            reply = front.chat(headers, key=None)
            self.assert_error(reply, 401, "invalid_api_key")
            self.assertEqual(reply.get("www-authenticate"), "Bearer")
            messages.add(reply.error["message"])
        self.assertEqual(len(messages), 1)
        self.assertEqual(len(front.world.rows()), 1)

    def test_an_empty_key_header_is_no_key(self) -> None:
        """Beside a good one it says nothing."""
        self.assertEqual(self.front().chat([("x-api-key", "")]).status, 200)

    def test_a_key_in_the_url_is_no_key(self) -> None:
        """Addresses are logged everywhere."""
        front = self.front()
        for name in ("api_key", "key", "api-key", "x-api-key", "access_token"):
            self.assert_error(front.ask("GET", f"/v1/models?{name}={front.key}", key=None), 401, "invalid_api_key")

    def test_a_key_is_checked_before_anything_is_said(self) -> None:
        """Not the path, not the method, not the body."""
        front = self.front()
        for method, path, body in ("POST", CHAT, b"{junk"), ("GET", CHAT, None), ("GET", "/v1/nope", None):
            self.assert_error(front.ask(method, path, body, key=None), 401, "invalid_api_key")


class TransportTest(FrontCase):
    def test_a_connection_goes_on_after_answers_and_errors(self) -> None:
        """Also after a stream, and after an error whose body was read."""
        client = self.client(front := self.live(either(completion(), *words("a"))))
        statuses = []
        wrong: list[Fields] = [{"n": 0}, {"model": "nope"}, {"stream": True, "messages": []}]
        for fields in (PLAIN, STREAMED, *wrong, PLAIN):
            client.chat(**fields)
            statuses.append(client.reply().status)
        self.assertEqual(statuses, [200, 200, 400, 404, 400, 200])
        self.assertEqual(front.server.connections, 1)

    def test_a_refusal_before_the_body_was_read_closes(self) -> None:
        """Else what is left of the body would be the next request."""
        front = self.front(limits=FrontLimits(max_body_bytes=1000))
        for body, headers in (b"{}", []), (b"x" * 2000, front.bearer()), (b"{}", [*front.bearer(), BAD_TIMEOUT]):
            client = self.client(front)
            client.request("POST", CHAT, body, headers)
            reply = client.reply()
            self.assertIn(reply.status, (401, 413, 400))
            self.assertEqual((reply.get("connection"), client.rest()), ("close", b""))

    def test_a_body_may_come_in_chunks(self) -> None:
        """Cut anywhere, also within a character; what is priced and sent is the whole."""
        front = self.live(whole())
        body = json.dumps(chat("日本語 🙂"), ensure_ascii=False).encode()
        client = self.client(front)
        client.request("POST", CHAT, None, [*front.bearer(), ("Transfer-Encoding", "chunked")])
        for byte in body:
            client.sock.sendall(b"1;ext=1\r\n" + bytes([byte]) + b"\r\n")
        client.sock.sendall(b"0\r\n\r\n")
        self.assertEqual(client.reply().status, 200)
        self.assertEqual(front.upstream.body["messages"][0]["content"], "日本語 🙂")

    def test_a_client_that_expects_100_continue_gets_it(self) -> None:
        """But not if its request is refused anyway; another expectation is 417."""
        front = self.live(whole())
        body = json.dumps(chat()).encode()
        fields = [("Expect", "100-continue"), ("Content-Length", str(len(body)))]
        client = self.client(front)
        client.request("POST", CHAT, None, [*front.bearer(), *fields])
        self.assertEqual(client.head(), (100, []))
        client.sock.sendall(body)
        self.assertEqual(client.reply().status, 200)
        client = self.client(front)
        client.request("POST", CHAT, None, fields)
        self.assertEqual(client.reply().status, 401)
        self.assertEqual(front.ask("POST", CHAT, b"{}", [("Expect", "tea")]).status, 417)

    def test_nothing_is_compressed(self) -> None:
        """Neither for a client that could read it, nor by an upstream that might."""
        front = self.live(either(completion(), *words("a")))
        for fields in PLAIN, STREAMED:
            reply = front.chat([("Accept-Encoding", "gzip, deflate, br, zstd")], **fields)
            self.assertIsNone(reply.get("content-encoding"))
        self.assertEqual({request.get("accept-encoding") for request in front.upstream.requests}, {"identity"})

    def test_escaped_and_raw_text_are_the_same_text(self) -> None:
        """JSON is UTF-8 both ways, and neither form is changed into something else."""
        front = self.live(whole(completion("caf\u00e9 日本 🙂")))
        for ensure_ascii in True, False:
            body = json.dumps(chat("caf\u00e9 日本 🙂"), ensure_ascii=ensure_ascii).encode()
            reply = front.ask("POST", CHAT, body)
            self.assertEqual(reply.json["choices"][0]["message"]["content"], "café 日本 🙂")
            self.assertEqual(front.upstream.body["messages"][0]["content"], "café 日本 🙂")


BAD_TIMEOUT = ("x-gateway-timeout-s", "soon")


class ForwardingTest(FrontCase):
    def sent(self, front: LiveFront, **fields: Any) -> dict[str, Any]:
        """What the upstream is asked for when a client sends `fields`."""
        self.assertEqual(front.chat(**fields).status, 200)
        return front.upstream.body

    def test_what_the_gateway_does_not_know_travels_on(self) -> None:
        """Values, nulls, and the order of keys and messages are the client's."""
        body = {
            "top_k": 5,
            "model": "mini",
            "guided_json": {"z": None, "a": [1.5, True, "x", 12345678901234567890]},
            "messages": [
                {"role": "developer", "content": "be brief", "name": "x"},
                {"content": [{"type": "text", "text": "a"}], "role": "user"},
                {"role": "assistant", "content": None, "tool_calls": []},
            ],
            "seed": None,
            "metadata": {"api_base": "http://x"},
            "max_tokens": 5,
        }
        front = self.live(whole())
        self.assertEqual(front.ask("POST", CHAT, body).status, 200)
        expected = {**body, "model": "gw-mini"}
        del expected["max_tokens"]
        self.assertEqual(list(front.upstream.body.items()), [*expected.items(), ("max_completion_tokens", 5)])

    def test_the_output_cap_has_the_upstreams_name(self) -> None:
        """One of the two; the newer one wins, and without any the gateway sends its own."""
        front = self.live(whole())
        for fields, cap in (
            ({"max_tokens": 7}, 7),
            ({"max_completion_tokens": 8}, 8),
            ({"max_tokens": 7, "max_completion_tokens": 8}, 8),
            ({"max_tokens": None}, 16_384),
        ):
            sent = self.sent(front, **fields)
            self.assertEqual((sent["max_completion_tokens"], "max_tokens" in sent), (cap, False))

    def test_only_streams_are_asked_for_usage(self) -> None:
        """The client's other stream options stay; elsewhere an upstream would refuse the field."""
        answer = either(completion(), *words("a"))
        front = self.live(answer)
        self.assertNotIn("stream_options", self.sent(front))
        self.assertNotIn("stream_options", self.sent(front, stream=False, stream_options={"include_usage": True}))
        self.assertEqual(self.sent(front, stream=True)["stream_options"], {"include_usage": True})
        options = {"include_usage": False, "include_obfuscation": False}
        sent = self.sent(front, stream=True, stream_options=options)["stream_options"]
        self.assertEqual(sent, {"include_usage": True, "include_obfuscation": False})
        front = self.live(answer, provider="stream_usage = false")
        self.assertNotIn("stream_options", self.sent(front, stream=True))

    def test_what_speaks_to_the_gateway_stays_there(self) -> None:
        """In the body and in headers alike."""
        fields: Fields = {
            "tags": ["batch"],
            "private": True,
            "prompt_version": "v7",
            "cache": {"no-store": True, "ttl": 5},
        }
        headers = [
            ("x-gateway-tags", "nightly, x"),
            ("x-gateway-private", "true"),
            ("x-gateway-prompt-version", "v8"),
            ("cache-control", "no-cache, no-store"),
            ("x-gateway-timeout-s", "60"),
        ]
        self.assertEqual(set(fields), set(GATEWAY_FIELDS))
        front = self.live(whole())
        for in_headers, in_body in (headers, PLAIN), ([], fields), (headers, fields):
            self.assertEqual(front.chat(in_headers, **in_body).status, 200)
            request = front.upstream.requests[-1]
            self.assertEqual(set(front.upstream.body), {"model", "messages", "max_completion_tokens"})
            self.assertFalse([name for name, _ in request.headers if "gateway" in name or name == "cache-control"])
        self.assertEqual([row["tags"] for row in front.rows(3)], ["nightly,x", "batch", "batch"])

    def test_what_steers_a_client_library_never_travels_on(self) -> None:
        """Every name of the published list, and only at the top."""
        front = self.live(whole())
        evil = dict.fromkeys(NEVER_FORWARD, "http://127.0.0.1:9/evil")
        self.assertEqual(front.ask("POST", CHAT, {**chat(), **evil, "metadata": evil}).status, 200)
        self.assertEqual(set(front.upstream.body), {"model", "messages", "metadata", "max_completion_tokens"})
        self.assertEqual(front.upstream.body["metadata"], evil)

    def test_credentials_never_cross(self) -> None:
        """The upstream sees its own key and none of the client's headers, the client none of the upstream's."""
        secret = "set-cookie: session=s3cret\r\nx-ratelimit-limit-requests: 1\r\nopenai-organization: org-provider\r\n"
        front = self.live(whole(headers=secret + "x-request-id: theirs\r\nserver: theirs\r\n"))
        headers = [
            ("x-api-key", front.key),
            ("Cookie", "c=1"),
            ("OpenAI-Organization", "org-client"),
            ("OpenAI-Project", "proj"),
            ("x-stainless-lang", "python"),
            ("X-Forwarded-For", "10.0.0.1"),
            ("anthropic-version", "2023-06-01"),
            ("Connection", "keep-alive, x-hop"),
            ("x-hop", "1"),
        ]
        reply = front.chat(headers)
        (request,) = front.upstream.requests
        self.assertEqual(request.get("authorization"), f"Bearer {PROVIDER_KEY}")
        self.assertEqual(
            {name for name, _ in request.headers},
            {"host", "accept-encoding", "content-length", "content-type", "accept", "user-agent", "traceparent"}
            | {"authorization"},
        )
        self.assertNotIn(front.key, repr(request))
        self.assertNotIn("theirs", repr(reply.headers))
        for name in ("set-cookie", "x-ratelimit-limit-requests", "openai-organization", "server"):
            self.assertIsNone(reply.get(name))

    def test_a_trace_goes_on_at_the_upstream(self) -> None:
        """The client's trace id, the gateway's own span."""
        trace = "0af7651916cd43dd8448eb211c80319c"
        front = self.live(whole())
        front.chat([("traceparent", f"00-{trace}-b7ad6b7169203331-01")])
        _, sent_trace, span, _ = (front.upstream.requests[0].get("traceparent") or "").split("-")
        self.assertEqual(sent_trace, trace)
        self.assertNotEqual(span, "b7ad6b7169203331")

    def test_a_service_tier_without_a_price_is_refused(self) -> None:
        """It would multiply the bill; the two that do not, travel on."""
        front = self.live(whole())
        for tier in ("auto", "default", None):
            self.assertEqual(self.sent(front, service_tier=tier)["service_tier"], tier)
        for value in ("flex", "priority", "", 1, ["auto"]):
            self.assert_error(front.chat(service_tier=value), 400, "invalid_request", "service_tier")
        self.assertEqual(len(front.upstream.requests), 3)


class WholeAnswerTest(FrontCase):
    def test_an_answer_in_the_known_form_is_the_same_bytes(self) -> None:
        """Spaces, unknown fields and the order of keys included."""
        raw = b"\n" + json.dumps({**completion("\u00e9", x_vendor=1), "zz": {"b": 1, "a": 2}}, indent=1).encode()
        front = self.live(whole(raw))
        reply = front.chat()
        self.assertEqual(reply.body, raw.lstrip())
        self.assertEqual(
            (reply.get("content-type"), reply.get("content-length")), ("application/json", str(len(raw) - 1))
        )

    def test_another_answer_is_given_the_form(self) -> None:
        """Keys that the schema requires, arguments as text, a known finish reason; nothing else is lost."""
        call = {"function": {"name": "f", "arguments": {"a": 1}}}
        bare = {"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_use"}], "extra": 1}
        answer = self.live(whole(bare)).chat().json
        choice = answer["choices"][0]
        self.assertEqual((answer["object"], answer["extra"], choice["index"]), ("chat.completion", 1, 0))
        self.assertTrue(answer["id"] and type(answer["created"]) is int and type(answer["model"]) is str)
        self.assertEqual((choice["finish_reason"], choice["logprobs"]), ("tool_calls", None))
        self.assertEqual({key: choice["message"][key] for key in ("role", "content", "refusal")}, BARE_MESSAGE)
        (made,) = choice["message"]["tool_calls"]
        self.assertEqual((made["type"], json.loads(made["function"]["arguments"])), ("function", {"a": 1}))
        self.assertTrue(made["id"])

    def test_the_facts_stand_beside_the_answer(self) -> None:
        """Every fact once, and the cost as an exact decimal."""
        front = self.live(whole())
        reply = front.chat()
        self.assertEqual({name: reply.get(name) for name in FACTS}, FACTS)
        self.assertEqual(reply.get("x-gateway-cost-usd"), "0.000027")
        self.assertRegex(reply.get("x-gateway-overhead-ms") or "", r"\A\d+\.\d{3}\Z")
        (row,) = front.rows(1)
        self.assertEqual((row["request_id"], row["cost_nanousd"]), (reply.get("x-request-id"), COST_NANOUSD))

    def test_cache_control_is_obeyed(self) -> None:
        """As in the body; `max-age=0` says no-cache."""
        front = self.front()
        said = [
            front.chat([("Cache-Control", control)] if control else [], temperature=0).get("x-gateway-cache")
            for control in (None, None, "no-cache", "max-age=0", "private, No-Cache", "no-store", "max-age=60")
        ]
        self.assertEqual(said, ["miss", "hit", "bypass", "bypass", "bypass", "hit", "hit"])
        self.assertIsNotNone(front.chat(temperature=0).get("age"))
        self.assertIsNone(front.chat(temperature=1).get("age"))

    def test_json_for_a_stream_is_told_as_one(self) -> None:
        """Clients would see an empty answer without an error."""
        front = self.live(whole())
        reply = front.chat(stream=True)
        payloads = [line.removeprefix(b"data: ") for line in reply.body.split(b"\n\n") if line]
        self.assertEqual((reply.status, payloads[-1]), (200, b"[DONE]"))
        chunks = [json.loads(payload) for payload in payloads[:-1]]
        self.assertEqual({chunk["object"] for chunk in chunks}, {"chat.completion.chunk"})
        said = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
        self.assertEqual(said, json.loads(self.live(whole()).chat().body)["choices"][0]["message"]["content"])


BARE_MESSAGE = {"role": "assistant", "content": None, "refusal": None}


class StreamTest(FrontCase):
    def test_a_stream_begins_as_clients_and_proxies_need(self) -> None:
        """Its type, no caching, no buffering, no length; and the facts known by then, but no cost."""
        reply = self.live(stream(*words("a"))).chat(stream=True)
        self.assertEqual((reply.get("content-type") or "").partition(";")[0], "text/event-stream")
        self.assertEqual((reply.get("cache-control"), reply.get("x-accel-buffering")), ("no-cache", "no"))
        self.assertEqual((reply.get("transfer-encoding"), reply.get("content-length")), ("chunked", None))
        self.assertEqual({name: reply.get(name) for name in FACTS}, FACTS)
        self.assertIsNone(reply.get("x-gateway-cost-usd"))
        self.assertTrue(reply.get("x-request-id"))

    def test_events_in_the_known_form_are_the_same_bytes(self) -> None:
        """Each framed alone, in order, with one end mark behind them."""
        events = [
            event({"role": "assistant", "content": ""}, service_tier="default"),
            event({"content": "日本語"}, obfuscation="xyz").replace(b": ", b" :  "),
            event({"content": "\u2028\\n"}, system_fingerprint=None),
            event({"reasoning_content": "hm", "unknown": {"a": []}}),
            event({}, "stop"),
        ]
        reply = self.live(stream(*events, USAGE_EVENT, DONE)).chat(stream=True)
        self.assertEqual(reply.payloads, [*events, DONE])
        self.assertEqual(reply.pieces[:-1], [b"data: " + payload + b"\n\n" for payload in events])

    def test_each_event_leaves_before_the_next_has_come(self) -> None:
        """From the first content on, the upstream sends the next one only after the client has read the last."""
        read = [threading.Event() for _ in range(3)]

        def step_by_step(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD, sse(ROLE), sse(event({"content": "a"})))
            self.wait(read[1])
            peer.send(sse(event({"content": "b"})))
            self.wait(read[2])
            peer.send(sse(STOP), END)

        client = self.client(self.live(step_by_step))
        client.chat(stream=True)
        self.assertEqual(client.head()[0], 200)
        for payload, event_read in zip((ROLE, event({"content": "a"}), event({"content": "b"})), read, strict=True):
            self.assertEqual(client.piece(), b"data: " + payload + b"\n\n")
            event_read.set()
        self.assertEqual(b"".join(iter(client.piece, None)), b"data: " + STOP + b"\n\ndata: [DONE]\n\n")

    def test_usage_comes_only_if_asked_and_last(self) -> None:
        """One chunk without choices, with the cost; otherwise no trace of usage and no empty choices."""
        chatty = [ROLE, event({"content": "a"}, usage=USAGE), event(finish="stop", x_groq={"id": "x", "usage": USAGE})]
        chatty += [event(choices=[], usage=USAGE), DONE]
        front = self.live(stream(*chatty))
        for fields in STREAMED, {**STREAMED, "stream_options": {"include_usage": False}}:
            chunks = front.chat(**fields).chunks
            self.assertTrue(all(chunk["choices"] and chunk.get("usage") is None for chunk in chunks))
            self.assertEqual(chunks[-1]["x_groq"], {"id": "x"})
        reply = front.chat(**USAGE_WANTED)
        *chunks, last = reply.chunks
        self.assertTrue(all(chunk["choices"] and chunk.get("usage") is None for chunk in chunks))
        self.assertEqual((last["choices"], last["object"]), ([], "chat.completion.chunk"))
        self.assertLessEqual(USAGE.items(), last["usage"].items())
        self.assertIn(b'"cost_usd":0.000027}', reply.payloads[-2])
        self.assertEqual(reply.payloads[-1], DONE)
        self.assertEqual({row["cost_nanousd"] for row in front.rows(3)}, {COST_NANOUSD})

    def test_a_stream_has_one_form_whatever_came(self) -> None:
        """One id, model and time; one role and one finish reason per choice; the object's name; [DONE] once."""
        untidy = [
            event(choices=[], prompt_filter_results=[]),
            event({"role": "assistant", "content": "a"}, id=""),
            event({"role": "assistant", "content": "b"}, object="chat.completion", model="other"),
            event({}, "eos"),
            event({}, "stop"),
        ]
        reply = self.live(stream(*untidy, USAGE_EVENT)).chat(stream=True)
        chunks = reply.chunks
        self.assertEqual(reply.payloads.count(DONE), 1)
        self.assertEqual(
            {(chunk["object"], chunk["id"], chunk["model"], chunk["created"]) for chunk in chunks}, ONE_HEAD
        )
        choices = [chunk["choices"][0] for chunk in chunks]
        self.assertEqual([choice["delta"]["role"] for choice in choices if "role" in choice["delta"]], ["assistant"])
        self.assertEqual([reason for choice in choices if (reason := choice["finish_reason"])], ["stop"])
        self.assertEqual(reply.text, "ab")

    def test_each_of_several_choices_is_finished_once(self) -> None:
        """Their deltas interleave; the stream is whole when all have their reason."""
        both = [
            event(choices=[{"index": index, "delta": {"content": text}, "logprobs": None, "finish_reason": finish}])
            for index, text, finish in ((1, "x", None), (0, "a", None), (1, "y", "length"), (0, "b", "stop"))
        ]
        front = self.live(stream(*both, USAGE_EVENT), stream(*both[:3]))
        reply = front.chat(stream=True, n=2)
        texts = dict.fromkeys(range(2), "")
        for chunk in reply.chunks:
            for choice in chunk["choices"]:
                texts[choice["index"]] += choice["delta"].get("content") or ""
        self.assertEqual((texts, reply.payloads[-1]), ({0: "ab", 1: "xy"}, DONE))
        client = self.client(front)
        client.chat(stream=True, n=2)
        self.assertEqual(json.loads(client.cut_reply().payloads[-1])["error"]["code"], "stream_truncated")

    def test_an_error_in_a_stream_is_an_event_and_then_the_end(self) -> None:
        """All four keys, no [DONE], and a message that is not finished; nothing of the upstream's words."""
        failed = json.dumps({"error": {"message": f"no {PROVIDER_KEY}", "type": "x", "code": 5}}).encode()
        word = event({"content": "b"})
        front = self.live(stream(ROLE, event({"content": "a"}), failed, DONE), stream(ROLE, word, b"{junk", DONE))
        for said in "a", "b":
            client = self.client(front)
            client.chat(stream=True)
            reply = client.cut_reply()
            *chunks, last = [json.loads(payload) for payload in reply.payloads]
            self.assertEqual("".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks), said)
            self.assertEqual(set(last["error"]), {"message", "type", "param", "code"})
            self.assertEqual((last["error"]["code"], last["error"]["type"]), ("upstream_error", "server_error"))
            self.assertNotIn(b"provider", reply.body)

    def test_an_error_before_the_first_event_has_its_status(self) -> None:
        """A stream's head waits for something to say, which a role is not."""
        failed = json.dumps({"error": {"message": "overloaded"}}).encode()
        silent = [[failed], [b"{junk"], [], [DONE], [ROLE, failed], [ROLE, b"{junk"], [ROLE], [ROLE, DONE]]
        front = self.live(*(stream(*payloads) for payloads in silent))
        for _ in silent:
            self.assert_error(front.chat(stream=True), 502, "upstream_error")
        self.assertEqual({row["exit"] for row in front.rows(len(silent))}, {"failed"})


ONE_HEAD = {("chat.completion.chunk", "chatcmpl-1", "gw-mini", 1_767_225_600)}


class ErrorTest(FrontCase):
    def told(self, status: str, body: Any, headers: str = "") -> Any:
        """What the client is told when the upstream answers so."""
        front = self.live(whole(body, status=status, headers=headers))
        reply = front.chat()
        self.assertEqual(reply.get("x-gateway-attempts"), "1")
        return reply

    def test_the_clients_own_fault_is_passed_on_with_its_message(self) -> None:
        """In the one form, whatever form it came in; 422 becomes 400."""
        for status, body, told, message in (
            (
                "400 Bad",
                {"error": {"message": "bad temperature", "param": "temperature", "code": None}},
                400,
                "bad temp",
            ),
            ("422 No", {"detail": [{"loc": ["body", "top_p"], "msg": "too big"}]}, 400, "too big"),
            ("413 Big", {"message": "too long a prompt"}, 413, "too long"),
            ("400 Bad", b"plain words", 400, "plain words"),
            ("400 Bad", [{"error": {"code": 400, "message": "listed", "status": "INVALID_ARGUMENT"}}], 400, "listed"),
            ("400 Bad", b"<html>nginx</html>", 400, "HTTP 400"),
        ):
            reply = self.told(status, body)
            self.assertEqual((reply.status, set(reply.error)), (told, {"message", "type", "param", "code"}))
            self.assertIn(message, reply.error["message"])
            self.assertEqual(reply.error["type"], "invalid_request_error")
            self.assertIs(type(reply.error["code"]), str)

    def test_the_operators_fault_is_never_shown_as_the_clients(self) -> None:
        """A client would throw away a good key. The message says nothing of the upstream's."""
        for status in ("401 No", "402 Pay", "403 No", "404 No", "409 No", "302 Away"):
            reply = self.told(status, {"error": {"message": "secret plan"}}, headers="location: http://x/\r\n")
            self.assert_error(reply, 502, "upstream_error")
            self.assertNotIn(b"secret plan", reply.body)
            self.assertEqual(reply.get("x-gateway-exit"), "failed")

    def test_an_upstream_that_fails_is_503_or_504(self) -> None:
        """With Retry-After where a retry can help."""
        for status in ("500 Oops", "503 Busy", "529 Busy", "408 Slow"):
            reply = self.told(status, b"")
            self.assert_error(reply, 503, "all_providers_failed")
            self.assertEqual(reply.get("retry-after"), "1")

    def test_a_rate_limit_of_the_upstream_says_when(self) -> None:
        """In whole seconds, at least one, an hour at most, and what the file says if it does not; a wait that no client
        should sleep through is marked so.
        """
        for header, seconds, should_retry in (
            ("retry-after: 7\r\n", "7", None),
            ("retry-after-ms: 1200\r\n", "2", None),
            ("retry-after: 0\r\n", "1", None),
            ("", "5", None),
            ("retry-after: 3600\r\n", "3600", "false"),
            ("retry-after: 86400\r\n", "3600", "false"),
        ):
            reply = self.told("429 Slow", {"error": {"message": "x"}}, header)
            self.assert_error(reply, 429, "rate_limit_exceeded")
            self.assertEqual((reply.get("retry-after"), reply.get("x-should-retry")), (seconds, should_retry))

    def test_junk_is_502_and_costs_what_it_may(self) -> None:
        """Answers of 200 that are none."""
        junk: list[Any] = [b"", b"{", b"[]", b"<html>", {"choices": []}, {"error": "x"}, {"id": 1}]
        for body in junk:
            self.assert_error(self.told("200 OK", body), 502, "upstream_error")
        self.assert_error(self.told("200 OK", None, "content-encoding: gzip\r\n"), 502, "upstream_error")

    def test_every_error_carries_what_is_known(self) -> None:
        """The facts of the attempt that was made, and none of one that was not."""
        failed = self.told("500 Oops", b"")
        self.assertEqual((failed.get("x-gateway-deployment"), failed.get("x-gateway-route")), ("mini", "mini=server"))
        self.assertEqual((failed.get("x-gateway-exit"), failed.get("x-gateway-cost-usd")), ("failed", "0"))
        refused = self.front().chat(model="nope")
        self.assertEqual((refused.get("x-gateway-exit"), refused.get("x-gateway-attempts")), ("rejected", "0"))
        self.assertIsNone(refused.get("x-gateway-deployment"))

    def test_refusals_of_http_itself_are_json_too(self) -> None:
        """Each with its code, and the connection closes."""
        front = self.front(limits=FrontLimits(max_body_bytes=1000))
        for request, status, code in (
            (b"GET / HTTP/1.1\r\n\r\n", 400, "invalid_request"),
            (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: gw\r\n\r\n", 414, "uri_too_long"),
            (b"GET / HTTP/1.1\r\nHost: gw\r\n" + b"A: b\r\n" * 99 + b"\r\n", 431, "headers_too_large"),
            (self.raw(front, "Content-Length: 5", "Expect: tea"), 417, "expectation_failed"),
            (self.raw(front, "Content-Length: 5000"), 413, "request_too_large"),
            (self.raw(front, "Content-Length: 5", "Content-Length: 6"), 400, "invalid_request"),
            (self.raw(front, "Content-Type: text/plain", "Content-Type: application/json"), 400, "invalid_request"),
        ):
            client = self.client(front)
            client.sock.sendall(request)
            reply = client.reply()
            self.assert_error(reply, status, code)
            self.assertEqual(reply.get("connection"), "close")

    def raw(self, front: Front, *lines: str) -> bytes:
        """The head of a chat request with the front's key."""
        fields = ["Host: gw", f"Authorization: Bearer {front.key}", *lines]
        return "".join([f"POST {CHAT} HTTP/1.1\r\n", *(line + "\r\n" for line in fields), "\r\n"]).encode()


class LimitHeaderTest(FrontCase):
    TENANT = '[[tenants]]\nname = "acme"\nrate_per_s = 0.001\nburst = 2\n'

    def test_a_rate_limit_is_told_on_every_answer_it_concerns(self) -> None:
        """OpenAI's names; whole numbers; a Go duration until all is refilled."""
        front = self.live(either(completion(), *words("a")), more=self.TENANT)
        seen = []
        for fields in PLAIN, STREAMED, PLAIN:
            reply = front.chat(**fields)
            seen.append((reply.status, reply.get(LIMIT), reply.get(LEFT)))
            self.assertRegex(reply.get(RESET) or "", r"\A(\d+m)?\d+(\.\d{1,3})?s\Z")
        self.assertEqual(seen, [(200, "2", "1"), (200, "2", "0"), (429, "2", "0")])
        self.assertEqual((reply.error["code"], reply.error["type"]), ("rate_limit_exceeded", "rate_limit_error"))
        self.assertTrue(900 < int(reply.get("retry-after") or 0) <= 1000, reply.get("retry-after"))

    def test_without_a_limit_nothing_is_told(self) -> None:
        """No number that means nothing."""
        reply = self.front().chat()
        self.assertFalse([name for name, _ in reply.headers if name.startswith("x-ratelimit-")])

    def test_a_duration_is_written_as_go_does(self) -> None:
        """Never rounded down to a moment at which nothing is there yet."""
        for seconds, text in (
            (0, "0ms"),
            (0.12, "120ms"),
            (0.0001, "1ms"),
            (1, "1s"),
            (8.64, "8.64s"),
            (59.9999, "1m0s"),
            (360, "6m0s"),
            (3723, "1h2m3s"),
            (90_000, "25h0m0s"),
        ):
            self.assertEqual(go_duration(seconds), text)


LIMIT, LEFT, RESET = (f"x-ratelimit-{what}-requests" for what in ("limit", "remaining", "reset"))


class BudgetTest(FrontCase):
    def test_a_used_up_budget_says_so_and_not_to_retry(self) -> None:
        """402 without Retry-After: it may be weeks; which level, and when it resets."""
        front = self.live(whole())
        key = front.world.run("keys.create", tenant="acme", budget_usd="0", budget_window="month")["key"]
        reply = front.chat(key=key)
        self.assert_error(reply, 402, "budget_exceeded")
        self.assertEqual(reply.error["type"], "insufficient_quota")
        self.assertEqual((reply.get("x-should-retry"), reply.get("retry-after")), ("false", None))
        self.assertRegex(reply.error["message"], r"key.*resets at \d{4}-\d\d-01T00:00:00Z")
        self.assertEqual(front.upstream.requests, [])

    def test_money_that_only_requests_in_flight_hold_is_worth_a_retry(self) -> None:
        """429 with Retry-After 1."""
        arrived, answer = threading.Event(), threading.Event()

        def waiting(peer: Peer, request: Request) -> None:
            arrived.set()
            self.wait(answer)
            whole()(peer, request)

        front = self.live(waiting)
        key = front.world.key("0.07")
        client = self.client(front)
        client.request("POST", CHAT, chat(), front.bearer(key))
        self.wait(arrived)
        reply = front.chat(key=key)
        self.assert_error(reply, 429, "budget_reserved")
        self.assertEqual((reply.get("retry-after"), reply.error["type"]), ("1", "rate_limit_error"))
        answer.set()
        self.assertEqual(client.reply().status, 200)
        self.assertEqual(front.money(key), (COST_NANOUSD, 0, 0))


class DeadlineTest(FrontCase):
    def test_a_clients_own_time_limit_ends_the_call(self) -> None:
        """504, whether the upstream is a server that says nothing or a fake that sleeps; the money is unresolved."""
        ended = threading.Event()

        def silent(peer: Peer, request: Request) -> None:
            if peer.closed_within(2):
                ended.set()

        limit = [("x-gateway-timeout-s", "0.2")]
        fronts = self.live(silent), self.front(providers=scripted({"text": "late", "latency_s": 60}))
        for front in fronts:
            for fields in PLAIN, STREAMED:
                self.assert_error(front.chat(limit, **fields), 504, "upstream_timeout")
            self.assertEqual({(row["exit"], row["state"]) for row in front.rows(2)}, {("failed", "unresolved")})
            spent, held, unresolved = front.money()
            self.assertEqual((spent, held, unresolved > 0), (0, 0, True))
        self.wait(ended)

    def test_a_time_limit_that_is_none_is_refused(self) -> None:
        """The header is named."""
        front = self.live(whole())
        for value in ("soon", "0", "-1", "nan", "inf", "1e9", ""):
            self.assert_error(
                front.chat([("x-gateway-timeout-s", value)]), 400, "invalid_request", "x-gateway-timeout-s"
            )
        self.assertEqual(front.upstream.requests, [])

    def test_bad_headers_of_the_gateways_own_are_refused(self) -> None:
        """As the fields of the body are."""
        front = self.live(whole())
        headers: Mapping[str, str] = {
            "x-gateway-private": "maybe",
            "x-gateway-prompt-version": "v" * 129,
        }
        for name, value in headers.items():
            self.assert_error(front.chat([(name, value)]), 400, "invalid_request", name)
        self.assert_error(front.chat([("x-gateway-tags", "t" * 65)]), 400, "invalid_request", "x-gateway-tags")
        self.assertEqual(front.upstream.requests, [])
