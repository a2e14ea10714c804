"""Any sequence of what can happen to a breaker, against ten lines; and twins that the same sequences must catch."""

import unittest
from collections.abc import Sequence

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gateway.breaker import Breaker, BreakerState, Permit
from tests.support.breakers import TWINS, MakeBreaker

COOLDOWN_S = 30
THRESHOLD = 2
ANSWERS: Sequence[str] = ("success", "failure", "release")


class Model:
    """A breaker that knows which calls still have a say, by number; half-open has one at most, and `late` ones whose
    success alone counts: they have lost the probe's place since it opened.
    """

    def __init__(self) -> None:
        self.state, self.failures, self.until_s, self.heard = BreakerState.CLOSED, 0, 0, set[int]()
        self.late = set[int]()

    def permit(self, call: int, now_s: int) -> bool:
        if self.state is not BreakerState.CLOSED:
            if now_s < self.until_s:
                return False
            late = self.late | self.heard if self.state is BreakerState.HALF_OPEN else set[int]()
            self.enter(BreakerState.HALF_OPEN, now_s + COOLDOWN_S)
            self.late = late
        self.heard.add(call)
        return True

    def answer(self, call: int, answer: str, now_s: int) -> None:
        if call in self.late and answer == "success":
            self.enter(BreakerState.CLOSED, now_s)
        self.late.discard(call)
        if call not in self.heard:
            return
        self.heard.remove(call)
        probe = self.state is BreakerState.HALF_OPEN
        self.failures = {"success": 0, "failure": self.failures + 1, "release": self.failures}[answer]
        if answer == "failure" and (probe or self.failures == THRESHOLD):
            self.enter(BreakerState.OPEN, now_s + COOLDOWN_S)
        elif probe:
            self.until_s = min(self.until_s, now_s)
            if answer == "success":
                self.enter(BreakerState.CLOSED, now_s)

    def enter(self, state: BreakerState, until_s: int) -> None:
        self.state, self.failures, self.until_s = state, 0, until_s
        self.heard.clear()
        self.late.clear()

    def shown(self, now_s: int) -> tuple[BreakerState, float]:
        waits = 0 if self.state is BreakerState.CLOSED else max(self.until_s - now_s, 0)
        over = self.state is BreakerState.OPEN and not waits
        return BreakerState.HALF_OPEN if over else self.state, waits


class BreakerMachine(RuleBasedStateMachine):
    """Calls that begin, end in any order, or never, or twice; time goes forward only."""

    make: MakeBreaker = Breaker

    def __init__(self) -> None:
        super().__init__()
        self.breaker = type(self).make(THRESHOLD, COOLDOWN_S)
        self.model = Model()
        self.now_s = 0
        self.permits: list[Permit] = []

    @rule(callers=st.integers(1, 3))
    def call(self, callers: int) -> None:
        for _ in range(callers):
            permit = self.breaker.permit(self.now_s)
            assert (permit is not None) == self.model.permit(len(self.permits), self.now_s)
            if permit is not None:
                self.permits.append(permit)

    @precondition(lambda self: self.permits)
    @rule(back=st.integers(0, 5), answer=st.sampled_from(ANSWERS))
    def answer(self, back: int, answer: str) -> None:
        call = max(len(self.permits) - 1 - back, 0)
        getattr(self.permits[call], answer)(self.now_s)
        self.model.answer(call, answer, self.now_s)

    @rule(seconds=st.sampled_from([1, COOLDOWN_S - 1, COOLDOWN_S, 2 * COOLDOWN_S]))
    def wait(self, seconds: int) -> None:
        self.now_s += seconds

    @invariant()
    def shows_what_the_model_shows(self) -> None:
        assert (self.breaker.state(self.now_s), self.breaker.wait_s(self.now_s)) == self.model.shown(self.now_s)


def search(make: type[Breaker]) -> None:
    """Look for a run in which `make`'s breaker differs from the model; AssertionError if there is one."""
    machine = type("Machine", (BreakerMachine,), {"make": make})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=300,
            stateful_step_count=30,
            database=None,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
        ),
    )


class BreakerMachineTest(unittest.TestCase):
    """All runs of calls, answers and waits."""

    def test_it_behaves_as_the_model_does(self) -> None:
        """Permits, states and waits are those of the reference, whatever is answered when."""
        search(Breaker)

    def test_broken_breakers_are_found(self) -> None:
        """The same search finds each twin."""
        for twin in TWINS:
            with self.subTest(twin=twin.__name__), self.assertRaises(AssertionError):
                search(twin)
