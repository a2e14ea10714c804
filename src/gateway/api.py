"""HTTP to domain and back: routes, and errors into answers; what headers say is in headers.py.

    POST /v1/chat/completions      a virtual key, as for everything below /v1, known or not
    GET  /v1/models, /v1/models/*
    GET  /healthz, /readyz         nobody; aliases /health/liveliness, /health/liveness, /health/readiness
    GET  /metrics                  nobody; it says nothing of any one tenant
    POST /control                  the command line, with the secret of the control file

Decides nothing about money, limits or models. `python -m gateway.api` serves.
"""

import hmac
import json
import math
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

from msgspec import Struct

from gateway.answers import JSON, Headers, error_body, error_headers, lines
from gateway.clock import Clock
from gateway.commands import CommandError, Commands
from gateway.context import Facts, Principal, RequestContext
from gateway.errors import (
    GatewayError,
    HttpRefusal,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    ModelNotFound,
    ShuttingDown,
    UnknownUrl,
    forget,
)
from gateway.exchange import Exchange
from gateway.exposition import CONTENT_TYPE
from gateway.gateway import Gateway
from gateway.headers import bearer, fact_headers, id_header, options_of, shown_key
from gateway.http_head import NoBody, RequestHead
from gateway.readiness import Readiness
from gateway.rows import Exit
from llmkit.sse import comment, frame
from llmkit.types import Cancel, Pulse
from tracekit.trace import parse_traceparent

HEALTH_PATHS = {
    "/healthz": "alive",
    "/health/liveliness": "alive",
    "/health/liveness": "alive",
    "/readyz": "ready",
    "/health/readiness": "ready",
}
METRICS_PATH = "/metrics"
EXEMPT_PATHS = frozenset({*HEALTH_PATHS, METRICS_PATH, "/control"})
"""Answered however much is in flight: what tells of it, and the operator who would change it."""

SILENCE_S = 15.0
"""A stream that has begun is never silent for longer: proxies between cut idle connections, many at 60 s."""

_STREAM = lines("content-type: text/event-stream; charset=utf-8", "cache-control: no-cache", "x-accel-buffering: no")
_METRICS = lines(f"content-type: {CONTENT_TYPE}")
_CHAT = "/v1/chat/completions"
_MODELS = "/v1/models"
_CREATED = 0
"""When a model was made: unknown here, and clients want an integer."""

T = TypeVar("T")


