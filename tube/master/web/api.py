"""The JSON API of the master, as docs/reference/http-api.md says."""

from __future__ import annotations

from typing import Any, Final

from tube import __version__
from tube.errors import BadRequestError, NotFoundError
from tube.limits import WAIT_MS_MAX
from tube.master.brokers import Brokers
from tube.master.core import Core
from tube.master.db.history import HistoryRow
from tube.master.db.users import UserRow
from tube.master.groups import Groups
from tube.master.resets import Resets
from tube.master.topics import Topics, TopicWish
from tube.master.topology import BrokerState
from tube.master.users import Users
from tube.master.values import STATES, StoredTopic
from tube.master.web.fields import Fields, parse_place
from tube.net.web import CHANGE, Asked, Routes

Json = dict[str, Any]

HISTORY_MAX: Final = 10_000
"""Most events of one answer: about 3 MB."""

_SETTINGS: Final = ("partitions", "durable", "retention", "retention_bytes", "max_message_bytes")
_SWITCHES: Final = ("accept_publish", "accept_subscribe")


class Api:
    """Turns requests into verbs, and what they return into JSON."""

    def __init__(
        self,
        core: Core,
        *,
        brokers: Brokers,
        topics: Topics,
        groups: Groups,
        resets: Resets,
        users: Users,
        name: str,
        address: str,
    ) -> None:
        self._core = core
        self._brokers = brokers
        self._topics = topics
        self._groups = groups
        self._resets = resets
        self._users = users
        self._name = name
        self._address = address
        self._started_s = core.now_s()

    def add_to(self, routes: Routes) -> None:
        """Add all routes."""
        for method, path, verb in (
            ("GET", "status", self._status),
            ("GET", "brokers", self._list_brokers),
            ("PATCH", "brokers/{id}", self._change_broker),
            ("GET", "topics", self._list_topics),
            ("POST", "topics", self._create_topic),
            ("GET", "topics/{name}", self._show_topic),
            ("PATCH", "topics/{name}", self._change_topic),
            ("DELETE", "topics/{name}", self._delete_topic),
            ("POST", "topics/{name}/restore", self._restore_topic),
            ("GET", "topics/{name}/offsets", self._topic_offsets),
            ("GET", "groups", self._list_groups),
            ("POST", "groups", self._create_group),
            ("GET", "groups/{name}", self._show_group),
            ("DELETE", "groups/{name}", self._delete_group),
            ("GET", "groups/{name}/offsets", self._group_offsets),
            ("POST", "groups/{name}/reset", self._reset),
            ("POST", "groups/{name}/undo", self._undo),
            ("GET", "groups/{name}/history", self._history),
            ("GET", "groups/{name}/explain", self._explain),
            ("GET", "groups/{name}/rules", self._rules),
            ("PUT", "groups/{name}/rules", self._set_rules),
            ("GET", "rules", self._rules),
            ("PUT", "rules", self._set_rules),
            ("GET", "producers", self._list_producers),
            ("GET", "users", self._list_users),
            ("POST", "users", self._add_user),
            ("DELETE", "users/{name}", self._delete_user),
            ("GET", "history", self._history),
        ):
            right = {} if method == "GET" else {"right": CHANGE}
            routes.add(method, f"/api/v1/{path}", verb, **right)

    def _status(self, _asked: Asked) -> Json:
        core = self._core
        leader = core.leader
        return {
            "name": self._name,
            "role": "leader" if leader.leads else "standby",
            "epoch": leader.seen.epoch if leader.seen is not None else 0,
            "version": __version__,
            "uptime_s": round(core.now_s() - self._started_s, 3),
            "address": self._address,
            "leader": leader.address,
            "brokers": sum(state.alive for state in core.topology.brokers.values()),
            "topics": len(core.topology.topics),
            "groups": len({*core.groups, *core.registry.groups}),
            "producers": len(core.registry.producers),
        }

    # brokers

    def _list_brokers(self, _asked: Asked) -> Json:
        self._core.leader.require()
        states = sorted(self._core.topology.brokers.values(), key=lambda s: s.row.broker_id)
        return {"brokers": [self._broker(state) for state in states]}

    async def _change_broker(self, asked: Asked) -> Json:
        text = asked.path["id"]
        wanted = Fields(asked.body, ["state"]).required("state")
        if wanted not in STATES:
            raise BadRequestError(f"state: {wanted!r} is not one of {', '.join(STATES)}")
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise NotFoundError(f"broker {text[:40]!r} is not a broker id")
        state = await self._brokers.set_state(int(text), wanted, asked.principal)
        return self._broker(state)

    def _broker(self, state: BrokerState) -> Json:
        core, row = self._core, state.row
        counts = state.wanted.counts
        seen_ms = core.wall_ms() - int((core.now_s() - state.seen_s) * 1000)
        return {
            "broker_id": row.broker_id,
            "host": row.host,
            "port": row.port,
            "http_port": row.http_port,
            "state": row.state,
            "alive": state.alive,
            "last_seen_ms": seen_ms if state.seen_s else None,
            "topics": len(counts),
            "partitions": sum(counts.values()),
        }

    # topics

    def _list_topics(self, _asked: Asked) -> Json:
        self._core.leader.require()
        topics = sorted(self._core.topology.topics.values(), key=lambda t: t.row.name)
        return {"topics": [self._topic(topic) for topic in topics]}

    def _show_topic(self, asked: Asked) -> Json:
        self._core.leader.require()
        return self._topic(self._core.topology.topic(asked.path["name"]))

    async def _create_topic(self, asked: Asked) -> Json:
        fields = Fields(asked.body, ["name", "brokers", *_SETTINGS])
        topic = await self._topics.create(
            fields.required("name"),
            _wish(fields),
            fields.array("brokers", int, "a broker id"),
            asked.principal,
        )
        return self._topic(topic)

    async def _change_topic(self, asked: Asked) -> Json:
        fields = Fields(asked.body, [*_SETTINGS, *_SWITCHES])
        topic = await self._topics.change(asked.path["name"], _wish(fields), asked.principal)
        return self._topic(topic)

    async def _delete_topic(self, asked: Asked) -> Json:
        hard = asked.query.get("hard", "false")
        if hard not in ("true", "false"):
            raise BadRequestError(f"hard: expected true or false, got {hard[:40]!r}")
        topic = await self._topics.delete(asked.path["name"], asked.principal, hard=hard == "true")
        return self._topic(topic)

    async def _restore_topic(self, asked: Asked) -> Json:
        Fields(asked.body, [])
        return self._topic(await self._topics.restore(asked.path["name"], asked.principal))

    async def _topic_offsets(self, asked: Asked) -> Json:
        rows, missing = await self._topics.offsets(asked.path["name"])
        return {"partitions": rows, "missing_brokers": missing}

    def _topic(self, topic: StoredTopic) -> Json:
        row, brokers = topic.row, self._core.topology.brokers
        served = {s.row.broker_id: n for s, n in self._core.topology.serving(topic)}
        open_for = row.status == "normal"
        places = []
        for broker_id, count in sorted(topic.partitions.items()):
            state = brokers.get(broker_id)
            ready = open_for and state is not None and served.get(broker_id, 0) == count
            places.append(
                {
                    "broker_id": broker_id,
                    "partitions": count,
                    "accept_publish": row.accept_publish,
                    "accept_subscribe": row.accept_subscribe,
                    "readable": bool(
                        ready and state is not None and state.readable and row.accept_subscribe
                    ),
                    "writable": bool(
                        ready and state is not None and state.writable and row.accept_publish
                    ),
                }
            )
        return {
            "name": row.name,
            "topic_id": row.topic_id,
            "partitions": sum(topic.partitions.values()),
            "durable": row.durable,
            "retention": row.retention,
            "retention_bytes": row.retention_bytes,
            "max_message_bytes": row.max_message_bytes,
            "status": row.status,
            "created_ms": row.created_ms,
            "brokers": places,
        }

    # groups

    def _list_groups(self, _asked: Asked) -> Json:
        return {"groups": [self._groups.summary(name) for name in self._groups.names()]}

    def _show_group(self, asked: Asked) -> Json:
        return self._groups.details(self._groups.check(asked.path["name"]))

    async def _create_group(self, asked: Asked) -> Json:
        name = Fields(asked.body, ["name"]).required("name")
        return self._groups.details(await self._groups.create(name, asked.principal))

    async def _delete_group(self, asked: Asked) -> Json:
        await self._groups.delete(asked.path["name"], asked.principal)
        return {}

    async def _group_offsets(self, asked: Asked) -> Json:
        return await self._groups.offsets(self._groups.check(asked.path["name"]))

    async def _reset(self, asked: Asked) -> Json:
        fields = Fields(asked.body, ["topic", "partitions", "to", "dry_run"])
        topic = fields.required("topic")
        texts = fields.array("partitions", str, "broker:partition")
        places = None if texts is None else [parse_place(topic, text) for text in texts]
        changes = await self._resets.reset(
            asked.path["name"],
            topic,
            places,
            fields.table("to"),
            dry_run=bool(fields.flag("dry_run")),
            principal=asked.principal,
        )
        return {"changes": changes}

    async def _undo(self, asked: Asked) -> Json:
        fields = Fields(asked.body, ["topic", "dry_run"])
        changes = await self._resets.undo(
            asked.path["name"],
            fields.text("topic"),
            dry_run=bool(fields.flag("dry_run")),
            principal=asked.principal,
        )
        return {"changes": changes}

    def _explain(self, asked: Asked) -> Json:
        name = self._groups.check(asked.path["name"])
        topic, place = asked.query.get("topic"), asked.query.get("partition")
        if place is not None and topic is None:
            raise BadRequestError("partition: give the topic, too")
        only = parse_place(topic, place) if place is not None and topic is not None else None
        return self._groups.explain(name, topic, only)

    def _rules(self, asked: Asked) -> Json:
        name = asked.path.get("name", "")
        return {"rules": self._groups.rules(self._groups.check(name) if name else "")}

    async def _set_rules(self, asked: Asked) -> Json:
        rules = Fields(asked.body, ["rules"]).array("rules", dict, "an object")
        if rules is None:
            raise BadRequestError("rules: missing; [] removes all")
        name = asked.path.get("name", "")
        return {"rules": await self._groups.set_rules(name, rules, asked.principal)}

    # others

    def _list_producers(self, _asked: Asked) -> Json:
        core = self._core
        core.leader.require()
        age_ms = core.wall_ms() - int(core.now_s() * 1000)
        producers = sorted(core.registry.producers.values(), key=lambda p: p.client_id)
        return {
            "producers": [
                {
                    "client_id": producer.client_id,
                    "host": producer.host,
                    "topics": sorted(producer.topics),
                    "last_seen_ms": age_ms + int(producer.seen_s * 1000),
                }
                for producer in producers
            ]
        }

    # users

    def _list_users(self, _asked: Asked) -> Json:
        return {"users": [_user(row) for row in self._users.all()]}

    async def _add_user(self, asked: Asked) -> Json:
        fields = Fields(asked.body, ["name", "secret", "produce", "consume"])
        row = await self._users.add(
            fields.required("name"),
            fields.required("secret"),
            produce=fields.array("produce", str, "a topic or *") or [],
            consume=fields.array("consume", str, "a topic or *") or [],
            principal=asked.principal,
        )
        return _user(row)

    async def _delete_user(self, asked: Asked) -> Json:
        await self._users.delete(asked.path["name"], asked.principal)
        return {}

    async def _history(self, asked: Asked) -> Json:
        self._core.leader.require()
        name = asked.path.get("name")
        rows = await self._core.chronicle.read(
            group=self._groups.check(name) if name is not None else None,
            kind=asked.query.get("kind"),
            after=asked.number("after", 0, most=2**62) if "after" in asked.query else None,
            limit=asked.number("limit", 100, least=1, most=HISTORY_MAX),
            wait_s=asked.number("wait_ms", 0, most=WAIT_MS_MAX) / 1000,
        )
        return {"events": [_event(row) for row in rows]}


def _wish(fields: Fields) -> TopicWish:
    return TopicWish(
        partitions=fields.whole("partitions"),
        durable=fields.flag("durable"),
        retention=fields.text("retention"),
        retention_bytes=fields.whole("retention_bytes"),
        max_message_bytes=fields.whole("max_message_bytes"),
        accept_publish=fields.flag("accept_publish"),
        accept_subscribe=fields.flag("accept_subscribe"),
    )


def _user(row: UserRow) -> Json:
    return {
        "name": row.name,
        "produce": list(row.produce),
        "consume": list(row.consume),
        "created_ms": row.created_ms,
    }


def _event(row: HistoryRow) -> Json:
    return {
        "id": row.event_id,
        "at_ms": row.at_ms,
        "kind": row.kind,
        "group": row.group,
        "client_id": row.client_id,
        "topic": row.topic,
        "broker_id": row.broker_id,
        "partition_id": row.partition_id,
        "round_id": row.round_id,
        "reason": row.reason,
        "principal": row.principal,
        "detail": row.detail,
    }
