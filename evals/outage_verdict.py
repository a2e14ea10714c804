"""What a run through an outage shows: how each request ended, what the breaker did, and whether that is as promised.

Pure: facts in, verdicts out; opens no socket, starts nothing and reads no clock. All times are seconds since the start
of the run. It shares no code with the gateway, so that it cannot share its mistakes either.

    whole       a stream with content, a finish reason and [DONE], and a message that is complete
    in_band     a stream that ends with an error event and without [DONE], and a message that is left open
    http_error  a status, and an error object in JSON
    lost        anything else: the client cannot tell what became of its request
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import quantiles
from typing import Any

BUCKET_S = 0.25
SLACK_S = 0.1
"""Between what is decided and what shows it: a span ends before its permit is answered, a busy machine lets wait."""

DONE = "[DONE]"


class Outcome(StrEnum):
    """How a request ended, as its client saw it."""

    WHOLE = "whole"
    IN_BAND = "in_band"
    HTTP_ERROR = "http_error"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a client received. status is None if there was no head; complete: the message had its proper end."""

    status: int | None
    content_type: str
    body: bytes
    complete: bool


@dataclass(frozen=True, slots=True)
class Record:
    """One request as its client saw it; `first_content_s` is None if no text came."""

    request_id: str | None
    started_s: float
    first_content_s: float | None
    ended_s: float
    deployment: str | None
    exit: str | None
    outcome: Outcome
    code: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the gateway to an upstream, from its trace; `asked_s` is when its request began."""

    trace: str
    deployment: str
    asked_s: float
    started_s: float
    ended_s: float
    failed: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """How the gateway says the primary stands, at one moment."""

    at_s: float
    state: str


@dataclass(frozen=True, slots=True)
class Outage:
    """The plan and the instants of a run; the breaker is that of the gateway's configuration."""

    primary: str
    backup: str
    killed_s: float
    restarted_s: float
    ended_s: float
    threshold: int
    cooldown_s: float


@dataclass(frozen=True, slots=True)
class Books:
    """What the ledger says once the gateway has ended; `unresolved` names the deployment of each unresolved hold."""

    ok: bool
    open_holds: int
    unresolved: tuple[str, ...]
    rows: Mapping[str, tuple[str, str | None]]
    """By request id: the exit and the code of its row."""

    rows_total: int


@dataclass(frozen=True, slots=True)
class BreakerStory:
    """What the calls to the primary say of its breaker.

    opened_s      the end of the call whose failure reached the threshold; None: it never opened
    probes        the calls from then on that took the probe's place, until one succeeded, in its place or late
    readmitted_s  the end of the probe that succeeded; None: none did
    trespasses    calls that no breaker may let through: into a cooldown, or beside a probe
    """

    opened_s: float | None = None
    probes: tuple[Call, ...] = ()
    readmitted_s: float | None = None
    trespasses: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Gate:
    """One promise, and what was seen."""

    name: str
    passed: bool
    seen: str


# --- one request --------------------------------------------------------------------------------------------------


