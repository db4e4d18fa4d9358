"""``tube broker-admin``."""

from __future__ import annotations

from tests.cli.conftest import Dev


def test_a_broker_is_closed_for_sends_and_opened_again(dev: Dev) -> None:
    """By its number."""
    assert dev("broker-admin", "list", "-o", "name").lines == ["1"]
    dev("broker-admin", "state", "1", "only-read")
    assert dev("broker-admin", "list", "-o", "json").document[0]["state"] == "only-read"
    dev("broker-admin", "state", "1", "online")
    dev("broker-admin", "state", "9", "online", code=3)
    dev("broker-admin", "state", "1", "asleep", code=2)
