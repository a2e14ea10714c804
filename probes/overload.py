"""More work than there is room for: who waits, who is refused, and that there is room again afterwards."""

import time
from contextlib import ExitStack

from probes import client, crowds
from probes.client import Answer
from probes.crowds import (
    CONNECTIONS,
    IN_FLIGHT,
    PER_TENANT,
    QUEUE,
    QUEUE_WAIT_S,
    QUEUEING,
    Crowd,
    answer_to,
    await_queue,
    strangers,
    target_of_crowds,
)
from probes.lab import Lab, Probe
from probes.target import Target
from probes.wire import Wire, get

CROWD = 40
AT_ONCE_S = QUEUE_WAIT_S / 2
"""A full queue answers within 0.2 s, and this machine may be busy."""

_HEALTH = ("/healthz", "/readyz")


def _check_overloaded(lab: Lab, told: str, answer: Answer, took_s: float, at_least_s: float, at_most_s: float) -> None:
    refused = answer.status == 503 and answer.code == "overloaded"
    lab.check(refused, f"{told}: {answer.status} {answer.code}")
    lab.check(answer.headers.get("retry-after", "0").isdigit() and refused, f"{told}: no retry-after")
    lab.check(at_least_s <= took_s <= at_most_s, f"{told}: answered after {took_s:.2f} s")


# --- places and their queue -------------------------------------------------------------------------------------


def full_queue(lab: Lab) -> str:
    """Every place taken and the queue full: 503 at once, without money held; a place that is free goes to who waits."""
    target = target_of_crowds(lab, *QUEUEING)
    acme, globex = target.key, target.gateway.key(tenant="globex")
    *first, another = strangers(target, QUEUE + 1)
    with Crowd(target) as crowd, target.gateway.gauges() as gauges:
        served = crowd.fill(acme, globex)
        waiting = [crowd.ask(key) for key in first]
        await_queue(lab, gauges, QUEUE)
        answer, took_s = crowd.asked(another)
        _check_overloaded(lab, "beyond the queue", answer, took_s, 0, AT_ONCE_S)
        seconds = [_health_s(lab, target, path) for path in _HEALTH]
        held = len([hold for hold in target.gateway.holds() if hold["state"] == "open"])
        lab.check(held <= IN_FLIGHT, f"{held} holds for {IN_FLIGHT} places: who waits holds money")
        for one in waiting:
            answer = answer_to(one)
            waited_s = crowd.took_s.get(one, crowds.ANSWER_S)
            _check_overloaded(lab, "in the queue", answer, waited_s, QUEUE_WAIT_S / 2, QUEUE_WAIT_S + crowds.GRACE_S)
        calls = len(target.upstream.calls)
        lab.check(calls == IN_FLIGHT, f"{calls} upstream calls for {IN_FLIGHT} places")
        lucky = crowd.ask(globex)
        await_queue(lab, gauges, 1)
        crowd.gate.set()
        lab.check(answer_to(lucky).status == 200, "who waits is not served once there is a place")
        for one in served:
            lab.check(answer_to(one).looks_finished, "a stream was cut by the overload")
    target.gateway.wait_quiet()
    statuses = [target.gateway.chat(key, stream=True).status for key in (acme, globex)]
    lab.check(statuses == [200, 200], f"after the overload answered {statuses}")
    slowest_ms = max(seconds) * 1000
    return (
        f"{IN_FLIGHT} served, {QUEUE} waited, one refused after {took_s * 1000:.0f} ms; health in {slowest_ms:.0f} ms"
    )


def _health_s(lab: Lab, target: Target, path: str) -> float:
    began_s = time.monotonic()
    status = target.gateway.ask(None, method="GET", path=path).status
    took_s = time.monotonic() - began_s
    lab.check(status == 200, f"{path} under overload: {status}")
    lab.check(took_s < AT_ONCE_S, f"{path} under overload took {took_s:.2f} s")
    return took_s


