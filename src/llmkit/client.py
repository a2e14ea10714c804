"""A client for any OpenAI-compatible API: what a status means, and how much of an answer is read.

Decides from the status alone what is a failure; how long an upstream asked to wait; the bounds of an answer.
Does not know chat completions (openai.py) or sockets (transport.py), and never retries what was refused.

Rules: no content encoding is asked for; gzip that comes all the same is unpacked within the bounds of an answer, and an
answer in any other is refused.
What is held of an answer is counted in a room, and an answer for which there is none is refused.
Upstream text is only repeated for the caller's own faults, without the API key that was sent.
"""

import functools
import math
import ssl
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn

from llmkit import wire_json
from llmkit.errors import NO_ROOM, TOO_LARGE, ProviderError, ProviderErrorKind, kind_of_status
from llmkit.http1 import ResponseHead
from llmkit.openai import FLAGGED, Malformed, WireError, as_error, decode_object, from_wire, parse_error
from llmkit.openai_stream import ChunkShaper
from llmkit.packed import CODINGS, UnpackedExchange
from llmkit.room import Claim, Room
from llmkit.sse import DONE, EventTooLarge, SSEReader
from llmkit.tokens import approx_tokens, messages_tokens
from llmkit.transport import Exchange, Pool, RequestHead, Timeouts
from llmkit.types import Cancel, Pulse

__all__ = ["OpenAICompatClient", "Timeouts", "UpstreamAnswer", "approx_tokens", "messages_tokens"]

DEFAULT_TIMEOUTS = Timeouts()

_LONGEST_WAIT_S = 86_400.0  # a longer Retry-After says no more than a day's
_ERROR_BODY_BYTES = 65_536  # the longest real one, a list of validation faults, stays below
_ERROR_BODY_S = 2.0  # it comes with its head, or nobody waits for it: the next deployment may answer by then
_REQUEST_ID_CHARS = 128
_JSON_SPACE = b" \t\r\n"
_NO_CODINGS = frozenset({"", "identity"})


