"""Gateways on real threads whose callers meet at the upstream, in the way of `evals.crowd`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self
from unittest import mock

from evals import crowd
from evals.crowd import PATIENCE_S as PATIENCE_S
from evals.crowd import Crowd as Crowd
from evals.crowd import GateStuck as GateStuck
from gateway.fake_provider import FakeProvider
from gateway.ledger import Ledger
from tests.support.world import CONFIG, RealWorld

USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
COST = 10 * 1_000 + 10 * 4_000
"""Nano-dollars of USAGE at the price of `mini`."""


class GatedProvider(crowd.GatedProvider):
    """A fake upstream behind a gate, with its usage scripted."""

    def __init__(self, usage: Mapping[str, Any]) -> None:
        self.fake = FakeProvider([{"text": "hello there friend", "usage": usage}], name="up")
        super().__init__(self.fake)


class GatedWorld(RealWorld):
    """A gateway on real threads whose upstream is gated and bills USAGE.

    ledger_type  a Ledger, or a broken twin of it
    """

    def __init__(self, config: str = CONFIG, *, ledger_type: type[Ledger] = Ledger) -> None:
        self.up = GatedProvider(USAGE)
        with mock.patch("gateway.books.Ledger", ledger_type):
            super().__init__(config=config, providers={"up": self.up})

    def __enter__(self) -> Self:
        return self

    def crowd(
        self, requests: Sequence[tuple[str, Mapping[str, Any]]], at_the_gate: Callable[[], None] = lambda: None
    ) -> Crowd:
        """Let all requests (raw key, body) meet at the upstream; see evals.crowd.meet."""
        return crowd.meet(self.gateway, self.up, requests, at_the_gate)
