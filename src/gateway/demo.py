"""What runs without a configuration: three scripted deployments, or the upstream that the environment names."""

import ipaddress
import json
from collections.abc import Mapping

from llmkit.base_url import BaseUrl

DEMO_TENANT = "demo"
DEMO_KEY_NAME = "demo"
DEMO_BUDGET_USD = "0.5"

_QUICK_END = "[server]\nannounce_s = 0\n\n"
"""Nobody routes traffic by a demo's readiness: Ctrl-C ends it at once."""

_SCRIPTED = """[[providers]]
name = "demo"
dialect = "fake"
repeat = true
script = [{ text = "Hello from a scripted demo model. Set OPENAI_API_KEY or write a gateway.toml for a real one." }]

[[deployments]]
name = "demo-cheap"
provider = "demo"
model = "demo-small"
tier = "cheap"
price = { input = 0.15, cached_input = 0.075, output = 0.60 }
max_output_tokens = 1024

[[deployments]]
name = "demo-standard"
provider = "demo"
model = "demo-medium"
tier = "standard"
price = { input = 0.40, cached_input = 0.10, output = 1.60 }
max_output_tokens = 1024

[[deployments]]
name = "demo-strong"
provider = "demo"
model = "demo-large"
tier = "strong"
price = { input = 2.00, cached_input = 0.50, output = 8.00 }
max_output_tokens = 1024
"""

OPENAI_URL = "https://api.openai.com/v1"
_OPENAI_MODELS = (
    ("gpt-4o-mini", "cheap", "{ input = 0.15, cached_input = 0.075, output = 0.60 }"),
    ("gpt-4.1-mini", "standard", "{ input = 0.40, cached_input = 0.10, output = 1.60 }"),
    ("gpt-4.1", "strong", "{ input = 2.00, cached_input = 0.50, output = 8.00 }"),
)
"""List prices in USD per million tokens; a configuration of your own states yours."""

_FREE = '"free"'
_ASSUMED = "{ input = 10, output = 40 }"
"""For a stranger's models, whose prices nobody has stated: above most list prices, so that the budget is a bound."""


def demo_config(env: Mapping[str, str], served_models: tuple[str, ...] = ()) -> str:
    """A configuration as TOML.

    env            OPENAI_API_KEY chooses a real upstream, OPENAI_BASE_URL which one
    served_models  what that upstream says it serves; on a machine of one's own, its models are free
    """
    if not env.get("OPENAI_API_KEY"):
        return _QUICK_END + _SCRIPTED
    base_url = env.get("OPENAI_BASE_URL") or OPENAI_URL
    models = _OPENAI_MODELS if base_url.rstrip("/") == OPENAI_URL else _compatible_models(base_url, served_models)
    provider = f'[[providers]]\nname = "upstream"\nbase_url = {json.dumps(base_url)}\napi_key_env = "OPENAI_API_KEY"\n'
    return (
        _QUICK_END
        + provider
        + "".join(
            f'\n[[deployments]]\nname = "{tier}"\nprovider = "upstream"\nmodel = {json.dumps(model)}\ntier = "{tier}"\n'
            f"price = {price}\nmax_output_tokens = 4096\n"
            for model, tier, price in models
        )
    )


def _compatible_models(base_url: str, served: tuple[str, ...]) -> tuple[tuple[str, str, str], ...]:
    """The first three models of a compatible server as the three tiers; fewer models serve several.

    A name that no configuration may hold is passed over.
    """
    usable = tuple(name for name in served if 1 <= len(name) <= 256 and name.isascii() and name.isprintable())
    names = usable[:3] or ("default",)
    price = _FREE if _is_own(base_url) else _ASSUMED
    return tuple(
        (names[min(at, len(names) - 1)], tier, price) for at, tier in enumerate(("cheap", "standard", "strong"))
    )


def _is_own(base_url: str) -> bool:
    """Whether a server is of one's own network: a private address, or a name without a dot. What is no base URL is of
    none; the configuration that holds it is refused.
    """
    try:
        host = BaseUrl.parse(base_url).host
    except ValueError:
        return False
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host


def demo_lines(url: str, key: str, upstream: str | None) -> list[str]:
    """What a newcomer sees: where requests go and what they cost, the key, and a line to paste.

    upstream  its base URL; None if the demo is scripted
    """
    body = '{"model": "auto", "messages": [{"role": "user", "content": "Say hello"}]}'
    return [
        "",
        f"demo: {_terms(upstream)}",
        f"demo key (tenant {DEMO_TENANT}, budget {DEMO_BUDGET_USD} USD, replaced at each start): {key}",
        "try it:",
        "",
        f"curl {url}/v1/chat/completions -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' "
        f"-d '{body}'",
        "",
    ]


def _terms(upstream: str | None) -> str:
    if upstream is None:
        return "no upstream key needed: its answers are scripted"
    goes = f"OPENAI_API_KEY is set: requests go to {upstream}"
    if upstream.rstrip("/") == OPENAI_URL:
        return f"{goes} and cost money"
    if _is_own(upstream):
        return f"{goes}, whose models count as free: the budget does not limit them"
    return f"{goes} and cost money: counted at 10 USD per million tokens in and 40 out, for its prices are not known"
