"""Consumer groups and flow rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from tube.errors import ConflictError
from tube.master.db.lease import fence
from tube.master.db.tables import consumer_groups, flow_rules


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group; ``active`` when the last leader saw members."""

    name: str
    active: bool
    created_ms: int
    used_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """Flow-control JSON of a group; the scope "" is the cluster's default."""

    scope: str
    check_id: int
    rules: str


def all_groups(conn: sa.Connection) -> list[GroupRow]:
    """All groups by name."""
    rows = conn.execute(
        sa.select(
            consumer_groups.c.name,
            consumer_groups.c.active,
            consumer_groups.c.created_ms,
            consumer_groups.c.used_ms,
        ).order_by(consumer_groups.c.name)
    )
    return [
        GroupRow(name=name, active=active, created_ms=created_ms, used_ms=used_ms)
        for name, active, created_ms, used_ms in rows
    ]


def add(conn: sa.Connection, epoch: int, name: str, now_ms: int) -> GroupRow:
    """Create a group without members.

    Raises:
        StaleEpochError: we do not lead.  ConflictError: it exists.
    """
    fence(conn, epoch)
    if conn.execute(
        sa.select(consumer_groups.c.name).where(consumer_groups.c.name == name)
    ).first():
        raise ConflictError(f"group {name!r} exists already")
    conn.execute(
        sa.insert(consumer_groups).values(
            name=name, active=False, created_ms=now_ms, used_ms=now_ms
        )
    )
    return GroupRow(name=name, active=False, created_ms=now_ms, used_ms=now_ms)


def mark(conn: sa.Connection, epoch: int, names: Iterable[str], active: bool, now_ms: int) -> None:
    """Remember that groups got their first, or lost their last member; unknown ones are added.

    Raises:
        StaleEpochError: we do not lead.
    """
    fence(conn, epoch)
    for name in names:
        changed = conn.execute(
            sa.update(consumer_groups)
            .where(consumer_groups.c.name == name)
            .values(active=active, used_ms=now_ms)
        )
        if changed.rowcount == 0:
            conn.execute(
                sa.insert(consumer_groups).values(
                    name=name, active=active, created_ms=now_ms, used_ms=now_ms
                )
            )


def delete(conn: sa.Connection, epoch: int, name: str) -> None:
    """Forget a group and its rules.

    Raises:
        StaleEpochError: we do not lead.
    """
    fence(conn, epoch)
    conn.execute(sa.delete(consumer_groups).where(consumer_groups.c.name == name))
    conn.execute(sa.delete(flow_rules).where(flow_rules.c.scope == name))


def forget_old(conn: sa.Connection, epoch: int, before_ms: int) -> int:
    """Forget groups without members and rules that nobody used since ``before_ms``; return how many.

    Raises:
        StaleEpochError: we do not lead.
    """
    fence(conn, epoch)
    ruled = sa.select(flow_rules.c.scope)
    return conn.execute(
        sa.delete(consumer_groups).where(
            consumer_groups.c.active == sa.false(),
            consumer_groups.c.used_ms < before_ms,
            consumer_groups.c.name.not_in(ruled),
        )
    ).rowcount


def all_rules(conn: sa.Connection) -> list[RuleRow]:
    """All flow rules."""
    rows = conn.execute(sa.select(flow_rules.c.scope, flow_rules.c.check_id, flow_rules.c.rules))
    return [RuleRow(scope=scope, check_id=number, rules=text) for scope, number, text in rows]


def set_rules(conn: sa.Connection, epoch: int, rule: RuleRow) -> None:
    """Replace the rules of a scope.

    Raises:
        StaleEpochError: we do not lead.
    """
    fence(conn, epoch)
    conn.execute(sa.delete(flow_rules).where(flow_rules.c.scope == rule.scope))
    conn.execute(
        sa.insert(flow_rules).values(scope=rule.scope, check_id=rule.check_id, rules=rule.rules)
    )
