"""What one request carries from the front to the ledger, and the client's end of it.

A RequestContext is passed; nothing above the engines keeps request state anywhere else.
"""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from gateway.levels import Account
from llmkit.types import Cancel, Pulse
from tracekit.trace import SpanContext

T = TypeVar("T")


class Caller(Protocol):
    """The client's end of one request. Every method is an effect and raises ClientGone or Draining."""

    @property
    def cancel(self) -> Cancel | None:
        """What an upstream call must watch while it waits; None if this client cannot leave."""
        ...

    @property
    def pulse(self) -> Pulse | None:
        """What keeps a stream's client patient while an upstream call waits; None if that is not needed."""
        ...

    def will_wait(self, head_until_s: float | None) -> None:
        """Nothing that is kept answers the request: from here on others are waited for. Not an effect.

        head_until_s  None for a whole answer. A stream that nothing has started by then (monotonic) is promised, with a
                      comment; from its start on, a comment goes out whenever nothing else has for a while
        """
        ...

    async def start(self) -> None:
        """Promise a stream: from here on the status is 200 and errors go in-band. Does nothing the second time."""
        ...

    async def send(self, *frames: bytes) -> None:
        """The next events of the stream, each framed; they leave together."""
        ...

    async def finish(self, last: bytes) -> None:
        """The last events of a stream that is whole, and its end."""
        ...

    async def pause(self, seconds: float) -> None:
        """Let `seconds` pass."""
        ...


Story = Callable[[Caller], Coroutine[Any, Any, T]]
"""A request's story, once it is given its client."""


class Engine(Protocol):
    """Who performs the effects of a story for a user of the library."""

    def run(self, story: Story[T], cancel: Cancel | None = None) -> T:
        """Run a story that streams nothing to its end and return its result. `cancel` ends its upstream calls."""
        ...

    def iterate(self, story: Story[Any]) -> Iterator[str]:
        """Run a story that streams: its events as text. close() ends it as for a client that left."""
        ...


class Principal(Struct, frozen=True):
    """Who asks: an authenticated key. `models` are the name patterns it may ask for, `regions` where its requests may
    be served; None is all.
    """

    key_id: str
    tenant: str
    account: Account
    models: tuple[str, ...] | None
    regions: tuple[str, ...] | None = None


class Options(Struct, frozen=True):
    """What a client tells the gateway itself, in headers or in the body.

    The body's tags and version win; either place may ask for privacy or to leave the caches alone.

    cache_ttl_s  how long the answer may be remembered; None for as long as the cache does
    """

    tags: tuple[str, ...] = ()
    private: bool = False
    prompt_version: str | None = None
    no_cache: bool = False
    no_store: bool = False
    cache_ttl_s: float | None = None
    timeout_s: float | None = None


class RateState(Struct, frozen=True):
    """A token bucket as it stands after a request, for the rate-limit headers."""

    limit: int
    remaining: int
    reset_s: float


class Facts(Struct):
    """What is known of a request so far; every answer tells it, errors too.

    started_s   monotonic instant at which the whole request had arrived; None before
    upstream_s  seconds spent waiting for upstreams, and between calls to them
    age_s       seconds since a remembered answer was made; None for a fresh one
    entry       the name of a remembered answer; None for a fresh one
    judged      it is the answer to another question, which a judge has called the same
    """

    request_id: str
    exit: str | None = None
    cache: str = "bypass"
    alias: str = ""
    deployment: str | None = None
    provider: str | None = None
    tier: str | None = None
    attempts: int = 0
    hops: list[str] = []
    cost_nanousd: int | None = None
    rate: RateState | None = None
    started_s: float | None = None
    upstream_s: float = 0.0
    age_s: int | None = None
    entry: str | None = None
    judged: bool = False

    def served_by(self, deployment: str, provider: str, tier: str) -> None:
        """Note whose answer it is, or would be."""
        self.deployment, self.provider, self.tier = deployment, provider, tier

    def hop(self, outcome: str, deployment: str | None = None) -> None:
        """Note how a deployment answered, for the route; the one that was called last unless it is named."""
        self.hops.append(f"{deployment or self.deployment}={outcome}")


class RequestContext(Struct):
    """One request on its way through the gateway.

    raw          the body as it came, JSON bytes
    started_s    monotonic seconds; started_ms  UTC milliseconds, which also dates the price
    deadline_s   monotonic instant after which the client no longer wants an answer; None for never
    at_end       what providers want to be called when nothing of their answers is held any more
    """

    principal: Principal
    raw: bytes
    caller: Caller
    options: Options
    facts: Facts
    started_s: float
    started_ms: int
    deadline_s: float | None = None
    trace_parent: SpanContext | None = None
    ttft_ms: int | None = None
    streams: bool = False
    tags: tuple[str, ...] = ()
    at_end: list[Callable[[], None]] = []

    def let_go(self) -> None:
        """Say that nothing is held any more of what upstreams have answered so far. May be said again."""
        for let_go in self.at_end:
            let_go()


class Answer(Struct, frozen=True):
    """How a served request went: the whole JSON body, or a stream that was relayed (`body` is None).

    cut  the stream ended with an in-band error: the front must close the connection, not finish the message.
    """

    body: bytes | None
    cut: bool = False
