"""Group commit: every batch has one result, in order, within bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pytest_twisted import async_yield_fixture
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.log.disks import TOPIC, FailingDisk, opened
from tube.broker import appender as module
from tube.broker.appender import Appender, Batch, Result
from tube.errors import DiskFullError, NotFoundError, ReceiveOverflowError, StoppingError
from tube.log.store import LogStore
from tube.net.workers import workers
from tube.wire import run
from tube.wire.message import check_sum


@dataclass
class Appending:
    """An appender over a real store; results in the order they came."""

    store: LogStore
    disk: FailingDisk
    appender: Appender
    appended: list[int]
    results: list[tuple[object, Result]] = field(default_factory=list)

    def batch(self, name: object, count: int = 1, size: int = 10, **more) -> Batch:
        data = bytes(size)
        payload = [run.encode_message(1, check_sum(data), data, 0, None)] * count
        total = sum(map(len, payload))
        fields = {"topic_id": TOPIC, "partition_id": 0, "durable": True} | more
        return Batch(
            payload=payload,
            payload_bytes=total,
            count=count,
            filter_bits=0,
            done=lambda batch, result: self.results.append((batch.context, result)),
            context=name,
            **fields,
        )

    def put(self, name: object, **more) -> None:
        self.appender.append(self.batch(name, **more))


@async_yield_fixture
async def appending(tmp_path: Path) -> AsyncIterator[Appending]:
    """An appender."""
    disk = FailingDisk()
    store = opened(tmp_path / "log", partitions=2, disk=disk)
    appended: list[int] = []
    async with workers(reactor, "disk", 1) as pool:
        appender = Appender(
            store, pool, lambda: 5000, lambda _t, _p, block: appended.append(block.base_offset)
        )
        yield Appending(store, disk, appender, appended)
        await appender.when_idle()
    disk.heal()
    store.close()


async def test_batches_of_a_window_are_one_block_with_their_own_offsets(
    appending: Appending,
) -> None:
    """The first goes at once; what comes meanwhile shares the next window, and each knows its offsets."""
    for i in range(6):
        appending.put(i, count=i + 1)
    await appending.appender.when_idle()

    assert [name for name, _ in appending.results] == list(range(6))
    assert [result.base_offset for _, result in appending.results] == [0, 1, 3, 6, 10, 15]
    assert {result.append_time_ms for _, result in appending.results} == {5000}
    assert appending.appended == [0, 1]
    assert (appending.appender.windows, appending.appender.committed_messages) == (2, 21)


async def test_idempotent_batches_stand_alone(appending: Appending) -> None:
    """A block carries one sequence, so such a batch is put together with no other; order stays."""
    appending.put("first")
    for name, more in (("a", {}), ("b", {"producer_id": 9}), ("c", {}), ("d", {})):
        appending.put(name, **more)
    await appending.appender.when_idle()

    assert [(n, r.base_offset) for n, r in appending.results] == [
        ("first", 0),
        ("a", 1),
        ("b", 2),
        ("c", 3),
        ("d", 4),
    ]
    assert appending.appended == [0, 1, 2, 3]


async def test_blocks_have_a_largest_number_of_messages(
    appending: Appending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that fit by their bytes but not by their count are not put together."""
    monkeypatch.setattr(module, "BATCH_COUNT_MAX", 5)
    for i in range(5):
        appending.put(i, count=3)
    await appending.appender.when_idle()

    assert appending.appended == [0, 3, 6, 9, 12]


async def test_an_unknown_partition_harms_only_its_batch(appending: Appending) -> None:
    """Its neighbours in the window are kept."""
    appending.put("first")
    appending.put("good")
    appending.put("bad", partition_id=77)
    appending.put("also good", partition_id=1)
    await appending.appender.when_idle()
    errors = {name: type(result.error) for name, result in appending.results}

    assert errors == {
        "first": type(None),
        "good": type(None),
        "bad": NotFoundError,
        "also good": type(None),
    }


async def test_a_full_disk_refuses_the_window_and_heals(appending: Appending) -> None:
    """All of the window get the error, also who waits for a note; the next window is taken."""
    appending.disk.fill()
    appending.put("refused")
    with pytest.raises(DiskFullError):
        await appending.appender.note(b"note")
    appending.disk.heal()
    appending.put("taken")
    await appending.appender.note(b"note")
    await appending.appender.when_idle()
    results = dict(appending.results)

    assert isinstance(results["refused"].error, DiskFullError)
    assert (results["taken"].error, results["taken"].base_offset) == (None, 0)


async def test_what_waits_is_bounded(appending: Appending, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit senders get 419 at once; notes too, and those nobody waits for are dropped."""
    monkeypatch.setattr(module, "QUEUE_BYTES_MAX", 1000)
    monkeypatch.setattr(module, "NOTES_MAX", 3)
    appending.put("running")
    for i in range(3):
        appending.put(i, size=400)
    assert [name for name, _ in appending.results] == [2]
    assert isinstance(appending.results[0][1].error, ReceiveOverflowError)
    for _ in range(10):
        appending.appender.note_soon(b"soon")
    assert len(appending.appender._durable.notes) == 3
    with pytest.raises(ReceiveOverflowError):
        await appending.appender.note(b"late")
    await appending.appender.when_idle()

    assert [result.error for _, result in appending.results[1:]] == [None] * 3


async def test_large_queues_go_in_several_windows(
    appending: Appending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window takes a bounded number of bytes, and one batch at least."""
    monkeypatch.setattr(module, "WINDOW_BYTES_MAX", 1000)
    for i in range(9):
        appending.put(i, size=600)
    await appending.appender.when_idle()

    assert appending.appender.windows == 9
    assert [result.base_offset for _, result in appending.results] == list(range(9))


async def test_written_topics_do_not_wait_for_a_sync(appending: Appending) -> None:
    """They have windows of their own, which the disk's sync cannot fail."""
    appending.disk.error = {"fdatasync": 5}
    appending.put("written", durable=False)
    await appending.appender.when_idle()
    assert [(name, result.error) for name, result in appending.results] == [("written", None)]


async def test_a_stopping_appender_finishes_what_it_has(appending: Appending) -> None:
    """Queued batches are kept, later ones are refused as retriable, notes are still taken."""
    appending.put("first")
    appending.put("queued")
    appending.appender.stop()
    appending.put("late")
    idle: Deferred[None] = appending.appender.when_idle()
    await appending.appender.note(b"last")
    await idle
    errors = {name: result.error for name, result in appending.results}

    assert isinstance(errors["late"], StoppingError)
    assert (errors["first"], errors["queued"]) == (None, None)
