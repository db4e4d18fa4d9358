"""A peer that sends what bytes it likes, and may choose not to read."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet import reactor
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from tube.pb import RPC_pb2
from tube.wire import frame, rpc, varint
from tube.wire.frame import Frame, FrameDecoder


async def eventually(condition: Callable[[], object], within_s: float = 5) -> None:
    """Wait for a condition, and fail the test when it does not come true."""
    until_s = reactor.seconds() + within_s
    while not condition():
        assert reactor.seconds() < until_s, "the condition did not come true"
        await deferLater(reactor, 0.005, lambda: None)


class Peer(Protocol):
    """One connection; keeps what came as bytes and as frames."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.frames: list[Frame] = []
        self.closed = False
        self._decoder = FrameDecoder()

    def dataReceived(self, data: bytes) -> None:
        self.bytes += data
        self.frames += self._decoder.feed(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.closed = True

    def send(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    def stop_reading(self) -> None:
        self.transport.pauseProducing()

    def go_on(self) -> None:
        self.transport.resumeProducing()

    def leave(self) -> None:
        if not self.closed:
            self.transport.abortConnection()

    async def answers(self, count: int, within_s: float = 5) -> list[rpc.Reply | rpc.Refusal]:
        """The first ``count`` answers."""
        await eventually(lambda: len(self.frames) >= count or self.closed, within_s)
        assert len(self.frames) >= count, f"closed after {len(self.frames)} answers"
        return [rpc.decode_reply(one) for one in self.frames[:count]]

    async def gone(self, within_s: float = 5) -> bool:
        """Whether the other side closes."""
        await eventually(lambda: self.closed, within_s)
        return True

    def block_sizes(self) -> list[list[int]]:
        """The sizes of the blocks of each frame that came."""
        sizes, at = [], 0
        while at < len(self.bytes):
            count = int.from_bytes(self.bytes[at + 8 : at + 12], "big")
            at += 12
            found = []
            for _ in range(count):
                length = int.from_bytes(self.bytes[at : at + 4], "big")
                found.append(length)
                at += 4 + length
            sizes.append(found)
        return sizes


class _Peers(Factory):
    noisy = False

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def buildProtocol(self, addr: object) -> Peer:
        return self._peer


async def dial(port: int) -> Peer:
    """A connection to 127.0.0.1."""
    peer = Peer()
    await HostnameEndpoint(reactor, b"127.0.0.1", port).connect(_Peers(peer))
    return peer


def call(
    serial: int,
    method: int,
    body: bytes,
    *,
    version: int = 3,
    flag: int = 0,
    timeout_ms: int = 5000,
    after: bytes = b"",
    block_bytes: int = 8192,
) -> bytes:
    """A call as bytes, with all that real peers vary."""
    header = RPC_pb2.RpcConnHeader(flag=flag).SerializeToString()
    request = RPC_pb2.RequestHeader(serviceType=3, protocolVer=version).SerializeToString()
    inner = RPC_pb2.RequestBody(method=method, timeout=timeout_ms, request=body)
    content = inner.SerializeToString()
    parts = (header, request, content)
    payload = b"".join(varint.encode(len(part)) + part for part in parts)
    return frame.encode(serial, payload + after, block_bytes)
