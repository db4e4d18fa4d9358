"""Topics x brokers x partitions, as brokers shall have them and as clients see them.

A broker gets its configuration as strings with an id and a checksum, and echoes both once it has carried it out.
Only what it has acknowledged is shown to clients: to consumers and producers alike, since our brokers take a
topic into service in one step.  What is closed disappears at once.

Callers: the verbs of the master.  Times are seconds of one monotonic clock.
Source: spec sections 2.8, 3.2, 6.2, 6.3, 6.4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tube.errors import NotFoundError
from tube.master.values import (
    DRAFT,
    NORMAL,
    ONLINE,
    ONLY_READ,
    ONLY_WRITE,
    REMOVING,
    BrokerRow,
    StoredTopic,
)
from tube.values import Broker, Partition
from tube.wire import records, settings

DEFAULTS = settings.BrokerDefaults()

_STATUS_IDS = {"normal": 0, "deleted": 1, "removing": 2}


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a broker shall serve; ``counts`` is the partitions per topic in it."""

    config_id: int
    checksum: int
    defaults: str
    topics: tuple[str, ...]
    counts: dict[str, int]


@dataclass(slots=True)
class BrokerState:
    """A broker: what is configured, whether it lives, and what it has acknowledged.

    ``read_fails`` and ``write_fails``: it paused this by itself, after I/O errors.  ``tls_port`` is 0 when it
    has none.
    """

    row: BrokerRow
    wanted: Configuration
    alive: bool = False
    online: bool = False
    seen_s: float = 0.0
    read_fails: bool = False
    write_fails: bool = False
    served: dict[str, int] = field(default_factory=dict)
    synchronous: bool = False
    tls_port: int = 0

    @property
    def readable(self) -> bool:
        """Whether consumers may use it."""
        allowed = self.row.state in (ONLINE, ONLY_READ)
        return self.alive and self.online and allowed and not self.read_fails

    @property
    def writable(self) -> bool:
        """Whether producers may use it."""
        allowed = self.row.state in (ONLINE, ONLY_WRITE)
        return self.alive and self.online and allowed and not self.write_fails

    def address(self, *, secure: bool) -> Broker:
        """Where it listens, for clients on TLS or others."""
        port = self.tls_port if secure and self.tls_port else self.row.port
        return Broker(self.row.broker_id, self.row.host, port)


