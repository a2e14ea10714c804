"""What the gateway claims, measured: `python -m evals`. PREREGISTRATION.md holds the bounds, results/ the artifacts.
`python -m evals.NAME` are measurements of the gateway as people run it, by themselves.

Importing this package puts the checkout's `src` on the path, if it is not: what is measured is what lies beside it.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"

if str(SOURCES) not in sys.path:
    sys.path.insert(0, str(SOURCES))
