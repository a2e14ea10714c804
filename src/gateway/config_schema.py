"""What a configuration is: one frozen struct per section of `gateway.toml`.

A field states its key, its type with the rule for its range, and its default; `config_reader.Table.fill` reads it from
there. A field whose form in the file differs from its form here (money, credentials, prices) is read by `config`.
Durations are in seconds, money in nano-dollars. Nothing here knows where a value came from.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Annotated, Any, Literal

from msgspec import Struct

from gateway.config_reader import YEAR_S, integer, matching, number, one_of, seconds
from gateway.types import Secret, Tier, Window
from llmkit.prices import PriceBook

Count = Annotated[int, integer(0)]
Positive = Annotated[int, integer(1)]
Duration = Annotated[float, seconds()]
Wait = Annotated[float, seconds(zero=True)]
Age = Annotated[float, seconds(high=YEAR_S)]

name = matching(r"[!-+\--<>-~]{1,128}", "1 to 128 visible ASCII characters without comma, equals sign or space")
"""It travels in headers, and in `x-gateway-route`, which separates by comma and equals sign."""
wording = matching(r"[ -~]{1,256}", "1 to 256 printable ASCII characters")
tenant_name = matching(r"[a-z0-9][a-z0-9-]{0,62}", "1 to 63 characters of a-z, 0-9 and hyphen, no hyphen first")

Name = Annotated[str, name]
Wording = Annotated[str, wording]
TenantName = Annotated[str, tenant_name]


def public_name(value: object) -> str:
    """A name that a client may ask for; `auto` is the router's."""
    if value == "auto":
        raise ValueError("auto is reserved: it asks the router")
    return name(value)


PublicName = Annotated[str, public_name]


def name_matches(asked_for: str, pattern: str) -> bool:
    """Whether a pattern of a tenant's `models` allows a name: `*` is any characters, `?` any one, and all others stand
    for themselves, brackets too.
    """
    return fnmatchcase(asked_for, pattern.replace("[", "[[]"))


class ServerConfig(Struct, frozen=True):
    """[server]: bounds of what is taken in, and for how long.

    request_memory_bytes, answer_memory_bytes  what bodies, and answers, may hold of memory altogether, beside the first
                         64 KiB of each; one of the largest size always has room
    cpu                  `one` keeps the process on one CPU
    """

    max_body_bytes: Positive = 20_000_000
    max_connections: Positive = 2048
    max_in_flight: Positive = 1024
    max_per_tenant: Positive = 512
    queue: Count = 256
    queue_wait_s: Wait = 1.0
    request_memory_bytes: Positive = 268_435_456
    answer_memory_bytes: Positive = 268_435_456
    header_timeout_s: Duration = 10.0
    body_timeout_s: Duration = 30.0
    write_timeout_s: Duration = 30.0
    idle_timeout_s: Duration = 75.0
    announce_s: Wait = 5.0
    drain_s: Wait = 30.0
    head_hold_s: Wait = 10.0
    cpu: Literal["any", "one"] = "any"


class StoreConfig(Struct, frozen=True):
    """[store]: how durable the ledger is, and what becomes of holds whose outcome nobody reported."""

    durability: Literal["full", "normal"] = "full"
    on_crash: Literal["unresolved", "void"] = "unresolved"
    unresolved_after_s: Age = 86_400.0
    unresolved_policy: Literal["assume_spent", "void"] = "assume_spent"
    hold_ttl_s: Age = 900.0


class BudgetConfig(Struct, frozen=True):
    """[budget]: the limit of the whole gateway per window; None is unlimited."""

    limit_nanousd: int | None = None
    window: Window = Window.MONTH


class ScriptEntry(Struct, frozen=True):
    """One scripted outcome of a fake provider: a text, tool calls, an error status, silence, or junk.

    cut_after  content chunks that are sent before the connection is cut
    usage      what is reported instead of the count of the text; "missing" reports none
    error      the message of an error status
    """

    text: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[Mapping[str, Any], ...] | None = None
    status: Annotated[int, integer(300, 599)] | None = None
    retry_after: Wait | None = None
    timeout: bool = False
    malformed: bool = False
    latency_s: Wait = 0.0
    cut_after: Count | None = None
    usage: Literal["missing"] | Mapping[str, Any] | None = None
    finish_reason: Wording | None = None
    error: str | None = None


