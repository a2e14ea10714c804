"""Requests that are too large, or say that they will be: refused before they are read, and memory stays bounded."""

import json
import re

from probes import client
from probes.client import CHAT_BODY
from probes.framing import LIMITS, target_of_bytes
from probes.gateways import ROOT
from probes.lab import Lab, Probe
from probes.target import HIDDEN, Target, shares
from probes.wire import CHUNKED, CLOSE, Wire, chunks, get, head, post, sized

TEN_GIB = "Content-Length: 10737418240"
EXPECT = "Expect: 100-continue"
AT_ONCE_S = LIMITS["body_timeout_s"] / 2
"""Whoever is refused before its body has not waited for it."""

GROWTH_MIB = 24
FLOOD_BYTES = 48 << 20
_INTERIM = b"HTTP/1.1 100"


def expectations(lab: Lab) -> str:
    """Asking for 100 Continue with bodies too large, or without a right: refused at once, never told to go on."""
    target = target_of_bytes(lab)
    key, length = target.key, sized(CHAT_BODY)
    blocked = target.gateway.key()
    target.gateway.command("keys.block", id=blocked.split("-")[2])
    attacks = {
        "ten GiB": ((413,), post(key, TEN_GIB, EXPECT)),
        "ten GiB without a key": ((401, 413), post(None, TEN_GIB, EXPECT)),
        "ten GiB with a blocked key": ((401, 413), post(blocked, TEN_GIB, EXPECT)),
        "another expectation": ((417, 400), post(key, length, "Expect: banana", body=CHAT_BODY)),
        "two expectations": ((417, 400), post(key, length, "Expect: 100-continue, banana", body=CHAT_BODY)),
        "no key": ((401,), post(None, length, EXPECT)),
        "no key, in chunks": ((401,), post(None, CHUNKED, EXPECT)),
        "a blocked key": ((401,), post(blocked, length, EXPECT)),
        "no such path": ((404,), post(key, length, EXPECT, first="POST /v1/nothing HTTP/1.1")),
        "no such path, no key": ((404, 401), post(None, length, EXPECT, first="POST /nothing HTTP/1.1")),
        "another method": ((405,), post(key, length, EXPECT, first=f"PUT {client.CHAT_PATH} HTTP/1.1")),
        "a bad header": ((400,), post(key, length, EXPECT, "x-gateway-timeout-s: never")),
        "two lengths": ((400,), post(key, length, length, EXPECT)),
        "no body": ((411,), post(key, EXPECT, CLOSE)),
    }
    heard = target.hear({name: raw for name, (_, raw) in attacks.items()}, patience_s=AT_ONCE_S)
    for name, said in heard.items():
        target.check(_INTERIM not in said.raw, f"{name}: told to send its body")
        target.check_refusal(name, said, *attacks[name][0])
        target.check(said.took_s < AT_ONCE_S, f"{name}: took {said.took_s:.1f} s")
    _served_after_asking(target)
    early = post(key, length, EXPECT, CLOSE, body=CHAT_BODY)
    old = post(key, length, EXPECT, body=CHAT_BODY, first=f"POST {client.CHAT_PATH} HTTP/1.0")
    target.served({"its body came by itself": early, "HTTP/1.0": old})
    target.untouched(calls=3)
    return f"{len(attacks)} expectations: {shares([status for said in heard.values() for status in said.statuses])}"


def _served_after_asking(target: Target) -> None:
    """A client with every right is told to go on, and then served."""
    with Wire(target.address) as wire:
        wire.send(post(target.key, sized(CHAT_BODY), EXPECT, CLOSE))
        target.check(wire.hear_some().startswith(_INTERIM), "a client with every right was not told to go on")
        wire.send(CHAT_BODY)
        target.check(wire.hear().statuses == (200,), "a client that was told to go on was not served")


