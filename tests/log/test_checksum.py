"""Checksums with and without the package."""

from __future__ import annotations

import subprocess
import sys
import zlib

from hypothesis import given
from hypothesis import strategies as st

from tube.log import checksum


@given(st.binary(max_size=200))
def test_the_table_agrees_with_the_package(content: bytes) -> None:
    """A reader without the package verifies what one with it wrote."""
    assert checksum.crc32c_slow(content) == checksum.checksum_of(checksum.CRC32C)(content)


def test_known_values() -> None:
    """The check values of both checksums' definitions hold."""
    assert checksum.crc32c_slow(b"123456789") == 0xE3069283
    assert checksum.checksum_of(0)(b"123456789") == zlib.crc32(b"123456789") == 0xCBF43926


def test_without_the_package_both_are_read() -> None:
    """A process without the package writes CRC-32 and reads blocks of both kinds."""
    program = """
import sys
from pathlib import Path
sys.modules["crc32c"] = None
from tube.log import checksum
from tube.log.block import Block, Placed, encode, scan
assert checksum.FLAG == 0
lines = Path("tests/golden/log/block.hex").read_text().splitlines()
old = bytes.fromhex("".join(l for l in lines if not l.startswith("#")))
new = encode(Block(2000, 1, 1, b"new", 0, 0), 0x12345678) + b"new"
found = list(scan(old + new, home=0x12345678))
assert [type(f) for f in found] == [Placed, Placed], found
assert [f.header.flags for f in found] == [1, 0]
"""
    subprocess.run([sys.executable, "-c", program], check=True)
