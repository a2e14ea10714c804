"""One upstream call: what is sent, what it can cost at most, and the call itself.

One deployment, one attempt; whether there is another is decided elsewhere. Knows no HTTP and no ledger.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gateway.chat import ChatRequest
from gateway.clock import Clock
from gateway.config_schema import Deployment, ProviderConfig
from gateway.context import RequestContext
from gateway.errors import ClientGone, Draining
from gateway.evidence import Evidence, Reach
from gateway.providers import Provider, ProviderAnswer, UpstreamCall
from gateway.verdict import AttemptFailed, judge
from llmkit.errors import ProviderError
from llmkit.openai import to_wire
from llmkit.prices import PriceEntry
from llmkit.tokens import approx_tokens, messages_tokens, prompt_bound, texts_bound
from tracekit.trace import Span


class Attempt(Struct, frozen=True):
    """A call to one deployment as it will be made, the same at each retry. `bound_nanousd` is the most it can cost."""

    deployment: Deployment
    price: PriceEntry
    wire: bytes
    prompt_bound: int
    output_bound: int
    bound_nanousd: int

    def evidence(self) -> Evidence:
        """A clean sheet of what is known of this call."""
        return Evidence(self.prompt_bound, self.output_bound)


class Upstreams:
    """Immutable: prepares and makes calls."""

    def __init__(self, providers: Mapping[str, Provider], configs: Mapping[str, ProviderConfig], clock: Clock) -> None:
        self._providers = providers
        self._configs = configs
        self._clock = clock

    def prepare(self, request: ChatRequest, deployments: Iterable[Deployment], started_ms: int) -> list[Attempt]:
        """What would be sent to each of `deployments` that has a price in force at `started_ms` (UTC milliseconds)."""
        wires: dict[tuple[object, ...], bytes] = {}
        attempts = []
        for deployment in deployments:
            price = deployment.prices.at(started_ms)
            if price is not None:
                attempts.append(self._attempt(request, deployment, price, wires))
        return attempts

    def _attempt(
        self, request: ChatRequest, deployment: Deployment, price: PriceEntry, wires: dict[tuple[object, ...], bytes]
    ) -> Attempt:
        """`wires` keeps what was encoded for deployments that are asked for the same thing."""
        cap = request.cap or default_cap(request, deployment)
        stream_usage = self._configs[deployment.provider].stream_usage
        form = (deployment.model, deployment.output_cap_field, cap, stream_usage)
        wire = wires.get(form)
        if wire is None:
            wire = wires[form] = to_wire(
                request.body,
                model=deployment.model,
                cap_field=deployment.output_cap_field,
                cap=cap,
                stream_usage=stream_usage,
            )
        if request.is_plain:
            prompt = texts_bound(request.body, len(wire))
        else:
            prompt = prompt_bound(request.body, encoded_len=len(wire), file_bound=deployment.context_window)
        output = request.choices * (cap + predicted_bytes(request))
        return Attempt(deployment, price, wire, prompt, output, price.price.bound_nanousd(prompt, output))

    async def open(
        self,
        context: RequestContext,
        request: ChatRequest,
        attempt: Attempt,
        evidence: Evidence,
        span: Span,
        *,
        credential: int = 0,
    ) -> ProviderAnswer:
        """Make the call; returns an answer whose body is still to be read. Raises AttemptFailed, ClientGone, Draining.

        `evidence` says at any moment how far the call got.
        """
        deployment, facts = attempt.deployment, context.facts
        facts.served_by(deployment.name, deployment.provider, deployment.tier)
        facts.attempts += 1
        started_s = self._clock.now_s()
        call = UpstreamCall(
            deployment,
            attempt.wire,
            request.stream,
            credential,
            context.deadline_s,
            None if context.deadline_s is None else max(context.deadline_s - started_s, 0),
            span.context.traceparent(),
            context.at_end,
        )
        evidence.reach = Reach.UNKNOWN
        try:
            return await self._providers[deployment.provider].open(call, context.caller)
        except ProviderError as failure:
            verdict = judge(failure)
            evidence.reach, evidence.usage = verdict.reach, failure.usage
            if verdict.reach is Reach.PRODUCED:
                evidence.output_bytes = evidence.output_bound  # it may all have been written, streamed or not
            facts.hop(verdict.outcome)
            span.fail(str(failure.status or failure.kind))
            raise AttemptFailed(verdict) from failure
        except (ClientGone, Draining) as left:
            if isinstance(left.__cause__, ProviderError) and not left.__cause__.sent:
                evidence.reach = Reach.NOT_SENT
            raise
        finally:
            facts.upstream_s += self._clock.now_s() - started_s


def default_cap(request: ChatRequest, deployment: Deployment) -> int:
    """The output cap that is sent when the client gives none: what the model allows and its window has room for."""
    prompt = messages_tokens(request.body["messages"])
    return max(1, min(deployment.max_output_tokens, deployment.context_window - prompt))


def predicted_bytes(request: ChatRequest) -> int:
    """Bound of the tokens of a predicted output: rejected ones are billed as completion tokens beside the cap's."""
    prediction = request.body.get("prediction")
    return approx_tokens(str(prediction)) * 4 if prediction is not None else 0
