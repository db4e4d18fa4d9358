"""A consumer between its master and its brokers, when one of them fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pytest_twisted import async_yield_fixture
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.broker.raw import eventually
from tube.client import ClientOptions, Outgoing
from tube.client.membership import DISCONNECT, Event
from tube.client.twisted import Client
from tube.errors import ClosedError, NotDeliveredError, StaleAssignmentError, TubeError
from tube.testing import RunningCluster, running
from tube.values import Partition


@async_yield_fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    """One master, two brokers."""
    async with running(reactor, tmp_path, brokers=2) as started:
        yield started


@async_yield_fixture
async def client(cluster: RunningCluster) -> AsyncIterator[Client]:
    """A client with short limits."""
    made = Client(reactor, cluster.url, ClientOptions(call_s=2, connect_s=1, close_s=2))
    yield made
    await made.close()


@pytest.mark.limit(25)
async def test_a_dead_broker_keeps_no_commits_back(cluster: RunningCluster, client: Client) -> None:
    """Its own fail, and are reported; those of the living broker are durable."""
    await cluster.create_topic("demo", 4)
    consumer = await client.consumer(["demo"], "g1")
    await cluster.until(lambda: len(consumer.assignment) == 4)
    producer = client.producer("demo")
    for partition in consumer.assignment:
        await producer.send(b"x", partition=partition)
    got = []
    while len(got) < 4:
        got += await consumer.batches(10, 2)
    core = consumer._core
    for loop in core._loops:
        loop.cancel()  # no commits but ours
    dead = next(iter(core.positions)).broker_id  # the one that is asked first
    await cluster.stop_broker(dead)
    for message in got:
        if message.partition in core.positions:
            consumer.ack(message)
    with pytest.raises(TubeError):
        await consumer.commit()
    alive = cluster.brokers[3 - dead].service.offsets
    committed = [value.offset for _, value in alive.of_group("g1")]

    assert committed == [1, 1]
    await cluster.start_broker(dead)


async def test_an_event_that_is_done_at_once_does_not_stop_held_heartbeats(
    cluster: RunningCluster, client: Client
) -> None:
    """Twisted runs a coroutine at once: work without a wait is over before anybody remembers that it began."""
    await cluster.create_topic("demo", 2)
    consumer = await client.consumer(["demo"], "g1")
    await cluster.until(lambda: len(consumer.assignment) == 2)
    core = consumer._core
    core._busy = True
    core._working = core._runtime.spawn(core._work(Event(99, DISCONNECT, ())), core.died)

    assert core._busy is False
    other = await client.consumer(["demo"], "g1")  # an event reaches both quickly
    await cluster.until(lambda: len(consumer.assignment) == len(other.assignment) == 1, 2.5)


async def test_acknowledging_what_is_being_taken_away_is_stale(
    cluster: RunningCluster, client: Client
) -> None:
    """Never a KeyError, whichever of the two tables was changed first."""
    await cluster.create_topic("demo", 1)
    await client.producer("demo").send(b"x")
    consumer = await client.consumer(["demo"], "g1")
    (message,) = await consumer.batches(1, 5)
    core = consumer._core
    position = core.positions.pop(message.partition)
    with pytest.raises(StaleAssignmentError):
        consumer.ack(message)
    core.positions[message.partition] = position
    consumer.ack(message)
    with pytest.raises(StaleAssignmentError):
        core.acked(Partition("demo", 9, 9), 0)


async def test_a_partition_lost_while_it_is_taken_again_is_released(
    cluster: RunningCluster, client: Client
) -> None:
    """Its next owner does not wait for a hold that nobody uses."""
    await cluster.create_topic("demo", 1)
    consumer = await client.consumer(["demo"], "g1")
    await cluster.until(lambda: consumer.assignment)
    core = consumer._core
    (partition,) = core.membership.held
    place = core.membership.held[partition]
    recovering = Deferred.fromCoroutine(core._pulling._recover(place))
    core._pulling.stop([partition])
    core.membership.lost(partition)  # while the register is on its way
    core.positions.pop(partition)
    await recovering

    assert len(cluster.brokers[partition.broker_id].service.holders) == 0


@pytest.mark.limit(20)
async def test_leaving_with_a_dead_broker_is_quick(cluster: RunningCluster, client: Client) -> None:
    """One failed release is enough to know: the others of that broker run out by themselves."""
    await cluster.create_topic("demo", 40)
    consumer = await client.consumer(["demo"], "g1")
    await cluster.until(lambda: len(consumer.assignment) == 40)
    await cluster.stop_broker(2)
    started_s = reactor.seconds()
    await consumer.close()

    assert reactor.seconds() - started_s < 5
    assert len(cluster.brokers[1].service.holders) == 0
    await cluster.start_broker(2)


async def test_closed_consumers_are_forgotten(cluster: RunningCluster, client: Client) -> None:
    """A program that opens and closes consumers all day keeps the last few only."""
    await cluster.create_topic("demo", 1)
    for i in range(4):
        consumer = await client.consumer(["demo"], f"g{i}")
        await consumer.close()
        with pytest.raises(ClosedError):
            await consumer.batches(1, 0.1)

    assert len(client._core._consumers) == 1


@pytest.mark.limit(20)
async def test_closing_gives_up_batches_on_their_way(cluster: RunningCluster) -> None:
    """No broker answers: every send fails with the count, none waits for ever, nothing runs on."""
    await cluster.create_topic("demo", 2)
    client = Client(reactor, cluster.url, ClientOptions(call_s=5, connect_s=1))
    producer = client.producer("demo")
    await producer.send(b"first")
    for broker in cluster.brokers.values():
        for connection in broker.connections.connections:
            connection._transport.pauseProducing()  # frozen: it hears nothing
    failed: list[BaseException] = []
    sends = [
        Deferred.fromCoroutine(producer.send(b"%d" % i)).addErrback(
            lambda failure: failed.append(failure.value)
        )
        for i in range(10)
    ]
    await eventually(lambda: producer._core._lanes)
    with pytest.raises(NotDeliveredError, match="10 messages"):
        await client.close(0.2)
    for one in sends:
        await one.addTimeout(2, reactor)

    assert [type(error) for error in failed] == [NotDeliveredError] * 10
    assert (producer._core.buffered_bytes, producer._core.unsent_count) == (0, 0)


@pytest.mark.limit(20)
async def test_closing_gives_up_messages_for_unknown_topics(cluster: RunningCluster) -> None:
    """Their wait for a route ends with the client."""
    client = Client(reactor, cluster.url)
    failed: list[BaseException] = []
    sending = Deferred.fromCoroutine(client.producer("none").send(b"x")).addErrback(
        lambda failure: failed.append(failure.value)
    )
    with pytest.raises(NotDeliveredError):
        await client.close(0.2)
    await sending

    assert isinstance(failed[0], NotDeliveredError)


async def test_messages_of_a_partition_keep_their_order(
    cluster: RunningCluster, client: Client
) -> None:
    """Through batches, and through a restart of the broker in between."""
    await cluster.create_topic("demo", 1)
    producer = client.producer("demo")
    sends = [
        Deferred.fromCoroutine(producer.send_many([Outgoing(b"%d" % i, key="k")]))
        for i in range(200)
    ]
    receipts = [(await one)[0] for one in sends]

    assert [receipt.offset for receipt in receipts] == list(range(200))
