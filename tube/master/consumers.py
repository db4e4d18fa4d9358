"""The verbs for consumers that the master balances."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from twisted.logger import Logger

from tube.auth.tokens import Rights
from tube.errors import BadRequestError, TopicNotDeployedError
from tube.master.access import UNKNOWN, Claim
from tube.master.balancing import RETRY_S
from tube.master.core import Core
from tube.master.db import groups as group_rows
from tube.master.db.groups import GroupRow
from tube.master.entrance import Entrance, FlowIds, Registration
from tube.master.events import RESEND_S, Event
from tube.master.held import Outcome
from tube.master.registry import Gone, Kind, Member
from tube.values import ClientId, GroupName, Partition
from tube.wire import records

log = Logger(namespace="tube.master.consumers")

PRIORITY: Final = 301
"""qryPriorityId of the cluster (spec section 9.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowView:
    """Rules as a client shall have them; a text is None when the client has it already."""

    default_id: int
    default_text: str | None
    group_id: int
    group_text: str | None
    priority: int = PRIORITY


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a consumer says.

    ``held`` is None when it does not report; ``done`` is the (round, action) of the event that it finished.
    ``owner`` is the connection that waits for the answer, ``wait_s`` how long it may be held.
    """

    client_id: ClientId
    group: GroupName
    held: Collection[Partition] | None = None
    done: tuple[int, int] | None = None
    flow: FlowIds = field(default_factory=FlowIds)
    wait_s: float = 0.0
    owner: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerView:
    """What a consumer is told.

    ``require_auth``: it must sign its next heartbeat; ``visit_token`` is 0 for one that is not known.
    """

    epoch: int
    not_allocated: bool
    visit_token: int = 0
    auth_token: str = ""
    require_auth: bool = False
    event: Event | None = None
    flow: FlowView | None = None


class Consumers:
    """Consumers register, send heartbeats and leave; see ``tube.master.events`` for their orders."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._entrance = Entrance(core)

    async def register(self, asked: Registration, claim: Claim = UNKNOWN) -> ConsumerView:
        """A consumer joins its group, or comes back with what it still holds.

        One that does not show who it is, and must, waits outside until it has signed a heartbeat.

        Raises:
            BadRequestError: a name is malformed.  StandbyError: we do not lead.
            TopicNotDeployedError: no broker serves one of its topics.
            InconsistentGroupError: it does not agree with the other members.
            CertificateError: its signature is wrong.  GroupForbiddenError: it may not consume a topic.
        """
        check_registration(asked)
        core = self._core
        epoch = core.leader.require(asked.client_id)
        check_deployed(core, asked.wanted.topics)
        rights = self._entrance.register(asked, claim)
        if rights is None:
            flow = flow_view(core, asked.group, asked.flow) if asked.flow.asked else None
            return ConsumerView(epoch=epoch, not_allocated=True, flow=flow)
        epoch = await self._join(asked)
        return self._view(epoch, asked.group, asked.flow, rights)

    async def _join(self, asked: Registration) -> int:
        """Make it a member; the epoch in which that was."""
        core = self._core
        async with core.group_lock:
            await activate(core, asked.group)
            epoch = core.leader.require(asked.client_id)
            new = core.registry.join(
                asked.group,
                asked.client_id,
                asked.host,
                asked.wanted,
                asked.held,
                core.now_s(),
            )
        core.held_consumers.supersede((asked.group, asked.client_id))
        core.events.drop_client(asked.group, asked.client_id)
        group = core.registry.groups[asked.group]
        group.allocated = group.allocated or bool(asked.held)
        self._joined(asked, new=new)
        return epoch

    async def heartbeat(self, beat: Heartbeat, claim: Claim = UNKNOWN) -> ConsumerView | None:
        """A consumer is alive; the answer may wait for an event.  None: nobody waits for the answer.

        Raises:
            StandbyError: we do not lead.  NotRegisteredError: it must register again.
            CertificateError: it was asked to sign and did not, or wrong.
            GroupForbiddenError: it may not consume a topic.
            InconsistentGroupError: it waited outside, and does not agree with the members any more.
        """
        core = self._core
        epoch = core.leader.require(beat.client_id)
        admitted = self._entrance.heartbeat(beat.group, beat.client_id, claim)
        if admitted is None:
            return ConsumerView(epoch=epoch, not_allocated=True, require_auth=True)
        rights = admitted.rights
        if admitted.waited is not None:
            epoch = await self._join(admitted.waited)
        key = (beat.group, beat.client_id)
        known = core.registry.find(beat.group, beat.client_id)
        first = known is not None and not known.ready
        member = core.registry.touch(beat.group, beat.client_id, core.now_s())
        core.held_consumers.supersede(key)
        self._report(beat, member)
        if first or beat.group not in core.balancer.plans:
            core.balancer.changed(beat.group, f"{beat.client_id} joined")
        token_version = core.token_version
        until_s = core.now_s() + min(beat.wait_s, core.config.consumer_timeout_s / 3)
        while True:
            event = self._next(beat.group, beat.client_id)
            left_s = until_s - core.now_s()
            if event is not None or left_s <= 0 or core.token_version != token_version:
                return self._view(epoch, beat.group, beat.flow, rights, event)
            sent = core.events.sent(beat.group, beat.client_id)
            wait_s = left_s if sent is None else min(left_s, RESEND_S)
            outcome = await core.held_consumers.hold(key, wait_s, beat.owner)
            if outcome is Outcome.GONE:
                return None
            epoch = core.leader.require(beat.client_id)
            if outcome is Outcome.SUPERSEDED:
                return self._view(epoch, beat.group, beat.flow, rights)
            if core.registry.find(beat.group, beat.client_id) is not member:
                core.registry.touch(beat.group, beat.client_id, core.now_s())

    def close(self, group: GroupName, client_id: ClientId, claim: Claim = UNKNOWN) -> None:
        """A consumer leaves; an unknown one is fine.

        Raises:
            StandbyError: we do not lead.  CertificateError: it does not prove who it is.
        """
        records.check_client_id(client_id)
        records.check_group(group)
        self._core.leader.require(client_id)
        self._entrance.close(group, client_id, claim)
        gone = self._core.registry.leave(group, client_id)
        self._core.held_consumers.supersede((group, client_id))
        if gone is not None:
            left(self._core, gone, kind="leave", reason="left")

    def _joined(self, asked: Registration, *, new: bool) -> None:
        held = len(asked.held)
        self._core.chronicle.note(
            "join",
            group=asked.group,
            client_id=asked.client_id,
            reason="new member" if new else "registered again",
            detail=f"from {asked.host}, holds {held} partitions",
        )
        log.info(
            "group {group}: {client_id} joins",
            group=asked.group,
            client_id=asked.client_id,
            held=held,
        )
        if held or not new:  # a new one is counted from its first heartbeat on
            self._core.balancer.changed(asked.group, f"{asked.client_id} registered again")

    def _report(self, beat: Heartbeat, member: Member) -> None:
        """Take over what the consumer says it holds, and what it has done."""
        core, before = self._core, set(member.held)
        event = None
        if beat.done is not None and beat.done[0] > 0:
            event = core.events.acknowledge(beat.group, beat.client_id, *beat.done)
        if beat.held is not None:
            member.held = set(beat.held)
        elif event is not None and event.action.connects:
            member.held |= event.partitions
        elif event is not None:
            member.held -= event.partitions
        if beat.done is not None and beat.done[0] > 0:
            core.registry.groups[beat.group].allocated = True
        if event is not None:
            self._acknowledged(beat, event, member)
        elif member.held != before:
            sent = core.events.sent(beat.group, beat.client_id)
            if member.held ^ before - (sent.partitions if sent is not None else frozenset()):
                reason = f"{beat.client_id} reports other partitions than before"
                core.balancer.changed(beat.group, reason)
        if before - member.held:
            core.balancer.wake_takers(beat.group)

    def _acknowledged(self, beat: Heartbeat, event: Event, member: Member) -> None:
        core = self._core
        connects = event.action.connects
        done = event.partitions & member.held if connects else event.partitions - member.held
        for partition in sorted(done):
            self._note("connected" if connects else "disconnected", beat, event, partition)
        missing = len(event.partitions) - len(done)
        if missing:
            what = "take" if connects else "drop"
            reason = f"{beat.client_id} could not {what} {missing} partitions"
            core.balancer.changed(beat.group, reason, RETRY_S)
        if not connects:
            core.balancer.wake_takers(beat.group)

    def _next(self, group: GroupName, client_id: ClientId) -> Event | None:
        core = self._core
        before = core.events.sent(group, client_id)
        event = core.events.next(group, client_id, core.registry.holders(group), core.now_s())
        if event is not None and event is not before:
            beat = Heartbeat(client_id=client_id, group=group)
            for partition in sorted(event.partitions):
                kind = "connect" if event.action.connects else "disconnect"
                self._note(kind, beat, event, partition)
        return event

    def _note(self, kind: str, beat: Heartbeat, event: Event, partition: Partition) -> None:
        self._core.chronicle.note(
            kind,
            group=beat.group,
            client_id=beat.client_id,
            topic=partition.topic,
            broker_id=partition.broker_id,
            partition_id=partition.partition_id,
            round_id=event.round_id,
            reason=event.reason,
        )

    def _view(
        self,
        epoch: int,
        group: GroupName,
        ids: FlowIds,
        rights: Rights,
        event: Event | None = None,
    ) -> ConsumerView:
        core = self._core
        known = core.registry.groups.get(group)
        return ConsumerView(
            epoch=epoch,
            not_allocated=known is None or not known.allocated,
            visit_token=core.visit.current,
            auth_token=core.access.token(rights),
            event=event,
            flow=flow_view(core, group, ids) if ids.asked else None,
        )


def check_registration(asked: Registration) -> None:
    """Check the names of a registration.

    Raises:
        BadRequestError: a name is malformed, or there is no topic.
    """
    records.check_client_id(asked.client_id)
    records.check_group(asked.group)
    records.check_host(asked.host)
    records.check_topics(asked.wanted.topics)
    if not asked.wanted.topics:
        raise BadRequestError("a consumer subscribes to at least one topic")
    for topic, items in asked.wanted.filters.items():
        if topic not in asked.wanted.topics:
            raise BadRequestError(f"filters for topic {topic!r}, which is not subscribed")
        records.check_filters(items)


def check_deployed(core: Core, topics: Collection[str]) -> None:
    """Check that all topics exist.

    Raises:
        TopicNotDeployedError: names those that do not.
    """
    missing = [name for name in sorted(topics) if not core.topology.deployed(name)]
    if missing:
        raise TopicNotDeployedError(f"topics not deployed: {', '.join(missing)}")


async def activate(core: Core, group: GroupName) -> None:
    """Remember in SQL that the group has members; call with ``group_lock`` held.

    Raises:
        StandbyError: we do not lead.  StoreError: the database failed.
    """
    known = core.groups.get(group)
    if known is not None and known.active:
        return
    now_ms = core.wall_ms()
    await core.database.write(group_rows.mark, core.leader.require(), [group], True, now_ms)
    created_ms = now_ms if known is None else known.created_ms
    core.groups[group] = GroupRow(name=group, active=True, created_ms=created_ms, used_ms=now_ms)


async def deactivate(core: Core) -> None:
    """Remember in SQL which groups have lost their last member."""
    async with core.group_lock:
        idle = [
            row
            for row in core.groups.values()
            if row.active
            and row.name not in core.registry.groups
            and not core.balancer.is_held_back(GroupName(row.name))
        ]
        if not idle or not core.leader.leads:
            return
        now_ms = core.wall_ms()
        names = [row.name for row in idle]
        await core.database.write(group_rows.mark, core.leader.require(), names, False, now_ms)
        for row in idle:
            core.groups[row.name] = GroupRow(
                name=row.name, active=False, created_ms=row.created_ms, used_ms=now_ms
            )


def left(core: Core, gone: Gone, *, kind: str, reason: str) -> None:
    """A member is gone: its partitions are free."""
    client_id = gone.member.client_id
    core.events.drop_client(gone.group, client_id)
    core.chronicle.note(
        kind,
        group=gone.group,
        client_id=client_id,
        reason=reason,
        detail=f"held {len(gone.member.held)} partitions",
    )
    log.info(
        "group {group}: {client_id} {reason}", group=gone.group, client_id=client_id, reason=reason
    )
    if gone.last:
        core.balancer.forget(gone.group)
    elif gone.member.wanted.kind is not Kind.CLIENT:
        core.balancer.changed(gone.group, f"{client_id} {reason}")


def flow_view(core: Core, group: str, ids: FlowIds) -> FlowView:
    """The rules that hold for a client, with the texts that it lacks."""
    default_id, default_text = core.rule("")
    group_id, group_text = core.rule(group)
    return FlowView(
        default_id=default_id,
        default_text=default_text if default_id != ids.default else None,
        group_id=group_id,
        group_text=group_text if group_id != ids.group else None,
    )


def parse_subscriptions(texts: Sequence[str]) -> set[Partition]:
    """The partitions that a consumer reports.

    Raises:
        BadRequestError: a text is malformed.
    """
    return {records.parse_subscription(text).place.partition for text in texts}
