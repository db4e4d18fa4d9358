"""The Twisted protocol around the frame decoder, with back-pressure.

A connection stops reading while too many requests wait for their answers, while their bytes are too many, or
while the peer does not read what we sent.  So a slow or hostile peer costs bounded memory, and only itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol as Shape
from typing import cast

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IPushProducer,
    IReactorTime,
    ISSLTransport,
)
from twisted.internet.protocol import Protocol, ServerFactory, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from tube.errors import UnreachableError, WireError
from tube.limits import (
    BUFFERED_BYTES_MAX,
    FRAME_BYTES_MAX,
    IN_FLIGHT_MAX,
    UNAUTHENTICATED_BYTES_MAX,
    UNAUTHENTICATED_S_MAX,
)
from tube.wire.frame import Frame, FrameDecoder

log = Logger(namespace="tube.net.framed")


class Transport(Shape):
    """What we use of a TCP or TLS transport (``ITransport`` lacks half of it)."""

    def write(self, data: bytes) -> None: ...
    def writeSequence(self, data: Sequence[bytes]) -> None: ...
    def loseConnection(self) -> None: ...
    def abortConnection(self) -> None: ...
    def pauseProducing(self) -> None: ...
    def resumeProducing(self) -> None: ...
    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None: ...
    def setTcpNoDelay(self, enabled: bool) -> None: ...
    def setTcpKeepAlive(self, enabled: bool) -> None: ...
    def unregisterProducer(self) -> None: ...
    def getPeer(self) -> IAddress: ...


@implementer(IPushProducer)
class FramedProtocol(Protocol):
    """One connection that speaks frames.

    ``receive(connection, frames)`` gets all frames of one read; ``lost(connection, reason)`` ends it.
    ``limit`` is asked how many payload bytes a frame may have once more than
    ``UNAUTHENTICATED_BYTES_MAX`` of it have come; None means ``FRAME_BYTES_MAX`` for all.
    """

    def __init__(
        self,
        receive: Callable[[FramedProtocol, list[Frame]], None],
        lost: Callable[[FramedProtocol, Failure], None],
        *,
        limit: Callable[[FramedProtocol, bytes], int] | None = None,
    ) -> None:
        self._receive = receive
        self._lost = lost
        if limit is None:
            self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        else:
            self._decoder = FrameDecoder(
                UNAUTHENTICATED_BYTES_MAX, raise_limit=lambda prefix: limit(self, prefix)
            )
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._write_full = False
        self._unsent_bytes = 0
        self._reserved_bytes = 0
        self._letting_in = False
        self._room: deque[tuple[int, Deferred[None]]] = deque()
        self._paused = False
        self._greeting: IDelayedCall | None = None
        self.connected_to = ""
        self.closed = False
        self.admitted = False
        self.secure = False
        self.session: object = None

    # Twisted calls these

    def connectionMade(self) -> None:
        """Set up the socket: answers go out at once, dead peers are noticed."""
        transport = self._transport
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)
        transport.registerProducer(self, True)
        self.secure = ISSLTransport.providedBy(self.transport)
        peer = transport.getPeer()
        if isinstance(peer, IPv4Address | IPv6Address):
            self.connected_to = f"{peer.host}:{peer.port}"

    def dataReceived(self, data: bytes) -> None:
        """Decode what came; a peer that breaks the framing is cut off."""
        frames: list[Frame] = []
        with suppress(WireError):  # the decoder keeps it as its fault
            frames = self._decoder.feed(data)
        if frames:
            self._receive(self, frames)
        if self._decoder.fault is not None:
            error = str(self._decoder.fault)
            log.warn("{peer}: closed: {error}", peer=self.connected_to, error=error)
            self.abort()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the owner once."""
        self.closed = True
        if self._greeting is not None and self._greeting.active():
            self._greeting.cancel()
        waiting, self._room = self._room, deque()
        for _, waiter in waiting:
            waiter.errback(Failure(UnreachableError("the connection was lost")))
        self._lost(self, reason)

    def pauseProducing(self) -> None:
        """Our send buffer is full: read no more requests until the peer reads its answers."""
        self._write_full = True
        self._regulate()

    def resumeProducing(self) -> None:
        """The send buffer has room again."""
        self._write_full = False
        self._unsent_bytes = 0
        self._let_in()
        self._regulate()

    def stopProducing(self) -> None:
        """The transport is gone."""

    # our own parts call these

    @property
    def _transport(self) -> Transport:
        return cast(Transport, self.transport)

    def expect_greeting(self, clock: IReactorTime) -> None:
        """Close unless ``admit`` is called within ``UNAUTHENTICATED_S_MAX`` seconds."""
        self._greeting = clock.callLater(UNAUTHENTICATED_S_MAX, self._no_greeting)

    def admit(self) -> None:
        """The peer made its first valid call."""
        self.admitted = True
        if self._greeting is not None:
            if self._greeting.active():
                self._greeting.cancel()
            self._greeting = None

    def write(self, data: bytes) -> None:
        """Send bytes; does nothing after the connection ended."""
        if not self.closed:
            self._transport.write(data)
            if self._write_full:
                self._unsent_bytes += len(data)

    async def reserve(self, byte_count: int) -> None:
        """Wait until an answer of about so many bytes may be made; ``release`` it when it is written.

        A peer that asks for much and reads nothing waits here, and costs ``BUFFERED_BYTES_MAX``.

        Raises:
            UnreachableError: the connection ended.
        """
        if self._room or not self._fits(byte_count):
            waiter: Deferred[None] = Deferred()
            self._room.append((byte_count, waiter))
            await waiter
        else:
            self._reserved_bytes += byte_count

    def release(self, byte_count: int) -> None:
        """The answer is written, or will not be."""
        self._reserved_bytes -= byte_count
        self._let_in()

    def begin(self, count: int, byte_count: int) -> None:
        """``count`` requests of ``byte_count`` bytes came and will be answered later."""
        self._in_flight += count
        self._in_flight_bytes += byte_count
        if self._in_flight > IN_FLIGHT_MAX or self._in_flight_bytes > BUFFERED_BYTES_MAX:
            self._regulate()

    def end(self, count: int, byte_count: int) -> None:
        """They are answered."""
        self._in_flight -= count
        self._in_flight_bytes -= byte_count
        if self._paused:
            self._regulate()

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answers."""
        return self._in_flight

    def close(self) -> None:
        """Close after what was written has been sent."""
        if not self.closed:
            # With a paused producer Twisted asks it for more when all is sent, instead of closing.
            self._transport.unregisterProducer()
            self._transport.loseConnection()

    def abort(self) -> None:
        """Close at once and drop what was not sent."""
        if not self.closed:
            self._transport.abortConnection()

    def _no_greeting(self) -> None:
        log.warn("{peer}: closed: no valid call within the limit", peer=self.connected_to)
        self.abort()

    def _fits(self, byte_count: int) -> bool:
        used = self._reserved_bytes + self._unsent_bytes
        return not used or used + byte_count <= BUFFERED_BYTES_MAX

    def _let_in(self) -> None:
        if self._letting_in:  # one that is let in may be done at once, and release its room
            return
        self._letting_in = True
        try:
            while self._room and self._fits(self._room[0][0]):
                byte_count, waiter = self._room.popleft()
                self._reserved_bytes += byte_count
                waiter.callback(None)
        finally:
            self._letting_in = False

    def _regulate(self) -> None:
        full = (
            self._write_full
            or self._in_flight > IN_FLIGHT_MAX
            or self._in_flight_bytes > BUFFERED_BYTES_MAX
        )
        if full != self._paused and not self.closed:
            self._paused = full
            if full:
                self._transport.pauseProducing()
            else:
                self._transport.resumeProducing()


class FramedFactory(ServerFactory):
    """Makes a ``FramedProtocol`` for each accepted connection, and knows all that are open."""

    noisy = False

    def __init__(
        self,
        clock: IReactorTime,
        receive: Callable[[FramedProtocol, list[Frame]], None],
        lost: Callable[[FramedProtocol, Failure], None],
        *,
        limit: Callable[[FramedProtocol, bytes], int],
        connections_max: int,
    ) -> None:
        self._clock = clock
        self._receive = receive
        self._lost = lost
        self._limit = limit
        self._connections_max = connections_max
        self.connections: set[FramedProtocol] = set()

    def buildProtocol(self, addr: IAddress | None) -> FramedProtocol | None:
        """Accept, or refuse when too many connections are open."""
        if len(self.connections) >= self._connections_max:
            log.warn(
                "{peer}: refused: {count} connections are open",
                peer=str(addr),
                count=len(self.connections),
            )
            return None
        connection = FramedProtocol(self._receive, self._gone, limit=self._limit)
        connection.expect_greeting(self._clock)
        self.connections.add(connection)
        return connection

    def _gone(self, connection: FramedProtocol, reason: Failure) -> None:
        self.connections.discard(connection)
        self._lost(connection, reason)
