"""Starting and stopping a process in order (style 7.12)."""

from __future__ import annotations

import gc
import json
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import ServerFactory

from tube.errors import TubeError
from tube.net.clock import Reactor, use_monotonic_clock

SWITCH_INTERVAL_S = 0.0005
"""How long a worker that comes back from the disk waits for the interpreter: 5 ms by default, which made the
bare prototype a third slower (design section 12)."""

BACKLOG = 1024

OPEN_FILES_MAX = 1024 * 1024
"""Enough for all connections and segments, where the system sets no limit."""


class PortInUseError(TubeError):
    """The port cannot be listened on."""


def raise_open_files_limit() -> int:
    """Let this process open as many files as the system allows it to; return how many that is.

    The usual soft limit of 1,024 is for programs that use ``select``; a broker has that many connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    with suppress(ValueError, OSError):  # some systems promise more than they allow
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def port_number(port: IListeningPort) -> int:
    """The TCP port that is listened on, also when any free one was asked for."""
    address = port.getHost()
    assert isinstance(address, IPv4Address | IPv6Address)
    return address.port


@asynccontextmanager
async def listening(
    reactor: Reactor, host: str, port: int, factory: ServerFactory[Any]
) -> AsyncIterator[IListeningPort]:
    """A listening port that closes with the block.

    Raises:
        PortInUseError: somebody else listens there, or the address is not this machine's.
    """
    try:
        opened = reactor.listenTCP(port, factory, backlog=BACKLOG, interface=host)
    except CannotListenError as error:
        raise PortInUseError(
            f"cannot listen on {host}:{port}: {error.socketError}",
            hint="stop the other process, or choose another port",
        ) from error
    try:
        yield opened
    finally:
        await stop_listening(opened)


async def stop_listening(port: IListeningPort) -> None:
    """Accept no more connections."""
    result = port.stopListening()
    if isinstance(result, Deferred):
        await result


def print_ready(ports: dict[str, int]) -> None:
    """The contract of every process: one JSON line ``{"ready": true, "ports": {…}}``."""
    print(json.dumps({"ready": True, "ports": ports}), flush=True)  # noqa: T201  the contract


async def run(
    reactor: Reactor,
    serve: Callable[[Reactor, AsyncExitStack], Awaitable[dict[str, int]]],
    announce: Callable[[dict[str, int]], None] = print_ready,
) -> None:
    """Serve until the process is told to stop, then stop in reverse order.

    ``announce`` tells the ports that ``serve`` returned, once everything serves.
    """
    use_monotonic_clock(reactor)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    raise_open_files_limit()
    stopping: Deferred[None] = Deferred()
    stopped: Deferred[None] = Deferred()

    def begin_stop() -> Deferred[None]:
        if not stopping.called:
            stopping.callback(None)
        return stopped

    reactor.addSystemEventTrigger("before", "shutdown", begin_stop)
    try:
        async with AsyncExitStack() as stack:
            ports = await serve(reactor, stack)
            gc.collect()  # what the imports left behind,
            gc.freeze()  # and no later collection walks through the rest of them
            announce(ports)
            await stopping
    finally:
        stopped.callback(None)
