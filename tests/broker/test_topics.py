"""A broker serves what the master said, and refuses the rest with a reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tube.broker.topics import Topics, TopicSettings
from tube.errors import ForbiddenError

TOPIC = TopicSettings(name="t1", topic_id=1, partition_count=2, store_count=2)


def test_partition_ids_count_stores_in_ten_thousands() -> None:
    """Two stores of two partitions are 0, 1, 10000 and 10001."""
    ids = [0, 1, 10_000, 10_001]

    assert ids == TOPIC.partition_ids()
    assert [p for p in range(-1, 30_000) if TOPIC.has(p)] == ids
    assert TOPIC.payload_bytes_max == TOPIC.message_bytes_max + 10 * 1024


@pytest.mark.parametrize(
    ("change", "publish", "read"),
    [
        ({}, True, True),
        ({"accept_publish": False}, False, True),
        ({"accept_subscribe": False}, True, False),
        ({"status": 1}, False, True),
        ({"status": 2}, False, False),
    ],
)
def test_a_topic_is_open_or_closed_for_each_side(
    change: dict[str, int], publish: bool, read: bool
) -> None:
    """A soft-deleted topic is still read, a removed one is not."""
    topics = Topics()
    topics.update([replace(TOPIC, **change)])
    for verb, allowed in ((topics.publishable, publish), (topics.readable, read)):
        if allowed:
            assert verb("t1", 10_001).topic_id == 1
        else:
            with pytest.raises(ForbiddenError, match="closed"):
                verb("t1", 0)


def test_unknown_topics_partitions_and_stopped_brokers_are_refused() -> None:
    """Each refusal says which it is."""
    topics = Topics()
    topics.update([TOPIC])
    with pytest.raises(ForbiddenError, match="'t2' is not on this broker"):
        topics.publishable("t2", 0)
    with pytest.raises(ForbiddenError, match="no partition 2"):
        topics.readable("t1", 2)
    topics.read_stopped = topics.write_stopped = True
    with pytest.raises(ForbiddenError, match=r"writing .* stopped"):
        topics.publishable("t1", 0)
    with pytest.raises(ForbiddenError, match=r"reading .* stopped"):
        topics.readable("t1", 0)


def test_an_update_tells_which_topics_are_gone() -> None:
    """A topic with the same name and another id is another topic."""
    topics = Topics()
    assert topics.update([TOPIC, replace(TOPIC, name="t2", topic_id=2)]) == []
    gone = topics.update([replace(TOPIC, topic_id=3)])

    assert sorted(t.topic_id for t in gone) == [1, 2]
    assert [t.topic_id for t in topics] == [3]
    assert topics.get("t2") is None
