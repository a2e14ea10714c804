"""`python -m tests.pythons [--oldest]`: a telling part of the tests under the other Pythons of this machine.

Those are meant that pyproject.toml claims to support and that are on the PATH or among pyenv's versions, but for the
one that runs this. Each gets an environment of its own below .ci-work. `--oldest` takes the oldest alone: what a Python
lacks, or does wrong, was mostly mended in a later one. What was run and what was not is always said.

Exit status: 0 all passed, or there is no other Python; 1 a test failed; 3 none could be run, and it has said why.
"""

import argparse
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests import _paths

TELLING = (
    "socket.test_process.DemoTest",
    "socket.test_process.SignalTest.test_sigterm_finishes_what_runs_and_exits_0",
    "socket.test_client",
    *("unit.test_ledger", "unit.test_migrations", "unit.test_windows", "unit.test_statements"),
    *("unit.test_semantic_verifier", "unit.test_semantic_clauses", "unit.test_semantic_turn"),
    *("unit.test_http1", "unit.test_http_head", "unit.test_http_body", "unit.test_sse", "unit.test_strict_json"),
    *("unit.test_openai_wire", "unit.test_openai_collect", "unit.test_openai_replay", "unit.test_patterns"),
    *("unit.test_config", "unit.test_tests"),
)
"""Tests of a gateway that is started, asked and drained; of the ledger; of meanings; of what is read off the wire and
written to it. Those that take longest go first."""

NEEDED = ("h11",)
"""What they import of the tools for development."""

WORK = _paths.ROOT / ".ci-work" / "pythons"
NOT_RUN = 3
_NAME = re.compile(r"python3(\.\d+)?")
_WHO = "import sys; print(sys.implementation.name + sys.abiflags, *sys.version_info[:3])"
_PATIENCE_S = 20

Version = tuple[int, ...]


class Python(NamedTuple):
    """A plain build of CPython."""

    version: Version
    path: Path

    def __str__(self) -> str:
        return f"{_text(self.version)} ({self.path})"


class NotInstalled(Exception):
    """Why there is no environment to run the tests in."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.pythons", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--oldest", action="store_true", help="only under the oldest of them")
    wanted = parser.parse_args(arguments)
    project = tomllib.loads((_paths.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    others = supported(find(os.environ, Path.home()), claimed(project), sys.version_info[:3])
    chosen = others[:1] if wanted.oldest else others
    statuses = [_run(python, requirements(project)) for python in chosen]
    missing = claimed(project) - {python.version[:2] for python in others} - {sys.version_info[:2]}
    for words, those in (
        ("Not run, since only the oldest was asked for:", others[len(chosen) :]),
        ("Not on this machine: Python", [_text(release) for release in sorted(missing)]),
    ):
        if those:
            print(words, ", ".join(map(str, those)))
    return conclude(statuses)


def find(environment: Mapping[str, str], home: Path) -> list[Python]:
    """Every Python that answers, each version once, oldest first; the one that stands first on the PATH, if several do.

    pyenv's shims are left out: behind them are the versions that are looked at anyway.
    """
    pyenv = Path(environment.get("PYENV_ROOT") or home / ".pyenv")
    folders = [Path(folder) for folder in environment.get("PATH", "").split(os.pathsep) if folder]
    found: dict[Version, Path] = {}
    for folder in [*folders, *sorted(pyenv.glob("versions/*/bin"))]:
        for path in sorted(folder.glob("python3*")) if folder != pyenv / "shims" else ():
            if _NAME.fullmatch(path.name) and (version := _version_of(path)):
                found.setdefault(version, path)
    return [Python(*item) for item in sorted(found.items())]


def claimed(project: Mapping[str, Any]) -> set[Version]:
    """The releases, as (3, 11), that the classifiers name."""
    found = (re.fullmatch(r"Programming Language :: Python :: (\d+)\.(\d+)", text) for text in project["classifiers"])
    return {(int(match[1]), int(match[2])) for match in found if match}


def supported(found: Iterable[Python], releases: set[Version], running: Version) -> list[Python]:
    """Those of a claimed release, without the one that is running."""
    return [python for python in found if python.version[:2] in releases and python.version != running]


def requirements(project: Mapping[str, Any]) -> list[str]:
    """What must be installed: all that the gateway needs, and of the tools what is NEEDED, as they are pinned."""
    tools = project["optional-dependencies"]["dev"]
    return [*project["dependencies"], *(tool for tool in tools if tool.partition("==")[0] in NEEDED)]


def conclude(statuses: Sequence[int]) -> int:
    """The exit status: that of a failed test, if there is one; that nothing was run only if nothing was."""
    failed = [status for status in statuses if status not in (0, NOT_RUN)]
    return 1 if failed else NOT_RUN if statuses and set(statuses) == {NOT_RUN} else 0


def _run(python: Python, needed: Sequence[str]) -> int:
    began_s = time.monotonic()
    try:
        program = _installed(python, needed)
    except NotInstalled as error:
        print(f"Python {python}: not run, {error}", flush=True)
        return NOT_RUN
    print(f"Python {python}:", flush=True)
    command = [str(program), "-W", "error", "-m", "tests", *(f"tests.{name}" for name in TELLING)]
    status = subprocess.run(command, cwd=_paths.ROOT, env=_environment(), check=False).returncode
    words = f"exit status {status}" if status else "passed"
    print(f"Python {_text(python.version)}: {words}, {time.monotonic() - began_s:.1f} s", flush=True)
    return status


def _installed(python: Python, needed: Sequence[str]) -> Path:
    """The interpreter of an environment that has what is needed. Some Pythons come without pip: ours installs."""
    folder = WORK / _text(python.version)
    program = folder / "bin" / "python"
    for command in (
        [str(python.path), "-m", "venv", "--without-pip", str(folder)],
        [sys.executable, "-m", "pip", "--python", str(program), "install", "--quiet", *needed],
    ):
        done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotInstalled(f"`{' '.join(command)}`: {done.stderr.strip() or done.stdout.strip()}")
    return program


def _environment() -> dict[str, str]:
    """Ours, without what would show one Python the packages of another."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def _version_of(path: Path) -> Version | None:
    """Three numbers; None of what is not there, does not answer, or is no plain build of CPython."""
    try:
        done = subprocess.run(
            [path, "-I", "-c", _WHO], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.fullmatch(r"cpython (\d+) (\d+) (\d+)\n", done.stdout)
    return tuple(map(int, match.groups())) if match else None


def _text(version: Version) -> str:
    return ".".join(map(str, version))


if __name__ == "__main__":
    sys.exit(main())
