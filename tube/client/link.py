"""Connections to servers: calls by serial number, one connection per address, closed when idle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tube.client.options import ClientOptions
from tube.client.runtime import Cancellable, Pipe, Promise, Runtime
from tube.errors import (
    ClosedError,
    StandbyError,
    TimedOutError,
    TubeError,
    UnreachableError,
    WireError,
)
from tube.values import Address
from tube.wire import rpc
from tube.wire.calls import Calls
from tube.wire.frame import Frame, FrameDecoder

OPEN_CALLS_MAX = 50_000
"""Most open calls per connection (Java's limit per broker, spec section 3.5)."""

SWEEP_S = 0.25
"""Calls are found to be over their deadline this late at most."""


class Link:
    """One open connection.  ``Links.to`` makes it."""

    def __init__(self, runtime: Runtime, address: Address, lost: Callable[[Link], None]) -> None:
        self.address = address
        self.used_at_s = runtime.now_s()
        self.closed = False
        self._runtime = runtime
        self._tell_lost = lost
        self._pipe: Pipe | None = None
        self._decoder = FrameDecoder()
        self._calls = Calls(OPEN_CALLS_MAX)
        self._promises: dict[int, Promise[bytes]] = {}
        self._timer: Cancellable | None = None

    async def open(self, timeout_s: float) -> None:
        """Connect.

        Raises:
            UnreachableError: nobody listens there, or ``timeout_s`` passed.
        """
        self._pipe = await self._runtime.open(self.address, timeout_s, self._received, self.lost)

    @property
    def open_count(self) -> int:
        """Calls that wait for their answers."""
        return len(self._calls)

    async def call(self, method: int, body: bytes, timeout_s: float) -> bytes:
        """Send a request and return the body of its answer.

        Raises:
            TimedOutError: no answer in time; the server may have acted.
            UnreachableError: the connection ended.  TubeError: the server answered with an exception.
        """
        if self.closed or self._pipe is None:
            raise UnreachableError(f"{self.address}: the connection is closed")
        now_s = self.used_at_s = self._runtime.now_s()
        serial = self._calls.open(now_s, timeout_s)
        promise: Promise[Any] = self._runtime.promise()
        self._promises[serial] = promise
        if self._timer is None:
            self._timer = self._runtime.call_later(SWEEP_S, self._sweep)
        self._pipe.write(rpc.encode_call(serial, method, body, max(1, int(timeout_s * 1000))))
        try:
            answer: bytes = await promise.wait()
            return answer
        finally:
            self._calls.close(serial)
            self._promises.pop(serial, None)

    def close(self) -> None:
        """End the connection; open calls fail."""
        if self._pipe is not None:
            self._pipe.close()
        self.lost()

    def lost(self) -> None:
        """The connection has ended."""
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._calls.close_all()
        promises, self._promises = self._promises, {}
        for promise in promises.values():
            promise.fail(UnreachableError(f"{self.address}: the connection was lost"))
        self._tell_lost(self)

    def _received(self, data: bytes) -> None:
        frames: list[Frame] = []
        try:
            frames = self._decoder.feed(data)
        except WireError:
            self.close()
        for frame in frames:
            promise = self._promises.get(frame.serial)
            if promise is None:  # came after its deadline
                continue
            try:
                reply = rpc.decode_reply(frame)
            except WireError as error:
                promise.fail(error)
                continue
            if isinstance(reply, rpc.Refusal):
                promise.fail(rpc.error_of(reply))
            else:
                promise.resolve(reply.body)

    def _sweep(self) -> None:
        self._timer = None
        for serial in self._calls.expire(self._runtime.now_s()):
            promise = self._promises.pop(serial, None)
            if promise is not None:
                promise.fail(TimedOutError(f"{self.address}: no answer in time"))
        if len(self._calls):
            self._timer = self._runtime.call_later(SWEEP_S, self._sweep)


class Links:
    """The open connections of a client, one per address."""

    def __init__(self, runtime: Runtime, options: ClientOptions) -> None:
        self._runtime = runtime
        self._options = options
        self._links: dict[Address, Link] = {}
        self._opening: dict[Address, list[Promise[Any]]] = {}
        self._timer: Cancellable | None = None
        self.closed = False

    async def to(self, address: Address) -> Link:
        """The connection to a server, made if there is none.

        Raises:
            UnreachableError: it cannot be made.  ClosedError: the client is closed.
        """
        if self.closed:
            raise ClosedError("the client is closed")
        link = self._links.get(address)
        if link is not None and not link.closed:
            return link
        waiting = self._opening.get(address)
        if waiting is not None:
            promise = self._runtime.promise()
            waiting.append(promise)
            opened: Link = await promise.wait()
            return opened
        self._opening[address] = []
        link = Link(self._runtime, address, self._lost)
        try:
            await link.open(self._options.connect_s)
        except TubeError as error:
            failure = error
            self._tell(address, lambda promise: promise.fail(failure))
            raise
        except BaseException:
            self._tell(address, lambda p: p.fail(UnreachableError(f"{address}: given up")))
            raise
        if self._gone():
            link.close()
            self._tell(address, lambda p: p.fail(ClosedError("the client is closed")))
            raise ClosedError("the client is closed")
        self._links[address] = link
        if self._timer is None:
            self._timer = self._runtime.call_later(self._options.idle_s / 4, self._look_for_idle)
        self._tell(address, lambda promise: promise.resolve(link))
        return link

    async def call(self, address: Address, method: int, body: bytes, timeout_s: float) -> bytes:
        """``to`` and ``Link.call``."""
        link = await self.to(address)
        return await link.call(method, body, timeout_s)

    def _look_for_idle(self) -> None:
        self._timer = None
        self.close_idle()
        if self._links:
            self._timer = self._runtime.call_later(self._options.idle_s / 4, self._look_for_idle)

    def close_idle(self) -> None:
        """Close what nobody used for ``idle_s``; called now and then while there are connections."""
        before_s = self._runtime.now_s() - self._options.idle_s
        for link in list(self._links.values()):
            if link.used_at_s < before_s and not link.open_count:
                link.close()

    def close(self) -> None:
        """Close everything."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        for link in list(self._links.values()):
            link.close()

    def _gone(self) -> bool:
        return self.closed

    def _tell(self, address: Address, f: Callable[[Promise[Any]], None]) -> None:
        for promise in self._opening.pop(address, []):
            f(promise)

    def _lost(self, link: Link) -> None:
        if self._links.get(link.address) is link:
            del self._links[link.address]


class Masters:
    """Calls to the leading master: the last known leader first, then the others."""

    def __init__(self, links: Links, addresses: list[Address]) -> None:
        self._links = links
        self._addresses = list(addresses)

    @property
    def leader(self) -> Address:
        """Who answered last."""
        return self._addresses[0]

    async def call(self, method: int, body: bytes, timeout_s: float) -> bytes:
        """The answer of the first master that leads.

        Raises:
            UnreachableError: none of them can be reached, or all are standbys.
            TubeError: the leader answered with an exception.
        """
        failures: list[str] = []
        for _ in range(len(self._addresses)):
            try:
                return await self._links.call(self._addresses[0], method, body, timeout_s)
            except StandbyError as error:
                failures.append(f"{self._addresses[0]} is a standby ({error})")
            except (UnreachableError, TimedOutError) as error:
                failures.append(str(error))
            self._addresses.append(self._addresses.pop(0))
        raise UnreachableError("; ".join(failures), hint="is the master running? try: tube doctor")
