"""Streams of an upstream that breaks: a cut one never looks finished, and none makes the gateway grow."""

import json
import threading
import time
from collections.abc import Callable, Mapping

from probes.lab import Lab, Probe
from probes.upstream import DONE, PATIENCE_S, ROLE, STOP, Call, Reply, chunk, completion, good, report, word

GROWTH_MIB = 16
FLOOD_BYTES = 64 << 20
TOTAL_S = 1
GRACE_S = 10.0
"""By so much it may be passed: the machine may be busy."""


# --- cut streams ------------------------------------------------------------------------------------------------


def _after_content(*events: bytes, then: Callable[[Call], None]) -> Reply:
    def reply(call: Call) -> None:
        used = call.bill()
        call.begin_stream()
        call.event(ROLE, word(), word(), *(report(used) if event == b"usage" else event for event in events))
        then(call)
        call.close()

    return reply


def _silence(call: Call) -> None:
    call.left_within(PATIENCE_S)


def _half_an_event(call: Call) -> None:
    call.write(b'data: {"id": "chatcmpl-p", "choi')
    call.end_stream()


def _half_a_chunk(call: Call) -> None:
    call.send(b"ffff\r\ndata: {")


_ERROR = json.dumps({"error": {"message": "overloaded", "type": "server_error", "code": None}}).encode()
_CUTS: dict[str, tuple[Reply, int]] = {
    "reset": (_after_content(then=Call.reset), 1),
    "closed without an end": (_after_content(then=Call.close), 1),
    "clean end without a finish": (_after_content(then=Call.end_stream), 1),
    "usage, then a clean end": (_after_content(b"usage", then=Call.end_stream), 1),
    "error event": (_after_content(_ERROR, then=Call.end_stream), 1),
    "error event, then [DONE]": (_after_content(_ERROR, DONE, then=Call.end_stream), 1),
    "silence": (_after_content(then=_silence), 1),
    "[DONE] without a finish": (_after_content(DONE, then=Call.end_stream), 1),
    "half an event": (_after_content(then=_half_an_event), 1),
    "half a chunk": (_after_content(then=_half_a_chunk), 1),
    "junk": (_after_content(b"{nonsense", then=Call.end_stream), 1),
    "one of two finished": (_after_content(STOP, then=Call.end_stream), 2),
    "an empty finish with each word": (_after_content(chunk({"content": "word "}, ""), then=Call.end_stream), 1),
}


def cut_after_content(lab: Lab) -> str:
    """Thirteen ways in which a stream breaks after content: an error event, no [DONE], no good end, no second call."""
    upstream, backup = lab.upstream(good()), lab.upstream(good())
    gateway = lab.inside(upstream, backup, provider="idle_timeout_s = 1")
    for name, (reply, choices) in _CUTS.items():
        upstream.script(reply)
        key = gateway.key()
        answer = gateway.chat(key, stream=True, n=choices)
        gateway.wait_quiet()
        lab.check(not answer.looks_finished, f"{name}: looks finished: {answer.body[-120:]!r}")
        lab.check(answer.code is not None, f"{name}: no error event")
        lab.check(answer.text.startswith("word word "), f"{name}: the content that came was lost")
        [row] = gateway.rows(key)
        lab.check(row["exit"] == "failed" and row["cost_nanousd"] > 0, f"{name}: {row['exit']} {row['cost_nanousd']}")
    lab.check(not backup.calls, f"{len(backup.calls)} second calls after content had gone out")
    return f"{len(_CUTS)} kinds of broken streams: none looks finished, all are paid as far as seen"


def _before_content(*events: bytes, then: Callable[[Call], None]) -> Reply:
    def reply(call: Call) -> None:
        call.bill()
        call.begin_stream()
        call.event(ROLE, *events)
        then(call)
        call.close()

    return reply


_EARLY_CUTS: dict[str, Reply] = {
    "reset": _before_content(then=Call.reset),
    "closed": _before_content(then=Call.close),
    "clean end": _before_content(then=Call.end_stream),
    "error event": _before_content(_ERROR, then=Call.end_stream),
    "silence": _before_content(then=_silence),
    "[DONE] alone": _before_content(DONE, then=Call.end_stream),
    "junk": _before_content(b"[1]", then=Call.end_stream),
    "half a JSON answer": lambda call: call.answer(b'{"choices": [{"index": 0, "message": {"content": "hi"'),
    "an HTML page": lambda call: call.answer(b"<html>"),
}


