"""Questions and changes that go to brokers with their heartbeats (docs/reference/wire-extensions.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from tube.errors import (
    OutcomeUnknownError,
    RefusedError,
    StandbyError,
    TimedOutError,
    UnavailableError,
)
from tube.master.core import Core
from tube.wire import rpc

REPEAT_S: Final = 1.0
"""An order without a result is a reason to answer a heartbeat again after this."""

ANSWER_S: Final = 5.0
"""How long a broker has for an order unless said otherwise."""

PENDING_MAX: Final = 1000
"""Orders on their way to one broker: it remembers as many."""


@dataclass(slots=True)
class _Pending:
    order_id: int
    text: str
    waiter: Deferred[dict[str, Any]]
    timer: IDelayedCall
    sent_s: float | None = None


class Orders:
    """Orders on their way to brokers; repeated with every answer until the result comes or they expire."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._pending: dict[int, dict[int, _Pending]] = {}
        core.on_clear(self._forget_all)

    def ask(
        self, broker_id: int, order: dict[str, Any], timeout_s: float = ANSWER_S
    ) -> Deferred[dict[str, Any]]:
        """Send an order to a broker; the Deferred gets its result.

        Raises (through the Deferred):
            UnavailableError: the broker is not alive, or has too much to do.
            TimedOutError: no result in time; it may still have acted.
            TubeError: the broker refused, see ``rpc.error_from_code``.
        """
        waiter: Deferred[dict[str, Any]] = Deferred()
        state = self._core.topology.brokers.get(broker_id)
        pending = self._pending.setdefault(broker_id, {})
        if state is None or not state.alive:
            waiter.errback(Failure(UnavailableError(f"broker {broker_id} is not alive")))
            return waiter
        if len(pending) >= PENDING_MAX:
            waiter.errback(
                Failure(UnavailableError(f"broker {broker_id} has {PENDING_MAX} orders"))
            )
            return waiter
        order_id = self._core.draw_order()
        timer = self._core.reactor.callLater(timeout_s, self._expired, broker_id, order_id)
        pending[order_id] = _Pending(order_id, json.dumps(order), waiter, timer)
        self._core.held_brokers.wake(broker_id)
        return waiter

    async def ask_each(
        self, broker_ids: Iterable[int], order: dict[str, Any], timeout_s: float = ANSWER_S
    ) -> tuple[dict[int, dict[str, Any]], list[int]]:
        """Send one order to several brokers at once; their results, and those that gave none.

        Raises:
            RefusedError: a broker said no.
        """
        asked = {broker_id: self.ask(broker_id, order, timeout_s) for broker_id in broker_ids}
        results: dict[int, dict[str, Any]] = {}
        missing: list[int] = []
        refused: RefusedError | None = None
        for broker_id, waiter in asked.items():
            try:
                results[broker_id] = await waiter
            except RefusedError as error:
                refused = error
            except (UnavailableError, TimedOutError, OutcomeUnknownError):
                missing.append(broker_id)
        if refused is not None:
            raise refused
        return results, missing

    def due(self, broker_id: int) -> bool:
        """Whether there is an order that the broker has not got, or not answered for a while."""
        now_s = self._core.now_s()
        return any(
            p.sent_s is None or now_s - p.sent_s >= REPEAT_S
            for p in self._pending.get(broker_id, {}).values()
        )

    def open(self, broker_id: int) -> bool:
        """Whether results of the broker are awaited."""
        return bool(self._pending.get(broker_id))

    def take(self, broker_id: int) -> list[tuple[int, str]]:
        """All orders for an answer, with their ids."""
        now_s = self._core.now_s()
        pending = list(self._pending.get(broker_id, {}).values())
        for order in pending:
            order.sent_s = now_s
        return [(order.order_id, order.text) for order in pending]

    def finished(self, broker_id: int, order_id: int, text: str) -> None:
        """The broker has a result; one that nobody awaits any more is dropped."""
        order = self._pending.get(broker_id, {}).pop(order_id, None)
        if order is None:
            return
        order.timer.cancel()
        try:
            result = json.loads(text)
            error = result.get("error")
            if error is not None:
                refused = rpc.error_from_code(int(error["code"]), str(error["message"]))
                order.waiter.errback(Failure(refused))
                return
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            malformed = OutcomeUnknownError(f"broker {broker_id} sent a malformed result: {error}")
            order.waiter.errback(Failure(malformed))
            return
        order.waiter.callback(result)

    def _expired(self, broker_id: int, order_id: int) -> None:
        order = self._pending[broker_id].pop(order_id)
        order.waiter.errback(Failure(TimedOutError(f"broker {broker_id} did not answer in time")))

    def _forget_all(self) -> None:
        pending, self._pending = self._pending, {}
        for orders in pending.values():
            for order in orders.values():
                order.timer.cancel()
                order.waiter.errback(Failure(StandbyError("this master leads no more")))
