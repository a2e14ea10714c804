"""Requests that fight for one budget, simulated from a seed, and what must be true whatever the schedule was.

A seed decides everything: the requests, what the upstream does to each, the limits, who runs next at every await, which
clients leave, what an operator does meanwhile, and before which effect the process dies. check_schedule() runs one seed
and raises AssertionError if money is wrong. It takes the ledger's type, so that broken twins can be put through it: a
check that no twin fails proves nothing.
"""

import contextlib
import functools
import json
import random
import sqlite3
from pathlib import Path
from typing import Any

from gateway import audit
from gateway.attempt import Upstreams
from gateway.chat import parse_chat
from gateway.clock import FakeClock
from gateway.config import load
from gateway.context import Options
from gateway.engines.sim import Effect, Kind, Scheduler, SimulatedCrash, Task
from gateway.errors import ClientGone, GatewayError
from gateway.holds import AlreadyResolved, By, Policy
from gateway.ledger import Ledger
from gateway.levels import Scope
from gateway.store import Durability
from gateway.types import Window
from tests.support.books import Book, ledger_folder, row
from tests.support.world import SimWorld, chat, scripted, settle_story

CONFIG = load(
    """
[retry]
max_retries = 0

[breaker]
threshold = 1000

[[providers]]
name = "up"
dialect = "fake"
script = [{ text = "a b c d e f" }]

[[deployments]]
name = "mini"
provider = "up"
model = "gw-mini"
price = { input = 0.06, output = 4 }
max_output_tokens = 16384
""",
    {},
)
"""Output is so much dearer than input that the slack of a prompt's bound cannot hide the price of six words."""

OVERBILLED: dict[str, Any] = {"text": "a b c", "usage": {"prompt_tokens": 9, "completion_tokens": 5000}}
"""Nobody leaves where this is drawn: what lies above a hold is only known from the report, at the answer's end."""

ENTRIES: tuple[dict[str, Any], ...] = (
    {"text": "a b c d e f"},
    {"text": "a b c d e f"},
    {"text": "a b c", "latency_s": 0.2},
    {"text": "a b c d e f", "usage": "missing"},
    OVERBILLED,
    {"text": "a b c d e f", "cut_after": 4},
    {"text": "a b c d e f", "malformed": True},
    {"status": 500},
    {"status": 429, "retry_after": 1},
    {"timeout": True},
)
"""What an upstream may do: answer, fail in every way, report nothing, bill more than the hold."""

_CAP = 8
_OVERDRAWN = """SELECT scope, name, spent_nanousd, held_nanousd, unresolved_nanousd, limit_nanousd
    FROM balances JOIN levels ON levels.id = balances.level_id
    WHERE spent_nanousd + held_nanousd + unresolved_nanousd > limit_nanousd + overage_nanousd"""
_DECIDED = "SELECT id, state, cost_nanousd, resolved_by FROM holds WHERE state IN ('settled', 'void')"
_ROWLESS = """SELECT id, request_id FROM holds WHERE request_id NOT IN (SELECT request_id FROM requests)
    AND coalesce(resolved_by, '') NOT IN ('admin', 'policy')"""
_FORGIVEN = """SELECT request_id FROM requests JOIN holds USING (request_id)
    WHERE status = 504 AND holds.state = 'void' AND resolved_by = 'request'"""
_VOIDED_BY_ADMIN = "SELECT coalesce(sum(amount_nanousd), 0) FROM holds WHERE state = 'void' AND resolved_by = 'admin'"


def body(*, stream: bool) -> dict[str, Any]:
    """The request that all of them make."""
    return chat("hi", max_tokens=_CAP, stream=stream, **({"stream_options": {"include_usage": True}} if stream else {}))


@functools.cache
def hold_nanousd(*, stream: bool) -> int:
    """What such a request holds."""
    request = parse_chat(json.dumps(body(stream=stream)).encode(), Options())
    [attempt] = Upstreams({}, CONFIG.providers, FakeClock()).prepare(request, CONFIG.deployments.values(), 0)
    return attempt.bound_nanousd


class Watch:
    """Looks at every committed state of a ledger and keeps what it should never have seen."""

    def __init__(self, folder: Path) -> None:
        self._reader = sqlite3.connect(folder / "ledger.db", isolation_level=None)
        self.overdrawn: list[Any] = []
        self.redecided: list[Any] = []
        self._decided: dict[int, Any] = {}

    def look(self) -> None:
        """A commit has just been made."""
        self.overdrawn += self._reader.execute(_OVERDRAWN).fetchall()
        for hold, *decision in self._reader.execute(_DECIDED):
            if self._decided.setdefault(hold, decision) != decision:
                self.redecided.append((hold, self._decided[hold], decision))

    def close(self) -> None:
        self._reader.close()


