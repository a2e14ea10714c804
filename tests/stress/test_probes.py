"""Every probe says FOUND of a gateway that has the fault it looks for: one that cannot proves nothing."""

import signal
import unittest
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from unittest import mock

from probes import attempts, crashes, crowds, drains, gauges, judged, lab, retries, semantic, sizes, slow, streams, wire
from probes.catalog import PROBES
from probes.lab import Lab, Probe, Verdict, run
from probes.target import Targets
from tests.support import faults
from tests.support.broken_serve import program

FLOODS = ("a line without an end", "role chunks")
PROCESSES = 3
BY_NAME = {probe.name: probe for probe in PROBES}


class ProbesTest(unittest.TestCase):
    """Each probe against a gateway with one mistake."""

    def setUp(self) -> None:
        """A fault is found in fewer rounds, and sooner, than are spent to trust that there is none.

        With these settings, too, nothing is found of a gateway in order: else what is found would prove nothing.
        """
        for owner, name, value in (
            (attempts, "PATIENCE_S", 1.0),
            (attempts, "LEFT_S", 0.5),
            (judged, "AT_ONCE_S", 0.5),
            (judged, "SLOW_S", 1.0),
            (lab, "MUST_S", 0.5),
            (retries, "STORM", 48),
            (retries, "ODD_WAITS", ("99999999",)),
            (crashes, "SETTLE_DELAYS_S", ()),
            (wire, "PATIENCE_S", 0.3),
            (sizes, "AT_ONCE_S", 0.3),
            (sizes, "FLOOD_BYTES", 1 << 20),
            (semantic, "TEXT_BYTES", 1 << 15),
            (slow, "CONNECTIONS", 40),
            (slow, "GRACE_S", 0.4),
            (crowds, "GRACE_S", 0.5),
            (crowds, "ANSWER_S", 2.5),
            (drains, "SIGNALS", (signal.SIGTERM,)),
            (streams, "STREAM_FLOODS", {name: streams.STREAM_FLOODS[name] for name in FLOODS}),
        ):
            patch = mock.patch.object(owner, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def verdict(self, name: str, patches: Sequence[Any]) -> Verdict:
        """What the probe says of a gateway in this process with these patches."""
        with ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            return run(BY_NAME[name], Lab(seconds=1.5, one_fault=True))

    def verdicts(self, mistakes: str) -> list[Verdict]:
        """What the probes that are meant for them say of a process with these mistakes, one after the other."""
        served_by = program(*mistakes.split(","))
        with Targets() as targets:
            return [
                run(probe, Lab(seconds=1.5, program=served_by, targets=targets, one_fault=True))
                for probe in PROBES
                if faults.PROGRAMS.get(probe.name) == mistakes
            ]

    def assert_found(self, verdict: Verdict) -> None:
        """By what was seen, not because the probe could not go on."""
        self.assertTrue(verdict.found, verdict.line)
        self.assertNotIn("the probe could not go on", verdict.seen, verdict.name)

    def test_each_probe_has_a_fault_to_find(self) -> None:
        """A new probe brings its own."""
        self.assertEqual({*faults.FAULTS, *faults.PROGRAMS}, set(BY_NAME))
        self.assertEqual(len(BY_NAME), len(PROBES))

    def test_each_probe_finds_its_fault(self) -> None:
        """Of a gateway in this process."""
        for name, patches in faults.FAULTS.items():
            with self.subTest(name):
                self.assert_found(self.verdict(name, patches))

    def test_each_probe_of_a_process_finds_its_fault(self) -> None:
        """Most of their time is waiting, so a few processes are attacked at a time."""
        with ThreadPoolExecutor(PROCESSES) as hands:
            found = [
                verdict for group in hands.map(self.verdicts, sorted({*faults.PROGRAMS.values()})) for verdict in group
            ]
        self.assertEqual(len(found), len(faults.PROGRAMS))
        for verdict in found:
            with self.subTest(verdict.name):
                self.assert_found(verdict)

    def test_a_connection_that_outlives_its_client_is_found(self) -> None:
        """Whatever the probe looks for: the gateway is asked what is open once a probe is over."""
        with ExitStack() as stack:

            def careless(lab: Lab) -> str:
                stack.enter_context(wire.Wire(lab.target().address))
                return "all is well"

            with mock.patch.object(gauges, "LEFT_S", 0.2):
                verdict = run(Probe("careless", "calm", careless), Lab())
        self.assertEqual((verdict.found, verdict.seen), (True, "a connection stays open after its client has left"))

    def test_more_faults_are_found(self) -> None:
        """No jitter, no gate, a probe that wedges, a release that counts, words in a log, units that two take."""
        for number, (name, patch) in enumerate(faults.OTHERS):
            with self.subTest(name, number=number):
                self.assert_found(self.verdict(name, [patch]))
