"""The journal: numbered files of records, whose sync makes acknowledgements durable.

A file, little-endian, is a header of 32 bytes and records::

    magic:u32 version:u8 pad:u8 flags:u16 home:u32 number:u32 pad:12 crc:u32
    magic:u32 version:u8 kind:u8 flags:u16 home:u32 number:u32 sequence:u64 topic_id:i64
        partition_id:u32 body_length:u32 segment_base:i64 position:i64 body_crc:u32 crc:u32 | body

``number`` is the file's, ``crc`` covers what is before it.  Kinds:

* 1 append: the body is a block, to be found at ``position`` of the segment ``segment_base``.  It carries its
  own checksums, ``body_crc`` is 0: the payload is summed once.
* 2 note: the body is the broker's (committed offsets), opaque here.
* 3 create: the partition begins; what the journal says of it before belongs to a deleted one.

A record names where its block lies, so replay is a rewrite in place: doing it twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from tube.limits import BATCH_BYTES_MAX
from tube.log.block import HEADER_BYTES as BLOCK_HEADER_BYTES
from tube.log.block import Header, decode_header, payload_is_good
from tube.log.checksum import FLAG, checksum, checksum_of
from tube.log.files import FileSystem, OpenFile, create_file, write_all

MAGIC: Final = 0x4C4E4A54  # "TJNL" on the disk
RECORD_MAGIC: Final = 0x43524A54  # "TJRC"
VERSION: Final = 1
APPEND: Final = 1
NOTE: Final = 2
CREATE: Final = 3
HEADER_BYTES: Final = 32
RECORD_BYTES: Final = 64
NOTE_BYTES_MAX: Final = BATCH_BYTES_MAX
"""Longest note: a commit window's offsets of every group are far below."""

_BODY_BYTES_MAX: Final = BLOCK_HEADER_BYTES + BATCH_BYTES_MAX
_HEADER_COVERED: Final = Struct("<IBxHII12x")
_RECORD: Final = Struct("<IBBHIIQqIIqqII")
_RECORD_COVERED: Final = Struct("<IBBHIIQqIIqqI")
_CRC: Final = Struct("<I")
_RECORD_MAGIC_BYTES: Final = _CRC.pack(RECORD_MAGIC)
_NAME: Final = re.compile(r"(\d{20})\.jnl")

assert _RECORD.size == RECORD_BYTES
assert _HEADER_COVERED.size + _CRC.size == HEADER_BYTES


class Record(NamedTuple):
    """One good record; ``block`` is the header of an append's block."""

    kind: int
    sequence: int
    topic_id: int
    partition_id: int
    segment_base: int
    position: int
    body: memoryview
    block: Header | None


class Unreadable(NamedTuple):
    """Bytes ``position`` to ``end - 1`` hold no good record; ``torn``: nor does anything behind."""

    position: int
    end: int
    torn: bool


def journal_name(number: int) -> str:
    """Return the file name of journal ``number``."""
    return f"{number:020d}.jnl"


