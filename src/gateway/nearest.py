"""The nearest texts that were learnt: vectors in memory, compared within one group, under a bound of bytes.

Decides what is near what, and what is forgotten when there is no room. Does not know what a text, a partition or a
vector means. Belongs to one thread.

Rules:
- what is in another group is never looked at, however near it is
- a search looks at a sketch of every vector of the group, 256 to 512 bits, and then at the vectors of the best few:
  the texts are the nearest but for the error of the sketch, their cosines but for that of 8 bits a number
- a search is a generator: between two slices of it, each a fraction of a millisecond, other threads can be let on
- what was put first goes first; to put a text again is to put it last
"""

import hashlib
import heapq
import math
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from operator import add, mul, sub
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

SLICE: Final = 1024
"""Sketches that are looked at in one go: about 0.1 ms."""

RESCORED: Final = 16
"""Texts whose vectors are looked at: the sketch need not tell the best one, only have it among these."""

MOST_BITS: Final = 512
_ERRORS: Final = 3.0
"""Standard errors of the sketch within which a vector of the least cosine is not missed: 1 in 700 is."""

ITEM_BYTES: Final = 640
GROUP_BYTES: Final = 1280
"""What an item takes beside its vector and its text, and a group beside its items: measured, and then some."""


_ZERO: Final = 128


class Near(NamedTuple, Generic[T]):
    """An item, and the cosine of its vector with the one that was asked for."""

    cosine: float
    item: T


class _Packed(NamedTuple):
    """A vector as numbers from 1 to 255, their sum, and the length of the vector in their unit."""

    numbers: bytes
    total: int
    length: float


class _Row(NamedTuple, Generic[T]):
    key: bytes
    vector: _Packed
    item: T


@dataclass(slots=True)
class _Group(Generic[T]):
    """Sketches, and rows in their order; `places` says where a key stands."""

    sketches: list[int] = field(default_factory=list)
    rows: list[_Row[T]] = field(default_factory=list)
    places: dict[bytes, int] = field(default_factory=dict)

    def append(self, sketch: int, row: _Row[T]) -> None:
        self.places[row.key] = len(self.rows)
        self.sketches.append(sketch)
        self.rows.append(row)

    def remove(self, key: bytes) -> None:
        """The last one takes its place."""
        place = self.places.pop(key)
        sketch, row = self.sketches.pop(), self.rows.pop()
        if row.key != key:
            self.sketches[place], self.rows[place] = sketch, row
            self.places[row.key] = place


