"""Limits and guards that hold for every test."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Iterator

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, globalLogPublisher


def pytest_collection_finish() -> None:
    """What was imported stays for ever: ``gc.collect`` after each test need not walk through it (80 ms)."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the threads of ``deferToThread``: a pytest-xdist worker would wait for them for ever."""
    if hasattr(session.config, "workerinput") and reactor.threadpool is not None:
        reactor._stopThreadPool()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Give every async test a limit; when it passes, the test is cancelled where it waits."""
    test = pyfuncitem.obj
    if inspect.iscoroutinefunction(test):
        mark = pyfuncitem.get_closest_marker("limit")
        seconds = mark.args[0] if mark else 10

        @functools.wraps(test)
        async def limited(**kwargs: object) -> None:
            await Deferred.fromCoroutine(test(**kwargs)).addTimeout(seconds, reactor)

        pyfuncitem.obj = limited


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[list[LogEvent]]:
    """Fail on an unhandled Deferred error, a logged failure or a timer that is still set."""
    failures: list[LogEvent] = []

    def observe(event: LogEvent) -> None:
        if "log_failure" in event:
            failures.append(event)

    before = set(reactor.getDelayedCalls())
    globalLogPublisher.addObserver(observe)
    yield failures  # a test that provokes a failure clears the list
    gc.collect()  # lost Deferreds report when collected
    globalLogPublisher.removeObserver(observe)
    left = [c for c in reactor.getDelayedCalls() if c.active() and c not in before]
    names = [f"{call.func} in {call.getTime() - reactor.seconds():.3f} s" for call in left]
    for call in left:
        call.cancel()
    assert not failures, "\n".join(e["log_failure"].getTraceback() for e in failures)
    assert not left, f"timers left running: {names}"
