"""Builds a broker and starts it in order; stopping is the same list backwards."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import deferLater
from twisted.logger import Logger

from tube.broker import offset_file
from tube.broker.admission import Admission
from tube.broker.appender import Appender
from tube.broker.catalogue import Catalogue
from tube.broker.flow import FlowControl
from tube.broker.gateways.tube import TubeGateway
from tube.broker.holders import Claim, Holders
from tube.broker.metrics import BrokerMetrics
from tube.broker.offsets import Offsets
from tube.broker.orders import Orders
from tube.broker.reader import Reader
from tube.broker.service import BrokerService
from tube.broker.topics import Topics
from tube.broker.upkeep import Upkeep
from tube.broker.uplink import Epoch, Uplink, load_epoch, save_epoch
from tube.config import BrokerConfig, parse_address
from tube.errors import NotFoundError, TubeError
from tube.log.store import LogStore
from tube.log.tail import TailCache
from tube.log.values import LogOptions
from tube.net.clock import Reactor, wall_ms
from tube.net.daemon import listening, port_number, stop_listening
from tube.net.framed import FramedFactory
from tube.net.health import TICK_S, ReactorLag, add_health
from tube.net.ticker import ticking
from tube.net.tls import listening_tls
from tube.net.web import Routes, json_site
from tube.net.workers import Workers, workers
from tube.values import Broker, ClientId

log = Logger(namespace="tube.broker")

READERS = 4
EXPIRY_S = 1.0


@dataclass(slots=True)
class RunningBroker:
    """A broker that serves, for tests and ``tube dev``."""

    service: BrokerService
    store: LogStore
    uplink: Uplink
    catalogue: Catalogue
    connections: FramedFactory
    port: int
    http_port: int
    tls_port: int = 0


async def serve(reactor: Reactor, config: BrokerConfig, stack: AsyncExitStack) -> RunningBroker:
    """Start a broker on ``stack``; leaving the stack drains and stops it.

    Raises:
        StoreInUseError: the data directory belongs to another process, broker or format.
        PortInUseError: a port is taken.  ConfigError: a master's address is malformed.
    """
    masters = [parse_address(text) for text in config.masters]
    parts = await _build(reactor, config, stack)
    service, store = parts.service, parts.store
    admission = Admission(wall_ms, time.monotonic)
    factory = _factory(reactor, config, service, admission)
    port = await stack.enter_async_context(listening(reactor, config.host, config.port, factory))
    stack.push_async_callback(_drain, reactor, service, factory, port, config.drain_s)
    secure = listening_tls(reactor, config.host, config.tls, factory)
    tls_port = await stack.enter_async_context(secure)

    lag = ReactorLag(reactor)
    await stack.enter_async_context(ticking(reactor, "reactor lag", TICK_S, lag.tick))
    routes = Routes()
    http_port = await stack.enter_async_context(_http(reactor, config, routes))
    epoch_file = parts.directory / "epoch"
    uplink = Uplink(
        reactor,
        masters=masters,
        broker=Broker(config.broker_id, config.host, port_number(port)),
        http_port=http_port,
        tls_port=tls_port,
        heartbeat_s=config.heartbeat_s,
        catalogue=parts.catalogue,
        flow=service.flow,
        admission=admission,
        orders=Orders(service, wall_ms),
        epoch=Epoch(load_epoch(epoch_file), lambda epoch: save_epoch(epoch_file, epoch)),
    )
    metrics = BrokerMetrics(
        service,
        store,
        lambda: len(factory.connections),
        lambda: uplink.registered,
        lambda: lag.seconds,
    )
    add_health(routes, metrics, lambda: _unready(uplink, store))
    stack.push_async_callback(uplink.stop)
    uplink.start()
    for name, interval_s, body in parts.upkeep.periodic():
        await stack.enter_async_context(ticking(reactor, name, interval_s, body))
    await stack.enter_async_context(ticking(reactor, "expiry", EXPIRY_S, parts.upkeep.expire_holds))
    number = port_number(port)
    return RunningBroker(
        service, store, uplink, parts.catalogue, factory, number, http_port, tls_port
    )


@dataclass(slots=True)
class _Parts:
    """What a broker consists of behind its listeners."""

    directory: Path
    service: BrokerService
    store: LogStore
    upkeep: Upkeep
    catalogue: Catalogue


async def _build(reactor: Reactor, config: BrokerConfig, stack: AsyncExitStack) -> _Parts:
    """The log with its workers, and the service over it; stopping saves the offsets and closes the log."""
    directory = Path(config.log.data_dir)
    disk = await stack.enter_async_context(workers(reactor, "disk", 1))
    reads = await stack.enter_async_context(workers(reactor, "read", READERS))
    background = await stack.enter_async_context(workers(reactor, "background", 1))
    store = await stack.enter_async_context(_store(config, directory, disk))
    offsets = Offsets()
    snapshot = await disk.call(offset_file.load, directory)
    offsets.restore(snapshot, store.recovery.notes)
    await _clamp(offsets, store, disk)

    topics = Topics()
    reader = Reader(reactor, store, reads, TailCache(config.log.tail_cache_bytes))
    appender = Appender(store, disk, wall_ms, reader.appended)
    service = BrokerService(
        topics=topics,
        holders=Holders(config.consumer_timeout_s, _record_hold),
        offsets=offsets,
        flow=FlowControl(),
        store=store,
        appender=appender,
        reader=reader,
        reads=reads,
        now_s=time.monotonic,
        wall_ms=wall_ms,
        pull_bytes=config.pull_bytes,
    )
    upkeep = Upkeep(service, store, disk, background, directory, config, wall_ms)
    stack.push_async_callback(upkeep.checkpoint)
    catalogue = Catalogue(topics, store, disk, reader, offsets)
    return _Parts(directory, service, store, upkeep, catalogue)


def _factory(
    reactor: Reactor, config: BrokerConfig, service: BrokerService, admission: Admission
) -> FramedFactory:
    """What makes connections, plain and TLS."""
    ids = itertools.count(wall_ms() << 20)
    gateway = TubeGateway(service, admission, config.broker_id, lambda: next(ids))
    return FramedFactory(
        reactor,
        gateway.received,
        gateway.lost,
        limit=gateway.limit,
        connections_max=config.connections_max,
    )


@asynccontextmanager
async def _store(config: BrokerConfig, directory: Path, disk: Workers) -> AsyncIterator[LogStore]:
    """The log, opened and closed in the disk worker."""
    options = LogOptions(
        segment_bytes=config.log.segment_bytes, reserve_bytes=config.log.reserve_bytes
    )

    def opened() -> LogStore:
        os.makedirs(directory, exist_ok=True)
        return LogStore.open(
            directory, broker_id=config.broker_id, options=options, now_ms=wall_ms()
        )

    store = await disk.call(opened)
    for warning in store.recovery.warnings:
        log.warn("recovery: {text}", text=warning)
    try:
        yield store
    finally:
        await disk.call(store.close)


def _record_hold(what: str, claim: Claim, client: ClientId) -> None:
    """One line per change of holder: who had a partition at any instant can be read from them."""
    log.debug(
        "hold {what}: {group} {topic}:{partition_id} {client_id}",
        what=what,
        group=claim.group,
        topic=claim.topic,
        partition_id=claim.partition_id,
        client_id=client,
    )


async def _clamp(offsets: Offsets, store: LogStore, disk: Workers) -> None:
    """Move offsets that lie behind the end of their partition back to it.

    A power cut takes the last messages of a topic with ``ack = "written"``, but not the commits of their
    offsets: the group would pass over the next messages that take their places.
    """

    def end(topic_id: int, partition_id: int) -> int | None:
        try:
            return store.bounds(topic_id, partition_id).next_offset
        except NotFoundError:
            return None

    notes = []
    for claim, committed, end_offset in offsets.beyond(end):
        log.warn(
            "{claim}: offset {offset} is beyond the end {end}: it is moved there",
            claim=str(claim),
            offset=committed.offset,
            end=end_offset,
        )
        notes.append(offsets.reset(claim, committed.topic_id, end_offset, wall_ms()))
    if notes:
        try:
            await disk.call(store.commit, [], notes)
        except TubeError as error:  # the next checkpoint saves it
            log.warn("the moved offsets are not saved yet: {error}", error=str(error))


@asynccontextmanager
async def _http(reactor: Reactor, config: BrokerConfig, routes: Routes) -> AsyncIterator[int]:
    """The HTTP port; -1 when none is wanted."""
    if config.http.port < 0:
        yield -1
        return
    async with listening(
        reactor, config.host, config.http.port, json_site(reactor, routes)
    ) as port:
        yield port_number(port)


async def _drain(
    reactor: Reactor,
    service: BrokerService,
    factory: FramedFactory,
    port: IListeningPort,
    drain_s: float,
) -> None:
    """Stop accepting, answer what is in flight, then close all connections."""
    await stop_listening(port)
    service.stopping = True
    service.appender.stop()
    service.reader.wake_all()
    until_s = reactor.seconds() + drain_s
    await service.appender.when_idle()
    while any(c.in_flight for c in factory.connections) and reactor.seconds() < until_s:
        await deferLater(reactor, 0.01, lambda: None)
    for connection in list(factory.connections):
        connection.close()
    closing_until_s = reactor.seconds() + 1.0
    while factory.connections and reactor.seconds() < closing_until_s:
        await deferLater(reactor, 0.01, lambda: None)
    for connection in list(factory.connections):
        connection.abort()


def _unready(uplink: Uplink, store: LogStore) -> list[str]:
    reasons = []
    if not uplink.registered:
        reasons.append("no master knows this broker")
    read_only = store.usage().read_only
    if read_only is not None:
        reasons.append(f"the log is read-only: {read_only}")
    return reasons
