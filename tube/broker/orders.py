"""What the master may ask of a broker beside its configuration: questions and changes, as JSON.

An order comes with a heartbeat answer, its result goes with the next heartbeat
(docs/reference/wire-extensions.md):

    {"op": "describe", "topics": [...] | null, "group": name | null}
    {"op": "reset", "group": …, "topic": …, "partitions": [...] | null,
     "to": {"kind": …, "value": …}, "dry_run": bool}
    {"op": "undo", "group": …, "topic": … | null, "dry_run": bool}
    {"op": "forget", "group": …, "topic": … | null}

``to.kind`` is ``earliest``, ``latest``, ``offset`` or ``time`` (milliseconds).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.logger import Logger

from tube.broker.holders import Claim
from tube.broker.service import BrokerService
from tube.errors import BadRequestError, ConflictError, StoreError, TubeError
from tube.values import GroupName

log = Logger(namespace="tube.broker.orders")

Answer = dict[str, Any]


class Orders:
    """Carries out the master's orders on the service."""

    def __init__(self, service: BrokerService, wall_ms: Callable[[], int]) -> None:
        self._service = service
        self._wall_ms = wall_ms
        self._verbs: dict[str, Callable[[Answer], Awaitable[Answer]]] = {
            "describe": self._describe,
            "reset": self._reset,
            "undo": self._undo,
            "forget": self._forget,
        }

    async def carry_out(self, text: str) -> str:
        """Do what the order says and return the result; errors are results too."""
        try:
            order = json.loads(text)
            verb = self._verbs.get(order["op"], self._unknown)
            return json.dumps(await verb(order))
        except TubeError as error:
            return json.dumps({"error": {"code": error.code, "message": str(error)}})
        except (ValueError, KeyError, TypeError) as error:
            return json.dumps({"error": {"code": 400, "message": f"malformed order: {error!r}"}})
        except Exception:
            log.failure("an order failed")
            return json.dumps(
                {"error": {"code": 500, "message": "the order failed, see the broker's log"}}
            )

    async def _unknown(self, order: Answer) -> Answer:
        raise BadRequestError(f"this broker does not know the order {order['op']!r}")

    async def _describe(self, order: Answer) -> Answer:
        group = GroupName(order["group"]) if order.get("group") else None
        rows = [
            {
                "topic": facts.topic,
                "partition_id": facts.partition_id,
                "first": facts.bounds.first_offset,
                "next": facts.bounds.next_offset,
                "bytes": facts.bounds.bytes,
                "read_only": facts.bounds.read_only,
                "last_append_ms": facts.bounds.last_append_ms,
                "committed": facts.committed,
                "holder": facts.holder,
            }
            for facts in self._service.describe(order.get("topics") or (), group)
        ]
        return {"partitions": rows, "groups": sorted(self._service.offsets.groups())}

    async def _reset(self, order: Answer) -> Answer:
        group, name = GroupName(order["group"]), str(order["topic"])
        topic = self._service.topics.get(name)
        if topic is None:
            return {"changes": []}
        chosen = order.get("partitions")
        partition_ids = topic.partition_ids() if chosen is None else [int(p) for p in chosen]
        changes = []
        for partition_id in partition_ids:
            claim = Claim(group, name, partition_id)
            target = await self._target(claim, order["to"])
            changes.append(await self._change(claim, target, dry_run=bool(order.get("dry_run"))))
        return {"changes": changes}

    async def _undo(self, order: Answer) -> Answer:
        group, only = GroupName(order["group"]), order.get("topic")
        changes = []
        for claim in self._service.offsets.resets(group):
            if only not in (None, claim.topic):
                continue
            try:
                old = self._service.offsets.undo(claim, self._wall_ms())
            except StoreError:  # too long ago; others may not be
                continue
            target = (
                self._service.bounds(claim.topic, claim.partition_id).first_offset
                if old is None
                else old
            )
            changes.append(await self._change(claim, target, dry_run=bool(order.get("dry_run"))))
        return {"changes": changes}

    async def _forget(self, order: Answer) -> Answer:
        group, topic = GroupName(order["group"]), order.get("topic")
        held = [
            claim
            for claim, _ in self._service.holders.of_group(group)
            if topic in (None, claim.topic)
        ]
        if held:
            raise ConflictError(f"{len(held)} partitions of group {group} are being read")
        await self._service.appender.note(self._service.offsets.forget(group, topic))
        return {}

    async def _target(self, claim: Claim, to: Answer) -> int:
        bounds = self._service.bounds(claim.topic, claim.partition_id)
        kind = to["kind"]
        if kind == "earliest":
            return bounds.first_offset
        if kind == "latest":
            return bounds.next_offset
        if kind == "offset":
            return int(to["value"])
        if kind == "time":
            return await self._service.offset_at(claim.topic, claim.partition_id, int(to["value"]))
        raise BadRequestError(f"cannot reset to {kind!r}")

    async def _change(self, claim: Claim, target: int, *, dry_run: bool) -> Answer:
        if dry_run:
            topic = self._service.topics.readable(claim.topic, claim.partition_id)
            bounds = self._service.bounds(claim.topic, claim.partition_id)
            old = self._service.offsets.get(claim, topic.topic_id)
            new = min(max(target, bounds.first_offset), bounds.next_offset)
        else:
            old, new = await self._service.reset(claim, target)
        return {"topic": claim.topic, "partition_id": claim.partition_id, "old": old, "new": new}
