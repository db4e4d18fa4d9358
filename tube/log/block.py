"""The bytes of a block: a fixed header and the verbatim wire form of a run of messages.

All numbers little-endian::

    magic:u32 version:u8 codec:u8 flags:u16 base_offset:i64 span:u32 count:u32
    payload_length:u32 payload_crc:u32 append_time_ms:i64 max_time_ms:i64 filter_bits:u64
    producer_id:i64 producer_epoch:u32 sequence:u32 home:u32 header_crc:u32 | payload

``header_crc`` covers the 76 bytes before it, and with ``payload_crc`` among them the whole block.

``home`` is a random number of the data directory.  Clients never see it, so a message that *contains* a
copy of a block cannot pass for one when a reader looks for the next good block behind damage.

A header whose checksum holds is believed about its length; only without one do we search for the magic.

Source: docs/reference/log-format.md; golden files in tests/golden/log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from tube.limits import BATCH_BYTES_MAX
from tube.log.checksum import FLAG, Bytes, checksum, checksum_of

TUBE: Final = 1
"""Codec: encoded ``messages`` fields (field 4) of TubeMQ's GetMessageResponseB2C."""

MAGIC: Final = 0x4B4C4254  # "TBLK" on the disk
VERSION: Final = 1
HEADER_BYTES: Final = 80
CHUNK_BYTES: Final = 1024 * 1024
"""How much a walk reads at a time."""

_HEADER: Final = Struct("<IBBHqIIIIqqQqIIII")
_COVERED: Final = Struct("<IBBHqIIIIqqQqIII")
_CRC: Final = Struct("<I")
_MAGIC_BYTES: Final = _CRC.pack(MAGIC)
_EMPTY: Final = memoryview(b"")

_COVERED_BYTES: Final = _COVERED.size

assert _HEADER.size == HEADER_BYTES

Read = Callable[[int, int], bytes]
"""``read(position, length)``: up to ``length`` bytes of a file, fewer only at its end."""


class Header(NamedTuple):
    """The fixed fields of a stored block."""

    magic: int
    version: int
    codec: int
    flags: int
    base_offset: int
    span: int
    message_count: int
    payload_length: int
    payload_crc: int
    append_time_ms: int
    max_time_ms: int
    filter_bits: int
    producer_id: int
    producer_epoch: int
    sequence: int
    home: int
    header_crc: int


@dataclass(slots=True)
class Block:
    """A run of messages of one partition, with the offsets ``base_offset`` to ``end_offset - 1``."""

    base_offset: int
    span: int
    count: int
    payload: bytes | memoryview
    append_time_ms: int
    max_time_ms: int
    filter_bits: int = 0
    codec: int = TUBE
    producer_id: int = 0
    producer_epoch: int = 0
    sequence: int = 0

    @property
    def end_offset(self) -> int:
        """The offset behind the block."""
        return self.base_offset + self.span


class Placed(NamedTuple):
    """A good block found at ``position``; its payload is empty when the walk left payloads out."""

    position: int
    header: Header
    payload: memoryview

    def block(self) -> Block:
        """Return the block."""
        h = self.header
        return Block(
            h.base_offset,
            h.span,
            h.message_count,
            self.payload,
            h.append_time_ms,
            h.max_time_ms,
            h.filter_bits,
            h.codec,
            h.producer_id,
            h.producer_epoch,
            h.sequence,
        )


class Damage(NamedTuple):
    """Bytes ``position`` to ``end - 1`` hold no good block.

    ``offset`` is the first offset that may be missing; ``next_offset`` the one behind the damaged
    block, when its header could still be read.
    """

    position: int
    end: int
    offset: int
    next_offset: int | None


def encode(block: Block, home: int) -> bytes:
    """Return the header of ``block``; on the disk its payload follows."""
    covered = _COVERED.pack(
        MAGIC,
        VERSION,
        block.codec,
        FLAG,
        block.base_offset,
        block.span,
        block.count,
        len(block.payload),
        checksum(block.payload),
        block.append_time_ms,
        block.max_time_ms,
        block.filter_bits,
        block.producer_id,
        block.producer_epoch,
        block.sequence,
        home,
    )
    return covered + _CRC.pack(checksum(covered))


