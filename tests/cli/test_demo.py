"""``tube demo``."""

from __future__ import annotations

from tests.cli.conftest import outside


def test_a_group_is_seen_to_rebalance() -> None:
    """Joins, moves and the leave, by name."""
    ended = outside("demo", "--seconds", "4")
    assert ended.code == 0, ended.err
    for text in ("first  new member", "second  new member", "disconnect", "first left"):
        assert text in ended.out
