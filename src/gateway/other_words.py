"""Whether a request may be answered in other words, by whom, and what its answer teaches.

Decides where the semantic cache is asked, what of it is served or only compared, and whose judge is shown a question.
Does not know what makes two questions one, or where answers lie.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gateway.cache_key import KeyOf, entry_id
from gateway.chat import ChatRequest
from gateway.context import RequestContext
from llmkit.openai import decode_object

if TYPE_CHECKING:
    from gateway.judging import Judge, Judging
    from gateway.semantic_cache import Asked, Found, SemanticCache
    from gateway.shadow import ShadowHit

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

    async def look_up(self, context: RequestContext, request: ChatRequest, alias: str, key_of: KeyOf) -> "Lead | None":
        """What there is for a request that the exact cache has no answer to; None if nothing may be learnt of it.

        alias   the name that was asked for
        key_of  where the exact cache keeps its answer
        """
        tenant = context.principal.tenant
        if not self.applies(tenant, alias):
            return None
        asked = await self.cache.ask(request.body["messages"], tenant, key_of)
        if asked is None:
            return None
        judged = self.judged if self.judged is not None and self.judged.applies(tenant) else None
        if request.options.no_cache:
            return Lead(self, judged, asked, None)
        found = await self.cache.find(asked, serve=self.serves, judge=None if judged is None else judged.judge.name)
        if found is None or self.serves:
            return Lead(self, judged, asked, found)
        request_id, entry = context.facts.request_id, entry_id(found.match.digest)
        self.on_shadow(request_id, entry, asked.key.hex()[:16], found.alias is not None)
        if request.options.no_store:
            return None
        hit = self.cache.note_shadow(asked, found, request_id=request_id, entry=entry)
        return Lead(self, judged, asked, found, hit)


class Lead(Struct, frozen=True):
    """A question that the semantic cache may learn, and the answer that it has found, if any; `hit` if that is only to
    be compared.
    """

    words: InOtherWords
    judged: Judged | None
    asked: "Asked"
    found: "Found | None"
    hit: "ShadowHit | None" = None

    @property
    def answer(self) -> "Found | None":
        """What is to be served."""
        return self.found if self.words.serves else None

    def note_judged(self) -> bool:
        """Whether what is served was found by an alias; if so, whoever audits these hits is told."""
        if self.judged is None or self.found is None or self.found.alias is None:
            return False
        self.judged.judging.note_hit(self.asked, self.found.alias, self.judged.judge)
        return True

    def learn(self, digest: bytes, document: Mapping[str, Any]) -> None:
        """Note that the exact cache has got the answer, and compare it with the one that was withheld."""
        self.words.cache.remember(self.asked)
        if self.judged is not None:
            self.judged.judging.learn(self.asked, digest, self.judged.judge)
        if self.hit is not None and self.found is not None:
            equal = _text_of(document) == _text_of(decode_object(self.found.match.hit.body))
            self.words.cache.note_comparison(self.hit, equal=equal)


def _text_of(document: Mapping[str, Any]) -> object:
    """What the one choice of an answer says."""
    return document["choices"][0]["message"].get("content")
