"""What retention lets go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tube.log.retention import Retention, SegmentFacts, expired

facts = st.lists(
    st.tuples(st.integers(0, 100), st.one_of(st.none(), st.integers(0, 100))), max_size=8
).map(lambda rows: [SegmentFacts(i * 10, size, last) for i, (size, last) in enumerate(rows)])
policies = st.builds(
    Retention,
    age_ms=st.one_of(st.none(), st.integers(0, 100)),
    bytes=st.one_of(st.none(), st.integers(0, 400)),
)


@given(facts, policies, st.integers(0, 200))
def test_only_the_oldest_go_and_the_newest_stays(
    segments: list[SegmentFacts], policy: Retention, now_ms: int
) -> None:
    """A prefix goes, never the newest; with a size limit alone, that much is kept."""
    going = expired(segments, policy, now_ms)

    assert going == segments[: len(going)]
    assert len(going) < max(1, len(segments))
    if policy.age_ms is None and policy.bytes is not None and going:
        assert sum(s.bytes for s in segments[len(going) :]) >= policy.bytes
    if policy == Retention():
        assert going == []


def test_age_and_size() -> None:
    """A segment goes when its newest block is as old as the limit, or when enough stays behind it."""
    segments = [SegmentFacts(0, 10, 100), SegmentFacts(5, 10, 200), SegmentFacts(9, 10, 300)]

    assert expired(segments, Retention(age_ms=100), 299) == segments[:1]
    assert expired(segments, Retention(age_ms=100), 300) == segments[:2]
    assert expired(segments, Retention(bytes=20), 0) == segments[:1]
    assert expired(segments, Retention(bytes=21), 0) == []
