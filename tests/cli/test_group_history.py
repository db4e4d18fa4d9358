"""``tube group history|explain|watch``."""

from __future__ import annotations

import json

from tests.cli.conftest import Dev


def test_what_happened_is_told(dev: Dev, filled: str, group: str) -> None:
    """Joins, moves with reasons, leaves; as a table, as JSON, and as it comes."""
    dev("consume", filled, "-g", group, "-q", "-e")
    kinds = [event["kind"] for event in dev("group", "history", group, "-o", "json").document]
    assert kinds[0] == "join"
    assert {"connect", "connected", "leave"} <= set(kinds)
    joins = dev("group", "history", group, "--kind", "join").lines
    assert len(joins) == 2
    assert "new member" in joins[1]

    watched = dev("group", "watch", group, "-n", "2", "-c", "2", "-o", "json").lines
    assert len([json.loads(line) for line in watched]) == 2
    assert " connect " in dev("group", "watch", group, "-n", "50", "-c", "3").out


def test_where_partitions_are_is_explained(dev: Dev, filled: str, group: str) -> None:
    """In a sentence, and by partition."""
    dev("consume", filled, "-g", group, "-q", "-e")
    assert dev("group", "explain", group).out
    found = dev("group", "explain", group, "--topic", filled, "-o", "json").document
    assert found["summary"]
    dev("group", "explain", "nobody", code=3)
