"""Keys that are none, or stand where no key belongs: one refusal for all, that repeats nothing; nothing is spent."""

import hashlib
import http.client
import time
from contextlib import closing

from probes import client
from probes.client import CHAT_BODY
from probes.framing import target_of_bytes
from probes.lab import Lab, Probe
from probes.target import Target
from probes.wire import CHUNKED, CLOSE, Heard, chunks, head, post, sized

FORGED = "sk-gw-Forged000000-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg"
EXPIRES_S = 1
MODELS = "/v1/models"


def hostile_credentials(lab: Lab) -> str:
    """SQL, control bytes, near misses, digests, dead keys: one 401, always in the same words, that repeats nothing."""
    target = target_of_bytes(lab)
    key = target.key
    expired = str(target.gateway.command("keys.create", tenant="acme", expires_in_s=EXPIRES_S)["key"])
    expires_s = time.monotonic() + EXPIRES_S
    dead = _dead_keys(target)
    digest = hashlib.sha256(key.encode()).hexdigest()
    prefix, name, public, secret = key.split("-")
    values = {
        "SQL": "Bearer ' OR 1=1; --",
        "a union": "Bearer x' UNION SELECT key_hash FROM keys--",
        "SQL in the id": f"Bearer {prefix}-{name}-' OR '1'='1-{secret}",
        "nothing behind the blank": "Bearer ",
        "only the scheme": "Bearer",
        "empty": "",
        "Basic": f"Basic {key}",
        "no scheme": key,
        "another scheme": f"Token {key}",
        "two keys": f"Bearer {key} {key}",
        "a list": f"Bearer {key}, Bearer {key}",
        "one character more": f"Bearer {key}x",
        "one character less": f"Bearer {key[:-1]}",
        "the first 20": f"Bearer {key[:20]}",
        "only the id": f"Bearer {prefix}-{name}-{public}-",
        "only the secret": f"Bearer {secret}",
        "another secret": f"Bearer {prefix}-{name}-{public}-{FORGED.split('-')[3]}",
        "another id": f"Bearer {prefix}-{name}-Forged000000-{secret}",
        "another case": f"Bearer {key.swapcase()}",
        "the stored digest": f"Bearer {digest}",
        "the digest as a secret": f"Bearer {prefix}-{name}-{public}-{digest}",
        "a forged key": f"Bearer {FORGED}",
        "foreign letters": "Bearer \xe9\xe9\xe9",
        "a key and foreign letters": f"Bearer {key}\xe9",
        "8,000 letters": "Bearer " + "A" * 8000,
        "a wildcard": f"Bearer {prefix}-{name}-{public}-*",
        "a template": "Bearer ${jndi:ldap://x/}{{7*7}}",
        "quoted": f'Bearer "{key}"',
        "null": "Bearer null",
        **{name: f"bearer {dead_key}" for name, dead_key in dead.items()},
    }
    attacks = {name: _chat(f"Authorization: {value}") for name, value in values.items()}
    attacks |= {f"{name}, as x-api-key": _chat(f"x-api-key: {value}") for name, value in values.items() if value != key}
    attacks["control bytes"] = _chat(f"Authorization: Bearer {key}\x01")
    attacks["a line end"] = _chat(f"Authorization: Bearer \r\n {key}")
    attacks["too long"] = _chat("Authorization: Bearer " + "A" * 9000)
    heard = target.hear(attacks)
    time.sleep(max(expires_s - time.monotonic(), 0) + 0.01)
    heard["expired"] = target.hear({"expired": _chat(f"Authorization: Bearer {expired}")})["expired"]
    bodies = _check_refusals(target, heard, {key, secret, digest, FORGED, expired, *dead.values()})
    lab.check(len(bodies) == 1, f"{len(bodies)} different bodies of 401: {list(bodies)[:2]}")
    ways = ("Authorization: Bearer ", "authorization: bearer ", "AUTHORIZATION: BEARER  ", "x-api-key: ", "api-key: ")
    target.served({way: _chat(f"{way}{key}") for way in ways})
    target.untouched(calls=len(ways))
    return f"{len(heard)} credentials that are none: one 401 for all"


def _chat(*lines: str) -> bytes:
    return post(None, sized(CHAT_BODY), CLOSE, *lines, body=CHAT_BODY)


def _dead_keys(target: Target) -> dict[str, str]:
    """A key of each kind that once was good."""
    dead = {}
    for command in ("keys.block", "keys.delete", "keys.rotate"):
        key = target.gateway.key()
        target.gateway.command(command, id=key.split("-")[2])
        dead[command] = key
    return dead


def _check_refusals(target: Target, heard: dict[str, Heard], secrets: set[str]) -> set[bytes]:
    """Each is one 401, or a plain refusal of HTTP; returns the bodies of the former."""
    bodies = set()
    for name, said in heard.items():
        target.check_refusal(name, said, 401, 400, 431)
        bodies |= {answer.body for answer in said.answers if answer.status == 401}
        for secret in secrets:
            target.check(secret.encode() not in said.raw, f"{name}: the answer repeats a credential")
        for word in (b"sqlite", b"keys", b"python", b"UNION", b"jndi", b"AAAA"):
            target.check(word not in said.raw, f"{name}: the answer says {word.decode()}")
    return bodies


