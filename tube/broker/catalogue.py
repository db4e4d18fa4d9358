"""Turns the master's configuration strings into topics with partitions on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twisted.logger import Logger

from tube.broker.offsets import Offsets
from tube.broker.reader import Reader
from tube.broker.topics import Topics, TopicSettings
from tube.limits import MESSAGE_BYTES_DEFAULT, MESSAGE_BYTES_MAX
from tube.log.store import LogStore
from tube.log.values import LogKey
from tube.net.workers import Workers
from tube.pb.MasterService_pb2 import TopicFacts
from tube.wire import settings

log = Logger(namespace="tube.broker.catalogue")

FOREIGN_ID_FROM = 1_000_000_000
"""Topic ids from here on are made by this broker, for a master that gives none."""

REMOVED = 3
"""statusId of a topic whose files are gone (spec section 6.4)."""


class Catalogue:
    """Applies configurations: partitions are on disk before the topic takes messages.

    Callers: broker.uplink, one call at a time.
    """

    def __init__(
        self, topics: Topics, store: LogStore, disk: Workers, reader: Reader, offsets: Offsets
    ) -> None:
        self._topics = topics
        self._store = store
        self._disk = disk
        self._reader = reader
        self._offsets = offsets
        self._facts: dict[str, TopicFacts] = {}
        self.configured = False

    def stop(self, *, read: bool, write: bool) -> None:
        """The operator's switches for the whole broker."""
        self._topics.read_stopped = read
        self._topics.write_stopped = write

    def learn_facts(self, facts: Iterable[TopicFacts]) -> None:
        """Topic ids and promises that the configuration strings have no room for."""
        self._facts = {fact.name: fact for fact in facts}

    async def configure(self, defaults_text: str, topic_texts: Sequence[str]) -> None:
        """Serve exactly these topics; files of others stay until ``remove`` names them.

        Raises:
            BadRequestError: the strings are malformed.  StoreError: partitions could not be made.
        """
        if not defaults_text:
            return
        defaults = settings.parse_defaults(defaults_text)
        wanted = [
            self._settings(settings.effective(settings.parse_topic_config(text), defaults))
            for text in topic_texts
        ]
        missing = [
            LogKey(topic.topic_id, partition_id)
            for topic in wanted
            for partition_id in topic.partition_ids()
        ]
        await self._disk.call(self._create, missing)
        for gone in self._topics.update(wanted):
            log.info("topic {topic} is no longer served", topic=gone.name)
            for partition_id in gone.partition_ids():
                self._reader.forget(gone.topic_id, partition_id)
        for topic in wanted:
            if topic.status >= 2 or not topic.accept_subscribe:
                for partition_id in topic.partition_ids():
                    self._reader.wake(topic.topic_id, partition_id)
        self.configured = True

    async def remove(self, texts: Sequence[str]) -> list[str]:
        """Delete the files of these topics; return what to report to the master."""
        done: list[str] = []
        for text in texts:
            config = settings.parse_topic_config(text)
            topic = self._topics.get(config.topic)
            if topic is None:  # not served any more, but its files may be there
                topic = self._settings(config)
            rest = [other for other in self._topics if other.name != topic.name]
            self._topics.update(rest)
            for partition_id in topic.partition_ids():
                self._reader.forget(topic.topic_id, partition_id)
            await self._disk.call(self._store.delete, topic.topic_id)
            self._offsets.forget_topic(topic.name, topic.topic_id)
            log.info("topic {topic} is deleted", topic=topic.name)
            done.append(
                settings.format_topic_config(
                    settings.TopicConfig(topic=config.topic, status_id=REMOVED)
                )
            )
        return done

    def _create(self, keys: Sequence[LogKey]) -> None:
        """Runs in the disk worker."""
        for key in keys:
            self._store.create(key.topic_id, key.partition_id)

    def _settings(self, config: settings.TopicConfig) -> TopicSettings:
        fact = self._facts.get(config.topic)
        policy = config.delete_policy
        return TopicSettings(
            name=config.topic,
            topic_id=fact.topic_id if fact is not None else self._foreign_id(config.topic),
            partition_count=config.num_partitions or 1,
            store_count=config.num_topic_stores or 1,
            accept_publish=config.accept_publish is not False,
            accept_subscribe=config.accept_subscribe is not False,
            message_bytes_max=min(config.max_msg_size or MESSAGE_BYTES_DEFAULT, MESSAGE_BYTES_MAX),
            durable=fact.durable if fact is not None and fact.HasField("durable") else True,
            retention_ms=settings.parse_delete_policy(policy) if policy else None,
            retention_bytes=(fact.retention_bytes or None) if fact is not None else None,
            status=config.status_id or 0,
        )

    def _foreign_id(self, name: str) -> int:
        """An id for a topic of an original master: made from its name, so it is the same after a restart."""
        code = 0
        for character in name:
            code = (code * 131 + ord(character)) % FOREIGN_ID_FROM
        return FOREIGN_ID_FROM + code
