"""Consumer groups on a real cluster: every message once, partitions exclusive, moves minimal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from urllib.request import urlopen

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from tube.broker.holders import Claim
from tube.client import ConsumerOptions
from tube.client.twisted import Client, Consumer, Producer
from tube.client.values import Message, Outgoing
from tube.errors import (
    InconsistentGroupError,
    StaleAssignmentError,
    TimedOutError,
    TopicNotDeployedError,
)
from tube.testing import RunningCluster
from tube.values import GroupName, Partition


class Member:
    """A consumer that reads and acknowledges in the background, and remembers what it saw."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.read: list[Message] = []
        self.taken: list[Partition] = []
        self.dropped: list[Partition] = []
        self.consumer: Consumer | None = None
        self.running: Deferred[None] | None = None
        self.stopping = False

    async def join(self, topics: list[str], group: str, **options: object) -> Member:
        self.consumer = await self.client.consumer(
            topics,
            group,
            ConsumerOptions(**options),
            on_assign=self.taken.extend,
            on_revoke=self.dropped.extend,
        )
        self.running = Deferred.fromCoroutine(self._run())
        return self

    async def _run(self) -> None:
        assert self.consumer is not None
        while not self.stopping:
            for message in await self.consumer.batches(20, 0.05):
                self.read.append(message)
                self.consumer.ack(message)

    async def leave(self) -> None:
        self.stopping = True
        assert self.running is not None
        await self.running
        assert self.consumer is not None
        await self.consumer.close()


async def fill(producer: Producer, count: int, start: int = 0) -> None:
    await producer.send_many(
        [Outgoing(b"%d" % i, key=b"%d" % i) for i in range(start, start + count)]
    )


def balanced(*members: Member, total: int) -> Callable[[], bool]:
    def check() -> bool:
        sizes = [len(m.consumer.assignment) for m in members if m.consumer is not None]
        return sum(sizes) == total and max(sizes) - min(sizes) <= 1

    return check


async def history(cluster: RunningCluster, group: str) -> list[dict]:
    def ask() -> list[dict]:
        with urlopen(
            f"{cluster.http}/api/v1/groups/{group}/history?limit=1000", timeout=5
        ) as answer:
            return json.load(answer)["events"]

    return await deferToThread(ask)


@pytest.mark.limit(30)
async def test_joins_and_leaves_lose_and_double_nothing(cluster: RunningCluster) -> None:
    """Two members share, a third joins, the first leaves, while messages flow: each exactly once."""
    await cluster.create_topic("demo", 8)
    clients = [Client(reactor, cluster.url) for _ in range(4)]
    producer = clients[0].producer("demo")
    await fill(producer, 500)
    first = await Member(clients[1]).join(["demo"], "g1")
    second = await Member(clients[2]).join(["demo"], "g1")
    await cluster.until(balanced(first, second, total=8))
    await fill(producer, 500, 500)
    third = await Member(clients[3]).join(["demo"], "g1")
    await cluster.until(balanced(first, second, third, total=8))
    await fill(producer, 500, 1000)
    await first.leave()
    await cluster.until(balanced(second, third, total=8))
    await fill(producer, 500, 1500)
    members = (first, second, third)
    await cluster.until(lambda: sum(len(m.read) for m in members) >= 2000, 15)
    for member in (second, third):
        await member.leave()
    for client in clients:
        await client.close()

    counts = Counter(int(m.value) for member in members for m in member.read)
    assert counts == Counter(range(2000))
    kinds = Counter(event["kind"] for event in await history(cluster, "g1"))
    assert kinds["join"] == 3
    assert kinds["leave"] == 3
    assert kinds["connected"] > 0


