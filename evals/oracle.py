"""Holds the upstream's own bill against the books, call by call. Pure: calls and rows in, an audit out.

A request's holds, in the order in which they were made, stand for its calls, in the order in which they arrived: calls
that are proven unbilled share the hold of the next one, every other call has its own (so there are never more calls
than holds; there may be a hold whose call never left or never arrived). Then, to the nano-dollar:

    hold settled, the call told its usage, the client stayed     cost = bill
    hold settled, a row without an estimate                      cost = bill
    hold settled by estimate                                     cost >= bill (D-009)
    ... of a stream whose client left before any content         cost >= the bill of the prompt
    hold unresolved                                              amount >= bill
    hold void                                                    bill = 0
    hold open                                                    a leak

What an estimate is above its bill is not an error; it is summed up, so that spent + unresolved = bill + that margin.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from evals.metered import Metered
from evals.rows import Hold, Row


@dataclass(slots=True)
class Sums:
    """Holds of one kind: how many, what was billed for them, and what is booked."""

    holds: int = 0
    billed: int = 0
    booked: int = 0

    def add(self, billed: int, booked: int) -> None:
        """One more."""
        self.holds += 1
        self.billed += billed
        self.booked += booked


MOST_FAULTS = 30


@dataclass(slots=True)
class Audit:
    """What the comparison came to; nano-dollars, counts, and the first faults in words.

    exact, estimated, unresolved  holds that must be equal to their bills, and those that bound them
    misbooked   sum of the differences where there must be none
    unmetered   sum of what was billed above what is booked
    unpaired    calls without a hold, holds of requests that made no such call
    open_holds  holds that are left open
    """

    exact: Sums = field(default_factory=Sums)
    estimated: Sums = field(default_factory=Sums)
    unresolved: Sums = field(default_factory=Sums)
    billed: int = 0
    booked: int = 0
    misbooked: int = 0
    unmetered: int = 0
    unpaired: int = 0
    open_holds: int = 0
    faults: list[str] = field(default_factory=list)

    def note(self, fault: str) -> None:
        """Keep a fault for people."""
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(fault)


def audit(calls: Sequence[Metered], rows: Iterable[Row]) -> Audit:
    """Compare everything that was billed with everything that was booked."""
    seen = Audit(billed=sum(call.billed_nanousd for call in calls))
    by_request: dict[int, list[Metered]] = defaultdict(list)
    for call in calls:
        by_request[call.number].append(call)
    orphans: list[Hold] = []
    for row in rows:
        seen.booked += sum(_booked(hold) for hold in row.holds)
        if row.number is None:
            orphans += row.holds
        else:
            _compare(seen, row, by_request.pop(row.number, []))
    _compare_orphans(seen, orphans, [call for rest in by_request.values() for call in rest])
    return seen


def misrecorded(answered: Mapping[int, int], rows: Iterable[Row]) -> int:
    """Requests that a client had a whole answer to, by number and status, and that have not one row which says so."""
    told: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        if row.number is not None:
            told[row.number].append(row.status)
    return sum(told[number] != [status] for number, status in answered.items())


def groups(calls: Sequence[Metered]) -> list[list[Metered]]:
    """Calls of one request as they may share a hold."""
    found: list[list[Metered]] = []
    for call in calls:
        if not found or not found[-1][-1].unbilled:
            found.append([])
        found[-1].append(call)
    return found


def _booked(hold: Hold) -> int:
    return hold.amount if hold.state == "unresolved" else hold.cost


def _compare(seen: Audit, row: Row, calls: Sequence[Metered]) -> None:
    grouped = groups(calls)
    missing = len(grouped) - len(row.holds)
    if missing > 0 or (missing < 0 and not _may_lack_calls(row, -missing)):
        seen.unpaired += abs(missing)
        seen.note(f"request {row.number}: {len(row.holds)} holds for {len(calls)} calls, {row}")
    for at, hold in enumerate(row.holds):
        group = grouped[at] if at < len(grouped) else []
        _compare_hold(seen, row, hold, group, last=at == len(row.holds) - 1)
    for group in grouped[len(row.holds) :]:
        seen.unmetered += sum(call.billed_nanousd for call in group)


def _may_lack_calls(row: Row, holds: int) -> bool:
    """A client that left before its call had arrived; a deployment that could not be reached."""
    return holds == 1 and (row.exit == "client_gone" or row.holds[-1].state == "void")


def _compare_hold(seen: Audit, row: Row, hold: Hold, group: Sequence[Metered], *, last: bool) -> None:
    billed = sum(call.billed_nanousd for call in group)
    told = bool(group) and group[-1].told
    left = row.exit == "client_gone"
    match hold.state:
        case "open":
            seen.open_holds += 1
            seen.note(f"request {row.number}: an open hold")
        case "unresolved":
            _bound(seen, seen.unresolved, row, billed, hold.amount)
        case "void":
            seen.misbooked += billed
            if billed:
                seen.note(f"request {row.number}: {billed} billed for a hold that was given back, {row}")
        case _ if not row.estimated or (last and told and not left):
            seen.exact.add(billed, hold.cost)
            seen.misbooked += abs(hold.cost - billed)
            if hold.cost != billed:
                seen.note(f"request {row.number}: {billed} billed, {hold.cost} booked, {row}, {group}")
        case _ if left and row.unseen:
            _bound(seen, seen.estimated, row, sum(call.prompt_nanousd for call in group), hold.cost)
        case _:
            _bound(seen, seen.estimated, row, billed, hold.cost)


def _bound(seen: Audit, sums: Sums, row: Row, billed: int, booked: int) -> None:
    sums.add(billed, booked)
    if booked < billed:
        seen.unmetered += billed - booked
        seen.note(f"request {row.number}: {billed} billed, a bound of {booked} booked, {row}")


def _compare_orphans(seen: Audit, holds: Sequence[Hold], calls: Sequence[Metered]) -> None:
    """Rows that do not say whose they are, against the calls that nobody claims: their sums."""
    billed, booked = sum(call.billed_nanousd for call in calls), sum(map(_booked, holds))
    seen.open_holds += sum(hold.state == "open" for hold in holds)
    seen.unmetered += max(billed - booked, 0)
    if calls and not holds:
        seen.unpaired += len(calls)
        seen.note(f"{len(calls)} calls without a row, the first {calls[0]}")
    if holds:
        seen.unresolved.holds += len(holds)
        seen.unresolved.billed += billed
        seen.unresolved.booked += booked
