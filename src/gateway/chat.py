"""A chat completion request as the gateway understands it: only what it routes, meters and prices is checked.

Everything else is the upstream's business and travels on as it came. Pure; raises InvalidRequest and nothing else.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.context import Options
from gateway.errors import InvalidRequest
from gateway.strict_json import StrictJsonError, loads_object
from llmkit.openai import MOST_CHOICES, NEVER_FORWARD

MAX_CAP = 1_000_000_000
"""Largest output cap in tokens; no model answers with more, and prices times it stay exact."""

MAX_TTL_S = 366 * 86_400
"""Longest lifetime that a client may ask for; the cache's own is shorter."""

MAX_TAGS = 16
MAX_TAG_CHARS = 64

_UNPRICED = (
    *("web_search_options", "web_search", "search_parameters", "enable_search", "plugins", "models"),
    *("n_predict", "n_cmpl"),
)
"""Searches and tools that cost by themselves, other models than the one that is priced, and llama.cpp's own names for
an output cap and a number of answers, which it puts above those that are priced.
"""

_CLIENTS_TOOLS = ("function", "custom")
"""Kinds of tools that the client runs. Those that a provider runs cost by the use, whatever tokens it reports."""

_PRICED_AS_STANDARD = ("auto", "default")
_CACHE_CONTROLS = ("no-cache", "no-store", "ttl")

_RARE = frozenset(
    {
        *("cache", "tags", "private", "prompt_version"),
        *("tools", "functions", "response_format", "n", "best_of"),
        *("service_tier", "audio", "modalities", *_UNPRICED),
    }
)
"""What most requests have none of: they are spared the look at each."""

