"""Committed offsets only move back by a reset, and survive in snapshot and notes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tube.broker.holders import Claim
from tube.broker.offsets import UNDO_MS, Offsets
from tube.errors import StoreError
from tube.values import GroupName

GROUP = GroupName("g1")
CLAIM = Claim(GROUP, "t1", 0)
OTHER = Claim(GroupName("g2"), "t2", 10001)


def test_a_commit_never_moves_back() -> None:
    """A lower or equal commit is no change and needs no note."""
    offsets = Offsets()
    assert offsets.commit(CLAIM, 1, 5, 0) is not None
    assert offsets.commit(CLAIM, 1, 5, 0) is None
    assert offsets.commit(CLAIM, 1, 4, 0) is None

    assert offsets.get(CLAIM, 1) == 5


def test_another_incarnation_of_the_topic_starts_anew() -> None:
    """After a topic is deleted and made again its old offsets mean nothing."""
    offsets = Offsets()
    offsets.commit(CLAIM, 1, 5, 0)
    assert offsets.get(CLAIM, 2) is None
    assert offsets.commit(CLAIM, 2, 1, 0) is not None

    assert offsets.get(CLAIM, 2) == 1


def test_a_reset_moves_anywhere_and_can_be_undone_for_seven_days() -> None:
    """The value before the reset is kept."""
    offsets = Offsets()
    offsets.commit(CLAIM, 1, 5, 0)
    offsets.reset(CLAIM, 1, 2, 1000)
    assert (offsets.get(CLAIM, 1), offsets.undo(CLAIM, 1000 + UNDO_MS)) == (2, 5)
    assert offsets.resets(GROUP) == [CLAIM]
    with pytest.raises(StoreError, match="has not been reset"):
        offsets.undo(CLAIM, 1001 + UNDO_MS)
    with pytest.raises(StoreError):
        offsets.undo(OTHER, 0)


def test_groups_are_forgotten_on_demand_with_their_topic_and_when_unused() -> None:
    """Each way drops exactly what it names."""
    offsets = Offsets()
    offsets.commit(CLAIM, 1, 5, 100)
    offsets.commit(OTHER, 2, 6, 200)
    assert offsets.groups() == {"g1", "g2"}
    assert offsets.expire(150, 200) == ["g1"]
    assert offsets.groups() == {"g2"}
    offsets.forget_topic("t2", 3)
    assert [c for c, _ in offsets.of_group(GroupName("g2"))] == [OTHER]
    offsets.forget_topic("t2", 2)
    assert offsets.groups() == set()
    offsets.commit(CLAIM, 1, 5, 100)
    offsets.forget(GROUP, "t9")
    assert offsets.get(CLAIM, 1) == 5
    offsets.forget(GROUP, None)

    assert offsets.groups() == set()


def test_unreadable_snapshots_are_refused() -> None:
    """Another format, or no snapshot at all, is an error and not an empty state."""
    for snapshot in (b"{", b"[]", b"{}", json.dumps({"format": 2}).encode()):
        with pytest.raises(StoreError):
            Offsets().restore(snapshot, [])


steps = st.lists(
    st.tuples(
        st.sampled_from("crf"),
        st.sampled_from([CLAIM, OTHER]),
        st.integers(1, 2),
        st.integers(0, 99),
    ),
    max_size=40,
)


@given(steps, st.data())
def test_a_restart_at_any_point_gives_the_same_offsets(
    changes: list[tuple[str, Claim, int, int]], data: st.DataObject
) -> None:
    """Snapshot at any moment plus the notes after it is the state, however often notes are replayed."""
    offsets, notes, snapshot = Offsets(), [], b""
    cut = data.draw(st.integers(0, len(changes)))
    for i, (kind, claim, topic_id, number) in enumerate(changes):
        if i == cut:
            snapshot, notes = offsets.snapshot(), []
        if kind == "c":
            note = offsets.commit(claim, topic_id, number, i)
            notes += [] if note is None else [note]
        elif kind == "r":
            notes.append(offsets.reset(claim, topic_id, number, i))
        else:
            notes.append(offsets.forget(claim.group, None))
    restored = Offsets()
    restored.restore(snapshot, notes)

    assert json.loads(restored.snapshot()) == json.loads(offsets.snapshot())
