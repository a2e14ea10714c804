"""Counts under real threads: none is lost, none is made twice, whatever else goes on."""

import sys
import threading
import unittest
from collections.abc import Callable

from gateway.exposition import render
from gateway.metrics import Metrics
from tests.support.rows import ended
from tests.support.scrapes import Page

THREADS = 8
EACH = 2000


class ThreadsTest(unittest.TestCase):
    """Everybody at once."""

    def setUp(self) -> None:
        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(1e-6)
        self.metrics = Metrics()

    def crowd(self, work: Callable[[], None]) -> None:
        """Run `work` on all threads at once, to the end of each."""
        barrier = threading.Barrier(THREADS)

        def run() -> None:
            barrier.wait()
            work()

        threads = [threading.Thread(target=run) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def test_counts_are_exact(self) -> None:
        """While a page is made again and again: no count goes back, and a request is in all of its families or none."""
        over = threading.Event()
        seen: list[float] = []
        torn: list[float] = []

        def scrape() -> None:
            while not over.is_set():
                page = Page(render(self.metrics.families()))
                seen.append(page.total("gateway_requests_total"))
                torn.append(page.total("gateway_request_seconds_count") - seen[-1])

        def work() -> None:
            for _ in range(EACH):
                self.metrics.note_request(*ended(cost_nanousd=3, prompt_tokens=2, completion_tokens=1), 1.0)
                self.metrics.note_call("mini", "ok")
                self.metrics.note_refusal("overloaded")

        scraper = threading.Thread(target=scrape)
        scraper.start()
        self.crowd(work)
        over.set()
        scraper.join()
        page = Page(render(self.metrics.families()))
        total = THREADS * EACH
        self.assertEqual((seen, set(torn)), (sorted(seen), {0}))
        self.assertEqual(page.value("gateway_requests_total", exit="routed", status="200", code=""), total)
        self.assertEqual(page.value("gateway_request_seconds_sum", exit="routed"), total)
        self.assertEqual(page.value("gateway_overhead_seconds_bucket", le="+Inf"), total)
        self.assertEqual(page.value("gateway_cost_nanousd_total"), total * 3)
        self.assertEqual(page.value("gateway_tokens_total", kind="input"), total * 2)
        self.assertEqual(page.value("gateway_tokens_total", kind="output"), total)
        self.assertEqual(page.value("gateway_upstream_calls_total", deployment="mini", outcome="ok"), total)
        self.assertEqual(page.value("gateway_refusals_total", code="overloaded"), total)


if __name__ == "__main__":
    unittest.main()
