"""The guard around a request's money: whatever happens, its hold is resolved once and its row is written once.

What became of an upstream call is kept as Evidence while it happens. How a hold is resolved follows from that alone:

    nothing was sent, or the upstream answered an error without usage      void
    usage was reported, or something was produced                          settle, by usage or by estimate
    the client left after the call was sent                                settle what was seen
    sent, and nothing is known                                             unresolved

close() may be called on every way out; only the first does anything.
"""

from dataclasses import dataclass

from gateway.clock import Clock
from gateway.context import RequestContext
from gateway.evidence import Charge, Evidence, Reach, assess
from gateway.ledger import Ledger, Reservation
from gateway.rows import Exit, RequestRow
from llmkit.prices import PriceEntry
from llmkit.types import Usage


@dataclass(frozen=True, slots=True)
class Ending:
    """How the request ended, as its row will say."""

    exit: Exit
    status: int
    code: str | None = None


@dataclass(frozen=True, slots=True)
class _Held:
    """The hold of a call, and what its outcome will be judged by."""

    reservation: Reservation
    evidence: Evidence
    price: PriceEntry


@dataclass(slots=True)
class Settlement:
    """The money of one request in the making. Belongs to the request's own story."""

    ledger: Ledger
    clock: Clock
    context: RequestContext
    charge: Charge | None = None
    ending: Ending | None = None
    _held: _Held | None = None

    def hold(self, reservation: Reservation, evidence: Evidence, price: PriceEntry) -> None:
        """Take charge of a hold that was just booked."""
        self._held = _Held(reservation, evidence, price)

    @property
    def overage_nanousd(self) -> int:
        """How far the settled cost lies above the hold; 0 before the settlement."""
        if self.charge is None or self._held is None:
            return 0
        return max(self.charge.cost_nanousd - self._held.reservation.amount_nanousd, 0)

    async def close(self, ending: Ending) -> None:
        """Resolve the hold, if there is one, and write the row. Does nothing the second time."""
        if self.ending is not None:
            return
        self.ending = ending
        facts = self.context.facts
        facts.exit, facts.cost_nanousd = ending.exit, 0
        held = self._held
        if held is None:
            self.ledger.record(self._row(ending))
            return
        reach = held.evidence.reach
        left_after_sending = reach is Reach.UNKNOWN and ending.exit is Exit.CLIENT_GONE
        if held.evidence.usage is not None or reach is Reach.PRODUCED or left_after_sending:
            self.charge = assess(held.evidence, held.price, streamed=self.context.streams)
            facts.cost_nanousd = self.charge.cost_nanousd
            await self.ledger.settle(held.reservation, self.charge.cost_nanousd, self._row(ending))
        elif reach is Reach.UNKNOWN:
            facts.cost_nanousd = None
            await self.ledger.leave_unresolved(held.reservation, ending.code or "unknown", self._row(ending))
        else:
            await self.ledger.void(held.reservation, self._row(ending))

    def _row(self, ending: Ending) -> RequestRow:
        context, facts = self.context, self.context.facts
        usage = self.charge.usage if self.charge else Usage()
        return RequestRow(
            request_id=facts.request_id,
            boot_id=self.ledger.boot_id,
            started_ms=context.started_ms,
            ended_ms=self.clock.wall_ms(),
            tenant=context.principal.tenant,
            key_id=context.principal.key_id,
            alias=facts.alias,
            stream=context.streams,
            exit=ending.exit,
            status=ending.status,
            code=ending.code,
            cache=facts.cache,
            tier=facts.tier,
            deployment=facts.deployment,
            provider=facts.provider,
            attempts=facts.attempts,
            estimated=self.charge is not None and self.charge.estimated,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            completion_tokens=usage.completion_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            price_version=self._held.price.version if self._held else None,
            ttft_ms=context.ttft_ms,
            duration_ms=round((self.clock.now_s() - context.started_s) * 1000),
            tags=",".join(context.tags),
        )
