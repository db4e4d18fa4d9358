"""Registry, balance, events and the consumer verbs against clients on a bad network, seed by seed.

Faults that it injects, and that the design must survive: requests and answers are lost, requests come twice or
late (so old reports arrive after new ones), members crash and come back under another name, members close,
brokers die and return, topics grow.  A broker's holders are the guard of exclusivity, as in reality.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.internet.task import Clock

from tube.auth.signatures import Replays
from tube.auth.tokens import AuthTokens
from tube.config import TokenConfig
from tube.errors import NotRegisteredError
from tube.master.access import Access
from tube.master.balancing import Balancer
from tube.master.consumers import Consumers, Heartbeat, left
from tube.master.entrance import Registration
from tube.master.events import Events
from tube.master.held import Held
from tube.master.registry import Kind, Registry, Wanted
from tube.master.topology import Topology
from tube.master.values import BrokerRow, StoredTopic, TopicRow
from tube.values import ClientId, GroupName

GROUP = GroupName("readers")
TIMEOUT_S = 10.0
ANSWER_S = 3.0
SEEDS = 200


class Network:
    """Loses, doubles and delays; ``calm`` does nothing of it."""

    def __init__(self, rng: random.Random, clock: Clock) -> None:
        self.rng, self.clock, self.calm = rng, clock, False

    def send(self, deliver, *, twice=True):
        """Deliver a message, or not, or twice, or late."""
        luck = 1.0 if self.calm else self.rng.random()
        if luck < 0.08:
            return
        self.clock.callLater(self.rng.uniform(0.001, 0.02), deliver)
        if luck < 0.14 and twice:
            self.clock.callLater(self.rng.uniform(0.02, 4.0), deliver)


class Holders:
    """The brokers' guard: one holder per partition, for so long after its last sign of life."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.holds = clock, {}

    def take(self, client, partition):
        holder, until_s = self.holds.get(partition, (client, 0.0))
        if holder != client and self.clock.seconds() < until_s:
            return False
        self.holds[partition] = (client, self.clock.seconds() + TIMEOUT_S)
        return True

    def release(self, client, partition):
        if self.holds.get(partition, ("",))[0] == client:
            del self.holds[partition]


@dataclass(eq=False)
class Client:
    """A consumer as the TubeMQ clients behave: one event at a time, acknowledged in the next heartbeat."""

    world: World
    name: ClientId
    waits: bool
    alive: bool = True
    registered: bool = False
    held: set = field(default_factory=set)
    done: tuple | None = None
    last: tuple | None = None
    call: int = 0
    open_since_s: float | None = None
    next_s: float = 0.0

    def step(self) -> None:
        """Heartbeat to the brokers; register or heartbeat at the master when it is time."""
        now_s = self.world.clock.seconds()
        self.held = {p for p in self.held if self.world.holders.take(self.name, p)}
        if self.open_since_s is not None and now_s - self.open_since_s < ANSWER_S:
            return
        if now_s < self.next_s and self.done is None:
            return
        self.call += 1
        self.open_since_s = now_s
        self.next_s = now_s + (0.1 if self.waits else 1.5)
        self._heartbeat(self.call) if self.registered else self._register(self.call)

    def _register(self, call: int) -> None:
        asked = Registration(
            client_id=self.name,
            group=GROUP,
            host="sim",
            wanted=Wanted(kind=Kind.BALANCED, topics=frozenset({"demo", "other"})),
            held=frozenset(self.held),
        )

        def deliver() -> None:
            answer = Deferred.fromCoroutine(self.world.consumers.register(asked))
            answer.addCallback(lambda _view: self._send_back(call, self._registered))

        self.world.network.send(deliver)

    def _registered(self) -> None:
        self.registered, self.done, self.last = True, None, None

    def _heartbeat(self, call: int) -> None:
        reports = self.done is not None or self.world.rng.random() < 0.3
        beat = Heartbeat(
            client_id=self.name,
            group=GROUP,
            held=frozenset(self.held) if reports else None,
            done=self.done,
            wait_s=2.0 if self.waits else 0.0,
        )

        def deliver() -> None:
            answer = Deferred.fromCoroutine(self.world.consumers.heartbeat(beat))
            answer.addCallback(lambda view: self._send_back(call, self._told, view.event))
            answer.addErrback(lambda failure: self._refused(call, failure))

        self.world.network.send(deliver)

    def _refused(self, call: int, failure) -> None:
        failure.trap(NotRegisteredError)
        self._send_back(call, self._lost)

    def _lost(self) -> None:
        self.registered = False

    def _send_back(self, call: int, f, *args) -> None:
        def deliver() -> None:
            if self.alive and call == self.call and self.open_since_s is not None:
                self.open_since_s = None
                f(*args)

        self.world.network.send(deliver, twice=False)

    def _told(self, event) -> None:
        self.done = None
        if event is None:
            return
        key = (event.round_id, int(event.action))
        if key != self.last:  # a repeated event is acknowledged again, and not carried out again
            for partition in event.partitions:
                if not event.action.connects:
                    self.world.holders.release(self.name, partition)
                    self.held.discard(partition)
                elif self.world.holders.take(self.name, partition):
                    self.held.add(partition)
        self.last = self.done = key

    def close(self) -> None:
        """Leave in order; the goodbye may be lost."""
        self.alive = False
        for partition in self.held:
            self.world.holders.release(self.name, partition)
        self.world.network.send(lambda: self.world.consumers.close(GROUP, self.name))


