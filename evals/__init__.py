"""What the gateway claims, measured: `python -m evals`. PREREGISTRATION.md holds the bounds, results/ the artifacts.

Importing this package puts the checkout's `src` first on the path: what is measured is what lies beside it.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"

sys.path[:] = [str(SOURCES)] + [entry for entry in sys.path if entry != str(SOURCES)]
