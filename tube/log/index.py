"""The sparse index of a segment: offset to position, and append time to position.

The file, little-endian, a header and entries of 32 bytes each::

    magic:u32 version:u8 pad:u8 flags:u16 home:u32 pad:u32 base_offset:i64 pad:u32 crc:u32
    offset:i64 position:i64 max_time_ms:i64 flags:u32 crc:u32

An entry names a block's first offset, its position, and the latest append time of all blocks *before* it;
that never falls although clocks do, so it can be searched.  A sealed segment ends with an
entry for its own end.  An index is a hint: whoever uses it checks the block it points to, and rebuilds
it from the segment when they disagree.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final, NamedTuple

from tube.log.checksum import FLAG, checksum, checksum_of

MAGIC: Final = 0x58494254  # "TBIX" on the disk
VERSION: Final = 1
HEADER_BYTES: Final = 32
ENTRY_BYTES: Final = 32

_HEADER: Final = Struct("<IBxHI4xq4xI")
_HEADER_COVERED: Final = Struct("<IBxHI4xq4x")
_ENTRY: Final = Struct("<qqqII")
_ENTRY_COVERED: Final = Struct("<qqqI")
_CRC: Final = Struct("<I")

NO_TIME: Final = -(2**63)
"""The latest time of no block at all."""

assert _HEADER.size == HEADER_BYTES
assert _ENTRY.size == ENTRY_BYTES


class Entry(NamedTuple):
    """Where a search begins."""

    offset: int
    position: int
    max_time_ms: int


class Index:
    """The entries of one segment, ordered by all three columns.

    Callers: one thread adds; any thread may search meanwhile (``_offsets`` grows last).
    """

    __slots__ = ("_offsets", "_positions", "_times", "base_offset", "interval_bytes")

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self._offsets = array("q")
        self._positions = array("q")
        self._times = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def entry(self, i: int) -> Entry:
        """Return entry ``i``; -1 is the beginning of the segment."""
        if i < 0:
            return Entry(self.base_offset, 0, NO_TIME)
        return Entry(self._offsets[i], self._positions[i], self._times[i])

    @property
    def last(self) -> Entry:
        """The entry that points farthest."""
        return self.entry(len(self._offsets) - 1)

    def add(self, offset: int, position: int, max_time_ms: int) -> None:
        """Add an entry behind all others."""
        self._positions.append(position)
        self._times.append(max_time_ms)
        self._offsets.append(offset)

    def note(self, offset: int, position: int, max_time_ms: int) -> None:
        """Add an entry for the block at ``position`` when the last one is far enough behind."""
        last = self._positions[-1] if self._positions else 0
        if position - last >= self.interval_bytes:
            self.add(offset, position, max_time_ms)

    def by_offset(self, offset: int) -> Entry:
        """Return the last entry at or before ``offset``."""
        return self.entry(bisect_right(self._offsets, offset) - 1)

    def by_time(self, time_ms: int) -> Entry:
        """Return the last entry before which every block was appended before ``time_ms``."""
        return self.entry(bisect_left(self._times, time_ms, 0, len(self._offsets)) - 1)

    def cut(self, position: int) -> None:
        """Forget the entries at or behind ``position``."""
        kept = bisect_left(self._positions, position)
        for column in (self._offsets, self._positions, self._times):
            del column[kept:]

    def encode_header(self, home: int) -> bytes:
        """Return the head of the index file."""
        covered = _HEADER_COVERED.pack(MAGIC, VERSION, FLAG, home, self.base_offset)
        return covered + _CRC.pack(checksum(covered))

    def encode_entries(self, start: int, stop: int) -> bytes:
        """Return the entries from ``start`` to before ``stop`` as they stand in the file."""
        rows = []
        for i in range(start, stop):
            covered = _ENTRY_COVERED.pack(*self.entry(i), FLAG)
            rows.append(covered + _CRC.pack(checksum(covered)))
        return b"".join(rows)


def decode(content: bytes, *, base_offset: int, home: int, interval_bytes: int) -> Index | None:
    """Return the index in ``content``, or None when any byte of it cannot be true.

    A last entry that was written in part is left out.
    """
    if len(content) < HEADER_BYTES:
        return None
    magic, version, flags, its_home, its_base, crc = _HEADER.unpack_from(content)
    if (magic, version, its_home, its_base) != (MAGIC, VERSION, home, base_offset):
        return None
    if checksum_of(flags)(content[: _HEADER_COVERED.size]) != crc:
        return None
    index = Index(base_offset, interval_bytes)
    before = index.last
    stop = len(content) - (len(content) - HEADER_BYTES) % ENTRY_BYTES
    view = memoryview(content)
    for at in range(HEADER_BYTES, stop, ENTRY_BYTES):
        offset, position, max_time_ms, flags, crc = _ENTRY.unpack_from(content, at)
        entry = Entry(offset, position, max_time_ms)
        if checksum_of(flags)(view[at : at + _ENTRY_COVERED.size]) != crc or entry <= before:
            return None
        if position <= before.position or max_time_ms < before.max_time_ms:
            return None
        index.add(*entry)
        before = entry
    return index