def decode_header(buffer: memoryview, at: int, home: int) -> Header | None:
    """Return the header at ``at``, or None when there is no whole and unharmed one of this home."""
    if len(buffer) - at < HEADER_BYTES:
        return None
    fields = _HEADER.unpack_from(buffer, at)
    if fields[0] != MAGIC or fields[15] != home or fields[1] != VERSION:
        return None
    summed = checksum if fields[3] == FLAG else checksum_of(fields[3])
    if summed(buffer[at : at + _COVERED_BYTES]) != fields[16]:
        return None
    if fields[7] > BATCH_BYTES_MAX or fields[5] == 0 or fields[4] < 0:
        return None
    return Header._make(fields)


def payload_is_good(header: Header, payload: Bytes) -> bool:
    """Whether ``payload`` is what the header announces."""
    return (
        len(payload) == header.payload_length
        and checksum_of(header.flags)(payload) == header.payload_crc
    )


class _Window:
    """The part of a file that a walk holds in memory."""

    __slots__ = ("_buffer", "_chunk_bytes", "_end", "_reach", "_read", "_start", "_view")

    def __init__(self, read: Read, end: int, chunk_bytes: int) -> None:
        self._read = read
        self._end = end
        self._chunk_bytes = chunk_bytes
        self._buffer = b""
        self._view = _EMPTY
        self._start = self._reach = 0

    def _hold(self, at: int, length: int) -> int:
        """Make ``length`` bytes from ``at`` present if the file has them; return their index."""
        if at < self._start or at + length > self._reach:
            wanted = min(max(length, self._chunk_bytes), self._end - at)
            self._buffer = self._read(at, wanted)
            self._view = memoryview(self._buffer)
            self._start = at
            self._reach = at + len(self._buffer)
        return at - self._start

    def header(self, at: int, home: int) -> Header | None:
        """Return the header at ``at``, or None when there is no good one."""
        index = self._hold(at, HEADER_BYTES)  # first: it may change the view
        return decode_header(self._view, index, home)

    def payload(self, at: int, header: Header) -> memoryview | None:
        """Return the payload of the block at ``at``, or None when it is not what it was."""
        length = header.payload_length
        index = self._hold(at, HEADER_BYTES + length) + HEADER_BYTES
        payload = self._view[index : index + length]
        return payload if payload_is_good(header, payload) else None

    def next_header(self, at: int, home: int, offset: int) -> int | None:
        """Return where the next good header with ``offset`` or a later one begins, or None."""
        while at + HEADER_BYTES <= self._end:
            index = self._hold(at, HEADER_BYTES)
            if len(self._buffer) - index < HEADER_BYTES:
                return None  # the file is shorter than it was said to be
            found = self._buffer.find(_MAGIC_BYTES, index)
            if found < 0:
                at = self._start + len(self._buffer) - len(_MAGIC_BYTES) + 1
                continue
            at = self._start + found
            header = self.header(at, home)
            if header is not None and header.base_offset >= offset:
                return at
            at += 1
        return None


def walk(
    read: Read,
    start: int,
    end: int,
    *,
    home: int,
    offset: int = 0,
    skip_to: int = 0,
    payloads: bool = True,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Placed | Damage]:
    """Yield what lies between two positions, in order, without a hole: good blocks and damage.

    Args:
        read: gives bytes of the file.
        start: where a block begins.
        end: the position behind the last byte to look at.
        home: of the data directory.
        offset: no block before this offset may come; one that does counts as damage.
        skip_to: blocks that end at or before this offset are passed over, payload unread.
        payloads: whether payloads are read and verified.
    """
    window = _Window(read, end, chunk_bytes)
    at = start
    while at < end:
        header = window.header(at, home)
        if header is None:
            found = window.next_header(at + 1, home, offset)
            stop = end if found is None else found
            yield Damage(at, stop, offset, None)
            at = stop
            continue
        stop = at + HEADER_BYTES + header.payload_length
        if stop > end or header.base_offset < offset:
            yield Damage(at, min(stop, end), offset, None)
            at = stop
            continue
        behind = header.base_offset + header.span
        if behind > skip_to:
            payload = window.payload(at, header) if payloads else _EMPTY
            if payload is None:
                yield Damage(at, stop, offset, behind)
            else:
                yield Placed(at, header, payload)
        offset = behind
        at = stop


def scan(buffer: bytes, *, home: int, offset: int = 0) -> Iterator[Placed | Damage]:
    """Yield the blocks and the damage of ``buffer``, see ``walk``."""
    return walk(lambda at, n: buffer[at : at + n], 0, len(buffer), home=home, offset=offset)
