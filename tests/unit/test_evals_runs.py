"""The quick half of the evals, run: outages and savings, in virtual time, within seconds."""

import io
import json
import os
import tempfile
import unittest
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

from evals import (
    concurrency,
    report,
    retries,
    scenarios,
    semantic_corpus,
    semantic_grey,
    semantic_nearest,
    semantic_speed,
    waterfall,
)
from evals.asks import in_other_words, workload
from evals.experiment import Artifact, Options
from evals.gates import PREREGISTRATION, gates
from evals.semantic_sets import Pair
from evals.silent import SilentUpstream
from evals.world import Asked
from gateway.cache_entry import Record
from gateway.cache_key import KeyOf, cache_keys
from gateway.clock import FakeClock
from gateway.context import Answer, Facts
from gateway.engines.sim import Scheduler, SimCaller
from gateway.errors import AllProvidersFailed, GatewayError, UpstreamError
from gateway.fake_provider import FakeProvider
from gateway.holds import Reservation
from gateway.ledger import Ledger
from gateway.rows import RequestRow
from gateway.semantic.judgement import prompt
from tests.support.faults import FAULTS
from tests.support.scripted_upstream import Peer, ScriptedUpstream, answer
from tests.support.twins import IgnoresRowCount


def failed(error: GatewayError) -> Asked:
    """A request that ended with this error."""
    return Asked(Facts("req"), SimCaller(Scheduler(0, FakeClock())), error=error)


class SmokeTest(unittest.TestCase):
    """They run, and what can be judged in seconds is kept."""

    def test_outages_and_savings_keep_their_bounds(self) -> None:
        """Ten outages and a fifth of the workload."""
        artifacts = {
            "scenarios": scenarios.run(Options(quick=True)),
            "waterfall": waterfall.run(Options(quick=True)),
        }
        judged = [gate for gate in report.judged(artifacts) if gate.name.partition(".")[0] in artifacts]
        too_few = {"waterfall.semantic_wrong_rate", "waterfall.more_hits", "waterfall.semantic_saved"}
        self.assertEqual({gate.name for gate in judged if gate.status == "not measured"}, too_few)
        self.assertEqual([gate for gate in judged if gate.status == "failed"], [])
        steps = artifacts["waterfall"]["workloads"]["in_other_words"]["steps"]
        self.assertGreater(steps["cached"]["hit"]["count"], 0)
        self.assertEqual(steps["cached"]["semantic"]["count"], 0)
        self.assertGreater(steps["cached_semantically"]["semantic"]["count"], 0)
        self.assertGreater(steps["escalated"]["asked_again"]["count"], 0)


class ScenarioTest(unittest.TestCase):
    """The scripts of the outages, and how their failures are told."""

    def test_the_ten_are_those_that_were_written_down(self) -> None:
        """By name, in order."""
        written = [gate.name for gate in gates(PREREGISTRATION.read_text(encoding="utf-8"), {})]
        names = [f"scenarios.{scenario.name}" for scenario in scenarios.SCENARIOS]
        self.assertEqual([name for name in written if name in names], names)
        self.assertEqual(len(names), 10)

    def test_only_a_503_that_says_when_is_honest(self) -> None:
        """Another status, or no time, is counted."""
        honest = AllProvidersFailed("x", retry_after_s=3)
        timeless = AllProvidersFailed("x")
        timeless.retry_after_s = None
        bad_gateway = UpstreamError("x", retry_after_s=3)
        told = scenarios.told([failed(honest), failed(timeless), failed(bad_gateway)])
        self.assertEqual(told["dishonest_failures"], 2)
        self.assertEqual(told["success_percent"], 0)

    def test_a_cut_answer_is_no_success_and_not_honest(self) -> None:
        """Neither an error nor an answer."""
        cut = Asked(Facts("req"), SimCaller(Scheduler(0, FakeClock())), answer=Answer(None, cut=True))
        told = scenarios.told([cut])
        self.assertEqual((told["success_percent"], told["dishonest_failures"], told["failures"]), (0, 1, {"cut": 1}))


