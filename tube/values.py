"""The value types everybody speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

ClientId = NewType("ClientId", str)
GroupName = NewType("GroupName", str)


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One ordered log: partition ``partition_id`` of ``topic`` on one broker."""

    topic: str
    broker_id: int
    partition_id: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.broker_id}:{self.partition_id}"


@dataclass(frozen=True, slots=True, order=True)
class Broker:
    """Where a broker listens."""

    broker_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Address:
    """Host and port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
