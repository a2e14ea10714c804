"""Which deployments may serve a request, in order, and why. Pure.

`auto` is decided by rules: tools, or the tags `legal` or `math`, want `strong`; more than LONG_TEXT_CHARS characters of
message text want `standard`; everything else is `cheap`. Any other name is taken as named: an alias, a deployment, or a
model id that deployments serve, in file order.

A plan has stages. The deployments of one stage stand for each other; each later stage is a stronger tier, to which only
`auto` and aliases with `escalate = true` may climb. A deployment that lacks what the request needs, or stands in a
region that the tenant may not use, is in no stage. The router knows nothing of health or money, nor of who may ask for
a name.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from msgspec import Struct

from gateway.config_schema import Config, Deployment
from gateway.errors import InvalidRequest, ModelNotFound, RegionNotAllowed
from gateway.types import Tier

AUTO = "auto"
LONG_TEXT_CHARS = 800
HARD_TAGS = frozenset({"legal", "math"})
_NOTHING: Final[Mapping[str, str]] = {}

Stage = tuple[Deployment, ...]
"""Deployments that stand for each other, in failover order; at least one."""


class RoutePlan(Struct, frozen=True, dict=True):
    """The stages of a request, at least one, and the reason for them: the first is tried first, each later one is a
    stronger tier.
    """

    alias: str
    stages: tuple[Stage, ...]
    reason: str

    @cached_property
    def answerers(self) -> tuple[str, ...]:
        """Who may answer, in whatever order: the alias, the weakest tier of the first stage, and all model ids."""
        models = {deployment.model for stage in self.stages for deployment in stage}
        return (self.alias, min(deployment.tier for deployment in self.stages[0]), *sorted(models))


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


def needs(body: Mapping[str, Any]) -> dict[str, str]:
    """The capabilities that a chat request needs of a deployment, each with the field that asks for it."""
    needed = {}
    if body.get("tools"):
        needed["tools"] = "tools"
    elif body.get("functions"):
        needed["tools"] = "functions"
    response_format = body.get("response_format")
    if isinstance(response_format, dict) and response_format.get("type") == "json_schema":
        needed["json_schema"] = "response_format"
    if _shows_images(body.get("messages")):
        needed["vision"] = "messages"
    return needed


def _shows_images(messages: object) -> bool:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            for part in content:
                if isinstance(part, dict) and part.get("type") == "image_url":
                    return True
    return False


class Catalog:
    """Every name that a client may ask for, and the deployments behind it. Immutable.

    A plan that no draw orders is made once: `_plans` keeps it by all that it depends on, which has as few values as the
    configuration gives it.

    draw  gives numbers from [0, 1), which order the deployments of weighted aliases
    """

    def __init__(self, config: Config, draw: Callable[[], float]) -> None:
        deployments = config.deployments
        by_name: dict[str, Stage] = {
            alias.name: tuple(deployments[name] for name in alias.deployments) for alias in config.aliases.values()
        }
        for name, deployment in deployments.items():
            by_name.setdefault(name, (deployment,))
        for model in dict.fromkeys(deployment.model for deployment in deployments.values()):
            by_name.setdefault(model, tuple(d for d in deployments.values() if d.model == model))
        self._by_name = by_name
        self._aliases = config.aliases
        self._by_tier: dict[Tier, Stage] = {
            tier: tuple(d for d in deployments.values() if d.tier is tier) for tier in Tier
        }
        self._draw = draw
        self._plans: dict[tuple[object, ...], RoutePlan] = {}

    def names(self, regions: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """What may be asked for and is served in one of `regions` (None: anywhere): `auto`, then in file order."""
        names = (AUTO, *(name for name in self._by_name if name != AUTO))
        return names if regions is None else tuple(name for name in names if self._is_served_in(name, regions))

    def _is_served_in(self, name: str, regions: tuple[str, ...]) -> bool:
        stages = self._by_tier.values() if name == AUTO else self._stages_of(name, self._by_name[name])
        return any(deployment.region in regions for stage in stages for deployment in stage)

    def __contains__(self, name: str) -> bool:
        """Whether a client may ask for `name`, as far as the file goes."""
        return name == AUTO or name in self._by_name

    def plan(
        self,
        name: str,
        body: Mapping[str, Any],
        tags: Collection[str],
        regions: tuple[str, ...] | None = None,
        *,
        is_plain: bool = False,
    ) -> RoutePlan:
        """The plan of a request that asks for `name`, within `regions`; None is everywhere.

        is_plain  it is known to need no capability: needs() is not asked
        Raises ModelNotFound; InvalidRequest if no deployment has a capability that the request needs; RegionNotAllowed
        if no deployment that has it may be used.
        """
        wanted = route(body, tags) if name == AUTO else None
        needed = _NOTHING if is_plain else needs(body)
        made_of = (name, wanted, tuple(needed), regions)
        plan = self._plans.get(made_of)
        if plan is None:
            plan = self._named(name, needed, regions) if wanted is None else self._auto(wanted, needed, regions)
            if not self._is_drawn(name):
                self._plans[made_of] = plan
        return plan

    def _is_drawn(self, name: str) -> bool:
        alias = self._aliases.get(name)
        return alias is not None and alias.strategy == "weighted"

    def _named(self, name: str, needed: Mapping[str, str], regions: tuple[str, ...] | None) -> RoutePlan:
        if name not in self:
            raise ModelNotFound(name[:128])
        named = self._by_name[name]
        ordered = _by_weight(named, self._draw) if self._is_drawn(name) else named
        return RoutePlan(name, tuple(_fitting(name, self._stages_of(name, ordered), needed, regions)), "named")

    def _auto(self, wanted: Tier, needed: Mapping[str, str], regions: tuple[str, ...] | None) -> RoutePlan:
        """The wanted tier and those above it; for want of all of these, the nearest below."""
        climb = [self._by_tier[tier] for tier in Tier if tier >= wanted]
        descend = [self._by_tier[tier] for tier in reversed(Tier) if tier < wanted]
        fitting = _fitting(AUTO, [*climb, *descend], needed, regions)
        stages = [stage for stage in fitting if stage[0].tier >= wanted] or fitting[:1]
        served = stages[0][0].tier is wanted
        return RoutePlan(AUTO, tuple(stages), f"auto: {wanted}" + ("" if served else ", which no deployment serves"))

    def _stages_of(self, name: str, ordered: Stage) -> Iterable[Stage]:
        """What is behind a name, in the order given. An alias with `escalate` has its own deployments up to the first
        one's tier, and then tier by tier its own stronger ones, or all of a tier of which it names none.
        """
        alias = self._aliases.get(name)
        if alias is None or not alias.escalate:
            return [ordered]
        start = self._by_name[name][0].tier
        above = [tier for tier in Tier if tier > start]
        return [
            tuple(d for d in ordered if d.tier <= start),
            *(tuple(d for d in ordered if d.tier is tier) or self._by_tier[tier] for tier in above),
        ]


def _by_weight(deployments: Stage, draw: Callable[[], float]) -> Stage:
    """An order in which each place goes to one of the deployments left, with a chance in proportion to its weight
    (Efraimidis and Spirakis: sort by u ** (1 / weight), here by its logarithm).
    """
    return tuple(sorted(deployments, key=lambda d: math.log(1 - draw()) / d.weight, reverse=True))


def _fitting(
    name: str, stages: Iterable[Stage], needed: Mapping[str, str], regions: tuple[str, ...] | None
) -> list[Stage]:
    """The stages without what cannot serve the request, and without those that are then empty; never none at all."""
    if not needed and regions is None:
        return [stage for stage in stages if stage]
    able = [tuple(d for d in stage if d.supports.issuperset(needed)) for stage in stages]
    if not any(able):
        raise InvalidRequest(
            f"No deployment of `{name[:128]}` supports {' and '.join(needed)}.", param=next(iter(needed.values()))
        )
    near = [tuple(d for d in stage if regions is None or d.region in regions) for stage in able]
    if not any(near):
        raise RegionNotAllowed(name[:128])
    return [stage for stage in near if stage]
