"""Real clients in front of the gateway, and the gateway in front of upstreams that other people wrote.

    python .ci/clients.py DRIVERS_FOLDER OPENAPI_JSON_GZ

The drivers are programs that use the official SDKs, or none, and judge what comes back; they know the gateway only as a
base URL and a key. The upstreams: a scripted one, a real engine with a random model, one with an oddity per model, and
one that breaks on demand and judges its client. Everything is installed below .ci-work, listens on loopback, and is
stopped at the end. Exits 1 if anything failed.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.driver import Driver, canary_passes
from harness.gateway import UPSTREAM_KEY, Gateway, serve
from harness.install import CLIENTS, MODULES, OPENAPI, WORK, install, program
from harness.llmock import CANARY_MODEL, SCENARIOS, LLMock
from harness.processes import OPENER, Processes, free_address

SDKS = (
    Driver("curl", ("bash", "curl.sh")),
    Driver("openai for Python, newest", (program("new"), "py_openai.py")),
    Driver("openai for Python, 2.x", (program("old"), "py_openai.py")),
    Driver("openai for Node", ("node", "node_openai.mjs")),
    Driver("OpenAI's OpenAPI document", (program("new"), "validate_openapi.py")),
)
QUIRKS = Driver(
    "the check of quirks", (program("new"), "quirk_check.py"), excepted=frozenset({"q-embfloat embeddings"})
)
"""There is no endpoint for embeddings yet."""
SCRIPTED_MODELS = ("mock-chat", "mock-ratelimit", "mock-cut", "mock-reason")

Results = Iterator[tuple[str, bool]]
"""What was run, and whether it passed."""


def main() -> int:
    """Run everything and say what failed."""
    failed, count = [], 0
    for play in (behind_aimock, behind_llama, behind_quirks, behind_llmock):
        with Processes() as processes:
            for name, passed in play(processes):
                count += 1
                failed += [] if passed else [name]
    print(f"clients: {count - len(failed)} passed, {len(failed)} failed", *failed, sep="\n  ")
    return 1 if failed else 0


def behind_aimock(processes: Processes) -> Results:
    """The SDKs in front of a scripted upstream."""
    url, port = free_address()
    aimock = ["node", str(MODULES / "@copilotkit/aimock/dist/cli.js"), "-p", port]
    fixtures = ["-f", str(CLIENTS / "fixtures/aimock.json"), "-c", "6"]
    processes.start("aimock", [*aimock, *fixtures], f"{url}/v1/models", {"AIMOCK_API_KEYS": UPSTREAM_KEY})
    gateway = serve(processes, "aimock", f"{url}/v1", {name: name for name in SCRIPTED_MODELS})
    yield from every_sdk("aimock", sdk_settings(gateway))


def behind_llama(processes: Processes) -> Results:
    """The SDKs in front of a real engine, whose random model says anything."""
    (url, port), python, model = free_address(), program("upstreams"), str(WORK / "tiny.gguf")
    subprocess.run([python, CLIENTS / "upstreams/tiny_gguf.py", model], check=True, stdout=subprocess.DEVNULL)
    server = [python, str(CLIENTS / "upstreams/llamacpp_server.py"), model, port, "tiny"]
    processes.start("llama", server, f"{url}/health")
    gateway = serve(processes, "llama", f"{url}/v1", {"tiny": "tiny"})
    settings = {
        **sdk_settings(gateway),
        "CHAT_MODEL": "tiny",
        "MAX_TOKENS": "16",
        **dict.fromkeys(("EXPECT_TEXT", "RATELIMIT_MODEL", "CUT_MODEL"), ""),
        **dict.fromkeys(("EXPECT_TOOLS", "EXPECT_STRUCTURED"), "0"),
    }
    yield from every_sdk("llama.cpp", settings)


def behind_quirks(processes: Processes) -> Results:
    """No SDK, in front of an upstream with an oddity per model."""
    url, port = free_address()
    processes.start("quirks", [program("new"), str(CLIENTS / "upstreams/quirks.py"), port], f"{url}/v1/models")
    with OPENER.open(f"{url}/v1/models") as answer:
        models = [entry["id"] for entry in json.load(answer)["data"]]
    gateway = serve(
        processes,
        "quirks",
        f"{url}/v1",
        {name: name for name in models},
        provider={"idle_timeout_s": 1},
        sections={"retry": {"base_s": 0.05, "retry_after_max_s": 1.5}},
    )
    settings = {**sdk_settings(gateway), "QUIRKS_URL": url, "SLOW": "1"}
    yield f"{QUIRKS.name} in front of quirks.py", QUIRKS.passes("quirks.py", settings)


def behind_llmock(processes: Processes) -> Results:
    """Outside probes, and an outside judge of what the gateway does with failures."""
    upstream = LLMock(processes)
    yield "compatcanary in front of LLMock", canary_passes(upstream.gateway, CANARY_MODEL)
    print("--- LLMock's verdict on the gateway", flush=True)
    for scenario in SCENARIOS:
        yield f"LLMock's verdict on {scenario.name}", upstream.blames_nobody(scenario)


def every_sdk(upstream: str, settings: Mapping[str, str]) -> Results:
    """All of SDKS."""
    for driver in SDKS:
        yield f"{driver.name} in front of {upstream}", driver.passes(upstream, settings)


def sdk_settings(gateway: Gateway) -> Mapping[str, str]:
    """What the drivers are told: where the gateway is, and what it does not have yet."""
    return {
        "OPENAI_BASE_URL": gateway.base_url,
        "OPENAI_API_KEY": gateway.create_key(),
        "QUOTA_KEY": gateway.create_key("0"),
        "OPENAPI_FILE": str(OPENAPI),
        "EXPECT_EMBEDDINGS": "0",
        "EXPECT_ANTHROPIC": "0",
        "STRICT_MODELS": "1",
    }


if __name__ == "__main__":
    install(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
    sys.exit(main())
