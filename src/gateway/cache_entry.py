"""An entry of a cache, and how it is sealed for the file. Pure.

What is served, to whom and until when lies under one checksum: a damaged file can hide an entry, never turn it into
another one or give it to somebody else.
"""

import zlib
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct, msgpack

from gateway.cache_file import ROW_OVERHEAD_BYTES, Row

_GZIP: Final = 31
"""zlib's name of the format that ends with the CRC-32 and the length of what went in."""


class Entry(Struct, frozen=True, array_like=True):
    """What to keep.

    epoch      of the tenant when the answer was asked for: the one that is part of its digest
    body       the JSON of the chat.completion, or what else it is that is kept
    partition  the entries of one partition are bounded in number; those of none are not
    """

    tenant: str
    epoch: int
    deployment: str
    provider: str
    tier: str
    body: bytes
    partition: bytes | None = None


def index_entry(items: Sequence[Any], tenant: str, epoch: int, partition: bytes) -> Entry:
    """What an index keeps under a key: no answer, but items of one kind, packed.

    Raises ValueError of a text that no row can hold.
    """
    return Entry(tenant, epoch, "", "", "", msgpack.encode(items), partition)


class Record(Struct, frozen=True, array_like=True):
    """An entry with its digest and times: stored at stored_ms, dead from expires_ms on, by the wall clock."""

    digest: bytes
    stored_ms: int
    expires_ms: int
    entry: Entry

    def may_be_served(self, digest: bytes, *, tenant: str, epoch: int, now_ms: int) -> bool:
        """Whether this is what was asked for, by whom it belongs to, in its lifetime."""
        entry = self.entry
        is_meant = self.digest == digest and entry.tenant == tenant and entry.epoch == epoch
        return is_meant and self.stored_ms <= now_ms < self.expires_ms


def size_of(record: Record) -> int:
    """Of the row that the record becomes, at most: its facts are part of the overhead."""
    return len(record.entry.body) + ROW_OVERHEAD_BYTES


def row_of(record: Record, used: int) -> Row:
    """The record as the file keeps it; the columns beside the seal only serve to find and to remove it."""
    entry = record.entry
    sealed = zlib.compress(msgpack.encode(record), 1, _GZIP)
    return Row(record.digest, entry.tenant, record.expires_ms, used, sealed, entry.partition)


_unpack: Final = msgpack.Decoder(Record).decode


def unseal(sealed: bytes) -> Record:
    """The record that was sealed. Raises zlib.error or ValueError if this is not, to the bit, what was."""
    return _unpack(zlib.decompress(sealed, _GZIP))
