"""Clients that take their time: a byte now and then, nothing at all, or answers that they never read."""

import contextlib
import json
import select
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from probes import client
from probes.lab import Lab, Probe
from probes.target import Target, shares
from probes.upstream import PATIENCE_S, ROLE, Call, good, word
from probes.wire import CHUNKED, Heard, Wire, get, post, sized

LIMITS = {
    "header_timeout_s": 0.6,
    "body_timeout_s": 0.6,
    "write_timeout_s": 0.6,
    "idle_timeout_s": 0.6,
    "max_connections": 512,
}
GRACE_S = 10.0
"""A connection may outlive its deadline by so much: the machine may be busy."""

CONNECTIONS = 200
EVERY_S = 0.1
HONEST_PER_S = 20
P95_S, SLOWER = 0.25, 20
"""Health beside the drips takes so long at most, or on a busy machine so many times what it takes alone."""

GROWTH_MIB = 64
SPARE_THREADS = 32
LARGE_CHARS = 8 << 20
"""More than the buffers between two sockets hold, even where the kernel lets them grow."""


@dataclass(slots=True)
class _Dripping:
    """One connection of a client that drips."""

    name: str
    wire: Wire
    drop: bytes
    began_s: float
    lasted_s: float | None = None
    raw: bytearray = field(default_factory=bytearray)

    def drip(self) -> None:
        """Send a drop, and hear what has come."""
        with contextlib.suppress(BlockingIOError):
            data = self._receive()
            self.raw += data
            if not data:
                self.lasted_s = time.monotonic() - self.began_s
                return
        if self.drop:
            self.wire.send(self.drop)

    def _receive(self) -> bytes:
        try:
            return self.wire.sock.recv(65_536)
        except ConnectionError:
            return b""


def _drip(
    address: tuple[str, int], kinds: Mapping[str, tuple[bytes, bytes]], each: int, for_s: float
) -> list[_Dripping]:
    """Connections of every kind (what is sent at first, and then every EVERY_S), watched for so long at most."""
    with ExitStack() as stack:
        all_of_them = []
        for name, (first, drop) in kinds.items():
            for _ in range(each):
                wire = stack.enter_context(Wire(address))
                wire.send(first)
                wire.sock.setblocking(False)
                all_of_them.append(_Dripping(name, wire, drop, time.monotonic()))
        end_s = time.monotonic() + for_s
        while (left := [one for one in all_of_them if one.lasted_s is None]) and time.monotonic() < end_s:
            select.select([], [], [], EVERY_S)
            for one in left:
                one.drip()
        return all_of_them


def _check_ended(lab: Lab, drips: list[_Dripping], deadline_s: float, *statuses: int) -> str:
    """Each was closed by its deadline, with one of these answers or none."""
    for one in drips:
        said = Heard(bytes(one.raw), one.lasted_s is not None, one.lasted_s or 0)
        lasted = "for ever" if one.lasted_s is None else f"{one.lasted_s:.1f} s"
        lab.check(one.lasted_s is not None and one.lasted_s <= deadline_s + GRACE_S, f"{one.name}: lived {lasted}")
        lab.check(set(said.statuses) <= {*statuses}, f"{one.name}: answered {list(said.statuses)}")
    longest_s = max((one.lasted_s or 0 for one in drips), default=0)
    return f"{len(drips)} connections: closed after {longest_s:.1f} s at most"


def _target(lab: Lab) -> Target:
    return lab.target(more=lab.server(**LIMITS))


