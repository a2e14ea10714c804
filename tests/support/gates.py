"""Makes many callers meet: an upstream that answers nobody until everybody is decided, and threads at a barrier.

A caller is decided once its call has reached the upstream or it was refused. While all are, the test looks at the
books; then the gate opens. So how many pass is a matter of money alone, never of who was quick.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from unittest import mock

from gateway.context import Caller
from gateway.errors import GatewayError
from gateway.fake_provider import FakeProvider
from gateway.ledger import Ledger
from gateway.providers import ProviderAnswer, UpstreamCall
from tests.support.world import CONFIG, RealWorld

PATIENCE_S = 20.0
"""A bug makes a test fail after this; nothing waits for it otherwise."""


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
    """A fake upstream behind a gate; `reached` counts the calls that came to it. `_lock` guards `reached`."""

    name = "up"

    def __init__(self, usage: Mapping[str, Any]) -> None:
        self.fake = FakeProvider([{"text": "hello there friend", "usage": usage}])
        self.gate = Gate(0)
        self.gate.open()
        self.reached = 0
        self._lock = threading.Lock()

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        with self._lock:
            self.reached += 1
        self.gate.pass_through()
        return await self.fake.open(call, caller)


@dataclass(slots=True)
class Crowd:
    """What became of callers who met: answers, refusals of the gateway, and whatever else was raised."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[GatewayError] = field(default_factory=list)
    broken: list[BaseException] = field(default_factory=list)

    @property
    def codes(self) -> set[str]:
        return {f"{refusal.status} {refusal.code}" for refusal in self.refusals}


USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
COST = 10 * 1_000 + 10 * 4_000
"""Nano-dollars of USAGE at the price of `mini`."""


class GatedWorld(RealWorld):
    """A gateway on real threads whose upstream is gated and bills USAGE.

    ledger_type  a Ledger, or a broken twin of it
    """

    def __init__(self, config: str = CONFIG, *, ledger_type: type[Ledger] = Ledger) -> None:
        self.up = GatedProvider(USAGE)
        with mock.patch("gateway.app.Ledger", ledger_type):
            super().__init__(config=config, providers={"up": self.up})

    def __enter__(self) -> Self:
        return self

    def crowd(
        self, requests: Sequence[tuple[str, Mapping[str, Any]]], at_the_gate: Callable[[], None] = lambda: None
    ) -> Crowd:
        """Send all requests (raw key, body) at the same instant, each from its own thread; once all are decided, run
        `at_the_gate`, then let the upstream answer. Raises GateStuck, and what `at_the_gate` raises.
        """
        self.up.gate = gate = Gate(len(requests))
        start = threading.Barrier(len(requests))
        crowd = Crowd()

        def ask(raw_key: str, body: Mapping[str, Any]) -> None:
            start.wait(PATIENCE_S)
            try:
                crowd.answers.append(self.gateway.handle(raw_key, body))
            except GatewayError as refusal:
                crowd.refusals.append(refusal)
                gate.decided()
            except BaseException as error:
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