class ProviderConfig(Struct, frozen=True):
    """[[providers]]: a remote service, or a scripted fake.

    base_url      without a trailing slash; None for a fake
    api_keys      rotated over; none for a service that wants no credential
    script        outcomes of a fake, in order; `repeat` starts again, else the last one stays
    stream_usage  the service understands `stream_options.include_usage`
    """

    name: Name
    dialect: Annotated[Literal["openai", "fake"], one_of("openai", "fake", later=["anthropic"])] = "openai"
    base_url: str | None = None
    api_keys: tuple[Secret, ...] = ()
    connect_timeout_s: Duration = 5.0
    ttft_timeout_s: Duration = 120.0
    idle_timeout_s: Duration = 60.0
    total_timeout_s: Duration = 600.0
    max_event_bytes: Positive = 1_048_576
    max_answer_bytes: Positive = 33_554_432
    script: tuple[ScriptEntry, ...] = ()
    repeat: bool = False
    stream_usage: bool = True


CAPABILITIES = ("tools", "vision", "json_schema")


class Deployment(Struct, frozen=True):
    """[[deployments]]: a model at a provider, with what it costs and what it can do.

    model              what the upstream is asked for
    max_output_tokens  the cap that is sent when the client gives none
    """

    name: PublicName
    provider: str
    model: Wording
    prices: PriceBook
    tier: Tier = Tier.CHEAP
    context_window: Positive = 128_000
    max_output_tokens: Positive = 16_384
    output_cap_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    supports: frozenset[str] = frozenset(CAPABILITIES)
    region: Name | None = None
    weight: Positive = 1
    quarantine_on_overage: bool = False


class Alias(Struct, frozen=True):
    """[[aliases]]: a name that clients ask for.

    deployments  in failover order; `weighted` draws the order of each request by their weights
    escalate     the alias may climb to stronger tiers, as `auto` does
    semantic     see Config.uses_semantic
    """

    name: PublicName
    deployments: tuple[str, ...]
    strategy: Annotated[Literal["ordered", "weighted"], one_of("ordered", "weighted", later=["sticky", "fastest"])] = (
        "ordered"
    )
    escalate: bool = False
    semantic: bool | None = None


class TenantConfig(Struct, frozen=True):
    """[[tenants]]: what one tenant may ask for, spend and send.

    models          patterns of the names that may be asked for; None allows every name
    regions         where its requests may be served; None allows every deployment, also one without a region
    budget_nanousd  per window; None is unlimited
    rate_per_s      refill of the token bucket and its size `burst`: both are set, or neither
    semantic        see Config.uses_semantic
    judge           its questions may be shown to the judge of the semantic cache
    """

    name: TenantName
    models: tuple[str, ...] | None = None
    regions: tuple[str, ...] | None = None
    budget_nanousd: int | None = None
    budget_window: Window = Window.MONTH
    rate_per_s: Fraction | None = None
    burst: int | None = None
    semantic: bool | None = None
    judge: bool = True

    @property
    def rate(self) -> tuple[Fraction | None, int | None]:
        """The token bucket's two numbers."""
        return (self.rate_per_s, self.burst)


class RetryConfig(Struct, frozen=True):
    """[retry]: how often and how soon the same deployment is asked again."""

    max_retries: Annotated[int, integer(0, 100)] = 2
    base_s: Wait = 0.25
    cap_s: Wait = 8.0
    retry_after_max_s: Wait = 10.0
    pause_s: Wait = 5.0
    budget_percent: Annotated[int, integer(0, 1000)] = 20
    budget_floor: Count = 10


class BreakerConfig(Struct, frozen=True):
    """[breaker]: when a deployment is left alone, and for how long."""

    threshold: Positive = 3
    cooldown_s: Duration = 30.0


