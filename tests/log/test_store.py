"""The store as a whole, on real directories."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from tests.log.disks import (
    TOPIC,
    FailingDisk,
    flip,
    journals,
    killed,
    opened,
    options,
    put,
    run,
    segments,
    texts,
)
from tube.errors import (
    BadRequestError,
    DiskFullError,
    NotFoundError,
    OffsetOutOfRangeError,
    ReadOnlyError,
    StoreError,
    StoreInUseError,
)
from tube.limits import BATCH_BYTES_MAX
from tube.log.store import Append, Appended, LogStore, Retention


def test_what_is_committed_is_read_back(tmp_path):
    """Messages come back in order, with growing offsets, from any offset."""
    store = opened(tmp_path / "d", partitions=2)
    outcomes = store.commit([run("a"), run("x", partition=1), run("b"), run("c", durable=False)])

    assert [o.base_offset for o in outcomes] == [0, 0, 1, 2]
    assert texts(store) == ["a", "b", "c"]
    assert texts(store, 1) == ["b", "c"]
    assert texts(store, partition=1) == ["x"]
    store.close()


def test_a_block_is_read_from_its_middle(tmp_path):
    """A read gives the whole block that contains the offset; spans may exceed counts."""
    store = opened(tmp_path / "d")
    store.commit([Append(TOPIC, 0, [b"on", b"e"], 2, True, 1, 1, span=10), run("two")])

    result = store.read(TOPIC, 0, 7, 1000)
    assert [(b.base_offset, b.span, b.count) for b in result.blocks] == [(0, 10, 2), (10, 1, 1)]
    assert bytes(result.blocks[0].payload) == b"one"
    assert store.read(TOPIC, 0, 0, 1000, end_offset=10).next_offset == 10
    assert len(store.read(TOPIC, 0, 0, 1).blocks) == 1
    store.close()


def test_offsets_outside_are_refused(tmp_path):
    """Before the first and behind the next offset there is nothing to read; at its end, nothing yet."""
    store = opened(tmp_path / "d")
    put(store, "a")

    assert store.read(TOPIC, 0, 1, 100).blocks == []
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRangeError):
            store.read(TOPIC, 0, offset, 100)
    with pytest.raises(NotFoundError):
        store.read(TOPIC, 5, 0, 100)
    store.close()


@pytest.mark.parametrize(
    "bad",
    [
        {"count": 0},
        {"count": 2**17},
        {"codec": 0},
        {"codec": 256},
        {"span": -1},
        {"payload": b""},
        {"payload": b"x" * (BATCH_BYTES_MAX + 1)},
        {"filter_bits": -1},
        {"producer_epoch": 2**32},
    ],
)
def test_absurd_appends_are_refused_alone(tmp_path, bad):
    """An append that cannot be is refused; the others of its window are kept."""
    store = opened(tmp_path / "d")
    wrong = run("bad")
    for name, value in bad.items():
        setattr(wrong, name, value)

    outcomes = store.commit([run("a"), wrong, run("b"), run("c", partition=9)])
    assert isinstance(outcomes[1], BadRequestError)
    assert isinstance(outcomes[3], NotFoundError)
    assert texts(store) == ["a", "b"]
    with pytest.raises(BadRequestError):
        store.commit([], [b"x" * (BATCH_BYTES_MAX + 1)])
    store.close()


def test_a_killed_store_comes_back_whole(tmp_path):
    """After a kill everything is there, the notes since the last checkpoint too, however often."""
    store = opened(tmp_path / "d", segment_bytes=500)
    names = [f"message {i}" for i in range(50)]
    put(store, *names)
    store.commit([], [b"first"])
    store.commit([run("last")], [b"second", b"third"])
    copy = killed(store, tmp_path / "d")

    for _ in range(3):
        back = opened(copy)
        assert texts(back) == [*names, "last"]
        assert back.recovery.notes == [b"first", b"second", b"third"]
        assert back.recovery.replayed == 51
        assert back.recovery.repaired == 0
        assert back.recovery.warnings == []
        back.close()  # keeps the notes: no checkpoint covers them
        put(store, "more")
    store.close()


def test_lost_page_cache_is_repaired_from_the_journal(tmp_path):
    """When the segments lose all that was never synced, every durable message comes back."""
    store = opened(tmp_path / "d", partitions=3, segment_bytes=400)
    rng = random.Random(1)
    for i in range(60):
        store.commit([run(f"message {i}.{p}", partition=p) for p in range(3)])
    copy = killed(store, tmp_path / "d")
    for partition in range(3):
        for path in segments(copy, partition):
            content = bytearray(path.read_bytes())
            kind = rng.randrange(4)
            if kind == 0:
                content = content[: rng.randrange(len(content) + 1)]
            elif kind == 1:
                content[10:200] = bytes(190)
            elif kind == 2:
                content = bytearray(len(content))
            path.write_bytes(content)
    segments(copy, 1)[-1].unlink()

    back = opened(copy)
    for partition in range(3):
        assert texts(back, partition=partition) == [f"message {i}.{partition}" for i in range(60)]
    assert back.recovery.repaired > 0
    back.close()
    store.close()


def test_written_messages_lost_before_durable_ones_leave_a_gap(tmp_path):
    """A power cut may take written-only blocks; the durable ones behind keep their offsets."""
    store = opened(tmp_path / "d")
    put(store, "w1", "w2", durable=False)
    put(store, "d1", "d2")
    copy = killed(store, tmp_path / "d")
    segments(copy)[0].write_bytes(b"")

    back = opened(copy)
    gaps: list = []
    assert texts(back, gaps=gaps) == ["d1", "d2"]
    assert [(g.first_offset, g.next_offset, g.position) for g in gaps] == [(0, 2, 0)]
    assert back.read(TOPIC, 0, 2, 10).blocks[0].base_offset == 2
    assert len(back.recovery.quarantined) == 1
    back.close()
    store.close()


def test_a_torn_tail_is_cut_and_appends_go_on(tmp_path):
    """Half a block at the end of an unsynced segment goes; the next append takes its place."""
    store = opened(tmp_path / "d")
    put(store, "a", "b", durable=False)
    copy = killed(store, tmp_path / "d")
    path = segments(copy)[0]
    path.write_bytes(path.read_bytes() + path.read_bytes()[:85])

    back = opened(copy)
    assert back.recovery.cut_bytes == 85
    assert len(back.recovery.warnings) == 1
    put(back, "c")
    assert texts(back) == ["a", "b", "c"]
    back.close()
    store.close()


@pytest.mark.parametrize("spot", ["header", "payload"])
def test_damage_in_the_middle_is_passed_by(tmp_path, spot):
    """A damaged block is reported with file, position and offsets; what follows is served."""
    store = opened(tmp_path / "d")
    put(store, "a", "b", "c", "d", durable=False)
    flip(segments(tmp_path / "d")[0], 81 + (8 if spot == "header" else 80))

    gaps: list = []
    assert texts(store, gaps=gaps) == ["a", "c", "d"]
    assert (gaps[0].first_offset, gaps[0].next_offset, gaps[0].position) == (1, 2, 81)
    back = opened(killed(store, tmp_path / "d"))
    assert texts(back, 1) == ["c", "d"]
    assert [q.position for q in back.recovery.quarantined] == [81]
    put(back, "e")
    assert texts(back) == ["a", "c", "d", "e"]
    back.close()
    store.close()


def test_a_message_that_holds_a_copy_of_a_block_is_not_taken_for_one(tmp_path):
    """Behind damage, a block is looked for; one inside a message, of another directory, is not it."""
    other = opened(tmp_path / "other")
    put(other, *"abcdef", durable=False)
    stolen = segments(tmp_path / "other")[0].read_bytes()
    store = opened(tmp_path / "d")
    store.commit([Append(TOPIC, 0, stolen, 1, False, 0, 0), run("good")])
    flip(segments(tmp_path / "d")[0], 3)

    assert texts(store) == ["good"]
    store.close()
    other.close()


def test_a_damaged_journal_record_does_not_hide_the_later_ones(tmp_path):
    """Records behind damage are found, and the damage is reported."""
    store = opened(tmp_path / "d")
    put(store, "a", "b", "c")
    store.commit([], [b"note"])
    copy = killed(store, tmp_path / "d")
    flip(journals(copy)[-1], 32 + 64 + 64 + 81 + 70)
    segments(copy)[0].write_bytes(b"")

    back = opened(copy)
    assert texts(back) == ["a", "c"]
    assert back.recovery.notes == [b"note"]
    assert any("unreadable" in warning for warning in back.recovery.warnings)
    back.close()
    store.close()


def test_a_torn_journal_tail_is_cut_once(tmp_path):
    """Half a record at the journal's end is cut, with one warning, at the first start only."""
    store = opened(tmp_path / "d")
    put(store, "a", "b")
    store.commit([], [b"note"])
    copy = killed(store, tmp_path / "d")
    path = journals(copy)[-1]
    path.write_bytes(path.read_bytes()[:-3])

    back = opened(copy)
    assert back.recovery.notes == []
    assert len(back.recovery.warnings) == 1
    again = opened(killed(back, copy))
    assert again.recovery.warnings == []
    assert texts(again) == ["a", "b"]
    for each in (again, back, store):
        each.close()


