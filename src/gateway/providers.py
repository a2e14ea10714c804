"""Upstreams as the story sees them: one protocol, and the live provider over HTTP.

Both keep the same contract, which one suite of tests checks: every failure is a ProviderError with true facts, an
answer is either one JSON body or a run of event payloads, and close() may be called at any time and more than once.
Neither knows tenants, money or routes.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from gateway.config_schema import Deployment, ProviderConfig
from gateway.context import Caller
from gateway.types import Secret
from llmkit.client import OpenAICompatClient, UpstreamAnswer
from llmkit.openai import Malformed, WireError, error_payload, with_usage
from llmkit.openai_collect import Collector
from llmkit.openai_stream import ChunkShaper


class UpstreamCall(Struct, frozen=True):
    """One attempt: the wire body for one deployment.

    credential   index of the provider's credential to use; 0 for a provider without any
    deadline_s   the request's monotonic deadline, None for none; time_left_s  how far off it is, >= 0
    at_end       where a provider puts what it wants to be called when nothing of its answer is held any more
    """

    deployment: Deployment
    body: bytes
    stream: bool
    credential: int = 0
    deadline_s: float | None = None
    time_left_s: float | None = None
    traceparent: str | None = None
    at_end: list[Callable[[], None]] = []


class ProviderAnswer(Protocol):
    """A 2xx answer whose body has not been read."""

    async def whole(self) -> bytes:
        """The complete JSON body. Raises ProviderError, ClientGone, Draining."""
        ...

    async def next_events(self) -> list[bytes] | None:
        """The payloads of a stream's next events: one at least, and those that came with it; None at a clean end of the
        transport. Raises as whole().
        """
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
        call.at_end.append(answer.let_go)
        return _LiveAnswer(answer)

    def close(self) -> None:
        """Let go of idle connections; calls that are out go on."""
        self._client.close()


class _LiveAnswer(Struct, eq=False):
    """What the upstream says it sends decides how it is read; whoever reads gets the form that was asked for."""

    _answer: UpstreamAnswer
    _told: bool = False

    async def whole(self) -> bytes:
        return self._collected() if self._answer.is_event_stream else self._answer.whole()

    async def next_events(self) -> list[bytes] | None:
        if self._answer.is_event_stream:
            return self._answer.next_events()
        if self._told:
            return None
        self._told = True
        return [self._answer.whole()]

    def close(self) -> None:
        self._answer.close()

    def _collected(self) -> bytes:
        """The events as one answer; one that is not finished, or an error, is left to the reader of the answer.

        Nothing is left of it then but the error, and usage that covers all that came.
        """
        shaper, collector, told = ChunkShaper(want_usage=False), Collector(), b"{}"
        try:
            for payload in self._answer.payloads():
                for chunk in shaper.feed(payload):
                    collector.feed(chunk)
        except WireError as error:
            told = error_payload(error.message, error.type, error.code, error.param)
        except Malformed:
            pass
        else:
            if shaper.finished:
                return collector.completion(shaper.usage, ends_oddly=shaper.ends_oddly)
        return told if shaper.usage is None or shaper.unreported != (0, 0) else with_usage(told, shaper.usage)
