"""The SDK for asyncio: ``async with Client("tube://host:8715") as client``."""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any

from tube.client import consumer as consumer_core
from tube.client import producer as producer_core
from tube.client.blocking import BATCH_MAX
from tube.client.consumer import Hook
from tube.client.core import Core
from tube.client.options import ClientOptions, ConsumerOptions, ProducerOptions
from tube.client.values import Message, Outgoing, Receipt
from tube.errors import BadRequestError, BufferFullError, TubeError, UnreachableError
from tube.values import Address, Partition


class _Promise:
    """A result that comes later."""

    __slots__ = ("_future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._future: asyncio.Future[Any] = loop.create_future()

    def resolve(self, value: Any) -> None:
        if not self._future.done():
            self._future.set_result(value)

    def fail(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    def wait(self) -> Awaitable[Any]:
        return self._future


class _Pipe(asyncio.Protocol):
    """Bytes of one connection."""

    def __init__(self, received: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self.data_received = received  # type: ignore[method-assign, assignment]  # no frame between loop and decoder
        self._lost = lost
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._lost()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is None:
            return
        if self._transport.get_extra_info("ssl_object") is None:
            self._transport.close()
        else:  # a goodbye in TLS waits for the server's, and the loop may end before
            self._transport.abort()


class AsyncioRuntime:
    """The core's event loop on asyncio.

    ``call_user`` is how callbacks of the user are called; None calls them here and awaits what they return.
    """

    cancelled: type[BaseException] = asyncio.CancelledError

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        call_user: Callable[..., Awaitable[None]] | None = None,
    ) -> None:
        self._loop = loop
        self._call_user = call_user
        self._tasks: set[asyncio.Task[None]] = set()
        self._tls: ssl.SSLContext | None = None

    def now_s(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def random_bits(self, count: int) -> int:
        return secrets.randbits(count)

    def call_later(self, delay_s: float, f: Callable[[], object]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, f)

    def promise(self) -> _Promise:
        return _Promise(self._loop)

    def spawn(
        self, coroutine: Coroutine[Any, Any, None], failed: Callable[[Exception], None]
    ) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                error = task.exception()
                if isinstance(error, Exception):
                    failed(error)

        task.add_done_callback(ended)
        return task

    def use_tls(self, options: ClientOptions) -> None:
        try:
            self._tls = ssl.create_default_context(cafile=options.ca_file or None)
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
            if options.cert_file:
                self._tls.load_cert_chain(options.cert_file, options.key_file or None)
        except (OSError, ValueError) as error:
            raise BadRequestError(f"the certificates cannot be used: {error}") from error

    async def open(
        self,
        address: Address,
        timeout_s: float,
        received: Callable[[bytes], None],
        lost: Callable[[], None],
    ) -> _Pipe:
        try:
            _, pipe = await asyncio.wait_for(
                self._loop.create_connection(
                    lambda: _Pipe(received, lost), address.host, address.port, ssl=self._tls
                ),
                timeout_s,
            )
        except TimeoutError as error:
            raise UnreachableError(f"{address}: cannot connect within {timeout_s:g} s") from error
        except OSError as error:
            raise UnreachableError(f"{address}: cannot connect: {error}") from error
        return pipe

    async def call_user(self, f: Callable[..., object], *args: object) -> None:
        if self._call_user is not None:
            await self._call_user(f, *args)
            return
        result = f(*args)
        if inspect.isawaitable(result):
            await result

    def identity(self) -> str:
        return identity()


def identity() -> str:
    """``ip-pid`` of this process."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing, only picks the outgoing address
            host = probe.getsockname()[0]
    except OSError:
        host = "127.0.0.1"
    return f"{host}-{os.getpid()}"


class Producer:
    """Sends messages to one topic.  ``Client.producer`` makes it."""

    def __init__(self, core: producer_core.Producer, loop: asyncio.AbstractEventLoop) -> None:
        self._core = core
        self._loop = loop

    async def send(
        self,
        value: bytes,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        filter: str | None = None,  # noqa: A002  the field's word
        partition: Partition | None = None,
    ) -> asyncio.Future[Receipt]:
        """Queue a message (waiting for room in the buffer) and return the future of its receipt.

        Raises:
            BadRequestError: it can never be sent.  BufferFullError: with ``when_full="raise"``.
        """
        future: asyncio.Future[Receipt] = self._loop.create_future()

        def done(receipt: Receipt | None, error: TubeError | None) -> None:
            if not future.done():
                if error is not None:
                    future.set_exception(error)
                elif receipt is not None:
                    future.set_result(receipt)

        entry = self._core.entry(
            value, done, key=key, filter=filter, headers=headers, partition=partition
        )
        while True:
            try:
                self._core.submit(entry)
            except BufferFullError:
                if self._core.options.when_full == "raise":
                    raise
                await self._core.room()
            else:
                return future

    async def send_many(self, messages: Iterable[Outgoing | bytes]) -> list[Receipt]:
        """Send all and return their receipts, in order.

        Raises:
            TubeError: the first failure; the others are sent all the same.
        """
        futures = []
        for message in messages:
            out = message if isinstance(message, Outgoing) else Outgoing(message)
            futures.append(
                await self.send(
                    out.value,
                    key=out.key,
                    headers=out.headers,
                    filter=out.filter,
                    partition=out.partition,
                )
            )
        results = await asyncio.gather(*futures, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if isinstance(result, Receipt)]

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything is acknowledged or has failed.

        Raises:
            TimedOutError: it was not after ``timeout_s``.
        """
        await self._core.flush(timeout_s)


class Consumer:
    """A member of a consumer group.  ``Client.consumer`` makes it.

    ``async for message in consumer`` reads for ever; with ``auto_ack`` a message is acknowledged when the next
    one is asked for.
    """

    def __init__(self, core: consumer_core.Consumer) -> None:
        self._core = core

    @property
    def client_id(self) -> str:
        """The name of this member."""
        return self._core.client_id

    @property
    def assignment(self) -> list[Partition]:
        """The partitions it holds now."""
        return sorted(self._core.membership.held)

    async def batches(self, max_count: int = BATCH_MAX, wait_s: float = 1.0) -> list[Message]:
        """Up to ``max_count`` messages; [] when none came within ``wait_s``.

        Raises:
            TubeError: the consumer failed for good, or is closed.
        """
        messages = self._core.take(max_count)
        if not messages:
            await self._core.arrived(wait_s)
            messages = self._core.take(max_count)
        return messages

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Message]:
        while True:
            for message in await self.batches():
                yield message
                if self._core.options.auto_ack and message.partition in self._core.positions:
                    self.ack(message)

    def ack(self, message: Message) -> None:
        """``message``, and all before it in its partition, are done; told to the broker soon.

        Raises:
            StaleAssignmentError: its partition has moved to another member.
        """
        self._core.acked(message.partition, message.offset)

    async def commit(self) -> None:
        """Make all acknowledgements durable."""
        await self._core.commit()

    def pause(self, *partitions: Partition) -> None:
        """Read nothing of these until ``resume``."""
        self._core.pause(partitions)

    def resume(self, *partitions: Partition) -> None:
        """Go on reading them."""
        self._core.resume(partitions)

    async def seek(self, partition: Partition, offset: int) -> None:
        """Go on reading at ``offset``."""
        await self._core.seek(partition, offset)

    async def close(self) -> None:
        """Commit and leave the group."""
        await self._core.close()


class Client:
    """A client of a Tube (or TubeMQ) cluster on asyncio.

    ``async with Client("tube://host:8715,host2:8715") as client:``; leaving the block flushes and closes.
    """

    def __init__(
        self,
        url: str,
        options: ClientOptions | None = None,
        *,
        report: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._core = Core(AsyncioRuntime(self._loop), url, options, report)

    def producer(self, topic: str, options: ProducerOptions | None = None) -> Producer:
        """A producer of ``topic``."""
        return Producer(self._core.producer(topic, options), self._loop)

    async def consumer(
        self,
        topics: Iterable[str],
        group: str,
        options: ConsumerOptions | None = None,
        *,
        filters: Mapping[str, Iterable[str]] | None = None,
        on_assign: Hook | None = None,
        on_revoke: Hook | None = None,
    ) -> Consumer:
        """A member of ``group`` that reads ``topics``."""
        core = await self._core.consumer(
            topics, group, options, filters=filters, on_assign=on_assign, on_revoke=on_revoke
        )
        return Consumer(core)

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, leave groups, close connections.

        Raises:
            NotDeliveredError: messages were not acknowledged in time.
        """
        await self._core.close(timeout_s)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
