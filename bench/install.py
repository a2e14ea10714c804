"""What an installation takes on the disk, beyond an empty virtual environment."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.tools import ROOT

SHIPPED = ("pyproject.toml", "README.md", "LICENSE", "src")
MOST_S = 120.0


def disk_mb(folder: Path) -> float:
    """What `du` would say of it, in units of 1,000,000 bytes."""
    taken = sum(path.lstat().st_blocks for path in (folder, *folder.rglob("*")))
    return taken * 512 / 1e6


def empty_venv_mb(folder: Path) -> float:
    """Makes one in `folder`."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
    return disk_mb(folder)


def installed_mb() -> float | str:
    """The gateway with what it needs, or in words why that is not known: it comes from a package index."""
    with tempfile.TemporaryDirectory() as name:
        venv, copy = Path(name) / "venv", Path(name) / "copy"
        empty = empty_venv_mb(venv)
        copy.mkdir()
        for part in SHIPPED:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                shutil.copy(ROOT / part, copy / part)
        command = [str(venv / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", str(copy)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=MOST_S)
        except subprocess.CalledProcessError as error:
            return f"pip: {error.stderr.strip().splitlines()[-1]}"
        except subprocess.TimeoutExpired:
            return f"pip had not ended after {MOST_S:g} s"
        return round(disk_mb(venv) - empty, 2)
