"""The right to lead: one row, in the database's own time, with an epoch that only grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from tube.errors import StaleEpochError
from tube.master.db.tables import leases

NAME: Final = "master"

_NOW_MS: Final = {
    "sqlite": "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "postgresql": "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
    "mariadb": "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
}


@dataclass(frozen=True, slots=True)
class Lease:
    """Who leads, where it listens, in which epoch, and until when (database time)."""

    holder: str
    address: str
    http_address: str
    epoch: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A master that wants to lead; ``holder`` names one run of it, so that a restart is a new one."""

    holder: str
    address: str
    http_address: str
    ttl_ms: int


def now_ms(conn: sa.Connection) -> int:
    """The database's clock, milliseconds since 1970."""
    return int(conn.exec_driver_sql(_NOW_MS[conn.dialect.name]).scalar_one())


def take_or_renew(conn: sa.Connection, me: Candidate) -> Lease:
    """Renew our lease, or take it if it is free or expired; return whoever holds it now.

    The epoch grows whenever the lease is taken, also by the one that let it expire.
    """
    now = now_ms(conn)
    if read(conn) is None:
        # Two masters may insert at once: the second fails on the key, and tries again later.
        conn.execute(
            sa.insert(leases).values(
                name=NAME, holder="", address="", http_address="", epoch=0, expires_at_ms=0
            )
        )
    mine = sa.and_(leases.c.holder == me.holder, leases.c.expires_at_ms > now)
    conn.execute(
        sa.update(leases)
        .where(
            leases.c.name == NAME,
            sa.or_(leases.c.holder == me.holder, leases.c.expires_at_ms <= now),
        )
        .ordered_values(  # MySQL assigns from left to right: the epoch looks at the old holder
            (leases.c.epoch, sa.case((mine, leases.c.epoch), else_=leases.c.epoch + 1)),
            (leases.c.holder, me.holder),
            (leases.c.address, me.address),
            (leases.c.http_address, me.http_address),
            (leases.c.expires_at_ms, now + me.ttl_ms),
        )
    )
    found = read(conn)
    assert found is not None
    return found


def read(conn: sa.Connection) -> Lease | None:
    """The lease, None before any master led."""
    row = conn.execute(
        sa.select(
            leases.c.holder,
            leases.c.address,
            leases.c.http_address,
            leases.c.epoch,
            leases.c.expires_at_ms,
        ).where(leases.c.name == NAME)
    ).one_or_none()
    return None if row is None else Lease(*row)


def release(conn: sa.Connection, holder: str) -> None:
    """Give our lease back, so that a standby need not wait for its end."""
    conn.execute(
        sa.update(leases)
        .where(leases.c.name == NAME, leases.c.holder == holder)
        .values(expires_at_ms=0)
    )


def fence(conn: sa.Connection, epoch: int) -> None:
    """Let this transaction go on only while ``epoch`` is the newest; nobody takes over before it ends.

    Raises:
        StaleEpochError: another master has taken the lease.
    """
    newest = conn.execute(
        sa.select(leases.c.epoch).where(leases.c.name == NAME).with_for_update(read=True)
    ).scalar_one_or_none()
    if newest != epoch:
        raise StaleEpochError(f"epoch {epoch} is over, {newest} has begun")