async def test_a_joiner_gets_only_its_share_and_nobody_else_moves(cluster: RunningCluster) -> None:
    """Of twelve partitions a third member takes four: two from each of the others, nothing in between."""
    await cluster.create_topic("demo", 12)
    clients = [Client(reactor, cluster.url) for _ in range(3)]
    first = await Member(clients[0]).join(["demo"], "g1")
    second = await Member(clients[1]).join(["demo"], "g1")
    await cluster.until(balanced(first, second, total=12))
    before = len(first.dropped), len(second.dropped), len(second.taken)
    third = await Member(clients[2]).join(["demo"], "g1")
    await cluster.until(balanced(first, second, third, total=12))

    assert len(third.taken) == 4
    assert len(first.dropped) - before[0] == 2
    assert len(second.dropped) - before[1] == 2
    assert len(second.taken) == before[2]
    for member in (first, second, third):
        await member.leave()
    for client in clients:
        await client.close()


@pytest.mark.limit(30)
async def test_a_member_that_dies_is_replaced_from_its_last_commit(cluster: RunningCluster) -> None:
    """Its connection is cut without a word: after the time-outs the other has all partitions."""
    await cluster.stop()
    cluster.overrides = ("consumer_timeout_s=1",)
    await cluster.start_master()
    await cluster.start_broker(1, "consumer_timeout_s=1")
    await cluster.create_topic("demo", 4)
    dying, living = Client(reactor, cluster.url), Client(reactor, cluster.url)
    await fill(living.producer("demo"), 100)
    first = await dying.consumer(["demo"], "g1")
    await cluster.until(lambda: len(first.assignment) == 4)
    messages = await first.batches(50, 5)
    for message in messages:
        first.ack(message)
    await first.commit()
    _kill(dying)
    second = await Member(living).join(["demo"], "g1")
    await cluster.until(lambda: len(second.read) >= 100 - len(messages), 20)
    await second.leave()
    await living.close()

    assert len({m.value for m in second.read} | {m.value for m in messages}) == 100


async def test_several_topics_and_filters(cluster: RunningCluster, client: Client) -> None:
    """A group reads two topics; in one of them only the message types it asked for."""
    await cluster.create_topic("aa", 2)
    await cluster.create_topic("bb", 2)
    await client.producer("aa").send_many([Outgoing(b"a%d" % i) for i in range(10)])
    await client.producer("bb").send_many(
        [Outgoing(b"b%d" % i, filter="even" if i % 2 == 0 else "odd") for i in range(10)]
    )
    consumer = await client.consumer(["aa", "bb"], "g1", filters={"bb": ["even"]})
    got: list[Message] = []
    while len(got) < 15:
        got += await consumer.batches(100, 2)

    assert sorted(m.value for m in got if m.topic == "aa") == [b"a%d" % i for i in range(10)]
    assert sorted(m.value for m in got if m.topic == "bb") == [b"b%d" % i for i in range(0, 10, 2)]
    assert {m.filter for m in got if m.topic == "bb"} == {"even"}
    assert await consumer.batches(100, 0.3) == []


async def test_what_a_filter_leaves_out_is_no_lag(cluster: RunningCluster, client: Client) -> None:
    """Committed offsets reach the end, but never pass a message that is not acknowledged."""
    await cluster.create_topic("demo", 1)
    producer = client.producer("demo")
    await producer.send_many(
        [Outgoing(b"%d" % i, filter="yes" if i == 2 else "no") for i in range(5)]
    )
    consumer = await client.consumer(["demo"], "g1", filters={"demo": ["yes"]})
    [message] = await consumer.batches(10, 5)
    await producer.send_many([Outgoing(b"x", filter="no")] * 5)
    service = cluster.brokers[1].service

    def committed() -> int | None:
        return service.offsets.get(Claim(GroupName("g1"), "demo", 0), 1)

    await cluster.until(lambda: consumer._core.positions[message.partition].next_offset == 10)
    await consumer.commit()
    assert (committed() or 0) <= 2
    consumer.ack(message)
    await consumer.commit()
    assert committed() == 10


