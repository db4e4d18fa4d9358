"""What a message costs the broker: CPU from the operating system, load from pre-encoded frames.

The load generator sends frames that were encoded beforehand and counts answers, so it leaves the CPU to the
server and the client's cost out of the figure.  Rows come in turn within one run; compare them with each other,
not with another machine's.  The rows are those of the design's table of figures.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import dataclass
from typing import Any

from bench.harness import Server, dev, report, spread
from tube.pb import BrokerService_pb2 as pb
from tube.pb import TubeExtensions_pb2 as ext
from tube.wire import feature, rpc, run
from tube.wire.frame import FrameDecoder
from tube.wire.message import check_sum
from tube.wire.rpc import Method

CLIENT = "192.0.2.2-1-1-1-2.5.0"
READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Produce:
    """A row of SendMessage load."""

    name: str
    topic: str
    size: int
    connections: int
    in_flight: int
    count: int
    partitions: int = 8


def send_frames(row: Produce, partition_id: int) -> list[bytes]:
    """One frame per message in flight."""
    body = pb.SendMessageRequestP2B(
        clientId=CLIENT,
        topicName=row.topic,
        partitionId=partition_id,
        data=bytes(row.size),
        flag=0,
        checkSum=-1,
        sentAddr=0,
    ).SerializeToString()
    return [
        rpc.encode_call(serial, Method.SEND_MESSAGE, body, 10_000)
        for serial in range(row.in_flight)
    ]


async def send(port: int, row: Produce, number: int, latencies: list[float]) -> None:
    """One connection's share: always ``in_flight`` messages open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = row.count // row.connections
    per_partition = [
        send_frames(row, (number + i) % row.partitions) for i in range(min(row.partitions, 1000))
    ]
    decoder, sent, done, turn = FrameDecoder(), min(row.in_flight, count), 0, 0
    started = time.perf_counter()
    writer.write(b"".join(per_partition[0][:sent]))
    while done < count:
        answered = len(decoder.feed(await reader.read(READ_BYTES)))
        done += answered
        if row.in_flight == 1:
            latencies.append(time.perf_counter() - started)
            started = time.perf_counter()
        more = min(answered, count - sent)
        if more:
            turn += 1
            frames = per_partition[turn % len(per_partition)]
            writer.write(b"".join(frames[:more]))
            sent += more
    writer.close()


async def send_batches(port: int, topic: str, size: int, count: int, batch: int) -> int:
    """SendBatch, two in flight; returns payload bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = bytes(size)
    one = b"".join(run.encode_message(i + 1, check_sum(data), data, 0) for i in range(batch))
    body = ext.SendBatchRequestP2B(
        clientId=CLIENT, topicName=topic, partitionId=0, messages=one, count=batch
    ).SerializeToString()
    decoder, batches = FrameDecoder(), count // batch
    frame = rpc.encode_call(1, Method.SEND_BATCH, body, 10_000)
    writer.write(frame * 2)
    sent, done = 2, 0
    while done < batches:
        answered = len(decoder.feed(await reader.read(READ_BYTES)))
        done += answered
        for _ in range(min(answered, batches - sent)):
            writer.write(frame)
            sent += 1
        await writer.drain()
    writer.close()
    return batches * batch * size


async def pull(port: int, topic: str, partitions: int, *, features: int, group: str) -> int:
    """Read everything as a group does, partition after partition; returns payload bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    decoder, total = FrameDecoder(), 0

    async def call(method: Method, body: bytes) -> bytes:
        writer.write(rpc.encode_call(1, method, body, 10_000))
        while True:
            frames = decoder.feed(await reader.read(READ_BYTES))
            if frames:
                return frames[0].payload

    for partition_id in range(partitions):
        register = pb.RegisterRequestC2B(
            opType=31,
            clientId=CLIENT,
            groupName=group,
            topicName=topic,
            partitionId=partition_id,
            readStatus=0,
        )
        await call(Method.REGISTER_PARTITION, register.SerializeToString())
        get = pb.GetMessageRequestC2B(
            clientId=CLIENT,
            groupName=group,
            topicName=topic,
            partitionId=partition_id,
            manualCommitOffset=True,
            client_features=features,
            bytes_max=1024 * 1024 if features else 0,
        )
        body = get.SerializeToString()
        while True:
            payload = await call(Method.GET_MESSAGE, body)
            if len(payload) < 200:  # 404: the end
                break
            total += len(payload)
    writer.close()
    return total


