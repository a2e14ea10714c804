"""The composition root: builds a gateway over open books, as a configuration has it."""

import functools
import os
import random  # noqa: TID251 - the source that randomness is handed in from
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

from gateway.admission import Admission
from gateway.attempt import Upstreams
from gateway.audit import recent_starts
from gateway.books import Books
from gateway.caching import Caching
from gateway.clock import Clock, RealClock
from gateway.config_schema import Config, ProviderConfig
from gateway.dispatch import Dispatcher
from gateway.drive import drive
from gateway.engines.threads import ThreadsEngine
from gateway.fake_provider import FakeProvider
from gateway.gateway import Gateway
from gateway.health import DeploymentHealth, Fleet
from gateway.metrics import Metrics
from gateway.other_words import InOtherWords, Judged, ShadowLog
from gateway.providers import LiveProvider, Provider
from gateway.random_pool import RandomPool
from gateway.router import Catalog
from gateway.verdict import Verdict
from llmkit.client import OpenAICompatClient
from llmkit.room import STEP_BYTES, Room
from llmkit.transport import Timeouts
from llmkit.types import Cancel
from tracekit.trace import Tracer


def request_ids(clock: Clock, random_bytes: Callable[[int], bytes]) -> Callable[[], str]:
    """Ids that sort by time, so that rows are appended at one end of their index: `req_` and 32 hex digits."""
    return lambda: "req_" + (clock.wall_ms().to_bytes(6, "big") + random_bytes(10)).hex()


def build_provider(config: ProviderConfig, clock: Clock, room: Room) -> Provider:
    """The provider that a configuration describes. `room` is what its answers may hold of memory."""
    if config.dialect == "fake" or config.base_url is None:
        return FakeProvider(config.script, repeat=config.repeat, name=config.name, remembers=0)
    timeouts = Timeouts(
        connect_s=config.connect_timeout_s,
        ttft_s=config.ttft_timeout_s,
        idle_s=config.idle_timeout_s,
        total_s=config.total_timeout_s,
    )
    client = OpenAICompatClient(
        config.base_url,
        timeouts=timeouts,
        clock=clock.now_s,
        wall_s=lambda: clock.wall_ms() / 1000,
        max_event_bytes=config.max_event_bytes,
        max_answer_bytes=config.max_answer_bytes,
        room=room,
    )
    return LiveProvider(config, client)


def answer_room(config: Config) -> Room:
    """The memory that answers may hold together: what is configured, and never less than the largest answer takes."""
    largest = max((provider.max_answer_bytes for provider in config.providers.values()), default=0)
    return Room(max(config.server.answer_memory_bytes, largest + STEP_BYTES))


def build_providers(config: Config, clock: Clock, room: Room) -> dict[str, Provider]:
    """All of them, by name. Where there are several, none can take more than half of the room, or one whole answer."""
    live = sum(provider.base_url is not None for provider in config.providers.values())
    size = config.server.answer_memory_bytes // (1 if live == 1 else 2)
    return {
        name: build_provider(provider, clock, Room(max(size, provider.max_answer_bytes + STEP_BYTES), within=room))
        for name, provider in config.providers.items()
    }


def build_fleet(config: Config) -> Fleet:
    """The health of every deployment. One is the same after a reload if nothing that bears on it has changed."""
    healths, identities = {}, {}
    for name, deployment in config.deployments.items():
        provider = config.providers[deployment.provider]
        healths[name] = DeploymentHealth(config.breaker, config.retry, len(provider.api_keys))
        identities[name] = (deployment, provider, config.breaker, config.retry)
    return Fleet(healths, identities)


