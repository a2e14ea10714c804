"""What became of a soak's requests, and what was wrong around the gateway while they were under way.

Filled while it runs, by the loop's thread; the times of windows and blocks also by whoever makes the fault. Seconds are
those of the loop's clock.
"""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

from evals.metered import Manner
from evals.openloop import End, Reply
from evals.soak_plan import FORBIDDEN, Arrival, Circumstances, Kind, Verdict

MOST_SHOWN = 40
CALM_AFTER_S = 1.0
RECENT = 32
"""No request lasts as long as so many faults."""

_WITHOUT_ROW = frozenset({Kind.NO_KEY, Kind.MODELS})


@dataclass(slots=True)
class Window:
    """A time with a fault, and the codes that it excuses ("*": anything); `end_s` is None while it lasts."""

    start_s: float
    codes: frozenset[str] = frozenset()
    end_s: float | None = None

    def meets(self, due_s: float, done_s: float, slack_s: float = 0.0) -> bool:
        """Whether a request between these moments may have met it, or the first `slack_s` after it."""
        return self.start_s <= done_s and (self.end_s is None or due_s <= self.end_s + slack_s)


@dataclass(slots=True)
class Block:
    """A key that is blocked for a while: since when it may be, since when it surely is, and the same for the end."""

    may_s: float
    is_s: float | None = None
    may_end_s: float | None = None
    ended_s: float | None = None

    def covers(self, due_s: float, done_s: float) -> bool | None:
        """Whether it was in force for a request between these moments; None if nobody knows."""
        if done_s < self.may_s or (self.ended_s is not None and due_s > self.ended_s):
            return False
        surely = self.is_s is not None and due_s >= self.is_s and (self.may_end_s is None or done_s <= self.may_end_s)
        return True if surely else None


@dataclass(slots=True)
class Surroundings:
    """What bears on the verdicts.

    met    how an upstream spoiled a call of a request, by its number; the last such call counts
    asked  numbers of those who asked a question that the cache may remember, by tenant and question
    """

    windows: deque[Window] = field(default_factory=lambda: deque(maxlen=RECENT))
    blocks: deque[Block] = field(default_factory=lambda: deque(maxlen=RECENT))
    met: dict[int, Manner] = field(default_factory=dict)
    asked: dict[tuple[int, int], set[int]] = field(default_factory=lambda: defaultdict(set))

    def circumstances(self, arrival: Arrival, due_s: float, done_s: float) -> Circumstances:
        """What bears on one request."""
        blocked: bool | None = False
        if arrival.kind is Kind.BLOCKABLE:
            known = [block.covers(due_s, done_s) for block in self.blocks]
            blocked = True if True in known else None if None in known else False
        return Circumstances(
            self.met.get(arrival.number, Manner.GOOD),
            self.asked[arrival.tenant, arrival.question] if arrival.kind is Kind.HIT else {arrival.number},
            blocked,
            frozenset(code for window in self.windows if window.meets(due_s, done_s) for code in window.codes),
        )

    def is_calm(self, due_s: float, done_s: float) -> bool:
        """Whether a request between these moments met no fault, nor the second after one."""
        return not any(window.meets(due_s, done_s, CALM_AFTER_S) for window in self.windows)


@dataclass(slots=True)
class Tally:
    """Requests that are over.

    took_s  by kind, of those that were served or refused as they must be; `calm_s` of those that met no fault
    since   the same of all kinds since the last sample
    late_s  how late the client itself was
    answered  status by number, of those that must have a row: whole answers to chat requests of a key
    strange   the first of those that nobody may see, in words
    """

    verdicts: dict[Kind, Counter[Verdict]] = field(default_factory=lambda: defaultdict(Counter))
    took_s: dict[Kind, list[float]] = field(default_factory=lambda: defaultdict(list))
    calm_s: dict[Kind, list[float]] = field(default_factory=lambda: defaultdict(list))
    since: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    answered: dict[int, int] = field(default_factory=dict)
    strange: list[str] = field(default_factory=list)

    def add(self, arrival: Arrival, reply: Reply, verdict: Verdict, *, calm: bool) -> None:
        """One more is over."""
        self.verdicts[arrival.kind][verdict] += 1
        self.late_s.append(reply.late_s)
        if reply.end is End.WHOLE and arrival.kind not in _WITHOUT_ROW and reply.status not in (401, 503):
            self.answered[arrival.number] = reply.status
        if verdict in (Verdict.SERVED, Verdict.REFUSED):
            self.took_s[arrival.kind].append(reply.took_s)
            self.since.append(reply.took_s)
            if calm:
                self.calm_s[arrival.kind].append(reply.took_s)
        elif verdict in FORBIDDEN and len(self.strange) < MOST_SHOWN:
            shown = f"{reply.status} {reply.end.name} {reply.raw[-300:]!r}"
            self.strange.append(f"{verdict}: {arrival} after {reply.took_s:.3f} s: {shown}")

    def count(self, *verdicts: Verdict) -> int:
        """How many were judged so."""
        return sum(counts[verdict] for counts in self.verdicts.values() for verdict in verdicts)
