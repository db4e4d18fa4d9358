"""What happened: every move, join, leave, reset and admin action, bounded in age and number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tube.master.db.lease import fence
from tube.master.db.tables import history


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One event; ``event_id`` is 0 until it is stored."""

    at_ms: int
    kind: str
    event_id: int = 0
    group: str | None = None
    client_id: str | None = None
    topic: str | None = None
    broker_id: int | None = None
    partition_id: int | None = None
    round_id: int | None = None
    reason: str | None = None
    principal: str | None = None
    detail: str | None = None


def append(conn: sa.Connection, epoch: int, rows: Sequence[HistoryRow]) -> None:
    """Store events in their order.

    Raises:
        StaleEpochError: we do not lead.
    """
    fence(conn, epoch)
    conn.execute(
        sa.insert(history),
        [
            {
                "at_ms": row.at_ms,
                "kind": row.kind,
                "group_name": row.group,
                "client_id": row.client_id,
                "topic": row.topic,
                "broker_id": row.broker_id,
                "partition_id": row.partition_id,
                "round_id": row.round_id,
                "reason": row.reason,
                "principal": row.principal,
                "detail": row.detail,
            }
            for row in rows
        ],
    )


def select(
    conn: sa.Connection, *, group: str | None, kind: str | None, after: int | None, limit: int
) -> list[HistoryRow]:
    """Events, oldest first: the ``limit`` next ones after an id, or the newest ones."""
    query = sa.select(history)
    if group is not None:
        query = query.where(history.c.group_name == group)
    if kind is not None:
        query = query.where(history.c.kind == kind)
    if after is not None:
        query = query.where(history.c.event_id > after).order_by(history.c.event_id)
    else:
        query = query.order_by(history.c.event_id.desc())
    found = [_row(row) for row in conn.execute(query.limit(limit)).mappings()]
    return found if after is not None else found[::-1]


def trim(conn: sa.Connection, epoch: int, *, before_ms: int, rows_max: int) -> int:
    """Delete events older than ``before_ms``, and the oldest beyond ``rows_max``; return how many.

    Raises:
        StaleEpochError: we do not lead.
    """
    fence(conn, epoch)
    old = conn.execute(sa.delete(history).where(history.c.at_ms < before_ms)).rowcount
    last_kept = conn.execute(
        sa.select(history.c.event_id).order_by(history.c.event_id.desc()).offset(rows_max).limit(1)
    ).scalar_one_or_none()
    if last_kept is None:
        return old
    return old + conn.execute(sa.delete(history).where(history.c.event_id <= last_kept)).rowcount


def count(conn: sa.Connection) -> int:
    """How many events are kept."""
    return conn.execute(sa.select(sa.func.count()).select_from(history)).scalar_one()


def _row(fields: sa.RowMapping) -> HistoryRow:
    return HistoryRow(
        event_id=fields[history.c.event_id],
        at_ms=fields[history.c.at_ms],
        kind=fields[history.c.kind],
        group=fields[history.c.group_name],
        client_id=fields[history.c.client_id],
        topic=fields[history.c.topic],
        broker_id=fields[history.c.broker_id],
        partition_id=fields[history.c.partition_id],
        round_id=fields[history.c.round_id],
        reason=fields[history.c.reason],
        principal=fields[history.c.principal],
        detail=fields[history.c.detail],
    )
