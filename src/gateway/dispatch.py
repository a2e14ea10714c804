"""Walks the plan of one request: permit, hold, call, and what comes next when the call fails.

    for each stage (a tier), for each deployment in it:
        permit? ── no ──> the next deployment
        hold ──> call ──> the answer reaches the client: done
                   └── failed ──> the verdict says: here again, the next deployment, or the end
    a stage without an answer, or an answer that a validator refused ──> the next stage

What a failure means stands in one table (`verdict`), what is left of a hold in another (`settlement`); here is only the
order of things. If money for the next call is refused, the last outcome stands. Knows no HTTP and no SQL.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto

from msgspec import Struct

from gateway.attempt import Attempt, Upstreams
from gateway.breaker import Permit
from gateway.chat import ChatRequest
from gateway.clock import Clock
from gateway.config_schema import RetryConfig
from gateway.context import Answer, RequestContext
from gateway.errors import (
    AllProvidersFailed,
    BudgetExceeded,
    BudgetReserved,
    ClientGone,
    Draining,
    GatewayError,
    InternalError,
    QuotaExhausted,
    RateLimited,
    UpstreamTimeout,
    forget,
)
from gateway.evidence import Evidence, Reach
from gateway.health import LONG_PAUSE_S, LONGEST_PAUSE_S, Absence, DeploymentHealth, Entry, Fleet
from gateway.holds import AlreadyResolved, Purpose
from gateway.relay import AnswerRefused, Delivery, Keeper
from gateway.relay_stream import relay_stream
from gateway.relay_whole import relay_whole
from gateway.retry import backoff_s
from gateway.router import RoutePlan
from gateway.rows import Exit
from gateway.settlement import Settlement
from gateway.verdict import Again, AttemptFailed, Pause, Verdict
from tracekit.trace import Span

_OUT_OF_SERVICE_S = 60.0
"""When to ask again for a model whose deployments have no price in force, or were all taken out."""


class _Then(Enum):
    """What follows a deployment that gave no answer."""

    NEXT_DEPLOYMENT = auto()
    NEXT_STAGE = auto()
    STOP = auto()


class _Refused(Struct, frozen=True):
    """An answer that a validator refused, and by whom it was made."""

    answer: AnswerRefused
    attempt: Attempt


class _Walk(Struct):
    """One request on its way through its plan.

    met        every deployment that was called or found absent
    error      what the client would be told of the last call that failed
    outcome    how that call ended, in one word
    asked_s    how long the last one that was at no limit asked to be left alone, 1 at least
    limited    whether every deployment so far was at a limit of its upstream; `exhausted`: at its quota
    refused    the last answer that a validator refused
    """

    context: RequestContext
    request: ChatRequest
    plan: RoutePlan
    settlement: Settlement
    span: Span
    keeper: Keeper | None
    met: list[str] = []
    error: GatewayError | None = None
    outcome: str = "unknown"
    asked_s: float = 1.0
    limited: bool = True
    exhausted: bool = True
    refused: _Refused | None = None

    @property
    def has_outcome(self) -> bool:
        return self.error is not None or self.refused is not None

    def fail(self, verdict: Verdict) -> None:
        """A call failed."""
        self.error, self.outcome = verdict.error, verdict.outcome
        is_limit = isinstance(verdict.error, RateLimited | QuotaExhausted)
        if not is_limit:
            self.asked_s = min(max(verdict.wait_s or 0.0, 1.0), LONGEST_PAUSE_S)
        self.limited &= is_limit
        self.exhausted &= verdict.exhausted

    def expire(self) -> None:
        """The request's own time is over."""
        self.error = UpstreamTimeout("The request's own time was over before an upstream answered.")
        self.limited = False

    def skip(self, deployment: str, absence: Absence | None) -> None:
        """A deployment got no call."""
        self.context.facts.hop(absence or Absence.OPEN, deployment)
        self.limited &= absence in (Absence.RATE_LIMITED, Absence.QUOTA)
        self.exhausted &= absence is Absence.QUOTA


