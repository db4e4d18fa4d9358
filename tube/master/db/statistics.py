"""How large the cluster was, one row a day."""

from __future__ import annotations

import sqlalchemy as sa

from tube.master.db import history
from tube.master.db.lease import fence
from tube.master.db.tables import brokers, consumer_groups, deployments, statistics, topics
from tube.master.values import GONE


def note_day(conn: sa.Connection, epoch: int, day: str) -> None:
    """Store the figures of ``day`` (``YYYY-MM-DD``, UTC), replacing those of an earlier run.

    Raises:
        StaleEpochError: we do not lead.
    """
    fence(conn, epoch)
    conn.execute(sa.delete(statistics).where(statistics.c.day == day))
    live = sa.select(sa.func.count()).select_from(topics).where(topics.c.status != GONE)
    conn.execute(
        sa.insert(statistics).values(
            day=day,
            brokers=_count(conn, sa.select(sa.func.count()).select_from(brokers)),
            topics=_count(conn, live),
            partitions=_count(conn, sa.select(sa.func.sum(deployments.c.partitions))),
            consumer_groups=_count(conn, sa.select(sa.func.count()).select_from(consumer_groups)),
            history_rows=history.count(conn),
        )
    )


def _count(conn: sa.Connection, query: sa.Select[int]) -> int:
    return int(conn.execute(query).scalar_one() or 0)
