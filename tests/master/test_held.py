"""Heartbeats wait for something to say."""

from __future__ import annotations

from twisted.internet.task import Clock

from tube.master.held import Held, Outcome


def test_each_wait_ends_once_and_says_why():
    """Woken, timed out, replaced, or its connection is gone."""
    clock = Clock()
    held: Held[str] = Held(clock)
    outcomes = {}

    def wait(name, key, wait_s, owner=None):
        held.hold(key, wait_s, owner).addCallback(lambda outcome: outcomes.update({name: outcome}))

    wait("woken", "a", 5)
    wait("late", "b", 2)
    wait("older", "c", 5)
    wait("newer", "c", 5)
    wait("gone", "d", 5, owner=held)
    assert held.holds("a")
    held.wake("a")
    held.wake("a")
    held.drop(held)
    clock.advance(2)

    assert outcomes == {
        "woken": Outcome.WOKEN,
        "late": Outcome.TIMED_OUT,
        "older": Outcome.SUPERSEDED,
        "gone": Outcome.GONE,
    }
    assert len(held) == 1
    held.wake_all()
    assert outcomes["newer"] is Outcome.WOKEN
    assert not clock.getDelayedCalls()
