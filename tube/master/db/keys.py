"""The ring of keys that sign auth tokens."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from tube.master.db.lease import fence
from tube.master.db.tables import signing_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """A secret key; its id is text without dots."""

    key_id: str
    secret: bytes
    created_ms: int


def ring(conn: sa.Connection) -> list[KeyRow]:
    """All keys, oldest first."""
    rows = conn.execute(
        sa.select(signing_keys.c.key_id, signing_keys.c.secret, signing_keys.c.created_ms).order_by(
            signing_keys.c.created_ms, signing_keys.c.key_id
        )
    )
    return [KeyRow(key_id=key_id, secret=secret, created_ms=at) for key_id, secret, at in rows]


def add(conn: sa.Connection, epoch: int, key: KeyRow, *, keep: int) -> list[KeyRow]:
    """Add the newest key and forget all but ``keep``; return the ring.

    Raises:
        StaleEpochError: we do not lead.
    """
    fence(conn, epoch)
    conn.execute(
        sa.insert(signing_keys).values(
            key_id=key.key_id, secret=key.secret, created_ms=key.created_ms
        )
    )
    keys = ring(conn)
    old = [row.key_id for row in keys[:-keep]]
    conn.execute(sa.delete(signing_keys).where(signing_keys.c.key_id.in_(old)))
    return keys[-keep:]
