"""Saves and loads the offset snapshot, atomically and durably."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Final

from tube.errors import StoreError

NAME: Final = "offsets.json"


def save(directory: Path, snapshot: bytes) -> None:
    """Replace the file; after the return it survives a power cut.

    The file is the CRC-32 of the rest as eight hexadecimal digits, a line feed, and the snapshot.

    Raises:
        OSError: nothing changed.
    """
    final = directory / NAME
    draft = directory / f"{NAME}.new"
    with open(draft, "wb") as file:
        file.write(b"%08x\n" % zlib.crc32(snapshot) + snapshot)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, final)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load(directory: Path) -> bytes:
    """Return the snapshot, b"" when none was ever saved.

    Raises:
        StoreError: the file is damaged.
    """
    path = directory / NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return b""
    check, _, snapshot = content.partition(b"\n")
    if check != b"%08x" % zlib.crc32(snapshot):
        raise StoreError(
            f"{path} is damaged",
            hint="restore it from a copy, or remove it: groups then start at their default position",
        )
    return snapshot
