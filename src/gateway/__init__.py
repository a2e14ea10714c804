"""The gateway in front of every LLM provider: routes, budgets, streams, one process.

The names below are what a user of the library needs; everything else is internal.
"""

from gateway.clock import FakeClock, RealClock
from gateway.errors import GatewayError
from gateway.fake_provider import FakeProvider
from gateway.gateway import Gateway
from gateway.keys import hash_key
from gateway.ledger import Ledger
from gateway.router import route
from llmkit.errors import ProviderError

__version__ = "0.1.0"

__all__ = [
    "FakeClock",
    "FakeProvider",
    "Gateway",
    "GatewayError",
    "Ledger",
    "ProviderError",
    "RealClock",
    "hash_key",
    "route",
]
