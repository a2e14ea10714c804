"""A stream, event by event, with the money settled before the last byte.

Until the model has written something, events are held back, and what fails is raised, so that another call may answer
instead; also after the head has gone out. The first content leaves before what came with it is looked at; from then on
each event leaves as it came, before more is waited for: those that came together leave together. What fails is told
in-band then, without an end mark: a cut stream never looks finished. A stream whose upstream passes the cap is cut. One
that breaks off behind its finish is whole for its client, but not to be remembered.
What is held back has a bound, beyond which the upstream counts as broken.
"""

import contextlib
from enum import Enum, auto

from msgspec import Struct
from msgspec.structs import replace

from gateway.context import Answer
from gateway.errors import ClientGone, Draining, GatewayError
from gateway.evidence import Reach, least_tokens
from gateway.relay import CUT_AT_CAP, AnswerRefused, Delivery
from gateway.rows import Exit
from gateway.settlement import Ending
from gateway.validators import FILTERED, Refusal
from gateway.verdict import UNUSABLE_ANSWER, Verdict, judge, unusable
from llmkit.errors import ProviderError
from llmkit.money import format_usd
from llmkit.openai import Malformed, WireError, error_payload
from llmkit.openai_stream import ChunkShaper
from llmkit.sse import DONE, frame

_END = frame(DONE)

MOST_HELD_BYTES = 1 << 20
"""Of events before the first content. Upstreams send a few hundred bytes then; one that goes on and on is broken, and
every stream's share of memory is this at most.
"""


async def relay_stream(delivery: Delivery) -> Answer:
    """Give the client the answer as a stream. Raises as relay_whole() does until content has gone out; from then on
    failures are told in-band, and the answer says that it was cut. Raises ClientGone at any time.
    """
    wants_usage = delivery.request.wants_usage
    shaper = ChunkShaper(want_usage=wants_usage, created=delivery.created, model=delivery.model)
    return await _Stream(delivery, shaper).run()


class _Stop(Enum):
    """Why no more of a stream is read, if nothing is wrong with it."""

    DONE = auto()
    AT_CAP = auto()


