"""An upstream's stream of chunks, made the stream that clients can read.

Decides which chunks leave, and in which form. Does not know framing, sockets, time or who reads: payloads of events go
in, payloads come out. The end mark `[DONE]` is not a payload; whether a stream may end is told by `finished`.

Rules:
- a chunk that has the form leaves as the same bytes object; another is edited and encoded again, unknown fields stay
- a chunk that only brings more text than one that left unedited leaves as that one did
- one id, created and model per stream; per choice one role, first, and one finish reason
- one id and one name per tool call, and an index that stays the same
- a choice with a message instead of a delta has said all of it at once
- usage never leaves with a chunk: it is kept, and leaves in one closing chunk that the caller asks for
- text, reasoning and tool arguments, joined per choice, are what came
"""

from typing import Any, Final

from llmkit import wire_json
from llmkit.openai import (
    MOST_CHOICES,
    Malformed,
    NewId,
    arguments_to_text,
    decode_object,
    finish_reason,
    flatten_content,
    knows_reason,
    parse_usage,
    public_model,
    raise_reported_error,
    random_id,
    tool_body,
    tool_calls,
    usage_object,
    utf8_bytes,
    whole_seconds,
    written_bytes,
)
from llmkit.text_form import TextForm
from llmkit.types import Usage
from llmkit.wire_json import JsonObject

_LF, _CR = 0x0A, 0x0D
_CHUNK: Final = "chat.completion.chunk"
_WHOLE_HEAD: Final = 4
"""object, id, created and model: what is the same in every chunk."""
MOST_CALLS: Final = 1024
"""Of one choice. A request has at most 128 tools; a stream that opens calls without end would fill memory with them."""
_FORM_OF_CHOICE: Final = frozenset({"index", "delta", "finish_reason"})
_TEXTS: Final = frozenset({"content", "refusal", "reasoning_content", "reasoning"})
_FORMS_TRIED: Final = 4
"""Per stream. One that needs more has something else in each of its chunks, and a form costs as much as a chunk."""


