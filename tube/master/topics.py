"""What operators do with topics: create, change, delete, restore, look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from twisted.logger import Logger

from tube.errors import BadRequestError, ConflictError, NotFoundError
from tube.limits import MESSAGE_BYTES_DEFAULT, MESSAGE_BYTES_MAX, PARTITIONS_PER_TOPIC_MAX
from tube.master.core import Core
from tube.master.db import topics as topic_rows
from tube.master.orders import Orders
from tube.master.values import DELETED, DRAFT, NORMAL, ONLINE, REMOVING, StoredTopic, TopicRow
from tube.wire import records, settings

log = Logger(namespace="tube.master.topics")

PARTITIONS_DEFAULT = 3
RETENTION_DEFAULT = "delete,168h"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWish:
    """What an operator wants of a topic; None: as it is, or the default of a new one.

    ``partitions`` counts all brokers; ``retention`` is ``delete,168h`` or short ``168h``.
    """

    partitions: int | None = None
    durable: bool | None = None
    retention: str | None = None
    retention_bytes: int | None = None
    max_message_bytes: int | None = None
    accept_publish: bool | None = None
    accept_subscribe: bool | None = None


class Topics:
    """Changes topics in SQL and in memory, one change at a time."""

    def __init__(self, core: Core, orders: Orders) -> None:
        self._core = core
        self._orders = orders

    async def create(
        self, name: str, wish: TopicWish, broker_ids: Sequence[int] | None, principal: str
    ) -> StoredTopic:
        """Create a topic, spread evenly over ``broker_ids``, or over all brokers that are online.

        Raises:
            BadRequestError: a value is malformed.  ConflictError: the name is in use, or no broker is online.
            NotFoundError: a broker is not in the metadata.  StandbyError: we do not lead.
        """
        records.check_topic(name)
        check_wish(wish)
        core = self._core
        async with core.admin_lock:
            epoch = core.leader.require()
            existing = core.topology.topics.get(name)
            if existing is not None:
                state = "exists already" if existing.row.status == NORMAL else "is being removed"
                if existing.row.status == DELETED:
                    state = "is deleted; restore it, or remove it with its data"
                raise ConflictError(f"topic {name!r} {state}")
            places = self._chosen(broker_ids)
            draft = self._draft(name, wish)
            count = wish.partitions if wish.partitions is not None else PARTITIONS_DEFAULT
            partitions = spread(dict.fromkeys(places, 0), count, self._loads())
            topic = await core.database.write(topic_rows.add, epoch, draft, partitions)
            core.leader.require()
            self._apply(topic, f"topic {name} was created")
        detail = f"created with {count} partitions on brokers {sorted(partitions)}"
        core.chronicle.note("admin", topic=name, principal=principal, detail=detail)
        log.info("topic {topic} {detail}", topic=name, detail=detail)
        return topic

    async def change(self, name: str, wish: TopicWish, principal: str) -> StoredTopic:
        """Change a topic; it only ever grows.

        Raises:
            BadRequestError: a value is malformed, or fewer partitions are wanted.
            NotFoundError: no such topic.  ConflictError: it is deleted.  StandbyError: we do not lead.
        """
        check_wish(wish)
        core = self._core
        async with core.admin_lock:
            epoch = core.leader.require()
            topic = core.topology.topic(name)
            if topic.row.status != NORMAL:
                raise ConflictError(f"topic {name!r} is {topic.row.status}")
            row = _with(topic.row, wish)
            partitions, old = topic.partitions, sum(topic.partitions.values())
            if wish.partitions is not None and wish.partitions < old:
                raise BadRequestError(
                    f"topic {name!r} has {old} partitions; it cannot shrink to {wish.partitions}"
                )
            if wish.partitions is not None:
                partitions = spread(topic.partitions, wish.partitions, self._loads())
            detail = _difference(topic, row, partitions)
            if not detail:
                return topic
            changed = await self._store(epoch, topic, row, partitions, f"topic {name}: {detail}")
        core.chronicle.note("admin", topic=name, principal=principal, detail=detail)
        return changed

    async def delete(self, name: str, principal: str, *, hard: bool) -> StoredTopic:
        """Take a topic out of service; ``hard`` deletes its data on all brokers, for good.

        Raises:
            NotFoundError: no such topic.  ConflictError: it is deleted already.  StandbyError: we do not lead.
        """
        wanted = REMOVING if hard else DELETED
        return await self._set_status(
            name, {NORMAL, DELETED} if hard else {NORMAL}, wanted, principal
        )

    async def restore(self, name: str, principal: str) -> StoredTopic:
        """Put a deleted topic back into service.

        Raises:
            NotFoundError: no such topic.  ConflictError: it is not deleted, or its data is going.
        """
        return await self._set_status(name, {DELETED}, NORMAL, principal)

    async def offsets(self, name: str) -> tuple[list[dict[str, object]], list[int]]:
        """What the brokers say about the topic's partitions, and which brokers say nothing.

        Raises:
            NotFoundError: no such topic.  StandbyError: we do not lead.
        """
        self._core.leader.require()
        topic = self._core.topology.topic(name)
        order = {"op": "describe", "topics": [name], "group": None}
        answers, missing = await self._orders.ask_each(sorted(topic.partitions), order)
        rows: list[dict[str, object]] = []
        for broker_id, answer in answers.items():
            for part in answer["partitions"]:
                partition_id = part["partition_id"]
                rows.append(
                    {
                        "topic": name,
                        "broker_id": broker_id,
                        "partition_id": partition_id,
                        "number": topic.numbers.get((broker_id, partition_id)),
                        "first": part["first"],
                        "next": part["next"],
                        "bytes": part["bytes"],
                        "last_append_ms": part["last_append_ms"],
                        "read_only": part["read_only"],
                    }
                )
        return rows, missing

    async def _set_status(
        self, name: str, allowed: set[str], wanted: str, principal: str
    ) -> StoredTopic:
        core = self._core
        async with core.admin_lock:
            epoch = core.leader.require()
            topic = core.topology.topic(name)
            if topic.row.status not in allowed:
                raise ConflictError(f"topic {name!r} is {topic.row.status}")
            row = replace(topic.row, status=wanted)
            detail = f"{topic.row.status} -> {wanted}"
            changed = await self._store(
                epoch, topic, row, topic.partitions, f"topic {name}: {detail}"
            )
        core.chronicle.note("admin", topic=name, principal=principal, detail=detail)
        log.info("topic {topic}: {detail}", topic=name, detail=detail)
        return changed

    async def _store(
        self,
        epoch: int,
        topic: StoredTopic,
        row: TopicRow,
        partitions: Mapping[int, int],
        reason: str,
    ) -> StoredTopic:
        core = self._core
        numbers = await core.database.write(topic_rows.change, epoch, row, partitions)
        core.leader.require()
        changed = StoredTopic(
            row=row, partitions=dict(partitions), numbers={**topic.numbers, **numbers}
        )
        self._apply(changed, reason)
        return changed

    def _apply(self, topic: StoredTopic, reason: str) -> None:
        core = self._core
        core.topology.put_topic(topic)
        core.facts_changed()
        core.balancer.topics_changed([topic.row.name], reason)

    def _chosen(self, broker_ids: Sequence[int] | None) -> list[int]:
        known = self._core.topology.brokers
        if broker_ids is not None:
            unknown = sorted(set(broker_ids) - set(known))
            if unknown:
                raise NotFoundError(f"brokers not in the metadata: {unknown}")
            drafts = [b for b in broker_ids if known[b].row.state == DRAFT]
            if drafts:
                raise ConflictError(f"brokers are drafts: {drafts}")
            if not broker_ids:
                raise BadRequestError("brokers: the list is empty")
            return sorted(set(broker_ids))
        online = [s for s in known.values() if s.row.state == ONLINE]
        chosen = [s.row.broker_id for s in online if s.alive] or [s.row.broker_id for s in online]
        if not chosen:
            raise ConflictError("no broker is online", hint="start a broker: tube broker")
        return sorted(chosen)

    def _loads(self) -> dict[int, int]:
        """Partitions per broker."""
        loads: dict[int, int] = {}
        for topic in self._core.topology.topics.values():
            for broker_id, count in topic.partitions.items():
                loads[broker_id] = loads.get(broker_id, 0) + count
        return loads

    def _draft(self, name: str, wish: TopicWish) -> TopicRow:
        draft = TopicRow(
            topic_id=0,
            name=name,
            status=NORMAL,
            durable=True,
            retention=RETENTION_DEFAULT,
            retention_bytes=0,
            max_message_bytes=MESSAGE_BYTES_DEFAULT,
            accept_publish=True,
            accept_subscribe=True,
            created_ms=self._core.wall_ms(),
        )
        return _with(draft, wish)


def spread(current: Mapping[int, int], count: int, loads: Mapping[int, int]) -> dict[int, int]:
    """Partitions per broker when a topic has ``count``: nobody loses any, the emptiest get the rest.

    Brokers that get none are left out.
    """
    places = dict(current)
    order = sorted(places, key=lambda broker_id: (loads.get(broker_id, 0), broker_id))
    for _ in range(count - sum(places.values())):
        fewest = min(order, key=lambda broker_id: places[broker_id])
        places[fewest] += 1
    return {broker_id: places[broker_id] for broker_id in sorted(places) if places[broker_id]}


def check_wish(wish: TopicWish) -> None:
    """Check the values that an operator gives.

    Raises:
        BadRequestError: names the value that is out of range.
    """
    numbers = [
        ("partitions", wish.partitions, 1, PARTITIONS_PER_TOPIC_MAX),
        ("retention_bytes", wish.retention_bytes, 0, 2**62),
        ("max_message_bytes", wish.max_message_bytes, 1, MESSAGE_BYTES_MAX),
    ]
    for name, value, least, most in numbers:
        if value is not None and not least <= value <= most:
            raise BadRequestError(f"{name}: {value} is not in {least}..{most}")
    if wish.retention is not None:
        settings.parse_delete_policy(delete_policy(wish.retention))


def delete_policy(text: str) -> str:
    """``168h`` as ``delete,168h``."""
    return text if text.startswith("delete,") else f"delete,{text.strip()}"


def _with(row: TopicRow, wish: TopicWish) -> TopicRow:
    names = (
        "durable",
        "retention_bytes",
        "max_message_bytes",
        "accept_publish",
        "accept_subscribe",
    )
    given = {name: getattr(wish, name) for name in names if getattr(wish, name) is not None}
    if wish.retention is not None:
        given["retention"] = delete_policy(wish.retention)
    return replace(row, **given)


def _difference(topic: StoredTopic, row: TopicRow, partitions: Mapping[int, int]) -> str:
    """What changes, in words; "" for nothing."""
    names = (
        "durable",
        "retention",
        "retention_bytes",
        "max_message_bytes",
        "accept_publish",
        "accept_subscribe",
    )
    parts = [
        f"{name} {getattr(topic.row, name)} -> {getattr(row, name)}"
        for name in names
        if getattr(topic.row, name) != getattr(row, name)
    ]
    old, new = sum(topic.partitions.values()), sum(partitions.values())
    if old != new:
        parts.append(f"partitions {old} -> {new}")
    return ", ".join(parts)
