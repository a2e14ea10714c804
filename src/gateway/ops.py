"""The metrics page: what has been counted, and what is looked at when somebody asks.

Decides what an operator sees of the gateway's inside. Whoever reaches the listener may read it, so it says nothing of
any one tenant or key, and nothing that a client typed.

Nothing here waits for the ledger's writer, or for long: what cannot be read now is left out of the page.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from gateway import __version__
from gateway.books import Books
from gateway.drive import drive
from gateway.errors import StoreUnavailable
from gateway.exposition import Family, Kind, Sample, counter, counters_by, gauge, render
from gateway.gateway import Gateway
from gateway.health import STATES
from gateway.metrics import Metrics
from gateway.oplog import OpLog
from gateway.vitals import build_families, process_families
from tracekit.sinks import Sink

Source = Callable[[], Iterable[Family]]
"""Gives some families, or raises StoreUnavailable or OSError if there is no telling now."""


class Front(Protocol):
    """The HTTP front as it is counted."""

    @property
    def in_flight(self) -> int:
        """Exchanges that are being worked on."""
        ...

    @property
    def queued(self) -> int:
        """Requests that wait for a place."""
        ...

    @property
    def connections(self) -> int:
        """Open connections."""
        ...

    @property
    def parked(self) -> int:
        """Connections that take no thread."""
        ...

    @property
    def threads(self) -> int:
        """Threads that serve requests."""
        ...

    @property
    def turned_away(self) -> int:
        """Connections that were refused since the start: too many were open."""
        ...


class MetricsPage:
    """The page, from all of its sources. A source that fails costs its own families only.

    on_error  is told of a source that failed in any other way than a source may
    """

    def __init__(self, sources: Iterable[Source], on_error: Callable[[BaseException], None]) -> None:
        self._sources = tuple(sources)
        self._on_error = on_error

    def __call__(self) -> bytes:
        """The page as it is now."""
        return render(family for source in self._sources for family in self._families(source))

    def _families(self, source: Source) -> Iterable[Family]:
        try:
            return list(source())
        except (StoreUnavailable, OSError):
            return ()
        except Exception as error:  # noqa: BLE001 - the rest of the page is needed all the more
            self._on_error(error)
            return ()


def metrics_page(
    metrics: Metrics,
    books: Books,
    log: OpLog,
    *,
    front: Callable[[], Front],
    gateway: Callable[[], Gateway],
    started_ms: int,
    on_error: Callable[[BaseException], None],
    spans: Sink | None = None,
) -> MetricsPage:
    """The page of a whole process.

    front, gateway  give those that serve now
    started_ms      when the process started, UTC milliseconds
    on_error        see MetricsPage
    spans           where spans are kept; None if nobody has asked for them
    """
    sources: tuple[Source, ...] = (
        metrics.families,
        lambda: front_families(front()),
        lambda: fleet_families(gateway()),
        lambda: money_families(books),
        lambda: store_families(books),
        lambda: wal_families(books),
        lambda: cache_families(books),
        lambda: semantic_families(books),
        lambda: judge_families(books),
        lambda: log_families(log),
        lambda: span_families(spans),
        lambda: process_families(started_ms),
        lambda: build_families(__version__),
    )
    return MetricsPage(sources, on_error)


def front_families(front: Front) -> list[Family]:
    """How busy the listener is."""
    return [
        gauge(
            "gateway_in_flight",
            "HTTP exchanges being worked on, or streaming; those that wait for a place are gateway_queued.",
            front.in_flight,
        ),
        gauge("gateway_queued", "Requests that wait for a place.", front.queued),
        gauge("gateway_connections", "Open client connections.", front.connections),
        gauge("gateway_connections_parked", "Client connections that take no thread.", front.parked),
        gauge("gateway_threads", "Threads that serve requests, idle ones included.", front.threads),
        counter("gateway_connections_turned_away_total", "Connections refused: too many were open.", front.turned_away),
    ]


def fleet_families(gateway: Gateway) -> list[Family]:
    """How the deployments are doing."""
    states, overbilled = gateway.deployment_states(), gateway.overbilled
    return [
        Family(
            "gateway_deployment_state",
            Kind.GAUGE,
            "1 for the state that a deployment is in, 0 for all others.",
            [
                Sample({"deployment": name, "state": state}, state == now)
                for name, now in states.items()
                for state in STATES
            ],
        ),
        Family(
            "gateway_deployment_overbilled",
            Kind.GAUGE,
            "1 if it was seen to bill more than a hold.",
            [Sample({"deployment": name}, name in overbilled) for name in states],
        ),
    ]


def money_families(books: Books) -> list[Family]:
    """What is held and what is unresolved. Raises StoreUnavailable."""
    held, unresolved = drive(books.ledger.pending_totals())
    return [
        gauge("gateway_held_nanousd", "Money held for calls that are under way; 1 USD is 1e9.", held),
        gauge("gateway_unresolved_nanousd", "Money of calls whose outcome is unknown; 1 USD is 1e9.", unresolved),
    ]


def store_families(books: Books) -> list[Family]:
    """How the ledger's storage is doing, from memory."""
    store = books.store
    return [
        gauge("gateway_store_writable", "1 if the last commit succeeded; at 0 no request is served.", store.writable),
        gauge("gateway_queued_writes", "Writes that wait for a commit and that no request waits for.", store.queued),
        counter("gateway_rows_dropped_total", "Rows without money that a full queue lost.", store.dropped),
    ]


