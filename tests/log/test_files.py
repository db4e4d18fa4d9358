"""Writes that are completed, files that close themselves, and their bound."""

from __future__ import annotations

import errno
import os

import pytest

from tests.log.disks import FailingDisk
from tube.log.files import (
    FileSystem,
    OpenFile,
    OpenFiles,
    create_file,
    make_directory,
    open_files_limit,
    remove_tree,
    replace_file,
    write_all,
)


class Held:
    """Something with an open file."""

    def __init__(self) -> None:
        self.used = False
        self.open = True

    def let_go(self) -> None:
        self.open = False


def test_the_least_used_file_is_let_go():
    """Over the bound, files that were not used since the last look go first."""
    files = OpenFiles(3)
    held = [Held() for _ in range(4)]
    for each in held[:3]:
        files.opened(each)
    for each in (held[1], held[2]):
        each.used = True
    held[0].used = False
    files.opened(held[3])

    assert [each.open for each in held] == [False, True, True, True]
    for i in range(50):
        files.opened(Held())
        assert len(files) == 3, i
    files.let_all_go()
    assert len(files) == 0


def test_a_file_closes_with_its_last_user(tmp_path):
    """The descriptor lives as long as somebody refers to it."""
    file = OpenFile(FileSystem(), str(tmp_path / "f"), os.O_RDWR | os.O_CREAT)
    fd, user = file.fd, file
    del file
    os.fstat(fd)
    del user

    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


@pytest.mark.parametrize("size", [1, 700, 5000])
@pytest.mark.parametrize("short", [0, 333])
def test_pieces_are_written_whole(tmp_path, size, short):
    """Small and large sets of pieces arrive whole, however short the system writes."""
    disk = FailingDisk()
    pieces = [bytes([i % 251]) * size for i in range(2500)]
    file = OpenFile(disk, str(tmp_path / "f"), os.O_RDWR | os.O_CREAT)
    disk.short = short * size
    written = write_all(disk, file.fd, pieces, 10)

    assert written == size * 2500
    assert (tmp_path / "f").read_bytes()[10:] == b"".join(pieces)


def test_a_system_that_writes_nothing_is_full(tmp_path):
    """A write of zero bytes does not loop for ever."""

    class Stuck(FileSystem):
        pwrite = staticmethod(lambda fd, content, at: 0)

    file = OpenFile(Stuck(), str(tmp_path / "f"), os.O_RDWR | os.O_CREAT)
    with pytest.raises(OSError, match="writes nothing") as caught:
        write_all(Stuck(), file.fd, [b"x"], 0)
    assert caught.value.errno == errno.ENOSPC


def test_replacing_keeps_the_old_file_when_it_fails(tmp_path):
    """A file has its old or its new content, and a failed one leaves nothing behind."""
    disk = FailingDisk()
    path = tmp_path / "file"
    replace_file(disk, path, b"old")
    disk.error = {"pwrite": errno.ENOSPC}
    with pytest.raises(OSError, match="No space"):
        replace_file(disk, path, b"new")

    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_directories_come_and_go(tmp_path):
    """Parents are made, existing ones are fine, trees are removed without following links."""
    disk = FileSystem()
    make_directory(disk, tmp_path / "a" / "b")
    make_directory(disk, tmp_path / "a" / "b")
    create_file(disk, tmp_path / "outside", b"stays")
    (tmp_path / "a" / "link").symlink_to(tmp_path)
    create_file(disk, tmp_path / "a" / "b" / "file")
    remove_tree(disk, tmp_path / "a")

    assert [entry.name for entry in tmp_path.iterdir()] == ["outside"]
    assert open_files_limit() >= 16
