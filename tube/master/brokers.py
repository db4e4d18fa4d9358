"""The verbs for brokers: they register, get their configuration and orders, and leave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from twisted.logger import Logger

from tube.errors import BadRequestError, NotRegisteredError
from tube.master.core import Core
from tube.master.db import brokers as broker_rows
from tube.master.db import topics as topic_rows
from tube.master.held import Outcome
from tube.master.orders import REPEAT_S, Orders
from tube.master.topology import BrokerState, Configuration
from tube.master.values import (
    DRAFT,
    ONLINE,
    ONLY_READ,
    ONLY_WRITE,
    REMOVING,
    BrokerRow,
    StoredTopic,
)
from tube.values import Broker
from tube.wire import records, settings

log = Logger(namespace="tube.master.brokers")

TOLD_TWICE: Final = 2
"""Heartbeats after which a broker surely has read a token: one answer may cross with its next call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerBeat:
    """What a broker says.

    ``config`` is the (id, checksum) that it serves; the other ids are those that it holds.
    """

    broker_id: int
    online: bool
    read_fails: bool = False
    write_fails: bool = False
    config: tuple[int, int] = (0, 0)
    facts_id: int = 0
    flow_check_id: int = -2
    removed: Sequence[str] = ()
    results: Sequence[tuple[int, str]] = ()
    wait_s: float = 0.0
    owner: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """What a broker is told; ``configuration`` and ``facts`` are None when it has them."""

    epoch: int
    stop_read: bool
    stop_write: bool
    wanted: Configuration
    take: bool
    tokens: records.VisitTokens
    flow_check_id: int
    flow_text: str | None
    facts_id: int
    facts: list[StoredTopic] | None = None
    removing: list[str] = field(default_factory=list)
    orders: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True)
class _Told:
    """What a broker was told last, beside what it names in its heartbeats."""

    stops: tuple[bool, bool] = (False, False)
    fresh_token: int = 0
    token_beats: int = 0