def produce(server: Server, row: Produce) -> dict[str, Any]:
    """Run a row three times; microseconds of CPU per message and messages per second."""
    cpu, rate = [], []
    latencies: list[float] = []
    for _ in range(3):
        before, started = server.cpu_s(), time.perf_counter()

        async def load() -> None:
            await asyncio.gather(
                *[send(server.broker, row, n, latencies) for n in range(row.connections)]
            )

        asyncio.run(load())
        rate.append(row.count / (time.perf_counter() - started))
        cpu.append((server.cpu_s() - before) / row.count * 1e6)
    figures: dict[str, Any] = {
        "cpu_us_per_message": spread(cpu, 1),
        "messages_per_s": spread(rate, 0),
    }
    if latencies:
        ordered = sorted(latencies)
        figures["p50_ms"] = round(ordered[len(ordered) // 2] * 1e3, 3)
        figures["p99_ms"] = round(ordered[len(ordered) * 99 // 100] * 1e3, 3)
    return figures


def pulls(server: Server, topic: str, features: int, name: str) -> dict[str, Any]:
    """Megabytes per second of server CPU."""
    rates = []
    for attempt in range(3):
        before = server.cpu_s()
        total = asyncio.run(
            pull(server.broker, topic, 8, features=features, group=f"{name}_{attempt}")
        )
        rates.append(total / 1e6 / max(server.cpu_s() - before, 0.01))
    return {"mb_per_cpu_s": spread(rates, 0)}


def main() -> None:
    """Measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--scale", type=float, default=1.0, help="part of the messages of a full run"
    )
    scale = arguments.parse_args().scale

    def n(count: int) -> int:
        return max(1000, int(count * scale))

    rows = [
        Produce("produce 1000 B, written, 1 x 100", "written", 1000, 1, 100, n(60_000)),
        Produce("produce 1000 B, durable, 8 x 100", "durable", 1000, 8, 100, n(100_000)),
        Produce("produce 1000 B, written, 8 x 100", "written", 1000, 8, 100, n(100_000)),
        Produce("produce 100 B, durable, 1 x 100", "durable", 100, 1, 100, n(60_000)),
        Produce("produce 1000 B, durable, one at a time", "durable", 1000, 1, 1, n(3_000)),
        Produce("produce 1000 B, written, one at a time", "written", 1000, 1, 1, n(3_000)),
        Produce(
            "produce 1000 B, durable, 8 x 100, 1000 partitions",
            "wide",
            1000,
            8,
            100,
            n(60_000),
            1000,
        ),
        Produce(
            "produce 1000 B, written, 8 x 100, 1000 partitions",
            "wide_written",
            1000,
            8,
            100,
            n(60_000),
            1000,
        ),
    ]
    figures: dict[str, Any] = {}
    with dev() as server:
        server.create_topic("durable", 8)
        server.create_topic("written", 8, durable=False)
        server.create_topic("wide", 1000)
        server.create_topic("wide_written", 1000, durable=False)
        server.create_topic("batches", 8)
        for row in rows:
            figures[row.name] = produce(server, row)
        figures["pull 1000 B, original client"] = pulls(server, "written", 0, "plain")
        figures["pull 1000 B, our client"] = pulls(server, "written", feature.ALL, "ours")
        rates = []
        for _ in range(3):
            before = server.cpu_s()
            total = asyncio.run(send_batches(server.broker, "batches", 1000, n(200_000), 500))
            rates.append(total / 1e6 / (server.cpu_s() - before))
        figures["SendBatch 500 x 1000 B"] = {"mb_per_cpu_s": spread(rates, 0)}
        figures["resident_mib_with_2000_partitions"] = round(server.resident_mib(), 1)
    report("broker", figures)


if __name__ == "__main__":
    main()
