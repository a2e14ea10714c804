"""Real clients against the gateway, in front of a scripted upstream and of a real llama.cpp server.

    python .ci/clients.py DRIVERS_FOLDER OPENAPI_JSON_GZ

The drivers are programs that use the official SDKs and judge what comes back; they know the gateway only as a base URL
and a key. Everything is installed below .ci-work, listens on loopback, and is stopped at the end. Exits 1 if a driver
failed.
"""

import gzip
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".ci-work"
PYTHON = Path(sys.executable)
NODE_PACKAGES = ("openai@6.49.0", "@copilotkit/aimock@1.43.0", "zod@4.6.7")
ENVIRONMENTS = {
    "new": ("openai==3.57.0", "jsonschema==4.26.0", "referencing==0.37.0"),
    "old": ("openai==2.54.0",),
    "llama": ("xllamacpp==2026.10.11549", "gguf==0.19.0", "numpy==2.4.6"),
}
MODELS = ("mock-chat", "mock-ratelimit", "mock-cut", "mock-reason")
START_S = 60


def main(drivers: Path, openapi: Path) -> int:
    """Install, run every driver in front of every upstream, and say how many failed."""
    clients = WORK / "clients"
    if not clients.exists():
        shutil.copytree(drivers, clients)
    for name, packages in ENVIRONMENTS.items():
        install_python(WORK / name, packages)
    install_node(clients)
    (WORK / "openapi.json").write_bytes(gzip.decompress(openapi.read_bytes()))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        failed = behind_aimock(clients, processes) + behind_llama(clients, processes)
    finally:
        for process in reversed(processes):
            stop(process)
    print(f"drivers: {len(RUN) - failed} passed, {failed} failed")
    return 1 if failed else 0


RUN: list[str] = []


def behind_aimock(clients: Path, processes: list[subprocess.Popen[bytes]]) -> int:
    """Every driver in front of the scripted upstream."""
    port = free_port()
    aimock = clients / "node_modules/@copilotkit/aimock/dist/cli.js"
    command = ["node", str(aimock), "-p", str(port), "-f", str(clients / "fixtures/aimock.json"), "-c", "6"]
    processes.append(start(command, WORK / "aimock.log", {"AIMOCK_API_KEYS": "sk-upstream"}))
    wait_for(f"http://127.0.0.1:{port}/v1/models")
    url, data = serve(processes, "aimock", f"http://127.0.0.1:{port}/v1", {name: name for name in MODELS})
    settings = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": create_key(data, "5"),
        "QUOTA_KEY": create_key(data, "0"),
        "EXPECT_EMBEDDINGS": "0",
        "EXPECT_ANTHROPIC": "0",
        "STRICT_MODELS": "1",
    }
    return run_drivers("aimock", clients, settings)


def behind_llama(clients: Path, processes: list[subprocess.Popen[bytes]]) -> int:
    """The same in front of a real engine, whose random model says anything."""
    port, python, model = free_port(), WORK / "llama/bin/python", WORK / "tiny.gguf"
    subprocess.run([python, clients / "upstreams/tiny_gguf.py", model], check=True, stdout=subprocess.DEVNULL)
    server = [str(python), str(clients / "upstreams/llamacpp_server.py"), str(model), str(port), "tiny"]
    processes.append(start(server, WORK / "llama.log", {}))
    wait_for(f"http://127.0.0.1:{port}/health")
    url, data = serve(processes, "llama", f"http://127.0.0.1:{port}/v1", {"tiny": "tiny"})
    settings = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": create_key(data, "5"),
        "QUOTA_KEY": create_key(data, "0"),
        "CHAT_MODEL": "tiny",
        "EXPECT_TEXT": "",
        "MAX_TOKENS": "16",
        **dict.fromkeys(("RATELIMIT_MODEL", "CUT_MODEL"), ""),
        **dict.fromkeys(("EXPECT_TOOLS", "EXPECT_STRUCTURED", "EXPECT_EMBEDDINGS", "EXPECT_ANTHROPIC"), "0"),
        "STRICT_MODELS": "1",
    }
    return run_drivers("llama.cpp", clients, settings)


