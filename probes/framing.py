"""Requests whose end two readers see in different places: what one takes for a body is the other's next request."""

import json

from probes import client
from probes.client import CHAT_BODY
from probes.lab import Lab, Probe
from probes.target import HIDDEN, SMUGGLED, Target
from probes.wire import CHUNKED, CLOSE, bearer, chunks, get, head, post, sized

LIMITS = {"max_body_bytes": 65_536, "header_timeout_s": 10, "body_timeout_s": 10, "idle_timeout_s": 20}
"""Of the target of everything that is about bytes: small enough to be tried."""

_IN_CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)
_ENDS_AT_ONCE = b"0\r\n\r\n" + HIDDEN


NARROW = """
[[tenants]]
name = "narrow"
models = ["d0"]
"""
"""A tenant that may not ask for `m`, though that leads to the same deployment."""


def target_of_bytes(lab: Lab) -> Target:
    """The target that all probes of framing, heads, sizes, credentials and rights share."""
    return lab.target(more=lab.server(**LIMITS) + NARROW)


# --- two framings -----------------------------------------------------------------------------------------------


def two_framings(lab: Lab) -> str:
    """Content-Length beside chunked, in every order and form: one refusal, and what is hidden is never a request."""
    target = target_of_bytes(lab)
    key = target.key
    whole = sized(_ENDS_AT_ONCE)
    attacks = {
        "CL.TE": post(key, whole, CHUNKED, body=_ENDS_AT_ONCE),
        "TE.CL": post(key, "Content-Length: 4", CHUNKED, body=_IN_CHUNKS),
        "TE first, CL.TE": post(key, CHUNKED, whole, body=_ENDS_AT_ONCE),
        "TE first, TE.CL": post(key, CHUNKED, "Content-Length: 4", body=_IN_CHUNKS),
        "CL of nothing": post(key, "Content-Length: 0", CHUNKED, body=_ENDS_AT_ONCE),
        "both agree": post(key, sized(chunks(CHAT_BODY)), CHUNKED, body=chunks(CHAT_BODY)),
        "identity": post(key, whole, "Transfer-Encoding: identity", body=_ENDS_AT_ONCE),
        "TE twice": post(key, whole, CHUNKED, CHUNKED, body=_ENDS_AT_ONCE),
        "CL twice": post(key, whole, whole, CHUNKED, body=_ENDS_AT_ONCE),
        "GET": head(f"GET {SMUGGLED}-not HTTP/1.1", "Host: gw", *bearer(key), whole, CHUNKED) + _ENDS_AT_ONCE,
        "without a key": post(None, whole, CHUNKED, body=_ENDS_AT_ONCE),
        "HTTP/1.0": post(key, whole, CHUNKED, body=_ENDS_AT_ONCE, first=f"POST {client.CHAT_PATH} HTTP/1.0"),
        "health": head("GET /healthz HTTP/1.1", "Host: gw", whole, CHUNKED) + _ENDS_AT_ONCE,
    }
    seen = target.refused(attacks, 400, 501)
    target.served({"a length": post(key, sized(CHAT_BODY), CLOSE, body=CHAT_BODY)})
    target.untouched(calls=1)
    return f"{len(attacks)} requests with two framings: {seen}"


_DISGUISES = {
    "another word": "Transfer-Encoding: xchunked",
    "a list before": "Transfer-Encoding: identity, chunked",
    "a list behind": "Transfer-Encoding: chunked, identity",
    "gzip": "Transfer-Encoding: gzip, chunked",
    "twice in a list": "Transfer-Encoding: chunked, chunked",
    "two lines": "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "two lines that differ": "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    "empty": "Transfer-Encoding:",
    "a comma": "Transfer-Encoding: ,chunked",
    "quoted": 'Transfer-Encoding: "chunked"',
    "a parameter": "Transfer-Encoding: chunked;q=1",
    "space before the colon": "Transfer-Encoding : chunked",
    "tab before the colon": "Transfer-Encoding\t: chunked",
    "vertical tab": "Transfer-Encoding: \x0bchunked",
    "form feed": "Transfer-Encoding: chunked\x0c",
    "no-break space": "Transfer-Encoding: \xa0chunked",
    "NUL": "Transfer-Encoding: chunked\x00",
    "NUL in the name": "Transfer-Enc\x00oding: chunked",
    "bare CR": "Transfer-Encoding: chunked\rX: y",
    "bare LF": "X: y\nTransfer-Encoding: chunked",
    "folded": "Transfer-Encoding:\r\n chunked",
    "folded into another": "X: y\r\n Transfer-Encoding: chunked",
    "underscore": "Transfer_Encoding: chunked",
    "long s": "Tran\xc5\xbffer-Encoding: chunked",
}


