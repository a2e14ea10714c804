"""Puts the packages on the path without an install.

`src` is always there. If AIP_SCRATCH names a folder, the kits are taken from there first, so that a kit that is
developed apart can be tested against this gateway.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
_KIT_HOMES = ("llmkit", "aip1work/llmkit", "tracekit/src", "aip2work/tracekit/src")


def _kit_folders(scratch: str | None) -> list[str]:
    """Folders under AIP_SCRATCH that exist; each holds a kit's package (a folder named like the kit is its home)."""
    if not scratch:
        return []
    return [str(folder) for home in _KIT_HOMES if (folder := Path(scratch) / home).is_dir()]


def install() -> None:
    """Put the kits' scratch folders, then `src`, then the repository, at the front of sys.path, once."""
    wanted = [*_kit_folders(os.environ.get("AIP_SCRATCH")), str(SRC), str(ROOT)]
    sys.path[:] = wanted + [entry for entry in sys.path if entry not in wanted]


install()
