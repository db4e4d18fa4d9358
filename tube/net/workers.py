"""The only door to threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from tube.net.clock import Reactor

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """A named pool of threads for one kind of blocking work; size 1 makes its calls sequential."""

    def __init__(self, reactor: Reactor, name: str, size: int) -> None:
        self._reactor = reactor
        self._pool = ThreadPool(minthreads=0, maxthreads=size, name=name)

    def start(self) -> None:
        """Accept calls.  Threads are made when the first calls need them."""
        self._pool.start()

    def call(self, f: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """Run ``f`` in a worker; the result comes back on the reactor thread.

        Cancelling the Deferred does not stop the thread: the work may still happen.
        """
        return deferToThreadPool(self._reactor, self._pool, f, *args, **kwargs)

    def stop(self) -> None:
        """Wait for what is running, then end the threads."""
        self._pool.stop()


@asynccontextmanager
async def workers(reactor: Reactor, name: str, size: int) -> AsyncIterator[Workers]:
    """Workers that live as long as the block."""
    pool = Workers(reactor, name, size)
    pool.start()
    try:
        yield pool
    finally:
        pool.stop()
