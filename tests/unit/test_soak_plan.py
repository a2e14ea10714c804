"""What a soak does when, what its clients may see, and how both are told."""

import unittest
from collections import Counter
from dataclasses import replace
from itertools import pairwise

from evals.metered import UNBILLED, Manner
from evals.openloop import End, unchunked
from evals.soak_plan import (
    SHARES,
    Circumstances,
    Kind,
    Seen,
    Trouble,
    Verdict,
    arrivals,
    faults,
    judge,
    read,
    suffers,
)
from evals.soak_tally import Block, Window

TROUBLES = list(Trouble)
ANSWER = b'{"choices":[{"message":{"content":"n7 said"}}]}'
STREAM = b'data: {"choices":[{"delta":{"content":"n7 token "}}]}\n\n'
DONE = b"data: [DONE]\n\n"
CUT = b'data: {"error":{"message":"cut","type":"server_error","param":null,"code":"stream_truncated"}}\n\n'
ABOUT = Circumstances(Manner.GOOD, frozenset({7}))


def refusal(code: str) -> bytes:
    """The body of an error."""
    return b'{"error": {"message": "no", "type": "t", "param": null, "code": "%b"}}' % code.encode()


def verdict(kind: Kind, body: bytes, status: int = 200, end: End = End.WHOLE, about: Circumstances = ABOUT) -> Verdict:
    """The verdict on one answer."""
    return judge(kind, read(end, status, body), about)


class TimetableTest(unittest.TestCase):
    """The load and the faults."""

    def test_the_same_seed_asks_the_same(self) -> None:
        """And another one does not."""
        load = list(arrivals(50, 20, 7))
        self.assertEqual(list(arrivals(50, 20, 7)), load)
        self.assertNotEqual(list(arrivals(50, 20, 8)), load)

    def test_requests_come_in_order_at_about_the_rate(self) -> None:
        """Numbered from the first, all kinds among them."""
        load = list(arrivals(100, 100, 7, first=5))
        self.assertEqual([arrival.number for arrival in load], list(range(5, 5 + len(load))))
        self.assertTrue(all(former.at_s <= later.at_s < 100 for former, later in pairwise(load)))
        self.assertAlmostEqual(len(load), 10_000, delta=500)
        kinds = Counter(arrival.kind for arrival in load)
        for kind, share in SHARES.items():
            self.assertAlmostEqual(kinds[kind] / len(load), share / 1000, delta=0.02)

    def test_the_shares_are_of_a_thousand(self) -> None:
        """And no kind is left out."""
        self.assertEqual((sum(SHARES.values()), set(SHARES)), (1000, set(Kind)))

    def test_each_fault_comes_once_before_any_comes_again(self) -> None:
        """At equal distances, and none lasts beyond the next, or the end."""
        planned = faults(5 * (2 * len(TROUBLES) + 1), 5, 7, TROUBLES)
        self.assertEqual(set(Counter(fault.trouble for fault in planned).values()), {2})
        self.assertEqual({fault.trouble for fault in planned[: len(TROUBLES)]}, set(TROUBLES))
        self.assertEqual([fault.at_s for fault in planned], [5.0 * number for number in range(1, len(planned) + 1)])
        self.assertTrue(all(0 < fault.seconds < 5 for fault in planned))

    def test_half_of_the_requests_suffer(self) -> None:
        """Always the same ones."""
        met = [suffers(number, 7) for number in range(2000)]
        self.assertEqual(met, [suffers(number, 7) for number in range(2000)])
        self.assertAlmostEqual(sum(met), 1000, delta=100)


