"""A real broker on real sockets and a real directory, without a master."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from pytest_twisted import async_yield_fixture
from twisted.internet import reactor

from tube.broker.app import RunningBroker, serve
from tube.config import BrokerConfig, load
from tube.net.caller import Caller, connect
from tube.pb import BrokerService_pb2 as pb
from tube.pb.MasterService_pb2 import TopicFacts
from tube.values import Address
from tube.wire.rpc import Method
from tube.wire.settings import BrokerDefaults, TopicConfig, format_defaults, format_topic_config


@dataclass
class BrokerFixture:
    """A broker process in this process: start, stop, connect."""

    directory: Path
    running: RunningBroker | None = None
    stack: AsyncExitStack | None = None
    callers: list[Caller] = field(default_factory=list)
    overrides: tuple[str, ...] = ()

    async def start(self, *overrides: str) -> RunningBroker:
        """Start on the directory with two topics: ``demo`` (durable) and ``quick`` (written)."""
        self.stack = AsyncExitStack()
        config = load(
            BrokerConfig,
            {"broker_id": 1, "port": 0, "masters": ["127.0.0.1:1"], "drain_s": 1},
            [f"log.data_dir={self.directory}", "http.port=0", *self.overrides, *overrides],
        )
        self.running = await serve(reactor, config, self.stack)
        await self.configure(
            TopicConfig(topic="demo", num_partitions=4), TopicConfig(topic="quick")
        )
        return self.running

    async def configure(self, *topics: TopicConfig) -> None:
        """What the master would say."""
        assert self.running is not None
        catalogue = self.running.catalogue
        catalogue.learn_facts(
            TopicFacts(name=t.topic, topic_id=i, durable=t.topic != "quick")
            for i, t in enumerate(topics, 1)
        )
        await catalogue.configure(
            format_defaults(BrokerDefaults()), [format_topic_config(t) for t in topics]
        )

    async def stop(self) -> None:
        """Stop as SIGTERM does."""
        for caller in self.callers:
            caller.abort()
        self.callers.clear()
        if self.stack is not None:
            stack, self.stack = self.stack, None
            await stack.aclose()

    async def connect(self) -> Caller:
        """A new connection."""
        assert self.running is not None
        caller = await connect(reactor, Address("127.0.0.1", self.running.port))
        self.callers.append(caller)
        return caller


@async_yield_fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerFixture]:
    """A started broker."""
    fixture = BrokerFixture(tmp_path / "broker")
    try:
        await fixture.start()
        yield fixture
    finally:
        await fixture.stop()


async def send(
    caller: Caller, data: bytes, *, topic: str = "demo", partition_id: int = 0, **fields: object
) -> pb.SendMessageResponseB2P:
    """One SendMessage."""
    request = pb.SendMessageRequestP2B(
        clientId="producer",
        topicName=topic,
        partitionId=partition_id,
        data=data,
        flag=0,
        checkSum=-1,
        sentAddr=0,
    )
    for name, value in fields.items():
        setattr(request, name, value)
    body = await caller.call(Method.SEND_MESSAGE, request.SerializeToString(), 5)
    return pb.SendMessageResponseB2P.FromString(body)


async def register(
    caller: Caller,
    *,
    client: str = "c1",
    group: str = "group1",
    partition_id: int = 0,
    **fields: object,
) -> pb.RegisterResponseB2C:
    """Register a partition."""
    request = pb.RegisterRequestC2B(
        opType=31,
        clientId=client,
        groupName=group,
        topicName="demo",
        partitionId=partition_id,
        readStatus=0,
    )
    for name, value in fields.items():
        if name == "filterCondStr":
            request.filterCondStr.extend(value)
        else:
            setattr(request, name, value)
    body = await caller.call(Method.REGISTER_PARTITION, request.SerializeToString(), 5)
    return pb.RegisterResponseB2C.FromString(body)


async def get(
    caller: Caller,
    *,
    client: str = "c1",
    group: str = "group1",
    partition_id: int = 0,
    **fields: object,
) -> pb.GetMessageResponseB2C:
    """Pull."""
    request = pb.GetMessageRequestC2B(
        clientId=client, groupName=group, topicName="demo", partitionId=partition_id
    )
    for name, value in fields.items():
        setattr(request, name, value)
    body = await caller.call(Method.GET_MESSAGE, request.SerializeToString(), 5)
    return pb.GetMessageResponseB2C.FromString(body)


async def commit(
    caller: Caller,
    *,
    client: str = "c1",
    group: str = "group1",
    partition_id: int = 0,
    **fields: object,
) -> pb.CommitOffsetResponseB2C:
    """Commit."""
    request = pb.CommitOffsetRequestC2B(
        clientId=client,
        groupName=group,
        topicName="demo",
        partitionId=partition_id,
        lastPackConsumed=True,
    )
    for name, value in fields.items():
        setattr(request, name, value)
    body = await caller.call(Method.COMMIT_OFFSET, request.SerializeToString(), 5)
    return pb.CommitOffsetResponseB2C.FromString(body)
