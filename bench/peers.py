"""The other gateways: in which release each is measured, how it is found, and how it is started.

A peer is measured in the one release that is named here, because a figure says nothing without it, and because releases
of one of them are known to be poisoned. Whatever else lies there is not started. bench/README.md says how each is
installed.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.subject import ANY_KEY, Start
from bench.tools import HERE, free_port

CONFIGS = HERE / "peer_configs"


@dataclass(frozen=True, slots=True)
class Peer:
    """One of them.

    release    the only one that is measured; None for any
    found      which release lies in a folder of installed peers; None: none does
    command    its words; @NAME@, here as in `env`, `headers` and its configuration, is filled in at the start
    patience_s how long a start may take
    note       what it does and does not do, for those who compare
    """

    name: str
    release: str | None
    found: Callable[[Path], str | None]
    command: tuple[str, ...]
    note: str
    env: Mapping[str, str] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    fixed_model: str | None = None
    patience_s: float = 60

    def missing(self, folder: Path) -> str | None:
        """Why it cannot be measured; None if it can."""
        release = self.found(folder)
        if release is None:
            return "not installed"
        if self.release not in (None, release):
            return f"release {release} is installed, and {self.release} would be measured"
        return None

    def start(self, installed: Path, folder: Path, upstream: int) -> Start:
        """How to start it, with its configuration written into `folder`."""
        port = free_port()
        known = {
            "INSTALLED": str(installed),
            "FOLDER": str(folder),
            "UPSTREAM": str(upstream),
            "PORT": str(port),
            "OTHER_PORT": str(free_port()),
        }
        folder.mkdir(parents=True)
        for template in CONFIGS.iterdir():
            (folder / template.name).write_text(filled(template.read_text(encoding="utf-8"), known), encoding="utf-8")
        return Start(
            command=[filled(word, known) for word in self.command],
            env=os.environ | {name: filled(value, known) for name, value in self.env.items()},
            folder=folder,
            port=port,
            headers=tuple(filled(header, known) for header in self.headers),
            fixed_model=self.fixed_model,
            patience_s=self.patience_s,
        )


def filled(text: str, known: Mapping[str, str]) -> str:
    """`text` with each @NAME@ replaced. Raises KeyError for a name that is not known."""
    return re.sub(r"@([A-Z_]+)@", lambda match: known[match[1]], text)


def python_release(folder: str, distribution: str) -> Callable[[Path], str | None]:
    """Looks for a distribution in a virtual environment."""

    def found(installed: Path) -> str | None:
        pattern = f"{folder}/lib/python*/site-packages/{distribution}-*.dist-info"
        names = sorted(path.name for path in installed.glob(pattern))
        return names[0].removesuffix(".dist-info").partition("-")[2] if names else None

    return found


def node_release(folder: str, package: str) -> Callable[[Path], str | None]:
    """Looks for a package among installed ones, and for node."""

    def found(installed: Path) -> str | None:
        about = installed / folder / "node_modules" / package / "package.json"
        if not about.exists() or shutil.which("node") is None:
            return None
        return str(json.loads(about.read_text(encoding="utf-8"))["version"])

    return found


def nginx_release(_: Path) -> str | None:
    """Asks the one on the path."""
    if shutil.which("nginx") is None:
        return None
    said = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=False).stderr
    return said.strip().rpartition("/")[2]


PEERS: tuple[Peer, ...] = (
    Peer(
        name="nginx",
        release=None,
        found=nginx_release,
        command=("nginx", "-c", "@FOLDER@/nginx.conf"),
        note="a plain hop, the limit: no key, no JSON, no ledger",
    ),
    Peer(
        name="vllm-router",
        release="0.1.17",
        found=python_release("vllm-router", "vllm_router"),
        command=(
            *("@INSTALLED@/vllm-router/bin/vllm-router", "--host", "127.0.0.1", "--port", "@PORT@"),
            *("--worker-urls", "http://127.0.0.1:@UPSTREAM@", "--policy", "round_robin", "--log-level", "error"),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", "@OTHER_PORT@"),
        ),
        note="Rust: round robin, no key, no ledger",
    ),
    Peer(
        name="ferrogw",
        release="1.5.10",
        found=python_release("ferrogw", "ferrogw"),
        command=("@INSTALLED@/ferrogw/bin/ferrogw", "serve"),
        env={
            "GATEWAY_CONFIG": "@FOLDER@/ferrogw.yaml",
            "PORT": "@PORT@",
            "OPENAI_BASE_URL": "http://127.0.0.1:@UPSTREAM@",
            "OPENAI_API_KEY": "sk-upstream",
            "MASTER_KEY": ANY_KEY,
            "LOG_LEVEL": "error",
            "RATE_LIMIT_RPS": "10000000",
            "RATE_LIMIT_BURST": "10000000",
        },
        fixed_model="gpt-4o-mini",
        note="Go: one key, rate limit raised, no ledger; serves only models that it knows",
    ),
    Peer(
        name="portkey",
        release="1.9.8",
        found=node_release("portkey", "@portkey-ai/gateway"),
        command=(
            "node",
            "@INSTALLED@/portkey/node_modules/@portkey-ai/gateway/build/start-server.js",
            "--port=@PORT@",
            "--headless",
        ),
        env={"NODE_ENV": "production", "TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost"},
        headers=("x-portkey-provider: openai", "x-portkey-custom-host: http://127.0.0.1:@UPSTREAM@/v1"),
        note="Node: no key, no ledger; its web server held at a release with which it can stream",
    ),
    Peer(
        name="litellm",
        release="1.74.9",
        found=python_release("litellm", "litellm"),
        command=(
            *("@INSTALLED@/litellm/bin/litellm", "--config", "@FOLDER@/litellm.yaml", "--host", "127.0.0.1"),
            *("--port", "@PORT@", "--num_workers", "1", "--telemetry", "False"),
        ),
        env={"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"},
        patience_s=120,
        note="Python: one key, no database, no ledger",
    ),
)
