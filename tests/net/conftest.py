"""Real sockets on 127.0.0.1 between the parts of ``tube.net``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from pytest_twisted import async_yield_fixture
from twisted.internet import reactor

from tests.broker.raw import Peer, dial, eventually
from tube.limits import SMALL_CALL_BYTES_MAX
from tube.net.daemon import port_number
from tube.net.framed import FramedFactory, FramedProtocol
from tube.wire.frame import Frame


@dataclass
class Listener:
    """A port whose connections a test looks at; ``serve`` is what is done with frames."""

    frames: list[Frame] = field(default_factory=list)
    lost: list[FramedProtocol] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)
    serve: Callable[[FramedProtocol, list[Frame]], None] = lambda _connection, _frames: None
    connections_max: int = 10

    def __post_init__(self) -> None:
        self.factory = FramedFactory(
            reactor,
            self._received,
            lambda connection, _reason: self.lost.append(connection),
            limit=lambda _connection, _prefix: SMALL_CALL_BYTES_MAX,
            connections_max=self.connections_max,
        )
        self.opened = reactor.listenTCP(0, self.factory, interface="127.0.0.1")
        self.port = port_number(self.opened)

    def _received(self, connection: FramedProtocol, frames: list[Frame]) -> None:
        connection.admit()
        self.frames += frames
        self.serve(connection, frames)

    async def peer(self) -> Peer:
        """A raw client."""
        before = len(self.factory.connections)
        peer = await dial(self.port)
        self.peers.append(peer)
        await eventually(lambda: len(self.factory.connections) > before or peer.closed)
        return peer

    @property
    def connection(self) -> FramedProtocol:
        """The only accepted connection."""
        (connection,) = self.factory.connections
        return connection


@async_yield_fixture
async def listener() -> AsyncIterator[Listener]:
    """A framed port."""
    made = Listener()
    yield made
    for peer in made.peers:
        peer.leave()
    for connection in list(made.factory.connections):
        connection.abort()
    await made.opened.stopListening()
    await eventually(lambda: not made.factory.connections)
