"""Who is alive: producers and consumers, and what consumers say they hold.

Callers: the verbs of the master.  Times are seconds of one monotonic clock.  What a consumer holds is what it
reports, never what was planned (style 5.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tube.errors import InconsistentGroupError, NotRegisteredError
from tube.values import ClientId, GroupName, Partition


class Kind(Enum):
    """How a consumer wants its partitions."""

    BALANCED = "balanced"
    BOUND = "bound"
    CLIENT = "client"


Filters = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a consumer registers with; all members of a group must agree on it.

    ``source_count`` is the number of clients expected (-1: unknown), ``node_id`` this one's place among them
    (client-balanced groups), ``required`` the offsets that a bound consumer asks for.
    """

    kind: Kind
    topics: frozenset[str]
    filters: Filters = field(default_factory=dict)
    session_key: str = ""
    select_big: bool = True
    source_count: int = -1
    node_id: int = -1
    required: Mapping[Partition, int] = field(default_factory=dict)


@dataclass(slots=True)
class Producer:
    """A producer that is alive."""

    client_id: ClientId
    host: str
    topics: tuple[str, ...]
    since_s: float
    seen_s: float


@dataclass(slots=True)
class Member:
    """A consumer that is alive; ``ready`` once it sent a heartbeat, so that events can reach it."""

    client_id: ClientId
    host: str
    wanted: Wanted
    since_s: float
    seen_s: float
    held: set[Partition] = field(default_factory=set)
    ready: bool = False


@dataclass(slots=True)
class Group:
    """A consumer group with its members; ``allocated`` after its first acknowledged event."""

    name: GroupName
    wanted: Wanted
    members: dict[ClientId, Member] = field(default_factory=dict)
    allocated: bool = False

    @property
    def kind(self) -> Kind:
        """How its members want their partitions."""
        return self.wanted.kind


@dataclass(frozen=True, slots=True)
class Gone:
    """A consumer that is no longer a member."""

    group: GroupName
    member: Member
    last: bool


class Registry:
    """Producers, and consumers by group."""

    def __init__(self, *, producer_timeout_s: float, consumer_timeout_s: float) -> None:
        self._producer_timeout_s = producer_timeout_s
        self._consumer_timeout_s = consumer_timeout_s
        self.producers: dict[ClientId, Producer] = {}
        self.groups: dict[GroupName, Group] = {}

    # producers

    def touch_producer(
        self, client_id: ClientId, host: str, topics: Iterable[str], now_s: float
    ) -> bool:
        """The producer is alive, and sends to these topics; True when it was not known."""
        known = self.producers.get(client_id)
        if known is None:
            self.producers[client_id] = Producer(client_id, host, tuple(topics), now_s, now_s)
            return True
        known.topics, known.seen_s = tuple(topics), now_s
        return False

    def drop_producer(self, client_id: ClientId) -> bool:
        """The producer said goodbye; True when it was known."""
        return self.producers.pop(client_id, None) is not None

    # consumers

    def join(
        self,
        group_name: GroupName,
        client_id: ClientId,
        host: str,
        wanted: Wanted,
        held: Iterable[Partition],
        now_s: float,
    ) -> bool:
        """Register a consumer with what it still holds; True when it is a new member.

        Raises:
            InconsistentGroupError: it does not agree with the other members.
        """
        group = self.groups.get(group_name)
        others = [m for c, m in group.members.items() if c != client_id] if group else []
        check_consistent(group_name, wanted, others)
        if group is None:
            group = self.groups[group_name] = Group(group_name, wanted)
        group.wanted = wanted
        known = group.members.get(client_id)
        if known is None:
            group.members[client_id] = Member(client_id, host, wanted, now_s, now_s, set(held))
            return True
        known.host, known.wanted, known.seen_s, known.held = host, wanted, now_s, set(held)
        return False

    def touch(self, group_name: GroupName, client_id: ClientId, now_s: float) -> Member:
        """The consumer is alive.

        Raises:
            NotRegisteredError: it is no member; it must register (again).
        """
        member = self.find(group_name, client_id)
        if member is None:
            raise NotRegisteredError(f"{client_id} is not a member of group {group_name}")
        member.seen_s, member.ready = now_s, True
        return member

    def find(self, group_name: GroupName, client_id: ClientId) -> Member | None:
        """The consumer, if it is a member."""
        group = self.groups.get(group_name)
        return None if group is None else group.members.get(client_id)

    def leave(self, group_name: GroupName, client_id: ClientId) -> Gone | None:
        """The consumer said goodbye; None when it was no member."""
        group = self.groups.get(group_name)
        if group is None or client_id not in group.members:
            return None
        member = group.members.pop(client_id)
        if not group.members:
            del self.groups[group_name]
        return Gone(group_name, member, last=not group.members)

    def holders(self, group_name: GroupName) -> dict[ClientId, set[Partition]]:
        """What the members report to hold."""
        group = self.groups.get(group_name)
        return {} if group is None else {c: m.held for c, m in group.members.items()}

    def expire(self, now_s: float) -> tuple[list[Producer], list[Gone]]:
        """Drop everybody who was silent for too long, and return them."""
        producers = [
            p for p in self.producers.values() if now_s - p.seen_s > self._producer_timeout_s
        ]
        for producer in producers:
            del self.producers[producer.client_id]
        silent = [
            (group.name, member.client_id)
            for group, member in self._members()
            if now_s - member.seen_s > self._consumer_timeout_s
        ]
        gone = [self.leave(group_name, client_id) for group_name, client_id in silent]
        return producers, [one for one in gone if one is not None]

    def _members(self) -> Iterator[tuple[Group, Member]]:
        for group in self.groups.values():
            for member in group.members.values():
                yield group, member


def check_consistent(group_name: str, wanted: Wanted, others: Iterable[Member]) -> None:
    """Check what a consumer registers with against the other members of its group.

    Raises:
        InconsistentGroupError: with the code of what differs (spec sections 4.8, 4.9, 8.1).
    """
    for other in others:
        theirs = other.wanted
        facts: list[tuple[int, str, object, object]] = [
            (424, "consume type", wanted.kind.value, theirs.kind.value),
            (425, "topics", sorted(wanted.topics), sorted(theirs.topics)),
            (426, "filters", _sorted(wanted.filters), _sorted(theirs.filters)),
        ]
        if wanted.kind is Kind.BOUND:
            facts += [
                (427, "session key", wanted.session_key, theirs.session_key),
                (428, "selectBig", wanted.select_big, theirs.select_big),
            ]
        facts.append((429, "source count", wanted.source_count, theirs.source_count))
        for code, what, mine, their in facts:
            if mine != their:
                raise InconsistentGroupError(
                    code, f"group {group_name}: {what} {mine} differs from {their} of its members"
                )
        if wanted.kind is Kind.CLIENT and wanted.node_id >= 0 and wanted.node_id == theirs.node_id:
            raise InconsistentGroupError(
                430, f"group {group_name}: node id {wanted.node_id} is that of {other.client_id}"
            )


def _sorted(filters: Filters) -> list[tuple[str, list[str]]]:
    return sorted((topic, sorted(items)) for topic, items in filters.items() if items)
