"""The table of failed upstream calls, row by row: what becomes of the money, and what the client is told."""

import unittest
from typing import Any

from gateway.errors import GatewayError
from gateway.evidence import Reach
from gateway.verdict import judge, without_secrets
from llmkit.errors import ProviderError, ProviderErrorKind

RATE_LIMIT, SERVER, TIMEOUT = ProviderErrorKind.RATE_LIMIT, ProviderErrorKind.SERVER, ProviderErrorKind.TIMEOUT
MALFORMED, AUTH, CLIENT = ProviderErrorKind.MALFORMED, ProviderErrorKind.AUTH, ProviderErrorKind.CLIENT
NOT_SENT, UNBILLED, UNKNOWN, PRODUCED = Reach.NOT_SENT, Reach.UNBILLED, Reach.UNKNOWN, Reach.PRODUCED

SILENT = {"sent": True, "first_byte_seen": False}
UNSENT = {"sent": False, "first_byte_seen": False}
LIMITED = (429, "rate_limit_exceeded")
FAILED = (503, "all_providers_failed")
BROKEN = (502, "upstream_error")
LATE = (504, "upstream_timeout")


def failure(kind: ProviderErrorKind, status: int | None = None, **facts: Any) -> ProviderError:
    """A failed call; one with a status was sent and answered."""
    return ProviderError(kind, "said so", **{"sent": True, "first_byte_seen": True, "status": status} | facts)


class JudgeTest(unittest.TestCase):
    """One row per fact."""

    def test_every_failure_has_its_money_and_its_words(self) -> None:
        """The whole table of the module."""
        table: list[tuple[str, ProviderError, Reach, tuple[int, str]]] = [
            ("refused", failure(SERVER, **UNSENT), NOT_SENT, FAILED),
            ("connect clock", failure(TIMEOUT, clock="connect", **UNSENT), NOT_SENT, LATE),
            ("429", failure(RATE_LIMIT, 429), UNBILLED, LIMITED),
            ("400", failure(CLIENT, 400), UNBILLED, (400, "invalid_request")),
            ("413", failure(CLIENT, 413), UNBILLED, (413, "invalid_request")),
            ("422", failure(CLIENT, 422), UNBILLED, (400, "invalid_request")),
            ("401", failure(AUTH, 401), UNBILLED, BROKEN),
            ("402", failure(AUTH, 402), UNBILLED, BROKEN),
            ("403", failure(AUTH, 403), UNBILLED, BROKEN),
            ("404", failure(CLIENT, 404), UNBILLED, BROKEN),
            ("409", failure(CLIENT, 409), UNBILLED, BROKEN),
            ("418", failure(CLIENT, 418), UNBILLED, BROKEN),
            ("302", failure(MALFORMED, 302), UNBILLED, BROKEN),
            ("408", failure(SERVER, 408), UNBILLED, FAILED),
            ("500", failure(SERVER, 500), UNBILLED, FAILED),
            ("529", failure(SERVER, 529), UNBILLED, FAILED),
            ("ttft clock", failure(TIMEOUT, clock="ttft", **SILENT), UNKNOWN, LATE),
            ("the client's clock", failure(TIMEOUT, clock="client", **SILENT), UNKNOWN, LATE),
            ("closed without a byte", failure(SERVER, **SILENT), UNKNOWN, FAILED),
            ("a clock after the head", failure(TIMEOUT, 200, clock="idle"), UNKNOWN, LATE),
            ("junk", failure(MALFORMED, 200), PRODUCED, BROKEN),
            ("a cut", failure(MALFORMED), PRODUCED, BROKEN),
            ("an error object in a 200", failure(SERVER), PRODUCED, BROKEN),
        ]
        for name, failed, reach, told in table:
            with self.subTest(name):
                verdict = judge(failed)
                self.assertIs(verdict.reach, reach)
                self.assertEqual((verdict.error.status, verdict.error.code), told)

    def test_what_was_produced_stays_produced(self) -> None:
        """Whatever then happens to the call."""
        for failed in (failure(TIMEOUT, 200, clock="idle"), failure(SERVER, **SILENT), failure(MALFORMED, 200)):
            self.assertIs(judge(failed, produced=True).reach, PRODUCED)

    def told(self, failed: ProviderError) -> GatewayError:
        """What the client hears."""
        return judge(failed).error

    def test_a_rate_limit_passes_on_how_long_to_wait(self) -> None:
        """A second if the upstream did not say, or said nothing sensible."""
        self.assertEqual(self.told(failure(RATE_LIMIT, 429, retry_after_s=7.0)).retry_after_s, 7)
        for silent in (None, 0.0):
            self.assertEqual(self.told(failure(RATE_LIMIT, 429, retry_after_s=silent)).retry_after_s, 1)

    def test_a_fault_of_the_client_keeps_the_upstreams_words(self) -> None:
        """Message, field, and a code if it looks like one."""
        error = self.told(failure(CLIENT, 400, param="messages", code="context_length_exceeded"))
        self.assertEqual((error.message, error.param, error.code), ("said so", "messages", "context_length_exceeded"))
        for odd in ("Not A Code", "", "x" * 65, "1", "a-b", None):
            self.assertEqual(self.told(failure(CLIENT, 400, code=odd)).code, "invalid_request")

    def test_a_field_that_is_none_is_not_repeated(self) -> None:
        """A field is a short name; anything else could be a secret."""
        for named in ("messages", "messages[0].content", "$.tools", "max_tokens"):
            self.assertEqual(self.told(failure(CLIENT, 400, param=named)).param, named)
        for odd in ("sk-proj-abcDEF123456", "two words", "", "x" * 129, "\n", None):
            self.assertIsNone(self.told(failure(CLIENT, 400, param=odd)).param)

    def test_nothing_else_repeats_the_upstream(self) -> None:
        """Its words about its own troubles are the operator's."""
        for kind, status in ((AUTH, 401), (CLIENT, 404), (SERVER, 500), (RATE_LIMIT, 429), (MALFORMED, 200)):
            with self.subTest(status):
                error = self.told(failure(kind, status, param="x", code="invalid_api_key"))
                self.assertNotIn("said so", error.message)
                self.assertIsNone(error.param)
                self.assertNotEqual(error.code, "invalid_api_key")

    def test_secrets_are_taken_out_of_an_upstreams_words(self) -> None:
        """Whatever looks like a credential; the rest stays."""
        for secret in ("sk-proj-abcDEF123456", "sk_live_abcdef12345", "Bearer abcdef123456", "key-0123456789abcdef"):
            with self.subTest(secret):
                cleaned = without_secrets(f"Incorrect API key provided: {secret}. See the page.")
                self.assertNotIn(secret.split("-")[-1].split(" ")[-1].split("_")[-1], cleaned)
                self.assertIn("Incorrect API key provided", cleaned)
        for plain in (
            "max_tokens is too large: 99. The token limitation is 5.",
            "Use bearer authentication, or the API key provided.",
            "token_by_token is not supported by risk-assessment models",
        ):
            self.assertEqual(without_secrets(plain), plain)
        self.assertEqual(len(without_secrets("x" * 2000)), 500)
