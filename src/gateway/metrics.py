"""What has been counted since the start, for the metrics page: exactly, and nobody who counts ever waits.

Decides what is counted and under which labels. Does not know who counts, or who asks.

- Labels are of closed sets: exits, statuses, codes and outcomes of ours, classes of tokens, deployments of the
  configuration. Nothing that a client, a tenant or an upstream has chosen; a code that is not ours is `other`.
- A count is a note on a deque, whose ends are atomic. Once GATHERED lie there, whoever gets the lock without waiting
  enters them all; whoever does not has left its own for the next, and the page enters what is left. So counting blocks
  nobody, and even a finaliser may count.
- The unit of money is the nano-dollar, an integer; the ledger is the authority, this is its echo.
"""

import math
import threading
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from gateway.context import RequestContext
from gateway.exposition import Family, Kind, Sample, bucket_label, counter, counters, counters_by
from gateway.rows import RequestRow

CODES: Final = frozenset(
    {
        "all_providers_failed",
        "budget_exceeded",
        "budget_reserved",
        "draining",
        "expectation_failed",
        "headers_too_large",
        "insufficient_quota",
        "internal_error",
        "invalid_api_key",
        "invalid_request",
        "length_required",
        "method_not_allowed",
        "model_not_allowed",
        "model_not_found",
        "overloaded",
        "rate_limit_exceeded",
        "request_timeout",
        "request_too_large",
        "store_unavailable",
        "stream_truncated",
        "unknown_url",
        "unsupported_content_encoding",
        "upstream_error",
        "upstream_timeout",
        "uri_too_long",
    }
)
"""The codes of the gateway's own errors. An upstream's code may be passed on to its client, but labels no series."""

