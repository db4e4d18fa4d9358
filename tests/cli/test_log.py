"""``tube log``."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import here
from tests.log.disks import flip, opened, put, segments


def test_a_directory_is_shown_and_verified(tmp_path: Path) -> None:
    """What is in it, and what is wrong with it."""
    store = opened(tmp_path / "d")
    put(store, "a", "b")
    store.close()
    (row,) = here("log", "inspect", str(tmp_path / "d"), "-o", "json").document
    assert (row["messages"], row["next_offset"]) == (2, 2)
    assert here("log", "verify", str(tmp_path / "d")).out == "no faults\n"

    flip(segments(tmp_path / "d")[0], -1)
    ended = here("log", "verify", str(tmp_path / "d"))
    assert ended.code == 1
    assert len(ended.lines) >= 2


def test_what_is_no_data_directory(tmp_path: Path) -> None:
    """One line."""
    assert here("log", "inspect", str(tmp_path)).code == 1
    assert here("log", "verify", str(tmp_path / "none")).code == 2