def keys_elsewhere(lab: Lab) -> str:
    """A good key in the URL, a cookie, the body, a trailer or another header is none, and nor are two that differ."""
    target = target_of_bytes(lab)
    key, other = target.key, target.gateway.key()
    length = sized(CHAT_BODY)
    queries = ("key", "api_key", "api-key", "access_token", "token", "authorization", "Authorization", "x-api-key")
    places = {
        **{f"?{name}=": _on_path(f"{client.CHAT_PATH}?{name}={key}") for name in queries},
        "?Bearer": _on_path(f"{client.CHAT_PATH}?Authorization=Bearer%20{key}"),
        "a path": _on_path(f"/{key}{client.CHAT_PATH}"),
        "a path behind": _on_path(f"{client.CHAT_PATH}/{key}"),
        "matrix parameters": _on_path(f"{client.CHAT_PATH};key={key}"),
        "a cookie": _chat(f"Cookie: key={key}; Authorization=Bearer {key}; api-key={key}"),
        "Proxy-Authorization": _chat(f"Proxy-Authorization: Bearer {key}"),
        "X-Authorization": _chat(f"X-Authorization: Bearer {key}"),
        "X-Forwarded-Authorization": _chat(f"X-Forwarded-Authorization: Bearer {key}"),
        "X-Original-Authorization": _chat(f"X-Original-Authorization: Bearer {key}"),
        "x-goog-api-key": _chat(f"x-goog-api-key: {key}"),
        "x-gateway-key": _chat(f"x-gateway-key: {key}", f"x-gateway-api-key: {key}"),
        "Referer": _chat(f"Referer: http://gw/?api_key={key}"),
        "the body": _body(b'{"api_key": "%b", ' % key.encode() + CHAT_BODY[1:]),
        "a trailer": post(None, CHUNKED, CLOSE, "Trailer: Authorization", body=_with_trailer(key)),
        "a user in Host": head(f"GET {MODELS} HTTP/1.1", f"Host: {key}@gw", CLOSE),
        "two that differ": _chat(f"Authorization: Bearer {key}", f"x-api-key: {other}"),
        "two that differ, api-key": _chat(f"x-api-key: {key}", f"api-key: {other}"),
        "a good one and a forged": _chat(f"Authorization: Bearer {key}", f"x-api-key: {FORGED}"),
        "a good one and another scheme": _chat("Authorization: Basic eDp5", f"x-api-key: {key}"),
        "twice in lines": _chat(f"x-api-key: {key}", f"x-api-key: {key}"),
        "in a list": _chat(f"x-api-key: {key}, {key}"),
    }
    seen = target.refused(places, 401, 400, 404)
    same = post(key, length, CLOSE, f"x-api-key: {key}", f"api-key: {key}", body=CHAT_BODY)
    target.served({"the same thrice": same})
    target.untouched(calls=1)
    return f"{len(places)} keys where none belongs: {seen}"


def _on_path(path: str) -> bytes:
    return post(None, sized(CHAT_BODY), CLOSE, body=CHAT_BODY, first=f"POST {path} HTTP/1.1")


def _body(raw: bytes) -> bytes:
    return post(None, sized(raw), CLOSE, body=raw)


def _with_trailer(key: str) -> bytes:
    return chunks(CHAT_BODY)[:-2] + f"Authorization: Bearer {key}\r\nx-api-key: {key}\r\n\r\n".encode()


def revoked_at_once(lab: Lab) -> str:
    """A key that is blocked, rotated or deleted is refused at the next request, on a connection that it had opened."""
    target = target_of_bytes(lab)
    for command, undo in (("keys.block", "keys.unblock"), ("keys.rotate", None), ("keys.delete", None)):
        key = target.gateway.key()
        key_id = key.split("-")[2]
        with closing(http.client.HTTPConnection(*target.address, timeout=client.PATIENCE_S)) as connection:
            first = _ask_on(connection, key)
            made = target.gateway.command(command, id=key_id)
            lab.check(first == 200, f"{command}: before it answered {first}")
            refused = _ask_on(connection, key)
            lab.check(refused == 401, f"{command}: the next request on its connection answered {refused}")
        successor = str(made["key"]) if command == "keys.rotate" else key
        if undo:
            target.gateway.command(undo, id=key_id)
        status = target.gateway.ask(successor, method="GET", path=MODELS).status
        lab.check(status == (401 if command == "keys.delete" else 200), f"{command}: afterwards {status}")
    target.untouched()
    return "blocked, rotated, deleted: 401 at the next request of the same connection; unblocked and rotated keys work"


def _ask_on(connection: http.client.HTTPConnection, key: str) -> int:
    """The status of one request on a connection that stays open."""
    connection.request("GET", MODELS, headers={"Authorization": f"Bearer {key}"})
    response = connection.getresponse()
    response.read()
    return response.status


PROBES = (
    Probe("hostile-credentials", "authentication", hostile_credentials),
    Probe("keys-elsewhere", "authentication", keys_elsewhere),
    Probe("revoked-at-once", "authentication", revoked_at_once),
)
