"""A client of the gateway that sees whether an answer was finished or cut."""

import http.client
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 30.0
CHAT_PATH = "/v1/chat/completions"
CAP = 16
"""Output tokens that the smallest chat request asks for."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `whole` is False if the connection was cut before the end of the message."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool = True

    @property
    def code(self) -> str | None:
        """The error's code, of a body or of a stream's last event; None if it is no error."""
        for text in (self.body, *reversed(self.events)):
            try:
                error = json.loads(text).get("error")
            except (ValueError, AttributeError):
                continue
            if isinstance(error, dict):
                return str(error.get("code"))
        return None

    @property
    def events(self) -> list[bytes]:
        """The payloads of a stream."""
        lines = self.body.split(b"\n")
        return [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]

    @property
    def text(self) -> str:
        """What the model said; nothing in an error."""
        if self.status != 200:
            return ""
        if b"data: " not in self.body:
            return str(json.loads(self.body)["choices"][0]["message"]["content"])
        parts = [json.loads(event) for event in self.events if event != b"[DONE]"]
        choices = [choice for part in parts for choice in part.get("choices", ())]
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    @property
    def looks_finished(self) -> bool:
        """Whether a client would take this for a complete stream."""
        return b"[DONE]" in self.events or (self.whole and self.code is None)


class Stream:
    """An answer that is read piece by piece; close() leaves."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self._connection = connection
        self._response = response

    def lines(self) -> Iterator[bytes]:
        """Each line as it comes."""
        while line := self._response.readline():
            yield line

    def close(self) -> None:
        """Leave, with whatever has not been read."""
        self._response.close()
        self._connection.close()


def chat(text: str = "ping", **fields: Any) -> dict[str, Any]:
    """The smallest chat request."""
    return {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": CAP} | fields


CHAT_BODY = json.dumps(chat()).encode()
"""That of the smallest chat request."""


def request(
    address: tuple[str, int],
    body: object = None,
    *,
    key: str | None,
    headers: Mapping[str, str] | None = None,
    method: str = "POST",
    path: str = CHAT_PATH,
    heard: Callable[[bytes], object] = len,
) -> Answer:
    """One request on a connection of its own; `body` is JSON, or bytes as they are.

    heard  is told of all that has come of the answer's body each time that more has
    """
    connection, response = _send(address, body, key, headers, method, path)
    try:
        return _read(response, heard)
    finally:
        connection.close()


def stream(address: tuple[str, int], body: object, *, key: str) -> Stream:
    """A request whose answer is read piece by piece, once its head is there."""
    return Stream(*_send(address, body, key, None, "POST", CHAT_PATH))


def send_and_leave(address: tuple[str, int], body: object, *, key: str) -> socket.socket:
    """A request nobody waits for: close the socket to leave."""
    raw = json.dumps(body).encode()
    head = f"POST {CHAT_PATH} HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer {key}\r\nContent-Length: {len(raw)}\r\n\r\n"
    sock = socket.create_connection(address, PATIENCE_S)
    sock.sendall(head.encode("latin-1") + raw)
    return sock


class Poised:
    """A chat request of which the gateway has everything but the last byte; fire() it."""

    def __init__(self, address: tuple[str, int], body: object, *, key: str) -> None:
        raw = json.dumps(body).encode()
        self._last = raw[-1:]
        self._connection = http.client.HTTPConnection(*address, timeout=PATIENCE_S)
        self._connection.putrequest("POST", CHAT_PATH)
        self._connection.putheader("Authorization", f"Bearer {key}")
        self._connection.putheader("Content-Length", str(len(raw)))
        self._connection.endheaders(raw[:-1])

    def fire(self) -> Answer:
        """Send the last byte and wait for the answer."""
        try:
            self._connection.send(self._last)
            return _read(self._connection.getresponse())
        finally:
            self._connection.close()


def _read(response: http.client.HTTPResponse, heard: Callable[[bytes], object] = len) -> Answer:
    data, whole = bytearray(), True
    try:
        while piece := response.read1(65_536):
            data += piece
            heard(bytes(data))
        whole = not response.length
    except (http.client.IncompleteRead, ConnectionError):
        whole = False
    fields = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, fields, bytes(data), whole)


def _send(
    address: tuple[str, int], body: object, key: str | None, headers: Mapping[str, str] | None, method: str, path: str
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    bearer = {} if key is None else {"Authorization": f"Bearer {key}"}
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE_S)
    try:
        connection.request(method, path, raw, bearer | dict(headers or {}))
        return connection, connection.getresponse()
    except BaseException:
        connection.close()
        raise
