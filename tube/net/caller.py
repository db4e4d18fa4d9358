"""A client connection: calls in, answers out, each with a deadline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectError, ConnectingCancelledError, DNSLookupError
from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from tube.errors import TimedOutError, UnreachableError
from tube.net.clock import Reactor
from tube.net.framed import FramedProtocol
from tube.values import Address
from tube.wire import rpc
from tube.wire.frame import Frame


class Caller:
    """One connection to a server; any number of calls may be open on it.

    Use ``connect``.  After the connection ended every open and later call fails with ``UnreachableError``.
    """

    def __init__(self, reactor: Reactor, address: Address) -> None:
        self._reactor = reactor
        self.address = address
        self._open: dict[int, tuple[Deferred[bytes], IDelayedCall]] = {}
        self._serial = 0
        self._gone: list[Deferred[None]] = []
        self.protocol = FramedProtocol(self._received, self._lost)

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self.protocol.closed

    @property
    def open_count(self) -> int:
        """Calls that wait for their answers."""
        return len(self._open)

    def call(self, method: int, body: bytes, timeout_s: float) -> Deferred[bytes]:
        """Send a request; the Deferred gets the body of the answer.

        Raises (through the Deferred):
            TimedOutError: no answer within ``timeout_s``; the server may still have acted.
            UnreachableError: the connection ended before the answer came.
            TubeError: the server answered with an exception, see ``rpc.error_of``.
        """
        answer: Deferred[bytes] = Deferred()
        if self.protocol.closed:
            answer.errback(Failure(UnreachableError(f"{self.address}: the connection is closed")))
            return answer
        self._serial = serial = self._serial % 0x7FFFFFFF + 1
        timer = self._reactor.callLater(timeout_s, self._expired, serial, timeout_s)
        self._open[serial] = (answer, timer)
        self.protocol.write(rpc.encode_call(serial, method, body, max(1, int(timeout_s * 1000))))
        return answer

    def when_gone(self) -> Deferred[None]:
        """Fires when the connection has ended."""
        gone: Deferred[None] = Deferred()
        if self.protocol.closed:
            gone.callback(None)
        else:
            self._gone.append(gone)
        return gone

    def close(self) -> None:
        """End the connection; open calls fail."""
        self.protocol.close()

    def abort(self) -> None:
        """End the connection at once."""
        self.protocol.abort()

    def _received(self, _connection: FramedProtocol, frames: list[Frame]) -> None:
        for frame in frames:
            entry = self._open.pop(frame.serial, None)
            if entry is None:  # came after its deadline
                continue
            answer, timer = entry
            timer.cancel()
            try:
                reply = rpc.decode_reply(frame)
            except Exception:
                answer.errback(Failure())
                continue
            if isinstance(reply, rpc.Refusal):
                answer.errback(Failure(rpc.error_of(reply)))
            else:
                answer.callback(reply.body)

    def _expired(self, serial: int, timeout_s: float) -> None:
        answer, _ = self._open.pop(serial)
        answer.errback(Failure(TimedOutError(f"{self.address}: no answer within {timeout_s:g} s")))

    def _lost(self, _connection: FramedProtocol, _reason: Failure) -> None:
        waiting, self._open = self._open, {}
        for answer, timer in waiting.values():
            timer.cancel()
            answer.errback(Failure(UnreachableError(f"{self.address}: the connection was lost")))
        gone, self._gone = self._gone, []
        for listener in gone:
            listener.callback(None)


class _CallerFactory(Factory):
    """Hands out the protocol of one caller."""

    noisy = False

    def __init__(self, build: Callable[[], FramedProtocol]) -> None:
        self._build = build

    def buildProtocol(self, addr: IAddress | None) -> FramedProtocol:
        del addr
        return self._build()


async def connect(reactor: Reactor, address: Address, timeout_s: float = 3.0) -> Caller:
    """Open a connection.

    Raises:
        UnreachableError: nobody listens there, the name is unknown, or ``timeout_s`` passed.
    """
    caller = Caller(reactor, address)
    endpoint = HostnameEndpoint(reactor, address.host.encode(), address.port, timeout=timeout_s)
    try:
        await endpoint.connect(_CallerFactory(lambda: caller.protocol))
    except ConnectingCancelledError as error:
        raise CancelledError from error
    except (ConnectError, DNSLookupError, OSError) as error:
        raise UnreachableError(f"{address}: cannot connect: {error}") from error
    return caller


@asynccontextmanager
async def connected(
    reactor: Reactor, address: Address, timeout_s: float = 3.0
) -> AsyncIterator[Caller]:
    """A connection that lives as long as the block."""
    caller = await connect(reactor, address, timeout_s)
    try:
        yield caller
    finally:
        gone = caller.when_gone()
        caller.close()
        await gone
