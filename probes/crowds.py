"""A gateway that has few places, clients whose streams last until they are told to end, and what each was answered.

Nothing is taken for settled because a while has passed: who is queued is asked of the gateway itself.
"""

import http.client
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet

from probes import client
from probes.client import Answer
from probes.gateways import server
from probes.gauges import Gauges
from probes.lab import Lab
from probes.target import Target
from probes.upstream import DONE, ROLE, STOP, Call, Reply, report, word

IN_FLIGHT, PER_TENANT, QUEUE, QUEUE_WAIT_S, CONNECTIONS = 6, 4, 2, 2.0, 64
ANNOUNCE_S, DRAIN_S = 0.4, 3.0
LIMITS = {
    "max_in_flight": IN_FLIGHT,
    "max_per_tenant": PER_TENANT,
    "queue": QUEUE,
    "queue_wait_s": QUEUE_WAIT_S,
    "max_connections": CONNECTIONS,
    "announce_s": ANNOUNCE_S,
    "drain_s": DRAIN_S,
}
QUEUEING = ("max_in_flight", "max_per_tenant", "queue", "queue_wait_s")
DRAINING = ("announce_s", "drain_s")

GRACE_S = 10.0
"""By so much a bound may be passed: the machine may be busy."""

ANSWER_S = 30.0
"""Whoever is not answered after so long is taken for forgotten."""

EVERY_S = 0.02


def target_of_crowds(lab: Lab, *needed: str) -> Target:
    """The target that all probes of overload and of drains share; these of its limits must be published, and have an
    effect.
    """
    lab.documented(*needed)
    target = lab.target(more=server(**LIMITS))
    warnings = " ".join(line for line in target.gateway.lines if '"config_warning"' in line)
    unheeded = [name for name in needed if f"server.{name}:" in warnings]
    lab.check(not unheeded, f"limits without effect: {', '.join(unheeded)}")
    return target


def gated(gate: threading.Event) -> Reply:
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


class Crowd:
    """Clients whose streams go on until `gate` opens; each on a thread of its own. Use as a context manager.

    took_s  how long each that is over has taken
    """

    def __init__(self, target: Target) -> None:
        self.gate = threading.Event()
        self.took_s: dict[Future[Answer], float] = {}
        self._target = target
        self._hands = ThreadPoolExecutor(32)
        target.upstream.begin_anew(gated(self.gate))

    def fill(self, first: str, second: str) -> list[Future[Answer]]:
        """A stream in every place: as many as one tenant may have with the first key, the others with the second."""
        return self.open(PER_TENANT, first) + self.open(IN_FLIGHT - PER_TENANT, second)

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
        return answer_to(asked), self.took_s.get(asked, ANSWER_S)

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._hands.shutdown()


def answer_to(asked: Future[Answer]) -> Answer:
    """What became of a request; status 0 if nothing did, or if its connection was cut."""
    try:
        return asked.result(ANSWER_S)
    except (NotYet, OSError, http.client.HTTPException):
        return Answer(0, {}, b"", whole=False)


def answer_of(target: Target, raw: bytes) -> Answer | None:
    """The answer on a new connection; None if it was refused or closed without one."""
    try:
        [said] = target.hear({"new": raw}).values()
    except OSError:
        return None
    return said.answers[0] if said.answers else None


def strangers(target: Target, count: int) -> list[str]:
    """Keys of tenants that nobody has seen: one tenant may have a share of the queue only."""
    return [target.gateway.key(tenant=f"stranger-{time.monotonic_ns()}") for _ in range(count)]


def await_queue(lab: Lab, gauges: Gauges, count: int) -> None:
    """Wait until so many requests are in the queue; none stays there for long."""
    lab.must(lambda: gauges.read("gateway_queued") == count, f"{count} requests never wait at a time", QUEUE_WAIT_S)