def test_a_checkpoint_empties_the_journal(tmp_path):
    """After a finished checkpoint nothing is replayed or scanned, and the notes are the broker's."""
    store = opened(tmp_path / "d", segment_bytes=300)
    put(store, *(f"m{i}" for i in range(20)))
    store.commit([], [b"note"])
    checkpoint = store.begin_checkpoint()
    put(store, "between")
    store.commit([], [b"after"])
    store.finish_checkpoint(checkpoint)

    back = opened(killed(store, tmp_path / "d"))
    assert back.recovery.notes == [b"after"]
    assert back.recovery.replayed == 1
    assert texts(back) == [*(f"m{i}" for i in range(20)), "between"]
    assert len(journals(tmp_path / "d")) == 1
    back.close()
    store.close()


def test_a_kill_inside_a_checkpoint_loses_nothing(tmp_path):
    """Killed between begin and finish, or before the old journals went, all is given back."""
    store = opened(tmp_path / "d")
    put(store, "a")
    store.commit([], [b"note"])
    before = killed(store, tmp_path / "d")
    kept = tmp_path / "kept"
    shutil.copytree(before / "journal", kept)
    checkpoint = store.begin_checkpoint()
    put(store, "b")

    back = opened(killed(store, tmp_path / "d"))
    assert (texts(back), back.recovery.notes) == (["a", "b"], [b"note"])
    back.close()
    store.finish_checkpoint(checkpoint)
    after = killed(store, tmp_path / "d")
    for path in kept.iterdir():
        shutil.copy(path, after / "journal")
    back = opened(after)
    assert (texts(back), back.recovery.notes) == (["a", "b"], [])
    back.close()
    store.close()


