"""The story of a request, in order.

    server → api → admission → router → cache → reserve → dispatch → relay → settle → record

Every await is an effect: a place where the world can change, stall or crash. Nothing here knows SQL, sockets, which
engine runs the story, or what a provider is. On every way out each hold is resolved and one row is written.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gateway.admission import Admission
from gateway.caching import Caching, replayed
from gateway.chat import ChatRequest, parse_chat
from gateway.clock import Clock
from gateway.context import Answer, Caller, Engine, Facts, Options, Principal, RequestContext
from gateway.dispatch import Dispatcher
from gateway.errors import (
    BudgetExceeded,
    BudgetReserved,
    ClientGone,
    Draining,
    GatewayError,
    InternalError,
    InvalidRequest,
    ShuttingDown,
    StoreUnavailable,
)
from gateway.exact_cache import Hit
from gateway.health import Fleet
from gateway.keys import ShownKey
from gateway.ledger import Ledger
from gateway.rows import Exit, RequestRow
from gateway.settlement import Ending, Settlement
from llmkit.types import Cancel
from tracekit.trace import Span, SpanContext, Tracer

CLIENT_CLOSED_REQUEST = 499
"""nginx's status for a client that left; it is only ever written into rows."""

_OF_THE_LEDGER = (BudgetExceeded, BudgetReserved, StoreUnavailable)


