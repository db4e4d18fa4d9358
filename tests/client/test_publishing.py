"""Messages go round the partitions, keys stay where they are, failing partitions rest."""

from __future__ import annotations

import pytest

from tube.client.publishing import (
    BROKER_REST_S,
    BROKER_REST_S_MAX,
    FAILURES_MAX,
    PARTITION_REST_S,
    RETRY_S_MAX,
    Publishing,
    retry_pause_s,
)
from tube.errors import NoBrokerError, ReceiveOverflowError, UnreachableError
from tube.values import Address, Broker, Partition
from tube.wire.records import parse_route

BUSY = ReceiveOverflowError("busy")
AWAY = UnreachableError("away")


def publishing(route: str = "demo#1:2:1,2:2:1#1000") -> Publishing:
    known = Publishing(0)
    known.learn_brokers([Broker(1, "a", 1), Broker(2, "b", 2)])
    known.learn_routes([parse_route(route)])
    return known


def p(broker_id: int, partition_id: int) -> Partition:
    return Partition("demo", broker_id, partition_id)


ALL = [p(1, 0), p(1, 1), p(2, 0), p(2, 1)]


def test_partitions_take_turns() -> None:
    """In order, again and again."""
    known = publishing()

    assert [known.next("demo", 0) for _ in range(8)] == ALL * 2
    assert known.partitions("demo") == ALL
    assert known.address(p(2, 0)) == Address("b", 2)
    assert known.message_bytes_max("demo") == 1000
    assert known.message_bytes_max("other") is None


def test_a_key_has_one_partition_and_many_keys_have_all() -> None:
    """As long as the topic has the same partitions."""
    known = publishing()
    homes = {known.by_key("demo", b"%d" % i) for i in range(100)}

    assert homes == set(ALL)
    assert len({known.by_key("demo", b"k") for _ in range(10)}) == 1


def test_unknown_topics_and_brokers_are_an_error_with_a_hint() -> None:
    """Nobody waits for what is not there."""
    known = publishing()
    assert not known.knows("other")
    with pytest.raises(NoBrokerError) as caught:
        known.next("other", 0)
    assert "tube topic" in caught.value.hint
    with pytest.raises(NoBrokerError):
        known.by_key("other", b"")
    with pytest.raises(NoBrokerError, match="broker 9"):
        known.address(p(9, 0))


def test_a_partition_rests_after_failures_in_a_row() -> None:
    """For three seconds; a success in between starts the count anew."""
    known = publishing()
    for _ in range(FAILURES_MAX - 1):
        known.failed(p(1, 0), BUSY, 0)
    known.succeeded(p(1, 0))
    for _ in range(FAILURES_MAX):
        known.failed(p(1, 0), BUSY, 0)

    assert p(1, 0) not in {known.next("demo", PARTITION_REST_S - 0.1) for _ in range(4)}
    assert p(1, 0) in {known.next("demo", PARTITION_REST_S) for _ in range(4)}


def test_a_broker_that_is_away_rests_longer_each_time() -> None:
    """Doubling up to the limit; its partitions are passed over."""
    known = publishing()
    known.failed(p(1, 0), AWAY, 0)
    assert {known.next("demo", BROKER_REST_S - 0.1) for _ in range(4)} == {p(2, 0), p(2, 1)}
    for _ in range(10):
        known.failed(p(1, 1), AWAY, 0)

    assert {known.next("demo", BROKER_REST_S_MAX - 0.1) for _ in range(4)} == {p(2, 0), p(2, 1)}
    assert {known.next("demo", BROKER_REST_S_MAX) for _ in range(4)} == set(ALL)


def test_when_all_rest_somebody_is_tried_anyway() -> None:
    """A producer with one broker does not stand still."""
    known = publishing("demo#1:1:1#")
    known.failed(p(1, 0), AWAY, 0)

    assert known.next("demo", 0) == p(1, 0)


def test_pauses_grow_to_a_limit() -> None:
    """With jitter between half and whole."""
    assert retry_pause_s(1, 0) * 2 == retry_pause_s(1, 1) == retry_pause_s(2, 0)
    assert retry_pause_s(50, 1) == RETRY_S_MAX
