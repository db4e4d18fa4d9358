"""A real master and real brokers in this process, on ports of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from pytest_twisted import async_yield_fixture
from twisted.internet import reactor

from tube.client.twisted import Client
from tube.testing import RunningCluster, running


@async_yield_fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    """One master, one broker."""
    async with running(reactor, tmp_path) as started:
        yield started


@async_yield_fixture
async def client(cluster: RunningCluster) -> AsyncIterator[Client]:
    """A Twisted client of the cluster."""
    async with Client(reactor, cluster.url) as made:
        yield made
