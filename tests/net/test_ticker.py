"""Periodic calls survive their failures and never overlap."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from tube.net.ticker import Ticker, ticking


def test_a_failing_call_is_logged_and_the_next_one_comes(nothing_left_behind) -> None:
    """One exception does not end the ticker."""
    clock, calls = Clock(), []

    def body() -> None:
        calls.append(clock.seconds())
        if len(calls) == 2:
            raise ValueError("once")

    ticker = Ticker(clock, "test", 1.0, body)
    ticker.start()
    clock.pump([1] * 4)
    ticker.stop()
    clock.pump([1] * 4)
    assert calls == [1, 2, 3, 4]
    assert len(nothing_left_behind) == 1
    nothing_left_behind.clear()


def test_a_body_that_waits_delays_the_next_call_and_ends_with_the_ticker() -> None:
    """Calls never overlap; stopping cancels where the body waits."""
    clock, begun, ended = Clock(), [], []

    async def body() -> None:
        begun.append(clock.seconds())
        try:
            await Deferred()
        except CancelledError:
            ended.append(clock.seconds())
            raise

    ticker = Ticker(clock, "test", 1.0, body)
    ticker.start(now=True)
    clock.pump([1] * 5)
    ticker.stop()
    clock.pump([1] * 5)

    assert (begun, ended) == ([0], [5])
    assert clock.getDelayedCalls() == []


async def test_a_ticker_lives_as_long_as_its_block() -> None:
    """``ticking`` starts with the first interval and stops at the end."""
    clock, calls = Clock(), []
    async with ticking(clock, "test", 2.0, lambda: calls.append(clock.seconds())):
        clock.pump([1] * 4)
    clock.pump([1] * 4)

    assert calls == [2, 4]
