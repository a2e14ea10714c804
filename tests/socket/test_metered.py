"""The upstream with a meter and the open-loop client, face to face: what is billed is what was written."""

import unittest
from collections.abc import Callable

from evals.hostile import Hostile, dripping, half_open
from evals.loop import Loop
from evals.metered import Manner, Meter, Metered, MeteredUpstream
from evals.openloop import IDLE_S, Ask, Client, Conduct, End, Reply, keep
from evals.soak_load import chat, numbered

PATIENCE_S = 20
CAP, TOKENS = 16, 8


class ShiftedLoop(Loop):
    """A loop whose clock can be run ahead."""

    shift_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.shift_s


class FaceToFaceTest(unittest.TestCase):
    """The client asks the upstream itself."""

    def setUp(self) -> None:
        self.loop = ShiftedLoop()
        self.addCleanup(self.loop.close)
        self.meter = Meter()
        self.upstream = MeteredUpstream(self.loop, "d0", self.meter)
        self.addCleanup(self.upstream.close)
        self.client = Client(self.loop, self.upstream.port)
        self.addCleanup(self.client.close_idle)

    def run_until(self, is_done: Callable[[], bool]) -> None:
        """Let the loop run until something is so."""
        end_s = self.loop.now_s() + PATIENCE_S
        self.loop.run(lambda: is_done() or self.loop.now_s() > end_s)
        self.assertTrue(is_done())

    def ask(
        self, number: int, manner: Manner = Manner.GOOD, *, conduct: Conduct = Conduct.STAYS, **fields: object
    ) -> tuple[Reply, Metered]:
        """One request, its answer, and what the meter has of it."""
        self.upstream.ways.manner = lambda _: manner
        replies: list[Reply] = []
        ask = Ask(number, numbered(chat("k", "m", **fields), number), conduct=conduct)
        self.client.ask(ask, self.loop.now_s(), lambda _, reply: replies.append(reply))
        self.run_until(lambda: bool(replies and self.meter.calls) and not self.meter.at_once)
        return replies[0], self.meter.calls[-1]

    def test_a_good_answer_names_its_request_and_tells_its_usage(self) -> None:
        """Whole or streamed, the same tokens are billed."""
        for number, stream in ((6, False), (7, True)):
            with self.subTest(stream=stream):
                reply, call = self.ask(number, stream=stream)
                self.assertEqual((reply.status, reply.end), (200, End.WHOLE))
                self.assertIn(b"n%d " % number, reply.body)
                self.assertIn(b'"completion_tokens":%d' % call.completion, reply.body)
                self.assertIn(b'"prompt_tokens":%d' % call.prompt, reply.body)
                self.assertEqual((call.number, call.completion, call.told), (number, TOKENS, True))
        self.assertEqual([call.cached > 0 for call in self.meter.calls], [True, False])

    def test_an_error_status_bills_nothing(self) -> None:
        """And says so."""
        for manner, status in ((Manner.ERROR_500, 500), (Manner.LIMIT_429, 429)):
            reply, call = self.ask(1, manner)
            self.assertEqual((reply.status, call.billed_nanousd, call.unbilled), (status, 0, True))

    def test_what_cannot_be_used_is_billed_to_its_cap(self) -> None:
        """Junk, and answers that are cut before anything was said."""
        for manner in (Manner.JUNK, Manner.CUT_BEFORE):
            for stream in (False, True):
                with self.subTest(manner, stream=stream):
                    _, call = self.ask(1, manner, stream=stream)
                    self.assertEqual((call.completion, call.told), (CAP, False))
        _, call = self.ask(1, Manner.CUT_AFTER)
        self.assertEqual((call.completion, call.told), (CAP, False))

    def test_a_stream_that_is_cut_is_billed_for_what_it_wrote(self) -> None:
        """All of which arrives."""
        reply, call = self.ask(1, Manner.CUT_AFTER, stream=True)
        self.assertEqual((reply.end, call.completion, call.told), (End.CUT, TOKENS // 2, False))
        self.assertEqual(reply.body.count(b"token "), call.completion)

    def test_a_reset_bills_only_a_call_that_was_its_connections_first(self) -> None:
        """One that had served others has not read on."""
        self.ask(1)
        reply, call = self.ask(2, Manner.RESET)
        self.assertEqual((reply.end, call.billed_nanousd, call.unbilled), (End.CUT, 0, True))
        reply, call = self.ask(3, Manner.RESET)
        self.assertEqual((reply.end, call.completion, call.unbilled), (End.CUT, CAP, False))

    def test_who_leaves_pays_what_was_written_or_the_cap(self) -> None:
        """A stream by its tokens, a whole answer to its cap."""
        reply, call = self.ask(1, conduct=Conduct.LEAVES_MIDWAY, stream=True)
        self.assertEqual((reply.end, call.told), (End.LEFT, False))
        self.assertTrue(1 <= call.completion < TOKENS)
        self.upstream.ways.latency_s = lambda _: PATIENCE_S
        reply, call = self.ask(2, conduct=Conduct.LEAVES_BEFORE)
        self.assertEqual((reply.end, reply.status, call.completion), (End.LEFT, 0, CAP))
        reply, call = self.ask(3, conduct=Conduct.LEAVES_BEFORE, stream=True)
        self.assertEqual((call.completion, call.prompt > 0), (0, True))

    def test_a_slow_reader_gets_all_of_it(self) -> None:
        """However small its buffer is."""
        reply, call = self.ask(1, conduct=Conduct.READS_SLOWLY, stream=True, user="wide", max_tokens=40_000)
        self.assertEqual((reply.end, call.completion, call.told), (End.WHOLE, 20_000, True))
        self.assertEqual(reply.body.count(b"token "), 20_000)

    def test_a_connection_is_used_again_unless_it_was_closed(self) -> None:
        """As the pool of an HTTP library does."""
        for number in (1, 2):
            self.ask(number)
        self.assertEqual(len(self.upstream.peers), 1)
        self.upstream.hang_up()
        self.run_until(lambda: not self.client.idle)
        reply, _ = self.ask(3)
        self.assertEqual((reply.status, len(self.upstream.peers), self.client.idle), (200, 1, 1))

    def test_a_connection_that_idled_too_long_is_not_used_again(self) -> None:
        """The next one is its own first, which the meter can tell."""
        self.ask(1)
        self.loop.shift_s = IDLE_S + 1
        _, call = self.ask(2, Manner.RESET)
        self.assertFalse(call.unbilled)

    def test_the_most_at_a_time_is_counted(self) -> None:
        """While they wait for their answers."""
        self.upstream.ways.latency_s = lambda _: 0.05
        replies: list[Reply] = []
        for number in (1, 2, 3):
            ask = Ask(number, numbered(chat("k", "m"), number))
            self.client.ask(ask, self.loop.now_s(), lambda _, reply: replies.append(reply))
        self.run_until(lambda: len(replies) == 3)
        self.assertEqual((self.meter.most_at_once, self.meter.at_once), (3, 0))

    def test_a_timetable_is_kept_in_order(self) -> None:
        """Whatever is late is done at once, with the moment that it was due at."""
        start_s, done = self.loop.now_s(), list[tuple[str, float]]()
        keep(
            self.loop,
            iter([(start_s - 1, "late"), (start_s + 0.01, "due")]),
            lambda name, at_s: done.append((name, at_s)),
        )
        self.assertEqual(done, [("late", start_s - 1)])
        self.run_until(lambda: len(done) == 2)
        self.assertEqual(done[1], ("due", start_s + 0.01))

    def test_answers_are_read_before_what_became_due_meanwhile(self) -> None:
        """Else a client that is late would never read again."""
        start_s, done = self.loop.now_s(), list[str]()

        def act(name: str, _: float) -> None:
            done.append(name)
            self.loop.shift_s += 1

        keep(self.loop, iter([(start_s - 1, "late"), (start_s + 0.5, "due meanwhile")]), act)
        self.assertEqual(done, ["late"])
        self.run_until(lambda: len(done) == 2)

    def test_nothing_is_done_before_its_time(self) -> None:
        """Not even the first."""
        done: list[float] = []
        keep(self.loop, iter([(self.loop.now_s() + PATIENCE_S, None)]), lambda _, at_s: done.append(at_s))
        self.assertEqual(done, [])

    def test_who_is_not_ended_has_overstayed(self) -> None:
        """This upstream ends nobody; one that is closed has ended everybody."""
        told: list[bool] = []
        address = ("127.0.0.1", self.upstream.port)
        Hostile(self.loop, address, half_open(), self.loop.now_s() + 0.05, told.append)
        self.run_until(lambda: told == [False])
        Hostile(self.loop, address, dripping(PATIENCE_S), self.loop.now_s() + PATIENCE_S, told.append)
        self.run_until(lambda: bool(self.upstream.peers))
        self.upstream.close()
        self.run_until(lambda: told == [False, True])
