"""A client on some event loop: its connections, its producers, its consumers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

from tube.client.consumer import Consumer, Hook
from tube.client.link import Links, Masters
from tube.client.options import (
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
    is_secure,
    parse_url,
)
from tube.client.producer import Producer
from tube.client.runtime import Runtime
from tube.client.session import ProducerSession
from tube.errors import NotDeliveredError
from tube.wire.records import check_topic

VERSION = "tube-0.1"

_counter = itertools.count(1)


class Core:
    """What all drivers share.  Called on the runtime's thread.

    ``report`` hears of failures that are tried again; users see those that are not.
    """

    def __init__(
        self,
        runtime: Runtime,
        url: str,
        options: ClientOptions | None = None,
        report: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.options = options or ClientOptions()
        masters = parse_url(url)
        if is_secure(url):
            runtime.use_tls(self.options)
        self.links = Links(runtime, self.options)
        self.masters = Masters(self.links, masters)
        self._runtime = runtime
        self._report = report
        self._session: ProducerSession | None = None
        self._producers: dict[tuple[str, ProducerOptions], Producer] = {}
        self._consumers: list[Consumer] = []

    def producer(self, topic: str, options: ProducerOptions | None = None) -> Producer:
        """The producer of a topic; the same one for the same options.

        Raises:
            BadRequestError: no name of a topic.
        """
        check_topic(topic)
        if self._session is None:
            self._session = ProducerSession(
                self._runtime, self.masters, self.options, self._client_id(), self._report
            )
        key = (topic, options or ProducerOptions())
        producer = self._producers.get(key)
        if producer is None or producer.closed:
            producer = Producer(
                self._runtime, self.links, self._session, topic, self.options, key[1]
            )
            self._producers[key] = producer
        return producer

    async def consumer(
        self,
        topics: Iterable[str],
        group: str,
        options: ConsumerOptions | None = None,
        *,
        filters: Mapping[str, Iterable[str]] | None = None,
        on_assign: Hook | None = None,
        on_revoke: Hook | None = None,
    ) -> Consumer:
        """A registered member of ``group``; its partitions come a little later.

        Raises:
            RefusedError: the group does not take it.  UnreachableError: no master answers.
        """
        consumer = Consumer(
            self._runtime,
            self.links,
            self.masters,
            self.options,
            options or ConsumerOptions(),
            client_id=f"{group}_{self._client_id()}",
            group=group,
            topics=topics,
            filters=filters or {},
            on_assign=on_assign,
            on_revoke=on_revoke,
            report=self._report,
        )
        await consumer.start()
        self._consumers = [other for other in self._consumers if not other.closed]
        self._consumers.append(consumer)
        return consumer

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush the producers, leave the groups, close the connections.

        Raises:
            NotDeliveredError: messages were not acknowledged in time; everything is closed all the same.
        """
        limit_s = self.options.close_s if timeout_s is None else timeout_s
        until_s = self._runtime.now_s() + limit_s
        unsent = 0
        for producer in self._producers.values():
            try:
                await producer.close(max(0.0, until_s - self._runtime.now_s()))
            except NotDeliveredError as error:
                unsent += error.count
        for consumer in self._consumers:
            await consumer.close()
        if self._session is not None:
            await self._session.close()
        self.links.close()
        if unsent:
            raise NotDeliveredError(
                f"{unsent} messages were not acknowledged within {limit_s:g} s", count=unsent
            )

    def _client_id(self) -> str:
        return f"{self._runtime.identity()}-{self._runtime.random_bits(32):08x}-{next(_counter)}-{VERSION}"