class Effects(Protocol):
    """The engine as the front needs it."""

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Run a story to its end and return its result."""
        ...

    def pause(self, seconds: float, cancel: Cancel, pulse: Pulse) -> None:
        """Let `seconds` pass, with `pulse` beating; unless `cancel` fires first: then raise its reason."""
        ...


class Api:
    """The function that the server hands each exchange to. `gateway` may be replaced at any time (reload)."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        commands: Commands,
        control_secret: str,
        readiness: Callable[[], Readiness],
        metrics: Callable[[], bytes],
        clock: Clock,
        effects: Effects,
        on_refused: Callable[[str], None] = lambda code: None,
    ) -> None:
        """metrics     the page, in Prometheus' text format
        on_refused  is told the code of each refusal that no row tells of
        """
        self.gateway = gateway
        self._commands = commands
        self._control_secret = control_secret
        self._readiness = readiness
        self._metrics = metrics
        self._clock = clock
        self._effects = effects
        self._on_refused = on_refused

    def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        facts = self.gateway.new_facts()
        exchange.request_id = facts.request_id
        try:
            self._route(exchange, exchange.head.path.rstrip("/"), facts)
        except GatewayError as error:
            forget(error)
            self._refuse(exchange, facts, error)

    def stamp(self, told: GatewayError, request_id: str | None) -> Headers:
        """What is known of a request that the front ends by itself: refused before anything was done for it.

        request_id  None for one that was never handed over, which gets an id here
        After an error of ours nobody knows how far it had come.
        """
        facts = Facts(request_id) if request_id else self.gateway.new_facts()
        if isinstance(told, InternalError):
            return id_header(facts) + lines(f"x-gateway-exit: {Exit.FAILED}")
        facts.exit = Exit.REJECTED
        return fact_headers(facts, self._clock.now_s())

    def _route(self, exchange: Exchange, path: str, facts: Facts) -> None:
        if path.startswith("/v1/"):
            if exchange.draining:
                raise ShuttingDown
            return self._route_client(exchange, path, facts, self.gateway)
        return self._route_operator(exchange, path, facts)

    def _route_operator(self, exchange: Exchange, path: str, facts: Facts) -> None:
        head = exchange.head
        if path in HEALTH_PATHS:
            _allow(head, "GET", "HEAD")
            return self._answer_health(exchange, HEALTH_PATHS[path], facts)
        if path == METRICS_PATH:
            _allow(head, "GET", "HEAD")
            return exchange.respond(200, _METRICS + id_header(facts), self._metrics())
        if path == "/control" and self._is_operator(head):
            return self._control(exchange, facts)
        if exchange.draining:
            raise ShuttingDown
        raise _unknown(head, path)

    def _route_client(self, exchange: Exchange, path: str, facts: Facts, gateway: Gateway) -> None:
        """What is below /v1: the key is checked before anything else is said, also of a path that does not exist.

        A browser's preflight has no key by its nature: it is told what is allowed, which allows it nothing.
        """
        head, methods = exchange.head, _methods(path)
        principal = None if head.method == "OPTIONS" else gateway.authenticate(shown_key(head))
        if principal is None or head.method not in methods:
            raise MethodNotAllowed(head.method, methods) if methods else _unknown(head, path)
        exchange.enter(principal.tenant)
        if path == _CHAT:
            return self._chat(exchange, gateway, facts, principal)
        visible = gateway.visible_models(principal)
        if path == _MODELS:
            models = {"object": "list", "data": [_model(name) for name in visible]}
            return _respond_json(exchange, 200, models, facts)
        name = unquote(head.path.removeprefix("/v1/models/"))
        if name not in visible:
            name = unquote(path.removeprefix("/v1/models/"))
        if name not in visible:
            raise ModelNotFound(name[:128])
        return _respond_json(exchange, 200, _model(name), facts)

    def _refuse(self, exchange: Exchange, facts: Facts, error: GatewayError) -> None:
        if facts.exit is None:
            facts.exit = Exit.REJECTED
            self._on_refused(error.code)
        headers = error_headers(error) + fact_headers(facts, self._clock.now_s())
        exchange.respond(error.status, headers, error_body(error))

    # --- chat ---------------------------------------------------------------------------------------------------

    def _chat(self, exchange: Exchange, gateway: Gateway, facts: Facts, principal: Principal) -> None:
        caller = _HttpCaller(exchange, exchange.cancel, facts, self._clock, self._effects)
        try:
            options, raw = options_of(exchange.head), _body_of(exchange)
        except GatewayError as error:
            self._effects.run(gateway.refuse(principal, caller, facts, error))
            raise
        trace_parent = parse_traceparent(exchange.head.get("traceparent"))
        context = gateway.context(principal, raw, caller, options=options, facts=facts, trace_parent=trace_parent)
        try:
            self._answer_chat(exchange, gateway, context, caller)
        finally:
            context.let_go()

    def _answer_chat(
        self, exchange: Exchange, gateway: Gateway, context: RequestContext, caller: "_HttpCaller"
    ) -> None:
        try:
            answer = self._effects.run(gateway.serve(context))
        except GatewayError as error:
            if not caller.started:
                raise
            forget(error)
            exchange.send(frame(error_body(error)))
            exchange.abort()
            return
        if answer.cut:
            exchange.abort()
        elif answer.body is not None:
            exchange.respond(200, JSON + fact_headers(context.facts, self._clock.now_s()), answer.body)

    # --- operators ----------------------------------------------------------------------------------------------

    def _answer_health(self, exchange: Exchange, kind: str, facts: Facts) -> None:
        if kind == "alive":
            return _respond_json(exchange, 200, {"status": "ok"}, facts)
        found = self._readiness()
        body = {"status": "ready" if found.ready else "not ready", "reasons": list(found.reasons), **found.details}
        return _respond_json(exchange, 200 if found.ready else 503, body, facts)

    def _is_operator(self, head: RequestHead) -> bool:
        secret = bearer(head.get("authorization") or "") or ""
        return hmac.compare_digest(secret.encode(), self._control_secret.encode())

    def _control(self, exchange: Exchange, facts: Facts) -> None:
        _allow(exchange.head, "POST")
        try:
            asked = json.loads(_body_of(exchange))
            command, arguments = str(asked["command"]), dict(asked["arguments"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest("The body must be an object with `command` and `arguments`.", param="body") from error
        notes: list[str] = []
        try:
            result = self._commands.run(command, arguments, on_note=notes.append)
        except CommandError as error:
            return _respond_json(exchange, 400, {"error": str(error)}, facts)
        return _respond_json(exchange, 200, {"result": result, "notes": notes}, facts)


class _HttpCaller(Struct, eq=False):
    """The Caller of one HTTP exchange, and its Pulse: `due_s` is when the client must hear something next."""

    _exchange: Exchange
    cancel: Cancel
    _facts: Facts
    _clock: Clock
    _effects: Effects
    started: bool = False
    due_s: float = math.inf

    @property
    def pulse(self) -> Pulse:
        return self

    def will_wait(self, head_until_s: float | None) -> None:
        self._exchange.will_wait()
        if head_until_s is not None:
            self.due_s = head_until_s

    def beat(self) -> None:
        self._start()
        self._send(comment("ping"))

    async def start(self) -> None:
        self._start()

    async def send(self, *frames: bytes) -> None:
        self._send(*frames)

    async def finish(self, last: bytes) -> None:
        self._exchange.finish(last)
        self.due_s = math.inf

    async def pause(self, seconds: float) -> None:
        self._effects.pause(seconds, self.cancel, self)

    def _start(self) -> None:
        if not self.started:
            self.started = True
            self._exchange.start_stream(200, _STREAM + fact_headers(self._facts, self._clock.now_s()))

    def _send(self, *frames: bytes) -> None:
        self._exchange.send(*frames)
        self.due_s = self._clock.now_s() + SILENCE_S


def _body_of(exchange: Exchange) -> bytes:
    """The body of a request that must have one.

    Raises HttpRefusal, Overloaded, ClientGone, Draining.
    """
    head = exchange.head
    if isinstance(head.body, NoBody):
        raise HttpRefusal(411, "length_required", "The body needs a Content-Length, or chunks.", param="body")
    if "content-encoding" in head.first_values and _is_encoded(head):
        message = "The body must not be encoded: send it plain, without Content-Encoding."
        raise HttpRefusal(415, "unsupported_content_encoding", message, param="body")
    return exchange.read_body()


def _is_encoded(head: RequestHead) -> bool:
    """Whether the body is compressed or the like: a small one may be a bomb, and what is priced is what is sent."""
    codings = ",".join(head.get_all("content-encoding")).split(",")
    return not {coding.strip().lower() for coding in codings} <= {"", "identity"}


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "gateway"}


def _methods(path: str) -> tuple[str, ...]:
    """How a path below /v1 may be asked; empty if there is nothing."""
    if path == _CHAT:
        return ("POST",)
    return ("GET", "HEAD") if path == _MODELS or path.startswith(f"{_MODELS}/") else ()


def _unknown(head: RequestHead, path: str) -> UnknownUrl:
    """Nothing is at this path; perhaps the client's base URL lacks the /v1, or has it twice."""
    meant = path.removeprefix("/v1") if path.startswith("/v1/") else f"/v1{path}"
    return UnknownUrl(head.method, head.path[:200], meant[:200] if _methods(meant) else None)


def _allow(head: RequestHead, *methods: str) -> None:
    if head.method not in methods:
        raise MethodNotAllowed(head.method, methods)


def _respond_json(exchange: Exchange, status: int, value: Any, facts: Facts) -> None:
    exchange.respond(status, JSON + id_header(facts), json.dumps(value, separators=(",", ":")).encode())


if __name__ == "__main__":
    import sys

    from gateway.cli import serve_main

    sys.exit(serve_main())
