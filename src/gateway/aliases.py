"""Aliases: what a judge has said of two questions, kept beside the wordings of the semantic cache.

Decides where a verdict lies, how long it holds, and which of them may answer a question. Does not know who judges, or
where answers are.

Rules:
- a verdict lies under a digest of the partition, the judge's name, the versions of what it was asked and of the
  verifier, and the canonical key of one of its questions; under that of the other, too: the same is the same both ways
- it answers a question that the verifier passes for its own, and only if nothing is seen between the two that bars a
  judge: whatever the file holds, `5 miles` does not answer `6 miles`
- verdicts do not chain: that A is B and B is C was never said of A and C
- a no is kept as a yes is, so that it is not asked for again
- it lives as wordings do: sealed, under their bounds, until its time is over or its tenant is purged
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from msgspec import Struct, msgpack

from gateway.cache_entry import index_entry
from gateway.clock import Clock
from gateway.exact_cache import ExactCache
from gateway.semantic.grey import bar
from gateway.semantic.judgement import PROMPT_VERSION
from gateway.semantic.verifier import VERSION, Question, verify

MOST_ALIASES: Final = 8
"""Of one canonical key, as of wordings."""


class Pair(Struct, frozen=True):
    """Two questions of one partition.

    epoch  of the tenant in the index, when the first was asked
    """

    tenant: str
    epoch: int
    partition: bytes
    one: Question
    other: Question

    @property
    def turned(self) -> "Pair":
        """The same pair, the other way about."""
        return Pair(self.tenant, self.epoch, self.partition, self.other, self.one)


class Alias(Struct, frozen=True, array_like=True):
    """What `judge` said at wall-clock `at_ms` of `question` and `other`; it holds until `end_ms`."""

    question: Question
    other: Question
    same: bool
    judge: str
    at_ms: int
    end_ms: int


_unpack: Final = msgpack.Decoder(tuple[Alias, ...]).decode


class Aliases:
    """The verdicts in an index; safe from any thread, but only one may note()."""

    def __init__(self, index: ExactCache, *, ttl_s: float, clock: Clock) -> None:
        """ttl_s  how long a verdict holds, at most"""
        self._index = index
        self._ttl_s = ttl_s
        self._clock = clock

    async def of(self, tenant: str, partition: bytes, question: Question, judge: str) -> list[Alias]:
        """The verdicts of this judge that may answer a question, newest first."""
        living = await self._living(tenant, partition, question, judge)
        return [alias for alias in living if answers(alias, question)]

    async def knows(self, pair: Pair, judge: str) -> bool:
        """Whether this judge has said of these two texts whether they are one question."""
        known = await self._living(pair.tenant, pair.partition, pair.one, judge)
        return any(_is_of(alias, pair) for alias in known)

    async def note(self, pair: Pair, judge: str, *, same: bool) -> None:
        """Keep a verdict in place of an earlier one, under either question. Never blocks.

        What was asked before a purge is dropped. Raises ValueError of a text that no row can hold.
        """
        at_ms = self._clock.wall_ms()
        for each in (pair, pair.turned):
            alias = Alias(each.one, each.other, same, judge, at_ms, at_ms + int(self._ttl_s * 1000))
            known = await self._living(each.tenant, each.partition, each.one, judge)
            others = [other for other in known if not _is_of(other, each)]
            entry = index_entry([alias, *others][:MOST_ALIASES], each.tenant, each.epoch, each.partition)
            self._index.store(_key(each.partition, each.one, judge), entry, ttl_s=None)

    async def _living(self, tenant: str, partition: bytes, question: Question, judge: str) -> list[Alias]:
        row = await self._index.find(_key(partition, question, judge), tenant)
        now_ms = self._clock.wall_ms()
        found: Iterable[Alias] = _unpack(row.body) if row else ()
        return [alias for alias in found if now_ms < alias.end_ms]


def answers(alias: Alias, asked: Question) -> bool:
    """Whether a verdict says that the other of its questions is the one that is asked."""
    return alias.same and verify(asked, alias.question) is None and bar(asked, alias.other) is None


def _is_of(alias: Alias, pair: Pair) -> bool:
    return (alias.question.text, alias.other.text) == (pair.one.text, pair.other.text)


def _key(partition: bytes, question: Question, judge: str) -> bytes:
    named = hashlib.sha256(judge.encode()).digest()
    return hashlib.sha256(b"alias %d %d %b %b %b" % (VERSION, PROMPT_VERSION, partition, named, question.key)).digest()
