"""From an open upstream answer to the client: whole, or event by event, with the money settled before the last byte.

Until the model has written something, a stream's events are held back, and what fails is raised, so that another call
may answer instead; also after the head has gone out. The first content leaves before what came with it is looked at;
from then on each event leaves as it came, before more is waited for: those that came together leave together. What
fails is told in-band then, without an end mark: a cut stream never looks finished. A stream whose upstream passes the
cap is cut. One that breaks off behind its finish is whole for its client, but not to be remembered.
An answer that a validator refuses is given up only if something stronger may answer.
What is held back has a bound, beyond which the upstream counts as broken.
"""

import contextlib
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from gateway.chat import ChatRequest
from gateway.clock import Clock
from gateway.context import Answer, RequestContext
from gateway.errors import ClientGone, Draining, GatewayError
from gateway.evidence import Evidence, Reach, least_tokens
from gateway.providers import ProviderAnswer
from gateway.rows import Exit
from gateway.settlement import Ending, Settlement
from gateway.validators import FILTERED, Refusal, refusal
from gateway.verdict import UNUSABLE_ANSWER, AttemptFailed, Verdict, judge, unusable
from llmkit.errors import ProviderError
from llmkit.money import format_usd
from llmkit.openai import Completion, Malformed, WireError, error_payload, from_wire, with_usage
from llmkit.openai_stream import ChunkShaper
from llmkit.sse import DONE, frame
from llmkit.types import Usage

_END = frame(DONE)
_CUT_AT_CAP = "length"

MOST_HELD_BYTES = 1 << 20
"""Of events before the first content. Upstreams send a few hundred bytes then; one that goes on and on is broken, and
every stream's share of memory is this at most.
"""


class _Stop(Enum):
    """Why no more of a stream is read, if nothing is wrong with it."""

    DONE = auto()
    AT_CAP = auto()


