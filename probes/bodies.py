"""Requests and providers that nobody expects: never a 500 for the first, never a word too much for the second."""

import asyncio
import json
from typing import Any

from gateway.context import Caller
from gateway.providers import ProviderAnswer, UpstreamCall
from probes import client
from probes.lab import Lab, Probe
from probes.upstream import ROLE, Call, completion, good, usage, word

CANARY = "EXCEPTIONCANARY0001"
_PING = b'"messages":[{"role":"user","content":"ping"}],"max_tokens":16'


def _messages(value: Any) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 16, "messages": value}).encode()


def _with(**fields: Any) -> bytes:
    return json.dumps(client.chat() | fields).encode()


def _part(**fields: Any) -> bytes:
    return _messages([{"role": "user", "content": [fields]}])


_NO_MESSAGES: tuple[Any, ...] = (
    None,
    1,
    "a",
    {},
    {"0": {}},
    [],
    [None],
    [1],
    ["a"],
    [[]],
    [[{}]],
    [{}],
    [{"role": "user"}],
)
_NO_CONTENTS: tuple[Any, ...] = (None, 1, 1.5, True, {}, [], [None], [1], ["a"], [[]], [{}], [[{"type": "text"}]])
_NO_ROLES: tuple[Any, ...] = (None, 1, [], {}, "", "nobody")
_BODIES: dict[str, bytes] = {
    "empty": b"",
    "white": b" \r\n",
    "not UTF-8": b'{"model":"m",\xff' + _PING + b"}",
    "UTF-16": json.dumps(client.chat()).encode("utf-16"),
    "BOM": b"\xef\xbb\xbf" + client.CHAT_BODY,
    "array": b"[]",
    "null": b"null",
    "number": b"1",
    "NaN": b'{"model":"m","temperature":NaN,' + _PING + b"}",
    "Infinity": b'{"model":"m","temperature":-Infinity,' + _PING + b"}",
    "1e400": b'{"model":"m","temperature":1e400,' + _PING + b"}",
    "huge integer": b'{"model":"m","seed":' + b"9" * 5000 + b"," + _PING + b"}",
    "huge exponent": b'{"model":"m","max_tokens":1e999999999,"messages":[]}',
    "duplicate keys": b'{"model":"m","max_tokens":16,"max_tokens":100000,"messages":[{"role":"user","content":"a"}]}',
    "deep arrays": b'{"model":"m","x":' + b"[" * 100_000 + b"]" * 100_000 + b"," + _PING + b"}",
    "deep objects": b'{"model":"m","x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"," + _PING + b"}",
    "half": _with()[:-3],
    "trailing": _with() + b"{}",
    "trailing NUL": _with() + b"\0",
    "lone surrogate": b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}],"max_tokens":16}',
    "surrogate key": b'{"model":"m","\\ud800":1,' + _PING + b"}",
    "NUL in text": _messages([{"role": "user", "content": "a\0b"}]),
    "model is a list": _with(model=["m"]),
    "model is empty": _with(model=""),
    "model is long": _with(model="m" * 100_000),
    "model is a path": _with(model="../../etc/passwd"),
    "model has CRLF": _with(model="m\r\nX-Injected: 1"),
    "no messages": b'{"model":"m"}',
    "stream is text": _with(stream="yes"),
    "stream is 1": _with(stream=1),
    "stream options are text": _with(stream=True, stream_options="usage"),
    "include_usage is text": _with(stream=True, stream_options={"include_usage": "yes"}),
    "tools is text": _with(tools="f"),
    "tools of junk": _with(tools=[None, 1, [], {"function": None}]),
    "tags of junk": _with(tags=[{}]),
    "tags is text": _with(tags="legal"),
    "cache is a list": _with(cache=[]),
    "ttl is text": _with(cache={"ttl": "1"}),
    "ttl is negative": _with(cache={"ttl": -1}),
    "private is text": _with(private="no"),
    "response_format is text": _with(response_format="json"),
    "response_format of junk": _with(response_format={"type": "json_schema", "json_schema": 7}),
    "schema refers to itself": _with(
        response_format={"type": "json_schema", "json_schema": {"schema": {"$ref": "#", "anyOf": [{"$ref": "#"}]}}}
    ),
    "prediction is text": _with(prediction="x"),
    "prediction of junk": _with(prediction={"content": {"a": [1]}}),
    "modalities is text": _with(modalities="text"),
    "functions of junk": _with(functions=[None], function_call={"name": 1}),
    "ten thousand messages": _messages([{"role": "user", "content": "x"}] * 10_000),
    **{f"messages {value!r}": _messages(value) for value in _NO_MESSAGES},
    **{f"content {value!r}": _messages([{"role": "user", "content": value}]) for value in _NO_CONTENTS},
    **{f"role {value!r}": _messages([{"role": value, "content": "a"}]) for value in _NO_ROLES},
    "part without text": _part(type="text"),
    "text is a list": _part(type="text", text=["a"]),
    "type is a list": _part(type=["text"], text="a"),
    "image is text": _part(type="image_url", image_url="http://127.0.0.1/"),
    "image is null": _part(type="image_url", image_url=None),
    "image of junk": _part(type="image_url", image_url={"url": 7, "detail": []}),
    "image is a file": _part(type="image_url", image_url={"url": "file:///etc/passwd"}),
    "audio of junk": _part(type="input_audio", input_audio={"data": 1, "format": {}}),
    "audio is not base64": _part(type="input_audio", input_audio={"data": "%%%", "format": "wav"}),
    "file of junk": _part(type="file", file={"file_data": 7}),
    "unknown part": _part(type="hologram", hologram={"url": "x"}),
    "tool calls of junk": _messages([{"role": "assistant", "tool_calls": [None, {"function": 1}, {"function": {}}]}]),
    "tool calls is text": _messages([{"role": "assistant", "content": None, "tool_calls": "f"}]),
    "audio is a number": _messages([{"role": "assistant", "audio": 7}, {"role": "user", "content": "a"}]),
}


