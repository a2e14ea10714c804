"""Money under real threads: callers who all meet at the upstream before anybody is answered, and money for some."""

import contextlib
import itertools
import threading
import unittest
from collections.abc import Sequence
from typing import Any

from gateway.commands import CommandError
from gateway.drive import drive
from gateway.errors import BudgetExceeded, BudgetReserved, GatewayError
from gateway.holds import Purpose
from gateway.keys import ShownKey
from gateway.ledger import Ledger
from gateway.levels import LevelState, Scope
from gateway.types import Window
from llmkit.money import format_usd
from tests.support.gates import COST, PATIENCE_S, Crowd, GatedWorld
from tests.support.twins import IgnoresRowCount, LeavesTheHold, ReadsThenAdds, ReadsThenSets, SettlesUnguarded
from tests.support.world import CONFIG, chat

BODY = chat(max_tokens=50)
FULL = CONFIG + '\n[store]\ndurability = "full"\n'
NORMAL = CONFIG + '\n[store]\ndurability = "normal"\n'
TENANT = CONFIG + '\n[[tenants]]\nname = "acme"\nbudget_usd = "%s"\nbudget_window = "total"\n'


def worst_case(world: GatedWorld, body: dict[str, Any]) -> int:
    """Nano-dollars that one such request holds, seen while it is held."""
    raw_key = world.key(tenant="probe")
    seen: list[int] = []
    world.crowd([(raw_key, body)], lambda: seen.append(world.shown(raw_key)["held_nanousd"]))
    return seen[0]


def level(world: GatedWorld, scope: Scope, name: str) -> LevelState:
    """A level as it stands, with all that is queued."""
    world.books.store.flush()
    state = drive(world.books.ledger.level(scope, name))
    assert state is not None
    return state


def all_gone(state: LevelState) -> int:
    """What counts against the limit."""
    return state.spent_nanousd + state.held_nanousd + state.unresolved_nanousd


class BarrierCase(unittest.TestCase):
    """What must hold after every crowd."""

    def assert_crowd(self, crowd: Crowd, fits: int, callers: int, code: str) -> None:
        """Exactly `fits` callers were served, all others were told `code`, and only the served reached the upstream."""
        self.assertEqual(crowd.broken, [])
        self.assertEqual((len(crowd.answers), len(crowd.refusals)), (fits, callers - fits))
        self.assertEqual(crowd.codes, {code} if fits < callers else set())

    def assert_books(self, world: GatedWorld, requests: int) -> None:
        """The books balance, nothing is held or unknown, nothing went wrong unseen, and every request has its row."""
        report = world.run("ledger.verify")
        self.assertTrue(report["ok"], report["differences"])
        self.assertEqual((report["open_holds"], report["unresolved_holds"]), (0, 0))
        self.assertEqual(report["rows"], requests)
        self.assertEqual(world.errors, [])


def fifty_callers(case: BarrierCase, config: str, ledger_type: type[Ledger] = Ledger) -> None:
    """Fifty at once on a balance for exactly twelve."""
    with GatedWorld(config, ledger_type=ledger_type) as world:
        amount = worst_case(world, BODY)
        limit = 12 * amount
        raw_key = world.key(format_usd(limit))
        reached = world.up.reached

        def nothing_is_over() -> None:
            shown = world.shown(raw_key)
            case.assertEqual((shown["held_nanousd"], shown["spent_nanousd"]), (limit, 0))

        crowd = world.crowd([(raw_key, BODY)] * 50, nothing_is_over)
        case.assert_crowd(crowd, 12, 50, "429 budget_reserved")
        case.assertEqual(world.up.reached - reached, 12)
        case.assert_books(world, 51)
        shown = world.shown(raw_key)
        case.assertEqual((shown["spent_nanousd"], shown["held_nanousd"]), (12 * COST, 0))


def one_slot(case: BarrierCase, rounds: int, ledger_type: type[Ledger] = Ledger) -> None:
    """Thirty-two at once on a balance for one, again and again, each time on a key of its own."""
    with GatedWorld(FULL, ledger_type=ledger_type) as world:
        budget = format_usd(worst_case(world, BODY))
        for done in range(1, rounds + 1):
            raw_key = world.key(budget)
            crowd = world.crowd([(raw_key, BODY)] * 32)
            case.assert_crowd(crowd, 1, 32, "429 budget_reserved")
            case.assertEqual(world.up.reached, 1 + done)
            shown = world.shown(raw_key)
            case.assertEqual((shown["spent_nanousd"], shown["held_nanousd"]), (COST, 0))
        case.assert_books(world, 1 + 32 * rounds)


