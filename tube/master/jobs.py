"""What runs by the calendar: trimming the history, forgetting what is gone, a row of figures a day.

The jobs are blocking functions that APScheduler runs in a worker of the reactor's own pool (style 7.11).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

import sqlalchemy as sa
from apscheduler.schedulers.twisted import TwistedScheduler
from twisted.internet.task import deferLater

from tube.errors import StaleEpochError
from tube.master.db import groups, history, statistics, topics
from tube.net.clock import Reactor

DAY_MS: Final = 24 * 3600 * 1000
GONE_DAYS: Final = 30
"""How long the rows of topics without data are kept: ids in old logs can be looked up."""

GROUP_DAYS: Final = 90
"""How long a group without members is remembered; brokers forget its offsets earlier."""


class Jobs:
    """The jobs of the leader; ``epoch`` returns 0 on a standby."""

    def __init__(
        self,
        engine: sa.Engine,
        epoch: Callable[[], int],
        wall_ms: Callable[[], int],
        *,
        history_days: float,
        history_rows_max: int,
    ) -> None:
        self._engine = engine
        self._epoch = epoch
        self._wall_ms = wall_ms
        self._history_days = history_days
        self._history_rows_max = history_rows_max

    def trim(self) -> None:
        """Delete old events, and rows of topics and groups that nobody uses any more."""
        epoch = self._epoch()
        if not epoch:
            return
        now_ms = self._wall_ms()
        before_ms = now_ms - int(self._history_days * DAY_MS)
        try:
            with self._engine.begin() as conn:
                rows_max = self._history_rows_max
                history.trim(conn, epoch, before_ms=before_ms, rows_max=rows_max)
            with self._engine.begin() as conn:
                topics.forget_gone(conn, epoch, now_ms - GONE_DAYS * DAY_MS)
                groups.forget_old(conn, epoch, now_ms - GROUP_DAYS * DAY_MS)
        except StaleEpochError:
            pass  # the new leader does it

    def note_day(self) -> None:
        """Store the figures of today."""
        epoch = self._epoch()
        if not epoch:
            return
        day = datetime.fromtimestamp(self._wall_ms() / 1000, UTC).strftime("%Y-%m-%d")
        try:
            with self._engine.begin() as conn:
                statistics.note_day(conn, epoch, day)
        except StaleEpochError:
            pass


@asynccontextmanager
async def scheduled(reactor: Reactor, jobs: Jobs) -> AsyncIterator[None]:
    """Run the jobs by the calendar as long as the block."""
    scheduler = TwistedScheduler(reactor=reactor, timezone="UTC")
    scheduler.add_job(jobs.trim, "interval", minutes=10, id="trim")
    scheduler.add_job(jobs.note_day, "cron", hour=23, minute=50, id="statistics")
    scheduler.start()
    try:
        yield
    finally:
        scheduler.shutdown(wait=False)
        await deferLater(reactor, 0, lambda: None)  # it stops in a turn of its own
