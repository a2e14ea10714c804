"""Fronts with the mistakes that real ones shipped, before a gateway in the same process, whose clients they are.

Each is `http.server` as it comes, made to serve: heads read by its own parser, the first length wins, chunks are read
leniently, an end of file ends the headers, `100 Continue` goes out before anybody has looked.
"""

import contextlib
import http.client
import io
import json
import os
import posixpath
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from gateway.data_dir import read_control

_DATA_DIR = Path("gateway-data")
_HOP_BY_HOP = {"connection", "content-length", "transfer-encoding", "host", "expect", "keep-alive"}
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "get")


class SloppyFront(BaseHTTPRequestHandler):
    """Reads as http.server does, and passes on what it has understood."""

    protocol_version = "HTTP/1.1"
    inner: tuple[str, int]
    secret: str

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.removeprefix("do_") in _METHODS:
            return self._pass_on
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def target(self) -> str:
        """What the gateway is asked for."""
        return self.path

    def fields(self, body: bytes) -> dict[str, str]:
        """The header fields that the gateway is given."""
        return {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}

    def more_fields(self, body: bytes) -> dict[str, str]:
        """Header fields of the answer beside the gateway's."""
        return {}

    def answers(self) -> bool:
        """Whether it answers by itself; then it has."""
        return False

    def body(self) -> bytes:
        """The body as far as it comes."""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            return b"".join(iter(self._chunk, b""))
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _chunk(self) -> bytes:
        size = int(self.rfile.readline().split(b";")[0] or b"0", 16)
        data = self.rfile.read(size)
        self.rfile.readline()
        return data

    def _pass_on(self) -> None:
        body = self.body()
        if self.answers():
            return
        connection = http.client.HTTPConnection(*self.inner, timeout=10)
        try:
            connection.putrequest(self.command, self.target(), skip_accept_encoding=True)
            for name, value in self.fields(body).items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        self.send_response_only(answer.status)
        for name, value in [*answer.getheaders(), *self.more_fields(body).items()]:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class PatientFront(SloppyFront):
    """Has a timeout, which starts anew with every byte that comes."""

    timeout = 0.5


class NarrowFront(SloppyFront):
    """Has a few threads for everybody, health included, and each stays with its client."""

    _free = threading.BoundedSemaphore(16)
    _served = False

    def setup(self) -> None:
        super().setup()
        self._served = self._free.acquire(blocking=False)

    def finish(self) -> None:
        super().finish()
        if self._served:
            self._free.release()

    def answers(self) -> bool:
        if not self._served:
            self.send_response_only(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
        return not self._served


class ObligingFront(SloppyFront):
    """Finds a key wherever a client has put it, looks at a path before it knows which it is, and lets anybody in."""

    def target(self) -> str:
        path = urlsplit(self.path).path
        plain = posixpath.normpath(unquote(path)).replace("//", "/")
        return plain if plain in ("/control", "/v1/models", "/v1/chat/completions") else self.path

    def fields(self, body: bytes) -> dict[str, str]:
        fields = super().fields(body)
        if self.target() != self.path and self.target() == "/control" and "Authorization" in fields:
            fields["Authorization"] = f"Bearer {self.secret}"
        named = parse_qs(urlsplit(self.path).query).get("api_key", [])
        with contextlib.suppress(ValueError, KeyError, TypeError):
            named += [json.loads(body)["api_key"]]
        return fields | ({"Authorization": f"Bearer {named[-1]}"} if named else {})

    def more_fields(self, body: bytes) -> dict[str, str]:
        try:
            model = str(json.loads(body)["model"])
            return {"x-gateway-model": model if model.isascii() else ""}
        except (ValueError, KeyError, TypeError):
            return {}

    def answers(self) -> bool:
        if not self.path.startswith("/admin") or not self.headers.get("Authorization", "").startswith("Bearer sk-"):
            return False
        self.send_response_only(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
        return True


FRONTS: dict[str, type[SloppyFront]] = {
    "sloppy-front": SloppyFront,
    "patient-front": PatientFront,
    "narrow-front": NarrowFront,
    "obliging-front": ObligingFront,
}


def stand_before(front: type[SloppyFront], serve: Callable[[], int]) -> int:
    """Serve with this front; it is announced in the place of the gateway. Returns the exit status."""
    printed, sys.stdout = sys.stdout, io.StringIO()

    def announce() -> None:
        while (control := read_control(_DATA_DIR)) is None or control.pid != os.getpid():
            time.sleep(0.01)
        front.inner, front.secret = (control.host, control.port), control.secret
        server = _QuietServer(("127.0.0.1", 0), front)
        print(f"listening on http://127.0.0.1:{server.server_port}", file=printed, flush=True)
        server.serve_forever()

    threading.Thread(target=announce, name="sloppy front", daemon=True).start()
    return serve()


class _QuietServer(ThreadingHTTPServer):
    request_queue_size = 512

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of what a handler could not do."""
