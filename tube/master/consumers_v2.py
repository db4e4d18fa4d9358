"""The verbs for consumers that balance themselves ("V2", spec section 4.9)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tube.auth.tokens import Rights
from tube.errors import BadRequestError, CertificateError
from tube.master.access import UNKNOWN, Claim
from tube.master.consumers import (
    FlowView,
    activate,
    check_deployed,
    check_registration,
    flow_view,
)
from tube.master.core import Core
from tube.master.entrance import Entrance, FlowIds, Registration
from tube.master.topology import version_of
from tube.values import ClientId, GroupName, Partition
from tube.wire import records


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldVersions:
    """Versions of the metadata that a client holds; -2: none."""

    brokers: int = -2
    topics: int = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfBalancedView:
    """What such a consumer is told; lists are None when the client has them.

    ``require_auth``: it must sign its next heartbeat; ``visit_token`` is 0 for one that is not known.
    """

    epoch: int
    flow: FlowView
    visit_token: int = 0
    auth_token: str = ""
    brokers_id: int = -2
    brokers: list[str] | None = None
    topics_id: int = -2
    topics: list[str] | None = None
    require_auth: bool = False


class SelfBalanced:
    """Consumers of client-balanced groups register, send heartbeats and ask for metadata."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._entrance = Entrance(core)

    async def register(
        self, asked: Registration, versions: HeldVersions, claim: Claim = UNKNOWN
    ) -> SelfBalancedView:
        """A consumer joins its group.

        Raises:
            BadRequestError: a name is malformed, or the node id is not below the source count.
            StandbyError: we do not lead.  TopicNotDeployedError: no broker serves a topic.
            InconsistentGroupError: it does not agree with the other members.
            CertificateError: its signature is wrong.  GroupForbiddenError: it may not consume a topic.
        """
        check_registration(asked)
        wanted, core = asked.wanted, self._core
        if wanted.source_count > 0 and not 0 <= wanted.node_id < wanted.source_count:
            raise BadRequestError(
                f"node id {wanted.node_id} is not in 0..{wanted.source_count - 1}"
            )
        epoch = core.leader.require(asked.client_id)
        check_deployed(core, wanted.topics)
        rights = self._entrance.register(asked, claim)
        if rights is None:
            return SelfBalancedView(epoch=epoch, flow=flow_view(core, asked.group, asked.flow))
        await self._join(asked)
        return self._view(
            asked.client_id, asked.group, asked.flow, versions, rights, secure=claim.secure
        )

    async def _join(self, asked: Registration) -> None:
        core, wanted = self._core, asked.wanted
        async with core.group_lock:
            await activate(core, asked.group)
            core.leader.require(asked.client_id)
            new = core.registry.join(
                asked.group, asked.client_id, asked.host, wanted, asked.held, core.now_s()
            )
        core.chronicle.note(
            "join",
            group=asked.group,
            client_id=asked.client_id,
            reason="new member" if new else "registered again",
            detail=f"from {asked.host}, balances itself",
        )

    async def heartbeat(
        self,
        client_id: ClientId,
        group: GroupName,
        held: Collection[Partition] | None,
        ids: FlowIds,
        versions: HeldVersions,
        claim: Claim = UNKNOWN,
    ) -> SelfBalancedView:
        """A consumer is alive; ``held`` is None when it does not report.

        Raises:
            StandbyError: we do not lead.  NotRegisteredError: it must register again.
            CertificateError: it was asked to sign and did not, or wrong.
            GroupForbiddenError: it may not consume a topic.
        """
        core = self._core
        epoch = core.leader.require(client_id)
        admitted = self._entrance.heartbeat(group, client_id, claim)
        if admitted is None:
            flow = flow_view(core, group, ids)
            return SelfBalancedView(epoch=epoch, flow=flow, require_auth=True)
        if admitted.waited is not None:
            await self._join(admitted.waited)
        member = core.registry.touch(group, client_id, core.now_s())
        if held is not None:
            member.held = set(held)
        return self._view(client_id, group, ids, versions, admitted.rights, secure=claim.secure)

    def metadata(
        self,
        client_id: ClientId,
        group: GroupName,
        versions: HeldVersions,
        claim: Claim = UNKNOWN,
    ) -> SelfBalancedView:
        """Where the consumer's topics are.

        Raises:
            StandbyError: we do not lead.  NotRegisteredError: it must register again.
            CertificateError: it must sign a heartbeat first.  GroupForbiddenError: it may not consume a topic.
        """
        core = self._core
        records.check_client_id(client_id)
        core.leader.require(client_id)
        admitted = self._entrance.heartbeat(group, client_id, claim)
        if admitted is None or admitted.waited is not None:
            raise CertificateError("a heartbeat with a signature must come first")
        core.registry.touch(group, client_id, core.now_s())
        return self._view(
            client_id, group, FlowIds(), versions, admitted.rights, secure=claim.secure
        )

    def _view(
        self,
        client_id: ClientId,
        group: GroupName,
        ids: FlowIds,
        versions: HeldVersions,
        rights: Rights,
        *,
        secure: bool,
    ) -> SelfBalancedView:
        core = self._core
        topology = core.topology
        brokers = topology.broker_list(secure=secure)
        brokers_id = version_of(brokers)
        topics = topology.metas(core.registry.groups[group].wanted.topics)
        topics_id = version_of(topics)
        return SelfBalancedView(
            epoch=core.leader.require(client_id),
            flow=flow_view(core, group, ids),
            visit_token=core.visit.current,
            auth_token=core.access.token(rights),
            brokers_id=brokers_id,
            brokers=brokers if brokers_id != versions.brokers else None,
            topics_id=topics_id,
            topics=topics if topics_id != versions.topics else None,
        )
