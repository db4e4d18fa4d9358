"""The segments of one partition as one log."""

from __future__ import annotations

import pytest

from tube.errors import NotFoundError, OffsetOutOfRangeError
from tube.log.block import Block, encode
from tube.log.files import FileSystem, OpenFiles
from tube.log.partition import PartitionLog
from tube.log.retention import Retention
from tube.log.segment import Place
from tube.log.values import LogKey

HOME = 9


@pytest.fixture
def log(tmp_path):
    """An empty log."""
    place = Place(FileSystem(), OpenFiles(2), home=HOME, interval_bytes=100)
    return PartitionLog.create(place, LogKey(7, 0), tmp_path)


def append(log: PartitionLog, *bases: int, at_ms: int = 0) -> None:
    """Append blocks with these base offsets in one window."""
    blocks = [Block(base, 1, 1, b"%d" % base, at_ms, at_ms) for base in bases]
    pieces = [piece for block in blocks for piece in (encode(block, HOME), block.payload)]
    log.active.write(pieces)
    log.publish(blocks)


def test_an_empty_log_has_nothing_to_read(log):
    """Offset 0 is the end; there is no other."""
    assert log.read(0, 100, None).blocks == []
    assert log.offset_at(0) == 0
    with pytest.raises(OffsetOutOfRangeError):
        log.read(1, 100, None)
    assert log.roll() is None
    assert log.bounds(False).last_append_ms is None


def test_gaps_between_base_offsets_are_no_damage(log):
    """Explicit numbers leave holes; a read in one goes on with the next block, over segments too."""
    append(log, 0, 10)
    log.roll()
    append(log, 50)

    result = log.read(5, 1000, None)
    assert [block.base_offset for block in result.blocks] == [10, 50]
    assert result.gaps == []
    assert log.read(11, 1000, None).blocks[0].base_offset == 50
    assert (log.read(11, 1000, 50).blocks, log.read(11, 1000, 50).next_offset) == ([], 50)


def test_unpublished_bytes_are_not_seen(log):
    """What was written and not published is behind the end of every read."""
    append(log, 0)
    log.active.write([encode(Block(1, 1, 1, b"unseen", 0, 0), HOME), b"unseen"])

    assert len(log.read(0, 1000, None).blocks) == 1
    log.active.cut(log.active.size)
    append(log, 1)
    assert bytes(log.read(1, 1000, None).blocks[0].payload) == b"1"


def test_a_reader_of_an_old_view_is_told(log):
    """Segments dropped under a reader give a clear error, a deleted partition another."""
    append(log, 0)
    log.roll()
    append(log, 1)
    sealed = log.roll_if_expired(Retention(age_ms=10), 10)
    assert sealed is not None
    assert log.roll_if_expired(Retention(age_ms=10), 5) is None
    old = log.view
    log.retain(Retention(age_ms=10), 10)
    with pytest.raises(FileNotFoundError) as caught:
        old.segments[0].read_bytes(0, 1)
    log._look_again(old, caught.value)
    log.drop()
    with pytest.raises(NotFoundError):
        log._look_again(old, caught.value)


def test_rolls_are_due_by_size_and_age(log):
    """A segment is sealed when it is full or its first block is old."""
    append(log, 0, at_ms=100)
    assert log.roll_if_due(1000, 50, 149) is None
    assert log.roll_if_due(1000, 50, 150) is not None
    append(log, 1, at_ms=200)
    assert log.roll_if_due(10, 50, 200) is not None
    assert log.roll_if_due(10, 50, 900) is None