def two_resolvers(case: BarrierCase, ledger_type: type[Ledger] = Ledger) -> None:
    """Twelve requests in flight whose holds an operator settles: half before the answers come, half as they do."""
    with GatedWorld(FULL, ledger_type=ledger_type) as world:
        raw_key = world.key("1")
        operators: list[threading.Thread] = []
        failures: list[BaseException] = []

        def settle(holds: Sequence[dict[str, Any]]) -> None:
            for hold in holds:
                try:
                    world.run("ledger.settle", hold=hold["id"], usd="0.001")
                except CommandError:
                    continue
                except BaseException as error:
                    failures.append(error)

        decided: set[str] = set()

        def operate() -> None:
            holds = world.run("ledger.holds")
            settle(holds[:6])
            decided.update(hold["request_id"] for hold in holds[:6])
            operators.append(threading.Thread(target=settle, args=(holds[6:],)))
            operators[0].start()

        crowd = world.crowd([(raw_key, BODY)] * 12, operate)
        operators[0].join(PATIENCE_S)
        case.assertEqual(failures, [])
        case.assert_crowd(crowd, 12, 12, "")
        case.assert_books(world, 12)
        costs = [row["cost_nanousd"] for row in world.rows()]
        told = [row["cost_nanousd"] for row in world.rows() if row["request_id"] in decided]
        case.assertEqual(told, [1_000_000] * 6)
        case.assertLessEqual(set(costs), {1_000_000, COST})
        shown = world.shown(raw_key)
        case.assertEqual((shown["spent_nanousd"], shown["held_nanousd"]), (sum(costs), 0))


class BarrierTest(BarrierCase):
    """A limit, and more callers than it has room for."""

    def test_fifty_callers_and_money_for_twelve(self) -> None:
        """Twelve are served, thirty-eight are told that the money is held; the books are exact, however durable."""
        for config in (FULL, NORMAL):
            with self.subTest(config=config[-10:]):
                fifty_callers(self, config)

    def test_one_slot_is_taken_once(self) -> None:
        """Thirty rounds of thirty-two callers fighting for one slot."""
        one_slot(self, rounds=30)

    def test_an_operator_and_the_answer_resolve_a_hold_once(self) -> None:
        """Whoever comes second changes nothing, and the row tells what the first one decided."""
        two_resolvers(self)

    def test_the_tenants_limit_binds_all_its_keys(self) -> None:
        """Four keys with room of their own, eight callers each, and a tenant's budget for seven."""
        with GatedWorld() as measured:
            amount = worst_case(measured, BODY)
        with GatedWorld(TENANT % format_usd(7 * amount)) as world:
            keys = [world.key(format_usd(20 * amount)) for _ in range(4)]

            def nothing_is_over() -> None:
                self.assertEqual(level(world, Scope.TENANT, "acme").held_nanousd, 7 * amount)
                self.assertEqual(sum(world.shown(key)["held_nanousd"] for key in keys), 7 * amount)

            crowd = world.crowd([(key, BODY) for key in keys] * 8, nothing_is_over)
            self.assert_crowd(crowd, 7, 32, "429 budget_reserved")
            self.assertTrue(all("tenant" in refusal.message for refusal in crowd.refusals))
            self.assertEqual(world.up.reached, 7)
            self.assert_books(world, 32)
            self.assertEqual(level(world, Scope.TENANT, "acme").spent_nanousd, 7 * COST)
            self.assertEqual(sum(world.shown(key)["spent_nanousd"] for key in keys), 7 * COST)

    def test_the_whole_gateways_limit_binds_all_tenants(self) -> None:
        """Four tenants without a limit of their own, and a gateway's budget for five."""
        with GatedWorld() as measured:
            amount = worst_case(measured, BODY)
        with GatedWorld(f'{CONFIG}\n[budget]\nusd = "{format_usd(5 * amount)}"\nwindow = "total"\n') as world:
            keys = [world.key(tenant=f"team-{number}") for number in range(4)]
            crowd = world.crowd([(key, BODY) for key in keys] * 5)
            self.assert_crowd(crowd, 5, 20, "429 budget_reserved")
            self.assert_books(world, 20)
            self.assertEqual(level(world, Scope.GLOBAL, "").spent_nanousd, 5 * COST)


