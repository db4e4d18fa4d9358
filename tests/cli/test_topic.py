"""``tube topic``."""

from __future__ import annotations

import time

from tests.cli.conftest import Dev


def test_a_topic_lives_and_dies(dev: Dev) -> None:
    """Create, grow, close, delete, restore."""
    made = dev("topic", "create", "lives", "-p", "3", "--written", "-o", "json").document
    assert (made["partitions"], made["durable"]) == (3, False)
    dev("topic", "alter", "lives", "--partitions", "5", "--retention", "24h")
    dev("topic", "alter", "lives", "--refuse-publish")
    found = dev("topic", "describe", "lives", "-o", "yaml").out
    assert "partitions: 5" in found
    assert "delete,24h" in found
    assert "closed for sends" in dev("topic", "describe", "lives").out

    dev("topic", "delete", "lives")
    dev("topic", "restore", "lives")
    dev("topic", "delete", "lives", "--hard", "--yes")
    until_s = time.monotonic() + 10
    while "lives" in dev("topic", "list", "-o", "name").lines:  # the broker deletes the data first
        assert time.monotonic() < until_s
    dev("topic", "describe", "lives", code=3)


def test_describe_counts_messages(dev: Dev, filled: str) -> None:
    """By partition, as CSV for whoever wants to add them up."""
    header, *rows = dev("topic", "describe", filled, "-o", "csv").lines
    at = header.split(",").index("messages")
    assert sum(int(row.split(",")[at]) for row in rows) == 100


def test_topics_are_listed(dev: Dev, topic: str) -> None:
    """In all forms."""
    assert topic in dev("topic", "list", "-o", "name").lines
    assert topic in [row["name"] for row in dev("topic", "list", "-o", "json").document]
    assert dev("topic", "list").lines[0].startswith("NAME")


def test_what_cannot_be_is_said(dev: Dev, topic: str) -> None:
    """With the exit code that belongs to it."""
    assert "already" in dev("topic", "create", topic, code=7).err
    dev("topic", "create", "no good", code=4)
    dev("topic", "create", "a", "-p", "0", code=2)
    dev("topic", "alter", topic, code=2)
    dev("topic", "alter", topic, "--partitions", "1", code=4)
    dev("topic", "delete", topic, "--hard", code=130)  # nobody said yes
