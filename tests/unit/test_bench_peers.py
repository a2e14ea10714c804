"""The other gateways: which release is measured, and how it is started."""

import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from bench.peers import CONFIGS, PEERS, filled
from bench.subject import asked
from bench.tools import FAST, SLOW

POISONED = {"litellm": {"1.82.7", "1.82.8", "1.107.0"}}
"""Releases that were put on the index by somebody else than their makers."""


class ReleaseTest(unittest.TestCase):
    """What lies in a folder of installed peers."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.litellm = next(peer for peer in PEERS if peer.name == "litellm")

    def install(self, release: str) -> None:
        """Leave what pip leaves."""
        site = self.folder / "litellm" / "lib" / "python3.11" / "site-packages"
        (site / f"litellm-{release}.dist-info").mkdir(parents=True)
        (site / "litellm_enterprise-0.1.16.dist-info").mkdir()

    def test_no_poisoned_release_is_one_that_is_measured(self) -> None:
        """A release is named for each peer that comes from an index."""
        for peer in PEERS:
            self.assertNotIn(peer.release, POISONED.get(peer.name, ()))
            if peer.name != "nginx":
                self.assertIsNotNone(peer.release)

    def test_a_peer_that_is_not_there_is_said_to_be_missing(self) -> None:
        """All but nginx, which lies on the path or not."""
        for peer in PEERS:
            if peer.name != "nginx":
                self.assertEqual(peer.missing(self.folder), "not installed")

    def test_the_named_release_can_be_measured(self) -> None:
        """Packages with a similar name do not count."""
        self.install("1.74.9")
        self.assertIsNone(self.litellm.missing(self.folder))

    def test_another_package_of_a_similar_name_is_not_it(self) -> None:
        """What is left when only the package itself was removed."""
        self.install("1.74.9")
        next(self.folder.glob("litellm/lib/*/*/litellm-1*")).rmdir()
        self.assertEqual(self.litellm.missing(self.folder), "not installed")

    def test_another_release_is_not_started(self) -> None:
        """Least of all a poisoned one."""
        for release in POISONED["litellm"]:
            self.install(release)
            self.assertIn(release, self.litellm.missing(self.folder) or "")
            self.setUp()

    def test_a_node_package_says_its_release_itself(self) -> None:
        """In its package.json."""
        portkey = next(peer for peer in PEERS if peer.name == "portkey")
        package = self.folder / "portkey" / "node_modules" / "@portkey-ai" / "gateway"
        package.mkdir(parents=True)
        (package / "package.json").write_text(json.dumps({"version": "1.15.2"}))
        with mock.patch("bench.peers.shutil.which", return_value="/bin/node"):
            self.assertEqual(portkey.missing(self.folder), "release 1.15.2 is installed, and 1.9.8 would be measured")


class StartTest(unittest.TestCase):
    """How one is started."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_nothing_is_left_to_fill_in(self) -> None:
        """Neither in the command, nor in the environment, the headers and the configuration."""
        for peer in PEERS:
            with self.subTest(peer.name):
                place = self.folder / peer.name
                start = peer.start(Path("/installed"), place, 4321)
                texts = [*start.command, *(start.env[name] for name in peer.env), *start.headers]
                texts += [(place / template.name).read_text(encoding="utf-8") for template in CONFIGS.iterdir()]
                self.assertNotRegex("\n".join(texts), "@[A-Z_]+@")
                self.assertIn("4321", "\n".join(texts))
                self.assertIn(str(start.port), "\n".join(texts))

    def test_a_name_that_nobody_knows_is_an_error(self) -> None:
        """A typing error does not become a path."""
        self.assertEqual(filled("a @PORT@ b@c.d", {"PORT": "1"}), "a 1 b@c.d")
        with self.assertRaises(KeyError):
            filled("@PROT@", {"PORT": "1"})


class AskedTest(unittest.TestCase):
    """What each is asked."""

    def test_all_are_asked_for_the_same_length(self) -> None:
        """A model that is fixed stands in for the mock's, whose name is then in the question."""
        for model in (FAST, SLOW):
            with self.subTest(model):
                usual, fixed = asked(None, model, True), asked("gpt-4o-mini", model, True)
                questions = [body["messages"][1]["content"] for body in (usual, fixed)]
                self.assertEqual(len(questions[0]), len(questions[1]))
                self.assertTrue(questions[1].endswith(f" {model}"))
                self.assertEqual((usual["model"], fixed["model"]), (model, "gpt-4o-mini"))
                self.assertTrue(fixed["stream"])
