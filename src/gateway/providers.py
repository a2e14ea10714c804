"""Upstreams as the story sees them: one protocol, and the live provider over HTTP.

Both keep the same contract, which one suite of tests checks: every failure is a ProviderError with true facts, an
answer is either one JSON body or a run of event payloads, and close() may be called at any time and more than once.
Neither knows tenants, money or routes.
"""

from dataclasses import dataclass
from typing import Protocol

from gateway.config import Deployment, ProviderConfig
from gateway.context import Caller
from gateway.types import Secret
from llmkit.client import OpenAICompatClient, UpstreamAnswer
from llmkit.errors import ProviderError, ProviderErrorKind


@dataclass(frozen=True, slots=True)
class UpstreamCall:
    """One attempt: the wire body for one deployment.

    deadline_s   the request's monotonic deadline, None for none; time_left_s  how far off it is, >= 0
    credential   index of the provider's credential to use; 0 for a provider without any
    """

    deployment: Deployment
    body: bytes
    stream: bool
    deadline_s: float | None = None
    time_left_s: float | None = None
    traceparent: str | None = None
    credential: int = 0


class ProviderAnswer(Protocol):
    """A 2xx answer whose body has not been read."""

    async def whole(self) -> bytes:
        """The complete JSON body. Raises ProviderError, ClientGone, Draining."""
        ...

    async def next_event(self) -> bytes | None:
        """The payload of the next event of a stream; None at a clean end of the transport. Raises as whole()."""
        ...

    def close(self) -> None:
        """Stop reading; an unfinished upstream connection is cut. Never raises."""
        ...


class Provider(Protocol):
    """A remote service."""

    @property
    def name(self) -> str: ...

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        """Send the call and wait for the head of a 2xx answer. Raises ProviderError, ClientGone, Draining."""
        ...


class LiveProvider:
    """An OpenAI-compatible service over HTTP. Immutable but for the client's pool, which locks itself."""

    def __init__(self, config: ProviderConfig, client: OpenAICompatClient) -> None:
        self.name = config.name
        self._client = client
        self._keys: tuple[Secret, ...] = config.api_keys

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        answer = self._client.open(
            call.body,
            stream=call.stream,
            headers=(("traceparent", call.traceparent),) if call.traceparent else (),
            cancel=caller.cancel,
            pulse=caller.pulse,
            deadline_s=call.deadline_s,
            api_key=self._keys[call.credential].reveal() if self._keys else None,
        )
        if call.stream and not answer.is_event_stream:
            answer.close()
            raise ProviderError(
                ProviderErrorKind.MALFORMED,
                "a stream was asked for, something else came",
                sent=True,
                first_byte_seen=True,
            )
        return _LiveAnswer(answer)

    def close(self) -> None:
        """Let go of idle connections; calls that are out go on."""
        self._client.close()


class _LiveAnswer:
    def __init__(self, answer: UpstreamAnswer) -> None:
        self._answer = answer

    async def whole(self) -> bytes:
        return self._answer.whole()

    async def next_event(self) -> bytes | None:
        return self._answer.next_event()

    def close(self) -> None:
        self._answer.close()
