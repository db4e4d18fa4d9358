"""The two checksums of the log: CRC-32C where the accelerated package is there, else CRC-32.

What is written carries a flag that says which.  A reader without the package still verifies CRC-32C,
with a table: slow (some 10 MB/s), but no directory becomes unreadable by a move to another machine.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

CRC32C: Final = 1
"""Flag bit 0: the checksums are CRC-32C; without it they are CRC-32."""

_CASTAGNOLI: Final = 0x82F63B78

Bytes = bytes | bytearray | memoryview
Checksum = Callable[[Bytes], int]


def _table() -> tuple[int, ...]:
    """Return the 256 remainders of CRC-32C, reflected."""
    rows = []
    for row in range(256):
        for _ in range(8):
            row = (row >> 1) ^ (_CASTAGNOLI if row & 1 else 0)
        rows.append(row)
    return tuple(rows)


_TABLE: Final = _table()


def crc32c_slow(content: Bytes) -> int:
    """Return the CRC-32C of ``content`` without any package."""
    crc = 0xFFFFFFFF
    for byte in bytes(content):
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def choose() -> tuple[int, Checksum, Checksum]:
    """Return the flag for what we write, its checksum, and the CRC-32C for what we read."""
    try:
        from crc32c import crc32c
    except ImportError:
        return 0, zlib.crc32, crc32c_slow
    return CRC32C, crc32c, crc32c


FLAG, checksum, _crc32c = choose()


def checksum_of(flags: int) -> Checksum:
    """Return the checksum that the flags of a stored header name."""
    return _crc32c if flags & CRC32C else zlib.crc32
