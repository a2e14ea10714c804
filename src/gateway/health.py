"""How the deployments are doing: breaker, pauses and retry budget of each.

Decides whether a deployment gets a call now, with which of its provider's credentials, and when it could again. A pause
belongs to one credential, because an upstream limits and refuses accounts, not addresses; a deployment is paused while
all of its credentials are. What a failure means is decided elsewhere. Time is handed in.
"""

import math
import threading
from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from gateway.breaker import Breaker, BreakerState, Permit
from gateway.config_schema import BreakerConfig, Deployment, RetryConfig
from gateway.retry import RetryBudget

LONG_PAUSE_S = 60.0
"""After an upstream refused our credential, our quota or the model: an operator has to act, and every call until then
is wasted; but once somebody has acted, a minute is soon over.
"""

LONGEST_PAUSE_S = 3600.0
"""However long an upstream asks for: daily limits do clear within the day, and a wrong number must not cost one."""


class Absence(StrEnum):
    """Why a deployment gets no call."""

    OPEN = "open"
    RATE_LIMITED = "rate_limited"
    QUOTA = "quota_exhausted"
    REFUSED = "refused"


STATES = tuple(dict.fromkeys(map(str, (*BreakerState, *Absence))))
"""Every state that a deployment can be told to be in."""


class Entry(Struct, frozen=True):
    """Leave to make one call: the permit, to be answered once, and the index of the credential to use."""

    permit: Permit
    credential: int


class _Pause(Struct, frozen=True):
    until_s: float
    why: Absence


_ONE_FREE = [None]
"""The pauses of a deployment with one credential, which has none."""

_NO_OTHER = _Pause(math.inf, Absence.REFUSED)
"""What keeps a call from another credential where there is none."""


class DeploymentHealth:
    """One deployment's. `_lock` guards each change of `_pauses`, `_turn` and `_told`, and looks at several pauses; one
    look that finds a free credential does not take it. Breaker and budget lock themselves.

    credentials  how many its provider has; one that needs none counts as one
    most_heard   of one request, only the first so many calls that the upstream got and failed are told to the breaker:
                 one fewer than open it, for the fault may lie in the request, and others are to be served all the same
    """

    def __init__(self, breaker: BreakerConfig, retry: RetryConfig, credentials: int) -> None:
        self.most_heard = max(breaker.threshold - 1, 1)
        self.retries = RetryBudget(retry.budget_percent, retry.budget_floor)
        self._breaker = Breaker(breaker.threshold, breaker.cooldown_s)
        self._lock = threading.Lock()
        self._pauses: list[_Pause | None] = [None] * max(credentials, 1)
        self._turn = 0
        self._told: str = BreakerState.CLOSED

    @property
    def credentials(self) -> int:
        return len(self._pauses)

    def enter(self, now_s: float) -> Entry | None:
        """Leave for one call with the next credential that is not paused; None if there is none now."""
        credential = self._next_credential(now_s)
        if credential is None:
            return None
        permit = self._breaker.permit(now_s)
        return None if permit is None else Entry(permit, credential)

    def pause(self, credential: int, until_s: float, why: Absence) -> None:
        """Give `credential` no call until monotonic `until_s`; a longer pause that it has already stays."""
        with self._lock:
            known = self._pauses[credential]
            if known is None or known.until_s < until_s:
                self._pauses[credential] = _Pause(until_s, why)

    def wait_s(self, now_s: float) -> float:
        """Seconds until a call could be made; 0 if now."""
        pause = self._pause(now_s)
        return max(pause.until_s - now_s if pause else 0.0, self._breaker.wait_s(now_s))

    def absence(self, now_s: float) -> Absence | None:
        """Why there is no call now; None if there could be one."""
        pause = self._pause(now_s)
        if pause is not None:
            return pause.why
        return Absence.OPEN if self._breaker.wait_s(now_s) > 0 else None

    def is_free(self, now_s: float, beside: int | None = None) -> bool:
        """Whether there could be a call now, with another credential than `beside`."""
        return self._pause(now_s, beside) is None and self._breaker.wait_s(now_s) <= 0

    def state(self, now_s: float) -> str:
        """For people: why there is no call now, else how the breaker stands."""
        pause = self._pause(now_s)
        return self._breaker.state(now_s) if pause is None else pause.why

    def news(self, now_s: float) -> str | None:
        """The state, if it is another one than when this was last asked; `closed` at first."""
        state = self.state(now_s)
        if state == self._told:
            return None
        with self._lock:
            if state == self._told:
                return None
            self._told = state
            return state

    def _pause(self, now_s: float, beside: int | None = None) -> _Pause | None:
        """The pause that ends first, but for credential `beside`; None if a credential is free."""
        if beside is None and None in self._pauses:
            return None
        soonest = _NO_OTHER
        with self._lock:
            for credential, pause in enumerate(self._pauses):
                if credential == beside:
                    continue
                if pause is None or pause.until_s <= now_s:
                    return None
                if pause.until_s < soonest.until_s:
                    soonest = pause
        return soonest

    def _next_credential(self, now_s: float) -> int | None:
        if self._pauses == _ONE_FREE:
            return 0
        with self._lock:
            count = len(self._pauses)
            for step in range(1, count + 1):
                credential = (self._turn + step) % count
                pause = self._pauses[credential]
                if pause is None or pause.until_s <= now_s:
                    self._pauses[credential] = None
                    self._turn = credential
                    return credential
            return None


class Fleet:
    """The health of every deployment, by name.

    `_overbilled` is only ever added to, by single set operations; fleets that succeed each other share it.

    identities  what tells whether a deployment of that name is still the same one after a reload
    """

    def __init__(self, healths: Mapping[str, DeploymentHealth], identities: Mapping[str, object]) -> None:
        self._healths = dict(healths)
        self._identities = identities
        self._overbilled: set[str] = set()

    def __getitem__(self, deployment: str) -> DeploymentHealth:
        return self._healths[deployment]

    @property
    def overbilled(self) -> tuple[str, ...]:
        """Deployments that were seen to bill more than a hold."""
        return tuple(sorted(self._overbilled))

    def flag(self, deployment: str) -> None:
        """Remember that it billed more than a hold."""
        self._overbilled.add(deployment)

    def in_service(self, deployments: Sequence[Deployment]) -> Sequence[Deployment]:
        """Those that are: one that bills more than a hold is taken out if its configuration says so."""
        overbilled = self._overbilled
        if not overbilled:
            return deployments
        return [each for each in deployments if not (each.quarantine_on_overage and each.name in overbilled)]

    def succeed(self, former: "Fleet") -> None:
        """Go on with what `former` knew of the deployments that are still the same; for a start, before any call."""
        self._overbilled = former._overbilled
        for name, identity in self._identities.items():
            if former._identities.get(name) == identity:
                self._healths[name] = former._healths[name]

    def states(self, now_s: float) -> dict[str, str]:
        """How each deployment stands, for people."""
        return {name: health.state(now_s) for name, health in self._healths.items()}
