"""What CI needs to put real clients in front of the gateway and the gateway in front of other people's servers.

It is run as a script, and uses a tool that stands at the top of the checkout.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
