"""A whole answer: read, repaired, checked, and settled before it is given."""

from gateway.context import Answer
from gateway.evidence import Reach
from gateway.relay import CUT_AT_CAP, AnswerRefused, Delivery
from gateway.settlement import Ending
from gateway.validators import refusal
from gateway.verdict import judge, unusable
from llmkit.errors import ProviderError
from llmkit.openai import Completion, Malformed, WireError, from_wire, with_usage


async def relay_whole(delivery: Delivery) -> Answer:
    """Give the client the answer in one piece. Raises AttemptFailed, AnswerRefused, ClientGone, Draining."""
    completion = await _read(delivery)
    refused = None
    if delivery.validates:
        refused = refusal(completion.document, delivery.request.body.get("response_format"))
    delivery.context.facts.hop(refused or "ok")
    if refused is not None and delivery.may_climb:
        raise AnswerRefused(refused, lambda: _give(delivery, completion))
    return await _give(delivery, completion)


async def _read(delivery: Delivery) -> Completion:
    """The answer in the form that clients know; what is known of it goes into the evidence, whatever is raised."""
    evidence, clock = delivery.evidence, delivery.clock
    started_s = clock.now_s()
    try:
        raw = await delivery.answer.whole()
    except ProviderError as failure:
        verdict = judge(failure)
        evidence.reach, evidence.usage = verdict.reach, failure.usage
        raise delivery.failed_by(verdict) from failure
    finally:
        delivery.context.facts.upstream_s += clock.now_s() - started_s
    evidence.reach = Reach.PRODUCED
    try:
        completion = from_wire(raw, created=delivery.created, model=delivery.model)
    except (Malformed, WireError) as error:
        evidence.usage = error.usage
        raise delivery.failed_by(unusable(type(error).__name__)) from error
    evidence.usage, evidence.output_bytes = completion.usage, completion.text_bytes
    evidence.reached_cap = CUT_AT_CAP in completion.finish_reasons
    return completion


async def _give(delivery: Delivery, completion: Completion) -> Answer:
    """Settle the answer, and say in it what it was settled at."""
    settlement, raw = delivery.settlement, completion.raw
    await settlement.close(Ending(delivery.exit, 200))
    charge = settlement.charge_of(delivery.evidence)
    if charge is not None and charge.usage != completion.usage:
        raw = with_usage(raw, charge.usage)
    if delivery.keeper is not None:
        delivery.keeper.keep_whole(raw, completion)
    return Answer(raw)
