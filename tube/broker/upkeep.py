"""What a broker does by itself: checkpoints, retention, expiry of holds and offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from twisted.logger import Logger

from tube.broker import offset_file
from tube.broker.service import BrokerService
from tube.config import BrokerConfig
from tube.errors import TubeError
from tube.log.retention import Retention
from tube.log.store import LogStore
from tube.net.workers import Workers

log = Logger(namespace="tube.broker.upkeep")

JOURNAL_CHECK_S = 1.0
OFFSET_EXPIRY_S = 3600.0
_DAY_MS = 24 * 3600 * 1000

Periodic = tuple[str, float, Callable[[], Awaitable[None] | None]]


class Upkeep:
    """The periodic work of a broker.

    Callers: broker.app.
    """

    def __init__(
        self,
        service: BrokerService,
        store: LogStore,
        disk: Workers,
        background: Workers,
        directory: Path,
        config: BrokerConfig,
        wall_ms: Callable[[], int],
    ) -> None:
        self._service = service
        self._store = store
        self._disk = disk
        self._background = background
        self._directory = directory
        self._config = config
        self._wall_ms = wall_ms
        self._checkpointing = False

    def periodic(self) -> list[Periodic]:
        """Name, interval in seconds and body of each job."""
        return [
            ("checkpoint", self._config.log.checkpoint_s, self.checkpoint),
            ("journal", JOURNAL_CHECK_S, self._checkpoint_if_long),
            ("retention", self._config.log.retention_s, self.retain),
            ("offsets", OFFSET_EXPIRY_S, self.expire_offsets),
        ]

    async def checkpoint(self) -> None:
        """Sync the segments, save the offsets, cut the journal behind both."""
        if self._checkpointing:
            return
        self._checkpointing = True
        try:
            checkpoint = await self._disk.call(self._store.begin_checkpoint)
            # Taken after the journal was rolled: notes written from here on are in the new file.
            snapshot = self._service.offsets.snapshot()
            mark = self._service.ledger.mark()
            await self._background.call(offset_file.save, self._directory, snapshot)
            self._service.ledger.settled(mark)
            await self._background.call(self._store.finish_checkpoint, checkpoint)
        except (TubeError, OSError) as error:
            log.warn("the checkpoint failed, the journal is kept: {error}", error=str(error))
        finally:
            self._checkpointing = False

    async def retain(self) -> None:
        """Delete old segments."""
        policies = {
            topic.topic_id: Retention(topic.retention_ms, topic.retention_bytes)
            for topic in self._service.topics
        }
        try:
            dropped = await self._disk.call(self._store.retain, policies, self._wall_ms())
        except TubeError as error:
            log.warn("retention: {error}", error=str(error))
            return
        for segment in dropped:
            log.info(
                "retention: topic {topic_id} partition {partition_id}: {bytes} bytes before offset {offset} go",
                topic_id=segment.topic_id,
                partition_id=segment.partition_id,
                bytes=segment.bytes,
                offset=segment.next_offset,
            )

    def expire_holds(self) -> None:
        """Free the partitions of silent consumers."""
        for claim, hold in self._service.expire():
            self._service.flow.forget(claim)
            log.info(
                "{claim}: {client} is silent, its hold ends", claim=str(claim), client=hold.client
            )

    async def expire_offsets(self) -> None:
        """Forget groups that nobody used for a long time."""
        now_ms = self._wall_ms()
        before_ms = now_ms - int(self._config.offset_days * _DAY_MS)
        for group in self._service.offsets.expire(before_ms, now_ms):
            log.info("offsets of group {group} are forgotten: nobody used them", group=group)
            try:
                await self._service.appender.note(self._service.offsets.forget(group, None))
            except TubeError as error:
                log.warn("forgetting {group}: {error}", group=group, error=str(error))

    async def _checkpoint_if_long(self) -> None:
        if self._store.usage().journal_bytes > self._config.log.journal_bytes:
            await self.checkpoint()
