"""A whole cluster in this process, for tests of programs that use Tube.

With pytest:

    from tube.testing import tube_cluster  # a fixture

    def test_my_program(tube_cluster):
        tube_cluster.create_topic("orders", partitions=4)
        with tube_cluster.client() as client:
            client.producer("orders").send(b"hello").result()

Without: ``with Cluster(topics={"orders": 4}) as cluster: …``.  On a Twisted reactor:
``async with running(reactor, path)``.
Everything is real: sockets, SQLite, the log on disk; only the processes are one.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import blockingCallFromThread

from tube.broker import app as broker_app
from tube.broker.app import RunningBroker
from tube.client import Client, ClientOptions
from tube.config import BrokerConfig, MasterConfig, load
from tube.errors import TimedOutError
from tube.master import app as master_app
from tube.master.app import RunningMaster
from tube.net.clock import Reactor, use_monotonic_clock

T = TypeVar("T")

START_S = 10.0
"""How long a cluster may take to be ready."""

POLL_S = 0.005


@dataclass
class RunningCluster:
    """A master and its brokers on a reactor; brokers can be stopped and started again."""

    reactor: Reactor
    directory: Path
    overrides: tuple[str, ...] = ()
    master: RunningMaster | None = None
    brokers: dict[int, RunningBroker] = field(default_factory=dict)
    _stacks: dict[int, AsyncExitStack] = field(default_factory=dict)
    _master_stack: AsyncExitStack | None = None

    @property
    def url(self) -> str:
        """What a client is given."""
        assert self.master is not None
        return f"tube://127.0.0.1:{self.master.port}"

    @property
    def http(self) -> str:
        """Where the master's HTTP API is."""
        assert self.master is not None
        return f"http://127.0.0.1:{self.master.http_port}"

    async def start_master(self, *overrides: str) -> RunningMaster:
        """Start the master (again, on its database and its port)."""
        port = self.master.port if self.master is not None else 0
        http_port = self.master.http_port if self.master is not None else 0
        config = load(
            MasterConfig,
            {"port": port, "http": {"port": http_port}},
            [f"database=sqlite:///{self.directory / 'master.db'}", *self.overrides, *overrides],
        )
        self._master_stack = AsyncExitStack()
        self.master = await master_app.serve(self.reactor, config, self._master_stack, upgrade=True)
        return self.master

    async def stop_master(self) -> None:
        """Stop the master as SIGTERM does."""
        stack, self._master_stack = self._master_stack, None
        if stack is not None:
            await stack.aclose()

    async def start_broker(self, broker_id: int, *overrides: str) -> RunningBroker:
        """Start a broker (again, on its directory and its port) and wait until the master knows it."""
        assert self.master is not None
        before = self.brokers.get(broker_id)
        config = load(
            BrokerConfig,
            {
                "broker_id": broker_id,
                "port": before.port if before is not None else 0,
                "masters": [f"127.0.0.1:{self.master.port}"],
                "http": {"port": -1},
                "drain_s": 1.0,
            },
            [f"log.data_dir={self.directory / f'broker-{broker_id}'}", *overrides],
        )
        self._stacks[broker_id] = stack = AsyncExitStack()
        running = self.brokers[broker_id] = await broker_app.serve(self.reactor, config, stack)
        await self.until(lambda: running.uplink.registered and running.catalogue.configured)
        return running

    async def stop_broker(self, broker_id: int) -> None:
        """Stop a broker as SIGTERM does."""
        stack = self._stacks.pop(broker_id, None)
        if stack is not None:
            await stack.aclose()

    async def create_topic(self, name: str, partitions: int = 1, **settings: object) -> None:
        """Create a topic and wait until it takes messages."""
        await _in_thread(
            self.reactor, lambda: create_topic(self.http, name, partitions, **settings)
        )

    async def until(self, condition: Callable[[], object], within_s: float = START_S) -> None:
        """Wait for a condition.

        Raises:
            TimedOutError: it did not hold in time.
        """
        until_s = self.reactor.seconds() + within_s
        while not condition():
            if self.reactor.seconds() > until_s:
                raise TimedOutError(f"the condition did not hold within {within_s:g} s")
            await deferLater(self.reactor, POLL_S, lambda: None)

    async def stop(self) -> None:
        """Stop all."""
        for broker_id in list(self._stacks):
            await self.stop_broker(broker_id)
        await self.stop_master()


@asynccontextmanager
async def running(
    reactor: Reactor, directory: Path, *, brokers: int = 1, overrides: tuple[str, ...] = ()
) -> AsyncIterator[RunningCluster]:
    """A cluster on a reactor that runs; ``overrides`` are options of the master (``key=value``)."""
    cluster = RunningCluster(reactor, directory, overrides)
    try:
        await cluster.start_master()
        for broker_id in range(1, brokers + 1):
            await cluster.start_broker(broker_id)
        yield cluster
    finally:
        await cluster.stop()


