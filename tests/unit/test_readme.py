"""The README and the results' own document say what the committed artifacts say, and nothing else."""

import copy
import json
import re
import unittest
from collections.abc import Callable
from typing import Any

import evals.report
from bench import report
from evals import waterfall
from gateway.config import load
from tests import _paths

README = (_paths.ROOT / "README.md").read_text(encoding="utf-8")
DETAILS = evals.report.DETAILS.read_text(encoding="utf-8")


class ReadmeConfigTest(unittest.TestCase):
    """Its configuration."""

    def test_it_works_as_it_stands(self) -> None:
        """Without a fault, and without a warning but for the credential."""
        (block,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
        self.assertEqual(load(block, {"OPENAI_API_KEY": "sk-x"}).warnings, ())


class ReadmeTest(unittest.TestCase):
    """Its numbers."""

    def test_the_numbers_are_those_of_the_committed_measurement(self) -> None:
        """`python -m bench --readme` writes them; editing them by hand turns this red."""
        self.assertEqual(report.render(README, report.load()), README)

    def test_another_measurement_would_turn_this_red(self) -> None:
        """Each figure that is shown comes from the artifact."""
        spoils: dict[str, Callable[[Any], object]] = {
            "latency": lambda figures: figures["subjects"]["normal"]["runs"][0].update(added_p50_us=1_000_000),
            "machine": lambda figures: figures["machine"].update(cpus=77),
            "commit": lambda figures: figures["machine"].update(commit="0000000"),
            "start": lambda figures: figures["subjects"]["normal"].update(start_s=[77.0]),
            "installation": lambda figures: figures.update(install_mb=77.0),
            "soak": lambda figures: figures["growth"].update(mib=77.0, commit="0000000"),
            "foreign CPU": lambda figures: figures["subjects"]["full"]["runs"][0].update(foreign_cpus=77.0),
        }
        for name, spoil in spoils.items():
            with self.subTest(name):
                figures = report.load()
                spoil(figures)
                self.assertNotEqual(report.render(README, figures), README)

    def test_no_quick_measurement_is_kept(self) -> None:
        """A look is no measurement."""
        self.assertFalse(report.load()["quick"])

    def test_failing_gates_stand_above_the_fold(self) -> None:
        """Before the first section."""
        self.assertLess(README.index("<!-- failing -->"), README.index("\n## "))


def last_step(artifact: Any) -> Any:
    """Of the waterfall: both caches."""
    return artifact["workloads"]["in_other_words"]["steps"]["cached_semantically"]


class EvalsTest(unittest.TestCase):
    """The numbers of the evals."""

    def setUp(self) -> None:
        self.artifacts: dict[str, Any] = copy.deepcopy(dict(evals.report.load()))
        self.long_runs: dict[str, Any] = evals.report.load_long()

    def render(self) -> str:
        """The README as these artifacts have it."""
        return evals.report.render(README, self.artifacts, self.long_runs)

    def details(self) -> str:
        """The details likewise."""
        return evals.report.render_details(self.artifacts, self.long_runs)

    def assert_red(self) -> None:
        """The README or the details are not what these artifacts say."""
        rendered = self.render(), self.details()
        self.assertNotEqual(rendered, (README, DETAILS))

    def test_the_numbers_are_those_of_the_committed_artifacts(self) -> None:
        """`python -m evals --readme` writes them; editing them by hand turns this red."""
        self.assertEqual(set(self.artifacts), set(evals.report.TITLES))
        self.assertEqual(self.render(), README)
        self.assertEqual(self.details(), DETAILS)

    def test_the_details_say_first_that_they_are_rendered(self) -> None:
        """Nobody should edit them by hand; and the README leads to them."""
        self.assertIn("rendered from the artifacts", DETAILS.partition("\n")[0])
        self.assertIn(f"]({evals.report.DETAILS.relative_to(_paths.ROOT).as_posix()})", README)

    def test_the_readme_has_the_gates_and_no_other_table(self) -> None:
        """One row for each gate; what each eval shows of itself is in the details, with its provenance."""
        block = README.partition("<!-- evals -->\n")[2].partition("<!-- /evals -->")[0]
        rows = [line for line in block.splitlines() if line.startswith("|")]
        self.assertEqual(rows, evals.report.table(evals.report.judged(self.artifacts)))
        for experiment in evals.report.EXPERIMENTS:
            for line in experiment.lines(self.artifacts[experiment.NAME]):
                self.assertIn(f"\n{line}\n", DETAILS)
            self.assertIn(f"\nn = {self.artifacts[experiment.NAME]['n']}", DETAILS)

    def test_each_number_of_a_gate_is_in_the_details(self) -> None:
        """With its bound and a status of its own, under the gate's name."""
        self.artifacts["scenarios"]["scenarios"]["slow"]["p95_s"] = 4.6
        said = self.details()
        self.assertIn("| `scenarios.slow` | outage: the primary is slow | <= 4.5 s p95 | 4.6 s p95 | failed |", said)
        self.assertIn(
            "| `scenarios.slow` | outage: the primary is slow | = 0 stray holds | 0 stray holds | passed |", said
        )

    def test_no_result_of_a_quick_run_is_kept(self) -> None:
        """Each artifact is of a whole run."""
        self.assertEqual([name for name, artifact in self.artifacts.items() if artifact["quick"]], [])

    def test_the_savings_follow_from_tokens_and_prices(self) -> None:
        """What the ledger said they cost is what the price book says."""
        artifact = self.artifacts["waterfall"]
        for name, played in artifact["workloads"].items():
            for step in played["steps"]:
                cost = artifact["workloads"][name]["steps"][step]["cost_nanousd"]
                self.assertEqual(waterfall.cost_nanousd(artifact, name, step), cost)

    def test_other_conditions_would_turn_this_red(self) -> None:
        """Each eval's commit is shown, and each long run's."""
        for name, artifact in {**self.artifacts, **self.long_runs}.items():
            with self.subTest(name):
                former, artifact["machine"]["commit"] = artifact["machine"]["commit"], "0000000"
                self.assert_red()
                artifact["machine"]["commit"] = former

    def test_another_price_would_turn_this_red(self) -> None:
        """The dollars are computed anew from the tokens."""
        for tier, price in self.artifacts["waterfall"]["prices_usd_per_million"].items():
            with self.subTest(tier):
                former, price["output"] = price["output"], "9.99"
                self.assert_red()
                price["output"] = former

    def test_another_result_would_turn_this_red(self) -> None:
        """One wrong hit, one item, one failure: each is shown."""
        spoils: dict[str, Callable[[Any], object]] = {
            "waterfall": lambda artifact: last_step(artifact)["hit"].update(wrong=1),
            "router": lambda artifact: artifact["rules"]["right"].__setitem__(0, not artifact["rules"]["right"][0]),
            "scenarios": lambda artifact: artifact["scenarios"]["slow"].update(success_percent=98),
            "retries": lambda artifact: artifact["cases"]["outage"].update(attempts_per_request=2),
            "concurrency": lambda artifact: artifact["cases"][0].update(over_admitted=1),
            "runaway": lambda artifact: artifact.update(spent_nanousd=artifact["limit_nanousd"] + 1),
            "overhead": lambda artifact: artifact["runs"].__delitem__(slice(0, -1)),
            "semantic_gate": lambda artifact: artifact["sets"]["generated"].update(wrong=7),
        }
        for name, spoil in spoils.items():
            with self.subTest(name):
                self.setUp()
                spoil(self.artifacts[name])
                self.assert_red()

    def test_the_readme_has_the_savings_with_their_wrong_answers(self) -> None:
        """Step by step, in the words of the details; another wrong answer would turn this red, and be named."""
        block = README.partition("<!-- waterfall -->\n")[2].partition("<!-- /waterfall -->")[0]
        for line in waterfall.told(self.artifacts["waterfall"], "in_other_words"):
            self.assertIn(f"{line}\n", block)
            self.assertIn(f"{line}\n", DETAILS)
        last = last_step(self.artifacts["waterfall"])
        last["wrong_hits"] = [["How much is tea?", "How much is coffee?"]]
        last["semantic"].update(wrong=1, different_wrong=1)
        rendered = self.render()
        self.assertIn("'How much is tea?' was given the answer to 'How much is coffee?'.", rendered)
        self.assertIn("savings: wrong answers from the semantic cache (1 answers; bound <= 0 answers)", rendered)

    def test_a_gate_that_begins_to_fail_shows_above_the_fold(self) -> None:
        """Not only in the table."""
        self.artifacts["concurrency"]["cases"][0]["over_admitted"] = 1
        fold = self.render().partition("\n## ")[0]
        self.assertIn("crowds: admitted beyond a budget or rate (1 requests; bound <= 0 requests)", fold)

    def test_the_outage_is_the_one_that_was_seen(self) -> None:
        """Its numbers and gates come from its artifact, and another run would turn this red."""
        figures = json.loads(evals.report.LIVE.read_text(encoding="utf-8"))
        self.assertEqual(evals.report.render_live(README, figures), README)
        figures["gates"][0]["passed"] = not figures["gates"][0]["passed"]
        self.assertNotEqual(evals.report.render_live(README, figures), README)
        self.assertIn("Not measured", evals.report.render_live(README, {"why": "there is no engine"}))

    def test_failing_evals_stand_above_the_fold(self) -> None:
        """Before the first section, right below those of the benchmark."""
        self.assertLess(README.index("<!-- /failing -->"), README.index("<!-- failing-evals -->"))
        self.assertLess(README.index("<!-- failing-evals -->"), README.index("\n## "))
