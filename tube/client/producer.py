"""The producer's core: messages are collected per partition, sent as batches, acknowledged in order.

One batch of a partition is on its way at a time, so a producer's messages keep their order whatever fails; the
next batch grows meanwhile, so throughput does not suffer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tube.client import payload
from tube.client.link import Links
from tube.client.options import ClientOptions, ProducerOptions
from tube.client.publishing import retry_pause_s
from tube.client.runtime import Cancellable, Runtime, Signal, sleep
from tube.client.session import ProducerSession
from tube.client.values import Receipt
from tube.errors import (
    BadRequestError,
    BufferFullError,
    ClosedError,
    ForbiddenError,
    NoBrokerError,
    NotDeliveredError,
    RefusedError,
    TimedOutError,
    TubeError,
    UnknownMethodError,
)
from tube.limits import BATCH_COUNT_MAX, MESSAGE_BYTES_DEFAULT
from tube.pb import BrokerService_pb2 as pb
from tube.pb import TubeExtensions_pb2 as ext
from tube.values import Partition
from tube.wire import message as wire
from tube.wire import rpc, run
from tube.wire.rpc import Method

OVERHEAD_BYTES: Final = 64
"""What a message costs in a batch beside its payload, about."""

STICKY_BYTES: Final = 16 * 1024
"""Messages without a key go to one partition until it has so many bytes more, then to the next: batches are
worth their call, and a thousand short messages still spread (Kafka's batch size)."""

Done = Callable[[Receipt | None, TubeError | None], None]
"""Called once per message: with its receipt, or with why it failed."""


@dataclass(slots=True)
class Entry:
    """A message that waits to be acknowledged."""

    data: bytes
    flag: int
    filter: str | None
    key: bytes | None
    fixed: Partition | None
    until_s: float
    done: Done
    attempts: int = 0

    @property
    def size(self) -> int:
        """What it counts in the buffer."""
        return len(self.data) + OVERHEAD_BYTES


@dataclass(slots=True)
class _Lane:
    """What waits for one partition."""

    queue: deque[Entry] = field(default_factory=deque)
    flight: list[Entry] = field(default_factory=list)
    busy: bool = False
    running: Cancellable | None = None


class Producer:
    """Sends messages to one topic.

    Called on the runtime's thread; the drivers give users futures.
    """

    def __init__(
        self,
        runtime: Runtime,
        links: Links,
        session: ProducerSession,
        topic: str,
        client_options: ClientOptions,
        options: ProducerOptions,
    ) -> None:
        self.topic = topic
        self.options = options
        self.buffered_bytes = 0
        self.unsent_count = 0
        self._runtime = runtime
        self._links = links
        self._session = session
        self._client_options = client_options
        self._lanes: dict[Partition, _Lane] = {}
        self._homeless: deque[Entry] = deque()
        self._resolving = False
        self._sticky: Partition | None = None
        self._sticky_bytes = 0
        self._next_id = runtime.random_bits(62)
        self._plain: set[int] = set()
        self.closed = False
        self._changed = Signal[None](runtime)
        session.publish(topic)

    def entry(
        self,
        value: bytes,
        done: Done,
        *,
        key: bytes | str | None = None,
        filter: str | None = None,  # noqa: A002  the field's word
        headers: Mapping[str, str] | None = None,
        partition: Partition | None = None,
    ) -> Entry:
        """Pack a message; safe on any thread.

        Raises:
            BadRequestError: it can never be sent.
        """
        data, flag = payload.pack(value, key, filter, headers)
        if not data:
            raise BadRequestError("the message is empty")
        limit = self._session.publishing.message_bytes_max(self.topic) or MESSAGE_BYTES_DEFAULT
        if len(value) > limit:
            raise BadRequestError(
                f"the message has {len(value)} bytes, topic {self.topic!r} takes {limit}"
            )
        raw_key = key.encode() if isinstance(key, str) else key
        until_s = self._runtime.now_s() + self.options.delivery_s
        return Entry(data, flag, filter, raw_key, partition, until_s, done)

    def submit(self, entry: Entry) -> None:
        """Queue a message; its ``done`` is called later.

        Raises:
            BufferFullError: ``buffer_bytes`` are waiting.  ClosedError: the producer is closed.
        """
        if self.closed:
            raise ClosedError(f"the producer of {self.topic!r} is closed")
        if self.buffered_bytes and self.buffered_bytes + entry.size > self.options.buffer_bytes:
            raise BufferFullError(
                f"{self.buffered_bytes} bytes wait to be sent to {self.topic!r}, the limit is "
                f"{self.options.buffer_bytes}"
            )
        self.buffered_bytes += entry.size
        self.unsent_count += 1
        self._place(entry)

    async def room(self) -> None:
        """Wait until something was acknowledged."""
        await self._changed.wait()

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything that was submitted is acknowledged or has failed.

        Raises:
            TimedOutError: it was not after ``timeout_s``.
        """
        until_s = None if timeout_s is None else self._runtime.now_s() + timeout_s
        while self.unsent_count:
            left_s = None if until_s is None else until_s - self._runtime.now_s()
            if left_s is not None and left_s <= 0:
                raise TimedOutError(f"{self.unsent_count} messages are not acknowledged yet")
            await self._changed.wait(left_s)

    async def close(self, timeout_s: float) -> None:
        """Flush and take no more.

        Raises:
            NotDeliveredError: with the number of messages that were not acknowledged in time.
        """
        self.closed = True
        try:
            await self.flush(timeout_s)
        except TimedOutError:
            count = self.unsent_count
            error = NotDeliveredError(
                f"{count} messages to {self.topic!r} were not acknowledged within {timeout_s:g} s",
                count=count,
            )
            for lane in self._lanes.values():
                self._fail_all(lane.queue, error)
                flight = deque(lane.flight)
                lane.flight.clear()  # an answer that still comes finds nothing to acknowledge
                self._fail_all(flight, error)
                if lane.busy and lane.running is not None:
                    lane.running.cancel()
            self._fail_all(self._homeless, error)
            raise error from None

    # placing

    def _place(self, entry: Entry) -> None:
        """Put an entry into the lane of its partition, or wait for routes."""
        if not self._session.publishing.knows(self.topic):
            self._homeless.append(entry)
            if not self._resolving:
                self._resolving = True
                self._runtime.spawn(self._resolve(), self._broken)
            return
        try:
            partition = self._partition(entry)
        except NoBrokerError as error:
            self._finish(entry, None, error)
            return
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane()
        lane.queue.append(entry)
        if not lane.busy:
            lane.busy = True
            lane.running = self._runtime.spawn(self._send_lane(partition, lane), self._broken)

    def _partition(self, entry: Entry) -> Partition:
        publishing = self._session.publishing
        if entry.fixed is not None:
            return entry.fixed
        if entry.key is not None:
            return publishing.by_key(self.topic, entry.key)
        sticky = self._sticky
        if sticky is None or self._sticky_bytes >= STICKY_BYTES:
            sticky = self._sticky = publishing.next(self.topic, self._runtime.now_s())
            self._sticky_bytes = 0
        self._sticky_bytes += entry.size
        return sticky

    async def _resolve(self) -> None:
        """Wait for routes, then place what waited; fail what waited too long."""
        try:
            while self._homeless:
                until_s = self._homeless[0].until_s
                try:
                    await self._session.known(self.topic, until_s)
                except (NoBrokerError, RefusedError) as error:
                    self._finish(self._homeless.popleft(), None, error)
                    continue
                except ClosedError as error:
                    self._fail_all(self._homeless, error)
                    return
                waiting, self._homeless = self._homeless, deque()
                for entry in waiting:
                    self._place(entry)
        finally:
            self._resolving = False

    # sending

    async def _send_lane(self, partition: Partition, lane: _Lane) -> None:
        """Send what waits for a partition, batch by batch, until nothing waits."""
        try:
            await sleep(
                self._runtime, self.options.linger_s
            )  # what is submitted in one go is one batch
            while lane.queue:
                batch = lane.flight = self._take(lane)
                if not batch:
                    continue
                try:
                    await self._send(partition, batch)
                except TubeError as error:
                    await self._failed(partition, lane, batch, error)
                except BaseException as error:
                    flight, lane.flight = deque(batch), []
                    self._fail_all(flight, ClosedError(f"the producer stopped: {error!r}"))
                    raise
                else:
                    self._session.publishing.succeeded(partition)
                    self._sticky = None
        finally:
            lane.busy = False

    def _take(self, lane: _Lane) -> list[Entry]:
        """Remove the next batch from a lane; what is too late fails."""
        now_s = self._runtime.now_s()
        batch: list[Entry] = []
        size = 0
        while lane.queue and len(batch) < BATCH_COUNT_MAX:
            entry = lane.queue[0]
            if batch and size + entry.size > self.options.batch_bytes:
                break
            lane.queue.popleft()
            if entry.until_s <= now_s:
                self._finish(entry, None, _late(entry, self.options.delivery_s))
                continue
            batch.append(entry)
            size += entry.size
        return batch

    async def _send(self, partition: Partition, batch: list[Entry]) -> None:
        """Send a batch and acknowledge its messages.

        Raises:
            TubeError: none of the messages that are still in ``batch`` is acknowledged.
        """
        address = self._session.publishing.address(partition)
        link = await self._links.to(address)
        timeout_s = self._client_options.call_s
        if not self._session.batches or partition.broker_id in self._plain:
            while batch:
                entry = batch[0]
                receipt = await self._send_one(link.call, partition, entry, timeout_s)
                if batch:  # else given up meanwhile
                    self._finish(batch.pop(0), receipt, None)
            return
        try:
            body = await link.call(
                Method.SEND_BATCH, self._encode_batch(partition, batch), timeout_s
            )
        except UnknownMethodError:
            self._plain.add(partition.broker_id)
            await self._send(partition, batch)
            return
        answer = rpc.parse(ext.SendBatchResponseB2P, body)
        if not answer.success:
            raise rpc.error_from_code(answer.errCode, answer.errMsg)
        offset, time_ms, durable = answer.baseOffset, answer.appendTime, answer.durable
        for index, entry in enumerate(batch):
            self._finish(entry, Receipt(partition, offset + index, time_ms, durable), None)
        batch.clear()

    def _encode_batch(self, partition: Partition, batch: list[Entry]) -> bytes:
        encode, check_sum, message_id = run.encode_message, wire.check_sum, self._next_id
        parts, bits = [], 0
        for entry in batch:
            type_hash = None
            if entry.filter is not None:
                type_hash = wire.filter_hash(entry.filter)
                bits |= run.filter_bit(type_hash)
            message_id = message_id % 0x7FFF_FFFF_FFFF_FFFE + 1
            parts.append(
                encode(message_id, check_sum(entry.data), entry.data, entry.flag, type_hash)
            )
        self._next_id = message_id
        request = ext.SendBatchRequestP2B(
            clientId=self._session.client_id,
            topicName=self.topic,
            partitionId=partition.partition_id,
            messages=b"".join(parts),
            count=len(parts),
            filterBits=bits,
            maxTimeMs=self._runtime.wall_ms(),
            authInfo=self._session.tokens,
        )
        return request.SerializeToString()

    async def _send_one(
        self, call: Callable[..., object], partition: Partition, entry: Entry, timeout_s: float
    ) -> Receipt:
        """SendMessage, for an original broker."""
        request = pb.SendMessageRequestP2B(
            clientId=self._session.client_id,
            topicName=self.topic,
            partitionId=partition.partition_id,
            data=entry.data,
            flag=entry.flag,
            checkSum=-1,
            sentAddr=0,
            authInfo=self._session.tokens,
        )
        if entry.filter is not None:
            request.msgType = entry.filter
        body = await call(Method.SEND_MESSAGE, request.SerializeToString(), timeout_s)  # type: ignore[misc]
        answer = rpc.parse(pb.SendMessageResponseB2P, body)
        if not answer.success:
            raise rpc.error_from_code(answer.errCode, answer.errMsg)
        return Receipt(partition, answer.appendOffset, answer.appendTime, answer.durable)

    async def _failed(
        self, partition: Partition, lane: _Lane, batch: list[Entry], error: TubeError
    ) -> None:
        """Try again: keyed messages in their partition, others wherever there is room."""
        now_s = self._runtime.now_s()
        self._session.publishing.failed(partition, error, now_s)
        self._sticky = None
        moved = isinstance(error, ForbiddenError | NoBrokerError)
        failed, lane.flight = list(batch), []
        batch.clear()  # each entry is in one place only: ``close`` gives up what it finds
        if not error.retriable and not moved:
            for entry in failed:
                self._finish(entry, None, error)
            return
        if moved:
            self._session.refresh()
        stay: list[Entry] = []
        for entry in failed:
            entry.attempts += 1
            if entry.until_s <= now_s:
                self._finish(entry, None, error)
            else:
                stay.append(entry)
        attempt = max((entry.attempts for entry in stay), default=1)
        lane.queue.extendleft(reversed(stay))
        await sleep(self._runtime, retry_pause_s(attempt, self._runtime.random_bits(8) / 255))
        self._move(partition, lane)

    def _move(self, partition: Partition, lane: _Lane) -> None:
        """Give what is not bound to the failing partition to others."""
        bound: list[Entry] = []
        free: list[Entry] = []
        for entry in lane.queue:
            keyed = entry.key is not None and partition in self._session.publishing.partitions(
                self.topic
            )
            (bound if keyed or entry.fixed is not None else free).append(entry)
        lane.queue.clear()
        lane.queue.extend(bound)
        for entry in free:
            self._place(entry)

    def _finish(self, entry: Entry, receipt: Receipt | None, error: TubeError | None) -> None:
        self.buffered_bytes -= entry.size
        self.unsent_count -= 1
        self._changed.fire()
        entry.done(receipt, error)

    def _fail_all(self, queue: deque[Entry], error: TubeError) -> None:
        while queue:
            self._finish(queue.popleft(), None, error)

    def _broken(self, error: Exception) -> None:
        """A bug in the core must not leave senders waiting for ever."""
        failure = (
            error if isinstance(error, TubeError) else TubeError(f"the producer failed: {error!r}")
        )
        self._fail_all(self._homeless, failure)
        for lane in self._lanes.values():
            if not lane.busy:
                self._fail_all(lane.queue, failure)


def _late(entry: Entry, delivery_s: float) -> TimedOutError:
    tries = f"{entry.attempts} tries" if entry.attempts else "no try"
    return TimedOutError(f"not acknowledged within {delivery_s:g} s, after {tries}")
