"""A whole gateway behind a real listener on a free port, with the clients, upstreams and checks that its tests need.

Everything runs in this process and over the loopback: a FrontServer and an Api over a RealWorld's books, in front of
fakes or of an Upstream, which is a real HTTP server. Every wait ends after PATIENCE_S, which only a failing test sees.
"""

import io
import json
import socket
import threading
import unittest
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.api import EXEMPT_PATHS, Api
from gateway.app import answer_room, build_gateway
from gateway.clock import Clock, RealClock
from gateway.engines.threads import BlockingEffects
from gateway.errors import ClientGone, Draining, GatewayError
from gateway.exchange import Exchange
from gateway.metrics import Metrics
from gateway.oplog import OpLog
from gateway.ops import metrics_page
from gateway.providers import Provider
from gateway.readiness import Readiness
from gateway.server import FrontLimits, FrontServer
from llmkit.sse import frame
from tests.support import scripted_upstream
from tests.support.scripted_upstream import Peer, Request, ScriptedUpstream
from tests.support.world import CONFIG, RealWorld, chat
from tracekit.sinks import MemorySink
from tracekit.trace import Tracer

PATIENCE_S = 30.0
PROVIDER_KEY = "sk-provider-PROVIDERCANARY0001"
SECOND_KEY = "sk-provider-SECOND0002"
CONTROL_SECRET = "c" * 64
DONE = b"[DONE]"
CHAT = "/v1/chat/completions"
USAGE_WANTED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}

Pairs = Sequence[tuple[str, str]]
"""Names and values of headers; the gateway itself writes whole lines."""

Body = Mapping[str, Any] | bytes | None


# --- the gateway --------------------------------------------------------------------------------------------------


class Front:
    """A serving gateway with books of its own; stop() it, which also checks the books.

    errors  every exception that the server, the gateway or the store reported; stop() raises for those that are no
            outcome of a request, so a test that provokes one clears them
    durability  `normal` unless a test needs `full`, which waits for the disk in every request
    readiness  what the readiness page is told
    log     what the operator would read on stderr
    answer_room  the memory of all answers; stop() raises if some of it is still taken
    spans   every finished span
    metrics what its traffic is counted by
    """

    def __init__(
        self,
        config: str = CONFIG,
        *,
        providers: Mapping[str, Provider] | None = None,
        limits: FrontLimits | None = None,
        clock: Clock | None = None,
        durability: str = "normal",
    ) -> None:
        config = f'[store]\ndurability = "{durability}"\n{config}'
        self.log = io.StringIO()
        self.spans = MemorySink()
        self._oplog = OpLog(RealClock(), self.log)
        self.metrics = Metrics()
        self._ended = 0
        self._changed = threading.Condition()
        self.world = RealWorld(config=config, clock=clock, env={"UP_KEY": PROVIDER_KEY, "UP_KEY_2": SECOND_KEY})
        self.errors = self.world.errors
        self.answer_room = answer_room(self.world.config)
        self.world.gateway = build_gateway(
            self.world.config,
            self.world.books,
            clock=self.world.clock,
            room=self.answer_room,
            tracer=Tracer(self.spans),
            providers=providers,
            on_error=self._on_error,
            metrics=self.metrics,
        )
        self.readiness = Readiness(True, (), {})
        self.api = Api(
            self.world.gateway,
            commands=self.world.books.commands,
            control_secret=CONTROL_SECRET,
            effects=BlockingEffects(),
            readiness=lambda: self.readiness,
            metrics=metrics_page(
                self.metrics,
                self.world.books,
                self._oplog,
                front=lambda: self.server,
                gateway=lambda: self.api.gateway,
                started_ms=self.world.clock.wall_ms(),
                on_error=self._on_error,
            ),
            clock=self.world.clock,
            on_refused=self.metrics.note_refusal,
        )
        self.server = FrontServer(
            ("127.0.0.1", 0),
            self._handle,
            limits or FrontLimits(),
            self.world.clock,
            exempt=EXEMPT_PATHS.__contains__,
            on_error=self._on_error,
            stamp=lambda told, request_id: self.api.stamp(told, request_id),
        )
        self.key = self.world.key()
        self.server.start()

    @property
    def base_url(self) -> str:
        """What a client library is given."""
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    def ask(self, method: str, path: str, body: Body = None, headers: Pairs = (), *, key: str | None = "") -> "Reply":
        """One request on a connection of its own; `key` is this front's unless given, None sends no key."""
        client = Client(self)
        try:
            client.request(method, path, body, [*headers, *self.bearer(key)])
            return client.reply(method)
        finally:
            client.close()

    def chat(self, headers: Pairs = (), *, key: str | None = "", **fields: Any) -> "Reply":
        """One chat request."""
        return self.ask("POST", CHAT, chat(**fields), headers, key=key)

    def bearer(self, key: str | None = "") -> Pairs:
        """The header with the key."""
        return [] if key is None else [("Authorization", f"Bearer {key or self.key}")]

    def rows(self, count: int) -> list[dict[str, Any]]:
        """Every row, oldest first, once so many requests have ended; they must be as many."""
        self.wait_ended(count)
        rows = self.world.rows()
        if len(rows) != count:
            raise AssertionError(f"{len(rows)} rows for {count} requests")
        return rows

    def wait_ended(self, count: int) -> None:
        """Wait until `count` exchanges have ended since the start."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended >= count, PATIENCE_S):
                raise AssertionError(f"{self._ended} exchanges ended, {count} were awaited")

    def money(self, key: str = "") -> tuple[int, int, int]:
        """Spent, held and unresolved nano-dollars of a key."""
        shown = self.world.shown(key or self.key)
        return shown["spent_nanousd"], shown["held_nanousd"], shown["unresolved_nanousd"]

    def stop(self) -> None:
        """Let everything end; then no hold is open, the books balance, and nothing went wrong unseen."""
        self.server.stop_admitting()
        left = self.server.finish(self.world.clock.now_s() + PATIENCE_S, threading.Event())
        try:
            faults = [error for error in self.errors if not isinstance(error, ClientGone | Draining | GatewayError)]
            if faults:
                raise AssertionError("the gateway reported an error") from faults[0]
            report = self.world.run("ledger.verify")
            holds = [hold for hold in self.world.run("ledger.holds") if hold["state"] == "open"]
            if left or holds or self.server.connections or not report["ok"]:
                raise AssertionError(f"{left} requests and {holds} were left: {report}")
            if self.answer_room.taken:
                raise AssertionError(f"{self.answer_room.taken} bytes of answers are still counted")
        finally:
            self.world.__exit__()

    def _handle(self, exchange: Exchange) -> None:
        try:
            self.api(exchange)
        finally:
            with self._changed:
                self._ended += 1
                self._changed.notify_all()

    def _on_error(self, error: BaseException, request_id: str | None = None) -> None:
        self.errors.append(error)
        self._oplog.error(error, request_id)


class ShiftedClock(RealClock):
    """The machine's clocks, run ahead by `shift_s`."""

    def __init__(self) -> None:
        self.shift_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.shift_s

    def wall_ms(self) -> int:
        return super().wall_ms() + round(self.shift_s * 1000)


