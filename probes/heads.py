"""Request heads that no honest client writes: junk that hides a header, another grammar, heads that are cut."""

import struct

from probes import client
from probes.client import CHAT_BODY
from probes.framing import target_of_bytes
from probes.lab import Lab, Probe
from probes.target import HIDDEN, SMUGGLED
from probes.wire import CHUNKED, CLOSE, Ending, chunks, get, head, post, sized

MODELS = "/v1/models"
CANARY_HOST = "127.0.0.1:9"


def hidden_headers(lab: Lab) -> str:
    """A line that is no header, before those that matter: 400, never a 401 that shows they were lost."""
    target = target_of_bytes(lab)
    key, length = target.key, sized(HIDDEN)
    junk = {
        "space before the colon": "X : y",
        "tab before the colon": "X\t: y",
        "no colon": "garbage",
        "empty name": ": x",
        "only a colon": ":",
        "name is no token": "X(y): x",
        "quoted name": '"X": y',
        "space in the name": "X Y: z",
        "foreign letters in the name": "X\xe9: y",
        "NUL in the name": "X\x00: y",
        "NUL in the value": "X: a\x00b",
        "bell in the value": "X: a\x07b",
        "DEL in the value": "X: a\x7fb",
        "bare CR": "X: a\rContent-Length: 0",
        "bare LF": "X: a\nContent-Length: 0",
        "folded with a space": "X: a\r\n b",
        "folded with a tab": "X: a\r\n\tContent-Length: 0",
        "a blank line of spaces": " ",
        "a second request line": f"GET {SMUGGLED} HTTP/1.1",
        "a status line": "HTTP/1.1 200 OK",
    }
    attacks = {}
    for name, line in junk.items():
        attacks[f"{name}, first"] = head(
            f"POST {client.CHAT_PATH} HTTP/1.1", line, "Host: gw", f"Authorization: Bearer {key}", length
        )
        attacks[f"{name}, in between"] = post(key, line, length)
        attacks[f"{name}, last"] = post(key, length, line)
    attacks["space before the colon of the length"] = post(key, f"Content-Length : {len(HIDDEN)}")
    attacks["a space before the first header"] = head(
        f"POST {client.CHAT_PATH} HTTP/1.1", " Host: gw", "Host: gw", length
    )
    attacks["LF ends the lines"] = post(key, length).replace(b"\r\n", b"\n")
    attacks["LF ends the head"] = post(key, length)[:-2] + b"\n"
    seen = target.refused({name: raw + HIDDEN for name, raw in attacks.items()}, 400)
    target.served(
        {"many headers": post(key, sized(CHAT_BODY), CLOSE, *(f"X-{n}: a b\tc\xff" for n in range(40)), body=CHAT_BODY)}
    )
    target.untouched(calls=1)
    return f"{len(attacks)} heads with a line that is none: {seen}"


_HELLO = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"


def request_lines(lab: Lab) -> str:
    """First lines of other versions, protocols and grammars: one refusal in HTTP/1.1, and nothing is guessed."""
    target = target_of_bytes(lab)
    path = f"{MODELS}?x={SMUGGLED[1:]}-not"
    lines = {
        "HTTP/0.9": f"GET {MODELS}",
        "HTTP/1.10": f"GET {MODELS} HTTP/1.10",
        "HTTP/1.2": f"GET {MODELS} HTTP/1.2",
        "HTTP/2.0": f"GET {MODELS} HTTP/2.0",
        "HTTP/01.1": f"GET {MODELS} HTTP/01.1",
        "HTTP/1.1.1": f"GET {MODELS} HTTP/1.1.1",
        "HTTP/+1.1": f"GET {MODELS} HTTP/+1.1",
        "http/1.1": f"GET {MODELS} http/1.1",
        "ICY/1.1": f"GET {MODELS} ICY/1.1",
        "no version": f"GET {MODELS} ",
        "a word too many": f"GET {MODELS} HTTP/1.1 x",
        "space at the end": f"GET {MODELS} HTTP/1.1 ",
        "two spaces": f"GET  {MODELS} HTTP/1.1",
        "tabs": f"GET\t{MODELS}\tHTTP/1.1",
        "space before": f" GET {MODELS} HTTP/1.1",
        "an empty line before": f"\r\nGET {MODELS} HTTP/1.1",
        "space in the target": "GET /v1/mod els HTTP/1.1",
        "lower case": f"get {MODELS} HTTP/1.1",
        "a method with a slash": f"GE/T {MODELS} HTTP/1.1",
        "a long method": f"{'G' * 9000} {MODELS} HTTP/1.1",
        "no method": f"{MODELS} HTTP/1.1",
        "absolute form": f"GET http://{CANARY_HOST}{path} HTTP/1.1",
        "absolute form of a file": "GET file:///etc/passwd HTTP/1.1",
        "authority form": f"CONNECT {CANARY_HOST} HTTP/1.1",
        "asterisk form": "OPTIONS * HTTP/1.1",
        "no slash": "GET v1/models HTTP/1.1",
        "a fragment": f"GET {MODELS}#x HTTP/1.1",
        "foreign bytes": "GET /v1/mod\xe9ls HTTP/1.1",
        "NUL": "GET /v1/models\x00 HTTP/1.1",
        "DEL": "GET /v1/models\x7f HTTP/1.1",
        "bare CR": f"GET {MODELS}\r HTTP/1.1",
        "bare LF": f"GET {MODELS}\n HTTP/1.1",
        "the preface of HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM",
    }
    attacks = {name: head(line, "Host: gw", f"Authorization: Bearer {target.key}") for name, line in lines.items()}
    attacks["a hello of TLS"] = _HELLO
    attacks["a hello of SSH"] = b"SSH-2.0-OpenSSH_9.2\r\n"
    attacks["bytes"] = bytes(range(256))
    attacks["a length of Postgres"] = struct.pack("!ii", 8, 80877103)
    seen = target.refused(attacks, 400, 404, 405, 414, 501, 505)
    target.served({"GET": get(MODELS, target.key), "a query": get(path, target.key)})
    target.untouched()
    return f"{len(attacks)} odd first lines: {seen}"