def malformed(lab: Lab) -> str:
    """A hundred malformed bodies, whole and for `auto`: 200 or a plain 4xx, and no call without a hold."""
    unheld: list[bytes] = []

    def reply(call: Call) -> None:
        held = sum(int(hold["amount_nanousd"]) for hold in gateway.holds() if hold["state"] == "open")
        good(prompt_tokens=1, completion_tokens=1)(call)
        if held < call.billed_nanousd:
            unheld.append(call.raw)

    upstream = lab.upstream(reply)
    gateway = lab.inside(upstream)
    key = gateway.key()
    statuses: dict[int, int] = {}
    for name, body in _BODIES.items():
        for raw in (body, body.replace(b'"m"', b'"auto"')):
            calls = len(upstream.calls)
            answer = gateway.ask(key, raw)
            statuses[answer.status] = statuses.get(answer.status, 0) + 1
            lab.check(answer.status == 200 or 400 <= answer.status < 500, f"{name}: answered {answer.status}")
            error = json.loads(answer.body).get("error")
            told = answer.status == 200 or set(error) == {"message", "type", "param", "code"}
            lab.check(told, f"{name}: the error has no form: {answer.body[:80]!r}")
            lab.check("x-injected" not in answer.headers, f"{name}: a header was injected")
            made = len(upstream.calls) - calls
            lab.check(made == (answer.status == 200), f"{name}: {answer.status} with {made} upstream calls")
    gateway.wait_quiet()
    lab.check(not unheld, f"{len(unheld)} upstream calls without a hold: {unheld[:1]}")
    counted = gateway.counted_nanousd(key)
    lab.check(counted == upstream.metered_nanousd, f"{counted} counts, {upstream.metered_nanousd} was billed")
    shares = ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items()))
    return f"{2 * len(_BODIES)} malformed bodies: {shares}"


# --- a provider with a bug --------------------------------------------------------------------------------------


class _Raising:
    """A provider that bills, and fails at one of its steps with an error that nobody expects."""

    name = "p0"

    def __init__(self, step: str, error: BaseException) -> None:
        self.step = step
        self.error = error
        self._events = iter([ROLE, word(), word()] if step == "after content" else [ROLE])

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        if self.step == "open":
            raise self.error
        return self

    async def whole(self) -> bytes:
        if self.step == "whole":
            raise self.error
        return json.dumps(completion("hi", usage(7, 5))).encode()

    async def next_events(self) -> list[bytes] | None:
        event = next(self._events, None)
        if event is None:
            raise self.error
        return [event]

    def close(self) -> None:
        if self.step == "close":
            raise self.error


_ERRORS: tuple[type[BaseException], ...] = (
    *(ValueError, KeyError, RuntimeError, MemoryError, RecursionError, OSError, AssertionError, StopIteration),
    *(ExceptionGroup, UnicodeDecodeError, asyncio.CancelledError, TimeoutError),
)


def _made(kind: type[BaseException]) -> BaseException:
    if kind is UnicodeDecodeError:
        return UnicodeDecodeError("utf-8", CANARY.encode(), 0, 1, CANARY)
    return ExceptionGroup(CANARY, [ValueError(CANARY)]) if kind is ExceptionGroup else kind(CANARY)


def unexpected_errors(lab: Lab) -> str:
    """A provider raises what nobody expects, at each step: 500 with the request id only, the money is resolved."""
    upstream = lab.upstream(good())
    tried = 0
    for step in ("open", "whole", "close", "before content", "after content"):
        provider = _Raising(step, ValueError(CANARY))
        gateway = lab.inside(upstream, providers={"p0": provider})
        for kind in _ERRORS:
            provider.__init__(step, _made(kind))  # type: ignore[misc]
            told, tried, key = f"{kind.__name__} at {step}", tried + 1, gateway.key()
            answer = gateway.chat(key, stream=step.endswith("content"))
            gateway.wait_quiet()
            lab.check(CANARY.encode() not in answer.body, f"{told}: the exception's text reached the client")
            if step == "after content":
                lab.check(not answer.looks_finished, f"{told}: looks finished")
            elif step != "close":
                lab.check(answer.status == 500 and answer.code == "internal_error", f"{told}: {answer.status}")
                named = answer.headers["x-request-id"].encode() in answer.body
                lab.check(named or not issubclass(kind, Exception), f"{told}: the error does not name the request")
            lab.check(len(gateway.rows(key)) == 1, f"{told}: {len(gateway.rows(key))} rows")
            lab.check(gateway.counted_nanousd(key) > 0, f"{told}: what may have been billed counts nothing")
        lab.check(CANARY not in gateway.log.getvalue(), f"{step}: the exception's text was logged")
        lab.check(CANARY not in repr(gateway.spans.records()), f"{step}: the exception's text is in a trace")
        gateway.errors.clear()
    return f"{tried} unexpected errors: 500 with the request id, or cut; one row each, what may be billed counts"


PROBES = (
    Probe("malformed-requests", "requests", malformed),
    Probe("unexpected-errors", "requests", unexpected_errors),
)
