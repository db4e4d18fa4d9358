"""The brokers of the cluster."""

from __future__ import annotations

import sqlalchemy as sa

from tube.errors import NotFoundError
from tube.master.db.lease import fence
from tube.master.db.tables import brokers
from tube.master.values import BrokerRow


def all_brokers(conn: sa.Connection) -> list[BrokerRow]:
    """All brokers by id."""
    rows = conn.execute(
        sa.select(
            brokers.c.broker_id,
            brokers.c.host,
            brokers.c.port,
            brokers.c.http_port,
            brokers.c.state,
            brokers.c.created_ms,
        ).order_by(brokers.c.broker_id)
    )
    return [
        BrokerRow(
            broker_id=row.broker_id,
            host=row.host,
            port=row.port,
            http_port=row.http_port,
            state=row.state,
            created_ms=row.created_ms,
        )
        for row in rows
    ]


def put(conn: sa.Connection, epoch: int, broker: BrokerRow) -> None:
    """Add the broker, or replace its addresses and state.

    Raises:
        StaleEpochError: we do not lead.
    """
    fence(conn, epoch)
    values = {
        "host": broker.host,
        "port": broker.port,
        "http_port": broker.http_port,
        "state": broker.state,
    }
    changed = conn.execute(
        sa.update(brokers).where(brokers.c.broker_id == broker.broker_id).values(**values)
    )
    if changed.rowcount == 0:
        conn.execute(
            sa.insert(brokers).values(
                broker_id=broker.broker_id, created_ms=broker.created_ms, **values
            )
        )


def set_state(conn: sa.Connection, epoch: int, broker_id: int, state: str) -> None:
    """Change what the operator wants of a broker.

    Raises:
        StaleEpochError: we do not lead.  NotFoundError: no such broker.
    """
    fence(conn, epoch)
    changed = conn.execute(
        sa.update(brokers).where(brokers.c.broker_id == broker_id).values(state=state)
    )
    if changed.rowcount == 0:
        raise NotFoundError(f"broker {broker_id} is not in the metadata")