def crowded_health(lab: Lab) -> str:
    """Many ask for health at once, and every place is taken: each is told, since one 503 can end a healthy process."""
    target = target_of_crowds(lab, *QUEUEING)
    globex = target.gateway.key(tenant="globex")
    asked = [get(path, None, last=False) for path in _HEALTH] * (CROWD // 2)
    with Crowd(target) as crowd, ExitStack() as stack:
        crowd.fill(target.key, globex)
        wires = [stack.enter_context(Wire(target.address)) for _ in asked]
        began_s = time.monotonic()
        for wire, raw in zip(wires, asked, strict=True):
            wire.send(raw)
        refused = [wire for wire in wires if not wire.hear_some().startswith(b"HTTP/1.1 200 ")]
        took_s = time.monotonic() - began_s
    lab.check(not refused, f"{len(refused)} of {CROWD} who asked for health at once were refused")
    return f"{CROWD} asked for health at once: 200 within {took_s * 1000:.0f} ms"


def abandoned_queue(lab: Lab) -> str:
    """Clients that leave while they wait in a full queue: no call, no money, and others get their places in time."""
    target = target_of_crowds(lab, *QUEUEING)
    globex, [stranger, *leavers] = target.gateway.key(tenant="globex"), strangers(target, 1 + QUEUE)
    with Crowd(target) as crowd, target.gateway.gauges() as gauges:
        crowd.fill(target.key, globex)
        with ExitStack() as leaving:
            for key in leavers:
                leaving.enter_context(client.send_and_leave(target.address, client.chat(stream=True), key=key))
            await_queue(lab, gauges, QUEUE)
        began_s = time.monotonic()
        at_most_s = QUEUE_WAIT_S + crowds.GRACE_S
        lab.must(lambda: gauges.read("gateway_queued") == 0, "who has left keeps its place in the queue", at_most_s)
        took_s = time.monotonic() - began_s
        waiting = crowd.ask(stranger)
        await_queue(lab, gauges, 1)
        crowd.gate.set()
        status = answer_to(waiting).status
        lab.check(status == 200, f"who waits in their place was answered {status}")
    target.gateway.wait_quiet()
    calls = len(target.upstream.calls)
    lab.check(calls == IN_FLIGHT + 1, f"{calls - IN_FLIGHT} upstream calls for one who waited: some had left")
    counted = [target.gateway.counted_nanousd(key) for key in leavers]
    lab.check(not any(counted), f"who has left the queue is charged {counted}")
    return f"{QUEUE} clients left a full queue: nothing was sent or charged, and there was room after {took_s:.1f} s"


def greedy_tenant(lab: Lab) -> str:
    """One tenant wants every place: it gets its share and waits, and another tenant is served meanwhile."""
    target = target_of_crowds(lab, *QUEUEING)
    keys, globex = (target.key, target.gateway.key()), target.gateway.key(tenant="globex")
    with Crowd(target) as crowd, target.gateway.gauges() as gauges:
        crowd.open(PER_TENANT, target.key)
        greedy = [crowd.ask(key) for key in keys]
        lab.must(lambda: gauges.read("gateway_queued") > 0, "nobody beyond a share waits", QUEUE_WAIT_S)
        began_s = time.monotonic()
        [other] = crowd.open(1, globex)
        took_s = time.monotonic() - began_s
        for one in greedy:
            answer = answer_to(one)
            lab.check(
                (answer.status, answer.code) == (503, "overloaded"), f"beyond its share: {answer.status} {answer.code}"
            )
        crowd.gate.set()
        lab.check(answer_to(other).looks_finished, "the other tenant's stream was cut")
    lab.check(took_s < AT_ONCE_S, f"the other tenant waited {took_s:.2f} s")
    return f"{PER_TENANT} of {IN_FLIGHT} places for one tenant; another was served after {took_s * 1000:.0f} ms"


# --- connections ------------------------------------------------------------------------------------------------


def connection_cap(lab: Lab) -> str:
    """As many connections as may be, all idle: one more is told 503 and closed, and room comes back when they leave."""
    target = target_of_crowds(lab, "max_connections")
    with target.gateway.gauges() as gauges:
        gauges.wait_alone()
        with ExitStack() as stack:
            for _ in range(CONNECTIONS - 1):
                stack.enter_context(Wire(target.address))
            refused = target.hear({str(number): get("/healthz", None) for number in range(4)})
            for said in refused.values():
                lab.check(
                    said.statuses == (503,) and said.closed,
                    f"beyond the cap: {list(said.statuses)}, closed: {said.closed}",
                )
                if said.answers:
                    lab.check("retry-after" in said.answers[0].headers, "beyond the cap: no retry-after")
                    lab.check(said.answers[0].code == "overloaded", f"beyond the cap: {said.answers[0].code}")
        gauges.wait_alone()
        target.served({"afterwards": get("/v1/models", target.key)})
    target.untouched()
    return f"{CONNECTIONS} idle connections: {len(refused)} more were told 503, and served once they had left"


PROBES = (
    Probe("full-queue", "overload-drain", full_queue),
    Probe("crowded-health", "overload-drain", crowded_health),
    Probe("abandoned-queue", "overload-drain", abandoned_queue),
    Probe("greedy-tenant", "overload-drain", greedy_tenant),
    Probe("connection-cap", "overload-drain", connection_cap),
)
