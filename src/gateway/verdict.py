"""What a failed upstream call means: what is tried next, how sick its deployment is, and what becomes of the money.

One pure table over facts; text of an upstream is never parsed for meaning. `again` is the same deployment, `next`
another one; both only until content has reached the client.

    fact                                          again        next  breaker  pause   money      told as
    not sent: refused, DNS, TLS, connect clock    if alone     yes   failure  -       NOT_SENT   503 (504 if a clock)
    closed without a byte                         no           yes   failure  -       UNKNOWN    503
    answered 429                                  after pause  yes   release  asked   UNBILLED   429
    answered 413 for a rate                       no           yes   release  -       UNBILLED   429
    answered 429, quota exhausted                 no           yes   release  long    UNBILLED   429 insufficient_quota
    answered 401, 402, 404 on the model id        no           yes   release  long    UNBILLED   502
    answered 403                                  no           yes   failure  -       UNBILLED   502
    answered 404 without a reason                 no           yes   release  -       UNBILLED   502
    answered 400, 413, 422, 404 with a reason,
        403 for what the prompt says              no           no    release  -       UNBILLED   the status, or 400
    answered another 4xx                          no           yes   release  -       UNBILLED   502
    answered 408, 5xx                             soon         yes   failure  -       UNBILLED   503
    answered 3xx                                  no           yes   failure  -       UNBILLED   502
    sent, then silence until a clock fired        no           yes   failure  -       UNKNOWN    504
    the client's own time is over                 no           no    release  -       as far     504
    2xx, then junk, a cut or an error object      no           yes   failure  -       PRODUCED   502
    cut after content                             no           no    failure  -       PRODUCED   in-band
    given up here: no memory for it, or larger
        than an answer may be; before content     no           yes   release  -       PRODUCED   502
        after content                             no           no    release  -       PRODUCED   in-band

A 403 may be about our credential, or a firewall's that dislikes one prompt: an alarm tells of it, as of what pauses for
long, and the breaker decides from several.

UNBILLED with usage all the same is settled by that usage. A connection that was pooled and turned out to be closed is
no failure: the transport replaces it once.
"""

import re
from enum import Enum, auto

from msgspec import Struct

from gateway.errors import (
    AllProvidersFailed,
    BudgetExceeded,
    BudgetReserved,
    GatewayError,
    InvalidApiKey,
    InvalidRequest,
    ModelNotAllowed,
    QuotaExhausted,
    RateLimited,
    StoreUnavailable,
    UpstreamError,
    UpstreamTimeout,
)
from gateway.evidence import Reach
from gateway.health import Absence
from gateway.redaction import without_secrets
from llmkit.errors import NO_ROOM, TOO_LARGE, ProviderError, ProviderErrorKind

_CLIENT_FAULTS = {400: 400, 403: 400, 404: 404, 413: 413, 422: 400}
_QUOTA_CODES = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "credit_balance_exhausted",
        "project_spend_limit_exceeded",
        "organization_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
    }
)
_MODEL_CODES = frozenset({"model_not_found", "DeploymentNotFound"})
"""OpenAI's word for an unknown model, and Azure's for an unknown deployment of one."""

_BOUNDS_OF_OURS = frozenset({NO_ROOM, TOO_LARGE})
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_FIELD = re.compile(r"[\w.\[\]$-]{1,128}", re.ASCII)
_OUR_CODES = frozenset(
    error.code for error in (InvalidApiKey, BudgetExceeded, BudgetReserved, ModelNotAllowed, StoreUnavailable)
)
_RETRY_AFTER_S = 1.0


class Again(Enum):
    """When the deployment that failed is asked again."""

    NEVER = auto()
    SOON = auto()
    AFTER_PAUSE = auto()
    IF_ALONE = auto()


class Pause(Enum):
    """How long the deployment gets no call at all, whatever its breaker says."""

    NONE = auto()
    ASKED = auto()
    LONG = auto()


