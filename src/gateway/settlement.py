"""The guard around a request's money: whatever happens, its hold is resolved once and its row is written once.

What became of an upstream call is kept as Evidence while it happens. How a hold is resolved follows from that alone:

    nothing was sent, or the upstream answered an error without usage      void
    usage was reported, or something was produced                          settle, by usage or by estimate
    the client left after the call was sent                                settle what was seen
    sent, and nothing is known                                             unresolved

An estimate is a bound, not a guess: prompt bytes and produced bytes bound their tokens, so what an upstream bills for
what we saw is never above it. Of a whole answer that was cut, junk or not waited for nothing was seen, but all of it
may have been written: its bound is the cap. close() may be called on every way out; only the first does anything.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

from gateway.clock import Clock
from gateway.context import RequestContext
from gateway.ledger import Ledger, Reservation
from gateway.migrations import MAX_NANOUSD
from gateway.rows import Exit, RequestRow
from llmkit.prices import PriceEntry
from llmkit.types import Usage

LONGEST_TOKEN_BYTES = 512
"""No token of a vocabulary in use is longer; the longest known are runs of 128 spaces and the like."""


class Reach(Enum):
    """How far an upstream call got, as far as money is concerned."""

    NOT_SENT = auto()
    UNBILLED = auto()
    UNKNOWN = auto()
    PRODUCED = auto()


@dataclass(slots=True)
class Evidence:
    """What is known of one upstream call; updated by whoever sees more.

    prompt_bound   tokens: upper bound of the prompt
    output_bound   tokens: all choices' caps together, as sent
    deltas         content deltas that were seen; a token each at least
    output_bytes   bytes of what the model was seen to write; they bound its tokens; None: no readable answer was seen
    unreported     bytes and deltas of those that came after `usage` was last reported
    broken_off     the upstream failed before anything could be seen: all of the output may have been written
    """

    prompt_bound: int
    output_bound: int
    reach: Reach = Reach.NOT_SENT
    usage: Usage | None = None
    deltas: int = 0
    output_bytes: int | None = None
    unreported: tuple[int, int] = (0, 0)
    broken_off: bool = False


@dataclass(frozen=True, slots=True)
class Charge:
    """What a call is settled at; `estimated` if any class of tokens was not the provider's own count."""

    cost_nanousd: int
    usage: Usage
    estimated: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """How the request ended, as its row will say."""

    exit: Exit
    status: int
    code: str | None = None


def assess(evidence: Evidence, price: PriceEntry, *, streamed: bool) -> Charge:
    """The cost of what is known: reported usage where it makes sense, the bound of what was seen elsewhere."""
    reported = evidence.usage
    if reported is not None and price.price.cost_nanousd(reported) > MAX_NANOUSD:
        reported = None
    usage = reported or Usage()
    if not usage.prompt_tokens:
        usage = replace(usage, prompt_tokens=evidence.prompt_bound)
    if not usage.completion_tokens and (reported is None or evidence.output_bytes):
        usage = replace(usage, completion_tokens=_output_estimate(evidence, streamed))
    elif reported is not None and evidence.unreported != (0, 0):
        usage = replace(usage, completion_tokens=reported.completion_tokens + _unreported_estimate(evidence, reported))
    return Charge(price.price.cost_nanousd(usage), usage, usage != reported)


def _output_estimate(evidence: Evidence, streamed: bool) -> int:
    """Bytes bound tokens, and so does the cap, unless the upstream was seen to pass it."""
    if evidence.broken_off or evidence.output_bytes is None:
        return 0 if streamed and not evidence.broken_off else evidence.output_bound
    return max(min(evidence.output_bytes, evidence.output_bound), least_tokens(evidence))


def _unreported_estimate(evidence: Evidence, reported: Usage) -> int:
    """The bound of what came after the last report, within what the cap leaves unless more was seen."""
    size, deltas = evidence.unreported
    return max(min(size, max(evidence.output_bound - reported.completion_tokens, 0)), deltas)


def least_tokens(evidence: Evidence) -> int:
    """What was seen cannot have been fewer tokens than this."""
    return max(evidence.deltas, (evidence.output_bytes or 0) // LONGEST_TOKEN_BYTES)


@dataclass(slots=True)
class Settlement:
    """The money of one request in the making. Belongs to the request's own story."""

    ledger: Ledger
    clock: Clock
    context: RequestContext
    reservation: Reservation | None = None
    evidence: Evidence | None = None
    price: PriceEntry | None = None
    charge: Charge | None = None
    ending: Ending | None = None

    def hold(self, reservation: Reservation, evidence: Evidence, price: PriceEntry) -> None:
        """Take charge of a hold that was just booked."""
        self.reservation, self.evidence, self.price = reservation, evidence, price

    @property
    def overage_nanousd(self) -> int:
        """How far the settled cost lies above the hold; 0 before the settlement."""
        if self.charge is None or self.reservation is None:
            return 0
        return max(self.charge.cost_nanousd - self.reservation.amount_nanousd, 0)

    async def close(self, ending: Ending) -> None:
        """Resolve the hold, if there is one, and write the row. Does nothing the second time."""
        if self.ending is not None:
            return
        self.ending = ending
        facts = self.context.facts
        facts.exit, facts.cost_nanousd = ending.exit, 0
        if self.reservation is None or self.evidence is None or self.price is None:
            self.ledger.record(self._row(ending))
            return
        reach = self.evidence.reach
        if self.evidence.usage is not None or reach is Reach.PRODUCED or self._left_after_sending(ending):
            self.charge = assess(self.evidence, self.price, streamed=self.context.streams)
            facts.cost_nanousd = self.charge.cost_nanousd
            await self.ledger.settle(self.reservation, self.charge.cost_nanousd, self._row(ending))
        elif reach is Reach.UNKNOWN:
            facts.cost_nanousd = None
            await self.ledger.leave_unresolved(self.reservation, ending.code or "unknown", self._row(ending))
        else:
            await self.ledger.void(self.reservation, self._row(ending))

    def _left_after_sending(self, ending: Ending) -> bool:
        return ending.exit is Exit.CLIENT_GONE and self.evidence is not None and self.evidence.reach is Reach.UNKNOWN

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
            price_version=self.price.version if self.price else None,
            ttft_ms=context.ttft_ms,
            duration_ms=round((self.clock.now_s() - context.started_s) * 1000),
            tags=",".join(context.tags),
        )
