"""The asyncio client against a real cluster."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.conftest import DevServer
from tube.client.aio import Client
from tube.client.options import ConsumerOptions, ProducerOptions
from tube.errors import BufferFullError, NoBrokerError, UnreachableError


def test_it_sends_and_reads(dev: DevServer) -> None:
    """Single sends, many at once, ``async for``, commits."""
    dev.create_topic("loops", 2)

    async def program() -> list[bytes]:
        async with Client(dev.url) as client:
            producer = client.producer("loops")
            receipt = await (await producer.send(b"one", key="k"))
            assert receipt.offset == 0
            await producer.send_many([b"two", b"three"])
            await producer.flush(5)
            consumer = await client.consumer(["loops"], "g1", ConsumerOptions(auto_ack=True))
            got = []
            async for message in consumer:
                got.append(message.value)
                if len(got) == 3:
                    break
            await consumer.commit()
            await consumer.close()
            return got

    assert sorted(asyncio.run(program())) == [b"one", b"three", b"two"]


def test_callbacks_may_be_coroutines(dev: DevServer) -> None:
    """They are awaited before reading begins, and before a partition is released."""
    dev.create_topic("hooks", 1)
    seen: list[str] = []

    async def assigned(partitions: list[object]) -> None:
        await asyncio.sleep(0.01)
        seen.append(f"+{len(partitions)}")

    async def revoked(partitions: list[object]) -> None:
        await asyncio.sleep(0.01)
        seen.append(f"-{len(partitions)}")

    async def program() -> None:
        async with Client(dev.url) as client:
            await (await client.producer("hooks").send(b"x"))
            consumer = await client.consumer(["hooks"], "g1", on_assign=assigned, on_revoke=revoked)
            while not await consumer.batches(1, 1):
                pass
            await consumer.close()

    asyncio.run(program())
    assert seen == ["+1", "-1"]


def test_errors_reach_the_program(dev: DevServer) -> None:
    """A full buffer, an unknown topic, nobody there."""
    dev.create_topic("tight", 1)

    async def program() -> None:
        async with Client(dev.url) as client:
            options = ProducerOptions(buffer_bytes=100, when_full="raise")
            producer = client.producer("tight", options)
            futures = [await producer.send(b"x")]
            with pytest.raises(BufferFullError):
                futures.append(await producer.send(bytes(100)))
            await asyncio.gather(*futures)
            lost = client.producer("missing", ProducerOptions(delivery_s=0.3))
            with pytest.raises(NoBrokerError):
                await lost.send_many([b"x", b"y"])
        async with Client("tube://127.0.0.1:1") as client:
            with pytest.raises(UnreachableError):
                await client.consumer(["demo"], "g1")

    asyncio.run(program())