def dripped_heads(lab: Lab) -> str:
    """Slowloris: 200 heads that come byte by byte are cut at their deadline, and health stays quick beside them."""
    target = _target(lab)
    before, deadline_s = target.gateway.rss_bytes(), LIMITS["header_timeout_s"]
    kinds = {
        "a header's bytes": (b"GET /v1/models HTTP/1.1\r\nHost: gw\r\nX-A: ", b"a"),
        "headers": (b"GET /v1/models HTTP/1.1\r\nHost: gw\r\n", b"X-A: b\r\n"),
        "the target's bytes": (b"GET /v1/", b"a"),
        "the method's bytes": (b"G", b""),
    }
    with _honest(target) as alone:
        time.sleep(6 / HONEST_PER_S)
    with _honest(target) as seconds:
        drips = _drip(target.address, kinds, CONNECTIONS // len(kinds), deadline_s + 2 * GRACE_S)
        threads = _threads(target.gateway.pid)
    seen = _check_ended(lab, drips, deadline_s, 408)
    p95_s = statistics.quantiles(seconds, n=20)[-1]
    bound_s = max(P95_S, SLOWER * statistics.median(alone))
    lab.check(p95_s <= bound_s, f"health took {p95_s * 1000:.0f} ms at the 95th percentile")
    most = LIMITS["max_connections"] + SPARE_THREADS
    lab.check(threads <= most, f"{threads} threads")
    grown_mib = (target.gateway.rss_bytes() - before) / (1 << 20)
    lab.check(grown_mib <= GROWTH_MIB, f"memory grew by {grown_mib:.1f} MiB")
    target.untouched()
    return f"{seen}; health took {p95_s * 1000:.0f} ms at the 95th percentile"


@contextmanager
def _honest(target: Target) -> Iterator[list[float]]:
    """Asks for health beside what is done in this block; how long each took."""
    seconds: list[float] = []
    done = threading.Event()

    def ask() -> None:
        while not done.wait(1 / HONEST_PER_S):
            began_s = time.monotonic()
            answer = target.gateway.ask(None, method="GET", path="/healthz")
            target.check(answer.status == 200, f"health answered {answer.status}")
            seconds.append(time.monotonic() - began_s)

    asker = threading.Thread(target=ask, name="honest", daemon=True)
    asker.start()
    try:
        yield seconds
    finally:
        done.set()
        asker.join(PATIENCE_S)


def _threads(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("Threads:")[2].split()[0])


def dripped_bodies(lab: Lab) -> str:
    """Bodies that come byte by byte, in sizes, extensions, chunks, trailers: 408 at the deadline, no money moves."""
    target = _target(lab)
    key, raw = target.key, client.CHAT_BODY
    in_chunks = post(key, CHUNKED)
    kinds = {
        "a sized body": (post(key, "Content-Length: 1000", body=raw), b" "),
        "no body at all": (post(key, sized(raw)), b""),
        "a chunk's bytes": (in_chunks + b"1000\r\n", b" "),
        "chunks": (in_chunks, b"1\r\n \r\n"),
        "a size's zeros": (in_chunks, b"0"),
        "an extension": (in_chunks + b"5;", b"e"),
        "trailers": (in_chunks + b"%x\r\n%b\r\n0\r\n" % (len(raw), raw), b"A: b\r\n"),
        "after 100 Continue": (post(key, CHUNKED, "Expect: 100-continue"), b""),
    }
    drips = _drip(target.address, kinds, 4, LIMITS["body_timeout_s"] + 2 * GRACE_S)
    seen = _check_ended(lab, drips, LIMITS["body_timeout_s"], 100, 400, 408)
    target.untouched()
    statuses = [status for one in drips for status in Heard(bytes(one.raw), True, 0).statuses]
    return f"{seen}; {shares(statuses)}"


def idle_connections(lab: Lab) -> str:
    """Connections that say nothing, at first or after an answer, are closed after idle_timeout_s."""
    target = _target(lab)
    kept = get("/v1/models", target.key, last=False)
    kinds = {
        "nothing": (b"", b""),
        "after an answer": (kept, b""),
        "after an error": (post(None, "Content-Length: 0"), b""),
    }
    drips = _drip(target.address, kinds, 20, LIMITS["idle_timeout_s"] + 2 * GRACE_S)
    seen = _check_ended(lab, drips, LIMITS["idle_timeout_s"], 200, 401)
    target.untouched()
    return seen


def unread_answers(lab: Lab) -> str:
    """Clients that never read an answer or a stream, or a byte now and then: left, their upstream too, and paid."""
    target = _target(lab)
    left = threading.Event()

    def reply(call: Call) -> None:
        if not call.body.get("stream"):
            return good("l" * LARGE_CHARS)(call)
        call.close()
        call.bill(7, 0)
        call.begin_stream()
        try:
            call.event(ROLE)
            while not call.left_within(0):
                call.event(word("w" * 50_000))
        finally:
            left.set()
        return None

    target.upstream.begin_anew(reply)
    keys = {name: target.gateway.key() for name in ("a whole answer", "a stream", "a byte now and then")}
    with ExitStack() as stack:
        wires = {}
        for name, key in keys.items():
            raw = json.dumps(client.chat(stream=name == "a stream")).encode()
            wires[name] = stack.enter_context(Wire(target.address, receive_bytes=4096))
            wires[name].send(post(key, sized(raw), body=raw))
        slow = wires["a byte now and then"].sock
        slow.setblocking(False)
        began_s, is_over = time.monotonic(), False
        while time.monotonic() < began_s + 2 * LIMITS["write_timeout_s"] + GRACE_S:
            select.select([], [], [], EVERY_S)
            with contextlib.suppress(OSError):
                slow.recv(1)
            is_over = all(target.gateway.rows(key) for key in keys.values()) and _in_flight(target) <= 1
            if is_over:
                break
        took_s = time.monotonic() - began_s
        lab.check(is_over, f"an unread answer is in flight after {took_s:.1f} s")
        for name, key in keys.items():
            rows = target.gateway.rows(key)
            lab.check(len(rows) == 1, f"{name}: {len(rows)} rows after {took_s:.1f} s")
            lab.check(target.gateway.counted_nanousd(key) > 0, f"{name}: costs nothing")
        lab.check(left.wait(GRACE_S), "the upstream of a stream that nobody reads is not left")
    return f"{len(keys)} unread answers: given up after {took_s:.1f} s at most, each paid once"


def _in_flight(target: Target) -> int:
    """Requests that are being worked on, this one included."""
    return int(json.loads(target.gateway.ask(None, method="GET", path="/readyz").body)["in_flight"])


PROBES = (
    Probe("dripped-heads", "slow-client", dripped_heads),
    Probe("dripped-bodies", "slow-client", dripped_bodies),
    Probe("idle-connections", "slow-client", idle_connections),
    Probe("unread-answers", "slow-client", unread_answers),
)
