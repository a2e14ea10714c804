"""A process's whole life with canaries in every place: what it says, writes and passes on is searched for them.

One story is told once: every kind of answer, refusal and upstream failure, whole and streamed, a reload of bad files, a
crash, a restart and a drain. Then the tests look: at every answer byte for byte, at stdout, stderr, the spans and the
data directory, and at what the upstream was sent.
"""

import base64
import contextlib
import gzip
import hashlib
import json
import re
import signal
import socket
import sqlite3
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gateway.cache_entry import unseal
from tests.support.front import (
    CHAT,
    ROLE,
    STREAM_HEAD,
    Answering,
    Upstream,
    completion,
    either,
    event,
    sse,
    stream,
    whole,
    words,
)
from tests.support.process import WAIT_S, GatewayProcess
from tests.support.scripted_upstream import Peer, Request

PROVIDER_KEY = "7hQ2mZ9xKc4vT1bN8sLw/3pRd6fGj0aYe5uXoZt="
ADMIN_SECRET = "admin-Jw8rVn3eYtB6kMz1QxS5uHc9dLg2pFa7oTi4RyEb0CfX"
TYPED_KEY = "sk-typed-Ht6yPz2mVk9wRb4xNq7cLs1dJf8gTe3aUo5iXvCr"
PASTED_WORD = "Uq5nWd2gKb8xRj4vLz7mTc1yHs9fPe3aGo6iDuVt"
PASTED_KEY = f"sk-pasted-{PASTED_WORD}"
UNKNOWN_KEY = "sk-gw-unknownkey01-Zp4kWm7vQs1xNc8bTj3gRd6hLf9yGa2eUo5iCtVwXrE"
PROMPT, ANSWER, CACHED = "PROMPTCANARY-5f0c", "ANSWERCANARY-91be", "CACHEDCANARY-27da"
ARGUMENT, TYPED = "ARGUMENTCANARY-c3a8", "TYPEDCANARY-b64e"
CLIENT_HEADERS = {
    "User-Agent": "AGENTCANARY-01",
    "Cookie": "COOKIECANARY-02",
    "X-Custom": "CUSTOMCANARY-03",
    "X-Request-Id": "IDCANARY-04",
    "tracestate": "STATECANARY-05",
    "Connection": "close, authorization, content-type",
    "Proxy-Authorization": "Basic PROXYCANARY-06",
    "X-Forwarded-Host": "HOSTCANARY-07",
}
IN_CLIENT_HEADERS = [word for value in CLIENT_HEADERS.values() for word in re.findall(r"\w+CANARY-\d+", value)]

