"""How many tokens a prompt has: an estimate, and an upper bound.

Decides the two numbers without a tokenizer. Does not know models, context windows or prices.

The bound. A token of a byte-level tokenizer covers at least one byte, so the UTF-8 bytes of everything that the model
may read, as compact JSON, bound its tokens; what a chat template adds comes on top as stated allowances. Characters
divided by four bound nothing. Media count by their own stated bounds, since their bytes say little about their tokens.
A long English prompt is bounded by four to five times its tokens.

What the bound does not bound:
- chat templates that expand their input: tool schemas printed with indentation, numbers written out, long preambles;
- tokenizers that lengthen text before they cut it (NFKC turns U+FDFA, three bytes, into eighteen letters);
- hidden prompts of the provider longer than the allowances, and text that a server adds by itself: web search, memory,
  retrieval, whatever a field names only by an id;
- images where an upstream ignores `detail: "low"` or cuts more tiles than the largest known case, and whatever else
  an upstream accepts in the place of an image;
- audio below 8 kbit/s, such as a WAV file at an absurdly low sample rate.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

REQUEST_ALLOWANCE = 128  # tokens: the template's frame, the reply's header, a default system prompt of usual length
MESSAGE_ALLOWANCE = 16  # tokens per message: role header and delimiters, five in Llama 3's template; ample on purpose
TOOLS_ALLOWANCE = 512  # tokens: the text that explains tools to a model; with REQUEST_ALLOWANCE above the 530 of
# Claude 3 Opus, the longest that a provider documents
IMAGE_BOUND = 48_169  # tokens: gpt-4o-mini, the largest known: 2,833 and 5,667 for each of at most 8 tiles
IMAGE_LOW_BOUND = 16_400  # tokens at detail "low": upstreams that ignore `detail` count their largest own figure
AUDIO_BYTES_PER_TOKEN = 100  # one token per 100 ms, at the lowest rate of MP3 (8 kbit/s)

NOT_READ = frozenset(
    {
        # Addressing, transport and billing: the server reads them, the model does not.
        *("model", "stream", "stream_options", "service_tier", "store", "metadata", "user", "safety_identifier"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        # The sampler's: applied to what the model puts out.
        *("temperature", "top_p", "n", "seed", "frequency_penalty", "presence_penalty", "logit_bias"),
        *("max_tokens", "max_completion_tokens", "stop", "logprobs", "top_logprobs"),
    }
)
"""Top-level fields that never reach the model. Every other field is counted, known or not."""

_TEXT_PARTS = frozenset({"text", "refusal", "thinking"})
_AUDIO_FORMATS = frozenset({"wav", "mp3"})  # the others may pack silence into next to no bytes
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Unbounded(ValueError):
    """A request holds content for which no bound can be stated. `param` names the field, `message` says what."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param
        self.message = message


def approx_tokens(text: str) -> int:
    """An estimate: about four UTF-8 bytes per token, rounded upward; 0 only for the empty text."""
    return (_utf8_len(text) + 3) // 4


def messages_tokens(messages: Sequence[Mapping[str, object]]) -> int:
    """An estimate for a list of chat messages: their text, 4 per message for its frame, and 3 for the reply's.

    Counts content, text parts and the names and arguments of tool calls; media count nothing.
    """
    return sum(4 + sum(map(approx_tokens, _texts(message))) for message in messages) + 3


def texts_bound(body: Mapping[str, object], encoded_len: int) -> int:
    """The prompt_bound of a body without media, by the bytes of the whole body as it is sent: looser by the fields that
    the model does not read.
    """
    return encoded_len + _allowance(body)


def prompt_bound(body: Mapping[str, object], *, encoded_len: int | None = None, file_bound: int | None = None) -> int:
    """An upper bound of the prompt tokens that an upstream can bill for an OpenAI chat body, decoded from JSON.

    encoded_len  bytes of the whole body as it is sent, if known. It stands in for a second encoding when there are
                 only texts: quicker, and looser by the fields that the model does not read.
    file_bound   tokens to count for each content that has no bound of its own, >= 0: the model's context window. That
                 is a file, audio that is not plain base64 of wav or mp3, the audio of a former answer, or a part of an
                 unknown type, which may name any amount of content in a few bytes.
    Raises Unbounded (param "messages") for such content without a file_bound.
    The body is not validated: what is not of the expected shape counts by its bytes.
    """
    messages = body.get("messages")
    if not isinstance(messages, list):
        messages = []
    with_media = any(map(_has_media, messages))
    if encoded_len is not None and not with_media:
        return texts_bound(body, encoded_len)
    allowance = _allowance(body)
    read = {key: value for key, value in body.items() if key not in NOT_READ}
    if with_media:
        read["messages"], tokens = _weigh_all(messages, file_bound)
        allowance += tokens
    return _utf8_len(_encode(read)) + allowance