def run_drivers(upstream: str, clients: Path, settings: Mapping[str, str]) -> int:
    """Run each driver; returns how many failed."""
    environment = {**os.environ, "OPENAPI_FILE": str(WORK / "openapi.json"), **settings}
    new, old = str(WORK / "new/bin/python"), str(WORK / "old/bin/python")
    failed = 0
    for name, command in {
        "curl": ["bash", "curl.sh"],
        "openai for Python, newest": [new, "py_openai.py"],
        "openai for Python, 2.x": [old, "py_openai.py"],
        "openai for Node": ["node", "node_openai.mjs"],
        "OpenAI's OpenAPI document": [new, "validate_openapi.py"],
    }.items():
        print(f"--- {name} in front of {upstream}", flush=True)
        RUN.append(name)
        failed += subprocess.run(command, cwd=clients, env=environment, timeout=300, check=False).returncode != 0
    return failed


def serve(
    processes: list[subprocess.Popen[bytes]], name: str, base_url: str, models: Mapping[str, str]
) -> tuple[str, Path]:
    """Start the gateway in front of `base_url`; returns its address and its data directory."""
    config, data, port = WORK / f"{name}.toml", WORK / f"{name}-data", free_port()
    shutil.rmtree(data, ignore_errors=True)
    lines = ["[server]", "announce_s = 0", "[[providers]]", 'name = "up"', f'base_url = "{base_url}"']
    lines.append('api_key_env = "UPSTREAM_KEY"')
    for public, model in models.items():
        lines += ["[[deployments]]", f'name = "{public}"', 'provider = "up"', f'model = "{model}"']
        lines += ["price = { input = 1, output = 4 }", "max_output_tokens = 1024"]
    config.write_text("\n".join(lines) + "\n")
    command = [str(PYTHON), "-m", "gateway.api", "--config", str(config), "--data-dir", str(data), "--port", str(port)]
    processes.append(start(command, WORK / f"{name}-gateway.log", {"UPSTREAM_KEY": "sk-upstream"}))
    wait_for(f"http://127.0.0.1:{port}/readyz")
    return f"http://127.0.0.1:{port}", data


def create_key(data: Path, budget_usd: str) -> str:
    """A key of the running gateway, made through its command line."""
    command = [str(PYTHON), "-m", "gateway", "keys", "create", "--tenant", "ci", "--budget-usd", budget_usd]
    made = subprocess.run(
        [*command, "--data-dir", str(data), "--json"], env=environment_with({}), check=True, capture_output=True
    )
    return str(json.loads(made.stdout)["key"])


def install_python(folder: Path, packages: Sequence[str]) -> None:
    """A virtual environment with exactly these packages asked for; kept between runs."""
    stamp = folder / ".packages"
    if stamp.exists() and stamp.read_text() == " ".join(packages):
        return
    subprocess.run([PYTHON, "-m", "venv", folder], check=True)
    pip = [folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *packages], check=True)
    stamp.write_text(" ".join(packages))


def install_node(folder: Path) -> None:
    """The Node packages, beside the copied drivers."""
    stamp = folder / ".packages"
    if stamp.exists() and stamp.read_text() == " ".join(NODE_PACKAGES):
        return
    (folder / "package.json").write_text('{"name": "drivers", "private": true, "type": "module"}\n')
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--loglevel", "error", *NODE_PACKAGES]
    subprocess.run(command, cwd=folder, check=True)
    stamp.write_text(" ".join(NODE_PACKAGES))


def start(command: Sequence[str], log: Path, extra: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A process of ours, its output in `log`."""
    with log.open("wb") as output:
        return subprocess.Popen(command, cwd=WORK, env=environment_with(extra), stdout=output, stderr=output)


def environment_with(extra: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **extra}


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a process of ours to end, then insist."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for(url: str) -> None:
    """Wait until `url` answers anything at all."""
    deadline = time.monotonic() + START_S
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < deadline:
        try:
            opener.open(url, timeout=2).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"{url} did not answer within {START_S} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    WORK.mkdir(exist_ok=True)
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
