"""The exact cache's question: which requests are the same, and which answers may be kept at all.

Decides what two requests must share to get one answer. Pure; does not know where answers are kept, or for how long.

Rules:
- everything that can change an answer is part of the key; only NEUTRAL_FIELDS are not, so an unknown field is
- values of different JSON types differ: null from absent, 1 from 1.0 from true
- key order says nothing at the top, in a message and in a content part; deeper it stays (a model reads its schema
  in the order in which it came)
- in message text CRLF is LF and white space at the ends is nothing; between two parts it stays, upstreams join them.
  Runs of spaces are one space, unless anything in the message's text suggests that its layout matters
- nothing else is normalised: not case, not Unicode
- the last message goes in behind all else, so that the keys of requests that differ in it alone cost little
"""

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from llmkit.wire_json import encode

NEUTRAL_FIELDS: Final = frozenset({"stream", "stream_options", "cache", "tags", "private", "model", "prompt_version"})
"""How an answer is delivered, what only the gateway reads, and what the route and the prompt version say better."""

_FORM: Final = 3
"""Goes up with every change of these rules, so that no answer is found under a key that meant something else."""

_WHITE: Final = " \t\r\n"
_ASCII_LAYOUT: Final = "\n\r\t\v\f`\"'"
_LAID_OUT: Final = re.compile(
    f"[{_ASCII_LAYOUT}\x85\u2028\u2029"
    "\u00ab\u00bb\u2018-\u201f\u2039\u203a\u2e42\u300c-\u300f\u301d-\u301f\ufe41-\ufe44\uff02\uff07\uff62\uff63]"
)
"""Lines, columns, code, and quotations (all of Unicode's Quotation_Mark): spaces within them can mean something."""

_RUN: Final = re.compile("  +")

KeyOf = Callable[[Mapping[str, Any]], bytes]
"""The digest, 32 bytes, under which the answer to a request is kept, by the last of its messages."""


def cache_keys(
    *,
    tenant: str,
    epoch: int,
    route: Sequence[str],
    permissions: object,
    prompt_version: str | None,
    body: Mapping[str, Any],
) -> KeyOf:
    """The keys of a request, whatever its last message is: of body["messages"][-1] it is the request's own.

    epoch        of the tenant, as the cache tells it
    route        what may answer: the alias, the resolved tier, the sorted model ids
    permissions  any JSON value: what else must be the same for two keys of a tenant to share an answer
    body         a chat request that has been checked: `messages` is a list of objects, at least one
    """
    fields = {name: body[name] for name in sorted(body) if name not in NEUTRAL_FIELDS}
    fields["messages"] = [_canonical_message(message) for message in body["messages"][:-1]]
    document = [_FORM, tenant, epoch, list(route), permissions, prompt_version, fields]
    around = hashlib.sha256(encode(document))

    def key_of(message: Mapping[str, Any]) -> bytes:
        digest = around.copy()
        digest.update(encode(_canonical_message(message)))
        return digest.digest()

    return key_of


@functools.lru_cache(maxsize=1024)  # what is served once is served again
def entry_id(digest: bytes) -> str:
    """The name of an answer that is kept, for people: 16 hex digits that say nothing and that no look-up takes."""
    return hashlib.sha256(digest).hexdigest()[:16]


def may_be_stored(body: Mapping[str, Any], *, private: bool, no_store: bool, choices: int) -> bool:
    """Whether the answer to this request may be kept for others.

    private, no_store  what the client said, in the body or in headers
    choices            how many answers are asked for, whatever the field is called
    """
    temperature = body.get("temperature")
    if type(temperature) not in (int, float) or temperature != 0 or private or no_store or choices != 1:
        return False
    return body.get("tools") is None and body.get("functions") is None


def _canonical_message(message: Mapping[str, Any]) -> dict[str, Any]:
    canonical = _sorted(message)
    content = canonical.get("content")
    if type(content) is str:
        canonical["content"] = _normal_text(content)
    elif type(content) is list:
        canonical["content"] = _canonical_parts(content)
    return canonical


def _canonical_parts(parts: list[Any]) -> list[Any]:
    canonical = [_sorted(part) if type(part) is dict else part for part in parts]
    places = [place for place, part in enumerate(canonical) if _is_text(part)]
    texts = _normal([canonical[place]["text"] for place in places], first=0 in places, last=len(parts) - 1 in places)
    for place, text in zip(places, texts, strict=True):
        canonical[place]["text"] = text
    return canonical


def _is_text(part: object) -> bool:
    return type(part) is dict and part.get("type") == "text" and type(part.get("text")) is str


def _normal_text(text: str) -> str:
    """The only text of a message, normalised: as _normal has it."""
    normal = text.replace("\r\n", "\n").strip(_WHITE)
    return normal if "  " not in normal or _is_laid_out(text) else _RUN.sub(" ", normal)


def _normal(texts: list[str], *, first: bool = True, last: bool = True) -> list[str]:
    """All texts of one message, normalised.

    first, last  whether they begin and end the message: an image may
    """
    normal = [text.replace("\r\n", "\n") for text in texts]
    if first:
        normal[0] = normal[0].lstrip(_WHITE)
    if last:
        normal[-1] = normal[-1].rstrip(_WHITE)
    if "  " not in "\n".join(normal) or any(map(_is_laid_out, texts)):
        return normal
    return [_RUN.sub(" ", text) for text in normal]


def _is_laid_out(text: str) -> bool:
    if text.isascii():
        return any(map(text.__contains__, _ASCII_LAYOUT))  # each a scan of its own: many times as fast as the pattern
    return _LAID_OUT.search(text) is not None


def _sorted(document: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(document.items()))
