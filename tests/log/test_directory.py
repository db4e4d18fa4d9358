"""Identity, lock and reserve of a data directory."""

from __future__ import annotations

import errno

import pytest

from tests.log.disks import FailingDisk
from tube.errors import DiskFullError, StoreError, StoreInUseError
from tube.log.directory import Reserve, claim, read_identity, take_lock
from tube.log.files import FileSystem


def test_a_directory_keeps_its_home(tmp_path):
    """The number drawn at first is found again, and another broker is refused."""
    home = claim(FileSystem(), tmp_path, 4)

    assert claim(FileSystem(), tmp_path, 4) == home
    assert read_identity(tmp_path) == (4, home)
    with pytest.raises(StoreInUseError):
        claim(FileSystem(), tmp_path, 5)
    (tmp_path / "identity").unlink()
    with pytest.raises(StoreError, match="missing"):
        claim(FileSystem(), tmp_path, 4)


def test_the_lock_is_for_one(tmp_path):
    """While a lock lives nobody else gets it."""
    lock = take_lock(FileSystem(), tmp_path)
    with pytest.raises(StoreInUseError):
        take_lock(FileSystem(), tmp_path)
    lock.close()
    take_lock(FileSystem(), tmp_path).close()


def test_the_reserve_comes_back_with_room(tmp_path):
    """Given up, it is missed until there is room; of size 0 it is never missed."""
    disk = FailingDisk()
    reserve = Reserve(disk, tmp_path, 10_000)
    assert not reserve.is_there
    assert not reserve.give_up()
    assert reserve.restore()
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= 10_000
    assert reserve.give_up()
    disk.error = {"statvfs": 1}
    with pytest.raises(DiskFullError):
        reserve.require()
    disk.heal()
    disk.allocate = _full  # type: ignore[method-assign]
    assert not reserve.restore()
    assert list(tmp_path.iterdir()) == []
    del disk.allocate
    reserve.require()

    assert (tmp_path / "reserve").exists()
    none = Reserve(disk, tmp_path / "x", 0)
    assert none.is_there
    assert not none.give_up()


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "full")
