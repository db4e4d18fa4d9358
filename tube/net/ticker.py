"""A periodic call that survives its own failures."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from tube.net.clock import Reactor

log = Logger(namespace="tube.net.ticker")


class Ticker:
    """Calls ``body`` every ``interval_s`` seconds; a failing call is logged and the next one comes.

    Bare ``LoopingCall`` and ``TimerService`` stop for good after one exception.  Calls never overlap:
    a body that awaits longer than the interval delays the next call.
    """

    def __init__(
        self,
        reactor: Reactor,
        name: str,
        interval_s: float,
        body: Callable[[], Awaitable[None] | None],
    ) -> None:
        self._name = name
        self._body = body
        self._interval_s = interval_s
        self._running: Deferred[None] | None = None
        self._loop = LoopingCall(self._tick)
        self._loop.clock = reactor

    def start(self, *, now: bool = False) -> None:
        """Begin; the first call comes after one interval, or at once with ``now``."""
        self._loop.start(self._interval_s, now=now)

    def stop(self) -> None:
        """End; a body that is waiting is cancelled."""
        if self._loop.running:
            self._loop.stop()
        if self._running is not None:
            self._running.cancel()

    def _tick(self) -> Deferred[None]:
        self._running = Deferred.fromCoroutine(self._call())
        return self._running

    async def _call(self) -> None:
        try:
            result = self._body()
            if result is not None:
                await result
        except CancelledError:
            pass
        except Exception:
            log.failure("{name}: the periodic call failed", name=self._name)
        finally:
            self._running = None


@asynccontextmanager
async def ticking(
    reactor: Reactor, name: str, interval_s: float, body: Callable[[], Awaitable[None] | None]
) -> AsyncIterator[Ticker]:
    """A ticker that runs as long as the block."""
    ticker = Ticker(reactor, name, interval_s, body)
    ticker.start()
    try:
        yield ticker
    finally:
        ticker.stop()
