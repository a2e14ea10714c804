"""The hands of a soak's troublemaker: what they cannot do is counted, and the run goes on."""

import subprocess
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from evals import soak_faults
from evals.loop import Loop
from evals.process import Child
from evals.soak_faults import Troublemaker
from evals.soak_plan import Fault, Trouble
from evals.soak_tally import Surroundings

SLOW = subprocess.TimeoutExpired("gateway", 60)


class StuckChild:
    """A gateway that cannot be killed, and does not start."""

    pid = 0

    def kill(self) -> None:
        raise SystemExit("nothing listens")


class HandsTest(unittest.TestCase):
    """Commands that fail when they are told to."""

    def setUp(self) -> None:
        self.asked: list[str] = []
        self.failing: dict[str, BaseException] = {}
        self.enterContext(mock.patch.object(soak_faults, "ask_gateway", self.ask))
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.around, self.loop = Surroundings(), Loop()
        self.addCleanup(self.loop.close)

    def ask(self, data: Path, *words: str) -> Any:
        """The command line: a backup writes its file, however it ends."""
        command = " ".join(word for word in words if not word.startswith("/"))
        self.asked.append(command)
        if command == "backup":
            Path(words[1]).touch(exist_ok=False)
        if command in self.failing:
            raise self.failing[command]
        return []

    def failures(self, act: Callable[[Troublemaker], object]) -> list[str]:
        """Let hands do it, to its end; what could not be done."""
        upstream = SimpleNamespace(ways=SimpleNamespace(manner=None))
        child = cast(Child, StuckChild())
        faults = Troublemaker(self.loop, child, [cast(Any, upstream)], self.around, self.folder / "data", seed=7)
        faults.keys = {"blockable": {"id": "k"}}
        with faults:
            act(faults)
        self.assertTrue(faults.is_over())
        self.assertTrue(faults.is_over())
        return faults.failures

    def of(self, *troubles: Trouble) -> list[str]:
        """Those of these faults, which last no time."""

        def begin(faults: Troublemaker) -> None:
            for trouble in troubles:
                faults.begin(Fault(0.0, trouble, 0.0))

        return self.failures(begin)

    def test_what_can_be_done_is_no_failure(self) -> None:
        """Nor does anything stay behind."""
        self.assertEqual(self.of(Trouble.BACKUP, Trouble.BLOCK), [])
        self.assertEqual(sorted(self.asked), ["backup", "keys block k", "keys unblock k"])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_command_that_fails_or_takes_too_long_is_counted_once(self) -> None:
        """With the fault and the reason; whoever asks whether all is over is not told by an exception."""
        self.failing = {"backup": SLOW, "keys block k": SystemExit("refused")}
        self.assertEqual(
            sorted(self.of(Trouble.BACKUP, Trouble.BLOCK)), [f"backup: {SLOW!r}", "key blocked: SystemExit('refused')"]
        )

    def test_a_gateway_that_does_not_start_is_counted(self) -> None:
        """Whatever is raised in a hand."""
        self.assertEqual(self.of(Trouble.KILL), ["kill -9: SystemExit('nothing listens')"])

    def test_what_else_is_done_by_hand_is_counted(self) -> None:
        """The result of what succeeds is still there."""
        self.failing = {"keys list": SLOW}

        def look(faults: Troublemaker) -> None:
            faults.by_hand("a look", lambda: faults.command("keys", "list"))
            self.assertEqual(faults.by_hand("another", lambda: 7).result(), 7)

        self.assertEqual(self.failures(look), [f"a look: {SLOW!r}"])

    def test_the_window_of_a_fault_that_failed_ends(self) -> None:
        """Requests after it are judged as any other."""
        self.failing = {"backup": SLOW}
        self.of(Trouble.BACKUP)
        self.assertIsNotNone(self.around.windows[0].end_s)

    def test_a_backup_that_came_too_late_is_not_in_the_way_of_the_next(self) -> None:
        """One failure is not the reason of all later ones."""
        self.failing = {"backup": SLOW}
        self.of(Trouble.BACKUP)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["backup.db"])
        self.failing = {}
        self.assertEqual(self.of(Trouble.BACKUP), [])

    def test_a_key_is_unblocked_though_nobody_knows_whether_it_was_blocked(self) -> None:
        """Until then either may be."""
        self.failing = {"keys block k": SLOW}
        self.of(Trouble.BLOCK)
        self.assertEqual(self.asked, ["keys block k", "keys unblock k"])
        (block,) = self.around.blocks
        self.assertEqual((block.is_s, block.covers(block.may_s, block.may_s)), (None, None))
        self.assertIsNotNone(block.ended_s)
