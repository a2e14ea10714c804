"""Real gateways for the probes: one in this process, whose parts can be looked into, or one in a process of its own.

Both listen on the loopback and are asked over HTTP. check() says what is wrong with the books once all is quiet.
"""

import contextlib
import io
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway import app
from gateway.api import EXEMPT_PATHS, Api
from gateway.books import open_books
from gateway.clock import RealClock
from gateway.config import load
from gateway.data_dir import DataDir
from gateway.engines.threads import BlockingEffects
from gateway.errors import ClientGone, Draining, GatewayError
from gateway.oplog import OpLog
from gateway.providers import LiveProvider, Provider
from gateway.readiness import Readiness
from gateway.server import FrontLimits, FrontServer
from probes import client
from probes.client import Answer
from probes.gauges import Gauges
from probes.upstream import Call, Upstream, good, wait_until
from tracekit.sinks import MemorySink
from tracekit.trace import Tracer

PROVIDER_KEY = "sk-provider-PROVIDERCANARY0001"
READY_WITHIN_S = 30.0
ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"


def config(*upstreams: Upstream, provider: str = "", deployment: str = "", more: str = "") -> str:
    """A `gateway.toml`: the model `m` is served by every upstream, in failover order, as deployments d0, d1, ...

    provider, deployment  lines for each of these entries; more  for the file
    """
    parts = []
    for number, upstream in enumerate(upstreams):
        parts.append(f"""
[[providers]]
name = "p{number}"
base_url = "{upstream.url}"
api_key_env = "PROBED_KEY"
{provider}
[[deployments]]
name = "d{number}"
provider = "p{number}"
model = "probed"
price = {{ input = 1, cached_input = 0.1, output = 4 }}
context_window = 128_000
max_output_tokens = 16_384
{deployment}
""")
    names = ", ".join(f'"d{number}"' for number in range(len(upstreams)))
    return "\n".join([*parts, f'[[aliases]]\nname = "m"\ndeployments = [{names}]', more])


def server(**limits: float) -> str:
    """The `[server]` of a configuration."""
    return "[server]\n" + "".join(f"{name} = {value}\n" for name, value in limits.items())


QUICK = '[store]\ndurability = "normal"\n'
ONE_TRY = "[retry]\nmax_retries = 0\n[breaker]\nthreshold = 1000\n"
"""A request is one upstream call per deployment, however often that fails."""


class Running:
    """A gateway that serves.

    address  where it listens
    """

    address: tuple[str, int]

    def command(self, name: str, **arguments: Any) -> Any:
        """Run an operator's command."""
        raise NotImplementedError

    def key(self, budget_nanousd: int | None = None, *, tenant: str = "acme") -> str:
        """A new key; its budget is exact."""
        budget = None if budget_nanousd is None else f"{budget_nanousd // 10**9}.{budget_nanousd % 10**9:09d}"
        return str(self.command("keys.create", tenant=tenant, budget_usd=budget)["key"])

    def ask(self, key: str | None, body: object = None, **options: Any) -> Answer:
        """One request; the smallest chat unless `body` says otherwise; options as of client.request."""
        return client.request(self.address, client.chat() if body is None else body, key=key, **options)

    def chat(self, key: str, text: str = "ping", **fields: Any) -> Answer:
        """One chat request."""
        return self.ask(key, client.chat(text, **fields))

    def shown(self, key: str) -> dict[str, Any]:
        """What `keys show` says of a key."""
        return dict(self.command("keys.show", id=key.split("-")[2]))

    def counted_nanousd(self, key: str) -> int:
        """What counts against a key: spent and unresolved."""
        shown = self.shown(key)
        return int(shown["spent_nanousd"]) + int(shown["unresolved_nanousd"])

    def rows(self, key: str) -> list[dict[str, Any]]:
        """The rows of a key, oldest first."""
        return list(self.command("ledger.rows", key=key.split("-")[2]))

    def holds(self) -> list[dict[str, Any]]:
        """Every hold."""
        return list(self.command("ledger.holds"))

    def holds_of(self, key: str) -> list[dict[str, Any]]:
        """The holds of a key that are open or unresolved."""
        return [hold for hold in self.holds() if hold["key_id"] == key.split("-")[2]]

    def wait_quiet(self) -> None:
        """Wait until no hold is open."""
        wait_until(lambda: not self._open_holds(), "a hold stays open")

    def check(self) -> list[str]:
        """What is wrong with the books, and with what the gateway logged."""
        try:
            self.wait_quiet()
        except TimeoutError:
            return [f"{len(self._open_holds())} holds stay open"]
        report = self.command("ledger.verify")
        return [] if report["ok"] else [f"the books do not balance: {report}"]

    def close(self) -> None:
        """End it."""
        raise NotImplementedError

    def _open_holds(self) -> list[dict[str, Any]]:
        return [hold for hold in self.holds() if hold["state"] == "open"]


