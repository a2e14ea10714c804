"""Upstreams that answer with more than an answer: redirects, forged headers, a second answer, bodies for a browser."""

import gzip
import json
import re
import time
from collections.abc import Iterator

from probes import client
from probes.gateways import PROVIDER_KEY
from probes.lab import Lab, Probe
from probes.target import Target, shares
from probes.upstream import DONE, ROLE, STOP, Call, Reply, completion, good, report, wait_until, word
from probes.wire import CLOSE, Heard, post, say, sized

MARK = "FORGEDVALUE"
OPERATORS_TEXT = "OPERATORSTEXT0001"

OUR_HEADERS = re.compile(
    r"content-type|content-length|transfer-encoding|connection|cache-control|x-accel-buffering|retry-after|age|"
    r"x-request-id|x-should-retry|x-gateway-[a-z-]+|x-ratelimit-(?:limit|remaining|reset)-(?:requests|tokens)"
)
_REQUEST_ID = re.compile(r"req_[0-9a-f]{32}")


_FRESH = 160
"""Deployments of the one upstream: one that has refused a key or named a wait is left alone for a while."""

_DEPLOYMENT = """
[[deployments]]
name = "x{}"
provider = "p0"
model = "probed"
price = {{ input = 1, output = 4 }}
"""


def target_of_answers(lab: Lab) -> Target:
    return lab.target(more="".join(_DEPLOYMENT.format(number) for number in range(_FRESH)))


def _asked(target: Target, *, stream: bool, key: str | None = None, fresh: int | None = None) -> Heard:
    """One chat, of which every byte of the answer is seen; of a deployment that nobody has asked before."""
    model = "m" if fresh is None else f"x{fresh}"
    raw = json.dumps(client.chat(stream=stream, model=model)).encode()
    return say(target.address, post(key or target.key, sized(raw), CLOSE, body=raw))


# --- redirects --------------------------------------------------------------------------------------------------


def redirects(lab: Lab) -> str:
    """Every redirect to every kind of place, whole and streamed: 502 or 503, never followed; the key goes nowhere."""
    target, canary = target_of_answers(lab), lab.upstream(good("from the canary"))
    base = canary.url.removesuffix("/v1")
    places = (
        canary.url,
        f"{base}{client.CHAT_PATH}",
        base.removeprefix("http:"),
        "/v1/elsewhere",
        "elsewhere",
        "",
        "file:///etc",
    )
    tried = 0
    for status in (300, 301, 302, 303, 304, 305, 306, 307, 308, 399):
        for place in places:
            target.upstream.script(_redirecting(status, place))
            calls = len(target.upstream.calls)
            said = _asked(target, stream=bool(tried % 2))
            tried += 1
            told = f"{status} to {place!r}"
            lab.check(said.statuses in ((502,), (503,)), f"{told}: answered {list(said.statuses)}")
            lab.check(
                b"ocation:" not in said.raw and base.encode() not in said.raw, f"{told}: the client was told where"
            )
            made = len(target.upstream.calls) - calls
            lab.check(made == 1, f"{told}: {made} calls")
    lab.check(not canary.connections, f"{canary.connections} connections to the canary")
    target.upstream.script(good())
    after = _asked(target, stream=False).statuses
    lab.check(after == (200,), f"after all redirects answered {list(after)}")
    target.untouched(calls=tried + 1)
    return f"{tried} redirects: 502 or 503, none followed"


def _redirecting(status: int, place: str) -> Reply:
    headers = [("location", place), ("refresh", f"0; url={place}"), ("content-location", place)]
    document = b"" if status == 304 else json.dumps(completion("moved", None)).encode()

    def reply(call: Call) -> None:
        if status == 304:
            call.send(f"HTTP/1.1 304 Not Modified\r\nlocation: {place}\r\n\r\n".encode())
        else:
            call.answer(document, status=status, headers=headers)

    return reply


# --- headers ----------------------------------------------------------------------------------------------------

