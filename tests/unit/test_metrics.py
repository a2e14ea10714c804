"""What is counted, and under which labels."""

import re
import unittest
from itertools import pairwise

from msgspec.structs import asdict

from gateway import errors
from gateway.errors import GatewayError
from gateway.exposition import render
from gateway.metrics import CODES, GATHERED, OVERHEAD_SECONDS, REQUEST_SECONDS, TTFT_SECONDS, Metrics
from gateway.rows import Exit
from llmkit.types import Usage
from tests import _paths
from tests.support.rows import ended
from tests.support.scrapes import Page


class MetricsCase(unittest.TestCase):
    """Counts, and the page that they make."""

    def setUp(self) -> None:
        self.metrics = Metrics()

    def page(self) -> Page:
        return Page(render(self.metrics.families()))


class RequestTest(MetricsCase):
    """Requests that have a row."""

    def test_a_request_is_counted_by_exit_status_and_code(self) -> None:
        """No code is an empty label, which Prometheus takes for none."""
        for _ in range(3):
            self.metrics.note_request(*ended(), 1.0)
        self.metrics.note_request(*ended(Exit.REJECTED, 402, code="budget_exceeded", attempts=0), 1.0)
        page = self.page()
        self.assertEqual(page.value("gateway_requests_total", exit="routed", status="200", code=""), 3)
        self.assertEqual(page.value("gateway_requests_total", exit="rejected", status="402", code="budget_exceeded"), 1)

    def test_an_upstreams_code_is_no_label(self) -> None:
        """An upstream, or a client through it, could make as many series as it has words."""
        for number in range(100):
            self.metrics.note_request(*ended(Exit.FAILED, 400, code=f"upstreams_own_{number}"), 1.0)
            self.metrics.note_refusal(f"whatever_{number}")
        page = self.page()
        self.assertEqual(
            list(page.series("gateway_requests_total")), [({"exit": "failed", "status": "400", "code": "other"}, 100)]
        )
        self.assertEqual(list(page.series("gateway_refusals_total")), [({"code": "other"}, 100)])

    def test_money_is_an_exact_sum(self) -> None:
        """Of integers, far beyond what a float keeps; an unknown cost counts nothing."""
        for cost in (2**60 + 1, 1, None):
            self.metrics.note_request(*ended(cost_nanousd=cost), 1.0)
        self.assertIn(f"\ngateway_cost_nanousd_total {2**60 + 2}\n", self.page().text)

    def test_a_token_is_counted_under_one_kind(self) -> None:
        """So that the sum over kinds is the sum of tokens, also when an upstream contradicts itself."""
        usage = Usage(100, 30, 20, 40, 15)
        self.metrics.note_request(*ended(**asdict(usage)), 1.0)
        self.metrics.note_request(
            *ended(prompt_tokens=5, cached_tokens=9, completion_tokens=2, reasoning_tokens=3), 1.0
        )
        kinds = {labels["kind"]: value for labels, value in self.page().series("gateway_tokens_total")}
        self.assertEqual(kinds, {"input": 50, "cached_input": 39, "cache_write": 20, "output": 25, "reasoning": 18})

    def test_a_duration_falls_into_the_bucket_of_its_exit(self) -> None:
        """Bounds are inclusive, buckets include those before, and the last is the count."""
        for seconds in (0.05, 0.0501, 700.0):
            self.metrics.note_request(*ended(), seconds)
        self.metrics.note_request(*ended(Exit.CACHE_HIT, attempts=0), 0.0001)
        page = self.page()
        buckets = {
            labels["le"]: value
            for labels, value in page.series("gateway_request_seconds_bucket")
            if labels["exit"] == "routed"
        }
        self.assertEqual([buckets[bound] for bound in ("0.01", "0.05", "0.1", "600", "+Inf")], [0, 1, 2, 2, 3])
        self.assertEqual(page.value("gateway_request_seconds_count", exit="routed"), 3)
        self.assertAlmostEqual(page.value("gateway_request_seconds_sum", exit="routed") or 0, 700.1001)
        self.assertEqual(page.value("gateway_request_seconds_bucket", exit="cache_hit", le="0.001"), 1)

    def test_overhead_is_the_time_that_no_upstream_took(self) -> None:
        """Only of requests that called one; a clock that was read in another order makes it no less than nothing."""
        self.metrics.note_request(*ended(upstream_s=0.75), 0.875)
        self.metrics.note_request(*ended(upstream_s=2.0), 1.0)
        self.metrics.note_request(*ended(Exit.REJECTED, 429, attempts=0), 5.0)
        page = self.page()
        self.assertEqual(page.value("gateway_overhead_seconds_count"), 2)
        self.assertEqual(page.value("gateway_overhead_seconds_sum"), 0.125)

    def test_the_first_content_is_timed_where_there_is_one(self) -> None:
        """In seconds."""
        self.metrics.note_request(*ended(stream=True, ttft_ms=250), 1.0)
        self.metrics.note_request(*ended(stream=True, ttft_ms=0), 1.0)
        self.metrics.note_request(*ended(), 1.0)
        page = self.page()
        self.assertEqual((page.value("gateway_ttft_seconds_count"), page.value("gateway_ttft_seconds_sum")), (2, 0.25))
        self.assertEqual(page.value("gateway_ttft_seconds_bucket", le="0.25"), 2)


