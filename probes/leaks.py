"""Secrets: keys are planted wherever a key can turn up, and then looked for in everything that the gateway says."""

import contextlib
import http.client
import json
from typing import Any

from probes import client
from probes.gateways import PROVIDER_KEY
from probes.lab import Lab, Probe
from probes.upstream import ROLE, Call, Upstream, good, wait_until, word

FORGED_KEY = "sk-gw-Forged00-FORGEDCANARY00112233445566778899aabbccddeeff"
PROMPT = "PROMPTCANARY4711"


def nowhere(lab: Lab) -> str:
    """Keys in every odd place, and upstreams that quote what they were sent: in no error, log, trace or file, ever."""
    upstream = lab.upstream(_quoting(400), _quoting(401), _quoting(404), _quoting(429), _quoting(500), _quoting(302))
    gateway = lab.outside(upstream, more="[cache]\nexact_ttl_s = 0\n")
    key = gateway.key()
    said = [gateway.chat(key, f"{PROMPT} {key}").body for _ in range(6)]
    upstream.script(_quoting_stream, good())
    said += [gateway.chat(key, stream=True).body]
    said += [_odd(gateway.address, method, path, body, headers) for method, path, body, headers in _odd_places(key)]
    upstream.script(good())
    last = gateway.chat(key, f"{PROMPT} last")
    said += [last.body]
    traced = f'"{last.headers["x-request-id"]}"'.encode()
    wait_until(lambda: traced in gateway.everything_written(), "there is no trace to look into")
    written = gateway.everything_written()
    public, secret = key.split("-")[2:]
    secrets = {"the client's key": secret, "the provider's key": PROVIDER_KEY, "a forged key": "FORGEDCANARY"}
    for name, needle in secrets.items():
        lab.check(needle.encode() not in written, f"{name} was written: {_around(written, needle)!r}")
    lab.check(PROMPT.encode() not in written, f"a prompt was written: {_around(written, PROMPT)!r}")
    for answer in said:
        for name, needle in secrets.items():
            lab.check(needle.encode() not in answer, f"{name} is in an answer: {_around(answer, needle)!r}")
    _check_what_left(lab, upstream, secret)
    return f"{len(said)} answers and {len(written)} written bytes: no key of {public}, of a provider, or forged"


def _quoting(status: int) -> Any:
    """An error that quotes all that came, in every field and a header."""

    def reply(call: Call) -> None:
        quote = f"Incorrect API key provided: {call.headers.get('authorization')} ({PROVIDER_KEY})"
        error = {"message": quote, "type": quote, "code": quote, "param": call.headers.get("authorization")}
        call.answer({"error": error}, status=status, headers=[("x-debug", quote), ("location", f"/?k={PROVIDER_KEY}")])

    return reply


def _quoting_stream(call: Call) -> None:
    call.bill()
    call.begin_stream()
    error = {"message": f"bad {call.headers.get('authorization')}", "type": PROVIDER_KEY, "code": PROVIDER_KEY}
    call.event(ROLE, word(), json.dumps({"error": error}).encode())
    call.end_stream()


def _odd_places(key: str) -> list[tuple[str, str, bytes, list[tuple[str, str]]]]:
    """Method, path, body and headers of requests with a key where none belongs."""
    chat, bearer = client.CHAT_BODY, ("Authorization", f"Bearer {key}")
    places: list[tuple[str, str, bytes, list[tuple[str, str]]]] = [
        ("POST", f"{client.CHAT_PATH}?api_key={key}", chat, []),
        ("POST", f"{client.CHAT_PATH}?api_key={key}", chat, [bearer]),
        ("POST", client.CHAT_PATH, chat, [("Authorization", f"Basic {key}")]),
        ("POST", client.CHAT_PATH, chat, [("Authorization", f"Bearer {FORGED_KEY}")]),
        ("POST", client.CHAT_PATH, chat, [bearer, ("x-api-key", FORGED_KEY)]),
        ("POST", client.CHAT_PATH, chat, [("Authorization", f"Bearer {key} {key}")]),
        ("POST", client.CHAT_PATH, chat, [("Cookie", f"key={key}"), ("X-Debug-Key", key)]),
        ("POST", client.CHAT_PATH, chat, [bearer, ("traceparent", f"00-{key}-x-01"), ("x-gateway-timeout-s", key)]),
        ("POST", client.CHAT_PATH, json.dumps(client.chat(model=key)).encode(), [bearer]),
        ("GET", f"/v1/{key}", b"", [bearer]),
        ("GET", f"/v1/models/{key}", b"", [bearer]),
        ("POST", client.CHAT_PATH, chat, [bearer, ("x-request-id", key)]),
        ("POST", client.CHAT_PATH, f'{{"key": "{key}", '.encode(), [bearer]),
        ("POST", client.CHAT_PATH, json.dumps(client.chat(max_tokens=key)).encode(), [bearer]),
        (
            "POST",
            client.CHAT_PATH,
            json.dumps(client.chat() | {key: 1, "api_key": key, "user": key}).encode(),
            [bearer],
        ),
        ("POST", client.CHAT_PATH, f'{{"{key}": 1, "{key}": 2}}'.encode(), [bearer]),
        ("POST", "/control", json.dumps({"command": key, "arguments": {}}).encode(), [bearer]),
        ("GET", "/metrics", b"", [bearer]),
        ("GET", "/readyz", b"", [bearer]),
        (key, client.CHAT_PATH, chat, [bearer]),
    ]
    return places


def _odd(address: tuple[str, int], method: str, path: str, body: bytes, headers: list[tuple[str, str]]) -> bytes:
    """The whole answer, head and all, to a request whose every part is odd."""
    connection = http.client.HTTPConnection(*address, timeout=client.PATIENCE_S)
    try:
        connection.putrequest(method, path)
        for name, value in headers:
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        with contextlib.suppress(http.client.HTTPException, ConnectionError):
            response = connection.getresponse()
            return str(response.headers).encode() + response.read()
        return b""
    finally:
        connection.close()


def _around(text: bytes, needle: str) -> bytes:
    at = max(text.find(needle.encode()), 0)
    return text[max(at - 60, 0) : at + 12]


def _check_what_left(lab: Lab, upstream: Upstream, secret: str) -> None:
    """The upstream is sent its own key, and of the client's only what the client wrote into its prompt."""
    for call in upstream.calls:
        heads = json.dumps(dict(call.headers))
        lab.check(secret not in heads and "FORGED" not in heads, "a client's key went to the upstream in a header")
        authorised = call.headers.get("authorization") == f"Bearer {PROVIDER_KEY}"
        lab.check(authorised, f"the upstream was sent {call.headers.get('authorization')!r}")
        lab.check("api_key" not in call.body, "`api_key` was passed on")


PROBES = (Probe("secrets-nowhere", "secrets", nowhere),)