async def test_what_was_not_acknowledged_comes_again(
    cluster: RunningCluster, client: Client
) -> None:
    """Acknowledging a message covers those before it in its partition, and no more."""
    await cluster.create_topic("demo", 1)
    await fill(client.producer("demo"), 10)
    first = await client.consumer(["demo"], "g1")
    messages = await first.batches(10, 5)
    first.ack(messages[6])
    await first.close()
    second = await client.consumer(["demo"], "g1")
    again = await second.batches(10, 5)

    assert [m.offset for m in again] == [7, 8, 9]
    with pytest.raises(StaleAssignmentError):
        first.ack(messages[7])


async def test_pause_resume_and_seek(cluster: RunningCluster, client: Client) -> None:
    """A paused partition is held but silent; after a seek reading goes on there."""
    await cluster.create_topic("demo", 1)
    producer = client.producer("demo")
    await fill(producer, 5)
    consumer = await client.consumer(["demo"], "g1")
    first = await consumer.batches(100, 5)
    partition = first[0].partition
    consumer.pause(partition)
    await fill(producer, 5, 5)
    assert await consumer.batches(100, 0.3) == []
    consumer.resume(partition)
    assert [int(m.value) for m in await consumer.batches(100, 5)] == [5, 6, 7, 8, 9]
    await consumer.seek(partition, 3)

    assert [m.offset for m in await consumer.batches(100, 5)] == [3, 4, 5, 6, 7, 8, 9]


async def test_latest_starts_at_the_end(cluster: RunningCluster, client: Client) -> None:
    """Only what is sent after the group came."""
    await cluster.create_topic("demo", 1)
    producer = client.producer("demo")
    await fill(producer, 3)
    consumer = await client.consumer(["demo"], "g1", ConsumerOptions(start="latest"))
    await cluster.until(lambda: consumer.assignment)
    await fill(producer, 2, 3)

    assert [int(m.value) for m in await consumer.batches(10, 5)] == [3, 4]


async def test_members_must_agree(cluster: RunningCluster, client: Client) -> None:
    """Other topics or filters than the group's, or a topic that is not there, are refused with its number."""
    await cluster.create_topic("aa", 1)
    await cluster.create_topic("bb", 1)
    await client.consumer(["aa"], "g1")
    with pytest.raises(InconsistentGroupError) as topics:
        await client.consumer(["bb"], "g1")
    with pytest.raises(InconsistentGroupError) as filters:
        await client.consumer(["aa"], "g1", filters={"aa": ["x"]})
    with pytest.raises(TopicNotDeployedError):
        await client.consumer(["none"], "g2")

    assert (topics.value.code, filters.value.code) == (425, 426)


async def test_a_consumer_that_is_stuck_leaves_with_a_reason(
    cluster: RunningCluster, client: Client
) -> None:
    """Heartbeats go on, but nobody asks for messages: the error says which limit it was."""
    await cluster.create_topic("demo", 1)
    await fill(client.producer("demo"), 3)
    consumer = await client.consumer(["demo"], "g1", ConsumerOptions(max_processing_s=0.4))
    assert len(await consumer.batches(1, 5)) == 1
    await cluster.until(lambda: not consumer.assignment)
    for _ in range(2):  # what was fetched is gone with the partitions
        with pytest.raises(TimedOutError, match=r"max_processing_s = 0\.4"):
            await consumer.batches(1, 0.1)


def _kill(client: Client) -> None:
    """End a client as SIGKILL does: nothing is said to anybody."""
    for consumer in client._core._consumers:
        consumer._closing = True
        for loop in consumer._loops:
            loop.cancel()
        consumer._pulling.stop(list(consumer.membership.held))
    client._core.links.close()


async def test_messages_without_a_key_spread_over_all_partitions(
    cluster: RunningCluster, client: Client
) -> None:
    """A few thousand short ones are enough, in whatever pieces they are sent."""
    await cluster.create_topic("demo", 4)
    receipts = await client.producer("demo").send_many([b"%d" % i for i in range(4000)])
    counts = Counter(receipt.partition for receipt in receipts)

    assert len(counts) == 4
    assert min(counts.values()) >= 500
