"""The log's values."""

from __future__ import annotations

from tube.log.store import Append, LogKey, LogOptions


def test_keys_sort_by_number_and_defaults_hold():
    """Partitions sort by numbers; an append without more is codec tube from no producer."""
    assert sorted([LogKey(10, 0), LogKey(9, 5)])[0] == LogKey(9, 5)
    append = Append(1, 2, b"x", 1, True, 0, 0)
    assert (append.codec, append.span, append.producer_id) == (1, 0, 0)
    assert LogOptions().segment_bytes == 128 * 1024 * 1024
