"""A partition has one holder of a group at any time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tube.broker.holders import Claim, Holders
from tube.errors import DuplicateHolderError, NotRegisteredError, PartitionOccupiedError
from tube.values import ClientId, GroupName

A, B = ClientId("a"), ClientId("b")
CLAIM = Claim(GroupName("g1"), "t1", 0)


def test_the_holder_may_always_renew_and_what_was_pending_is_dropped() -> None:
    """Registering again is success, and forgets the batch that was given."""
    holders = Holders(10)
    holders.take(CLAIM, A, 0).pending = 7
    hold = holders.take(CLAIM, A, 5)

    assert (hold.client, hold.until_s, hold.pending, hold.since_s) == (A, 15, None, 0)


def test_another_client_is_refused_once_more_after_the_hold_ran_out() -> None:
    """The first claim after the end removes the old holder, the second gets the partition."""
    holders = Holders(10)
    holders.take(CLAIM, A, 0)
    for now_s in (9, 10):
        with pytest.raises(PartitionOccupiedError, match="held by a"):
            holders.take(CLAIM, B, now_s)

    assert holders.take(CLAIM, B, 10).client == B


def test_only_the_holder_touches_checks_and_releases() -> None:
    """411 for a partition that nobody holds, 412 for somebody else's."""
    holders = Holders(10)
    for call in (lambda: holders.touch(CLAIM, A, 0), lambda: holders.release(CLAIM, A)):
        with pytest.raises(NotRegisteredError):
            call()
    holders.take(CLAIM, A, 0)
    for call in (lambda: holders.check(CLAIM, B), lambda: holders.release(CLAIM, B)):
        with pytest.raises(DuplicateHolderError):
            call()
    assert holders.touch(CLAIM, A, 3).until_s == 13
    assert holders.release(CLAIM, A).client == A
    assert holders.find(CLAIM) is None


def test_silent_holders_expire_and_an_operator_can_evict() -> None:
    """Expiry returns what ended; evicting a free partition is no error."""
    holders = Holders(10)
    other = Claim(GroupName("g2"), "t1", 0)
    holders.take(CLAIM, A, 0)
    holders.take(other, B, 5)
    assert [claim for claim, _ in holders.expire(10)] == [CLAIM]
    assert [claim for claim, _ in holders.of_group(GroupName("g2"))] == [other]
    assert len(holders) == len(list(holders.all())) == 1
    holders.evict(other)
    holders.evict(other)

    assert len(holders) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from("tgrx"), st.sampled_from("ab"), st.integers(0, 12)), max_size=60
    )
)
def test_never_two_holders(steps: list[tuple[str, str, int]]) -> None:
    """Whatever clients do and however time passes, between two ends of a hold its client stays the same."""
    holders, now_s = Holders(10), 0.0
    owner: str | None = None
    for what, name, pause_s in steps:
        now_s += pause_s
        client = ClientId(name)
        before = holders.find(CLAIM)
        try:
            if what == "t":
                holders.take(CLAIM, client, now_s)
                assert owner in (None, name)
                owner = name
            elif what == "g":
                holders.touch(CLAIM, client, now_s)
                assert owner == name
            elif what == "r":
                holders.release(CLAIM, client)
                assert owner == name
                owner = None
            elif holders.expire(now_s):
                owner = None
        except (PartitionOccupiedError, NotRegisteredError, DuplicateHolderError):
            if before is not None and holders.find(CLAIM) is None:
                assert now_s >= before.until_s
                owner = None


def test_every_change_of_holder_is_recorded_once() -> None:
    """Renewals and refusals are no changes; what ran out is recorded when it is noticed."""
    seen: list[tuple[str, str]] = []
    holders = Holders(10, lambda what, _claim, client: seen.append((what, client)))
    holders.take(CLAIM, A, 0)
    holders.take(CLAIM, A, 1)
    holders.release(CLAIM, A)
    holders.take(CLAIM, B, 2)
    with pytest.raises(PartitionOccupiedError):
        holders.take(CLAIM, A, 3)
    with pytest.raises(PartitionOccupiedError):
        holders.take(CLAIM, A, 12)
    holders.take(CLAIM, A, 13)
    holders.evict(CLAIM)
    holders.evict(CLAIM)
    holders.take(CLAIM, B, 14)
    holders.expire(24)

    assert seen == [
        ("taken", A),
        ("released", A),
        ("taken", B),
        ("ended", B),
        ("taken", A),
        ("evicted", A),
        ("taken", B),
        ("ended", B),
    ]
