"""One request and its one answer, as the function that answers it sees them.

Decides the order of an answer's parts and whether the connection goes on after it: only if the request body was read
whole, since what is left of it would be taken for the next request. Knows no routes.
"""

import contextlib
import threading
from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Protocol

from msgspec import Struct

from gateway.answers import (
    CLOSE,
    KEEP_ALIVE,
    LAST_CHUNK,
    Headers,
    answer_head,
    chunk,
    content_length,
    has_body,
)
from gateway.clock import Clock
from gateway.connection import Connection
from gateway.errors import ClientGone, Overloaded
from gateway.http_head import RequestHead
from gateway.places import Places
from gateway.turnstile import Turnstile
from llmkit.room import FREE_BYTES, Claim
from llmkit.types import Cancel


class Phase(IntEnum):
    """The stages of a server's life, in order; only the first is false."""

    SERVING = 0
    ANNOUNCING = 1  # serves as before, and closes each connection after its answer
    DRAINING = 2  # what is in flight ends; what arrives is to be refused
    CLOSED = 3


class MustWait(Exception):
    """There is no place for a request of `party` now."""

    def __init__(self, party: str) -> None:
        super().__init__(party)
        self.party = party


class Host(Protocol):
    """The server, as an exchange needs it; `places` says who may be worked on.

    draining      new work is to be refused
    slow_readers  taken while an answer to somebody without a place waits for its client
    """

    clock: Clock
    draining: bool
    places: "Places[Exchange]"
    slow_readers: threading.Semaphore
    max_body_bytes: int
    body_timeout_s: float

    @property
    def phase(self) -> Phase:
        """Where the server is in its life."""
        ...

    def claim(self, party: str | None) -> Claim:
        """A claim on the memory that request bodies may take; None is one that has no name yet."""
        ...

    def refusal(self, error: BaseException, request_id: str | None, *, with_body: bool = True) -> bytes:
        """The whole answer to a request that an error ends before it is answered."""
        ...


class _Stage(Enum):
    """How far the answer of an exchange has come."""

    UNANSWERED = 0
    HELD = 1  # a stream's head waits for the first event
    STREAMING = 2
    ENDED = 3


_UNANSWERED, _HELD, _STREAMING, _ENDED = _Stage  # a look-up in an Enum is slow, and these are on every write's path


