"""Groups whose members are written in different languages."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.compat.conftest import KINDS, House, MakeHouse
from tests.compat.peers import Peer
from tests.faults.processes import wait_until

Peers = Callable[[str], Peer]
PARTITIONS = 6
JOIN_S = 60.0
"""Patience with machines that do other things too; it takes 2 to 7 s."""


def join(house: House, kind: str, topic: str, group: str, **more: object) -> Peer:
    """A new process of a kind that becomes a member."""
    peer = house.peer(kind)
    peer.ask(
        "open_consumer",
        "in",
        master=house.master_address,
        group=group,
        topics={topic: []},
        position="first",
        auto=True,
        **more,
    )
    return peer


def holders(house: House, group: str) -> dict[tuple[str, int], str]:
    """Who holds what now, by the brokers' record; fails if anything was ever held twice."""
    held: dict[tuple[str, int], str] = {}
    for row in house.holds(group):
        key = (row["topic"], row["partition_id"])
        if row["what"] == "taken":
            assert key not in held, f"{key} taken by {row['client_id']}, held by {held[key]}"
            held[key] = row["client_id"]
        else:
            assert held.pop(key) == row["client_id"], row
    return held


def shared_by(house: House, group: str, members: int) -> bool:
    """Whether all partitions are held, by so many members, evenly."""
    counts = Counter(holders(house, group).values())
    return (
        len(counts) == members
        and sum(counts.values()) == PARTITIONS
        and max(counts.values()) - min(counts.values()) <= 1
    )


def unconfirmed(peers: Sequence[Peer]) -> set[str]:
    """Messages of batches whose confirmation failed or never came: they may come again."""
    found: set[str] = set()
    for peer in peers:
        open_batches: dict[str, list[str]] = {}
        for event in list(peer.events):
            if event["event"] == "batch":
                bodies = [base64.b64decode(m["body"]).decode() for m in event["messages"]]
                open_batches.setdefault(event["partition"], []).extend(bodies)
            elif event["event"] == "confirmed":
                bodies = open_batches.pop(event["partition"], [])
                if not event["success"]:
                    found.update(bodies)
        for bodies in open_batches.values():
            found.update(bodies)
    return found


def read_by(peers: Sequence[Peer]) -> Counter[str]:
    """How often each message was read."""
    return Counter(body.decode() for peer in peers for body in peer.bodies("in"))


MIXES = [("java", "go", "tube"), ("java-old", "tube", "java"), ("go", "java-old", "go")]


@pytest.mark.parametrize("kinds", MIXES, ids="-".join)
def test_a_mixed_group_shares_joins_leaves_and_loses_nothing(
    kinds: tuple[str, str, str], make_house: MakeHouse, names: tuple[str, str]
) -> None:
    """Partitions are exclusive at every instant; everything is read, and once when everybody says goodbye."""
    house, (topic, group) = make_house(), names
    house.create_topic(topic, PARTITIONS)
    sender = house.peer("tube")
    sender.ask("open_producer", "out", master=house.master_address, topics=[topic])
    sender.ask("flood", "out", topic=topic, prefix="m", pace_ms=4)
    members = [join(house, kinds[0], topic, group)]
    wait_until(lambda: shared_by(house, group, 1), JOIN_S, "the first has all")
    members.append(join(house, kinds[1], topic, group))
    wait_until(lambda: shared_by(house, group, 2), JOIN_S, "two share")
    members.append(join(house, kinds[2], topic, group))
    wait_until(lambda: shared_by(house, group, 3), JOIN_S, "three share")
    members[0].ask("close", "in")
    wait_until(lambda: shared_by(house, group, 2), JOIN_S, "the others share")
    gracefully = read_by(members)
    twice = {body for body, count in gracefully.items() if count > 1}
    allowed = unconfirmed(members)

    members[1].kill()
    wait_until(lambda: shared_by(house, group, 1), 30, "the last has all")
    told = sender.ask("flood_stop", "out")
    wait_until(lambda: set(read_by(members)) >= set(told["acknowledged"]), 30, "all is read")
    members[2].ask("close", "in")

    assert told["failed"] == []
    assert twice <= allowed, sorted(twice - allowed)[:10]
    assert set(read_by(members)) == set(told["acknowledged"])
    assert holders(house, group) == {}
    again = {body for body, count in read_by(members).items() if count > 1}
    # What the killed one had acknowledged may have been on its way.
    assert again <= unconfirmed(members) | twice | set(read_by(members[1:2])), len(again)


