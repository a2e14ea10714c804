"""What an operator can ask of a data directory, by name with plain arguments."""

import json
import tempfile
import unittest
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest import mock

from gateway import sqlite_store
from gateway.clock import FakeClock
from gateway.commands import CommandError
from gateway.errors import BudgetExceeded, InvalidApiKey, StoreUnavailable, UpstreamTimeout
from gateway.keys import KeyChanged, ShownKey
from gateway.levels import Scope
from llmkit.money import format_usd
from tests.support.connections import Fuse, watched
from tests.support.world import USD, RealWorld, chat, scripted


class CommandsTest(unittest.TestCase):
    """Commands over the open books of a real file."""

    def setUp(self) -> None:
        self.world = self.enterContext(RealWorld())

    def run_command(self, command: str, **arguments: Any) -> Any:
        """The result of a command, as it looks after it crossed a wire."""
        return json.loads(json.dumps(self.world.run(command, **arguments)))

    def refusal(self, command: str, **arguments: Any) -> str:
        """What the operator is told."""
        with self.assertRaises(CommandError) as refused:
            self.world.run(command, **arguments)
        return str(refused.exception)

    def unresolved(self, raw_key: str) -> int:
        """A hold of a request whose outcome is unknown."""
        with self.assertRaises(UpstreamTimeout):
            self.world.gateway.handle(raw_key, chat(max_tokens=10))
        [hold] = self.run_command("ledger.holds")
        return int(hold["id"])

    def test_a_key_is_shown_whole_once(self) -> None:
        """When it is made and when it is rotated; its tenant is made with it."""
        made = self.run_command("keys.create", tenant="new", budget_usd="5")
        self.assertEqual(set(made), {"id", "key", "tenant"})
        self.assertEqual(self.world.books.keys.authenticate(ShownKey.of(made["key"])).id, made["id"])
        rotated = self.run_command("keys.rotate", id=made["id"])
        self.assertEqual((rotated["id"], rotated["tenant"]), (made["id"], "new"))
        self.assertNotEqual(rotated["key"], made["key"])
        shown = json.dumps([self.run_command("keys.list"), self.run_command("keys.show", id=made["id"])])
        for secret in (made["key"], rotated["key"]):
            self.assertNotIn(secret.rpartition("-")[2], shown)
        self.assertNotIn("digest", shown)

    def test_a_name_is_words(self) -> None:
        """Bytes that are no text, line ends and novels are refused before anything is made."""
        for name in ("\udc80", "a\nb", "x" * 201):
            with self.subTest(name[:9]), self.assertRaises(CommandError):
                self.run_command("keys.create", tenant="fresh", name=name)
        self.assertEqual(self.run_command("keys.list"), [])

    def test_a_key_shows_its_budget(self) -> None:
        """In nano-dollars, all of it."""
        made = self.run_command("keys.create", tenant="acme", budget_usd="5", budget_window="day", name="ci")
        shown = self.run_command("keys.show", id=made["id"])
        expected = {"id": made["id"], "tenant": "acme", "name": "ci", "blocked": False, "limit_nanousd": 5 * USD}
        expected |= {"spent_nanousd": 0, "held_nanousd": 0, "unresolved_nanousd": 0, "overage_nanousd": 0}
        expected |= {"window": "day", "expires_ms": None}
        self.assertEqual({name: shown[name] for name in expected}, expected)
        self.assertEqual(self.run_command("keys.list"), [shown])

    def test_blocking_and_deleting_take_effect_at_once(self) -> None:
        """At the next request."""
        raw = self.world.key()
        key_id = self.world.shown(raw)["id"]
        self.world.gateway.handle(raw, chat())
        self.assertTrue(self.run_command("keys.block", id=key_id)["blocked"])
        with self.assertRaises(InvalidApiKey):
            self.world.gateway.handle(raw, chat())
        self.assertFalse(self.run_command("keys.unblock", id=key_id)["blocked"])
        self.world.gateway.handle(raw, chat())
        self.assertEqual(self.run_command("keys.delete", id=key_id), {"id": key_id, "deleted": True})
        with self.assertRaises(InvalidApiKey):
            self.world.gateway.handle(raw, chat())
        self.assertEqual(len(self.run_command("ledger.rows", key=key_id)), 2)

    def test_a_budget_holds(self) -> None:
        """The smallest amount is exact."""
        raw = self.world.key("0.000000001")
        with self.assertRaises(BudgetExceeded):
            self.world.gateway.handle(raw, chat())
        self.assertEqual(self.world.shown(raw)["limit_nanousd"], 1)

    def test_a_used_up_budget_is_raised(self) -> None:
        """The key goes on at its next request, with all that it has spent; lowered again, it is refused."""
        with RealWorld(clock=FakeClock()) as self.world:
            raw = self.world.key("0.000000001")
            key_id = self.world.shown(raw)["id"]
            with self.assertRaises(BudgetExceeded):
                self.world.gateway.handle(raw, chat())
            shown = self.run_command("keys.budget", id=key_id, usd="5")
            self.assertEqual(shown, self.run_command("keys.show", id=key_id))
            self.assertEqual((shown["limit_nanousd"], shown["window"]), (5 * USD, "total"))
            self.world.gateway.handle(raw, chat())
            spent = self.world.shown(raw)["spent_nanousd"]
            self.assertGreater(spent, 0)
            lowered = self.run_command("keys.budget", id=key_id, usd="0")
            self.assertEqual((lowered["limit_nanousd"], lowered["spent_nanousd"]), (0, spent))
            with self.assertRaises(BudgetExceeded):
                self.world.gateway.handle(raw, chat())
            self.assertIsNone(self.run_command("keys.budget", id=key_id, no_limit=True)["limit_nanousd"])
            self.world.gateway.handle(raw, chat())
            self.assertTrue(self.run_command("ledger.verify")["ok"])

    def test_a_budget_keeps_its_window_unless_another_is_named(self) -> None:
        """One of another kind has spent nothing yet; the former one is as it was when it comes back."""
        clock = FakeClock()
        with RealWorld(clock=clock) as self.world:
            raw = self.world.key()
            key_id = self.world.shown(raw)["id"]
            self.world.gateway.handle(raw, chat())
            spent = self.world.shown(raw)["spent_nanousd"]
            for arguments, seen in (
                ({"usd": "1"}, (USD, "total", spent)),
                ({"usd": "0", "window": "day"}, (0, "day", 0)),
                ({"usd": "2"}, (2 * USD, "day", 0)),
                ({"no_limit": True, "window": "total"}, (None, "total", spent)),
            ):
                shown = self.run_command("keys.budget", id=key_id, **arguments)
                self.assertEqual((shown["limit_nanousd"], shown["window"], shown["spent_nanousd"]), seen)
            self.run_command("keys.budget", id=key_id, usd="0.000000001", window="day")
            with self.assertRaises(BudgetExceeded):
                self.world.gateway.handle(raw, chat())
            self.run_command("keys.budget", id=key_id, usd="1")
            self.world.gateway.handle(raw, chat())
            self.assertEqual(self.world.shown(raw)["spent_nanousd"], spent)
            clock.advance(86_400)
            self.assertEqual(self.world.shown(raw)["spent_nanousd"], 0)
            self.assertTrue(self.run_command("ledger.verify")["ok"])

    def test_of_two_windows_at_once_one_is_refused(self) -> None:
        """What the gateway charges is what the ledger says, whichever came first."""
        ledger = self.world.books.ledger
        raw = self.world.key()
        key_id = self.world.shown(raw)["id"]
        before = ledger._levels[Scope.KEY, key_id]
        self.run_command("keys.budget", id=key_id, usd="1", window="day")
        known = ledger._levels[Scope.KEY, key_id]
        ledger._levels[Scope.KEY, key_id] = before  # as it is until the first command has returned
        told = self.refusal("keys.budget", id=key_id, usd="2", window="week")
        self.assertIn(f"key {key_id} was changed by another command at the same time", told)
        ledger._levels[Scope.KEY, key_id] = known
        self.assertEqual(self.world.shown(raw)["window"], "day")
        self.run_command("keys.budget", id=key_id, usd="2", window="week")
        self.world.gateway.handle(raw, chat())
        self.assertGreater(self.world.shown(raw)["spent_nanousd"], 0)

    def test_a_budget_outlives_the_process(self) -> None:
        """It is the ledger's."""
        with tempfile.TemporaryDirectory() as folder:
            with RealWorld(folder=Path(folder)) as world:
                key_id = world.shown(world.key("1"))["id"]
                world.run("keys.budget", id=key_id, usd="7", window="week")
            with RealWorld(folder=Path(folder)) as world:
                shown = world.run("keys.show", id=key_id)
                self.assertEqual((shown["limit_nanousd"], shown["window"]), (7 * USD, "week"))

    def test_rows_are_listed_oldest_first(self) -> None:
        """Of one key or of all, the newest so many, with every promised field."""
        one, two = self.world.key(), self.world.key()
        for raw in (one, two, one):
            self.world.gateway.handle(raw, chat(max_tokens=5))
        rows = self.run_command("ledger.rows")
        ids = [row["request_id"] for row in rows]
        self.assertEqual((len(ids), ids), (3, sorted(ids)))
        self.assertEqual(ids[-2:], [row["request_id"] for row in self.run_command("ledger.rows", limit=2)])
        of_one = self.run_command("ledger.rows", key=self.world.shown(one)["id"])
        self.assertEqual([row["request_id"] for row in of_one], [ids[0], ids[2]])
        self.assertEqual(self.run_command("ledger.rows", request=ids[1]), [rows[1]])
        promised = {"request_id", "tenant", "key_id", "alias", "deployment", "exit", "state", "cost_nanousd"}
        promised |= {"overage_nanousd", "estimated", "prompt_tokens", "cached_tokens", "completion_tokens"}
        self.assertLessEqual(promised | {"reasoning_tokens"}, set(rows[0]))

    def test_usage_is_of_a_time_and_by_what_is_asked_for(self) -> None:
        """A moment without a zone is UTC; a name is that of the field that tells it."""
        clock = FakeClock()
        with RealWorld(clock=clock) as self.world:
            one, two = self.world.key(), self.world.key()
            for raw in (one, two):
                self.world.gateway.handle(raw, chat(max_tokens=5))
                clock.advance(3600)
            ids = [self.world.shown(raw)["id"] for raw in (one, two)]
            self.assertEqual({entry["key_id"] for entry in self.run_command("usage", by=" key_id , day")}, set(ids))
            start = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC) - timedelta(minutes=90)
            zone = timezone(timedelta(hours=5))
            for moment in (start.replace(tzinfo=None), start, start.astimezone(zone)):
                later = self.run_command("usage", since=moment.isoformat())
                sooner = self.run_command("usage", until=moment.isoformat(), tenant="acme")
                self.assertEqual([[entry["key_id"]] for entry in (*sooner, *later)], [[each] for each in ids])
            self.assertEqual([entry["requests"] for entry in self.run_command("usage", key=ids[0])], [1])

    def test_the_balances_of_every_level_are_listed(self) -> None:
        """The gateway, tenants, and keys that still exist; the money of one that does not counts in its tenant's."""
        with RealWorld(clock=FakeClock()) as self.world:
            kept, gone = self.world.key("5"), self.world.key()
            for raw in (kept, gone):
                self.world.gateway.handle(raw, chat())
            key, cost = self.world.shown(kept), self.world.shown(gone)["spent_nanousd"]
            self.run_command("keys.delete", id=self.world.shown(gone)["id"])
            balances = self.run_command("ledger.balances")
        whole = {"limit_nanousd": None, "spent_nanousd": 2 * cost, "held_nanousd": 0, "unresolved_nanousd": 0}
        whole |= {"overage_nanousd": 0, "window": "total", "resets_at": None}
        self.assertGreater(cost, 0)
        self.assertEqual(
            balances,
            [
                {"scope": "global", "name": "", **whole, "window": "month", "resets_at": "2026-02-01T00:00:00Z"},
                {"scope": "tenant", "name": "acme", **whole},
                {"scope": "key", "name": key["id"], **whole, "limit_nanousd": 5 * USD, "spent_nanousd": cost},
            ],
        )

    def test_usage_is_summed(self) -> None:
        """Per tenant, key and alias."""
        raw = self.world.key()
        for _ in range(3):
            self.world.gateway.handle(raw, chat())
        [usage] = self.run_command("usage")
        self.assertEqual((usage["tenant"], usage["alias"], usage["requests"]), ("acme", "mini", 3))
        self.assertEqual(usage["cost_nanousd"], self.world.shown(raw)["spent_nanousd"])

    def test_the_books_are_verified(self) -> None:
        """And say how much they looked at."""
        self.world.gateway.handle(self.world.key(), chat())
        report = self.run_command("ledger.verify")
        self.assertEqual((report["ok"], report["rows"], report["holds"], report["differences"]), (True, 1, 1, []))

    def test_an_unresolved_hold_is_settled_or_voided_once(self) -> None:
        """By its number; the key's balance follows."""
        for command, arguments, state, spent in (
            ("ledger.settle", {"usd": "0.5"}, "settled", USD // 2),
            ("ledger.settle", {"usd": "0"}, "settled", 0),
            ("ledger.void", {}, "void", 0),
        ):
            with self.subTest(command), RealWorld(providers=scripted({"timeout": True})) as self.world:
                raw = self.world.key("1")
                hold = self.unresolved(raw)
                self.assertGreater(self.world.shown(raw)["unresolved_nanousd"], 0)
                result = self.run_command(command, hold=hold, **arguments)
                self.assertEqual((result["hold"], result["state"]), (hold, state))
                shown = self.world.shown(raw)
                self.assertEqual((shown["unresolved_nanousd"], shown["held_nanousd"]), (0, 0))
                self.assertEqual(shown["spent_nanousd"], spent)
                self.assertIn(f"no hold {hold} that is open", self.refusal(command, hold=hold, **arguments))
                self.assertTrue(self.run_command("ledger.verify")["ok"])

    def test_a_settlement_far_above_the_hold_must_be_meant(self) -> None:
        """Above ten times the hold and a dollar; the refusal says what was held and how to insist."""
        for word in (None, False, 1, "yes"):
            with self.subTest(word), RealWorld(providers=scripted({"timeout": True})) as self.world:
                raw = self.world.key("1")
                hold = self.unresolved(raw)
                amount = self.world.shown(raw)["unresolved_nanousd"]
                self.assertLess(amount * 10, USD)
                told = self.refusal("ledger.settle", hold=hold, usd="1.000000001", above_hold=word)
                self.assertIn(f"of {format_usd(amount)} USD", told)
                self.assertIn("--above-hold", told)
                self.assertEqual(self.world.shown(raw)["unresolved_nanousd"], amount)
                self.run_command("ledger.settle", hold=hold, usd="1", above_hold=word)
                self.assertEqual(self.world.shown(raw)["spent_nanousd"], USD)
                told = self.refusal("ledger.settle", hold=hold, usd="2", above_hold=word)
                self.assertIn(f"no hold {hold} that is open", told)

    def test_wrong_arguments_are_refused_and_change_nothing(self) -> None:
        """Wrong types and ranges too: a file, a script or another version may have sent them."""
        huge = 10**30
        table: list[tuple[str, dict[str, Any], str]] = [
            ("keys.create", {}, "tenant"),
            ("keys.create", {"tenant": ""}, "tenant"),
            ("keys.create", {"tenant": 5}, "tenant"),
            ("keys.create", {"tenant": "Acme!"}, "tenant"),
            ("keys.create", {"tenant": "a", "budget_usd": "-1"}, "--budget-usd"),
            ("keys.create", {"tenant": "a", "budget_usd": "1e3"}, "--budget-usd"),
            ("keys.create", {"tenant": "a", "budget_usd": 0.5}, "--budget-usd"),
            ("keys.create", {"tenant": "a", "budget_usd": "0.0000000001"}, "--budget-usd"),
            ("keys.create", {"tenant": "a", "budget_usd": "2000000000"}, "--budget-usd"),
            ("keys.create", {"tenant": "a", "budget_window": "year"}, "--budget-window"),
            ("keys.create", {"tenant": "a", "budget_window": ["day"]}, "--budget-window"),
            ("keys.create", {"tenant": "a", "expires_in_s": 0}, "--expires-in-s"),
            ("keys.create", {"tenant": "a", "expires_in_s": True}, "--expires-in-s"),
            ("keys.create", {"tenant": "a", "expires_in_s": huge}, "--expires-in-s"),
            ("keys.create", {"tenant": "a", "name": {"x": 1}}, "name"),
            ("keys.budget", {"usd": "1"}, "id"),
            ("keys.budget", {"id": "nobody", "usd": "1"}, "nobody"),
            ("keys.budget", {"id": "nobody"}, "--no-limit"),
            ("keys.budget", {"id": "nobody", "no_limit": 1}, "--no-limit"),
            ("keys.budget", {"id": "nobody", "usd": "1", "no_limit": True}, "--no-limit"),
            ("keys.budget", {"id": "nobody", "usd": -1}, "usd"),
            ("keys.budget", {"id": "nobody", "usd": "1", "window": "year"}, "window"),
            ("keys.budget", {"id": "nobody", "usd": "1", "window": ["day"]}, "window"),
            ("keys.show", {}, "id"),
            ("keys.show", {"id": "nobody"}, "nobody"),
            ("keys.rotate", {"id": "nobody"}, "nobody"),
            ("keys.block", {"id": "nobody"}, "nobody"),
            ("keys.unblock", {"id": 1}, "id"),
            ("keys.delete", {"id": "nobody"}, "nobody"),
            ("ledger.rows", {"limit": -1}, "limit"),
            ("ledger.rows", {"limit": huge}, "limit"),
            ("ledger.rows", {"key": ["x"]}, "key"),
            ("ledger.rows", {"request": 5}, "request"),
            ("usage", {"by": "model"}, "deployment, provider"),
            ("usage", {"by": "key"}, "key_id"),
            ("usage", {"by": ""}, "by"),
            ("usage", {"by": "key_id, key_id"}, "each once"),
            ("usage", {"by": ["key"]}, "by"),
            ("usage", {"tenant": "nobody"}, "nobody"),
            ("usage", {"key": "nobody"}, "nobody"),
            ("usage", {"since": "yesterday"}, "2026-01-31"),
            ("usage", {"since": 5}, "--since"),
            ("usage", {"until": "2026-13-01"}, "--until"),
            ("usage", {"since": "2026-01-02", "until": "2026-01-02"}, "--since must be before --until"),
            ("ledger.settle", {"hold": 1}, "USD"),
            ("ledger.settle", {"usd": "1"}, "hold is missing"),
            ("ledger.settle", {"hold": "1", "usd": "1"}, "hold"),
            ("ledger.settle", {"hold": huge, "usd": "1"}, "hold"),
            ("ledger.settle", {"hold": 1, "usd": "2000000000"}, "usd"),
            ("ledger.settle", {"hold": 99, "usd": "1"}, "99"),
            ("ledger.void", {}, "hold"),
            ("ledger.void", {"hold": 99}, "99"),
            ("cache.purge", {}, "--all"),
            ("cache.purge", {"tenant": "acme", "all": True}, "--all"),
            ("cache.purge", {"all": "yes"}, "--all"),
            ("cache.purge", {"tenant": "nobody"}, "nobody"),
            ("cache.purge", {"tenant": 5}, "tenant"),
            ("cache.shadow", {"tenant": "nobody"}, "nobody"),
            ("keys.forge", {}, "keys.forge"),
            ("", {}, "''"),
        ]
        for command, arguments, told in table:
            with self.subTest(command=command, arguments=arguments):
                self.assertIn(told, self.refusal(command, **arguments))
        self.assertEqual(self.run_command("keys.list"), [])

    def test_a_key_in_place_of_its_id_is_not_shown_again(self) -> None:
        """Neither is a key that works, nor what somebody has pasted of one."""
        for given in (self.world.key(), "sk-gw-nobody"):
            for command in ("keys.show", "keys.block", "usage", "ledger.rows"):
                with self.subTest(command, given=given):
                    told = self.refusal(command, **{"id" if command.startswith("keys") else "key": given})
                    self.assertIn("a key is named by its id", told)
                    self.assertNotIn(given, told)

    def test_the_cache_is_counted_and_purged(self) -> None:
        """Of a tenant, or whole."""
        self.world.gateway.handle(self.world.key(), chat(temperature=0))
        self.world.books.cache.flush()
        self.assertEqual(self.run_command("cache.stats")["entries"], 1)
        self.assertEqual(self.run_command("cache.purge", tenant="acme"), {"tenant": "acme", "removed": 1})
        self.assertEqual(self.run_command("cache.purge", all=True), {"tenant": None, "removed": 0})
        self.world.books.cache.close()
        self.assertIn("not open", self.refusal("cache.purge", all=True))

    def test_reading_goes_on_while_nothing_can_be_committed(self) -> None:
        """What is told may be older, and that is told, too; what would change something is refused in words."""
        fuse = Fuse("BEGIN IMMEDIATE")
        with (
            watched(before=fuse),
            mock.patch.object(sqlite_store, "FLUSH_AFTER_S", 3600.0),
            tempfile.TemporaryDirectory() as folder,
            RealWorld() as self.world,
        ):
            raw = self.world.key("5")
            key_id = self.world.shown(raw)["id"]
            self.world.gateway.handle(raw, chat(max_tokens=5))
            fuse.times = 1 << 30
            with self.assertRaises(StoreUnavailable):
                self.world.gateway.handle(raw, chat(max_tokens=5))
            reading: dict[str, dict[str, str]] = {
                "keys.list": {},
                "ledger.verify": {},
                "ledger.balances": {},
                "usage": {},
            }
            reading |= {"ledger.rows": {}, "ledger.holds": {}, "ledger.epochs": {}}
            reading |= {"keys.show": {"id": key_id}, "backup": {"file": f"{folder}/backup"}}
            for command, asked in reading.items():
                with self.subTest(command):
                    notes: list[str] = []
                    self.world.books.commands.run(command, asked, on_note=notes.append)
                    [note] = notes
                    self.assertIn("(database or disk is full): queued changes could not be applied", note)
            self.assertEqual([row["status"] for row in self.run_command("ledger.rows")], [200])
            writing: dict[str, dict[str, Any]] = {
                f"keys.{action}": {"id": key_id} for action in ("rotate", "block", "unblock", "delete")
            }
            writing |= {"keys.create": {"tenant": "acme"}, "ledger.void": {"hold": 1}, "ledger.confirm": {"epoch": 2}}
            writing |= {"ledger.settle": {"hold": 1, "usd": "1"}}
            for command, arguments in writing.items():
                with self.subTest(command):
                    told = self.refusal(command, **arguments)
                    self.assertEqual(told, "the ledger cannot be written: database or disk is full")
            self.assertEqual(self.run_command("cache.stats")["entries"], 0)
            fuse.times = 0
            notes = []
            self.assertEqual(len(self.world.books.commands.run("ledger.rows", {}, on_note=notes.append)), 2)
            self.assertEqual(notes, [])

    def test_a_long_life_is_a_life(self) -> None:
        """The largest number of seconds still fits."""
        made = self.run_command("keys.create", tenant="a", expires_in_s=1 << 53)
        self.world.books.keys.authenticate(ShownKey.of(made["key"]))

    def test_a_command_that_another_overtook_says_so(self) -> None:
        """It changed nothing and can be repeated."""

        async def overtaken(key_id: str, blocked: bool) -> None:
            raise KeyChanged(key_id)

        key_id = self.world.shown(self.world.key())["id"]
        self.world.books.keys.set_blocked = overtaken  # type: ignore[method-assign]
        self.assertIn("try again", self.refusal("keys.block", id=key_id))

    def test_closed_books_are_told_as_such(self) -> None:
        """Not as a fault of the operator's."""
        self.world.books.store.close()
        self.assertIn("cannot be read or written", self.refusal("usage"))
