"""What a soak does and when: the mixed load, the faults, and what each client may see. Pure: a seed in.

Requests arrive at random (exponential gaps) at a steady rate, of kinds in the shares of SHARES. A fault comes every few
seconds; each kind comes once before any comes again, in an order that is drawn. The upstream that has faults is the
first of two, so no client may notice more of one than a stream that is cut after its content.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from evals.metered import UNBILLED, Manner
from evals.openloop import Conduct, End


class Kind(StrEnum):
    """A kind of request."""

    WHOLE = "whole"
    STREAM = "stream"
    TOOLS = "tools"
    HIT = "hit"
    MODELS = "models"
    NO_KEY = "no key"
    BROKE = "budget used up"
    SPENDER = "budget running out"
    LIMITED = "rate limit"
    BLOCKABLE = "key that is blocked"
    LEAVES_BEFORE = "leaves before the answer"
    LEAVES_MIDWAY = "leaves midway"
    SLOW_READER = "slow reader"


SHARES: Mapping[Kind, int] = {
    Kind.WHOLE: 330,
    Kind.STREAM: 200,
    Kind.TOOLS: 60,
    Kind.HIT: 150,
    Kind.MODELS: 20,
    Kind.NO_KEY: 40,
    Kind.BROKE: 40,
    Kind.SPENDER: 40,
    Kind.LIMITED: 40,
    Kind.BLOCKABLE: 30,
    Kind.LEAVES_BEFORE: 20,
    Kind.LEAVES_MIDWAY: 25,
    Kind.SLOW_READER: 5,
}
"""In a thousand."""

CONDUCTS: Mapping[Kind, Conduct] = {
    Kind.LEAVES_BEFORE: Conduct.LEAVES_BEFORE,
    Kind.LEAVES_MIDWAY: Conduct.LEAVES_MIDWAY,
    Kind.SLOW_READER: Conduct.READS_SLOWLY,
}
REFUSED: Mapping[Kind, frozenset[tuple[int, str]]] = {
    Kind.NO_KEY: frozenset({(401, "invalid_api_key")}),
    Kind.BROKE: frozenset({(402, "budget_exceeded")}),
    Kind.SPENDER: frozenset({(402, "budget_exceeded"), (429, "budget_reserved")}),
    Kind.LIMITED: frozenset({(429, "rate_limit_exceeded")}),
}
"""How each kind may be refused; the first two must be."""

_BILLED = frozenset(Manner) - UNBILLED - {Manner.GOOD, Manner.SLOW}
"""How a call fails that may be billed."""

_FAILED_CALL = frozenset({(502, "upstream_error"), (503, "all_providers_failed"), (504, "upstream_timeout")})
_MUST_BE_REFUSED = frozenset({Kind.NO_KEY, Kind.BROKE})
ONE_SHOT_SHARE = 0.2
LIMITED_PER_S, BURST = 1, 5
"""The rate of the tenant that is limited: about half of what it asks for, and less."""

TENANTS = 2
QUESTIONS = 8


class Trouble(StrEnum):
    """A kind of fault."""

    UPSTREAM_500 = "upstream: 500"
    UPSTREAM_429 = "upstream: 429"
    UPSTREAM_JUNK = "upstream: junk"
    UPSTREAM_CUT_BEFORE = "upstream: cut before content"
    UPSTREAM_CUT_AFTER = "upstream: cut after content"
    UPSTREAM_HANG = "upstream: hang"
    UPSTREAM_RESET = "upstream: reset"
    UPSTREAM_SLOW = "upstream: slow"
    UPSTREAM_HANGS_UP = "upstream: closes idle connections"
    RELOAD = "reload"
    BLOCK = "key blocked"
    BACKUP = "backup"
    LOCK = "foreign lock"
    HALF_OPEN = "half-open connections"
    DRIPS = "dripping heads"
    HUGE = "huge bodies announced"
    KILL = "kill -9"


MANNERS: Mapping[Trouble, Manner] = {
    Trouble.UPSTREAM_500: Manner.ERROR_500,
    Trouble.UPSTREAM_429: Manner.LIMIT_429,
    Trouble.UPSTREAM_JUNK: Manner.JUNK,
    Trouble.UPSTREAM_CUT_BEFORE: Manner.CUT_BEFORE,
    Trouble.UPSTREAM_CUT_AFTER: Manner.CUT_AFTER,
    Trouble.UPSTREAM_HANG: Manner.HANG,
    Trouble.UPSTREAM_RESET: Manner.RESET,
    Trouble.UPSTREAM_SLOW: Manner.SLOW,
}


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a request is due, in seconds from the start, and what it is."""

    number: int
    at_s: float
    kind: Kind
    keeps_alive: bool
    tenant: int
    question: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and how long it lasts; seconds from the start."""

    at_s: float
    trouble: Trouble
    seconds: float


def arrivals(rate_per_s: float, seconds: float, seed: int, *, first: int = 1) -> Iterator[Arrival]:
    """The timetable of the load; numbers count from `first`."""
    chance = random.Random(f"arrivals {seed}")
    kinds, weights = list(SHARES), list(SHARES.values())
    at_s, number = chance.expovariate(rate_per_s), first
    while at_s < seconds:
        (kind,) = chance.choices(kinds, weights)
        keeps_alive = chance.random() >= ONE_SHOT_SHARE
        yield Arrival(number, at_s, kind, keeps_alive, chance.randrange(TENANTS), chance.randrange(QUESTIONS))
        at_s += chance.expovariate(rate_per_s)
        number += 1


def faults(seconds: float, every_s: float, seed: int, troubles: Sequence[Trouble]) -> list[Fault]:
    """The timetable of the faults: the first at `every_s`, none so late that it lasts beyond the end."""
    chance = random.Random(f"faults {seed}")
    found: list[Fault] = []
    deck: list[Trouble] = []
    at_s = every_s
    while at_s + every_s <= seconds:
        if not deck:
            deck = chance.sample(troubles, len(troubles))
        found.append(Fault(round(at_s, 3), deck.pop(), round(every_s * chance.uniform(0.4, 0.8), 3)))
        at_s += every_s
    return found


def suffers(number: int, seed: int) -> bool:
    """Whether the call of this request is one of those that a fault of the upstream meets: every second one."""
    return random.Random(f"suffers {seed} {number}").random() < 0.5


# --- what a client may see ------------------------------------------------------------------------------------------


class Verdict(StrEnum):
    """How a request is judged."""

    SERVED = "served"
    REFUSED = "refused as it must be"
    CUT = "cut after content, and told so"
    LEFT = "left"
    EXCUSED = "failed by a fault of the gateway's own surroundings"
    UNSERVED = "not served"
    WRONG = "a wrong refusal or a right one missing"
    CROSSED = "another request's answer"
    UNEXPLAINED_5XX = "5xx without a fault"


FORBIDDEN = frozenset({Verdict.UNSERVED, Verdict.WRONG, Verdict.CROSSED, Verdict.UNEXPLAINED_5XX})


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw.

    numbers   of the requests whose answers it was given
    in_band   the code of an error inside a stream
    finished  a stream's end mark came
    """

    end: End
    status: int
    code: str | None
    numbers: frozenset[int]
    in_band: str | None
    finished: bool
    is_stream: bool


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What bears on one request.

    manner        how an upstream spoiled a call of it; GOOD if none did
    askers        requests whose answers it may be given: itself, and who asked the same before
    blocked       whether its key was blocked: None if that changed meanwhile
    excused       codes of a 503 that are excused; "*" excuses anything
    """

    manner: Manner
    askers: AbstractSet[int]
    blocked: bool | None = False
    excused: frozenset[str] = frozenset()


_NUMBER = re.compile(rb"\bn(\d+) ")
_CODE = re.compile(rb'"code": ?"([a-z_]+)"')


def read(end: End, status: int, body: bytes) -> Seen:
    """What an answer says."""
    is_stream = body.startswith((b"data:", b":"))
    code = _CODE.search(body) if status != 200 or is_stream else None
    found = code[1].decode() if code else None
    return Seen(
        end,
        status,
        None if is_stream else found,
        frozenset(int(number) for number in _NUMBER.findall(body)) if status == 200 else frozenset(),
        found if is_stream else None,
        b"data: [DONE]" in body,
        is_stream,
    )


def judge(kind: Kind, seen: Seen, about: Circumstances) -> Verdict:
    """Whether that is what this client may see."""
    if seen.end is End.LEFT:
        return Verdict.LEFT
    if "*" in about.excused and (seen.status >= 500 or seen.end is not End.WHOLE):
        return Verdict.EXCUSED
    if seen.status >= 500:
        excused = seen.code in about.excused or _is_out_of_tries(kind, seen, about)
        return Verdict.EXCUSED if excused else Verdict.UNEXPLAINED_5XX
    if seen.status == 200:
        return _judge_answer(kind, seen, about)
    if seen.end is not End.WHOLE:
        return Verdict.UNSERVED
    if (seen.status, seen.code) == (401, "invalid_api_key") and about.blocked is not False:
        return Verdict.REFUSED
    return Verdict.REFUSED if (seen.status, seen.code or "") in REFUSED.get(kind, ()) else Verdict.WRONG


def _is_out_of_tries(kind: Kind, seen: Seen, about: Circumstances) -> bool:
    """Whether the other upstream was out of reach for want of money: the call that failed may be billed, so another one
    needs a hold beside it. Then the client is told of the call that failed.
    """
    return kind is Kind.SPENDER and about.manner in _BILLED and (seen.status, seen.code) in _FAILED_CALL


def _judge_answer(kind: Kind, seen: Seen, about: Circumstances) -> Verdict:
    if kind in _MUST_BE_REFUSED or about.blocked:
        return Verdict.WRONG
    if kind is Kind.MODELS:
        return Verdict.SERVED if seen.end is End.WHOLE else Verdict.UNSERVED
    if not seen.numbers <= about.askers:
        return Verdict.CROSSED
    if seen.end is End.WHOLE and seen.numbers and seen.in_band is None and seen.finished == seen.is_stream:
        return Verdict.SERVED
    honest = seen.is_stream and not seen.finished and seen.in_band == "stream_truncated" and seen.numbers
    return Verdict.CUT if honest and about.manner is Manner.CUT_AFTER else Verdict.UNSERVED
