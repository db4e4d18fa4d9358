"""Which client holds which partition for which group.

This is the only guard of exclusivity: the master's plan is a wish, a hold is a fact.  Late, doubled or lost
events can therefore never make two members read one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tube.errors import DuplicateHolderError, NotRegisteredError, PartitionOccupiedError
from tube.values import ClientId, GroupName


class Claim(NamedTuple):
    """What can be held: a partition of a topic, on behalf of a group."""

    group: GroupName
    topic: str
    partition_id: int

    def __str__(self) -> str:
        return f"{self.group}/{self.topic}:{self.partition_id}"


@dataclass(slots=True)
class Hold:
    """A client's hold, and where its reading stands.

    ``pending`` is the offset that the client's next commit moves to: the end of what it was given.
    ``turn`` counts its pulls: a later one takes over from one that still waits.
    """

    client: ClientId
    until_s: float
    filters: frozenset[int] = frozenset()
    features: int = 0
    pending: int | None = None
    peer: str = ""
    since_s: float = 0.0
    turn: int = 0


class Holders:
    """Which client holds which partition for which group; at most one at any time.

    Callers: broker.service.  Times are seconds of one monotonic clock.  ``record(what, claim, client)`` is
    told of every change of holder: *taken*, *released*, *evicted* or *ended* (ran out).
    """

    def __init__(
        self, ttl_s: float, record: Callable[[str, Claim, ClientId], None] | None = None
    ) -> None:
        self._ttl_s = ttl_s
        self._record = record or (lambda _what, _claim, _client: None)
        self._holds: dict[Claim, Hold] = {}

    def __len__(self) -> int:
        return len(self._holds)

    def take(self, claim: Claim, client: ClientId, now_s: float) -> Hold:
        """Give the partition to ``client``, or renew its hold; what was pending is dropped.

        A hold that has run out is removed, but the claimant is refused this one time, as the original
        broker does: the former holder's last requests may still be on their way (spec section 4.3).

        Raises:
            PartitionOccupiedError: another client holds it, or held it until it ran out just now.
        """
        hold = self._holds.get(claim)
        if hold is not None and hold.client != client:
            if now_s >= hold.until_s:
                self._end(claim, hold, "ended")
            raise PartitionOccupiedError(f"{claim} is held by {hold.client}")
        since_s = hold.since_s if hold is not None else now_s
        if hold is None:
            self._record("taken", claim, client)
        self._holds[claim] = hold = Hold(client, now_s + self._ttl_s, since_s=since_s)
        return hold

    def touch(self, claim: Claim, client: ClientId, now_s: float) -> Hold:
        """Renew the hold of ``client`` and return it.

        Raises:
            NotRegisteredError: nobody holds the partition.
            DuplicateHolderError: another client does.
        """
        hold = self.check(claim, client)
        hold.until_s = now_s + self._ttl_s
        return hold

    def check(self, claim: Claim, client: ClientId) -> Hold:
        """Return the hold of ``client`` without renewing it.

        Raises:
            NotRegisteredError: nobody holds the partition.
            DuplicateHolderError: another client does.
        """
        hold = self._holds.get(claim)
        if hold is None:
            raise NotRegisteredError(f"{claim} is held by nobody")
        if hold.client != client:
            raise DuplicateHolderError(f"{claim} is held by {hold.client}")
        return hold

    def release(self, claim: Claim, client: ClientId) -> Hold:
        """End the hold of ``client`` and return what it was.

        Raises:
            NotRegisteredError: nobody holds the partition.
            DuplicateHolderError: another client does.
        """
        hold = self.check(claim, client)
        self._end(claim, hold, "released")
        return hold

    def evict(self, claim: Claim) -> None:
        """End the hold, whoever has it."""
        hold = self._holds.get(claim)
        if hold is not None:
            self._end(claim, hold, "evicted")

    def expire(self, now_s: float) -> list[tuple[Claim, Hold]]:
        """End and return all holds that ran out."""
        gone = [(claim, hold) for claim, hold in self._holds.items() if now_s >= hold.until_s]
        for claim, hold in gone:
            self._end(claim, hold, "ended")
        return gone

    def find(self, claim: Claim) -> Hold | None:
        """Who holds the partition, if anybody."""
        return self._holds.get(claim)

    def of_group(self, group: GroupName) -> Iterator[tuple[Claim, Hold]]:
        """All holds of a group."""
        return ((claim, hold) for claim, hold in self._holds.items() if claim.group == group)

    def all(self) -> Iterator[tuple[Claim, Hold]]:
        """All holds."""
        return iter(self._holds.items())

    def _end(self, claim: Claim, hold: Hold, what: str) -> None:
        del self._holds[claim]
        self._record(what, claim, hold.client)