def build_gateway(
    config: Config,
    books: Books,
    *,
    clock: Clock | None = None,
    tracer: Tracer | None = None,
    providers: Mapping[str, Provider] | None = None,
    room: Room | None = None,
    draw: Callable[[], float] = random.random,
    on_error: Callable[[BaseException, str], None] = lambda error, request_id: None,
    on_call_failed: Callable[[str, Verdict], None] = lambda deployment, verdict: None,
    on_state: Callable[[str, str], None] = lambda deployment, state: None,
    on_shadow: ShadowLog = lambda request_id, entry, question, judged: None,
    on_overbilled: Callable[[str, int, int], None] = lambda deployment, held_nanousd, cost_nanousd: None,
    metrics: Metrics | None = None,
) -> Gateway:
    """A gateway over open books. `providers` replaces those of the configuration by name, for tests.

    room      what all answers may hold of memory together; shared with the gateway that this one succeeds
    draw      gives numbers from [0, 1), for jitter and weights
    on_error  see Gateway
    on_call_failed  is told of each call that failed before its client had content: the deployment, and the verdict
    on_state  is told of a deployment whose state has changed, and the state
    on_shadow is told of each answer that the semantic cache withholds in its shadow mode
    on_overbilled  see Gateway
    metrics   counts requests and calls
    Raises StoreUnavailable.
    """
    clock, metrics = clock or RealClock(), metrics or Metrics()
    room = room or answer_room(config)
    built = build_providers(config, clock, room)
    live = [provider for provider in built.values() if isinstance(provider, LiveProvider)]

    def release() -> None:
        for provider in live:
            provider.close()

    fleet = build_fleet(config)
    upstreams = Upstreams(built | dict(providers or {}), config.providers, clock)
    judged = build_judged(config, books, lambda *asked, **how: gateway.handle(*asked, **how))
    gateway = Gateway(
        admission=build_admission(config, books, clock, draw),
        caching=build_caching(config, books, room, on_shadow, judged),
        ledger=books.ledger,
        dispatcher=Dispatcher(
            upstreams,
            fleet,
            config.retry,
            clock,
            draw=draw,
            on_call_failed=on_call_failed,
            on_state=on_state,
            on_call=metrics.note_call,
        ),
        fleet=fleet,
        tracer=tracer or Tracer(),
        clock=clock,
        engine=ThreadsEngine(),
        head_hold_s=config.server.head_hold_s,
        new_request_id=request_ids(clock, RandomPool(os.urandom)),
        on_error=on_error,
        on_ended=metrics.note_request,
        on_overbilled=on_overbilled,
        release=release,
    )
    return gateway


def build_admission(config: Config, books: Books, clock: Clock, draw: Callable[[], float]) -> Admission:
    """Admission whose rates are used up as far as the rows say. Raises StoreUnavailable."""
    admission = Admission(books.keys, books.ledger, Catalog(config, draw), config.tenants, clock)
    if memory_ms := ceil(admission.memory_s * 1000):
        admission.recall(drive(recent_starts(books.store, clock.wall_ms() - memory_ms)))
    return admission


def build_judged(config: Config, books: Books, handle: Callable[..., Mapping[str, Any]]) -> Judged | None:
    """Who judges, as a configuration has it; None if nobody does. The tier must have been opened with the books.

    handle  the Gateway's: a judge is a client as any other, but that its requests are private: nothing of them is
            looked up, kept, or taught to the semantic cache
    """
    cache = config.cache
    if books.judging is None or cache.judge is None or cache.judge_key is None:
        return None
    # late: the rules of the semantic cache take as long to load as all else, and few gateways need them
    from gateway.judging import Judge
    from gateway.semantic.judgement import MOST_TOKENS

    key = cache.judge_key

    def ask(model: str, messages: Sequence[Mapping[str, str]], cancel: Cancel) -> Mapping[str, Any]:
        body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": MOST_TOKENS}
        told = {"private": True, "tags": ["semantic-judge"]}
        answer = handle(key.reveal(), body | told, timeout_s=cache.judge_timeout_s, cancel=cancel)
        return dict(answer["response"])

    judge = Judge(
        name=cache.judge,
        auditor=cache.judge_auditor or cache.judge,
        least=cache.judge_min_cosine,
        most=cache.judge_max_cosine,
        per_minute=cache.judge_per_minute,
        audit_percent=cache.judge_audit_percent,
        ask=ask,
    )
    return Judged(books.judging, judge, functools.cache(config.uses_judge))


def build_caching(
    config: Config, books: Books, room: Room, on_shadow: ShadowLog, judged: Judged | None = None
) -> Caching:
    """The caches as a configuration has them. The semantic one must have been opened with the books."""
    if not config.cache.exact_ttl_s:
        return Caching(None, room)
    semantic = None
    if books.semantic is not None and config.semantic_anywhere:
        serves = config.cache.semantic_mode == "serve"
        semantic = InOtherWords(books.semantic, config.uses_semantic, serves=serves, on_shadow=on_shadow, judged=judged)
    return Caching(books.cache, room, semantic)
