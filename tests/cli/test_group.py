"""``tube group list|describe|create|delete|rules``."""

from __future__ import annotations

import json

from tests.cli.conftest import Dev
from tube.client import Client

RULE = {"type": 1, "rule": [{"start": "00:00", "end": "24:00", "fCount": [[10, 500]]}]}


def test_a_group_without_members(dev: Dev, group: str) -> None:
    """It is known, empty, and can be forgotten."""
    dev("group", "create", group)
    assert group in dev("group", "list", "-o", "name").lines
    assert dev("group", "describe", group, "-o", "json").document["state"] == "empty"
    dev("group", "delete", group)
    dev("group", "describe", group, code=3)


def test_members_and_what_they_hold(dev: Dev, filled: str, group: str) -> None:
    """Shown while they are there; such a group cannot be forgotten."""
    with Client(f"tube://127.0.0.1:{dev.ports['master']}") as client:
        consumer = client.consumer([filled], group)
        assert consumer.batches(wait_s=5)
        found = dev("group", "describe", group)
        assert consumer.client_id in found.out
        assert f"{filled}:1:0" in found.out
        dev("group", "delete", group, code=7)


def test_rules_are_set_shown_and_cleared(dev: Dev, group: str) -> None:
    """Of a group, or of all; JSON that is none changes nothing."""
    dev("group", "create", group)
    for where in ([group], []):
        dev("group", "rules", *where, "--set", "-", code=78, stdin=b"{")
        assert dev("group", "rules", *where, "-o", "json").document["rules"] == []
        dev("group", "rules", *where, "--clear")
        assert dev("group", "rules", *where).out == ""
    assert json.dumps(RULE)