class AnswerRefused(Exception):
    """A validator refused an answer of which the client has seen nothing; deliver() gives it all the same."""

    def __init__(self, reason: Refusal, deliver: Callable[[], Awaitable[Answer]]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.deliver = deliver


class Keeper(Protocol):
    """Whoever wants to remember answers, as far as they are worth it."""

    def keep_whole(self, raw: bytes, completion: Completion) -> None:
        """A whole answer, and its bytes as they leave."""
        ...

    def see(self, payload: bytes) -> None:
        """The payload of the next event of a stream, as it leaves."""
        ...

    def keep_stream(self, usage: Usage) -> None:
        """The stream that was seen has ended well, and for reasons that are known."""
        ...


class Relay(Struct, eq=False):
    """One answer on its way to one client.

    exit       how the request ends if this answer is delivered
    validates  whether validators look at the answer, and the route says what they found
    may_climb  whether an answer that they refuse may be given up for a stronger tier's
    broke      how the upstream failed, in one word, if it did after content had reached the client
    """

    context: RequestContext
    request: ChatRequest
    answer: ProviderAnswer
    evidence: Evidence
    settlement: Settlement
    clock: Clock
    exit: Exit = Exit.ROUTED
    validates: bool = False
    may_climb: bool = False
    keeper: Keeper | None = None
    broke: str | None = None
    _flows: bool = False
    _held_bytes: int = 0

    @property
    def _created(self) -> int:
        """Unix seconds for an answer that does not say when it was made."""
        return self.context.started_ms // 1000

    @property
    def _model(self) -> str:
        """A name for an answer that does not say which model it is of: what was asked for."""
        return self.context.facts.alias

    # --- whole --------------------------------------------------------------------------------------------------

    async def whole(self) -> Answer:
        """Read, check and settle a non-streaming answer. Raises AttemptFailed, AnswerRefused, ClientGone, Draining."""
        completion = await self._read_whole()
        refused = refusal(completion.document, self.request.body.get("response_format")) if self.validates else None
        self._hop(refused or "ok")
        if refused is not None and self.may_climb:
            raise AnswerRefused(refused, lambda: self._deliver(completion))
        return await self._deliver(completion)

    async def _read_whole(self) -> Completion:
        started_s = self.clock.now_s()
        try:
            raw = await self.answer.whole()
        except ProviderError as failure:
            verdict = judge(failure)
            self.evidence.reach, self.evidence.usage = verdict.reach, failure.usage
            raise self._failed_by(verdict) from failure
        finally:
            self.context.facts.upstream_s += self.clock.now_s() - started_s
        self.evidence.reach = Reach.PRODUCED
        try:
            completion = from_wire(raw, created=self._created, model=self._model)
        except (Malformed, WireError) as error:
            self.evidence.usage = error.usage
            raise self._failed_by(unusable(type(error).__name__)) from error
        self.evidence.usage, self.evidence.output_bytes = completion.usage, completion.text_bytes
        self.evidence.reached_cap = _CUT_AT_CAP in completion.finish_reasons
        return completion

    async def _deliver(self, completion: Completion) -> Answer:
        await self.settlement.close(Ending(self.exit, 200))
        raw = completion.raw
        charge = self.settlement.charge_of(self.evidence)
        if charge is not None and charge.usage != completion.usage:
            raw = with_usage(raw, charge.usage)
        if self.keeper is not None:
            self.keeper.keep_whole(raw, completion)
        return Answer(raw)

    # --- streams ------------------------------------------------------------------------------------------------

    async def stream(self) -> Answer:
        """Relay a stream. Raises as whole() does until content has gone out; from then on failures are told in-band,
        and the answer says that it was cut. Raises ClientGone at any time.
        """
        shaper = ChunkShaper(want_usage=self.request.wants_usage, created=self._created, model=self._model)
        held: list[bytes] = []
        stop: _Stop | Malformed | WireError | None = None
        try:
            while stop is None and (payloads := await self._next()) is not None:
                stop = await self._take(payloads, shaper, held)
                await self._pass_on(shaper, held)
        except ProviderError as failure:
            if not self._is_whole(shaper):
                verdict = judge(failure, produced=shaper.started)
                self.evidence.reach = verdict.reach
                return await self._break(shaper, verdict, "stream_truncated", "The upstream's stream was cut.", failure)
            self.keeper = None
        except Draining:
            if not self._flows:
                raise
            return await self._cut("draining", "The gateway is shutting down.")
        if stop is _Stop.AT_CAP:
            return await self._cut_at_cap()
        if isinstance(stop, Exception):
            verdict = unusable(type(stop).__name__)
            return await self._break(shaper, verdict, "upstream_error", UNUSABLE_ANSWER, stop)
        if not (shaper.finished if stop is _Stop.DONE else self._is_whole(shaper)):
            self.evidence.reach = Reach.PRODUCED
            message = "The upstream's stream ended before the answer was finished."
            return await self._break(shaper, unusable("unfinished"), "stream_truncated", message)
        return await self._end(shaper, held)

    async def _take(
        self, payloads: list[bytes], shaper: ChunkShaper, held: list[bytes]
    ) -> _Stop | Malformed | WireError | None:
        """Add what is to leave of `payloads` to what is held.

        Returns why no more of the stream is read, if so: its end, the cap, or what is wrong with it.
        """
        try:
            for payload in payloads:
                if payload.strip() == DONE:
                    return _Stop.DONE
                events = shaper.feed(payload)
                held += events
                if not self._flows:
                    self._held_bytes += sum(map(len, events))
                    if shaper.started:
                        await self._pass_on(shaper, held)
                    elif self._held_bytes > MOST_HELD_BYTES:
                        return Malformed("events without end, and nothing in them")
                if self._passes_cap(shaper):
                    return _Stop.AT_CAP
        except (Malformed, WireError) as error:
            return error
        return None

    async def _pass_on(self, shaper: ChunkShaper, held: list[bytes]) -> None:
        """Note what came, and send what is held once the model has written something."""
        self._note(shaper)
        if shaper.started:
            if not self._flows:
                self._hop("ok")
            await self._send(held)
            held.clear()

    def _is_whole(self, shaper: ChunkShaper) -> bool:
        """Whether a stream without an end mark is complete: every choice that was asked for has its finish reason."""
        return shaper.finished and len(shaper.finish_reasons) >= self.request.choices

    async def _send(self, payloads: list[bytes]) -> None:
        """Send events; before the first, promise the stream. Its head says what is so by then, the row how it ended."""
        begins = not self._flows
        if begins:
            self._flows = True
            self.context.facts.exit = self.exit
            await self.context.caller.start()
        if self.keeper is not None:
            for payload in payloads:
                self.keeper.see(payload)
        if payloads:
            await self.context.caller.send(*map(frame, payloads))
        if begins:
            self.context.let_go()

    async def _next(self) -> list[bytes] | None:
        started_s = self.clock.now_s()
        try:
            return await self.answer.next_events()
        finally:
            self.context.facts.upstream_s += self.clock.now_s() - started_s

    def _note(self, shaper: ChunkShaper) -> None:
        evidence = self.evidence
        evidence.reach = Reach.PRODUCED
        evidence.usage, evidence.unreported = shaper.usage, shaper.unreported
        evidence.deltas, evidence.output_bytes = shaper.content_deltas, shaper.text_bytes
        evidence.reached_cap = _CUT_AT_CAP in shaper.finish_reasons
        if evidence.deltas and self.context.ttft_ms is None:
            self.context.ttft_ms = round((self.clock.now_s() - self.context.started_s) * 1000)

    def _passes_cap(self, shaper: ChunkShaper) -> bool:
        """Whether the upstream goes on beyond the cap; a count that comes with the end of a stream cuts nothing."""
        bound, usage = self.evidence.output_bound, shaper.usage
        if least_tokens(shaper.content_deltas, shaper.text_bytes) > 2 * bound:
            return True
        return usage is not None and usage.completion_tokens > bound and not shaper.finished

    async def _cut_at_cap(self) -> Answer:
        """The upstream writes more than it was asked for, which is no sickness: stop paying for it."""
        if not self._flows:
            raise self._failed_by(replace(unusable("passed the cap"), sick=False))
        return await self._cut("stream_truncated", "The upstream passed the output cap.")

    async def _break(
        self, shaper: ChunkShaper, verdict: Verdict, code: str, message: str, cause: Exception | None = None
    ) -> Answer:
        """The upstream failed: raise it while the client has seen nothing, else tell it in-band.

        If nothing was seen by then, anything may have been written unseen.
        """
        self.evidence.broken_off = not shaper.started
        if not self._flows:
            raise self._failed_by(verdict) from cause
        self.broke = verdict.outcome if verdict.sick else None
        return await self._cut(code, message)

    async def _end(self, shaper: ChunkShaper, held: list[bytes]) -> Answer:
        refused = not self._flows and self.validates and FILTERED not in shaper.finish_reasons
        if not self._flows:
            self._hop(Refusal.EMPTY if refused else "ok")
        if refused and self.may_climb:
            raise AnswerRefused(Refusal.EMPTY, lambda: self._finish(shaper, held))
        return await self._finish(shaper, held)

    async def _finish(self, shaper: ChunkShaper, held: list[bytes]) -> Answer:
        await self._send(held)
        await self.settlement.close(Ending(self.exit, 200))
        last = _END
        charge = self.settlement.charge_of(self.evidence)
        if charge is not None:
            if self.keeper is not None and not shaper.ends_oddly:
                self.keeper.keep_stream(charge.usage)
            if self.request.wants_usage:
                cost_usd = format_usd(self.context.facts.cost_nanousd or 0)
                last = frame(shaper.usage_payload(charge.usage, cost_usd)) + last
        await self.context.caller.finish(last)
        return Answer(None)

    async def _cut(self, code: str, message: str) -> Answer:
        """End a stream that has begun: settle, tell the client if it is still there, and leave the message open."""
        await self.settlement.close(Ending(Exit.FAILED, 200, code))
        with contextlib.suppress(ClientGone, Draining):
            await self.context.caller.send(frame(error_payload(message, GatewayError.type, code, None)))
        return Answer(None, cut=True)

    def _failed_by(self, verdict: Verdict) -> AttemptFailed:
        self._hop(verdict.outcome)
        return AttemptFailed(verdict)

    def _hop(self, outcome: str) -> None:
        self.context.facts.hop(outcome)
