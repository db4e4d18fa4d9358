"""The SDK for programs that block: ``with Client("tube://host:8715") as client``.

One background thread runs the core, so heartbeats go on however long the user's code takes.  Objects may be
used from any thread; a consumer by one thread at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

from tube.client.options import ClientOptions, ConsumerOptions, ProducerOptions, parse_url
from tube.client.values import Message, Outgoing, Receipt
from tube.errors import BufferFullError, ClosedError, TubeError
from tube.values import Partition

if (
    TYPE_CHECKING
):  # asyncio, protobuf and the core are loaded by the first client, not by the import
    from tube.client import consumer as consumer_core
    from tube.client import producer as producer_core
    from tube.client.consumer import Hook
    from tube.client.producer import Entry
    from tube.client.thread import LoopThread

T = TypeVar("T")

BATCH_MAX = 1000
"""Messages that one ``batches`` gives unless asked otherwise."""


class Producer:
    """Sends messages to one topic.  ``Client.producer`` makes it."""

    def __init__(self, core: producer_core.Producer, thread: LoopThread) -> None:
        self._core = core
        self._thread = thread
        self._entries: deque[Entry] = deque()
        self._scheduled = False
        self._lock = threading.Condition()
        self._buffered_bytes = 0

    def send(
        self,
        value: bytes,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        filter: str | None = None,  # noqa: A002  the field's word
        partition: Partition | None = None,
    ) -> Future[Receipt]:
        """Queue a message, waiting for room in the buffer, and return the future of its receipt.

        ``send(…).result()`` waits until it is acknowledged.

        Raises:
            BadRequestError: it can never be sent.  BufferFullError: with ``when_full="raise"``.
            ClosedError: the client is closed.
        """
        future: Future[Receipt] = Future()
        size = 0

        def done(receipt: Receipt | None, error: TubeError | None) -> None:
            with self._lock:
                self._buffered_bytes -= size
                self._lock.notify_all()
            if future.set_running_or_notify_cancel():
                if error is not None:
                    future.set_exception(error)
                else:
                    assert receipt is not None
                    future.set_result(receipt)

        entry = self._core.entry(
            value, done, key=key, filter=filter, headers=headers, partition=partition
        )
        size = entry.size
        self._submit(entry)
        return future

    def send_many(
        self, messages: Iterable[Outgoing | bytes], timeout_s: float | None = None
    ) -> list[Receipt]:
        """Send all, wait, and return their receipts in order.

        Raises:
            TubeError: the first failure; the others are sent all the same.
        """
        futures = []
        for message in messages:
            out = message if isinstance(message, Outgoing) else Outgoing(message)
            futures.append(
                self.send(
                    out.value,
                    key=out.key,
                    headers=out.headers,
                    filter=out.filter,
                    partition=out.partition,
                )
            )
        return [future.result(timeout_s) for future in futures]

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything is acknowledged or has failed.

        Raises:
            TimedOutError: it was not after ``timeout_s``.
        """
        self._thread.call(self._flush(timeout_s))

    async def _flush(self, timeout_s: float | None) -> None:
        self._hand_over()
        await self._core.flush(timeout_s)

    def _submit(self, entry: Entry) -> None:
        options = self._core.options
        with self._lock:
            if self._core.closed:
                raise ClosedError(f"the producer of {self._core.topic!r} is closed")
            while self._buffered_bytes and self._buffered_bytes + entry.size > options.buffer_bytes:
                if options.when_full == "raise":
                    raise BufferFullError(f"{self._buffered_bytes} bytes wait to be sent")
                self._lock.wait()
                if self._core.closed:
                    raise ClosedError(f"the producer of {self._core.topic!r} is closed")
            self._buffered_bytes += entry.size
            self._entries.append(entry)
            if self._scheduled:
                return
            self._scheduled = True
        try:
            self._thread.soon(self._hand_over)
        except ClosedError:  # at this moment: nobody else fails what came too late
            self._hand_over()

    def ended(self) -> None:
        """For ``Client``: the thread has ended; what came too late fails."""
        self._hand_over()

    def _hand_over(self) -> None:
        """On the loop's thread: everything queued goes to the core in one go."""
        with self._lock:
            self._scheduled = False
            entries, self._entries = self._entries, deque()
        for entry in entries:
            try:
                self._core.submit(entry)
            except TubeError as error:
                entry.done(None, error)


