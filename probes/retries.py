"""Retries, pauses and breakers: trouble is contained, and one caller's trouble is nobody else's."""

import threading
import time
from collections import defaultdict

from probes import client
from probes.gateways import Inside
from probes.hands import at_once, side_by_side
from probes.lab import Lab, Probe
from probes.upstream import PATIENCE_S, Call, failing, good, wait_until

STORM = 300
STORMERS = 24
FLOOR, SHARE = 10, 1.2
"""[retry] as it is without a word in the file: 20 % of a deployment's requests, and ten in a minute."""

BASE_S = 1.0
TRIPPING = "[retry]\nmax_retries = 0\n[breaker]\nthreshold = 3\ncooldown_s = 5\n"
DEADLINE_S, GRACE_S = 1.5, 3.0
SHORT_S = 0.3
REACHED, MOST_HASTY = 12, 120
"""Requests that are too short for the upstream, and how many are asked until so many have reached it."""

CALLERS_FAULT = {"message": "too long", "type": "invalid_request_error", "code": "too_long", "param": "messages"}


# --- one caller's trouble ---------------------------------------------------------------------------------------


def callers_errors(lab: Lab) -> str:
    """60 bad requests of one tenant for each status: relayed, one attempt each, no breaker opens for another."""
    first, second = lab.upstream(good()), lab.upstream(good())
    gateway = lab.inside(first, second, retries="")
    bad, other = gateway.key(tenant="bad"), gateway.key(tenant="other")
    seen = []
    for status, told in ((400, 400), (404, 404), (413, 413), (422, 400)):
        calls = len(first.calls)
        first.script(failing(status, CALLERS_FAULT))
        statuses = {gateway.chat(bad).status for _ in range(60)}
        made = len(first.calls) - calls
        lab.check(statuses == {told}, f"an upstream's {status} is told as {sorted(statuses)}")
        lab.check(made == 60 and not second.calls, f"{status}: {made} calls, and {len(second.calls)} of the next")
        first.script(good())
        served = gateway.chat(other)
        lab.check(served.headers["x-gateway-route"] == "d0=ok", f"{status}: then {served.headers['x-gateway-route']}")
        seen.append(f"{status} as {told}")
    gateway.wait_quiet()
    lab.check(gateway.counted_nanousd(bad) == 0, "refused requests were charged")
    return "60 each of " + ", ".join(seen) + ": one attempt each, the other tenant is served"


def callers_timeouts(lab: Lab) -> str:
    """One tenant's short timeouts, whole and streamed, and clients that leave, open no breaker for another."""
    slow = threading.Event()

    def waits(call: Call) -> None:
        call.bill()
        while not slow.is_set() and not call.left_within(0.02):
            pass
        call.close()

    upstream = lab.upstream(waits)
    gateway = lab.inside(upstream, retries=TRIPPING)
    hasty, other = gateway.key(tenant="hasty"), gateway.key(tenant="other")
    short = {"x-gateway-timeout-s": str(SHORT_S)}
    statuses: list[int] = []
    while len(upstream.calls) < REACHED and len(statuses) < MOST_HASTY:
        statuses += side_by_side(
            lambda stream: gateway.ask(hasty, client.chat(stream=stream), headers=short).status, [False, True] * 6
        )
        lab.check(set(statuses) == {504}, f"short timeouts are told as {sorted(set(statuses))}")
    reached = len(upstream.calls)
    lab.check(reached >= REACHED, f"{reached} of {len(statuses)} reached the upstream: nothing is proven")
    if lab.faults:
        return ""
    for number in range(6):
        with client.send_and_leave(gateway.address, client.chat(stream=bool(number % 2)), key=hasty):
            upstream.wait_calls(reached + number + 1)
    gateway.wait_quiet()
    slow.set()
    upstream.script(good())
    served = gateway.chat(other).status
    lab.check(served == 200, f"after another tenant's timeouts: {served}")
    return (
        f"{len(statuses)} timeouts of {SHORT_S * 1000:g} ms and 6 clients that left: the breaker is closed for others"
    )


# --- limits of the upstream -------------------------------------------------------------------------------------