def ready_consumer(peer: Peer, name: str, **fields: Any) -> None:
    """Open a consumer that is pulled step by step."""
    peer.ask("open_consumer", name, **fields)


def pull(peer: Peer, name: str, within_s: float = 15) -> dict[str, Any]:
    """The next batch that is not empty."""
    got: dict[str, Any] = {}

    def tried() -> bool:
        got.update(peer.ask("pull", name))
        return bool(got["success"] and got["messages"])

    wait_until(tried, within_s, "a batch")
    return got


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "tube"])
def test_a_rejected_batch_comes_again_and_a_confirmed_one_does_not(
    kind: str, shared_house: House, shared_peers: Peers, names: tuple[str, str]
) -> None:
    """Pull with explicit confirmation."""
    topic, group = names
    shared_house.create_topic(topic, 1)
    ours, peer = shared_peers("tube"), shared_peers(kind)
    fill(ours, shared_house, topic, ["a", "b"])
    ready_consumer(peer, topic, master=shared_house.master_address, group=group, topics={topic: []})
    first = pull(peer, topic)
    peer.ask("confirm", topic, context=first["context"], accept=False)
    again = pull(peer, topic)
    confirmed = peer.ask("confirm", topic, context=again["context"], accept=True)
    fill(ours, shared_house, topic, ["c"])
    after = pull(peer, topic)
    peer.ask("confirm", topic, context=after["context"], accept=True)
    peer.ask("close", topic)

    assert texts(first) == texts(again) == ["a", "b"]
    assert confirmed["success"]
    assert texts(after) == ["c"]
    rows = shared_house.offsets(group)["partitions"]
    assert [row["committed"] for row in rows] == [row["next"] for row in rows]


def fill(ours: Peer, house: House, topic: str, bodies: list[str]) -> None:
    """Send messages with our client."""
    name = f"fill-{topic}-{bodies[0]}"
    ours.ask("open_producer", name, master=house.master_address, topics=[topic])
    messages = [
        {"topic": topic, "body": base64.b64encode(body.encode()).decode()} for body in bodies
    ]
    results = ours.ask("send", name, messages=messages)["results"]
    assert all(result["success"] for result in results), results
    ours.ask("close", name)


def texts(pulled: dict[str, Any]) -> list[str]:
    """The bodies of a batch."""
    return [base64.b64decode(message["body"]).decode() for message in pulled["messages"]]


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "tube"])
@pytest.mark.parametrize("position", ["first", "latest", "max"])
def test_the_three_start_positions(
    kind: str, position: str, shared_house: House, shared_peers: Peers, names: tuple[str, str]
) -> None:
    """A new group begins at the first message, or at what comes; *max* does so every time."""
    topic, group = names
    shared_house.create_topic(topic, 1)
    ours, peer = shared_peers("tube"), shared_peers(kind)
    fields = {"master": shared_house.master_address, "group": group, "topics": {topic: []}}
    fill(ours, shared_house, topic, ["old"])
    read: list[str] = []
    for visit in (1, 2):
        name = f"{topic}-{visit}"
        peer.ask("open_consumer", name, position=position, auto=True, **fields)
        wait_until(lambda: holders(shared_house, group), 15, "held")
        fill(ours, shared_house, topic, [f"new{visit}"])
        wait_until(
            lambda name=name, visit=visit: f"new{visit}".encode() in peer.bodies(name), 15, "read"
        )
        peer.ask("close", name)
        read += [body.decode() for body in peer.bodies(name)]
        wait_until(lambda: not holders(shared_house, group), 15, "released")
        fill(ours, shared_house, topic, [f"between{visit}"])

    expected = {
        "first": ["old", "new1", "between1", "new2"],
        "latest": ["new1", "between1", "new2"],
        "max": ["new1", "new2"],
    }
    assert read == expected[position]


