"""``tube consume``."""

from __future__ import annotations

import json
import signal
import subprocess

from tests.cli.conftest import LIMIT_S, TUBE, Dev


def test_everything_that_is_there(dev: Dev, filled: str) -> None:
    """From the beginning to the end, then it ends; the group that was made up is forgotten."""
    read = dev("consume", filled, "-e", "-q").lines
    assert sorted(map(int, read)) == list(range(100))
    assert not [name for name in dev("group", "list", "-o", "name").lines if "tube-consume" in name]


def test_a_group_goes_on_where_it_was(dev: Dev, filled: str, group: str) -> None:
    """What was printed is not printed again."""
    first = dev("consume", filled, "-g", group, "-q", "-c", "30").lines
    rest = dev("consume", filled, "-g", group, "-q", "-e").lines
    assert len(first) == 30
    assert sorted(map(int, first + rest)) == list(range(100))
    assert dev("consume", filled, "-g", group, "-q", "-e").out == ""


def test_from_the_end(dev: Dev, filled: str, group: str) -> None:
    """Nothing of what was there before."""
    assert dev("consume", filled, "--from", "latest", "-e", "-q").out == ""


def test_json_has_all_fields(dev: Dev, topic: str) -> None:
    """One object per line."""
    dev("produce", topic, "-k", ":", "-q", stdin=b"k:v\n")
    found = json.loads(dev("consume", topic, "-e", "-q", "-o", "json").out)
    assert (found["topic"], found["key"], found["value"], found["offset"]) == (topic, "k", "v", 0)


def test_only_messages_of_a_type(dev: Dev, topic: str) -> None:
    """And the end is found although the last messages are of another."""
    for name in ("a", "b", "a", "b"):
        dev("produce", topic, "--filter", name, "-q", stdin=f"{name}\n".encode())
    assert dev("consume", topic, "--filter", "a", "-e", "-q").lines == ["a", "a"]


def test_signals_leave_the_group(dev: Dev, filled: str, group: str) -> None:
    """Ctrl-C and SIGTERM commit and say goodbye."""
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = subprocess.Popen(
            [TUBE, *dev.options, "consume", filled, "-g", f"{group}-{code}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        for _ in range(100):
            process.stdout.readline()
        process.send_signal(number)
        _, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == code
        assert b"gave up" in errors
        assert dev("group", "lag", f"{group}-{code}", "-o", "json").document["lag"] == 0
        found = dev("group", "history", f"{group}-{code}", "-o", "json").document
        assert [event["kind"] for event in found][-1] in ("leave", "plan")


def test_what_cannot_be_read(dev: Dev, topic: str) -> None:
    """An unknown topic, two formats, a token that is none."""
    dev("consume", "nowhere", "-e", code=3)
    dev("consume", topic, "-f", "%s", "-o", "json", code=2)
    dev("consume", topic, "-f", "%q", code=2)
