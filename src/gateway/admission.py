"""Who may ask for what, and how often: authenticate, scope, rate. Holds no money.

Every route goes through here once: authenticate() turns a raw key into a Principal, admit() checks what this request
asks for and takes its unit of the rate limit. A unit goes back if the request is then refused for another reason.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gateway.chat import ChatRequest
from gateway.clock import Clock
from gateway.config_schema import TenantConfig, name_matches
from gateway.context import Facts, Principal
from gateway.errors import ModelNotAllowed, ModelNotFound, RateLimited
from gateway.keys import KeyRing, ShownKey
from gateway.ledger import Ledger
from gateway.limits import Decision, TokenBucket
from gateway.router import Catalog, RoutePlan


class Admitted(Struct, frozen=True):
    """A request that may go on, and how to take that back."""

    plan: RoutePlan
    bucket: TokenBucket | None
    unit: Decision | None

    def give_back(self, now_s: float, facts: Facts) -> None:
        """Return the unit of the rate limit: the request was refused for another reason."""
        if self.bucket is not None and self.unit is not None:
            facts.rate = self.bucket.give_back(self.unit, now_s)


class Admission:
    """Immutable but for the buckets, which lock themselves, and `_principals`, changed in single steps: who has asked
    so far, by the key's id.
    """

    def __init__(
        self, keys: KeyRing, ledger: Ledger, catalog: Catalog, tenants: Mapping[str, TenantConfig], clock: Clock
    ) -> None:
        self._keys = keys
        self._ledger = ledger
        self._catalog = catalog
        self._tenants = tenants
        self._clock = clock
        self._principals: dict[str, Principal] = {}
        self._buckets = {
            tenant.name: TokenBucket(tenant.rate_per_s, tenant.burst)
            for tenant in tenants.values()
            if tenant.rate_per_s is not None and tenant.burst is not None
        }

    def succeed(self, former: "Admission") -> None:
        """Go on with the buckets of `former` whose rates are the same, so that a reload admits no second burst."""
        for name, bucket in former._buckets.items():
            if name in self._buckets and self._tenants[name].rate == former._tenants[name].rate:
                self._buckets[name] = bucket

    @property
    def memory_s(self) -> float:
        """How long ago the oldest request can have been admitted that still counts against a rate; 0 without one."""
        return max((bucket.refill_s for bucket in self._buckets.values()), default=0.0)

    def recall(self, starts: Iterable[tuple[str, int]]) -> None:
        """Take the units of requests that were admitted before, each by its tenant and its start in UTC milliseconds,
        oldest first: a restart admits no second burst. For an admission that has admitted nothing yet.
        """
        now_s, now_ms = self._clock.now_s(), self._clock.wall_ms()
        for tenant, started_ms in starts:
            if tenant in self._buckets:
                self._buckets[tenant].take(now_s - max(now_ms - started_ms, 0) / 1000)

    def authenticate(self, shown: ShownKey) -> Principal:
        """The principal that the key stands for. Raises InvalidApiKey."""
        key = self._keys.authenticate(shown)
        account = self._ledger.account(key.tenant, key.id)
        known = self._principals.get(key.id)
        if known is not None and known.account is account:
            return known
        tenant = self._tenants.get(key.tenant)
        models, regions = (tenant.models, tenant.regions) if tenant else (None, None)
        principal = self._principals[key.id] = Principal(key.id, key.tenant, account, models, regions)
        return principal

    def admit(self, principal: Principal, request: ChatRequest, facts: Facts) -> Admitted:
        """Check the name, plan the route and check the rate.

        Raises ModelNotFound, ModelNotAllowed, RateLimited, or what Catalog.plan does; takes no unit then.
        """
        if request.model not in self._catalog:
            raise ModelNotFound(request.model[:128])
        facts.alias = request.model
        if not may_ask(principal.models, request.model):
            raise ModelNotAllowed(request.model[:128])
        plan = self._catalog.plan(
            request.model, request.body, request.options.tags, principal.regions, is_plain=request.is_plain
        )
        bucket = self._buckets.get(principal.tenant)
        if bucket is None:
            return Admitted(plan, None, None)
        unit = bucket.take(self._clock.now_s())
        facts.rate = unit.state
        if not unit.admitted:
            raise RateLimited("Too many requests for this tenant.", retry_after_s=unit.retry_after_s)
        return Admitted(plan, bucket, unit)

    def visible_models(self, principal: Principal) -> tuple[str, ...]:
        """The names that this principal may ask for, and that are served where it may be."""
        return tuple(name for name in self._catalog.names(principal.regions) if may_ask(principal.models, name))


def may_ask(patterns: tuple[str, ...] | None, name: str) -> bool:
    """Whether `name` matches one of the patterns, as name_matches() has it; None allows every name."""
    return patterns is None or any(name_matches(name, pattern) for pattern in patterns)