class Brokers:
    """Keeps brokers and metadata in step."""

    def __init__(self, core: Core, orders: Orders) -> None:
        self._core = core
        self._orders = orders
        self._told: dict[int, _Told] = {}
        core.on_clear(self._told.clear)

    async def register(
        self,
        broker: Broker,
        http_port: int,
        flow_check_id: int,
        *,
        online: bool,
        tls_port: int = 0,
    ) -> BrokerView:
        """A broker begins, or comes back; ``tls_port`` is 0 when it has none.

        Raises:
            StandbyError: we do not lead.
            BadRequestError: it is not in the metadata, has another address there, or is a draft; or another
                process with its id is alive.
        """
        core = self._core
        client = f"{broker.broker_id}:{broker.host}:{broker.port}"
        core.leader.require(client)
        known = core.topology.brokers.get(broker.broker_id)
        row = self._admitted(known, broker, http_port)
        if known is None or known.row != row:
            await core.database.write(broker_rows.put, core.leader.require(client), row)
            core.leader.require(client)
        state = core.topology.put_broker(row)
        returned = not state.alive
        if returned:
            state.served, state.online = {}, online
            core.chronicle.note("join", broker_id=row.broker_id, detail=client)
        state.alive, state.seen_s = True, core.now_s()
        state.tls_port = tls_port if 0 < tls_port < 65536 else 0
        state.read_fails = state.write_fails = False
        core.held_brokers.supersede(broker.broker_id)
        self._told[broker.broker_id] = _Told()
        log.info("broker {broker_id} registered", broker_id=row.broker_id, address=client)
        beat = BrokerBeat(broker_id=row.broker_id, online=online, flow_check_id=flow_check_id)
        return self._view(beat, state)

    async def heartbeat(self, beat: BrokerBeat) -> BrokerView | None:
        """A broker is alive; the answer may wait for something new.  None: nobody waits for it.

        Raises:
            StandbyError: we do not lead.  NotRegisteredError: it must register again.
        """
        core = self._core
        core.leader.require(str(beat.broker_id))
        state = self._registered(beat.broker_id)
        core.held_brokers.supersede(beat.broker_id)
        state.seen_s = core.now_s()
        for order_id, text in beat.results:
            self._orders.finished(beat.broker_id, order_id, text)
        for text in beat.removed:
            await self._removed(state, text)
        self._learn(beat, state)
        self._count_tokens(beat.broker_id)
        until_s = core.now_s() + min(beat.wait_s, core.config.broker_timeout_s / 2)
        while True:
            left_s = until_s - core.now_s()
            if left_s <= 0 or self._has_news(beat, state):
                return self._view(beat, state)
            wait_s = min(left_s, REPEAT_S) if self._orders.open(beat.broker_id) else left_s
            outcome = await core.held_brokers.hold(beat.broker_id, wait_s, beat.owner)
            if outcome is Outcome.GONE:
                return None
            core.leader.require(str(beat.broker_id))
            if outcome is Outcome.SUPERSEDED:
                return self._view(beat, state, quiet=True)
            state = self._registered(beat.broker_id)

    def close(self, broker_id: int) -> None:
        """A broker ends in order; an unknown one is fine.

        Raises:
            StandbyError: we do not lead.
        """
        core = self._core
        core.leader.require(str(broker_id))
        state = core.topology.brokers.get(broker_id)
        if state is not None and state.alive:
            state.alive = False
            core.held_brokers.supersede(broker_id)
            self.died(state, "leave", "stopped")

    def died(self, state: BrokerState, kind: str, reason: str) -> None:
        """A broker is not alive any more: its partitions leave the subscribable set."""
        broker_id = state.row.broker_id
        self._core.chronicle.note(kind, broker_id=broker_id, reason=reason)
        tell = log.info if kind == "leave" else log.warn
        tell("broker {broker_id} {reason}", broker_id=broker_id, reason=reason)
        self._visible(state, f"broker {broker_id} {reason}")

    async def set_state(self, broker_id: int, wanted: str, principal: str) -> BrokerState:
        """The operator wants a broker online, only-read, only-write, offline or a draft.

        Raises:
            NotFoundError: no such broker.  StandbyError: we do not lead.
        """
        core = self._core
        await core.database.write(broker_rows.set_state, core.leader.require(), broker_id, wanted)
        core.leader.require()
        state = core.topology.brokers[broker_id]
        old, state.row = state.row.state, replace(state.row, state=wanted)
        detail = f"state {old} -> {wanted}"
        core.chronicle.note("admin", broker_id=broker_id, principal=principal, detail=detail)
        self._visible(state, f"broker {broker_id} is {wanted}")
        core.held_brokers.wake(broker_id)
        return state

    def rotate_tokens(self) -> None:
        """Make a fresh visit token when it is time; clients get it once all live brokers have it."""
        core = self._core
        if core.visit.rotate(core.wall_ms()):
            core.held_brokers.wake_all()
        if core.visit.fresh != core.visit.current and all(
            self._knows_fresh(state.row.broker_id)
            for state in core.topology.brokers.values()
            if state.alive
        ):
            core.visit.publish()
            core.token_version += 1
            core.held_consumers.wake_all()

    # parts

    def _registered(self, broker_id: int) -> BrokerState:
        state = self._core.topology.brokers.get(broker_id)
        if state is None or not state.alive:
            raise NotRegisteredError(f"broker {broker_id} is not registered")
        return state

    def _admitted(self, known: BrokerState | None, broker: Broker, http_port: int) -> BrokerRow:
        """The row of a broker that may register."""
        core = self._core
        auto = core.config.auto_add_brokers
        if known is None:
            if not auto:
                raise BadRequestError(f"broker {broker.broker_id} is not in the metadata")
            return BrokerRow(
                broker_id=broker.broker_id,
                host=broker.host,
                port=broker.port,
                http_port=http_port,
                state=ONLINE,
                created_ms=core.wall_ms(),
            )
        if known.row.state == DRAFT:
            raise BadRequestError(f"broker {broker.broker_id} is a draft and may not come online")
        place = known.address(secure=False)
        moved = place != broker
        if moved and not auto:
            raise BadRequestError(f"broker {broker} is not at {place} as configured")
        if moved and known.alive and core.held_brokers.holds(broker.broker_id):
            raise BadRequestError(
                f"broker id {broker.broker_id} is in use by {known.row.host}:{known.row.port}"
            )
        return BrokerRow(
            broker_id=broker.broker_id,
            host=broker.host,
            port=broker.port,
            http_port=http_port,
            state=known.row.state,
            created_ms=known.row.created_ms,
        )

    def _learn(self, beat: BrokerBeat, state: BrokerState) -> None:
        """Take over what the broker says; clients may see something new."""
        before = (state.online, state.read_fails, state.write_fails)
        state.online = state.online or beat.online
        state.read_fails, state.write_fails = beat.read_fails, beat.write_fails
        now = (state.online, state.read_fails, state.write_fails)
        acknowledged = self._core.topology.acknowledge(beat.broker_id, *beat.config)
        if acknowledged or before != now:
            self._visible(state, f"broker {beat.broker_id} has taken over its configuration")

    def _visible(self, state: BrokerState, reason: str) -> None:
        names: Iterable[str] = [*state.served, *state.wanted.counts]
        self._core.balancer.topics_changed(names, reason)

    async def _removed(self, state: BrokerState, text: str) -> None:
        """The broker has deleted the data of a topic."""
        core, broker_id = self._core, state.row.broker_id
        name = settings.parse_topic_config(text).topic
        async with core.admin_lock:
            topic = core.topology.topics.get(name)
            if topic is None or topic.row.status != REMOVING or broker_id not in topic.partitions:
                return
            epoch = core.leader.require(str(broker_id))
            last = await core.database.write(
                topic_rows.removed_at, epoch, topic.row.topic_id, broker_id, core.wall_ms()
            )
            core.leader.require(str(broker_id))
            partitions = {b: n for b, n in topic.partitions.items() if b != broker_id}
            core.topology.put_topic(
                StoredTopic(row=topic.row, partitions=partitions, numbers=topic.numbers)
            )
            if last:
                core.topology.drop_topic(name)
        core.chronicle.note("admin", topic=name, broker_id=broker_id, detail="the data is deleted")
        core.facts_changed()

    def _stops(self, state: BrokerState) -> tuple[bool, bool]:
        wanted = state.row.state
        return wanted not in (ONLINE, ONLY_READ), wanted not in (ONLINE, ONLY_WRITE)

    def _has_news(self, beat: BrokerBeat, state: BrokerState) -> bool:
        core, wanted = self._core, state.wanted
        told = self._told.setdefault(beat.broker_id, _Told())
        return (
            beat.config != (wanted.config_id, wanted.checksum)
            or beat.facts_id != core.facts_id
            or beat.flow_check_id != core.rule("")[0]
            or told.stops != self._stops(state)
            or told.fresh_token != core.visit.fresh
            or self._orders.due(beat.broker_id)
            or bool(core.topology.removing(beat.broker_id))
        )

    def _view(self, beat: BrokerBeat, state: BrokerState, *, quiet: bool = False) -> BrokerView:
        """The answer; ``quiet`` for a heartbeat that a newer one has replaced."""
        core, wanted = self._core, state.wanted
        stop_read, stop_write = self._stops(state)
        flow_id, flow_text = core.rule("")
        take = beat.config != (wanted.config_id, wanted.checksum) and not quiet
        facts = beat.facts_id != core.facts_id and not quiet
        if not quiet:
            told = self._told.setdefault(beat.broker_id, _Told())
            told.stops = (stop_read, stop_write)
            if told.fresh_token != core.visit.fresh:
                told.fresh_token, told.token_beats = core.visit.fresh, 0
        return BrokerView(
            epoch=core.leader.require(str(beat.broker_id)),
            stop_read=stop_read,
            stop_write=stop_write,
            wanted=wanted,
            take=take,
            tokens=records.VisitTokens(core.visit.current, core.visit.fresh),
            flow_check_id=flow_id,
            flow_text=flow_text if flow_id != beat.flow_check_id else None,
            facts_id=core.facts_id if facts else beat.facts_id,
            facts=list(core.topology.topics.values()) if facts else None,
            removing=[] if quiet or take else core.topology.removing(beat.broker_id),
            orders=[] if quiet else self._orders.take(beat.broker_id),
        )

    def _count_tokens(self, broker_id: int) -> None:
        told = self._told.setdefault(broker_id, _Told())
        told.token_beats += 1
        self.rotate_tokens()

    def _knows_fresh(self, broker_id: int) -> bool:
        told = self._told.get(broker_id, _Told())
        return told.fresh_token == self._core.visit.fresh and told.token_beats >= TOLD_TWICE
