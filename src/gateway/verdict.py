"""What a failed upstream call means: for its money, and for the client if nobody else answers. One pure table.

    fact                                             money        told as
    not sent (refused, DNS, TLS, connect clock)      NOT_SENT     503 all_providers_failed (504 if a clock fired)
    answered 429                                     UNBILLED     429 rate_limit_exceeded, the upstream's Retry-After
    answered 400, 413, 422                           UNBILLED     400 or 413 with the upstream's message
    answered 401, 402, 403, 404, other 4xx, 3xx      UNBILLED     502 upstream_error: never shown as the client's
    answered 408, 5xx                                UNBILLED     503 all_providers_failed
    sent, then silence until a clock fired           UNKNOWN      504 upstream_timeout
    closed without a byte                            UNKNOWN      503 all_providers_failed
    2xx, then junk, a cut or an error object         PRODUCED     502 upstream_error

A clock that fires after something was produced leaves PRODUCED: what was seen is settled. Decided from facts; text of
an upstream is never parsed for meaning.
"""

import re
from dataclasses import dataclass

from gateway.errors import AllProvidersFailed, GatewayError, InvalidRequest, RateLimited, UpstreamError, UpstreamTimeout
from gateway.evidence import Reach
from llmkit.errors import ProviderError, ProviderErrorKind

_CLIENT_FAULTS = {400: 400, 413: 413, 422: 400}
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_FIELD = re.compile(r"[\w.\[\]$-]{1,128}", re.ASCII)
_SECRET = re.compile(r"(?i)\b(?:sk[-_]|(?:(?:key|token)[-_]|bearer\s+)(?=\S*\d))[\w.~+/=-]{8,}")
"""A credential has a prefix, and a digit somewhere; "the API key provided" and "bearer authentication" have none."""
_OUR_CODES = frozenset(
    {"invalid_api_key", "budget_exceeded", "budget_reserved", "model_not_allowed", "store_unavailable"}
)
_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reach` is what the call's money is judged by, `error` what the client is told if this is the end."""

    reach: Reach
    error: GatewayError


def judge(failure: ProviderError, *, produced: bool = False) -> Verdict:
    """The verdict on one failed call; `produced` says whether anything of an answer had been seen before."""
    return Verdict(_reach(failure, produced), _told(failure))


def _reach(failure: ProviderError, produced: bool) -> Reach:
    if produced:
        return Reach.PRODUCED
    if not failure.sent:
        return Reach.NOT_SENT
    if failure.status is not None and failure.status >= 300:
        return Reach.UNBILLED
    if failure.first_byte_seen and failure.kind is not ProviderErrorKind.TIMEOUT:
        return Reach.PRODUCED
    return Reach.UNKNOWN


def _told(failure: ProviderError) -> GatewayError:
    kind, status = failure.kind, failure.status
    if kind is ProviderErrorKind.RATE_LIMIT:
        return RateLimited("The upstream is at its rate limit.", retry_after_s=failure.retry_after_s or _RETRY_AFTER_S)
    if kind is ProviderErrorKind.CLIENT and status in _CLIENT_FAULTS:
        return InvalidRequest(
            without_secrets(failure.message),
            param=failure.param if failure.param and _is_field(failure.param) else None,
            status=_CLIENT_FAULTS[status],
            code=failure.code if failure.code and _is_upstreams_code(failure.code) else None,
        )
    if kind is ProviderErrorKind.TIMEOUT:
        return UpstreamTimeout("The upstream did not answer in time.")
    if kind is ProviderErrorKind.SERVER and (status is not None or not failure.first_byte_seen):
        return AllProvidersFailed("No upstream could answer this request.", retry_after_s=_RETRY_AFTER_S)
    return UpstreamError("The upstream's answer could not be used.")


def _is_upstreams_code(code: str) -> bool:
    """Whether it is a plain word, and none that a client would take for the gateway's own refusal."""
    return _CODE.fullmatch(code) is not None and code not in _OUR_CODES


def _is_field(param: str) -> bool:
    return _FIELD.fullmatch(param) is not None and without_secrets(param) == param


def without_secrets(message: str) -> str:
    """An upstream's message without anything that looks like a credential."""
    return _SECRET.sub("[removed]", message)[:500]
