"""What the command line says to people: on stdout, on stderr, and with its exit status."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

from gateway.cli import main
from gateway.printout import render
from tests.support.process import call_cli, environment
from tests.support.world import CONFIG, UNPRICED, RealWorld, chat

LISTED = CONFIG + '\n[[tenants]]\nname = "acme"\n'
OPEN = "a tenant that the configuration does not list has every model, and no budget or rate limit of its own: "


class CommandLineCase(unittest.TestCase):
    """A folder, and commands on the data directory in it that nobody owns."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.data = self.folder / "data"

    def call(self, *arguments: str, status: int = 0) -> tuple[str, str]:
        """What a command says on stdout and on stderr; it ends with this status."""
        done = call_cli(*arguments, "--data-dir", str(self.data))
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout, done.stderr

    def key(self, tenant: str = "acme") -> dict[str, Any]:
        """A new key."""
        return dict(json.loads(self.call("keys", "create", "--tenant", tenant, "--json")[0]))

    def config(self, text: str) -> str:
        """The path of a configuration."""
        path = self.folder / "gateway.toml"
        path.write_text(text)
        return str(path)


class KeysTest(CommandLineCase):
    """Keys of a gateway that does not run."""

    def test_a_key_in_a_new_place_says_that_it_is_new(self) -> None:
        """A command that was started in the wrong directory made a second ledger; once it is there, nothing is said."""
        said = f"a new data directory was made: {self.data}; another is named by --data-dir\n"
        out, err = self.call("keys", "create", "--tenant", "acme", "--json")
        self.assertEqual((set(json.loads(out)), err), ({"id", "key", "tenant"}, said))
        self.assertEqual(self.call("keys", "create", "--tenant", "acme")[1], "")
        self.data = self.folder / "empty"
        self.data.mkdir()
        self.assertIn(str(self.data), self.call("keys", "create", "--tenant", "acme")[1])
        self.data = self.folder / "refused"
        self.assertIn("tenant", self.call("keys", "create", "--tenant", "A!", status=1)[1])

    def test_a_budget_is_given_by_hand(self) -> None:
        """An amount or none at all, and no other word for either."""
        made = self.key()
        shown = json.loads(self.call("keys", "budget", made["id"], "--usd", "2.5", "--window", "day", "--json")[0])
        self.assertEqual((shown["limit_nanousd"], shown["window"]), (2_500_000_000, "day"))
        self.assertIn(
            "limit              -\nwindow             day", self.call("keys", "budget", made["id"], "--no-limit")[0]
        )
        for wrong in ((), ("--usd", "1", "--no-limit"), ("--usd", "1", "--window", "year")):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
                self.call("keys", "budget", made["id"], *wrong)
            self.assertEqual(ended.exception.code, 2)

    def test_a_moment_is_shown_as_it_may_be_asked_for(self) -> None:
        """In UTC, in one form everywhere."""
        made = self.key()
        created = dict(line.split() for line in self.call("keys", "show", made["id"])[0].splitlines()[:4])["created"]
        self.assertRegex(created, r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(self.call("usage", "--since", created)[0], "nothing\n")

    def test_an_amount_that_is_none_is_told_what_it_must_be(self) -> None:
        """Below nothing, with an exponent, or finer than the ledger counts."""
        made = self.key()
        for value in ("-1", "1e3", "0.0000000001", "five"):
            for command, name in (
                (("keys", "create", "--tenant", "acme", "--budget-usd", value), "--budget-usd"),
                (("keys", "budget", made["id"], "--usd", value), "--usd"),
                (("ledger", "settle", "1", "--usd", value), "--usd"),
            ):
                with self.subTest(command):
                    told = self.call(*command, status=1)[1]
                    self.assertTrue(told.startswith(f"{name} must be an amount in USD: 0 or more"), told)

    def test_a_key_that_expires_after_all_calendars_is_shown(self) -> None:
        """The longest lifetime that is taken ends in a year that no date has."""
        made = json.loads(self.call("keys", "create", "--tenant", "acme", "--expires-in-s", str(1 << 53), "--json")[0])
        self.assertIn("expires            after the year 9999", self.call("keys", "show", made["id"])[0])


class CheckCase(CommandLineCase):
    """Warnings of a configuration without a fault."""

    def check(self, text: str) -> tuple[list[str], str]:
        """The warnings of `check` for programs, and what it tells people."""
        config = self.config(text)
        told = json.loads(self.call("check", "--config", config, "--json")[0])
        self.assertTrue(told["ok"])
        return told["warnings"], self.call("check", "--config", config)[0]


class PricesTest(CheckCase):
    """A price that is not in force yet."""

    def test_a_check_names_deployments_that_have_no_price_now(self) -> None:
        """They would get no call, and nobody would know why."""
        warnings, told = self.check(CONFIG + UNPRICED)
        (warning,) = warnings
        self.assertTrue(warning.startswith("deployments: later has no price before 9000-01-01T00:00:00Z"), warning)
        self.assertIn(warning, told)


class TenantsTest(CheckCase):
    """A slip in a tenant's name."""

    def test_a_check_names_tenants_with_keys_that_are_not_listed(self) -> None:
        """Where any tenant is listed, and while they have a key; the data directory stays as it was."""
        self.assertEqual(self.check(LISTED)[0], [])
        self.assertFalse(self.data.exists())
        for tenant in ("acme", "globex", "acm"):
            made = self.key(tenant)
        before = {file.name: file.read_bytes() for file in self.data.iterdir()}
        warnings, told = self.check(LISTED)
        self.assertEqual(warnings, [f"{OPEN}acm, globex"])
        self.assertTrue(told.endswith(f": no faults\n{OPEN}acm, globex\n"))
        self.assertEqual(self.check(CONFIG)[0], [])
        self.assertEqual({file.name: file.read_bytes() for file in self.data.iterdir()}, before)
        self.call("keys", "delete", made["id"])
        self.assertEqual(self.check(LISTED)[0], [f"{OPEN}globex"])

    def test_the_key_of_a_demo_is_no_slip(self) -> None:
        """The next start takes it away."""
        self.call("keys", "create", "--tenant", "demo", "--name", "demo")
        self.assertEqual(self.check(LISTED)[0], [])
        self.key("demo")
        self.assertEqual(self.check(LISTED)[0], [f"{OPEN}demo"])

    def test_a_ledger_that_cannot_be_read_is_no_fault_of_the_configuration(self) -> None:
        """Damaged, of another program, or no file."""
        self.data.mkdir()
        for content in (b"", b"no database" * 999):
            (self.data / "ledger.db").write_bytes(content)
            self.assertEqual(self.check(LISTED)[0], [])

    def test_a_new_key_of_a_tenant_that_is_not_listed_is_told(self) -> None:
        """Where the configuration is known and lists any; a reload without tenants ends that."""
        with RealWorld(config=LISTED, folder=self.data) as world:
            commands = world.books.commands
            for tenant, said in (("acme", []), ("acm", [f"{OPEN}acm"])):
                notes: list[str] = []
                made = commands.run("keys.create", {"tenant": tenant}, on_note=notes.append)
                self.assertEqual((set(made), notes), ({"id", "key", "tenant"}, said))
        with RealWorld(folder=self.data) as world:
            world.books.commands.run("keys.create", {"tenant": "acm"}, on_note=self.fail)


class NumbersTest(CommandLineCase):
    """Numbers that no machine has."""

    def serve(self, *arguments: str) -> tuple[int, str]:
        """How a start ends that cannot succeed, and what it says."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = main(["serve", "--data-dir", str(self.data), *arguments], environment())
        return status, said.getvalue()

    def test_a_port_that_does_not_exist_is_refused_in_a_sentence(self) -> None:
        """Before anything is made."""
        for port in ("99999", "65536", "-1", "9" * 30):
            with self.subTest(port):
                told = f"cannot listen on 127.0.0.1:{port}: a port is a number from 0 to 65535 (--port)\n"
                self.assertEqual(self.serve("--port", port), (2, told))
                self.assertEqual(self.serve("--port", port, "--check"), (2, told))
        self.assertFalse(self.data.exists())

    def test_a_host_that_cannot_be_a_name_is_refused_in_a_sentence(self) -> None:
        """Before a name server is asked."""
        for host in ("x" * 64, "\u00e4" * 64, "a..b"):
            with self.subTest(host):
                told = f"cannot listen on {host}:0: that can be no host's name (--host)\n"
                self.assertEqual(self.serve("--host", host, "--port", "0"), (2, told))
        self.assertFalse(self.data.exists())

    def test_an_option_without_a_value_is_refused(self) -> None:
        """A variable that was never set must not mean the demo, another ledger, or every address of the machine."""
        for option in ("--config", "--data-dir", "--host", "--trace-file"):
            with self.subTest(option), contextlib.redirect_stderr(io.StringIO()) as said:
                with self.assertRaises(SystemExit) as ended:
                    main(["serve", "--check", option, ""], environment())
                self.assertEqual(ended.exception.code, 2)
                self.assertIn(f"argument {option}: must not be empty", said.getvalue())

    def test_an_option_that_is_none_is_told_with_those_that_are(self) -> None:
        """Of the command that was called, not of the whole program."""
        for command in (
            ("serve", "--check"),
            ("check",),
            ("keys", "list"),
            ("usage",),
            ("restore", "ledger.db"),
            ("cache", "explain", "--a", "x", "--b", "y"),
        ):
            with self.subTest(command), contextlib.redirect_stderr(io.StringIO()) as said:
                with self.assertRaises(SystemExit) as ended:
                    main([*command, "--limitless", "5"], environment())
                self.assertEqual(ended.exception.code, 2)
                name = " ".join(["gateway", *command[: 2 if command[0] in ("keys", "cache") else 1]])
                self.assertTrue(said.getvalue().startswith(f"usage: {name} [-h]"), said.getvalue())
                self.assertTrue(said.getvalue().endswith(f"{name}: error: unrecognized arguments: --limitless 5\n"))

    def test_every_other_number_has_its_bounds(self) -> None:
        """Those of the operator's commands, in words."""
        self.key()
        for arguments in (
            ("keys", "create", "--tenant", "acme", "--expires-in-s"),
            ("ledger", "rows", "--limit"),
            ("ledger", "void"),
            ("ledger", "confirm"),
            ("ledger", "settle", "--usd", "1"),
        ):
            for number in ("0", "9" * 30):
                with self.subTest(arguments, number=number):
                    told = self.call(*arguments, number, status=1)[1]
                    self.assertRegex(told, r"^[\w-]+ must be a whole number from 1 to \d+\n$")


class RowsTest(CommandLineCase):
    """`ledger rows` of what is not there."""

    def test_rows_of_a_key_that_never_was_are_an_error(self) -> None:
        """As `keys show` says it; one without rows has none, and one that was deleted keeps its own."""
        with RealWorld(folder=self.data) as world:
            used = world.key()
            used_id = world.shown(used)["id"]
            world.gateway.handle(used, chat())
            world.run("keys.delete", id=used_id)
        fresh = self.key()["id"]
        self.assertEqual(self.call("ledger", "rows", "--key", "nope", status=1), ("", "there is no key nope\n"))
        self.assertEqual(self.call("ledger", "rows", "--key", fresh), ("nothing\n", ""))
        self.assertEqual(self.call("ledger", "rows", "--key", fresh, "--json"), ("[]\n", ""))
        self.assertIn(used_id, self.call("ledger", "rows", "--key", used_id)[0])

    def test_a_request_without_a_row_is_an_error(self) -> None:
        """Also one whose row is another key's."""
        with RealWorld(folder=self.data) as world:
            world.gateway.handle(world.key(), chat())
            (row,) = world.rows()
        other = self.key()["id"]
        told = self.call("ledger", "rows", "--request", "req_nope", "--json", status=1)
        self.assertEqual(told, ("", "there is no row of request req_nope: a request has one once it has ended\n"))
        asked = ("ledger", "rows", "--request", str(row["request_id"]), "--key")
        self.assertIn(f"with key {other}", self.call(*asked, other, status=1)[1])
        self.assertIn("there is no key nope", self.call(*asked, "nope", status=1)[1])
        self.assertIn(str(row["request_id"]), self.call(*asked, str(row["key_id"]))[0])


class WordsTest(CommandLineCase):
    """Results that hold results."""

    def test_the_parts_of_a_result_have_headings(self) -> None:
        """So that no name stands there twice without its own; as JSON it is what it was."""
        with RealWorld(config=CONFIG + "\n[cache]\nsemantic = true\n", folder=self.data):
            pass
        out = self.call("cache", "stats")[0].splitlines()
        start = out.index("semantic")
        self.assertEqual(out[0].split(), ["entries", "0"])
        self.assertTrue(all(line.startswith("  ") for line in out[start + 1 :]), out)
        self.assertIn("  entries          0", out[start:])
        self.assertIn("  lookups", out[start:])
        self.assertIn("    hit            0", out[start:])
        told = json.loads(self.call("cache", "stats", "--json")[0])
        self.assertEqual(told["semantic"]["entries"], 0)

    def test_what_only_a_process_remembers_is_not_looked_for_elsewhere(self) -> None:
        """No file has it, so that an empty answer would be wrong."""
        self.key()
        out, err = self.call("cache", "shadow", status=1)
        self.assertEqual((out, "only a running gateway remembers that" in err), ("", True), err)

    def test_text_of_others_moves_no_cursor(self) -> None:
        """What a terminal would obey is shown escaped; other scripts are shown as they are."""
        shown = render({"asked": "a\x1b[2Jb\u202ec", "stored": "où est-ce ?", "equal": None}, 120)
        self.assertEqual(
            shown.splitlines(),
            [r'asked              "a\u001b[2Jb\u202ec"', "stored             où est-ce ?", "equal              -"],
        )

    def test_a_list_is_a_table_where_there_is_room_for_one(self) -> None:
        """Numbers stand below each other; what has parts of its own, or is wider, is told field by field."""
        entries = [{"alias": "mini", "requests": 5, "cost_nanousd": 1_000_000}]
        entries.append({"alias": "a\nb", "requests": 12, "cost_nanousd": 0})
        lines = ["alias   requests       cost", "mini           5  0.001 USD", r'"a\nb"        12      0 USD']
        self.assertEqual(render(entries, len(lines[0])).splitlines(), lines)
        for told in (render(entries, len(lines[0]) - 1), render([*entries, {"alias": "x"}], 120)):
            self.assertIn("\n\nalias              ", told)
        self.assertEqual(render([{"keys": ["a", "b"]}], 120).split(), ["keys", "a", "keys", "b"])
        limits = render([{"name": "a", "limit": 1000}, {"name": "b", "limit": None}, {"name": "c", "limit": 5}], 120)
        self.assertEqual(limits.splitlines(), ["name  limit", "a      1000", "b         -", "c         5"])
        self.assertEqual(render([], 120), "nothing")

    def test_what_a_restore_has_forgotten_stands_under_its_name(self) -> None:
        """In the list of epochs, too."""
        self.key()
        self.call("backup", str(self.folder / "copy"))
        later = self.key()["id"]
        self.call("restore", str(self.folder / "copy"), "--yes")
        out = self.call("ledger", "epochs")[0]
        self.assertRegex(out, rf"\ndifferences\n  missing +-\n  keys_valid_again -\n  keys_lost +id {later}")
