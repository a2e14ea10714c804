"""What HTTP headers say, in both directions: keys and options of a client, facts for it. Pure."""

import functools
import math
import re
from collections.abc import Sequence
from typing import Final

from gateway.answers import Headers, lines
from gateway.chat import check_tags
from gateway.context import Facts, Options
from gateway.errors import InvalidApiKey, InvalidRequest
from gateway.http_head import CREDENTIALS, RequestHead
from gateway.keys import ShownKey
from llmkit.money import format_usd

MAX_TIMEOUT_S = 86_400.0
_FIRST_HOPS, _LAST_HOPS = 4, 20
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")

_KEY = "key"  # in the memo of a head
_BARE = ("x-api-key", "api-key")  # headers that are nothing but a key
_SAYS_OPTIONS = frozenset(
    {"x-gateway-tags", "x-gateway-private", "x-gateway-prompt-version", "x-gateway-timeout-s", "cache-control"}
)
_NO_OPTIONS: Final = Options()

# --- what a client says in headers --------------------------------------------------------------------------------


def shown_key(head: RequestHead) -> ShownKey:
    """The virtual key of a request, read once of a head that comes again. Raises as key_of()."""
    shown: ShownKey | None = head.memo.get(_KEY)
    if shown is None:
        shown = head.memo[_KEY] = ShownKey.of(key_of(head))
    return shown


def key_of(head: RequestHead) -> str | None:
    """The virtual key of a request; None if there is none. Raises InvalidApiKey for two that differ, and for a header
    of credentials that came twice.
    """
    if head.repeated and not head.repeated.isdisjoint(CREDENTIALS):
        raise InvalidApiKey
    values = head.first_values
    given = {bearer(values["authorization"]) or ""} if "authorization" in values else set()
    for name in _BARE:
        if values.get(name):
            given.add(values[name])
    if len(given) > 1:
        raise InvalidApiKey
    return given.pop() if given else None


def bearer(value: str) -> str | None:
    """The credential of an Authorization header; None for another scheme."""
    scheme, _, credential = value.strip().partition(" ")
    return credential.strip() if scheme.lower() == "bearer" else None


def options_of(head: RequestHead) -> Options:
    """The gateway's own inputs in headers. Raises InvalidRequest naming the header.

    Tags and cache-control are lists, so their lines are joined. The others have one value: of two that differ, one
    would be ignored, and a request that somebody had marked as private would be cached.
    """
    if _SAYS_OPTIONS.isdisjoint(head.first_values):
        return _NO_OPTIONS
    tags = [tag.strip(" \t") for value in head.get_all("x-gateway-tags") for tag in value.split(",")]
    cache = {part.strip(" \t").lower() for value in head.get_all("cache-control") for part in value.split(",")}
    version = _single(head, "x-gateway-prompt-version")
    if version is not None and len(version) > 128:
        raise InvalidRequest("`x-gateway-prompt-version` is too long.", param="x-gateway-prompt-version")
    return Options(
        tags=check_tags([tag for tag in tags if tag], "x-gateway-tags"),
        private=_flag(head, "x-gateway-private"),
        prompt_version=version,
        no_cache=not cache.isdisjoint(("no-cache", "max-age=0")),
        no_store="no-store" in cache,
        timeout_s=_timeout(head, "x-gateway-timeout-s"),
    )


def _single(head: RequestHead, name: str) -> str | None:
    if name in head.repeated:
        raise InvalidRequest(f"`{name}` may stand only once.", param=name)
    return head.get(name)


def _flag(head: RequestHead, name: str) -> bool:
    value = (_single(head, name) or "false").lower()
    if value not in ("true", "false", "1", "0"):
        raise InvalidRequest(f"`{name}` must be true or false.", param=name)
    return value in ("true", "1")


def _timeout(head: RequestHead, name: str) -> float | None:
    value = _single(head, name)
    if value is None:
        return None
    seconds = float(value) if _SECONDS.fullmatch(value) else math.nan
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise InvalidRequest(f"`{name}` must be a number of seconds above 0, up to {MAX_TIMEOUT_S:.0f}.", param=name)
    return seconds


# --- what a client is told ----------------------------------------------------------------------------------------


def fact_headers(facts: Facts, now_s: float) -> Headers:
    """What is known of the request at monotonic `now_s`."""
    told = f"x-request-id: {facts.request_id}\r\n"
    if facts.entry is not None:
        told += f"age: {facts.age_s}\r\nx-gateway-cache-entry: {facts.entry}\r\n"
    if facts.cost_nanousd is not None:
        told += f"x-gateway-cost-usd: {format_usd(facts.cost_nanousd)}\r\n"
    if facts.started_s is not None:
        overhead_s = max(now_s - facts.started_s - facts.upstream_s, 0)
        told += f"x-gateway-overhead-ms: {overhead_s * 1000:.3f}\r\n"
    if facts.rate is not None:
        rate = facts.rate
        told += (
            f"x-ratelimit-limit-requests: {rate.limit}\r\n"
            f"x-ratelimit-remaining-requests: {rate.remaining}\r\n"
            f"x-ratelimit-reset-requests: {go_duration(rate.reset_s)}\r\n"
        )
    way = _way(facts.cache, facts.attempts, facts.exit, facts.deployment, facts.provider, facts.tier, tuple(facts.hops))
    return told.encode("ascii") + way  # numbers and ids are ours; words are checked


@functools.lru_cache(maxsize=512)  # of words that a configuration has, and of the answers that are kept
def _way(
    cache: str,
    attempts: int,
    exit_: str | None,
    deployment: str | None,
    provider: str | None,
    tier: str | None,
    hops: tuple[str, ...],
) -> Headers:
    """The headers that say how a request was answered: most go the same few ways."""
    told = [f"x-gateway-cache: {cache}", f"x-gateway-attempts: {attempts}"]
    if exit_ is not None:
        told.append(f"x-gateway-exit: {exit_}")
    if deployment is not None:
        told += (
            f"x-gateway-deployment: {deployment}",
            f"x-gateway-provider: {provider or ''}",
            f"x-gateway-tier: {tier or ''}",
        )
    if hops:
        told.append(f"x-gateway-route: {route_of(hops)}")
    return lines(*told)


def route_of(hops: Sequence[str]) -> str:
    """Every hop in order; of very many the first ones and the last, since proxies refuse headers that are too long."""
    if len(hops) > _FIRST_HOPS + _LAST_HOPS:
        hops = [*hops[:_FIRST_HOPS], "...", *hops[-_LAST_HOPS:]]
    return ", ".join(hops)


def id_header(facts: Facts) -> Headers:
    """The header that names the request."""
    return lines(f"x-request-id: {facts.request_id}")


def go_duration(seconds: float) -> str:
    """A duration as OpenAI writes it: `120ms`, `8.64s`, `6m0s`, `1h2m3s`."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest_ms = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    tail = f"{rest_ms / 1000:g}s"
    if hours:
        return f"{hours}h{minutes}m{tail}"
    return f"{minutes}m{tail}" if minutes else tail