def cut_before_content(lab: Lab) -> str:
    """The same before content: the next deployment answers, unseen; without one it is a plain error, never a stream."""
    upstream, backup = lab.upstream(good()), lab.upstream(good("from the backup"))
    paired = lab.inside(upstream, backup, provider="idle_timeout_s = 1")
    alone = lab.inside(upstream, provider="idle_timeout_s = 1")
    for name, reply in _EARLY_CUTS.items():
        upstream.script(reply)
        saved = paired.chat(paired.key(), stream=True)
        lab.check(saved.status == 200 and saved.looks_finished, f"{name}: no failover: {saved.status}")
        lab.check(saved.text == "from the backup", f"{name}: the answer says {saved.text!r}")
        key, meter = alone.key(), upstream.metered_nanousd
        failed = alone.chat(key, stream=True)
        alone.wait_quiet()
        lab.check(failed.status in (502, 503, 504), f"{name}: without a backup {failed.status}")
        billed, counted = upstream.metered_nanousd - meter, alone.counted_nanousd(key)
        lab.check(counted >= billed, f"{name}: the upstream billed {billed}, {counted} counts")
    return f"{len(_EARLY_CUTS)} kinds: failed over unseen, or a plain 5xx"


def _short(call: Call) -> None:
    call.bill()
    call.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n")
    call.send(json.dumps(completion("hello", None)).encode())
    call.close()


_WHOLE_CUTS: dict[str, Reply] = {
    "shorter than its length": _short,
    "half of the JSON": lambda call: call.answer(json.dumps(completion("hello", call.bill())).encode()[:-40]),
    "no choices": lambda call: call.answer({"id": "x", "usage": call.bill()}),
    "empty choices": lambda call: call.answer(completion("x", call.bill()) | {"choices": []}),
    "an error object": lambda call: call.answer(_ERROR),
    "empty": lambda call: call.answer(b""),
    "twice": lambda call: call.answer(json.dumps(completion("x", call.bill())).encode() * 2),
}


def cut_whole(lab: Lab) -> str:
    """Answers that are cut or junk are never passed on as good ones, and what they may have cost is on the books."""
    upstream = lab.upstream(good())
    gateway = lab.inside(upstream)
    for name, reply in _WHOLE_CUTS.items():
        upstream.script(reply)
        key, meter = gateway.key(), upstream.metered_nanousd
        answer = gateway.chat(key)
        gateway.wait_quiet()
        billed, counted = upstream.metered_nanousd - meter, gateway.counted_nanousd(key)
        lab.check(answer.status in (502, 503), f"{name}: told as {answer.status}")
        lab.check(counted >= billed, f"{name}: billed {billed}, {counted} counts")
    return f"{len(_WHOLE_CUTS)} kinds of broken answers: 502 or 503"


# --- floods -----------------------------------------------------------------------------------------------------


