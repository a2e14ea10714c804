"""The judged tier: which learnt questions are near each other, and what a judge says of them. Off every request's path.

Decides which pair a judge is asked about, how often, and what its word is worth. Does not know how a judge is reached,
what it is asked in words, or where verdicts lie. One thread does all the work; whoever hands it something waits for
nothing.

Rules:
- nothing is served from here: a yes becomes an alias, and the cache looks aliases up
- a question is compared with those of its own partition alone, and only if its request let it be kept
- of the near ones the nearest is asked about that is alive, answered, not judged before, and barred by nothing
- at most so many calls in any minute, audits included; what comes beyond them is not asked, now or later
- a judge that fails, is late, or has no budget has said nothing: the pair may come again
- a share of the hits by an alias is judged again, the other way about; unless the answer is a yes, the alias ends
- queue and index are bounded; what finds no place is counted, and let go

Locks: `_changed` guards `_jobs`, `_purges`, `_is_busy` and `_is_closed`. `_near` and `_calls_s` belong to the thread.
"""

import hashlib
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

from gateway.aliases import Alias, Pair
from gateway.clock import Clock
from gateway.drive import drive
from gateway.errors import (
    BudgetExceeded,
    BudgetReserved,
    Draining,
    GatewayError,
    QuotaExhausted,
    UpstreamTimeout,
)
from gateway.nearest import Near, Nearest
from gateway.semantic.grey import Bar, bar, mark
from gateway.semantic.judgement import Verdict, prompt, verdict
from gateway.semantic.verifier import Question, read, verify
from gateway.semantic_cache import Asked, SemanticCache
from gateway.tally import Tally
from llmkit.embed import Embedder
from llmkit.types import Cancel

BREATH_S: Final = 0.0005
"""Between two steps of some tenths of a millisecond: a request that waits for the interpreter gets it then."""

MINUTE_S: Final = 60.0


class Course(StrEnum):
    """What became of a question that was learnt.

    DROPPED    the queue was full             STALE       its tenant was purged meanwhile
    ALONE      nothing was near enough        BARRED      no judge may be asked about what was
    KNOWN      all that was is known to be the same, or was judged before
    UNANSWERED there is no answer to it       CAPPED      the calls of this minute are used up
    ASKED      a judge was asked
    """

    DROPPED = "dropped"
    STALE = "stale"
    ALONE = "alone"
    BARRED = "barred"
    KNOWN = "known"
    UNANSWERED = "unanswered"
    CAPPED = "capped"
    ASKED = "asked"


class Silence(StrEnum):
    """Why there is no verdict now. DROPPED and CAPPED are of audits alone: see Course."""

    BUDGET = "budget"
    TIMEOUT = "timeout"
    FAILED = "failed"
    CAPPED = "capped"
    DROPPED = "dropped"


Ask = Callable[[str, Sequence[Mapping[str, str]], Cancel], Mapping[str, Any]]
"""Asks a model, with these messages, for a chat.completion. Raises GatewayError, also once the Cancel has fired."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Who judges, and when.

    name, auditor   the models, as a client would ask for them
    least, most     cosines between which a judge is asked
    per_minute      calls of any kind in any minute
    audit_percent   of the hits by an alias
    """

    name: str
    auditor: str
    least: float
    most: float
    per_minute: int
    audit_percent: float
    ask: Ask


@dataclass(frozen=True, slots=True)
class _Learnt:
    """A question, and the digest of its answer in the exact cache."""

    tenant: str
    epoch: int
    partition: bytes
    question: Question
    digest: bytes


@dataclass(frozen=True, slots=True)
class _Known:
    """What the index keeps of it, beside its vector: it is read again when it is near.

    end_ms  when it is found no more
    """

    text: str
    tenant: str
    epoch: int
    digest: bytes
    end_ms: int


class _Ending:
    """Fires once, when the thread has to end: a Cancel for the call that it may be in."""

    mask = select.POLLIN

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fire(self) -> None:
        os.eventfd_write(self.fd, 1)

    def reason(self) -> Exception | None:
        return Draining("the gateway stops judging")

    def close(self) -> None:
        os.close(self.fd)


