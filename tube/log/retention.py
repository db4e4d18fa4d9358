"""Which segments may go, given their sizes and ages and the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retention:
    """How long and how much of each partition is kept; None is without that limit."""

    age_ms: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What the decision needs to know of a segment; no time when it holds no block."""

    base_offset: int
    bytes: int
    last_append_ms: int | None


def expired(segments: Sequence[SegmentFacts], policy: Retention, now_ms: int) -> list[SegmentFacts]:
    """Return the oldest segments that the policy lets go.

    The newest segment always stays, even when it is too old: it is being written.  By size, a
    segment goes only when what stays still reaches the limit, so never less than that is kept.

    Args:
        segments: oldest first; sizes in bytes, times in milliseconds since 1970.
        policy: what is promised; an age of 0 lets everything go but the newest.
        now_ms: wall clock, because retention is promised in wall time.

    Source: TubeMQ deletePolicy, e.g. ``delete,168h``.
    """
    going: list[SegmentFacts] = []
    left = sum(segment.bytes for segment in segments)
    for segment in segments[:-1]:
        too_much = policy.bytes is not None and left - segment.bytes >= policy.bytes
        too_old = policy.age_ms is not None and (
            segment.last_append_ms is None or now_ms - segment.last_append_ms >= policy.age_ms
        )
        if not (too_much or too_old):
            break
        going.append(segment)
        left -= segment.bytes
    return going
