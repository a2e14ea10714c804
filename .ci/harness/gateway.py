"""The gateway under test: its configuration, its start, and keys for its clients."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.install import PYTHON, WORK
from harness.processes import Processes, environment, free_address

UPSTREAM_KEY = "sk-upstream"

Value = str | int | float | Sequence[str]
Table = Mapping[str, Value]


@dataclass(frozen=True)
class Gateway:
    """A running gateway."""

    url: str
    data: Path

    @property
    def base_url(self) -> str:
        """What a client of the OpenAI API is given."""
        return f"{self.url}/v1"

    def create_key(self, budget_usd: str = "5") -> str:
        """A new key, made through the command line."""
        command = [str(PYTHON), "-m", "gateway", "keys", "create", "--tenant", "ci", "--budget-usd", budget_usd]
        made = subprocess.run(
            [*command, "--data-dir", str(self.data), "--json"], env=environment({}), check=True, capture_output=True
        )
        return str(json.loads(made.stdout)["key"])


def serve(
    processes: Processes,
    name: str,
    upstream: str,
    models: Mapping[str, str],
    *,
    aliases: Mapping[str, Sequence[str]] | None = None,
    provider: Table | None = None,
    sections: Mapping[str, Table] | None = None,
) -> Gateway:
    """Start a gateway in front of the base URL `upstream`.

    models    the upstream's model for each deployment's name
    provider, sections  settings beside the defaults: of the provider, and of other sections
    """
    document: dict[str, Table | list[Table]] = {
        "server": {"announce_s": 0},
        **(sections or {}),
        "providers": [{"name": "up", "base_url": upstream, "api_key_env": "UPSTREAM_KEY", **(provider or {})}],
        "deployments": [
            {
                "name": deployment,
                "provider": "up",
                "model": model,
                "price.input": 1,
                "price.output": 4,
                "max_output_tokens": 1024,
            }
            for deployment, model in models.items()
        ],
        "aliases": [{"name": alias, "deployments": names} for alias, names in (aliases or {}).items()],
    }
    url, port = free_address()
    config, gateway = WORK / f"{name}.toml", Gateway(url, WORK / f"{name}-data")
    config.write_text(_toml(document))
    shutil.rmtree(gateway.data, ignore_errors=True)
    command = [str(PYTHON), "-m", "gateway.api", "--config", str(config), "--data-dir", str(gateway.data)]
    processes.start(
        f"{name}-gateway",
        [*command, "--port", port],
        f"{url}/readyz",
        {"UPSTREAM_KEY": UPSTREAM_KEY},
    )
    return gateway


def _toml(document: Mapping[str, Table | Sequence[Table]]) -> str:
    """TOML, which writes texts, numbers and lists of them as JSON does."""
    lines = []
    for section, content in document.items():
        header, tables = (f"[{section}]", [content]) if isinstance(content, Mapping) else (f"[[{section}]]", content)
        for table in tables:
            lines += [header, *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"