def repeated_headers(lab: Lab) -> str:
    """No Host, two of them, odd ones, and twice what has one value: refused, never one of the two taken."""
    target = target_of_bytes(lab)
    key = target.key
    line, auth, other = f"GET {MODELS} HTTP/1.1", f"Authorization: Bearer {key}", "Authorization: Bearer sk-gw-x"
    hosts = {
        "none": [],
        "two": ["Host: gw", f"Host: {CANARY_HOST}"],
        "two equal ones": ["Host: gw", "Host: gw"],
        "empty": ["Host:"],
        "two in a list": ["Host: gw, other"],
        "a user": ["Host: user@gw"],
        "a path": ["Host: gw/v1"],
        "a space": ["Host: g w"],
        "a port of letters": ["Host: gw:http"],
        "a scheme": ["Host: http://gw"],
        "markup": ["Host: <script>"],
        "a quote": ['Host: gw"'],
        "an open bracket": ["Host: [::1"],
    }
    attacks = {f"Host, {name}": head(line, *given, auth) for name, given in hosts.items()}
    for name in ("Content-Type: text/plain", "Content-Type: application/json", "Expect: 100-continue"):
        attacks[f"{name}, twice"] = post(key, name, name, sized(CHAT_BODY))
    seen = target.refused(attacks, 400)
    doubles = {
        "the key twice": head(line, "Host: gw", auth, auth),
        "another key first": head(line, "Host: gw", other, auth),
        "another key behind": head(line, "Host: gw", auth, other),
        "an empty one first": head(line, "Host: gw", "Authorization:", auth),
        "twice as x-api-key": head(line, "Host: gw", f"x-api-key: {key}", "x-api-key: sk-gw-x"),
        "an underscore": head(line, "Host: gw", f"x_api_key: {key}"),
    }
    target.refused({name: raw[:-2] + b"Connection: close\r\n\r\n" for name, raw in doubles.items()}, 401, 400)
    target.served({"IPv6": get(MODELS, key).replace(b"Host: gw", b"Host: [::1]:80")})
    target.untouched()
    return (
        f"{len(attacks)} heads without one Host or with one thing twice: {seen}; {len(doubles)} doubled keys: refused"
    )


# --- cut off ----------------------------------------------------------------------------------------------------


def cut_heads(lab: Lab) -> str:
    """A head that ends at each of its bytes, with a FIN and with a reset: no answer or a 400, and nothing ran."""
    target = target_of_bytes(lab)
    raws = {
        "GET": head(f"GET {MODELS} HTTP/1.1", "Host: gw", f"Authorization: Bearer {target.key}"),
        "POST": post(target.key, "Content-Length: 2"),
        "without a key": head("GET /healthz HTTP/1.1", "Host: gw"),
    }
    cuts = {f"{name} cut at {at}": raw[:at] for name, raw in raws.items() for at in range(1, len(raw))}
    seen = target.unanswered(cuts, Ending.HALF_CLOSES)
    target.hear(dict(list(cuts.items())[::7]), Ending.RESETS)
    target.served({"whole": get(MODELS, target.key)})
    target.untouched()
    return f"{len(cuts)} cut heads: {seen}"


def cut_bodies(lab: Lab) -> str:
    """A body that ends early, sized and in chunks, with a FIN and with a reset: it is not sent on and costs nothing."""
    target = target_of_bytes(lab)
    empty_object = b"{}" + b" " * 98
    whole = {
        "sized": (post(target.key, sized(CHAT_BODY)), CHAT_BODY),
        "chunked": (post(target.key, CHUNKED), chunks(CHAT_BODY[:20], CHAT_BODY[20:])),
        "valid JSON so far": (post(target.key, f"Content-Length: {len(CHAT_BODY) + 1}"), CHAT_BODY + b" "),
        "valid and empty": (post(target.key, sized(empty_object)), empty_object),
    }
    cuts = {f"{name} cut at {at}": raw + body[:at] for name, (raw, body) in whole.items() for at in range(len(body))}
    seen = target.unanswered(cuts, Ending.HALF_CLOSES)
    target.hear(dict(list(cuts.items())[::7]), Ending.RESETS)
    target.served({"whole": post(target.key, sized(CHAT_BODY), CLOSE, body=CHAT_BODY)})
    target.untouched(calls=1)
    rows = target.gateway.rows(target.key)
    billed = [row["exit"] for row in rows if row["cost_nanousd"]]
    lab.check(len(billed) == 1, f"{len(billed)} rows with a cost, of one whole request")
    return f"{len(cuts)} cut bodies: {seen}"


PROBES = (
    Probe("hidden-headers", "header-grammar", hidden_headers),
    Probe("request-lines", "header-grammar", request_lines),
    Probe("repeated-headers", "header-grammar", repeated_headers),
    Probe("cut-heads", "truncation", cut_heads),
    Probe("cut-bodies", "truncation", cut_bodies),
)