def coding_disguises(lab: Lab) -> str:
    """Two dozen disguises of `Transfer-Encoding: chunked`, alone and beside a length: each is refused as malformed."""
    target = target_of_bytes(lab)
    key = target.key
    attacks = {}
    for name, line in _DISGUISES.items():
        attacks[f"{name}, beside a length"] = post(key, sized(_ENDS_AT_ONCE), line, body=_ENDS_AT_ONCE)
        attacks[f"{name}, alone"] = post(key, line, body=chunks(CHAT_BODY))
    seen = target.refused(attacks, 400, 501)
    honest = {
        "chunks": post(key, CHUNKED, CLOSE, body=chunks(CHAT_BODY[:9], CHAT_BODY[9:])),
        "upper case": post(key, "TRANSFER-ENCODING: CHUNKED", CLOSE, body=chunks(CHAT_BODY)),
        "blanks around": post(key, "Transfer-Encoding:\t chunked \t", CLOSE, body=chunks(CHAT_BODY)),
    }
    target.served(honest)
    target.untouched(calls=len(honest))
    return f"{len(attacks)} disguised codings: {seen}"


# --- lengths ----------------------------------------------------------------------------------------------------


def repeated_lengths(lab: Lab) -> str:
    """More than one Content-Length, equal or not, in lines, lists and look-alikes: one refusal, nothing behind it."""
    target = target_of_bytes(lab)
    key, hidden = target.key, sized(HIDDEN)
    attacks = {
        "differ": post(key, "Content-Length: 4", "Content-Length: 0", body=b"ABCD"),
        "differ, reversed": post(key, "Content-Length: 0", hidden, body=HIDDEN),
        "equal": post(key, sized(CHAT_BODY), sized(CHAT_BODY), body=CHAT_BODY),
        "three": post(key, "Content-Length: 0", hidden, hidden, body=HIDDEN),
        "another case": post(key, "CONTENT-LENGTH: 0", hidden, body=HIDDEN),
        "equal list": post(key, "Content-Length: 4, 4", body=b"ABCD"),
        "unequal list": post(key, f"Content-Length: 0, {len(HIDDEN)}", body=HIDDEN),
        "underscore twin": post(key, "Content_Length: 0", hidden, body=HIDDEN),
        "underscore alone": post(key, f"Content_Length: {len(CHAT_BODY)}", body=CHAT_BODY),
        "folded": post(key, f"Content-Length: 0\r\n {len(HIDDEN)}", body=HIDDEN),
        "first line of another": post(key, f"X: y\nContent-Length: 0\r\n{hidden}", body=HIDDEN),
    }
    seen = target.refused(attacks, 400)
    target.untouched()
    return f"{len(attacks)} requests with lengths that differ or repeat: {seen}"


_ODD_LENGTHS = (
    *("", " ", "+4", "-1", "-0", "1_0", "0x4", "4.0", "1e1", "4 4", "4;x", "4,", ",4", "abc", '"4"', "4h", "4\x00"),
    *("\xd9\xa4", "\xef\xbc\x94", "\xb2", "\x0b4", "4\x0c", "0" * 30 + "4", "9" * 30, "18446744073709551620"),
)
_PLAIN_LENGTHS = ("00000000", "4294967300")
"""Decimal digits, so that they may also be read: as nothing, and as too much."""


