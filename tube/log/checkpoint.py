"""The checkpoint file: up to where each partition is synced, and which journals still matter.

Little-endian, a head of 32 bytes, an entry of 40 bytes per partition, and a checksum of all before::

    magic:u32 version:u8 pad:u8 flags:u16 home:u32 journal:u32 count:u64 pad:8
    topic_id:i64 partition_id:i64 segment_base:i64 position:i64 next_offset:i64 ... crc:u32
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from tube.log.checksum import FLAG, checksum, checksum_of
from tube.log.segment import Segment
from tube.log.values import LogKey

NAME: Final = "checkpoint"
MAGIC: Final = 0x504B4354  # "TCKP" on the disk
VERSION: Final = 1

_HEAD: Final = Struct("<IBxHIIQ8x")
_ENTRY: Final = Struct("<qqqqq")
_CRC: Final = Struct("<I")


class Synced(NamedTuple):
    """Everything of a partition before ``position`` of segment ``segment_base`` is on the disk."""

    segment_base: int
    position: int
    next_offset: int


class Saved(NamedTuple):
    """What a checkpoint file says."""

    journal: int
    synced: dict[LogKey, Synced]


class Unsynced(NamedTuple):
    """A segment that a checkpoint has to sync, as it was when the checkpoint began."""

    segment: Segment
    entries: int


class Checkpoint(NamedTuple):
    """A checkpoint under way: journals before ``journal`` go when its segments are synced."""

    journal: int
    unsynced: list[Unsynced]
    synced: dict[LogKey, Synced]


def encode(home: int, journal: int, synced: Mapping[LogKey, Synced]) -> bytes:
    """Return the content of the file."""
    parts = [_HEAD.pack(MAGIC, VERSION, FLAG, home, journal, len(synced))]
    for key, at in synced.items():
        parts.append(_ENTRY.pack(key.topic_id, key.partition_id, *at))
    content = b"".join(parts)
    return content + _CRC.pack(checksum(content))


def decode(content: bytes, home: int) -> Saved | None:
    """Return what the file says, or None when any byte of it is not as it was written."""
    if len(content) < _HEAD.size + _CRC.size:
        return None
    magic, version, flags, its_home, journal, count = _HEAD.unpack_from(content)
    if (magic, version, its_home) != (MAGIC, VERSION, home):
        return None
    body = memoryview(content)[: -_CRC.size]
    if len(body) != _HEAD.size + count * _ENTRY.size:
        return None
    if checksum_of(flags)(body) != _CRC.unpack_from(content, len(body))[0]:
        return None
    synced = {
        LogKey(topic_id, partition_id): Synced(base, position, next_offset)
        for topic_id, partition_id, base, position, next_offset in _ENTRY.iter_unpack(
            body[_HEAD.size :]
        )
    }
    return Saved(journal, synced)
