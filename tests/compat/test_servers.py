"""Our client against Apache TubeMQ's own master and broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet import reactor

from tests.compat import toolchains
from tests.compat.conftest import missing
from tests.compat.java_servers import JavaServers
from tests.faults.processes import wait_until
from tube.client import Client, ClientOptions, Outgoing, ProducerOptions
from tube.client.twisted import Client as TwistedClient

TOPICS = {"blocking": (2, 2), "shared": (2, 2), "single": (1, 1), "reactor": (2, 2)}
"""Partitions in a store, and stores."""
PATIENCE = ProducerOptions(delivery_s=90)
"""The original master lets a new broker wait before it takes messages."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaServers]:
    """Master and broker of Apache TubeMQ with the topics of these tests."""
    try:
        made = JavaServers(tmp_path_factory.mktemp("servers"))
    except toolchains.MissingError as error:
        missing("java", error)
    try:
        made.start()
        for topic, (partitions, stores) in TOPICS.items():
            made.add_topic(topic, partitions, stores)
        made.start_broker()
        yield made
    finally:
        made.close()


def test_the_blocking_client_sends_and_reads_at_the_original_servers(servers: JavaServers) -> None:
    """Types, headers, keys and 300 kB come back as they were sent, by the original calls only."""
    sent = [Outgoing(b"m%d" % i, filter="t1", headers={"a": "b"}, key=b"k") for i in range(50)]
    sent.append(Outgoing(bytes(range(250)) * 1200))
    with Client(servers.url) as client:
        producer = client.producer("blocking", PATIENCE)
        receipts = producer.send_many(sent)
        consumer = client.consumer(["blocking"], "readers")
        read = []

        def all_read() -> bool:
            for message in consumer.batches(50, 0.5):
                read.append(message)
                consumer.ack(message)
            return len(read) >= len(sent)

        wait_until(all_read, 60, "all messages")
        consumer.commit()

    assert not any(receipt.durable for receipt in receipts)
    assert sorted(m.value for m in read) == sorted(bytes(o.value) for o in sent)
    small = [message for message in read if len(message.value) < 100]
    assert {(m.filter, m.key, m.headers["a"]) for m in small} == {("t1", b"k", "b")}


def test_one_partition_is_read_batch_by_batch_and_each_message_once(servers: JavaServers) -> None:
    """The original broker gives a batch again until it is committed: the next pull waits for that."""
    with Client(servers.url) as client:
        producer = client.producer("single", PATIENCE)
        consumer = client.consumer(["single"], "lonely")
        read: list[bytes] = []
        for wave in range(3):
            values = [b"%d-%d" % (wave, i) for i in range(20)]
            producer.send_many(values)

            def wave_read(last: bytes = values[-1]) -> bool:
                for message in consumer.batches(7, 0.2):
                    read.append(message.value)
                    consumer.ack(message)
                return last in read

            wait_until(wave_read, 60, f"wave {wave}")

    assert read == [b"%d-%d" % (wave, i) for wave in range(3) for i in range(20)]


def test_two_members_share_at_the_original_master(servers: JavaServers) -> None:
    """The original balancer's events are obeyed: the partitions are shared, and taken over on a goodbye."""
    options = ClientOptions(heartbeat_s=1.0)
    with Client(servers.url, options) as one, Client(servers.url, options) as two:
        first = one.consumer(["shared"], "sharers")
        wait_until(lambda: polled(first) == 4, 60, "the first has all")
        second = two.consumer(["shared"], "sharers")
        wait_until(lambda: (polled(first), polled(second)) == (2, 2), 60, "two share")
        first.close()
        wait_until(lambda: polled(second) == 4, 60, "the second has all")


def polled(consumer) -> int:
    """Ask for messages; how many partitions are held."""
    consumer.batches(10, 0.05)
    return len(consumer.assignment)


@pytest.mark.limit(120)
async def test_the_twisted_client_sends_and_reads_at_the_original_servers(
    servers: JavaServers,
) -> None:
    """The same on a reactor."""
    async with TwistedClient(reactor, servers.url) as client:
        producer = client.producer("reactor", PATIENCE)
        for i in range(20):
            await producer.send(b"m%d" % i)
        consumer = await client.consumer(["reactor"], "readers")
        read: list[bytes] = []
        while len(read) < 20:
            for message in await consumer.batches(50, 1.0):
                read.append(message.value)
                consumer.ack(message)
        await consumer.commit()

    assert sorted(read) == sorted(b"m%d" % i for i in range(20))