def oversized_heads(lab: Lab) -> str:
    """Lines, fields, targets and heads beyond the published limits, up to megabytes: 414 or 431, memory bounded."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    documented = re.search(r"request head \| (\d+) KiB, (\d+) fields, (\d+) KiB a line", readme)
    if documented is None:
        lab.check(False, "the limits of a request head are not documented")
        return ""
    head_bytes, fields, line_bytes = int(documented[1]) << 10, int(documented[2]), int(documented[3]) << 10
    target = target_of_bytes(lab)
    target.gateway.forget_peak()
    before = target.gateway.rss_bytes()
    key, long = target.key, "a" * line_bytes
    attacks = {
        "90 headers of 60,000": _fields("a" * 60_000, 90),
        "200 small headers": _fields("1", 200),
        "one field too many": _fields("1", fields - 1),
        "a long line": _fields(long, 1),
        "a long name": head("GET /healthz HTTP/1.1", "Host: gw", f"{long}: x"),
        "a head too large by little": _fields("a" * (line_bytes - 100), head_bytes // line_bytes + 1),
        "a head without an end": _fields("a" * 1000, 5000)[:-2],
        "a long target": get("/" + long, key),
        "a target without an end": b"GET /" + b"a" * (1 << 20),
        "a long key": get("/v1/models", "A" * line_bytes),
        "a method without an end": b"G" * (1 << 20),
        "line ends": b"\r\n" * (1 << 20),
        "NULs": b"\x00" * (1 << 20),
    }
    seen = target.refused(attacks, 414, 431, 400)
    grown_mib = (target.gateway.peak_rss_bytes() - before) / (1 << 20)
    lab.check(grown_mib <= GROWTH_MIB, f"memory grew by {grown_mib:.1f} MiB")
    target.served(
        {"as many as may be": _fields("1", fields - 2), "as long as may be": _fields("a" * (line_bytes - 6), 1)}
    )
    target.untouched()
    return f"{len(attacks)} heads beyond {head_bytes} bytes, {fields} fields, {line_bytes} a line: {seen}"


def _fields(value: str, count: int) -> bytes:
    return head("GET /healthz HTTP/1.1", "Host: gw", CLOSE, *(f"X-{n}: {value}" for n in range(count)))


def oversized_bodies(lab: Lab) -> str:
    """Bodies beyond max_body_bytes, said or not said before: 413 before they are read, and memory stays bounded."""
    target = target_of_bytes(lab)
    key, most = target.key, int(LIMITS["max_body_bytes"])
    target.gateway.forget_peak()
    before = target.gateway.rss_bytes()
    too_long = json.dumps(client.chat("x" * most)).encode()
    attacks = {
        "one byte": post(key, f"Content-Length: {most + 1}"),
        "ten GiB": post(key, TEN_GIB),
        "all digits": post(key, "Content-Length: 999999999999"),
        "sent all the same": post(key, sized(too_long), body=too_long),
        "in chunks": post(key, CHUNKED, body=chunks(*[b"x" * 4096] * (most // 4096 + 1))),
        "a chunk that is too large": post(key, CHUNKED, body=b"%x\r\n" % (most + 1)),
        "the largest chunk": post(key, CHUNKED, body=b"ffffffff\r\n"),
        "many small chunks": post(key, CHUNKED, body=b"1\r\nx\r\n" * (most + 1)),
        "a flood": post(key, TEN_GIB, body=b"x" * FLOOD_BYTES),
        "a flood in chunks": post(key, CHUNKED, body=b"10000\r\n%b\r\n" % (b"x" * 65_536) * (FLOOD_BYTES // 65_536)),
        "behind a hidden request": post(key, f"Content-Length: {most + 1}", body=HIDDEN),
    }
    seen = target.refused(attacks, 413)
    without_key = {"a flood without a key": post(None, CHUNKED, body=b"10000\r\n%b\r\n" % (b"x" * 65_536) * 64)}
    target.refused(without_key, 401)
    grown_mib = (target.gateway.peak_rss_bytes() - before) / (1 << 20)
    lab.check(grown_mib <= GROWTH_MIB, f"memory grew by {grown_mib:.1f} MiB")
    full = CHAT_BODY[:-1] + b" " * (most - len(CHAT_BODY)) + CHAT_BODY[-1:]
    honest = {
        "as large as may be": post(key, sized(full), CLOSE, body=full),
        "the same in chunks": post(key, CHUNKED, CLOSE, body=chunks(full[:-9], full[-9:])),
    }
    target.served(honest)
    target.untouched(calls=len(honest))
    return f"{len(attacks) + 1} bodies beyond {most} bytes: {seen}; memory grew by {grown_mib:.1f} MiB"


PROBES = (
    Probe("expectations", "size-limits", expectations),
    Probe("oversized-heads", "size-limits", oversized_heads),
    Probe("oversized-bodies", "size-limits", oversized_bodies),
)