class JudgeTest(unittest.TestCase):
    """What a client may see."""

    def test_a_whole_right_answer_is_served(self) -> None:
        """Streamed or not."""
        self.assertIs(verdict(Kind.WHOLE, ANSWER), Verdict.SERVED)
        self.assertIs(verdict(Kind.STREAM, STREAM + DONE), Verdict.SERVED)

    def test_an_answer_that_is_not_whole_is_none(self) -> None:
        """Cut, late, without its end mark, with an error behind it, or without a word."""
        for end in (End.CUT, End.TIMEOUT):
            self.assertIs(verdict(Kind.WHOLE, ANSWER, end=end), Verdict.UNSERVED)
        for body in (STREAM, STREAM + CUT + DONE, DONE, b""):
            self.assertIs(verdict(Kind.STREAM, body), Verdict.UNSERVED)
        self.assertIs(verdict(Kind.WHOLE, b"", status=0, end=End.CUT), Verdict.UNSERVED)

    def test_another_requests_answer_is_crossed(self) -> None:
        """Unless it may come from the cache: who asked the same before."""
        other = ANSWER.replace(b"n7", b"n8")
        self.assertIs(verdict(Kind.WHOLE, other), Verdict.CROSSED)
        self.assertIs(verdict(Kind.HIT, other), Verdict.CROSSED)
        self.assertIs(verdict(Kind.HIT, other, about=replace(ABOUT, askers={7, 8})), Verdict.SERVED)

    def test_only_a_stream_that_the_upstream_cut_may_be_cut(self) -> None:
        """And only if its client is told, and does not take it for finished."""
        met = replace(ABOUT, manner=Manner.CUT_AFTER)
        self.assertIs(verdict(Kind.STREAM, STREAM + CUT, end=End.CUT, about=met), Verdict.CUT)
        self.assertIs(verdict(Kind.STREAM, STREAM + CUT, end=End.CUT), Verdict.UNSERVED)
        self.assertIs(verdict(Kind.STREAM, STREAM, end=End.CUT, about=met), Verdict.UNSERVED)
        self.assertIs(verdict(Kind.STREAM, CUT, end=End.CUT, about=met), Verdict.UNSERVED)

    def test_a_5xx_needs_a_fault_that_explains_it(self) -> None:
        """By its code; kill -9 explains anything, a cut connection too."""
        locked = replace(ABOUT, excused=frozenset({"store_unavailable"}))
        killed = replace(ABOUT, excused=frozenset({"*"}))
        self.assertIs(verdict(Kind.WHOLE, refusal("store_unavailable"), 503), Verdict.UNEXPLAINED_5XX)
        self.assertIs(verdict(Kind.WHOLE, refusal("store_unavailable"), 503, about=locked), Verdict.EXCUSED)
        self.assertIs(verdict(Kind.WHOLE, refusal("overloaded"), 503, about=locked), Verdict.UNEXPLAINED_5XX)
        self.assertIs(verdict(Kind.WHOLE, b"", 0, End.CUT, killed), Verdict.EXCUSED)
        self.assertIs(verdict(Kind.WHOLE, ANSWER, about=killed), Verdict.SERVED)

    def test_a_failed_call_is_told_only_to_a_key_that_cannot_pay_another(self) -> None:
        """And only if the call may be billed: else the other upstream is asked behind the same hold."""
        for manner in Manner:
            may_be_billed = manner not in UNBILLED | {Manner.GOOD, Manner.SLOW}
            about = replace(ABOUT, manner=manner)
            for status, code in ((502, "upstream_error"), (503, "all_providers_failed"), (504, "upstream_timeout")):
                with self.subTest(manner=manner, code=code):
                    expected = Verdict.EXCUSED if may_be_billed else Verdict.UNEXPLAINED_5XX
                    self.assertIs(verdict(Kind.SPENDER, refusal(code), status, about=about), expected)
                    self.assertIs(verdict(Kind.WHOLE, refusal(code), status, about=about), Verdict.UNEXPLAINED_5XX)
            other = verdict(Kind.SPENDER, refusal("overloaded"), 503, about=about)
            self.assertIs(other, Verdict.UNEXPLAINED_5XX)

    def test_each_kind_has_its_refusals(self) -> None:
        """And another one is wrong, as is an answer where there must be none."""
        for kind, status, code in (
            (Kind.NO_KEY, 401, "invalid_api_key"),
            (Kind.BROKE, 402, "budget_exceeded"),
            (Kind.SPENDER, 429, "budget_reserved"),
            (Kind.LIMITED, 429, "rate_limit_exceeded"),
        ):
            with self.subTest(kind):
                self.assertIs(verdict(kind, refusal(code), status), Verdict.REFUSED)
                self.assertIs(verdict(Kind.WHOLE, refusal(code), status), Verdict.WRONG)
                self.assertIs(verdict(kind, refusal("invalid_request"), 400), Verdict.WRONG)
        self.assertIs(verdict(Kind.BROKE, ANSWER), Verdict.WRONG)
        self.assertIs(verdict(Kind.LIMITED, ANSWER), Verdict.SERVED)

    def test_a_blocked_key_is_refused_and_no_other(self) -> None:
        """While nobody knows whether it is, either may be."""
        refused = refusal("invalid_api_key")
        for blocked, of_refusal, of_answer in (
            (True, Verdict.REFUSED, Verdict.WRONG),
            (False, Verdict.WRONG, Verdict.SERVED),
            (None, Verdict.REFUSED, Verdict.SERVED),
        ):
            with self.subTest(blocked=blocked):
                about = replace(ABOUT, blocked=blocked)
                self.assertIs(verdict(Kind.BLOCKABLE, refused, 401, about=about), of_refusal)
                self.assertIs(verdict(Kind.BLOCKABLE, ANSWER, about=about), of_answer)

    def test_who_left_saw_nothing(self) -> None:
        """Whatever had come by then."""
        self.assertIs(verdict(Kind.LEAVES_MIDWAY, STREAM, end=End.LEFT), Verdict.LEFT)

    def test_an_error_is_read_where_it_stands(self) -> None:
        """In a body, or in a stream; a word in an answer is none."""
        self.assertEqual(read(End.WHOLE, 503, refusal("overloaded")).code, "overloaded")
        self.assertEqual(
            read(End.CUT, 200, STREAM + CUT),
            Seen(End.CUT, 200, None, frozenset({7}), "stream_truncated", finished=False, is_stream=True),
        )
        self.assertIsNone(read(End.WHOLE, 200, ANSWER + b'{"code":"x"}').code)


