"""Makes many callers meet: an upstream that answers nobody until everybody is decided, and threads at a barrier.

A caller is decided once its call has reached the upstream or it was refused. While all are, whoever looks at the books
sees every admitted request at once; then the gate opens. So how many pass is a matter of money alone, never of speed.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.context import Caller
from gateway.errors import GatewayError
from gateway.gateway import Gateway
from gateway.providers import Provider, ProviderAnswer, UpstreamCall

PATIENCE_S = 20.0
"""A bug makes a run fail after this; nothing waits for it otherwise."""


class GateStuck(RuntimeError):
    """Not everybody was decided in time."""


class Gate:
    """Closed until `open()`. `_lock` guards `_undecided`."""

    def __init__(self, callers: int) -> None:
        self._lock = threading.Lock()
        self._undecided = callers
        self._all_decided = threading.Event()
        self._opened = threading.Event()

    def decided(self) -> None:
        """One more caller is at the gate or was refused."""
        with self._lock:
            self._undecided -= 1
            if self._undecided <= 0:
                self._all_decided.set()

    def wait_for_all(self) -> None:
        """Wait until everybody is decided. Raises GateStuck."""
        if not self._all_decided.wait(PATIENCE_S):
            raise GateStuck(f"{self._undecided} callers are neither at the upstream nor refused")

    def open(self) -> None:
        self._opened.set()

    def pass_through(self) -> None:
        """Be decided, then wait until the gate opens. Raises GateStuck."""
        self.decided()
        if not self._opened.wait(PATIENCE_S):
            raise GateStuck("the gate never opened")


class GatedProvider:
    """An upstream behind a gate, open at first; `reached` counts the calls that came to it. `_lock` guards it."""

    def __init__(self, behind: Provider) -> None:
        self.name = behind.name
        self.gate = Gate(0)
        self.gate.open()
        self.reached = 0
        self._behind = behind
        self._lock = threading.Lock()

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        with self._lock:
            self.reached += 1
        self.gate.pass_through()
        return await self._behind.open(call, caller)


@dataclass(slots=True)
class Crowd:
    """What became of callers who met: answers, refusals of the gateway, and whatever else was raised."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[GatewayError] = field(default_factory=list)
    broken: list[BaseException] = field(default_factory=list)

    @property
    def codes(self) -> set[str]:
        return {f"{refusal.status} {refusal.code}" for refusal in self.refusals}


def meet(
    gateway: Gateway,
    upstream: GatedProvider,
    requests: Sequence[tuple[str, Mapping[str, Any]]],
    at_the_gate: Callable[[], None] = lambda: None,
) -> Crowd:
    """Send all requests (raw key, body) at the same instant, each from its own thread; once all are decided, run
    `at_the_gate`, then let the upstream answer. Raises GateStuck, and what `at_the_gate` raises.
    """
    upstream.gate = gate = Gate(len(requests))
    start = threading.Barrier(len(requests))
    crowd = Crowd()

    def ask(raw_key: str, body: Mapping[str, Any]) -> None:
        start.wait(PATIENCE_S)
        try:
            crowd.answers.append(gateway.handle(raw_key, body))
        except GatewayError as refusal:
            crowd.refusals.append(refusal)
            gate.decided()
        except BaseException as error:  # noqa: BLE001 - kept for whoever made them meet
            crowd.broken.append(error)
            gate.decided()

    threads = [threading.Thread(target=ask, args=request) for request in requests]
    for thread in threads:
        thread.start()
    try:
        gate.wait_for_all()
        at_the_gate()
    finally:
        gate.open()
        for thread in threads:
            thread.join(PATIENCE_S)
    return crowd
