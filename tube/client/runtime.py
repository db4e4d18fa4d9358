"""What the SDK's core needs of an event loop; Twisted and asyncio give it.

The core is written once, as coroutines that await only what a ``Runtime`` made.  A driver moves bytes, keeps
time and hands over results; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from tube.client.options import ClientOptions
from tube.values import Address

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Cancellable(Protocol):
    """A timer or a running coroutine."""

    def cancel(self) -> object:
        """Stop it; harmless when it is over."""


class Promise(Protocol[T]):
    """A result that comes later; awaited by one coroutine only, which goes on in the loop's next turn."""

    def resolve(self, value: T) -> None:
        """Give the result; later calls do nothing."""

    def fail(self, error: Exception) -> None:
        """Give an error; later calls do nothing."""

    def wait(self) -> Awaitable[T]:
        """What the one coroutine awaits."""


class Pipe(Protocol):
    """A connection that bytes go through."""

    def write(self, data: bytes) -> None:
        """Send; dropped when the connection is closed."""

    def close(self) -> None:
        """End the connection."""


class Runtime(Protocol):
    """The event loop.  All methods are called on its thread."""

    cancelled: type[BaseException]
    """What a cancelled coroutine gets at its await."""

    def now_s(self) -> float:
        """Monotonic seconds."""

    def wall_ms(self) -> int:
        """Wall clock, milliseconds since 1970."""

    def random_bits(self, count: int) -> int:
        """Random bits for ids and jitter."""

    def call_later(self, delay_s: float, f: Callable[[], object]) -> Cancellable:
        """Call ``f`` after ``delay_s`` seconds."""

    def promise(self) -> Promise[Any]:
        """A new promise."""

    def spawn(
        self, coroutine: Coroutine[Any, Any, None], failed: Callable[[Exception], None]
    ) -> Cancellable:
        """Run a coroutine; ``failed`` hears of an exception that it does not catch."""

    def use_tls(self, options: ClientOptions) -> None:
        """Open connections with TLS from now on.

        Raises:
            BadRequestError: a file with certificates cannot be used.
        """

    async def open(
        self,
        address: Address,
        timeout_s: float,
        received: Callable[[bytes], None],
        lost: Callable[[], None],
    ) -> Pipe:
        """Connect; ``received`` gets bytes, ``lost`` is called once at the end.

        Raises:
            UnreachableError: nobody listens there, or ``timeout_s`` passed.
        """

    async def call_user(self, f: Callable[..., object], *args: object) -> None:
        """Call a callback of the user: in a thread where it may block, else here, awaiting what it returns."""

    def identity(self) -> str:
        """``ip-pid`` of this process, the beginning of client ids."""


class Signal(Generic[T]):
    """Wakes every coroutine that waits; each has a promise of its own."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: list[Promise[Any]] = []

    def fire(self) -> None:
        """Wake all."""
        waiting, self._waiting = self._waiting, []
        for promise in waiting:
            promise.resolve(True)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for ``fire``; False when ``timeout_s`` passed before."""
        promise = self._runtime.promise()
        self._waiting.append(promise)
        timer: Cancellable | None = None
        if timeout_s is not None:
            timer = self._runtime.call_later(timeout_s, lambda: promise.resolve(False))
        try:
            return bool(await promise.wait())
        finally:
            if timer is not None:
                timer.cancel()
            if promise in self._waiting:
                self._waiting.remove(promise)


async def sleep(runtime: Runtime, seconds: float) -> None:
    """Wait."""
    promise = runtime.promise()
    timer = runtime.call_later(seconds, lambda: promise.resolve(None))
    try:
        await promise.wait()
    finally:
        timer.cancel()
