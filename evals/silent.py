"""The upstream that hurts most: it takes a call, says nothing until the clock fires, and bills it up to the cap."""

import json

from gateway.context import Caller
from gateway.fake_provider import FakeCall
from gateway.providers import ProviderAnswer, UpstreamCall
from llmkit.errors import ProviderError, ProviderErrorKind
from llmkit.tokens import messages_tokens
from llmkit.types import Usage


class SilentUpstream:
    """A Provider. `calls` is its meter, as a FakeProvider's is; safe from any thread.

    ttft_s  after how long the first-byte clock fires
    """

    def __init__(self, name: str, *, ttft_s: float = 0.0) -> None:
        self.name = name
        self.calls: list[FakeCall] = []
        self._ttft_s = ttft_s

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        body = json.loads(call.body)
        billed = Usage(messages_tokens(body["messages"]), completion_tokens=body["max_completion_tokens"])
        self.calls.append(FakeCall(body, billed))
        await caller.pause(self._ttft_s)
        raise ProviderError(
            ProviderErrorKind.TIMEOUT, "no answer in time", sent=True, first_byte_seen=False, clock="ttft"
        )