class _Turn(Struct, frozen=True):
    """A deployment's turn in a walk.

    health         its own
    bound_nanousd  the most that the dearest deployment of the stage can cost
    stage          index of the stage
    attempts       those of the stage; `at` is the index of this one
    """

    attempt: Attempt
    name: str
    health: DeploymentHealth
    bound_nanousd: int
    stage: int
    attempts: Sequence[Attempt]
    at: int

    @property
    def rest(self) -> Sequence[Attempt]:
        """Those of the stage whose turn comes later."""
        return self.attempts[self.at + 1 :]

    @property
    def alone(self) -> bool:
        """Whether the stage has no other deployment."""
        return len(self.attempts) == 1


class Dispatcher:
    """Immutable but for the health of the deployments, which locks itself.

    draw      gives numbers from [0, 1), for the jitter
    on_call_failed  is told of each call that failed before its client had content: the deployment, and the verdict
    on_state  is told the name of a deployment and its state, when that has changed
    on_call   is told the name of the deployment of each call that was made, and how the call ended, in one word
    """

    def __init__(
        self,
        upstreams: Upstreams,
        fleet: Fleet,
        retry: RetryConfig,
        clock: Clock,
        *,
        draw: Callable[[], float],
        on_call_failed: Callable[[str, Verdict], None] = lambda deployment, verdict: None,
        on_state: Callable[[str, str], None] = lambda deployment, state: None,
        on_call: Callable[[str, str], None] = lambda deployment, outcome: None,
    ) -> None:
        self._upstreams = upstreams
        self._fleet = fleet
        self._retry = retry
        self._clock = clock
        self._draw = draw
        self._on_call_failed = on_call_failed
        self._on_state = on_state
        self._on_call = on_call

    async def serve(
        self,
        context: RequestContext,
        request: ChatRequest,
        plan: RoutePlan,
        settlement: Settlement,
        span: Span,
        keeper: Keeper | None = None,
    ) -> Answer:
        """Give the client an answer of one of the plan's deployments.

        Raises GatewayError: of the ledger if the first hold is refused, else what the last outcome means for the
        client; ClientGone, Draining. The settlement knows of every call that was made.
        """
        walk = _Walk(context, request, plan, settlement, span, keeper)
        for index, stage in enumerate(plan.stages):
            attempts = self._upstreams.prepare(request, self._fleet.in_service(stage), context.started_ms)
            for at in range(len(attempts)):
                answer = await self._try_deployment(walk, self._turn(index, attempts, at))
                if isinstance(answer, Answer):
                    return answer
                if answer is _Then.STOP:
                    return await self._conclude(walk)
                if answer is _Then.NEXT_STAGE:
                    break
        return await self._conclude(walk)

    def _turn(self, stage: int, attempts: Sequence[Attempt], at: int) -> _Turn:
        """The turn of one of a stage's attempts."""
        name, dearest = attempts[at].deployment.name, max([attempt.bound_nanousd for attempt in attempts])
        return _Turn(attempts[at], name, self._fleet[name], dearest, stage, attempts, at)

    async def _try_deployment(self, walk: _Walk, turn: _Turn) -> Answer | _Then:
        """Call one deployment, again if its verdicts allow that, until it answers or its turn is over."""
        health = turn.health
        walk.met.append(turn.name)
        retries = 0
        while True:
            now_s = self._clock.now_s()
            if walk.context.deadline_s is not None and now_s >= walk.context.deadline_s:
                walk.expire()
                return _Then.STOP
            entry = health.enter(now_s)
            if entry is None:
                if not retries:
                    walk.skip(turn.name, health.absence(now_s))
                return _Then.NEXT_DEPLOYMENT
            if not retries:
                health.retries.note_request(now_s)
            try:
                return await self._call(walk, turn, entry, is_heard=retries < health.most_heard)
            except AnswerRefused as refused:
                forget(refused)
                walk.refused = _Refused(refused, turn.attempt)
                return _Then.NEXT_STAGE
            except AttemptFailed as failed:
                forget(failed)
                verdict = failed.verdict
            except (BudgetExceeded, BudgetReserved, AlreadyResolved):
                if not walk.has_outcome:
                    raise
                return _Then.STOP
            walk.fail(verdict)
            self._on_call_failed(turn.name, verdict)
            self._pause(turn, entry.credential, verdict)
            wait_s = self._wait_before_again(walk, turn, verdict, entry.credential, retries)
            if wait_s is None:
                return _Then.NEXT_DEPLOYMENT if verdict.elsewhere else _Then.STOP
            retries += 1
            await self._wait(walk.context, wait_s)

    async def _call(self, walk: _Walk, turn: _Turn, entry: Entry, *, is_heard: bool) -> Answer:
        """One call, with money behind it; on every way out the permit is answered, and how a call ended is told.

        is_heard  whether the breaker is told of a failure that may lie in the request
        """
        attempt, permit = turn.attempt, entry.permit
        evidence, purpose = attempt.evidence(), _purpose_of(walk, attempt)
        answer_permit: Callable[[float], None] = permit.success
        outcome, is_made = "ok", False
        try:
            await walk.settlement.cover(purpose, turn.bound_nanousd, evidence, attempt.price, former=walk.outcome)
            is_made = True
            answer, broke = await self._relay(walk, turn, evidence, entry.credential)
            if broke is not None:
                answer_permit, outcome = permit.failure if is_heard else permit.release, broke
            return answer
        except BaseException as error:
            answer_permit, outcome = _answer_to(permit, error, is_heard=is_heard), _outcome_of(error)
            raise
        finally:
            now_s = self._clock.now_s()
            answer_permit(now_s)
            if is_made:
                self._on_call(turn.name, outcome)
            self._tell_news(turn, now_s)

    async def _relay(self, walk: _Walk, turn: _Turn, evidence: Evidence, credential: int) -> tuple[Answer, str | None]:
        """Make the call and give the client its answer; and how the upstream broke, if content had gone out by then."""
        context, request, deployment = walk.context, walk.request, turn.attempt.deployment
        exit_ = _exit_of(walk, turn)
        with walk.span.child("attempt", deployment=turn.name, provider=deployment.provider) as span:
            upstream = await self._upstreams.open(context, request, turn.attempt, evidence, span, credential=credential)
            try:
                delivery = Delivery(
                    context,
                    request,
                    upstream,
                    evidence,
                    walk.settlement,
                    self._clock,
                    exit=exit_,
                    validates=len(walk.plan.stages) > 1,
                    may_climb=turn.stage + 1 < len(walk.plan.stages),
                    keeper=walk.keeper,
                )
                answer = await (relay_stream(delivery) if request.stream else relay_whole(delivery))
            except AttemptFailed as failed:
                span.fail(failed.verdict.outcome)
                raise
            finally:
                upstream.close()
            if delivery.broke is not None:
                span.fail(delivery.broke)
            return answer, delivery.broke

    # --- after a failure ----------------------------------------------------------------------------------------

    def _pause(self, turn: _Turn, credential: int, verdict: Verdict) -> None:
        if verdict.pause is Pause.NONE:
            return
        asked_s, why = verdict.wait_s, Absence.RATE_LIMITED
        wait_s = self._retry.pause_s if asked_s is None else asked_s
        if verdict.pause is Pause.LONG:
            why = verdict.absence
            wait_s = max(asked_s or 0.0, LONG_PAUSE_S)
        now_s = self._clock.now_s()
        turn.health.pause(credential, now_s + min(wait_s, LONGEST_PAUSE_S), why)
        self._tell_news(turn, now_s)

    def _tell_news(self, turn: _Turn, now_s: float) -> None:
        state = turn.health.news(now_s)
        if state is not None:
            self._on_state(turn.name, state)

    def _wait_before_again(
        self, walk: _Walk, turn: _Turn, verdict: Verdict, credential: int, retries: int
    ) -> float | None:
        """Seconds after which the same deployment is asked again; None if it is not."""
        health, now_s = turn.health, self._clock.now_s()
        if verdict.pause is not Pause.NONE and retries + 1 < health.credentials and health.is_free(now_s, credential):
            return 0.0
        if retries >= self._retry.max_retries:
            return None
        least_s = self._least_wait_s(turn, verdict, now_s)
        if least_s is None:
            return None
        wait_s = least_s + backoff_s(retries, base_s=self._retry.base_s, cap_s=self._retry.cap_s, draw=self._draw)
        deadline_s = walk.context.deadline_s
        if deadline_s is not None and now_s + wait_s >= deadline_s:
            return None
        return wait_s if health.retries.take(now_s) else None

    def _least_wait_s(self, turn: _Turn, verdict: Verdict, now_s: float) -> float | None:
        """What comes before the jitter; None if the same deployment is not to be asked again."""
        match verdict.again:
            case Again.SOON:
                asked_s = verdict.wait_s or 0.0
            case Again.AFTER_PAUSE if turn.alone:
                asked_s = turn.health.wait_s(now_s)
            case Again.IF_ALONE if not any(self._fleet[other.deployment.name].is_free(now_s) for other in turn.rest):
                asked_s = 0.0
            case _:
                return None
        return asked_s if asked_s <= self._retry.retry_after_max_s else None

    async def _wait(self, context: RequestContext, seconds: float) -> None:
        started_s = self._clock.now_s()
        try:
            await context.caller.pause(seconds)
        finally:
            context.facts.upstream_s += self._clock.now_s() - started_s

    # --- the end without an answer ------------------------------------------------------------------------------

    async def _conclude(self, walk: _Walk) -> Answer:
        """A refused answer is better than none; else raise what the walk came to."""
        if walk.refused is None:
            raise self._error_of(walk)
        deployment = walk.refused.attempt.deployment
        walk.context.facts.served_by(deployment.name, deployment.provider, deployment.tier)
        return await walk.refused.answer.deliver()

    def _error_of(self, walk: _Walk) -> GatewayError:
        if not walk.met:
            return AllProvidersFailed("No deployment of this model is in service.", retry_after_s=_OUT_OF_SERVICE_S)
        now_s = self._clock.now_s()
        soonest_s = max(min(self._fleet[name].wait_s(now_s) for name in walk.met), walk.asked_s)
        if walk.limited:
            if walk.exhausted:
                return QuotaExhausted(retry_after_s=soonest_s)
            return RateLimited("Every upstream of this model is at its rate limit.", retry_after_s=soonest_s)
        if walk.error is None or isinstance(walk.error, RateLimited | QuotaExhausted | AllProvidersFailed):
            return AllProvidersFailed("No upstream could answer this request.", retry_after_s=soonest_s)
        return walk.error