def test_an_abandoned_checkpoint_is_made_up_for(tmp_path):
    """A checkpoint that is never finished leaves its segments to the next one."""
    store = opened(tmp_path / "d")
    put(store, "a")
    store.begin_checkpoint()
    put(store, "b", partition=0)
    checkpoint = store.begin_checkpoint()
    assert len(checkpoint.unsynced) == 1
    store.finish_checkpoint(checkpoint)
    store.close()
    back = opened(tmp_path / "d")
    assert back.recovery.replayed == 0
    assert texts(back) == ["a", "b"]
    back.close()


def test_close_leaves_an_empty_journal(tmp_path):
    """After an ordered stop the start has nothing to do; a second close is nothing."""
    store = opened(tmp_path / "d")
    put(store, "a")
    store.close()
    store.close()
    with pytest.raises(StoreError):
        store.commit([])

    assert [p.stat().st_size for p in journals(tmp_path / "d")] == [32]
    back = opened(tmp_path / "d")
    assert (back.recovery.replayed, back.recovery.scanned_bytes, texts(back)) == (0, 0, ["a"])
    back.close()


def test_a_damaged_checkpoint_costs_time_only(tmp_path):
    """Without a good checkpoint file everything is read again."""
    store = opened(tmp_path / "d")
    put(store, "a")
    store.close()
    flip(tmp_path / "d" / "checkpoint", 20)

    back = opened(tmp_path / "d")
    assert texts(back) == ["a"]
    assert "checkpoint" in back.recovery.warnings[0]
    back.close()


