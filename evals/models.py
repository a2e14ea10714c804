"""Three upstream models of known strength, and the configuration that puts them behind the gateway.

Prices are whole nano-dollars per token, so that costs add up without rounding: tokens times price is exactly the bill.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from evals.items import Item, answer
from gateway.context import Caller
from gateway.fake_provider import FakeCall, FakeProvider
from gateway.providers import ProviderAnswer, UpstreamCall
from gateway.types import Tier
from llmkit.prices import Price
from llmkit.types import Usage

PRICES: Mapping[str, Mapping[str, str]] = {
    Tier.CHEAP: {"input": "0.15", "output": "0.60"},
    Tier.STANDARD: {"input": "0.40", "output": "1.60"},
    Tier.STRONG: {"input": "2.00", "output": "8.00"},
}
"""USD per million tokens, by deployment; deployments are named after their tiers."""

_DEPLOYMENT = """
[[providers]]
name = "{tier}"
dialect = "fake"
script = [{{ text = "never used" }}]

[[deployments]]
name = "{tier}"
provider = "{tier}"
model = "{tier}-model"
tier = "{tier}"
price = {{ input = {input}, output = {output} }}
"""


def config(*, cache_ttl_s: float, semantic: bool = False) -> str:
    """The configuration; a lifetime of 0 turns the exact cache off, which the semantic one needs."""
    cache = f"[cache]\nexact_ttl_s = {cache_ttl_s:g}\nsemantic = {str(semantic).lower()}\n"
    head = f'[store]\ndurability = "normal"\n{cache}'
    return head + "".join(_DEPLOYMENT.format(tier=tier, **price) for tier, price in PRICES.items())


class Model:
    """An upstream whose answer follows from the request alone. `calls` is its own meter."""

    def __init__(self, name: str, says: Callable[[Mapping[str, Any]], str]) -> None:
        self.name = name
        self.calls: list[FakeCall] = []
        self._says = says

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        provider = FakeProvider([{"text": self._says(json.loads(call.body))}], name=self.name)
        answered = await provider.open(call, caller)
        self.calls += provider.calls
        return answered


def models(items: Iterable[Item], *, seed: int, invalid_share: float) -> dict[str, Model]:
    """A model for each tier, which looks up the question that it is asked."""
    by_text = {item.text: item for item in items}

    def model(tier: Tier) -> Model:
        def says(body: Mapping[str, Any]) -> str:
            *before, last = body["messages"]
            system = before[0]["content"] if before else None
            return answer(by_text[last["content"]], tier, system=system, seed=seed, invalid_share=invalid_share)

        return Model(tier, says)

    return {tier: model(tier) for tier in Tier}


def tokens(every: Mapping[str, Model]) -> dict[str, dict[str, int]]:
    """What the models that were called at all have billed, by deployment."""
    return {
        tier: {
            "prompt": sum(call.billed.prompt_tokens for call in model.calls if call.billed),
            "completion": sum(call.billed.completion_tokens for call in model.calls if call.billed),
            "calls": len(model.calls),
        }
        for tier, model in sorted(every.items())
        if model.calls
    }


def bill_nanousd(tokens: Mapping[str, Mapping[str, int]], prices: Mapping[str, Mapping[str, str]]) -> int:
    """What tokens cost: `prompt` and `completion` tokens by deployment, at these prices."""
    total = 0
    for deployment, counts in tokens.items():
        usage = Usage(prompt_tokens=counts["prompt"], completion_tokens=counts["completion"])
        total += Price.parse(prices[deployment]).cost_nanousd(usage)
    return total
