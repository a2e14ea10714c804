"""The gateway as a subject: its configuration, its keys, its start. It runs as people run it, from this checkout."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.machine import LAST_CPU, pin
from bench.subject import Start, Subject, started
from bench.tools import SOURCES, free_port

DURABILITIES = ("normal", "full")
TENANT = "bench"
FAILING_OVER = "failing-over"
"""An alias whose first deployment refuses every connection."""

_CONFIG = """
[server]
announce_s = 0
[store]
durability = "{durability}"
[breaker]
threshold = 1000000000
[cache]
exact_max_bytes = 10000000000
[[providers]]
name = "mock"
base_url = "http://127.0.0.1:{upstream}/v1"
[[providers]]
name = "nobody"
base_url = "http://127.0.0.1:{nobody}/v1"
[[deployments]]
name = "mock-fast"
provider = "mock"
model = "mock-fast"
price = {{ input = 0.15, output = 0.60 }}
[[deployments]]
name = "mock-slow"
provider = "mock"
model = "mock-slow"
price = {{ input = 0.15, output = 0.60 }}
[[deployments]]
name = "refusing"
provider = "nobody"
model = "mock-fast"
price = {{ input = 0.15, output = 0.60 }}
[[aliases]]
name = "failing-over"
deployments = ["refusing", "mock-fast"]
"""
_TENANT = """[[tenants]]
name = "{name}"
rate_per_s = 1000000
burst = 1000000
"""


def config(upstream: int, nobody: int, durability: str, tenants: Sequence[str] = (TENANT,)) -> str:
    """Every tenant has a budget that is counted and a bucket that never empties; the cache keeps a million answers.

    nobody  a port on which nobody listens; the breaker never opens, so that each call there is made
    """
    return _CONFIG.format(upstream=upstream, nobody=nobody, durability=durability) + "".join(
        _TENANT.format(name=name) for name in tenants
    )


def environment(sources: Path = SOURCES) -> dict[str, str]:
    """That of the gateway's processes: these packages, their compiled files kept, and nothing of whoever measures."""
    left_out = ("OPENAI_", "GATEWAY_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return kept | {"PYTHONPATH": str(sources)}


def prepare(folder: Path, upstream: int, durability: str, tenants: Sequence[str] = (TENANT,)) -> None:
    """Write its configuration into a new folder."""
    folder.mkdir(parents=True)
    text = config(upstream, free_port(), durability, tenants)
    (folder / "gateway.toml").write_text(text, encoding="utf-8")


def create_key(folder: Path, env: dict[str, str], tenant: str = TENANT) -> str:
    """With the command line; the gateway may run or not."""
    command = [sys.executable, "-m", "gateway", "keys", "create", "--tenant", tenant, "--json"]
    made = subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
    return str(json.loads(made.stdout)["key"])


def start(folder: Path, key: str) -> Start:
    """How the gateway in a prepared folder is started."""
    port = free_port()
    command = [sys.executable, "-m", "gateway.api", "--port", str(port)]
    return Start(command, environment(), folder, port, key)


@contextmanager
def serving(name: str, folder: Path, keys: Sequence[str]) -> Iterator[tuple[Subject, float]]:
    """The gateway of a prepared folder, and the seconds to its first answer. Raises NotStarted."""
    how = start(folder, keys[0])
    with started(how) as (process, started_s):
        yield Subject(name, how.port, process.pid, tuple(keys), one_cpu=True, ours=True), started_s


def pin_down(subject: Subject) -> None:
    """A threaded Python process is faster on one CPU than on two; others may run where they like."""
    if subject.one_cpu:
        pin([subject.pid], {LAST_CPU})
