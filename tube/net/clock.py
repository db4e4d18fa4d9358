"""What we ask of a reactor, and its monotonic clock.

``reactor.seconds`` is the wall clock in today's Twisted: a step of one hour forward fires every pending
timer, a step back freezes them (measured).  The first thing a process does is ``use_monotonic_clock``.
"""

from __future__ import annotations

import time

from twisted.internet.interfaces import (
    IReactorCore,
    IReactorFromThreads,
    IReactorSSL,
    IReactorTCP,
    IReactorTime,
)


class Reactor(IReactorTime, IReactorTCP, IReactorSSL, IReactorCore, IReactorFromThreads):
    """The interfaces of the reactor that our reactor rooms use."""


def use_monotonic_clock(reactor: Reactor) -> None:
    """Make the reactor's timers follow the monotonic clock, whatever the wall clock does."""
    reactor.seconds = time.monotonic  # type: ignore[method-assign]


def wall_ms() -> int:
    """The wall clock in milliseconds since 1970: for times that people and retention rules read."""
    return time.time_ns() // 1_000_000
