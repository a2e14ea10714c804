"""Which requests are answered from the caches, which answers go into them, and how one is given again.

Decides what of a request and of its route makes it the same as another, and whether it may be answered in other words.
Does not know where answers lie or for how long. The exact cache comes first; the semantic one is asked where somebody
has turned it on, for a request that the exact one takes. `no-cache` asks for a fresh answer, which replaces the old
one; `no-store` keeps the answer out of the caches.
What is given again, and what is collected of a stream, counts in the room that all answers share: without room the one
is refused, the other is not kept.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gateway.cache_entry import Entry
from gateway.cache_key import KeyOf, cache_keys, may_be_stored
from gateway.chat import ChatRequest
from gateway.context import RequestContext
from gateway.errors import Overloaded
from gateway.exact_cache import ExactCache, Hit, Match
from gateway.router import RoutePlan
from gateway.validators import refusal
from llmkit.openai import Completion, decode_object, usage_of
from llmkit.openai_collect import Assembler
from llmkit.openai_replay import replay
from llmkit.openai_stream import ChunkShaper
from llmkit.room import Claim, Room
from llmkit.sse import DONE, frame
from llmkit.types import Usage

if TYPE_CHECKING:
    from gateway.judging import Judge, Judging
    from gateway.semantic_cache import Asked, Found, SemanticCache
    from gateway.shadow import ShadowHit

LARGEST_STREAM_BYTES = 4 << 20
"""Of text beyond which a stream is not kept while it passes."""

_KEPT = ("stop",)

ShadowLog = Callable[[str, str, str, bool], None]
"""Is told what would have been served: the request's id, the entry's, a digest of the question, and whether an alias
was why.
"""


class Judged(Struct, frozen=True):
    """The judged tier, and what this configuration makes of it.

    applies  whether a tenant's questions may be shown to the judge, and its aliases answer them
    """

    judging: "Judging"
    judge: "Judge"
    applies: Callable[[str], bool]


class InOtherWords(Struct, frozen=True):
    """The semantic cache, and what this configuration makes of it.

    applies    whether it may be used, by tenant and by the name that was asked for
    serves     answers are served from it; else they are only compared with those that come
    on_shadow  see ShadowLog
    judged     None where nobody judges
    """

    cache: "SemanticCache"
    applies: Callable[[str, str], bool]
    serves: bool
    on_shadow: ShadowLog
    judged: Judged | None = None


class Recall(Struct, frozen=True):
    """What the cache has for a request: an answer, or somebody to keep the one that comes; neither if it has no say."""

    hit: Hit | None = None
    keeper: "_Keeper | None" = None


_NO_SAY = Recall()


class Caching:
    """Immutable but for the room. `cache` is None where the exact cache is turned off, and `semantic` then, too."""

    def __init__(self, cache: ExactCache | None, room: Room, semantic: InOtherWords | None = None) -> None:
        self._cache = cache
        self._room = room
        self._semantic = semantic

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
        lead = await self._in_other_words(context, request, plan, key_of)
        if lead is not None and lead.answer is not None:
            recall = _served(lead.answer.match, "semantic", context, claim)
            facts.judged = lead.note_judged()
            return recall
        keeper = None
        if not options.no_store:
            assembler = Assembler(LARGEST_STREAM_BYTES, claim.covers)
            keeper = _Keeper(cache, context, request, digest, epoch, assembler, lead)
        return Recall(keeper=keeper)

    async def _in_other_words(
        self, context: RequestContext, request: ChatRequest, plan: RoutePlan, key_of: KeyOf
    ) -> "_Lead | None":
        """What the semantic cache makes of a request that the exact one has no answer to."""
        semantic, tenant = self._semantic, context.principal.tenant
        if semantic is None or not semantic.applies(tenant, plan.alias):
            return None
        asked = await semantic.cache.ask(request.body["messages"], tenant, key_of)
        if asked is None:
            return None
        judged = semantic.judged if semantic.judged is not None and semantic.judged.applies(tenant) else None
        if request.options.no_cache:
            return _Lead(semantic, judged, asked, None)
        found = await semantic.cache.find(
            asked, serve=semantic.serves, judge=None if judged is None else judged.judge.name
        )
        if found is None or semantic.serves:
            return _Lead(semantic, judged, asked, found)
        request_id, entry = context.facts.request_id, entry_id(found.match.digest)
        semantic.on_shadow(request_id, entry, asked.key.hex()[:16], found.alias is not None)
        if request.options.no_store:
            return None
        hit = semantic.cache.note_shadow(asked, found, request_id=request_id, entry=entry)
        return _Lead(semantic, judged, asked, found, hit)


class _Lead(Struct, frozen=True):
    """A question that the semantic cache may learn, and the answer that it has found, if any; `hit` if that is only to
    be compared.
    """

    semantic: InOtherWords
    judged: Judged | None
    asked: "Asked"
    found: "Found | None"
    hit: "ShadowHit | None" = None

    @property
    def answer(self) -> "Found | None":
        """What is to be served."""
        return self.found if self.semantic.serves else None

    def note_judged(self) -> bool:
        """Whether what is served was found by an alias; if so, whoever audits these hits is told."""
        if self.judged is None or self.found is None or self.found.alias is None:
            return False
        self.judged.judging.note_hit(self.asked, self.found.alias, self.judged.judge)
        return True

    def learn(self, digest: bytes, document: Mapping[str, Any]) -> None:
        """Note that the exact cache has got the answer, and compare it with the one that was withheld."""
        self.semantic.cache.remember(self.asked)
        if self.judged is not None:
            self.judged.judging.learn(self.asked, digest, self.judged.judge)
        if self.hit is not None and self.found is not None:
            equal = _text_of(document) == _text_of(decode_object(self.found.match.hit.body))
            self.semantic.cache.note_comparison(self.hit, equal=equal)


def _text_of(document: Mapping[str, Any]) -> object:
    """What the one choice of an answer says."""
    return document["choices"][0]["message"].get("content")


def _served(match: Match, cache: str, context: RequestContext, claim: Claim) -> Recall:
    """The answer as that of the request; `cache` says whose words it was found by. Raises Overloaded without room."""
    facts, hit = context.facts, match.hit
    if not claim.covers(len(hit.body)):
        raise Overloaded("The answers in flight take too much memory.")
    facts.cache, facts.age_s, facts.entry = cache, hit.age_s, entry_id(match.digest)
    facts.served_by(hit.deployment, hit.provider, hit.tier)
    return Recall(hit)


@functools.lru_cache(maxsize=1024)  # what is served once is served again
def entry_id(digest: bytes) -> str:
    """The name of an answer that is kept, for people: 16 hex digits that say nothing and that no look-up takes."""
    return hashlib.sha256(digest).hexdigest()[:16]


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
    lead: _Lead | None

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