def events(body: bytes) -> list[str]:
    """The data of each complete event of a stream; what follows the last empty line is none yet."""
    text = body.decode("utf-8", "replace").replace("\r\n", "\n")
    found = []
    for block in text.split("\n\n")[:-1]:
        data = [line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:")]
        if data:
            found.append("\n".join(data))
    return found


def has_content(data: str) -> bool:
    """Whether an event carries text of the model."""
    return any(choice.get("delta", {}).get("content") for choice in _choices(data))


def classify(reply: Reply) -> tuple[Outcome, str | None]:
    """How a request ended, and the code of the error that its client was given."""
    if reply.status is None:
        return Outcome.LOST, None
    if reply.status != 200:
        code = _error_code(reply.body.decode("utf-8", "replace"))
        proper = reply.complete and code is not None and reply.content_type.startswith("application/json")
        return (Outcome.HTTP_ERROR, code) if proper else (Outcome.LOST, None)
    if not reply.content_type.startswith("text/event-stream"):
        return Outcome.LOST, None
    told = events(reply.body)
    codes = [code for data in told if (code := _error_code(data)) is not None]
    if DONE not in told:
        honest = len(codes) == 1 and _error_code(told[-1]) is not None and not reply.complete
        return (Outcome.IN_BAND, codes[0]) if honest else (Outcome.LOST, None)
    finished = any(choice.get("finish_reason") for data in told for choice in _choices(data))
    whole = reply.complete and not codes and finished and told.index(DONE) == len(told) - 1
    return (Outcome.WHOLE if whole and any(map(has_content, told)) else Outcome.LOST), None


def _object(data: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _choices(data: str) -> list[dict[str, Any]]:
    return list(_object(data).get("choices", ()))


def _error_code(data: str) -> str | None:
    """The code of an error object that has all that an error must have."""
    error = _object(data).get("error")
    if not isinstance(error, dict) or not all(isinstance(error.get(key), str) for key in ("message", "type", "code")):
        return None
    return str(error["code"])


# --- the breaker --------------------------------------------------------------------------------------------------


def breaker_story(calls: Iterable[Call], outage: Outage) -> BreakerStory:
    """What the breaker of the primary did, told from the calls that it let through."""
    known = sorted((call for call in calls if call.deployment == outage.primary), key=lambda call: call.started_s)
    opened_s = _opening(known, outage.threshold)
    if opened_s is None:
        return BreakerStory()
    probes: list[Call] = []
    trespasses: list[Call] = []
    for call in _after_permits_from_before(known, opened_s, outage.cooldown_s):
        if _readmission_s(probes) <= call.started_s:
            break
        if _may_probe(call.started_s, probes[-1] if probes else None, opened_s, outage.cooldown_s):
            probes.append(call)
        else:
            trespasses.append(call)
    readmitted_s = _readmission_s(probes)
    return BreakerStory(opened_s, tuple(probes), None if math.isinf(readmitted_s) else readmitted_s, tuple(trespasses))


def _readmission_s(probes: Iterable[Call]) -> float:
    """The end of the first probe that succeeded; infinite if none did."""
    return min((probe.ended_s for probe in probes if not probe.failed), default=math.inf)


def _opening(calls: Iterable[Call], threshold: int) -> float | None:
    """When `threshold` calls in a row had failed."""
    in_a_row = 0
    for call in sorted(calls, key=lambda call: call.ended_s):
        in_a_row = in_a_row + 1 if call.failed else 0
        if in_a_row == threshold:
            return call.ended_s
    return None


def _after_permits_from_before(calls: Sequence[Call], opened_s: float, cooldown_s: float) -> Iterator[Call]:
    """The calls that began once the breaker was open, without those that may have had their permit before: the first
    call of a request from before, within the cooldown.
    """
    called: set[str] = set()
    for call in calls:
        first = call.trace not in called
        called.add(call.trace)
        from_before = first and call.asked_s <= opened_s + SLACK_S and call.started_s < opened_s + cooldown_s
        if call.started_s > opened_s and not from_before:
            yield call


def _may_probe(at_s: float, last: Call | None, opened_s: float, cooldown_s: float) -> bool:
    """Whether the place of the probe is free: a cooldown after the opening, after the last probe failed, or after it
    began if it is still without an answer.
    """
    if last is None:
        return at_s >= opened_s + cooldown_s - SLACK_S
    expired = last.started_s + cooldown_s - SLACK_S <= at_s <= last.ended_s + SLACK_S
    return expired or (last.failed and at_s >= last.ended_s + cooldown_s - SLACK_S)


# --- the timeline -------------------------------------------------------------------------------------------------


def timeline(records: Sequence[Record], samples: Sequence[Sample], outage: Outage) -> dict[str, list[Any]]:
    """Columns with one entry per BUCKET_S: requests that ended whole, by deployment, and otherwise, by outcome; the
    longest wait for first content, in milliseconds, of those whose content came then; the last state that was seen.
    """
    size = math.ceil(outage.ended_s / BUCKET_S)
    counts: dict[str, list[Any]] = {
        name: [0] * size for name in (outage.primary, outage.backup, *(o for o in Outcome if o is not Outcome.WHOLE))
    }
    waits: list[Any] = [None] * size
    states: list[Any] = [None] * size
    for record in records:
        name = record.deployment if record.outcome is Outcome.WHOLE else record.outcome
        if name in counts:
            counts[name][_bucket(record.ended_s, size)] += 1
        if record.first_content_s is not None:
            at = _bucket(record.first_content_s, size)
            waits[at] = max(waits[at] or 0, round((record.first_content_s - record.started_s) * 1000))
    for sample in samples:
        states[_bucket(sample.at_s, size)] = sample.state
    return {**counts, "first_content_max_ms": waits, "breaker": list(_filled(states))}


def _bucket(at_s: float, size: int) -> int:
    return min(max(int(at_s / BUCKET_S), 0), size - 1)


def _filled(states: Iterable[str | None]) -> Iterator[str | None]:
    """A bucket without a sample shows the state before it."""
    last = None
    for state in states:
        last = state or last
        yield last


def first_content_ms(records: Iterable[Record]) -> dict[str, int] | None:
    """Median, 99th percentile and maximum of the wait for first content; None for fewer than two requests."""
    waits = [(r.first_content_s - r.started_s) * 1000 for r in records if r.first_content_s is not None]
    if len(waits) < 2:
        return None
    cuts = quantiles(waits, n=100, method="inclusive")
    return {"p50": round(cuts[49]), "p99": round(cuts[98]), "max": round(max(waits))}


def is_from(record: Record, deployment: str, since_s: float) -> bool:
    """Whether a request that began since then was answered whole by this deployment."""
    return record.outcome is Outcome.WHOLE and record.deployment == deployment and record.started_s >= since_s


# --- the promises -------------------------------------------------------------------------------------------------


def gates(
    records: Sequence[Record], samples: Sequence[Sample], story: BreakerStory, books: Books, outage: Outage
) -> list[Gate]:
    """Every promise, in the order in which a reader asks."""
    return [
        *_request_gates(records, outage),
        *_breaker_gates(records, samples, story, outage),
        *_book_gates(records, books, outage),
    ]


def _request_gates(records: Sequence[Record], outage: Outage) -> Iterator[Gate]:
    count = Counter(record.outcome for record in records)
    lost, failed = count[Outcome.LOST], len(records) - count[Outcome.WHOLE]
    unseen = [r for r in records if r.outcome is not Outcome.WHOLE and r.first_content_s is None]
    cut = [r for r in records if r.outcome is Outcome.IN_BAND]
    met = [r for r in records if r.started_s <= outage.killed_s < r.ended_s]
    saved = [r for r in met if r.outcome is Outcome.WHOLE and r.exit == "failed_over"]
    yield Gate(
        "every request has an answer or an honest error",
        bool(records) and not lost,
        f"{len(records)} requests, {count[Outcome.WHOLE]} whole, {count[Outcome.IN_BAND]} in-band errors, "
        f"{count[Outcome.HTTP_ERROR]} HTTP errors, {lost} lost",
    )
    yield Gate(
        "none fails before its first content: another deployment answers",
        not unseen,
        f"{len(unseen)} of {failed} that failed had no content yet",
    )
    yield Gate(
        "the kill met streams before and after their first content",
        bool(saved) and bool(cut),
        f"of {len(met)} in flight {len(saved)} failed over unseen, {sum(r in cut for r in met)} were cut",
    )
    yield Gate(
        "only streams that the kill met are cut",
        all(record in met for record in cut),
        f"{sum(record not in met for record in cut)} others",
    )


def _breaker_gates(
    records: Sequence[Record], samples: Sequence[Sample], story: BreakerStory, outage: Outage
) -> Iterator[Gate]:
    opened = story.opened_s is not None and any(s.state == "open" and s.at_s >= story.opened_s for s in samples)
    yield Gate("the breaker opened", opened, _after("the kill", outage.killed_s, story.opened_s))
    spacing = [later.started_s - former.started_s for former, later in pairwise(story.probes)]
    yield Gate(
        "no call reaches the primary while it is open or beside a probe",
        story.opened_s is not None and not story.trespasses,
        f"{len(story.trespasses)} calls; probes begin at least {min(spacing, default=0):.2f} s apart",
    )
    yield Gate(
        "exactly one probe readmitted it",
        story.readmitted_s is not None and not story.trespasses,
        f"number {len(story.probes)}, {_after('the restart', outage.restarted_s, story.readmitted_s)}",
    )
    closed = bool(samples) and samples[-1].state == "closed"
    since = math.inf if story.readmitted_s is None else story.readmitted_s + SLACK_S
    back = [record for record in records if record.started_s >= since]
    home = sum(is_from(record, outage.primary, since) for record in back)
    yield Gate(
        "traffic returned to the primary",
        closed and bool(back) and home == len(back),
        f"{home} of {len(back)} requests that began after that",
    )


def _book_gates(records: Sequence[Record], books: Books, outage: Outage) -> Iterator[Gate]:
    yield Gate(
        "the books balance and no hold is open",
        books.ok and not books.open_holds,
        f"verify {'ok' if books.ok else 'failed'}, {books.open_holds} open, {len(books.unresolved)} unresolved",
    )
    in_flight = sum(record.started_s <= outage.killed_s < record.ended_s for record in records)
    explained = all(name == outage.primary for name in books.unresolved) and len(books.unresolved) <= in_flight
    yield Gate(
        "money is unresolved only where the kill met a call",
        explained,
        f"{len(books.unresolved)} holds, {in_flight} requests in flight at the kill",
    )
    wrong = [record for record in records if not _agrees(record, books.rows.get(record.request_id or ""))]
    yield Gate(
        "one row per request, which says what its client saw",
        not wrong and books.rows_total == len(records),
        f"{books.rows_total} rows for {len(records)} requests, {len(wrong)} differ",
    )


def _agrees(record: Record, row: tuple[str, str | None] | None) -> bool:
    """Whether a row tells the same end; the head of a stream names its exit before that is known."""
    if row is None:
        return False
    exit_, code = row
    if record.outcome is Outcome.WHOLE:
        return exit_ == record.exit and code is None
    return exit_ in ("failed", "rejected") and code == record.code


def _after(what: str, start_s: float, at_s: float | None) -> str:
    return "never" if at_s is None else f"{at_s - start_s:.2f} s after {what}"


# --- the trace ----------------------------------------------------------------------------------------------------


def read_calls(lines: Iterable[str], to_run_s: Callable[[int], float]) -> list[Call]:
    """The upstream calls in a trace file whose requests have ended.

    to_run_s  turns nanoseconds since the Unix epoch into seconds since the start of the run
    """
    spans = [json.loads(line) for line in lines]
    asked = {span["trace_id"]: to_run_s(span["start_ns"]) for span in spans if span["name"] == "request"}
    return [
        Call(
            span["trace_id"],
            span["attributes"]["deployment"],
            asked[span["trace_id"]],
            to_run_s(span["start_ns"]),
            to_run_s(span["start_ns"] + span["duration_ns"]),
            span["error"] is not None,
        )
        for span in spans
        if span["name"] == "attempt" and span["trace_id"] in asked
    ]
