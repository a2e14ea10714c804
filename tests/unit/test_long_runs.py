"""What the soak and the overload conclude, and how they are shown."""

import unittest
from collections.abc import Mapping
from typing import Any

from evals import overload_report, report, soak_report
from evals.gates import Gate
from evals.labels import LONG_LABELS
from evals.openloop import End, Reply
from evals.overload import outcome
from evals.overload_plan import CAPACITY_PER_S, moments, phases
from evals.overload_tally import Tally, told
from evals.soak_plan import Kind, Verdict
from evals.soak_report import columns, is_quiet, rss_growth_mib, wal_growth_mib
from evals.stats import latency

MIB = 1 << 20
MACHINE = {"commit": "abc", "python": "3.11", "cpus": 2, "load_average": 1.0}
SUMS = {"holds": 3, "billed": 10, "booked": 10}
VERIFY = {"ok": True, "open_holds": 0, "differences": []}
BOOKS = {
    "exact": SUMS,
    "estimated": SUMS,
    "unresolved": SUMS,
    "billed": 30,
    "booked": 30,
    "misbooked": 0,
    "unmetered": 0,
    "unpaired": 0,
    "open_holds": 0,
    "verify": VERIFY,
}


def sample(requests: int, **changes: int) -> dict[str, Any]:
    """One look at the process."""
    usual = {"at_s": requests / 60, "requests": requests, "rss": 50 * MIB, "threads": 20, "fds": 40, "wal": 2 * MIB}
    return {
        **usual,
        "ledger": MIB,
        "waiting": 3,
        "p50_ms": 5.0,
        "p99_ms": 9.0,
        "ready_s": 0.01,
        "in_flight": 3,
    } | changes


def soak(**changes: Any) -> dict[str, Any]:
    """An artifact of a soak in which all went well."""
    figures: dict[str, Any] = {
        "machine": MACHINE,
        "n": 210_000,
        "seed": 7,
        "settings": {"seconds": 3500.0, "rate_per_s": 60.0, "durability": "normal", "kill": False},
        "exit_status": 0,
        "last": {"asked": 40, "served": 40},
        "verdicts": {Kind.WHOLE: {Verdict.SERVED: 9, Verdict.CUT: 1}},
        "latency_ms": {"all": {"every kind": latency([0.01, 0.02])}, "calm": {}, "client_late": None},
        "faults": {"reload": 2},
        "hostile": {"sent": 5, "overstayed": 0},
        "failures": [],
        "books": {
            **BOOKS,
            "rows": 9,
            "calls": 9,
            "misrecorded": 0,
            "over_limit": 0,
            "limited": {"admitted": 15, "seconds": 10.0},
        },
        "quiet": [sample(2, threads=5, fds=16), sample(210_000, threads=5, fds=17)],
        "samples": columns([sample(number * 5_000) for number in range(43)]),
        "strange": [],
    }
    return figures | changes


def failed(judgements: list[Gate]) -> list[str]:
    """Names of the gates that failed."""
    return [gate.name for gate in judgements if gate.status == "failed"]