class CacheConfig(Struct, frozen=True):
    """[cache]: an `exact_ttl_s` of 0 turns the exact cache off, and the semantic one with it.

    semantic              see Config.uses_semantic
    semantic_mode         `shadow` serves nothing and counts what it would have served
    semantic_ttl_s        how long a wording may be found; the answer's own lifetime still holds
    semantic_max_entries  of each partition: requests that differ in their question alone
    semantic_max_bytes    of all wordings; their answers count in exact_max_bytes
    judge                 the model that says of near questions whether they are the same; None: nobody does
    judge_key             the virtual key that the judge is called with; without one it is not
    judge_auditor         the model that judges a share of the hits again; None: the judge itself
    judge_embedder        what makes near questions found
    judge_min_cosine, judge_max_cosine   how near two questions are of which the judge is asked
    judge_per_minute      calls of judge and auditor in any minute
    judge_audit_percent   of the hits by a judge's verdict
    judge_queue           questions that may wait to be looked at
    judge_max_bytes       of the vectors in memory
    """

    exact_ttl_s: Annotated[float, seconds(high=YEAR_S, zero=True)] = 3600.0
    exact_max_bytes: Positive = 1_000_000_000
    semantic: bool | None = None
    semantic_mode: Literal["serve", "shadow"] = "serve"
    semantic_ttl_s: Duration = 3600.0
    semantic_max_entries: Positive = 100_000
    semantic_max_bytes: Positive = 268_435_456
    judge: Wording | None = None
    judge_key: Secret | None = None
    judge_auditor: Wording | None = None
    judge_embedder: Annotated[Literal["hash", "use"], one_of("hash", "use", later=["endpoint"])] = "hash"
    judge_min_cosine: Annotated[float, number(0, 1)] = 0.6
    judge_max_cosine: Annotated[float, number(0, 1)] = 1.0
    judge_per_minute: Annotated[int, integer(1, 6000)] = 10
    judge_timeout_s: Annotated[float, seconds(high=600)] = 10.0
    judge_audit_percent: Annotated[float, number(0, 100)] = 5.0
    judge_queue: Annotated[int, integer(1, 65_536)] = 256
    judge_max_bytes: Positive = 67_108_864


class Config(Struct, frozen=True):
    """A configuration without a fault. Every dict is keyed by name, in the order of the file.

    warnings  one line for each thing in the file that has no effect, or none yet
    """

    server: ServerConfig
    store: StoreConfig
    budget: BudgetConfig
    providers: dict[str, ProviderConfig]
    deployments: dict[str, Deployment]
    aliases: dict[str, Alias]
    tenants: dict[str, TenantConfig]
    retry: RetryConfig
    breaker: BreakerConfig
    cache: CacheConfig
    warnings: tuple[str, ...] = ()

    def warnings_at(self, now_ms: int) -> Iterable[str]:
        """Its warnings, and one for each deployment whose first price begins after `now_ms`, UTC milliseconds."""
        yield from self.warnings
        for name, deployment in self.deployments.items():
            if deployment.prices.at(now_ms) is None:
                since = deployment.prices.entries[0].version
                yield f"deployments: {name} has no price before {since}, and gets no call until then"

    def uses_semantic(self, tenant: str, alias: str) -> bool:
        """Whether a tenant's requests for a name may be answered by the semantic cache.

        [cache], the tenant and the alias may each say true, false or nothing: one must say true, and none false.
        """
        tenant_config, alias_config = self.tenants.get(tenant), self.aliases.get(alias)
        said = (
            self.cache.semantic,
            tenant_config.semantic if tenant_config else None,
            alias_config.semantic if alias_config else None,
        )
        return True in said and False not in said

    def uses_judge(self, tenant: str) -> bool:
        """Whether a tenant's questions may be shown to the judge and the auditor.

        Not if the tenant says no, and not if any deployment that may serve either stands outside of its regions.
        """
        cache, said = self.cache, self.tenants.get(tenant)
        if cache.judge is None or cache.judge_key is None:
            return False
        if said is None:
            return True
        names = (cache.judge, cache.judge_auditor or cache.judge)
        served_in = {deployment.region for name in names for deployment in self._behind(name)}
        return said.judge and (said.regions is None or served_in <= {*said.regions})

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that a client may ask for, as far as the file goes."""
        models = (deployment.model for deployment in self.deployments.values())
        return ("auto", *self.aliases, *self.deployments, *models)

    def _behind(self, asked_for: str) -> Iterable[Deployment]:
        """Every deployment that may serve who asks for this name; all of them where that hangs on the request."""
        alias = self.aliases.get(asked_for)
        if alias is not None and not alias.escalate:
            return [self.deployments[name] for name in alias.deployments]
        if alias is None and asked_for in self.deployments:
            return [self.deployments[asked_for]]
        behind = [deployment for deployment in self.deployments.values() if deployment.model == asked_for]
        return behind if alias is None and behind else self.deployments.values()

    @property
    def judge_anywhere(self) -> bool:
        """Whether there is a judge that any questions may be shown to."""
        return self.semantic_anywhere and self.cache.judge is not None and self.cache.judge_key is not None

    @property
    def semantic_anywhere(self) -> bool:
        """Whether any request at all may be answered by the semantic cache."""
        said = [self.cache.semantic]
        said += [tenant.semantic for tenant in self.tenants.values()]
        said += [alias.semantic for alias in self.aliases.values()]
        return self.cache.semantic is not False and True in said
