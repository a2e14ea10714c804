"""More work than there is room for, and a process that is asked to end: who waits, who is refused, who is finished."""

import http.client
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import ExitStack, contextmanager

from probes import client
from probes.client import Answer
from probes.framing import CHAT
from probes.gateways import Outside, server
from probes.lab import Lab, Probe
from probes.target import Target
from probes.upstream import DONE, ROLE, STOP, Call, Reply, report, wait_until, word
from probes.wire import CHUNKED, CLOSE, Wire, get, post, sized

IN_FLIGHT, PER_TENANT, QUEUE, QUEUE_WAIT_S, CONNECTIONS = 6, 4, 2, 0.8, 48
CROWD = 40
ANNOUNCE_S, DRAIN_S = 0.4, 1.2
LIMITS = {
    "max_in_flight": IN_FLIGHT,
    "max_per_tenant": PER_TENANT,
    "queue": QUEUE,
    "queue_wait_s": QUEUE_WAIT_S,
    "max_connections": CONNECTIONS,
    "announce_s": ANNOUNCE_S,
    "drain_s": DRAIN_S,
}
AT_ONCE_S = QUEUE_WAIT_S / 2
"""A full queue answers within 0.2 s, and this machine may be busy."""

GRACE_S = 2.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)
HEARD_S = 3.0
ANSWER_S = 8.0
"""Whoever is not answered after so long is taken for forgotten."""

EVERY_S = 0.02
_READY = "/readyz"


def _target(lab: Lab, *needed: str) -> Target:
    """The target of this area; these of its limits must be published, and have an effect."""
    lab.documented(*needed)
    target = lab.target(more=server(**LIMITS))
    warnings = " ".join(line for line in target.gateway.lines if '"config_warning"' in line)
    unheeded = [name for name in needed if f"server.{name}:" in warnings]
    lab.check(not unheeded, f"limits without effect: {', '.join(unheeded)}")
    return target


_QUEUEING = ("max_in_flight", "max_per_tenant", "queue", "queue_wait_s")
_DRAINING = ("announce_s", "drain_s")


def _gated(gate: threading.Event) -> Reply:
    """A stream of deltas that goes on until the gate opens, and then ends well."""

    def reply(call: Call) -> None:
        call.begin_stream()
        call.event(ROLE, word())
        words = 1
        while not gate.is_set():
            if call.left_within(EVERY_S):
                return
            call.event(word())
            words += 1
        call.event(STOP, report(call.bill(7, words)), DONE)
        call.end_stream()

    return reply


class _Crowd:
    """Clients whose streams go on until told to end; each on a thread of its own. Use as a context manager.

    took_s  how long each that is over has taken
    """

    def __init__(self, target: Target) -> None:
        self.gate = threading.Event()
        self.took_s: dict[Future[Answer], float] = {}
        self._target = target
        self._hands = ThreadPoolExecutor(32)
        target.upstream.begin_anew(_gated(self.gate))

    def open(self, count: int, key: str) -> list[Future[Answer]]:
        """So many streams, all of which the upstream has begun."""
        calls = len(self._target.upstream.calls)
        streams = [self.ask(key) for _ in range(count)]
        self._target.upstream.wait_calls(calls + count)
        return streams

    def ask(self, key: str) -> Future[Answer]:
        """One stream, whatever becomes of it."""
        body = client.chat(stream=True, max_tokens=1000)
        began_s = time.monotonic()
        asked = self._hands.submit(client.request, self._target.address, body, key=key)
        asked.add_done_callback(lambda done: self.took_s.update({done: time.monotonic() - began_s}))
        return asked

    def asked(self, key: str) -> tuple[Answer, float]:
        """One stream until it is answered, and how long that took; it should be refused."""
        asked = self.ask(key)
        return _answer(asked), self.took_s.get(asked, ANSWER_S)

    def __enter__(self) -> "_Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._hands.shutdown()


def _answer(asked: Future[Answer]) -> Answer:
    """What became of a request; status 0 if nothing did, or if its connection was cut."""
    try:
        return asked.result(ANSWER_S)
    except (NotYet, OSError, http.client.HTTPException):
        return Answer(0, {}, b"", whole=False)


