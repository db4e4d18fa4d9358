"""The SDK for Twisted: Deferreds of receipts, coroutines for the rest."""

from __future__ import annotations

import inspect
import ipaddress
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from OpenSSL import SSL
from service_identity import VerificationError
from service_identity.pyopenssl import verify_hostname, verify_ip_address
from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.error import (
    AlreadyCalled,
    AlreadyCancelled,
    ConnectError,
    ConnectingCancelledError,
    ConnectionDone,
    ConnectionLost,
    DNSLookupError,
)
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHandshakeListener,
    IOpenSSLClientConnectionCreator,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.protocols.tls import TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from tube.client import aio
from tube.client import consumer as consumer_core
from tube.client import producer as producer_core
from tube.client.consumer import Hook
from tube.client.core import Core
from tube.client.options import ClientOptions, ConsumerOptions, ProducerOptions
from tube.client.values import Message, Outgoing, Receipt
from tube.errors import BadRequestError, BufferFullError, TubeError, UnreachableError
from tube.net.clock import Reactor
from tube.values import Address, Partition


class _Promise:
    """A result that comes later.

    Its coroutine goes on in the reactor's next turn, as with asyncio: a Deferred alone would run it inside
    whatever resolved the promise, which may be a coroutine that it wants to cancel.
    """

    __slots__ = ("_deferred", "_soon", "done")

    def __init__(self, soon: Callable[[Callable[[], object]], None]) -> None:
        self._deferred: Deferred[Any] = Deferred()
        self._soon = soon
        self.done = False

    def resolve(self, value: Any) -> None:
        self._settle(value)

    def fail(self, error: Exception) -> None:
        self._settle(Failure(error))

    def _settle(self, result: Any) -> None:
        if not self.done:
            self.done = True
            self._soon(lambda: None if self._deferred.called else self._deferred.callback(result))

    def wait(self) -> Awaitable[Any]:
        return self._deferred


class _Timer:
    """A delayed call that may be cancelled at any time."""

    __slots__ = ("_call",)

    def __init__(self, call: IDelayedCall) -> None:
        self._call = call

    def cancel(self) -> None:
        with suppress(AlreadyCalled, AlreadyCancelled):
            self._call.cancel()


class _Running:
    """A coroutine that runs."""

    __slots__ = ("_deferred",)

    def __init__(self, deferred: Deferred[None]) -> None:
        self._deferred = deferred

    def cancel(self) -> None:
        self._deferred.cancel()


