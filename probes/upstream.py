"""A loopback upstream that misbehaves as told, and meters what it bills.

Each request is answered by the next reply, later ones by the last. A reply is a function of the Call that came in: it
reads what was asked for, says what that costs, and writes bytes. It knows nothing of the gateway.
"""

import contextlib
import json
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

PATIENCE_S = 10.0
PROMPT_NANOUSD = 1_000
OUTPUT_NANOUSD = 4_000
"""Per token: 1 and 4 USD per million, as every deployment of the probes is configured."""

USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
COST_NANOUSD = 7 * PROMPT_NANOUSD + 5 * OUTPUT_NANOUSD


class Call:
    """One request that arrived, and the way to answer it.

    number       0 for the upstream's first
    line         the request line
    at_s         monotonic second of its arrival
    billed_nanousd  what the upstream charges for it, as far as the reply has said
    is_over      whether the reply has said all
    """

    def __init__(self, sock: socket.socket, number: int, line: str, headers: Mapping[str, str], raw: bytes) -> None:
        self.sock = sock
        self.number = number
        self.line = line
        self.at_s = time.monotonic()
        self.headers = headers
        self.raw = raw
        self.billed_nanousd = 0
        self.keeps_alive = True
        self.is_over = False

    @property
    def body(self) -> dict[str, Any]:
        """What was asked for."""
        return dict(json.loads(self.raw))

    def bill(self, prompt_tokens: int = 7, completion_tokens: int = 5) -> dict[str, int]:
        """Charge for tokens; returns the usage that says so."""
        self.billed_nanousd += prompt_tokens * PROMPT_NANOUSD + completion_tokens * OUTPUT_NANOUSD
        return usage(prompt_tokens, completion_tokens)

    def send(self, *pieces: bytes) -> None:
        """Write bytes, piece by piece."""
        for piece in pieces:
            self.sock.sendall(piece)

    def answer(self, document: object, *, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Write a whole answer of JSON, or of bytes as they are."""
        raw = document if isinstance(document, bytes) else json.dumps(document).encode()
        lines = [("content-type", "application/json"), *headers, ("content-length", str(len(raw)))]
        self.send(_head(status, lines) + raw)

    def begin_stream(self) -> None:
        """Write the head of a stream."""
        self.send(_head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]))

    def write(self, *texts: bytes) -> None:
        """Write raw bytes of a stream's body, each in a chunk of its own."""
        self.send(*(b"%x\r\n%b\r\n" % (len(text), text) for text in texts))

    def event(self, *payloads: bytes) -> None:
        """Write events."""
        self.write(*(b"data: %b\n\n" % payload for payload in payloads))

    def end_stream(self) -> None:
        """End the transport in good order, whatever was written."""
        self.send(b"0\r\n\r\n")

    def close(self) -> None:
        """No further request on this connection."""
        self.keeps_alive = False

    def reset(self) -> None:
        """Cut the connection with a TCP reset."""
        self.close()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def left_within(self, seconds: float) -> bool:
        """Wait for the gateway to leave."""
        poll = select.poll()
        poll.register(self.sock, select.POLLRDHUP)
        return bool(poll.poll(seconds * 1000))


Reply = Callable[[Call], None]


class Upstream:
    """Listens on a free port until close().

    calls   every request, in order
    faults  what went wrong in a reply, other than a gateway that left
    `_lock` guards `calls`, `faults`, `_replies`, `_socks` and `_threads`.
    """

    def __init__(self, *replies: Reply) -> None:
        self.calls: list[Call] = []
        self.faults: list[BaseException] = []
        self._lock = threading.Lock()
        self._replies = replies
        self._socks: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self._acceptor = threading.Thread(target=self._accept, name="probed upstream", daemon=True)
        self._acceptor.start()

    @property
    def metered_nanousd(self) -> int:
        """What it has billed in all."""
        return sum(call.billed_nanousd for call in list(self.calls))

    @property
    def connections(self) -> int:
        """How many connections it was ever opened."""
        return len(self._socks)

    def script(self, *replies: Reply) -> None:
        """From now on: the next request is answered by the first of these, and so on."""
        with self._lock:
            self._replies = (*[replies[0]] * len(self.calls), *replies)

    def begin_anew(self, reply: Reply) -> None:
        """Forget the calls and the faults so far; from now on every request is answered by `reply`."""
        with self._lock:
            self.calls, self.faults, self._replies = [], [], (reply,)

    def wait_calls(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        wait_until(lambda: len(self.calls) >= count, f"the upstream got {len(self.calls)} calls, not {count}")

    def close(self) -> None:
        """End every connection."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join(PATIENCE_S)
        self._listener.close()
        with self._lock:
            socks, threads = list(self._socks), list(self._threads)
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(PATIENCE_S)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(sock,), name="probed peer", daemon=True)
                with self._lock:
                    self._socks.append(sock)
                    self._threads.append(thread)
                thread.start()

    def _serve(self, sock: socket.socket) -> None:
        sock.settimeout(60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with sock, sock.makefile("rb") as file:
                keeps_alive = True
                while keeps_alive and (request := _read_request(file)) is not None:
                    call, reply = self._take(sock, *request)
                    reply(call)
                    call.is_over = True
                    keeps_alive = call.keeps_alive
        except OSError:
            pass  # the gateway left, or was cut
        except Exception as fault:  # noqa: BLE001 - told by whoever looks
            with self._lock:
                self.faults.append(fault)

    def _take(self, sock: socket.socket, line: str, headers: Mapping[str, str], raw: bytes) -> tuple[Call, Reply]:
        with self._lock:
            call = Call(sock, len(self.calls), line, headers, raw)
            self.calls.append(call)
            return call, self._replies[min(call.number, len(self._replies) - 1)]


def _read_request(file: Any) -> tuple[str, dict[str, str], bytes] | None:
    """First line, headers and body of the next request; None if there is none."""
    first = file.readline()
    if not first:
        return None
    headers = {}
    while (line := file.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return first.decode("latin-1").rstrip(), headers, file.read(int(headers.get("content-length", "0")))


def _head(status: int, lines: Sequence[tuple[str, str]]) -> bytes:
    fields = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"HTTP/1.1 {status} Scripted\r\n{fields}\r\n".encode("latin-1")


def wait_until(is_true: Callable[[], bool], otherwise: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for what must happen; TimeoutError if it does not."""
    end_s = time.monotonic() + patience_s
    while not is_true():
        if time.monotonic() >= end_s:
            raise TimeoutError(otherwise)
        time.sleep(0.005)


# --- what is said -------------------------------------------------------------------------------------------------


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """A report of usage."""
    total = prompt_tokens + completion_tokens
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}


def completion(text: str, used: Mapping[str, int] | None, *, finish: str = "stop", **message: Any) -> dict[str, Any]:
    """A whole answer."""
    content = {"role": "assistant", "content": text, "refusal": None, **message}
    choice = {"index": 0, "message": content, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-p", "object": "chat.completion", "created": 1_767_225_600, "model": "probed"}
    return head | {"choices": [choice]} | ({} if used is None else {"usage": dict(used)})


def chunk(delta: Mapping[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """The payload of one event of a stream."""
    choices = [{"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish}]
    head = {"id": "chatcmpl-p", "object": "chat.completion.chunk", "created": 1_767_225_600, "model": "probed"}
    return json.dumps({**head, "choices": choices, **fields}).encode()


ROLE = chunk({"role": "assistant", "content": ""})
STOP = chunk(finish="stop")
DONE = b"[DONE]"


def word(text: str = "word ") -> bytes:
    """One delta of content."""
    return chunk({"content": text})


def report(used: Mapping[str, int]) -> bytes:
    """The chunk that ends a stream with its usage."""
    return chunk(choices=[], usage=dict(used))


# --- replies ------------------------------------------------------------------------------------------------------


def good(text: str = "hello", prompt_tokens: int = 7, completion_tokens: int = 5, *, delay_s: float = 0) -> Reply:
    """A good answer, whole or streamed as asked, that bills these tokens."""

    def reply(call: Call) -> None:
        time.sleep(delay_s)
        used = call.bill(prompt_tokens, completion_tokens)
        if call.body.get("stream"):
            call.begin_stream()
            call.event(ROLE, word(text), STOP, report(used), DONE)
            call.end_stream()
        else:
            call.answer(completion(text, used))

    return reply


def nonce(call: Call) -> None:
    """A good answer that no other call gets."""
    good(f"nonce-{call.number}")(call)


def failing(status: int, error: Mapping[str, Any] | None = None, **headers: str) -> Reply:
    """An error that bills nothing; underscores in header names are dashes."""
    fields = [(name.replace("_", "-"), value) for name, value in headers.items()]
    body = {"error": dict(error or {"message": "no", "type": "server_error", "code": None, "param": None})}
    return lambda call: call.answer(body, status=status, headers=fields)


def silent(call: Call) -> None:
    """Bills and never answers; ends when the gateway leaves."""
    call.bill()
    call.left_within(30)
    call.close()
