"""The next assignment of a group: loads within one, as few moves as possible.

All members of a group subscribe to the same topics (425 otherwise), so any member may get any partition.
The result depends on the values only, never on their order, and planning again changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tube.values import ClientId, Partition

Holdings = Mapping[ClientId, Collection[Partition]]
Assignment = dict[ClientId, frozenset[Partition]]


@dataclass(frozen=True, slots=True)
class Change:
    """What one member must drop and take to get from what it has to what the plan says."""

    drop: frozenset[Partition]
    take: frozenset[Partition]


def plan(
    members: Iterable[ClientId], partitions: Iterable[Partition], holdings: Holdings
) -> Assignment:
    """Give every partition to one member.

    A member keeps what it has up to its share; members that have most get the surplus.  What must move is
    taken from the topics of which its holder has most, so that a newcomer gets some of each.

    Args:
        partitions: those that may be subscribed to; everything else is taken away.
        holdings: what members have now; unknown members are ignored.  Where several claim a partition, the
            one that claims least keeps it.
    """
    ids = sorted(set(members))
    if not ids:
        return {}
    available = frozenset(partitions)
    kept = _kept(ids, available, holdings)
    share, surplus = divmod(len(available), len(ids))
    by_kept = sorted(ids, key=lambda client: (-len(kept[client]), client))
    quota = {client: share + (i < surplus) for i, client in enumerate(by_kept)}
    for client in ids:
        kept[client] -= _released(kept[client], len(kept[client]) - quota[client])

    free = sorted(available.difference(*kept.values()))
    takers = [(len(kept[c]), c) for c in ids if len(kept[c]) < quota[c]]
    heapq.heapify(takers)
    for partition in free:
        load, client = takers[0]
        kept[client].add(partition)
        if load + 1 < quota[client]:
            heapq.heapreplace(takers, (load + 1, client))
        else:
            heapq.heappop(takers)
    return {client: frozenset(kept[client]) for client in ids}


def changes(holdings: Holdings, assignment: Assignment) -> dict[ClientId, Change]:
    """What each member of the assignment must drop and take; members without a change are left out."""
    found = {}
    for client, wanted in assignment.items():
        held = frozenset(holdings.get(client, ()))
        if held != wanted:
            found[client] = Change(drop=held - wanted, take=wanted - held)
    return found


def members_needed(brokers: int, members: int, brokers_per_member_max: int) -> int:
    """How many members the group needs before it gets anything, 0 when it has enough.

    Args:
        brokers: most brokers that serve one of its topics.

    Source: spec section 5.4.
    """
    if members and brokers // members <= brokers_per_member_max:
        return 0
    return max(1, -(-brokers // brokers_per_member_max))


def _kept(
    ids: list[ClientId], available: frozenset[Partition], holdings: Holdings
) -> dict[ClientId, set[Partition]]:
    claims = {client: available.intersection(holdings.get(client, ())) for client in ids}
    kept: dict[ClientId, set[Partition]] = {}
    taken: set[Partition] = set()
    for client in sorted(ids, key=lambda client: (len(claims[client]), client)):
        kept[client] = set(claims[client] - taken)
        taken |= kept[client]
    return kept


def _released(held: set[Partition], count: int) -> set[Partition]:
    """The ``count`` partitions to give away."""
    if count <= 0:
        return set()
    by_topic: dict[str, list[Partition]] = {}
    for partition in sorted(held):
        by_topic.setdefault(partition.topic, []).append(partition)
    largest = [(-len(mine), topic) for topic, mine in by_topic.items()]
    heapq.heapify(largest)
    released: set[Partition] = set()
    for _ in range(count):
        size, topic = largest[0]
        released.add(by_topic[topic].pop())
        heapq.heapreplace(largest, (size + 1, topic))
    return released