_FORGED_LINES = (
    *("Set-Cookie: a={}", "Set-Cookie2: a={}", "X-Foo: {}", "Keep-Alive: timeout=9, {}", "Proxy-Authenticate: {}"),
    *("Server: {}/1.0", "X-Ratelimit-Remaining-Requests: {}", "X-Request-Id: {}", "X-Gateway-Cost-Usd: {}"),
    *(
        "X-Gateway-Exit: {}",
        "X-Gateway-Deployment: {}",
        "X-Gateway-Tier: {}",
        "X-Gateway-Route: {}",
        "X-Gateway-New: {}",
    ),
    *("Location: http://{}/", "Refresh: 0; url={}", "WWW-Authenticate: Basic realm={}", "Link: <{}>; rel=preload"),
    *(
        "Access-Control-Allow-Origin: {}",
        "Content-Security-Policy: {}",
        "Alt-Svc: h3={}",
        "Strict-Transport-Security: {}",
    ),
    *(
        "Clear-Site-Data: {}",
        "Content-Disposition: attachment; filename={}",
        "Content-Type: text/html; x={}",
        "Via: {}",
    ),
    *("X-Should-Retry: {}", "Retry-After-Ms: {}", "Age: {}", "Cache-Control: {}", "Upgrade: {}", "X-Powered-By: {}"),
    *("Content-Language: {}", "ETag: {}", "Warning: {}", "Trailer: {}", "Server-Timing: {}", "Set-Login: {}"),
)
_MALFORMED = {
    "folded": "X-Fold: a\r\n {}",
    "a bare CR": "X-CR: a\rInjected: {}",
    "a bare LF": "X-LF: a\nInjected: {}",
    "NUL": "X-NUL: a\0{}",
    "a space before the colon": "X-Space : {}",
    "no colon": "{}",
    "an empty name": ": {}",
    "two lengths": "Content-Length: 999\r\nX-Y: {}",
    "a length beside chunks": "Transfer-Encoding: chunked\r\nX-Y: {}",
    "an unknown coding": "Transfer-Encoding: {}",
    "a content coding": "Content-Encoding: gzip\r\nX-Y: {}",
}
"""Between a good head and a good body whose own length is stated."""


def hostile_headers(lab: Lab) -> str:
    """Cookies, hop-by-hop and gateway headers, folds, bare CRs of an upstream: only what we write reaches a client."""
    target = target_of_answers(lab)
    statuses: list[int] = []
    kinds = ((200, False), (200, True), (400, False), (401, False), (429, False), (500, False))
    for fresh, (status, stream) in enumerate(kinds):
        target.upstream.script(_with_lines(status, "\r\n".join(_FORGED_LINES), stream=stream))
        said = _asked(target, stream=stream, fresh=fresh)
        statuses += said.statuses
        _check_headers(lab, f"{status}{', streamed' if stream else ''}", said)
        wanted = {200: 200, 400: 400, 429: 429}.get(status, 503)
        lab.check(said.statuses in ((wanted,), (502,)), f"{status}: answered {list(said.statuses)}")
    for name, line in _MALFORMED.items():
        target.upstream.script(_with_lines(200, line, stream=False))
        said = _asked(target, stream=False)
        statuses += said.statuses
        _check_headers(lab, name, said)
        lab.check(said.statuses in ((200,), (502,), (503,)), f"{name}: answered {list(said.statuses)}")
    return f"{len(_FORGED_LINES)} forged headers, {len(_MALFORMED)} malformed ones: {shares(statuses)}"


