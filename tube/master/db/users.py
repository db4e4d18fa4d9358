"""Users of clients: their sealed secrets, and what they may do."""

from __future__ import annotations

import json
from dataclasses import dataclass

import sqlalchemy as sa

from tube.errors import ConflictError, NotFoundError
from tube.master.db.lease import fence
from tube.master.db.tables import client_secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRow:
    """A user; ``sealed`` is the secret, encrypted with the cluster key."""

    name: str
    sealed: bytes
    produce: tuple[str, ...]
    consume: tuple[str, ...]
    created_ms: int


def all_users(conn: sa.Connection) -> list[UserRow]:
    """All users by name."""
    table = client_secrets.c
    rows = conn.execute(
        sa.select(
            table.name, table.secret, table.produce, table.consume, table.created_ms
        ).order_by(table.name)
    )
    return [
        UserRow(
            name=name,
            sealed=sealed,
            produce=tuple(json.loads(produce)),
            consume=tuple(json.loads(consume)),
            created_ms=created_ms,
        )
        for name, sealed, produce, consume, created_ms in rows
    ]


def add(conn: sa.Connection, epoch: int, user: UserRow) -> None:
    """Add a user.

    Raises:
        StaleEpochError: we do not lead.  ConflictError: it exists.
    """
    fence(conn, epoch)
    known = sa.select(client_secrets.c.name).where(client_secrets.c.name == user.name)
    if conn.execute(known).first():
        raise ConflictError(f"user {user.name!r} exists already", hint="delete it first")
    conn.execute(
        sa.insert(client_secrets).values(
            name=user.name,
            secret=user.sealed,
            produce=json.dumps(user.produce),
            consume=json.dumps(user.consume),
            created_ms=user.created_ms,
        )
    )


def delete(conn: sa.Connection, epoch: int, name: str) -> None:
    """Forget a user.

    Raises:
        StaleEpochError: we do not lead.  NotFoundError: no such user.
    """
    fence(conn, epoch)
    gone = conn.execute(sa.delete(client_secrets).where(client_secrets.c.name == name))
    if gone.rowcount == 0:
        raise NotFoundError(f"user {name!r} does not exist")