REQUEST_SECONDS: Final = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
TTFT_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120)
OVERHEAD_SECONDS: Final = (0.0001, 0.00015, 0.00025, 0.0004, 0.0006, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
"""Has the latencies that were promised among its bounds: 100, 150, 250 and 400 microseconds."""

GATHERED: Final = 64
"""Notes that are entered together: taking the lock for each would cost more than entering it."""

_Note = tuple[Callable[[Any], None], Any]
"""What enters something, and what it enters."""


class Histogram:
    """How many values there were up to each bound, and their sum. Belongs to whoever locks it.

    bounds  inclusive upper bounds, ascending
    """

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = (*bounds, math.inf)
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def samples(self, labels: Mapping[str, str]) -> list[Sample]:
        """Its lines: buckets that each include those before, sum, count."""
        totals = list(accumulate(self._counts))
        return [
            *(
                Sample({**labels, "le": bucket_label(bound)}, total, "_bucket")
                for bound, total in zip(self._bounds, totals, strict=True)
            ),
            Sample(labels, self._sum, "_sum"),
            Sample(labels, totals[-1], "_count"),
        ]


class Metrics:
    """Counts from any thread. `_notes` is a deque touched by its atomic ends; `_entering` guards all that is counted,
    and is only ever waited for by families().
    """

    def __init__(self) -> None:
        self._notes: deque[_Note] = deque()
        self._entering = threading.Lock()
        self._requests: dict[tuple[str, int, str], int] = defaultdict(int)
        self._durations: dict[str, Histogram] = defaultdict(lambda: Histogram(REQUEST_SECONDS))
        self._ttft = Histogram(TTFT_SECONDS)
        self._overhead = Histogram(OVERHEAD_SECONDS)
        self._input = self._cached_input = self._cache_write = self._output = self._reasoning = 0
        self._cost_nanousd = 0
        self._refusals: dict[str, int] = defaultdict(int)
        self._calls: dict[tuple[str, str], int] = defaultdict(int)

    # --- counting -------------------------------------------------------------------------------------------------

    def note_request(self, row: RequestRow, context: RequestContext, ended_s: float) -> None:
        """A request has ended as `row` says, at monotonic `ended_s`."""
        facts, duration_s = context.facts, ended_s - context.started_s
        told = (row, facts.cost_nanousd or 0, duration_s, duration_s - facts.upstream_s)
        self._note((self._enter_request, told))

    def note_refusal(self, code: str) -> None:
        """Somebody was refused, or left without an answer, before there was a request that a row could tell of."""
        self._note((self._enter_refusal, code))

    def note_call(self, deployment: str, outcome: str) -> None:
        """An upstream call has ended; the outcome is one of our words."""
        self._note((self._enter_call, (deployment, outcome)))

    # --- telling --------------------------------------------------------------------------------------------------

    def families(self) -> list[Family]:
        """Everything that was noted before this call, and perhaps some of what is noted meanwhile."""
        with self._entering:
            self._enter_notes()
            return self._families()

    def _families(self) -> list[Family]:
        tokens = {
            "input": self._input,
            "cached_input": self._cached_input,
            "cache_write": self._cache_write,
            "output": self._output,
            "reasoning": self._reasoning,
        }
        durations = [
            sample for exit_, seen in sorted(self._durations.items()) for sample in seen.samples({"exit": exit_})
        ]
        return [
            counters(
                "gateway_requests_total",
                "Requests that have a row, by how they ended.",
                ("exit", "status", "code"),
                self._requests,
            ),
            counters_by(
                "gateway_refusals_total",
                "Refused before they were a request that has a row.",
                "code",
                self._refusals,
            ),
            Family(
                "gateway_request_seconds",
                Kind.HISTOGRAM,
                "From the whole request to its settlement.",
                durations,
            ),
            Family(
                "gateway_ttft_seconds",
                Kind.HISTOGRAM,
                "Streams: from the whole request to the first content.",
                self._ttft.samples({}),
            ),
            Family(
                "gateway_overhead_seconds",
                Kind.HISTOGRAM,
                "Requests that called an upstream: all time but what was spent waiting for upstreams.",
                self._overhead.samples({}),
            ),
            counters(
                "gateway_upstream_calls_total",
                "Upstream calls that have ended, by deployment and outcome.",
                ("deployment", "outcome"),
                self._calls,
            ),
            counters_by("gateway_tokens_total", "Tokens that were charged, each under one kind.", "kind", tokens),
            counter("gateway_cost_nanousd_total", "What requests cost, as settled; 1 USD is 1e9.", self._cost_nanousd),
        ]

    # --- entering -------------------------------------------------------------------------------------------------

    def _note(self, note: _Note) -> None:
        self._notes.append(note)
        if len(self._notes) >= GATHERED and self._entering.acquire(False):
            try:
                self._enter_notes()
            finally:
                self._entering.release()

    def _enter_notes(self) -> None:
        notes = self._notes
        while notes:
            enter, facts = notes.popleft()
            enter(facts)

    def _enter_request(self, facts: tuple[RequestRow, int, float, float]) -> None:
        row, cost_nanousd, duration_s, overhead_s = facts
        self._requests[row.exit, row.status, "" if row.code is None else _own(row.code)] += 1
        self._durations[row.exit].observe(duration_s)
        if row.attempts:
            self._overhead.observe(overhead_s if overhead_s > 0 else 0.0)
        if row.ttft_ms is not None:
            self._ttft.observe(row.ttft_ms / 1000)
        if row.prompt_tokens or row.completion_tokens:
            self._enter_tokens(row)
        self._cost_nanousd += cost_nanousd

    def _enter_tokens(self, row: RequestRow) -> None:
        cached, written, reasoning = row.cached_tokens, row.cache_write_tokens, row.reasoning_tokens
        plain, text = row.prompt_tokens - cached - written, row.completion_tokens - reasoning
        self._input += plain if plain > 0 else 0
        self._cached_input += cached
        self._cache_write += written
        self._output += text if text > 0 else 0
        self._reasoning += reasoning

    def _enter_refusal(self, code: str) -> None:
        self._refusals[_own(code)] += 1

    def _enter_call(self, call: tuple[str, str]) -> None:
        self._calls[call] += 1


def _own(code: str) -> str:
    """A code of a bounded set."""
    return code if code in CODES else "other"
