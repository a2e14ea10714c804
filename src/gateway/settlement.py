"""The guard around a request's money: whatever happens, each hold is resolved once and its row is written once.

What became of an upstream call is kept as Evidence while it happens. How its hold is resolved follows from that alone:

    nothing was sent, or the upstream answered an error without usage      the next call takes the hold over, or void
    usage was reported, or something was produced                          settle, by usage or by estimate
    the client left after the call was sent                                settle what was seen
    sent, and nothing is known                                             unresolved, at what this call can cost

So two calls that may both have been billed never share a hold. close() may be called on every way out; only the first
does anything.
"""

from collections.abc import Callable

from msgspec import Struct

from gateway.clock import Clock
from gateway.context import RequestContext
from gateway.evidence import NO_CHARGE, Charge, Evidence, Reach, assess
from gateway.holds import Outcome, Purpose, Reservation
from gateway.ledger import Ledger
from gateway.redaction import without_secrets
from gateway.rows import Exit, RequestRow
from llmkit.prices import PriceEntry


class Ending(Struct, frozen=True):
    """How the request ended, as its row will say."""

    exit: Exit
    status: int
    code: str | None = None


class _Held(Struct, frozen=True):
    """The hold of a call, and what its outcome will be judged by."""

    reservation: Reservation
    purpose: Purpose
    evidence: Evidence
    price: PriceEntry

    @property
    def bound_nanousd(self) -> int:
        """The most that this call can cost; the hold may be for a dearer one."""
        return self.evidence.bound_nanousd(self.price)


class Settlement(Struct):
    """The money of one request in the making. Belongs to the request's own story.

    on_overbilled  is told of a deployment that billed more than a hold, before the answer's last byte leaves: its name,
                   what was held, and what it has cost, in nano-dollars
    on_ended       is told of the row, of what it is about, and of the monotonic instant, once the money is resolved
    _booked        what its calls were settled at, each with its evidence, in order; `_total` is their sum
    _unknown       whether the outcome of a call is unknown
    """

    ledger: Ledger
    clock: Clock
    context: RequestContext
    on_overbilled: Callable[[str, int, int], None] = lambda deployment, held_nanousd, cost_nanousd: None
    on_ended: Callable[[RequestRow, RequestContext, float], None] = lambda row, context, ended_s: None
    ending: Ending | None = None
    _held: _Held | None = None
    _booked: list[tuple[Evidence, Charge]] = []
    _total: Charge = NO_CHARGE
    _unknown: bool = False

    def charge_of(self, evidence: Evidence) -> Charge | None:
        """What the call of this sheet was settled at; None if it was not, or not yet."""
        for sheet, charge in self._booked:
            if sheet is evidence:
                return charge
        return None

    async def cover(
        self, purpose: Purpose, bound_nanousd: int, evidence: Evidence, price: PriceEntry, *, former: str = "unknown"
    ) -> None:
        """See that a hold of at least `bound_nanousd` stands behind the call that `purpose` names, before it is made.

        evidence  the sheet that this hold will be resolved by
        former    how the last call of this request ended, for the case that its outcome is unknown
        Raises BudgetExceeded, BudgetReserved, StoreUnavailable, or AlreadyResolved if the hold was given up meanwhile;
        nothing was booked then, and the former hold is still this settlement's.
        """
        held, account = self._held, self.context.principal.account
        if held is None:
            reservation = await self.ledger.reserve(account, bound_nanousd, purpose)
        elif (charge := self._charge_of(held)) is not None or held.evidence.reach is Reach.UNKNOWN:
            outcome = Outcome(charge.cost_nanousd if charge else None, former, held.bound_nanousd)
            reservation = await self.ledger.reserve_next(held.reservation, outcome, account, bound_nanousd, purpose)
            self._book(held, charge)
        elif held.reservation.amount_nanousd < bound_nanousd:
            extra = bound_nanousd - held.reservation.amount_nanousd
            reservation = await self.ledger.top_up(held.reservation, extra, purpose)
        else:
            reservation = held.reservation
            self.ledger.carry(reservation, purpose)
        self._held = _Held(reservation, purpose, evidence, price)

    async def close(self, ending: Ending) -> None:
        """Resolve the hold, if there is one, and write the row. Does nothing the second time."""
        if self.ending is not None:
            return
        self.ending = ending
        self.context.facts.exit = ending.exit
        held, charge = self._held, self._conclude(ending)
        row = self._row(ending)
        try:
            if held is None:
                self.ledger.record(row)
            elif charge is not None:
                await self.ledger.settle(held.reservation, charge.cost_nanousd, row)
            elif held.evidence.reach is Reach.UNKNOWN:
                why, bound = ending.code or "unknown", held.bound_nanousd
                await self.ledger.leave_unresolved(held.reservation, why, row, at_most_nanousd=bound)
            else:
                await self.ledger.void(held.reservation, row)
        finally:
            self.on_ended(row, self.context, self.clock.now_s())

    def _conclude(self, ending: Ending) -> Charge | None:
        """Judge the last call, and note in the facts what all of them cost, as far as that is known."""
        facts, held, charge = self.context.facts, self._held, None
        if held is not None:
            charge = self._charge_of(held, left=ending.exit is Exit.CLIENT_GONE)
            self._book(held, charge)
        if self._booked or not self._unknown:
            facts.cost_nanousd = self._total.cost_nanousd
        return charge

    def _charge_of(self, held: _Held, *, left: bool = False) -> Charge | None:
        """What the call behind `held` is settled at; None if it is proven unbilled, or nobody knows.

        left  the client went away while the call ran: what was seen is all that is paid
        """
        evidence = held.evidence
        seen = evidence.usage is not None or evidence.reach is Reach.PRODUCED
        if seen or (left and evidence.reach is Reach.UNKNOWN):
            return assess(evidence, held.price, streamed=self.context.streams)
        return None

    def _book(self, held: _Held, charge: Charge | None) -> None:
        if charge is None:
            self._unknown |= held.evidence.reach is Reach.UNKNOWN
        else:
            self._total = self._total.plus(charge) if self._booked else charge
            self._booked.append((held.evidence, charge))
            held_nanousd = held.reservation.amount_nanousd
            if charge.cost_nanousd > held_nanousd:
                self.on_overbilled(held.purpose.deployment, held_nanousd, charge.cost_nanousd)

    def _row(self, ending: Ending) -> RequestRow:
        """Its values stand in the order of its fields: so many names would cost more than the row."""
        context, facts, usage = self.context, self.context.facts, self._total.usage
        ended_ms, duration_ms = self.clock.wall_ms(), round((self.clock.now_s() - context.started_s) * 1000)
        return RequestRow(
            facts.request_id,
            self.ledger.boot_id,
            context.started_ms,
            ended_ms,
            context.principal.tenant,
            context.principal.key_id,
            facts.alias,
            context.streams,
            ending.exit,
            ending.status,
            ending.code,
            "judged" if facts.judged else facts.cache,
            facts.tier,
            facts.deployment,
            facts.provider,
            facts.attempts,
            self._total.estimated,
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.cache_write_tokens,
            usage.completion_tokens,
            usage.reasoning_tokens,
            self._held.price.version if self._held else None,
            context.ttft_ms,
            duration_ms,
            ",".join(map(without_secrets, context.tags)) if context.tags else "",
        )