def check_schedule(seed: int, ledger_type: type[Ledger] = Ledger) -> set[str]:
    """Run the schedule of `seed` and check its money; returns words for what happened in it."""
    source = random.Random(seed)
    script = [source.choice(ENTRIES) for _ in range(source.randint(3, 5))]
    with ledger_folder() as folder, contextlib.closing(Watch(folder)) as watch:
        world = SimWorld(
            folder,
            seed=seed,
            config=CONFIG,
            durability=source.choice(tuple(Durability)),
            ledger_type=ledger_type,
            providers=scripted(*script),
            crash_at=source.choice((None, source.randrange(20 * len(script)))),
            leave_chance=source.choice((0.0, 0.02, 0.1)) if OVERBILLED not in script else 0.0,
            on_commit=watch.look,
        )
        with contextlib.closing(world):
            _draw_requests(world, source, len(script))
            operator = world.scheduler.spawn("operator", _operate(world, source)) if source.random() < 0.5 else None
            run(world)
            happened = check_money(world, watch)
            for task in world.scheduler.tasks:
                expected = () if task is operator else (GatewayError, ClientGone)
                expect(task.error is None or isinstance(task.error, (SimulatedCrash, *expected)), task)
            if "crashed" not in happened:
                expect(len(world.rows()) == len(script), "a request without a row", world.rows())
            return happened | {world.durability}


def check_crash_point(
    point: int | None, *, stream: bool, durability: Durability, ledger_type: type[Ledger] = Ledger
) -> int:
    """Run one request, let the process die before effect number `point`, start the next one and check its money.

    Returns how many effects happened; without a `point`, all that there are.
    """
    with ledger_folder() as folder, contextlib.closing(Watch(folder)) as watch:
        world = SimWorld(
            folder,
            config=CONFIG,
            durability=durability,
            ledger_type=ledger_type,
            crash_at=point,
            on_commit=watch.look,
        )
        with contextlib.closing(world):
            amount = hold_nanousd(stream=stream)
            key = world.key(amount)
            task, caller = world.request(key, body(stream=stream))
            world.scheduler.spawn("the process", _outlives(task))
            run(world)
            happened, level = check_money(world, watch), world.key_level(key)
            answered = caller.finished if stream else task.result is not None
            if durability is Durability.FULL and answered:
                expect("settled" in happened, "answered, but not settled")
            expect(level.unresolved_nanousd == (amount if "unresolved" in happened else 0), "what died is not counted")
            return world.scheduler.effects


async def _outlives(task: Task) -> None:
    """So that the process can also die after the last effect of a request."""
    await Effect(Kind.CLOCK, "afterwards", lambda: task.done)


def check_race(seed: int, ledger_type: type[Ledger] = Ledger) -> None:
    """The request, an admin and the sweeper resolve one hold at once, beside another hold; one of them wins, whole."""
    source = random.Random(seed)
    with ledger_folder() as folder, contextlib.closing(Book(folder, ledger_type=ledger_type)) as book:
        account = book.set_limits(1_000)
        reservation = book.reserve(account, 300)
        book.clock.advance(10)
        book.reserve(account, 500, "bystander")
        scheduler = Scheduler(seed, book.clock)
        settles = scheduler.spawn("request", book.ledger.settle(reservation, 100, row()))
        decides = scheduler.spawn("admin", book.ledger.resolve_by_admin(reservation.id, source.choice((None, 70))))
        policy, after_s = source.choice(tuple(Policy)), source.choice((0, 3600))
        sweeps = scheduler.spawn("sweeper", book.ledger.sweep(hold_ttl_s=5, unresolved_after_s=after_s, policy=policy))
        scheduler.run()

        expect(settles.error is None and sweeps.error is None, settles, sweeps)
        expect(decides.error is None or isinstance(decides.error, AlreadyResolved), decides)
        [(decided_by,)] = book.select("SELECT resolved_by FROM holds WHERE request_id <> 'bystander'")
        expect((decides.error is None) == (decided_by == By.ADMIN), "decided twice", decides, decided_by)
        report, [told] = book.verify(), book.rows()
        expect(report.ok, report.differences)
        expect(report.open_holds == 1 and report.unresolved_holds == 0, "not resolved", report)
        expect(book.money() == (told["cost_nanousd"], 500, 0, 0), "the row and the balance differ", told, book.money())


def run(world: SimWorld) -> None:
    """Run the simulation, and the next process if this one died."""
    try:
        world.run()
    except sqlite3.Error as error:
        raise AssertionError("the next process cannot start over these books") from error