class OpenAICompatClient:
    """Calls one base URL (`https://api.openai.com/v1`). Safe from many threads; connections are kept and shared."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        clock: Callable[[], float] = time.monotonic,  # noqa: TID251 - a library user has no clock to hand in
        wall_s: Callable[[], float] = time.time,  # noqa: TID251 - the same
        ssl_context: ssl.SSLContext | None = None,
        max_event_bytes: int = 1_048_576,
        max_answer_bytes: int = 33_554_432,
        room: Room | None = None,
    ) -> None:
        """ValueError if base_url is not one.

        clock     monotonic seconds; deadlines are points on it
        wall_s    Unix seconds; only tells how far off a Retry-After date is
        max_event_bytes, max_answer_bytes  bound one event, and a whole answer or stream
        room      what all answers together may hold of memory; without one, that is not bounded
        """
        pool = self._pool = Pool(base_url, timeouts=timeouts, clock=clock, ssl_context=ssl_context)

        @functools.lru_cache(maxsize=64)
        def post_head(path: str, stream: bool, key: str | None) -> RequestHead:
            return pool.head("POST", path, _headers(key, stream))

        self._post_head = post_head
        self._api_key = api_key
        self._wall_s = wall_s
        self._max_event_bytes = max_event_bytes
        self._max_answer_bytes = max_answer_bytes
        self._room = room or Room(sys.maxsize)

    def open(
        self,
        body: bytes,
        *,
        stream: bool,
        path: str = "/chat/completions",
        headers: Sequence[tuple[str, str]] = (),
        cancel: Cancel | None = None,
        pulse: Pulse | None = None,
        deadline_s: float | None = None,
        api_key: str | None = None,
    ) -> "UpstreamAnswer":
        """POST a JSON body and wait for a 2xx head; close what comes back, and let it go.

        headers     beside those of the body and the key
        deadline_s  the point on `clock` at which the caller's own time is over
        api_key     instead of the client's own
        Raises ProviderError with every fact, what `cancel` gave (see transport), or ValueError with nothing sent.
        """
        key = api_key or self._api_key
        head = self._post_head(path, stream, key)
        exchange = self._pool.request(head, body, headers, cancel=cancel, pulse=pulse, deadline_s=deadline_s)
        return self._answer(exchange, key)

    def models(self) -> tuple[str, ...]:
        """Ids of the models that the server says it serves, in its order. Raises ProviderError."""
        head = self._pool.head("GET", "/models", _headers(self._api_key, False))
        exchange = self._pool.request(head, b"")
        with self._answer(exchange, self._api_key) as answer:
            try:
                listed = decode_object(answer.whole()).get("data")
            except Malformed as error:
                raise _unusable(error) from error
        entries = listed if isinstance(listed, list) else []
        ids = (entry.get("id") for entry in entries if isinstance(entry, dict))
        return tuple(name for name in ids if isinstance(name, str))

    def chat(self, body: Mapping[str, object]) -> dict[str, Any]:
        """One whole chat completion, in the form of the OpenAI API. Raises ProviderError, or ValueError for no JSON."""
        with self.open(_encoded(body, stream=False), stream=False) as answer:
            try:
                return decode_object(from_wire(answer.whole()).raw)
            except (WireError, Malformed) as error:
                raise _unusable(error) from error

    def stream(self, body: Mapping[str, object]) -> Generator[dict[str, Any], None, None]:
        """The chunks of a chat completion as they come, in the form of the OpenAI API; usage last, if it was asked for.

        Nothing is sent before the first is asked for; closing it early closes the connection.
        Raises ProviderError, also when the stream ends before every choice has its finish reason.
        """
        options = body.get("stream_options")
        wants_usage = isinstance(options, Mapping) and options.get("include_usage") is True
        shaper = ChunkShaper(want_usage=wants_usage)
        with self.open(_encoded(body, stream=True), stream=True) as answer:
            answer.let_go()
            try:
                for payload in answer.payloads():
                    yield from map(decode_object, shaper.feed(payload))
            except (WireError, Malformed) as error:
                raise _unusable(error) from error
        if not shaper.finished:
            raise _unusable(Malformed("the stream ended before it was finished"))
        if wants_usage and shaper.usage is not None:
            yield decode_object(shaper.usage_payload(shaper.usage, None))

    def _answer(self, exchange: Exchange, key: str | None) -> "UpstreamAnswer":
        """The answer of an exchange whose head has come. Raises ProviderError for anything but a plain 2xx."""
        head = exchange.head
        codings = [coding for coding in head.listed("content-encoding") if coding not in _NO_CODINGS]
        body = UnpackedExchange(exchange) if codings in CODINGS else exchange
        if not 200 <= head.status < 300:
            with closing(body):
                raise _refusal(head, _error_body(body), api_key=key, now_s=self._wall_s())
        answer = UpstreamAnswer(body, self._max_event_bytes, self._max_answer_bytes, Claim(self._room))
        if codings and body is exchange:
            answer.refuse("a content encoding that was not asked for", failure="content encoding")
        return answer

    def close(self) -> None:
        """Close the connections that wait. Answers that are out go on."""
        self._pool.close()


class UpstreamAnswer:
    """A 2xx answer whose body is still to be read, by one thread: either as a whole or event by event.

    What was received counts as held until let_go(); used as a context manager, it is closed and let go at the end.

    is_event_stream  what the upstream says it sends, whatever was asked for
    """

    def __init__(
        self, exchange: Exchange | UnpackedExchange, max_event_bytes: int, max_answer_bytes: int, claim: Claim
    ) -> None:
        media_type = (exchange.head.get("content-type") or "").partition(";")[0]
        self.is_event_stream = media_type.strip().lower() == "text/event-stream"
        self._exchange = exchange
        self._sse = SSEReader(max_event_bytes)
        self._limit = max_answer_bytes
        self._claim = claim
        self._received = 0
        self._is_kept = True  # by whoever reads
        self._began = False  # something other than keep-alive comments and blank lines has come
        self._ended = False
        self._done = False  # the end mark has come, so the end of the body is on its way

    def __enter__(self) -> "UpstreamAnswer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.let_go()

    @property
    def request_id(self) -> str | None:
        """The upstream's own name for the call."""
        name = self._exchange.head.get("x-request-id") or self._exchange.head.get("request-id")
        return name[:_REQUEST_ID_CHARS] if name else None

    def whole(self) -> bytes:
        """The complete body without white space before it (some upstreams send some to stay connected)."""
        if (self._exchange.head.length or 0) > self._limit:
            self._refuse_size(TOO_LARGE)
        parts = []
        while not self._exchange.at_end and (data := self._read()) is not None:
            if not self._began:
                data = data.lstrip(_JSON_SPACE)
                self._began = bool(data)
            self._bound()
            parts.append(data)
        self._end()
        return b"".join(parts)

    def next_events(self) -> list[bytes] | None:
        """The data of the events that came next, all that are there; None at an end that the transport knows to be
        complete.
        """
        while not self._ended:
            if events := self._read_events():
                self._done = self._done or DONE in events
                return events
        return None

    def payloads(self) -> Iterator[bytes]:
        """The data of each event before the end mark."""
        while (events := self.next_events()) is not None:
            for event in events:
                if event == DONE:
                    return
                yield event

    def close(self) -> None:
        """Give the connection back if the answer has been read to its end, else close it. Idempotent."""
        self._exchange.close(awaiting_end=self._done)

    def let_go(self) -> None:
        """Say that nothing is held any more of what was given so far, and that what will be given leaves at once.

        An answer that is not let go counts for ever. Idempotent.
        """
        self._is_kept = False
        self._claim.close()

    def refuse(self, why: str, *, failure: str) -> NoReturn:
        """Close the connection, and raise that the answer cannot be used; `failure` as ProviderError has it."""
        self.close()
        raise ProviderError(
            ProviderErrorKind.MALFORMED,
            f"the upstream's answer is unusable: {why}",
            sent=True,
            first_byte_seen=True,
            status=self._exchange.head.status,
            failure=failure,
        )

    def _read_events(self) -> list[bytes]:
        try:
            self._sse.feed(b"")  # a refusal that waited for the events before it, instead of a read that may block
            data = self._read()
            events = self._sse.end() if data is None else self._sse.feed(data)
        except EventTooLarge as error:
            self.refuse(str(error), failure=type(error).__name__)
        self._began = self._began or bool(events)
        self._bound()
        return [as_error(event.data) if event.event == "error" else event.data for event in events]

    def _refuse_size(self, failure: str) -> NoReturn:
        self.refuse(f"longer than {self._limit} bytes", failure=failure)

    def _read(self) -> bytes | None:
        """Some of the body, counted; at its end None, and the connection is given back."""
        data = self._exchange.read(awaiting_first=not self._began)
        if data is None:
            self._end()
            return None
        self._received += len(data)
        return data

    def _bound(self) -> None:
        """Refuse an answer that is too large by now, or that there is no room for."""
        if self._received > self._limit:
            self._refuse_size(TOO_LARGE if self._began else "never begun")
        self._cover(self._received if self._is_kept else self._sse.held)

    def _end(self) -> None:
        self._ended = True
        self.close()

    def _cover(self, held: int) -> None:
        if not self._claim.covers(held):
            self.refuse("there is no room for more of it beside the others in memory", failure=NO_ROOM)


