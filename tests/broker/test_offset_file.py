"""The offset file is there whole, or it is said to be damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tube.broker import offset_file
from tube.errors import StoreError


def test_what_was_saved_last_is_loaded(tmp_path: Path) -> None:
    """No file is an empty snapshot; a draft left by a crash is not looked at."""
    assert offset_file.load(tmp_path) == b""
    offset_file.save(tmp_path, b"one")
    offset_file.save(tmp_path, b"two\nlines")
    (tmp_path / "offsets.json.new").write_bytes(b"half")

    assert offset_file.load(tmp_path) == b"two\nlines"


@pytest.mark.parametrize("at", [0, 8, 9, 11])
def test_any_damage_is_noticed(tmp_path: Path, at: int) -> None:
    """A flipped bit is never loaded as offsets."""
    offset_file.save(tmp_path, b"two")
    path = tmp_path / offset_file.NAME
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)

    with pytest.raises(StoreError, match="damaged"):
        offset_file.load(tmp_path)