class WindowTest(unittest.TestCase):
    """When a fault may have met a request."""

    def test_a_window_meets_what_overlaps_it(self) -> None:
        """Open while it lasts."""
        window = Window(10)
        self.assertFalse(window.meets(5, 9))
        self.assertTrue(window.meets(5, 10) and window.meets(100, 101))
        window.end_s = 20
        self.assertTrue(window.meets(20, 30) and window.meets(21, 30, slack_s=1))
        self.assertFalse(window.meets(21, 30))

    def test_a_block_is_known_only_well_inside_and_outside(self) -> None:
        """While its command runs nobody knows."""
        block = Block(10)
        self.assertEqual([block.covers(1, 2), block.covers(9, 11)], [False, None])
        block.is_s = 12
        self.assertEqual([block.covers(11, 13), block.covers(12, 13)], [None, True])
        block.may_end_s, block.ended_s = 20, 22
        self.assertEqual([block.covers(12, 20), block.covers(19, 21), block.covers(23, 24)], [True, None, False])


class ChunksTest(unittest.TestCase):
    """The body of a stream."""

    def test_chunks_are_joined(self) -> None:
        """Also if the last ones did not come."""
        self.assertEqual(unchunked(b"2\r\nab\r\na\r\n0123456789\r\n0\r\n\r\n"), b"ab0123456789")
        self.assertEqual(unchunked(b"2\r\nab\r\n"), b"ab")

    def test_what_is_no_chunk_is_refused(self) -> None:
        """No size, or an end elsewhere."""
        for raw in (b"x\r\nab\r\n", b"2\r\nabc\r\n0\r\n\r\n", b"2"):
            with self.subTest(raw), self.assertRaises(ValueError):
                unchunked(raw)
