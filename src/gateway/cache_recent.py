"""The entries that were looked up last, as they are served: a look-up that finds one here reads no file.

Decides what is let go under a bound of bytes: what was not looked up for longest. Does not know who may be served, or
what the file still has: its owner says what is to be forgotten, and holds the lock.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from gateway.cache_entry import Record

RECORD_BYTES: Final = 1024
"""What a record takes beside its body: measured to be about 700, and then some."""

LARGEST_SHARE: Final = 8
"""What takes more than one eighth of a bound, this or the file's, is not kept: it would push out too many others."""


class Recent:
    """Records by digest, of `max_bytes` in all; `bytes` is what they take by now."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._records: OrderedDict[bytes, Record] = OrderedDict()
        self.bytes = 0

    def get(self, digest: bytes) -> Record | None:
        """The record under this digest, which is now the last to go."""
        record = self._records.get(digest)
        if record is not None:
            self._records.move_to_end(digest)
        return record

    def put(self, record: Record) -> None:
        """Keep a record in place of an older one of its digest; one that is too large is not kept."""
        size = _size_of(record)
        if record.digest in self._records:
            self.forget((record.digest,))
        if size * LARGEST_SHARE > self._max_bytes:
            return
        self._records[record.digest] = record
        self.bytes += size
        while self.bytes > self._max_bytes:
            _, oldest = self._records.popitem(last=False)
            self.bytes -= _size_of(oldest)

    def forget(self, digests: Iterable[bytes]) -> None:
        """Let these go, as far as they are here."""
        for digest in digests:
            record = self._records.pop(digest, None)
            if record is not None:
                self.bytes -= _size_of(record)

    def clear(self) -> None:
        """Let all go."""
        self._records.clear()
        self.bytes = 0


def _size_of(record: Record) -> int:
    return len(record.entry.body) + RECORD_BYTES
