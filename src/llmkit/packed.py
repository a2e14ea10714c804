"""A body that an upstream packs although nobody asked for that, unpacked as it comes.

Decides how much of it is unpacked at a time, and what is no such body. How large it may become is its reader's affair,
who is given no more than a piece before it can object. Only gzip: it is what servers and proxies do unasked.
"""

import zlib
from typing import Final, NoReturn

from llmkit.errors import ProviderError, ProviderErrorKind
from llmkit.http1 import ResponseHead
from llmkit.transport import Exchange

CODINGS: Final = (["gzip"], ["x-gzip"])
"""What a head may list to be read here, beside codings that are none."""

PIECE_BYTES: Final = 65_536
"""What is unpacked at a time, and what may come without unpacking to anything; a thousandth of it can unpack to it."""

_GZIP: Final = 16 + zlib.MAX_WBITS
"""As zlib wants it said: a gzip header and trailer, and a window of any size."""


class UnpackedExchange:
    """Reads as the exchange that it is made of does; whoever has it closes it."""

    def __init__(self, exchange: Exchange) -> None:
        self.head: ResponseHead = exchange.head
        self._exchange = exchange
        self._unpacker = zlib.decompressobj(_GZIP)
        self._packed = b""  # received, and not unpacked yet

    def read(self, *, awaiting_first: bool = False) -> bytes | None:
        """The next bytes of the unpacked body, never empty, PIECE_BYTES at most; None at its complete end.

        Raises what Exchange.read raises, and ProviderError for a body that is not packed so, or not to its end.
        """
        idle = 0
        while not (data := self._unpack()):
            packed = self._exchange.read(awaiting_first=awaiting_first)
            if packed is None:
                return None if self._unpacker.eof else self._refuse()
            idle += len(packed)
            if idle > PIECE_BYTES:
                self._refuse()
            self._packed = packed
        return data

    @property
    def at_end(self) -> bool:
        """Whether read() has nothing more to give, and will say so at once."""
        return self._unpacker.eof and self._exchange.at_end

    def hurry(self, seconds: float) -> None:
        """As Exchange.hurry."""
        self._exchange.hurry(seconds)

    def close(self, *, awaiting_end: bool = False) -> None:
        """As Exchange.close."""
        self._exchange.close(awaiting_end=awaiting_end)

    def _unpack(self) -> bytes:
        """The next piece of what was received; empty once more must be received."""
        try:
            data = self._unpacker.decompress(self._packed, PIECE_BYTES)
        except zlib.error:
            self._refuse()
        self._packed = self._unpacker.unconsumed_tail
        if self._unpacker.unused_data:
            self._refuse()
        return data

    def _refuse(self) -> NoReturn:
        self._exchange.close()
        raise ProviderError(
            ProviderErrorKind.MALFORMED,
            "the upstream's answer is unusable: a content encoding that it does not have",
            sent=True,
            first_byte_seen=True,
            status=self.head.status,
            failure="content encoding",
        )
