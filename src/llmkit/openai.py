"""The OpenAI dialect, pure: requests to bytes, answers and errors from bytes.

Decides what an upstream is asked for, what of its answer is repaired, and what its usage and errors mean. Does not
know HTTP, prices or who asked. Streams are in openai_stream.py.

Rules:
- a request keeps its values and key order; only what the caller names here is replaced or removed
- an answer that already has the form clients rely on keeps its bytes; another is repaired in place and encoded again
- unknown fields stay
- usage that is absent or makes no sense is None, never zero: zero would be free

    ValueError
    ├── Malformed   the bytes are no answer: not JSON, not an object, no choices, a field of an impossible type
    └── WireError   a well-formed report that the upstream failed
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from llmkit import wire_json
from llmkit.types import Usage
from llmkit.wire_json import JsonObject

NewId = Callable[[], str]

GATEWAY_FIELDS: Final = ("tags", "private", "prompt_version", "cache")
"""Top-level request fields that speak to a gateway and that no upstream knows."""

# fmt: off
NEVER_FORWARD: Final = frozenset({
    "api_base", "api_host", "api_key", "api_type", "api_url", "api_version", "aws_access_key_id",
    "aws_bedrock_runtime_endpoint", "aws_profile_name", "aws_region_name", "aws_role_name", "aws_secret_access_key",
    "aws_session_name", "aws_session_token", "aws_sts_endpoint", "aws_web_identity_token", "azure_ad_token",
    "azure_endpoint", "base_url", "custom_host", "custom_llm_provider", "default_headers", "default_query",
    "deployment", "deployment_id", "endpoint", "extra_body", "extra_headers", "extra_query", "fallbacks", "headers",
    "http_client", "input_cost_per_token", "max_retries", "mock_response", "mock_timeout", "mock_tool_calls",
    "model_list", "num_retries", "openai_api_base", "organization", "output_cost_per_token", "project", "proxy",
    "ssl_verify", "timeout", "user_config", "vertex_ai_credentials", "vertex_ai_location", "vertex_ai_project",
    "vertex_credentials", "vertex_location", "vertex_project", "vertex_region",
})
# fmt: on
"""Top-level request fields that steer a client library, and would steer an upstream built on one: where it calls, as
whom, how often, what it takes for the price, and (extra_body) with fields beside those that were checked and priced."""

FINISH_REASONS: Final = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})

_REMOVED: Final = NEVER_FORWARD.union(GATEWAY_FIELDS)
_OTHER_CAP: Final = {"max_completion_tokens": "max_tokens", "max_tokens": "max_completion_tokens"}
_FINISH_ALIASES: Final = {
    "": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "safety": "content_filter",
    "tool_use": "tool_calls",
}
_TEXTS_OF_A_MESSAGE: Final = ("content", "refusal")
"""Null where the model did not write any."""
_WRITTEN_TEXTS: Final = frozenset({"content", "refusal", "reasoning_content"})
_MAX_COUNT: Final = 2**53
"""The last integer that every JSON reader holds exactly; no real count comes near."""
_MAX_ERROR_CHARS: Final = 500
"""Enough for every real message; an upstream cannot fill logs and rows with more."""
CALL_FRAME_BYTES: Final = 64
"""What a model writes around a tool call's name and arguments, and no client sees: Hermes' tags and keys take 45."""


MOST_CHOICES: Final = 128
"""OpenAI's own bound of `n`: more choices than these are none that anybody asked for."""


class Malformed(ValueError):
    """Bytes of an upstream that are no answer. The message holds nothing of them.

    usage  what the upstream counted all the same
    """

    usage: Usage | None = None


