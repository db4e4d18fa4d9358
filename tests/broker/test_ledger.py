"""A confirmed commit is durable, whatever happened to earlier notes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pytest_twisted import async_yield_fixture
from twisted.internet import reactor

from tests.log.disks import FailingDisk, killed
from tube.broker.appender import Appender
from tube.broker.holders import Claim
from tube.broker.ledger import Ledger
from tube.broker.offsets import Offsets
from tube.errors import DiskFullError
from tube.log.store import LogOptions, LogStore
from tube.net.workers import workers
from tube.values import GroupName

CLAIM = Claim(GroupName("g"), "demo", 0)


@dataclass
class Keeping:
    """A ledger on a disk that may fail."""

    directory: Path
    disk: FailingDisk
    store: LogStore
    offsets: Offsets
    ledger: Ledger

    def after_a_kill(self) -> int | None:
        """The offset that a restarted broker would know."""
        copy = killed(self.store, self.directory)
        store = LogStore.open(copy, broker_id=1, options=LogOptions(), now_ms=0)
        offsets = Offsets()
        offsets.restore(b"", store.recovery.notes)
        store.close()
        return offsets.get(CLAIM, 7)


@async_yield_fixture
async def keeping(tmp_path: Path) -> AsyncIterator[Keeping]:
    """A ledger over a real store."""
    directory, disk = tmp_path / "log", FailingDisk()
    options = LogOptions(disk=disk, reserve_bytes=65536)
    store = LogStore.open(directory, broker_id=1, options=options, now_ms=0)
    offsets = Offsets()
    async with workers(reactor, "disk", 1) as pool:
        appender = Appender(store, pool, lambda: 1000, lambda *_: None)
        yield Keeping(directory, disk, store, offsets, Ledger(offsets, appender, lambda: 1000))
        await appender.when_idle()
    disk.heal()
    store.close()


async def test_a_commit_is_durable_when_it_is_confirmed(keeping: Keeping) -> None:
    """Killed after the answer, the broker still knows the offset."""
    await keeping.ledger.commit(CLAIM, 7, 5)

    assert keeping.after_a_kill() == 5


async def test_a_commit_repeated_after_a_full_disk_is_written(keeping: Keeping) -> None:
    """The first try failed and moved memory; the second, to the same offset, may not be confirmed from memory."""
    keeping.disk.fill()
    with pytest.raises(DiskFullError):
        await keeping.ledger.commit(CLAIM, 7, 5)
    with pytest.raises(DiskFullError):
        await keeping.ledger.commit(CLAIM, 7, 5)
    assert keeping.offsets.get(CLAIM, 7) == 5
    keeping.disk.heal()
    await keeping.ledger.commit(CLAIM, 7, 5)

    assert keeping.after_a_kill() == 5


async def test_a_commit_of_what_was_committed_soon_waits_for_the_disk(keeping: Keeping) -> None:
    """A push-style pull moved the offset without waiting; confirming it needs a note that is durable."""
    keeping.disk.fill()
    keeping.ledger.commit_soon(CLAIM, 7, 5)
    with pytest.raises(DiskFullError):
        await keeping.ledger.commit(CLAIM, 7, 5)
    keeping.disk.heal()
    await keeping.ledger.commit(CLAIM, 7, 5)

    assert keeping.after_a_kill() == 5


async def test_a_reset_that_cannot_be_written_has_not_happened(keeping: Keeping) -> None:
    """Memory and journal agree: else later commits below the old offset would be dropped at the next start."""
    await keeping.ledger.commit(CLAIM, 7, 100)
    keeping.disk.fill()
    with pytest.raises(DiskFullError):
        await keeping.ledger.reset(CLAIM, 7, 50)
    other = Claim(GroupName("g"), "demo", 1)
    with pytest.raises(DiskFullError):
        await keeping.ledger.reset(other, 7, 50)
    keeping.disk.heal()

    assert (keeping.offsets.get(CLAIM, 7), keeping.offsets.get(other, 7)) == (100, None)
    assert keeping.offsets.resets(GroupName("g")) == []
    await keeping.ledger.reset(CLAIM, 7, 50)
    assert keeping.after_a_kill() == 50


async def test_a_saved_snapshot_ends_the_doubts_it_covers(keeping: Keeping) -> None:
    """After it a repeated commit needs no note; what was moved after the mark still does."""
    late = Claim(GroupName("g"), "demo", 1)
    keeping.ledger.commit_soon(CLAIM, 7, 5)
    mark = keeping.ledger.mark()
    keeping.ledger.commit_soon(late, 7, 5)
    keeping.ledger.settled(mark)
    keeping.disk.fill()
    await keeping.ledger.commit(CLAIM, 7, 5)

    with pytest.raises(DiskFullError):
        await keeping.ledger.commit(late, 7, 5)