class ChunkShaper:
    """Shapes one stream; not for two threads at once.

    want_usage      whether the client asked for usage; if not, not even a vendor's copy of it leaves
    new_id          24 characters for an id that is missing
    created, model  Unix seconds and name for a stream that has none

    content_deltas  deltas so far in which the model wrote something: text, reasoning, a refusal or of a tool call
    text_bytes      UTF-8 bytes of that
    unreported      bytes and deltas of those that came after `usage` was last reported
    usage           the last that the upstream reported and that makes sense; a vendor's copy only if there is no other
    finish_reasons  the finish reasons so far, by the index of their choices
    ends_oddly      whether a choice ended for a reason that is not known, which leaves as "stop"
    """

    def __init__(self, *, want_usage: bool, new_id: NewId = random_id, created: int = 0, model: str = "") -> None:
        self.content_deltas = 0
        self.text_bytes = 0
        self.usage: Usage | None = None
        self.finish_reasons: tuple[str, ...] = ()
        self.ends_oddly = False
        self._want_usage = want_usage
        self._new_id = new_id
        self._defaults: JsonObject = {"created": created, "model": model}
        self._head: JsonObject = {"object": _CHUNK}
        self._choices: dict[int, _Choice] = {}
        self._reported: JsonObject = {}
        self._bytes_reported = 0
        self._deltas_reported = 0
        self._usage: Usage | None = None
        self._edited = False
        self._form: TextForm | None = None
        self._forms_left = _FORMS_TRIED
        self._sample: tuple[bytes, JsonObject, JsonObject] | None = None  # learned from when the next has come

    @property
    def unreported(self) -> tuple[int, int]:
        return self.text_bytes - self._bytes_reported, self.content_deltas - self._deltas_reported

    @property
    def started(self) -> bool:
        """Whether the model has written anything yet."""
        return self.content_deltas > 0

    @property
    def finished(self) -> bool:
        """Whether every choice seen has its finish reason, and one was seen: the stream may end here."""
        return 0 < len(self._choices) == len(self.finish_reasons)

    def feed(self, payload: bytes) -> list[bytes]:
        """Take the data of the next event; the payloads to send now come back: one, or none if it says nothing.

        Raises WireError if it reports an error, Malformed if it is no chunk; usage it carried is kept first.
        """
        if self._sample is not None:
            self._learn_form(*self._sample)
        if self._form is not None and (text := self._form.text_of(payload)):
            self.content_deltas += 1
            self.text_bytes += utf8_bytes(text)
            return [payload]
        if not payload or payload.isspace():
            return []
        known = self.usage
        try:
            return self._shape(payload)
        finally:
            if self.usage is not known:
                self._bytes_reported, self._deltas_reported = self.text_bytes, self.content_deltas

    def _shape(self, payload: bytes) -> list[bytes]:
        chunk = decode_object(payload)
        self._edited = _LF in payload or _CR in payload
        if chunk.get("usage") is not None or "x_groq" in chunk:
            self._keep_usage(chunk)
        if "error" in chunk or chunk.get("object") != _CHUNK:
            raise_reported_error(chunk, self.usage)
        if len(self._head) < _WHOLE_HEAD:
            self._learn_head(chunk)
        choices = chunk.get("choices") or []
        if type(choices) is not list:
            raise Malformed("choices that are no list")
        kept = []
        for position, choice in enumerate(choices):
            if self._shape_choice(choice, position):
                kept.append(choice)
        if not kept:
            return []
        if len(kept) < len(choices):
            self._set(chunk, "choices", kept)
        self._stamp_head(chunk)
        if self._edited:
            return [wire_json.encode(chunk)]
        if len(kept) == 1 and self._forms_left:
            self._sample = payload, chunk, kept[0]
        return [payload]

    def usage_payload(self, usage: Usage, cost_usd: str | None) -> bytes:
        """The closing chunk: no choices, and usage. What the upstream reported beside the counts of `usage` is kept.

        cost_usd  a JSON number, put in as `usage.cost_usd` with exactly this text; None leaves it out
        """
        reported = self._reported if usage == self._usage else {}
        extras = {key: value for key, value in reported.items() if value is not None and key != "cost_usd"}
        if type(extras.get("total_tokens")) is not int:
            extras.pop("total_tokens", None)
        chunk = {"choices": [], "usage": usage_object(usage) | extras}
        self._stamp_head(chunk)
        usage_json = wire_json.encode(chunk.pop("usage"))
        if cost_usd is not None:
            usage_json = usage_json[:-1] + b',"cost_usd":' + cost_usd.encode() + b"}"
        return wire_json.encode(chunk)[:-1] + b',"usage":' + usage_json + b"}"

    def _keep_usage(self, chunk: JsonObject) -> None:
        reported = chunk.get("usage")
        if reported is not None:
            self._drop(chunk, "usage")
            if usage := parse_usage(reported):
                self.usage, self._reported, self._usage = usage, reported, usage
        vendor = chunk.get("x_groq")
        if isinstance(vendor, dict) and "usage" in vendor:
            self.usage = self._usage or parse_usage(vendor["usage"]) or self.usage
            if not self._want_usage:
                self._drop(vendor, "usage")

    def _learn_head(self, chunk: JsonObject) -> None:
        if name := _text(chunk, "id"):
            self._head.setdefault("id", name)
        if model := public_model(chunk.get("model")):
            self._head.setdefault("model", model)
        if seconds := whole_seconds(chunk.get("created")):
            self._head.setdefault("created", seconds)

    def _stamp_head(self, chunk: JsonObject) -> None:
        if len(self._head) < _WHOLE_HEAD:
            self._head = {"id": "chatcmpl-" + self._new_id(), **self._defaults, **self._head}
        if not self._head.items() <= chunk.items():
            chunk.update(self._head)
            self._edited = True

    def _learn_form(self, payload: bytes, chunk: JsonObject, choice: JsonObject) -> None:
        """Know the next chunk again that differs from this one in its text alone, if a text is all that this one says.

        Whatever came before and comes between, such a one is shaped alike: unedited, and one text longer.
        """
        self._sample = None
        delta = choice["delta"]
        texts = [key for key, value in delta.items() if value is not None]
        if len(texts) == 1 and texts[0] in _TEXTS and choice["finish_reason"] is None and "x_groq" not in chunk:
            self._form = TextForm.of(payload, chunk, delta, texts[0]) or self._form
            self._forms_left -= 1

    def _shape_choice(self, choice: Any, position: int) -> bool:
        """Edit one choice of a chunk; whether it still says anything."""
        if type(choice) is not dict:
            raise Malformed("a choice that is no object")
        index = choice.get("index")
        if type(index) is not int:
            index = position
            self._set(choice, "index", index)
        state = self._choices.get(index)
        if state is None:
            if len(self._choices) == MOST_CHOICES:
                raise Malformed("more choices than can be asked for")
            state = self._choices[index] = _Choice()
        delta = choice.get("delta")
        if delta is None:
            delta = choice.pop("message", None) or {}
            self._set(choice, "delta", delta)
        if type(delta) is not dict:
            raise Malformed("a delta that is no object")
        if type(delta.get("content")) is not str and flatten_content(delta):
            self._edited = True
        if state.finish is not None and _is_echo(choice, delta):
            return False
        self._shape_delta(state, delta)
        self._shape_finish(state, choice, delta)
        return True

    def _shape_delta(self, state: "_Choice", delta: JsonObject) -> None:
        if not state.has_role:
            state.has_role = True
            if delta.get("role") != "assistant":
                self._set(delta, "role", "assistant")
        elif "role" in delta:
            self._drop(delta, "role")
        if delta.get("tool_calls"):
            for call in tool_calls(delta):
                self._edited |= state.tools.shape(call, self._new_id)
        if size := written_bytes(delta):
            self.content_deltas += 1
            self.text_bytes += size

    def _shape_finish(self, state: "_Choice", choice: JsonObject, delta: JsonObject) -> None:
        raw = choice.get("finish_reason", "")
        if raw is None:
            return
        is_none = type(raw) is not str or (raw == "" and ("finish_reason" not in choice or any(delta.values())))
        if state.finish is not None or is_none:
            self._set(choice, "finish_reason", None)
            return
        self.ends_oddly |= not knows_reason(raw)
        state.finish = finish_reason(choice, calls_sent=state.tools.sent, usage=self.usage)
        self.finish_reasons = tuple(
            [other.finish for _, other in sorted(self._choices.items()) if other.finish is not None]
        )
        if state.finish != raw:
            self._set(choice, "finish_reason", state.finish)

    def _set(self, document: JsonObject, key: str, value: object) -> None:
        document[key] = value
        self._edited = True

    def _drop(self, document: JsonObject, key: str) -> None:
        del document[key]
        self._edited = True


