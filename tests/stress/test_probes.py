"""Every probe says FOUND of a gateway that has the fault it looks for: one that cannot proves nothing."""

import signal
import unittest
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

from probes import attempts, crashes, money, overload, retries, sizes, slow, streams, wire
from probes.catalog import PROBES
from probes.lab import PROGRAM, Lab, Verdict, run
from probes.target import Targets
from tests.support import faults
from tests.support.broken_serve import program

FLOODS = ("a line without an end", "role chunks")
BY_NAME = {probe.name: probe for probe in PROBES}


class ProbesTest(unittest.TestCase):
    """Each probe against a gateway with one mistake."""

    def setUp(self) -> None:
        """A fault is found in fewer rounds than are run to trust that there is none."""
        for owner, name, value in (
            (money, "ROUNDS", 30),
            (attempts, "PATIENCE_S", 2.5),
            (retries, "STORM", 48),
            (retries, "ODD_WAITS", ("99999999",)),
            (crashes, "SETTLE_DELAYS_S", ()),
            (wire, "PATIENCE_S", 0.15),
            (sizes, "AT_ONCE_S", 0.3),
            (sizes, "FLOOD_BYTES", 1 << 20),
            (slow, "CONNECTIONS", 40),
            (slow, "GRACE_S", 0.4),
            (overload, "GRACE_S", 0.5),
            (overload, "ANSWER_S", 0.7),
            (overload, "SIGNALS", (signal.SIGTERM,)),
            (streams, "STREAM_FLOODS", {name: streams.STREAM_FLOODS[name] for name in FLOODS}),
        ):
            patch = mock.patch.object(owner, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.targets = Targets()
        self.addCleanup(self.targets.close)

    def verdict(self, name: str, patches: Sequence[Any] = ()) -> Verdict:
        """What the probe says of a gateway with these patches, or with those that are meant for it."""
        served_by = program(*faults.PROGRAMS[name].split(",")) if name in faults.PROGRAMS else PROGRAM
        with ExitStack() as stack:
            for patch in patches or faults.FAULTS.get(name, ()):
                stack.enter_context(patch)
            return run(BY_NAME[name], Lab(seconds=1.5, program=served_by, targets=self.targets))

    def test_each_probe_has_a_fault_to_find(self) -> None:
        """A new probe brings its own."""
        self.assertEqual({*faults.FAULTS, *faults.PROGRAMS}, set(BY_NAME))
        self.assertEqual(len(BY_NAME), len(PROBES))

    def test_each_probe_finds_its_fault(self) -> None:
        """And it does so by what it saw, not because it could not go on."""
        for name in sorted(BY_NAME, key=lambda name: faults.PROGRAMS.get(name, "")):
            with self.subTest(name):
                verdict = self.verdict(name)
                self.assertTrue(verdict.found, verdict.line)
                self.assertNotIn("the probe could not go on", verdict.seen)

    def test_more_faults_are_found(self) -> None:
        """No jitter, no gate, a probe that wedges, a release that counts, money that is forgotten, words in a log."""
        for number, (name, patch) in enumerate(faults.OTHERS):
            with self.subTest(name, number=number):
                self.assertTrue(self.verdict(name, [patch]).found)
