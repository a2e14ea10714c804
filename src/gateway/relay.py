"""From an open upstream answer to the client: whole, or event by event, with the money settled before the last byte.

Each event leaves as it came, before the next is read. A stream that breaks after its head has gone out ends with an
in-band error and no end mark: a cut stream never looks finished. A stream whose upstream passes the cap is cut.
"""

import contextlib
from dataclasses import dataclass

from gateway.clock import Clock
from gateway.context import Answer, RequestContext
from gateway.errors import ClientGone, Draining, GatewayError, UpstreamError
from gateway.evidence import Evidence, Reach, least_tokens
from gateway.providers import ProviderAnswer
from gateway.rows import Exit
from gateway.settlement import Ending, Settlement
from gateway.verdict import judge
from llmkit.errors import ProviderError
from llmkit.money import format_usd
from llmkit.openai import Malformed, WireError, error_payload, from_wire, with_usage
from llmkit.openai_stream import ChunkShaper
from llmkit.sse import DONE, frame
from llmkit.types import Usage

_UNUSABLE = "The upstream's answer could not be used."
_END = frame(DONE)
_CUT_AT_CAP = "length"


@dataclass(slots=True)
class Relay:
    """One answer on its way to one client."""

    context: RequestContext
    answer: ProviderAnswer
    evidence: Evidence
    settlement: Settlement
    clock: Clock
    wants_usage: bool = False
    choices: int = 1
    _reported: tuple[Usage | None, int, int] = (None, 0, 0)

    @property
    def _created(self) -> int:
        """Unix seconds for an answer that does not say when it was made."""
        return self.context.started_ms // 1000

    @property
    def _model(self) -> str:
        """A name for an answer that does not say which model it is of: what was asked for."""
        return self.context.facts.alias

    async def whole(self) -> Answer:
        """Read, check and settle a non-streaming answer. Raises GatewayError, ClientGone, Draining."""
        started_s = self.clock.now_s()
        try:
            raw = await self.answer.whole()
        except ProviderError as failure:
            verdict = judge(failure)
            self.evidence.reach, self.evidence.usage = verdict.reach, failure.usage
            self._hop(str(failure.kind))
            raise verdict.error from failure
        finally:
            self.context.facts.upstream_s += self.clock.now_s() - started_s
        self.evidence.reach = Reach.PRODUCED
        try:
            completion = from_wire(raw, created=self._created, model=self._model)
        except (Malformed, WireError) as error:
            self.evidence.usage = error.usage if isinstance(error, WireError) else None
            self._hop("malformed")
            raise UpstreamError(_UNUSABLE) from error
        self.evidence.usage, self.evidence.output_bytes = completion.usage, completion.text_bytes
        self.evidence.reached_cap = _CUT_AT_CAP in completion.finish_reasons
        self._hop("ok")
        await self.settlement.close(Ending(Exit.ROUTED, 200))
        charge = self.settlement.charge
        if completion.usage is None and charge is not None:
            return Answer(with_usage(completion.raw, charge.usage))
        return Answer(completion.raw)

    async def stream(self) -> Answer:
        """Relay a stream. Before its first event went out, failures are raised as by whole(); after it, they are told
        in-band and the answer says that it was cut. Raises ClientGone at any time.
        """
        shaper = ChunkShaper(want_usage=self.wants_usage, created=self._created, model=self._model)
        started = done = False
        try:
            while (payload := await self._next()) is not None and (done := payload.strip() == DONE) is False:
                shaped = shaper.feed(payload)
                self._note(shaper)
                for out in shaped:
                    if not started:
                        await self._start()
                        started = True
                    await self.context.caller.send(frame(out))
                if self._passes_cap(shaper):
                    return await self._cut("stream_truncated", "The upstream passed the output cap.")
        except (Malformed, WireError) as error:
            self.evidence.reach = Reach.PRODUCED
            self._note(shaper)
            self._break_off(shaper)
            if not started:
                self._hop("malformed")
                raise UpstreamError(_UNUSABLE) from error
            return await self._cut("upstream_error", _UNUSABLE)
        except ProviderError as failure:
            if not self._is_whole(shaper):
                return await self._failed(failure, shaper, started)
        except Draining:
            if not started:
                raise
            return await self._cut("draining", "The gateway is shutting down.")
        if not (shaper.finished if done else self._is_whole(shaper)):
            return await self._ended_early(shaper, started)
        return await self._finish(shaper, started)

    def _is_whole(self, shaper: ChunkShaper) -> bool:
        """Whether a stream without an end mark is complete: every choice that was asked for has its finish reason."""
        return shaper.finished and len(shaper.finish_reasons) >= self.choices

    async def _start(self) -> None:
        """Promise the stream; what its head says is true so far, and the row tells how it ended."""
        self.context.facts.exit = Exit.ROUTED
        self._hop("ok")
        await self.context.caller.start()

    async def _next(self) -> bytes | None:
        started_s = self.clock.now_s()
        try:
            return await self.answer.next_event()
        finally:
            self.context.facts.upstream_s += self.clock.now_s() - started_s

    def _note(self, shaper: ChunkShaper) -> None:
        evidence = self.evidence
        evidence.reach = Reach.PRODUCED
        evidence.usage, evidence.deltas, evidence.output_bytes = shaper.usage, shaper.content_deltas, shaper.text_bytes
        evidence.reached_cap = _CUT_AT_CAP in shaper.finish_reasons
        if shaper.usage is not self._reported[0]:
            self._reported = (shaper.usage, shaper.text_bytes, shaper.content_deltas)
        _, size, deltas = self._reported
        evidence.unreported = (shaper.text_bytes - size, shaper.content_deltas - deltas)
        if shaper.started and self.context.ttft_ms is None:
            self.context.ttft_ms = round((self.clock.now_s() - self.context.started_s) * 1000)

    def _passes_cap(self, shaper: ChunkShaper) -> bool:
        """Whether the upstream goes on beyond the cap; a count that comes with the end of a stream cuts nothing."""
        evidence = self.evidence
        reported = evidence.usage.completion_tokens if evidence.usage is not None and not shaper.finished else 0
        return reported > evidence.output_bound or least_tokens(evidence) > 2 * evidence.output_bound

    async def _failed(self, failure: ProviderError, shaper: ChunkShaper, started: bool) -> Answer:
        verdict = judge(failure, produced=shaper.started)
        self.evidence.reach = verdict.reach
        self._break_off(shaper)
        if not started:
            self._hop(str(failure.kind))
            raise verdict.error from failure
        return await self._cut("stream_truncated", "The upstream's stream was cut.")

    def _break_off(self, shaper: ChunkShaper) -> None:
        """The upstream failed: if nothing was seen by then, anything may have been written unseen."""
        self.evidence.broken_off = not shaper.started

    async def _ended_early(self, shaper: ChunkShaper, started: bool) -> Answer:
        """The transport ended as if all were well, without a finish reason."""
        self.evidence.reach = Reach.PRODUCED
        self._break_off(shaper)
        if not started:
            self._hop("malformed")
            raise UpstreamError(_UNUSABLE)
        return await self._cut("stream_truncated", "The upstream's stream ended before the answer was finished.")

    async def _finish(self, shaper: ChunkShaper, started: bool) -> Answer:
        if not started:
            await self._start()
        await self.settlement.close(Ending(Exit.ROUTED, 200))
        last = _END
        charge = self.settlement.charge
        if self.wants_usage and charge is not None:
            last = frame(shaper.usage_payload(charge.usage, format_usd(charge.cost_nanousd))) + last
        await self.context.caller.finish(last)
        return Answer(None)

    async def _cut(self, code: str, message: str) -> Answer:
        """End a stream that has begun: settle, tell the client if it is still there, and leave the message open."""
        await self.settlement.close(Ending(Exit.FAILED, 200, code))
        with contextlib.suppress(ClientGone, Draining):
            await self.context.caller.send(frame(error_payload(message, GatewayError.type, code, None)))
        return Answer(None, cut=True)

    def _hop(self, outcome: str) -> None:
        self.context.facts.hops.append(f"{self.context.facts.deployment}={outcome}")
