"""What a gateway says of itself: the gauges of its /metrics."""

import http.client

from probes.client import PATIENCE_S
from probes.upstream import wait_until

LEFT_S = 10.0
"""A client that has left is let go of at once, but the machine may be busy."""


class Gauges:
    """Reads /metrics as often as it is asked, on one connection of its own. Use as a context manager."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=PATIENCE_S)

    def read(self, name: str) -> int:
        """A gauge without labels. ValueError if there is none, or nobody who could be asked."""
        self._connection.request("GET", "/metrics")
        page = self._connection.getresponse().read().decode()
        return int(page.partition(f"\n{name} ")[2].partition("\n")[0])

    def wait_alone(self) -> None:
        """Wait until no connection is open but this one; TimeoutError if one stays."""
        wait_until(
            lambda: self.read("gateway_connections") == 1, "a connection stays open after its client has left", LEFT_S
        )

    def __enter__(self) -> "Gauges":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
