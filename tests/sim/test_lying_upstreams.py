"""Upstreams whose words and deeds differ: the books follow the deeds."""

from gateway.context import Answer
from gateway.evidence import LONGEST_TOKEN_BYTES
from llmkit.sse import DONE
from tests.sim.test_stories import FINISH, INPUT, OUTPUT, RESET, ROLE, At, Stories, chunk, usage, word
from tests.support.world import chat


class EarlyUsageTest(Stories):
    """Usage that is reported before the end."""

    def test_what_comes_after_a_report_is_billed_too(self) -> None:
        """On an end without another report, on a cut, and when the client leaves."""
        early = [ROLE, word("a", usage=usage(12, 1)), *[word("x")] * 40]
        for steps, moment in (([*early, FINISH, DONE], None), ([*early, RESET], None), (early, At("send", 41))):
            with self.subTest(steps=steps[-1], moment=moment):
                self.setUp()
                self.wire(*steps)
                self.play(chat(stream=True, max_tokens=100), at=moment)
                self.assert_row(completion_tokens=41, estimated=True, cost_nanousd=12 * INPUT + 41 * OUTPUT)

    def test_a_report_within_the_last_event_is_exact(self) -> None:
        """Running usage counts the event that carries it."""
        self.wire(ROLE, word("a", usage=usage(12, 1)), word("b", usage=usage(12, 2)), RESET)
        self.play(chat(stream=True, max_tokens=100))
        self.assert_row(completion_tokens=2, estimated=False)


class ChoicesTest(Stories):
    """Several answers in one stream."""

    def test_a_cut_before_the_second_choice_does_not_look_finished(self) -> None:
        """One of two is whole, the other never came: no end mark."""
        for ending in (RESET, None):
            with self.subTest(ending=ending):
                self.setUp()
                self.wire(ROLE, word("a"), FINISH, ending)
                outcome = self.play(chat(stream=True, n=2, max_tokens=10))
                self.assertEqual(
                    (outcome.answer, outcome.events[-1]["error"]["code"]), (Answer(None, cut=True), "stream_truncated")
                )

    def test_an_upstream_that_ends_with_its_mark_may_ignore_n(self) -> None:
        """It says itself that the answer is whole."""
        self.wire(ROLE, word("a"), FINISH, DONE)
        self.assertEqual(self.play(chat(stream=True, n=2, max_tokens=10)).answer, Answer(None))


class EndlessTest(Stories):
    """Upstreams that do not stop."""

    def test_content_after_the_finish_reason_is_under_the_cap_too(self) -> None:
        """The stream is cut, and what was seen is billed."""
        self.wire(ROLE, word("a"), FINISH, *[word("x")] * 100, DONE)
        self.assertEqual(self.play(chat(stream=True, max_tokens=10)).answer, Answer(None, cut=True))
        self.assert_row(code="stream_truncated", completion_tokens=21, estimated=True)

    def test_few_events_of_many_bytes_are_no_way_around_it(self) -> None:
        """No token is as long as that."""
        self.wire(ROLE, *[word("x" * LONGEST_TOKEN_BYTES * 15)] * 4, FINISH, DONE)
        self.assertEqual(self.play(chat(stream=True, max_tokens=10)).answer, Answer(None, cut=True))
        self.assert_row(completion_tokens=30, estimated=True)


class UnseenTest(Stories):
    """Failures before anything could be seen."""

    def test_a_stream_that_breaks_before_content_may_have_been_written_whole(self) -> None:
        """Reasoning that is hidden is billed by its upstream: the bound is the cap, as for a whole answer."""
        for ending in (RESET, None, b"{junk"):
            with self.subTest(ending=ending):
                self.setUp()
                self.wire(ROLE, ending)
                self.play(chat(stream=True, max_tokens=10))
                self.assert_row(completion_tokens=10, estimated=True, state="settled")

    def test_an_answer_that_was_cut_at_its_cap_has_used_it_up(self) -> None:
        """Without usage, and with next to nothing to be seen: the rest was hidden reasoning."""
        self.wire(ROLE, word("a"), chunk({}, "length"), DONE)
        self.play(chat(stream=True, max_tokens=100))
        self.assert_row(completion_tokens=100, estimated=True, exit="routed")
        self.fake({"text": "", "finish_reason": "length", "usage": "missing"})
        self.play(chat(max_tokens=100))
        self.assert_row(completion_tokens=100, estimated=True, exit="routed")


class EndMarkTest(Stories):
    """The end mark as upstreams write it."""

    def test_blanks_around_the_mark_do_not_hide_it(self) -> None:
        """The answer is whole."""
        self.wire(ROLE, word("a"), FINISH, DONE + b" ")
        outcome = self.play(chat(stream=True, max_tokens=10))
        self.assertEqual((outcome.answer, outcome.events[-1]), (Answer(None), "[DONE]"))

    def test_many_tool_calls_keep_their_indices(self) -> None:
        """Each is numbered once, whatever number the upstream gave."""
        calls = [{"id": f"call_{number}", "function": {"name": "f", "arguments": "{}"}} for number in range(500)]
        self.wire(ROLE, *[chunk({"tool_calls": [call]}) for call in calls], chunk({}, "tool_calls"), DONE)
        outcome = self.play(chat(stream=True, max_tokens=5000))
        sent = [
            call["index"]
            for event in outcome.events[:-1]
            for choice in event["choices"]
            for call in choice["delta"].get("tool_calls", ())
        ]
        self.assertEqual(sent, list(range(500)))
