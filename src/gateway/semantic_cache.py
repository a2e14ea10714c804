"""The semantic cache: which wordings were answered, by what they mean; and whether one of them may answer another.

A semantic hit is an exact hit in other words. No answer lies here: a wording that the verifier passes is only looked
up as if the client had typed it, so whatever the exact key and the exact cache keep apart stays apart, whatever the
index holds.

Decides which wordings are tried, and counts what became of them. Does not know requests, HTTP, or what makes two
questions one: the verifier says that, and where it passes none and a judge is named, an alias (see aliases.py).

Rules:
- nothing is served that the verifier has not passed at this moment, or that a judge has not called the same before
- wordings are kept under a digest of their partition (the request but for its question, the tenant and its epoch in
  it), the verifier's version and its canonical key: another partition, or another version, finds nothing
- an index is kept as answers are: sealed, under bounds, with one writer, in a file that may be lost
- every failure is a miss, and is told to `on_error`; only a purge fails aloud
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, msgpack

from gateway.aliases import Alias, Aliases
from gateway.cache_entry import index_entry
from gateway.cache_key import KeyOf
from gateway.clock import Clock
from gateway.exact_cache import ExactCache, Match
from gateway.semantic.eligible import Ineligible, read_eligible, refusal
from gateway.semantic.grey import bar
from gateway.semantic.turn import Unfit, asking, question_of
from gateway.semantic.verifier import VERSION, Question, Veto, read, verify
from gateway.shadow import ShadowHit, ShadowHits
from gateway.tally import Tally

MOST_WORDINGS: Final = 8
"""Of one canonical key: each is verified in turn, and those that differ by their order alone share a key."""

Messages = Sequence[Mapping[str, Any]]
"""Of a chat request that has been checked: objects, at least one."""


class Wording(Struct, frozen=True, array_like=True):
    """A question that was answered, and the wall-clock milliseconds at which it expires."""

    question: Question
    end_ms: int


_unpack: Final = msgpack.Decoder(tuple[Wording, ...]).decode
"""What a row of the index holds. Questions are kept as they were read: to read one costs more than all else."""


class Outcome(StrEnum):
    """What became of a question that was looked up.

    GONE     a wording was passed whose answer is kept no longer
    SHADOWED an answer was found, and withheld
    JUDGED   an answer was found by an alias; JUDGED_SHADOWED  and withheld
    """

    HIT = "hit"
    SHADOWED = "shadowed"
    JUDGED = "judged"
    JUDGED_SHADOWED = "judged_shadowed"
    MISS = "miss"
    VETOED = "vetoed"
    GONE = "gone"


class Asked(Struct, frozen=True):
    """A question that may be answered in other words.

    epoch      of the tenant in the index, when it was asked
    key        where its wordings are kept; partition  the digest of all that its request says beside it
    wordings   what is kept under the key, newest first
    digest_of  where the exact cache keeps the answer to the same request in other words
    """

    tenant: str
    epoch: int
    key: bytes
    partition: bytes
    question: Question
    wordings: tuple[Wording, ...]
    digest_of: Callable[[str], bytes]


class Found(Struct, frozen=True):
    """An answer in other words.

    wording  the question that it is the answer to
    alias    by whose verdict it is one, None if by the verifier's alone
    """

    match: Match
    wording: Question
    alias: Alias | None = None


class SemanticCache:
    """The index over the answers of an exact cache; safe from any thread.

    aliases  what judges have said, in the same index
    shadow   the last answers that were withheld, in words; kept in memory, whatever is reloaded
    """

    def __init__(
        self,
        answers: ExactCache,
        index: ExactCache,
        *,
        ttl_s: float,
        clock: Clock,
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Over the two caches, of which the index becomes its own.

        ttl_s     how long a wording may be found; its answer may be gone before
        on_error  is told of a verifier that failed
        """
        self._answers = answers
        self._index = index
        self._ttl_s = ttl_s
        self._clock = clock
        self._on_error = on_error
        self.aliases = Aliases(index, ttl_s=ttl_s, clock=clock)
        self.shadow = ShadowHits()
        self._tally = Tally(_FAMILIES)

    async def ask(self, messages: Messages, tenant: str, key_of: KeyOf) -> Asked | None:
        """The question of a request, with the wordings that may answer it; None, and counted, if it has none.

        key_of  where the exact cache keeps its answer
        """
        try:
            return await self._ask(messages, tenant, key_of)
        except Exception as error:  # noqa: BLE001 - a question that cannot be read is asked upstream
            self._on_error(error)
            return None

    async def find(self, asked: Asked, *, serve: bool, judge: str | None = None) -> Found | None:
        """The answer to one of its wordings, if the verifier passes one, or by an alias; counted.

        serve  whether it is to be served, or only to be compared
        judge  whose aliases count; None for nobody's
        """
        try:
            outcome, found = await self._find(asked)
            if found is None and judge is not None:
                found = await self._find_alias(asked, judge)
        except Exception as error:  # noqa: BLE001 - so is one that cannot be compared
            self._on_error(error)
            return None
        if found is not None:
            outcome = _OUTCOMES[found.alias is not None, serve]
        self._tally.count("lookups", outcome)
        return found

    def remember(self, asked: Asked) -> None:
        """Keep the wording: the exact cache has got its answer, whose own lifetime holds, too. Never blocks."""
        now_ms = self._clock.wall_ms()
        newest = Wording(asked.question, self.end_ms())
        others = [other for other in _living(asked.wordings, now_ms) if other.question.text != asked.question.text]
        try:
            entry = index_entry([newest, *others][:MOST_WORDINGS], asked.tenant, asked.epoch, asked.partition)
        except ValueError as error:
            self._on_error(error)
        else:
            self._index.store(asked.key, entry, ttl_s=None)

    def note_shadow(self, asked: Asked, found: Found, *, request_id: str, entry: str) -> ShadowHit:
        """An answer was withheld: remember the two questions, unless their tenant was purged since it was asked."""
        hit = ShadowHit(
            at_ms=self._clock.wall_ms(),
            tenant=asked.tenant,
            request_id=request_id,
            entry=entry,
            judged=found.alias is not None,
            asked=asked.question.text,
            stored=found.wording.text,
        )
        self.shadow.note(hit)
        if asked.epoch != self._index.epoch(asked.tenant):
            self.shadow.forget(asked.tenant)
        return hit

    def note_comparison(self, hit: ShadowHit, *, equal: bool) -> None:
        """An answer that was withheld, and the one that came from the upstream, say the same, or not."""
        hit.equal = equal
        self._tally.count("judged_comparisons" if hit.judged else "comparisons", "equal" if equal else "different")

    async def is_answered(self, digest: bytes, tenant: str) -> bool:
        """Whether the exact cache has an answer under a digest."""
        return await self._answers.find(digest, tenant) is not None

    def epoch(self, tenant: str) -> int:
        """A number that every purge of this tenant, or of all, raises. From memory."""
        return self._index.epoch(tenant)

    def end_ms(self) -> int:
        """When what is learnt now is found no more, by the wall clock."""
        return self._clock.wall_ms() + int(self._ttl_s * 1000)

    async def purge(self, tenant: str | None) -> int:
        """Forget the wordings of a tenant, or of all; how many keys were removed. Raises CacheUnavailable."""
        try:
            return await self._index.purge(tenant)
        finally:
            self.shadow.forget(tenant)

    def stats(self) -> dict[str, Any]:
        """What the index holds and did, as ExactCache.stats() says it; and, since the start, how often what happened.

        lookups by Outcome, vetoes by Veto, ineligible by Unfit and Ineligible; comparisons, and judged_comparisons of
        what an alias has found: equal, different
        """
        index = self._index.stats()
        told: dict[str, Any] = {name: index[name] for name in ("entries", "bytes", "stored", "dropped")}
        told |= {name: index[name] for name in ("evicted", "expired")}
        return told | self._tally.told()

    def flush(self) -> None:
        """Return once all that was handed over before is in the file, or was dropped."""
        self._index.flush()

    def close(self) -> None:
        """Write what waits, and close the index."""
        self._index.close()

    async def _ask(self, messages: Messages, tenant: str, key_of: KeyOf) -> Asked | None:
        text = question_of(messages)
        question = text if isinstance(text, Unfit) else read_eligible(text)
        if not isinstance(question, Question):
            self._tally.count("ineligible", question)
            return None
        message = messages[-1]
        partition = key_of(asking(message, ""))
        key = hashlib.sha256(b"%d %b %b" % (VERSION, partition, question.key)).digest()
        epoch = self._index.epoch(tenant)
        row = await self._index.find(key, tenant)
        return Asked(
            tenant=tenant,
            epoch=epoch,
            key=key,
            partition=partition,
            question=question,
            wordings=_unpack(row.body) if row else (),
            digest_of=lambda other: key_of(asking(message, other)),
        )

    async def _find(self, asked: Asked) -> tuple[Outcome, Found | None]:
        outcome = Outcome.MISS
        for wording in _living(asked.wordings, self._clock.wall_ms()):
            refutation = verify(asked.question, wording.question)
            if refutation is not None:
                self._tally.count("vetoes", refutation.veto)
                outcome = Outcome.VETOED if outcome is Outcome.MISS else outcome
                continue
            match = await self._match(asked, wording.question)
            if match is not None:
                return Outcome.HIT, Found(match, wording.question)
            outcome = Outcome.GONE
        return outcome, None

    async def _find_alias(self, asked: Asked, judge: str) -> Found | None:
        for alias in await self.aliases.of(asked.tenant, asked.partition, asked.question, judge):
            match = await self._match(asked, alias.other)
            if match is not None:
                return Found(match, alias.other, alias)
        return None

    async def _match(self, asked: Asked, wording: Question) -> Match | None:
        digest = asked.digest_of(wording.text)
        hit = await self._answers.find(digest, asked.tenant)
        return None if hit is None else Match(digest, hit)


