"""What users of the SDK give and get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tube.values import Partition


@dataclass(slots=True)
class Message:
    """A message that a consumer read.

    ``timestamp_ms`` is when the broker took it (0 when an original broker did not tell); ``filter`` is
    its message type; ``headers`` are its other attributes.
    """

    value: bytes
    partition: Partition
    offset: int
    timestamp_ms: int = 0
    key: bytes | None = None
    filter: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        """The topic it was sent to."""
        return self.partition.topic


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a message was put; ``durable`` says that it is on disk and not only in the page cache."""

    partition: Partition
    offset: int
    timestamp_ms: int
    durable: bool

    @property
    def topic(self) -> str:
        """The topic it was sent to."""
        return self.partition.topic


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send, for ``send_many``."""

    value: bytes
    key: bytes | str | None = None
    filter: str | None = None
    headers: Mapping[str, str] | None = None
    partition: Partition | None = None
