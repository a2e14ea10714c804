"""kill -9 of a real process at each point of a request's life; then the next start is asked for the money."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from probes import client
from probes.gateways import READY_WITHIN_S, Outside
from probes.lab import Lab, Probe
from probes.upstream import PATIENCE_S, ROLE, STOP, Call, Upstream, good, report, wait_until, word

SETTLE_DELAYS_S = (0.0, 0.001, 0.002, 0.004)
"""Between the upstream's last byte and the death: a settlement at full durability takes about as long."""

LARGE_CHARS = 8 << 20
"""An answer that no socket's buffers hold, so that its writer waits for a client that does not read."""

_CLOGGED = """
[[providers]]
name = "clogged"
base_url = "http://127.0.0.1:{port}/v1"
[[deployments]]
name = "clogged"
provider = "clogged"
model = "clogged"
price = {{ input = 1, output = 4 }}
"""

Attack = Callable[[Outside, Upstream, str], None]
"""Sends one request with a key and kills the gateway at its point."""


def lifecycle(lab: Lab) -> str:
    """Killed at each point from the hold to the reply: ready again, no open hold, one row, what was billed, once."""
    upstream = lab.upstream(good())
    with _clogged_port() as port:
        gateway = lab.outside(upstream, more=_CLOGGED.format(port=port), durability="full")
        seen = [_die(lab, gateway, upstream, name, attack) for name, attack in _points()]
    served = gateway.chat(gateway.key()).status
    lab.check(served == 200, f"after all deaths a request is answered {served}")
    return "; ".join(seen)


def _die(lab: Lab, gateway: Outside, upstream: Upstream, name: str, attack: Attack) -> str:
    key, meter = gateway.key(), upstream.metered_nanousd
    attack(gateway, upstream, key)
    started_s = time.monotonic()
    gateway.start()
    ready_s = time.monotonic() - started_s
    shown, rows, billed = gateway.shown(key), gateway.rows(key), upstream.metered_nanousd - meter
    spent, unresolved = int(shown["spent_nanousd"]), int(shown["unresolved_nanousd"])
    told = f"{name}: spent {spent}, unresolved {unresolved}, billed {billed}"
    lab.check(ready_s < READY_WITHIN_S, f"{told}: ready after {ready_s:.1f} s")
    lab.check(shown["held_nanousd"] == 0, f"{told}: {shown['held_nanousd']} is still held")
    lab.check(spent + unresolved >= billed, f"{told}: money is missing")
    lab.check(not (spent and unresolved), f"{told}: settled and unresolved")
    lab.check(spent in (0, billed), f"{told}: not charged once")
    lab.check(len(rows) == 1, f"{told}: {len(rows)} rows")
    if name == "replying":
        lab.check(spent == billed, f"{told}: the client has a part of its answer, and it is not settled")
    for fault in gateway.check():
        lab.check(False, f"{told}: {fault}")
    return f"{name}: {'spent' if spent else 'unresolved'}"


def _points() -> Iterator[tuple[str, Attack]]:
    yield "held, not sent", _while_connecting
    yield "sent, unanswered", _once_sent
    yield "in a stream", _in_a_stream
    yield "answered, not ended", _before_the_end
    for delay_s in SETTLE_DELAYS_S:
        yield f"{delay_s * 1000:g} ms after the answer", _after_the_answer(delay_s)
    yield "replying", _while_replying


def _while_connecting(gateway: Outside, upstream: Upstream, key: str) -> None:
    """The hold is there and the connection to the upstream is not."""
    with _asking(gateway, client.chat(model="clogged"), key):
        wait_until(lambda: bool(gateway.holds_of(key)), "no hold was made")
        gateway.kill()


def _once_sent(gateway: Outside, upstream: Upstream, key: str) -> None:
    def reply(call: Call) -> None:
        call.bill()
        call.left_within(PATIENCE_S)
        call.close()

    upstream.script(reply)
    calls = len(upstream.calls)
    with _asking(gateway, client.chat(stream=True), key):
        upstream.wait_calls(calls + 1)
        gateway.kill()


def _in_a_stream(gateway: Outside, upstream: Upstream, key: str) -> None:
    """Five deltas have reached the client."""

    def reply(call: Call) -> None:
        call.begin_stream()
        call.bill(7, 5)
        call.event(ROLE, *[word()] * 5)
        call.left_within(PATIENCE_S)
        call.close()

    upstream.script(reply)
    with _asking(gateway, client.chat(stream=True), key) as sock:
        _read_until(sock, lambda text: text.count(b"word ") == 5)
        gateway.kill()


def _before_the_end(gateway: Outside, upstream: Upstream, key: str) -> None:
    """The upstream has said all, usage too, but for its end mark."""

    def reply(call: Call) -> None:
        call.begin_stream()
        call.event(ROLE, word(), STOP, report(call.bill(7, 1)))
        call.left_within(PATIENCE_S)
        call.close()

    upstream.script(reply)
    with _asking(gateway, client.chat(stream=True), key) as sock:
        _read_until(sock, lambda text: b'"stop"' in text)
        gateway.kill()


def _after_the_answer(delay_s: float) -> Attack:
    """So long after the upstream's last byte, wherever the settlement is then."""

    def attack(gateway: Outside, upstream: Upstream, key: str) -> None:
        dead = threading.Event()

        def reply(call: Call) -> None:
            good()(call)
            time.sleep(delay_s)
            gateway.kill()
            dead.set()

        upstream.script(reply)
        with _asking(gateway, client.chat(), key):
            if not dead.wait(PATIENCE_S):
                raise TimeoutError("the upstream was not called")

    return attack


def _while_replying(gateway: Outside, upstream: Upstream, key: str) -> None:
    """The client has the first bytes of a large answer, and reads no further."""
    upstream.script(good("l" * LARGE_CHARS))
    with _asking(gateway, client.chat(), key) as sock:
        _read_until(sock, lambda text: b"\r\n\r\n" in text)
        gateway.kill()


@contextmanager
def _asking(gateway: Outside, body: object, key: str) -> Iterator[socket.socket]:
    """A request that nobody waits for."""
    with client.send_and_leave(gateway.address, body, key=key) as sock:
        yield sock


def _read_until(sock: socket.socket, is_enough: Callable[[bytes], bool]) -> None:
    text = b""
    while not is_enough(text):
        data = sock.recv(4096)
        if not data:
            raise ConnectionError(f"the answer ended: {text[-80:]!r}")
        text += data


@contextmanager
def _clogged_port() -> Iterator[int]:
    """A port that lets nobody connect: its queue is full, and stays so."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


PROBES = (Probe("kill-at-each-point", "money-lifecycle", lifecycle),)
