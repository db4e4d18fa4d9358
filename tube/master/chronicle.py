"""Writes the history in batches, and lets readers wait for news."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from tube.errors import StaleEpochError, StoreError
from tube.master.database import Database
from tube.master.db import history
from tube.master.db.history import HistoryRow
from tube.net.clock import Reactor

log = Logger(namespace="tube.master.chronicle")

FLUSH_S: Final = 0.2
"""How long events are collected: a rebalance of 1,000 partitions is one transaction."""

BATCH_ROWS: Final = 1000
BUFFER_ROWS_MAX: Final = 20_000
"""Events kept while the database is away; the oldest are dropped, counted."""


class Chronicle:
    """Events on their way to the history table.

    ``epoch`` is the one in which we lead; ``stale`` is called when the database says that it is over.
    """

    def __init__(
        self,
        reactor: Reactor,
        database: Database,
        wall_ms: Callable[[], int],
        epoch: Callable[[], int],
        stale: Callable[[], None],
    ) -> None:
        self._reactor = reactor
        self._database = database
        self._wall_ms = wall_ms
        self._epoch = epoch
        self._stale = stale
        self._rows: deque[HistoryRow] = deque(maxlen=BUFFER_ROWS_MAX)
        self._timer: IDelayedCall | None = None
        self._writing = False
        self._readers: list[Deferred[None]] = []
        self._idle: list[Deferred[None]] = []
        self.dropped = 0

    def note(
        self,
        kind: str,
        *,
        group: str | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        broker_id: int | None = None,
        partition_id: int | None = None,
        round_id: int | None = None,
        reason: str | None = None,
        principal: str | None = None,
        detail: str | None = None,
    ) -> None:
        """Something happened now."""
        if len(self._rows) == BUFFER_ROWS_MAX:
            self.dropped += 1
        self._rows.append(
            HistoryRow(
                at_ms=self._wall_ms(),
                kind=kind,
                group=group,
                client_id=_clean(client_id),
                topic=topic,
                broker_id=broker_id,
                partition_id=partition_id,
                round_id=round_id,
                reason=_clean(reason),
                principal=principal,
                detail=_clean(detail),
            )
        )
        if self._timer is None and not self._writing:
            self._timer = self._reactor.callLater(FLUSH_S, self._begin)

    async def flush(self) -> None:
        """Wait until everything noted so far is stored, or could not be."""
        if self._timer is not None:
            self._timer.cancel()
            self._begin()
        if self._writing:
            idle: Deferred[None] = Deferred()
            self._idle.append(idle)
            await idle

    async def read(
        self, *, group: str | None, kind: str | None, after: int | None, limit: int, wait_s: float
    ) -> list[HistoryRow]:
        """Stored events; with a wait, after something new came or the wait has passed."""
        until_s = self._reactor.seconds() + wait_s
        while True:
            await self.flush()
            found = await self._database.read(
                history.select, group=group, kind=kind, after=after, limit=limit
            )
            left_s = until_s - self._reactor.seconds()
            if found or left_s <= 0:
                return found
            await self._news(left_s)

    def discard(self) -> None:
        """We lead no more: what is not stored belongs to an epoch that is over."""
        self._rows.clear()
        self._wake()

    def stop(self) -> None:
        """No timer stays behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()

    def _begin(self) -> None:
        self._timer = None
        self._writing = True
        Deferred.fromCoroutine(self._write()).addErrback(
            lambda failure: log.failure("the history cannot be written", failure=failure)
        )

    async def _write(self) -> None:
        try:
            while self._rows:
                rows = [self._rows.popleft() for _ in range(min(BATCH_ROWS, len(self._rows)))]
                await self._database.write(history.append, self._epoch(), rows)
        except StaleEpochError:
            self._rows.clear()
            self._stale()
        except StoreError as error:
            self.dropped += len(rows)
            log.warn("{count} events are lost: {error}", count=len(rows), error=str(error))
        finally:
            self._writing = False
            self._wake()
            idle, self._idle = self._idle, []
            for waiter in idle:
                waiter.callback(None)

    def _wake(self) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            reader.callback(None)

    async def _news(self, wait_s: float) -> None:
        news: Deferred[None] = Deferred()
        self._readers.append(news)
        timer = self._reactor.callLater(wait_s, self._give_up, news)
        try:
            await news
        finally:
            if timer.active():
                timer.cancel()
            if news in self._readers:
                self._readers.remove(news)

    def _give_up(self, news: Deferred[None]) -> None:
        if news in self._readers:
            self._readers.remove(news)
            news.callback(None)


def _clean(text: str | None) -> str | None:
    """A client id may be any text; PostgreSQL refuses a NUL, and with it the whole batch."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if text is not None else None