class FrontCase(unittest.TestCase):
    """Starts gateways, clients and upstreams, and ends them."""

    def front(self, config: str = CONFIG, **options: Any) -> Front:
        """A gateway; options as of Front."""
        front = Front(config, **options)
        self.addCleanup(front.stop)
        return front

    def live(self, *replies: "Answering", provider: str = "", more: str = "", **options: Any) -> "LiveFront":
        """A gateway in front of a real upstream; options as of LiveFront and Front."""
        upstream = self.upstream(*replies)
        front = LiveFront(upstream, provider, more, **options)
        self.addCleanup(front.stop)
        return front

    def upstream(self, *replies: "Answering") -> "Upstream":
        """A real upstream."""
        upstream = Upstream(*replies)
        self.addCleanup(upstream.close)
        return upstream

    def client(self, front: Front) -> "Client":
        """A connection to a gateway."""
        client = Client(front)
        self.addCleanup(client.close)
        return client

    def wait(self, event: threading.Event) -> None:
        """Wait for what must happen."""
        self.assertTrue(event.wait(PATIENCE_S), "it did not happen")

    def assert_error(self, reply: "Reply", status: int, code: str, param: str | None = None) -> None:
        """An error in the one form that client libraries read: JSON, all four keys, and the request's id beside it."""
        self.assertEqual((reply.status, reply.error["code"], reply.error["param"]), (status, code, param))
        self.assertEqual(set(reply.error), {"message", "type", "param", "code"})
        self.assertTrue(reply.error["message"] and reply.error["type"])
        self.assertEqual(reply.get("content-type"), "application/json")
        self.assertTrue(reply.get("x-request-id"))


