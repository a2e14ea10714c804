"""A process that is asked to end: what it announces, what it finishes, what it cuts, and that no money is lost."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from probes import client, crowds
from probes.client import CHAT_BODY, Answer
from probes.crowds import (
    ANNOUNCE_S,
    DRAIN_S,
    DRAINING,
    EVERY_S,
    IN_FLIGHT,
    QUEUE,
    QUEUEING,
    Crowd,
    answer_of,
    answer_to,
    await_queue,
    gated,
    strangers,
    target_of_crowds,
)
from probes.gateways import Outside
from probes.lab import Lab, Probe
from probes.target import Target
from probes.wire import CHUNKED, CLOSE, Wire, get, post, sized

SIGNALS = (signal.SIGTERM, signal.SIGINT)
HEARD_S = 10.0
CUT_S = 2.0
"""What is cut has so long to tell its client, and what says nothing so long to go."""

_READY = "/readyz"


@contextmanager
def _draining(lab: Lab, target: Target, at_most_s: float, *, told: str) -> Iterator[None]:
    """SIGTERM; the process has ended well by itself, so long after it at most, once this block is done."""
    began_s = time.monotonic()
    if not _signalled(lab, target.gateway, signal.SIGTERM, told):
        target.gateway.signal(signal.SIGTERM)
    yield
    status = target.gateway.wait(max(began_s + at_most_s - time.monotonic(), 0.1))
    lab.check(status == 0, f"{told}: exit status {status} {time.monotonic() - began_s:.1f} s after SIGTERM")


def _signalled(lab: Lab, gateway: Outside, number: signal.Signals, told: str) -> bool:
    """Send a signal, and wait until it is heard; whether it was."""
    logged = len(gateway.lines)
    gateway.signal(number)
    return lab.must(
        lambda: any('"draining"' in line for line in gateway.lines[logged:]),
        f"{told}: {number.name} is not heard",
        HEARD_S,
    )


def _restart(target: Target) -> None:
    if target.gateway.is_running:
        target.gateway.kill()
    target.gateway.start()
    target.address = target.gateway.address


def drained_streams(lab: Lab) -> str:
    """SIGTERM with five streams and idle connections: announced, then refused, all five finished and paid, exit 0."""
    target = target_of_crowds(lab, *DRAINING)
    keys = [target.gateway.key(tenant=tenant) for tenant in ("acme", "globex", "acme", "globex", "acme")]
    with Crowd(target) as crowd, ExitStack() as stack:
        streams = [crowd.open(1, key)[0] for key in keys]
        idle = [stack.enter_context(Wire(target.address)) for _ in range(3)]
        for wire in idle:
            wire.send(get("/healthz", None, last=False))
            wire.hear_some(b"}")
        with _draining(lab, target, ANNOUNCE_S + DRAIN_S + crowds.GRACE_S, told="five streams"):
            _check_announced(lab, target, idle[0])
            idle_closed = [wire.hear(ANNOUNCE_S + crowds.GRACE_S).closed for wire in idle[1:]]
            lab.check(all(idle_closed), "idle connections are left open after announce_s")
            new = answer_of(target, _request(target.key))
            lab.check(new is None or _is_refusal(new), f"a new request after announce_s: {new and new.status}")
            finished = [one.done() for one in streams]
            lab.check(not any(finished), f"{finished.count(True)} streams were cut at the end of announce_s")
            crowd.gate.set()
            whole = [answer_to(one).looks_finished for one in streams]
            lab.check(all(whole), f"{whole.count(False)} of 5 streams were cut within the grace")
    _restart(target)
    for key, call in zip(keys, target.upstream.calls, strict=False):
        shown = target.gateway.shown(key)
        money = (shown["spent_nanousd"], shown["held_nanousd"], shown["unresolved_nanousd"])
        lab.check(money == (call.billed_nanousd, 0, 0), f"billed {call.billed_nanousd}, and after the stop {money}")
    return "five streams ended with [DONE] and were paid to the unit; idle ones closed; new ones refused; exit 0"


def _check_announced(lab: Lab, target: Target, idle: Wire) -> None:
    """Within announce_s: not ready, and still serving, each answer closing its connection."""
    ready = answer_of(target, get(_READY, None))
    lab.check(ready is None or ready.status == 503, f"{_READY} after SIGTERM: {ready and ready.status}")
    new = answer_of(target, get("/v1/models", target.key))
    if new is not None:
        lab.check(new.status == 200 or _is_refusal(new), f"a new request at once: {new.status}")
        lab.check(new.headers.get("connection") == "close", "an answer after SIGTERM does not close its connection")
    if idle.send(get("/healthz", None, last=False)):
        for answer in idle.hear(ANNOUNCE_S + crowds.GRACE_S).answers:
            closes = answer.headers.get("connection") == "close"
            lab.check(closes, f"an idle connection was answered {answer.status} and goes on")


def _is_refusal(answer: Answer) -> bool:
    """503, with words for when to come back, on a connection that ends."""
    told = "retry-after" in answer.headers and answer.headers.get("connection") == "close"
    return answer.status == 503 and answer.code == "draining" and told


def _request(key: str) -> bytes:
    return post(key, sized(CHAT_BODY), CLOSE, body=CHAT_BODY)


def drained_oddities(lab: Lab) -> str:
    """SIGTERM with half heads, half bodies and a stream without an end: closed, and the stream is cut at the grace."""
    target = target_of_crowds(lab, *DRAINING)
    with Crowd(target) as crowd, ExitStack() as stack:
        [endless] = crowd.open(1, target.key)
        odd = {
            "half a head": b"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\nX-A: ",
            "one byte": b"G",
            "half a body": post(target.key, sized(CHAT_BODY), body=CHAT_BODY[:10]),
            "half a chunk": post(target.key, CHUNKED, body=b"ff\r\n{"),
            "after 100 Continue": post(target.key, sized(CHAT_BODY), "Expect: 100-continue"),
        }
        wires = {name: stack.enter_context(Wire(target.address)) for name in odd}
        for name, wire in wires.items():
            wire.send(odd[name])
        began_s = time.monotonic()
        with _draining(lab, target, ANNOUNCE_S + DRAIN_S + CUT_S + crowds.GRACE_S, told="half requests"):
            cut = answer_to(endless)
            cut_s = time.monotonic() - began_s
            lab.check(not cut.looks_finished, "a stream that was cut looks finished")
            lab.check(cut.code == "draining", f"a stream that was cut says {cut.code}")
            early = cut_s < ANNOUNCE_S + DRAIN_S - EVERY_S
            lab.check(not early, f"a stream was cut {cut_s:.1f} s after SIGTERM, before the grace was over")
            for name, wire in wires.items():
                said = wire.hear(CUT_S + crowds.GRACE_S)
                lab.check(said.closed, f"{name}: the connection is left open")
                lab.check(set(said.statuses) <= {100, 400, 408, 503}, f"{name}: answered {list(said.statuses)}")
    _restart(target)
    shown = target.gateway.shown(target.key)
    lab.check(shown["held_nanousd"] == 0, f"{shown['held_nanousd']} is held after a clean stop")
    paid = shown["spent_nanousd"] + shown["unresolved_nanousd"] > 0
    lab.check(paid, "what was relayed of the cut stream costs nothing")
    rows = [row["exit"] for row in target.gateway.rows(target.key) if row["cost_nanousd"]]
    lab.check(len(rows) == 1, f"{len(rows)} rows with a cost, for one stream")
    return f"{len(odd)} half requests: closed; the stream was cut after {cut_s:.1f} s, says so and was paid; exit 0"


def drained_queue(lab: Lab) -> str:
    """SIGTERM while every place is taken and requests wait: each is served or told 503, holds nothing, and exit 0."""
    target = target_of_crowds(lab, *DRAINING, *QUEUEING)
    globex, keys = target.gateway.key(tenant="globex"), strangers(target, QUEUE)
    with Crowd(target) as crowd, target.gateway.gauges() as gauges:
        served = crowd.fill(target.key, globex)
        waiting = [crowd.ask(key) for key in keys]
        await_queue(lab, gauges, QUEUE)
        with _draining(lab, target, ANNOUNCE_S + DRAIN_S + crowds.GRACE_S, told="a queue"):
            ready = answer_of(target, get(_READY, None))
            lab.check(ready is None or ready.status == 503, f"{_READY} after SIGTERM: {ready and ready.status}")
            for one in waiting:
                answer = answer_to(one)
                told = (answer.status, answer.code)
                right = told in ((503, "overloaded"), (503, "draining")) or answer.looks_finished
                lab.check(right, f"who waited was answered {told}")
            crowd.gate.set()
            whole = [answer_to(one).looks_finished for one in served]
            lab.check(all(whole), f"{whole.count(False)} of {IN_FLIGHT} streams were cut")
    _restart(target)
    held = [target.gateway.shown(key)["held_nanousd"] for key in (target.key, globex)]
    lab.check(held == [0, 0], f"{held} is held after a clean stop")
    return f"{IN_FLIGHT} streams ended, {QUEUE} that waited were told; exit 0"


def second_signal(lab: Lab) -> str:
    """A second SIGTERM while streams run and the grace is long: the process is gone at once, and no money is lost."""
    seen = []
    upstream = lab.upstream(gated(threading.Event()))
    gateway = lab.outside(upstream, more=lab.server(announce_s=30, drain_s=60))
    for number in SIGNALS:
        key = gateway.key()
        calls = len(upstream.calls)
        with client.send_and_leave(gateway.address, client.chat(stream=True), key=key):
            upstream.wait_calls(calls + 1)
            _signalled(lab, gateway, number, "a stream")
            lab.check(gateway.is_running, "the first signal ended it with a stream in flight")
            began_s = time.monotonic()
            gateway.signal(number)
            status = gateway.wait(2 * crowds.GRACE_S)
            took_s = time.monotonic() - began_s
        lab.check(status is not None, f"it runs {took_s:.1f} s after the second signal")
        lab.check(took_s <= crowds.GRACE_S, f"it ended {took_s:.1f} s after the second signal")
        if gateway.is_running:
            gateway.kill()
        gateway.start()
        shown = gateway.shown(key)
        lab.check(shown["held_nanousd"] == 0, f"{shown['held_nanousd']} is held after the restart")
        counts = shown["spent_nanousd"] + shown["unresolved_nanousd"]
        lab.check(counts > 0, "the stream that was cut counts nothing")
        seen.append(f"{number.name}: {took_s * 1000:.0f} ms")
    return f"gone after the second signal, by {', '.join(seen)}; what ran is spent or unresolved"


PROBES = (
    Probe("drained-streams", "overload-drain", drained_streams),
    Probe("drained-queue", "overload-drain", drained_queue),
    Probe("drained-oddities", "overload-drain", drained_oddities),
    Probe("second-signal", "overload-drain", second_signal),
)
