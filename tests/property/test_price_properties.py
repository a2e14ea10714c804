"""Money against independent arithmetic, and against twins that are wrong on purpose.

Every check takes the thing under test as an argument, so that a broken twin can be put through the same check and must
fail it: a check that no twin fails proves nothing.
"""

import math
import random
import unittest
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from llmkit.prices import Price
from llmkit.tokens import prompt_bound
from llmkit.types import Usage

_USAGES = 10_000
_KEYS = ("input", "cached_input", "cache_write", "output")
Pricing = type[Price]
Bound = Callable[[Mapping[str, object]], int]


def random_bills(seed: int) -> Iterator[tuple[dict[str, str], Usage]]:
    """Prices in USD per million tokens, up to six decimals, and usages from nothing to millions of tokens."""
    source = random.Random(seed)
    for _ in range(_USAGES):
        places = source.randint(0, 6)
        price = {key: f"{Decimal(source.randint(0, 10 ** source.randint(0, 8))).scaleb(-places):f}" for key in _KEYS}
        prompt = source.randint(0, 10 ** source.randint(0, 7))
        cached = source.randint(0, prompt)
        completion = source.randint(0, 10 ** source.randint(0, 6))
        yield (
            price,
            Usage(
                prompt_tokens=prompt,
                cached_tokens=cached,
                cache_write_tokens=source.randint(0, prompt - cached),
                completion_tokens=completion,
                reasoning_tokens=source.randint(0, completion),
            ),
        )


def exact_nanousd(price: Mapping[str, str], usage: Usage) -> int:
    """The bill by rational arithmetic from the written price: dollars, summed, rounded upward once."""
    plain = usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens
    counts = (plain, usage.cached_tokens, usage.cache_write_tokens, usage.completion_tokens)
    dollars = sum(
        (Fraction(price[key]) * count / 1_000_000 for key, count in zip(_KEYS, counts, strict=True)), Fraction()
    )
    return math.ceil(dollars * 1_000_000_000)


def check_exact(pricing: Pricing, seed: int = 20_260_214) -> None:
    """10,000 random bills are exact to the nano-dollar."""
    for price, usage in random_bills(seed):
        cost, exact = pricing.parse(price).cost_nanousd(usage), exact_nanousd(price, usage)
        if cost != exact:
            raise AssertionError(f"{price} {usage}: {cost}, exactly {exact}")


def check_monotone(price: Price, usage: Usage, more: int) -> None:
    """More tokens of any class never cost less: plain input, cached, written to the cache, output."""
    cost = price.cost_nanousd(usage)
    prompt = usage.prompt_tokens + more
    for larger in (
        replace(usage, prompt_tokens=prompt),
        replace(usage, prompt_tokens=prompt, cached_tokens=usage.cached_tokens + more),
        replace(usage, prompt_tokens=prompt, cache_write_tokens=usage.cache_write_tokens + more),
        replace(usage, completion_tokens=usage.completion_tokens + more),
    ):
        if price.cost_nanousd(larger) < cost:
            raise AssertionError(f"{price}: {larger} costs less than {usage}")


def check_bound(price: Price, usage: Usage, spare_prompt: int, spare_output: int) -> None:
    """No usage within the bounds costs more than the bound."""
    bound = price.bound_nanousd(usage.prompt_tokens + spare_prompt, usage.completion_tokens + spare_output)
    if not isinstance(bound, int) or bound < price.cost_nanousd(usage):
        raise AssertionError(f"{price}: {usage} costs more than {bound}")


def check_bounds(pricing: Pricing, seed: int = 7) -> None:
    """The bound holds for 10,000 random bills, with nothing to spare."""
    for price, usage in random_bills(seed):
        check_bound(pricing.parse(price), usage, 0, 0)