RELAYED = frozenset(
    (
        *("content-type", "content-length", "transfer-encoding", "connection", "cache-control", "x-accel-buffering"),
        *("age", "allow", "www-authenticate", "retry-after", "x-should-retry", "x-request-id", "x-gateway-exit"),
        *("x-gateway-cache", "x-gateway-deployment", "x-gateway-provider", "x-gateway-tier", "x-gateway-attempts"),
        *("x-gateway-cache-entry", "x-gateway-route", "x-gateway-cost-usd", "x-gateway-overhead-ms"),
        *("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    )
)
"""Every header of an answer; none of them is an upstream's, and none tells what software this is."""

SENT_UPSTREAM = frozenset(
    (
        "host",
        "content-type",
        "content-length",
        "accept",
        "accept-encoding",
        "user-agent",
        "authorization",
        "traceparent",
    )
)


# --- an upstream that repeats all that it hears ---------------------------------------------------------------------


def _quote(request: Request) -> str:
    return f"key {request.get('authorization')} {PROVIDER_KEY} body {request.body.decode()}"


def _echoing(status: str) -> Answering:
    """Refuses with the credential, the prompt and the client's own text in each field and header."""

    def reply(peer: Peer, request: Request) -> None:
        quote = _quote(request)
        headers = [
            f"{name}: {PROVIDER_KEY}"
            for name in ("x-request-id", "server", "set-cookie", "x-debug", "www-authenticate")
        ]
        headers += [f"location: http://127.0.0.1:9/{PROVIDER_KEY}", "connection: x-debug", "x-powered-by: canary"]
        error = {"message": quote, "type": quote, "code": quote, "param": quote}
        whole({"error": error}, status=status, headers="".join(f"{line}\r\n" for line in headers))(peer, request)

    return reply


def _escaping(peer: Peer, request: Request) -> None:
    """Quotes the credential as some encoders write it, where a long message is cut."""
    said = json.dumps({"error": {"message": "x" * 470 + PROVIDER_KEY}}).replace("/", "\\/")
    whole(said.encode(), status="400 Bad")(peer, request)


def _junk(peer: Peer, request: Request) -> None:
    whole(f"<html>{_quote(request)}".encode())(peer, request)


def _zipped(peer: Peer, request: Request) -> None:
    whole(_quote(request).encode(), headers="content-encoding: gzip\r\n")(peer, request)


def _packed(peer: Peer, request: Request) -> None:
    """Refuses in words that nobody can read without unpacking them."""
    said = json.dumps({"error": {"message": _quote(request)}}).encode()
    whole(gzip.compress(said), status="400 Bad", headers="content-encoding: gzip\r\n")(peer, request)


def _cut(peer: Peer, request: Request) -> None:
    """Breaks off within an event, or within a body that was longer."""
    if json.loads(request.body).get("stream"):
        peer.send(STREAM_HEAD, sse(ROLE), sse(event({"content": ANSWER})), b"fff\r\ndata: " + _quote(request).encode())
    else:
        peer.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n{"
            + _quote(request).encode()
        )


def _failing(peer: Peer, request: Request) -> None:
    """Says an error in an answer of 200, on a stream after the first word."""
    error = {"error": {"message": _quote(request), "code": PROVIDER_KEY, "type": PROVIDER_KEY}}
    either(error, ROLE, event({"content": ANSWER}), json.dumps(error).encode())(peer, request)


def _bad_head(peer: Peer, request: Request) -> None:
    peer.send(f"HTTP/1.1 200 OK\r\n{PROVIDER_KEY} {PROMPT}\x00\r\n\r\n".encode())


def _hanging(peer: Peer, request: Request) -> None:
    if json.loads(request.body)["model"] == "hanging-stream":
        peer.send(STREAM_HEAD, sse(ROLE), sse(event({"content": ANSWER})))
    peer.closed_within(WAIT_S)


_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": ARGUMENT})}}
_OK = whole(
    completion(ANSWER, tool_calls=[_CALL]), headers=f"x-request-id: {PROVIDER_KEY}\r\nset-cookie: a={PROVIDER_KEY}\r\n"
)
UPSTREAMS: dict[str, Answering] = {
    "ok": lambda peer, request: (stream(*words(ANSWER)) if b'"stream":true' in request.body else _OK)(peer, request),
    "cached": whole(completion(CACHED)),
    "escaping": _escaping,
    "junk": _junk,
    "zipped": _zipped,
    "packed": _packed,
    "cut": _cut,
    "failing": _failing,
    "bad-head": _bad_head,
    "silent": _hanging,
    "hanging": _hanging,
    **{
        status[:3]: _echoing(status)
        for status in (
            *("302 Elsewhere", "400 Bad", "401 Who", "402 Pay", "403 No", "404 Where", "408 Late", "413 Big"),
            *("422 What", "429 Slow", "500 Oops", "503 Busy"),
        )
    },
}
"""What each model does; every one is asked for a whole answer and for a stream."""


def _by_model(peer: Peer, request: Request) -> None:
    UPSTREAMS[json.loads(request.body)["model"].removesuffix("-stream")](peer, request)


def config(url: str) -> str:
    """One deployment for each model and each way of asking, so that no pause of one hides another."""
    text = "[server]\nannounce_s = 0\ndrain_s = 5\nmax_body_bytes = 100_000\n[retry]\nmax_retries = 0\n"
    for provider, more in ("up", ""), ("impatient", "ttft_timeout_s = 0.2\n"):
        text += f'[[providers]]\nname = "{provider}"\nbase_url = "{url}"\napi_key_env = "UP_KEY"\n{more}'
    text += f'[[providers]]\nname = "pasted"\nbase_url = "{url}"\napi_key_env = "{PASTED_WORD}"\n'
    for name in (f"{name}{kind}" for name in UPSTREAMS for kind in ("", "-stream")):
        provider = "impatient" if name.startswith("silent") else "up"
        text += f'[[deployments]]\nname = "{name}"\nprovider = "{provider}"\nmodel = "{name}"\n'
        text += "price = { input = 1, output = 4 }\n"
    text += '[[tenants]]\nname = "walled"\nmodels = ["cached"]\n'
    return text + '[[tenants]]\nname = "slow"\nrate_per_s = 0.001\nburst = 1\n'


PATHS = (
    *("/", "//", "/v1", "/v1/", "/metrics", "/admin", "/admin/keys", "/control", "/healthz", "/readyz", "/favicon.ico"),
    *(CHAT, "/v1/models", "/..%2f..%2fcontrol", "/v1/{key}", f"/{TYPED}/{{key}}", "/v1/models/{key}"),
    *(f"/v1/models/{TYPED_KEY}", "/v1/models?api_key={key}", f"/v1/models?key={{key}}&x={ADMIN_SECRET}"),
)
"""What is asked for with a key, and without one."""

BAD_FILES: tuple[Callable[[str], str], ...] = (
    lambda good: good.replace('"UP_KEY"', f'"{PASTED_KEY}"').replace("max_retries = 0", "max_retries = -1"),
    lambda good: good + f'api_key = "{PASTED_KEY}"\n',
    lambda good: good + f"key = {PASTED_KEY}\n",
    lambda good: good.replace("http://", f"http://me:{PASTED_KEY}@", 1),
    lambda good: good.replace('name = "up"', f'name = "{PASTED_KEY}"', 1).replace("price", "prize", 1),
)
"""Ways to make a file wrong that have a credential in them."""


# --- the story ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """One answer as it came, and the request's method and path."""

    asked: str
    raw: bytes

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    @property
    def headers(self) -> list[tuple[str, str]]:
        _, *lines = self.raw.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]

    @property
    def body(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[2]


class Life:
    """The story, and what it left behind.

    keys     every virtual key that was ever shown, by its part in the story; `key` is the good one
    answers  every answer of a client's request
    left     what was printed, logged, traced or stored, by place; files are as they were at several moments
    cached   what cache.db holds, as it is served
    """

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.left: list[tuple[str, bytes]] = []
        self.cached: list[bytes] = []
        self.control_secrets: list[str] = []
        self.upstream = Upstream(_by_model)
        with tempfile.TemporaryDirectory() as name, contextlib.closing(self.upstream):
            self._folder = Path(name)
            self._config = config(self.upstream.url)
            with self._start() as self._gateway:
                self._make_keys()
                self._ask_for_everything()
                self._be_refused()
                self._reload()
                self._look("while it serves")
                self._crash()
            self._look("after the crash")
            with self._start() as self._gateway:
                self._send(self.key, model="ok")
                for command in "keys.list", "usage", "ledger.rows", "ledger.holds", "ledger.verify":
                    self.left.append((command, json.dumps(self._gateway.command(command)).encode()))
                self._gateway.signal(signal.SIGTERM)
                self._gateway.wait()
            self._look("after the drain")
            self._open_the_cache()

    def _start(self) -> GatewayProcess:
        gateway = GatewayProcess(
            self._config,
            folder=self._folder,
            arguments=("--trace-file", str(self._folder / "spans.jsonl")),
            env={"UP_KEY": PROVIDER_KEY, "GATEWAY_ADMIN_SECRET": ADMIN_SECRET},
        )
        self.control_secrets.append(json.loads((gateway.data_dir / "control").read_text())["secret"])
        return gateway

    def _make_keys(self) -> None:
        make = self._gateway.command
        made = {name: make("keys.create", tenant="acme") for name in ("good", "blocked", "rotated")}
        made["poor"] = make("keys.create", tenant="acme", budget_usd="0")
        made |= {tenant: make("keys.create", tenant=tenant) for tenant in ("walled", "slow")}
        make("keys.block", id=made["blocked"]["id"])
        made["fresh"] = make("keys.rotate", id=made["rotated"]["id"])
        self.keys = {name: key["key"] for name, key in made.items()}
        self.key = self.keys["good"]

    def _ask_for_everything(self) -> None:
        for name in UPSTREAMS:
            if name != "hanging":
                self._send(self.key, model=name)
                self._send(self.key, model=f"{name}-stream", stream=True)
        for streamed in False, True, False:
            self._send(self.key, model="cached", temperature=0, stream=streamed)
        self._send(self.keys["slow"], model="cached")
        typed = {"user": self.key, "tags": [TYPED_KEY, TYPED], "prompt_version": TYPED, "metadata": {"a": TYPED}}
        self._send(self.key, model="ok", **typed)
        self._send(self.key, model="ok", tools=[{"type": "function", "function": {"name": "f", "description": TYPED}}])

    def _be_refused(self) -> None:
        for key in *self.keys.values(), UNKNOWN_KEY, ADMIN_SECRET, PROVIDER_KEY, None:
            self._send(key, model="ok")
        for model in self.key, TYPED_KEY, f"none-{TYPED}", "":
            self._send(self.key, model=model)
        wrong = [{"n": TYPED}, {"tools": TYPED}, {"stream": self.key}, {"tags": [TYPED * 9]}, {self.key: 1, "n": 0}]
        for fields in wrong:
            self._send(self.key, **{"model": "ok", **fields})
        for raw in f'{{"{TYPED}', f'{{"{self.key}": 1, "{self.key}": 2}}', f'"{PROMPT}"', PROMPT + "\0":
            self._ask("POST", CHAT, raw.encode(), self.key)
        for path in PATHS:
            self._ask("GET", path.format(key=self.key), b"", None)
            self._ask("GET", path.format(key=self.key), b"", self.key)
        for method in "HEAD", "OPTIONS", "PUT", "DELETE":
            for path in "/", "/nowhere", CHAT, "/v1/models", "/healthz", "/v1/":
                self._ask(method, path, b"", self.key)
        for path in "/admin/keys", "/metrics", "/v1/models":
            self._ask("GET", path, b"", ADMIN_SECRET)
        self._ask("POST", "/control", json.dumps({"command": "keys.list", "arguments": {}}).encode(), ADMIN_SECRET)
        head = f"POST {CHAT} HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer {self.key}\r\nConnection: close\r\n"
        for lines in (
            "",
            "Content-Length: 100001\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            f"Transfer-Encoding: {self.key}\r\n",
            f"Expect: {self.key}\r\n",
            f"Authorization: Bearer {self.key}\r\n",
            f"x-api-key: {self.keys['blocked']}\r\n",
            f"x-gateway-private: {self.key}\r\nContent-Length: 0\r\n",
            f"x-gateway-tags: {TYPED * 9}\r\nContent-Length: 0\r\n",
            f"{self.key}\r\n",
            f"X-A: {self.key}\0\r\n",
            f"X-A: {self.key * 200}\r\n",
            "".join(f"X-{number}: {self.key}\r\n" for number in range(70)),
        ):
            self._say(f"{head}{lines}\r\n".encode())
        self._say(f"{head}Transfer-Encoding: chunked\r\n\r\n{self.key}\r\n".encode())
        self._say(f"GET /{self.key * 200} HTTP/1.1\r\nHost: gw\r\n\r\n".encode())
        self._say(f"{self.key} {TYPED_KEY} HTTP/1.1\r\n\r\n".encode())

    def _reload(self) -> None:
        for number, bad in enumerate(BAD_FILES, 1):
            (self._folder / "gateway.toml").write_text(bad(self._config))
            self._gateway.signal(signal.SIGHUP)
            self._gateway.wait_for_event("reload_refused", number)
        (self._folder / "gateway.toml").write_text(self._config)
        self._gateway.signal(signal.SIGHUP)
        self._gateway.wait_for_event("reloaded")

    def _crash(self) -> None:
        """Die while one request waits and another one is being streamed."""
        with contextlib.closing(self._connection()) as whole, contextlib.closing(self._connection()) as streamed:
            whole.sendall(self._request("POST", CHAT, self._chat(model="hanging"), self.key))
            streamed.sendall(self._request("POST", CHAT, self._chat(model="hanging-stream", stream=True), self.key))
            with streamed.makefile("rb") as file:
                if not any(ANSWER.encode() in line for line in file):
                    raise AssertionError("the stream ended")
            pause = threading.Event()
            for _ in range(WAIT_S * 50):
                if [hold["state"] for hold in self._gateway.command("ledger.holds")].count("open") == 2:
                    break
                pause.wait(0.02)
            self._gateway.signal(signal.SIGKILL)
            self._gateway.wait()

    def _look(self, when: str) -> None:
        self.left.append((f"stdout {when}", "".join(self._gateway.printed).encode()))
        self.left.append((f"stderr {when}", "".join(self._gateway.errors).encode()))
        for path in sorted([*self._folder.glob("spans.jsonl*"), *(self._folder / "gateway-data").iterdir()]):
            self.left.append((f"{path.name} {when}", path.read_bytes()))

    def _open_the_cache(self) -> None:
        with contextlib.closing(sqlite3.connect(self._folder / "gateway-data" / "cache.db")) as cache:
            rows = cache.execute("SELECT sealed FROM entries").fetchall()
        self.cached = [unseal(sealed).entry.body for (sealed,) in rows]

    def _chat(self, **fields: Any) -> bytes:
        return json.dumps({"messages": [{"role": "user", "content": PROMPT}], **fields}).encode()

    def _send(self, key: str | None, **fields: Any) -> None:
        self._ask("POST", CHAT, self._chat(**fields), key)

    def _ask(self, method: str, path: str, body: bytes, key: str | None) -> None:
        self._say(self._request(method, path, body, key), f"{method} {path}")

    def _request(self, method: str, path: str, body: bytes, key: str | None) -> bytes:
        headers = {"Host": "gw", **CLIENT_HEADERS}
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        headers |= {"Content-Length": str(len(body))} if body else {}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body

    def _connection(self) -> socket.socket:
        return socket.create_connection(self._gateway.address, WAIT_S)

    def _say(self, raw: bytes, asked: str = "POST") -> None:
        with self._connection() as client, client.makefile("rb") as file:
            client.sendall(raw)
            self.answers.append(Answer(asked, file.read()))


# --- looking --------------------------------------------------------------------------------------------------------


def forms(secret: str) -> Iterator[bytes]:
    """A secret as it could be recognised: itself, what opens or ends it, and in base64."""
    own = secret.rpartition("-")[2]
    yield from (secret.encode(), own[:20].encode(), own[-20:].encode())
    yield base64.b64encode(secret.encode()).rstrip(b"=")


def digest(secret: str) -> bytes:
    """As the ledger keeps a key."""
    return hashlib.sha256(secret.encode()).hexdigest().encode()


class CanaryTest(unittest.TestCase):
    """The story is told once for all of these."""

    life: ClassVar[Life]

    @classmethod
    def setUpClass(cls) -> None:
        cls.life = Life()

    def places(self) -> Iterator[tuple[str, bytes]]:
        """All that was left, and all answers."""
        yield from self.life.left
        for answer in self.life.answers:
            yield f"the answer to {answer.asked[:60]}: {answer.raw[:60]!r}", answer.raw

    def assert_nowhere(self, *needles: bytes, but: str = " ") -> None:
        """None of `needles` is in any place whose name does not start with `but`."""
        for place, held in self.places():
            if not place.startswith(but):
                for needle in needles:
                    self.assertNotIn(needle, held, place)

    def test_the_story_was_told(self) -> None:
        """Every status that it is about was answered, and the looking has something to look at."""
        told = {answer.status for answer in self.life.answers}
        self.assertLessEqual({200, 400, 401, 402, 403, 404, 405, 411, 413, 414, 417, 429, 431, 502, 503, 504}, told)
        places = dict(self.life.left)
        self.assertIn(b'"reload_refused"', places["stderr while it serves"])
        self.assertIn(b"holds_of_a_dead_process", places["stderr after the drain"])
        self.assertIn(b"listening on", places["stdout after the drain"])
        self.assertIn(b'"name":"request"', places["spans.jsonl after the drain"])
        self.assertTrue(places["ledger.db-wal while it serves"])
        asked = {json.loads(request.body)["model"].removesuffix("-stream") for request in self.life.upstream.requests}
        self.assertEqual(asked, set(UPSTREAMS))

    def test_no_secret_of_the_operators_is_anywhere(self) -> None:
        """The provider's key, the admin's secret, a key that was pasted into a file, or into a tag: no form of them."""
        for secret in PROVIDER_KEY, ADMIN_SECRET, PASTED_KEY, TYPED_KEY:
            self.assert_nowhere(*forms(secret), digest(secret))

    def test_the_control_secret_is_in_its_file_only(self) -> None:
        """Which is for its owner alone, and goes with a drain."""
        for secret in self.life.control_secrets:
            self.assert_nowhere(
                secret.encode(), secret[:20].encode(), secret[-20:].encode(), digest(secret), but="control "
            )
        self.assertFalse([place for place, _ in self.life.left if place == "control after the drain"])

    def test_of_a_virtual_key_only_the_digest_is_kept(self) -> None:
        """In the ledger; of a key that never was, not even that."""
        for key in *self.life.keys.values(), UNKNOWN_KEY:
            self.assert_nowhere(*forms(key))
        self.assert_nowhere(*map(digest, self.life.keys.values()), but="ledger.db")
        self.assert_nowhere(digest(UNKNOWN_KEY))
        ledger = dict(self.life.left)["ledger.db after the drain"]
        self.assertTrue(all(digest(key) in ledger for name, key in self.life.keys.items() if name != "rotated"))

    def test_what_was_asked_is_kept_nowhere(self) -> None:
        """Neither the prompt, nor a header, nor what was typed into a field; of these tags alone are in the rows.

        An upstream that says what is wrong with a request may quote it to whoever sent it, and to nobody else.
        """
        self.assert_nowhere(*map(str.encode, IN_CLIENT_HEADERS))
        for place, held in self.life.left:
            self.assertNotIn(PROMPT.encode(), held, place)
            if not place.startswith(("ledger.db", "ledger.rows")):
                self.assertNotIn(TYPED.encode(), held, place)
        self.assertIn(TYPED.encode(), dict(self.life.left)["ledger.rows"])
        for answer in self.life.answers:
            if not dict(answer.headers).get("x-gateway-route", "").endswith("=client"):
                self.assertNotIn(PROMPT.encode(), answer.raw, answer.asked)

    def test_an_answer_is_kept_in_the_cache_alone_and_only_if_it_may_be(self) -> None:
        """There it is compressed, not encrypted, and without its question; nothing of an answer is in an error."""
        for place, held in self.life.left:
            for text in ANSWER, ARGUMENT, CACHED:
                self.assertNotIn(text.encode(), held, place)
        self.assertEqual(len(self.life.cached), 1)
        self.assertIn(CACHED.encode(), self.life.cached[0])
        self.assertNotIn(PROMPT.encode(), self.life.cached[0])
        for answer in self.life.answers:
            if answer.status != 200:
                for text in ANSWER, ARGUMENT, CACHED:
                    self.assertNotIn(text.encode(), answer.raw)

    def test_the_upstream_hears_nothing_that_is_not_meant_for_it(self) -> None:
        """Its own credential, and of the client what it said in the body: no header of it, and no secret of ours."""
        for request in self.life.upstream.requests:
            self.assertLessEqual({name for name, _ in request.headers}, SENT_UPSTREAM)
            self.assertEqual(request.get("authorization"), f"Bearer {PROVIDER_KEY}")
            sent = f"{request.line} {request.headers}"
            for text in (*IN_CLIENT_HEADERS, *self.life.keys.values(), ADMIN_SECRET, PROMPT):
                self.assertNotIn(text, sent)
            self.assertNotIn(ADMIN_SECRET, request.body.decode())

    def test_an_answer_has_only_headers_of_the_gateways_own(self) -> None:
        """No banner, none of an upstream, none twice, and no character in one that is not visible."""
        for answer in self.life.answers:
            names = [name for name, _ in answer.headers]
            self.assertLessEqual(set(names), RELAYED, answer.asked)
            self.assertEqual(len(names), len(set(names)), answer.asked)
            for name, value in answer.headers:
                self.assertRegex(value, r"\A[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?\Z", name)

    def test_every_refusal_is_json_of_the_one_form(self) -> None:
        """On every path, by every method, also those of HTTP itself; a readiness page is a page of its own."""
        for answer in self.life.answers:
            if answer.status == 200:
                continue
            fields = dict(answer.headers)
            self.assertEqual(fields["content-type"], "application/json", answer.asked)
            self.assertTrue(fields["x-request-id"])
            if answer.asked.startswith("HEAD "):
                self.assertEqual(answer.body, b"")
                continue
            self.assertEqual(int(fields["content-length"]), len(answer.body), answer.asked)
            error = json.loads(answer.body)["error"]
            self.assertEqual(set(error), {"message", "type", "param", "code"}, answer.asked)
            self.assertTrue(error["message"] and error["type"] and error["code"], answer.asked)
            self.assertLessEqual(len(answer.body), 1000)


if __name__ == "__main__":
    unittest.main()