def test_a_deleted_topic_stays_deleted(tmp_path):
    """Neither a delete nor a new topic of that number brings back what the journal still has."""
    store = opened(tmp_path / "d")
    put(store, "old", "older")
    store.delete(TOPIC)
    with pytest.raises(NotFoundError):
        store.bounds(TOPIC, 0)
    back = opened(killed(store, tmp_path / "d"), partitions=0)
    assert back.partitions() == []
    back.close()
    store.create(TOPIC, 0)
    put(store, "new")
    store.delete(99)

    back = opened(killed(store, tmp_path / "d"))
    assert texts(back) == ["new"]
    back.close()
    store.close()


def test_a_delete_that_was_interrupted_is_finished(tmp_path):
    """A directory that was renamed for deletion goes at the next start."""
    store = opened(tmp_path / "d")
    store.close()
    topics = tmp_path / "d" / "topics"
    (topics / str(TOPIC)).rename(topics / "deleted-1-7")

    back = opened(tmp_path / "d", partitions=0)
    assert list(topics.iterdir()) == []
    back.close()


def test_a_partition_without_its_first_segment_is_made_whole(tmp_path):
    """Killed between a partition's directory and its first file, the partition is empty."""
    store = opened(tmp_path / "d", partitions=2)
    put(store, "a", partition=1)
    copy = killed(store, tmp_path / "d")
    for path in segments(copy):
        path.unlink()

    back = opened(copy)
    assert back.bounds(TOPIC, 0).next_offset == 0
    put(back, "b")
    assert texts(back) == ["b"]
    back.close()
    store.close()


def test_one_process_and_one_broker_at_a_time(tmp_path):
    """A second opener, another broker and a newer format are told what to do."""
    store = opened(tmp_path / "d")
    with pytest.raises(StoreInUseError, match="another process"):
        opened(tmp_path / "d")
    store.close()
    with pytest.raises(StoreInUseError, match="belongs to broker 1"):
        LogStore.open(tmp_path / "d", broker_id=2, options=options(), now_ms=0)
    identity = tmp_path / "d" / "identity"
    content = identity.read_text()
    identity.write_text(content.replace('"format": 1', '"format": 2'))
    with pytest.raises(StoreInUseError, match="newer release"):
        opened(tmp_path / "d")
    for wrong in ("nonsense", None):
        identity.write_text(wrong) if wrong else identity.unlink()
        with pytest.raises(StoreError, match="restore it"):
            opened(tmp_path / "d")
    identity.write_text(content)
    opened(tmp_path / "d").close()


def test_retention_drops_whole_segments(tmp_path):
    """Old segments go by size and by age; readers of them are told; an idle topic empties too."""
    store = opened(tmp_path / "d", segment_bytes=200)
    for i in range(10):
        put(store, f"message {i}", at_ms=i * 1000)
    copy = tmp_path / "d"
    count = len(segments(copy))
    dropped = store.retain({TOPIC: Retention(bytes=300), 99: Retention(age_ms=0)}, 0)

    assert count - len(segments(copy)) == len(dropped) > 0
    bounds = store.bounds(TOPIC, 0)
    assert bounds.first_offset == dropped[-1].next_offset
    assert bounds.bytes >= 300
    with pytest.raises(OffsetOutOfRangeError):
        store.read(TOPIC, 0, 0, 10)
    assert texts(store, bounds.first_offset)[-1] == "message 9"
    store.retain({TOPIC: Retention(age_ms=5000)}, 20_000)
    assert store.bounds(TOPIC, 0).first_offset == 10
    back = opened(killed(store, copy))
    assert back.bounds(TOPIC, 0).first_offset == back.bounds(TOPIC, 0).next_offset == 10
    put(back, "next")
    assert texts(back, 10) == ["next"]
    back.close()
    store.close()