def _with_lines(status: int, lines: str, *, stream: bool) -> Reply:
    """An answer whose head has these lines, each with the mark as its value."""
    forged = lines.replace("{}", MARK).encode("latin-1") + b"\r\nConnection: X-Foo, close\r\n"

    def reply(call: Call) -> None:
        call.close()
        if stream:
            call.bill()
            call.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + forged)
            call.send(b"transfer-encoding: chunked\r\n\r\n")
            call.event(ROLE, word(), STOP, report({"prompt_tokens": 7, "completion_tokens": 5}), DONE)
            return call.end_stream()
        error = {"error": {"message": "no", "type": "x", "code": None, "param": None}}
        raw = json.dumps(completion("hi", call.bill()) if status == 200 else error).encode()
        call.send(b"HTTP/1.1 %d %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, MARK.encode(), forged, len(raw), raw))
        return None

    return reply


def _check_headers(lab: Lab, told: str, said: Heard) -> None:
    """Every line of the head is ours, once, and its value too."""
    head = said.raw.partition(b"\r\n\r\n")[0].decode("latin-1")
    names = [line.partition(":")[0] for line in head.split("\r\n")[1:]]
    foreign = [name for name in names if not OUR_HEADERS.fullmatch(name)]
    lab.check(not foreign, f"{told}: {foreign} reached the client")
    lab.check(len(set(names)) == len(names), f"{told}: a header came twice: {sorted(names)}")
    lab.check(MARK not in head and "\n" not in head.replace("\r\n", ""), f"{told}: a forged value reached the client")
    for answer in said.answers:
        lab.check(answer.whole, f"{told}: the answer is not as long as it says")
        named = _REQUEST_ID.fullmatch(answer.headers.get("x-request-id", ""))
        lab.check(named is not None, f"{told}: the request has no name of ours")


# --- a second answer --------------------------------------------------------------------------------------------

_POISON = json.dumps(completion("POISON", {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2})).encode()
_SECOND = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(_POISON), _POISON)


def split_answers(lab: Lab) -> str:
    """A second answer behind the first, before it, or while the connection waits: no later request is given it."""
    target = target_of_answers(lab)
    other = target.gateway.key(tenant="globex")
    kinds = dict(_splits())
    for number, (name, reply) in enumerate(kinds.items()):
        for stream in (False, True):
            target.upstream.script(reply, good(f"own-{number}"))
            _asked(target, stream=name.endswith("stream"))
            wait_until(lambda: target.upstream.calls[-1].is_over, "the upstream has not said all")
            said = _asked(target, stream=stream, key=other)
            lab.check(b"POISON" not in said.raw, f"{name}: another tenant was given the second answer")
            mine = said.statuses == (200,) and f"own-{number}".encode() in said.raw
            lab.check(mine, f"{name}: another tenant was answered {list(said.statuses)}: {said.raw[-60:]!r}")
    return f"{len(kinds)} kinds of second answers, each twice: none reached anybody"