class _Ruling(Struct, frozen=True):
    """A row of the table."""

    again: Again
    elsewhere: bool
    sick: bool
    pause: Pause
    reach: Reach
    alarm: bool = False


_NOT_SENT = _Ruling(Again.IF_ALONE, True, True, Pause.NONE, Reach.NOT_SENT)
_CLOSED = _Ruling(Again.NEVER, True, True, Pause.NONE, Reach.UNKNOWN)
_LIMITED = _Ruling(Again.AFTER_PAUSE, True, False, Pause.ASKED, Reach.UNBILLED)
_OPERATORS_FAULT = _Ruling(Again.NEVER, True, False, Pause.LONG, Reach.UNBILLED, alarm=True)
_FORBIDDEN = _Ruling(Again.NEVER, True, True, Pause.NONE, Reach.UNBILLED, alarm=True)
_REFUSED = _Ruling(Again.NEVER, True, False, Pause.NONE, Reach.UNBILLED)
_CLIENTS_FAULT = _Ruling(Again.NEVER, False, False, Pause.NONE, Reach.UNBILLED)
_BUSY = _Ruling(Again.SOON, True, True, Pause.NONE, Reach.UNBILLED)
_REDIRECTED = _Ruling(Again.NEVER, True, True, Pause.NONE, Reach.UNBILLED)
_SILENT = _Ruling(Again.NEVER, True, True, Pause.NONE, Reach.UNKNOWN)
_TOO_LATE = {
    reach: _Ruling(Again.NEVER, False, False, Pause.NONE, reach)
    for reach in (Reach.NOT_SENT, Reach.UNKNOWN, Reach.PRODUCED)
}
_UNUSABLE = _Ruling(Again.NEVER, True, True, Pause.NONE, Reach.PRODUCED)
_CUT = _Ruling(Again.NEVER, False, True, Pause.NONE, Reach.PRODUCED)
_GIVEN_UP = _Ruling(Again.NEVER, True, False, Pause.NONE, Reach.PRODUCED)
_CUT_BY_US = _Ruling(Again.NEVER, False, False, Pause.NONE, Reach.PRODUCED)


class Verdict(Struct, frozen=True):
    """What follows from one failed call.

    again, elsewhere  whether the same deployment, or the next one, may be tried
    sick              whether it counts against the deployment's breaker
    pause             how long the deployment is left alone; `wait_s` is what it asked for, None if nothing
    reach             what the call's money is judged by
    outcome           one word for the route and the span
    error             what the client is told if this is the end
    alarm             whether an operator has to look at the deployment
    status            what the upstream answered with, if it did
    failure           see ProviderError
    """

    again: Again
    elsewhere: bool
    sick: bool
    pause: Pause
    wait_s: float | None
    reach: Reach
    outcome: str
    error: GatewayError
    alarm: bool = False
    status: int | None = None
    failure: str | None = None

    @property
    def exhausted(self) -> bool:
        """Whether the upstream's quota is used up, which no short wait changes."""
        return isinstance(self.error, QuotaExhausted)

    @property
    def absence(self) -> Absence:
        """Why its deployment is left alone, if it is for long, or its operator alarmed."""
        return Absence.QUOTA if self.exhausted else Absence.REFUSED