def _is_echo(choice: JsonObject, delta: JsonObject) -> bool:
    """Whether a choice that has finished says nothing more: its role, empty texts or its finish reason again."""
    return not any(value for key, value in delta.items() if key != "role") and not any(
        value for key, value in choice.items() if key not in _FORM_OF_CHOICE
    )


class _Choice:
    """What one choice of the stream has said so far."""

    __slots__ = ("finish", "has_role", "tools")

    def __init__(self) -> None:
        self.has_role = False
        self.finish: str | None = None
        self.tools = _ToolCalls()


class _Call:
    """One tool call: the index it leaves with, and what its upstream called it."""

    __slots__ = ("has_arguments", "id", "index", "name")

    def __init__(self, index: int) -> None:
        self.index = index
        self.id: str | None = None
        self.name: str | None = None
        self.has_arguments = False


class _ToolCalls:
    """The tool calls of one choice: which of them a delta belongs to.

    A delta with an index goes on with the call of that index, one without with the call of its id, else with the last
    call. It opens the next call instead if it brings another id (with an index: and a name), another name (without an
    index), or a name and arguments that begin anew: some upstreams send index 0, or none, for every call.
    """

    __slots__ = ("_by_id", "_by_index", "_calls", "_free", "_taken")

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._taken: set[int] = set()
        self._free = 0

    @property
    def sent(self) -> bool:
        return bool(self._calls)

    def shape(self, delta: JsonObject, new_id: NewId) -> bool:
        """Edit a delta so that its call has one index, one id and its name once; whether it was edited."""
        edited = arguments_to_text(delta)
        body = tool_body(delta)
        index = delta.get("index")
        given = index if type(index) is int and index >= 0 else None
        call_id, name, arguments = _text(delta, "id"), _text(body, "name"), _text(body, "arguments")
        call = self._find(given, call_id)
        if call is None or _opens_next(call, given, call_id, name, arguments):
            call = self._open(given)
            if call_id is None:
                delta["id"] = "call_" + new_id()
                edited = True
            if delta.get("type") is None:
                delta["type"] = "function"
                edited = True
        else:
            if call_id is not None:
                del delta["id"]
                edited = True
            if name is not None and name == call.name:
                del body["name"]
                edited = True
        if given != call.index:
            delta["index"] = call.index
            edited = True
        if call.id is None and call_id is not None:
            call.id = call_id
            self._by_id.setdefault(call_id, call)
        call.name = call.name or name
        call.has_arguments |= arguments is not None
        return edited

    def _find(self, given: int | None, call_id: str | None) -> _Call | None:
        if given is not None:
            return self._by_index.get(given)
        known = self._by_id.get(call_id) if call_id is not None else None
        return known or (self._calls[-1] if self._calls else None)

    def _open(self, given: int | None) -> _Call:
        if len(self._calls) == MOST_CALLS:
            raise Malformed("more tool calls than any answer makes")
        index = given if given is not None and given not in self._taken else self._free
        call = _Call(index)
        self._calls.append(call)
        self._taken.add(index)
        self._free = max(self._free, index + 1)
        self._by_index.setdefault(index, call)
        if given is not None:
            self._by_index[given] = call
        return call


def _opens_next(call: _Call, given: int | None, call_id: str | None, name: str | None, arguments: str | None) -> bool:
    """Whether a delta found to belong to call is in truth the first of the next one."""
    if call_id and call.id:
        return call_id != call.id and (given is None or name is not None)
    if name is None or call.name is None:
        return False
    begins_anew = call.has_arguments and arguments is not None and arguments.lstrip().startswith("{")
    return begins_anew or (given is None and name != call.name)


def _text(document: JsonObject, key: str) -> str | None:
    """A text that is not empty, else None."""
    value = document.get(key)
    return value if value and type(value) is str else None
