"""Where everything lies, and how it gets there: below .ci-work, kept between runs."""

import gzip
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / ".ci-work"
CLIENTS = WORK / "clients"
MODULES = CLIENTS / "node_modules"
OPENAPI = WORK / "openapi.json"
PYTHON = Path(sys.executable)
"""Runs the gateway."""

NODE_PACKAGES = ("openai@6.49.0", "@copilotkit/aimock@1.43.0", "compatcanary@0.2.2", "zod@4.6.7")
ENVIRONMENTS = {
    "new": ("openai==3.57.0", "jsonschema==4.26.0", "referencing==0.37.0"),
    "old": ("openai==2.54.0",),
    "upstreams": ("xllamacpp==2026.10.11549", "gguf==0.19.0", "numpy==2.4.6", "llmock==0.2.2"),
}


def install(drivers: Path, openapi: Path) -> None:
    """Copy the drivers and OpenAI's document, and install what they and the upstreams need."""
    WORK.mkdir(exist_ok=True)
    if not CLIENTS.exists():
        shutil.copytree(drivers, CLIENTS)
    OPENAPI.write_bytes(gzip.decompress(openapi.read_bytes()))
    for name, packages in ENVIRONMENTS.items():
        _install_python(WORK / name, packages)
    _install_node(CLIENTS)


def program(environment: str, name: str = "python") -> str:
    """The path of a program of one of the environments."""
    return str(WORK / environment / "bin" / name)


def _install_python(folder: Path, packages: Sequence[str]) -> None:
    stamp = folder / ".packages"
    if stamp.exists() and stamp.read_text() == " ".join(packages):
        return
    subprocess.run([PYTHON, "-m", "venv", folder], check=True)
    command = [str(folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", *packages]
    subprocess.run(command, check=True)
    stamp.write_text(" ".join(packages))


def _install_node(folder: Path) -> None:
    stamp = folder / ".packages"
    if stamp.exists() and stamp.read_text() == " ".join(NODE_PACKAGES):
        return
    (folder / "package.json").write_text('{"name": "drivers", "private": true, "type": "module"}\n')
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--loglevel", "error", *NODE_PACKAGES]
    subprocess.run(command, cwd=folder, check=True)
    stamp.write_text(" ".join(NODE_PACKAGES))