class AttemptFailed(Exception):
    """An upstream call that gave the client nothing; another one may."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.outcome)
        self.verdict = verdict


def judge(failure: ProviderError, *, produced: bool = False) -> Verdict:
    """The verdict on one failed call; `produced` says whether content had reached the client before."""
    row = _row(failure, produced)
    return Verdict(
        row.again,
        row.elsewhere,
        row.sick,
        row.pause,
        failure.retry_after_s,
        row.reach,
        _outcome(failure),
        _told(failure),
        row.alarm,
        failure.status,
        failure.failure,
    )


def unusable(failure: str) -> Verdict:
    """The verdict on an answer of status 200 that is none; nothing of it has reached the client.

    failure  see ProviderError
    """
    return judge(
        ProviderError(ProviderErrorKind.MALFORMED, UNUSABLE_ANSWER, sent=True, first_byte_seen=True, failure=failure)
    )


UNUSABLE_ANSWER = "The upstream's answer could not be used."


def _row(failure: ProviderError, produced: bool) -> _Ruling:
    if failure.clock == "client":
        return _TOO_LATE[Reach.PRODUCED if produced else Reach.UNKNOWN if failure.sent else Reach.NOT_SENT]
    if failure.failure in _BOUNDS_OF_OURS:
        return _CUT_BY_US if produced else _GIVEN_UP
    if produced:
        return _CUT
    if not failure.sent:
        return _NOT_SENT
    if failure.status is not None and failure.status >= 300:
        return _row_of_status(failure.status, failure)
    if failure.kind is ProviderErrorKind.TIMEOUT:
        return _SILENT
    return _UNUSABLE if failure.first_byte_seen else _CLOSED


def _row_of_status(status: int, failure: ProviderError) -> _Ruling:
    if status == 429:
        return _OPERATORS_FAULT if _is_quota(failure) else _LIMITED
    if _is_limit(failure):
        return _REFUSED
    if failure.kind is ProviderErrorKind.AUTH:
        return _FORBIDDEN if status == 403 else _OPERATORS_FAULT
    if _is_about_the_model(failure):
        return _OPERATORS_FAULT
    if _is_clients_fault(failure):
        return _CLIENTS_FAULT
    if failure.kind is ProviderErrorKind.CLIENT:
        return _REFUSED
    return _REDIRECTED if status < 400 else _BUSY


def _is_limit(failure: ProviderError) -> bool:
    """Some say by 413 that a request has more tokens than a minute has; a smaller one may still pass."""
    return failure.status == 429 or (failure.status == 413 and failure.code == "rate_limit_exceeded")


def _is_quota(failure: ProviderError) -> bool:
    return failure.code in _QUOTA_CODES or failure.error_type in _QUOTA_CODES


def _is_about_the_model(failure: ProviderError) -> bool:
    return failure.status == 404 and (failure.code in _MODEL_CODES or failure.param == "model")


def _is_clients_fault(failure: ProviderError) -> bool:
    """A 404 is only if it says what of the request was not found; else the address or the model may be wrong."""
    if failure.status == 404:
        return not _is_about_the_model(failure) and bool(failure.code or failure.param)
    return failure.kind is ProviderErrorKind.CLIENT and failure.status in _CLIENT_FAULTS


def _outcome(failure: ProviderError) -> str:
    return "quota_exhausted" if _is_limit(failure) and _is_quota(failure) else str(failure.kind)


def _told(failure: ProviderError) -> GatewayError:
    kind, status = failure.kind, failure.status
    if _is_limit(failure):
        if _is_quota(failure):
            return QuotaExhausted()
        return RateLimited("The upstream is at its rate limit.", retry_after_s=failure.retry_after_s or _RETRY_AFTER_S)
    if _is_clients_fault(failure):
        return InvalidRequest(
            without_secrets(failure.message),
            param=failure.param if failure.param and _is_field(failure.param) else None,
            status=_CLIENT_FAULTS[status or 400],
            code=failure.code if failure.code and _is_upstreams_code(failure.code) else None,
        )
    if kind is ProviderErrorKind.TIMEOUT:
        return UpstreamTimeout("The upstream did not answer in time.")
    if kind is ProviderErrorKind.SERVER and (status is not None or not failure.first_byte_seen):
        return AllProvidersFailed("No upstream could answer this request.", retry_after_s=_RETRY_AFTER_S)
    return UpstreamError(UNUSABLE_ANSWER)


def _is_upstreams_code(code: str) -> bool:
    """Whether it is a plain word, and none that a client would take for the gateway's own refusal."""
    return _CODE.fullmatch(code) is not None and code not in _OUR_CODES


def _is_field(param: str) -> bool:
    return _FIELD.fullmatch(param) is not None and without_secrets(param) == param