def _headers(key: str | None, stream: bool) -> list[tuple[str, str]]:
    headers = [
        ("content-type", "application/json"),
        ("accept", "text/event-stream, application/json" if stream else "application/json"),
        ("user-agent", "llmkit"),
    ]
    if key:
        headers.append(("authorization", f"Bearer {key}"))
    return headers


def _encoded(body: Mapping[str, object], *, stream: bool) -> bytes:
    return wire_json.encode_strictly({**body, "stream": stream})


def _error_body(exchange: Exchange | UnpackedExchange) -> bytes:
    """As much of an error's body as comes; the status was already said, so a cut one is as good as none."""
    body = bytearray()
    exchange.hurry(_ERROR_BODY_S)
    try:
        while len(body) < _ERROR_BODY_BYTES and (data := exchange.read()) is not None:
            body += data
    except ProviderError:
        pass
    return bytes(body[:_ERROR_BODY_BYTES])


def _refusal(head: ResponseHead, body: bytes, *, api_key: str | None, now_s: float) -> ProviderError:
    said = parse_error(head.status, body, api_key)
    kind = ProviderErrorKind.CLIENT if said.code == FLAGGED else kind_of_status(head.status)
    return ProviderError(
        kind,
        said.message if kind is ProviderErrorKind.CLIENT else f"the upstream answered HTTP {head.status}",
        sent=True,
        first_byte_seen=True,
        status=head.status,
        code=said.code,
        param=said.param,
        error_type=said.type,
        retry_after_s=_retry_after_s(head, now_s),
        usage=said.usage,
    )


def _retry_after_s(head: ResponseHead, now_s: float) -> float | None:
    """How long the upstream asks to wait, 0 at least: `retry-after-ms`, or else seconds, or else a date."""
    milliseconds = _number(head.get("retry-after-ms"))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    value = head.get("retry-after")
    seconds = _number(value)
    if seconds is None and value:
        try:
            date = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now_s
    return None if seconds is None else _bounded(seconds)


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), _LONGEST_WAIT_S)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _unusable(error: WireError | Malformed) -> ProviderError:
    """What a 2xx answer that is none means: a failure that the upstream reports, or junk."""
    if isinstance(error, WireError):
        return ProviderError(
            ProviderErrorKind.SERVER,
            "the upstream reported an error in its answer",
            sent=True,
            first_byte_seen=True,
            code=error.code,
            param=error.param,
            error_type=error.type,
            usage=error.usage,
        )
    return ProviderError(
        ProviderErrorKind.MALFORMED,
        f"the upstream's answer is unusable: {error}",
        sent=True,
        first_byte_seen=True,
        usage=error.usage,
    )
