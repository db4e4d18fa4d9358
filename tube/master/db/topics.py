"""Topics, where they are, and the topic-wide numbers of their partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import sqlalchemy as sa

from tube.errors import ConflictError, NotFoundError
from tube.master.db.lease import fence
from tube.master.db.tables import counters, deployments, partition_numbers, topics
from tube.master.values import GONE, StoredTopic, TopicRow

_TOPIC_ID: Final = "topic_id"


def all_topics(conn: sa.Connection) -> list[StoredTopic]:
    """All topics whose data is not gone, by id."""
    found: dict[int, StoredTopic] = {}
    query = sa.select(topics).where(topics.c.status != GONE).order_by(topics.c.topic_id)
    for fields in conn.execute(query).mappings():
        kept = TopicRow(
            topic_id=fields[topics.c.topic_id],
            name=fields[topics.c.name],
            status=fields[topics.c.status],
            durable=fields[topics.c.durable],
            retention=fields[topics.c.retention],
            retention_bytes=fields[topics.c.retention_bytes],
            max_message_bytes=fields[topics.c.max_message_bytes],
            accept_publish=fields[topics.c.accept_publish],
            accept_subscribe=fields[topics.c.accept_subscribe],
            created_ms=fields[topics.c.created_ms],
        )
        found[kept.topic_id] = StoredTopic(row=kept, partitions={}, numbers={})
    places = sa.select(deployments.c.topic_id, deployments.c.broker_id, deployments.c.partitions)
    for topic_id, broker_id, count in conn.execute(places):
        if topic_id in found:
            found[topic_id].partitions[broker_id] = count
    numbers = sa.select(
        partition_numbers.c.topic_id,
        partition_numbers.c.broker_id,
        partition_numbers.c.partition_id,
        partition_numbers.c.number,
    )
    for topic_id, broker_id, partition_id, number in conn.execute(numbers):
        if topic_id in found:
            found[topic_id].numbers[broker_id, partition_id] = number
    return list(found.values())


def next_topic_id(conn: sa.Connection) -> int:
    """A topic id that was never given before."""
    changed = conn.execute(
        sa.update(counters).where(counters.c.name == _TOPIC_ID).values(value=counters.c.value + 1)
    )
    if changed.rowcount == 0:
        conn.execute(sa.insert(counters).values(name=_TOPIC_ID, value=1))
    return conn.execute(
        sa.select(counters.c.value).where(counters.c.name == _TOPIC_ID)
    ).scalar_one()


def add(
    conn: sa.Connection, epoch: int, draft: TopicRow, partitions: Mapping[int, int]
) -> StoredTopic:
    """Create a topic with so many partitions per broker; ``draft.topic_id`` is ignored.

    Raises:
        StaleEpochError: we do not lead.  ConflictError: the name is in use.
    """
    fence(conn, epoch)
    if conn.execute(sa.select(topics.c.topic_id).where(topics.c.live_name == draft.name)).first():
        raise ConflictError(f"topic {draft.name!r} exists already")
    topic_id = next_topic_id(conn)
    row = replace(draft, topic_id=topic_id)
    conn.execute(
        sa.insert(topics).values(
            topic_id=topic_id,
            live_name=row.name,
            created_ms=row.created_ms,
            next_number=0,
            **_settings(row),
        )
    )
    numbers = _grow(conn, topic_id, {}, partitions)
    return StoredTopic(row=row, partitions=dict(partitions), numbers=numbers)


def change(
    conn: sa.Connection, epoch: int, row: TopicRow, partitions: Mapping[int, int]
) -> dict[tuple[int, int], int]:
    """Store changed settings and more partitions; return the numbers of the new partitions.

    Raises:
        StaleEpochError: we do not lead.  NotFoundError: no such topic.
    """
    fence(conn, epoch)
    changed = conn.execute(
        sa.update(topics).where(topics.c.topic_id == row.topic_id).values(**_settings(row))
    )
    if changed.rowcount == 0:
        raise NotFoundError(f"topic {row.name!r} does not exist")
    current = conn.execute(
        sa.select(deployments.c.broker_id, deployments.c.partitions).where(
            deployments.c.topic_id == row.topic_id
        )
    )
    return _grow(conn, row.topic_id, {b: n for b, n in current}, partitions)  # noqa: C416  typed rows


def removed_at(conn: sa.Connection, epoch: int, topic_id: int, broker_id: int, now_ms: int) -> bool:
    """A broker has deleted the topic's data; True when it was the last one and the topic is gone.

    Raises:
        StaleEpochError: we do not lead.
    """
    fence(conn, epoch)
    conn.execute(
        sa.delete(deployments).where(
            deployments.c.topic_id == topic_id, deployments.c.broker_id == broker_id
        )
    )
    left = conn.execute(
        sa.select(deployments.c.broker_id).where(deployments.c.topic_id == topic_id)
    ).first()
    if left is not None:
        return False
    conn.execute(
        sa.update(topics)
        .where(topics.c.topic_id == topic_id)
        .values(status=GONE, live_name=None, removed_ms=now_ms)
    )
    return True


def forget_gone(conn: sa.Connection, epoch: int, before_ms: int) -> int:
    """Delete the rows of topics that are gone since before ``before_ms``; return how many.

    Raises:
        StaleEpochError: we do not lead.
    """
    fence(conn, epoch)
    old = sa.select(topics.c.topic_id).where(
        topics.c.status == GONE, topics.c.removed_ms < before_ms
    )
    topic_ids = list(conn.execute(old).scalars())
    for table in (partition_numbers, topics):
        conn.execute(sa.delete(table).where(table.c.topic_id.in_(topic_ids)))
    return len(topic_ids)


def _settings(row: TopicRow) -> dict[str, object]:
    return {
        "name": row.name,
        "status": row.status,
        "durable": row.durable,
        "retention": row.retention,
        "retention_bytes": row.retention_bytes,
        "max_message_bytes": row.max_message_bytes,
        "accept_publish": row.accept_publish,
        "accept_subscribe": row.accept_subscribe,
    }


def _grow(
    conn: sa.Connection, topic_id: int, old: Mapping[int, int], new: Mapping[int, int]
) -> dict[tuple[int, int], int]:
    """Store the counts and number the new partitions: round by round over the brokers."""
    for broker_id, count in new.items():
        if broker_id not in old:
            conn.execute(
                sa.insert(deployments).values(
                    topic_id=topic_id, broker_id=broker_id, partitions=count
                )
            )
        elif old[broker_id] != count:
            conn.execute(
                sa.update(deployments)
                .where(deployments.c.topic_id == topic_id, deployments.c.broker_id == broker_id)
                .values(partitions=count)
            )
    first = conn.execute(
        sa.select(topics.c.next_number).where(topics.c.topic_id == topic_id)
    ).scalar_one()
    places = _new_places(old, new)
    numbers = {place: first + i for i, place in enumerate(places)}
    if numbers:
        conn.execute(
            sa.insert(partition_numbers),
            [
                {
                    "topic_id": topic_id,
                    "number": number,
                    "broker_id": broker_id,
                    "partition_id": partition_id,
                }
                for (broker_id, partition_id), number in numbers.items()
            ],
        )
        conn.execute(
            sa.update(topics)
            .where(topics.c.topic_id == topic_id)
            .values(next_number=first + len(places))
        )
    return numbers


def _new_places(old: Mapping[int, int], new: Mapping[int, int]) -> list[tuple[int, int]]:
    return sorted(
        (
            (broker_id, partition_id)
            for broker_id, count in new.items()
            for partition_id in range(old.get(broker_id, 0), count)
        ),
        key=lambda place: (place[1], place[0]),
    )
