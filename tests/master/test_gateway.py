"""The listener: what it does with calls that it cannot serve, and with bytes that are no calls."""

from __future__ import annotations

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol

from tests.master.peers import eventually, serving
from tube.errors import BadRequestError, UnknownMethodError
from tube.limits import SMALL_CALL_BYTES_MAX, UNAUTHENTICATED_BYTES_MAX
from tube.pb import MasterService_pb2 as pb
from tube.wire import frame, rpc
from tube.wire.rpc import Method


class Raw(Protocol):
    """Collects what comes."""

    def __init__(self):
        self.got, self.lost = b"", Deferred()

    def dataReceived(self, data):
        self.got += data

    def connectionLost(self, reason):
        self.lost.callback(None)


async def dial(master):
    return await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", master.port), Raw())


def replies(raw):
    return [rpc.decode_reply(f) for f in frame.FrameDecoder(1 << 24).feed(raw.got)]


@pytest.mark.parametrize("method", [0, 13, 64, 99])
async def test_an_unknown_method_is_fatal(peer, method):
    """The original's text; C++ closes its producers with method 0."""
    with pytest.raises(UnknownMethodError, match=f"Unsupported method ID :{method}"):
        await peer.caller.call(method, b"", 2.0)


@pytest.mark.parametrize("body", [b"", b"\xff\xff", b"\x0a\x02\xff\xfe\x18\x01"])
async def test_a_request_that_is_not_its_message_is_fatal(peer, body):
    """Missing required fields, no protobuf, no UTF-8."""
    for method in (1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 21, 22):
        with pytest.raises(BadRequestError):
            await peer.caller.call(method, body, 2.0)


async def test_the_exception_s_name_follows_the_caller_s_version(master):
    """Java instantiates it by name."""
    raw = await dial(master)
    for version, prefix in ((1, "com.tencent"), (2, "com.apache"), (3, "org.apache.inlong")):
        request = pb.HeartRequestP2M(clientId="p", brokerCheckSum=-1, hostName="h")
        call = rpc.encode_call(version, 2, request.SerializeToString(), 1000)
        master.core.leader.step_down("a test")
        raw.transport.write(
            call.replace(b"\x04\x08\x01\x10\x03", b"\x04\x08\x01\x10" + bytes([version]))
        )
        await eventually(lambda: raw.got)
        (reply,) = replies(raw)
        assert reply.exception_name == f"{prefix}.tubemq.corerpc.exception.StandbyException"
        assert not reply.fatal
        raw.got = b""
    raw.transport.loseConnection()
    await raw.lost


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff\x7f\xf4\xfe\x00\x00\x00\x01\x00\x00\x00\x00",
        b"\xff\x7f\xf4\xfe\x00\x00\x00\x01\x7f\xff\xff\xff",
        b"\xff\x7f\xf4\xfe\x00\x00\x00\x01\x00\x00\x00\x01\x7f\xff\xff\xff" + bytes(128),
    ],
)
async def test_a_peer_that_breaks_the_framing_is_cut_off(master, data):
    """Nobody else notices."""
    raw = await dial(master)
    raw.transport.write(data)

    await raw.lost

    assert raw.got == b""


async def test_a_frame_without_a_call_is_answered(master):
    """The serial is known, so the caller hears of it."""
    raw = await dial(master)
    raw.transport.write(frame.encode(7, b"\x05nonsense"))
    await eventually(lambda: raw.got)

    (reply,) = replies(raw)
    assert (reply.serial, reply.fatal) == (7, True)
    raw.transport.loseConnection()
    await raw.lost


async def test_a_call_that_is_too_large_is_cut_off(master):
    """No call to a master carries messages."""
    raw = await dial(master)
    body = bytes(SMALL_CALL_BYTES_MAX + UNAUTHENTICATED_BYTES_MAX)
    raw.transport.write(rpc.encode_call(1, Method.HEARTBEAT_PRODUCER, body, 1000))

    await raw.lost


async def test_a_held_heartbeat_of_a_lost_connection_is_forgotten(master, peer, http):
    """Its event is not sent into the void."""
    await serving(peer, http)
    raw = await dial(master)
    await peer.join("a")
    request = pb.HeartRequestC2M(
        clientId="a", groupName="readers", reportSubscribeInfo=False, wait_ms=9000
    )
    await peer.beat("a")
    master.core.balancer.stop()
    call = rpc.encode_call(1, Method.HEARTBEAT_CONSUMER, request.SerializeToString(), 20_000)
    raw.transport.write(call)
    await eventually(lambda: len(master.core.held_consumers))
    raw.transport.loseConnection()
    await raw.lost

    await eventually(lambda: not len(master.core.held_consumers))