def test_times_are_looked_up(tmp_path):
    """The first block at or after a time is found, though the clock stepped back."""
    store = opened(tmp_path / "d", segment_bytes=900, index_interval_bytes=200)
    times = [10, 20, 30, 25, 26, 27, 40, 50, 45, 60] * 4
    for i, at in enumerate(times):
        put(store, f"{i:03}", at_ms=at + i // 10 * 100)
    all_times = [at + i // 10 * 100 for i, at in enumerate(times)]
    back = opened(killed(store, tmp_path / "d"), segment_bytes=900, index_interval_bytes=200)

    for each in (store, back):
        for wanted in range(0, 400, 3):
            first = next((i for i, at in enumerate(all_times) if at >= wanted), len(all_times))
            assert each.offset_at(TOPIC, 0, wanted) == first
        each.close()


@pytest.mark.parametrize("harm", ["flip", "stale", "gone", "foreign"])
def test_a_wrong_index_never_gives_wrong_messages(tmp_path, harm):
    """Whatever an index file says, reads give what the segments hold."""
    small = {"index_interval_bytes": 150, "segment_bytes": 2000}
    store = opened(tmp_path / "d", partitions=2, **small)
    names = [f"message {i}" for i in range(100)]
    put(store, *names)
    put(store, *("another, longer message" for _ in names), partition=1)
    store.close()
    others = sorted((tmp_path / "d/topics/7/1").glob("*.idx"))
    for i, path in enumerate(sorted((tmp_path / "d/topics/7/0").glob("*.idx"))):
        content = path.read_bytes()
        if harm == "flip":
            flip(path, 40)
        elif harm == "stale":
            path.write_bytes(content[: 32 + 64])
        elif harm == "gone":
            path.unlink()
        else:
            path.write_bytes(content[:32] + others[min(i, len(others) - 1)].read_bytes()[32:])

    back = opened(tmp_path / "d", **small)
    assert texts(back) == names
    for offset in range(100):
        assert texts(back, offset)[0] == names[offset]
    put(back, "next")
    assert texts(back)[-1] == "next"
    back.close()


def test_short_writes_are_completed(tmp_path):
    """However few bytes the system writes at a time, blocks and journal are whole."""
    disk = FailingDisk()
    store = opened(tmp_path / "d", disk=disk)
    disk.short = 7
    put(store, "first", "second")
    big = b"y" * 3_000_000
    store.commit([Append(TOPIC, 0, big[:400_000], 1, True, 0, 0) for _ in range(4)])
    disk.heal()

    back = opened(killed(store, tmp_path / "d"))
    assert [len(t) for t in texts(back)] == [5, 6] + [400_000] * 4
    assert back.recovery.repaired == 0
    back.close()
    store.close()


@pytest.mark.parametrize("match", [".seg", ".jnl"])
def test_a_full_disk_refuses_the_window_and_heals(tmp_path, match):
    """Nothing of the window stays, reads go on, and with room the next window is taken."""
    disk = FailingDisk()
    store = opened(tmp_path / "d", partitions=2, disk=disk)
    put(store, "a")
    sizes = store.usage().bytes
    disk.fill()
    disk.match = match
    for _ in range(3):
        with pytest.raises(DiskFullError):
            store.commit([run("lost"), run("lost", partition=1)], [b"lost"])
    assert texts(store) == ["a"]
    assert store.usage().bytes == sizes
    disk.heal()

    put(store, "b")
    back = opened(killed(store, tmp_path / "d"))
    assert texts(back) == ["a", "b"]
    assert texts(back, partition=1) == []
    assert back.recovery.notes == []
    back.close()
    store.close()


def test_a_failing_segment_fails_its_partition_alone(tmp_path):
    """An I/O error of one segment refuses that partition's appends; the window's others are kept."""
    disk = FailingDisk()
    store = opened(tmp_path / "d", partitions=2, disk=disk)
    disk.error = {"pwrite": errno.EIO}
    disk.match = f"topics/{TOPIC}/0/"
    outcomes = store.commit([run("a"), run("b", partition=1), run("c")])
    disk.heal()

    assert [type(o) for o in outcomes] == [StoreError, Appended, StoreError]
    put(store, "d")
    back = opened(killed(store, tmp_path / "d"))
    assert (texts(back), texts(back, partition=1)) == (["d"], ["b"])
    back.close()
    disk.error = {"pwrite": errno.EIO, "ftruncate": errno.EIO}
    disk.match = f"topics/{TOPIC}/0/"
    put(store, "e")
    disk.heal()
    assert isinstance(put(store, "f")[0], ReadOnlyError)
    assert store.bounds(TOPIC, 0).read_only
    store.close()


@pytest.mark.parametrize("call", ["fdatasync", "pwrite"])
def test_after_a_failed_journal_nothing_is_acknowledged(tmp_path, call):
    """When the journal cannot be synced or written, the store only reads until it is reopened."""
    disk = FailingDisk()
    store = opened(tmp_path / "d", disk=disk)
    put(store, "a")
    disk.error = {call: errno.EIO}
    disk.match = ".jnl"
    with pytest.raises(ReadOnlyError):
        store.commit([run("b")])
    disk.heal()
    for action in (
        lambda: store.commit([run("c")]),
        store.begin_checkpoint,
        lambda: store.create(8, 0),
    ):
        with pytest.raises(ReadOnlyError):
            action()

    assert texts(store) == ["a"]
    assert store.usage().read_only
    assert store.bounds(TOPIC, 0).read_only
    store.close()
    back = opened(tmp_path / "d")
    assert texts(back)[:1] == ["a"]
    put(back, "d")
    assert texts(back)[-1] == "d"
    back.close()


def test_a_segment_that_cannot_be_synced_keeps_the_journal(tmp_path):
    """A failed background sync makes the store read-only, and the next start writes all again."""
    disk = FailingDisk()
    store = opened(tmp_path / "d", disk=disk)
    put(store, "a", "b")
    checkpoint = store.begin_checkpoint()
    disk.error = {"fdatasync": errno.EIO}
    disk.match = ".seg"
    with pytest.raises(ReadOnlyError):
        store.finish_checkpoint(checkpoint)
    with pytest.raises(ReadOnlyError):
        store.commit([run("c")])
    store.close()

    back = opened(tmp_path / "d")
    assert back.recovery.replayed == 2
    assert texts(back) == ["a", "b"]
    back.close()


def test_a_bad_sector_is_an_error_not_a_gap(tmp_path):
    """While the disk cannot read, nobody is told that messages are gone."""
    disk = FailingDisk()
    store = opened(tmp_path / "d", disk=disk)
    put(store, "a")
    disk.error = {"pread": errno.EIO}
    disk.match = ".seg"
    with pytest.raises(StoreError):
        store.read(TOPIC, 0, 0, 10)
    disk.heal()

    assert texts(store) == ["a"]
    store.close()


def test_the_reserve_lets_a_broker_start(tmp_path):
    """On a full disk the reserve is given up: reads and notes work, sends wait for room."""
    disk = FailingDisk()
    store = opened(tmp_path / "d", disk=disk)
    put(store, "a")
    store.close()
    reserve = tmp_path / "d" / "reserve"
    assert reserve.stat().st_size == 64 * 1024
    disk.error = {"statvfs": 1}
    create = disk.open

    def while_reserved(path, flags, mode=0o777):
        if flags & os.O_CREAT and reserve.exists() and path.endswith(".jnl"):
            raise OSError(errno.ENOSPC, "full")
        return create(path, flags, mode)

    disk.open = while_reserved  # type: ignore[method-assign]
    back = opened(tmp_path / "d", partitions=0, disk=disk)

    assert not reserve.exists()
    assert "full" in back.recovery.warnings[0]
    assert texts(back) == ["a"]
    back.commit([], [b"note"])
    with pytest.raises(DiskFullError):
        back.commit([run("b")])
    disk.heal()
    put(back, "c")
    assert reserve.exists()
    assert texts(back) == ["a", "c"]
    back.close()


def fill(store: LogStore, kept: list[str]) -> None:
    """Append messages and note them until the store refuses one."""
    while True:
        text = f"{len(kept)}" * 500
        put(store, text)
        kept.append(text)


def test_a_really_full_disk(tmp_path):
    """On a small file system of its own: refused when full, read meanwhile, healed with room."""
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)]
    if (
        shutil.which("mount") is None
        or subprocess.run(command, check=False, capture_output=True).returncode
    ):
        pytest.skip("mounting a file system is not permitted here")
    try:
        store = opened(mount / "d", segment_bytes=100_000)
        kept: list[str] = []
        with pytest.raises(DiskFullError):
            fill(store, kept)
        assert texts(store) == kept
        store.close()  # cannot even checkpoint, or just about
        back = opened(mount / "d", partitions=0, segment_bytes=100_000)
        assert texts(back) == kept
        back.retain({TOPIC: Retention(bytes=100_000)}, 0)
        back.finish_checkpoint(back.begin_checkpoint())
        put(back, "after")
        assert texts(back, back.bounds(TOPIC, 0).first_offset)[-1] == "after"
        back.close()
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=False)


