"""Plans groups when something changed, and as a safety net all of them now and then.

Changes are collected for ``delay_s``, so that ten consumers that start together make one round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from tube.master import balance
from tube.master.balance import Change
from tube.master.chronicle import Chronicle
from tube.master.events import Events
from tube.master.held import Held
from tube.master.registry import Group, Kind, Registry
from tube.master.topology import Topology
from tube.net.clock import Reactor
from tube.values import ClientId, GroupName, Partition

log = Logger(namespace="tube.master.balancing")

REASONS_MAX: Final = 3
"""Reasons named in a round; a mass start has hundreds."""

RETRY_S: Final = 1.0
"""A partition that could not be taken (410: its old holder still holds it at the broker) is tried again then."""


class Balancer:
    """Turns changes into plans, and plans into events."""

    def __init__(
        self,
        reactor: Reactor,
        *,
        registry: Registry,
        events: Events,
        topology: Topology,
        chronicle: Chronicle,
        held: Held[tuple[GroupName, ClientId]],
        draw_round: Callable[[], int],
        now_s: Callable[[], float],
        delay_s: float,
        brokers_per_member_max: int,
    ) -> None:
        self._reactor = reactor
        self._registry = registry
        self._events = events
        self._topology = topology
        self._chronicle = chronicle
        self._held = held
        self._draw_round = draw_round
        self._now_s = now_s
        self._delay_s = delay_s
        self._brokers_per_member_max = brokers_per_member_max
        self._due: dict[GroupName, float] = {}
        self._reasons: dict[GroupName, list[str]] = {}
        self._held_back: dict[GroupName, float] = {}
        self._timer: IDelayedCall | None = None
        self._stopped = False
        self.frozen: dict[GroupName, set[Partition]] = {}
        self.plans: dict[GroupName, balance.Assignment] = {}
        self.rounds: dict[GroupName, int] = {}
        self.waiting: dict[GroupName, str] = {}
        self.planned = 0
        self.moves = 0

    def stop(self) -> None:
        """No timer stays behind."""
        self._stopped = True
        self._due.clear()
        self._schedule()

    def hold_back(self, groups: Iterable[GroupName], wait_s: float) -> None:
        """Hand out nothing to these groups before their members had time to report (spec 5.9, 8)."""
        until_s = self._now_s() + wait_s
        self._held_back = dict.fromkeys(groups, until_s)

    def is_held_back(self, group: GroupName) -> bool:
        """Whether the group's members still have time to report."""
        return self._now_s() < self._held_back.get(group, 0.0)

    def changed(self, group: GroupName, reason: str, delay_s: float | None = None) -> None:
        """Plan the group soon, because of ``reason``."""
        reasons = self._reasons.setdefault(group, [])
        if len(reasons) <= REASONS_MAX and reason not in reasons:
            reasons.append(reason)
        due_s = self._now_s() + (self._delay_s if delay_s is None else delay_s)
        self._due[group] = min(due_s, self._due.get(group, due_s))
        self._schedule()

    def topics_changed(self, topics: Iterable[str], reason: str) -> None:
        """Plan the groups that read any of these topics."""
        names = set(topics)
        for group in self._registry.groups.values():
            if names & group.wanted.topics:
                self.changed(group.name, reason)

    def look_at_all(self) -> None:
        """The safety net: plan every group, also for no reason."""
        for group in self._registry.groups.values():
            self._due.setdefault(group.name, self._now_s())
        self._schedule()

    def forget(self, group: GroupName) -> None:
        """The group has no members."""
        for table in (self._due, self._reasons, self.plans, self.waiting):
            table.pop(group, None)

    def wake_takers(self, group: GroupName) -> None:
        """Partitions may have become free: answer those who wait for them."""
        found = self._registry.groups.get(group)
        for client in found.members if found is not None else ():
            if self._events.pending(group, client).take:
                self._held.wake((group, client))

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due and not self._stopped:
            wait_s = max(0.0, min(self._due.values()) - self._now_s())
            self._timer = self._reactor.callLater(wait_s, self._run)

    def _run(self) -> None:
        self._timer = None
        now_s = self._now_s()
        for name in [name for name, due_s in self._due.items() if due_s <= now_s + 0.001]:
            del self._due[name]
            group = self._registry.groups.get(name)
            try:
                if group is not None:
                    self._plan(group, now_s)
            except Exception:  # one group must not stop the others
                log.failure("group {group} cannot be planned", group=name)
        self._schedule()

    def _plan(self, group: Group, now_s: float) -> None:
        name = group.name
        self.waiting.pop(name, None)
        if group.kind is Kind.CLIENT:
            self._reasons.pop(name, None)
            return
        until_s = self._held_back.get(name, 0.0)
        if now_s < until_s:
            self.waiting[name] = "after the fail-over its members have time to report"
            self._due[name] = until_s
            return
        members = [m.client_id for m in group.members.values() if m.ready or m.held]
        why_not = self._why_not(group)
        if why_not or not members:
            self.waiting[name] = why_not or "no member has asked for its partitions yet"
            return
        partitions = self._topology.subscribable(group.wanted.topics)
        partitions -= self.frozen.get(name, set())
        effective = self._events.effective(name, self._registry.holders(name))
        wished = {c: effective[c] | self._required(group, c) for c in members}
        assignment = balance.plan(members, partitions, wished)
        changes = balance.changes(effective, assignment)
        reason = self._reason(name)
        round_id = self._draw_round() if changes else self.rounds.get(name, 0)
        self._events.set_plan(name, round_id, changes, reason, now_s)
        self.plans[name] = assignment
        self.planned += 1
        if changes:
            self.rounds[name] = round_id
            self._announce(name, round_id, changes, reason)

    def _announce(
        self, name: GroupName, round_id: int, changes: dict[ClientId, Change], reason: str
    ) -> None:
        moved = sum(len(change.take) for change in changes.values())
        dropped = sum(len(change.drop) for change in changes.values())
        self.moves += moved
        detail = f"{moved} to take, {dropped} to drop, {len(changes)} members"
        self._chronicle.note("plan", group=name, round_id=round_id, reason=reason, detail=detail)
        log.info(
            "group {group}: {moved} partitions move: {reason}",
            group=name,
            moved=moved,
            reason=reason,
            round_id=round_id,
        )
        for client in changes:
            self._held.wake((name, client))

    def _why_not(self, group: Group) -> str:
        """Why the group gets nothing at this time, "" when it does."""
        wanted = group.wanted
        if group.kind is Kind.BOUND and not group.allocated:
            missing = wanted.source_count - len(group.members)
            if missing > 0:
                return f"{missing} of {wanted.source_count} members have not come yet"
        if group.allocated:
            return ""
        topics = [self._topology.topics[t] for t in wanted.topics if t in self._topology.topics]
        brokers = max((len(topic.partitions) for topic in topics), default=0)
        needed = balance.members_needed(brokers, len(group.members), self._brokers_per_member_max)
        return f"it needs {needed} members for {brokers} brokers" if needed else ""

    def _required(self, group: Group, client: ClientId) -> set[Partition]:
        """Partitions that a bound consumer asked for with the winning offset (spec section 4.8)."""
        if group.kind is not Kind.BOUND or group.allocated:
            return set()
        best: dict[Partition, tuple[int, ClientId]] = {}
        choose = max if group.wanted.select_big else min
        for member in group.members.values():
            for partition, offset in member.wanted.required.items():
                mine = (offset, member.client_id)
                best[partition] = choose(best.get(partition, mine), mine)
        return {partition for partition, (_, winner) in best.items() if winner == client}

    def _reason(self, name: GroupName) -> str:
        reasons = self._reasons.pop(name, [])
        if not reasons:
            return "the plan was looked at again"
        more = ", and more" if len(reasons) > REASONS_MAX else ""
        return "; ".join(reasons[:REASONS_MAX]) + more
