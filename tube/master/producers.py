"""The verbs for producers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted.logger import Logger

from tube.master.core import Core
from tube.values import ClientId
from tube.wire import records

log = Logger(namespace="tube.master.producers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerView:
    """What a producer is told.  ``brokers`` is None when its list is the current one."""

    epoch: int
    broker_checksum: int
    brokers: list[str] | None
    topics: list[str]
    visit_token: int
    auth_token: str


class Producers:
    """Producers register, send heartbeats and leave."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def register(
        self, client_id: ClientId, host: str, topics: Sequence[str], broker_checksum: int
    ) -> ProducerView:
        """A producer begins, or goes on at a new leader.

        Raises:
            StandbyError: we do not lead.  BadRequestError: a name is malformed.
        """
        return self.heartbeat(client_id, host, topics, broker_checksum)

    def heartbeat(
        self, client_id: ClientId, host: str, topics: Sequence[str], broker_checksum: int
    ) -> ProducerView:
        """A producer is alive; an unknown one is registered, C++ and Go do not survive a 411 (spec 3.3).

        Raises:
            StandbyError: we do not lead.  BadRequestError: a name is malformed.
        """
        records.check_client_id(client_id)
        records.check_host(host)
        records.check_topics(topics)
        core = self._core
        epoch = core.leader.require(client_id)
        if core.registry.touch_producer(client_id, host, topics, core.now_s()):
            log.info("producer {client_id} from {host}", client_id=client_id, host=host)
        checksum = core.topology.broker_checksum()
        return ProducerView(
            epoch=epoch,
            broker_checksum=checksum,
            brokers=core.topology.broker_list() if checksum != broker_checksum else None,
            topics=core.topology.routes(topics),
            visit_token=core.visit.current,
            auth_token=core.auth_token(client_id[:256]),
        )

    def close(self, client_id: ClientId) -> None:
        """A producer ends; an unknown one is fine.

        Raises:
            StandbyError: we do not lead.
        """
        records.check_client_id(client_id)
        self._core.leader.require(client_id)
        self._core.registry.drop_producer(client_id)
