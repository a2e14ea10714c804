"""Two gateways behind a load balancer with latency are replaced one after the other under load: nobody notices."""

import contextlib
import http.client
import json
import shutil
import signal
import tempfile
import threading
import unittest
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from gateway.clock import RealClock
from tests.support import scripted_upstream
from tests.support.front import DONE, END, STOP, completion, event, sse
from tests.support.process import WAIT_S, GatewayProcess, run_cli
from tests.support.proxy import DelayingProxy
from tests.support.scripted_upstream import Peer, ScriptedUpstream

DELAY_S = 0.002
CALLERS = 20
PACE_S = 0.1  # of each caller: 200 requests a second, all together
ANNOUNCE_S = 2
KEPT_S = 0.5
"""Callers use no connection again that was idle for longer: it may be closed as they do, and nobody can help that. It
is far shorter than what is announced, since all sides may be late on a busy machine.
"""
EVENTS = 45  # of a stream, which so goes on for longer than is announced

CONFIG = """
[server]
announce_s = {announce_s}
drain_s = {drain_s}
[store]
durability = "normal"
[[providers]]
name = "up"
base_url = "{url}"
[[deployments]]
name = "mini"
provider = "up"
model = "gw-mini"
price = "free"
"""


def serve(peer: Peer, begun: threading.Semaphore) -> None:
    """An upstream's connection: short answers, and streams of some seconds; `begun` is told of each."""
    pause = threading.Event()
    with contextlib.suppress(ConnectionError):
        while True:
            if not json.loads(peer.request().body).get("stream"):
                peer.send(scripted_upstream.answer(json.dumps(completion()).encode()))
                continue
            begun.release()
            peer.send(scripted_upstream.stream_head())
            for number in range(EVENTS):
                peer.send(sse(event({"content": f"{number} "})))
                pause.wait(0.06)
            peer.send(sse(STOP), sse(DONE), END)


class Callers:
    """Clients that keep their connections, ask at a steady pace, and note what became of each request.

    A connection that was closed while it was idle, or was idle for KEPT_S, is replaced, as client libraries do; a
    request that was sent and got no answer, or a refusal, was dropped.
    """

    def __init__(self, address: tuple[str, int], key: str) -> None:
        self._address = address
        self._head = {"Authorization": f"Bearer {key}"}
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.outcomes: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._call_on, args=(number,)) for number in range(CALLERS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Wait until every caller has ended."""
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)

    def _call_on(self, number: int) -> None:
        self._stop.wait(PACE_S * number / CALLERS)
        clock = RealClock()
        with contextlib.closing(http.client.HTTPConnection(*self._address, timeout=WAIT_S)) as connection:
            while not self._stop.is_set():
                outcome = self._call(connection)
                answered_s = clock.now_s()
                with self._lock:
                    self.outcomes[outcome] += 1
                self._stop.wait(PACE_S)
                if clock.now_s() - answered_s > KEPT_S:
                    connection.close()

    def _call(self, connection: http.client.HTTPConnection) -> str:
        body = json.dumps({"model": "mini", "messages": [{"role": "user", "content": "hi"}]})
        if connection.sock is not None and _has_ended(connection):
            connection.close()
        try:
            connection.request("POST", "/v1/chat/completions", body, self._head)
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return type(error).__name__
        return str(response.status)

    def stream(self) -> bool:
        """Ask for one long stream; whether it came to its end."""
        with contextlib.closing(http.client.HTTPConnection(*self._address, timeout=WAIT_S)) as connection:
            fields = {"model": "mini", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
            connection.request("POST", "/v1/chat/completions", json.dumps(fields), self._head)
            try:
                return connection.getresponse().read().endswith(b"data: [DONE]\n\n")
            except (OSError, http.client.HTTPException):
                return False


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    connection.sock.setblocking(False)
    try:
        return not connection.sock.recv(1)
    except BlockingIOError:
        return False
    finally:
        connection.sock.settimeout(WAIT_S)


class RollingRestartTest(unittest.TestCase):
    def roll(self, announce_s: float, drain_s: float) -> tuple[Counter[str], list[bool], list[int]]:
        """Replace both gateways under load.

        Returns what became of the requests, which streams came to their end, and the exit statuses.
        """
        with ExitStack() as stack:
            begun = threading.Semaphore(0)
            upstream = ScriptedUpstream(*[partial(serve, begun=begun)] * 200)
            stack.callback(upstream.close)
            config = CONFIG.format(announce_s=announce_s, drain_s=drain_s, url=upstream.url("/v1"))
            folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
            key = self.shared_key(folders)
            proxy = stack.enter_context(DelayingProxy(DELAY_S))
            gateways = [stack.enter_context(GatewayProcess(config, folder=folder)) for folder in folders]
            proxy.serve(*(gateway.address for gateway in gateways))
            callers = Callers(proxy.address, key)
            stack.callback(callers.stop)
            streams: list[bool] = []
            statuses = []
            for at, folder in enumerate(folders):
                threads = [threading.Thread(target=lambda: streams.append(callers.stream())) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for _ in threads:
                    self.assertTrue(begun.acquire(timeout=WAIT_S))
                gateways[at].signal(signal.SIGTERM)
                statuses.append(gateways[at].wait())
                gateways[at] = stack.enter_context(GatewayProcess(config, folder=folder))
                proxy.serve(*(gateway.address for gateway in gateways))
                for thread in threads:
                    thread.join(WAIT_S)
            callers.stop()
            for gateway in gateways:
                self.assertTrue(gateway.cli("ledger", "verify")["ok"])
        return callers.outcomes, streams, statuses

    def shared_key(self, folders: list[Path]) -> str:
        """A key that both gateways know: the second begins with a copy of the first one's books."""
        data_dirs = [folder / "gateway-data" for folder in folders]
        made = run_cli("keys", "create", "--tenant", "acme", "--json", "--data-dir", str(data_dirs[0]))
        shutil.copytree(data_dirs[0], data_dirs[1])
        created: dict[str, Any] = json.loads(made.stdout)
        return str(created["key"])

    def test_nothing_is_dropped_and_streams_finish(self) -> None:
        """Keep-alive clients at 200 requests a second, and streams in flight at each signal."""
        outcomes, streams, statuses = self.roll(ANNOUNCE_S, WAIT_S)
        self.assertEqual(set(outcomes), {"200"})
        self.assertGreater(outcomes["200"], 200)
        self.assertEqual((streams, statuses), ([True] * 8, [0, 0]))

    def test_without_a_drain_requests_are_dropped(self) -> None:
        """The negative control: the same load does notice a gateway that ends at once."""
        outcomes, streams, _ = self.roll(0, 0)
        self.assertGreater(outcomes.total(), outcomes["200"])
        self.assertIn(False, streams)


if __name__ == "__main__":
    unittest.main()
