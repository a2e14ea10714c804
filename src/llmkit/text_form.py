"""JSON documents that differ in one text alone, which is most chunks of most streams.

Decides whether a payload is, byte for byte but for that text, one that was decoded before; of such a one nothing but
the text is left to be read. Knows no dialect, and not what the text means.
"""

import functools
import re
from typing import Final

from llmkit import wire_json
from llmkit.wire_json import JsonObject

_OPENING: Final = r'"{}"[ \t]*:[ \t]*"'


@functools.lru_cache(maxsize=16)  # a dialect has few texts
def _opening(key: str) -> re.Pattern[bytes]:
    return re.compile(_OPENING.format(re.escape(key)).encode())


class TextForm:
    """Everything of a payload that stands around one text of it, the text's own quotation marks included."""

    __slots__ = ("_before", "_behind", "_text")

    def __init__(self, before: bytes, behind: bytes) -> None:
        self._before = before
        self._behind = behind
        self._text = slice(len(before) - 1, 1 - len(behind))

    @classmethod
    def of(cls, payload: bytes, document: JsonObject, holder: JsonObject, key: str) -> "TextForm | None":
        """The form of payload around the text `holder[key]`; None if that is not found, written as it would be here.

        document  what payload decodes to; holder is a part of it
        That the text was found in its own place and not in another is proven: another text in its place is decoded.
        """
        text = holder[key]
        written = wire_json.encode(text)
        for opening in _opening(key).finditer(payload):
            before, at = payload[: opening.end()], opening.end() - 1
            if payload.startswith(written, at):
                behind = payload[at + len(written) - 1 :]
                holder[key] = "?" if text != "?" else "!"
                is_proven = wire_json.decode(before + holder[key].encode() + behind) == document
                holder[key] = text
                return cls(before, behind) if is_proven else None
        return None

    def text_of(self, payload: bytes) -> str | None:
        """The text of a payload that has this form; None if it has another, or is no JSON."""
        if not (payload.startswith(self._before) and payload.endswith(self._behind)):
            return None
        try:
            return wire_json.decode_text(payload[self._text])
        except ValueError:
            return None
