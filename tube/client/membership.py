"""A consumer's life as a member of its group: what it holds, what it is told, what it reports.

The master's events are orders; what the consumer really holds is what brokers granted, and that is what it
reports.
One event is worked on at a time; its result goes with the next heartbeat.

Source: spec sections 4.1, 4.2, 13.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tube.errors import StaleAssignmentError
from tube.values import Partition
from tube.wire.records import PlacedPartition, Subscription, format_subscription, parse_subscription

CONNECT, DISCONNECT, REPORT, ONLY_CONNECT, ONLY_DISCONNECT = 1, 2, 3, 10, 20
_CONNECTS: Final = (CONNECT, ONLY_CONNECT)
_DISCONNECTS: Final = (DISCONNECT, ONLY_DISCONNECT)

DONE: Final = 2
"""``status`` of an acknowledged event."""

REPORT_EVERY: Final = 6
"""Every so many heartbeats everything is reported, as Java does."""


@dataclass(frozen=True, slots=True)
class Event:
    """An order of the master: take (or drop) these partitions."""

    round_id: int
    op_type: int
    places: tuple[PlacedPartition, ...]
    reason: str = ""

    @property
    def takes(self) -> bool:
        """Whether the partitions are to be taken."""
        return self.op_type in _CONNECTS

    @property
    def drops(self) -> bool:
        """Whether the partitions are to be dropped."""
        return self.op_type in _DISCONNECTS


@dataclass(frozen=True, slots=True)
class Report:
    """What the next heartbeat says: the finished event, and what is held if ``full``."""

    full: bool
    held: list[str]
    done: Event | None
    done_texts: list[str]


@dataclass(slots=True)
class Membership:
    """What one consumer holds, and where it stands with the master.

    Callers: client.consumer.
    """

    client_id: str
    group: str
    held: dict[Partition, PlacedPartition] = field(default_factory=dict)
    _event: Event | None = None
    _done: Event | None = None
    _last_done: tuple[int, int] | None = None
    _beats: int = 0
    _must_report: bool = False

    def event(
        self, round_id: int, op_type: int, texts: Iterable[str], reason: str = ""
    ) -> Event | None:
        """Begin an event, or None when there is nothing to do now.

        A repeated event that is being worked on is passed over; one that is done is acknowledged again.
        """
        if round_id <= 0:
            return None
        if op_type == REPORT:
            self._must_report = True
            return None
        if self._event is not None:
            return None
        places = tuple(parse_subscription(text).place for text in texts)
        event = Event(round_id, op_type, places, reason)
        if (round_id, op_type) == self._last_done and self._settled(event):
            self._done = event
            return None
        if not event.takes and not event.drops:
            return None
        self._event = event
        return event

    def finished(self, event: Event) -> None:
        """The partitions of the event are taken or dropped, as far as brokers allowed."""
        self._event = None
        self._done = event
        self._last_done = (event.round_id, event.op_type)

    def took(self, place: PlacedPartition) -> None:
        """A broker granted the partition."""
        self.held[place.partition] = place

    def lost(self, partition: Partition) -> None:
        """The partition is dropped, or a broker says that it is not ours."""
        if self.held.pop(partition, None) is not None:
            self._must_report = True

    def report(self) -> Report:
        """What to say in the next heartbeat; ``reported`` when the master has heard it."""
        self._beats += 1
        full = self._must_report or self._done is not None or self._beats % REPORT_EVERY == 1
        done = self._done
        texts = [] if done is None else [self._text(place) for place in done.places]
        return Report(full, self.held_texts() if full else [], done, texts)

    def reported(self, report: Report) -> None:
        """The master answered a heartbeat with this report."""
        if report.full:
            self._must_report = False
        if report.done is self._done:
            self._done = None

    def forgotten(self) -> None:
        """The master does not know us: after registering anew, events of before mean nothing."""
        self._done = self._last_done = None
        self._must_report = True

    def held_texts(self) -> list[str]:
        """The held partitions as the master's strings."""
        return [self._text(place) for _, place in sorted(self.held.items())]

    def check(self, partition: Partition) -> None:
        """Refuse what is done for a partition that is not held any more.

        Raises:
            StaleAssignmentError: the partition has moved to another member.
        """
        if partition not in self.held:
            raise StaleAssignmentError(
                f"{partition} was taken from {self.client_id} of group {self.group}",
                hint=f"who has it now? try: tube group describe {self.group}",
            )

    def _settled(self, event: Event) -> bool:
        """Whether what we hold is what the event wants."""
        return all((place.partition in self.held) == event.takes for place in event.places)

    def _text(self, place: PlacedPartition) -> str:
        return format_subscription(Subscription(self.client_id, self.group, place))
