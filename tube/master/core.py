"""What all verbs of the master share: the leader's memory, written through to SQL.

``load`` fills it at a take-over, ``clear`` empties it when we lead no more.  It belongs to the reactor thread.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from typing import Final

import sqlalchemy as sa
from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from tube.auth.signatures import Replays
from tube.auth.tokens import AuthTokens, VisitTokens
from tube.config import MasterConfig
from tube.errors import StoreError
from tube.master.access import Access, User
from tube.master.balancing import Balancer
from tube.master.chronicle import Chronicle
from tube.master.cluster_key import ClusterKey
from tube.master.database import Database
from tube.master.db import brokers, groups, keys, lease, topics, users
from tube.master.db.groups import GroupRow, RuleRow
from tube.master.db.keys import KeyRow
from tube.master.db.users import UserRow
from tube.master.events import Events
from tube.master.held import Held
from tube.master.leader import Leader
from tube.master.registry import Registry
from tube.master.topology import Topology
from tube.master.values import BrokerRow, StoredTopic
from tube.net.clock import Reactor
from tube.values import ClientId, GroupName
from tube.wire import flow

log = Logger(namespace="tube.master.core")

NO_RULES: Final = -2
"""Check id of a scope without rules (spec section 9.1)."""

KEY_BYTES: Final = 32
KEY_AGE_MS: Final = 24 * 3600 * 1000
"""A new signing key is made this often."""

KEY_SETTLE_MS: Final = 60_000
"""A new key signs only after brokers had time to learn it."""

KEYS_KEPT: Final = 3


class Snapshot:
    """Everything that SQL knows, read in one transaction."""

    def __init__(self, conn: sa.Connection, epoch: int) -> None:
        lease.fence(conn, epoch)
        self.brokers: list[BrokerRow] = brokers.all_brokers(conn)
        self.topics: list[StoredTopic] = topics.all_topics(conn)
        self.groups: list[GroupRow] = groups.all_groups(conn)
        self.rules: list[RuleRow] = groups.all_rules(conn)
        self.keys: list[KeyRow] = keys.ring(conn)
        self.users: list[UserRow] = users.all_users(conn)


class Core:
    """The leader's memory and the doors to everything else.

    ``leader`` is set by ``app`` before the first tick.
    """

    leader: Leader

    def __init__(
        self,
        reactor: Reactor,
        config: MasterConfig,
        database: Database,
        now_s: Callable[[], float],
        wall_ms: Callable[[], int],
        cluster_key: ClusterKey | None = None,
    ) -> None:
        self.cluster_key = cluster_key
        self.reactor = reactor
        self.config = config
        self.database = database
        self.now_s = now_s
        self.wall_ms = wall_ms
        self.chronicle = Chronicle(
            reactor,
            database,
            wall_ms,
            lambda: self.leader.epoch,
            lambda: self.leader.step_down("the database knows a newer epoch"),
        )
        self.held_consumers: Held[tuple[GroupName, ClientId]] = Held(reactor)
        self.held_brokers: Held[int] = Held(reactor)
        self.group_lock = DeferredLock()
        self.admin_lock = DeferredLock()
        self._replays = Replays(int(config.tokens.signature_window_s * 1000))
        self._on_clear: list[Callable[[], None]] = []
        self._empty()

    def _empty(self) -> None:
        config = self.config
        self.registry = Registry(
            producer_timeout_s=config.producer_timeout_s,
            consumer_timeout_s=config.consumer_timeout_s,
        )
        self.round_id = 0
        self.events = Events(self.draw_round)
        self.topology = Topology(self.wall_ms())
        self.groups: dict[str, GroupRow] = {}
        self.rules: dict[str, RuleRow] = {}
        self.keys: list[KeyRow] = []
        self.users: dict[str, UserRow] = {}
        self.auth = AuthTokens()
        self.access = Access(
            config.tokens,
            self.auth,
            self.wall_ms,
            self.now_s,
            replays=self._replays,
            asked_s=config.consumer_timeout_s,
        )
        self.visit = VisitTokens(
            random.SystemRandom().getrandbits,
            valid_ms=int(config.tokens.visit_token_valid_s * 1000),
            now_ms=self.wall_ms(),
        )
        self.facts_id = self.wall_ms()
        self.order_id = 0
        self.token_version = 0
        self.balancer = Balancer(
            self.reactor,
            registry=self.registry,
            events=self.events,
            topology=self.topology,
            chronicle=self.chronicle,
            held=self.held_consumers,
            draw_round=self.draw_round,
            now_s=self.now_s,
            delay_s=config.balance_delay_s,
            brokers_per_member_max=config.group_broker_rate_max,
        )

    # taking and losing the lead

    async def load(self, epoch: int) -> None:
        """Read everything from SQL: this master is about to lead."""
        found = await self.database.write(Snapshot, epoch)
        self.balancer.stop()
        self._empty()
        self.round_id = self.order_id = epoch << 32
        for broker in found.brokers:
            self.topology.put_broker(broker)
        for topic in found.topics:
            self.topology.put_topic(topic)
        self.groups = {group.name: group for group in found.groups}
        self.rules = {rule.scope: rule for rule in found.rules}
        for user in found.users:
            self.put_user(user)
        self.keys = found.keys
        if not self.keys:
            await self._add_key(epoch)
        self._use_keys()
        if epoch > 1:
            wait_s = self.config.take_over_wait_s or self.config.consumer_timeout_s / 2
            active = [GroupName(group.name) for group in found.groups if group.active]
            self.balancer.hold_back(active, wait_s)

    def on_clear(self, f: Callable[[], None]) -> None:
        """Call ``f`` whenever we stop leading."""
        self._on_clear.append(f)

    def clear(self) -> None:
        """We lead no more: forget everything, and let waiting callers find out."""
        self.balancer.stop()
        self.chronicle.discard()
        self._empty()
        for f in self._on_clear:
            f()
        self.held_consumers.wake_all()
        self.held_brokers.wake_all()

    # numbers

    def draw_round(self) -> int:
        """A round number larger than all before, of any leader."""
        self.round_id += 1
        return self.round_id

    def draw_order(self) -> int:
        """An order number larger than all before, of any leader."""
        self.order_id += 1
        return self.order_id

    def facts_changed(self) -> None:
        """Brokers must hear of topics, group rules or keys."""
        self.facts_id += 1
        self.held_brokers.wake_all()

    # tokens

    def put_user(self, row: UserRow) -> None:
        """Know a user; one whose secret does not open with our key is listed and cannot sign."""
        self.users[row.name] = row
        if self.cluster_key is None:
            log.warn("user {user} cannot sign: there is no cluster key", user=row.name)
            return
        try:
            secret = self.cluster_key.open(row.sealed)
        except StoreError as error:
            log.warn("user {user} cannot sign: {error}", user=row.name, error=str(error))
            return
        self.access.users[row.name] = User(row.name, secret, row.produce, row.consume)

    def drop_user(self, name: str) -> None:
        """Forget a user: its tokens end here at once, at brokers when they expire."""
        self.users.pop(name, None)
        self.access.users.pop(name, None)

    async def rotate_keys(self) -> None:
        """Make a new signing key when the newest is old; let a settled one sign."""
        if not self.keys or self.wall_ms() - self.keys[-1].created_ms >= KEY_AGE_MS:
            await self._add_key(self.leader.require())
            self.facts_changed()
        self._use_keys()

    async def _add_key(self, epoch: int) -> None:
        key = KeyRow(
            key_id=secrets.token_hex(6),
            secret=secrets.token_bytes(KEY_BYTES),
            created_ms=self.wall_ms(),
        )
        self.keys = await self.database.write(keys.add, epoch, key, keep=KEYS_KEPT)

    def _use_keys(self) -> None:
        """The newest key signs once it is settled; a ring with one key has no choice."""
        settled = [k for k in self.keys if self.wall_ms() - k.created_ms >= KEY_SETTLE_MS]
        fresh = [k for k in self.keys if k not in settled]
        self.auth.set_keys((key.key_id, key.secret) for key in [*fresh[::-1], *settled])

    # flow rules

    def rule(self, scope: str) -> tuple[int, str]:
        """Check id and JSON of a group's rules, or of the cluster's default ("")."""
        rule = self.rules.get(scope)
        return (NO_RULES, flow.NONE) if rule is None else (rule.check_id, rule.rules)
