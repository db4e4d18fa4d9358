"""What a start believes, rewrites, cuts and reports; more of it in test_store and test_power."""

from __future__ import annotations

import os

from tests.log.disks import TOPIC, killed, opened, put, run, segments, texts
from tube.log.block import HEADER_BYTES


def test_only_what_is_behind_the_checkpoint_is_read(tmp_path):
    """The start scans the unsynced bytes and no others."""
    store = opened(tmp_path / "d", partitions=50)
    for partition in range(50):
        put(store, *"abc", partition=partition)
    store.finish_checkpoint(store.begin_checkpoint())
    put(store, "d", partition=7)

    back = opened(killed(store, tmp_path / "d"))
    assert back.recovery.scanned_bytes == HEADER_BYTES + 1
    assert texts(back, partition=7) == list("abcd")
    back.close()
    store.close()


def test_a_file_shorter_than_its_checkpoint_is_told(tmp_path):
    """When synced bytes are gone, the start says so, keeps what is whole, and gives no offset twice."""
    store = opened(tmp_path / "d")
    put(store, *"abc")
    store.close()
    os.truncate(segments(tmp_path / "d")[0], 2 * 81 + 5)

    back = opened(tmp_path / "d")
    assert "shorter" in back.recovery.warnings[0]
    assert texts(back) == ["a", "b"]
    put(back, "d")
    assert [block.base_offset for block in back.read(TOPIC, 0, 0, 100).blocks] == [0, 1, 3]
    back.close()


def test_indexes_without_segments_are_removed(tmp_path):
    """What a drop left half done is finished."""
    store = opened(tmp_path / "d")
    put(store, "a")
    store.close()
    orphan = segments(tmp_path / "d")[0].with_name(f"{99:020d}.idx")
    orphan.touch()

    back = opened(tmp_path / "d")
    assert not orphan.exists()
    back.close()


def test_adjoining_blocks_are_written_in_runs(tmp_path):
    """Replay of holes, of many blocks and of big ones puts each where it was."""
    store = opened(tmp_path / "d")
    names = ["x" * 3_000_000, "y" * 3_000_000, "z"]
    put(store, *names)
    store.commit([run("lost", durable=False)])
    put(store, "last")
    copy = killed(store, tmp_path / "d")
    segments(copy)[0].write_bytes(b"")

    back = opened(copy)
    assert texts(back) == [*names, "last"]
    assert back.read(TOPIC, 0, 3, 10).gaps[0].next_offset == 4
    assert (back.recovery.replayed, back.recovery.repaired) == (4, 4)
    back.close()
    store.close()
