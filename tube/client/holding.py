"""A consumer's calls to brokers: register, heartbeat, pull, commit, release (spec sections 4.3-4.5)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from tube.client.fetching import Position
from tube.client.link import Links
from tube.client.options import ClientOptions
from tube.client.runtime import Runtime, sleep
from tube.errors import (
    CertificateError,
    PartitionOccupiedError,
    SpeedLimitError,
    TimedOutError,
    TubeError,
    UnreachableError,
)
from tube.pb import BrokerService_pb2 as pb
from tube.values import Address, Partition
from tube.wire import feature, rpc
from tube.wire.records import PlacedPartition, format_partition, parse_failure
from tube.wire.rpc import Method

if TYPE_CHECKING:
    from tube.client.consumer import Consumer

REGISTER, UNREGISTER = 31, 32

OCCUPIED_TRIES: Final = 4
"""The former holder may just be releasing; after so many refusals the master must say again."""

OCCUPIED_PAUSE_S: Final = 0.1

RELEASE_S: Final = 2.0
"""How long a release may take; the hold runs out anyway."""


class Holding:
    """Talks to brokers for one consumer."""

    def __init__(
        self, consumer: Consumer, runtime: Runtime, links: Links, options: ClientOptions
    ) -> None:
        self._consumer = consumer
        self._runtime = runtime
        self._links = links
        self._options = options
        self._seen: set[Partition] = set()

    async def register(self, place: PlacedPartition, *, offset: int | None = None) -> Position:
        """Take a partition (again) and return where reading starts.

        Raises:
            PartitionOccupiedError: another member has it.  TubeError: the broker refused or is away.
        """
        consumer = self._consumer
        first = place.partition not in self._seen
        request = pb.RegisterRequestC2B(
            opType=REGISTER,
            clientId=consumer.client_id,
            groupName=consumer.membership.group,
            topicName=place.topic,
            partitionId=place.partition_id,
            readStatus=1 if first and consumer.options.start == "latest" else 0,
            filterCondStr=consumer.filters.get(place.topic, []),
            qryPriorityId=-2,
            authInfo=consumer.tokens,
            client_features=feature.ALL,
        )
        if offset is not None:
            request.currOffset = offset
        for attempt in range(OCCUPIED_TRIES):
            try:
                body = await self._call(
                    place,
                    Method.REGISTER_PARTITION,
                    request.SerializeToString(),
                    self._options.call_s,
                )
                answer = rpc.parse(pb.RegisterResponseB2C, body)
                if not answer.success:
                    raise rpc.error_from_code(answer.errCode, answer.errMsg)
                break
            except PartitionOccupiedError:
                if attempt == OCCUPIED_TRIES - 1:
                    raise
                await sleep(self._runtime, OCCUPIED_PAUSE_S * (attempt + 1))
        self._seen.add(place.partition)
        at = answer.currOffset
        exact = bool(answer.server_features & feature.SPANS)
        return Position(place.partition, at, at, at, at, exact)

    async def unregister(self, place: PlacedPartition) -> None:
        """Release a partition; what was given and not committed will be given again.

        Raises:
            TubeError: the broker did not answer; the hold will run out.
        """
        request = pb.RegisterRequestC2B(
            opType=UNREGISTER,
            clientId=self._consumer.client_id,
            groupName=self._consumer.membership.group,
            topicName=place.topic,
            partitionId=place.partition_id,
            readStatus=1,
            authInfo=self._consumer.tokens,
        )
        await self._call(place, Method.REGISTER_PARTITION, request.SerializeToString(), RELEASE_S)

    async def get(
        self, place: PlacedPartition, position: Position
    ) -> tuple[pb.GetMessageResponseB2C, int]:
        """Pull the next messages; the answer and its size in bytes.

        Raises:
            NotFoundError: there is none.  NotRegisteredError, DuplicateHolderError: the hold is lost.
            SpeedLimitError: wait.  TubeError: anything else.
        """
        options = self._consumer.options
        request = pb.GetMessageRequestC2B(
            clientId=self._consumer.client_id,
            partitionId=place.partition_id,
            groupName=self._consumer.membership.group,
            topicName=place.topic,
            lastPackConsumed=False,
            manualCommitOffset=position.exact,
            escFlowCtrl=False,
        )
        timeout_s = self._options.call_s
        if position.exact:
            request.client_features = feature.ALL
            request.wait_ms = int(options.fetch_wait_s * 1000)
            request.bytes_max = options.fetch_bytes
            timeout_s += options.fetch_wait_s
        body = await self._call(place, Method.GET_MESSAGE, request.SerializeToString(), timeout_s)
        answer = rpc.parse(pb.GetMessageResponseB2C, body)
        if not answer.success:
            error = rpc.error_from_code(answer.errCode, answer.errMsg)
            if isinstance(error, SpeedLimitError):
                error.wait_ms = answer.minLimitTime
            raise error
        return answer, len(body)

    async def commit(self, position: Position) -> None:
        """Commit what was acknowledged; durable when this returns.

        An original broker commits whole batches, so there the commit waits until all of a batch is done.

        Raises:
            TubeError: it is not known to be committed.
        """
        target = position.acked
        if not position.exact and target < position.next_offset:
            return
        place = self._consumer.membership.held.get(position.partition)
        if place is None:
            return
        request = pb.CommitOffsetRequestC2B(
            clientId=self._consumer.client_id,
            topicName=place.topic,
            partitionId=place.partition_id,
            groupName=self._consumer.membership.group,
            lastPackConsumed=True,
        )
        if position.exact:
            request.offset = target
        body = await self._call(
            place, Method.COMMIT_OFFSET, request.SerializeToString(), self._options.call_s
        )
        answer = rpc.parse(pb.CommitOffsetResponseB2C, body)
        if not answer.success:
            raise rpc.error_from_code(answer.errCode, answer.errMsg)
        position.committed = max(position.committed, target)

    async def beat_brokers(self) -> None:
        """Keep the holds alive; lose what brokers say is not ours."""
        while True:
            await sleep(self._runtime, self._options.heartbeat_s)
            by_broker: dict[Address, list[PlacedPartition]] = defaultdict(list)
            for place in self._consumer.membership.held.values():
                by_broker[Address(place.broker.host, place.broker.port)].append(place)
            for address, places in by_broker.items():
                try:
                    await self._beat(address, places)
                except CertificateError:
                    await self._consumer.lose([place.partition for place in places])
                except (UnreachableError, TimedOutError):
                    continue  # the pulls notice and recover
                except TubeError:
                    continue

    async def _beat(self, address: Address, places: list[PlacedPartition]) -> None:
        request = pb.HeartBeatRequestC2B(
            clientId=self._consumer.client_id,
            groupName=self._consumer.membership.group,
            readStatus=0,
            partitionInfo=[format_partition(place) for place in places],
            qryPriorityId=-2,
            authInfo=self._consumer.tokens,
        )
        body = await self._links.call(
            address, Method.HEARTBEAT_PARTITIONS, request.SerializeToString(), self._options.call_s
        )
        answer = rpc.parse(pb.HeartBeatResponseB2C, body)
        if not answer.success:
            raise rpc.error_from_code(answer.errCode, answer.errMsg)
        if answer.hasPartFailure:
            lost = [parse_failure(text).place.partition for text in answer.failureInfo]
            await self._consumer.lose(lost)

    async def _call(
        self, place: PlacedPartition, method: Method, body: bytes, timeout_s: float
    ) -> bytes:
        address = Address(place.broker.host, place.broker.port)
        return await self._links.call(address, method, body, timeout_s)
