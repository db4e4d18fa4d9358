"""Topics are spread evenly, and nobody loses a partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tube.master.topics import delete_policy, spread

places = st.dictionaries(st.integers(1, 9), st.integers(0, 9), min_size=1)


@given(places, st.integers(1, 60), st.dictionaries(st.integers(1, 9), st.integers(0, 99)))
def test_a_topic_only_ever_grows(current, extra, loads):
    """Everybody keeps what it has; the total is what was asked for."""
    count = sum(current.values()) + extra

    result = spread(current, count, loads)

    assert sum(result.values()) == count
    assert all(result.get(broker, 0) >= had for broker, had in current.items())
    assert set(result) <= set(current)


@given(st.sets(st.integers(1, 9), min_size=1), st.integers(1, 60))
def test_a_new_topic_is_spread_evenly(brokers, count):
    """Within one; brokers that get nothing are left out."""
    result = spread(dict.fromkeys(brokers, 0), count, {})

    assert max(result.values()) - min(result.values()) <= 1
    assert len(result) == min(len(brokers), count)


def test_the_emptiest_broker_gets_the_rest():
    """One partition goes where the fewest are."""
    assert spread({1: 0, 2: 0, 3: 0}, 1, {1: 5, 2: 1, 3: 9}) == {2: 1}


def test_a_short_retention_is_completed():
    """As people write it."""
    assert delete_policy("168h") == delete_policy("delete,168h") == "delete,168h"