class Consumer:
    """A member of a consumer group.  ``Client.consumer`` makes it.

    ``for message in consumer`` reads for ever; with ``auto_ack`` a message is acknowledged when the next one is
    asked for.
    """

    def __init__(self, core: consumer_core.Consumer, thread: LoopThread) -> None:
        self._core = core
        self._thread = thread

    @property
    def client_id(self) -> str:
        """The name of this member."""
        return self._core.client_id

    @property
    def assignment(self) -> list[Partition]:
        """The partitions it holds now."""
        return sorted(self._core.membership.held.copy())

    def batches(self, max_count: int = BATCH_MAX, wait_s: float = 1.0) -> list[Message]:
        """Up to ``max_count`` messages; [] when none came within ``wait_s``.

        Raises:
            TubeError: the consumer failed for good, or is closed.
        """
        return self._thread.call(self._take(max_count, wait_s))

    async def _take(self, max_count: int, wait_s: float) -> list[Message]:
        messages = self._core.take(max_count)
        if not messages:
            await self._core.arrived(wait_s)
            messages = self._core.take(max_count)
        return messages

    def __iter__(self) -> Iterator[Message]:
        while True:
            for message in self.batches():
                yield message
                if self._core.options.auto_ack and message.partition in self._core.positions:
                    self.ack(message)

    def ack(self, message: Message) -> None:
        """``message``, and all before it in its partition, are done; told to the broker soon.

        Raises:
            StaleAssignmentError: its partition has moved to another member.
        """
        self._core.acked(message.partition, message.offset)

    def commit(self) -> None:
        """Make all acknowledgements durable."""
        self._thread.call(self._core.commit())

    def pause(self, *partitions: Partition) -> None:
        """Read nothing of these until ``resume``."""
        self._thread.call(_run(self._core.pause, partitions))

    def resume(self, *partitions: Partition) -> None:
        """Go on reading them."""
        self._thread.call(_run(self._core.resume, partitions))

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on reading at ``offset``."""
        self._thread.call(self._core.seek(partition, offset))

    def close(self) -> None:
        """Commit and leave the group."""
        self._thread.call(self._core.close())


class Client:
    """A client of a Tube (or TubeMQ) cluster for programs that block.

    ``with Client("tube://host:8715,host2:8715") as client:``; leaving the block flushes and closes.
    """

    def __init__(
        self,
        url: str,
        options: ClientOptions | None = None,
        *,
        report: Callable[[str], None] = lambda _text: None,
    ) -> None:
        parse_url(url)  # before there is a thread to stop
        from tube.client.thread import LoopThread

        self._thread = LoopThread()
        try:
            self._core = self._thread.core(url, options, report)
        except BaseException:
            self._thread.stop()
            raise
        self._closed = False
        self._producers: WeakSet[Producer] = WeakSet()

    def producer(self, topic: str, options: ProducerOptions | None = None) -> Producer:
        """A producer of ``topic``."""
        core = self._thread.call(_run(self._core.producer, topic, options))
        producer = Producer(core, self._thread)
        self._producers.add(producer)
        return producer

    def consumer(
        self,
        topics: Iterable[str],
        group: str,
        options: ConsumerOptions | None = None,
        *,
        filters: Mapping[str, Iterable[str]] | None = None,
        on_assign: Hook | None = None,
        on_revoke: Hook | None = None,
    ) -> Consumer:
        """A member of ``group`` that reads ``topics``; callbacks run in a thread of their own."""
        core = self._thread.call(
            self._core.consumer(
                topics, group, options, filters=filters, on_assign=on_assign, on_revoke=on_revoke
            )
        )
        return Consumer(core, self._thread)

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, leave groups, close connections.

        Raises:
            NotDeliveredError: messages were not acknowledged in time.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._thread.call(self._core.close(timeout_s))
        finally:
            self._thread.stop()
            for producer in self._producers:
                producer.ended()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def _run(f: Callable[..., T], *args: object) -> T:
    return f(*args)
