"""Which requests are answered from the exact cache, which answers go into it, and how one is given again.

Decides what of a request and of its route makes it the same as another. Does not know where answers lie or for how
long. `no-cache` asks for a fresh answer, which replaces the old one; `no-store` keeps the answer out of the cache.
What is given again, and what is collected of a stream, counts in the room that all answers share: without room the one
is refused, the other is not kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.cache_entry import Entry
from gateway.cache_key import cache_key, may_be_stored
from gateway.chat import ChatRequest
from gateway.context import RequestContext
from gateway.errors import Overloaded
from gateway.exact_cache import ExactCache, Hit
from gateway.router import RoutePlan
from gateway.validators import refusal
from llmkit.openai import Completion, decode_object, usage_of
from llmkit.openai_collect import Assembler
from llmkit.openai_replay import replay
from llmkit.openai_stream import ChunkShaper
from llmkit.room import Claim, Room
from llmkit.sse import DONE, frame
from llmkit.types import Usage

LARGEST_STREAM_BYTES = 4 << 20
"""Of text beyond which a stream is not kept while it passes."""

_KEPT = ("stop",)


@dataclass(frozen=True, slots=True)
class Recall:
    """What the cache has for a request: an answer, or somebody to keep the one that comes; neither if it has no say."""

    hit: Hit | None = None
    keeper: "_Keeper | None" = None


class Caching:
    """Immutable but for the room. `cache` is None where the exact cache is turned off."""

    def __init__(self, cache: ExactCache | None, room: Room) -> None:
        self._cache = cache
        self._room = room

    async def recall(self, context: RequestContext, request: ChatRequest, plan: RoutePlan) -> Recall:
        """Look the request up, if it may be answered from the cache, and note in the facts how that went.

        Raises Overloaded if there is an answer and no room for it.
        """
        options, tenant, facts = request.options, context.principal.tenant, context.facts
        cache = self._cache
        if cache is None or not may_be_stored(
            request.body, private=options.private, no_store=False, choices=request.choices
        ):
            return Recall()
        epoch = cache.epoch(tenant)
        digest = _digest(context, request, plan, epoch)
        claim = Claim(self._room)
        context.at_end.append(claim.close)
        if not options.no_cache:
            facts.cache = "miss"
            hit = await cache.lookup(digest, tenant)
            if hit is not None:
                if not claim.covers(len(hit.body)):
                    raise Overloaded("The answers in flight take too much memory.")
                facts.cache, facts.age_s = "hit", hit.age_s
                facts.served_by(hit.deployment, hit.provider, hit.tier)
                return Recall(hit)
        return Recall(keeper=None if options.no_store else _Keeper(cache, context, request, digest, epoch, claim))


def replayed(hit: Hit, *, wants_usage: bool) -> bytes:
    """The whole stream that gives a remembered answer again, framed; it cost nothing."""
    shaper = ChunkShaper(want_usage=wants_usage)
    events = [event for payload in replay(hit.body) for event in shaper.feed(payload)]
    if wants_usage:
        events.append(shaper.usage_payload(usage_of(decode_object(hit.body)) or Usage(), "0"))
    return b"".join(map(frame, [*events, DONE]))


def _digest(context: RequestContext, request: ChatRequest, plan: RoutePlan, epoch: int) -> bytes:
    principal = context.principal
    models = sorted({deployment.model for stage in plan.stages for deployment in stage})
    return cache_key(
        tenant=principal.tenant,
        epoch=epoch,
        route=[plan.alias, min(deployment.tier for deployment in plan.stages[0]), *models],
        permissions=[principal.models, principal.regions],
        prompt_version=request.options.prompt_version,
        body=request.body,
    )


@dataclass(slots=True)
class _Keeper:
    """Keeps the answer to one request, if it is whole, ended with `stop`, and is what was asked for."""

    cache: ExactCache
    context: RequestContext
    request: ChatRequest
    digest: bytes
    epoch: int
    claim: Claim
    _assembler: Assembler = field(init=False)

    def __post_init__(self) -> None:
        self._assembler = Assembler(LARGEST_STREAM_BYTES, self.claim.covers)

    def keep_whole(self, raw: bytes, completion: Completion) -> None:
        if completion.finished and completion.finish_reasons == _KEPT:
            self._keep(raw, completion.document)

    def see(self, payload: bytes) -> None:
        self._assembler.feed(payload)

    def keep_stream(self, usage: Usage) -> None:
        raw = self._assembler.completion(usage)
        if raw is not None:
            self._keep(raw, decode_object(raw))

    def _keep(self, raw: bytes, document: Mapping[str, Any]) -> None:
        if refusal(document, self.request.body.get("response_format")) is not None:
            return
        facts = self.context.facts
        entry = Entry(
            tenant=self.context.principal.tenant,
            epoch=self.epoch,
            deployment=facts.deployment or "",
            provider=facts.provider or "",
            tier=facts.tier or "",
            body=raw,
        )
        self.cache.store(self.digest, entry, ttl_s=self.request.options.cache_ttl_s)