def check_prompt_bound(bound: Bound, text: str) -> None:
    """The worst byte-level tokenizer, which merges nothing, stays below the bound of a prompt wherever the text is."""
    worst = len(text.encode())
    for body in (
        {"messages": [{"role": "user", "content": text}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]},
        {"messages": [{"role": "user", "content": "hi"}], "response_format": {"type": text}},
        {"messages": [{"role": "user", "content": "hi"}], "tools": [{"function": {"name": "f", "description": text}}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": text}}]}]},
        {"messages": [{"role": "user", "content": "hi"}], "unknown": text},
    ):
        if bound(body) < worst:
            raise AssertionError(f"{worst} tokens are more than the bound of {body}")


class RoundsDown(Price, frozen=True):
    """A twin that forgives fractions."""

    def cost_nanousd(self, usage: Usage) -> int:
        """Too little by less than one."""
        return _pico(self, usage) // 1000


class RoundsEachClass(Price, frozen=True):
    """A twin that rounds before it adds."""

    def cost_nanousd(self, usage: Usage) -> int:
        """Too much by up to three."""
        whole = super().cost_nanousd
        plain = usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens
        parts = (
            Usage(prompt_tokens=plain),
            Usage(usage.cached_tokens, usage.cached_tokens),
            Usage(usage.cache_write_tokens, 0, usage.cache_write_tokens),
            Usage(completion_tokens=usage.completion_tokens),
        )
        return sum(whole(part) for part in parts)


class FloatMoney(Price, frozen=True):
    """A twin that computes in floats and rounds upward with care."""

    def cost_nanousd(self, usage: Usage) -> int:
        """Wrong where a double has no digit left."""
        plain = usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens
        dollars = (
            plain * (self.input_pico / 1e12)
            + usage.cached_tokens * (self.cached_input_pico / 1e12)
            + usage.cache_write_tokens * (self.cache_write_pico / 1e12)
            + usage.completion_tokens * (self.output_pico / 1e12)
        )
        return math.ceil(dollars * 1e9)


class CachedTwice(Price, frozen=True):
    """A twin that takes cached tokens to stand beside the prompt, as another dialect does."""

    def cost_nanousd(self, usage: Usage) -> int:
        """Cached tokens are paid once more as plain input."""
        return super().cost_nanousd(replace(usage, prompt_tokens=usage.prompt_tokens + usage.cached_tokens))


class CachedAtInputPrice(Price, frozen=True):
    """A twin that knows no cache."""

    def cost_nanousd(self, usage: Usage) -> int:
        """Every prompt token at the plain price."""
        return super().cost_nanousd(Usage(usage.prompt_tokens, 0, 0, usage.completion_tokens))


class ReasoningOnTop(Price, frozen=True):
    """A twin that adds the reasoning tokens to the completion that holds them."""

    def cost_nanousd(self, usage: Usage) -> int:
        """Reasoning is paid twice."""
        output = usage.completion_tokens + usage.reasoning_tokens
        return super().cost_nanousd(replace(usage, completion_tokens=output))


class CachedEarnsMoney(Price, frozen=True):
    """A twin that subtracts the cached share at the full price."""

    def cost_nanousd(self, usage: Usage) -> int:
        """A cached token lowers the bill."""
        plain = Price(self.input_pico, 0, 0, self.output_pico)
        return plain.cost_nanousd(replace(usage, cached_tokens=min(2 * usage.cached_tokens, usage.prompt_tokens)))


class BoundAtInputPrice(Price, frozen=True):
    """A twin whose bound forgets that a cache write may be dearer than plain input."""

    def bound_nanousd(self, prompt_tokens: int, output_tokens: int) -> int:
        """Too little where a prompt is written to the cache."""
        return self.cost_nanousd(Usage(prompt_tokens, 0, 0, output_tokens))


class BoundRoundsDown(Price, frozen=True):
    """A twin whose bound loses the fraction that the cost keeps."""

    def bound_nanousd(self, prompt_tokens: int, output_tokens: int) -> int:
        """Too little by less than one."""
        dearest = max(self.input_pico, self.cached_input_pico, self.cache_write_pico)
        return (prompt_tokens * dearest + output_tokens * self.output_pico) // 1000


def quarter_of_the_characters(body: Mapping[str, object]) -> int:
    """A twin of prompt_bound: the field's favourite estimate, taken for a bound."""
    return len(str(body)) // 4


def bytes_of_messages_only(body: Mapping[str, object]) -> int:
    """A twin of prompt_bound that forgets tools, formats and unknown fields."""
    return prompt_bound({"messages": body["messages"]})


def characters(body: Mapping[str, object]) -> int:
    """A twin of prompt_bound that counts characters where bytes count."""
    return len(str(body)) + 200


def _pico(price: Price, usage: Usage) -> int:
    return (
        (usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens) * price.input_pico
        + usage.cached_tokens * price.cached_input_pico
        + usage.cache_write_tokens * price.cache_write_pico
        + usage.completion_tokens * price.output_pico
    )


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """Consistent usages: the parts of the prompt are within it."""
    plain, cached, written, completion = (draw(st.integers(0, 10**7)) for _ in range(4))
    reasoning = draw(st.integers(0, completion))
    return Usage(plain + cached + written, cached, written, completion, reasoning)


_PICO = st.integers(0, 200_000_000)
_MORE = st.integers(1, 10**6)
_PRICES = st.builds(Price, _PICO, _PICO, _PICO, _PICO)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)
_settings = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


class CostTest(unittest.TestCase):
    """Cost against rational arithmetic."""

    def test_ten_thousand_random_bills_are_exact(self) -> None:
        """Read from decimal text, computed in integers, compared with fractions."""
        check_exact(Price)

    def test_every_broken_twin_is_found_by_its_bills(self) -> None:
        """Rounding, floats, and every confusion of classes."""
        for twin in (
            RoundsDown,
            RoundsEachClass,
            FloatMoney,
            CachedTwice,
            CachedAtInputPrice,
            ReasoningOnTop,
            CachedEarnsMoney,
        ):
            with self.subTest(twin=twin.__name__), self.assertRaises(AssertionError):
                check_exact(twin)

    @_settings
    @given(price=_PRICES, usage=usages(), more=_MORE)
    def test_more_tokens_never_cost_less(self, price: Price, usage: Usage, more: int) -> None:
        """In every class."""
        check_monotone(price, usage, more)

    def test_a_twin_that_falls_is_found(self) -> None:
        """Where a cached token earns money, more tokens cost less."""
        with self.assertRaises(AssertionError):
            check_monotone(CachedEarnsMoney(4, 1, 1, 1), Usage(10_000, 1_000), 1_000)


class BoundTest(unittest.TestCase):
    """The bound of a call."""

    @_settings
    @given(price=_PRICES, usage=usages(), spare_prompt=st.integers(0, 10**5), spare_output=st.integers(0, 10**5))
    def test_no_usage_within_the_bounds_costs_more(
        self, price: Price, usage: Usage, spare_prompt: int, spare_output: int
    ) -> None:
        """Whatever share of the prompt is cached or written to a cache."""
        check_bound(price, usage, spare_prompt, spare_output)

    def test_ten_thousand_bills_stay_below_their_bound(self) -> None:
        """Tight: with exactly the tokens that were used."""
        check_bounds(Price)

    def test_every_broken_twin_costs_more_than_it_held(self) -> None:
        """The plain input price, and a bound that rounds down."""
        for twin in (BoundAtInputPrice, BoundRoundsDown):
            with self.subTest(twin=twin.__name__), self.assertRaises(AssertionError):
                check_bounds(twin)


class PromptBoundTest(unittest.TestCase):
    """The bound of a prompt."""

    @_settings
    @given(text=_TEXT)
    def test_no_tokenizer_of_bytes_exceeds_the_bound(self, text: str) -> None:
        """Wherever in the body the text is."""
        check_prompt_bound(prompt_bound, text)

    @_settings
    @given(text=_TEXT, user=_TEXT)
    def test_the_quick_bound_is_never_below_the_tight_one(self, text: str, user: str) -> None:
        """With the length of the body as it is sent."""
        body = {"model": "m", "user": user, "messages": [{"role": "user", "content": text}]}
        encoded_len = prompt_bound({"encoded": body}) - prompt_bound({"encoded": 0}) + 1
        self.assertGreaterEqual(prompt_bound(body, encoded_len=encoded_len), prompt_bound(body))

    def test_every_broken_twin_is_found(self) -> None:
        """Characters by four, characters, and messages alone bound nothing."""
        for twin in (quarter_of_the_characters, characters, bytes_of_messages_only):
            with self.subTest(twin=twin.__name__), self.assertRaises(AssertionError):
                check_prompt_bound(twin, "漢字仮名" * 200)


if __name__ == "__main__":
    unittest.main()