def _check_overloaded(lab: Lab, told: str, answer: Answer, took_s: float, at_least_s: float, at_most_s: float) -> None:
    refused = answer.status == 503 and answer.code == "overloaded"
    lab.check(refused, f"{told}: {answer.status} {answer.code}")
    lab.check(answer.headers.get("retry-after", "0").isdigit() and refused, f"{told}: no retry-after")
    lab.check(at_least_s <= took_s <= at_most_s, f"{told}: answered after {took_s:.2f} s")


# --- overload ---------------------------------------------------------------------------------------------------


def full_queue(lab: Lab) -> str:
    """Every place taken and the queue full: 503 at once, without money held; a place that is free goes to who waits."""
    target = _target(lab, *_QUEUEING)
    acme, globex = target.key, target.gateway.key(tenant="globex")
    with _Crowd(target) as crowd:
        served = crowd.open(PER_TENANT, acme) + crowd.open(IN_FLIGHT - PER_TENANT, globex)
        waiting = [crowd.ask(key) for key in _strangers(target, QUEUE)]
        time.sleep(QUEUE_WAIT_S / 4)
        answer, took_s = crowd.asked(*_strangers(target, 1))
        _check_overloaded(lab, "beyond the queue", answer, took_s, 0, AT_ONCE_S)
        seconds = [_health_s(lab, target, path) for path in ("/healthz", _READY)]
        held = len([hold for hold in target.gateway.holds() if hold["state"] == "open"])
        lab.check(held <= IN_FLIGHT, f"{held} holds for {IN_FLIGHT} places: who waits holds money")
        for one in waiting:
            answer = _answer(one)
            waited_s = crowd.took_s.get(one, ANSWER_S)
            _check_overloaded(lab, "in the queue", answer, waited_s, QUEUE_WAIT_S / 2, QUEUE_WAIT_S + GRACE_S)
        calls = len(target.upstream.calls)
        lab.check(calls == IN_FLIGHT, f"{calls} upstream calls for {IN_FLIGHT} places")
        lucky = crowd.ask(globex)
        time.sleep(QUEUE_WAIT_S / 8)
        crowd.gate.set()
        lab.check(_answer(lucky).status == 200, "who waits is not served once there is a place")
        for one in served:
            lab.check(_answer(one).looks_finished, "a stream was cut by the overload")
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
    target = _target(lab, *_QUEUEING)
    asked = [_kept_open(get(path, None)) for path in ("/healthz", _READY)] * (CROWD // 2)
    with _Crowd(target) as crowd, ExitStack() as stack:
        crowd.open(PER_TENANT, target.key)
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
    target = _target(lab, *_QUEUEING)
    globex, leavers = target.gateway.key(tenant="globex"), _strangers(target, QUEUE)
    [stranger] = _strangers(target, 1)
    with _Crowd(target) as crowd:
        crowd.open(PER_TENANT, target.key)
        crowd.open(IN_FLIGHT - PER_TENANT, globex)
        for key in leavers:
            client.send_and_leave(target.address, client.chat(stream=True), key=key).close()
        began_s = time.monotonic()
        while (waiting := crowd.ask(stranger)) and _is_refused(waiting):
            if time.monotonic() > began_s + QUEUE_WAIT_S + GRACE_S:
                break
        took_s = time.monotonic() - began_s
        lab.check(took_s <= QUEUE_WAIT_S + GRACE_S, f"who has left keeps its place in the queue for {took_s:.1f} s")
        calls = len(target.upstream.calls)
        lab.check(calls == IN_FLIGHT, f"{calls - IN_FLIGHT} clients were served after they had left")
        crowd.gate.set()
        status = _answer(waiting).status
        lab.check(status == 200, f"who waits in their place was answered {status}")
    target.gateway.wait_quiet()
    counted = [target.gateway.counted_nanousd(key) for key in leavers]
    lab.check(not any(counted), f"who has left the queue is charged {counted}")
    return f"{QUEUE} clients left a full queue: nothing was sent or charged, and there was room after {took_s:.1f} s"


def _strangers(target: Target, count: int) -> list[str]:
    """Keys of tenants that nobody has seen: one tenant may have a share of the queue only."""
    return [target.gateway.key(tenant=f"stranger-{time.monotonic_ns()}") for _ in range(count)]


def _is_refused(asked: Future[Answer]) -> bool:
    """Whether a request is refused at once, and does not wait."""
    try:
        return asked.result(AT_ONCE_S / 2).status == 503
    except NotYet:
        return False


def greedy_tenant(lab: Lab) -> str:
    """One tenant wants every place: it gets its share and waits, and another tenant is served meanwhile."""
    target = _target(lab, *_QUEUEING)
    with _Crowd(target) as crowd:
        crowd.open(PER_TENANT, target.key)
        greedy = [crowd.ask(key) for key in (target.key, target.gateway.key())]
        time.sleep(QUEUE_WAIT_S / 4)
        key = target.gateway.key(tenant="globex")
        began_s = time.monotonic()
        [other] = crowd.open(1, key)
        took_s = time.monotonic() - began_s
        for one in greedy:
            answer = _answer(one)
            lab.check(
                (answer.status, answer.code) == (503, "overloaded"), f"beyond its share: {answer.status} {answer.code}"
            )
        crowd.gate.set()
        lab.check(_answer(other).looks_finished, "the other tenant's stream was cut")
    lab.check(took_s < AT_ONCE_S, f"the other tenant waited {took_s:.2f} s")
    return f"{PER_TENANT} of {IN_FLIGHT} places for one tenant; another was served after {took_s * 1000:.0f} ms"


def connection_cap(lab: Lab) -> str:
    """As many connections as may be, all idle: one more is told 503 and closed, and room comes back when they leave."""
    target = _target(lab, "max_connections")
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(Wire(target.address))
        refused = target.hear({str(number): get("/healthz", None) for number in range(4)})
        for said in refused.values():
            lab.check(
                said.statuses == (503,) and said.closed, f"beyond the cap: {list(said.statuses)}, closed: {said.closed}"
            )
            if said.answers:
                lab.check("retry-after" in said.answers[0].headers, "beyond the cap: no retry-after")
                lab.check(said.answers[0].code == "overloaded", f"beyond the cap: {said.answers[0].code}")
    wait_until(lambda: _is_up(target.gateway), "there is no room after everybody has left")
    target.served({"afterwards": get("/v1/models", target.key)})
    target.untouched()
    return f"{CONNECTIONS} idle connections: {len(refused)} more were told 503, and served once they had left"


def _is_up(gateway: Outside) -> bool:
    try:
        return gateway.ask(None, method="GET", path="/healthz").status == 200
    except OSError:
        return False


# --- drain ------------------------------------------------------------------------------------------------------


@contextmanager
def _draining(lab: Lab, target: Target, at_most_s: float, *, told: str) -> Iterator[None]:
    """SIGTERM; the process has ended well by itself, so long after it at most, once this block is done."""
    began_s = time.monotonic()
    logged = len(target.gateway.lines)
    target.gateway.signal(signal.SIGTERM)
    try:
        wait_until(_has_logged(target.gateway, logged), f"{told}: SIGTERM is not heard", HEARD_S)
    except TimeoutError as fault:
        lab.check(False, str(fault))
        target.gateway.signal(signal.SIGTERM)
    yield
    status = target.gateway.wait(max(began_s + at_most_s - time.monotonic(), 0.1))
    lab.check(status == 0, f"{told}: exit status {status} {time.monotonic() - began_s:.1f} s after SIGTERM")


def _restart(target: Target) -> None:
    if target.gateway.is_running:
        target.gateway.kill()
    target.gateway.start()
    target.address = target.gateway.address


def drained_streams(lab: Lab) -> str:
    """SIGTERM with five streams and idle connections: announced, then refused, all five finished and paid, exit 0."""
    target = _target(lab, *_DRAINING)
    keys = [target.gateway.key(tenant=tenant) for tenant in ("acme", "globex", "acme", "globex", "acme")]
    with _Crowd(target) as crowd, ExitStack() as stack:
        streams = [crowd.open(1, key)[0] for key in keys]
        idle = [stack.enter_context(Wire(target.address)) for _ in range(3)]
        for wire in idle:
            wire.send(_kept_open(get("/healthz", None)))
            wire.hear_some(b"}")
        with _draining(lab, target, ANNOUNCE_S + DRAIN_S + GRACE_S, told="five streams"):
            _check_announced(lab, target, idle[0])
            idle_closed = [wire.hear(ANNOUNCE_S + GRACE_S).closed for wire in idle[1:]]
            lab.check(all(idle_closed), "idle connections are left open after announce_s")
            new = _answer_of(target, _request(target.key))
            lab.check(new is None or _is_refusal(new), f"a new request after announce_s: {new and new.status}")
            finished = [one.done() for one in streams]
            lab.check(not any(finished), f"{finished.count(True)} streams were cut at the end of announce_s")
            crowd.gate.set()
            whole = [_answer(one).looks_finished for one in streams]
            lab.check(all(whole), f"{whole.count(False)} of 5 streams were cut within the grace")
    _restart(target)
    for key, call in zip(keys, target.upstream.calls, strict=False):
        shown = target.gateway.shown(key)
        money = (shown["spent_nanousd"], shown["held_nanousd"], shown["unresolved_nanousd"])
        lab.check(money == (call.billed_nanousd, 0, 0), f"billed {call.billed_nanousd}, and after the stop {money}")
    return "five streams ended with [DONE] and were paid to the unit; idle ones closed; new ones refused; exit 0"


def _check_announced(lab: Lab, target: Target, idle: Wire) -> None:
    """Within announce_s: not ready, and still serving, each answer closing its connection."""
    ready = _answer_of(target, get(_READY, None))
    lab.check(ready is None or ready.status == 503, f"{_READY} after SIGTERM: {ready and ready.status}")
    new = _answer_of(target, get("/v1/models", target.key))
    if new is not None:
        lab.check(new.status == 200 or _is_refusal(new), f"a new request at once: {new.status}")
        lab.check(new.headers.get("connection") == "close", "an answer after SIGTERM does not close its connection")
    if idle.send(_kept_open(get("/healthz", None))):
        for answer in idle.hear(ANNOUNCE_S + GRACE_S).answers:
            closes = answer.headers.get("connection") == "close"
            lab.check(closes, f"an idle connection was answered {answer.status} and goes on")


def _kept_open(raw: bytes) -> bytes:
    """The same request on a connection that goes on."""
    return raw.replace(b"Connection: close\r\n", b"")


def _is_refusal(answer: Answer) -> bool:
    """503, with words for when to come back, on a connection that ends."""
    told = "retry-after" in answer.headers and answer.headers.get("connection") == "close"
    return answer.status == 503 and answer.code == "draining" and told


def _request(key: str) -> bytes:
    return post(key, sized(CHAT), CLOSE, body=CHAT)


def _answer_of(target: Target, raw: bytes) -> Answer | None:
    """The answer on a new connection; None if it was refused or closed without one."""
    try:
        [said] = target.hear({"new": raw}).values()
    except OSError:
        return None
    return said.answers[0] if said.answers else None


def drained_oddities(lab: Lab) -> str:
    """SIGTERM with half heads, half bodies and a stream without an end: closed, and the stream is cut at the grace."""
    target = _target(lab, *_DRAINING)
    with _Crowd(target) as crowd, ExitStack() as stack:
        [endless] = crowd.open(1, target.key)
        odd = {
            "half a head": b"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\nX-A: ",
            "one byte": b"G",
            "half a body": post(target.key, sized(CHAT), body=CHAT[:10]),
            "half a chunk": post(target.key, CHUNKED, body=b"ff\r\n{"),
            "after 100 Continue": post(target.key, sized(CHAT), "Expect: 100-continue"),
        }
        wires = {name: stack.enter_context(Wire(target.address)) for name in odd}
        for name, wire in wires.items():
            wire.send(odd[name])
        began_s = time.monotonic()
        with _draining(lab, target, ANNOUNCE_S + DRAIN_S + 2 * GRACE_S, told="half requests"):
            cut = _answer(endless)
            cut_s = time.monotonic() - began_s
            lab.check(not cut.looks_finished, "a stream that was cut looks finished")
            lab.check(cut.code == "draining", f"a stream that was cut says {cut.code}")
            early = cut_s < ANNOUNCE_S + DRAIN_S - EVERY_S
            lab.check(not early, f"a stream was cut {cut_s:.1f} s after SIGTERM, before the grace was over")
            for name, wire in wires.items():
                said = wire.hear()
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
    target = _target(lab, *_DRAINING, *_QUEUEING)
    globex = target.gateway.key(tenant="globex")
    with _Crowd(target) as crowd:
        served = crowd.open(PER_TENANT, target.key) + crowd.open(IN_FLIGHT - PER_TENANT, globex)
        waiting = [crowd.ask(key) for key in _strangers(target, QUEUE)]
        time.sleep(EVERY_S)
        with _draining(lab, target, ANNOUNCE_S + DRAIN_S + GRACE_S, told="a queue"):
            ready = _answer_of(target, get(_READY, None))
            lab.check(ready is None or ready.status == 503, f"{_READY} after SIGTERM: {ready and ready.status}")
            for one in waiting:
                answer = _answer(one)
                told = (answer.status, answer.code)
                right = told in ((503, "overloaded"), (503, "draining")) or answer.looks_finished
                lab.check(right, f"who waited was answered {told}")
            crowd.gate.set()
            whole = [_answer(one).looks_finished for one in served]
            lab.check(all(whole), f"{whole.count(False)} of {IN_FLIGHT} streams were cut")
    _restart(target)
    held = [target.gateway.shown(key)["held_nanousd"] for key in (target.key, globex)]
    lab.check(held == [0, 0], f"{held} is held after a clean stop")
    return f"{IN_FLIGHT} streams ended, {QUEUE} that waited were told; exit 0"


def second_signal(lab: Lab) -> str:
    """A second SIGTERM while streams run and the grace is long: the process is gone at once, and no money is lost."""
    seen = []
    upstream = lab.upstream(_gated(threading.Event()))
    gateway = lab.outside(upstream, more=lab.server(announce_s=10, drain_s=20))
    for number in SIGNALS:
        key = gateway.key()
        calls = len(upstream.calls)
        leaver = client.send_and_leave(gateway.address, client.chat(stream=True), key=key)
        upstream.wait_calls(calls + 1)
        logged = len(gateway.lines)
        gateway.signal(number)
        try:
            wait_until(_has_logged(gateway, logged), f"{number.name} is not heard", HEARD_S)
        except TimeoutError as fault:
            lab.check(False, str(fault))
        lab.check(gateway.is_running, "the first signal ended it with a stream in flight")
        began_s = time.monotonic()
        gateway.signal(number)
        status = gateway.wait(2 * GRACE_S)
        took_s = time.monotonic() - began_s
        leaver.close()
        lab.check(status is not None, f"it runs {took_s:.1f} s after the second signal")
        lab.check(took_s <= GRACE_S, f"it ended {took_s:.1f} s after the second signal")
        if gateway.is_running:
            gateway.kill()
        gateway.start()
        shown = gateway.shown(key)
        lab.check(shown["held_nanousd"] == 0, f"{shown['held_nanousd']} is held after the restart")
        counts = shown["spent_nanousd"] + shown["unresolved_nanousd"]
        lab.check(counts > 0, "the stream that was cut counts nothing")
        seen.append(f"{number.name}: {took_s * 1000:.0f} ms")
    return f"gone after the second signal, by {', '.join(seen)}; what ran is spent or unresolved"


def _has_logged(gateway: Outside, since: int) -> Callable[[], bool]:
    return lambda: any('"draining"' in line for line in gateway.lines[since:])


PROBES = (
    Probe("full-queue", "overload-drain", full_queue),
    Probe("crowded-health", "overload-drain", crowded_health),
    Probe("abandoned-queue", "overload-drain", abandoned_queue),
    Probe("greedy-tenant", "overload-drain", greedy_tenant),
    Probe("connection-cap", "overload-drain", connection_cap),
    Probe("drained-streams", "overload-drain", drained_streams),
    Probe("drained-queue", "overload-drain", drained_queue),
    Probe("drained-oddities", "overload-drain", drained_oddities),
    Probe("second-signal", "overload-drain", second_signal),
)