def _draw_requests(world: SimWorld, source: random.Random, count: int) -> None:
    """Requests of one or two keys of one tenant, with room for one to three of them at each level."""

    def limit() -> int | None:
        rooms = source.choice((1, 2, 3, None))
        return None if rooms is None else rooms * hold_nanousd(stream=True) + source.choice((-1, 0, 0))

    settle_story(world.ledger.set_level(Scope.TENANT, "acme", Window.DAY, limit()))
    settle_story(world.ledger.set_level(Scope.GLOBAL, "", Window.MONTH, limit()))
    keys = [world.key(limit(), window=source.choice(tuple(Window))) for _ in range(source.randint(1, 2))]
    for _ in range(count):
        world.request(source.choice(keys), body(stream=source.random() < 0.5))


async def _operate(world: SimWorld, source: random.Random) -> None:
    """At any moment somebody gives up, settles or voids whatever is pending, perhaps on the next day."""
    patience = source.randrange(8)
    for _ in range(30):
        if await audit.list_holds(world.store):
            patience -= 1
        if patience < 0:
            break
    world.clock.advance(source.choice((1, 86_400)))
    match source.choice(("sweep", "policy", "settle", "void")):
        case "sweep":
            await world.ledger.sweep(hold_ttl_s=0.5, unresolved_after_s=1e9, policy=Policy.ASSUME_SPENT)
        case "policy":
            await world.ledger.sweep(hold_ttl_s=0.5, unresolved_after_s=0, policy=Policy.ASSUME_SPENT)
        case decision:
            for hold in await audit.list_holds(world.store):
                amount = hold["amount_nanousd"] if decision == "settle" else None
                with contextlib.suppress(AlreadyResolved):
                    await world.ledger.resolve_by_admin(int(hold["id"] or 0), amount)  # type: ignore[arg-type]


def check_money(world: SimWorld, watch: Watch) -> set[str]:
    """What must be true once everything has ended, the process died or not; returns words for what happened."""
    rows, report = world.rows(), world.verify()
    unexpected = [error for error in world.errors if not isinstance(error, SimulatedCrash)]
    expect(not unexpected, "unexpected", unexpected)
    expect(not watch.overdrawn, "above a limit", watch.overdrawn)
    expect(not watch.redecided, "decided twice", watch.redecided)
    expect(report.ok, report.differences)
    expect(report.open_holds == 0, "still held", settle_story(audit.list_holds(world.store)))
    expect(not _select(world, _ROWLESS), "admitted without a row", _select(world, _ROWLESS))
    expect(len({line["request_id"] for line in rows}) == len(rows), "more than one row", rows)
    expect(report.holds == len({request for (request,) in _select(world, "SELECT request_id FROM holds")}), "two holds")
    expect(len(world.upstream.calls) <= report.holds, "a call without a hold")
    expect(not _select(world, _FORGIVEN), "sent, never answered, and void", _select(world, _FORGIVEN))

    level, held_to = world.level(Scope.GLOBAL, ""), _metered_within_holds(world)
    [(voided,)] = _select(world, _VOIDED_BY_ADMIN)
    booked = level.spent_nanousd + level.unresolved_nanousd + voided
    expect(held_to <= booked, f"the upstream bills {held_to}, booked are {booked}", rows)
    decided = _select(world, "SELECT 1 FROM holds WHERE resolved_by IN ('admin', 'policy')")
    happened = {line["exit"] for line in rows} | {line["state"] for line in rows}
    happened |= {"estimated"} if any(line["estimated"] for line in rows) else set()
    happened |= {"overage"} if level.overage_nanousd else set()
    happened |= {"crashed"} if world.scheduler.crashed else set()
    happened |= {"decided"} if decided else set()
    if not happened & {"estimated", "unresolved", "crashed", "decided"}:
        metered = world.metered_nanousd()
        expect(metered == level.spent_nanousd, f"the upstream bills {metered}, spent is {level.spent_nanousd}", rows)
        happened |= {"exact"} if metered else set()
    return happened


def _metered_within_holds(world: SimWorld) -> int:
    """What the upstream bills, each call at most at its hold: what lies above is only known if it was reported."""
    price = CONFIG.deployments["mini"].prices.at(world.clock.wall_ms())
    assert price is not None
    return sum(
        min(price.price.cost_nanousd(call.billed), hold_nanousd(stream=call.body["stream"]))
        for call in world.upstream.calls
        if call.billed is not None
    )


def _select(world: SimWorld, sql: str) -> list[Any]:
    return settle_story(world.store.read(sql))


def expect(fact: bool, *facts: object) -> None:
    """Raise AssertionError with `facts` unless `fact`."""
    if not fact:
        raise AssertionError(*facts)
