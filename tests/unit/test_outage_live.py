"""What the live outage run concludes from what it saw."""

import json
import tempfile
import unittest
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

from evals.outage_live import ARTIFACT, main
from evals.outage_verdict import (
    Books,
    BreakerStory,
    Call,
    Outage,
    Outcome,
    Record,
    Reply,
    Sample,
    breaker_story,
    classify,
    events,
    first_content_ms,
    gates,
    is_from,
    read_calls,
    timeline,
)

OUTAGE = Outage("one", "two", killed_s=10, restarted_s=20, ended_s=30, threshold=3, cooldown_s=2)
TEXT = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
FINISH = b'data: {"choices":[{"delta":{},"finish_reason":"length"}]}\n\n'
ERROR = b'data: {"error":{"message":"cut","type":"server_error","param":null,"code":"stream_truncated"}}\n\n'
DONE = b"data: [DONE]\n\n"
REFUSAL = b'{"error":{"message":"no","type":"server_error","param":null,"code":"all_providers_failed"}}'


def stream(body: bytes, *, complete: bool) -> Outcome:
    """How a stream with this body ended."""
    return classify(Reply(200, "text/event-stream; charset=utf-8", body, complete))[0]


class ClassifyTest(unittest.TestCase):
    """How one request ended."""

    def test_a_whole_stream_has_content_a_finish_reason_and_its_end_mark(self) -> None:
        """Comments and line ends of either kind are no matter."""
        self.assertEqual(stream(b": ping\n\n" + TEXT + FINISH + DONE, complete=True), Outcome.WHOLE)
        crlf = (TEXT + FINISH + DONE).replace(b"\n", b"\r\n")
        self.assertEqual(stream(crlf, complete=True), Outcome.WHOLE)

    def test_a_stream_that_lacks_any_of_these_is_lost(self) -> None:
        """Its client cannot tell what became of it."""
        for body in (b"", TEXT + DONE, FINISH + DONE, TEXT + FINISH, TEXT + FINISH + DONE + TEXT, TEXT + DONE[:-1]):
            with self.subTest(body=body):
                self.assertEqual(stream(body, complete=True), Outcome.LOST)
        self.assertEqual(stream(TEXT + FINISH + DONE, complete=False), Outcome.LOST)

    def test_a_cut_stream_ends_with_its_error_and_is_left_open(self) -> None:
        """And tells the code."""
        reply = Reply(200, "text/event-stream", TEXT + ERROR, complete=False)
        self.assertEqual(classify(reply), (Outcome.IN_BAND, "stream_truncated"))

    def test_an_error_that_looks_finished_is_lost(self) -> None:
        """An end mark or a proper end of the message after it, something behind it, or an error that is no object."""
        self.assertEqual(stream(TEXT + ERROR + DONE, complete=True), Outcome.LOST)
        self.assertEqual(stream(TEXT + ERROR, complete=True), Outcome.LOST)
        self.assertEqual(stream(TEXT + ERROR + TEXT, complete=False), Outcome.LOST)
        self.assertEqual(stream(TEXT + ERROR[:-1], complete=False), Outcome.LOST)
        self.assertEqual(stream(TEXT + b'data: {"error":"cut"}\n\n', complete=False), Outcome.LOST)

    def test_an_http_error_is_an_error_object_in_json(self) -> None:
        """Anything else with a status is lost, and so is no answer at all."""
        proper = Reply(503, "application/json", REFUSAL, complete=True)
        self.assertEqual(classify(proper), (Outcome.HTTP_ERROR, "all_providers_failed"))
        for broken in (
            replace(proper, content_type="text/plain"),
            replace(proper, complete=False),
            replace(proper, body=b"oops"),
            replace(proper, body=b'{"error":{"message":"no"}}'),
            replace(proper, body=b"[]"),
            replace(proper, status=None),
            replace(proper, status=200),
        ):
            with self.subTest(broken=broken):
                self.assertEqual(classify(broken), (Outcome.LOST, None))

    def test_half_an_event_is_none(self) -> None:
        """What follows the last empty line was not sent whole."""
        self.assertEqual(events(b"data: a\n\ndata: b\ndata:c\n\ndata: d"), ["a", "b\nc"])


