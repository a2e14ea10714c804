"""The metrics page: a source that has nothing to tell costs the others nothing."""

import resource
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from gateway.errors import StoreUnavailable
from gateway.exposition import Family, gauge, render
from gateway.ops import (
    MetricsPage,
    Source,
    fleet_families,
    money_families,
    semantic_families,
    span_families,
    store_families,
    wal_families,
)
from gateway.semantic.verifier import Veto
from gateway.vitals import build_families, process_families
from tests.support.scrapes import Page
from tests.support.world import CONFIG, RealWorld, chat
from tracekit.sinks import JsonlSink, SpanRecord


def giving(name: str) -> Source:
    """A source of one gauge."""
    return lambda: [gauge(name, "A number.", 1)]


def failing(error: Exception) -> Source:
    """A source that fails on its way."""

    def families() -> list[Family]:
        raise error

    return families


class PageTest(unittest.TestCase):
    """Sources and what they make."""

    def setUp(self) -> None:
        self.errors: list[BaseException] = []

    def page(self, *sources: Source) -> Page:
        return Page(MetricsPage(sources, self.errors.append)())

    def test_what_cannot_be_read_is_left_out(self) -> None:
        """Without a word: it was told where it failed."""
        page = self.page(giving("a"), failing(StoreUnavailable()), failing(FileNotFoundError("no file")), giving("b"))
        self.assertEqual([family.name for family in page.families], ["a", "b"])
        self.assertEqual(self.errors, [])

    def test_a_bug_costs_its_own_numbers_and_is_told(self) -> None:
        """When something is broken, the rest of the page is needed all the more."""
        bug = ValueError("a bug")
        page = self.page(failing(bug), giving("b"))
        self.assertEqual(([family.name for family in page.families], self.errors), (["b"], [bug]))


class BooksTest(unittest.TestCase):
    """What is read of the ledger and its store."""

    def setUp(self) -> None:
        self.world = self.enterContext(RealWorld())

    def page(self, source: Source) -> Page:
        return Page(MetricsPage([source], self.fail)())

    def test_money_is_read_as_it_is(self) -> None:
        """Held and unresolved, of all levels; a ledger that cannot be read leaves them out."""
        books = self.world.books
        page = self.page(lambda: money_families(books))
        self.assertEqual((page.value("gateway_held_nanousd"), page.value("gateway_unresolved_nanousd")), (0, 0))
        with mock.patch.object(books.store, "read", side_effect=StoreUnavailable):
            self.assertEqual(self.page(lambda: money_families(books)).text, "")
            self.assertEqual(self.page(lambda: store_families(books)).value("gateway_store_writable"), 1)

    def test_the_log_of_the_ledger_is_measured(self) -> None:
        """It is as long as its file."""
        books = self.world.books
        wal = self.world.path / "ledger.db-wal"
        self.assertEqual(self.page(lambda: wal_families(books)).value("gateway_wal_bytes"), wal.stat().st_size)

    def test_the_semantic_cache_has_a_line_for_each_reason(self) -> None:
        """Once it is open; a process that never used it has none."""
        books = self.world.books
        self.assertEqual(self.page(lambda: semantic_families(books)).text, "")
        world = self.enterContext(RealWorld(config="[cache]\nsemantic = true\n" + CONFIG))
        key = world.key("5")
        for text in ("Where is the Louvre?", "where is the louvre", "hi " * 500):
            world.gateway.handle(key, chat(text, temperature=0))
        world.books.semantic.flush()  # type: ignore[union-attr]
        page = self.page(lambda: semantic_families(world.books))
        self.assertEqual(page.value("gateway_semantic_lookups_total", result="hit"), 1)
        self.assertEqual(page.value("gateway_semantic_lookups_total", result="miss"), 1)
        self.assertEqual(page.value("gateway_semantic_entries"), 1)
        self.assertGreater(page.value("gateway_semantic_bytes") or 0, 0)
        self.assertEqual(page.value("gateway_semantic_stores_total", result="stored"), 1)
        self.assertEqual(sum(value for _, value in page.series("gateway_semantic_ineligible_total")), 1)
        self.assertEqual({labels["reason"] for labels, _ in page.series("gateway_semantic_vetoes_total")}, {*Veto})
        self.assertEqual(page.value("gateway_semantic_comparisons_total", answer="equal"), 0)
        self.assertEqual(page.value("gateway_semantic_removals_total", reason="evicted"), 0)

    def test_a_deployment_is_in_one_state(self) -> None:
        """Every state has its line, so that an alert finds the one it looks for."""
        page = self.page(lambda: fleet_families(self.world.gateway))
        states = {labels["state"]: value for labels, value in page.series("gateway_deployment_state")}
        known = ("closed", "half_open", "open", "rate_limited", "quota_exhausted", "refused")
        self.assertEqual(states, {state: int(state == "closed") for state in known})
        self.assertEqual(page.value("gateway_deployment_overbilled", deployment="mini"), 0)


class VitalsTest(unittest.TestCase):
    """The process itself."""

    def test_the_process_is_measured(self) -> None:
        """Memory within memory, files and threads as they are, the start in seconds."""
        with tempfile.TemporaryFile():
            page = Page(render(process_families(1_767_225_600_500)))
        values = {family.name: family.samples[0].value for family in page.families}
        self.assertEqual(values["process_start_time_seconds"], 1_767_225_600.5)
        self.assertEqual(values["process_threads"], sum(1 for _ in Path("/proc/self/task").iterdir()))
        self.assertEqual(values["process_max_fds"], resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self.assertGreaterEqual(values["process_open_fds"], 4)
        self.assertLess(1 << 20, values["process_resident_memory_bytes"])
        self.assertLess(values["process_resident_memory_bytes"], values["process_virtual_memory_bytes"])
        self.assertGreater(page.value("process_cpu_seconds_total") or 0, 0)

    def test_spans_that_are_lost_are_counted(self) -> None:
        """Where a file for them was asked for; without one there is nothing to lose."""
        with tempfile.TemporaryDirectory() as name:
            sink = JsonlSink(Path(name) / "spans.jsonl")
            sink.close()
            sink.export(SpanRecord("late", "1" * 32, "2" * 16, None, 0, 0, {}))
        self.assertEqual(Page(render(span_families(sink))).value("gateway_spans_dropped_total"), 1)
        self.assertEqual(span_families(None), [])

    def test_the_build_is_named(self) -> None:
        """By the version of the package."""
        page = Page(render(build_families("1.2.3")))
        ((labels, value),) = page.series("gateway_build_info")
        self.assertEqual((labels["version"], value), ("1.2.3", 1))


if __name__ == "__main__":
    unittest.main()