class ShiftedClock(RealClock):
    """The machine's clocks, run ahead by `shift_s`; once stopped they move by that alone."""

    def __init__(self) -> None:
        self.shift_s = 0.0
        self._stopped: tuple[float, int] | None = None

    def stop(self) -> None:
        """Stand still from now on."""
        self._stopped = super().now_s(), super().wall_ms()

    def resume(self) -> None:
        """Run again."""
        self._stopped = None

    def now_s(self) -> float:
        return (super().now_s() if self._stopped is None else self._stopped[0]) + self.shift_s

    def wall_ms(self) -> int:
        return (super().wall_ms() if self._stopped is None else self._stopped[1]) + round(self.shift_s * 1000)


class Inside(Running):
    """A gateway in this process.

    log     what an operator would read; spans  every finished span
    errors  what was reported that is no outcome of a request
    clock   can be run ahead
    """

    def __init__(
        self, text: str, *, providers: Mapping[str, Provider] | None = None, keys: Mapping[str, str] | None = None
    ) -> None:
        """keys  variables that hold a virtual key each, of the tenant `operator`, with its budget in USD"""
        self.clock = ShiftedClock()
        self.log = io.StringIO()
        self.spans = MemorySink()
        self.errors: list[BaseException] = []
        self._oplog = OpLog(self.clock, self.log)
        self._folder = tempfile.TemporaryDirectory(prefix="probes-")
        self._data_dir = DataDir.own(Path(self._folder.name))
        env = {name: self._operators_key(budget) for name, budget in (keys or {}).items()}
        loaded = load(QUICK + text, {"PROBED_KEY": PROVIDER_KEY} | env)
        self.books = open_books(self._data_dir, loaded, clock=self.clock, on_error=self._report)
        self._built = app.build_providers(loaded, self.clock, app.answer_room(loaded))
        self.gateway = app.build_gateway(
            loaded,
            self.books,
            clock=self.clock,
            tracer=Tracer(self.spans),
            providers=self._built | dict(providers or {}),
            on_error=self._report,
        )
        api = Api(
            self.gateway,
            commands=self.books.commands,
            control_secret="c" * 64,
            effects=BlockingEffects(),
            readiness=lambda: Readiness(True, (), {}),
            metrics=lambda: b"",
            clock=self.clock,
        )
        self._server = FrontServer(
            ("127.0.0.1", 0),
            api,
            FrontLimits(),
            self.clock,
            exempt=EXEMPT_PATHS.__contains__,
            on_error=self._report,
            stamp=api.stamp,
        )
        self._server.start()
        self.address = ("127.0.0.1", self._server.server_port)

    def _operators_key(self, budget_usd: str) -> str:
        """A key that is made before the first start."""
        books = open_books(self._data_dir, None, clock=self.clock)
        try:
            return str(books.commands.run("keys.create", {"tenant": "operator", "budget_usd": budget_usd})["key"])
        finally:
            books.close()

    def data_files(self, start: str) -> list[Path]:
        """The files of its data directory whose names begin so."""
        return sorted(Path(self._folder.name).glob(f"{start}*"))

    def command(self, name: str, **arguments: Any) -> Any:
        return self.books.commands.run(name, arguments)

    def check(self) -> list[str]:
        return super().check() + [f"an unexpected error was reported: {error!r}" for error in self.errors]

    def close(self) -> None:
        self._server.stop_admitting()
        self.clock.resume()
        self._server.finish(self.clock.now_s() + READY_WITHIN_S, threading.Event())
        self._server.close()
        for provider in self._built.values():
            if isinstance(provider, LiveProvider):
                provider.close()
        self.books.close()
        self._data_dir.close()
        self._folder.cleanup()

    def _report(self, error: BaseException, request_id: str | None = None) -> None:
        if not isinstance(error, ClientGone | Draining | GatewayError):
            self.errors.append(error)
            self._oplog.error(error, request_id)