def _allowance(body: Mapping[str, object]) -> int:
    """What chat templates add to the messages and tools of a body, in tokens."""
    messages = body.get("messages")
    count = len(messages) if isinstance(messages, list) else 0
    tools = TOOLS_ALLOWANCE if body.get("tools") or body.get("functions") else 0
    return REQUEST_ALLOWANCE + MESSAGE_ALLOWANCE * count + tools


def _has_media(message: object) -> bool:
    if not isinstance(message, dict):
        return False
    content = message.get("content")
    return bool(message.get("audio")) or (isinstance(content, list) and not all(map(_is_text, content)))


def _is_text(part: object) -> bool:
    if not isinstance(part, dict):
        return isinstance(part, str)
    kind = part.get("type")
    return isinstance(kind, str) and kind in _TEXT_PARTS and _stands_once("type", part)


def _stands_once(name: str, fields: Mapping[str, object]) -> bool:
    """Whether no other field is called so by a reader to whom upper and lower case are the same, such as Go's."""
    return sum(key.casefold() == name for key in fields) == 1


def _weigh_all(messages: list[object], file_bound: int | None) -> tuple[list[object], int]:
    """The messages without their media, and the bound of the media in tokens."""
    bare: list[object] = []
    total = 0
    for message in messages:
        if isinstance(message, dict) and _has_media(message):
            message, tokens = _weigh_message(message, file_bound)
            total += tokens
        bare.append(message)
    return bare, total


def _weigh_message(message: dict[str, object], file_bound: int | None) -> tuple[dict[str, object], int]:
    bare = dict(message)
    tokens = 0
    if message.get("audio"):
        bare["audio"] = None
        tokens += _no_bound("the audio of a former answer", file_bound)
    content = message.get("content")
    if isinstance(content, list):
        weighed = [_weigh_part(part, file_bound) for part in content]
        bare["content"] = [part for part, _ in weighed]
        tokens += sum(count for _, count in weighed)
    return bare, tokens


def _weigh_part(part: object, file_bound: int | None) -> tuple[object, int]:
    """A content part without its payload, and the bound of the payload in tokens."""
    if _is_text(part):
        return part, 0
    kind = part.get("type") if isinstance(part, dict) and _stands_once("type", part) else None
    if isinstance(part, dict) and kind == "image_url":
        return _weigh_image(part)
    if isinstance(part, dict) and kind == "input_audio":
        audio = part.get("input_audio")
        if isinstance(audio, dict) and _is_base64_audio(audio):
            return {**part, "input_audio": {**audio, "data": ""}}, _audio_tokens(audio["data"])
    return None, _no_bound(f"content of type {str(kind)[:40]!r}", file_bound)


def _weigh_image(part: dict[str, object]) -> tuple[object, int]:
    image = part.get("image_url")
    if not isinstance(image, dict):
        return {**part, "image_url": ""}, IMAGE_BOUND
    is_low = image.get("detail") == "low" and _stands_once("detail", image) and _stands_once("image_url", part)
    tokens = IMAGE_LOW_BOUND if is_low else IMAGE_BOUND
    return {**part, "image_url": {**image, "url": ""}}, tokens


def _is_base64_audio(audio: dict[str, object]) -> bool:
    """Whether the audio is in the request itself: some servers take an address in the same place."""
    data, form = audio.get("data"), audio.get("format")
    return isinstance(data, str) and ":" not in data[:64] and isinstance(form, str) and form in _AUDIO_FORMATS


def _audio_tokens(data: str) -> int:
    return len(data) * 3 // 4 // AUDIO_BYTES_PER_TOKEN + 1


def _no_bound(what: str, file_bound: int | None) -> int:
    if file_bound is None:
        raise Unbounded("messages", f"the tokens of {what} cannot be bounded")
    return file_bound


def _texts(message: Mapping[str, object]) -> Iterator[str]:
    """Every text of a message that the model reads."""
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield text
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield from (text for key in ("name", "arguments") if isinstance(text := function.get(key), str))


def _utf8_len(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
