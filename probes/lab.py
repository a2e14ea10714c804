"""What a probe works with: gateways, upstreams, and the faults that it found. Everything ends with the lab,
but for the target: the next probe that wants the same one goes on with it.
"""

import threading
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from gateway.providers import Provider
from probes.gateways import ONE_TRY, ROOT, Inside, Outside, config, server
from probes.target import Target, Targets
from probes.upstream import Reply, Upstream, wait_until

PROGRAM = ("-m", "gateway.api")

MUST_S = 10.0
"""Far longer than anything takes that is done without waiting."""


class Enough(Exception):
    """A lab that looks for one fault has it."""


class Lab:
    """The tools of one probe. Use as a context manager; faults may be read after it.

    seconds   bound for each load that is driven
    program   what an interpreter runs to serve: the gateway, or a broken one
    targets   keeps a target for the next lab; None: of this lab alone
    one_fault the probe ends with the first fault that its own thread notes: Enough is raised, and no books are checked
    faults    what was found
    """

    def __init__(
        self,
        *,
        seconds: float = 6.0,
        program: Sequence[str] = PROGRAM,
        targets: Targets | None = None,
        one_fault: bool = False,
    ) -> None:
        self.seconds = seconds
        self.faults: list[str] = []
        self._thread = threading.current_thread() if one_fault else None
        self._program = program
        self._stack = ExitStack()
        self._targets = targets or self._stack.enter_context(Targets())

    def check(self, is_right: bool, fault: str) -> None:
        """Note a fault unless all is right."""
        if not is_right:
            self.faults.append(fault)
            if threading.current_thread() is self._thread:
                raise Enough

    def must(self, is_true: Callable[[], bool], fault: str, patience_s: float | None = None) -> bool:
        """Wait a while (MUST_S) for what must happen; whether it did. If it did not, that is the fault."""
        try:
            wait_until(is_true, fault, MUST_S if patience_s is None else patience_s)
        except TimeoutError:
            self.check(False, fault)
            return False
        return True

    def upstream(self, *replies: Reply) -> Upstream:
        """An upstream."""
        upstream = Upstream(*replies)
        self._stack.callback(self._end_upstream, upstream)
        return upstream

    def inside(
        self,
        *upstreams: Upstream,
        retries: str = ONE_TRY,
        more: str = "",
        providers: Mapping[str, Provider] | None = None,
        keys: Mapping[str, str] | None = None,
        **entries: str,
    ) -> Inside:
        """A gateway in this process; entries as of gateways.config. Its books are checked at the end of the lab.

        providers, keys  see Inside
        """
        gateway = Inside(config(*upstreams, more=retries + more, **entries), providers=providers, keys=keys)
        self._stack.callback(self._end, gateway)
        return gateway

    def target(self, *, upstreams: int = 1, **entries: str) -> Target:
        """A gateway to be attacked from outside, over its upstreams; entries as of outside(). Its books are checked."""
        target = self._targets.lease(self._program, upstreams, entries, self.check)
        self._stack.callback(self._end_lease, target)
        return target

    def server(self, **limits: float) -> str:
        """The `[server]` of a configuration, all of which the probe needs: an undocumented limit is a fault."""
        self.documented(*limits)
        return server(**limits)

    def documented(self, *limits: str) -> None:
        """Note a fault for each limit of `[server]` that is not published."""
        published = tomllib.loads((ROOT / "gateway.example.toml").read_text(encoding="utf-8"))["server"]
        for name in limits:
            self.check(name in published, f"the limit {name} is not documented")

    def outside(
        self,
        *upstreams: Upstream,
        more: str = "",
        durability: str = "normal",
        env: Mapping[str, str] | None = None,
        **entries: str,
    ) -> Outside:
        """A gateway in a process of its own, as inside(); env  variables of its own."""
        text = config(*upstreams, more=ONE_TRY + more, **entries)
        gateway = Outside(text, self._program, durability=durability, env=env)
        self._stack.callback(self._end, gateway)
        return gateway

    def __enter__(self) -> "Lab":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def _has_enough(self) -> bool:
        return self._thread is not None and bool(self.faults)

    def _end(self, gateway: Inside | Outside) -> None:
        try:
            self.faults += [] if self._has_enough else gateway.check()
        except Exception as error:  # noqa: BLE001 - a gateway that cannot be asked is a fault
            self.faults.append(f"the gateway cannot be asked any more: {error!r}")
        finally:
            gateway.close()

    def _end_lease(self, target: Target) -> None:
        if self._has_enough:
            return
        try:
            self.faults += target.end()
        except Exception as error:  # noqa: BLE001 - a gateway that cannot be asked is a fault
            self.faults.append(f"the gateway cannot be asked any more: {error!r}")
            self._targets.close()

    def _end_upstream(self, upstream: Upstream) -> None:
        upstream.close()
        self.faults += [f"the scripted upstream failed: {fault!r}" for fault in upstream.faults]


@dataclass(frozen=True, slots=True)
class Probe:
    """One attempt to break a promise.

    area  the kind of promise; attack  a function that notes faults in a lab and returns what was seen
    """

    name: str
    area: str
    attack: Callable[[Lab], str]

    @property
    def aim(self) -> str:
        """What it tries, in one line."""
        return (self.attack.__doc__ or "").partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a probe. `seen` is short and concrete."""

    name: str
    area: str
    found: bool
    seen: str

    @property
    def line(self) -> str:
        return f"{'FOUND' if self.found else 'not found':<10} {self.name}: {self.seen}"

    def as_json(self) -> dict[str, Any]:
        verdict = "FOUND" if self.found else "not found"
        return {"name": self.name, "area": self.area, "verdict": verdict, "seen": self.seen}


_MOST_FAULTS = 4


def run(probe: Probe, lab: Lab) -> Verdict:
    """Let a probe loose. One that cannot do its work proves nothing, so that counts as found."""
    seen = ""
    with lab:
        try:
            seen = probe.attack(lab)
        except Enough:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is proven
            lab.faults.append(f"the probe could not go on: {type(error).__name__}: {error}")
    if not lab.faults:
        return Verdict(probe.name, probe.area, found=False, seen=seen)
    more = len(lab.faults) - _MOST_FAULTS
    told = "; ".join(lab.faults[:_MOST_FAULTS]) + (f"; and {more} more" if more > 0 else "")
    return Verdict(probe.name, probe.area, found=True, seen=" ".join(told.split()))