class Outside(Running):
    """A gateway in a process of its own, in a folder of its own, that can be killed and started again.

    program  what the interpreter runs
    env      variables beside those that every gateway is given
    lines    what it wrote to stdout and stderr
    """

    def __init__(
        self, text: str, program: Sequence[str], *, durability: str = "normal", env: Mapping[str, str] | None = None
    ) -> None:
        self.lines: list[str] = []
        self._program = program
        self._env = dict(env or {})
        self._looked_at = 0
        self._folder = tempfile.TemporaryDirectory(prefix="probes-")
        self.folder = Path(self._folder.name)
        (self.folder / "gateway.toml").write_text(f'[store]\ndurability = "{durability}"\n{text}')
        self.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    def start(self) -> None:
        """Start it, or start it again; it is ready then. TimeoutError if that takes too long."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "GATEWAY_"))}
        env = kept | {"PYTHONPATH": f"{SRC}{os.pathsep}{SRC.parent}", "PROBED_KEY": PROVIDER_KEY}
        self._may_end = False
        self._child = subprocess.Popen(
            [sys.executable, *self._program, "--port", "0", "--trace-file", "trace.jsonl"],
            cwd=self.folder,
            env=env | {"PYTHONUNBUFFERED": "1"} | self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        ready: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(ready,), daemon=True)
        self._reader.start()
        try:
            host, _, port = ready.get(timeout=READY_WITHIN_S).rpartition(":")
        except queue.Empty:
            raise TimeoutError(f"not ready within {READY_WITHIN_S:g} s: {self.lines[-3:]}") from None
        self.address = (host, int(port))

    @property
    def is_running(self) -> bool:
        return self._child.poll() is None

    @property
    def may_end(self) -> bool:
        """Whether it does not run, or was sent a signal since its start that may end it."""
        return self._may_end or not self.is_running

    def kill(self) -> None:
        """kill -9."""
        self.signal(signal.SIGKILL)
        self.wait(READY_WITHIN_S)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._may_end = self._may_end or number != signal.SIGHUP
        self._child.send_signal(number)

    def wait(self, patience_s: float) -> int | None:
        """Its exit status; None if it still runs after so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._child.wait(patience_s)
            self._reader.join(READY_WITHIN_S)
            return status
        return None

    def command(self, name: str, **arguments: Any) -> Any:
        secret = json.loads((self.folder / "gateway-data" / "control").read_text())["secret"]
        answer = self.ask(secret, {"command": name, "arguments": arguments}, path="/control")
        if answer.status != 200:
            raise RuntimeError(f"{name}: {answer.status} {answer.body!r}")
        return json.loads(answer.body)["result"]

    def check(self) -> list[str]:
        """As of every gateway, and that it has let go of every client that left.

        What was logged is looked at once, so that the next check finds what is new.
        """
        with self.gauges() as gauges:
            try:
                gauges.wait_alone()
            except TimeoutError as fault:
                return [str(fault)]
        fresh, self._looked_at = self.lines[self._looked_at :], len(self.lines)
        noise = [line for line in fresh if '"event": "error"' in line or "Traceback" in line]
        return super().check() + [f"an unexpected error was logged: {line}" for line in noise]

    def everything_written(self) -> bytes:
        """All that it has put on disk or printed, but for its configuration and its control file."""
        kept = ("gateway.toml", "control")
        files = [file for file in self.folder.rglob("*") if file.is_file() and file.name not in kept]
        return b"\n".join([*(file.read_bytes() for file in files), "\n".join(self.lines).encode()])

    def rss_bytes(self) -> int:
        """Memory that it has resident now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def peak_rss_bytes(self) -> int:
        """The most that it has had resident since the last forget_peak()."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def forget_peak(self) -> None:
        """Let the peak start anew from what is resident now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def gauges(self) -> Gauges:
        """What it says of itself; ask as often as you like."""
        return Gauges(self.address)

    def close(self) -> None:
        if self.is_running:
            self.kill()
        self._folder.cleanup()

    def _read(self, ready: "queue.SimpleQueue[str]") -> None:
        assert self._child.stdout is not None
        with self._child.stdout:
            for line in self._child.stdout:
                self.lines.append(line.rstrip("\n"))
                if line.startswith("listening on http://"):
                    ready.put(line.split("http://")[1].strip())


def worst_case_nanousd(gateway: Running, upstream: Upstream, body: Mapping[str, Any]) -> int:
    """What is held for a request: seen while its upstream waits."""
    seen: list[int] = []

    def reply(call: Call) -> None:
        seen.extend(int(hold["amount_nanousd"]) for hold in gateway.holds() if hold["state"] == "open")
        good()(call)

    upstream.script(reply)
    gateway.ask(gateway.key(), dict(body))
    if len(seen) != 1:
        raise AssertionError(f"one hold was awaited, not {seen}")
    return seen[0]
