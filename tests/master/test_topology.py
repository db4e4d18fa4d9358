"""Clients see what brokers have acknowledged, and nothing that is closed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tube.errors import NotFoundError
from tube.master.topology import Topology
from tube.master.values import BrokerRow, StoredTopic, TopicRow
from tube.values import Partition

ROW = TopicRow(
    topic_id=1,
    name="demo",
    status="normal",
    durable=True,
    retention="delete,1h",
    retention_bytes=0,
    max_message_bytes=1000,
    accept_publish=True,
    accept_subscribe=True,
    created_ms=0,
)


@pytest.fixture
def topology():
    """Two brokers that are online and have no topics."""
    made = Topology(100)
    for broker_id in (1, 2):
        row = BrokerRow(
            broker_id=broker_id, host="h", port=8123, http_port=0, state="online", created_ms=0
        )
        state = made.put_broker(row)
        state.alive = state.online = True
    return made


def put(topology, acknowledged=(1, 2), row=ROW, **counts):
    partitions = {int(name[1:]): count for name, count in counts.items()}
    changed = topology.put_topic(StoredTopic(row=row, partitions=partitions))
    for broker_id in acknowledged:
        wanted = topology.brokers[broker_id].wanted
        topology.acknowledge(broker_id, wanted.config_id, wanted.checksum)
    return changed


def test_a_topic_is_seen_once_its_broker_has_it(topology):
    """Readable and writable at the same moment."""
    assert put(topology, acknowledged=[1], b1=2, b2=1) == {1, 2}

    assert topology.subscribable(["demo"]) == {Partition("demo", 1, 0), Partition("demo", 1, 1)}
    assert topology.routes(["demo", "nosuch"]) == ["demo#1:2:1#1000"]
    assert topology.metas(["demo"]) == ["demo#1:1:2:1"]
    assert "not taken over" in topology.why_not(Partition("demo", 2, 0))
    assert topology.deployed("demo")
    assert not topology.deployed("nosuch")


def test_new_partitions_are_seen_after_the_acknowledgement(topology):
    """A growing topic goes on with what it has."""
    put(topology, b1=1)
    old = topology.brokers[1].wanted
    put(topology, acknowledged=[], b1=3)

    assert len(topology.subscribable(["demo"])) == 1
    assert not topology.acknowledge(1, old.config_id, old.checksum)  # an old answer, come late
    new = topology.brokers[1].wanted
    assert topology.acknowledge(1, new.config_id, new.checksum)
    assert not topology.acknowledge(1, new.config_id, new.checksum)
    assert len(topology.subscribable(["demo"])) == 3


def test_what_is_closed_disappears_at_once(topology):
    """Nobody waits for the broker to agree."""
    put(topology, b1=1)
    put(topology, acknowledged=[], row=replace(ROW, accept_subscribe=False), b1=1)
    assert topology.subscribable(["demo"]) == set()
    assert topology.routes(["demo"]) != []
    assert topology.metas(["demo"]) == ["demo#1:1:1:0"]

    put(topology, acknowledged=[], row=replace(ROW, accept_publish=False), b1=1)
    assert topology.routes(["demo"]) == []
    put(topology, acknowledged=[], row=replace(ROW, status="deleted"), b1=1)
    assert topology.subscribable(["demo"]) == set()
    assert not topology.deployed("demo")


@pytest.mark.parametrize(
    ("state", "readable", "writable"),
    [("only-read", True, False), ("only-write", False, True), ("offline", False, False)],
)
def test_the_operator_s_wish_for_a_broker_counts(topology, state, readable, writable):
    """Its partitions leave what clients see."""
    put(topology, b1=1)
    row = topology.brokers[1].row
    topology.put_broker(replace(row, state=state))

    assert bool(topology.subscribable(["demo"])) == readable
    assert bool(topology.routes(["demo"])) == writable
    assert bool(topology.why_not(Partition("demo", 1, 0))) != readable


def test_a_dead_broker_s_partitions_are_not_subscribable(topology):
    """The list of brokers still has it: clients meet it in old holdings."""
    put(topology, b1=1)
    topology.brokers[1].seen_s = 10
    topology.brokers[2].seen_s = 30

    assert [s.row.broker_id for s in topology.expire(36, 25)] == [1]

    assert topology.subscribable(["demo"]) == set()
    assert topology.broker_list() == ["1:h:8123", "2:h:8123"]
    assert topology.why_not(Partition("demo", 1, 0)) == "broker 1 is not alive"


def test_the_checksum_follows_the_list_of_brokers(topology):
    """The same list has the same checksum on every master; drafts are not in it."""
    before = topology.broker_checksum()
    twin = Topology(999)
    for state in reversed(topology.brokers.values()):
        twin.put_broker(state.row)
    assert twin.broker_checksum() == before

    twin.put_broker(replace(topology.brokers[1].row, state="draft"))

    assert twin.broker_list() == ["2:h:8123"]
    assert twin.broker_checksum() != before
    assert before > 0


def test_a_topic_on_its_way_out_stays_in_the_configuration(topology):
    """With status 2, so that the broker knows what to delete."""
    put(topology, row=replace(ROW, status="removing"), b1=1)

    assert topology.brokers[1].wanted.topics == ("demo:1: : : : : :delete,1h: :2: : : : :1000",)
    assert topology.removing(1) == list(topology.brokers[1].wanted.topics)
    assert topology.removing(2) == []
    assert topology.drop_topic("demo") == {1}
    assert topology.brokers[1].wanted.topics == ()


def test_every_reason_why_a_partition_is_closed_has_a_text(topology):
    """What explain shows."""
    put(topology, b1=1)
    assert topology.why_not(Partition("demo", 1, 0)) == ""
    assert topology.why_not(Partition("nosuch", 1, 0)) == "the topic does not exist"
    assert topology.why_not(Partition("demo", 1, 5)) == "the partition does not exist"
    topology.brokers[1].read_fails = True
    assert "I/O errors" in topology.why_not(Partition("demo", 1, 0))


def test_an_unknown_topic_is_an_error(topology):
    """And a partition of an unknown broker still has a text."""
    with pytest.raises(NotFoundError, match="nosuch"):
        topology.topic("nosuch")
    assert topology.place(Partition("demo", 77, 0)).broker.broker_id == 77
