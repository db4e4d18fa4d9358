"""A consumer's pulls: one coroutine per held partition, as far ahead as the buffer allows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tube.client.fetching import Position, decode
from tube.client.holding import Holding
from tube.client.publishing import retry_pause_s
from tube.client.runtime import Cancellable, Runtime, Signal, sleep
from tube.errors import (
    DuplicateHolderError,
    ForbiddenError,
    NotFoundError,
    NotRegisteredError,
    PartitionOccupiedError,
    SpeedLimitError,
    TubeError,
)
from tube.values import Partition
from tube.wire.records import PlacedPartition

if TYPE_CHECKING:
    from tube.client.consumer import Consumer

FETCH_RETRY_S: Final = 0.2
"""Pause of a pull after 404 of an original broker, or after an error."""

EMPTY_S: Final = 0.05
"""Pause after a pull whose filter matched nothing, so that it looks through more at a time."""

CLOSED_RETRY_S: Final = 2.0
"""Pause after 403: the topic is closed for reading (spec section 4.5)."""

BUFFER_SHARE: Final = 4
"""A partition may use this part of the buffer, so that one does not starve the others."""


class Pulling:
    """Fetches the held partitions of one consumer."""

    def __init__(self, consumer: Consumer, holding: Holding, runtime: Runtime) -> None:
        self._consumer = consumer
        self._holding = holding
        self._runtime = runtime
        self._pulls: dict[Partition, Cancellable] = {}
        self._room = Signal[None](runtime)

    def start(self, partition: Partition) -> None:
        """Begin to fetch a held partition at its position."""
        self._pulls[partition] = self._runtime.spawn(self._pull_on(partition), self._consumer.died)

    def stop(self, partitions: Iterable[Partition]) -> None:
        """Fetch these no more, and drop what was fetched."""
        partitions = list(partitions)
        for partition in partitions:
            pull = self._pulls.pop(partition, None)
            if pull is not None:
                pull.cancel()
            position = self._consumer.positions.get(partition)
            if position is not None:  # what is dropped here was not looked at by anybody
                position.next_offset = min(position.next_offset, position.handed)
        self._consumer.buffer.drop(partitions)

    def go_on(self) -> None:
        """There may be room again."""
        self._room.fire()

    def settle(self) -> None:
        """Some chunk was used up: count anew, and let pulls go on."""
        positions = self._consumer.positions
        for position in positions.values():
            position.buffered_bytes = 0
        for partition, byte_count in self._consumer.buffer.sizes():
            if partition in positions:
                positions[partition].buffered_bytes += byte_count
        self._room.fire()

    async def _pull_on(self, partition: Partition) -> None:
        """Fetch for ever; ends when the partition is lost or registered again."""
        consumer = self._consumer
        place = consumer.membership.held[partition]
        position = consumer.positions[partition]
        failures = 0
        while True:
            while self._full(position):
                await self._room.wait()
            try:
                pause_s = await self._pull_once(place, position)
                failures = 0
            except (NotRegisteredError, DuplicateHolderError) as error:
                consumer.report(f"{partition}: {error}")
                failures = 2
                pause_s = 0.0
            except TubeError as error:
                consumer.report(f"{partition}: {error}")
                failures += 1
                pause_s = CLOSED_RETRY_S if isinstance(error, ForbiddenError) else FETCH_RETRY_S
            if pause_s:
                await sleep(self._runtime, pause_s)
            if failures > 1:
                self._runtime.spawn(self._recover(place), consumer.died)
                return

    async def _pull_once(self, place: PlacedPartition, position: Position) -> float:
        """One pull into the buffer; the pause before the next."""
        consumer = self._consumer
        try:
            answer, byte_count = await self._holding.get(place, position)
        except NotFoundError:
            return 0.0 if position.exact else FETCH_RETRY_S
        except SpeedLimitError as error:
            return max(error.wait_ms / 1000, 0.01)
        chunk = decode(place.partition, answer, byte_count, consumer.corrupt)
        position.next_offset = chunk.next_offset
        if chunk.count:
            position.buffered_bytes += byte_count
            consumer.buffer.put(chunk)
            consumer.fetched()
            return 0.0
        return EMPTY_S if position.exact else FETCH_RETRY_S

    async def _recover(self, place: PlacedPartition) -> None:
        """A broker forgot us (it restarted, or our hold ran out): register again, or lose the partition."""
        consumer = self._consumer
        partition = place.partition
        attempt = 0
        while partition in consumer.membership.held:
            try:
                position = await self._holding.register(place)
            except (PartitionOccupiedError, DuplicateHolderError):
                break
            except TubeError as error:
                attempt += 1
                consumer.report(f"taking {partition} again: {error}")
                await sleep(
                    self._runtime, retry_pause_s(attempt, self._runtime.random_bits(8) / 255)
                )
                continue
            old = consumer.positions.get(partition)
            if old is None or partition not in consumer.membership.held:
                await self._release(place)  # taken from us meanwhile: its next owner waits for it
                return
            self.stop([partition])
            position.acked, position.paused = max(old.acked, position.committed), old.paused
            consumer.positions[partition] = position
            self.start(partition)
            return
        await consumer.lose([partition])

    async def _release(self, place: PlacedPartition) -> None:
        try:
            await self._holding.unregister(place)
        except TubeError as error:
            self._consumer.report(f"releasing {place.partition}: {error}")

    def _full(self, position: Position) -> bool:
        if position.paused:
            return True
        if not position.exact and position.committed < position.next_offset:
            return True  # an original broker gives a batch again until it is committed
        limit = self._consumer.options.buffer_bytes
        if position.buffered_bytes and position.buffered_bytes >= limit // BUFFER_SHARE:
            return True
        return self._consumer.buffer.byte_count >= limit