class BudgetCaseTest(BarrierCase):
    """Races and edges that other gateways were reported for."""

    def test_parallel_requests_cannot_all_pass_the_check(self) -> None:
        """One dollar, twenty calls of forty cents at once: two are made, and the money that was not used is back."""
        with GatedWorld() as world:
            raw_key = world.key("1")
            body = chat(max_tokens=100_000)

            def nothing_is_over() -> None:
                self.assertLessEqual(all_gone(level(world, Scope.KEY, self._id(world, raw_key))), 1_000_000_000)

            crowd = world.crowd([(raw_key, body)] * 20, nothing_is_over)
            self.assert_crowd(crowd, 2, 20, "429 budget_reserved")
            self.assertEqual(world.up.reached, 2)
            shown = world.shown(raw_key)
            self.assertEqual((shown["spent_nanousd"], shown["held_nanousd"]), (100_000, 0))
            self.assertEqual(len(world.crowd([(raw_key, body)]).answers), 1)
            self.assert_books(world, 21)

    def test_a_request_without_a_cap_holds_the_models_maximum(self) -> None:
        """Forty requests without max_tokens on one dollar: 16384 tokens at 4 USD per million let fifteen pass."""
        with GatedWorld() as world:
            raw_key = world.key("1")
            crowd = world.crowd([(raw_key, chat())] * 40)
            self.assert_crowd(crowd, 15, 40, "429 budget_reserved")
            self.assertEqual(world.up.reached, 15)
            self.assertEqual({call.body["max_completion_tokens"] for call in world.up.fake.calls}, {16_384})
            shown = world.shown(raw_key)
            self.assertEqual((shown["spent_nanousd"], shown["held_nanousd"]), (750_000, 0))
            self.assert_books(world, 40)

    def test_no_level_is_skipped_and_a_refusal_leaves_nothing_at_the_others(self) -> None:
        """A tenant with half a dollar, two keys with a dollar each: forty held cents of the first stop the second."""
        with GatedWorld(TENANT % "0.5") as world:
            first, second = world.key("1"), world.key("1")
            body = chat(max_tokens=100_000)

            def second_key_is_refused() -> None:
                with self.assertRaises(GatewayError) as refused:
                    world.gateway.handle(second, body)
                self.assertEqual((refused.exception.status, refused.exception.code), (429, "budget_reserved"))
                self.assertIn("tenant", refused.exception.message)
                held = world.shown(first)["held_nanousd"]
                self.assertTrue(400_000_000 < held < 401_000_000, held)
                self.assertEqual(level(world, Scope.TENANT, "acme").held_nanousd, held)
                self.assertEqual(level(world, Scope.GLOBAL, "").held_nanousd, held)
                self.assertEqual(world.shown(second)["held_nanousd"], 0)

            self.assertEqual(len(world.crowd([(first, body)], second_key_is_refused).answers), 1)
            for scope, name in ((Scope.KEY, self._id(world, first)), (Scope.TENANT, "acme"), (Scope.GLOBAL, "")):
                self.assertEqual(level(world, scope, name).spent_nanousd, COST)
            self.assertEqual(world.up.reached, 1)
            self.assert_books(world, 2)

    def test_a_tenant_without_money_stops_a_rich_key(self) -> None:
        """Spent money at one level is final, however much another has: 402, which names the level."""
        with GatedWorld(TENANT % "0.000000001") as world:
            raw_key = world.key("1000")
            refusal = self._refusal(world, raw_key)
            self.assertEqual((refusal.status, refusal.code), (402, "budget_exceeded"))
            self.assertIn("tenant", refusal.message)
            self.assertEqual(world.up.reached, 0)
            self.assert_books(world, 1)

    def test_zero_is_a_limit_and_no_limit_is_none(self) -> None:
        """A budget of 0 refuses what has a price and serves what is free; without a budget everything is served."""
        free = '[[deployments]]\nname = "gift"\nprovider = "up"\nmodel = "gw-free"\nprice = "free"\n'
        with GatedWorld(CONFIG + free) as world:
            zero, unlimited = world.key("0"), world.key()
            self.assertEqual(self._refusal(world, zero).code, "budget_exceeded")
            self.assertEqual(world.up.reached, 0)
            crowd = world.crowd([(zero, BODY | {"model": "gift"}), (unlimited, BODY)])
            self.assert_crowd(crowd, 2, 2, "")
            self.assertEqual(world.shown(zero)["spent_nanousd"], 0)
            self.assert_books(world, 3)

    def test_the_limit_itself_is_the_edge_at_every_level(self) -> None:
        """Room for exactly the worst case is enough; a nano-dollar less is not; money spent to the limit is the end."""
        with GatedWorld() as world:
            amount = worst_case(world, BODY)
            self.assertEqual(self._refusal(world, world.key(format_usd(amount - 1))).status, 402)
            raw_key = world.key(format_usd(amount))
            served = world.crowd([(raw_key, BODY)])
            self.assertEqual(len(served.answers), 1)
            levels = ((Scope.KEY, self._id(world, raw_key)), (Scope.TENANT, "acme"), (Scope.GLOBAL, ""))
            for scope, name in levels:
                with self.subTest(scope=scope):
                    self._limit(world, levels, scope, name, level(world, scope, name).spent_nanousd)
                    self.assertEqual(self._refusal(world, raw_key, chat(max_tokens=1)).status, 402)

    def _limit(
        self, world: GatedWorld, levels: Sequence[tuple[Scope, str]], scope: Scope, name: str, limit: int
    ) -> None:
        """Give one level a limit, and take it from the others."""
        for other in levels:
            drive(world.books.ledger.set_level(*other, Window.TOTAL, limit if other == (scope, name) else None))

    def _refusal(self, world: GatedWorld, raw_key: str, body: dict[str, Any] = BODY) -> GatewayError:
        with self.assertRaises(GatewayError) as refused:
            world.gateway.handle(raw_key, body)
        return refused.exception

    def _id(self, world: GatedWorld, raw_key: str) -> str:
        return world.books.keys.authenticate(ShownKey.of(raw_key)).id


