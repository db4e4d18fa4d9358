"""The store functions keep what they are given, on each database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.master.db.test_lease import BROKER, TOPIC, candidate
from tube.errors import ConflictError, NotFoundError
from tube.master.db import brokers, groups, history, keys, lease, statistics, topics
from tube.master.db.groups import RuleRow
from tube.master.db.history import HistoryRow
from tube.master.db.keys import KeyRow


@pytest.fixture
def conn(engine):
    with engine.begin() as conn:
        lease.take_or_renew(conn, candidate("a"))
        yield conn


def test_brokers_are_added_and_replaced(conn):
    """The date of birth stays."""
    brokers.put(conn, 1, BROKER)
    brokers.put(conn, 1, replace(BROKER, port=9, created_ms=77))
    brokers.set_state(conn, 1, 1, "only-read")

    assert brokers.all_brokers(conn) == [replace(BROKER, port=9, state="only-read")]
    with pytest.raises(NotFoundError):
        brokers.set_state(conn, 1, 2, "online")


def test_partition_numbers_never_change(conn):
    """They count from 0 over all brokers; new partitions get the next ones."""
    topic = topics.add(conn, 1, TOPIC, {1: 2, 2: 1})
    assert topic.numbers == {(1, 0): 0, (2, 0): 1, (1, 1): 2}

    more = topics.change(conn, 1, topic.row, {1: 2, 2: 2, 3: 1})

    assert more == {(3, 0): 3, (2, 1): 4}
    (stored,) = topics.all_topics(conn)
    assert stored.numbers == topic.numbers | more
    assert stored.partitions == {1: 2, 2: 2, 3: 1}
    assert stored.row == topic.row


def test_a_topic_id_is_never_used_again(conn):
    """Not even when every trace of the topic is gone; its name is free then."""
    first = topics.add(conn, 1, TOPIC, {1: 1, 2: 1})
    with pytest.raises(ConflictError, match="demo"):
        topics.add(conn, 1, TOPIC, {1: 1})
    assert not topics.removed_at(conn, 1, first.row.topic_id, 1, 50)
    assert topics.removed_at(conn, 1, first.row.topic_id, 2, 50)
    assert topics.all_topics(conn) == []
    assert topics.forget_gone(conn, 1, 50) == 0
    assert topics.forget_gone(conn, 1, 51) == 1

    second = topics.add(conn, 1, TOPIC, {1: 1})

    assert second.row.topic_id == first.row.topic_id + 1


def test_a_missing_topic_cannot_be_changed(conn):
    """Nothing is stored."""
    with pytest.raises(NotFoundError):
        topics.change(conn, 1, replace(TOPIC, topic_id=99), {})


def test_groups_remember_whether_they_have_members(conn):
    """Idle ones are forgotten, unless they have rules or members."""
    groups.add(conn, 1, "g1", 5)
    with pytest.raises(ConflictError):
        groups.add(conn, 1, "g1", 5)
    groups.mark(conn, 1, ["g1", "g2", "g3"], True, 10)
    groups.mark(conn, 1, ["g1", "g2"], False, 20)
    groups.set_rules(conn, 1, RuleRow(scope="g2", check_id=1, rules="[]"))
    assert [(g.name, g.active, g.created_ms, g.used_ms) for g in groups.all_groups(conn)] == [
        ("g1", False, 5, 20),
        ("g2", False, 10, 20),
        ("g3", True, 10, 10),
    ]

    assert groups.forget_old(conn, 1, 100) == 1
    groups.delete(conn, 1, "g2")

    assert [group.name for group in groups.all_groups(conn)] == ["g3"]
    assert groups.all_rules(conn) == []


def test_rules_are_replaced(conn):
    """One set per scope."""
    groups.set_rules(conn, 1, RuleRow(scope="", check_id=1, rules="a"))
    groups.set_rules(conn, 1, RuleRow(scope="", check_id=2, rules="b"))

    assert groups.all_rules(conn) == [RuleRow(scope="", check_id=2, rules="b")]


def test_history_is_read_in_order_and_trimmed(conn):
    """By age and by number; ids go on."""
    rows = [HistoryRow(at_ms=i, kind="join" if i % 2 else "leave", group="g") for i in range(10)]
    history.append(conn, 1, rows)
    history.append(conn, 1, [HistoryRow(at_ms=10, kind="admin", detail="x", broker_id=3)])

    newest = history.select(conn, group=None, kind=None, after=None, limit=2)
    assert [(r.at_ms, r.kind) for r in newest] == [(9, "join"), (10, "admin")]
    first = history.select(conn, group="g", kind="join", after=0, limit=3)
    assert [r.at_ms for r in first] == [1, 3, 5]
    rest = history.select(conn, group="g", kind="join", after=first[-1].event_id, limit=9)
    assert [r.at_ms for r in rest] == [7, 9]
    assert history.trim(conn, 1, before_ms=2, rows_max=100) == 2
    assert history.trim(conn, 1, before_ms=0, rows_max=4) == 5
    assert history.count(conn) == 4
    left = history.select(conn, group=None, kind=None, after=None, limit=9)
    assert left[-1] == HistoryRow(
        event_id=newest[-1].event_id, at_ms=10, kind="admin", detail="x", broker_id=3
    )


def test_the_ring_keeps_the_newest_keys(conn):
    """The oldest are forgotten."""
    made = [KeyRow(key_id=f"k{i}", secret=bytes([i]), created_ms=i) for i in range(4)]
    for key in made:
        kept = keys.add(conn, 1, key, keep=3)

    assert kept == keys.ring(conn) == made[1:]


def test_a_day_s_figures_replace_those_of_an_earlier_run(conn):
    """One row a day."""
    topics.add(conn, 1, TOPIC, {1: 2, 2: 1})
    statistics.note_day(conn, 1, "2026-01-01")
    statistics.note_day(conn, 1, "2026-01-01")

    row = conn.execute(statistics.statistics.select()).one()
    assert (row.day, row.topics, row.partitions, row.brokers) == ("2026-01-01", 1, 3, 0)
