"""A crowd that means no good: good clients are served, the published limits hold, and all is given back."""

import contextlib
import json
import resource
import socket
import threading
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gateway.server import FrontLimits
from tests.support.process import WAIT_S, GatewayProcess

HALF_OPEN, DRIPS, NEVER_READ, TOO_LARGE = 1500, 200, 50, 50
GOOD, ANSWERS = 4, 60  # good clients, and how many answers each wants
PATIENCE_S = 10  # a good client's; on a machine that does nothing else it waits for some milliseconds
OTHER_THREADS = 64 + 12  # attendants; accept, lobby, signals, ledger, cache, janitor and some to come
GROWTH_BYTES = 120_000_000

CONFIG = """
[server]
header_timeout_s = 3
body_timeout_s = 3
write_timeout_s = 3
[store]
durability = "normal"
[[providers]]
name = "short"
dialect = "fake"
script = [{ text = "hello" }]
[[providers]]
name = "long"
dialect = "fake"
script = [{ text = "%s" }]
[[deployments]]
name = "mini"
provider = "short"
model = "gw-mini"
price = "free"
[[deployments]]
name = "maxi"
provider = "long"
model = "gw-maxi"
price = "free"
max_output_tokens = 4_000_000
context_window = 8_000_000
""" % ("x" * 1_500_000)


def request(key: str, model: str, *, announced: int | None = None, more: str = "") -> bytes:
    """One chat request as it goes over the wire; `announced` is what it says of its length, if that is a lie."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer {key}\r\n{more}"
    return f"{head}Content-Length: {announced or len(body)}\r\n\r\n{body}".encode()


class Use:
    """What a process uses: threads, descriptors, resident bytes."""

    def __init__(self, pid: int) -> None:
        status = Path(f"/proc/{pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        self.threads = int(fields["Threads"])
        self.resident = int(fields["VmRSS"].split()[0]) * 1024
        self.descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


class Crowd:
    """Connections to one gateway that mean no good. Use as a context manager."""

    def __init__(self, address: tuple[str, int], key: str) -> None:
        self._address = address
        self._key = key
        self._open: list[socket.socket] = []
        self._stop = threading.Event()
        self._dripper = threading.Thread(target=self._drip)
        self._drips: list[socket.socket] = []

    def gather(self) -> None:
        """Let all of them come."""
        for number in range(HALF_OPEN):
            self._connect(b"" if number % 2 else b"POST /v1/chat/completions HTTP/1.1\r\nHost: g")
        self._drips = [self._connect(b"POST /v1/chat/completions HTTP/1.1\r\nX: ") for _ in range(DRIPS)]
        self._dripper.start()
        for _ in range(NEVER_READ):
            self._connect(request(self._key, "maxi"), receive_bytes=4096)
        too_large = request(self._key, "mini", announced=10 * 2**30, more="Expect: 100-continue\r\n")
        for number in range(TOO_LARGE):
            self._connect(too_large if number % 2 else too_large.partition(b"{")[0])

    def _connect(self, data: bytes, receive_bytes: int | None = None) -> socket.socket:
        sock = socket.socket()
        self._open.append(sock)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(WAIT_S)
        sock.connect(self._address)
        sock.sendall(data)
        return sock

    def _drip(self) -> None:
        while not self._stop.wait(0.3):
            for sock in self._drips:
                with contextlib.suppress(OSError):
                    sock.send(b"a", socket.MSG_DONTWAIT)

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._dripper.is_alive():
            self._dripper.join()
        for sock in self._open:
            sock.close()


@contextlib.contextmanager
def descriptors(count: int) -> Iterator[None]:
    """This process may open so many files meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(count, hard)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class HostileCrowdTest(unittest.TestCase):
    def until(self, condition: Callable[[], bool], what: Callable[[], object]) -> None:
        """Wait until what was taken is given back."""
        pause = threading.Event()
        for _ in range(WAIT_S * 20):
            if condition():
                return
            pause.wait(0.05)
        raise AssertionError(what())

    def ask(self, address: tuple[str, int], raw: bytes, outcomes: list[str]) -> None:
        """A good client: one request after the other, each on a connection of its own every third time."""
        sock: socket.socket | None = None
        for number in range(ANSWERS):
            try:
                if sock is None or not number % 3:
                    if sock is not None:
                        sock.close()
                    sock = socket.create_connection(address, PATIENCE_S)
                sock.sendall(raw)
                outcomes.append(sock.recv(65_536)[9:12].decode())
            except OSError as error:
                outcomes.append(repr(error))
        if sock is not None:
            sock.close()

    def test_good_clients_are_served_and_all_is_given_back(self) -> None:
        """1,500 half-open connections, 200 dripped heads, 50 that never read, 50 that announce ten GiB."""
        with descriptors(4096), GatewayProcess(CONFIG) as gateway:
            key = gateway.create_key()["key"]
            self.assertEqual(gateway.chat(key, model="mini")[0], 200)
            before = Use(gateway.child.pid)
            outcomes: list[str] = []
            with Crowd(gateway.address, key) as crowd:
                crowd.gather()
                asking = (gateway.address, request(key, "mini"), outcomes)
                clients = [threading.Thread(target=self.ask, args=asking) for _ in range(GOOD)]
                for client in clients:
                    client.start()
                peak = [Use(gateway.child.pid)]
                for client in clients:
                    client.join()
                    peak.append(Use(gateway.child.pid))
                self.assertEqual(outcomes, ["200"] * GOOD * ANSWERS)
                self.assertLessEqual(max(use.threads for use in peak), NEVER_READ + TOO_LARGE + GOOD + OTHER_THREADS)
                self.assertLess(max(use.resident for use in peak), before.resident + GROWTH_BYTES)
                self.assertLess(NEVER_READ + TOO_LARGE + GOOD, FrontLimits().max_threads)
            self.check_given_back(gateway, before)

    def check_given_back(self, gateway: GatewayProcess, before: Use) -> None:
        def ready() -> dict[str, Any]:
            answer: dict[str, Any] = json.loads(gateway.call("GET", "/readyz")[2])
            return answer

        self.until(lambda: ready()["in_flight"] == 1, ready)  # this very question
        self.until(
            lambda: Use(gateway.child.pid).descriptors <= before.descriptors + 2,
            lambda: vars(Use(gateway.child.pid)),
        )
        self.until(lambda: Use(gateway.child.pid).threads <= before.threads + 2, lambda: vars(Use(gateway.child.pid)))
        self.assertTrue(gateway.cli("ledger", "verify")["ok"])


if __name__ == "__main__":
    unittest.main()