class TwinsTest(unittest.TestCase):
    """A gateway that is broken on purpose fails the gate that guards against it."""

    def failing(self, name: str, artifact: Artifact) -> set[str]:
        """The gates that fail."""
        return {gate.name for gate in report.judged({name: artifact}) if gate.status == "failed"}

    def test_a_ledger_that_reads_and_then_adds_lets_too_many_in(self) -> None:
        """Under a crowd."""
        with mock.patch("gateway.books.Ledger", IgnoresRowCount):
            upstream = FakeProvider([{"text": "hello"}], name="up")
            case = concurrency.fifty("", concurrency.CONFIG.format(durability="full"), upstream, expected=12)
        self.assertIn("concurrency.over_admitted", self.failing("concurrency", {"cases": [asdict(case)]}))

    def test_a_ledger_that_forgets_calls_that_timed_out_leaves_them_unpaid(self) -> None:
        """The upstream billed them all the same."""

        async def forget(
            ledger: Ledger, reservation: Reservation, why: str, row: RequestRow, *, at_most_nanousd: int
        ) -> None:
            await ledger.void(reservation, row)

        config = concurrency.CONFIG.format(durability="full")
        with mock.patch.object(Ledger, "leave_unresolved", forget):
            case = concurrency.fifty("", config, SilentUpstream("up"), expected=0)
        self.assertEqual(self.failing("concurrency", {"cases": [asdict(case)]}), {"concurrency.unmetered"})

    def test_a_cache_that_knows_no_tenants_crosses_them(self) -> None:
        """With a key that leaves the tenant out, and an entry that is served to anybody."""
        with self.key_with(tenant=lambda key: "anybody"), mock.patch.object(Record, "may_be_served", return_value=True):
            step = self.last_step()
        self.assertGreater(step["hit"]["crossed_tenants"], 0)
        self.assertGreater(step["semantic"]["crossed_tenants"], 0)

    def test_a_cache_that_takes_near_duplicates_for_the_same_gives_wrong_answers(self) -> None:
        """With a key that looks at the system prompt and the length of the question."""
        with self.key_with(
            body=lambda body: {"messages": [{"content": str(len(body["messages"][1]["content"]) // 9)}]}
        ):
            step = self.last_step()
        self.assertGreater(step["hit"]["wrong"], 0)

    def test_a_verifier_that_passes_all_gives_wrong_answers(self) -> None:
        """Where every question of a partition is tried; each is named by what was asked and what was answered."""
        with ExitStack() as broken:
            for fault in FAULTS["semantic-near-misses"]:
                broken.enter_context(fault)
            step = self.last_step()
        self.assertGreater(step["semantic"]["different_wrong"], 0)
        self.assertEqual((step["hit"]["wrong"], step["semantic"]["crossed_tenants"]), (0, 0))
        self.assertIn(
            "What is the fee for a 30 day visa to Vietnam?", {text for hit in step["wrong_hits"] for text in hit}
        )

    def last_step(self) -> dict[str, Any]:
        """The step with both caches, of a hundred requests for three families."""
        families = in_other_words(semantic_corpus.sets(semantic_corpus.WRITTEN)["generated"])[:3]
        plain = [[replace(item, tools=False) for item in family] for family in families]
        return waterfall.serve(workload(plain, 100, 7), waterfall.IN_OTHER_WORDS["cached_semantically"])

    def test_a_retry_budget_that_is_never_used_up_costs_calls(self) -> None:
        """Every failure is retried to the end."""
        case = {"half_sick": retries.CASES["half_sick"]}
        with mock.patch("gateway.retry.RetryBudget.take", return_value=True), mock.patch.object(retries, "CASES", case):
            failing = self.failing("retries", retries.run(Options()))
        self.assertEqual(failing, {"retries.half_sick"})

    def test_the_semantic_cache_is_timed_on_hits(self) -> None:
        """Every look-up in other words is one; others are not, and a slow median is told."""
        with tempfile.TemporaryDirectory() as folder:
            figures = semantic_speed.run(16, 8, 7, Path(folder))
        self.assertEqual((figures["entries"], figures["lookups"]), (16, 8))
        self.assertEqual(figures["outcomes"], {"miss": 8, "hit": 8})
        quick = figures | {"hit_us": {"p50": semantic_speed.HIT_US}}
        self.assertEqual(semantic_speed.failures(quick), [])
        self.assertEqual(len(semantic_speed.failures(quick | {"hit_us": {"p50": 301}, "outcomes": {"hit": 7}})), 2)

    def test_near_questions_are_found_and_timed(self) -> None:
        """Each in other words, and the nearest first; a request that waits, a miss and a wrong size are told."""
        with mock.patch.object(semantic_nearest, "HITS", 4):
            size = semantic_nearest.run(48, 6, 7)
        self.assertEqual((size["entries"], size["found_its_own"], size["nearest_missed"]), (48, 6, "0 of 6"))
        quick = size | {"handed_over_us": {"p99": semantic_nearest.HANDED_OVER_US}, "resident_bytes_each": 0}
        self.assertEqual(semantic_nearest.failures(quick), [])
        slow = {"handed_over_us": {"p99": 5_001}, "found_its_own": 5, "resident_bytes_each": 1 << 20}
        self.assertEqual(len(semantic_nearest.failures(size | slow)), 3)

    def test_what_a_judge_would_be_shown_is_counted(self) -> None:
        """By kind, with what became of the others, and from which cosine on."""
        pairs = [
            Pair("1", "How do I cancel my plan?", "How do I end my plan?", True, "free", ""),
            Pair("2", "How do I cancel my plan?", "how can i cancel my plan, please", True, "free", ""),
            Pair("3", "How do I cancel 5 plans?", "How do I cancel 6 plans?", False, "number", ""),
            Pair("4", "What does this mean?", "What is this?", False, "number", ""),
        ]
        told = semantic_grey.measure(pairs, [0.5, 0.99])
        free, number = told["paraphrase free"], told["near-miss number"]
        self.assertEqual((free["courses"], free["shown"]), ({"open": 1, "verified": 1}, {"0.5": 1, "0.99": 0}))
        self.assertEqual(number["courses"], {"barred: number": 1, "not looked up": 1})
        self.assertNotIn("said", free)

    def test_a_judge_is_asked_as_the_gateway_asks_it(self) -> None:
        """About what it would be shown alone; what it says is counted, failures too. One that is away is told of."""
        asked: list[dict[str, Any]] = []

        def says_same(peer: Peer) -> None:
            request = peer.request()
            self.assertEqual(request.get("x-gateway-private"), "true")
            self.assertEqual(request.get("authorization"), "Bearer k")
            asked.append(json.loads(request.body))
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "SAME"}}
            peer.send(answer(json.dumps({"choices": [choice]}).encode()))

        def is_down(peer: Peer) -> None:
            peer.request()
            peer.send(answer(status="503 Service Unavailable"))

        upstream = ScriptedUpstream(says_same, is_down)
        self.addCleanup(upstream.close)
        lines: tuple[dict[str, Any], ...] = (
            {"a": "How do I cancel my plan?", "b": "How do I end my plan?", "same": True, "kind": "free"},
            {"a": "How do I cancel 5 plans?", "b": "How do I cancel 6 plans?", "same": False, "kind": "number"},
            {"a": "How do I cancel my visa?", "b": "How do I end my visa?", "same": True, "kind": "free"},
        )
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"JUDGE": "k"}):
            pairs = Path(folder) / "pairs.jsonl"
            pairs.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            common = ["--pairs", str(pairs), "--results", folder, "--model", "wise", "--key-env", "JUDGE", "--judge"]
            with redirect_stdout(io.StringIO()) as printed:
                self.assertEqual(semantic_grey.main([*common, upstream.url("/v1")]), 0)
            with redirect_stderr(io.StringIO()) as complained, self.assertRaises(SystemExit):
                semantic_grey.main([*common, "http://127.0.0.1:1/v1"])
        self.assertEqual([body["messages"] for body in asked], [prompt(lines[0]["a"], lines[0]["b"])])
        self.assertIn("said: {'same': 1, 'different': 0, 'unclear': 0, 'nothing': 1}", printed.getvalue())
        self.assertIn("semantic_grey: error: ", complained.getvalue())

    @contextmanager
    def key_with(self, **changes: Callable[[Any], Any]) -> Iterator[None]:
        """The cache's keys, made from changed arguments."""

        def keys(**arguments: Any) -> KeyOf:
            return cache_keys(**arguments | {name: change(arguments[name]) for name, change in changes.items()})

        with mock.patch("gateway.caching.cache_keys", keys):
            yield
