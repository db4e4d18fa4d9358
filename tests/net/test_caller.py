"""Calls of a client connection: each has one end, within its deadline."""

from __future__ import annotations

import socket

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults

from tests.broker.raw import eventually
from tests.net.conftest import Listener
from tube.errors import TimedOutError, TubeError, UnknownMethodError, UnreachableError
from tube.net.caller import connect, connected
from tube.values import Address
from tube.wire import frame, rpc


def echo(connection, frames) -> None:
    """Answer every call with its own body, newest first."""
    for one in reversed(frames):
        call = rpc.decode_call(one)
        connection.write(rpc.encode_reply(call.serial, call.method, 3, call.body))


async def test_answers_find_their_calls_in_any_order(listener: Listener) -> None:
    """A hundred open calls, answered backwards: each gets its own."""
    listener.serve = echo
    async with connected(reactor, Address("127.0.0.1", listener.port)) as caller:
        raw = caller.protocol.transport.socket
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        asked = [caller.call(13, b"%d" % i, 5) for i in range(100)]
        answers = await gatherResults(asked)

    assert answers == [b"%d" % i for i in range(100)]
    assert caller.open_count == 0
    assert caller.closed


async def test_a_call_ends_at_its_deadline_and_late_answers_are_dropped(listener: Listener) -> None:
    """No answer: TimedOutError; the answer that comes after it harms nobody."""
    kept: list[frame.Frame] = []
    listener.serve = lambda _connection, frames: kept.extend(frames)
    async with connected(reactor, Address("127.0.0.1", listener.port)) as caller:
        with pytest.raises(TimedOutError, match=r"0\.05 s"):
            await caller.call(13, b"slow", 0.05)
        echo(listener.connection, kept)
        listener.serve = echo

        assert await caller.call(13, b"next", 5) == b"next"


async def test_exceptions_become_our_errors(listener: Listener) -> None:
    """A refusal by name is the error of that name; garbage in an answer is an error of that call only."""

    def refuse(connection, frames) -> None:
        for one in frames:
            call = rpc.decode_call(one)
            if call.body == b"name":
                name = rpc.refusal_name(UnknownMethodError("x"), None)
                text = "Unsupported method ID :13"
                connection.write(rpc.encode_refusal(call.serial, None, True, name, text))
            elif call.body == b"garbage":
                connection.write(frame.encode(call.serial, b"\xff\xff"))
            else:
                echo(connection, [one])

    listener.serve = refuse
    async with connected(reactor, Address("127.0.0.1", listener.port)) as caller:
        with pytest.raises(TubeError):
            await caller.call(13, b"garbage", 5)
        with pytest.raises(UnknownMethodError):
            await caller.call(13, b"name", 5)

        assert await caller.call(13, b"fine", 5) == b"fine"


async def test_open_calls_fail_when_the_connection_ends(listener: Listener) -> None:
    """All that wait, and all that come later; whoever waits for the end hears of it."""
    caller = await connect(reactor, Address("127.0.0.1", listener.port))
    asked = [caller.call(13, b"x", 5) for _ in range(3)]
    gone = caller.when_gone()
    await eventually(lambda: len(listener.frames) == 3)
    listener.connection.abort()
    for answer in [*asked, caller.call(13, b"x", 5)]:
        with pytest.raises(UnreachableError):
            await answer
    await gone
    await caller.when_gone()

    assert caller.open_count == 0


async def test_nobody_there_is_an_error_that_names_the_address() -> None:
    """A closed port and an unknown name are ``UnreachableError``."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UnreachableError, match=str(port)):
        await connect(reactor, Address("127.0.0.1", port), 2)


async def test_a_connection_attempt_can_be_given_up(listener: Listener) -> None:
    """Cancelling leaves nothing behind."""
    attempt = Deferred.fromCoroutine(connect(reactor, Address("127.0.0.1", listener.port)))
    attempt.addErrback(lambda failure: None)
    attempt.cancel()
    await attempt
    await eventually(lambda: not listener.factory.connections)
