"""Which deployments may serve a request, in order, and why. Pure.

`auto` is decided by rules: tools, or the tags `legal` or `math`, want `strong`; more than LONG_TEXT_CHARS characters of
message text want `standard`; everything else is `cheap`. Any other name is taken as named: an alias, a deployment, or a
model id that deployments serve, in file order. The router knows nothing of health, money or permissions.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.config import Config, Deployment
from gateway.errors import ModelNotFound
from gateway.types import Tier

AUTO = "auto"
LONG_TEXT_CHARS = 800
HARD_TAGS = frozenset({"legal", "math"})
_CLIMB = tuple(Tier)


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """The ordered candidates of one request (at least one) and the reason for them."""

    alias: str
    candidates: tuple[Deployment, ...]
    reason: str


def route(body: Mapping[str, Any], tags: Collection[str] | None = None) -> Tier:
    """The tier that `auto` means for a chat request.

    body  the request; its `tags` count when `tags` is not given
    """
    if body.get("tools") or body.get("functions"):
        return Tier.STRONG
    named = body.get("tags") or () if tags is None else tags
    if not HARD_TAGS.isdisjoint(named):
        return Tier.STRONG
    return Tier.STANDARD if _is_long(body) else Tier.CHEAP


def _is_long(body: Mapping[str, Any]) -> bool:
    total = 0
    for text in _texts(body.get("messages")):
        total += len(text)
        if total > LONG_TEXT_CHARS:
            return True
    return False


def _texts(messages: object) -> Iterator[str]:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            yield content
        for part in content if isinstance(content, list) else ():
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                yield text


class Catalog:
    """Every name that a client may ask for, and the deployments behind it. Immutable."""

    def __init__(self, config: Config) -> None:
        deployments = config.deployments
        by_name: dict[str, tuple[Deployment, ...]] = {
            alias.name: tuple(deployments[name] for name in alias.deployments) for alias in config.aliases.values()
        }
        for name, deployment in deployments.items():
            by_name.setdefault(name, (deployment,))
        for model in dict.fromkeys(deployment.model for deployment in deployments.values()):
            by_name.setdefault(model, tuple(d for d in deployments.values() if d.model == model))
        self._by_name = by_name
        self._by_tier = {tier: tuple(d for d in deployments.values() if d.tier is tier) for tier in Tier}

    def names(self) -> tuple[str, ...]:
        """What may be asked for, `auto` first, then in file order."""
        return (AUTO, *(name for name in self._by_name if name != AUTO))

    def plan(self, name: str, body: Mapping[str, Any], tags: Collection[str]) -> RoutePlan:
        """The candidates for a request that asks for `name`. Raises ModelNotFound."""
        if name == AUTO:
            wanted = route(body, tags)
            return RoutePlan(AUTO, *self._tier_candidates(wanted))
        candidates = self._by_name.get(name)
        if candidates is None:
            raise ModelNotFound(name[:128])
        return RoutePlan(name, candidates, "named")

    def _tier_candidates(self, wanted: Tier) -> tuple[tuple[Deployment, ...], str]:
        """The wanted tier; without deployments in it the nearest stronger one, else the strongest there is."""
        at = _CLIMB.index(wanted)
        for tier in (*_CLIMB[at:], *reversed(_CLIMB[:at])):
            if self._by_tier[tier]:
                reason = f"auto: {wanted}" if tier is wanted else f"auto: {wanted}, which no deployment serves"
                return self._by_tier[tier], reason
        raise ModelNotFound(AUTO)
