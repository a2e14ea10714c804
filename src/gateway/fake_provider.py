"""A scripted upstream, for the demo, for trying things out, and for tests.

It keeps the contract of a provider exactly, which one suite of tests checks for it and for the live one.
"""

import json
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.config_schema import ScriptEntry
from gateway.context import Caller
from gateway.providers import ProviderAnswer, UpstreamCall
from llmkit.errors import ProviderError, ProviderErrorKind, kind_of_status
from llmkit.openai import parse_usage, usage_object
from llmkit.sse import DONE
from llmkit.tokens import approx_tokens, messages_tokens
from llmkit.types import Usage

_JUNK = b'{"id": "chatcmpl-fake", "choi'


class FakeCall(Struct):
    """What a fake was asked, and what it would bill for it by now."""

    body: dict[str, Any]
    billed: Usage | None = None
    closed: bool = False


class FakeProvider:
    """A scripted upstream. Entries are consumed in order; then `repeat` starts again, else the last one stays.

    script  config's ScriptEntry objects, or mappings with the same keys
    calls   the calls that reached it, each with the usage it bills: the meter of tests
    remembers  how many of the latest calls are kept; None keeps all
    `_lock` guards `_used` and the appending to `calls`.
    """

    def __init__(
        self,
        script: Sequence[ScriptEntry | Mapping[str, Any]],
        *,
        repeat: bool = False,
        name: str = "fake",
        remembers: int | None = None,
    ) -> None:
        if not script:
            raise ValueError("a fake provider needs at least one scripted answer")
        self.name = name
        self._script = [entry if isinstance(entry, ScriptEntry) else ScriptEntry(**entry) for entry in script]
        self._repeat = repeat
        self._lock = threading.Lock()
        self._used = 0
        self.calls: deque[FakeCall] = deque(maxlen=remembers)

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        record = FakeCall(json.loads(call.body))
        with self._lock:
            entry = self._next()
            self.calls.append(record)
        if call.time_left_s is not None and entry.latency_s >= call.time_left_s:
            await caller.pause(call.time_left_s)
            raise _timed_out("client")
        await caller.pause(entry.latency_s)
        if entry.timeout:
            raise _timed_out("ttft")
        if entry.status is not None:
            record.billed = parse_usage(entry.usage)
            raise _status_error(entry, record.billed)
        return _FakeAnswer(_Reply(entry, record, _said(entry, record.body)), caller)

    def _next(self) -> ScriptEntry:
        at = self._used % len(self._script) if self._repeat else min(self._used, len(self._script) - 1)
        self._used += 1
        return self._script[at]


def _timed_out(clock: str) -> ProviderError:
    return ProviderError(ProviderErrorKind.TIMEOUT, "no answer in time", sent=True, first_byte_seen=False, clock=clock)


def _status_error(entry: ScriptEntry, usage: Usage | None) -> ProviderError:
    status = entry.status or 500
    return ProviderError(
        kind_of_status(status),
        entry.error or f"scripted status {status}",
        sent=True,
        first_byte_seen=True,
        status=status,
        retry_after_s=entry.retry_after,
        usage=usage,
    )


class _Reply(Struct):
    """One scripted answer to one call: its wire forms, and the usage it bills as it goes out."""

    entry: ScriptEntry
    record: FakeCall
    words: list[str]

    @property
    def finish_reason(self) -> str:
        if self.entry.finish_reason is not None:
            return self.entry.finish_reason
        if self.entry.tool_calls:
            return "tool_calls"
        return "stop" if len(self.words) == len(_words(self.entry.text or "")) else "length"

    def usage(self, words: int) -> Usage:
        """What is billed once `words` words are out: what the script says if that makes sense, else one token each."""
        scripted = parse_usage(self.entry.usage)
        if scripted is not None:
            return scripted
        extra = approx_tokens(json.dumps(self.entry.tool_calls)) if self.entry.tool_calls else 0
        extra += len(_words(self.entry.reasoning or ""))
        return Usage(prompt_tokens=messages_tokens(self.record.body["messages"]), completion_tokens=words + extra)

    def reported(self) -> dict[str, Any] | None:
        if self.entry.usage == "missing":
            return None
        if isinstance(self.entry.usage, Mapping):
            return dict(self.entry.usage)
        return usage_object(self.usage(len(self.words)))

    def completion(self) -> bytes:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self.words), "refusal": None}
        if self.entry.reasoning is not None:
            message["reasoning_content"] = self.entry.reasoning
        if self.entry.tool_calls:
            message |= {"content": self.entry.text, "tool_calls": list(self.entry.tool_calls)}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason}
        return _json(self._head("chat.completion") | {"choices": [choice], "usage": self.reported()})

    def events(self) -> Iterable[tuple[int, bytes | None]]:
        """Payloads of the stream, each with the number of words that are out once it was sent; None is the cut."""
        if self.entry.malformed:
            yield 0, _JUNK
            return
        yield 0, self._chunk({"role": "assistant", "content": ""})
        if self.entry.reasoning is not None:
            yield 0, self._chunk({"reasoning_content": self.entry.reasoning})
        deltas: list[dict[str, Any]] = [{"content": word} for word in self.words]
        deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(self.entry.tool_calls or ())]
        for count, delta in enumerate(deltas[: self.entry.cut_after], 1):
            yield min(count, len(self.words)), self._chunk(delta)
        if self.entry.cut_after is not None:
            yield len(self.words[: self.entry.cut_after + 1]), None
            return
        yield len(self.words), self._chunk({}, self.finish_reason)
        reported = self.reported()
        if reported is not None and (self.record.body.get("stream_options") or {}).get("include_usage"):
            yield len(self.words), _json(self._head("chat.completion.chunk") | {"choices": [], "usage": reported})
        yield len(self.words), DONE

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _json(self._head("chat.completion.chunk") | {"choices": [choice]})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": "chatcmpl-fake", "object": kind, "created": 1_767_225_600, "model": self.record.body["model"]}


class _FakeAnswer:
    """The answer to one call; `caller.pause` is where other requests run, clients leave and processes die."""

    def __init__(self, reply: _Reply, caller: Caller) -> None:
        self._reply = reply
        self._caller = caller
        self._events = iter(reply.events())

    async def whole(self) -> bytes:
        entry = self._reply.entry
        self._bill(len(self._reply.words))
        await self._caller.pause(0)
        if entry.malformed:
            return _JUNK
        if entry.cut_after is not None:
            raise _cut()
        return self._reply.completion()

    async def next_events(self) -> list[bytes] | None:
        await self._caller.pause(0)
        event = next(self._events, None)
        if event is None:
            return None
        words, payload = event
        self._bill(words)
        if payload is None:
            raise _cut()
        return [payload]

    def close(self) -> None:
        self._reply.record.closed = True

    def _bill(self, words: int) -> None:
        self._reply.record.billed = self._reply.usage(words)


def _cut() -> ProviderError:
    return ProviderError(
        ProviderErrorKind.MALFORMED, "the connection was cut", sent=True, first_byte_seen=True, status=200
    )


def _said(entry: ScriptEntry, body: Mapping[str, Any]) -> list[str]:
    """The words of an answer: no more than were asked for, unless its usage is scripted."""
    words = _words(entry.text or "")
    cap = body.get("max_completion_tokens") or body.get("max_tokens")
    return words[:cap] if isinstance(cap, int) and entry.usage is None else words


def _words(text: str) -> list[str]:
    """The text in pieces of a word and the space after it; joined they are the text again."""
    return [piece + " " for piece in text.split(" ")[:-1]] + [piece for piece in text.split(" ")[-1:] if piece]


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
