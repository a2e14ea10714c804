"""What the bench measures, with its own mock in the place of a gateway."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from bench import machine
from bench.measure import Bench, at_once, many_streams, repetition, warm_up
from bench.subject import NotStarted, Start, Subject, started
from bench.tools import Tools, free_port, running, wait_for
from tests.support.broken_disk import compile_into
from tests.support.measurements import OURS, STREAMS


class MeasureTest(unittest.TestCase):
    """One repetition, short."""

    bench: Bench

    @classmethod
    def setUpClass(cls) -> None:
        """Skips where there is no compiler."""
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        compile_into(folder)
        port = free_port()
        tools = Tools(folder)
        mock = cls.enterClassContext(running([str(folder / "mock"), str(port)], folder / "mock.log"))
        wait_for(port)
        cls.bench = Bench(tools, Subject("mock", port, mock.pid), 0.05, ())

    def test_a_repetition_has_every_figure_and_finds_nothing_wrong(self) -> None:
        """Of a peer all but the hit and the failover, which only our gateway is asked for."""
        warm_up(self.bench, self.bench.mock)
        figures = repetition(self.bench, self.bench.mock)
        ours_alone = {"hit_added_p50_us", "failover_added_p50_us"}
        self.assertEqual(set(figures), set(OURS) - ours_alone)
        self.assertEqual(figures["bad"], 0)

    def test_who_answers_nothing_has_no_figures(self) -> None:
        """Only a count of what went wrong; a latency of zero would be the best of all."""
        port = free_port()
        refusing = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
        with running(refusing, self.bench.tools.folder / "refusing.log") as process:
            wait_for(port)
            figures = repetition(self.bench, Subject("refusing", port, process.pid))
        self.assertEqual(set(figures), {"bad", "foreign_cpus"})
        self.assertGreater(figures["bad"], 0)

    def test_a_point_of_the_curve(self) -> None:
        """Its rate and its quantiles."""
        point = at_once(self.bench, self.bench.mock, 4)
        self.assertEqual(set(point), {"requests_per_s", "p50_us", "p99_us", "bad"})

    def test_streams_at_once_are_all_complete(self) -> None:
        """With the most memory that was seen meanwhile."""
        figures = many_streams(self.bench, self.bench.mock)
        self.assertEqual(set(figures), set(STREAMS))
        self.assertEqual(figures["streams_complete"], 500)
        self.assertGreater(figures["streams_rss_mib"], 0)

    def test_callers_are_moved_back_to_where_they_were(self) -> None:
        """Only while one caller is measured, everybody shares one CPU."""
        before = os.sched_getaffinity(0)
        with machine.one_cpu(self.bench.mock.pid):
            self.assertEqual(os.sched_getaffinity(0), {machine.LAST_CPU})
            self.assertEqual(os.sched_getaffinity(self.bench.mock.pid), {machine.LAST_CPU})
        self.assertEqual(os.sched_getaffinity(0), before)
        self.assertEqual(os.sched_getaffinity(self.bench.mock.pid), before)

    def test_those_who_descend_from_a_process_count_with_it(self) -> None:
        """Some gateways are several processes."""
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        try:
            self.assertIn(child.pid, machine.family(os.getpid()))
            self.assertGreater(machine.rss_mib(os.getpid()), machine.rss_mib(child.pid))
        finally:
            child.communicate(b"\n")
        self.assertNotIn(child.pid, machine.family(os.getpid()))

    def test_a_start_ends_with_the_first_good_answer(self) -> None:
        """And the process with the block."""
        port = free_port()
        start = Start([str(self.bench.tools.folder / "mock"), str(port)], {}, self.bench.tools.folder / "start", port)
        with started(start) as (process, seconds):
            self.assertGreater(seconds, 0)
            self.assertIsNone(process.poll())
        self.assertIsNotNone(process.poll())

    def test_what_does_not_start_says_what_was_seen_of_it(self) -> None:
        """It ended, or answered something else, or nothing."""
        folder = self.bench.tools.folder / "broken"
        ends = Start([sys.executable, "-c", "import sys; sys.exit('no such model')"], {}, folder, free_port())
        with self.assertRaisesRegex(NotStarted, "ended with 1: no such model"), started(ends):
            pass
        waits = Start([sys.executable, "-c", "import time; time.sleep(60)"], {}, folder, free_port(), patience_s=0.2)
        with self.assertRaisesRegex(NotStarted, r"0\.2 s: nothing listens"), started(waits):
            pass