def _pours(piece: bytes, *, first: bytes = b"", every_s: float = 0.0) -> Reply:
    """A stream whose body never ends; it stops at FLOOD_BYTES, or when the gateway leaves."""
    block = piece * max(1, 65_536 // len(piece)) if not every_s else piece

    def reply(call: Call) -> None:
        call.close()
        call.begin_stream()
        if first:
            call.write(first)
        for _ in range(FLOOD_BYTES // len(block)):
            call.write(block)
            if every_s and call.left_within(every_s):
                return

    return reply


def _framed(payload: bytes) -> bytes:
    return b"data: %b\n\n" % payload


def _pours_raw(head: bytes, piece: bytes) -> Reply:
    """Bytes outside of any body, for ever."""

    def reply(call: Call) -> None:
        call.close()
        call.send(head)
        block = piece * (65_536 // len(piece))
        for _ in range(FLOOD_BYTES // len(block)):
            call.send(block)

    return reply


_STATUS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
_FAT = "y" * 60_000
STREAM_FLOODS: dict[str, Reply] = {
    "a line without an end": _pours(b"a", first=b"data: "),
    "an event without an end": _pours(b"data:\n"),
    "an event of many lines": _pours(b"data: " + b"b" * 1000 + b"\n"),
    "comments": _pours(b": keep-alive\n\n"),
    "slow comments": _pours(b": keep-alive\n\n", every_s=0.1),
    "empty lines": _pours(b"\n"),
    "unknown lines": _pours(b"retry: 1\nid: 7\n\n"),
    "empty data": _pours(b"data:\n\n"),
    "deltas": _pours(_framed(word())),
    "long deltas": _pours(_framed(word(_FAT))),
    "role chunks": _pours(_framed(chunk({"role": "assistant", "content": ""}, more=_FAT))),
    "empty deltas": _pours(_framed(chunk({"content": None}, more=_FAT))),
    "unknown deltas": _pours(_framed(chunk({"x": _FAT}))),
    "empty choices": _pours(_framed(chunk(choices=[], more=_FAT))),
    "usage reports": _pours(_framed(report({"prompt_tokens": 7, "completion_tokens": 1}))),
    "choices nobody asked for": lambda call: _pours_choices(call),
    "header lines": _pours_raw(_STATUS, b"x-a: b\r\n"),
    "a header line": _pours_raw(_STATUS + b"x-a: ", b"b"),
    "interim answers": _pours_raw(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "a chunk extension": _pours_raw(_STATUS + b"transfer-encoding: chunked\r\n\r\n5;", b"e"),
    "trailers": _pours_raw(_STATUS + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"t: u\r\n"),
}
_WHOLE_FLOODS: dict[str, Reply] = {
    "a whole answer": _pours_raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n", b"["),
    "an error": _pours_raw(b"HTTP/1.1 500 No\r\ncontent-type: application/json\r\n\r\n", b"["),
}


def _pours_choices(call: Call) -> None:
    """Deltas without content, each of a choice that nobody asked for."""
    call.close()
    call.begin_stream()
    for number in range(1, 200_000):
        choice = {"index": number, "delta": {"role": "assistant"}, "finish_reason": None}
        call.event(chunk(choices=[choice]))


def stream_floods(lab: Lab) -> str:
    """64 MiB of lines, events, comments, deltas or heads without an end: left, told as cut, and memory is bounded."""
    return _floods(lab, STREAM_FLOODS, "", stream=True)


def whole_floods(lab: Lab) -> str:
    """The same for answers that are no streams, within the bound that the file gives them."""
    return _floods(lab, _WHOLE_FLOODS, "max_answer_bytes = 4_194_304", stream=False)


def _floods(lab: Lab, kinds: Mapping[str, Reply], limits: str, *, stream: bool) -> str:
    upstream = lab.upstream(good())
    gateway = lab.outside(upstream, provider=f"total_timeout_s = {TOTAL_S}\n{limits}")
    gateway.chat(gateway.key(), stream=stream)
    worst = (0.0, "")
    for name, reply in kinds.items():
        left = threading.Event()
        upstream.script(_telling(reply, left))
        gateway.forget_peak()
        before, started_s = gateway.rss_bytes(), time.monotonic()
        answer = gateway.chat(gateway.key(), stream=stream)
        took_s = time.monotonic() - started_s
        grown_mib = (gateway.peak_rss_bytes() - before) / (1 << 20)
        worst = max(worst, (grown_mib, name))
        lab.check(left.wait(PATIENCE_S), f"{name}: the upstream is not left")
        lab.check(grown_mib <= GROWTH_MIB, f"{name}: memory grew by {grown_mib:.1f} MiB")
        lab.check(took_s < TOTAL_S + GRACE_S, f"{name}: took {took_s:.1f} s")
        fails = answer.status >= 500 if answer.status != 200 else not answer.looks_finished
        lab.check(fails, f"{name}: {answer.status}, as if it were finished: {answer.body[-80:]!r}")
    return f"{len(kinds)} kinds: each cut; memory grew by {worst[0]:.1f} MiB at most ({worst[1]})"


def _telling(reply: Reply, left: threading.Event) -> Reply:
    def told(call: Call) -> None:
        try:
            reply(call)
            call.left_within(PATIENCE_S)
        finally:
            left.set()

    return told


PROBES = (
    Probe("cut-after-content", "upstream-stream", cut_after_content),
    Probe("cut-before-content", "upstream-stream", cut_before_content),
    Probe("cut-whole", "upstream-stream", cut_whole),
    Probe("stream-floods", "upstream-stream", stream_floods),
    Probe("whole-floods", "upstream-stream", whole_floods),
)
