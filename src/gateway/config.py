"""Reading `gateway.toml`: a `Config`, or every fault of the file at once.

Decides which keys and values the file may have, how they belong together, and how the file's form (decimal dollars,
names of environment variables, price tables) becomes the form of `config_schema`. Does not know what any part of the
gateway does with a value, and reads neither a clock nor the process's environment: that is handed in.

Rules:
- `load` is total: any text gives a Config or a ConfigError, nothing else.
- No value of the environment, and no value that could be a secret in the wrong place, is ever shown.
- A value that this version does not support is a fault; a key that it checks but does not act on yet is a warning.
- A price that nobody stated is never zero.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from gateway.config_reader import Rule, Table, decimal, integer, json_object, one_of, only, seconds
from gateway.config_schema import (
    CAPABILITIES,
    Alias,
    BreakerConfig,
    BudgetConfig,
    CacheConfig,
    Config,
    Deployment,
    ProviderConfig,
    RetryConfig,
    ScriptEntry,
    ServerConfig,
    StoreConfig,
    TenantConfig,
    name,
    name_matches,
    wording,
)
from gateway.types import MAX_NANOUSD, Secret
from llmkit.base_url import BaseUrl
from llmkit.money import parse_usd
from llmkit.prices import Price, PriceBook, PriceEntry

NOT_YET_IN_EFFECT = ("router",)
"""Sections, and keys of sections, that are checked and then wait for the part of the gateway that acts on them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_VALUE = re.compile(r"[!-~]+")
_APPENDED = "/chat/completions"