def explain(asked: str, stored: str) -> dict[str, Any]:
    """What the verifier says of two texts, whether a judge may overrule it (or what bars it), and why either text would
    not be looked up at all; JSON values.
    """
    one, other = read(asked), read(stored)
    refutation, barred = verify(one, other), bar(one, other)
    return {
        "same": refutation is None,
        "veto": refutation and refutation.veto,
        "detail": refutation and refutation.detail,
        "may_be_judged": refutation is not None and barred is None,
        "bar": refutation and barred,
        "asked_ineligible": refusal(asked),
        "stored_ineligible": refusal(stored),
    }


def _living(wordings: Sequence[Wording], now_ms: int) -> list[Wording]:
    return [wording for wording in wordings if now_ms < wording.end_ms]


_OUTCOMES: Final = {
    (False, True): Outcome.HIT,
    (False, False): Outcome.SHADOWED,
    (True, True): Outcome.JUDGED,
    (True, False): Outcome.JUDGED_SHADOWED,
}
"""Of an answer that was found: whether by an alias, and whether it is served."""

_FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "lookups": tuple(Outcome),
    "vetoes": tuple(Veto),
    "ineligible": (*Unfit, *Ineligible),
    "comparisons": ("equal", "different"),
    "judged_comparisons": ("equal", "different"),
}
"""Every count that there is: closed sets, so that each can label a series."""
