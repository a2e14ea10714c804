"""Programs that judge the gateway: each prints `ok`, `FAIL` or `skip` and a name per check."""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.gateway import Gateway
from harness.install import CLIENTS, MODULES
from harness.processes import environment

TIMEOUT_S = 300
_FAILED_CHECK = re.compile(r"^FAIL  (.+?): ", re.MULTILINE)

_CANARY = MODULES / "compatcanary/src/cli.js"
_PROBES = frozenset({"models.list", "chat.basic", "chat.streaming", "chat.tool_call", "chat.structured_output"})
_NO_RESPONSES_YET = frozenset({"responses.basic", "responses.streaming"})


@dataclass(frozen=True)
class Driver:
    """A program of the drivers' folder.

    excepted  checks of things that the gateway does not have yet. They must fail: an exception whose reason is gone
              has to be removed
    """

    name: str
    command: Sequence[str]
    excepted: frozenset[str] = frozenset()

    def passes(self, upstream: str, settings: Mapping[str, str]) -> bool:
        """Run it and show what it says; whether exactly the excepted checks failed."""
        print(f"--- {self.name} in front of {upstream}", flush=True)
        try:
            run = _run(self.command, settings)
        except subprocess.TimeoutExpired as error:
            print(f"FAIL  {self.name}: not done after {TIMEOUT_S} s\n{error.output}")
            return False
        print(run.stdout, end="", flush=True)
        failed = set(_FAILED_CHECK.findall(run.stdout))
        for check in self.excepted:
            print(f"{'excepted' if check in failed else 'passes, so it is no exception any more'}: {check}")
        return failed == self.excepted and (run.returncode == 0) == (not self.excepted)


def canary_passes(gateway: Gateway, model: str) -> bool:
    """Whether every probe of compatcanary passes; those of an endpoint that does not exist yet must get 404."""
    print("--- compatcanary in front of LLMock", flush=True)
    command = ["node", str(_CANARY), "scan", "--model", model, "--format", "json", "--fail-on", "never"]
    settings = {"OPENAI_BASE_URL": gateway.base_url, "OPENAI_API_KEY": gateway.create_key()}
    run = _run(command, settings)
    if run.returncode != 0:
        print(f"FAIL  compatcanary: {run.stdout}")
        return False
    passed = {probe["id"] for probe in json.loads(run.stdout)["results"] if _probe_passes(probe)}
    return passed == _PROBES | _NO_RESPONSES_YET


def _probe_passes(probe: Mapping[str, Any]) -> bool:
    unknown = probe["status"] == "fail" and probe.get("error", {}).get("httpStatus") == 404
    passes = unknown if probe["id"] in _NO_RESPONSES_YET else probe["status"] == "pass"
    print(f"{'ok  ' if passes else 'FAIL'}  {probe['id']}: {probe['status']}: {probe['summary']}", flush=True)
    return bool(passes)


def _run(command: Sequence[str], settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=CLIENTS,
        env=environment(settings),
        timeout=TIMEOUT_S,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
