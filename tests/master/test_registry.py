"""The registry knows who is alive, and refuses members that do not fit their group."""

from __future__ import annotations

import pytest

from tube.errors import InconsistentGroupError, NotRegisteredError
from tube.master.registry import Kind, Registry, Wanted
from tube.values import Partition

P = Partition("t", 1, 0)


@pytest.fixture
def registry():
    return Registry(producer_timeout_s=20, consumer_timeout_s=10)


def wanted(**changes):
    return Wanted(**({"kind": Kind.BALANCED, "topics": frozenset({"t"})} | changes))


def bound(**changes):
    return wanted(**({"kind": Kind.BOUND, "session_key": "k", "source_count": 2} | changes))


def own(**changes):
    return wanted(**({"kind": Kind.CLIENT, "source_count": 2, "node_id": 0} | changes))


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (wanted(), bound(), 424),
        (wanted(), wanted(topics=frozenset({"t", "u"})), 425),
        (wanted(), wanted(filters={"t": frozenset({"x"})}), 426),
        (bound(), bound(session_key="other"), 427),
        (bound(), bound(select_big=False), 428),
        (bound(), bound(source_count=3), 429),
        (own(), own(source_count=3, node_id=1), 429),
        (own(), own(), 430),
    ],
)
def test_members_of_a_group_agree(registry, first, second, code):
    """Each way to differ has its number (spec section 8.1)."""
    registry.join("g", "a", "h", first, (), 0)

    with pytest.raises(InconsistentGroupError) as refused:
        registry.join("g", "b", "h", second, (), 0)

    assert refused.value.code == code
    assert "b" not in registry.groups["g"].members


def test_a_group_of_one_may_change_its_mind(registry):
    """The only member registers again with other topics."""
    registry.join("g", "a", "h", wanted(), (), 0)

    assert not registry.join("g", "a", "h", wanted(topics=frozenset({"u"})), [P], 1)

    assert registry.groups["g"].wanted.topics == {"u"}
    assert registry.holders("g") == {"a": {P}}


def test_empty_filters_are_no_filters(registry):
    """A topic with an empty condition is the same as one without."""
    registry.join("g", "a", "h", wanted(), (), 0)

    assert registry.join("g", "b", "h", wanted(filters={"t": frozenset()}), (), 0)


def test_the_silent_are_dropped_and_the_last_one_ends_the_group(registry):
    """Each kind has its own time; a group without members is no group."""
    registry.join("g", "a", "h", wanted(), [P], 0)
    registry.join("g", "b", "h", wanted(), (), 5)
    registry.touch_producer("p", "h", ["t"], 0)

    assert registry.expire(10) == ([], [])
    _, gone = registry.expire(11)
    assert [(one.member.client_id, one.last) for one in gone] == [("a", False)]
    producers, gone = registry.expire(21)
    assert [producer.client_id for producer in producers] == ["p"]
    assert [(one.member.client_id, one.last) for one in gone] == [("b", True)]
    assert not registry.groups
    assert not registry.producers


def test_a_heartbeat_of_a_stranger_is_refused(registry):
    """It must register, so that we know what it reads."""
    with pytest.raises(NotRegisteredError):
        registry.touch("g", "a", 0)
    registry.join("g", "a", "h", wanted(), (), 0)
    assert not registry.find("g", "a").ready
    assert registry.touch("g", "a", 3).ready
    with pytest.raises(NotRegisteredError):
        registry.touch("g", "b", 0)


def test_leaving_twice_is_leaving_once(registry):
    """The second goodbye finds nobody."""
    registry.join("g", "a", "h", wanted(), (), 0)

    assert registry.leave("g", "a").last
    assert registry.leave("g", "a") is None
    assert not registry.drop_producer("p")
    assert registry.holders("g") == {}


def test_a_producer_is_known_after_its_first_sign_of_life(registry):
    """Its topics are those that it named last."""
    assert registry.touch_producer("p", "h", [], 0)
    assert not registry.touch_producer("p", "h", ["t"], 1)

    assert registry.producers["p"].topics == ("t",)
    assert registry.drop_producer("p")