_WRITER = """
import sys
from pathlib import Path
from tests.log.disks import TOPIC, options, run
from tube.log.store import LogStore
store = LogStore.open(Path(sys.argv[1]), broker_id=1, options=options(segment_bytes=20_000), now_ms=0)
for p in range(5):
    store.create(TOPIC, p)
start = [store.bounds(TOPIC, p).next_offset for p in range(5)]
n = 0
while True:
    window = [run(f"{p}.{start[p] + n}", partition=p) for p in range(5)]
    store.commit(window, [str(n).encode()])
    n += 1
    print(" ".join(str(start[p] + n) for p in range(5)), flush=True)
    if n % 40 == 0:
        store.finish_checkpoint(store.begin_checkpoint())
"""


@pytest.mark.parametrize("lines", [1, 37, 41, 200])
def test_every_acknowledged_message_survives_sigkill(tmp_path, lines):
    """A process that is killed while it writes has kept all it acknowledged, kill after kill."""
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path / "d")], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        said = ""
        for _ in range(lines):
            said = child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        said = (child.stdout.read().splitlines() or [said])[-1] or said
        child.stdout.close()
        child.wait()
        back = opened(tmp_path / "d", partitions=5)
        acknowledged = [int(word) for word in said.split()]
        for partition in range(len(acknowledged)):
            got = texts(back, partition=partition)
            assert got == [f"{partition}.{i}" for i in range(len(got))]
            assert len(got) >= acknowledged[partition]
        back.close()