def call(started_s: float, ended_s: float, *, failed: bool = False, asked_s: float | None = None) -> Call:
    """A call to the primary, of a request of its own."""
    return Call(f"{started_s}/{ended_s}", "one", started_s if asked_s is None else asked_s, started_s, ended_s, failed)


CUT = [call(9, 10.01, failed=True), call(9.1, 10.02, failed=True), call(9.2, 10.03, failed=True)]


class BreakerStoryTest(unittest.TestCase):
    """What the calls to the primary say of its breaker."""

    def test_failures_in_a_row_open_it(self) -> None:
        """A success between them starts the count anew; calls to others do not count."""
        self.assertEqual(breaker_story(CUT, OUTAGE).opened_s, 10.03)
        healthy = [*CUT[:2], call(9.3, 10.025), CUT[2]]
        self.assertEqual(breaker_story(healthy, OUTAGE), BreakerStory())
        elsewhere = [replace(one, deployment="two") for one in CUT]
        self.assertEqual(breaker_story(elsewhere, OUTAGE), BreakerStory())

    def test_probes_go_on_until_one_succeeds(self) -> None:
        """What follows is traffic."""
        probes = call(12.1, 12.2, failed=True), call(14.3, 14.5)
        story = breaker_story([*CUT, *probes, call(14.5, 15), call(14.6, 15, failed=True)], OUTAGE)
        self.assertEqual(story, BreakerStory(10.03, probes, 14.5))

    def test_a_call_into_the_cooldown_is_a_trespass(self) -> None:
        """After the opening, and after each failed probe."""
        early, probe, again = call(11, 11.1, failed=True), call(12.1, 12.2, failed=True), call(13, 13.1, failed=True)
        story = breaker_story([*CUT, early, probe, again], OUTAGE)
        self.assertEqual((story.probes, story.trespasses), ((probe,), (early, again)))
        self.assertIsNone(story.readmitted_s)

    def test_a_call_beside_a_probe_is_a_trespass(self) -> None:
        """Even if both succeed."""
        probe, beside = call(12.1, 12.9), call(12.5, 12.6)
        story = breaker_story([*CUT, probe, beside], OUTAGE)
        self.assertEqual((story.probes, story.trespasses), ((probe,), (beside,)))

    def test_a_probe_that_is_out_for_a_cooldown_loses_its_place(self) -> None:
        """The next caller is a probe too, and the first success of either closes."""
        late, next_one = call(12.1, 15), call(14.2, 14.4)
        story = breaker_story([*CUT, late, next_one, call(14.5, 14.6)], OUTAGE)
        self.assertEqual(story, BreakerStory(10.03, (late, next_one), 14.4))
        longer = call(14.2, 17)
        story = breaker_story([*CUT, late, longer, call(15.1, 15.2)], OUTAGE)
        self.assertEqual(story, BreakerStory(10.03, (late, longer), 15))

    def test_a_request_from_before_may_have_its_permit_from_before(self) -> None:
        """But not a second one."""
        slow = call(10.5, 10.6, failed=True, asked_s=9.5)
        self.assertEqual(breaker_story([*CUT, slow], OUTAGE).trespasses, ())
        retried = replace(slow, trace=CUT[0].trace)
        self.assertEqual(breaker_story([*CUT, retried], OUTAGE).trespasses, (retried,))

    def test_calls_are_read_from_a_trace(self) -> None:
        """Each with the beginning of its request; one whose request has not ended is left out."""

        def span(name: str, trace: str, start_ns: int, error: str | None) -> str:
            named = {"attributes": {"deployment": "one"}, "name": name, "trace_id": trace}
            return json.dumps(named | {"start_ns": start_ns, "duration_ns": 5, "error": error})

        lines = [span("attempt", "a", 2, "503"), span("request", "a", 1, None), span("attempt", "b", 3, None)]
        self.assertEqual(read_calls(lines, float), [Call("a", "one", 1, 2, 7, failed=True)])


WHOLE = Record("a", 1, 1.1, 1.2, "one", "routed", Outcome.WHOLE, None)
SAVED = Record("b", 9.9, 10.2, 10.4, "two", "failed_over", Outcome.WHOLE, None)
BROKEN = Record("c", 9.8, 9.9, 10.1, "one", "routed", Outcome.IN_BAND, "stream_truncated")
BACK = Record("d", 25, 25.1, 25.2, "one", "routed", Outcome.WHOLE, None)