def wal_families(books: Books) -> list[Family]:
    """How long the ledger's write-ahead log is."""
    return [gauge("gateway_wal_bytes", "Size of the ledger's write-ahead log.", books.store.wal_bytes)]


def cache_families(books: Books) -> list[Family]:
    """What the exact cache holds, and what it did."""
    stats = books.cache.stats()
    return [
        gauge("gateway_cache_entries", "Answers in the exact cache.", stats["entries"]),
        gauge("gateway_cache_bytes", "Their size.", stats["bytes"]),
        counters_by(
            "gateway_cache_lookups_total",
            "Requests that were looked up in the exact cache.",
            "result",
            {"hit": stats["hits"], "miss": stats["misses"]},
        ),
        counters_by(
            "gateway_cache_stores_total",
            "Answers that were to be kept.",
            "result",
            {"stored": stats["stored"], "dropped": stats["dropped"]},
        ),
        counters_by(
            "gateway_cache_removals_total",
            "Answers that were kept and are no longer.",
            "reason",
            {"evicted": stats["evicted"], "expired": stats["expired"]},
        ),
    ]


def semantic_families(books: Books) -> list[Family]:
    """What the semantic cache holds, and what it did; nothing where it was never turned on."""
    if books.semantic is None:
        return []
    stats = books.semantic.stats()
    return [
        gauge("gateway_semantic_entries", "Questions in the semantic cache.", stats["entries"]),
        gauge("gateway_semantic_bytes", "Their size; answers count in the exact cache.", stats["bytes"]),
        counters_by(
            "gateway_semantic_lookups_total",
            "Questions that were looked up in the semantic cache, by what became of them.",
            "result",
            stats["lookups"],
        ),
        counters_by(
            "gateway_semantic_vetoes_total",
            "Wordings of the same key that the verifier refused, by its reason.",
            "reason",
            stats["vetoes"],
        ),
        counters_by(
            "gateway_semantic_ineligible_total",
            "Requests that the exact cache takes and the semantic one does not, by the reason.",
            "reason",
            stats["ineligible"],
        ),
        counters_by(
            "gateway_semantic_comparisons_total",
            "Answers that were withheld, by whether the upstream then said the same.",
            "answer",
            stats["comparisons"],
        ),
        counters_by(
            "gateway_semantic_judged_comparisons_total",
            "The same of answers that a judge's verdict had found.",
            "answer",
            stats["judged_comparisons"],
        ),
        counters_by(
            "gateway_semantic_stores_total",
            "Questions that were to be kept.",
            "result",
            {"stored": stats["stored"], "dropped": stats["dropped"]},
        ),
        counters_by(
            "gateway_semantic_removals_total",
            "Questions that were kept and are no longer.",
            "reason",
            {"evicted": stats["evicted"], "expired": stats["expired"]},
        ),
    ]


def judge_families(books: Books) -> list[Family]:
    """What the judge of the semantic cache was asked, and what it said; nothing where nobody judges."""
    if books.judging is None:
        return []
    stats = books.judging.stats()
    return [
        gauge("gateway_judge_index_entries", "Questions in memory, among which near ones are found.", stats["entries"]),
        gauge("gateway_judge_index_bytes", "Their size.", stats["bytes"]),
        gauge("gateway_judge_waiting", "Questions and audits that wait.", stats["waiting"]),
        counters_by(
            "gateway_judge_questions_total",
            "Questions that were learnt, by what became of them.",
            "result",
            stats["questions"],
        ),
        counters_by(
            "gateway_judge_verdicts_total",
            "What the judge said of a pair, or why it said nothing.",
            "verdict",
            stats["verdicts"],
        ),
        counters_by(
            "gateway_judge_audits_total",
            "What the auditor said of a pair that was served: anything but same ends the alias.",
            "verdict",
            stats["audits"],
        ),
        counters_by(
            "gateway_judge_bars_total",
            "Near pairs that were shown to no judge, by what was seen between them.",
            "reason",
            stats["bars"],
        ),
    ]


def log_families(log: OpLog) -> list[Family]:
    """What the operator's log was told, and what it has lost."""
    return [
        counter(
            "gateway_errors_total",
            "Exceptions that are no outcome of a request; of those of the storage the log has the first and how many.",
            log.errors,
        ),
        counter("gateway_log_lines_dropped_total", "Lines for which the log had no room.", log.dropped),
    ]


def span_families(spans: Sink | None) -> list[Family]:
    """What is missing in the file of the spans."""
    if spans is None:
        return []
    return [counter("gateway_spans_dropped_total", "Spans that the queue or the disk had no room for.", spans.dropped)]