def odd_lengths(lab: Lab) -> str:
    """Lengths that int() reads and others do not, signs, underscores, foreign digits, overflows: answered with 400."""
    target = target_of_bytes(lab)
    key = target.key
    odd = {repr(value): post(key, f"Content-Length: {value}", body=b"ABCD" + HIDDEN) for value in _ODD_LENGTHS}
    seen = target.refused(odd, 400)
    plain = {value: post(key, f"Content-Length: {value}", CLOSE, body=HIDDEN) for value in _PLAIN_LENGTHS}
    target.refused(plain, 400, 413)
    target.served({"four zeros": post(key, f"Content-Length: 0000{len(CHAT_BODY)}", CLOSE, body=CHAT_BODY)})
    target.untouched(calls=1)
    return f"{len(odd) + len(plain)} odd lengths: {seen}"


def _chunked(key: str, body: bytes) -> bytes:
    return post(key, CHUNKED, body=body)


def _size(size: bytes, *, end: bytes = b"\r\n") -> bytes:
    """A body of one chunk whose size is written so, and the request that a lenient reader finds behind it."""
    return size + b"\r\n" + CHAT_BODY + end + b"0\r\n\r\n" + HIDDEN


def odd_chunks(lab: Lab) -> str:
    """Sizes, extensions, line ends and trailers of chunks that readers disagree on: refused, never read leniently."""
    target = target_of_bytes(lab)
    key, size = target.key, b"%x" % len(CHAT_BODY)
    bodies = {
        "plus": _size(b"+" + size),
        "minus": _size(b"-" + size),
        "0x": _size(b"0x" + size),
        "underscore": _size(size[:1] + b"_" + size[1:]),
        "space before": _size(b" " + size),
        "space behind": _size(size + b" "),
        "tab": _size(size + b"\t;a"),
        "empty": _size(b""),
        "only an extension": _size(b";a=b"),
        "no hex": _size(b"zz"),
        "arabic digits": _size("٤".encode()),
        "17 digits": _size(b"0" * 16 + size),
        "overflow of 32 bits": _size(b"1" + b"0" * (8 - len(size)) + size),
        "overflow of 64 bits": _size(b"1" + b"0" * (16 - len(size)) + size),
        "quoted": _size(b'"' + size + b'"'),
        "bare LF behind the size": size + b"\n" + CHAT_BODY + b"\r\n0\r\n\r\n",
        "bare CR behind the size": size + b"\r" + CHAT_BODY + b"\r\n0\r\n\r\n",
        "LF in an extension": _size(size + b";a\nb"),
        "CR in an extension": _size(size + b";a\rb"),
        "NUL in an extension": _size(size + b";a\x00b"),
        "a long extension": _size(size + b";" + b"a" * 20_000),
        "no end of the chunk": size + b"\r\n" + CHAT_BODY + b"0\r\n\r\n" + HIDDEN,
        "LF ends the chunk": _size(size, end=b"\n"),
        "CR ends the chunk": _size(size, end=b"\r"),
        "two other bytes end the chunk": _size(size, end=b"XX"),
        "LF ends the last chunk": size + b"\r\n" + CHAT_BODY + b"\r\n0\n\n" + HIDDEN,
        "a trailer without a colon": size + b"\r\n" + CHAT_BODY + b"\r\n0\r\ntrailer\r\n\r\n",
        "a trailer with a space": size + b"\r\n" + CHAT_BODY + b"\r\n0\r\nA : b\r\n\r\n",
        "a folded trailer": size + b"\r\n" + CHAT_BODY + b"\r\n0\r\nA: b\r\n c\r\n\r\n",
        "LF in a trailer": size + b"\r\n" + CHAT_BODY + b"\r\n0\r\nA: b\nC: d\r\n\r\n",
        "many trailers": size + b"\r\n" + CHAT_BODY + b"\r\n0\r\n" + b"A: b\r\n" * 10_000 + b"\r\n",
    }
    seen = target.refused({name: _chunked(key, body) for name, body in bodies.items()}, 400, 413)
    authorised = b"%b\r\n%b\r\n0\r\nAuthorization: Bearer %b\r\nContent-Length: 3\r\n\r\n" % (
        size,
        CHAT_BODY,
        key.encode(),
    )
    target.refused({"a key in a trailer": post(None, CHUNKED, CLOSE, body=authorised)}, 401)
    framed = b"%b\r\n%b\r\n0\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n" % (size, CHAT_BODY)
    [said] = target.hear({"a length in a trailer": post(key, CHUNKED, CLOSE, body=framed)}).values()
    lab.check(said.statuses in ((400,), (200,)), f"a length in a trailer: answered {list(said.statuses)}")
    honest_calls = said.statuses.count(200)
    honest = {
        "an extension": b'%b;a="b c"\r\n%b\r\n0;last\r\n\r\n' % (size, CHAT_BODY),
        "upper case and zeros": b"000%b\r\n%b\r\n00\r\n\r\n" % (size.upper(), CHAT_BODY),
        "trailers": b"%b\r\n%b\r\n0\r\nX-Checksum: 3\r\nServer-Timing: a\r\n\r\n" % (size, CHAT_BODY),
    }
    target.served({name: post(key, CHUNKED, CLOSE, body=body) for name, body in honest.items()})
    target.untouched(calls=len(honest) + honest_calls)
    return f"{len(bodies)} odd chunked bodies: {seen}"