class HomeTest(unittest.TestCase):
    """Who is back at the primary."""

    def test_only_what_came_whole_from_it_is(self) -> None:
        """And began since then: not what was cut, what another deployment answered, or what is from before."""
        for record, expected in ((BACK, True), (replace(BACK, started_s=20), True), (WHOLE, False)):
            self.assertEqual(is_from(record, "one", 20), expected)
        for changed in ({"deployment": "two"}, {"outcome": Outcome.IN_BAND}):
            self.assertFalse(is_from(replace(BACK, **changed), "one", 20))


class TimelineTest(unittest.TestCase):
    """Requests and states in buckets of a quarter of a second."""

    def test_a_request_counts_where_it_ended(self) -> None:
        """By its deployment if it is whole, else by its outcome; after the end of the run in the last bucket."""
        late = replace(BACK, ended_s=31)
        columns = timeline([WHOLE, SAVED, BROKEN, late], [], OUTAGE)
        found = {name: [at for at, count in enumerate(columns[name]) if count] for name in ("one", "two", "in_band")}
        self.assertEqual(found, {"one": [4, 119], "two": [41], "in_band": [40]})
        self.assertEqual({len(column) for column in columns.values()}, {120})

    def test_the_longest_wait_counts_where_content_came(self) -> None:
        """In milliseconds; a bucket without any has none."""
        columns = timeline([WHOLE, replace(WHOLE, started_s=0.5), SAVED], [], OUTAGE)
        self.assertEqual(columns["first_content_max_ms"][4], 600)
        self.assertEqual(columns["first_content_max_ms"][40], 300)
        self.assertIsNone(columns["first_content_max_ms"][5])

    def test_a_bucket_shows_the_last_state_seen(self) -> None:
        """One without a sample shows the one before."""
        columns = timeline([], [Sample(0.3, "closed"), Sample(0.6, "open"), Sample(0.7, "half_open")], OUTAGE)
        self.assertEqual(columns["breaker"][:5], [None, "closed", "half_open", "half_open", "half_open"])

    def test_waits_are_told_by_their_distribution(self) -> None:
        """Of those that got content; one alone has none."""
        fast, none = replace(WHOLE, first_content_s=1.2), replace(WHOLE, first_content_s=None)
        self.assertEqual(first_content_ms([WHOLE, fast, none]), {"p50": 150, "p99": 199, "max": 200})
        self.assertIsNone(first_content_ms([WHOLE, none]))


RECORDS = [WHOLE, SAVED, BROKEN, BACK]
SAMPLES = [Sample(9, "closed"), Sample(11, "open"), Sample(29, "closed")]
STORY = BreakerStory(10.1, (call(12.2, 12.3, failed=True), call(22, 22.2)), 22.2)
BOOKS = Books(
    ok=True,
    open_holds=0,
    unresolved=("one",),
    rows={
        "a": ("routed", None),
        "b": ("failed_over", None),
        "c": ("failed", "stream_truncated"),
        "d": ("routed", None),
    },
    rows_total=4,
)