def number_of(name: str) -> int | None:
    """Return the number that a journal's file name says, or None for another file."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def encode_header(home: int, number: int) -> bytes:
    """Return the head of a journal file."""
    covered = _HEADER_COVERED.pack(MAGIC, VERSION, FLAG, home, number)
    return covered + _CRC.pack(checksum(covered))


def header_is_good(content: bytes | memoryview, home: int, number: int) -> bool:
    """Whether a journal file begins as it should."""
    if len(content) < HEADER_BYTES:
        return False
    covered = content[: _HEADER_COVERED.size]
    magic, version, flags, its_home, its_number = _HEADER_COVERED.unpack(covered)
    if (magic, version, its_home, its_number) != (MAGIC, VERSION, home, number):
        return False
    stored = _CRC.unpack_from(content, _HEADER_COVERED.size)[0]
    return bool(stored == checksum_of(flags)(covered))


def encode_record(
    kind: int,
    home: int,
    number: int,
    sequence: int,
    *,
    body_length: int,
    topic_id: int = 0,
    partition_id: int = 0,
    segment_base: int = 0,
    position: int = 0,
    body_crc: int = 0,
) -> bytes:
    """Return the head of a record; its body follows in the file."""
    covered = _RECORD_COVERED.pack(
        RECORD_MAGIC,
        VERSION,
        kind,
        FLAG,
        home,
        number,
        sequence,
        topic_id,
        partition_id,
        body_length,
        segment_base,
        position,
        body_crc,
    )
    return covered + _CRC.pack(checksum(covered))


def decode_record(content: memoryview, at: int, home: int, number: int) -> Record | None:
    """Return the record at ``at``, or None when there is no whole and unharmed one."""
    if len(content) - at < RECORD_BYTES:
        return None
    fields = _RECORD.unpack_from(content, at)
    magic, version, kind, flags, its_home, its_number, sequence = fields[:7]
    if (magic, version, its_home, its_number) != (RECORD_MAGIC, VERSION, home, number):
        return None
    if checksum_of(flags)(content[at : at + _RECORD_COVERED.size]) != fields[13]:
        return None
    topic_id, partition_id, length, segment_base, position, body_crc = fields[7:13]
    body = content[at + RECORD_BYTES : at + RECORD_BYTES + length]
    if length > _BODY_BYTES_MAX or len(body) < length:
        return None
    block = decode_header(body, 0, home) if kind == APPEND else None
    if block is not None:
        good = payload_is_good(block, body[BLOCK_HEADER_BYTES:])
    else:
        good = kind != APPEND and checksum_of(flags)(body) == body_crc
    record = Record(kind, sequence, topic_id, partition_id, segment_base, position, body, block)
    return record if good else None


def records(content: memoryview, home: int, number: int) -> Iterator[Record | Unreadable]:
    """Yield the records of a journal file in order, and what cannot be read between them."""
    if not content:
        return
    at = HEADER_BYTES
    if not header_is_good(content, home, number):
        at = _next_record(content, 0, home, number)
        yield Unreadable(0, at, at == len(content))
    while at < len(content):
        record = decode_record(content, at, home, number)
        if record is not None:
            yield record
            at += RECORD_BYTES + len(record.body)
            continue
        found = _next_record(content, at + 1, home, number)
        yield Unreadable(at, found, found == len(content))
        at = found


def _next_record(content: memoryview, at: int, home: int, number: int) -> int:
    """Return where the next good record begins, or the end."""
    chunk = 1024 * 1024
    while at < len(content):
        part = bytes(content[at : at + chunk])
        found = part.find(_RECORD_MAGIC_BYTES)
        if found < 0:
            at += max(1, len(part) - len(_RECORD_MAGIC_BYTES) + 1)
            continue
        at += found
        if decode_record(content, at, home, number) is not None:
            return at
        at += 1
    return len(content)


def load(path: Path) -> memoryview:
    """Return the bytes of a journal file; mapped, a bad sector would kill the process."""
    return memoryview(path.read_bytes())


class Journal:
    """The newest journal file, to which every commit window is written.

    Callers: the disk thread.
    """

    def __init__(self, disk: FileSystem, directory: Path, home: int, number: int) -> None:
        """Create file ``number``, durably."""
        self._disk = disk
        self.home = home
        self.number = number
        self.path = directory / journal_name(number)
        self.has_notes = False
        self._sequence = 0
        self._file = create_file(disk, self.path, encode_header(home, number))
        self.size = HEADER_BYTES

    @property
    def file(self) -> OpenFile:
        """The open file."""
        return self._file

    def append(
        self, topic_id: int, partition_id: int, base: int, position: int, body_length: int
    ) -> bytes:
        """Return the head of the next append's record."""
        self._sequence += 1
        return encode_record(
            APPEND,
            self.home,
            self.number,
            self._sequence,
            body_length=body_length,
            topic_id=topic_id,
            partition_id=partition_id,
            segment_base=base,
            position=position,
        )

    def note(self, body: bytes) -> bytes:
        """Return the head of the next note's record."""
        self._sequence += 1
        return encode_record(
            NOTE,
            self.home,
            self.number,
            self._sequence,
            body_length=len(body),
            body_crc=checksum(body),
        )

    def create(self, topic_id: int, partition_id: int) -> bytes:
        """Return the whole record of a partition's beginning."""
        self._sequence += 1
        return encode_record(
            CREATE,
            self.home,
            self.number,
            self._sequence,
            body_length=0,
            topic_id=topic_id,
            partition_id=partition_id,
            body_crc=checksum(b""),
        )

    def write(self, pieces: list[bytes | memoryview]) -> int:
        """Write records at the end, unsynced; ``size`` grows only with ``sync``.  Returns the bytes."""
        return write_all(self._disk, self._file.fd, pieces, self.size)

    def cut(self) -> None:
        """Take back what was written since the last sync."""
        self._disk.ftruncate(self._file.fd, self.size)

    def sync(self, written: int) -> None:
        """Make the ``written`` bytes durable."""
        self._disk.fdatasync(self._file.fd)
        self.size += written