class Cluster:
    """A cluster in a background thread, for programs without a reactor.

    The reactor runs in that thread until the process ends; one process may start many clusters.
    """

    def __init__(self, *, brokers: int = 1, topics: Mapping[str, int] | None = None) -> None:
        self._broker_count = brokers
        self._topics = dict(topics or {})
        self._directory = Path(tempfile.mkdtemp(prefix="tube-testing-"))
        self._running: RunningCluster | None = None

    @property
    def url(self) -> str:
        """What a client is given: ``tube://127.0.0.1:port``."""
        return self._started().url

    @property
    def http(self) -> str:
        """Where the master's HTTP API is."""
        return self._started().http

    def client(self, options: ClientOptions | None = None) -> Client:
        """A blocking client of this cluster; close it before the cluster."""
        return Client(self.url, options)

    def create_topic(self, name: str, partitions: int = 1, **settings: object) -> None:
        """Create a topic and wait until it takes messages.

        Args:
            settings: more fields of ``POST /api/v1/topics``, such as ``durable=False``.
        """
        create_topic(self.http, name, partitions, **settings)

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker, to see what the program does then."""
        _on_reactor(lambda: self._started().stop_broker(broker_id))

    def start_broker(self, broker_id: int) -> None:
        """Start it again."""
        _on_reactor(lambda: self._started().start_broker(broker_id))

    def start(self) -> None:
        """Start; ``with`` does it."""
        reactor = _background_reactor()
        cluster = RunningCluster(reactor, self._directory)

        async def begin() -> None:
            await cluster.start_master()
            for broker_id in range(1, self._broker_count + 1):
                await cluster.start_broker(broker_id)

        self._running = cluster
        try:
            _on_reactor(begin)
            for name, partitions in self._topics.items():
                self.create_topic(name, partitions)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop and delete everything; ``with`` does it."""
        cluster, self._running = self._running, None
        if cluster is not None:
            _on_reactor(cluster.stop)
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _started(self) -> RunningCluster:
        if self._running is None:
            raise RuntimeError("the cluster is not started: use `with Cluster() as cluster`")
        return self._running


def create_topic(http: str, name: str, partitions: int, **settings: object) -> None:
    """Create a topic over HTTP and wait until all its partitions take messages.

    Raises:
        TimedOutError: they did not.  urllib.error.HTTPError: the master refused.
    """
    body = json.dumps({"name": name, "partitions": partitions, **settings}).encode()
    topic = _ask(f"{http}/api/v1/topics", body)
    waits = threading.Event()
    for _ in range(int(START_S / POLL_S)):
        if all(deployment["writable"] for deployment in topic["brokers"]):
            return
        waits.wait(POLL_S)
        topic = _ask(f"{http}/api/v1/topics/{name}")
    raise TimedOutError(f"topic {name!r} takes no messages after {START_S:g} s")


def _ask(url: str, body: bytes | None = None) -> Any:
    request = urllib.request.Request(url, data=body)
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return json.load(answer)


_thread: threading.Thread | None = None


def _background_reactor() -> Any:  # Twisted's stubs know the reactor by its interfaces only
    """The reactor, running in a thread of its own."""
    global _thread  # noqa: PLW0603  a process has one reactor
    from twisted.internet import reactor as installed  # noqa: TID251  started here, once

    reactor: Any = installed
    if _thread is None:
        if reactor.running:
            raise RuntimeError("a reactor runs already: use tube.testing.running(reactor, path)")
        use_monotonic_clock(reactor)
        started = threading.Event()
        reactor.callWhenRunning(started.set)
        _thread = threading.Thread(
            target=lambda: reactor.run(installSignalHandlers=False),
            name="tube-testing",
            daemon=True,
        )
        _thread.start()
        started.wait(START_S)
    return reactor


def _on_reactor(f: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on the background reactor and wait for it."""
    reactor = _background_reactor()
    begun: Callable[[], Any] = lambda: Deferred.fromCoroutine(f())  # noqa: E731
    result: T = blockingCallFromThread(reactor, begun)
    return result


async def _in_thread(reactor: Any, f: Callable[[], None]) -> None:
    from twisted.internet.threads import deferToThreadPool

    await deferToThreadPool(reactor, reactor.getThreadPool(), f)


try:
    import pytest
except ImportError:  # only the fixture needs it
    pass
else:

    @pytest.fixture
    def tube_cluster() -> Iterator[Cluster]:
        """A cluster of one master and one broker, new for each test."""
        with Cluster() as cluster:
            yield cluster