class GatesTest(unittest.TestCase):
    """What is promised of an outage."""

    def failed(
        self,
        records: list[Record] = RECORDS,
        samples: list[Sample] = SAMPLES,
        story: BreakerStory = STORY,
        books: Books = BOOKS,
    ) -> list[str]:
        """The first words of the gates that failed."""
        return [" ".join(g.name.split()[:3]) for g in gates(records, samples, story, books, OUTAGE) if not g.passed]

    def with_row(self, record: Record) -> tuple[list[Record], Books]:
        """One more request, with the row that belongs to it."""
        whole = record.outcome is Outcome.WHOLE
        row = (record.exit or "", None) if whole else ("failed", record.code)
        return [*RECORDS, record], replace(BOOKS, rows={**BOOKS.rows, record.request_id or "": row}, rows_total=5)

    def test_a_run_as_promised_passes_all(self) -> None:
        """Nothing is left to chance in what they look at."""
        self.assertEqual(self.failed(), [])

    def test_a_request_without_an_end_fails(self) -> None:
        """After content it fails this one alone."""
        records, books = self.with_row(replace(BROKEN, request_id="e", outcome=Outcome.LOST))
        self.assertEqual(self.failed(records, books=books), ["every request has"])

    def test_a_failure_before_content_fails(self) -> None:
        """However honest it is."""
        refused = Record("e", 11, None, 11.1, None, "failed", Outcome.HTTP_ERROR, "all_providers_failed")
        records, books = self.with_row(refused)
        self.assertEqual(self.failed(records, books=books), ["none fails before"])

    def test_a_run_that_met_only_one_side_proves_nothing(self) -> None:
        """Neither without a failover in flight nor without a cut."""
        for gone in (SAVED, BROKEN):
            records = [record for record in RECORDS if record is not gone]
            self.assertEqual(self.failed(records, books=replace(BOOKS, rows_total=3)), ["the kill met"])

    def test_a_cut_that_the_kill_does_not_explain_fails(self) -> None:
        """A stream that began later had a healthy upstream."""
        records, books = self.with_row(replace(BROKEN, request_id="e", started_s=15, first_content_s=16, ended_s=17))
        self.assertEqual(self.failed(records, books=books), ["only streams that"])

    def test_a_breaker_that_stays_closed_fails(self) -> None:
        """By its calls, or by what the gateway says."""
        self.assertEqual(
            self.failed(story=BreakerStory()),
            ["the breaker opened", "no call reaches", "exactly one probe", "traffic returned to"],
        )
        self.assertEqual(self.failed(samples=[SAMPLES[0], SAMPLES[2]]), ["the breaker opened"])

    def test_a_trespass_fails(self) -> None:
        """It also leaves open which call readmitted the primary."""
        story = replace(STORY, trespasses=(call(11, 11.1),))
        self.assertEqual(self.failed(story=story), ["no call reaches", "exactly one probe"])

    def test_traffic_that_stays_away_fails(self) -> None:
        """One request that is served elsewhere is enough; so is a breaker that is not closed at the end."""
        records, books = self.with_row(replace(BACK, request_id="e", deployment="two", exit="failed_over"))
        self.assertEqual(self.failed(records, books=books), ["traffic returned to"])
        self.assertEqual(self.failed(samples=SAMPLES[:2]), ["traffic returned to"])

    def test_books_that_differ_fail(self) -> None:
        """By verify, or by a hold that is left open."""
        self.assertEqual(self.failed(books=replace(BOOKS, ok=False)), ["the books balance"])
        self.assertEqual(self.failed(books=replace(BOOKS, open_holds=1)), ["the books balance"])

    def test_unresolved_money_must_be_explained(self) -> None:
        """Of the primary, and not more than was in flight."""
        for unresolved in (("two",), ("one", "one", "one")):
            books = replace(BOOKS, unresolved=unresolved)
            self.assertEqual(self.failed(books=books), ["money is unresolved"])

    def test_rows_must_tell_what_clients_saw(self) -> None:
        """Each has one, with its exit and its code, and there are no others."""
        for rows in (
            {**BOOKS.rows, "b": ("routed", None)},
            {**BOOKS.rows, "c": ("failed", "upstream_error")},
            {**BOOKS.rows, "c": ("routed", None)},
            {name: row for name, row in BOOKS.rows.items() if name != "a"},
        ):
            with self.subTest(rows=rows):
                self.assertEqual(self.failed(books=replace(BOOKS, rows=rows)), ["one row per"])
        self.assertEqual(self.failed(books=replace(BOOKS, rows_total=5)), ["one row per"])


class NotMeasuredTest(unittest.TestCase):
    """Without an engine."""

    def test_the_artifact_says_that_nothing_was_measured(self) -> None:
        """That is no failure, unless it is asked to be one."""
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()) as told:
            arguments = ["--engine-python", f"{folder}/python", "--engine-folder", folder, "--results", folder]
            self.assertEqual(main(arguments), 0)
            self.assertEqual(json.loads((Path(folder) / ARTIFACT).read_text())["status"], "not measured")
            self.assertEqual(main([*arguments, "--require"]), 1)
        self.assertIn("not measured", told.getvalue())


if __name__ == "__main__":
    unittest.main()
