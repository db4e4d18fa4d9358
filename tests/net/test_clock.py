"""Timers follow the monotonic clock, whatever the wall clock does."""

from __future__ import annotations

import time

import pytest
from twisted.internet import reactor as running
from twisted.internet.defer import Deferred
from twisted.internet.epollreactor import EPollReactor

from tube.net.clock import use_monotonic_clock, wall_ms


def test_a_stepped_wall_clock_disturbs_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour forward fires nothing early, an hour back freezes nothing."""
    reactor = EPollReactor()
    use_monotonic_clock(reactor)
    fired: list[str] = []
    late = reactor.callLater(600, fired.append, "late")
    soon = reactor.callLater(0.001, fired.append, "soon")
    before = reactor.seconds()
    real = time.time
    for step_s in (3600, -3600):
        monkeypatch.setattr("time.time", lambda step_s=step_s: real() + step_s)
        reactor.runUntilCurrent()
        assert abs(reactor.seconds() - before) < 5
    until_s = time.monotonic() + 2
    while not fired and time.monotonic() < until_s:
        reactor.runUntilCurrent()

    assert fired == ["soon"]
    assert late.active()
    assert not soon.active()
    late.cancel()


async def test_the_wall_clock_is_in_milliseconds() -> None:
    """What people and retention rules read."""
    waited: Deferred[None] = Deferred()
    running.callLater(0, waited.callback, None)
    await waited

    assert abs(wall_ms() - time.time() * 1000) < 1000