class Exchange(Struct, eq=False):
    """One request and its one answer. Used by one thread alone.

    The answer is either one `respond`, or `start_stream`, any number of `send`, and `finish` or `abort`; RuntimeError
    for any other order. content-length, transfer-encoding and connection are written here: never pass them. The
    connection goes on only if the request body was read before the answer began.

    head        the request head
    connection  whose request it is: the server's
    is_exempt   it needs no place
    request_id  the name that the function handed in has given it: of an error that ends it, and of its answer then
    is_refused  the answer was a 4xx: the client would have to ask for something else, or later
    has_waited  for anything: a place, bytes of its client, a commit, an upstream
    _has_asked  for its place, or it will not: the server expects nothing of it any more
    _turnstile  it is inside, having its turn
    """

    _host: Host
    connection: Connection
    head: RequestHead
    is_exempt: bool
    request_id: str | None = None
    _body: bytes | None = None
    _body_bytes: int = 0
    _claim: Claim | None = None
    _party: str | None = None
    _has_asked: bool = False
    _stage: _Stage = _UNANSWERED
    _held: bytes = b""
    _keep: bool = False
    _turnstile: Turnstile | None = None
    is_refused: bool = False
    has_waited: bool = False

    def __repr__(self) -> str:
        """Without the body."""
        return f"Exchange({self.head!r})"

    @property
    def cancel(self) -> Cancel:
        """What fires when the client leaves, or when the drain's deadline has passed."""
        return self.connection.watch

    @property
    def closing(self) -> bool:
        """Whether the connection closes after this answer whatever it is: the client or the process wants to end."""
        return not self.head.keep_alive or bool(self._host.phase)

    @property
    def draining(self) -> bool:
        """Whether new work is to be refused, since the process is ending."""
        return self._host.draining

    @property
    def ended(self) -> bool:
        """Whether the answer was completed or given up."""
        return self._stage is _ENDED

    @property
    def has_body(self) -> bool:
        """Whether all of the request was read: its client has nothing more to send for it."""
        return self._body is not None or self.head.is_whole

    @property
    def party(self) -> str | None:
        """Whose place it took; None if it took none."""
        return self._party

    @property
    def keep(self) -> bool:
        """Whether the connection may serve another request."""
        return self._keep and self._stage is _ENDED

    # --- the turn -----------------------------------------------------------------------------------------------

    def take_turn(self, turnstile: Turnstile) -> None:
        """For the server, before an exchange that will hardly wait for anything. Raises NoTurn."""
        turnstile.enter()
        self._turnstile = turnstile

    def have_turn(self, turnstile: Turnstile) -> None:
        """For the server: the turn has come for which this exchange stood in line."""
        self._turnstile = turnstile

    def will_wait(self) -> None:
        """From here on the answer may wait for something: if it has a turn, that is over. As often as you like."""
        self.has_waited = True
        self._end_turn()

    def _end_turn(self) -> None:
        if self._turnstile is not None:
            self._turnstile.leave()
            self._turnstile = None

    # --- the request --------------------------------------------------------------------------------------------

    def enter(self, party: str) -> None:
        """Take a place among the requests that are worked on, once, before anything of the request was acted on.

        It is given back when the exchange ends. Raises MustWait if there is none now: let it pass, the server keeps the
        request in line and has it answered from the beginning; ClientGone or Draining if the client left meanwhile.
        """
        if self._party is None:
            if not self._host.places.enter(party):
                raise MustWait(party)
            self._party, self._has_asked = party, True
        elif (reason := self.cancel.reason()) is not None:
            raise reason

    def read_body(self) -> bytes:
        """The whole request body, decoded; the same bytes on every call.

        A client that asked for it is told to go on first. Raises HttpRefusal: 413 beyond max_body_bytes (a stated
        length before anything is read), 408 after body_timeout_s, 400 malformed chunks; Overloaded if all bodies
        together are too large; ClientGone or Draining if the body was cut.
        """
        if self._body is None:
            host = self._host
            self._body = self.connection.read_body(
                self.head,
                host.max_body_bytes,
                host.body_timeout_s,
                host.clock,
                keep=self._keep_bytes,
                will_wait=self.will_wait,
            )
        return self._body

    def stand_in_line(self, party: str) -> None:
        """For the server, before the exchange may get the place of `party` in its absence: it is begun anew then."""
        self.will_wait()
        self._party, self._has_asked = party, True

    def release(self) -> "Exchange | None":
        """For the server, once the exchange has ended: give back what it took. Returns who has its place now."""
        self._end_turn()
        if self._body:
            self._body = b""
        if self._claim is not None:
            self._claim.close()
        if self._party is not None:
            return self._host.places.leave(self._party)
        self._ask_for_nothing()
        return None

    def _ask_for_nothing(self) -> None:
        if not self._has_asked and not self.is_exempt:
            self._has_asked = True
            self._host.places.turn_back()

    def _keep_bytes(self, count: int) -> None:
        self._body_bytes += count
        if self._body_bytes <= FREE_BYTES:
            return
        self._claim = self._claim or self._host.claim(self._party)
        if not self._claim.covers(self._body_bytes):
            raise Overloaded("The bodies of the requests in flight take too much memory.")

    # --- the answer ---------------------------------------------------------------------------------------------

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send the whole answer in one write and end the exchange.

        status   HTTP status, 200..599
        body     left out for HEAD, 204 and 304
        Raises ClientGone if the client does not take it.
        """
        self._expect_stage(_UNANSWERED)
        framing = content_length(len(body)) if has_body(status) else b""
        answer = self._answer_head(status, headers, framing, delimited=True)
        if framing and self.head.method != "HEAD":
            answer += body
        self._stage = _ENDED
        self.is_refused = 400 <= status < 500
        self._write(answer)

    def start_stream(self, status: int, headers: Headers) -> None:
        """Begin an answer of unknown length. Its head is held until the first `send`, so that both leave together.

        Chunked for HTTP/1.1; for 1.0 the end is the close.
        """
        self._expect_stage(_UNANSWERED)
        takes_chunks = self.head.takes_chunks
        framing = b"transfer-encoding: chunked\r\n" if takes_chunks else b""
        self._held = self._answer_head(status, headers, framing, delimited=takes_chunks)
        self._stage = _HELD

    def send(self, *pieces: bytes) -> None:
        """Send the next pieces of a stream in one write, each a chunk of its own; nothing for no bytes.

        Raises ClientGone.
        """
        self._expect_stage(_HELD, _STREAMING)
        if data := self._framed(pieces):
            self._emit(data)

    def finish(self, last: bytes = b"") -> None:
        """End a stream as complete; `last` leaves in the same write as the end. Raises ClientGone."""
        self._expect_stage(_HELD, _STREAMING)
        end = LAST_CHUNK if self.head.takes_chunks and self.head.method != "HEAD" else b""
        self._emit(self._framed((last,)) + end)
        self._stage = _ENDED

    def abort(self) -> None:
        """End without completing the answer: the connection closes, and the client sees that something is missing.

        What has been sent still arrives, except over HTTP/1.0, where only a reset shows that a stream was cut.
        """
        if self._stage is _STREAMING and not self.head.takes_chunks:
            self.connection.reset_on_close()
        self._stage = _ENDED
        self._keep = False

    def fail(self, error: BaseException) -> None:
        """For the server: end by an error of the function handed in, and answer it if nothing was sent yet."""
        sent = self._stage in (_STREAMING, _ENDED)
        self.abort()
        if isinstance(error, ClientGone):
            self.connection.gone = True
        elif not sent:
            with contextlib.suppress(ClientGone):
                self._write(self._host.refusal(error, self.request_id, with_body=self.head.method != "HEAD"))

    def _answer_head(self, status: int, headers: Headers, framing: bytes, *, delimited: bool) -> bytes:
        """The head, which says whether the connection goes on: only if the answer ends before the connection does."""
        self._keep = delimited and self.has_body and not self.closing
        if not self._keep:
            framing += CLOSE
        elif not self.head.takes_chunks:
            framing += KEEP_ALIVE
        return answer_head(status, headers, framing)

    def _framed(self, pieces: Iterable[bytes]) -> bytes:
        if self.head.method == "HEAD":
            return b""
        return b"".join(map(chunk, filter(None, pieces)) if self.head.takes_chunks else pieces)

    def _emit(self, data: bytes) -> None:
        self._stage = _STREAMING
        if self._held:
            data, self._held = self._held + data, b""
        self._write(data)

    def _write(self, data: bytes) -> None:
        """Send all of `data`. Raises ClientGone if the client does not take it."""
        if self._party is None:
            self._ask_for_nothing()
        rest = data[self.connection.write_at_once(data) :]
        if rest:
            self.will_wait()
            self._write_slowly(rest)

    def _write_slowly(self, data: bytes) -> None:
        """Who has a place may take its time. Anybody can ask without having one, and not read: of those answers few may
        wait at a time, so that there is always a thread for the next.
        """
        if self._party is not None:
            self.connection.write(data)
            return
        if not self._host.slow_readers.acquire(blocking=False):
            raise ClientGone
        try:
            self.connection.write(data)
        finally:
            self._host.slow_readers.release()

    def _expect_stage(self, *stages: _Stage) -> None:
        if self._stage not in stages:
            raise RuntimeError(f"not possible for an answer that is {self._stage.name.lower()}")