_READ = NEVER_FORWARD.union(
    _RARE, ("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "prediction")
)
"""What is routed, metered, priced or removed here, by name."""

_READ_OF_A_MESSAGE = frozenset({"role", "content", "audio"})


class ChatRequest(Struct, frozen=True):
    """A valid request.

    body         the JSON object as it came, gateway fields included
    cap          the client's own output cap in tokens, per choice; None if it gave none
    choices      how many answers it asks for
    wants_usage  whether a stream is to end with a usage chunk
    is_plain     each message is one text, and there is no field that most requests have none of: no tools, no format
    """

    body: dict[str, Any]
    model: str
    stream: bool
    cap: int | None
    choices: int
    wants_usage: bool
    is_plain: bool
    options: Options


def parse_chat(raw: bytes, options: Options) -> ChatRequest:
    """Read and check the body of POST /v1/chat/completions; `options` are those of the headers."""
    try:
        body = loads_object(raw)
    except StrictJsonError as error:
        raise InvalidRequest(f"Invalid request body: {error}.", param=error.param or "body") from error
    _check_names(body, _READ)
    model = _model(body)
    has_rare = not _RARE.isdisjoint(body)
    if has_rare:
        _check_tools(body)
    has_texts_only = _check_messages(body)
    if has_rare:
        _refuse_unpriced(body)
    stream = "stream" in body and _boolean(body, "stream")
    return ChatRequest(
        body=body,
        model=model,
        stream=stream,
        cap=_cap(body),
        choices=_choices(body) if has_rare else 1,
        wants_usage=stream and _wants_usage(body),
        is_plain=has_texts_only and not has_rare,
        options=_options(body, options) if has_rare else options,
    )


def _check_names(fields: Mapping[str, Any], read: frozenset[str], param: str | None = None) -> None:
    """Refuse a name that others take for one of `read`: those of Go's JSON count in any case, and the last one wins, so
    that a `Model` behind `model` would choose another than the one that was allowed and priced.
    """
    names = "".join(fields)
    if names.isascii() and names.islower():
        return
    for name in fields:
        known = name.casefold()
        if known != name and known in read:
            message = f"`{known}` must be written in lower case: some providers take any spelling of it."
            raise InvalidRequest(message, param=param or name)


def _model(body: Mapping[str, Any]) -> str:
    model = body.get("model")
    if type(model) is not str or not model:
        raise InvalidRequest("`model` must be a non-empty string.", param="model")
    return model


def _check_messages(body: Mapping[str, Any]) -> bool:
    """Whether each message is one text and nothing that is heard or seen."""
    messages = body.get("messages")
    if type(messages) is not list or not messages:
        raise InvalidRequest("`messages` must be a non-empty array of messages.", param="messages")
    only_texts = True
    for message in messages:
        if type(message) is not dict:
            raise InvalidRequest("Each of `messages` must be an object.", param="messages")
        _check_names(message, _READ_OF_A_MESSAGE, "messages")
        if type(message.get("content")) is not str or "audio" in message:
            only_texts = False
    return only_texts


def _boolean(fields: Mapping[str, Any], name: str, within: str = "") -> bool:
    """A flag of `fields`, which is the body or what its field `within` holds; absent and null are false."""
    value = fields.get(name)
    if value is not None and type(value) is not bool:
        param = f"{within}.{name}" if within else name
        raise InvalidRequest(f"`{param}` must be a boolean.", param=param)
    return bool(value)


def _count(body: Mapping[str, Any], name: str, most: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= most:
        raise InvalidRequest(f"`{name}` must be an integer from 1 to {most}.", param=name)
    return value


def _choices(body: Mapping[str, Any]) -> int:
    return max(_count(body, "n", MOST_CHOICES) or 1, _count(body, "best_of", MOST_CHOICES) or 1)


def _cap(body: Mapping[str, Any]) -> int | None:
    """`max_completion_tokens`, else `max_tokens`; both are checked, the newer name wins."""
    old = _count(body, "max_tokens", MAX_CAP)
    new = _count(body, "max_completion_tokens", MAX_CAP)
    return old if new is None else new


def _wants_usage(body: Mapping[str, Any]) -> bool:
    options = body.get("stream_options")
    if options is None:
        return False
    if type(options) is not dict:
        raise InvalidRequest("`stream_options` must be an object.", param="stream_options")
    return _boolean(options, "include_usage", "stream_options")


def _check_tools(body: Mapping[str, Any]) -> None:
    for name in ("tools", "functions"):
        if type(body.get(name)) not in (list, type(None)):
            raise InvalidRequest(f"`{name}` must be an array.", param=name)
    for tool in body.get("tools") or ():
        kind = tool.get("type") if type(tool) is dict else None
        if type(kind) is str and kind not in _CLIENTS_TOOLS:
            raise InvalidRequest(
                "Tools that a provider runs have no price here; `function` and `custom` are served.", param="tools"
            )


def _refuse_unpriced(body: Mapping[str, Any]) -> None:
    """Fields that multiply the bill in a way no configured price covers."""
    tier = body.get("service_tier")
    if tier is not None and tier not in _PRICED_AS_STANDARD:
        raise InvalidRequest(
            "`service_tier` must be `auto` or `default`: no other tier has a price here.", param="service_tier"
        )
    if body.get("audio") is not None:
        raise InvalidRequest("Audio output has no price here.", param="audio")
    modalities = body.get("modalities")
    if modalities is not None and modalities != ["text"]:
        raise InvalidRequest("Output other than text has no price here.", param="modalities")
    for name in _UNPRICED:
        if body.get(name) not in (None, False, []):
            raise InvalidRequest(f"What `{name}` asks for has no price here.", param=name)


def _options(body: Mapping[str, Any], headers: Options) -> Options:
    """The gateway's own inputs: the body's where it has them, else the headers'."""
    cache = body.get("cache")
    if cache is not None and type(cache) is not dict:
        raise InvalidRequest("`cache` must be an object.", param="cache")
    cache = cache or {}
    for key in cache:
        if key not in _CACHE_CONTROLS:
            raise InvalidRequest(f"`cache` may have {', '.join(_CACHE_CONTROLS)}, and nothing else.", param="cache")
    return Options(
        tags=headers.tags if body.get("tags") is None else check_tags(body["tags"]),
        private=headers.private or _boolean(body, "private"),
        prompt_version=_prompt_version(body) or headers.prompt_version,
        no_cache=headers.no_cache or _boolean(cache, "no-cache", "cache"),
        no_store=headers.no_store or _boolean(cache, "no-store", "cache"),
        cache_ttl_s=_ttl(cache),
        timeout_s=headers.timeout_s,
    )


def _ttl(cache: Mapping[str, Any]) -> float | None:
    value = cache.get("ttl")
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < value <= MAX_TTL_S:
        raise InvalidRequest("`cache.ttl` must be a number of seconds above 0.", param="cache.ttl")
    return float(value)


def _prompt_version(body: Mapping[str, Any]) -> str | None:
    value = body.get("prompt_version")
    if value is not None and (type(value) is not str or len(value) > 128):
        raise InvalidRequest("`prompt_version` must be a string of at most 128 characters.", param="prompt_version")
    return value


def check_tags(value: object, param: str = "tags") -> tuple[str, ...]:
    """Tags as given by a client in `param`: at most MAX_TAGS short printable strings without a comma."""
    if type(value) is not list or len(value) > MAX_TAGS or not all(map(_is_tag, value)):
        raise InvalidRequest(
            f"`{param}` must be at most {MAX_TAGS} strings of 1 to {MAX_TAG_CHARS} printable characters, no commas.",
            param=param,
        )
    return tuple(value)


def _is_tag(value: object) -> bool:
    return type(value) is str and 1 <= len(value) <= MAX_TAG_CHARS and value.isprintable() and "," not in value