class ConfigError(Exception):
    """The file cannot be used. `faults` holds every one of them, each with its place; str() is one per line."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def load_file(path: Path, env: Mapping[str, str]) -> Config:
    """`load` the file at `path`; a file that cannot be read, or is not UTF-8, is a ConfigError too."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError((f"{path}: not UTF-8 at byte {error.start}",)) from None
    except (OSError, ValueError) as error:
        raise ConfigError((f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}",)) from None
    return load(text, env)


def load(text: str, env: Mapping[str, str]) -> Config:
    """The configuration in the TOML document `text`; credentials are looked up in `env` by the names it gives.

    Raises ConfigError with every fault; a document that is not TOML has one, which names the line.
    """
    try:
        data = tomllib.loads(text, parse_float=_exact)
    except RecursionError:
        raise ConfigError(("not TOML that can be read: nested too deeply",)) from None
    except ValueError as error:
        end = f"at line {text.count(chr(10)) + 1}, the end of the document"
        raise ConfigError((f"not TOML: {str(error).replace('at end of document', end)}",)) from None
    return from_mapping(data, env)


def from_mapping(data: Mapping[str, object], env: Mapping[str, str]) -> Config:
    """The configuration in an already parsed document: TOML's types, decimals as Decimal, text, int or float.

    Raises ConfigError with every fault.
    """
    document = Table(data)
    config = _config(document, env, (*_warnings(data), *_unset_credentials(data, env)))
    document.close()
    if document.faults:
        raise ConfigError(tuple(document.faults))
    return config


def _exact(literal: str) -> Decimal:
    """A TOML float without loss; one beyond what Decimal holds is left to fail its field's range."""
    try:
        return Decimal(literal)
    except ArithmeticError:
        return Decimal("inf")


def _warnings(data: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(
        f"{place}: accepted and checked, but not yet in effect in this version"
        for place in NOT_YET_IN_EFFECT
        if _is_set(data, *place.split("."))
    )


def _unset_credentials(data: Mapping[str, object], env: Mapping[str, str]) -> Iterator[str]:
    providers = data.get("providers")
    for at, provider in enumerate(providers if isinstance(providers, list) else ()):
        named = provider.get("api_key_env") if isinstance(provider, Mapping) else None
        for variable in named if isinstance(named, list) else [named]:
            if isinstance(variable, str) and _VARIABLE.fullmatch(variable) and not env.get(variable):
                shown = variable if variable.isupper() else "a variable"  # it may be the credential itself, pasted
                yield f"providers[{at}].api_key_env: {shown} is not set: no credential is sent"
    cache = data.get("cache")
    named = cache.get("judge_key_env") if isinstance(cache, Mapping) else None
    if isinstance(named, str) and _VARIABLE.fullmatch(named) and not env.get(named):
        yield f"cache.judge_key_env: {named if named.isupper() else 'a variable'} is not set: nobody judges"


def _is_set(data: Mapping[str, object], section: str, key: str | None = None) -> bool:
    if key is None:
        return section in data
    value = data.get(section)
    return any(isinstance(table, Mapping) and key in table for table in (value if isinstance(value, list) else [value]))


def _config(document: Table, env: Mapping[str, str], warnings: tuple[str, ...]) -> Config:
    document.table("router")  # may stand in the file, but has no key yet
    providers = _by_name(document.tables("providers"), partial(_provider, env=env))
    deployments = _by_name(document.tables("deployments"), partial(_deployment, providers=providers))
    if not document.raw("deployments"):
        document.fault("deployments", "at least one is needed")
    cache = document.table("cache")
    config = Config(
        server=_server(document.table("server")),
        store=document.table("store").fill(StoreConfig),
        budget=_budget(document.table("budget")),
        providers=providers,
        deployments=deployments,
        aliases=_by_name(document.tables("aliases"), partial(_alias, deployments=deployments)),
        tenants=_by_name(document.tables("tenants"), _tenant),
        retry=document.table("retry").fill(RetryConfig),
        breaker=document.table("breaker").fill(BreakerConfig),
        cache=cache.fill(CacheConfig, judge_key=cache.get("judge_key_env", partial(_credential, env=env), None)),
        warnings=warnings,
    )
    if config.semantic_anywhere and not config.cache.exact_ttl_s:
        cache.fault("exact_ttl_s", "must be above 0: the semantic cache gives answers of the exact one again")
    _check_judge(cache, config)
    return replace(config, warnings=(*warnings, *_idle_patterns(config), *_empty_regions(config)))


def _idle_patterns(config: Config) -> Iterator[str]:
    names = config.names
    for at, tenant in enumerate(config.tenants.values()):
        for pattern in tenant.models or ():
            if not any(name_matches(name, pattern) for name in names):
                yield f"tenants[{at}].models: {pattern!r} matches no alias, deployment or model"


def _empty_regions(config: Config) -> Iterator[str]:
    regions = {deployment.region for deployment in config.deployments.values()}
    for at, tenant in enumerate(config.tenants.values()):
        if tenant.regions is not None and regions.isdisjoint(tenant.regions):
            yield f"tenants[{at}].regions: no deployment stands in any of them"


def _check_judge(table: Table, config: Config) -> None:
    """Who judges can be asked, by somebody who pays; what is said of a judge has one."""
    cache = config.cache
    if cache.judge is None and "judge" not in table:
        keys = [key for key in CacheConfig.__struct_fields__ if key.startswith("judge_")]
        table.refuse(["judge_key_env", *keys], "needs judge: the model that judges")
        return
    table.need("judge_key_env")
    for key, asked_for in (("judge", cache.judge), ("judge_auditor", cache.judge_auditor)):
        if asked_for is not None and asked_for not in config.names:
            table.fault(key, f"there is no alias, deployment or model named {asked_for!r}")
    if cache.judge_min_cosine > cache.judge_max_cosine:
        table.fault("judge_min_cosine", "must not be above judge_max_cosine")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _by_name(tables: Iterable[Table], read: Callable[[Table], N]) -> dict[str, N]:
    found: dict[str, N] = {}
    for table in tables:
        item = read(table)
        if item.name in found:
            table.fault("name", f"{item.name} is taken by an entry above")
        elif item.name:
            found[item.name] = item
    return found


def _known(kind: str, names: Iterable[str]) -> Rule[str]:
    """The name of something of `kind` that the file defines."""

    def rule(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"must be the name of a {kind}")
        if value not in names:
            raise ValueError(f"there is no {kind} named {value!r}")
        return value

    return rule


def _usd(value: object) -> int:
    """An amount of money in nano-dollars."""
    if isinstance(value, str | int | Decimal) and not isinstance(value, bool):
        with suppress(ValueError, ArithmeticError):
            amount = parse_usd(value)
            if amount <= MAX_NANOUSD:
                return amount
    raise ValueError(
        "must be an amount in USD: a decimal of at least 0 with at most 9 digits after the point, and below 1.1 billion"
    )


def _server(table: Table) -> ServerConfig:
    for key in ("host", "port"):
        table.refuse([key], f"is no key: where it listens is said at the start, `gateway serve --{key}`")
    return table.fill(ServerConfig)


def _budget(table: Table) -> BudgetConfig:
    table.get("wait_s", only(0.0, seconds(zero=True)), 0.0)
    return table.fill(BudgetConfig, limit_nanousd=table.get("usd", _usd, None))


# Providers


def _provider(table: Table, env: Mapping[str, str]) -> ProviderConfig:
    provider = table.fill(
        ProviderConfig,
        base_url=table.get("base_url", _base_url, None),
        api_keys=_api_keys(table, env),
        script=tuple(_script_entry(entry) for entry in table.tables("script")),
    )
    if provider.dialect == "fake":
        table.refuse(["base_url"], "a fake provider has none")
        if not table.raw("script"):
            table.fault("script", "a fake provider needs at least one entry")
    else:
        table.refuse(["script", "repeat"], "only a fake provider has it")
        table.need("base_url")
    return provider


def _base_url(value: object) -> str:
    """An http or https address that paths are appended to, without a slash at its end."""
    url = (value if isinstance(value, str) else "").rstrip("/")
    BaseUrl.parse(url)
    if url.endswith(_APPENDED):
        raise ValueError(f"must end before {_APPENDED}, which is appended to it")
    return url


def _api_keys(table: Table, env: Mapping[str, str]) -> tuple[Secret, ...]:
    """The credentials of `api_key_env`, one name of a variable or an array of names; those that are not set are left
    out, which is a warning, so that a file can be checked where there are no secrets.
    """
    credential = partial(_credential, env=env)
    if isinstance(table.raw("api_key_env"), list):
        found = table.array("api_key_env", credential, empty=False) or ()
    else:
        found = (table.get("api_key_env", credential, None),)
    return tuple(secret for secret in found if secret is not None)


def _credential(variable: object, env: Mapping[str, str]) -> Secret | None:
    if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
        raise ValueError("must be the name of an environment variable")
    value = env.get(variable)
    if not value:
        return None
    if not _HEADER_VALUE.fullmatch(value):
        raise ValueError(f"the environment variable {variable} holds a space, a line end or a non-ASCII character")
    return Secret(value)


# Scripts of fake providers

_ANSWER = frozenset({"reasoning", "latency_s", "cut_after", "usage", "finish_reason"})
_COMPANIONS = {
    "text": _ANSWER,
    "tool_calls": _ANSWER,
    "status": frozenset({"retry_after", "error", "latency_s", "usage"}),
    "timeout": frozenset({"latency_s"}),
    "malformed": frozenset({"latency_s"}),
}
"""The outcomes that an entry can have, each with the keys that may stand beside it."""
_DETAILS = frozenset().union(*_COMPANIONS.values())


def _script_entry(table: Table) -> ScriptEntry:
    entry = table.fill(
        ScriptEntry,
        tool_calls=table.get("tool_calls", _tool_calls, None),
        usage=table.get("usage", _usage, None),
    )
    outcomes = [key for key in _COMPANIONS if key in table and table.raw(key) is not False]
    if len(outcomes) != 1:
        table.fault(None, f"must have exactly one of {', '.join(_COMPANIONS)}")
    else:
        table.refuse(sorted(_DETAILS - _COMPANIONS[outcomes[0]]), f"does not go with {outcomes[0]}")
    return entry


def _tool_calls(value: object) -> tuple[dict[str, Any], ...]:
    if isinstance(value, list) and value:
        return tuple(json_object(call) for call in value)
    raise ValueError("must be an array of at least one table")


def _usage(value: object) -> Any:
    """What `usage` says: "missing", or the object that is reported."""
    if isinstance(value, str):
        return one_of("missing")(value)
    return json_object(value)


# Deployments and their prices


def _deployment(table: Table, providers: Mapping[str, ProviderConfig]) -> Deployment:
    supports = table.array("supports", one_of(*CAPABILITIES))
    return table.fill(
        Deployment,
        provider=table.require("provider", _known("provider", providers), ""),
        prices=_price_book(table),
        supports=frozenset(CAPABILITIES if supports is None else supports),
    )


def _price_book(table: Table) -> PriceBook | None:
    """What `price` says: "free", one table that holds for ever, or an array of tables that are dated by `from`."""
    raw = table.raw("price")
    if isinstance(raw, list):
        return _dated_prices(table)
    if isinstance(raw, Mapping):
        return _lasting(_price(table.table("price")), "1")
    if raw is None:
        unknown = 'an unknown price is never zero (a model that costs nothing says "free")'
        table.fault("price", f"is required{_of_deployment(table)}: {unknown}")
    return _lasting(table.get("price", _free, None), "free")


def _of_deployment(table: Table) -> str:
    """Whose price it is, by its name and its model, if both are such as may be shown."""
    try:
        return f" for {name(table.raw('name'))} ({wording(table.raw('model'))})"
    except ValueError:
        return ""


def _lasting(price: Price | None, version: str) -> PriceBook | None:
    return None if price is None else PriceBook([PriceEntry(0, price, version)])


def _dated_prices(table: Table) -> PriceBook:
    entries: dict[int, PriceEntry] = {}
    for dated in table.tables("price"):
        start, price = dated.require("from", _instant, None), _price(dated)
        if start is None or price is None:
            continue
        from_ms = (start - _EPOCH) // timedelta(milliseconds=1)
        if from_ms in entries:
            dated.fault("from", "is the start of an entry above")
        entries[from_ms] = PriceEntry(from_ms, price, start.isoformat().replace("+00:00", "Z"))
    if not table.raw("price"):
        table.fault("price", "must not be empty")
    return PriceBook(entries.values())


def _free(value: object) -> Price:
    if value == "free":
        return Price.FREE
    raise ValueError('must be a table of USD per million tokens, an array of dated tables, or "free"')


def _price(table: Table) -> Price | None:
    """The price in `table`; None if a key is at fault, which is then noted."""
    rates = {key: table.require(key, partial(_rate, key=key), None) for key in ("input", "output")}
    for key in ("cached_input", "cache_write"):
        if key in table:
            rates[key] = table.get(key, partial(_rate, key=key), None)
    return None if None in rates.values() else Price.parse(rates)


def _rate(value: object, key: str) -> object:
    """The value as it stands, once it is known to make a price under `key`."""
    try:
        Price.parse({"input": 0, "output": 0, key: value})
    except ValueError as error:
        raise ValueError(str(error).removeprefix(f"{key}: ")) from None
    return value


def _instant(value: object) -> datetime:
    """A moment, as an offset date-time or as RFC 3339 text; in UTC, to the second."""
    try:
        if isinstance(value, str) and _RFC_3339.fullmatch(value):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime) and value.tzinfo is not None:
            instant = value.astimezone(UTC)
            if instant >= _EPOCH and not instant.microsecond:
                return instant
    except (ValueError, OverflowError):
        pass
    raise ValueError("must be a time with an offset, in whole seconds from 1970 on, such as 2026-01-31T00:00:00Z")


# Names and tenants


def _alias(table: Table, deployments: Mapping[str, Deployment]) -> Alias:
    table.need("deployments")
    targets = table.array("deployments", _known("deployment", deployments), empty=False)
    alias = table.fill(Alias, deployments=targets or ())
    if alias.name in deployments:
        table.fault("name", f"{alias.name} is the name of a deployment")
    return alias


def _tenant(table: Table) -> TenantConfig:
    rate = table.get("rate_per_s", decimal(Decimal("0.000001"), 1_000_000), None)
    burst = table.get("burst", integer(1), None)
    if "burst" in table and "rate_per_s" not in table:
        table.fault("burst", "needs rate_per_s")
    if rate is not None and burst is None:
        burst = math.ceil(rate)
    return table.fill(
        TenantConfig,
        models=table.array("models", wording),
        regions=table.array("regions", name, empty=False),
        budget_nanousd=table.get("budget_usd", _usd, None),
        rate_per_s=None if rate is None else Fraction(rate),
        burst=burst,
    )