class Gateway:
    """Composes admission, cache, ledger and dispatch into one request. Safe from any thread.

    head_hold_s     how long a stream's head may wait for the first content
    new_request_id  gives ids that sort by time
    on_error        is told of every exception that is not an outcome of a request, and of the request's id
    on_ended        is told of each request that has ended: its row, its context, and the monotonic instant
    on_overbilled   is told of each call that cost more than was held for it: see Settlement
    release         lets go of idle upstream connections once another gateway has taken over
    """

    def __init__(
        self,
        *,
        admission: Admission,
        caching: Caching,
        ledger: Ledger,
        dispatcher: Dispatcher,
        fleet: Fleet,
        tracer: Tracer,
        clock: Clock,
        engine: Engine,
        head_hold_s: float,
        new_request_id: Callable[[], str],
        on_error: Callable[[BaseException, str], None] = lambda error, request_id: None,
        on_ended: Callable[[RequestRow, RequestContext, float], None] = lambda row, context, ended_s: None,
        on_overbilled: Callable[[str, int, int], None] = lambda deployment, held_nanousd, cost_nanousd: None,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self._admission = admission
        self._caching = caching
        self._ledger = ledger
        self._dispatcher = dispatcher
        self._fleet = fleet
        self._tracer = tracer
        self._clock = clock
        self._engine = engine
        self._head_hold_s = head_hold_s
        self._new_request_id = new_request_id
        self._on_error = on_error
        self._on_ended = on_ended
        self._on_overbilled = on_overbilled
        self._release = release

    # --- for the front --------------------------------------------------------------------------------------------

    def authenticate(self, shown: ShownKey) -> Principal:
        """Who holds the key that was shown. Raises InvalidApiKey."""
        return self._admission.authenticate(shown)

    def visible_models(self, principal: Principal) -> tuple[str, ...]:
        """The names that `principal` may ask for."""
        return self._admission.visible_models(principal)

    @property
    def overbilled(self) -> tuple[str, ...]:
        """Deployments that were seen to bill more than a hold."""
        return self._fleet.overbilled

    def deployment_states(self) -> dict[str, str]:
        """How each deployment stands: closed, half_open, open, or why it is paused."""
        return self._fleet.states(self._clock.now_s())

    def succeed(self, former: "Gateway") -> None:
        """Take over what `former` had learnt, and end it: its requests in flight go on."""
        self._admission.succeed(former._admission)
        self._fleet.succeed(former._fleet)
        former._release()

    def new_facts(self) -> Facts:
        """The facts of a request that has just arrived."""
        return Facts(self._new_request_id())

    def context(
        self,
        principal: Principal,
        raw: bytes,
        caller: Caller,
        *,
        options: Options | None = None,
        facts: Facts | None = None,
        trace_parent: SpanContext | None = None,
    ) -> RequestContext:
        """A request that starts now."""
        options, facts = options or Options(), facts or self.new_facts()
        facts.started_s = now_s = self._clock.now_s()
        return RequestContext(
            principal,
            raw,
            caller,
            options,
            facts,
            started_s=now_s,
            started_ms=self._clock.wall_ms(),
            deadline_s=None if options.timeout_s is None else now_s + options.timeout_s,
            trace_parent=trace_parent,
        )

    async def serve(self, context: RequestContext) -> Answer:
        """Serve one chat request from body to row.

        Returns how it was answered. Raises GatewayError for the client, ClientGone if nobody is there; whatever is
        raised, the money is resolved and the row is written. Once the client has it, let the context go.
        """
        settlement = self._settlement(context)
        with self._tracer.start("request", parent=context.trace_parent) as span:
            try:
                return await self._serve(context, settlement, span)
            except BaseException as error:
                told = self._told(error, context)
                await settlement.close(_ending(told, context.facts))
                if told is error:
                    raise
                raise told from error
            finally:
                _describe(span, context, settlement.ending)

    async def refuse(self, principal: Principal, caller: Caller, facts: Facts, error: GatewayError) -> None:
        """Write the row of a request whose body never came to be served; it moves no money."""
        context = self.context(principal, b"", caller, facts=facts)
        await self._settlement(context).close(_ending(error, facts))

    def _settlement(self, context: RequestContext) -> Settlement:
        return Settlement(self._ledger, self._clock, context, self._flag, self._on_ended)

    def _flag(self, deployment: str, held_nanousd: int, cost_nanousd: int) -> None:
        self._fleet.flag(deployment)
        self._on_overbilled(deployment, held_nanousd, cost_nanousd)

    # --- for users of the library ---------------------------------------------------------------------------------

    def handle(
        self,
        raw_key: str | None,
        body: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        cancel: Cancel | None = None,
    ) -> dict[str, Any]:
        """Serve one chat request without streaming, on this thread.

        timeout_s  how long its client waits; None for as long as it takes
        cancel     ends it early, as for a client that left
        Returns text, response, cache, tier, provider, deployment, attempts, cost_nanousd, exit and request_id.
        Raises GatewayError.
        """
        principal, facts, raw = self.authenticate(ShownKey.of(raw_key)), self.new_facts(), _encoded(body, stream=False)
        options = Options(timeout_s=timeout_s)
        answer = self._engine.run(
            lambda caller: self._serve_and_let_go(self.context(principal, raw, caller, options=options, facts=facts)),
            cancel,
        )
        response = json.loads(answer.body or b"null")
        return {
            "text": response["choices"][0]["message"].get("content"),
            "response": response,
            "cache": facts.cache,
            "tier": facts.tier,
            "provider": facts.provider,
            "deployment": facts.deployment,
            "attempts": facts.attempts,
            "cost_nanousd": facts.cost_nanousd,
            "exit": facts.exit,
            "request_id": facts.request_id,
        }

    def stream(self, raw_key: str | None, body: Mapping[str, Any]) -> Iterator[str]:
        """Serve one chat request as a stream: an iterator over its events as text, framed as on the wire.

        Close it to leave early; the request then ends as for a client that left. Raises GatewayError at the first
        event, InvalidApiKey at once.
        """
        principal, raw = self.authenticate(ShownKey.of(raw_key)), _encoded(body, stream=True)
        return self._engine.iterate(lambda caller: self._serve_and_let_go(self.context(principal, raw, caller)))

    async def _serve_and_let_go(self, context: RequestContext) -> Answer:
        """Serve somebody in whose hands the answer is as soon as there is one."""
        try:
            return await self.serve(context)
        finally:
            context.let_go()

    # --- the story ------------------------------------------------------------------------------------------------

    async def _serve(self, context: RequestContext, settlement: Settlement, span: Span) -> Answer:
        request = parse_chat(context.raw, context.options)
        context.streams, context.tags = request.stream, request.options.tags
        admitted = self._admission.admit(context.principal, request, context.facts)
        span.set("route", admitted.plan.reason)
        try:
            recall = await self._caching.recall(context, request, admitted.plan)
            if recall.hit is not None:
                return await self._repeat(context, request, recall.hit, settlement)
            context.caller.will_wait(context.started_s + self._head_hold_s if request.stream else None)
            return await self._dispatcher.serve(context, request, admitted.plan, settlement, span, recall.keeper)
        except GatewayError:
            if not context.facts.attempts:
                admitted.give_back(self._clock.now_s(), context.facts)
            raise

    async def _repeat(self, context: RequestContext, request: ChatRequest, hit: Hit, settlement: Settlement) -> Answer:
        """Give a remembered answer again: no call, no money, a row."""
        ending = Ending(Exit.CACHE_HIT, 200)
        if not request.stream:
            await settlement.close(ending)
            return Answer(hit.body)
        stream = replayed(hit, wants_usage=request.wants_usage)
        context.facts.exit = ending.exit
        await context.caller.start()
        await settlement.close(ending)
        await context.caller.finish(stream)
        return Answer(None)

    # --- how it ended ---------------------------------------------------------------------------------------------

    def _told(self, error: BaseException, context: RequestContext) -> BaseException:
        """What is raised for `error`: itself if it is an outcome, else an error that says nothing but the id."""
        if isinstance(error, GatewayError | ClientGone):
            return error
        if isinstance(error, Draining):
            return ShuttingDown()
        self._on_error(error, context.facts.request_id)
        return InternalError(context.facts.request_id) if isinstance(error, Exception) else error


def _encoded(body: Mapping[str, Any], *, stream: bool) -> bytes:
    """The body as a client would have sent it. Raises InvalidRequest for what is not JSON."""
    try:
        return json.dumps({**body, "stream": stream}, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"The body cannot be written as JSON: {error}.", param="body") from error


def _ending(told: BaseException, facts: Facts) -> Ending:
    if isinstance(told, ClientGone):
        return Ending(Exit.CLIENT_GONE, CLIENT_CLOSED_REQUEST)
    if isinstance(told, GatewayError):
        by_us = isinstance(told, _OF_THE_LEDGER) or not (facts.hops or told.status == InternalError.status)
        return Ending(Exit.REJECTED if by_us and not facts.attempts else Exit.FAILED, told.status, told.code)
    return Ending(Exit.FAILED, InternalError.status, InternalError.code)


def _describe(span: Span, context: RequestContext, ending: Ending | None) -> None:
    """What the span of a request says: names, numbers and outcomes, never a prompt, an answer or a key."""
    facts = context.facts
    if ending is not None and ending.code is not None:
        span.fail(ending.code)
    span.update(
        {
            "request_id": facts.request_id,
            "tenant": context.principal.tenant,
            "key_id": context.principal.key_id,
            "alias": facts.alias,
            "stream": context.streams,
            "exit": facts.exit,
            "cache": facts.cache,
            "tier": facts.tier,
            "deployment": facts.deployment,
            "attempts": facts.attempts,
            "cost_nanousd": facts.cost_nanousd,
            "ttft_ms": context.ttft_ms,
        }
    )
