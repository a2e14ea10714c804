"""An upstream that writes down what it bills for each call, to the token, and fails as it is told to.

    python -m evals.metered PORT LATENCY_S

The meter is the oracle of the books: it bills as a provider might that is not on the gateway's side. A prompt is billed
once it has arrived; a stream token by token as it is written; a whole answer at once; an answer that nobody waits for,
is junk or is cut is billed up to its cap. An error status bills nothing. A connection that ends without a byte of an
answer bills its cap if the call was its first, and nothing if it had served others: who closes idle connections has
not read on.

Which request a call belongs to is told by its `traceparent`, whose trace id is the request's number. On `GET /meter`
the upstream tells all its calls and how many it has had at a time.
"""

import json
import re
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Final

from evals.loop import READABLE, WRITABLE, Loop

INPUT_USD, CACHED_USD, OUTPUT_USD = "0.1337", "0.0333", "0.6001"
INPUT_PICOUSD, CACHED_PICOUSD, OUTPUT_PICOUSD = 133_700, 33_300, 600_100
"""Per million tokens, and per token: prices that do not come out even, so that each call is rounded once."""

TOKEN: Final = b"token "
"""What one token of a stream says: more bytes than one, as in life."""

WIDE = 680
"""Tokens in each event of a stream that is asked for as `wide`: more than fits into the buffers of a slow reader."""

CHUNK_S = 0.004
SLOW_S = 0.4
_TRACE = re.compile(rb"\r\ntraceparent: 00-([0-9a-f]{32})-")
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n")
_CAP = re.compile(rb'"max_(?:completion_)?tokens":(\d+)')
_RECV_BYTES = 65_536


class Manner(StrEnum):
    """How a call is answered."""

    GOOD = "good"
    SLOW = "slow"
    ERROR_500 = "500"
    LIMIT_429 = "429"
    JUNK = "junk"
    CUT_BEFORE = "cut before content"
    CUT_AFTER = "cut after content"
    HANG = "hang"
    RESET = "reset"


UNBILLED = frozenset({Manner.ERROR_500, Manner.LIMIT_429})


@dataclass(slots=True)
class Metered:
    """One call, as the upstream has it in its books. Tokens.

    number  of the request it belongs to; 0 if it did not say
    cached  those of the prompt that are billed as cached
    told    its usage was written out, whole
    unbilled  proven so by what was answered: the next call of the request may stand behind the same hold
    """

    number: int
    upstream: str
    manner: Manner
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    told: bool = False
    unbilled: bool = False

    @property
    def billed_nanousd(self) -> int:
        """Rounded once, upward."""
        picousd = (self.prompt - self.cached) * INPUT_PICOUSD + self.cached * CACHED_PICOUSD
        return -(-(picousd + self.completion * OUTPUT_PICOUSD) // 1000)

    @property
    def prompt_nanousd(self) -> int:
        """What its prompt alone was billed at."""
        return Metered(self.number, self.upstream, self.manner, self.prompt, self.cached).billed_nanousd


@dataclass(slots=True)
class Meter:
    """All calls in the order of their arrival. `at_once` are being answered now, `most_at_once` is the most ever."""

    calls: list[Metered] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    def begin(self, call: Metered) -> None:
        """A call came."""
        self.calls.append(call)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)

    def end(self) -> None:
        """A call is over, however."""
        self.at_once -= 1


@dataclass(slots=True)
class Ways:
    """How an upstream behaves from now on.

    manner     of a call, by the number of its request
    latency_s  until it begins to answer
    """

    manner: Callable[[int], Manner] = lambda number: Manner.GOOD
    latency_s: Callable[[int], float] = lambda number: 0.0