class ChangedBudgetTest(BarrierCase):
    """An operator who gives a key another budget while its requests run."""

    def test_a_budget_changes_under_a_crowd(self) -> None:
        """Lowered below what is held it refuses the next, raised it admits exactly what fits; no hold is touched."""
        with GatedWorld(FULL) as world:
            amount = worst_case(world, BODY)
            raw_key = world.key(format_usd(5 * amount))
            key_id = world.books.keys.authenticate(ShownKey.of(raw_key)).id

            def lower() -> None:
                shown = world.run("keys.budget", id=key_id, usd="0.000000001")
                self.assertEqual((shown["limit_nanousd"], shown["held_nanousd"]), (1, 5 * amount))
                with self.assertRaises(BudgetExceeded):
                    world.gateway.handle(raw_key, BODY)

            crowd = world.crowd([(raw_key, BODY)] * 20, lower)
            self.assert_crowd(crowd, 5, 20, "429 budget_reserved")
            self.assertEqual(world.shown(raw_key)["spent_nanousd"], 5 * COST)
            world.run("keys.budget", id=key_id, usd=format_usd(5 * COST + 7 * amount))
            crowd = world.crowd([(raw_key, BODY)] * 20)
            self.assert_crowd(crowd, 7, 20, "429 budget_reserved")
            self.assertEqual(world.shown(raw_key)["spent_nanousd"], 12 * COST)
            self.assert_books(world, 42)

    def test_each_raise_is_used_up_and_never_exceeded(self) -> None:
        """Four threads take what they can of a limit that is raised step by step, then lowered."""
        with GatedWorld(NORMAL) as world:
            ledger = world.books.ledger
            account = ledger.account("acme", world.books.keys.authenticate(ShownKey.of(world.key("0"))).id)
            ended, over = threading.Event(), list[int]()

            def take(serial: int) -> None:
                for number in itertools.count():
                    if ended.is_set():
                        return
                    words = Purpose(f"req_{serial}_{number}", 1, "mini", "mini", "1")
                    with contextlib.suppress(BudgetExceeded, BudgetReserved):
                        drive(ledger.reserve(account, 1, words))

            threads = [threading.Thread(target=take, args=(serial,)) for serial in range(4)]
            for thread in threads:
                thread.start()
            try:
                for limit in (3, 10, 11, 30):
                    drive(ledger.set_limit(Scope.KEY, account.key_id, limit))
                    while (held := level(world, Scope.KEY, account.key_id).held_nanousd) < limit:
                        continue
                    over.append(held - limit)
                drive(ledger.set_limit(Scope.KEY, account.key_id, 20))
            finally:
                ended.set()
                for thread in threads:
                    thread.join(PATIENCE_S)
            self.assertEqual(over, [0, 0, 0, 0])
            self.assertEqual(level(world, Scope.KEY, account.key_id).held_nanousd, 30)
            self.assertTrue(world.run("ledger.verify")["ok"])


class TwinTest(BarrierCase):
    """The same crowds find the ledgers that are wrong on purpose."""

    def test_fifty_callers_find_them(self) -> None:
        """Reading before writing, an unread row count and a hold that stays do not survive fifty callers."""
        for twin in _RACES:
            with self.subTest(twin=twin.__name__), self.assertRaises(AssertionError):
                fifty_callers(self, NORMAL, twin)

    def test_one_slot_finds_them(self) -> None:
        """Nor do they survive the fight for one slot."""
        for twin in _RACES:
            with self.subTest(twin=twin.__name__), self.assertRaises(AssertionError):
                one_slot(self, 60, twin)

    def test_two_resolvers_find_an_unguarded_settlement(self) -> None:
        """A ledger that closes a hold whatever its state is moves its money twice."""
        with self.assertRaises(AssertionError):
            two_resolvers(self, SettlesUnguarded)


_RACES = (ReadsThenAdds, ReadsThenSets, IgnoresRowCount, LeavesTheHold)
