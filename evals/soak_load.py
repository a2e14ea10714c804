"""The bytes of a soak's requests: built once for each form, numbered for each request.

A request's number is its tag, which its row keeps, and its trace id, which its upstream calls carry: so a call, a hold
and a client's answer can be held against each other one by one.
"""

import json
from collections.abc import Mapping
from typing import Any

from evals.soak_plan import Arrival, Kind

_HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer %b\r\n%b"
    b"content-type: application/json\r\nx-gateway-tags: n%%d\r\ntraceparent: 00-%%032x-%%016x-01\r\n"
    b"content-length: %d\r\n\r\n%b"
)
_MODELS = b"GET /v1/models HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer %b\r\n%b\r\n"
_TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}
_STREAMS = frozenset({Kind.STREAM, Kind.LEAVES_MIDWAY, Kind.SLOW_READER})
_EITHER = frozenset({Kind.HIT, Kind.LEAVES_BEFORE, Kind.SPENDER, Kind.BLOCKABLE})
_KEYS = {Kind.BROKE: "broke", Kind.SPENDER: "spender", Kind.LIMITED: "limited", Kind.BLOCKABLE: "blockable"}
"""Whose key asks; the other kinds ask with that of their tenant."""

NO_KEY = "sk-gw-none-none"


class Wires:
    """keys  raw keys by name: `tenant0`, `tenant1` and those of _KEYS."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._keys = keys
        self._forms: dict[tuple[object, ...], bytes] = {}

    def of(self, arrival: Arrival) -> bytes:
        """The request that is due."""
        streams = arrival.kind in _STREAMS or (arrival.kind in _EITHER and arrival.number % 2 == 0)
        form = (arrival.kind, arrival.tenant, arrival.question, arrival.keeps_alive, streams)
        if form not in self._forms:
            self._forms[form] = self._form(arrival, streams=streams)
        wire = self._forms[form]
        return wire if arrival.kind is Kind.MODELS else numbered(wire, arrival.number)

    def _form(self, arrival: Arrival, *, streams: bool) -> bytes:
        kind = arrival.kind
        key = NO_KEY if kind is Kind.NO_KEY else self._keys[_KEYS.get(kind, f"tenant{arrival.tenant}")]
        close = b"" if arrival.keeps_alive else b"connection: close\r\n"
        if kind is Kind.MODELS:
            return _MODELS % (key.encode(), close)
        fields: dict[str, Any] = {"stream": streams}
        match kind:
            case Kind.HIT:
                fields |= {"messages": _say(f"question {arrival.question}"), "temperature": 0}
            case Kind.TOOLS:
                fields["tools"] = [_TOOL]
            case Kind.SLOW_READER:
                fields |= {"user": "wide", "max_tokens": 80_000}
        return chat(key, "m", close, **fields)


def chat(key: str, model: str, headers: bytes = b"", /, **fields: object) -> bytes:
    """The form of a chat request."""
    fields = {"model": model, "messages": _say("What is the weather like?"), "max_tokens": 16, **fields}
    body = json.dumps(fields, separators=(",", ":"))
    return _HEAD % (key.encode(), headers, len(body), body.encode())


def numbered(form: bytes, number: int) -> bytes:
    """A request of this form."""
    return form % (number, number, number)


def _say(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]
