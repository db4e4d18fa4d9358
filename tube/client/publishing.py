"""Which partition a message goes to, and which are left alone for a while after failures.

Times are seconds of one monotonic clock.

Source: delays and shields as the original clients', spec section 3.5.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tube.errors import NoBrokerError, TubeError, UnreachableError
from tube.values import Address, Broker, Partition
from tube.wire.records import TopicRoute, partition_ids

FAILURES_MAX: Final = 4
"""After so many failures in a row a partition is left alone ..."""

PARTITION_REST_S: Final = 3.0
"""... for so long."""

BROKER_REST_S: Final = 1.0
"""A broker that cannot be reached is left alone for so long, twice as long after each further failure ..."""

BROKER_REST_S_MAX: Final = 50.0
"""... up to this (Java's shield after a 503)."""

RETRY_S: Final = 0.05
"""First pause before a failed batch is sent again; doubled up to ..."""

RETRY_S_MAX: Final = 2.0
"""... this."""


@dataclass(slots=True)
class _Rest:
    """How often something failed in a row, and until when it is left alone."""

    failures: int = 0
    until_s: float = 0.0


class Publishing:
    """The partitions that messages can be sent to.

    ``seed`` begins the round of partitions, so that many producers do not all begin with the first.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._brokers: dict[int, Broker] = {}
        self._partitions: dict[str, list[Partition]] = {}
        self._limits: dict[str, int] = {}
        self._turn: dict[str, int] = {}
        self._partition_rest: dict[Partition, _Rest] = {}
        self._broker_rest: dict[int, _Rest] = {}

    def learn_brokers(self, brokers: Iterable[Broker]) -> None:
        """Where brokers listen; replaces what was known."""
        self._brokers = {broker.broker_id: broker for broker in brokers}

    def learn_routes(self, routes: Iterable[TopicRoute]) -> None:
        """Which partitions take messages; complete for all topics of the producer."""
        partitions: dict[str, list[Partition]] = {}
        for route in routes:
            partitions[route.topic] = sorted(
                Partition(route.topic, part.broker_id, partition_id)
                for part in route.parts
                for partition_id in partition_ids(part.partitions, part.stores)
            )
            if route.message_bytes_max is not None:
                self._limits[route.topic] = route.message_bytes_max
        self._partitions = partitions

    def knows(self, topic: str) -> bool:
        """Whether any partition of the topic takes messages."""
        return bool(self._partitions.get(topic))

    def partitions(self, topic: str) -> list[Partition]:
        """All partitions that take messages, in order."""
        return self._partitions.get(topic, [])

    def message_bytes_max(self, topic: str) -> int | None:
        """The topic's limit, None if the master did not tell."""
        return self._limits.get(topic)

    def address(self, partition: Partition) -> Address:
        """Where the broker of a partition listens.

        Raises:
            NoBrokerError: the broker is not known.
        """
        broker = self._brokers.get(partition.broker_id)
        if broker is None:
            raise NoBrokerError(f"broker {partition.broker_id} is not known")
        return Address(broker.host, broker.port)

    def by_key(self, topic: str, key: bytes) -> Partition:
        """The partition of a key: the same as long as the topic has the same partitions.

        Raises:
            NoBrokerError: no partition takes messages.
        """
        partitions = self._some(topic)
        return partitions[zlib.crc32(key) % len(partitions)]

    def next(self, topic: str, now_s: float) -> Partition:
        """The next partition in turn that is not left alone; if all are, the next one anyway.

        Raises:
            NoBrokerError: no partition takes messages.
        """
        partitions = self._some(topic)
        turn = self._turn.get(topic, self._seed)
        for step in range(len(partitions)):
            partition = partitions[(turn + step) % len(partitions)]
            if self._rested(partition, now_s):
                self._turn[topic] = turn + step + 1
                return partition
        self._turn[topic] = turn + 1
        return partitions[turn % len(partitions)]

    def succeeded(self, partition: Partition) -> None:
        """A batch was acknowledged."""
        if self._partition_rest or self._broker_rest:
            self._partition_rest.pop(partition, None)
            self._broker_rest.pop(partition.broker_id, None)

    def failed(self, partition: Partition, error: TubeError, now_s: float) -> None:
        """A batch was not acknowledged."""
        if isinstance(error, UnreachableError) or error.code == UnreachableError.code:
            rest = self._broker_rest.setdefault(partition.broker_id, _Rest())
            pause_s = min(BROKER_REST_S * 2**rest.failures, BROKER_REST_S_MAX)
            rest.failures += 1
            rest.until_s = now_s + pause_s
            return
        rest = self._partition_rest.setdefault(partition, _Rest())
        rest.failures += 1
        if rest.failures >= FAILURES_MAX:
            rest.failures = 0
            rest.until_s = now_s + PARTITION_REST_S

    def _some(self, topic: str) -> list[Partition]:
        partitions = self._partitions.get(topic)
        if not partitions:
            raise NoBrokerError(
                f"no broker takes messages for topic {topic!r}",
                hint=f"does it exist? try: tube topic describe {topic}",
            )
        return partitions

    def _rested(self, partition: Partition, now_s: float) -> bool:
        for rest in (
            self._partition_rest.get(partition),
            self._broker_rest.get(partition.broker_id),
        ):
            if rest is not None and now_s < rest.until_s:
                return False
        return True


def retry_pause_s(attempt: int, jitter: float) -> float:
    """Pause before try ``attempt`` (1 is the first repetition); ``jitter`` is in 0..1."""
    pause_s: float = min(RETRY_S * 2 ** (attempt - 1), RETRY_S_MAX)
    return pause_s * (0.5 + jitter / 2)
