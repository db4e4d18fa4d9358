"""Reads blocks from the tail cache or in a worker, and wakes pulls that wait for messages."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from tube.log.block import Block
from tube.log.store import LogStore
from tube.log.tail import TailCache
from tube.log.values import Appended, ReadResult
from tube.net.workers import Workers

Key = tuple[int, int]
"""Topic id and partition id."""


class Reader:
    """Reads of all partitions.

    Callers: broker.service on the reactor thread.
    """

    def __init__(
        self, clock: IReactorTime, store: LogStore, workers: Workers, tail: TailCache
    ) -> None:
        self._clock = clock
        self._store = store
        self._workers = workers
        self._tail = tail
        self._waiting: dict[Key, list[Deferred[bool]]] = {}
        self.tail_reads = 0
        self.file_reads = 0

    async def read(
        self,
        topic_id: int,
        partition_id: int,
        offset: int,
        bytes_max: int,
        end_offset: int | None = None,
    ) -> ReadResult:
        """Whole blocks from ``offset`` on, the first of which may begin before it.

        Raises:
            OffsetOutOfRangeError: before the first offset, or after the end.
            StoreError: the disk failed.
        """
        blocks = self._tail.read((topic_id, partition_id), offset, bytes_max)
        # Just behind the cache's end there is none, but the log may have a block whose ``appended`` has yet to
        # reach this thread.  "Nothing", said at once, made a waiting pull ask again without ever letting it in.
        if blocks:
            self.tail_reads += 1
            kept = _below(blocks, end_offset)
            return ReadResult(kept, [], kept[-1].end_offset if kept else offset)
        self.file_reads += 1
        return await self._workers.call(
            self._store.read, topic_id, partition_id, offset, bytes_max, end_offset
        )

    def appended(self, topic_id: int, partition_id: int, appended: Appended) -> None:
        """Keep the new block in the tail cache and wake who waits for it."""
        key = (topic_id, partition_id)
        self._tail.put(key, appended.block)
        for waiter in self._waiting.pop(key, ()):
            waiter.callback(True)

    def forget(self, topic_id: int, partition_id: int) -> None:
        """The partition is gone: drop its blocks, wake who waits."""
        self._tail.drop((topic_id, partition_id))
        self.wake(topic_id, partition_id)

    def wake(self, topic_id: int, partition_id: int) -> None:
        """Make all waiting pulls of the partition look again."""
        for waiter in self._waiting.pop((topic_id, partition_id), ()):
            waiter.callback(False)

    def wake_all(self) -> None:
        """Make all waiting pulls look again: the broker stops."""
        for key in list(self._waiting):
            self.wake(*key)

    async def wait(self, topic_id: int, partition_id: int, wait_s: float) -> bool:
        """Wait for an append, at most ``wait_s`` seconds; True when there was one."""
        key = (topic_id, partition_id)
        waiter: Deferred[bool] = Deferred()
        self._waiting.setdefault(key, []).append(waiter)
        timer = self._clock.callLater(wait_s, self._give_up, key, waiter)
        try:
            return await waiter
        finally:
            if timer.active():
                timer.cancel()
            self._leave(key, waiter)  # one that was cancelled is still there

    def _give_up(self, key: Key, waiter: Deferred[bool]) -> None:
        if self._leave(key, waiter):
            waiter.callback(False)

    def _leave(self, key: Key, waiter: Deferred[bool]) -> bool:
        """Remove a waiter; False when it was not there any more."""
        waiting = self._waiting.get(key, [])
        if waiter not in waiting:
            return False
        waiting.remove(waiter)
        if not waiting:
            del self._waiting[key]
        return True


def _below(blocks: list[Block], end_offset: int | None) -> list[Block]:
    return blocks if end_offset is None else [b for b in blocks if b.base_offset < end_offset]