def _purpose_of(walk: _Walk, attempt: Attempt) -> Purpose:
    """What the next call's hold is for."""
    facts = walk.context.facts
    return Purpose(
        request_id=facts.request_id,
        attempt=facts.attempts + 1,
        alias=walk.plan.alias,
        deployment=attempt.deployment.name,
        price_version=attempt.price.version,
    )


def _exit_of(walk: _Walk, turn: _Turn) -> Exit:
    """How the request ends if this deployment answers."""
    if turn.stage:
        return Exit.ESCALATED
    if turn.name != walk.plan.stages[0][0].name:
        return Exit.FAILED_OVER
    return Exit.RETRIED if walk.context.facts.attempts else Exit.ROUTED


def _answer_to(permit: Permit, error: BaseException, *, is_heard: bool) -> Callable[[float], None]:
    """How a permit is answered whose call ended in `error`: an answer that was refused is one all the same."""
    if isinstance(error, AnswerRefused):
        return permit.success
    if isinstance(error, AttemptFailed) and error.verdict.sick and (is_heard or error.verdict.reach is Reach.NOT_SENT):
        return permit.failure
    return permit.release


def _outcome_of(error: BaseException) -> str:
    """How a call ended that brought the client no answer, or not the whole of it, in one word."""
    match error:
        case AnswerRefused():
            return error.reason
        case AttemptFailed():
            return error.verdict.outcome
        case ClientGone():
            return "client_gone"
        case Draining():
            return "draining"
        case _:
            return InternalError.code
