"""What a consumer has fetched and not yet handed out, and what it has acknowledged, per partition.

Pure; the messages of a pull are made into ``Message`` objects when somebody takes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, MutableSequence
from dataclasses import dataclass, field

from tube.client import payload
from tube.client.values import Message
from tube.errors import WireError
from tube.pb.BrokerService_pb2 import GetMessageResponseB2C, TransferedMessage
from tube.values import Partition
from tube.wire.message import check_sum


@dataclass(slots=True)
class Chunk:
    """The messages of one pull; ``next_offset`` is where the next pull goes on."""

    partition: Partition
    messages: Iterator[Message]
    count: int
    byte_count: int
    next_offset: int


@dataclass(slots=True)
class Position:
    """Where reading and acknowledging stand in one held partition.

    ``acked`` is the offset behind the last acknowledged message, ``committed`` what the broker knows of it,
    ``handed`` the offset behind the last message that was handed out.
    """

    partition: Partition
    next_offset: int
    committed: int
    acked: int
    handed: int
    exact: bool
    paused: bool = False
    buffered_bytes: int = 0
    generation: int = 0


@dataclass(slots=True)
class Buffer:
    """Fetched chunks of all partitions, oldest first.

    Callers: client.consumer (puts, drops), the drivers (take).
    """

    byte_count: int = 0
    corrupt_count: int = 0
    _chunks: deque[Chunk] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def put(self, chunk: Chunk) -> None:
        """Add a chunk."""
        self._chunks.append(chunk)
        self.byte_count += chunk.byte_count

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Forget what was fetched of these partitions."""
        gone = set(partitions)
        self._chunks = deque(chunk for chunk in self._chunks if chunk.partition not in gone)
        self.byte_count = sum(chunk.byte_count for chunk in self._chunks)

    def has(self, partition: Partition) -> bool:
        """Whether messages of the partition wait to be taken."""
        return any(chunk.partition == partition for chunk in self._chunks)

    def sizes(self) -> list[tuple[Partition, int]]:
        """Partition and bytes of each chunk."""
        return [(chunk.partition, chunk.byte_count) for chunk in self._chunks]

    def take(self, count_max: int, paused: frozenset[Partition] = frozenset()) -> list[Message]:
        """Up to ``count_max`` messages of partitions that are not paused."""
        taken: list[Message] = []
        kept: deque[Chunk] = deque()
        while self._chunks and len(taken) < count_max:
            chunk = self._chunks.popleft()
            if chunk.partition in paused:
                kept.append(chunk)
                continue
            for message in chunk.messages:
                taken.append(message)
                if len(taken) == count_max:
                    break
            else:
                self.byte_count -= chunk.byte_count
                continue
            self._chunks.appendleft(chunk)
        self._chunks.extendleft(reversed(kept))
        return taken


def decode(
    partition: Partition,
    answer: GetMessageResponseB2C,
    byte_count: int,
    corrupt: MutableSequence[int],
) -> Chunk:
    """A chunk of an answer's messages, made one by one as they are taken.

    Args:
        corrupt: gets the offset of each message that is passed over because its checksum is wrong or its
            attributes lie; every TubeMQ client drops those.
    """
    count = len(answer.messages)
    if answer.HasField("next_offset"):
        offsets: list[int] = []
        times: list[int] = []
        for span in answer.spans:
            offsets.extend(range(span.base_offset, span.base_offset + span.count))
            times.extend([span.append_time_ms] * span.count)
        next_offset = answer.next_offset
    else:  # an original broker: offsets of its index, about
        offsets = list(range(answer.currOffset, answer.currOffset + count))
        times = [0] * count
        next_offset = answer.currOffset + count

    def messages() -> Iterator[Message]:
        for raw, offset, time_ms in zip(answer.messages, offsets, times, strict=True):
            message = _message(partition, raw, offset, time_ms)
            if message is None:
                corrupt.append(offset)
            else:
                yield message

    return Chunk(partition, messages(), count, byte_count, next_offset)


def _message(
    partition: Partition, raw: TransferedMessage, offset: int, time_ms: int
) -> Message | None:
    data = raw.payLoadData
    if check_sum(data) != raw.checkSum:
        return None
    if not raw.flag & 1:
        return Message(data, partition, offset, time_ms)
    try:
        content = payload.unpack(data, raw.flag)
    except WireError:
        return None
    return Message(
        content.value, partition, offset, time_ms, content.key, content.filter, content.headers
    )
