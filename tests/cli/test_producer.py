"""``tube producer``."""

from __future__ import annotations

from tests.cli.conftest import Dev
from tube.client import Client


def test_producers_are_listed_while_they_are_registered(dev: Dev) -> None:
    """With the topics that they send to; a producer that closed is gone."""
    dev("topic", "create", "listed", "--partitions", "1")
    with Client(f"tube://127.0.0.1:{dev.ports['master']}") as client:
        client.producer("listed").send(b"x").result(5)
        found = [
            one
            for one in dev("producer", "list", "-o", "json").document
            if one["topics"] == ["listed"]
        ]
        assert len(found) == 1
        assert found[0]["client_id"] in dev("producer", "list").out

    names = dev("producer", "list", "-o", "name").lines
    assert found[0]["client_id"] not in names
