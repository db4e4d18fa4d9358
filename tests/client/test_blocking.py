"""The blocking client against a real cluster: what users of scripts see."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from tests.client.conftest import DevServer
from tube.client import Client, ConsumerOptions, Outgoing, ProducerOptions
from tube.errors import (
    BadRequestError,
    BufferFullError,
    ClosedError,
    NoBrokerError,
    NotDeliveredError,
    UnreachableError,
)
from tube.values import Partition


def test_ten_lines_send_and_read(dev: DevServer) -> None:
    """The first program of the README."""
    dev.create_topic("first", 2)
    with Client(dev.url) as client:
        receipt = client.producer("first").send(b"hello", key="k", headers={"a": "b"}).result(5)
        consumer = client.consumer(["first"], "readers", ConsumerOptions(auto_ack=True))
        message = next(iter(consumer))

    assert receipt.durable
    assert (message.value, message.key, message.headers) == (b"hello", b"k", {"a": "b"})
    assert (message.topic, message.partition, message.offset) == (
        "first",
        receipt.partition,
        receipt.offset,
    )
    assert message.timestamp_ms == receipt.timestamp_ms


def test_send_many_keeps_the_order_and_keys_keep_their_partition(dev: DevServer) -> None:
    """Receipts come in the order of the messages; one key is one partition, in order."""
    dev.create_topic("many", 4)
    with Client(dev.url) as client:
        receipts = client.producer("many").send_many(
            Outgoing(b"%d" % i, key=b"%d" % (i % 7)) for i in range(700)
        )
        for key in range(7):
            mine = receipts[key::7]
            assert len({r.partition for r in mine}) == 1
            assert [r.offset for r in mine] == sorted(r.offset for r in mine)
        pinned = client.producer("many").send(b"x", partition=Partition("many", 1, 3)).result(5)

    assert pinned.partition == Partition("many", 1, 3)


def test_heartbeats_go_on_while_user_code_blocks(dev: DevServer) -> None:
    """Callbacks run beside the heartbeats, in a thread of their own."""
    dev.create_topic("blocks", 2)
    threads: list[str] = []
    with Client(dev.url) as client:
        client.producer("blocks").send(b"x").result(5)
        consumer = client.consumer(
            ["blocks"],
            "g1",
            on_assign=lambda _partitions: threads.append(threading.current_thread().name),
        )
        assert [m.value for m in consumer.batches(10, 5)] == [b"x"]
        assert len(consumer.assignment) == 2
        consumer.close()

    assert threads
    assert all(name.startswith("tube-callbacks") for name in threads)


def test_a_full_buffer_blocks_or_raises(dev: DevServer) -> None:
    """``raise`` refuses the message, ``block`` takes it when there is room; memory stays bounded."""
    dev.create_topic("full", 1)
    with Client(dev.url) as client:
        eager = client.producer("full", ProducerOptions(buffer_bytes=5000, when_full="raise"))

        def fill() -> None:
            for _ in range(100):
                eager.send(bytes(1000))

        with pytest.raises(BufferFullError):
            fill()
        eager.flush(5)
        patient = client.producer("full", ProducerOptions(buffer_bytes=5000))
        futures = [patient.send(bytes(1000)) for _ in range(50)]
        assert all(f.result(5).durable for f in futures)


def test_what_can_never_be_sent_is_refused_at_once(dev: DevServer) -> None:
    """Too large, empty, no name of a topic, wrong types."""
    dev.create_topic("small", 1, max_message_bytes=1024 * 1024)
    with Client(dev.url) as client:
        producer = client.producer("small")
        producer.send(b"x").result(5)
        for value in (b"", bytes(1024 * 1024 + 1)):
            with pytest.raises(BadRequestError):
                producer.send(value)
        with pytest.raises(TypeError):
            producer.send("text")  # type: ignore[arg-type]
        with pytest.raises(BadRequestError):
            client.producer("no such name")
    with pytest.raises(ClosedError):
        producer.send(b"late")


def test_an_unknown_topic_fails_with_a_hint_after_its_deadline(dev: DevServer) -> None:
    """The sender hears what to do; closing does not wait for ever."""
    with Client(dev.url) as client:
        future = client.producer("nowhere", ProducerOptions(delivery_s=0.5)).send(b"x")
        with pytest.raises(NoBrokerError, match="nowhere") as caught:
            future.result(5)
    assert "tube topic" in caught.value.hint


def test_nobody_there_is_said_at_once() -> None:
    """A consumer cannot register; a producer's messages are counted when the client closes."""
    with (
        Client("tube://127.0.0.1:1") as client,
        pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"),
    ):
        client.consumer(["demo"], "g1")
    client = Client("tube://127.0.0.1:1")
    future = client.producer("demo").send(b"x")
    with pytest.raises(NotDeliveredError) as caught:
        client.close(0.3)
    assert caught.value.count == 1
    with pytest.raises(NotDeliveredError):
        future.result(1)
    client.close()


def test_the_client_needs_no_reactor_and_no_sql() -> None:
    """Importing it loads neither Twisted nor SQLAlchemy."""
    code = "import sys, tube.client; print([m for m in ('twisted', 'sqlalchemy', 'zope') if m in sys.modules])"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert printed == "[]\n"


def test_batches_return_nothing_when_there_is_nothing(dev: DevServer) -> None:
    """Within about the wait; the consumer can be used on."""
    dev.create_topic("quiet", 1)
    with Client(dev.url) as client:
        consumer = client.consumer(["quiet"], "g1")
        started = time.monotonic()
        assert consumer.batches(10, 0.3) == []
        assert time.monotonic() - started >= 0.3
        client.producer("quiet").send(b"x").result(5)
        assert [m.value for m in consumer.batches(10, 5)] == [b"x"]
        consumer.close()
        with pytest.raises(ClosedError):
            consumer.batches(10, 0.1)
