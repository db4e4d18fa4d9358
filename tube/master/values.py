"""Topics and brokers as they are stored: the values that the database and the pure rooms share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

ONLINE: Final = "online"
ONLY_READ: Final = "only-read"
ONLY_WRITE: Final = "only-write"
OFFLINE: Final = "offline"
DRAFT: Final = "draft"
STATES: Final = (ONLINE, ONLY_READ, ONLY_WRITE, OFFLINE, DRAFT)
"""What an operator may want of a broker (spec section 6.3)."""

NORMAL: Final = "normal"
DELETED: Final = "deleted"
REMOVING: Final = "removing"
GONE: Final = "gone"
"""Life of a topic: deleted ones can be restored, removing ones lose their data, gone ones have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """A broker as configured; ``state`` is one of ``STATES``."""

    broker_id: int
    host: str
    port: int
    http_port: int
    state: str
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """A topic as configured, without where it is.  ``retention`` is a TubeMQ delete policy.

    ``topic_id`` is never given twice; ``retention_bytes`` is per partition, 0 = no limit.
    """

    topic_id: int
    name: str
    status: str
    durable: bool
    retention: str
    retention_bytes: int
    max_message_bytes: int
    accept_publish: bool
    accept_subscribe: bool
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopic:
    """A topic with its partitions per broker and their numbers by ``(broker_id, partition_id)``."""

    row: TopicRow
    partitions: dict[int, int] = field(default_factory=dict)
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