@implementer(IHandshakeListener)
class _Pipe(Protocol):
    """Bytes of one connection; ``secured`` hears of the end of a TLS handshake."""

    def __init__(
        self,
        received: Callable[[bytes], None],
        lost: Callable[[], None],
        secured: Deferred[None] | None = None,
    ) -> None:
        self._secured = secured
        self._received = received
        self._lost = lost
        self._over = False

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)  # type: ignore[union-attr]
        self.transport.setTcpKeepAlive(True)  # type: ignore[union-attr]

    def handle(self) -> SSL.Connection:
        """OpenSSL's side of a TLS connection."""
        found = self.transport.getHandle()  # type: ignore[union-attr]
        assert isinstance(found, SSL.Connection)
        return found

    def handshakeCompleted(self) -> None:
        if self._secured is not None and not self._secured.called:
            self._secured.callback(None)

    def dataReceived(self, data: bytes) -> None:
        self._received(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._over = True
        if self._secured is not None and not self._secured.called:
            self._secured.errback(reason)
        self._lost()

    def write(self, data: bytes) -> None:
        if not self._over and self.transport is not None:
            self.transport.write(data)

    def close(self) -> None:
        if not self._over and self.transport is not None:
            self.transport.loseConnection()


class _PipeFactory(Factory):
    """Hands out one pipe."""

    noisy = False

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    def buildProtocol(self, addr: IAddress | None) -> _Pipe:
        del addr
        return self._pipe


@implementer(IOpenSSLClientConnectionCreator)
class _Handshakes:
    """The client's side of TLS: the servers' authorities and our own certificate."""

    def __init__(self, options: ClientOptions) -> None:
        self._context = context = SSL.Context(SSL.TLS_METHOD)
        context.set_min_proto_version(SSL.TLS1_2_VERSION)
        context.set_verify(SSL.VERIFY_PEER)
        if options.ca_file:
            context.load_verify_locations(options.ca_file)
        else:
            context.set_default_verify_paths()
        if options.cert_file:
            context.use_certificate_chain_file(options.cert_file)
            context.use_privatekey_file(options.key_file or options.cert_file)

    def clientConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Twisted asks for each connection."""
        del protocol
        return SSL.Connection(self._context, None)


def _check_name(connection: SSL.Connection, host: str) -> None:
    """Check that the server's certificate is for this host.

    Raises:
        VerificationError: it is for another.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        verify_hostname(connection, host)
    else:
        verify_ip_address(connection, host)


class TwistedRuntime:
    """The core's event loop on a reactor."""

    cancelled: type[BaseException] = CancelledError

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._turn: deque[Callable[[], object]] = deque()
        self._tls: _Handshakes | None = None

    def now_s(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def random_bits(self, count: int) -> int:
        return secrets.randbits(count)

    def call_later(self, delay_s: float, f: Callable[[], object]) -> _Timer:
        return _Timer(self._reactor.callLater(delay_s, f))

    def promise(self) -> _Promise:
        return _Promise(self._soon)

    def _soon(self, f: Callable[[], object]) -> None:
        if not self._turn:
            self._reactor.callLater(0, self._next_turn)
        self._turn.append(f)

    def _next_turn(self) -> None:
        turn, self._turn = self._turn, deque()
        for f in turn:
            f()

    def spawn(
        self, coroutine: Coroutine[Any, Any, None], failed: Callable[[Exception], None]
    ) -> _Running:
        def ended(failure: Failure) -> None:
            if not failure.check(CancelledError) and isinstance(failure.value, Exception):
                failed(failure.value)

        running = Deferred.fromCoroutine(coroutine)
        running.addErrback(ended)
        return _Running(running)

    def use_tls(self, options: ClientOptions) -> None:
        try:
            self._tls = _Handshakes(options)
        except (OSError, SSL.Error) as error:
            raise BadRequestError(f"the certificates cannot be used: {error}") from error

    async def open(
        self,
        address: Address,
        timeout_s: float,
        received: Callable[[bytes], None],
        lost: Callable[[], None],
    ) -> _Pipe:
        secured: Deferred[None] | None = Deferred() if self._tls is not None else None
        pipe = _Pipe(received, lost, secured)
        endpoint: IStreamClientEndpoint = HostnameEndpoint(
            self._reactor, address.host.encode(), address.port, timeout=timeout_s
        )
        if self._tls is not None:
            endpoint = wrapClientTLS(self._tls, endpoint)
        try:
            await endpoint.connect(_PipeFactory(pipe))
            if secured is not None:
                await secured.addTimeout(timeout_s, self._reactor)
                _check_name(pipe.handle(), address.host)
        except ConnectingCancelledError as error:
            raise CancelledError from error
        except defer.TimeoutError as error:
            pipe.close()
            raise UnreachableError(f"{address}: no TLS within {timeout_s:g} s") from error
        except (SSL.Error, ConnectionLost, ConnectionDone, VerificationError) as error:
            pipe.close()
            raise UnreachableError(f"{address}: TLS failed: {error}") from error
        except (ConnectError, DNSLookupError, OSError) as error:
            raise UnreachableError(f"{address}: cannot connect: {error}") from error
        return pipe

    async def call_user(self, f: Callable[..., object], *args: object) -> None:
        result = f(*args)
        if inspect.isawaitable(result):
            await result

    def identity(self) -> str:
        return aio.identity()


class Producer:
    """Sends messages to one topic.  ``Client.producer`` makes it."""

    def __init__(self, core: producer_core.Producer) -> None:
        self._core = core

    async def send(
        self,
        value: bytes,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        filter: str | None = None,  # noqa: A002  the field's word
        partition: Partition | None = None,
    ) -> Receipt:
        """Send a message and return its receipt when it is acknowledged; waits for room in the buffer.

        Raises:
            BadRequestError: it can never be sent.  BufferFullError: with ``when_full="raise"``.
            TubeError: it was not acknowledged.
        """
        answer: Deferred[Receipt] = Deferred()

        def done(receipt: Receipt | None, error: TubeError | None) -> None:
            if error is not None:
                answer.errback(Failure(error))
            elif receipt is not None:
                answer.callback(receipt)

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
                return await answer

    async def send_many(self, messages: Iterable[Outgoing | bytes]) -> list[Receipt]:
        """Send all and return their receipts, in order.

        Raises:
            TubeError: the first failure; the others are sent all the same.
        """
        running: list[Deferred[Any]] = []
        for message in messages:
            out = message if isinstance(message, Outgoing) else Outgoing(message)
            sending = Deferred.fromCoroutine(
                self.send(
                    out.value,
                    key=out.key,
                    headers=out.headers,
                    filter=out.filter,
                    partition=out.partition,
                )
            )
            running.append(sending.addErrback(lambda failure: failure.value))
        results = [await sending for sending in running]
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything is acknowledged or has failed.

        Raises:
            TimedOutError: it was not after ``timeout_s``.
        """
        await self._core.flush(timeout_s)


class Consumer(aio.Consumer):
    """A member of a consumer group; the same as for asyncio, with awaits that Twisted runs."""

    def __init__(self, core: consumer_core.Consumer) -> None:
        super().__init__(core)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._messages()


class Client:
    """A client of a Tube (or TubeMQ) cluster on a Twisted reactor.

    ``async with Client(reactor, "tube://host:8715") as client:``; leaving the block flushes and closes.
    """

    def __init__(
        self,
        reactor: Reactor,
        url: str,
        options: ClientOptions | None = None,
        *,
        report: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._core = Core(TwistedRuntime(reactor), url, options, report)

    def producer(self, topic: str, options: ProducerOptions | None = None) -> Producer:
        """A producer of ``topic``."""
        return Producer(self._core.producer(topic, options))

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
