"""Frames on real sockets: back-pressure, limits, closing."""

from __future__ import annotations

import socket

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.broker.raw import eventually
from tests.net.conftest import Listener
from tube.errors import UnreachableError
from tube.limits import (
    BUFFERED_BYTES_MAX,
    IN_FLIGHT_MAX,
    UNAUTHENTICATED_BYTES_MAX,
    UNAUTHENTICATED_S_MAX,
)
from tube.net.framed import FramedFactory
from tube.wire import frame


async def test_accepted_connections_send_at_once_and_notice_dead_peers(listener: Listener) -> None:
    """TCP_NODELAY and keep-alive are set on what is accepted."""
    await listener.peer()
    raw = listener.connection.transport.socket

    assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


async def test_frames_of_one_read_come_together(listener: Listener) -> None:
    """The owner gets all frames of a chunk in one call, in order."""
    reads: list[int] = []
    listener.serve = lambda _connection, frames: reads.append(len(frames))
    peer = await listener.peer()
    peer.send(b"".join(frame.encode(i, b"%d" % i) for i in range(100)))
    await eventually(lambda: len(listener.frames) == 100)

    assert [one.serial for one in listener.frames] == list(range(100))
    assert len(reads) < 5


@pytest.mark.parametrize(
    ("count", "byte_count"), [(IN_FLIGHT_MAX + 1, 1), (1, BUFFERED_BYTES_MAX + 1)]
)
async def test_reading_stops_while_too_much_is_unanswered(
    listener: Listener, count: int, byte_count: int
) -> None:
    """Too many requests, or too many bytes of them; when they are answered reading goes on."""
    peer = await listener.peer()
    peer.send(frame.encode(1, b"x"))
    await eventually(lambda: listener.frames)
    connection = listener.connection
    connection.begin(count, byte_count)
    assert connection._paused
    peer.send(frame.encode(2, b"y"))
    probe = await listener.peer()
    probe.send(frame.encode(3, b"z"))
    await eventually(lambda: listener.frames[-1].serial == 3)
    assert [one.serial for one in listener.frames] == [1, 3]
    connection.end(count, byte_count)
    await eventually(lambda: len(listener.frames) == 3)

    assert connection.in_flight == 0


async def test_reading_stops_while_the_peer_reads_nothing(listener: Listener) -> None:
    """A full send buffer pauses reading; when the peer has read, reading goes on."""
    peer = await listener.peer()
    peer.stop_reading()
    listener.connection.write(frame.encode(1, bytes(20_000_000), 1 << 25))
    await eventually(lambda: listener.connection._paused)
    peer.send(frame.encode(2, b"y"))
    probe = await listener.peer()
    probe.send(frame.encode(3, b"z"))
    await eventually(lambda: listener.frames)
    assert [one.serial for one in listener.frames] == [3]
    peer.go_on()
    await eventually(lambda: len(listener.frames) == 2)
    await eventually(lambda: peer.frames)

    assert peer.frames[0].serial == 1


async def test_a_paused_connection_closes_after_all_is_sent(listener: Listener) -> None:
    """``close`` with a full send buffer: the peer gets every byte, then the end."""
    peer = await listener.peer()
    peer.stop_reading()
    connection = listener.connection
    connection.write(frame.encode(1, bytes(20_000_000), 1 << 25))
    await eventually(lambda: connection._write_full)
    connection.close()
    peer.go_on()

    assert await peer.gone()
    assert len(peer.frames[0].payload) == 20_000_000
    await eventually(lambda: connection.closed)


async def test_room_for_answers_is_bounded_and_fair(listener: Listener) -> None:
    """Reservations beyond the limit wait, in order; a single large one passes; the end frees all."""
    peer = await listener.peer()
    connection = listener.connection
    await connection.reserve(BUFFERED_BYTES_MAX * 2)
    done: list[str] = []
    waits = {
        name: Deferred.fromCoroutine(connection.reserve(size)).addCallback(
            lambda _none, name=name: done.append(name)
        )
        for name, size in (("first", 1000), ("second", BUFFERED_BYTES_MAX), ("third", 10))
    }
    assert done == []
    connection.release(BUFFERED_BYTES_MAX * 2)
    assert done == ["first"]
    connection.release(1000)
    assert done == ["first", "second"]
    peer.leave()
    with pytest.raises(UnreachableError):
        await waits["third"]

    assert await waits["first"] is None
    assert await waits["second"] is None


async def test_many_that_wait_for_room_are_let_in_one_after_the_other(listener: Listener) -> None:
    """Each that is let in may finish at once and let the next in: a thousand of them need no deep stack."""
    await listener.peer()
    connection = listener.connection
    await connection.reserve(BUFFERED_BYTES_MAX)

    async def one() -> None:
        await connection.reserve(BUFFERED_BYTES_MAX)
        connection.release(BUFFERED_BYTES_MAX)

    waits = [Deferred.fromCoroutine(one()) for _ in range(3000)]
    connection.release(BUFFERED_BYTES_MAX)

    assert all(wait.called for wait in waits)
    assert connection._reserved_bytes == 0


async def test_unsent_answers_take_room(listener: Listener) -> None:
    """What the peer has not read counts; when it has read there is room again."""
    peer = await listener.peer()
    peer.stop_reading()
    connection = listener.connection
    for i in range(4):
        connection.write(frame.encode(i, bytes(17_000_000), 1 << 25))
    waiting = Deferred.fromCoroutine(connection.reserve(10_000_000))
    assert not waiting.called
    peer.go_on()
    await waiting

    await eventually(lambda: len(peer.frames) == 4)


async def test_too_large_frames_are_cut_off(listener: Listener) -> None:
    """The limit is asked for once more than a stranger's share has been announced."""
    peer = await listener.peer()
    peer.send(frame.encode(1, bytes(UNAUTHENTICATED_BYTES_MAX * 2), 1 << 20))
    await eventually(lambda: listener.frames)
    peer.send(frame.encode(2, bytes(2_000_000), 1 << 25))

    assert await peer.gone()
    assert [one.serial for one in listener.frames] == [1]
    assert len(listener.lost) == 1


async def test_the_greeting_has_a_limit_of_its_own() -> None:
    """A connection that is not admitted in time is closed; an admitted one is not."""
    clock = Clock()
    factory = FramedFactory(
        clock, lambda *_: None, lambda *_: None, limit=lambda *_: 1, connections_max=3
    )
    silent, greeted = factory.buildProtocol(None), factory.buildProtocol(None)
    aborted: list[str] = []
    silent.abort = lambda: aborted.append("silent")
    greeted.abort = lambda: aborted.append("greeted")
    clock.advance(UNAUTHENTICATED_S_MAX / 2)
    greeted.admit()
    clock.advance(UNAUTHENTICATED_S_MAX)

    assert aborted == ["silent"]
    assert clock.getDelayedCalls() == []


async def test_writing_after_the_end_does_nothing(listener: Listener) -> None:
    """An answer that comes too late is dropped without an error."""
    peer = await listener.peer()
    connection = listener.connection
    peer.leave()
    await eventually(lambda: connection.closed)
    connection.write(b"late")
    connection.close()
    connection.abort()

    assert listener.lost == [connection]
