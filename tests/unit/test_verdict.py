"""The table of failed upstream calls, row by row: what is tried next, what becomes of the money, what is told."""

import unittest
from typing import Any

from gateway.errors import GatewayError
from gateway.evidence import Reach
from gateway.verdict import Again, AttemptFailed, Pause, judge, unusable
from llmkit.errors import NO_ROOM, TOO_LARGE, ProviderError, ProviderErrorKind

RATE_LIMIT, SERVER, TIMEOUT = ProviderErrorKind.RATE_LIMIT, ProviderErrorKind.SERVER, ProviderErrorKind.TIMEOUT
MALFORMED, AUTH, CLIENT = ProviderErrorKind.MALFORMED, ProviderErrorKind.AUTH, ProviderErrorKind.CLIENT
NOT_SENT, UNBILLED, UNKNOWN, PRODUCED = Reach.NOT_SENT, Reach.UNBILLED, Reach.UNKNOWN, Reach.PRODUCED

SILENT = {"sent": True, "first_byte_seen": False}
UNSENT = {"sent": False, "first_byte_seen": False}
LIMITED = (429, "rate_limit_exceeded")
QUOTA = "insufficient_quota"
EXHAUSTED = (429, "insufficient_quota")
FAILED = (503, "all_providers_failed")
BROKEN = (502, "upstream_error")
LATE = (504, "upstream_timeout")


def failure(kind: ProviderErrorKind, status: int | None = None, **facts: Any) -> ProviderError:
    """A failed call; one with a status was sent and answered."""
    return ProviderError(kind, "said so", **{"sent": True, "first_byte_seen": True, "status": status} | facts)