def follow_head(store: LogStore, done: threading.Event) -> None:
    """Read until nothing more comes, checking each block; jump when segments were dropped."""
    offset = 0
    while not done.is_set() or offset < store.bounds(TOPIC, 0).next_offset:
        try:
            result = store.read(TOPIC, 0, offset, 500)
        except OffsetOutOfRangeError:
            offset = store.bounds(TOPIC, 0).first_offset
            continue
        assert not result.gaps
        for block in result.blocks:
            assert (block.base_offset, bytes(block.payload)) == (offset, f"{offset}".encode())
            offset = block.end_offset


def test_readers_never_see_half_a_window(tmp_path):
    """While one thread appends, rolls and drops, readers get blocks in order or a clear error."""
    store = opened(tmp_path / "d", segment_bytes=2000, open_files_max=4, index_interval_bytes=300)
    done = threading.Event()
    failures: list[BaseException] = []

    def follow() -> None:
        try:
            follow_head(store, done)
        except BaseException as e:
            failures.append(e)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # as the daemons do
    threads = [threading.Thread(target=follow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(1500):
        store.commit([run(str(i), durable=i % 50 == 0)])
        if i % 100 == 0:
            store.retain({TOPIC: Retention(bytes=20_000)}, 0)
        if i % 500 == 0:
            store.finish_checkpoint(store.begin_checkpoint())
    done.set()
    for thread in threads:
        thread.join(20)
    sys.setswitchinterval(interval)

    assert failures == []
    store.close()


def test_a_thousand_partitions_with_few_descriptors(tmp_path):
    """1,000 partitions are written, read, checkpointed and reopened with 256 descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        store = opened(tmp_path / "d", partitions=1000)
        for i in range(3):
            outcomes = store.commit([run(f"{i}", partition=p) for p in range(1000)])
            assert all(isinstance(o, Appended) for o in outcomes)
        store.finish_checkpoint(store.begin_checkpoint())
        assert texts(store, partition=999) == ["0", "1", "2"]
        assert len(os.listdir("/proc/self/fd")) < 256
        store.close()
        back = opened(tmp_path / "d", partitions=0)
        assert len(back.partitions()) == 1000
        assert texts(back, partition=500) == ["0", "1", "2"]
        back.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_roll_that_was_interrupted_hides_nothing(tmp_path):
    """An empty segment left by a failed roll does not cover messages appended to the old one."""
    store = opened(tmp_path / "d")
    put(store, "a", "b", "c")
    copy = killed(store, tmp_path / "d")
    (segments(copy)[0].with_name(f"{1:020d}.seg")).touch()

    back = opened(copy)
    assert texts(back) == ["a", "b", "c"]
    put(back, "d")
    assert texts(back) == ["a", "b", "c", "d"]
    back.close()
    store.close()


def test_segments_roll_by_age(tmp_path):
    """A segment whose first block is old takes no further window, also after a restart."""
    store = opened(tmp_path / "d", segment_age_ms=1000)
    put(store, "a", at_ms=0)
    store.close()
    back = opened(tmp_path / "d", segment_age_ms=1000)
    put(back, "b", at_ms=999)
    put(back, "c", at_ms=1000)

    assert len(segments(tmp_path / "d")) == 2
    assert texts(back) == ["a", "b", "c"]
    assert back.bounds(TOPIC, 0).last_append_ms == 1000
    back.close()


def test_a_lost_segment_is_a_gap_up_to_the_next_one(tmp_path):
    """A sealed segment of which nothing is readable is reported whole, from any offset in it."""
    store = opened(tmp_path / "d", segment_bytes=300)
    put(store, *"abcdefgh")
    store.close()
    path = segments(tmp_path / "d")[0]
    path.write_bytes(bytes(path.stat().st_size))
    path.with_suffix(".idx").unlink()

    back = opened(tmp_path / "d", segment_bytes=300)
    for offset in range(4):
        gaps: list = []
        assert texts(back, offset, gaps=gaps) == list("efgh")
        assert [(g.first_offset, g.next_offset) for g in gaps] == [(offset, 4)]
    assert back.offset_at(TOPIC, 0, 0) == 4
    back.close()


def test_a_segment_that_vanished_is_an_error(tmp_path):
    """A file that somebody deleted is named, and its messages are not passed over."""
    store = opened(tmp_path / "d", segment_bytes=300, open_files_max=1)
    put(store, *"abcdefgh")
    segments(tmp_path / "d")[0].unlink()
    with pytest.raises(StoreError, match="missing"):
        store.read(TOPIC, 0, 0, 10)
    store.delete(TOPIC)
    with pytest.raises(NotFoundError):
        store.read(TOPIC, 0, 0, 10)
    store.close()
