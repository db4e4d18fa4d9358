"""Blocking work in threads: results come back to the reactor, one pool of size 1 keeps order."""

from __future__ import annotations

import threading

import pytest
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, gatherResults

from tube.net.workers import workers


async def test_work_runs_elsewhere_and_results_come_back() -> None:
    """Values and errors, on this thread."""
    async with workers(reactor, "work", 2) as pool:
        assert await pool.call(threading.current_thread) is not threading.current_thread()
        with pytest.raises(ZeroDivisionError):
            await pool.call(lambda: 1 / 0)
        assert await pool.call(int, "77", base=8) == 63


async def test_one_thread_keeps_the_order_of_calls() -> None:
    """A pool of size 1 is a queue."""
    done: list[int] = []
    async with workers(reactor, "work", 1) as pool:
        await gatherResults([pool.call(done.append, i) for i in range(200)])

    assert done == list(range(200))


async def test_leaving_waits_for_what_runs() -> None:
    """No thread is cut off in the middle of a write; a cancelled call still runs, and its result is dropped."""
    entered, done = threading.Event(), []

    def work() -> None:
        entered.set()
        threading.Event().wait(0.05)
        done.append(True)

    async with workers(reactor, "work", 1) as pool:
        running = pool.call(work)
        assert entered.wait(5)
        running.cancel()
        with pytest.raises(CancelledError):
            await running

    assert done == [True]
