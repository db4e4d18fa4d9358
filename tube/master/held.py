"""Heartbeats that wait for something to say (design section 8)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from tube.net.clock import Reactor

K = TypeVar("K", bound=Hashable)


class Outcome(Enum):
    """Why a wait has ended."""

    WOKEN = 1
    TIMED_OUT = 2
    SUPERSEDED = 3
    GONE = 4


@dataclass(slots=True)
class _Wait:
    waiter: Deferred[Outcome]
    timer: IDelayedCall
    owner: object


class Held(Generic[K]):
    """At most one waiting heartbeat per key; a newer one ends the older."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._waits: dict[K, _Wait] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def holds(self, key: K) -> bool:
        """Whether somebody waits under this key."""
        return key in self._waits

    def hold(self, key: K, wait_s: float, owner: object = None) -> Deferred[Outcome]:
        """Wait until ``wake``, or ``wait_s`` passed; ``owner`` is what ``drop`` names."""
        self._end(key, Outcome.SUPERSEDED)
        waiter: Deferred[Outcome] = Deferred()
        timer = self._reactor.callLater(wait_s, self._end, key, Outcome.TIMED_OUT)
        self._waits[key] = _Wait(waiter, timer, owner)
        return waiter

    def wake(self, key: K) -> None:
        """There is something to say."""
        self._end(key, Outcome.WOKEN)

    def wake_all(self) -> None:
        """There is something to say to everybody."""
        for key in list(self._waits):
            self._end(key, Outcome.WOKEN)

    def supersede(self, key: K) -> None:
        """A newer heartbeat came: its older one gets an empty answer."""
        self._end(key, Outcome.SUPERSEDED)

    def drop(self, owner: object) -> None:
        """Nobody listens any more for what ``owner`` waits for."""
        for key in [key for key, wait in self._waits.items() if wait.owner is owner]:
            self._end(key, Outcome.GONE)

    def _end(self, key: K, outcome: Outcome) -> None:
        wait = self._waits.pop(key, None)
        if wait is not None:
            if wait.timer.active():
                wait.timer.cancel()
            wait.waiter.callback(outcome)