class Topology:
    """All topics by name and all brokers by id.

    ``first_config_id`` is where the ids of configurations begin; the wall clock in milliseconds, so that they
    differ from those of an earlier leader.
    """

    def __init__(self, first_config_id: int) -> None:
        self._config_id = first_config_id
        self.topics: dict[str, StoredTopic] = {}
        self.brokers: dict[int, BrokerState] = {}

    # changes

    def put_topic(self, topic: StoredTopic) -> set[int]:
        """Add or replace a topic; return the brokers that have a new configuration."""
        old = self.topics.get(topic.row.name)
        self.topics[topic.row.name] = topic
        places = set(topic.partitions) | (set(old.partitions) if old is not None else set())
        return self._refresh(places)

    def drop_topic(self, name: str) -> set[int]:
        """Forget a topic; return the brokers that have a new configuration."""
        return self._refresh(self.topics.pop(name).partitions)

    def put_broker(self, row: BrokerRow) -> BrokerState:
        """Add a broker, or replace what is configured about it."""
        state = self.brokers.get(row.broker_id)
        if state is None:
            state = BrokerState(row, self._compose(row.broker_id))
            self.brokers[row.broker_id] = state
        state.row = row
        return state

    def acknowledge(self, broker_id: int, config_id: int, checksum: int) -> bool:
        """The broker says what configuration it serves; True when clients see something new."""
        state = self.brokers[broker_id]
        wanted = state.wanted
        state.synchronous = (config_id, checksum) == (wanted.config_id, wanted.checksum)
        if not state.synchronous or state.served == wanted.counts:
            return False
        state.served = dict(wanted.counts)
        return True

    def expire(self, now_s: float, timeout_s: float) -> list[BrokerState]:
        """Take brokers for dead that were silent too long, and return them."""
        silent = [b for b in self.brokers.values() if b.alive and now_s - b.seen_s > timeout_s]
        for state in silent:
            state.alive = False
        return silent

    # what clients see

    def broker_list(self, *, secure: bool = False) -> list[str]:
        """``brokerInfos``: all brokers that clients may meet; on TLS those that have it, too."""
        states = [
            s for s in self.brokers.values() if s.row.state != DRAFT and (s.tls_port or not secure)
        ]
        return [
            records.format_broker(s.address(secure=secure))
            for s in sorted(states, key=lambda s: s.row.broker_id)
        ]

    def broker_checksum(self, *, secure: bool = False) -> int:
        """Version of ``broker_list``: the same list has the same one on every master."""
        return version_of(self.broker_list(secure=secure))

    def routes(self, names: Iterable[str]) -> list[str]:
        """``topicInfos``: where producers may write these topics now."""
        found = []
        for name in sorted(set(names)):
            topic = self.topics.get(name)
            if topic is None or topic.row.status != NORMAL or not topic.row.accept_publish:
                continue
            parts = tuple(
                records.RoutePart(state.row.broker_id, count, 1)
                for state, count in self.serving(topic)
                if state.writable
            )
            if parts:
                route = records.TopicRoute(name, parts, topic.row.max_message_bytes)
                found.append(records.format_route(route))
        return found

    def subscribable(self, names: Iterable[str]) -> set[Partition]:
        """All partitions that consumers may read now."""
        found: set[Partition] = set()
        for name in names:
            topic = self.topics.get(name)
            if topic is None or topic.row.status != NORMAL or not topic.row.accept_subscribe:
                continue
            for state, count in self.serving(topic):
                if state.readable:
                    found |= {Partition(name, state.row.broker_id, n) for n in range(count)}
        return found

    def metas(self, names: Iterable[str]) -> list[str]:
        """``topicMetaInfoList``: where client-balancing consumers find their topics."""
        found = []
        for name in sorted(set(names)):
            topic = self.topics.get(name)
            if topic is None or topic.row.status != NORMAL:
                continue
            parts = tuple(
                records.MetaPart(
                    state.row.broker_id,
                    1,
                    count,
                    int(state.readable and topic.row.accept_subscribe),
                )
                for state, count in self.serving(topic)
            )
            found.append(records.format_meta(records.TopicMeta(name, parts)))
        return found

    def serving(self, topic: StoredTopic) -> Iterator[tuple[BrokerState, int]]:
        """The brokers that serve the topic, dead or alive, with how many partitions, by id."""
        for broker_id in sorted(topic.partitions):
            state = self.brokers.get(broker_id)
            if state is not None:
                count = min(state.served.get(topic.row.name, 0), topic.partitions[broker_id])
                if count:
                    yield state, count

    def deployed(self, name: str) -> bool:
        """Whether the topic exists on some broker and is not deleted."""
        topic = self.topics.get(name)
        return topic is not None and topic.row.status == NORMAL and bool(topic.partitions)

    def why_not(self, partition: Partition) -> str:
        """Why consumers may not read the partition, "" when they may."""
        topic, state = self.topics.get(partition.topic), self.brokers.get(partition.broker_id)
        if topic is None:
            return "the topic does not exist"
        broker = f"broker {partition.broker_id}"
        deployed = topic.partitions.get(partition.broker_id, 0)
        if state is None or partition.partition_id >= deployed:
            return "the partition does not exist"
        reasons = [
            (topic.row.status != NORMAL, f"the topic is {topic.row.status}"),
            (not topic.row.accept_subscribe, "the topic does not accept consumers"),
            (not state.alive, f"{broker} is not alive"),
            (state.read_fails, f"{broker} has I/O errors"),
            (
                not state.online or partition.partition_id >= state.served.get(partition.topic, 0),
                f"{broker} has not taken over its configuration yet",
            ),
            (not state.readable, f"{broker} is {state.row.state}"),
        ]
        return next((text for holds, text in reasons if holds), "")

    def topic(self, name: str) -> StoredTopic:
        """The topic.

        Raises:
            NotFoundError: no such topic.
        """
        topic = self.topics.get(name)
        if topic is None:
            raise NotFoundError(f"topic {name!r} does not exist")
        return topic

    def place(self, partition: Partition, *, secure: bool = False) -> records.PlacedPartition:
        """The partition with the address of its broker; of an unknown broker it is blank."""
        state = self.brokers.get(partition.broker_id)
        unknown = Broker(partition.broker_id, "unknown", 1)
        broker = state.address(secure=secure) if state is not None else unknown
        return records.PlacedPartition(broker, partition.topic, partition.partition_id)

    # configurations

    def removing(self, broker_id: int) -> list[str]:
        """``removeTopicConfInfo``: the topics whose data this broker shall delete."""
        return [
            settings.format_topic_config(_config(topic, broker_id), DEFAULTS)
            for topic in self._topics_of(broker_id)
            if topic.row.status == REMOVING
        ]

    def _topics_of(self, broker_id: int) -> list[StoredTopic]:
        found = [t for t in self.topics.values() if broker_id in t.partitions]
        return sorted(found, key=lambda topic: topic.row.name)

    def _compose(self, broker_id: int) -> Configuration:
        topics = self._topics_of(broker_id)
        defaults = settings.format_defaults(DEFAULTS)
        texts = tuple(settings.format_topic_config(_config(t, broker_id), DEFAULTS) for t in topics)
        self._config_id += 1
        return Configuration(
            self._config_id,
            settings.configuration_checksum(defaults, texts),
            defaults,
            texts,
            {topic.row.name: topic.partitions[broker_id] for topic in topics},
        )

    def _refresh(self, broker_ids: Iterable[int]) -> set[int]:
        changed = set()
        for broker_id in broker_ids:
            state = self.brokers.get(broker_id)
            if state is None:
                continue
            wanted = self._compose(broker_id)
            if wanted.topics != state.wanted.topics:
                state.wanted = wanted
                state.synchronous = False
                changed.add(broker_id)
        return changed


def version_of(texts: Iterable[str]) -> int:
    """A positive 63-bit version of a list of texts."""
    digest = hashlib.blake2b("\n".join(texts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _config(topic: StoredTopic, broker_id: int) -> settings.TopicConfig:
    row = topic.row
    return settings.TopicConfig(
        topic=row.name,
        num_partitions=topic.partitions[broker_id],
        accept_publish=row.accept_publish,
        accept_subscribe=row.accept_subscribe,
        delete_policy=row.retention,
        num_topic_stores=1,
        status_id=_STATUS_IDS[row.status],
        max_msg_size=row.max_message_bytes,
    )
