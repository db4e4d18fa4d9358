"""The background thread of the blocking client, with an asyncio loop that runs the core."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from tube.client.aio import AsyncioRuntime
from tube.client.core import Core
from tube.client.options import ClientOptions
from tube.errors import ClosedError, TimedOutError

T = TypeVar("T")

GRACE_S = 5.0
"""How long the end of the thread is waited for."""


class LoopThread:
    """The background thread with its event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._callbacks = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tube-callbacks")
        self.runtime = AsyncioRuntime(self.loop, self._call_user)
        self._thread = threading.Thread(target=self._run, name="tube-client", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine there and wait for its result.

        Raises:
            TimedOutError: the thread did not answer in time.  ClosedError: it has ended.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("the blocking client cannot be used in its own thread")
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError as error:  # the loop is closed
            coroutine.close()
            raise ClosedError("the client is closed") from error
        try:
            return future.result(timeout_s)
        except FutureTimeoutError:
            if not future.done():
                future.cancel()
                raise TimedOutError(f"the client did not answer within {timeout_s:g} s") from None
            raise
        except BaseException:
            future.cancel()
            raise

    def soon(self, f: Callable[[], object]) -> None:
        """Call ``f`` there.

        Raises:
            ClosedError: the thread has ended.
        """
        try:
            self.loop.call_soon_threadsafe(f)
        except RuntimeError as error:
            raise ClosedError("the client is closed") from error

    def stop(self) -> None:
        """End the thread."""
        self._callbacks.shutdown(wait=False)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(GRACE_S)

    async def _call_user(self, f: Callable[..., object], *args: object) -> None:
        await self.loop.run_in_executor(self._callbacks, lambda: f(*args))

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()

    def core(self, url: str, options: ClientOptions | None, report: Callable[[str], None]) -> Core:
        """A client's core that runs there."""
        return Core(self.runtime, url, options, report)