class World:
    """A master without sockets and SQL, its clients and its brokers."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.network = Network(self.rng, self.clock)
        self.holders = Holders(self.clock)
        self.topology = Topology(1)
        self.registry = Registry(producer_timeout_s=TIMEOUT_S, consumer_timeout_s=TIMEOUT_S)
        self.rounds = 0
        self.events = Events(self.draw_round)
        held = Held(self.clock)
        self.balancer = Balancer(
            self.clock,
            registry=self.registry,
            events=self.events,
            topology=self.topology,
            chronicle=SimpleNamespace(note=self.note),
            held=held,
            draw_round=self.draw_round,
            now_s=self.clock.seconds,
            delay_s=0.25,
            brokers_per_member_max=1000,
        )
        tokens = AuthTokens()
        tokens.set_keys([("k", b"k")])
        self.core = SimpleNamespace(
            leader=SimpleNamespace(require=lambda _client="": 1, leads=True),
            registry=self.registry,
            events=self.events,
            topology=self.topology,
            balancer=self.balancer,
            chronicle=SimpleNamespace(note=self.note),
            held_consumers=held,
            group_lock=DeferredLock(),
            groups={},
            database=SimpleNamespace(write=lambda *_args: succeed(None)),
            config=SimpleNamespace(consumer_timeout_s=TIMEOUT_S),
            now_s=self.clock.seconds,
            wall_ms=lambda: 0,
            token_version=0,
            visit=SimpleNamespace(current=1),
            access=Access(
                TokenConfig(), tokens, lambda: 0, self.clock.seconds, replays=Replays(1), asked_s=1
            ),
        )
        self.consumers = Consumers(self.core)
        self.clients: list[Client] = []
        self.counts = {"demo": 2, "other": 1}
        for broker_id in (1, 2):
            row = BrokerRow(
                broker_id=broker_id, host="h", port=1, http_port=0, state="online", created_ms=0
            )
            state = self.topology.put_broker(row)
            state.alive = state.online = True
        self.put_topics()

    def draw_round(self) -> int:
        self.rounds += 1
        return self.rounds

    def note(self, kind, **facts) -> None:
        """A connect leaves only when, as far as the master knows, nobody else has the partition."""
        if kind != "connect":
            return
        partition = (facts["topic"], facts["broker_id"], facts["partition_id"])
        for client, held in self.registry.holders(GROUP).items():
            if client != facts["client_id"]:
                assert partition not in {(p.topic, p.broker_id, p.partition_id) for p in held}

    def put_topics(self) -> None:
        for i, (name, count) in enumerate(self.counts.items()):
            row = TopicRow(
                topic_id=i,
                name=name,
                status="normal",
                durable=True,
                retention="delete,1h",
                retention_bytes=0,
                max_message_bytes=1000,
                accept_publish=True,
                accept_subscribe=True,
                created_ms=0,
            )
            self.topology.put_topic(StoredTopic(row=row, partitions={1: count, 2: count + 1}))
        for broker_id, state in self.topology.brokers.items():
            self.topology.acknowledge(broker_id, state.wanted.config_id, state.wanted.checksum)
        self.balancer.topics_changed(self.counts, "topics changed")

    def join(self) -> None:
        name = ClientId(f"c{len(self.clients)}")
        self.clients.append(Client(self, name, waits=self.rng.random() < 0.5))

    def alive(self) -> list[Client]:
        return [client for client in self.clients if client.alive]

    def tick(self, seconds: float) -> None:
        """Let time pass: clients act, the master drops the silent."""
        self.clock.advance(seconds)
        for client in self.alive():
            client.step()
        _, gone = self.registry.expire(self.clock.seconds())
        for one in gone:
            left(self.core, one, kind="expire", reason="was silent")
        owners: set = set()
        for client in self.alive():
            mine = {p for p in client.held if self.holders.holds.get(p, ("",))[0] == client.name}
            assert not owners & mine
            owners |= mine

    def disturb(self) -> None:
        """Something happens to the cluster."""
        luck, alive = self.rng.random(), self.alive()
        if luck < 0.4 and len(alive) < 6:
            self.join()
        elif luck < 0.55 and alive:
            self.rng.choice(alive).close()
        elif luck < 0.75 and alive:
            self.rng.choice(alive).alive = False
        elif luck < 0.85:
            self.counts[self.rng.choice(list(self.counts))] += 1
            self.put_topics()
        else:
            state = self.topology.brokers[self.rng.choice([1, 2])]
            state.alive = not state.alive
            self.balancer.topics_changed(self.counts, "a broker changed")


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
@pytest.mark.limit(60)
def test_members_hold_exclusively_and_a_calm_end_converges(first):
    """Whatever the network does, no partition has two readers; when it calms down, all are shared out."""
    for seed in range(first, first + 50):
        run(seed)


def run(seed: int) -> None:
    """One world: 60 rough seconds, then calm ones."""
    world = World(seed)
    world.join()
    world.join()
    for _ in range(60):
        if world.rng.random() < 0.2:
            world.disturb()
        world.tick(world.rng.uniform(0.2, 1.8))
    world.network.calm = True
    for state in world.topology.brokers.values():
        state.alive = True
    if not world.alive():
        world.join()
    world.balancer.topics_changed(world.counts, "calm")
    for _ in range(100):
        world.tick(0.4)
        if world.rng.random() < 0.05:
            world.balancer.look_at_all()

    partitions = world.topology.subscribable(world.counts)
    held = [client.held for client in world.alive()]
    sizes = sorted(map(len, held))
    assert partitions == set().union(*held), f"seed {seed}"
    assert sum(sizes) == len(partitions), f"seed {seed}"
    assert sizes[-1] - sizes[0] <= 1, f"seed {seed}: {sizes}"
    assert not world.events.busy(GROUP), f"seed {seed}"