class _Stream(Struct, eq=False):
    """A stream in the making.

    held        events that are to leave
    held_bytes  how many bytes those are; counted only until the stream flows
    flows       whether the stream has been promised to its client
    """

    delivery: Delivery
    shaper: ChunkShaper
    held: list[bytes] = []
    held_bytes: int = 0
    flows: bool = False

    async def run(self) -> Answer:
        shaper, evidence = self.shaper, self.delivery.evidence
        stop: _Stop | Malformed | WireError | None = None
        try:
            while stop is None and (payloads := await self._next()) is not None:
                stop = await self._take(payloads)
                await self._pass_on()
        except ProviderError as failure:
            if not self._is_whole():
                verdict = judge(failure, produced=shaper.started)
                evidence.reach = verdict.reach
                return await self._break(verdict, "stream_truncated", "The upstream's stream was cut.", failure)
            self.delivery.keeper = None
        except Draining:
            if not self.flows:
                raise
            return await self._cut("draining", "The gateway is shutting down.")
        if stop is _Stop.AT_CAP:
            return await self._cut_at_cap()
        if isinstance(stop, Exception):
            return await self._break(unusable(type(stop).__name__), "upstream_error", UNUSABLE_ANSWER, stop)
        if not (shaper.finished if stop is _Stop.DONE else self._is_whole()):
            evidence.reach = Reach.PRODUCED
            message = "The upstream's stream ended before the answer was finished."
            return await self._break(unusable("unfinished"), "stream_truncated", message)
        return await self._end()

    async def _next(self) -> list[bytes] | None:
        clock, facts = self.delivery.clock, self.delivery.context.facts
        started_s = clock.now_s()
        try:
            return await self.delivery.answer.next_events()
        finally:
            facts.upstream_s += clock.now_s() - started_s

    async def _take(self, payloads: list[bytes]) -> _Stop | Malformed | WireError | None:
        """Add what is to leave of `payloads` to what is held.

        Returns why no more of the stream is read, if so: its end, the cap, or what is wrong with it.
        """
        shaper = self.shaper
        try:
            for payload in payloads:
                if payload.strip() == DONE:
                    return _Stop.DONE
                events = shaper.feed(payload)
                self.held += events
                if not self.flows:
                    self.held_bytes += sum(map(len, events))
                    if shaper.started:
                        await self._pass_on()
                    elif self.held_bytes > MOST_HELD_BYTES:
                        return Malformed("events without end, and nothing in them")
                if self._passes_cap():
                    return _Stop.AT_CAP
        except (Malformed, WireError) as error:
            return error
        return None

    async def _pass_on(self) -> None:
        """Note what came, and send what is held once the model has written something."""
        self._note()
        if self.shaper.started:
            if not self.flows:
                self.delivery.context.facts.hop("ok")
            await self._send()

    async def _send(self) -> None:
        """Send what is held; before the first, promise the stream. Its head says what is so by then, the row how it
        ended.
        """
        context, keeper, begins = self.delivery.context, self.delivery.keeper, not self.flows
        if begins:
            self.flows = True
            context.facts.exit = self.delivery.exit
            await context.caller.start()
        if keeper is not None:
            for payload in self.held:
                keeper.see(payload)
        if self.held:
            await context.caller.send(*map(frame, self.held))
            self.held.clear()
        if begins:
            context.let_go()

    def _note(self) -> None:
        evidence, context, shaper = self.delivery.evidence, self.delivery.context, self.shaper
        evidence.reach = Reach.PRODUCED
        evidence.usage, evidence.unreported = shaper.usage, shaper.unreported
        evidence.deltas, evidence.output_bytes = shaper.content_deltas, shaper.text_bytes
        evidence.reached_cap = CUT_AT_CAP in shaper.finish_reasons
        if evidence.deltas and context.ttft_ms is None:
            context.ttft_ms = round((self.delivery.clock.now_s() - context.started_s) * 1000)

    def _is_whole(self) -> bool:
        """Whether a stream without an end mark is complete: every choice that was asked for has its finish reason."""
        return self.shaper.finished and len(self.shaper.finish_reasons) >= self.delivery.request.choices

    def _passes_cap(self) -> bool:
        """Whether the upstream goes on beyond the cap; a count that comes with the end of a stream cuts nothing."""
        bound, shaper = self.delivery.evidence.output_bound, self.shaper
        if least_tokens(shaper.content_deltas, shaper.text_bytes) > 2 * bound:
            return True
        return shaper.usage is not None and shaper.usage.completion_tokens > bound and not shaper.finished

    # --- how it ends --------------------------------------------------------------------------------------------

    async def _end(self) -> Answer:
        """All of it is there."""
        refused = not self.flows and self.delivery.validates and FILTERED not in self.shaper.finish_reasons
        if not self.flows:
            self.delivery.context.facts.hop(Refusal.EMPTY if refused else "ok")
        if refused and self.delivery.may_climb:
            raise AnswerRefused(Refusal.EMPTY, self._finish)
        return await self._finish()

    async def _finish(self) -> Answer:
        delivery, shaper, last = self.delivery, self.shaper, _END
        await self._send()
        await delivery.settlement.close(Ending(delivery.exit, 200))
        charge = delivery.settlement.charge_of(delivery.evidence)
        if charge is not None:
            if delivery.keeper is not None and not shaper.ends_oddly:
                delivery.keeper.keep_stream(charge.usage)
            if delivery.request.wants_usage:
                cost_usd = format_usd(delivery.context.facts.cost_nanousd or 0)
                last = frame(shaper.usage_payload(charge.usage, cost_usd)) + last
        await delivery.context.caller.finish(last)
        return Answer(None)

    async def _cut_at_cap(self) -> Answer:
        """The upstream writes more than it was asked for, which is no sickness: stop paying for it."""
        if not self.flows:
            raise self.delivery.failed_by(replace(unusable("passed the cap"), sick=False))
        return await self._cut("stream_truncated", "The upstream passed the output cap.")

    async def _break(self, verdict: Verdict, code: str, message: str, cause: Exception | None = None) -> Answer:
        """The upstream failed: raise it while the client has seen nothing, else tell it in-band.

        If nothing was seen by then, anything may have been written unseen.
        """
        self.delivery.evidence.broken_off = not self.shaper.started
        if not self.flows:
            raise self.delivery.failed_by(verdict) from cause
        self.delivery.broke = verdict.outcome if verdict.sick else None
        return await self._cut(code, message)

    async def _cut(self, code: str, message: str) -> Answer:
        """End a stream that has begun: settle, tell the client if it is still there, and leave the message open."""
        await self.delivery.settlement.close(Ending(Exit.FAILED, 200, code))
        with contextlib.suppress(ClientGone, Draining):
            await self.delivery.context.caller.send(frame(error_payload(message, GatewayError.type, code, None)))
        return Answer(None, cut=True)
