"""Connections of a client: one per address, each call ends, idle ones are recycled."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest
from pytest_twisted import async_yield_fixture
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults

from tests.broker.raw import eventually
from tests.net.conftest import Listener
from tests.net.conftest import listener as net_listener
from tests.net.test_caller import echo
from tube.client.link import Links, Masters
from tube.client.options import ClientOptions
from tube.client.twisted import TwistedRuntime
from tube.errors import ClosedError, StandbyError, TimedOutError, UnreachableError
from tube.values import Address
from tube.wire import rpc

listener = net_listener  # the fixture


@async_yield_fixture
async def links() -> AsyncIterator[Links]:
    """Connections that are recycled after 0.2 s."""
    made = Links(TwistedRuntime(reactor), ClientOptions(idle_s=0.2, connect_s=1))
    yield made
    made.close()


def at(listener: Listener) -> Address:
    return Address("127.0.0.1", listener.port)


async def test_all_share_one_connection(links: Links, listener: Listener) -> None:
    """Twenty that ask at once get the same one, which sends at once (TCP_NODELAY)."""
    listener.serve = echo
    asked = [Deferred.fromCoroutine(links.to(at(listener))) for _ in range(20)]
    found = await gatherResults(asked)
    assert len(set(map(id, found))) == 1
    raw = found[0]._pipe.transport.socket
    assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    assert await links.call(at(listener), 13, b"x", 5) == b"x"
    assert len(listener.factory.connections) == 1


async def test_idle_connections_are_recycled_and_made_again(
    links: Links, listener: Listener
) -> None:
    """Nobody has to ask for it: also a client that only sends; a call that is open keeps its connection."""
    listener.serve = echo
    await links.call(at(listener), 13, b"x", 5)
    await eventually(lambda: not listener.factory.connections)
    kept: list = []
    listener.serve = lambda connection, frames: kept.extend((connection, f) for f in frames)
    slow = Deferred.fromCoroutine(links.call(at(listener), 13, b"slow", 5))
    other = Deferred.fromCoroutine(links.call(at(listener), 13, b"late", 0.6))
    with pytest.raises(TimedOutError):
        await other
    for connection, frame in kept:
        echo(connection, [frame])

    assert await slow == b"slow"


async def test_closing_ends_everybody_who_waits(links: Links, listener: Listener) -> None:
    """Open calls, and those that wait for a connection that is being made."""
    open_call = Deferred.fromCoroutine(links.call(at(listener), 13, b"x", 5))
    await eventually(lambda: listener.frames)
    second = Listener()
    try:
        waiting = [
            Deferred.fromCoroutine(links.to(Address("127.0.0.1", second.port))) for _ in range(3)
        ]
        links.close()
        with pytest.raises(UnreachableError):
            await open_call
        for one in waiting:
            with pytest.raises(ClosedError):
                await one.addTimeout(2, reactor)
        with pytest.raises(ClosedError):
            await links.to(at(listener))
    finally:
        await eventually(lambda: not second.factory.connections)
        await second.opened.stopListening()


async def test_a_server_that_breaks_the_framing_is_left(links: Links, listener: Listener) -> None:
    """Its open calls fail, and the next call makes a new connection."""
    listener.serve = lambda connection, _frames: connection.write(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(UnreachableError):
        await links.call(at(listener), 13, b"x", 5)
    listener.serve = echo

    assert await links.call(at(listener), 13, b"x", 5) == b"x"


async def test_the_leading_master_is_found_and_remembered(links: Links, listener: Listener) -> None:
    """A dead one and a standby are passed by; next time the leader is asked first."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = Address("127.0.0.1", taken.getsockname()[1])
    standby = Listener()

    def refuse(connection, frames) -> None:
        for frame in frames:
            call = rpc.decode_call(frame)
            name = rpc.refusal_name(StandbyError("x"), None)
            connection.write(rpc.encode_refusal(call.serial, None, False, name, "not me"))

    standby.serve, listener.serve = refuse, echo
    try:
        addresses = [dead, Address("127.0.0.1", standby.port), at(listener)]
        masters = Masters(links, addresses)
        assert await masters.call(2, b"x", 5) == b"x"
        assert masters.leader == at(listener)
        with pytest.raises(UnreachableError, match="standby"):
            await Masters(links, addresses[:2]).call(2, b"x", 5)
    finally:
        links.close()
        await eventually(lambda: not standby.factory.connections)
        await standby.opened.stopListening()
