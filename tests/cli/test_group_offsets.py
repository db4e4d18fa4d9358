"""``tube group lag|offsets|reset|undo``."""

from __future__ import annotations

import time

import click
import pytest

from tests.cli.conftest import Dev
from tube.cli.group_offsets import parse_target
from tube.client import Client


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", {"kind": "earliest"}),
        ("latest", {"kind": "latest"}),
        ("42", {"kind": "offset", "value": 42}),
        ("@2013-01-01T00:00", {"kind": "time", "value": 1_356_998_400_000}),
        ("@2013-01-01T01:00+01:00", {"kind": "time", "value": 1_356_998_400_000}),
        ("-90s", {"kind": "time", "value": 910_000}),
        ("-1m", {"kind": "time", "value": 940_000}),
    ],
)
def test_where_to(text: str, target: dict[str, object]) -> None:
    """A word, an offset, a time, or a time before now."""
    assert parse_target(text, now_ms=1_000_000) == target


@pytest.mark.parametrize("text", ["", "soon", "-1", "-1y", "@soon", "1h", "٣"])
def test_where_not(text: str) -> None:
    """Everything else is refused."""
    with pytest.raises(click.BadParameter):
        parse_target(text, now_ms=0)


def read_all(dev: Dev, topic: str, group: str) -> int:
    """How many messages the group still finds."""
    return len(dev("consume", topic, "-g", group, "-q", "-e").lines)


def test_a_reset_is_shown_done_and_undone(dev: Dev, filled: str, group: str) -> None:
    """Without --dry-run the group reads again; undo brings the old place back."""
    assert read_all(dev, filled, group) == 100
    assert dev("group", "lag", group, "-o", "json").document["lag"] == 0

    planned = dev("group", "reset", group, "--to", "earliest", "--topic", filled, "--dry-run")
    assert "would move" in planned.err
    assert dev("group", "lag", group).lines[-1].split() == ["total", "2", "0"]

    dev("group", "reset", group, "--to", "earliest")
    assert dev("group", "lag", group).lines[-1].split() == ["total", "2", "100"]
    dev("group", "undo", group)
    assert read_all(dev, filled, group) == 0

    rows = dev("group", "offsets", group, "-o", "json").document["partitions"]
    partition = next(f"1:{row['partition_id']}" for row in rows if row["next"] > 3)
    where = ["--to", "3", "--topic", filled, "--partition", partition]
    changes = dev("group", "reset", group, *where, "-o", "json").document
    assert [change["new"] for change in changes] == [3]


def test_a_group_is_reset_while_it_is_running(dev: Dev, filled: str, group: str) -> None:
    """Its member reads everything once more."""
    with Client(f"tube://127.0.0.1:{dev.ports['master']}") as client:
        consumer = client.consumer([filled], group)
        read, until_s, was_reset = 0, time.monotonic() + 20, False
        while read < 200 and time.monotonic() < until_s:
            for message in consumer.batches(wait_s=0.2):
                consumer.ack(message)
                read += 1
            if read >= 100 and not was_reset:
                was_reset = True
                dev("group", "reset", group, "--to", "earliest")
    assert read == 200


def test_what_cannot_be_reset(dev: Dev, topic: str, group: str) -> None:
    """An unknown group, a strange partition, no topic."""
    dev("group", "reset", group, "--to", "latest", code=3)
    dev("group", "reset", group, "--to", "latest", "--topic", topic, "--partition", "1", code=2)
    dev("group", "reset", group, "--to", "then", code=2)