class MeteredUpstream:
    """Listens until close(); everything happens on the loop."""

    def __init__(self, loop: Loop, name: str, meter: Meter, *, port: int = 0) -> None:
        self.name = name
        self.meter = meter
        self.ways = Ways()
        self.loop = loop
        self.peers: set[_Peer] = set()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        loop.watch(self._listener, READABLE, self._accept)

    def hang_up(self) -> None:
        """Close every connection that is answering nothing, as servers do when they restart."""
        for peer in [peer for peer in self.peers if peer.call is None]:
            peer.close()

    def close(self) -> None:
        """Close everything."""
        self.loop.forget(self._listener)
        self._listener.close()
        for peer in list(self.peers):
            peer.close()

    def _accept(self, _: int) -> None:
        while True:
            try:
                sock, _address = self._listener.accept()
            except BlockingIOError:
                return
            self.peers.add(_Peer(self, sock))


class _Peer:
    """A connection of the gateway's. `call` is what it is answering."""

    def __init__(self, upstream: MeteredUpstream, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.call: Metered | None = None
        self._upstream = upstream
        self._loop = upstream.loop
        self._sock = sock
        self._in = bytearray()
        self._out = bytearray()
        self._served = 0
        self._cap = 0
        self._streams = False
        self._closes_when_out = False
        self._closed = False
        self._loop.watch(sock, READABLE, self._ready)

    def close(self, *, reset: bool = False) -> None:
        """End it. A call that was being answered is over; a whole answer that nobody got is billed to its cap."""
        if self._closed:
            return
        self._closed = True
        if self.call is not None:
            if not self._streams and not self.call.unbilled:
                self.call.completion = self._cap
            self._end()
        self._upstream.peers.discard(self)
        self._loop.forget(self._sock)
        if reset:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    # --- what comes -------------------------------------------------------------------------------------------------

    def _ready(self, mask: int) -> None:
        if mask & WRITABLE and self._out:
            self._flush()
        if mask & ~WRITABLE and not self._closed:
            self._receive()

    def _receive(self) -> None:
        try:
            data = self._sock.recv(_RECV_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._in += data
        self._take()

    def _take(self) -> None:
        """Begin the next request if it is whole."""
        end = self._in.find(b"\r\n\r\n")
        if end < 0 or self.call is not None:
            return
        head = bytes(self._in[: end + 2])
        length = _LENGTH.search(head)
        size = end + 4 + (int(length[1]) if length else 0)
        if len(self._in) < size:
            return
        body = bytes(self._in[end + 4 : size])
        del self._in[:size]
        if head.startswith(b"GET /meter "):
            self._tell_meter()
        else:
            self._begin(head, body)

    def _tell_meter(self) -> None:
        meter = self._upstream.meter
        told = {"most_at_once": meter.most_at_once, "calls": [asdict(call) for call in meter.calls]}
        self._write(_whole(json.dumps(told).encode()))

    def _begin(self, head: bytes, body: bytes) -> None:
        trace, cap = _TRACE.search(head), _CAP.search(body)
        number = int(trace[1], 16) if trace else 0
        ways = self._upstream.ways
        manner = ways.manner(number)
        self._cap = int(cap[1]) if cap else 1
        self.call = call = Metered(number, self._upstream.name, manner, unbilled=manner in UNBILLED)
        self._upstream.meter.begin(call)
        if not call.unbilled:
            call.prompt = len(body) // 4
            call.cached = call.prompt // 2 if number % 3 == 0 else 0
        self._served += 1
        latency_s = ways.latency_s(number) + (SLOW_S if manner is Manner.SLOW else 0.0)
        self._streams = b'"stream":true' in body
        step = WIDE if b'"user":"wide"' in body else 1
        self._later(latency_s, lambda: self._answer(call, step))

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        """Go on with this call, unless it is over by then."""
        call = self.call
        self._loop.after(seconds, lambda: act() if self.call is call and not self._closed else None)

    # --- what is answered -------------------------------------------------------------------------------------------

    def _answer(self, call: Metered, step: int) -> None:
        match call.manner:
            case Manner.ERROR_500:
                self._refuse(b"500 Failed", b"")
            case Manner.LIMIT_429:
                self._refuse(b"429 Limited", b"retry-after: 1\r\n")
            case Manner.HANG:
                call.completion = self._cap
            case Manner.RESET:
                self._reset(call)
            case Manner.JUNK:
                call.completion = self._cap
                self._write(_whole(b"<html>it works</html>"))
                self._end()
            case Manner.CUT_BEFORE:
                call.completion = self._cap
                self._cut(_STREAM_HEAD + _event(_ROLE) if self._streams else _whole(_message(call))[:-20])
            case _ if self._streams:
                self._write(_STREAM_HEAD + _event(_ROLE))
                self._next_tokens(call, self._cap // 2, step)
            case Manner.CUT_AFTER:
                call.completion = self._cap
                self._cut(_whole(_message(call))[:-20])
            case _:
                call.completion = self._cap // 2
                self._write(_whole(_message(call)))
                call.told = True
                self._end()

    def _next_tokens(self, call: Metered, left: int, step: int) -> None:
        """The next event of a stream, or its end."""
        if call.manner is Manner.CUT_AFTER and left <= self._cap // 4:
            self._cut(b"")
        elif left <= 0:
            self._write(_event(_STOP) + _event(_USAGE_CHUNK % _usage(call)) + _event(b"[DONE]") + b"0\r\n\r\n")
            call.told = True
            self._end()
        else:
            tokens = min(left, step)
            text = (b"n%d " % call.number if not call.completion else b"") + TOKEN * tokens
            call.completion += tokens
            self._write(_event(_CONTENT % text))
            self._later(CHUNK_S, lambda: self._next_tokens(call, left - tokens, step))

    def _refuse(self, status: bytes, more: bytes) -> None:
        error = b'{"error":{"message":"no","type":"server_error","param":null,"code":null}}'
        self._write(b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, more, len(error), error))
        self._end()

    def _reset(self, call: Metered) -> None:
        if self._served > 1:
            call.prompt = call.cached = 0
            call.unbilled = True
        else:
            call.completion = self._cap
        self.close(reset=True)

    def _cut(self, data: bytes) -> None:
        """Write, and close in good order, so that all of it arrives."""
        self._closes_when_out = True
        self._write(data)

    def _end(self) -> None:
        """The call is over, and the next one may begin."""
        self.call = None
        self._upstream.meter.end()
        if not self._closed:
            self._take()

    def _write(self, data: bytes) -> None:
        self._out += data
        self._flush()

    def _flush(self) -> None:
        try:
            sent = self._sock.send(self._out) if self._out else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        del self._out[:sent]
        if self._out:
            self._loop.watch(self._sock, READABLE | WRITABLE, self._ready)
        elif self._closes_when_out:
            self.close()
        elif sent:
            self._loop.watch(self._sock, READABLE, self._ready)


# --- what is said -----------------------------------------------------------------------------------------------------

_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_ABOUT = b'"id":"chatcmpl-m","created":1767225600,"model":"metered"'
_CHUNK = b'{%b,"object":"chat.completion.chunk","choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]}'
_ROLE = _CHUNK % (_ABOUT, b'{"role":"assistant","content":""}', b"null")
_CONTENT = _CHUNK % (_ABOUT, b'{"content":"%b"}', b"null")
_STOP = _CHUNK % (_ABOUT, b"{}", b'"stop"')
_USAGE_CHUNK = b'{%b,"object":"chat.completion.chunk","choices":[],"usage":%%b}' % _ABOUT
_MESSAGE = (
    b'{%b,"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"n%%d said",'
    b'"refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":%%b}' % _ABOUT
)


def _message(call: Metered) -> bytes:
    return _MESSAGE % (call.number, _usage(call))


def _usage(call: Metered) -> bytes:
    return (
        b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}'
        % (call.prompt, call.completion, call.prompt + call.completion, call.cached)
    )


def _whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def _event(payload: bytes) -> bytes:
    """An event in a chunk of its own."""
    return b"%x\r\ndata: %b\n\n\r\n" % (len(payload) + 8, payload)


def main(arguments: list[str]) -> None:
    """Serve until killed."""
    loop = Loop()
    upstream = MeteredUpstream(loop, "d0", Meter(), port=int(arguments[0]))
    latency_s = float(arguments[1])
    upstream.ways.latency_s = lambda number: latency_s
    loop.run(lambda: False)


if __name__ == "__main__":
    main(sys.argv[1:])
