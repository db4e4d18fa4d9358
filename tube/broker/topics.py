"""What this broker serves, as the master said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tube.errors import ForbiddenError
from tube.limits import ATTRIBUTE_BYTES_SLACK, MESSAGE_BYTES_DEFAULT, PARTITIONS_PER_STORE_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """A topic on this broker.

    ``status`` is TubeMQ's: 0 normal, 1 soft deleted, 2 and 3 being removed (spec section 6.4).
    ``retention_ms`` and ``retention_bytes`` are None for "no limit of this kind"; bytes count per partition.
    """

    name: str
    topic_id: int
    partition_count: int
    store_count: int = 1
    accept_publish: bool = True
    accept_subscribe: bool = True
    message_bytes_max: int = MESSAGE_BYTES_DEFAULT
    durable: bool = True
    retention_ms: int | None = None
    retention_bytes: int | None = None
    status: int = 0

    def partition_ids(self) -> list[int]:
        """All partition ids: store * 10000 + n."""
        return [
            store * PARTITIONS_PER_STORE_MAX + n
            for store in range(self.store_count)
            for n in range(self.partition_count)
        ]

    def has(self, partition_id: int) -> bool:
        """Whether the topic has this partition."""
        store, n = divmod(partition_id, PARTITIONS_PER_STORE_MAX)
        return partition_id >= 0 and store < self.store_count and n < self.partition_count

    @property
    def payload_bytes_max(self) -> int:
        """Most bytes of message and attributes together."""
        return self.message_bytes_max + ATTRIBUTE_BYTES_SLACK


class Topics:
    """The topics of this broker by name.

    Callers: broker.service, broker.uplink.
    """

    def __init__(self) -> None:
        self._topics: dict[str, TopicSettings] = {}
        self.read_stopped = False
        self.write_stopped = False

    def __iter__(self) -> Iterator[TopicSettings]:
        return iter(self._topics.values())

    def get(self, name: str) -> TopicSettings | None:
        """The topic, if this broker has it."""
        return self._topics.get(name)

    def update(self, settings: Iterable[TopicSettings]) -> list[TopicSettings]:
        """Replace everything; return the topics that are gone (or have a new id)."""
        fresh = {topic.name: topic for topic in settings}
        gone = [
            old
            for name, old in self._topics.items()
            if name not in fresh or fresh[name].topic_id != old.topic_id
        ]
        self._topics = fresh
        return gone

    def publishable(self, name: str, partition_id: int) -> TopicSettings:
        """The topic, if it takes messages for this partition.

        Raises:
            ForbiddenError: unknown topic or partition, closed topic, or writes are stopped.
        """
        topic = self._topics.get(name)
        if (
            topic is None
            or topic.status != 0
            or not topic.accept_publish
            or not topic.has(partition_id)
        ):
            raise self._refusal(topic, name, partition_id, "publishing")
        if self.write_stopped:
            raise ForbiddenError("writing to this broker is stopped by its operator")
        return topic

    def readable(self, name: str, partition_id: int) -> TopicSettings:
        """The topic, if this partition may be read.  A soft-deleted topic still is (spec section 6.4).

        Raises:
            ForbiddenError: unknown topic or partition, closed topic, or reads are stopped.
        """
        topic = self._topics.get(name)
        if (
            topic is None
            or topic.status >= 2
            or not topic.accept_subscribe
            or not topic.has(partition_id)
        ):
            raise self._refusal(topic, name, partition_id, "reading")
        if self.read_stopped:
            raise ForbiddenError("reading from this broker is stopped by its operator")
        return topic

    def _refusal(
        self, topic: TopicSettings | None, name: str, partition_id: int, what: str
    ) -> ForbiddenError:
        if topic is None:
            return ForbiddenError(f"topic {name!r} is not on this broker")
        if not topic.has(partition_id):
            return ForbiddenError(f"topic {name!r} has no partition {partition_id} on this broker")
        return ForbiddenError(f"topic {name!r} is closed for {what}")