class WireError(ValueError):
    """An upstream's report of a failure.

    message      the upstream's words, at most 500 characters, or ours; may hold whatever the upstream knows
    type         the upstream's, else by status
    code, param  the upstream's, or None
    usage        what the upstream counted all the same
    """

    def __init__(
        self,
        message: str,
        type: str,  # noqa: A002 - the wire's own word
        code: str | None = None,
        param: str | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.type = type
        self.code = code
        self.param = param
        self.usage = usage


class Completion(Struct, frozen=True):
    """A whole answer.

    raw             JSON ready for the client; the upstream's own bytes if nothing had to be repaired
    document        what raw says; not to be changed
    usage           None if the upstream reported none that makes sense
    finish_reasons  one per choice, of FINISH_REASONS
    text_bytes      UTF-8 bytes of everything the model wrote: text, refusals, reasoning, tool names and arguments
    finished        whether the upstream itself gave each choice a reason, and one that is known; else it may have been
                    broken off
    """

    raw: bytes
    document: JsonObject
    usage: Usage | None
    finish_reasons: tuple[str, ...]
    text_bytes: int
    finished: bool


# Requests


def to_wire(body: Mapping[str, object], *, model: str, cap_field: str, cap: int, stream_usage: bool) -> bytes:
    """The request body for an upstream: compact JSON in UTF-8, values and key order as in body.

    model         the upstream's own model id, put in the place of the one asked for
    cap_field     "max_completion_tokens" or "max_tokens": the one of the two that leaves, with the value cap, > 0
    stream_usage  whether the upstream knows `stream_options`: a stream is then asked for usage. Otherwise, and on a
                  request that is no stream (where upstreams refuse it), the field does not leave
    Raises ValueError if a text holds a lone surrogate or a number is not finite.
    """
    if not _REMOVED.isdisjoint(body):
        body = {key: value for key, value in body.items() if key not in _REMOVED}
    other = _OTHER_CAP[cap_field]
    wire = {cap_field if key == other else key: value for key, value in body.items()} if other in body else {**body}
    wire["model"] = model
    wire[cap_field] = cap
    if stream_usage and wire.get("stream"):
        options = wire.get("stream_options")
        wire["stream_options"] = {**(options if isinstance(options, Mapping) else {}), "include_usage": True}
    else:
        wire.pop("stream_options", None)
    return wire_json.encode_strictly(wire)


# Usage


def parse_usage(value: object) -> Usage | None:
    """Usage as reported; None if there is none to believe.

    Not believed: anything but an object, a missing prompt or completion count, a count that is no int from 0 to
    2**53, nothing but zeros. More cached than prompt tokens is kept as it came.
    """
    if type(value) is not dict:
        return None
    cached, written, reasoning = value.get("prompt_cache_hit_tokens"), None, None
    details = value.get("prompt_tokens_details")
    if type(details) is dict:
        known = details.get("cached_tokens")
        cached, written = cached if known is None else known, details.get("cache_write_tokens")
    details = value.get("completion_tokens_details")
    if type(details) is dict:
        reasoning = details.get("reasoning_tokens")
    counts: tuple[Any, ...] = (
        value.get("prompt_tokens"),
        0 if cached is None else cached,
        0 if written is None else written,
        value.get("completion_tokens"),
        0 if reasoning is None else reasoning,
    )
    try:
        usage = Usage(*counts)
    except ValueError:
        return None
    return usage if 0 < max(counts) <= _MAX_COUNT else None


def usage_of(document: JsonObject) -> Usage | None:
    """Usage of an answer or a chunk, also where Groq puts it."""
    return parse_usage(document.get("usage")) or parse_usage(_object_at(document, "x_groq").get("usage"))


def usage_object(usage: Usage) -> JsonObject:
    """Usage in the form clients know."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def with_usage(raw: bytes, usage: Usage) -> bytes:
    """The answer raw with this usage instead of its own: for an upstream that reports none. Raises Malformed."""
    return wire_json.encode(decode_object(raw) | {"usage": usage_object(usage)})


def _object_at(document: JsonObject, key: str) -> JsonObject:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


# Answers


def random_id() -> str:
    """24 characters that no other id has."""
    return os.urandom(12).hex()


def decode_object(raw: bytes) -> JsonObject:
    """The JSON object that raw is. Raises Malformed if it is none."""
    try:
        value = wire_json.decode(raw)
    except ValueError:
        raise Malformed("not JSON") from None
    if type(value) is not dict:
        raise Malformed("not a JSON object")
    return value


def from_wire(raw: bytes, *, new_id: NewId = random_id, created: int = 0, model: str = "") -> Completion:
    """Read a whole answer, and repair it where it lacks the form that clients rely on.

    new_id          24 characters for an id that is missing
    created, model  Unix seconds and name for an answer that has none
    Raises WireError if the upstream reports an error, Malformed if raw is no answer.
    """
    document = decode_object(raw)
    raise_reported_error(document)
    usage = usage_of(document)
    try:
        return _completion(raw, document, usage, new_id, created, model)
    except Malformed as error:
        error.usage = usage
        raise


def _completion(
    raw: bytes, document: JsonObject, usage: Usage | None, new_id: NewId, created: int, model: str
) -> Completion:
    choices = document.get("choices")
    if type(choices) is not list or not choices:
        raise Malformed("an answer without choices")
    edited = _repair_head(document, new_id, created, model)
    finished, text_bytes, reasons = True, 0, list[str]()
    for position, choice in enumerate(choices):
        message = choice.get("message") if type(choice) is dict else None
        if type(message) is not dict:
            raise Malformed("a choice without a message")
        given = choice.get("finish_reason")
        edited |= _repair_message(message, new_id)
        reason = finish_reason(choice, calls_sent=bool(message.get("tool_calls")), usage=usage)
        edited |= _repair_choice(choice, position, reason)
        finished &= given == reason or (bool(given) and knows_reason(given))
        reasons.append(reason)
        text_bytes += written_bytes(message)
    if usage is not None:
        edited |= _repair_usage(document, usage)
    raw = wire_json.encode(document) if edited else raw
    return Completion(raw, document, usage, tuple(reasons), text_bytes, finished)


def _repair_head(document: JsonObject, new_id: NewId, created: int, model: str) -> bool:
    name, time, model_name = document.get("id"), document.get("created"), document.get("model")
    edited = False
    if type(name) is not str or not name:
        edited = _put(document, "id", "chatcmpl-" + new_id())
    if document.get("object") != "chat.completion":
        edited = _put(document, "object", "chat.completion")
    if type(time) is not int:
        edited = _put(document, "created", whole_seconds(time) or created)
    public_name = public_model(model_name) or model
    if public_name != model_name:
        edited = _put(document, "model", public_name)
    return edited


def _repair_choice(choice: JsonObject, position: int, reason: str) -> bool:
    """Repair what stands around a message."""
    edited = False
    if type(choice.get("index")) is not int:
        edited = _put(choice, "index", position)
    if "logprobs" not in choice:
        edited = _put(choice, "logprobs", None)
    if choice.get("finish_reason") != reason:
        edited = _put(choice, "finish_reason", reason)
    return edited


def _repair_message(message: JsonObject, new_id: NewId) -> bool:
    edited = False
    if message.get("role") != "assistant":
        edited = _put(message, "role", "assistant")
    for key in _TEXTS_OF_A_MESSAGE:
        if key not in message:
            edited = _put(message, key, None)
    if type(message["content"]) is not str:
        edited |= flatten_content(message)
    if message.get("tool_calls"):
        for call in tool_calls(message):
            edited |= _repair_call(call, new_id)
    return edited


def _repair_call(call: JsonObject, new_id: NewId) -> bool:
    edited = arguments_to_text(call)
    if _text(call.get("id")) is None:
        edited = _put(call, "id", "call_" + new_id())
    if call.get("type") is None:
        edited = _put(call, "type", "function")
    function = _object_at(call, "function")
    if _text(function.get("name")) is not None and function.get("arguments") is None:
        edited = _put(function, "arguments", "{}")
    return edited


def _repair_usage(document: JsonObject, usage: Usage) -> bool:
    """Let the document say what was read of it, in the place and with the sum that clients look for."""
    reported = document.get("usage")
    if type(reported) is not dict:
        return _put(document, "usage", usage_object(usage))
    return type(reported.get("total_tokens")) is not int and _put(reported, "total_tokens", usage.total_tokens)


def _put(document: JsonObject, key: str, value: object) -> bool:
    """Set a key; always True: the document was edited."""
    document[key] = value
    return True


# What whole answers and streams share


def public_model(name: object) -> str | None:
    """A model's name as clients may see it; None if there is none, or it is a path on the upstream's disk."""
    if not isinstance(name, str) or not name or "\\" in name or name.startswith(("/", "./", "../", "~")):
        return None
    return name


def whole_seconds(time: object) -> int | None:
    """A time in Unix seconds, which some upstreams send with a fraction; None if it is none."""
    return int(time) if isinstance(time, int | float) else None


def finish_reason(choice: JsonObject, *, calls_sent: bool, usage: Usage | None = None) -> str:
    """The choice's finish reason as one of FINISH_REASONS, unknown ones as "stop".

    calls_sent  whether the choice called tools, which some upstreams end with "stop"
    usage       what a WireError should carry, raised if the reason is "error"
    """
    given = choice.get("finish_reason")
    reason = _known_reason(given)
    if reason is None:
        if str(given).lower() == "error":
            raise _wire_error(_error_facts(choice), usage=usage)
        reason = "stop"
    return "tool_calls" if calls_sent and reason == "stop" else reason


def knows_reason(given: object) -> bool:
    """Whether a choice's finish reason has a meaning here, and is not taken for "stop" for want of one."""
    return _known_reason(given) is not None


def _known_reason(given: object) -> str | None:
    if type(given) is str and given in FINISH_REASONS:
        return given
    spelled = str(given).lower()
    return spelled if spelled in FINISH_REASONS else _FINISH_ALIASES.get(spelled)


def flatten_content(message: JsonObject) -> bool:
    """Join content that is a list of parts to one text, in place; whether it was. Thinking becomes reasoning."""
    content = message.get("content")
    if content is None or type(content) is str:
        return False
    if type(content) is not list:
        raise Malformed("content that is no text")
    message["content"] = "".join(map(_part_text, content))
    thinking = "".join(_part_text(inner) for part in content for inner in _thinking(part))
    if thinking and not message.get("reasoning_content"):
        message["reasoning_content"] = thinking
    return True


def _part_text(part: object) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""


def _thinking(part: object) -> list[Any]:
    thinking = part.get("thinking") if isinstance(part, dict) else None
    return thinking if isinstance(thinking, list) else [thinking]


def tool_calls(message: JsonObject) -> list[JsonObject]:
    """The calls of a message or a delta. Raises Malformed if they are no list of objects."""
    calls = message.get("tool_calls")
    if not calls:
        return []
    if type(calls) is not list or not all(type(call) is dict for call in calls):
        raise Malformed("tool calls that are no objects")
    return calls


def tool_body(call: JsonObject) -> JsonObject:
    """What a call says about its function or custom tool; an empty object if it says nothing."""
    body = call.get("function") or call.get("custom")
    return body if isinstance(body, dict) else {}


def arguments_to_text(call: JsonObject) -> bool:
    """Encode arguments that came as a value, in place; whether they did."""
    body = tool_body(call)
    arguments = body.get("arguments")
    if arguments is None or type(arguments) is str:
        return False
    body["arguments"] = wire_json.text_of(arguments)
    return True


def written_bytes(message: JsonObject) -> int:
    """UTF-8 bytes of what the model wrote in a repaired message or delta, and CALL_FRAME_BYTES for each tool call that
    begins in it. Reasoning under two names counts once.
    """
    size = 0
    for key, value in message.items():
        if key in _WRITTEN_TEXTS:
            size += utf8_bytes(value)
        elif key == "tool_calls":
            size += sum(_written_in_call(tool_body(call)) for call in value or ())
        elif key == "function_call" and isinstance(value, dict):
            size += _written_in_call(value)
    if "reasoning" in message and not message.get("reasoning_content"):
        size += utf8_bytes(message["reasoning"])
    return size


def _written_in_call(body: JsonObject) -> int:
    name = utf8_bytes(body.get("name"))
    frame = CALL_FRAME_BYTES if name else 0
    return frame + name + utf8_bytes(body.get("arguments")) + utf8_bytes(body.get("input"))


def utf8_bytes(text: object) -> int:
    """Bytes of a text; 0 for anything else."""
    if not text or type(text) is not str:
        return 0
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# Errors


def error_payload(message: str, type: str, code: str | None, param: str | None) -> bytes:  # noqa: A002 - wire's word
    """The JSON of an error with all four keys, which client libraries need to show its message."""
    return wire_json.encode({"error": {"message": message, "type": type, "param": param, "code": code}})


def as_error(data: bytes) -> bytes:
    """The data of an event that is named an error, in the form in which chunks report one."""
    try:
        document = wire_json.decode(data)
    except ValueError:
        document = _plain_text(data)
    if isinstance(document, dict) and document.get("error"):
        return data
    return wire_json.encode({"error": document or "unnamed"})


FLAGGED = "content_policy_violation"
"""OpenAI's code for a prompt that moderation refuses; also that of OpenRouter's 403, which has no word for it."""


def parse_error(status: int, raw: bytes, secret: str | None = None) -> WireError:
    """What an upstream's answer of an error status says. Total: any bytes give a WireError with a message.

    secret  the credential that was sent: replaced in every text before it is cut, so that no half of it is left
    """
    try:
        document = wire_json.decode(raw)
    except ValueError:
        document = _plain_text(raw)
    usage = usage_of(document) if isinstance(document, dict) else None
    return _wire_error(_error_facts(document), status=status, usage=usage, secret=secret)


def raise_reported_error(document: JsonObject, usage: Usage | None = None) -> None:
    """Raise WireError if an answer or a chunk reports an error; usage: what it should carry if document has none."""
    if document.get("error") or document.get("object") == "error":
        raise _wire_error(_error_facts(document), usage=usage_of(document) or usage)


def _plain_text(raw: bytes) -> str | None:
    """A body that is not JSON; None for a page made for people."""
    text = raw.decode("utf-8", "replace").strip()
    return None if text.startswith("<") else text


def _error_facts(document: object) -> Mapping[str, object]:
    """The object that holds message, type, code and param, wherever upstreams put it."""
    if isinstance(document, list):
        document = document[0] if document else None
    if isinstance(document, str):
        return {"message": document}
    if not isinstance(document, dict):
        return {}
    error = document.get("error")
    if isinstance(error, dict):
        return error
    if isinstance(error, str):
        return {**document, "message": error}
    return _detail_facts(document["detail"]) if "detail" in document else document


def _detail_facts(detail: object) -> Mapping[str, object]:
    """FastAPI's form: a text, or a list of faults with their places."""
    if not isinstance(detail, list):
        return {"message": detail}
    faults = [(_place(fault.get("loc")), str(fault.get("msg"))) for fault in detail if isinstance(fault, dict)]
    return {
        "message": "; ".join(f"{place}: {message}" if place else message for place, message in faults),
        "param": faults[0][0] if faults else None,
    }


def _place(loc: object) -> str:
    return ".".join(str(step) for step in loc if step != "body") if isinstance(loc, list) else ""


def _wire_error(
    facts: Mapping[str, object], *, status: int | None = None, usage: Usage | None = None, secret: str | None = None
) -> WireError:
    code = facts.get("code")
    if type(code) is int:
        code = None if code == status else str(code)
    if code is None and status == 403 and _is_flagged(facts.get("metadata")):
        code = FLAGGED
    ours = "upstream reported an error" if status is None else f"upstream returned HTTP {status}"
    return WireError(
        _text(facts.get("message"), secret) or ours,
        _text(facts.get("type"), secret) or _text(facts.get("status"), secret) or _type_by(status),
        _text(code, secret),
        _text(facts.get("param"), secret),
        usage,
    )


def _is_flagged(metadata: object) -> bool:
    """Whether it tells of moderation in OpenRouter's form: https://openrouter.ai/docs/api/reference/errors-and-debugging"""
    return isinstance(metadata, dict) and "flagged_input" in metadata and "reasons" in metadata


def _text(value: object, secret: str | None = None) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    return (value.replace(secret, "[key]") if secret else value)[:_MAX_ERROR_CHARS]


def _type_by(status: int | None) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status is not None and 400 <= status < 500 else "server_error"
