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
    """The folders to import the kits from, of those homes under AIP_SCRATCH that exist.

    A home holds its kit's package, or is the package itself.
    """
    homes = [Path(scratch) / home for home in _KIT_HOMES] if scratch else []
    return [str(home.parent if (home / "__init__.py").exists() else home) for home in homes if home.is_dir()]


def install() -> None:
    """Put the kits' scratch folders, then `src`, then the repository, at the front of sys.path, once."""
    wanted = [*_kit_folders(os.environ.get("AIP_SCRATCH")), str(SRC), str(ROOT)]
    sys.path[:] = wanted + [entry for entry in sys.path if entry not in wanted]


install()
