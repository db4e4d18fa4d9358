"""One segment file and its index."""

from __future__ import annotations

import os

import pytest

from tests.log.disks import FailingDisk
from tube.errors import StoreError
from tube.log.block import Block, Damage, Placed, encode
from tube.log.files import OpenFiles
from tube.log.index import NO_TIME, Entry
from tube.log.segment import Place, Segment, base_offset_of, segment_name

HOME = 9


def filled(tmp_path, count: int = 20) -> tuple[FailingDisk, Segment]:
    """Return a segment with blocks of one message, an index entry for every second."""
    disk = FailingDisk()
    segment = Segment.create(
        Place(disk, OpenFiles(4), home=HOME, interval_bytes=150), tmp_path, 100
    )
    for i in range(count):
        block = Block(100 + i, 1, 1, b"x" * 10, i, i)
        segment.write([encode(block, HOME), block.payload])
        segment.note(block.base_offset, segment.size, i)
        segment.size += 90
    return disk, segment


def again(tmp_path, segment: Segment) -> Segment:
    """Return the segment as a later start finds it, sealed."""
    place = Place(FailingDisk(), OpenFiles(4), home=HOME, interval_bytes=150)
    found = Segment(place, tmp_path, 100, segment.size)
    found.end_offset = 120
    found.sealed = True
    return found


def test_names_say_the_base_offset():
    """Names sort as their offsets, and other files are none."""
    assert base_offset_of(segment_name(42)) == 42
    assert segment_name(9) < segment_name(10)
    for name in ("1.seg", segment_name(1) + ".new", f"{1:020d}.idx", "notes"):
        assert base_offset_of(name) is None


def test_a_saved_index_is_read_back(tmp_path):
    """What a checkpoint saved in two steps is what a later start searches."""
    _, segment = filled(tmp_path)
    segment.save(3)
    segment.seal(120)
    segment.save(len(segment.index()))
    found = again(tmp_path, segment)

    assert found.last_append_ms() == 19
    for offset in range(100, 120):
        assert found.find_offset(offset) == segment.find_offset(offset)
    assert found.find_time(7).offset <= 107


@pytest.mark.parametrize("size", [0, 10, 32, 64, 70])
def test_a_cut_index_is_built_again(tmp_path, size):
    """However much of the index file is left, searches end at the right block."""
    _, segment = filled(tmp_path)
    segment.seal(120)
    segment.save(99)
    os.truncate(segment.index_path, size)
    found = again(tmp_path, segment)

    for offset in range(100, 120):
        first = next(found.walk(found.find_offset(offset), found.size, skip_to=offset))
        assert isinstance(first, Placed)
        assert first.header.base_offset == offset
    found.let_go()
    assert found.find_offset(119).offset >= 117


def test_an_index_that_cannot_be_written_is_no_failure(tmp_path):
    """A full disk keeps the index from being saved; the segment is synced all the same."""
    disk, segment = filled(tmp_path)
    disk.error = {"create": 28}
    segment.save(3)
    assert not os.path.exists(segment.index_path)
    disk.heal()
    segment.save(3)
    assert os.path.getsize(segment.index_path) == 32 + 3 * 32
    disk.error = {"fdatasync": 5}
    with pytest.raises(OSError, match="Input/output"):
        segment.save(3)
    disk.heal()
    os.unlink(segment.path)
    segment.let_go()
    segment.save(9)


def test_reads_name_the_file_that_fails(tmp_path):
    """A disk that cannot read is an error with path and position; a missing file is told apart."""
    disk, segment = filled(tmp_path)
    disk.error = {"pread": 5}
    with pytest.raises(StoreError, match=r"0100\.seg at 7"):
        segment.read_bytes(7, 10)
    disk.heal()
    os.unlink(segment.path)
    segment.let_go()
    with pytest.raises(FileNotFoundError):
        segment.read_bytes(0, 10)


def test_a_file_that_may_only_be_read_is_read(tmp_path):
    """On a file system that turned read-only, segments still open."""
    disk, segment = filled(tmp_path)
    segment.let_go()
    real = disk.open

    def refuse(path, flags, mode=0o777):
        if flags & os.O_RDWR:
            raise OSError(30, "Read-only file system")
        return real(path, flags, mode)

    disk.open = refuse  # type: ignore[method-assign]

    assert segment.header_at(0) is not None


def test_a_start_reads_only_the_headers_behind_the_last_entry(tmp_path):
    """Up to the synced position the index file serves; a lost one is made up for when it is near."""
    _, segment = filled(tmp_path)
    segment.save(99)
    found = again(tmp_path, segment)
    found.sealed = False
    assert found.load_until(segment.size)
    assert (found.first_append_ms, found.max_append_ms) == (0, 19)
    os.truncate(segment.index_path, 5)
    assert found.load_until(segment.size)
    assert found.index().last.position > segment.size - 300
    path = tmp_path / segment_name(100)
    content = bytearray(path.read_bytes())
    content[:90] = bytes(90)
    path.write_bytes(content)
    index = found.rebuilt(segment.size)

    assert isinstance(next(found.walk(Entry(100, 0, NO_TIME), segment.size)), Damage)
    assert index.entry(0).offset > 100
