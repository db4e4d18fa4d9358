"""Looking at a directory from outside."""

from __future__ import annotations

import pytest

from tests.log.disks import TOPIC, flip, journals, killed, opened, put, segments
from tube.errors import StoreError
from tube.log.inspect import PartitionFacts, describe, verify


def test_a_good_directory_is_described_without_a_fault(tmp_path):
    """Counts are right, and nothing is wrong, open or closed."""
    store = opened(tmp_path / "d", partitions=2, segment_bytes=300, index_interval_bytes=100)
    put(store, *"abcdefgh")
    for state in (killed(store, tmp_path / "d"), tmp_path / "d"):
        if state == tmp_path / "d":
            store.close()
        facts = describe(state)
        assert facts[0] == PartitionFacts(TOPIC, 0, 2, 0, 8, 8 * 81, 8, 8)
        assert facts[1] == PartitionFacts(TOPIC, 1, 1, 0, 0, 0, 0, 0)
        assert list(verify(state)) == []


def test_every_kind_of_fault_is_named(tmp_path):
    """Damage in segment, index, journal and checkpoint is found, with file and position."""
    store = opened(tmp_path / "d", segment_bytes=300, index_interval_bytes=100)
    put(store, *"abcdefgh")
    store.finish_checkpoint(store.begin_checkpoint())
    store.commit([], [b"one"])
    store.commit([], [b"two"])
    copy = killed(store, tmp_path / "d")
    first, second = segments(copy)
    flip(first, 81 + 20)
    index = second.with_suffix(".idx")
    index.write_bytes(first.with_suffix(".idx").read_bytes())
    flip(journals(copy)[-1], 40)
    flip(copy / "checkpoint", 8)
    second.write_bytes(second.read_bytes() + b"torn")

    faults = {(fault.file, fault.position): fault.what for fault in verify(copy)}
    assert faults[str(first), 81] == "81 bytes are damaged, from offset 1 on"
    assert faults[str(second), 4 * 81] == "the last 4 bytes hold no whole block"
    assert faults[str(index), 0] == "the index is damaged"
    assert "before good records" in faults[str(journals(copy)[-1]), 32]
    assert (str(copy / "checkpoint"), 0) in faults
    store.close()


def test_wrong_entries_and_overlaps_are_named(tmp_path):
    """An index entry that points nowhere, and a segment that repeats offsets, are faults."""
    store = opened(tmp_path / "d", segment_bytes=300, index_interval_bytes=100)
    put(store, *"abcdefgh")
    store.close()
    first, second = segments(tmp_path / "d")
    content = first.read_bytes()
    first.write_bytes(content + second.read_bytes())
    moved = second.with_name(f"{3:020d}.seg")
    second.rename(moved)
    second.with_suffix(".idx").unlink()

    whats = [fault.what for fault in verify(tmp_path / "d")]
    assert "begins at offset 3, the one before ends at 8" in whats


def test_what_is_no_data_directory_is_refused(tmp_path):
    """Without an identity there is nothing to look at."""
    with pytest.raises(StoreError):
        describe(tmp_path)
