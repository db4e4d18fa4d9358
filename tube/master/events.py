"""What each consumer must be told next.

A plan gives every member things to drop and to take.  They leave as events, one at a time per client:

- first what it must drop; then what it may take, as far as nobody else still has it: a connect of a partition
  leaves only after that partition's disconnect was acknowledged, or its holder closed or expired;
- an event that is not acknowledged is sent again when the client asks again after ``RESEND_S``;
- after ``ROUNDS_MAX`` plans and ``GIVE_UP_S`` it is given up, and the next plan starts from the reports.

Acknowledgements match by (round, action).  Every event of a client has a pair of its own: where the pair of the
plan was used already, because a part of the partitions became free later, a new round number is drawn.

Callers: the verbs of the master.  Times are seconds of one monotonic clock.
Source: spec sections 4.2, 5.6 (ConsumerEventManager.java).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from tube.master.balance import Change
from tube.values import ClientId, GroupName, Partition

RESEND_S: Final = 3.0
"""A client that asks again after this long did not get the event, or lost it."""

ROUNDS_MAX: Final = 10
"""Plans after which an event may be given up (spec section 5.3)."""

GIVE_UP_S: Final = 60.0
"""A storm of joins makes ten plans in seconds; a slow client deserves longer."""

USED_MAX: Final = 64
"""Remembered (round, action) pairs per client."""


class Action(IntEnum):
    """opType on the wire (spec section 4.2)."""

    CONNECT = 1
    DISCONNECT = 2
    ONLY_CONNECT = 10
    ONLY_DISCONNECT = 20

    @property
    def connects(self) -> bool:
        """Whether partitions are to be taken."""
        return self in (Action.CONNECT, Action.ONLY_CONNECT)


@dataclass(frozen=True, slots=True)
class Event:
    """An order to one consumer."""

    round_id: int
    action: Action
    partitions: frozenset[Partition]
    reason: str


@dataclass(slots=True)
class _Sent:
    event: Event
    first_s: float
    last_s: float
    rounds: int = 0


@dataclass(slots=True)
class _Line:
    """The pending orders of one client."""

    round_id: int = 0
    both: bool = False
    reason: str = ""
    drop: set[Partition] = field(default_factory=set)
    take: set[Partition] = field(default_factory=set)
    sent: _Sent | None = None
    used: list[tuple[int, Action]] = field(default_factory=list)


class Events:
    """Orders on their way, by group and client.

    ``draw_round`` returns round numbers that grow.
    """

    def __init__(self, draw_round: Callable[[], int]) -> None:
        self._draw_round = draw_round
        self._lines: dict[GroupName, dict[ClientId, _Line]] = {}

    def set_plan(
        self,
        group: GroupName,
        round_id: int,
        changes: Mapping[ClientId, Change],
        reason: str,
        now_s: float,
    ) -> None:
        """Replace everything that has not been sent by the changes of a new plan.

        Args:
            changes: relative to ``effective``, so what is on its way is not ordered twice.
        """
        lines = self._lines.setdefault(group, {})
        for client, line in lines.items():
            if client not in changes:
                line.drop, line.take = set(), set()
            if line.sent is not None:
                line.sent.rounds += 1
                if line.sent.rounds >= ROUNDS_MAX and now_s - line.sent.first_s >= GIVE_UP_S:
                    line.sent = None
        for client, change in changes.items():
            line = lines.setdefault(client, _Line())
            line.round_id, line.reason = round_id, reason
            line.drop, line.take = set(change.drop), set(change.take)
            line.both = bool(change.drop and change.take)

    def effective(
        self, group: GroupName, holders: Mapping[ClientId, Collection[Partition]]
    ) -> dict[ClientId, set[Partition]]:
        """What the members will have when the events on their way have been carried out."""
        lines = self._lines.get(group, {})
        found = {client: set(held) for client, held in holders.items()}
        for client, held in found.items():
            line = lines.get(client)
            if line is None or line.sent is None:
                continue
            if line.sent.event.action.connects:
                held |= line.sent.event.partitions
            else:
                held -= line.sent.event.partitions
        return found

    def next(
        self,
        group: GroupName,
        client: ClientId,
        holders: Mapping[ClientId, Collection[Partition]],
        now_s: float,
    ) -> Event | None:
        """The event for the answer to a client that asks now, None when there is none.

        Args:
            holders: what the members of the group report to hold.
        """
        line = self._lines.get(group, {}).get(client)
        if line is None:
            return None
        if line.sent is not None:
            if now_s - line.sent.last_s < RESEND_S:
                return None
            line.sent.last_s = now_s
            return line.sent.event
        if line.drop:
            action = Action.DISCONNECT if line.both else Action.ONLY_DISCONNECT
            event = self._event(line, action, line.drop)
            line.drop = set()
        else:
            free = line.take - self._occupied(group, client, holders)
            if not free:
                return None
            action = Action.CONNECT if line.both else Action.ONLY_CONNECT
            event = self._event(line, action, free)
            line.take -= free
        line.sent = _Sent(event, now_s, now_s)
        return event

    def acknowledge(
        self, group: GroupName, client: ClientId, round_id: int, action: int
    ) -> Event | None:
        """The client has carried out an event; returns it, None when it is not the one on its way."""
        line = self._lines.get(group, {}).get(client)
        if line is None or line.sent is None:
            return None
        event = line.sent.event
        if (event.round_id, event.action) != (round_id, action):
            return None
        line.sent = None
        return event

    def sent(self, group: GroupName, client: ClientId) -> Event | None:
        """The event that the client has not acknowledged yet."""
        line = self._lines.get(group, {}).get(client)
        return line.sent.event if line is not None and line.sent is not None else None

    def pending(self, group: GroupName, client: ClientId) -> Change:
        """What the client has still to be told."""
        line = self._lines.get(group, {}).get(client, _Line())
        return Change(frozenset(line.drop), frozenset(line.take))

    def busy(self, group: GroupName) -> bool:
        """Whether anything is pending or on its way."""
        return any(
            line.sent or line.drop or line.take for line in self._lines.get(group, {}).values()
        )

    def drop_client(self, group: GroupName, client: ClientId) -> None:
        """The client is gone, or starts anew: nothing is on its way to it."""
        lines = self._lines.get(group)
        if lines is not None:
            lines.pop(client, None)
            if not lines:
                del self._lines[group]

    def _occupied(
        self, group: GroupName, client: ClientId, holders: Mapping[ClientId, Collection[Partition]]
    ) -> set[Partition]:
        """What others hold, or were told to take."""
        occupied: set[Partition] = set()
        for other, held in holders.items():
            if other != client:
                occupied.update(held)
        for other, line in self._lines.get(group, {}).items():
            if other != client and line.sent is not None:
                occupied.update(line.sent.event.partitions)
        return occupied

    def _event(self, line: _Line, action: Action, partitions: set[Partition]) -> Event:
        round_id = line.round_id
        if (round_id, action) in line.used:
            round_id = self._draw_round()
        line.used = [*line.used[1 - USED_MAX :], (round_id, action)]
        return Event(round_id, action, frozenset(partitions), line.reason)