# --- clients ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """One answer as it came; `pieces` are the chunks of a chunked body."""

    status: int
    headers: Pairs
    body: bytes
    pieces: Sequence[bytes] = ()

    def get(self, name: str) -> str | None:
        """The value of a header, by its lower-case name; one that came twice is a failure."""
        values = [value for key, value in self.headers if key == name]
        if len(values) > 1:
            raise AssertionError(f"{name} came {len(values)} times")
        return values[0] if values else None

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error that the body is."""
        error: dict[str, Any] = self.json["error"]
        return error

    @property
    def payloads(self) -> list[bytes]:
        """The data of each event; anything that is not one `data: ` line and a blank line is a failure."""
        *events, rest = self.body.split(b"\n\n")
        if rest or not all(event.startswith(b"data: ") and b"\n" not in event for event in events):
            raise AssertionError(f"not a stream of events: {self.body!r}")
        return [event.removeprefix(b"data: ") for event in events]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The events as JSON, without the end mark."""
        return [json.loads(payload) for payload in self.payloads if payload != DONE]

    @property
    def text(self) -> str:
        """The content of the first choice, joined."""
        choices = [choice for chunk in self.chunks for choice in chunk["choices"] if choice["index"] == 0]
        return "".join(choice["delta"].get("content") or "" for choice in choices)