class SoakTest(unittest.TestCase):
    """The gates of a soak."""

    def assert_fails(self, name: str, figures: Mapping[str, Any]) -> None:
        """Exactly this gate fails."""
        self.assertEqual(failed(soak_report.gates(figures)), [name])

    def test_all_that_was_written_down_is_judged(self) -> None:
        """A good run passes every gate, each of which has words."""
        judgements = soak_report.gates(soak())
        self.assertEqual({gate.status for gate in judgements}, {"passed"})
        names = [gate.name for gate in [*judgements, *overload_report.gates(overload())]]
        self.assertEqual(names, [name for name in LONG_LABELS if not name.startswith("semantic_cache.")])

    def test_each_bad_verdict_has_its_gate(self) -> None:
        """Of any kind of request."""
        for verdict, name in (
            (Verdict.UNSERVED, "unserved"),
            (Verdict.WRONG, "wrong_refusals"),
            (Verdict.CROSSED, "crossed"),
            (Verdict.UNEXPLAINED_5XX, "unexplained_5xx"),
        ):
            with self.subTest(verdict):
                self.assert_fails(f"soak.{name}", soak(verdicts={Kind.HIT: {verdict: 1}}))

    def test_each_difference_of_the_books_has_its_gate(self) -> None:
        """One nano-dollar, one hold, one row."""
        books = soak()["books"]
        for name in ("misbooked", "unmetered", "unpaired", "misrecorded", "open_holds", "over_limit"):
            with self.subTest(name):
                self.assert_fails(f"soak.{name}", soak(books=books | {name: 1}))
        self.assert_fails("soak.differences", soak(books=books | {"verify": VERIFY | {"differences": ["x"]}}))
        self.assert_fails("soak.open_holds", soak(books=books | {"verify": VERIFY | {"open_holds": 1}}))

    def test_a_bucket_admits_its_burst_and_what_refills(self) -> None:
        """One more for the edges of the measured time."""
        books = soak()["books"]
        for admitted, fails in ((16, []), (17, ["soak.over_admitted"])):
            figures = soak(books=books | {"limited": {"admitted": admitted, "seconds": 10.0}})
            self.assertEqual(failed(soak_report.gates(figures)), fails)
        restarted = soak(books=books | {"limited": {"admitted": 21, "seconds": 10.0}}, faults={"kill -9": 1})
        self.assertEqual(failed(soak_report.gates(restarted)), [])

    def test_what_is_kept_without_clients_must_be_what_was_kept_at_first(self) -> None:
        """Within a few threads and files."""
        first, last = soak()["quiet"]
        self.assert_fails("soak.threads", soak(quiet=[first, last | {"threads": 22}]))
        self.assert_fails("soak.fds", soak(quiet=[first, last | {"fds": 33}]))
        self.assertTrue(is_quiet(first, last))
        self.assertFalse(is_quiet(first, last | {"threads": 22}) or is_quiet(first, last | {"fds": 33}))

    def test_memory_is_compared_between_two_requests(self) -> None:
        """By medians; a run that did not come so far says nothing, and one with kill -9 neither."""
        grown = columns([sample(n * 5_000, rss=50 * MIB + n * MIB // 4) for n in range(43)])
        self.assertEqual(rss_growth_mib(grown), 7.5)
        self.assert_fails("soak.rss_growth", soak(samples=grown))
        self.assertIsNone(rss_growth_mib(columns([sample(n * 1_000) for n in range(100)])))
        settings = soak()["settings"] | {"kill": True}
        self.assertEqual(failed(soak_report.gates(soak(samples=grown, settings=settings))), [])

    def test_the_log_is_compared_between_thirds(self) -> None:
        """Its largest in each; too few samples say nothing."""
        self.assertEqual(wal_growth_mib([MIB] * 6 + [6 * MIB, MIB, MIB]), 5)
        self.assertEqual(wal_growth_mib([6 * MIB] * 3 + [MIB] * 6), 0)
        self.assertEqual(wal_growth_mib([MIB] * 3 + [6 * MIB] * 3 + [MIB] * 3), 0)
        self.assertIsNone(wal_growth_mib([MIB] * 8))
        self.assert_fails("soak.wal_growth", soak(samples=columns([sample(n, wal=n * MIB // 4) for n in range(43)])))

    def test_the_drain_and_the_clients_that_stay_have_gates(self) -> None:
        """One request, one connection, one bad exit."""
        self.assert_fails("soak.drained", soak(last={"asked": 40, "served": 39}))
        self.assert_fails("soak.overstayed", soak(hostile={"sent": 5, "overstayed": 1}))
        self.assert_fails("soak.exit_status", soak(exit_status=1))

    def test_what_could_not_be_done_is_counted_and_told(self) -> None:
        """An artifact from before that was counted says nothing of it."""
        failing = soak(failures=["backup: TimeoutExpired()"])
        self.assert_fails("soak.failures", failing)
        self.assertEqual(report.failed_firmly(soak_report.gates(failing)), ["soak.failures"])
        self.assertIn("- `backup: TimeoutExpired()`", list(soak_report.lines(failing)))
        older = soak()
        del older["failures"]
        statuses = {gate.name: gate.status for gate in soak_report.gates(older)}
        self.assertEqual(statuses.pop("soak.failures"), "not measured")
        self.assertEqual(set(statuses.values()), {"passed"})

    def test_time_fails_a_gate_but_no_build(self) -> None:
        """A busy machine alone can change it."""
        slow = soak(samples=columns([sample(n * 5_000, ready_s=2) for n in range(43)]))
        self.assert_fails("soak.ready", slow)
        self.assertEqual(report.failed_firmly(soak_report.gates(slow)), [])
        self.assertEqual(report.failed_firmly(soak_report.gates(soak(exit_status=1))), ["soak.exit_status"])


def overload(**changes: Any) -> dict[str, Any]:
    """An artifact of an overload in which all went well."""
    tally = Tally(phases(10, 5))
    for number in range(2_400):
        tally.add(number / 160, 0.1, "served")
    for number in range(3_000):
        tally.add(15 + number / 300, 0.5, "served")
        tally.add(15 + number / 300, 0.02, "refused")
    for number in range(400):
        tally.add(25 + number / 200, 0.11, "served")
    tally.late_s = [0.001] * 100
    figures = {
        "machine": MACHINE,
        "n": 8_800,
        "seed": 7,
        "settings": {"seconds": 10.0, "times": 5.0, "durability": "normal", "tenants": 4},
        **told(tally),
        "health": {"n": 9, "failures": 0, "took_s": [0.1, 0.2]},
        "most_at_once": 32,
        "most": {"rss": 60 * MIB, "threads": 40, "fds": 400},
        "exit_status": 0,
        "books": BOOKS,
    }
    return figures | changes


class OverloadTest(unittest.TestCase):
    """The gates of an overload."""

    def test_what_is_offered_is_what_was_said(self) -> None:
        """Half of the capacity, times the capacity, half of it again; the same for the same seed."""
        before, over, after = plan = phases(20, 5)
        self.assertEqual((CAPACITY_PER_S, over.rate_per_s, before.rate_per_s, after.rate_per_s), (320, 1600, 160, 160))
        due = list(moments(plan, 7))
        self.assertEqual(due, list(moments(plan, 7)))
        self.assertEqual(due, sorted(due))
        for phase in plan:
            offered = sum(map(phase.holds, due)) / (phase.end_s - phase.start_s)
            self.assertAlmostEqual(offered / phase.rate_per_s, 1, delta=0.1)

    def test_a_good_run_passes(self) -> None:
        """Every gate."""
        self.assertEqual({gate.status for gate in overload_report.gates(overload())}, {"passed"})

    def test_answers_count_when_they_came(self) -> None:
        """Not when they were due: what is answered afterwards is no goodput."""
        tally = Tally(phases(10, 5))
        tally.add(24.5, 0.4, "served")
        tally.add(24.5, 0.6, "served")
        self.assertEqual([phase["given_per_s"] for phase in told(tally)["phases"]], [0, 0.1, round(1 / 15, 1)])

    def test_the_second_after_it_must_be_without_error(self) -> None:
        """A refusal is one too; the one after that is compared with the time before."""
        tally = Tally(phases(10, 5))
        tally.add(25.5, 0.01, "refused")
        tally.add(24.9, 0.01, "refused")
        tally.add(26.5, 0.2, "served")
        said = told(tally)
        self.assertEqual((said["first_second_errors"], said["second_second_ms"]["p50"]), (1, 200))
        self.assertEqual((said["first_second_ms"]["n"], said["second_second_ms"]["n"]), (1, 1))
        self.assertEqual(
            failed(overload_report.gates(overload(first_second_errors=1, second_second_ms={"p50": 151.0}))),
            ["overload.recovered_errors", "overload.recovered_p50"],
        )

    def test_each_bound_can_fail(self) -> None:
        """One at a time."""
        for name, changes in (
            ("dishonest", {"dishonest": {"503 None": 1}}),
            ("health", {"health": {"n": 1, "failures": 0, "took_s": [1.1]}}),
            ("health_failures", {"health": {"n": 1, "failures": 1, "took_s": [0.1]}}),
            ("at_once", {"most_at_once": 33}),
            ("open_holds", {"books": BOOKS | {"open_holds": 1}}),
            ("misbooked", {"books": BOOKS | {"misbooked": 1}}),
            ("unmetered", {"books": BOOKS | {"unmetered": 1}}),
            ("unpaired", {"books": BOOKS | {"unpaired": 1}}),
            ("differences", {"books": BOOKS | {"verify": VERIFY | {"differences": ["x"]}}}),
            ("client_late", {"client_late_ms": {"p99": 51.0}}),
        ):
            with self.subTest(name):
                self.assertEqual(failed(overload_report.gates(overload(**changes))), [f"overload.{name}"])

    def test_only_an_honest_refusal_is_one(self) -> None:
        """Its status, its code, and when to come back; and an answer is its own."""

        def ended(body: bytes, status: int = 503, head: bytes = b"\r\nretry-after: 1\r\n", end: End = End.WHOLE) -> str:
            return outcome(7, Reply(status, b"HTTP/1.1 503 x" + head, body, False, end, 0.1, 0.0))

        refusal = b'{"error": {"code": "overloaded"}}'
        self.assertEqual(ended(refusal), "refused")
        self.assertEqual(ended(refusal, head=b"\r\n"), "503 overloaded")
        self.assertEqual(ended(refusal.replace(b"overloaded", b"draining")), "503 draining")
        self.assertEqual(ended(refusal, end=End.CUT), "cut with status 503")
        self.assertEqual(ended(b'"content":"n7 said"', 200), "served")
        self.assertEqual(ended(b'"content":"n8 said"', 200), "another's answer")


class ShownTest(unittest.TestCase):
    """The README and the details."""

    def setUp(self) -> None:
        self.readme = "".join(
            f"<!-- {name} -->\n<!-- /{name} -->\n" for name in ("failing-evals", "evals", *report.LONG)
        )

    def test_what_fails_stands_above_the_fold(self) -> None:
        """In words, with its bound, beside the other evals."""
        shown = report.render(self.readme, report.load(), {"soak": soak(exit_status=1)})
        fold = shown.partition("<!-- /failing-evals -->")[0]
        self.assertIn("soak: exit status (1 ; bound = 0 )", fold)

    def test_each_run_has_its_block_and_its_details(self) -> None:
        """From the artifact alone; one that is not there leaves its block as it was."""
        runs = {"soak": soak(), "overload": overload()}
        shown, details = report.render(self.readme, {}, runs), report.render_details({}, runs)
        for name, figures in runs.items():
            self.assertIn(f"`python -m evals.{name}`", shown)
            self.assertIn(f"Of {len(report.LONG[name].gates(figures))} gates:", shown)
            for line in report.LONG[name].lines(figures):
                self.assertIn(f"{line}\n", details)
            for gate in report.LONG[name].gates(figures):
                self.assertIn(f"| `{gate.name}` | {name}: ", details)
        self.assertIn("<!-- soak -->\n<!-- /soak -->", report.render(self.readme, {}, {"overload": overload()}))

    def test_another_result_is_shown(self) -> None:
        """A number changes the block."""
        books = soak()["books"] | {"calls": 10}
        self.assertNotEqual(
            report.render(self.readme, {}, {"soak": soak()}),
            report.render(self.readme, {}, {"soak": soak(books=books)}),
        )