@pytest.mark.parametrize("kind", ["java", "java-old"])
def test_a_push_consumer_commits_with_its_next_pull(
    kind: str, shared_house: House, shared_peers: Peers, names: tuple[str, str]
) -> None:
    """Push, several topics in one group, and nothing is left uncommitted when it leaves."""
    topic, group = names
    other = f"{topic}b"
    ours, peer = shared_peers("tube"), shared_peers(kind)
    for name in (topic, other):
        shared_house.create_topic(name, 2)
        fill(ours, shared_house, name, [f"{name}-{i}" for i in range(30)])
    peer.ask(
        "open_consumer",
        topic,
        master=shared_house.master_address,
        group=group,
        topics={topic: [], other: []},
        position="first",
        mode="push",
    )
    wait_until(lambda: len(peer.bodies(topic)) >= 60, 20, "60 messages")
    wait_until(lambda: shared_house.offsets(group)["lag"] == 0, 10, "committed")
    peer.ask("close", topic)

    assert len(set(peer.bodies(topic))) == len(peer.bodies(topic)) == 60


@pytest.mark.parametrize("kind", ["java", "java-old", "go"])
def test_a_bound_consumer_starts_where_it_asks_to(
    kind: str, shared_house: House, shared_peers: Peers, names: tuple[str, str]
) -> None:
    """The offsets of ``completeSubscribe(session, …)`` win over position and commits."""
    topic, group = names
    shared_house.create_topic(topic, 2)
    ours, peer = shared_peers("tube"), shared_peers(kind)
    fill(ours, shared_house, topic, [f"x{i}" for i in range(40)])
    rows = shared_house.topic_offsets(topic)
    middle = {f"1:{topic}:{row['partition_id']}": row["next"] // 4 for row in rows}
    wanted = sum(row["next"] - row["next"] // 4 for row in rows)
    peer.ask(
        "open_consumer",
        topic,
        master=shared_house.master_address,
        group=group,
        topics={topic: []},
        position="first",
        auto=True,
        session="s1",
        count=1,
        select_big=True,
        offsets=middle,
    )
    wait_until(lambda: len(peer.bodies(topic)) >= wanted, 20, "those behind")
    wait_until(lambda: shared_house.offsets(group)["lag"] == 0, 10, "committed")
    peer.ask("close", topic)

    assert len(peer.bodies(topic)) == wanted


@pytest.mark.parametrize("kind", ["java", "java-old"])
def test_a_client_balance_consumer_reads_what_it_chose(
    kind: str, shared_house: House, shared_peers: Peers, names: tuple[str, str]
) -> None:
    """Metadata, connecting at an offset, reading, disconnecting; the other member has the rest."""
    topic, group = names
    shared_house.create_topic(topic, 2)
    ours, peer = shared_peers("tube"), shared_peers(kind)
    fill(ours, shared_house, topic, [f"x{i}" for i in range(40)])
    members = [f"{topic}-{node}" for node in (0, 1)]
    fields = {"master": shared_house.master_address, "group": group, "topics": {topic: []}}
    keys = [f"1:{topic}:{partition}" for partition in (0, 1)]
    for node, name in enumerate(members):
        peer.ask("open_balanced", name, count=2, node=node, **fields)
    told = peer.ask("metadata", members[0])
    rows = sorted(shared_house.topic_offsets(topic), key=lambda row: row["partition_id"])
    read: list[str] = []
    for name, key, row in zip(members, keys, rows, strict=True):
        connected = {"partition": key, "offset": 0}
        wait_until(lambda n=name, c=connected: peer.ask("connect", n, **c)["success"], 10, key)
        wanted = len(read) + row["next"]
        wait_until(lambda n=name, w=wanted, k=key: pulled(peer, n, read, k) >= w, 20, "read")
    refused = peer.ask("connect", members[0], partition=keys[1], offset=0)
    for name in members:
        peer.ask("close", name)

    assert told["partitions"] == dict.fromkeys(keys, True)
    assert sorted(read) == sorted(f"x{i}" for i in range(40))
    assert not refused["success"]
    assert holders(shared_house, group) == {}


def pulled(peer: Peer, name: str, read: list[str], key: str) -> int:
    """Pull once and confirm; how many messages were read in all."""
    answer = peer.ask("balanced_pull", name)
    if answer["success"]:
        assert answer["partition"] == key
        assert answer["confirmed"]
        read += texts(answer)
    return len(read)