class JudgeTest(unittest.TestCase):
    """One row per fact."""

    def test_every_failure_has_its_row(self) -> None:
        """The whole table of the module: again, elsewhere, sick, pause, money, told."""
        never, soon, paused, alone = Again.NEVER, Again.SOON, Again.AFTER_PAUSE, Again.IF_ALONE
        none, asked, long = Pause.NONE, Pause.ASKED, Pause.LONG
        table: list[tuple[str, ProviderError, tuple[Again, bool, bool, Pause, Reach], tuple[int, str]]] = [
            ("refused", failure(SERVER, **UNSENT), (alone, True, True, none, NOT_SENT), FAILED),
            ("connect clock", failure(TIMEOUT, clock="connect", **UNSENT), (alone, True, True, none, NOT_SENT), LATE),
            ("closed without a byte", failure(SERVER, **SILENT), (never, True, True, none, UNKNOWN), FAILED),
            ("429", failure(RATE_LIMIT, 429), (paused, True, False, asked, UNBILLED), LIMITED),
            ("quota", failure(RATE_LIMIT, 429, code=QUOTA), (never, True, False, long, UNBILLED), EXHAUSTED),
            ("401", failure(AUTH, 401), (never, True, False, long, UNBILLED), BROKEN),
            ("402", failure(AUTH, 402), (never, True, False, long, UNBILLED), BROKEN),
            ("403", failure(AUTH, 403), (never, True, True, none, UNBILLED), BROKEN),
            (
                "403, the prompt",
                failure(CLIENT, 403, code="content_policy_violation"),
                (never, False, False, none, UNBILLED),
                (400, "content_policy_violation"),
            ),
            ("404, the model", failure(CLIENT, 404, param="model"), (never, True, False, long, UNBILLED), BROKEN),
            ("404, no reason", failure(CLIENT, 404), (never, True, False, none, UNBILLED), BROKEN),
            (
                "404, a reason",
                failure(CLIENT, 404, param="messages"),
                (never, False, False, none, UNBILLED),
                (404, "invalid_request"),
            ),
            ("400", failure(CLIENT, 400), (never, False, False, none, UNBILLED), (400, "invalid_request")),
            (
                "413 for a rate",
                failure(CLIENT, 413, code="rate_limit_exceeded"),
                (never, True, False, none, UNBILLED),
                LIMITED,
            ),
            ("413", failure(CLIENT, 413), (never, False, False, none, UNBILLED), (413, "invalid_request")),
            ("422", failure(CLIENT, 422), (never, False, False, none, UNBILLED), (400, "invalid_request")),
            ("409", failure(CLIENT, 409), (never, True, False, none, UNBILLED), BROKEN),
            ("418", failure(CLIENT, 418), (never, True, False, none, UNBILLED), BROKEN),
            ("408", failure(SERVER, 408), (soon, True, True, none, UNBILLED), FAILED),
            ("500", failure(SERVER, 500), (soon, True, True, none, UNBILLED), FAILED),
            ("529", failure(SERVER, 529), (soon, True, True, none, UNBILLED), FAILED),
            ("302", failure(MALFORMED, 302), (never, True, True, none, UNBILLED), BROKEN),
            ("ttft clock", failure(TIMEOUT, clock="ttft", **SILENT), (never, True, True, none, UNKNOWN), LATE),
            ("a clock after the head", failure(TIMEOUT, 200, clock="idle"), (never, True, True, none, UNKNOWN), LATE),
            ("junk", failure(MALFORMED, 200), (never, True, True, none, PRODUCED), BROKEN),
            ("a cut", failure(MALFORMED), (never, True, True, none, PRODUCED), BROKEN),
            ("no room here", failure(MALFORMED, 200, failure=NO_ROOM), (never, True, False, none, PRODUCED), BROKEN),
            ("too large", failure(MALFORMED, 200, failure=TOO_LARGE), (never, True, False, none, PRODUCED), BROKEN),
            ("an error object in a 200", failure(SERVER), (never, True, True, none, PRODUCED), BROKEN),
        ]
        for name, failed, row, told in table:
            with self.subTest(name):
                verdict = judge(failed)
                self.assertEqual((verdict.again, verdict.elsewhere, verdict.sick, verdict.pause, verdict.reach), row)
                self.assertEqual((verdict.error.status, verdict.error.code), told)
                outcome = "quota_exhausted" if told == EXHAUSTED else str(failed.kind)
                self.assertEqual((verdict.outcome, verdict.wait_s), (outcome, None))

    def test_the_clients_own_clock_ends_everything(self) -> None:
        """It says nothing of the deployment; the money is judged by how far the call got."""
        for facts, produced, reach in ((UNSENT, False, NOT_SENT), (SILENT, False, UNKNOWN), ({}, True, PRODUCED)):
            with self.subTest(reach):
                verdict = judge(failure(TIMEOUT, clock="client", **facts), produced=produced)
                self.assertEqual((verdict.again, verdict.elsewhere, verdict.sick), (Again.NEVER, False, False))
                self.assertEqual((verdict.pause, verdict.reach), (Pause.NONE, reach))
                self.assertEqual((verdict.error.status, verdict.error.code), LATE)

    def test_what_was_produced_stays_produced(self) -> None:
        """Whatever then happens to the call, nobody else is asked, and the deployment is sick."""
        for failed in (failure(TIMEOUT, 200, clock="idle"), failure(SERVER, **SILENT), failure(MALFORMED, 200)):
            verdict = judge(failed, produced=True)
            self.assertEqual((verdict.again, verdict.elsewhere, verdict.sick), (Again.NEVER, False, True))
            self.assertEqual((verdict.pause, verdict.reach), (Pause.NONE, PRODUCED))

    def test_a_bound_of_ours_is_no_sickness_of_the_upstream(self) -> None:
        """Behind content, too: who asks for large answers must not take the deployment from everybody."""
        for bound in (NO_ROOM, TOO_LARGE):
            with self.subTest(bound):
                verdict = judge(failure(MALFORMED, 200, failure=bound), produced=True)
                self.assertEqual((verdict.again, verdict.elsewhere, verdict.sick), (Again.NEVER, False, False))
                self.assertEqual((verdict.pause, verdict.reach), (Pause.NONE, PRODUCED))

    def test_an_answer_of_200_that_is_none_may_be_given_by_another(self) -> None:
        """Its deployment is sick, and it may all have been billed."""
        verdict = unusable("Malformed")
        self.assertEqual((verdict.again, verdict.elsewhere, verdict.sick), (Again.NEVER, True, True))
        self.assertEqual((verdict.pause, verdict.wait_s, verdict.reach), (Pause.NONE, None, PRODUCED))
        self.assertEqual((verdict.error.status, verdict.error.code, verdict.outcome), (*BROKEN, "malformed"))
        self.assertEqual((verdict.failure, verdict.status), ("Malformed", None))

    def test_a_quota_is_known_by_a_code_of_the_upstreams(self) -> None:
        """Under either name, and never by its message or by another status."""
        for code in (
            "insufficient_quota",
            "billing_hard_limit_reached",
            "credit_balance_exhausted",
            "project_spend_limit_exceeded",
            "organization_spend_limit_exceeded",
            "organization_usage_limit_exceeded",
        ):
            for field in ("code", "error_type"):
                with self.subTest(code, field=field):
                    verdict = judge(failure(RATE_LIMIT, 429, **{field: code}))
                    self.assertIs(verdict.pause, Pause.LONG)
                    self.assertEqual((verdict.error.code, verdict.error.should_retry), ("insufficient_quota", False))
        for odd in ("rate_limit_exceeded", "insufficient", None):
            self.assertIs(judge(failure(RATE_LIMIT, 429, code=odd)).pause, Pause.ASKED)
        self.assertIs(judge(failure(SERVER, 500, code=QUOTA)).pause, Pause.NONE)

    def test_a_404_is_judged_by_what_it_says_was_not_found(self) -> None:
        """The model is the operator's; another reason is the client's; none may be the address."""
        for facts, elsewhere, pause in (
            ({"code": "model_not_found"}, True, Pause.LONG),
            ({"code": "DeploymentNotFound"}, True, Pause.LONG),
            ({"param": "model"}, True, Pause.LONG),
            ({"param": "model", "code": "not_found"}, True, Pause.LONG),
            ({"code": "file_not_found"}, False, Pause.NONE),
            ({"param": "messages[0]"}, False, Pause.NONE),
            ({}, True, Pause.NONE),
            ({"code": "", "param": ""}, True, Pause.NONE),
            ({"error_type": "invalid_request_error"}, True, Pause.NONE),
        ):
            with self.subTest(facts):
                verdict = judge(failure(CLIENT, 404, **facts))
                self.assertEqual((verdict.elsewhere, verdict.pause), (elsewhere, pause))
                self.assertEqual(verdict.error.status, 502 if elsewhere else 404)

    def test_an_operator_has_to_look_at_what_only_he_can_mend(self) -> None:
        """Credentials, quotas and models; also where one call is too little to pause for."""
        for failed, alarm in (
            (failure(AUTH, 401), True),
            (failure(AUTH, 402), True),
            (failure(AUTH, 403), True),
            (failure(CLIENT, 404, param="model"), True),
            (failure(RATE_LIMIT, 429, code=QUOTA), True),
            (failure(CLIENT, 403), False),
            (failure(CLIENT, 404), False),
            (failure(CLIENT, 400), False),
            (failure(RATE_LIMIT, 429), False),
            (failure(SERVER, 500), False),
        ):
            with self.subTest(str(failed.status), kind=failed.kind):
                self.assertEqual(judge(failed).alarm, alarm)

    def test_a_model_that_is_unknown_is_one_at_404_alone(self) -> None:
        """A 400 about the field `model` is about this request."""
        self.assertFalse(judge(failure(CLIENT, 400, param="model")).elsewhere)

    def test_what_the_upstream_asked_to_wait_is_kept(self) -> None:
        """Also beside a status that asks for no pause."""
        for failed in (failure(RATE_LIMIT, 429, retry_after_s=7.0), failure(SERVER, 503, retry_after_s=7.0)):
            self.assertEqual(judge(failed).wait_s, 7)

    def test_a_failed_attempt_carries_its_verdict(self) -> None:
        """And reads as its outcome."""
        verdict = judge(failure(SERVER, 500))
        self.assertEqual((AttemptFailed(verdict).verdict, str(AttemptFailed(verdict))), (verdict, "server"))

    def told(self, failed: ProviderError) -> GatewayError:
        """What the client hears."""
        return judge(failed).error

    def test_a_rate_limit_passes_on_how_long_to_wait(self) -> None:
        """A second if the upstream did not say, or said nothing sensible."""
        self.assertEqual(self.told(failure(RATE_LIMIT, 429, retry_after_s=7.0)).retry_after_s, 7)
        for silent in (None, 0.0):
            self.assertEqual(self.told(failure(RATE_LIMIT, 429, retry_after_s=silent)).retry_after_s, 1)

    def test_a_fault_of_the_client_keeps_the_upstreams_words(self) -> None:
        """Message, field, and a code if it looks like one and is none of the gateway's own."""
        error = self.told(failure(CLIENT, 400, param="messages", code="context_length_exceeded"))
        self.assertEqual((error.message, error.param, error.code), ("said so", "messages", "context_length_exceeded"))
        for odd in ("Not A Code", "", "x" * 65, "1", "a-b", "budget_exceeded", "invalid_api_key", None):
            self.assertEqual(self.told(failure(CLIENT, 400, code=odd)).code, "invalid_request")

    def test_a_field_that_is_none_is_not_repeated(self) -> None:
        """A field is a short name; anything else could be a secret."""
        for named in ("messages", "messages[0].content", "$.tools", "max_tokens"):
            self.assertEqual(self.told(failure(CLIENT, 400, param=named)).param, named)
        for odd in ("sk-proj-abcDEF123456", "two words", "", "x" * 129, "\n", None):
            self.assertIsNone(self.told(failure(CLIENT, 400, param=odd)).param)

    def test_nothing_else_repeats_the_upstream(self) -> None:
        """Its words about its own troubles are the operator's."""
        for kind, status, param in (
            (AUTH, 401, "x"),
            (CLIENT, 404, "model"),
            (SERVER, 500, "x"),
            (RATE_LIMIT, 429, "x"),
            (MALFORMED, 200, "x"),
        ):
            with self.subTest(status):
                error = self.told(failure(kind, status, param=param, code="invalid_api_key"))
                self.assertNotIn("said so", error.message)
                self.assertIsNone(error.param)
                self.assertNotEqual(error.code, "invalid_api_key")
