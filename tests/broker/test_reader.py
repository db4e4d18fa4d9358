"""Reads from the tail cache and from the log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from pytest_twisted import async_yield_fixture
from twisted.internet import reactor

from tests.log.disks import TOPIC, opened, run
from tube.broker.reader import Reader
from tube.log.store import LogStore
from tube.log.tail import TailCache
from tube.log.values import Appended
from tube.net.workers import workers


class Reading:
    """A store and a reader of it."""

    def __init__(self, store: LogStore, reader: Reader) -> None:
        self.store, self.reader = store, reader

    def append(self, text: str) -> Appended:
        """One message in the log; the reader does not know it yet."""
        (outcome,) = self.store.commit([run(text)])
        assert isinstance(outcome, Appended)
        return outcome


@async_yield_fixture
async def reading(tmp_path: Path) -> AsyncIterator[Reading]:
    """An open store with one partition."""
    store = opened(tmp_path / "d")
    async with workers(reactor, "read", 1) as reads:
        yield Reading(store, Reader(reactor, store, reads, TailCache(1 << 20)))
    store.close()


async def test_the_newest_block_comes_from_memory(reading: Reading) -> None:
    """What was appended is read without a file."""
    reading.reader.appended(TOPIC, 0, reading.append("a"))

    found = await reading.reader.read(TOPIC, 0, 0, 1000)
    assert [block.base_offset for block in found.blocks] == [0]
    assert (reading.reader.tail_reads, reading.reader.file_reads) == (1, 0)


async def test_a_block_that_the_cache_has_yet_to_learn_of_is_read(reading: Reading) -> None:
    """Between the disk thread's append and the news of it, a read must not find nothing."""
    reading.reader.appended(TOPIC, 0, reading.append("a"))
    reading.append("b")

    found = await reading.reader.read(TOPIC, 0, 1, 1000)
    assert [block.base_offset for block in found.blocks] == [1]


async def test_an_append_wakes_who_waits(reading: Reading) -> None:
    """A waiting pull looks again when a block comes, and when its time is over."""
    assert not await reading.reader.wait(TOPIC, 0, 0.01)
    appended = reading.append("a")
    reactor.callLater(0.01, reading.reader.appended, TOPIC, 0, appended)
    assert await reading.reader.wait(TOPIC, 0, 5)


async def test_the_end_of_the_broker_wakes_who_waits(reading: Reading) -> None:
    """A pull does not hold up a stop."""
    reactor.callLater(0.01, reading.reader.wake_all)
    assert not await reading.reader.wait(TOPIC, 0, 5)