class Client:
    """A connection that says and reads exactly what a test wants."""

    def __init__(self, front: Front) -> None:
        self.sock = socket.create_connection(("127.0.0.1", front.server.server_port), PATIENCE_S)
        self._file = self.sock.makefile("rb")
        self._front = front

    def request(self, method: str, path: str, body: Body = None, headers: Pairs = ()) -> None:
        """Send a request in one write."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        framing = [] if body is None else [("Content-Length", str(len(raw)))]
        fields = [("Host", "gw"), *headers, *framing]
        head = "".join([f"{method} {path} HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in fields), "\r\n"])
        self.sock.sendall(head.encode("latin-1") + raw)

    def chat(self, headers: Pairs = (), **fields: Any) -> None:
        """Send a chat request with the front's key."""
        self.request("POST", CHAT, chat(**fields), [*self._front.bearer(), *headers])

    def head(self) -> tuple[int, Pairs]:
        """Status and headers of the next answer."""
        line = self._file.readline()
        if not line:
            raise ConnectionError("the gateway closed without an answer")
        headers = []
        while (field := self._file.readline()) != b"\r\n":
            name, _, value = field.decode("latin-1").partition(":")
            headers.append((name.lower(), value.strip()))
        return int(line.split()[1]), headers

    def piece(self) -> bytes | None:
        """The next chunk of a chunked body; None at the last one. ConnectionError if the body was cut."""
        line = self._file.readline()
        if not line:
            raise ConnectionError("the body was cut")
        data = self._file.read(int(line, 16))
        if self._file.readline() != b"\r\n":
            raise ConnectionError("the body was cut")
        return data or None

    def reply(self, method: str = "POST") -> Reply:
        """The next whole answer."""
        status, headers = self.head()
        fields = dict(headers)
        if method == "HEAD":
            return Reply(status, headers, b"")
        if "transfer-encoding" in fields:
            pieces = list(iter(self.piece, None))
            return Reply(status, headers, b"".join(pieces), pieces)
        return Reply(status, headers, self._file.read(int(fields["content-length"])))

    def cut_reply(self) -> Reply:
        """The next answer, whose body must be cut: it has no end, and the connection is closed."""
        status, headers = self.head()
        pieces = self.pieces_to_the_cut()
        return Reply(status, headers, b"".join(pieces), pieces)

    def pieces_to_the_cut(self) -> list[bytes]:
        """What is left of a chunked body that must be cut."""
        pieces = []
        try:
            while (piece := self.piece()) is not None:
                pieces.append(piece)
        except ConnectionError:
            return pieces
        raise AssertionError("the answer came to its end")

    def rest(self) -> bytes:
        """Everything until the gateway closes."""
        return self._file.read()

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Leave."""
        self._file.close()
        self.sock.close()


# --- upstreams ----------------------------------------------------------------------------------------------------

Answering = Callable[[Peer, Request], None]
"""Answers one request of the gateway. The connection closes when it returns."""

STREAM_HEAD = scripted_upstream.stream_head().removesuffix(b"\r\n") + b"connection: close\r\n\r\n"
END = scripted_upstream.chunk(b"")


class Upstream:
    """A real HTTP upstream: the n-th request is answered by the n-th of `replies`, later ones by the last.

    requests  what arrived, in order
    `_lock` guards `requests`.
    """

    def __init__(self, *replies: Answering) -> None:
        self.requests: list[Request] = []
        self._replies = replies
        self._lock = threading.Lock()
        self._server = ScriptedUpstream(*[self._serve] * 1000)
        self.url = self._server.url("/v1")

    @property
    def body(self) -> dict[str, Any]:
        """What the last request asked for."""
        body: dict[str, Any] = json.loads(self.requests[-1].body)
        return body

    def close(self) -> None:
        """End; raises what went wrong in a reply."""
        self._server.close()

    def _serve(self, peer: Peer) -> None:
        request = peer.request()
        with self._lock:
            reply = self._replies[min(len(self.requests), len(self._replies) - 1)]
            self.requests.append(request)
        reply(peer, request)


ONE_TRY = "[retry]\nmax_retries = 0\n[breaker]\nthreshold = 1000\n"
"""A request is one upstream call, however often that fails."""


class LiveFront(Front):
    """A gateway in front of an Upstream; provider is added to its entry in the file, more to the file."""

    def __init__(self, upstream: Upstream, provider: str = "", more: str = "", **options: Any) -> None:
        self.upstream = upstream
        deployment = "".join(CONFIG.partition("[[deployments]]")[1:])
        live = f'[[providers]]\nname = "up"\nbase_url = "{upstream.url}"\napi_key_env = "UP_KEY"\n{provider}\n'
        super().__init__(live + deployment + ONE_TRY + more, **options)


def fleet(*upstreams: Upstream, more: str = "", provider: str = "", deployment: str = "") -> str:
    """The file of a gateway with one deployment per upstream, `one` and so on, behind `mini`, each at 1 and 4 USD.

    provider, deployment  what is added to each of their entries; more, to the file
    """
    config = more + "\n"
    names = ("one", "two")[: len(upstreams)]
    for name, upstream in zip(names, upstreams, strict=True):
        config += f'''
[[providers]]
name = "{name}"
base_url = "{upstream.url}"
api_key_env = ["UP_KEY"]
{provider}
[[deployments]]
name = "{name}"
provider = "{name}"
model = "gw-{name}"
price = {{ input = 1, output = 4 }}
{deployment}
'''
    return config + f'[[aliases]]\nname = "mini"\ndeployments = {json.dumps(names)}\n'


def completion(content: str | None = "hello there", **message: Any) -> dict[str, Any]:
    """A whole answer in the form that clients rely on; 7 and 5 tokens."""
    message = {"role": "assistant", "content": content, "refusal": None, **message}
    finish = "tool_calls" if "tool_calls" in message else "stop"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_767_225_600,
        "model": "gw-mini",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": USAGE,
    }


USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
COST_NANOUSD = 7 * 1000 + 5 * 4000


def event(delta: Mapping[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """The payload of one chunk in the form that clients rely on."""
    choices = [{"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish}]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_767_225_600, "model": "gw-mini"}
    return json.dumps({**head, "choices": choices, **fields}, ensure_ascii=False).encode()


ROLE = event({"role": "assistant", "content": ""})
STOP = event(finish="stop")
USAGE_EVENT = event(choices=[], usage=USAGE)


def words(*texts: str) -> list[bytes]:
    """A whole stream that says `texts`, one event each, with usage and the end mark."""
    return [ROLE, *(event({"content": text}) for text in texts), STOP, USAGE_EVENT, DONE]


def whole(body: Any = None, *, status: str = "200 OK", headers: str = "") -> Answering:
    """Answers with one body: JSON, or bytes as they are; headers is lines, each with its CRLF."""
    raw = body if isinstance(body, bytes) else json.dumps(completion() if body is None else body).encode()
    lines = f"{headers}content-type: application/json\r\nconnection: close"
    return lambda peer, request: peer.send(scripted_upstream.answer(raw, status=status, headers=lines))


def stream(*payloads: bytes) -> Answering:
    """Answers with a whole stream, one event per write."""
    pieces = [sse(payload) for payload in payloads]
    return lambda peer, request: peer.send(STREAM_HEAD, *pieces, END)


def sse(payload: bytes) -> bytes:
    """One event in a chunk of its own."""
    return scripted_upstream.chunk(frame(payload))


def either(body: Any, *payloads: bytes) -> Answering:
    """Answers with the whole or with the stream, as it is asked."""
    replies = whole(body), stream(*payloads)
    return lambda peer, request: replies[bool(json.loads(request.body).get("stream"))](peer, request)
