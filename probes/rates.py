"""Rate limits: never above burst + rate x t, streams too, and a refusal costs nothing."""

import threading
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

from probes.gateways import Inside
from probes.hands import at_once
from probes.lab import Lab, Probe
from probes.upstream import Upstream, good

RATE, BURST = 20, 10
LIMITS = f'[[tenants]]\nname = "acme"\nrate_per_s = {RATE}\nburst = {BURST}\n'
DRIVERS = 16


def drive(lab: Lab) -> str:
    """A 20/s key is driven at 40/s by 16 threads, every other request a stream, and then by 200 at once."""
    upstream = lab.upstream(good())
    gateway = lab.inside(upstream, more=LIMITS)
    key = gateway.key()
    statuses: list[int] = []
    asked_s: dict[str, float] = {}
    refusals: list[tuple[float, float]] = []
    numbers, started_s = count(), time.monotonic()

    def driver() -> None:
        while (due_s := (number := next(numbers)) / (2 * RATE)) < lab.seconds:
            time.sleep(max(started_s + due_s - time.monotonic(), 0))
            asked_s[text := f"request {number}"] = time.monotonic()
            answer = gateway.chat(key, text, stream=bool(number % 2))
            statuses.append(answer.status)
            if answer.status == 429:
                refusals.append((asked_s[text], time.monotonic()))
            wait = answer.headers.get("retry-after", "0")
            told = answer.status == 200 or (answer.status == 429 and wait.isdigit() and int(wait) >= 1)
            lab.check(told, f"answered {answer.status}, retry-after {wait!r}")

    threads = [threading.Thread(target=driver) for _ in range(DRIVERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gateway.wait_quiet()
    admissions = [(asked_s[call.body["messages"][0]["content"]], call.at_s) for call in upstream.calls]
    over = most_over(admissions)
    lab.check(over <= 0, f"{over:.1f} above burst + rate x t in some interval")
    spare = most_spare(admissions, refusals)
    lab.check(spare < 1, f"a request was refused though {spare:.1f} units were there")
    lab.check(statuses.count(200) == len(admissions), f"{statuses.count(200)} served, {len(admissions)} upstream calls")
    lab.check(gateway.counted_nanousd(key) == upstream.metered_nanousd, "a refused request was charged")
    time.sleep(1)
    calls, started_s = len(upstream.calls), time.monotonic()
    crowd = at_once(lambda _: gateway.chat(key).status, range(200))
    burst = crowd.count(200)
    lab.check(burst == len(upstream.calls) - calls, f"{burst} served, {len(upstream.calls) - calls} upstream calls")
    refill = RATE * (upstream.calls[-1].at_s - started_s)
    lab.check(BURST <= burst <= BURST + refill, f"{burst} of 200 at once were admitted")
    return f"{len(admissions)} of {len(statuses)} admitted, {max(over, 0):.1f} over at worst; {burst} of 200 at once"


def most_over(admissions: Sequence[tuple[float, float]]) -> float:
    """By how much they surely pass burst + rate x t, in the worst of all intervals; 0 or less: by nothing.

    Each was admitted at some moment between its two, so however long requests and calls take, no bucket that keeps its
    promise is taken for one that does not.
    """
    worst = -float(BURST)
    for start, _ in admissions:
        ends = sorted(end for begin, end in admissions if begin >= start)
        worst = max(worst, *(count - BURST - RATE * (end - start) for count, end in enumerate(ends, 1)))
    return worst


def most_spare(admissions: Sequence[tuple[float, float]], refusals: Sequence[tuple[float, float]]) -> float:
    """How many units were surely there at a refusal, at most; below 1: none was refused wrongly.

    Each was refused, as each was admitted, at some moment between its two: whatever may have been taken before that
    was. A bucket that was full at one of the beginnings has refilled since, but by no more than it holds.
    """
    most = 0.0
    for begin, end in refusals:
        taken = [other for other in admissions if other[0] <= end]
        starts = [begin, *(last for _, last in taken if last < begin)]
        most = max(most, min(BURST + RATE * (begin - at) - sum(last >= at for _, last in taken) for at in starts))
    return most


def to_the_unit(lab: Lab) -> str:
    """With the clock standing still a burst is the burst, to the unit, whoever asks; then it refills exactly."""
    upstream = lab.upstream(good())
    gateway = lab.inside(upstream, more=LIMITS)
    keys = [gateway.key(), gateway.key()]
    gateway.clock.stop()
    first = _admitted(lab, gateway, upstream, keys)
    lab.check(first == BURST, f"a burst of {BURST} let {first} pass")
    gateway.clock.shift_s += 0.5
    second = _admitted(lab, gateway, upstream, keys)
    lab.check(second == RATE // 2, f"half a second refilled {second}, not {RATE // 2}")
    gateway.clock.shift_s -= 3600
    third = _admitted(lab, gateway, upstream, keys)
    lab.check(third == 0, f"a clock that went back let {third} pass")
    other = gateway.chat(gateway.key(tenant="other")).status
    lab.check(other == 200, f"another tenant is limited too: {other}")
    return f"{first}, then {second} after half a second, then {third} after the clock went back an hour"


def _admitted(lab: Lab, gateway: Inside, upstream: Upstream, keys: list[str]) -> int:
    """How many of 48 at once, of both keys, half of them streams, are served."""
    calls = len(upstream.calls)
    answers = at_once(lambda number: gateway.chat(keys[number % 2], stream=number % 4 > 1).status, range(48))
    lab.check(set(answers) <= {200, 429}, f"answered {sorted(set(answers))}")
    lab.check(answers.count(200) == len(upstream.calls) - calls, "served and called differ")
    return answers.count(200)


def refusals_give_back(lab: Lab) -> str:
    """A request that is refused for another reason gives its unit back, and no unit twice."""
    upstream = lab.upstream(good())
    gateway = lab.inside(upstream, more=LIMITS)
    poor, rich = gateway.key(0), gateway.key()
    gateway.clock.stop()
    reasons = {}
    cases: dict[str, tuple[str, dict[str, Any]]] = {
        "no money": (poor, {}),
        "no such model": (rich, {"model": "nobody"}),
        "malformed": (rich, {"max_tokens": -1}),
        "no key": ("sk-gw-x-y", {}),
    }
    for reason, (key, more) in cases.items():
        reasons[reason] = {gateway.chat(key, **more).status for _ in range(2 * BURST)}
    lab.check(429 not in set().union(*reasons.values()), f"refusals used the rate up: {reasons}")
    admitted = _admitted(lab, gateway, upstream, [rich, rich])
    lab.check(admitted == BURST, f"after {8 * BURST} refusals a burst let {admitted} pass")
    return f"{8 * BURST} refusals took no unit, and gave none: {admitted} admitted"


PROBES = (
    Probe("rate-under-load", "rate-limit", drive),
    Probe("rate-to-the-unit", "rate-limit", to_the_unit),
    Probe("rate-refusals", "rate-limit", refusals_give_back),
)
