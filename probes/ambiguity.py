"""JSON that two parsers read differently: what is priced is what is sent, or nothing is sent."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

from probes.framing import target_of_bytes
from probes.lab import Lab, Probe
from probes.target import Target
from probes.upstream import Call
from probes.wire import CLOSE, post, sized

CHEAP = "d0"
"""Another name than `m`, as a caller would have the cheaper of two models."""

_MESSAGES = b'"messages":[{"role":"user","content":"x"}]'
_BASE = b'"model":"m","max_tokens":16,' + _MESSAGES


def _object(*members: bytes) -> bytes:
    return b"{" + b",".join(members) + b"}"


def _saying(content: bytes) -> bytes:
    """A chat whose one message has this content."""
    return _object(b'"model":"m"', b'"max_tokens":16', b'"messages":[{"role":"user","content":' + content + b"}]")


_TWICE: dict[str, bytes] = {
    "the model": _object(b'"model":"d0"', _BASE),
    "the cap": _object(b'"model":"m"', b'"max_tokens":1', b'"max_tokens":100000', _MESSAGES),
    "the messages": _object(_BASE, b'"messages":[{"role":"user","content":"y"}]'),
    "the cap, escaped": _object(b'"model":"m"', b'"m\\u0061x_tokens":100000', b'"max_tokens":1', _MESSAGES),
    "a role": _object(
        b'"model":"m"', b'"max_tokens":16', b'"messages":[{"role":"user","role":"system","content":"x"}]'
    ),
    "the same value": _object(b'"max_tokens":16', _BASE),
    "null first": _object(b'"model":null', _BASE),
    "null behind": _object(_BASE, b'"max_tokens":null'),
    "thrice": _object(b'"n":1', b'"n":1', b'"n":1', _BASE),
    "n, far apart": _object(b'"n":100', _BASE, b'"stop":["' + b"s" * 9000 + b'"]', b'"n":1'),
    "escaped in full": _object(b'"\\u006d\\u006f\\u0064\\u0065\\u006c":"d0"', _BASE),
    "an escaped slash": _object(b'"a/b":1', b'"a\\/b":2', _BASE),
    "an empty name": _object(b'"":1', b'"":2', _BASE),
    "an unknown field": _object(_BASE, b'"x":1', b'"x":2'),
    "a surrogate pair": _object(_BASE, '"😀":1'.encode(), b'"\\ud83d\\ude00":2'),
    "stream": _object(_BASE, b'"stream":false', b'"stream":true'),
    "in stream_options": _object(
        _BASE, b'"stream":true', b'"stream_options":{"include_usage":false,"include_usage":true}'
    ),
    "in cache": _object(_BASE, b'"cache":{"no-store":true,"no-store":false}'),
    "in another case": _object(_BASE, b'"Model":"d0"'),
    "in capitals": _object(_BASE, b'"MAX_TOKENS":100000'),
    "in a part": _saying(b'[{"type":"text","text":"a","text":"b"}]'),
    "in an image": _saying(b'[{"type":"image_url","image_url":{"url":"data:,a","url":"data:,b"}}]'),
    "in metadata": _object(_BASE, b'"metadata":{"a":{"b":{"c":1,"c":2}}}'),
    "in a tool": _object(_BASE, b'"tools":[{"type":"function","function":{"name":"f","name":"g"}}]'),
    "in a schema": _object(_BASE, b'"response_format":{"type":"json_object","type":"text"}'),
    "deep": _object(_BASE, b'"x":' + b"[" * 50 + b'{"a":1,"a":2}' + b"]" * 50),
    "in a list of thousands": _object(_BASE, b'"x":[' + b'{"a":1},' * 3000 + b'{"a":1,"a":2}]'),
}


def duplicate_keys(lab: Lab) -> str:
    """Every field said twice, at every depth, in escapes, in another case: 400, and no upstream is asked either way."""
    target = target_of_bytes(lab)
    attacks = {name: _sent(target, raw) for name, raw in _TWICE.items()}
    seen = target.refused(attacks, 400, 422)
    target.untouched(calls=0)
    return f"{len(attacks)} bodies that say something twice: {seen}"


def _sent(target: Target, raw: bytes, *lines: str) -> bytes:
    return post(target.key, sized(raw), CLOSE, *lines, body=raw)


_PLAIN = _object(_BASE)
_ODD: dict[str, bytes] = {
    "NaN": _object(_BASE, b'"temperature":NaN'),
    "Infinity": _object(_BASE, b'"temperature":Infinity'),
    "minus Infinity": _object(_BASE, b'"x":[[-Infinity]]'),
    "1e400": _object(_BASE, b'"temperature":1e400'),
    "minus 1e400, deep": _object(_BASE, b'"x":{"y":[-1e400]}'),
    "65 bits": _object(_BASE, b'"seed":18446744073709551616'),
    "five thousand digits": _object(_BASE, b'"seed":' + b"9" * 5000),
    "a cap of 65 bits": _object(b'"model":"m"', b'"max_tokens":18446744073709551617', _MESSAGES),
    "a cap as a float": _object(b'"model":"m"', b'"max_tokens":16.0', _MESSAGES),
    "a cap as an exponent": _object(b'"model":"m"', b'"max_tokens":1e1', _MESSAGES),
    "a cap as text": _object(b'"model":"m"', b'"max_tokens":"16"', _MESSAGES),
    "a cap as true": _object(b'"model":"m"', b'"max_tokens":true', _MESSAGES),
    "a cap below 1": _object(b'"model":"m"', b'"max_tokens":-1', _MESSAGES),
    "n as a float": _object(_BASE, b'"n":2.5'),
    "n as a list": _object(_BASE, b'"n":[1]'),
    "a leading zero": _object(b'"model":"m"', b'"max_tokens":016', _MESSAGES),
    "a plus": _object(b'"model":"m"', b'"max_tokens":+16', _MESSAGES),
    "hex": _object(b'"model":"m"', b'"max_tokens":0x10', _MESSAGES),
    "an underscore": _object(b'"model":"m"', b'"max_tokens":1_6', _MESSAGES),
    "foreign digits": _object('"model":"m","max_tokens":١٦'.encode(), _MESSAGES),
    "a point without digits": _object(_BASE, b'"temperature":1.'),
    "a trailing comma": b"{" + _BASE + b",}",
    "a comment": b"{/* */" + _BASE + b"}",
    "a line comment": b"{" + _BASE + b"}//",
    "single quotes": _PLAIN.replace(b'"', b"'"),
    "no quotes": b"{model:'m'," + _MESSAGES + b"}",
    "a tab in a text": _saying(b'"a\tb"'),
    "a line end in a text": _saying(b'"a\nb"'),
    "NUL in a text": _saying(b'"a\0b"'),
    "an unknown escape": _saying(b'"\\x41"'),
    "half an escape": _saying(b'"\\u12"'),
    "half a pair": _saying(b'"\\ud800"'),
    "the other half": _saying(b'"\\udc00"'),
    "a pair the wrong way": _saying(b'"\\ude00\\ud83d"'),
    "half a pair as a name": _object(_BASE, b'"\\ud800":1'),
    "half a pair in UTF-8": _saying(b'"\xed\xa0\x80"'),
    "overlong UTF-8": _saying(b'"\xc0\xa2"'),
    "beyond Unicode": _saying(b'"\xf4\x90\x80\x80"'),
    "cut UTF-8": _saying(b'"\xe2\x82"'),
    "Latin-1": _saying(b'"\xe9"'),
    "UTF-16": _PLAIN.decode().encode("utf-16"),
    "UTF-16 without a mark": _PLAIN.decode().encode("utf-16-le"),
    "UTF-32": _PLAIN.decode().encode("utf-32-be"),
    "UTF-7": _PLAIN.decode().encode("utf-7").replace(b"{", b"+AHs-"),
    "a mark of UTF-8": b"\xef\xbb\xbf" + _PLAIN,
    "a NUL behind": _PLAIN + b"\0",
    "a second object": _PLAIN + b"{}",
    "two lines of JSON": _PLAIN + b"\n" + _PLAIN,
    "a no-break space": "\u00a0".encode() + _PLAIN,
    "in a list": b"[" + _PLAIN + b"]",
    "as text": json.dumps(_PLAIN.decode()).encode(),
    "a form": b"model=m&max_tokens=16&messages=x",
    "gzip": gzip.compress(_PLAIN),
    "deeper than is read": _object(_BASE, b'"x":' + b"[" * 5000 + b"]" * 5000),
    "deeper objects": _object(_BASE, b'"x":' + b'{"a":' * 5000 + b"1" + b"}" * 5000),
    "never closed": b"[" * 60_000,
    "brackets in a text, then deep": _object(_BASE, b'"x":"]]]]"', b'"y":' + b"[" * 5000 + b"]" * 5000),
}


def odd_json(lab: Lab) -> str:
    """NaN, huge numbers, half pairs, other encodings, deep nesting, dialects of JSON: 400, whatever its headers say."""
    target = target_of_bytes(lab)
    attacks = {name: _sent(target, raw) for name, raw in _ODD.items()}
    attacks["gzip, and says so"] = _sent(target, _ODD["gzip"], "Content-Encoding: gzip")
    for name in ("UTF-16", "UTF-32", "UTF-7", "Latin-1"):
        said = f"application/json; charset={name}".encode()
        attacks[f"{name}, and says so"] = attacks[name].replace(b"application/json", said)
    seen = target.refused(attacks, 400, 415, 422)
    target.served({"plain": _sent(target, _PLAIN)})
    target.untouched(calls=1)
    return f"{len(attacks)} bodies that are no JSON of ours: {seen}"


_EXACT: dict[str, bytes] = {
    "64 bits": _object(_BASE, b'"seed":18446744073709551615', b'"x":[-9223372036854775808,9007199254740993]'),
    "floats": _object(
        _BASE, b'"temperature":0.1', b'"x":[1e2,1E-7,-0.0,0.30000000000000004,5e-324,1.7976931348623157e308]'
    ),
    "true is not 1": _object(_BASE, b'"x":[true,1,1.0,null,"1",[],{}]'),
    "order": _object(b'"z":1', b'"a":2', _BASE, b'"x":{"z":1,"a":{"y":1,"b":2}}'),
    "escapes": _saying(b'"\\u0041\\n\\t\\"\\\\\\/\\b\\f\\u0000\\u2028\\u202e\\u007f"'),
    "a pair": _saying(b'"\\ud83d\\ude00"'),
    "letters": _saying('"é 漢字 😀 \u2028 \u202e \ufeff"'.encode()),
    "names": _object(
        _BASE, b'"":1', b'"a b":2', b'"\\u0000":3', '"é":4'.encode(), b'"__proto__":{"a":1}', b'"toString":5'
    ),
    "white space": b" \r\n\t{ " + _BASE.replace(b",", b" ,\n ") + b" }\r\n ",
    "as deep as is read": _object(_BASE, b'"x":' + b"[" * 90 + b"]" * 90),
    "many": _object(_BASE, *(b'"f%d":%d' % (number, number) for number in range(2000))),
}


def sent_as_read(lab: Lab) -> str:
    """Numbers at the edge, odd names, escapes, order: what the upstream is sent is what was read, once and in order."""
    target = target_of_bytes(lab)
    for name, raw in _EXACT.items():
        calls = len(target.upstream.calls)
        target.served({name: _sent(target, raw)})
        for call in target.upstream.calls[calls:]:
            _check_sent(lab, name, raw, call)
    target.untouched(calls=len(_EXACT))
    return f"{len(_EXACT)} bodies: sent on value for value, in order, in one encoding"


def _check_sent(lab: Lab, name: str, raw: bytes, call: Call) -> None:
    """The values of both are the same, type for type and in order, but for the model and the name of the cap."""
    given, sent = list(_flat(json.loads(raw, object_pairs_hook=list))), []
    try:
        sent = list(_flat(json.loads(call.raw.decode("utf-8"), object_pairs_hook=list, parse_constant=_no_constant)))
    except ValueError as error:
        lab.check(False, f"{name}: the upstream was sent what is no JSON: {error}")
    renamed = {"'max_tokens'": "'max_completion_tokens'", "'m'": "'probed'"}
    expected = [renamed.get(value, value) for value in given]
    lab.check(sent == expected, f"{name}: sent {sent[:12]}, given {expected[:12]}")


def _flat(value: Any) -> Iterator[str]:
    """Every name and value in order, with its type and the form of its container."""
    if isinstance(value, list | tuple):
        yield f"{type(value).__name__} of {len(value)}"
        for below in value:
            yield from _flat(below)
    else:
        yield repr(value)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


PROBES = (
    Probe("duplicate-keys", "json-ambiguity", duplicate_keys),
    Probe("odd-json", "json-ambiguity", odd_json),
    Probe("sent-as-read", "json-ambiguity", sent_as_read),
)
