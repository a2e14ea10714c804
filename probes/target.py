"""A gateway in a process of its own that is attacked with bytes, and kept for the next probe that wants the same.

What most attacks have in common is here: the one refusal that each may get, and that nothing else came of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from probes import wire
from probes.gateways import ONE_TRY, Outside, config
from probes.hands import side_by_side
from probes.upstream import Upstream, good
from probes.wire import Ending, Heard

SMUGGLED = "/smuggled-by-probe"
"""What a hidden request asks for; it must stand in no log."""

HIDDEN = wire.head(f"GET {SMUGGLED} HTTP/1.1", "Host: x")

Check = Callable[[bool, str], None]


class Target:
    """One probe's use of a gateway. end() says what is wrong with the gateway once all is quiet.

    key        of the tenant acme, without a budget: what it is charged is what the attacks have cost
    upstream   answers well unless told otherwise; upstreams  all of them, in failover order
    """

    def __init__(self, gateway: Outside, upstreams: Sequence[Upstream], check: Check) -> None:
        self.gateway = gateway
        self.address = gateway.address
        self.upstreams = upstreams
        self.upstream = upstreams[0]
        self.check = check
        for upstream in upstreams:
            upstream.begin_anew(good())
        self.key = gateway.key()

    def hear(
        self, attacks: Mapping[str, bytes], ending: Ending = Ending.WAITS, *, patience_s: float | None = None
    ) -> dict[str, Heard]:
        """What comes back of each attack, each on a connection of its own, a few at a time."""

        def one(raw: bytes) -> Heard:
            return wire.say(self.address, raw, ending=ending, patience_s=patience_s)

        return dict(zip(attacks, side_by_side(one, attacks.values()), strict=True))

    def refused(self, attacks: Mapping[str, bytes], *statuses: int, ending: Ending = Ending.WAITS) -> str:
        """Each attack gets one answer, of one of these statuses and in our form, and its connection is closed.

        Returns how often which status was given.
        """
        heard = self.hear(attacks, ending)
        for name, said in heard.items():
            self.check_refusal(name, said, *statuses)
        return shares([status for said in heard.values() for status in said.statuses])

    def check_refusal(self, name: str, said: Heard, *statuses: int) -> None:
        """One answer with one of these statuses, an error in our form, and then the end of the connection."""
        is_one = len(said.answers) == 1 and said.statuses[0] in statuses
        self.check(is_one, f"{name}: answered {list(said.statuses) or 'nothing'}")
        self.check(said.closed, f"{name}: the connection is left open")
        if is_one:
            self.check(said.answers[0].code is not None, f"{name}: no error in JSON: {said.answers[0].body[:60]!r}")

    def unanswered(self, attacks: Mapping[str, bytes], ending: Ending) -> str:
        """Each attack gets no answer but, at most, a 400; its connection is closed. Returns what was given."""
        heard = self.hear(attacks, ending)
        for name, said in heard.items():
            self.check(said.statuses in ((), (400,)), f"{name}: answered {list(said.statuses)}")
            self.check(said.closed, f"{name}: the connection is left open")
        return shares([status for said in heard.values() for status in said.statuses])

    def served(self, requests: Mapping[str, bytes]) -> None:
        """Each is honest, and the last on its connection: answered 200, once. Without them a refusal proves nothing."""
        for name, said in self.hear(requests).items():
            self.check(said.statuses == (200,), f"{name}: answered {list(said.statuses)}, though it is in order")

    def untouched(self, calls: int = 0) -> None:
        """Nothing came of the attacks: no upstream call beyond `calls` honest ones, and none of them cost more."""
        self.gateway.wait_quiet()
        made = sum(len(upstream.calls) for upstream in self.upstreams)
        self.check(made == calls, f"{made} upstream calls, not {calls}")
        shown = self.gateway.shown(self.key)
        billed = sum(upstream.metered_nanousd for upstream in self.upstreams)
        money = {name: shown[f"{name}_nanousd"] for name in ("spent", "held", "unresolved")}
        self.check(money == {"spent": billed, "held": 0, "unresolved": 0}, f"billed {billed}, and the key has {money}")
        written = SMUGGLED.encode() in self.gateway.everything_written()
        self.check(not written, "a hidden request stands in a log")

    def end(self) -> list[str]:
        """What is wrong with the books, the log and the upstreams."""
        faults = [f"a scripted upstream failed: {fault!r}" for upstream in self.upstreams for fault in upstream.faults]
        return faults + (self.gateway.check() if self.gateway.is_running else ["the gateway has died"])


class Targets:
    """Keeps one gateway from probe to probe, as long as the next wants the same one. Use as a context manager."""

    def __init__(self) -> None:
        self._kept: tuple[Any, Outside, list[Upstream]] | None = None

    def lease(self, program: Sequence[str], upstreams: int, entries: Mapping[str, str], check: Check) -> Target:
        """The kept gateway if it is what is wanted and goes on serving, else a new one."""
        wanted = (tuple(program), upstreams, dict(entries))
        if self._kept is None or self._kept[0] != wanted or self._kept[1].may_end:
            self.close()
            made = [Upstream(good()) for _ in range(upstreams)]
            given = dict(entries)
            text = config(*made, more=ONE_TRY + given.pop("more", ""), **given)
            self._kept = (wanted, Outside(text, program), made)
        return Target(self._kept[1], self._kept[2], check)

    def close(self) -> None:
        """End what is kept."""
        if self._kept is not None:
            _, gateway, upstreams = self._kept
            self._kept = None
            gateway.close()
            for upstream in upstreams:
                upstream.close()

    def __enter__(self) -> "Targets":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def shares(statuses: Sequence[int]) -> str:
    """How often there was which status."""
    counted = {status: statuses.count(status) for status in sorted(set(statuses))}
    return ", ".join(f"{count} x {status}" for status, count in counted.items()) or "no answer"