class Nearest(Generic[T]):
    """The index. Vectors are float[dim] of unit length.

    bytes, entries  what it holds, at most what was allowed
    """

    def __init__(self, dim: int, max_bytes: int) -> None:
        """max_bytes  bound of what all items take of memory"""
        self._width = 1 << max(dim - 1, 0).bit_length()
        self._signs = _signs(self._width)
        self._bits = min(self._width, MOST_BITS)
        self._max_bytes = max_bytes
        self._groups: dict[bytes, _Group[T]] = {}
        self._order: OrderedDict[bytes, tuple[bytes, int]] = OrderedDict()
        self.bytes = 0

    @property
    def entries(self) -> int:
        """How many items there are."""
        return len(self._order)

    def put(self, group: bytes, text: str, vector: Sequence[float], item: T) -> None:
        """Keep an item under its group and text, in place of an older one; one that has no room is not kept."""
        key = _digest(group, text.encode("utf-8", "surrogatepass"))
        self._remove(key)
        size = ITEM_BYTES + self._width + 4 * len(text)
        if size + GROUP_BYTES > self._max_bytes:
            return
        while self.bytes + size + GROUP_BYTES * (group not in self._groups) > self._max_bytes:
            self._remove(next(iter(self._order)))
        if group not in self._groups:
            self._groups[group] = _Group()
            self.bytes += GROUP_BYTES
        self._groups[group].append(self._sketch(vector), _Row(key, _packed(vector), item))
        self._order[key] = group, size
        self.bytes += size

    def search(self, group: bytes, vector: Sequence[float], least: float) -> Generator[None, None, list[Near[T]]]:
        """The nearest items of a group, RESCORED at most, whose cosine is `least` or more: nearest first.

        Nothing may be put or removed before it has ended.
        """
        found = self._groups.get(group)
        if found is None:
            return []
        best: list[tuple[int, int]] = []
        asked, limit = self._sketch(vector), self._reach(least)
        for start in range(0, len(found.sketches), SLICE):
            best += [
                (distance, place)
                for place, sketch in enumerate(found.sketches[start : start + SLICE], start)
                if (distance := (asked ^ sketch).bit_count()) <= limit
            ]
            if len(best) > RESCORED:
                best = heapq.nsmallest(RESCORED, best)
                limit = best[-1][0]
            yield
        packed = _packed(vector)
        near: list[Near[T]] = []
        for _, place in best:
            row = found.rows[place]
            near.append(Near(_cosine(packed, row.vector), row.item))
        return sorted((each for each in near if each.cosine >= least), key=lambda each: -each.cosine)

    def keep(self, is_wanted: Callable[[T], bool]) -> None:
        """Forget every item that is not wanted any more."""
        for key, (group, _) in list(self._order.items()):
            found = self._groups[group]
            if not is_wanted(found.rows[found.places[key]].item):
                self._remove(key)

    def _remove(self, key: bytes) -> None:
        if key not in self._order:
            return
        group, size = self._order.pop(key)
        self.bytes -= size
        found = self._groups[group]
        found.remove(key)
        if not found.rows:
            del self._groups[group]
            self.bytes -= GROUP_BYTES

    def _sketch(self, vector: Sequence[float]) -> int:
        """The signs of the vector, turned so that no single number of it decides a sign."""
        turned = list(map(mul, self._signs, [*vector, *[0.0] * (self._width - len(vector))]))
        for _ in range(self._width.bit_length() - 1):
            even, odd = turned[::2], turned[1::2]
            turned = [*map(add, even, odd), *map(sub, even, odd)]
        return int("".join("1" if value > 0 else "0" for value in turned[: self._bits]), 2)

    def _reach(self, least: float) -> int:
        """The distance of sketches within which nearly all vectors of this cosine lie."""
        share = math.acos(min(max(least, -1.0), 1.0)) / math.pi
        return math.ceil(self._bits * share + _ERRORS * math.sqrt(self._bits * max(share * (1 - share), 0.01)))


def _packed(vector: Sequence[float]) -> _Packed:
    """The direction of a vector in 8 bits a number: none of which is negative, so that it can be bytes."""
    scale = (_ZERO - 1) / (max(map(abs, vector), default=0.0) or 1.0)
    numbers = bytes(round(value * scale) + _ZERO for value in vector)
    total = sum(numbers)
    return _Packed(numbers, total, math.sqrt(_dot(numbers, total, numbers, total)))


def _cosine(one: _Packed, other: _Packed) -> float:
    """0 if one has no direction."""
    lengths = one.length * other.length
    return _dot(one.numbers, one.total, other.numbers, other.total) / lengths if lengths else 0.0


def _dot(left: bytes, left_total: int, right: bytes, right_total: int) -> int:
    """The product of what two packed vectors stand for: of the numbers less _ZERO."""
    product: int = sum(map(mul, left, right))
    return product - _ZERO * (left_total + right_total) + _ZERO * _ZERO * len(left)


def _signs(width: int) -> list[int]:
    """As many times 1 or -1, in no order, the same in every process."""
    bits = int.from_bytes(hashlib.shake_256(b"nearest").digest(width), "big")
    return [1 if bits >> place & 1 else -1 for place in range(width)]


def _digest(group: bytes, text: bytes) -> bytes:
    return hashlib.blake2b(group + text, digest_size=16).digest()
