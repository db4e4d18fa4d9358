"""Moves the offsets of a group, also while it runs: freeze, wait for the disconnects, order, go on.

While partitions are frozen the plan gives them to nobody, so their holders are told to drop them.  When no member
has one any more, the brokers are asked to move the offsets; then the group is planned again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from tube.errors import BadRequestError, ConflictError, TimedOutError, UnavailableError
from tube.master.core import Core
from tube.master.groups import Groups
from tube.master.orders import Orders
from tube.values import GroupName, Partition

DRAIN_S: Final = 10.0
"""How long members have to drop the partitions."""

POLL_S: Final = 0.02
RESET_S: Final = 10.0
"""How long a broker has to move the offsets: a search by time may read files."""

KINDS: Final = ("earliest", "latest", "offset", "time")

Json = dict[str, Any]


class Resets:
    """Resets and their undoing."""

    def __init__(self, core: Core, groups: Groups, orders: Orders) -> None:
        self._core = core
        self._groups = groups
        self._orders = orders

    async def reset(
        self,
        name: str,
        topic: str,
        places: Collection[Partition] | None,
        to: Json,
        *,
        dry_run: bool,
        principal: str,
    ) -> list[Json]:
        """Move the group's offsets of a topic, or of some of its partitions; return the changes.

        Args:
            to: ``kind`` and, for ``offset`` and ``time``, ``value``.

        Raises:
            NotFoundError: no such group or topic.  BadRequestError: a partition or the target is malformed.
            ConflictError: a reset of this group is running.  TimedOutError: a member keeps a partition.
            UnavailableError: a broker is not alive.  StandbyError: we do not lead.
        """
        group = self._groups.check(name)
        stored = self._core.topology.topic(topic)
        check_target(to)
        every = {
            Partition(topic, b, n) for b, count in stored.partitions.items() for n in range(count)
        }
        chosen = every if places is None else set(places)
        unknown = sorted(chosen - every)
        if unknown:
            raise BadRequestError(f"topic {topic!r} has no partition {unknown[0]}")
        order = {"op": "reset", "group": name, "topic": topic, "to": to, "dry_run": dry_run}
        what = f"reset to {to['kind']} {to.get('value', '')}".strip()
        return await self._carry_out(group, chosen, order, what, principal)

    async def undo(
        self, name: str, topic: str | None, *, dry_run: bool, principal: str
    ) -> list[Json]:
        """Take back the last reset of the group's offsets, of one topic or all.

        Raises:
            As ``reset``.
        """
        group = self._groups.check(name)
        topics = self._core.topology.topics
        stored = [self._core.topology.topic(topic)] if topic is not None else list(topics.values())
        chosen = {
            Partition(t.row.name, b, n)
            for t in stored
            for b, count in t.partitions.items()
            for n in range(count)
        }
        order = {"op": "undo", "group": name, "topic": topic, "dry_run": dry_run}
        return await self._carry_out(group, chosen, order, "undo of the last reset", principal)

    async def _carry_out(
        self, group: GroupName, chosen: set[Partition], order: Json, what: str, principal: str
    ) -> list[Json]:
        self._core.leader.require()
        brokers = sorted({p.broker_id for p in chosen})
        self._check_alive(brokers)
        if order["dry_run"]:
            return await self._ask(brokers, chosen, order)
        async with self._frozen(group, chosen):
            self._check_alive(brokers)
            changes = await self._ask(brokers, chosen, order)
        for change in changes:
            self._core.chronicle.note(
                "reset",
                group=group,
                topic=change["topic"],
                broker_id=change["broker_id"],
                partition_id=change["partition_id"],
                reason=what,
                principal=principal,
                detail=f"{change['old']} -> {change['new']}",
            )
        return changes

    @asynccontextmanager
    async def _frozen(self, group: GroupName, chosen: set[Partition]) -> AsyncIterator[None]:
        """Nobody has these partitions within the block."""
        core, balancer = self._core, self._core.balancer
        if group in balancer.frozen:
            raise ConflictError(f"offsets of group {group} are being reset already")
        balancer.frozen[group] = chosen
        try:
            balancer.changed(group, "offsets are reset", 0.0)
            until_s = core.now_s() + DRAIN_S
            while self._owners(group, chosen):
                if core.now_s() >= until_s:
                    owners = ", ".join(self._owners(group, chosen))
                    raise TimedOutError(
                        f"{owners} did not let go of the partitions within {DRAIN_S:g} s",
                        hint="stop the consumer, or try again",
                    )
                await deferLater(core.reactor, POLL_S, lambda: None)
                core.leader.require()
            yield
        finally:
            balancer.frozen.pop(group, None)
            balancer.changed(group, "the offsets were reset", 0.0)

    def _owners(self, group: GroupName, chosen: set[Partition]) -> list[str]:
        """Members that hold any of the partitions, or may be about to."""
        core = self._core
        found: list[str] = []
        for client, held in sorted(core.registry.holders(group).items()):
            sent = core.events.sent(group, client)
            coming = sent.partitions if sent is not None else frozenset[Partition]()
            pending = core.events.pending(group, client).take
            if chosen & held or chosen & coming or chosen & pending:
                found.append(client)
        return found

    def _check_alive(self, brokers: Collection[int]) -> None:
        known = self._core.topology.brokers
        dead = [b for b in brokers if b not in known or not known[b].alive]
        if dead:
            raise UnavailableError(f"brokers {dead} are not alive", hint="nothing was changed")

    async def _ask(self, brokers: list[int], chosen: set[Partition], order: Json) -> list[Json]:
        """Ask all brokers at once; a broker that fails is named after all have answered."""
        asked: dict[int, Deferred[Json]] = {}
        for broker_id in brokers:
            mine = dict(order)
            if order["op"] == "reset":
                mine["partitions"] = sorted(
                    p.partition_id for p in chosen if p.broker_id == broker_id
                )
            asked[broker_id] = self._orders.ask(broker_id, mine, RESET_S)
        changes: list[Json] = []
        failure: Exception | None = None
        for broker_id, waiter in asked.items():
            try:
                result = await waiter
                changes += [{**change, "broker_id": broker_id} for change in result["changes"]]
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure
        return sorted(
            changes, key=lambda row: (row["topic"], row["broker_id"], row["partition_id"])
        )


def check_target(to: Json) -> None:
    """Check where offsets shall go.

    Raises:
        BadRequestError: unknown kind, or no proper value.
    """
    kind, value = to.get("kind"), to.get("value")
    if kind not in KINDS:
        raise BadRequestError(f"to.kind: {kind!r} is not one of {', '.join(KINDS)}")
    if kind in ("offset", "time") and (type(value) is not int or value < 0):
        raise BadRequestError(f"to.value: expected a number from 0 up, got {value!r}")
