"""Every way in which the gateway refuses or fails a request, and what a client is told.

    GatewayError                    status, code, type, message, param, retry_after_s, should_retry
    ├── HttpRefusal                 400, 408, 411, 413, 414, 415, 417, 431  the rules of HTTP itself
    ├── InvalidRequest              400  the body or a header says something that cannot be served
    ├── InvalidApiKey               401  missing, unknown, expired or blocked: one message for all
    ├── BudgetExceeded              402  spent + unresolved leave no room at some level
    ├── ModelNotAllowed             403
    ├── RegionNotAllowed            403  the model is served, but nowhere that this tenant may use
    ├── ModelNotFound, UnknownUrl   404
    ├── MethodNotAllowed            405
    ├── RateLimited                 429  the gateway's own limit, or every candidate is limited upstream
    ├── QuotaExhausted              429  the operator's own quota at every candidate is used up
    ├── BudgetReserved              429  there is money, but requests in flight hold it
    ├── InternalError               500
    ├── UpstreamError               502  the last upstream's answer was unusable
    ├── AllProvidersFailed          503
    ├── ShuttingDown                503
    ├── Overloaded                  503  no place among the requests that are worked on, or no memory for one more
    ├── StoreUnavailable            503  the ledger cannot commit, so nothing is sent
    │   └── LedgerUnconfirmed       503  it was restored from a backup, and no operator has confirmed that yet
    └── UpstreamTimeout             504
    ClientGone                      the client left; nobody is there to be told
    Draining                        the process ends and this request has used up its grace

The codes and types are the contract of the HTTP interface. A GatewayError below the HTTP edge carries facts; nobody
but the edge turns it into bytes.
"""


class GatewayError(Exception):
    """A request that ends without an answer from a model.

    status         the HTTP status
    code, type     OpenAI's machine-readable pair
    message        for the client: no secret, no upstream address, no other tenant
    param          the field at fault, if one is
    retry_after_s  seconds after which a retry can succeed, if known
    should_retry   False tells client libraries not to retry, whatever the status suggests
    """

    status = 500
    code = "internal_error"
    type = "server_error"
    should_retry: bool | None = None

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


class HttpRefusal(GatewayError):
    """Refused by the rules of HTTP; of what could not be read whole, the connection closes.

    status   HTTP status, 400..499
    code     machine-readable code of the error body
    message  quotes nothing that the client sent
    """

    type = "invalid_request_error"

    def __init__(self, status: int, code: str, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.status = status
        self.code = code


class InvalidRequest(GatewayError):
    status, code, type = 400, "invalid_request", "invalid_request_error"

    def __init__(self, message: str, *, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message, param=param)
        self.status = status
        self.code = code or type(self).code


class InvalidApiKey(GatewayError):
    status, code, type = 401, "invalid_api_key", "invalid_request_error"

    def __init__(self) -> None:
        super().__init__("Missing or invalid API key.")


class BudgetExceeded(GatewayError):
    status, code, type = 402, "budget_exceeded", "insufficient_quota"
    should_retry = False


class ModelNotAllowed(GatewayError):
    status, code, type = 403, "model_not_allowed", "permission_error"

    def __init__(self, model: str) -> None:
        super().__init__(f"This key may not use the model `{model}`.", param="model")


class RegionNotAllowed(GatewayError):
    status, code, type = 403, "model_not_allowed", "permission_error"

    def __init__(self, model: str) -> None:
        super().__init__(f"The model `{model}` is not served in a region that this key may use.", param="model")


class ModelNotFound(GatewayError):
    status, code, type = 404, "model_not_found", "invalid_request_error"

    def __init__(self, model: str) -> None:
        super().__init__(f"The model `{model}` does not exist or you do not have access to it.", param="model")


class UnknownUrl(GatewayError):
    status, code, type = 404, "unknown_url", "invalid_request_error"

    def __init__(self, method: str, path: str, meant: str | None = None) -> None:
        hint = f" Did you mean {meant}?" if meant else ""
        super().__init__(f"Unknown request URL: {method} {path}.{hint}")


class MethodNotAllowed(GatewayError):
    status, code, type = 405, "method_not_allowed", "invalid_request_error"

    def __init__(self, method: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"{method} is not allowed here; use {' or '.join(allowed)}.")
        self.allowed = allowed


class RateLimited(GatewayError):
    status, code, type = 429, "rate_limit_exceeded", "rate_limit_error"


class QuotaExhausted(GatewayError):
    status, code, type = 429, "insufficient_quota", "insufficient_quota"
    should_retry = False

    def __init__(self, *, retry_after_s: float | None = None) -> None:
        super().__init__("The upstream's quota is exhausted.", retry_after_s=retry_after_s)


class BudgetReserved(GatewayError):
    status, code, type = 429, "budget_reserved", "rate_limit_error"

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_s=1)


class InternalError(GatewayError):
    def __init__(self, request_id: str | None) -> None:
        named = f" Request id: {request_id}." if request_id else ""
        super().__init__(f"The gateway failed to handle this request.{named}")


class UpstreamError(GatewayError):
    status, code = 502, "upstream_error"


class AllProvidersFailed(GatewayError):
    status, code = 503, "all_providers_failed"

    def __init__(self, message: str, *, retry_after_s: float = 1) -> None:
        super().__init__(message, retry_after_s=retry_after_s)


class ShuttingDown(GatewayError):
    status, code = 503, "draining"

    def __init__(self) -> None:
        super().__init__("The gateway is shutting down.", retry_after_s=1)


class Overloaded(GatewayError):
    status, code = 503, "overloaded"

    def __init__(self, message: str = "Too many requests are in flight.") -> None:
        super().__init__(message, retry_after_s=1)


class StoreUnavailable(GatewayError):
    status, code = 503, "store_unavailable"

    def __init__(self) -> None:
        super().__init__("The ledger cannot be written, so no request is sent.", retry_after_s=1)


class LedgerUnconfirmed(StoreUnavailable):
    def __init__(self) -> None:
        GatewayError.__init__(
            self,
            "The ledger was restored from a backup: no request is sent until the gateway's operator has confirmed it.",
            retry_after_s=30,
        )


class UpstreamTimeout(GatewayError):
    status, code = 504, "upstream_timeout"


class ClientGone(Exception):
    """The client closed its end, or will not read. Whatever was produced so far is billed."""


class Draining(Exception):
    """The process is ending and the grace for requests in flight is over."""


def forget(error: BaseException) -> None:
    """Let go of the frames that an exception and its causes have passed through; for whoever has dealt with it.

    A frame may hold a request's whole body, and where one holds the exception in turn, the two would keep each other
    until the next full garbage collection.
    """
    waiting: list[BaseException | None] = [error]
    while waiting:
        known = waiting.pop()
        if known is not None and known.__traceback__ is not None:
            known.__traceback__ = None
            waiting += (known.__cause__, known.__context__)
