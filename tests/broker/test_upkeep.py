"""What a broker does by itself: journals are cut, old segments and groups go, holds end."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from twisted.internet import reactor

from tests.broker.conftest import BrokerFixture, get, register, send
from tests.broker.raw import eventually
from tests.log.disks import FailingDisk
from tube.broker import offset_file
from tube.broker.holders import Claim
from tube.broker.upkeep import Upkeep
from tube.config import BrokerConfig, load
from tube.log.values import LogOptions
from tube.net.clock import wall_ms
from tube.net.workers import workers
from tube.values import GroupName
from tube.wire.settings import TopicConfig

DAY_MS = 24 * 3600 * 1000


class Working:
    """Upkeep of a fixture's broker, with a clock of its own."""

    def __init__(self, broker: BrokerFixture, disk, background, *sets: str) -> None:
        self.ahead_ms = 0
        running = broker.running
        config = load(BrokerConfig, {"broker_id": 1}, sets)
        self.upkeep = Upkeep(
            running.service,
            running.store,
            disk,
            background,
            broker.directory,
            config,
            lambda: wall_ms() + self.ahead_ms,
        )


async def test_a_long_journal_is_cut(tmp_path: Path) -> None:
    """The check finds it over its limit; the offsets are saved before it goes."""
    broker = BrokerFixture(
        tmp_path / "broker", overrides=("log.journal_bytes=100000", "log.checkpoint_s=1000")
    )
    await broker.start()
    try:
        caller = await broker.connect()
        store = broker.running.store
        await broker.running.service.ledger.commit(Claim(GroupName("g"), "demo", 0), 1, 0)
        for _ in range(20):
            await send(caller, bytes(10_000))
        assert store.usage().journal_bytes > 100_000
        await eventually(lambda: store.usage().journal_bytes < 100_000)

        assert b'"demo"' in offset_file.load(broker.directory)
    finally:
        await broker.stop()


async def test_a_failing_checkpoint_keeps_the_journal(tmp_path: Path, monkeypatch) -> None:
    """Nothing is lost, nothing crashes; the next one does it."""
    disk = FailingDisk()
    monkeypatch.setattr("tube.broker.app.LogOptions", lambda **g: LogOptions(disk=disk, **g))
    broker = BrokerFixture(tmp_path / "broker", overrides=("log.checkpoint_s=1000",))
    await broker.start()
    try:
        caller = await broker.connect()
        await send(caller, b"x")
        async with workers(reactor, "a", 1) as one, workers(reactor, "b", 1) as two:
            upkeep = Working(broker, one, two).upkeep
            before = broker.running.store.usage().journal_bytes
            disk.error = {"create": errno.ENOSPC}
            await upkeep.checkpoint()
            await upkeep.retain()
            assert broker.running.store.usage().journal_bytes >= before
            disk.heal()
            await upkeep.checkpoint()
        assert broker.running.store.usage().journal_bytes < before
    finally:
        disk.heal()
        await broker.stop()


async def test_old_messages_go_and_readers_go_on(broker: BrokerFixture) -> None:
    """After the topic's time whole segments are deleted; a pull continues at the first offset there is."""
    await broker.configure(TopicConfig(topic="demo", num_partitions=4, delete_policy="delete,1h"))
    caller = await broker.connect()
    for _ in range(3):
        await send(caller, b"old")
    await register(caller)
    async with workers(reactor, "a", 1) as one, workers(reactor, "b", 1) as two:
        working = Working(broker, one, two)
        await working.upkeep.retain()
        assert broker.running.store.bounds(1, 0).first_offset == 0
        working.ahead_ms = 2 * 3600 * 1000
        await working.upkeep.retain()
    await send(caller, b"new")

    assert broker.running.store.bounds(1, 0).first_offset == 3
    assert [m.payLoadData for m in (await get(caller)).messages] == [b"new"]


async def test_groups_that_nobody_uses_are_forgotten(broker: BrokerFixture) -> None:
    """After ``offset_days`` without a commit; also after a restart."""
    claim = Claim(GroupName("old"), "demo", 0)
    await broker.running.service.ledger.commit(claim, 1, 0)
    async with workers(reactor, "a", 1) as one, workers(reactor, "b", 1) as two:
        working = Working(broker, one, two, "offset_days=2")
        await working.upkeep.expire_offsets()
        assert broker.running.service.offsets.groups() == {"old"}
        working.ahead_ms = 3 * DAY_MS
        await working.upkeep.expire_offsets()
    assert broker.running.service.offsets.groups() == set()
    await broker.stop()
    await broker.start()

    assert broker.running.service.offsets.groups() == set()


@pytest.mark.limit(15)
async def test_silent_consumers_lose_their_holds(tmp_path: Path) -> None:
    """After ``consumer_timeout_s`` without a word another consumer may take the partition."""
    broker = BrokerFixture(tmp_path / "broker", overrides=("consumer_timeout_s=1",))
    await broker.start()
    try:
        caller = await broker.connect()
        await register(caller)
        assert (await register(caller, client="c2")).errCode == 410
        await eventually(lambda: len(broker.running.service.holders) == 0)

        assert (await register(caller, client="c2")).errCode == 200
    finally:
        await broker.stop()