# --- what stands behind an early error ----------------------------------------------------------------------------


def early_errors(lab: Lab) -> str:
    """Every kind of early error before a body that holds a request: what is hidden in the body is never answered."""
    target = target_of_bytes(lab)
    key, length = target.key, sized(HIDDEN)
    missing = get("/healthz", None)
    expecting = "Expect: 100-continue"
    attacks = {
        "401": (401, post(None, length, body=HIDDEN)),
        "401, chunked": (401, post(None, CHUNKED, body=chunks(HIDDEN))),
        "404": (404, post(key, length, body=HIDDEN, first="POST /nothing HTTP/1.1")),
        "404 below /v1": (404, post(key, length, body=HIDDEN, first="POST /v1/nothing HTTP/1.1")),
        "405": (405, post(key, length, body=HIDDEN, first=f"PUT {client.CHAT_PATH} HTTP/1.1")),
        "405 of the models": (405, post(key, length, body=HIDDEN, first="DELETE /v1/models HTTP/1.1")),
        "preflight": (405, post(None, length, body=HIDDEN, first=f"OPTIONS {client.CHAT_PATH} HTTP/1.1")),
        "411": (411, post(key)),
        "413": (413, post(key, "Content-Length: 999999") + HIDDEN),
        "417": (417, post(key, length, "Expect: banana", body=HIDDEN)),
        "400 of the body": (400, post(key, length, body=HIDDEN)),
        "400 of a header": (400, post(key, length, "x-gateway-private: maybe", body=HIDDEN)),
        "404 of the model": (404, _of_json(key, client.chat(model=HIDDEN.decode("latin-1")[:200]))),
        "a GET with a body": (200, post(key, length, body=HIDDEN, first="GET /v1/models HTTP/1.1")),
        "health with a body": (200, post(None, length, body=HIDDEN, first="GET /healthz HTTP/1.1")),
        "expecting, 401": (401, post(None, length, expecting, body=HIDDEN)),
        "expecting, 404": (404, post(key, length, expecting, body=HIDDEN, first="POST /v1/nothing HTTP/1.1")),
        "control": (404, post(key, length, body=HIDDEN, first="POST /control HTTP/1.1")),
    }
    behind = {name: raw + missing for name, (_, raw) in attacks.items()}
    goes_on = 0
    for name, said in target.hear(behind).items():
        statuses = [status for status in said.statuses if status != 100]
        goes_on += len(statuses) == 2
        first = attacks[name][0]
        target.check(statuses in ([first], [first, 200]), f"{name}: answered {statuses}")
        target.check(said.closed, f"{name}: the connection is left open")
    target.untouched()
    return (
        f"{len(attacks)} early errors: {goes_on} connections go on behind the body, the others end; nothing hidden ran"
    )


def _of_json(key: str, document: object) -> bytes:
    raw = json.dumps(document).encode()
    return post(key, sized(raw), body=raw)


PROBES = (
    Probe("two-framings", "framing-conflict", two_framings),
    Probe("coding-disguises", "framing-conflict", coding_disguises),
    Probe("early-errors", "framing-conflict", early_errors),
    Probe("repeated-lengths", "framing-length", repeated_lengths),
    Probe("odd-lengths", "framing-length", odd_lengths),
    Probe("odd-chunks", "framing-length", odd_chunks),
)
