"""The gateway as people run it, in a process of its own, in front of bench's mock upstream."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.__main__ import Tools, create_key, free_port, running, wait_for
from evals import SOURCES


@dataclass(frozen=True, slots=True)
class Server:
    """A running gateway and what stands behind it. `folder` holds its configuration and its data directory."""

    tools: Tools
    port: int
    upstream: int
    pid: int
    mock_pid: int
    folder: Path

    def key(self, tenant: str, *options: str) -> str:
        """Make a key with the command line; `options` are its flags."""
        return create_key(self.folder, _environment(), tenant, *options)

    def cli(self, *arguments: str) -> Any:
        """The command line beside the running gateway, its JSON read."""
        command = [sys.executable, "-m", "gateway", *arguments, "--json"]
        done = subprocess.run(command, cwd=self.folder, env=_environment(), check=True, capture_output=True)
        return json.loads(done.stdout)


@contextmanager
def serving(config: Callable[[int], str]) -> Iterator[Server]:
    """A gateway with the configuration that is made for the mock's port; both end with the block."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools, upstream, port = Tools(folder), free_port(), free_port()
        with running([str(folder / "mock"), str(upstream)], folder / "mock.log") as mock:
            wait_for(upstream)
            (folder / "gateway.toml").write_text(config(upstream))
            command = [sys.executable, "-m", "gateway.api", "--port", str(port)]
            with running(command, folder / "log", _environment()) as gateway:
                wait_for(port)
                yield Server(tools, port, upstream, gateway.pid, mock.pid, folder)


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(SOURCES)}