def pauses(lab: Lab) -> str:
    """429 with Retry-After 7: no call to that deployment for 7 s, the next one serves; all limited: 429."""
    first, second = lab.upstream(failing(429, retry_after="7")), lab.upstream(good())
    gateway = lab.inside(first, second, retries="")
    gateway.clock.stop()
    key = gateway.key()
    statuses = [gateway.chat(key).status for _ in range(20)]
    lab.check(statuses == [200] * 20, f"{statuses.count(200)} of 20 were served by the second deployment")
    lab.check(len(first.calls) == 1, f"{len(first.calls)} calls in the pause of the first")
    second.script(failing(429, retry_after="7"))
    limited = gateway.chat(key)
    wait = limited.headers.get("retry-after", "")
    lab.check(limited.status == 429, f"all limited: {limited.status}")
    lab.check(wait.isdigit() and 1 <= int(wait) <= 7, f"all limited: retry-after {wait!r}")
    gateway.clock.shift_s += 7.5
    first.script(good())
    after = gateway.chat(key).headers["x-gateway-route"]
    lab.check(after == "d0=ok", f"after the pause: {after}")
    state = gateway.gateway.deployment_states()["d0"]
    lab.check(state == "closed", f"a breaker is {state} after 429s")
    return f"20 of 20 served, one call in 7 s; all limited: 429, retry-after {wait}"


ODD_WAITS = (
    *("0", "-5", "abc", "99999999", "Wed, 21 Oct 2099 07:28:00 GMT", "1.5", "", "nan", "inf", "-inf", "1e309", "1e-9"),
    *("5, 5", "Mon, 99 Foo 0000 99:99:99 GMT", "Wed, 21 Oct 1999 07:28:00 -9999", "9" * 400, "0x10", "\u0665", "1_0"),
)


def odd_waits(lab: Lab) -> str:
    """Retry-After in every odd form, also in milliseconds: never a crash, never waited for past the deadline."""
    cases = [(name, value) for value in ODD_WAITS for name in ("retry_after", "retry_after_ms")]
    took_s = side_by_side(lambda case: _odd_wait(lab, *case), cases)
    return f"{len(cases)} values: {max(took_s):.2f} s at most, told 1 to 3600 s, served again within the hour"


def _odd_wait(lab: Lab, name: str, value: str) -> float:
    """Seconds that a request took whose only upstream asks for this wait."""
    upstream = lab.upstream(failing(429, None, **{name: value.encode().decode("latin-1")}))
    gateway = lab.inside(upstream, retries="")
    told, key = f"{name} {value[:40]!r}", gateway.key()
    started_s = time.monotonic()
    answer = gateway.ask(key, client.chat(), headers={"x-gateway-timeout-s": str(DEADLINE_S)})
    took_s = time.monotonic() - started_s
    wait = answer.headers.get("retry-after", "")
    lab.check(answer.status in (429, 504), f"{told}: answered {answer.status}")
    lab.check(took_s < DEADLINE_S + GRACE_S, f"{told}: took {took_s:.1f} s of {DEADLINE_S}")
    right = wait.isdigit() and 1 <= int(wait) <= 3600
    lab.check(right or answer.status == 504, f"{told}: the client is told {wait!r}")
    upstream.script(good())
    gateway.clock.shift_s += 3601
    later = gateway.chat(key).status
    lab.check(later == 200, f"{told}: an hour later {later}")
    return took_s


# --- storms -----------------------------------------------------------------------------------------------------


def storm(lab: Lab) -> str:
    """300 requests while everything fails: retries within their budget, and spread over their wait by chance."""
    upstream = lab.upstream(failing(503))
    gateway = lab.inside(upstream, retries=f"[retry]\nbase_s = {BASE_S}\n[breaker]\nthreshold = 1000000\n")
    key = gateway.key()
    texts = iter([f"storm {number}" for number in range(STORM)])
    lock = threading.Lock()

    def stormer(_: int) -> None:
        while True:
            with lock:
                text = next(texts, None)
            if text is None:
                return
            status = gateway.chat(key, text).status
            lab.check(status == 503, f"answered {status}")

    at_once(stormer, range(STORMERS))
    calls, most = len(upstream.calls), SHARE * STORM + FLOOR
    lab.check(calls <= most, f"{calls} calls for {STORM} requests, at most {most:.0f} are allowed")
    waits = _first_waits(upstream.calls)
    lab.check(len(waits) >= FLOOR, f"only {len(waits)} retries: nothing is proven")
    shares = [sum(low <= wait / BASE_S < low + 0.25 for wait in waits) for low in (0, 0.25, 0.5, 0.75)]
    spread = min(shares) >= len(waits) / 16 and max(shares) <= len(waits) * 0.7
    lab.check(spread, f"the waits of {len(waits)} retries fall {shares} into the quarters of {BASE_S} s: no jitter")
    return f"{calls} calls for {STORM} requests ({calls / STORM:.2f} each); first waits by quarter {shares}"


def _first_waits(calls: list[Call]) -> list[float]:
    """Seconds between the first and the second call of each request that was tried again."""
    times: dict[str, list[float]] = defaultdict(list)
    for call in calls:
        times[call.body["messages"][0]["content"]].append(call.at_s)
    return [at[1] - at[0] for at in times.values() if len(at) > 1]


