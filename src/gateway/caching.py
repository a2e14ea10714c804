"""Which requests are answered from the caches, which answers go into them, and how one is given again.

Decides what of a request and of its route makes it the same as another. Does not know where answers lie or for how
long. The exact cache comes first; for a request that it takes and has no answer to, the semantic one may have one in
other words. `no-cache` asks for a fresh answer, which replaces the old one; `no-store` keeps the answer out of the
caches. What is given again, and what is collected of a stream, counts in the room that all answers share: without room
the one is refused, the other is not kept.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.cache_entry import Entry
from gateway.cache_key import KeyOf, cache_keys, entry_id, may_be_stored
from gateway.chat import ChatRequest
from gateway.context import RequestContext
from gateway.errors import Overloaded
from gateway.exact_cache import ExactCache, Hit, Match
from gateway.other_words import InOtherWords, Lead
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


class Recall(Struct, frozen=True):
    """What the cache has for a request: an answer, or somebody to keep the one that comes; neither if it has no say."""

    hit: Hit | None = None
    keeper: "_Keeper | None" = None


_NO_SAY = Recall()


class Caching:
    """Immutable but for the room. `cache` is None where the exact cache is turned off, and `words` then, too."""

    def __init__(self, cache: ExactCache | None, room: Room, words: InOtherWords | None = None) -> None:
        self._cache = cache
        self._room = room
        self._words = words

    async def recall(self, context: RequestContext, request: ChatRequest, plan: RoutePlan) -> Recall:
        """Look the request up, if it may be answered from the caches, and note in the facts how that went.

        Raises Overloaded if there is an answer and no room for it.
        """
        options, tenant, facts = request.options, context.principal.tenant, context.facts
        cache = self._cache
        if cache is None or not may_be_stored(
            request.body, private=options.private, no_store=False, choices=request.choices
        ):
            return _NO_SAY
        epoch = cache.epoch(tenant)
        key_of = _keys(context, request, plan, epoch)
        digest = key_of(request.body["messages"][-1])
        claim = Claim(self._room)
        context.at_end.append(claim.close)
        if not options.no_cache:
            facts.cache = "miss"
            hit = await cache.lookup(digest, tenant)
            if hit is not None:
                return _served(Match(digest, hit), "hit", context, claim)
        words = self._words
        lead = None if words is None else await words.look_up(context, request, plan.alias, key_of)
        if lead is not None and lead.answer is not None:
            recall = _served(lead.answer.match, "semantic", context, claim)
            facts.judged = lead.note_judged()
            return recall
        keeper = None
        if not options.no_store:
            assembler = Assembler(LARGEST_STREAM_BYTES, claim.covers)
            keeper = _Keeper(cache, context, request, digest, epoch, assembler, lead)
        return Recall(keeper=keeper)


def _served(match: Match, cache: str, context: RequestContext, claim: Claim) -> Recall:
    """The answer as that of the request; `cache` says whose words it was found by. Raises Overloaded without room."""
    facts, hit = context.facts, match.hit
    if not claim.covers(len(hit.body)):
        raise Overloaded("The answers in flight take too much memory.")
    facts.cache, facts.age_s, facts.entry = cache, hit.age_s, entry_id(match.digest)
    facts.served_by(hit.deployment, hit.provider, hit.tier)
    return Recall(hit)


def replayed(hit: Hit, *, wants_usage: bool) -> bytes:
    """The whole stream that gives a remembered answer again, framed; it cost nothing."""
    shaper = ChunkShaper(want_usage=wants_usage)
    events = [event for payload in replay(hit.body) for event in shaper.feed(payload)]
    if wants_usage:
        events.append(shaper.usage_payload(usage_of(decode_object(hit.body)) or Usage(), "0"))
    return b"".join(map(frame, [*events, DONE]))


def _keys(context: RequestContext, request: ChatRequest, plan: RoutePlan, epoch: int) -> KeyOf:
    principal = context.principal
    return cache_keys(
        tenant=principal.tenant,
        epoch=epoch,
        route=plan.answerers,
        permissions=[principal.models, principal.regions],
        prompt_version=request.options.prompt_version,
        body=request.body,
    )


class _Keeper(Struct, frozen=True):
    """Keeps the answer to one request, if it is whole, ended with `stop`, and is what was asked for."""

    cache: ExactCache
    context: RequestContext
    request: ChatRequest
    digest: bytes
    epoch: int
    assembler: Assembler
    lead: Lead | None

    def keep_whole(self, raw: bytes, completion: Completion) -> None:
        if completion.finished and completion.finish_reasons == _KEPT:
            self._keep(raw, completion.document)

    def see(self, payload: bytes) -> None:
        self.assembler.feed(payload)

    def keep_stream(self, usage: Usage) -> None:
        raw = self.assembler.completion(usage)
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
        if self.lead is not None:
            self.lead.learn(self.digest, document)
