"""What operators do with consumer groups: create, delete, look at, explain, give rules."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tube.errors import ConflictError, NotFoundError
from tube.master.core import Core
from tube.master.db import groups as group_rows
from tube.master.db.groups import RuleRow
from tube.master.orders import Orders
from tube.master.registry import Group, Kind
from tube.values import ClientId, GroupName, Partition
from tube.wire import flow, records

Json = dict[str, Any]


class Groups:
    """Groups as operators see them: those with members, and those that are remembered."""

    def __init__(self, core: Core, orders: Orders) -> None:
        self._core = core
        self._orders = orders

    def names(self) -> list[GroupName]:
        """All groups.

        Raises:
            StandbyError: we do not lead.
        """
        self._core.leader.require()
        return [GroupName(n) for n in sorted({*self._core.groups, *self._core.registry.groups})]

    def check(self, name: str) -> GroupName:
        """The name of a group that exists.

        Raises:
            NotFoundError: no such group.  StandbyError: we do not lead.
        """
        if name not in self.names():
            raise NotFoundError(f"group {name!r} does not exist")
        return GroupName(name)

    async def create(self, name: str, principal: str) -> GroupName:
        """Remember a group before it has members.

        Raises:
            BadRequestError: the name is malformed.  ConflictError: it exists.  StandbyError: we do not lead.
        """
        records.check_group(name)
        core = self._core
        async with core.group_lock:
            epoch = core.leader.require()
            row = await core.database.write(group_rows.add, epoch, name, core.wall_ms())
            core.leader.require()
            core.groups[name] = row
        core.chronicle.note("admin", group=name, principal=principal, detail="created")
        return GroupName(name)

    async def delete(self, name: str, principal: str) -> None:
        """Forget a group, its rules and its offsets on all brokers that are alive.

        Raises:
            NotFoundError: no such group.  ConflictError: it has members.  StandbyError: we do not lead.
        """
        core, group = self._core, self.check(name)
        async with core.group_lock:
            epoch = core.leader.require()
            if group in core.registry.groups:
                count = len(core.registry.groups[group].members)
                raise ConflictError(f"group {name!r} has {count} members", hint="stop them first")
            alive = [b for b, state in core.topology.brokers.items() if state.alive]
            order = {"op": "forget", "group": name, "topic": None}
            _, missing = await self._orders.ask_each(alive, order)
            await core.database.write(group_rows.delete, epoch, name)
            core.leader.require()
            core.groups.pop(name, None)
            if core.rules.pop(name, None) is not None:
                core.facts_changed()
        away = sorted({*missing, *(b for b in core.topology.brokers if b not in alive)})
        detail = "deleted" + (f"; brokers {away} keep their offsets of it" if away else "")
        core.chronicle.note("admin", group=name, principal=principal, detail=detail)

    def state(self, name: GroupName) -> str:
        """``stable``, ``balancing`` or ``empty``."""
        group = self._core.registry.groups.get(name)
        if group is None:
            return "empty"
        if group.kind is Kind.CLIENT:
            return "stable"
        busy = self._core.events.busy(name) or name in self._core.balancer.waiting
        return "balancing" if busy or self._unassigned(group) else "stable"

    def summary(self, name: GroupName) -> Json:
        """A line of the list of groups."""
        group = self._core.registry.groups.get(name)
        return {
            "name": name,
            "members": len(group.members) if group is not None else 0,
            "topics": sorted(group.wanted.topics) if group is not None else [],
            "state": self.state(name),
            "round_id": self._core.balancer.rounds.get(name, 0),
        }

    def details(self, name: GroupName) -> Json:
        """Everything about a group."""
        core = self._core
        group = core.registry.groups.get(name)
        members = group.members if group is not None else {}
        filters = group.wanted.filters if group is not None else {}
        age_ms = core.wall_ms() - int(core.now_s() * 1000)
        return {
            "name": name,
            "state": self.state(name),
            "round_id": core.balancer.rounds.get(name, 0),
            "topics": sorted(group.wanted.topics) if group is not None else [],
            "filters": {topic: sorted(items) for topic, items in sorted(filters.items())},
            "members": [
                {
                    "client_id": member.client_id,
                    "host": member.host,
                    "since_ms": age_ms + int(member.since_s * 1000),
                    "last_seen_ms": age_ms + int(member.seen_s * 1000),
                    "partitions": [partition_json(p) for p in sorted(member.held)],
                    "pending": self._pending(name, member.client_id),
                }
                for member in sorted(members.values(), key=lambda m: m.client_id)
            ],
            "unassigned": [
                partition_json(p) for p in sorted(self._unassigned(group) if group else ())
            ],
        }

    async def offsets(self, name: GroupName) -> Json:
        """How far the group is, as its brokers say; partitions of its topics and those with an offset."""
        core = self._core
        group = core.registry.groups.get(name)
        topics = group.wanted.topics if group is not None else frozenset[str]()
        order = {"op": "describe", "topics": [], "group": name}
        answers, missing = await self._orders.ask_each(sorted(core.topology.brokers), order)
        rows = []
        for broker_id, answer in sorted(answers.items()):
            for part in answer["partitions"]:
                if part["committed"] is None and part["topic"] not in topics:
                    continue
                seen = part["first"] if part["committed"] is None else part["committed"]
                rows.append(
                    {
                        "topic": part["topic"],
                        "broker_id": broker_id,
                        "partition_id": part["partition_id"],
                        "committed": part["committed"],
                        "first": part["first"],
                        "next": part["next"],
                        "lag": max(0, part["next"] - max(seen, part["first"])),
                        "holder": part["holder"],
                    }
                )
        rows.sort(key=lambda row: (row["topic"], row["broker_id"], row["partition_id"]))
        return {
            "partitions": rows,
            "lag": sum(row["lag"] for row in rows),
            "missing_brokers": missing,
        }

    def explain(self, name: GroupName, topic: str | None, only: Partition | None) -> Json:
        """Who has each partition, who shall have it, and why."""
        core = self._core
        group = core.registry.groups.get(name)
        topics = group.wanted.topics if group is not None else frozenset[str]()
        if topic is not None and topic not in topics:
            return {"summary": f"group {name} does not read topic {topic}", "partitions": []}
        partitions = [p for p in _partitions(core, topics) if topic in (None, p.topic)]
        if only is not None:
            partitions = [only]
        rows = [self._explained(name, group, partition) for partition in sorted(partitions)]
        lacking = sum(row["holder"] is None for row in rows)
        summary = f"{len(rows)} partitions, {lacking} without a holder"
        waiting = core.balancer.waiting.get(name)
        if group is None:
            summary = "the group has no members"
        elif waiting is not None:
            summary += f"; nothing is assigned: {waiting}"
        return {"summary": summary, "partitions": rows}

    def rules(self, scope: str) -> list[Any]:
        """The flow-control rules of a group, or of the cluster ("").

        Raises:
            StandbyError: we do not lead.
        """
        self._core.leader.require()
        text = self._core.rule(scope)[1]
        parsed: list[Any] = json.loads(text) if text.strip() else []
        return parsed

    async def set_rules(self, scope: str, rules: list[Any], principal: str) -> list[Any]:
        """Replace the flow-control rules of a group, or of the cluster ("").

        Raises:
            BadRequestError: they are malformed.  NotFoundError: no such group.  StandbyError: we do not lead.
        """
        core = self._core
        if scope:
            self.check(scope)
        control = flow.parse_flow_control(json.dumps(rules))
        check_id = max(core.wall_ms(), core.rule(scope)[0] + 1)
        row = RuleRow(scope=scope, check_id=check_id, rules=flow.format_flow_control(control))
        async with core.admin_lock:
            await core.database.write(group_rows.set_rules, core.leader.require(), row)
            core.leader.require()
            core.rules[scope] = row
        core.facts_changed()
        detail = f"flow rules: {row.rules}"
        core.chronicle.note("admin", group=scope or None, principal=principal, detail=detail)
        return self.rules(scope)

    def _pending(self, name: GroupName, client_id: ClientId) -> str | None:
        sent = self._core.events.sent(name, client_id)
        pending = self._core.events.pending(name, client_id)
        parts = []
        if sent is not None:
            what = "take" if sent.action.connects else "drop"
            parts.append(f"was told to {what} {len(sent.partitions)} (round {sent.round_id})")
        if pending.drop:
            parts.append(f"shall drop {len(pending.drop)}")
        if pending.take:
            parts.append(f"shall take {len(pending.take)}")
        return ", ".join(parts) or None

    def _unassigned(self, group: Group) -> set[Partition]:
        held = [member.held for member in group.members.values()]
        return self._core.topology.subscribable(group.wanted.topics).difference(*held)

    def _explained(self, name: GroupName, group: Group | None, partition: Partition) -> Json:
        core = self._core
        members = group.members if group is not None else {}
        holder = next((c for c, m in sorted(members.items()) if partition in m.held), None)
        plan = core.balancer.plans.get(name, {})
        planned = next((c for c, wished in sorted(plan.items()) if partition in wished), None)
        return {
            **partition_json(partition),
            "holder": holder,
            "planned": planned,
            "why": self._why(name, partition, holder, planned),
        }

    def _why(
        self,
        name: GroupName,
        partition: Partition,
        holder: ClientId | None,
        planned: ClientId | None,
    ) -> str:
        core = self._core
        waiting = core.balancer.waiting.get(name)
        if waiting is None:
            members = name in core.registry.groups
            waiting = "not planned yet" if members else "the group has no members"
        frozen = partition in core.balancer.frozen.get(name, ())
        reasons = [
            core.topology.why_not(partition),
            "its offset is being reset" if frozen else "",
            waiting if planned is None else "",
            f"{holder} holds it, as planned" if holder == planned else "",
        ]
        return next(filter(None, reasons), "") or self._moving(name, partition, holder, planned)

    def _moving(
        self,
        name: GroupName,
        partition: Partition,
        holder: ClientId | None,
        planned: ClientId | None,
    ) -> str:
        """Where a partition is on its way from its holder to the one that shall have it."""
        for client in (holder, planned):
            sent = self._core.events.sent(name, client) if client is not None else None
            if sent is not None and partition in sent.partitions:
                what = "take" if sent.action.connects else "drop"
                return (
                    f"{client} was told to {what} it in round {sent.round_id} and has not answered"
                )
        if holder is not None:
            return f"{holder} shall drop it and has not asked for its orders since"
        return f"{planned} shall take it and has not asked for its orders since"


def partition_json(partition: Partition) -> Json:
    """A partition as the API shows it."""
    return {
        "topic": partition.topic,
        "broker_id": partition.broker_id,
        "partition_id": partition.partition_id,
    }


def _partitions(core: Core, topics: Iterable[str]) -> list[Partition]:
    """All partitions of the topics, whatever their state."""
    found = []
    for name in topics:
        topic = core.topology.topics.get(name)
        for broker_id, count in topic.partitions.items() if topic is not None else ():
            found += [Partition(name, broker_id, n) for n in range(count)]
    return found
