"""One answer of an upstream on its way to one client. How it is read and given: `relay_whole`, `relay_stream`.

An answer that a validator refuses is given up only if something stronger may answer.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from gateway.chat import ChatRequest
from gateway.clock import Clock
from gateway.context import Answer, RequestContext
from gateway.evidence import Evidence
from gateway.providers import ProviderAnswer
from gateway.rows import Exit
from gateway.settlement import Settlement
from gateway.validators import Refusal
from gateway.verdict import AttemptFailed, Verdict
from llmkit.openai import Completion
from llmkit.types import Usage

CUT_AT_CAP = "length"
"""The finish reason of an answer that its cap has cut."""


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


class Delivery(Struct, eq=False):
    """What is known of an answer that is being relayed.

    exit       how the request ends if this answer is delivered
    validates  whether validators look at the answer, and the route says what they found
    may_climb  whether an answer that they refuse may be given up for a stronger tier's
    keeper     None for an answer that nobody wants to remember, or no longer
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

    @property
    def created(self) -> int:
        """Unix seconds for an answer that does not say when it was made."""
        return self.context.started_ms // 1000

    @property
    def model(self) -> str:
        """A name for an answer that does not say which model it is of: what was asked for."""
        return self.context.facts.alias

    def failed_by(self, verdict: Verdict) -> AttemptFailed:
        """Note in the route that this answer came to nothing; what to raise for it."""
        self.context.facts.hop(verdict.outcome)
        return AttemptFailed(verdict)