def outage(lab: Lab) -> str:
    """300 requests to a dead deployment: the breaker lets three through, and the backup serves all."""
    dead, backup = lab.upstream(failing(500)), lab.upstream(good())
    gateway = lab.inside(dead, backup, retries="[retry]\nmax_retries = 0\n")
    key = gateway.key()
    statuses = at_once(lambda _: [gateway.chat(key).status for _ in range(STORM // STORMERS)], range(STORMERS))
    served, calls = sum(answers.count(200) for answers in statuses), len(dead.calls)
    asked = STORM // STORMERS * STORMERS
    lab.check(served == asked, f"{served} of {asked} were served")
    lab.check(calls <= 3 + STORMERS, f"{calls} calls to a dead deployment")
    return f"{served} of {asked} served, {calls} calls to the dead deployment"


def abandoned_wait(lab: Lab) -> str:
    """A client leaves while the gateway waits before a retry: there is none, and its row says so."""
    upstream = lab.upstream(failing(503))
    gateway = lab.inside(upstream, retries="[retry]\nbase_s = 60\ncap_s = 60\nretry_after_max_s = 60\n")
    for stream in (False, True):
        calls, key = len(upstream.calls), gateway.key()
        with client.send_and_leave(gateway.address, client.chat(stream=stream), key=key):
            wait_until(lambda calls=calls: _failed_attempts(gateway) > calls, "no call has failed")  # type: ignore[misc]
        wait_until(lambda key=key: bool(gateway.rows(key)), "the gateway goes on waiting")  # type: ignore[misc]
        [row] = gateway.rows(key)
        lab.check(row["exit"] == "client_gone", f"the row says {row['exit']}")
        lab.check(gateway.counted_nanousd(key) == 0, "a failed call without usage was charged")
        gateway.clock.shift_s += 61
        lab.check(len(upstream.calls) == calls + 1, f"{len(upstream.calls) - calls} calls for a client that left")
    return "left in the wait before a retry: one call each, nothing charged"


def _failed_attempts(gateway: Inside) -> int:
    """Calls whose failure the gateway knows."""
    return sum(span.name == "attempt" for span in gateway.spans.records())


# --- half-open --------------------------------------------------------------------------------------------------


def abandoned_probe(lab: Lab) -> str:
    """The one call of a half-open breaker is abandoned, or never answered: the next caller gets its turn."""
    ended = threading.Event()

    def hangs(call: Call) -> None:
        while not ended.is_set() and not call.left_within(0.02):
            pass
        call.close()

    upstream = lab.upstream(failing(500))
    gateway = lab.inside(upstream, retries=TRIPPING)
    gateway.clock.stop()
    key = gateway.key()
    for _ in range(4):
        gateway.chat(key)
    lab.check(len(upstream.calls) == 3, f"the breaker let {len(upstream.calls)} failures through, not 3")
    upstream.script(hangs)
    gateway.clock.shift_s += 5
    crowd = _Crowd(gateway, key, 12)
    try:
        lab.must(lambda: crowd.answered == 11, "more than one caller at once was let through half-open")
        gateway.clock.shift_s += 5
        with client.send_and_leave(gateway.address, client.chat(), key=key):
            lab.must(lambda: len(upstream.calls) == 5, "a probe that is never answered wedges the breaker")
        lab.must(lambda: _open_holds(gateway) <= 1, "the hold of a client that left stays")
        upstream.script(good())
        recovered = gateway.chat(key).status
        lab.check(recovered == 200, f"a probe whose client left wedges the breaker: {recovered}")
    finally:
        ended.set()
        crowd.join()
    state = gateway.gateway.deployment_states()["d0"]
    lab.check(state == "closed", f"the late end of the first probe left the breaker {state}")
    return "12 at once: one call; never answered: the next after a cooldown; abandoned: the next at once"


class _Crowd:
    """Callers on threads of their own; `answered` counts those who have their answer."""

    def __init__(self, gateway: Inside, key: str, size: int) -> None:
        self.answered = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask, args=(gateway, key)) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait for all."""
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _ask(self, gateway: Inside, key: str) -> None:
        gateway.chat(key)
        with self._lock:
            self.answered += 1


def _open_holds(gateway: Inside) -> int:
    return sum(hold["state"] == "open" for hold in gateway.holds())


PROBES = (
    Probe("callers-errors", "retry-breaker", callers_errors),
    Probe("callers-timeouts", "retry-breaker", callers_timeouts),
    Probe("upstream-limits", "retry-breaker", pauses),
    Probe("odd-retry-after", "retry-breaker", odd_waits),
    Probe("retry-storm", "retry-breaker", storm),
    Probe("abandoned-wait", "retry-breaker", abandoned_wait),
    Probe("outage", "retry-breaker", outage),
    Probe("abandoned-half-open", "retry-breaker", abandoned_probe),
)