class OtherTest(MetricsCase):
    """What has no row, or more than one in a row."""

    def test_refusals_and_calls_are_counted_by_their_words(self) -> None:
        """Each under its own."""
        for code in ("invalid_api_key", "invalid_api_key", "overloaded"):
            self.metrics.note_refusal(code)
        for call in (("mini", "ok"), ("mini", "ok"), ("mini", "timeout"), ("maxi", "ok")):
            self.metrics.note_call(*call)
        page = self.page()
        self.assertEqual(page.value("gateway_refusals_total", code="invalid_api_key"), 2)
        self.assertEqual(page.value("gateway_refusals_total", code="overloaded"), 1)
        self.assertEqual(page.value("gateway_upstream_calls_total", deployment="mini", outcome="ok"), 2)
        self.assertEqual(page.total("gateway_upstream_calls_total"), 4)

    def test_a_page_changes_nothing(self) -> None:
        """Two in a row are the same; counting goes on behind them."""
        self.metrics.note_call("mini", "ok")
        self.assertEqual(self.page().text, self.page().text)
        self.metrics.note_call("mini", "ok")
        self.assertEqual(self.page().total("gateway_upstream_calls_total"), 2)

    def test_who_counts_while_another_enters_does_not_wait(self) -> None:
        """A finaliser that ran in the middle would wait for itself; the page has its note all the same."""
        with self.metrics._entering:
            self.metrics.note_refusal("draining")
            self.metrics.note_call("mini", "ok")
        page = self.page()
        self.assertEqual(page.value("gateway_refusals_total", code="draining"), 1)
        self.assertEqual(page.total("gateway_upstream_calls_total"), 1)

    def test_few_notes_wait_to_be_entered(self) -> None:
        """Also where no page is ever asked for."""
        for _ in range(10 * GATHERED):
            self.metrics.note_call("mini", "ok")
        self.assertLess(len(self.metrics._notes), GATHERED)
        self.assertEqual(self.page().total("gateway_upstream_calls_total"), 10 * GATHERED)

    def test_every_code_of_ours_is_known(self) -> None:
        """Those of the errors, and those that stand in the source."""
        told = {
            kind.code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, GatewayError)
        }
        for path in (_paths.SRC / "gateway").glob("*.py"):
            told |= set(re.findall(r'HttpRefusal\(\s*\d+,\s*"(\w+)"', path.read_text()))
            told |= set(re.findall(r'(?:_cut\(|, )"(\w+)", "The upstream\'s stream', path.read_text()))
            told |= set(re.findall(r'status=\d+, code="(\w+)"', path.read_text()))
        self.assertEqual(told, CODES)

    def test_bounds_ascend(self) -> None:
        """Or values would fall into the wrong buckets."""
        for bounds in (REQUEST_SECONDS, TTFT_SECONDS, OVERHEAD_SECONDS):
            self.assertTrue(all(lower < upper for lower, upper in pairwise(bounds)))


if __name__ == "__main__":
    unittest.main()
