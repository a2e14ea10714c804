"""The table of refusals: which status, code and type a client sees."""

import unittest

from gateway import errors
from gateway.errors import GatewayError

TABLE: list[tuple[GatewayError, int, str, str]] = [
    (errors.HttpRefusal(431, "headers_too_large", "x"), 431, "headers_too_large", "invalid_request_error"),
    (errors.InvalidRequest("x"), 400, "invalid_request", "invalid_request_error"),
    (
        errors.InvalidRequest("x", status=413, code="request_too_large"),
        413,
        "request_too_large",
        "invalid_request_error",
    ),
    (errors.InvalidApiKey(), 401, "invalid_api_key", "invalid_request_error"),
    (errors.BudgetExceeded("x"), 402, "budget_exceeded", "insufficient_quota"),
    (errors.ModelNotAllowed("m"), 403, "model_not_allowed", "permission_error"),
    (errors.RegionNotAllowed("m"), 403, "model_not_allowed", "permission_error"),
    (errors.ModelNotFound("m"), 404, "model_not_found", "invalid_request_error"),
    (errors.UnknownUrl("GET", "/x"), 404, "unknown_url", "invalid_request_error"),
    (errors.MethodNotAllowed("GET", ("POST",)), 405, "method_not_allowed", "invalid_request_error"),
    (errors.RateLimited("x"), 429, "rate_limit_exceeded", "rate_limit_error"),
    (errors.QuotaExhausted(), 429, "insufficient_quota", "insufficient_quota"),
    (errors.BudgetReserved("x"), 429, "budget_reserved", "rate_limit_error"),
    (errors.InternalError("req_1"), 500, "internal_error", "server_error"),
    (errors.UpstreamError("x"), 502, "upstream_error", "server_error"),
    (errors.AllProvidersFailed("x"), 503, "all_providers_failed", "server_error"),
    (errors.ShuttingDown(), 503, "draining", "server_error"),
    (errors.Overloaded(), 503, "overloaded", "server_error"),
    (errors.StoreUnavailable(), 503, "store_unavailable", "server_error"),
    (errors.LedgerUnconfirmed(), 503, "store_unavailable", "server_error"),
    (errors.UpstreamTimeout("x"), 504, "upstream_timeout", "server_error"),
]


class ErrorsTest(unittest.TestCase):
    """One row per error."""

    def test_each_error_has_its_status_code_and_type(self) -> None:
        """As the contract's table says."""
        for error, status, code, kind in TABLE:
            with self.subTest(type(error).__name__):
                self.assertEqual((error.status, error.code, error.type), (status, code, kind))
                self.assertTrue(error.message)
                self.assertEqual(str(error), error.message)

    def test_the_table_names_every_error(self) -> None:
        """A new one needs a row."""
        known = {type(error) for error, *_ in TABLE}
        defined = {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, GatewayError)}
        self.assertEqual(defined - known, {GatewayError})

    def test_what_clears_by_itself_says_when(self) -> None:
        """Refusals for want of room; only a budget or a quota that is used up tells clients not to try again."""
        for error, *_ in TABLE:
            if error.status == 503 or error.code == "budget_reserved":
                with self.subTest(type(error).__name__):
                    slow = isinstance(error, errors.LedgerUnconfirmed)
                    self.assertEqual(error.retry_after_s, 30 if slow else 1)
        self.assertEqual(errors.RateLimited("x", retry_after_s=7.5).retry_after_s, 7.5)
        refusing = [type(error) for error, *_ in TABLE if error.should_retry is False]
        self.assertEqual(refusing, [errors.BudgetExceeded, errors.QuotaExhausted])
        self.assertEqual(errors.AllProvidersFailed("x", retry_after_s=60).retry_after_s, 60)
        self.assertEqual(errors.QuotaExhausted(retry_after_s=60).retry_after_s, 60)

    def test_the_model_at_fault_is_named(self) -> None:
        """In the message and as the parameter."""
        for error in (
            errors.ModelNotFound("gpt-x"),
            errors.ModelNotAllowed("gpt-x"),
            errors.RegionNotAllowed("gpt-x"),
        ):
            self.assertEqual(error.param, "model")
            self.assertIn("`gpt-x`", error.message)

    def test_an_internal_error_tells_the_request_id_and_nothing_else(self) -> None:
        """Its cause is for the operator."""
        self.assertIn("req_1", errors.InternalError("req_1").message)

    def test_leaving_is_no_error_of_the_gateway(self) -> None:
        """Nobody is there to be told."""
        for outcome in (errors.ClientGone, errors.Draining):
            self.assertFalse(issubclass(outcome, GatewayError))
            self.assertTrue(issubclass(outcome, Exception))