class Judging:
    """The queue, the index and the thread; safe from any thread."""

    def __init__(
        self,
        semantic: SemanticCache,
        embedder: Embedder,
        *,
        queue: int,
        max_bytes: int,
        clock: Clock,
        draw: Callable[[], float],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Start the thread.

        queue      questions and audits that may wait
        max_bytes  bound of the index
        draw       gives numbers from [0, 1), for the audits
        on_error   is told of what is no outcome
        """
        self._semantic = semantic
        self._embedder = embedder
        self._queue = queue
        self._clock = clock
        self._draw = draw
        self._on_error = on_error
        self._near: Nearest[_Known] = Nearest(embedder.dim, max_bytes)
        self._calls_s: deque[float] = deque()
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._purges: list[str | None] = []
        self._tally = Tally(_FAMILIES)
        self._is_busy = self._is_closed = False
        self._stop = threading.Event()
        self._ending = _Ending()
        self._thread = threading.Thread(target=self._run, name="semantic-judge", daemon=True)
        self._thread.start()

    # --- from any thread ------------------------------------------------------------------------------------------

    def learn(self, asked: Asked, digest: bytes, judge: Judge) -> None:
        """A question whose answer is kept under `digest`: look for others that it may be, soon. Never blocks.

        Of the request only the question waits here: the rest may be of any size.
        """
        learnt = _Learnt(asked.tenant, asked.epoch, asked.partition, asked.question, digest)
        if not self._hand_over(partial(self._learn, learnt, judge)):
            self._tally.count("questions", Course.DROPPED)

    def note_hit(self, asked: Asked, alias: Alias, judge: Judge) -> None:
        """An alias has answered a question: judge it again, now and then. Never blocks."""
        if self._draw() * 100 >= judge.audit_percent:
            return
        pair = Pair(asked.tenant, asked.epoch, asked.partition, alias.question, alias.other)
        if not self._hand_over(partial(self._audit, pair, judge)):
            self._tally.count("audits", Silence.DROPPED)

    def forget(self, tenant: str | None) -> None:
        """Let go of all texts of a tenant, or of everybody, soon."""
        with self._changed:
            self._purges.append(tenant)
            self._changed.notify_all()

    def stats(self) -> dict[str, Any]:
        """Entries and bytes of the index, what waits; and, since the start, how often what happened.

        questions by Course, verdicts and audits by Verdict and Silence, bars by Bar
        """
        with self._changed:
            waiting = len(self._jobs)
        near = self._near
        return {"entries": near.entries, "bytes": near.bytes, "waiting": waiting, **self._tally.told()}

    def flush(self) -> None:
        """Return once all that was handed over before is done, or the thread has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or not (self._jobs or self._purges or self._is_busy))

    def close(self) -> None:
        """End the thread: a call that is under way is cut short, and what waits is let go."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._jobs.clear()
            self._changed.notify_all()
        self._stop.set()
        self._ending.fire()
        self._thread.join()
        self._ending.close()

    def _hand_over(self, job: Callable[[], None]) -> bool:
        with self._changed:
            if self._is_closed or len(self._jobs) >= self._queue:
                return False
            self._jobs.append(job)
            self._changed.notify_all()
            return True

    # --- on the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_closed or self._jobs or self._purges)
                if self._is_closed:
                    return
                self._is_busy = True
                purges, self._purges = self._purges, []
                job = self._jobs.popleft() if self._jobs else None
            self._stop.wait(BREATH_S)
            try:
                for tenant in purges:
                    self._forget(tenant)
                if job is not None:
                    job()
            except Exception as error:  # noqa: BLE001 - the thread outlives every question
                self._on_error(error)

    def _forget(self, tenant: str | None) -> None:
        self._near.keep(lambda known: tenant not in (None, known.tenant))

    def _learn(self, learnt: _Learnt, judge: Judge) -> None:
        if learnt.epoch != self._semantic.epoch(learnt.tenant):
            self._tally.count("questions", Course.STALE)
            return
        text = learnt.question.text
        (vector,) = self._embedder.embed([text])
        group = _group(learnt.partition, learnt.question)
        near = self._search(group, vector, judge.least)
        known = _Known(text, learnt.tenant, learnt.epoch, learnt.digest, self._semantic.end_ms())
        self._near.put(group, text, vector, known)
        self._tally.count("questions", self._course(learnt, judge, near))

    def _search(self, group: bytes, vector: Sequence[float], least: float) -> list[Near[_Known]]:
        search = self._near.search(group, vector, least)
        while True:
            try:
                next(search)
            except StopIteration as done:
                return list(done.value)
            if self._stop.wait(BREATH_S):
                return []

    def _course(self, learnt: _Learnt, judge: Judge, near: Sequence[Near[_Known]]) -> Course:
        """Ask about the nearest that may be asked about; what became of it."""
        course = Course.ALONE
        for cosine, known in near:
            if cosine > judge.most or known.text == learnt.question.text or self._is_gone(known):
                continue
            pair = Pair(learnt.tenant, learnt.epoch, learnt.partition, learnt.question, read(known.text))
            obstacle = self._obstacle(pair, known, judge)
            if obstacle is None:
                return self._judge(pair, judge)
            course = obstacle if course is Course.ALONE else course
            self._stop.wait(BREATH_S)
        return course

    def _obstacle(self, pair: Pair, known: _Known, judge: Judge) -> Course | None:
        """Why there is nothing to ask about a pair."""
        if verify(pair.one, pair.other) is None:
            return Course.KNOWN
        if (reason := bar(pair.one, pair.other)) is not None:
            self._tally.count("bars", reason)
            return Course.BARRED
        if drive(self._semantic.aliases.knows(pair, judge.name)):
            return Course.KNOWN
        return None if drive(self._semantic.is_answered(known.digest, known.tenant)) else Course.UNANSWERED

    def _is_gone(self, known: _Known) -> bool:
        return self._clock.wall_ms() >= known.end_ms or known.epoch != self._semantic.epoch(known.tenant)

    def _judge(self, pair: Pair, judge: Judge) -> Course:
        if not self._may_call(judge.per_minute):
            return Course.CAPPED
        said = self._said(pair, judge.name, judge.ask)
        self._tally.count("verdicts", said)
        if isinstance(said, Verdict):
            drive(self._semantic.aliases.note(pair, judge.name, same=said is Verdict.SAME))
        return Course.ASKED

    def _audit(self, pair: Pair, judge: Judge) -> None:
        if not self._may_call(judge.per_minute):
            self._tally.count("audits", Silence.CAPPED)
            return
        said = self._said(pair.turned, judge.auditor, judge.ask)
        self._tally.count("audits", said)
        if isinstance(said, Verdict) and said is not Verdict.SAME:
            drive(self._semantic.aliases.note(pair, judge.name, same=False))

    def _said(self, pair: Pair, model: str, ask: Ask) -> Verdict | Silence:
        try:
            return verdict(ask(model, prompt(pair.one.text, pair.other.text), self._ending))
        except GatewayError as error:
            return next((silence for kinds, silence in _SILENCES if isinstance(error, kinds)), Silence.FAILED)
        except Exception as error:  # noqa: BLE001 - whatever a judge does, it is asked again another time
            self._on_error(error)
            return Silence.FAILED

    def _may_call(self, per_minute: int) -> bool:
        """Take one of the calls of this minute, if there is one."""
        now_s = self._clock.now_s()
        while self._calls_s and now_s - self._calls_s[0] >= MINUTE_S:
            self._calls_s.popleft()
        if len(self._calls_s) >= per_minute:
            return False
        self._calls_s.append(now_s)
        return True


def _group(partition: bytes, question: Question) -> bytes:
    """Questions that are told apart by their marks need no comparison, and so crowd out none that may be one."""
    return hashlib.blake2b(partition + repr(mark(question)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


_SILENCES: Final = (
    ((BudgetExceeded, BudgetReserved, QuotaExhausted), Silence.BUDGET),
    ((UpstreamTimeout,), Silence.TIMEOUT),
)

_FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "questions": tuple(Course),
    "verdicts": (*Verdict, Silence.BUDGET, Silence.TIMEOUT, Silence.FAILED),
    "audits": (*Verdict, *Silence),
    "bars": tuple(Bar),
}
"""Every count that there is: closed sets, so that each can label a series."""
