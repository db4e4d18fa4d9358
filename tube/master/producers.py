"""The verbs for producers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted.logger import Logger

from tube.auth.tokens import Rights
from tube.master.access import UNKNOWN, Claim, check_produce
from tube.master.core import Core
from tube.master.topology import version_of
from tube.values import ClientId
from tube.wire import records

log = Logger(namespace="tube.master.producers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerView:
    """What a producer is told.  ``brokers`` is None when its list is the current one.

    ``require_auth``: it must sign its next heartbeat; ``visit_token`` is 0 for one that is not known.
    """

    epoch: int
    broker_checksum: int
    brokers: list[str] | None
    topics: list[str]
    visit_token: int
    auth_token: str
    require_auth: bool = False


class Producers:
    """Producers register, send heartbeats and leave."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def register(
        self,
        client_id: ClientId,
        host: str,
        topics: Sequence[str],
        broker_checksum: int,
        claim: Claim = UNKNOWN,
    ) -> ProducerView:
        """A producer begins, or goes on at a new leader.

        Raises:
            StandbyError: we do not lead.  BadRequestError: a name is malformed.
            CertificateError: it must sign and did not, or wrong.  ForbiddenError: it may not produce to a topic.
        """
        _check(client_id, host, topics)
        access = self._core.access
        self._core.leader.require(client_id)
        rights = access.require(claim, signs=access.producers_sign)
        return self._alive(client_id, host, topics, broker_checksum, rights, secure=claim.secure)

    def heartbeat(
        self,
        client_id: ClientId,
        host: str,
        topics: Sequence[str],
        broker_checksum: int,
        claim: Claim = UNKNOWN,
    ) -> ProducerView:
        """A producer is alive; an unknown one is registered, C++ and Go do not survive a 411 (spec 3.3).

        Raises:
            StandbyError: we do not lead.  BadRequestError: a name is malformed.
            CertificateError: it was asked to sign and did not, or wrong.
            ForbiddenError: it may not produce to a topic.
        """
        _check(client_id, host, topics)
        access = self._core.access
        self._core.leader.require(client_id)
        rights = access.identify(claim, signs=access.producers_sign)
        if rights is None:
            access.ask(("", client_id))
            return self._asking(client_id, broker_checksum)
        access.answered(("", client_id))
        return self._alive(client_id, host, topics, broker_checksum, rights, secure=claim.secure)

    def close(self, client_id: ClientId, claim: Claim = UNKNOWN) -> None:
        """A producer ends; an unknown one is fine.

        Raises:
            StandbyError: we do not lead.  CertificateError: it does not prove who it is.
        """
        records.check_client_id(client_id)
        access = self._core.access
        self._core.leader.require(client_id)
        access.require(claim, signs=access.producers_sign)
        self._core.registry.drop_producer(client_id)

    def _alive(
        self,
        client_id: ClientId,
        host: str,
        topics: Sequence[str],
        broker_checksum: int,
        rights: Rights,
        *,
        secure: bool,
    ) -> ProducerView:
        core = self._core
        check_produce(rights, topics)
        if core.registry.touch_producer(client_id, host, topics, core.now_s()):
            log.info(
                "producer {client_id} from {host}",
                client_id=client_id,
                host=host,
                principal=rights.user,
            )
        brokers = core.topology.broker_list(secure=secure)
        checksum = version_of(brokers)
        return ProducerView(
            epoch=core.leader.require(client_id),
            broker_checksum=checksum,
            brokers=brokers if checksum != broker_checksum else None,
            topics=core.topology.routes(topics),
            visit_token=core.visit.current,
            auth_token=core.access.token(rights),
        )

    def _asking(self, client_id: ClientId, broker_checksum: int) -> ProducerView:
        """A known producer whose token has expired goes on with its routes; others are told nothing."""
        core = self._core
        known = core.registry.producers.get(client_id)
        return ProducerView(
            epoch=core.leader.require(client_id),
            broker_checksum=broker_checksum,
            brokers=None,
            topics=core.topology.routes(known.topics) if known is not None else [],
            visit_token=0,
            auth_token="",
            require_auth=True,
        )


def _check(client_id: str, host: str, topics: Sequence[str]) -> None:
    records.check_client_id(client_id)
    records.check_host(host)
    records.check_topics(topics)