def _splits() -> Iterator[tuple[str, Reply]]:
    def whole(behind: bytes, before: bytes = b"", *, delay_s: float = 0.0, length: int | None = None) -> Reply:
        def reply(call: Call) -> None:
            raw = json.dumps(completion("first", call.bill())).encode()
            stated = len(raw) if length is None else length
            call.send(
                before + b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % stated
            )
            call.send(raw + (b"" if delay_s else behind))
            if delay_s:
                time.sleep(delay_s)
                call.send(behind)

        return reply

    def streamed(behind: bytes) -> Reply:
        def reply(call: Call) -> None:
            call.bill()
            call.begin_stream()
            call.event(ROLE, word(), STOP, report({"prompt_tokens": 7, "completion_tokens": 5}), DONE)
            call.send(b"0\r\n\r\n" + behind)

        return reply

    yield "behind a whole answer", whole(_SECOND)
    yield "while it is idle", whole(_SECOND, delay_s=0.005)
    yield "behind an interim answer", whole(_SECOND, b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
    yield "half of one", whole(_SECOND[:40])
    yield "junk", whole(b"junk junk junk\r\n\r\n")
    yield "behind a length of nothing", whole(_SECOND, length=0)
    yield "behind a length too short", whole(_SECOND, length=10)
    yield "behind a stream", streamed(_SECOND)
    yield "a chunk behind a stream", streamed(b"5\r\nhello\r\n0\r\n\r\n" + _SECOND)
    yield "two answers behind a stream", streamed(_SECOND * 2)


# --- bodies of errors -------------------------------------------------------------------------------------------

_SCRIPT = b"<script>alert(1)</script>"
_BODIES: dict[str, bytes] = {
    "HTML": b"<html><body>" + _SCRIPT + b"</body></html>",
    "the provider's key": f"Incorrect API key provided: {PROVIDER_KEY} {OPERATORS_TEXT}".encode(),
    "the key in JSON": json.dumps(
        {"error": {"message": f"{PROVIDER_KEY} {OPERATORS_TEXT}", "code": PROVIDER_KEY}}
    ).encode(),
    "an address": json.dumps(
        {"error": {"message": "http://10.0.0.8:9001/internal?token=sk-abcdefgh12345678"}}
    ).encode(),
    "control characters": json.dumps({"error": {"message": "a\r\nX-Injected: 1\x1b[31m\u2028\u202e\x00"}}).encode(),
    "not UTF-8": b'{"error": {"message": "\xff\xfe"}}',
    "half a pair": b'{"error": {"message": "\\ud800"}}',
    "types": b'{"error": {"message": [1], "type": {}, "code": [], "param": 7}}',
    "an error of text": b'{"error": "no"}',
    "a list": b"[[[[]]]]",
    "a number": b"1",
    "deep": b'{"error":' * 100_000,
    "megabytes": b'{"error": {"message": "' + b"m" * (3 << 20) + b'"}}',
    "gzip": gzip.compress(_SCRIPT),
    "empty": b"",
    "NULs": b"\0" * 1000,
}
_STATUSES = (400, 401, 403, 404, 422, 429, 500, 503)


def error_bodies(lab: Lab) -> str:
    """HTML, keys, control characters and megabytes as an upstream's error: a small JSON error of ours, and no key."""
    target = target_of_answers(lab)
    cases = [
        (name, status) for name, body in _BODIES.items() for status in (_STATUSES if len(body) < 999 else (400, 500))
    ]
    cases.append(("HTML", 200))
    told: list[int] = []
    for fresh, (name, status) in enumerate(cases, _FRESH - len(cases)):
        target.upstream.script(_failing_with(status, _BODIES[name]))
        said = _asked(target, stream=status == 500, fresh=fresh)
        told += said.statuses
        _check_error(lab, f"{name} as {status}", said, status)
    made = len(target.upstream.calls)
    lab.check(made == len(cases), f"{made} calls of {len(cases)}")
    return f"{len(cases)} bodies of errors: {shares(told)}"


def _failing_with(status: int, body: bytes) -> Reply:
    lines = b"content-type: text/html\r\n" + (b"content-encoding: gzip\r\n" if body[:2] == b"\x1f\x8b" else b"")

    def reply(call: Call) -> None:
        call.close()
        call.send(b"HTTP/1.1 %d %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, b"No", lines, len(body), body))

    return reply


def _check_error(lab: Lab, told: str, said: Heard, status: int) -> None:
    if len(said.answers) != 1:
        return lab.check(False, f"{told}: answered {list(said.statuses)}")
    [answer] = said.answers
    lab.check(400 <= answer.status < 600, f"{told}: answered {answer.status}")
    lab.check(answer.headers.get("content-type") == "application/json", f"{told}: {answer.headers.get('content-type')}")
    lab.check(PROVIDER_KEY.encode() not in said.raw, f"{told}: the provider's key reached the client")
    lab.check(len(answer.body) < 4096, f"{told}: an error of {len(answer.body)} bytes")
    if status in (401, 403, 500, 503):
        lab.check(OPERATORS_TEXT.encode() not in said.raw, f"{told}: the operator's business reached the client")
        lab.check(_SCRIPT not in said.raw, f"{told}: a script reached the client")
    error = json.loads(answer.body)["error"]
    formed = set(error) == {"message", "type", "param", "code"} and isinstance(error["message"], str)
    lab.check(formed, f"{told}: the error has no form: {answer.body[:80]!r}")
    return None


PROBES = (
    Probe("redirects", "upstream-transport", redirects),
    Probe("hostile-headers", "upstream-transport", hostile_headers),
    Probe("split-answers", "upstream-transport", split_answers),
    Probe("error-bodies", "upstream-transport", error_bodies),
)
