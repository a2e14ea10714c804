"""What went wrong with an upstream call, as facts.

Says what happened and how far the call got. Does not say what to do about it: retry, failover, breaker and money are
decided elsewhere from these facts, never from message text.

    Exception
    └── ProviderError          kind:
                               rate_limit  429
                               server      5xx, 408, or the connection failed
                               timeout     one of our clocks fired; `clock` names it
                               malformed   an answer that is not one: junk, cut, too large, a redirect
                               auth        401, 402, 403: the operator's fault
                               client      other 4xx, and 403 for a prompt that moderation refused: the request's own
                                           fault, or the operator's; the code may say
"""

from enum import StrEnum

from llmkit.types import Usage


class ProviderErrorKind(StrEnum):
    """The six ways an upstream call fails."""

    RATE_LIMIT = "rate_limit"
    SERVER = "server"
    TIMEOUT = "timeout"
    MALFORMED = "malformed"
    AUTH = "auth"
    CLIENT = "client"


def kind_of_status(status: int) -> ProviderErrorKind:
    """What an answer of this HTTP status, 300 or more, says; a redirect is no answer."""
    if status == 429:
        return ProviderErrorKind.RATE_LIMIT
    if status in (401, 402, 403):
        return ProviderErrorKind.AUTH
    if status == 408 or status >= 500:
        return ProviderErrorKind.SERVER
    return ProviderErrorKind.CLIENT if status >= 400 else ProviderErrorKind.MALFORMED


NO_ROOM = "no room"
"""The `failure` of a call whose answer was given up for want of memory here, which says nothing of the upstream."""

TOO_LARGE = "too large"
"""The `failure` of a call whose answer had begun and passed our bound: its request may have asked for so much."""


class ProviderError(Exception):
    """An upstream call that gave no usable answer.

    message            safe to show: our own words, or the upstream's own for kind `client`.
    sent               whether any byte of the request may have reached the upstream: if so, it may bill.
    first_byte_seen    whether a byte of the answer arrived.
    status             the HTTP status, if there was one.
    code, param, error_type  from the upstream's error body, if it had them.
    retry_after_s      seconds the upstream asked to wait, >= 0.
    usage              what the upstream reported before it failed.
    reused_connection  whether the request went out on a pooled connection.
    clock              "connect", "ttft", "idle", "total" or "client": the clock that fired.
    failure            what failed, for operators: an exception's class, with its library's name for the case; "timeout"
                       and the clock; or some words of ours, never the upstream's. None if the status says it.
    """

    def __init__(
        self,
        kind: ProviderErrorKind,
        message: str,
        *,
        sent: bool,
        first_byte_seen: bool,
        status: int | None = None,
        code: str | None = None,
        param: str | None = None,
        error_type: str | None = None,
        retry_after_s: float | None = None,
        usage: Usage | None = None,
        reused_connection: bool = False,
        clock: str | None = None,
        failure: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.sent = sent
        self.first_byte_seen = first_byte_seen
        self.status = status
        self.code = code
        self.param = param
        self.error_type = error_type
        self.retry_after_s = retry_after_s
        self.usage = usage
        self.reused_connection = reused_connection
        self.clock = clock
        self.failure = failure if clock is None else f"timeout {clock}"
