"""JSON of upstreams: what is read can be written, and read again, wherever in the program that happens."""

import unittest
from collections.abc import Callable

from llmkit.openai import Malformed, from_wire
from llmkit.openai_stream import ChunkShaper
from llmkit.wire_json import MOST_LEVELS, decode, encode, text_of


def nested(levels: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    """So many containers, each but the last around another."""
    return opening * levels + b"1" * (opening != b"[") + closing * levels


def far_down(frames: int, act: Callable[[], object]) -> object:
    """What `act` gives, called from so many frames below."""
    return far_down(frames - 1, act) if frames else act()


class NestingTest(unittest.TestCase):
    """Documents of many levels."""

    def test_what_was_read_can_be_written_and_read_again(self) -> None:
        """Also by one who is called hundreds of frames further down; one level more is read by nobody."""
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            with self.subTest(opening):
                raw = nested(MOST_LEVELS, opening, closing)
                value = decode(raw)
                self.assertEqual(far_down(500, lambda value=value: encode(value)), raw)  # type: ignore[misc]
                self.assertEqual(far_down(500, lambda raw=raw: decode(raw)), value)  # type: ignore[misc]
                self.assertEqual(text_of(value).encode(), raw)
                with self.assertRaises(ValueError):
                    decode(nested(MOST_LEVELS + 1, opening, closing))

    def test_brackets_beside_each_other_are_no_levels(self) -> None:
        """Nor those within a text."""
        for raw in (b"[" + b",".join([b"[]"] * 1000) + b"]", b'["' + b"[{" * 1000 + b'"]'):
            self.assertEqual(encode(decode(raw)), raw)

    def test_an_answer_of_too_many_levels_is_none(self) -> None:
        """Whole or streamed, in whatever field: it fails as junk does, and not wherever it is read next."""
        message = b'{"role":"assistant","content":"hi","x":' + nested(MOST_LEVELS) + b"}"
        for read, raw in (
            (from_wire, b'{"choices":[{"index":0,"finish_reason":"stop","message":' + message + b"}]}"),
            (ChunkShaper(want_usage=False).feed, b'{"choices":[{"index":0,"delta":' + message + b"}]}"),
        ):
            with self.assertRaises(Malformed):
                read(raw)


if __name__ == "__main__":
    unittest.main()
