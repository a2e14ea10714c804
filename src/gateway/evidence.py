"""What is known of an upstream call, and what it is worth. Pure.

An estimate is a bound, not a guess: prompt bytes and produced bytes bound their tokens, so what an upstream bills for
what we saw is never above it. Of a whole answer that was cut, junk or not waited for nothing was seen, but all of it
may have been written: its bound is the cap.
"""

from enum import Enum, auto

from msgspec import Struct
from msgspec.structs import replace

from gateway.levels import CALL_MOST_NANOUSD
from llmkit.prices import PriceEntry
from llmkit.types import Usage

LONGEST_TOKEN_BYTES = 512
"""No token of a vocabulary in use is longer; the longest known are runs of 128 spaces and the like."""


class Reach(Enum):
    """How far an upstream call got, as far as money is concerned."""

    NOT_SENT = auto()
    UNBILLED = auto()
    UNKNOWN = auto()
    PRODUCED = auto()


class Evidence(Struct):
    """What is known of one upstream call; updated by whoever sees more.

    prompt_bound   tokens: upper bound of the prompt
    output_bound   tokens: all choices' caps together, as sent
    deltas         content deltas that were seen; a token each at least
    output_bytes   bytes of what the model was seen to write; they bound its tokens; None: no readable answer was seen
    unreported     bytes and deltas of those that came after `usage` was last reported
    reached_cap    the upstream said that the output was cut at its cap, whatever of it could be seen
    broken_off     the upstream failed before anything could be seen: all of the output may have been written
    """

    prompt_bound: int
    output_bound: int
    reach: Reach = Reach.NOT_SENT
    usage: Usage | None = None
    deltas: int = 0
    output_bytes: int | None = None
    unreported: tuple[int, int] = (0, 0)
    reached_cap: bool = False
    broken_off: bool = False

    def bound_nanousd(self, price: PriceEntry) -> int:
        """The most that the call can cost."""
        return price.price.bound_nanousd(self.prompt_bound, self.output_bound)


class Charge(Struct, frozen=True):
    """What a call is settled at; `estimated` if any class of tokens was not the provider's own count."""

    cost_nanousd: int
    usage: Usage
    estimated: bool

    def plus(self, other: "Charge") -> "Charge":
        """What two calls are settled at together."""
        cost_nanousd = self.cost_nanousd + other.cost_nanousd
        return Charge(cost_nanousd, self.usage + other.usage, self.estimated or other.estimated)


NO_CHARGE = Charge(0, Usage(), False)


def assess(evidence: Evidence, price: PriceEntry, *, streamed: bool) -> Charge:
    """The cost of what is known: reported usage where it makes sense, the bound of what was seen elsewhere."""
    reported = evidence.usage
    if reported is not None:
        cost_nanousd = price.price.cost_nanousd(reported)
        if cost_nanousd > CALL_MOST_NANOUSD:
            reported = None
        elif reported.prompt_tokens and reported.completion_tokens and evidence.unreported == (0, 0):
            return Charge(cost_nanousd, reported, False)
    usage = reported or Usage()
    if not usage.prompt_tokens:
        usage = replace(usage, prompt_tokens=evidence.prompt_bound)
    if not usage.completion_tokens and (reported is None or evidence.output_bytes or evidence.reached_cap):
        usage = replace(usage, completion_tokens=_output_estimate(evidence, streamed))
    elif reported is not None and evidence.unreported != (0, 0):
        usage = replace(usage, completion_tokens=reported.completion_tokens + _unreported_estimate(evidence, reported))
    return Charge(price.price.cost_nanousd(usage), usage, usage != reported)


def _output_estimate(evidence: Evidence, streamed: bool) -> int:
    """Bytes bound tokens, and so does the cap, unless the upstream was seen to pass it."""
    if evidence.broken_off or evidence.output_bytes is None:
        return 0 if streamed and not evidence.broken_off else evidence.output_bound
    bound = evidence.output_bound if evidence.reached_cap else min(evidence.output_bytes, evidence.output_bound)
    return max(bound, least_tokens(evidence.deltas, evidence.output_bytes))


def _unreported_estimate(evidence: Evidence, reported: Usage) -> int:
    """The bound of what came after the last report, within what the cap leaves unless more was seen."""
    size, deltas = evidence.unreported
    return max(min(size, max(evidence.output_bound - reported.completion_tokens, 0)), deltas)


def least_tokens(deltas: int, output_bytes: int) -> int:
    """So many deltas and bytes cannot have been fewer tokens than this."""
    return max(deltas, output_bytes // LONGEST_TOKEN_BYTES)
