"""``tube produce``."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Dev, here


def test_lines_become_messages(dev: Dev, topic: str) -> None:
    """With keys, headers and a filter; the last line needs no end."""
    options = ["-k", ":", "-H", "a=b", "--filter", "f", "--receipts"]
    ended = dev("produce", topic, *options, stdin=b"k1:v1\nno key\n\nk2:v:2")
    assert ended.err.startswith(f"4 messages (11 bytes) to {topic}")
    receipts = [json.loads(line) for line in ended.lines]
    assert [receipt["durable"] for receipt in receipts] == [True] * 4

    read = dev("consume", topic, "-q", "-e", "-f", "%k|%s|%h|%f\\n").lines
    assert sorted(read) == ["k1|v1|a=b|f", "k2|v:2|a=b|f", "|no key|a=b|f", "||a=b|f"]


def test_a_file_is_sent(dev: Dev, topic: str, tmp_path: Path) -> None:
    """The same as from standard input."""
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\n")
    dev("produce", topic, "--file", str(path), "-q")
    assert sorted(dev("consume", topic, "-q", "-e").lines) == ["a", "b"]


def test_what_fails_is_one_line(dev: Dev, topic: str) -> None:
    """No topic, no master, too long, a header that is none."""
    assert dev("produce", "nowhere", stdin=b"a\n", code=3).out == ""
    nobody = ["--master", "127.0.0.1:1", "--http", "127.0.0.1:1"]
    assert here(*nobody, "produce", topic, "--timeout", "0.5", stdin=b"a\n").code in (5, 6)
    assert dev("produce", topic, stdin=bytes(2 << 20) + b"\n", code=4).err.count("tube: ") == 1
    dev("produce", topic, "-H", "a", stdin=b"", code=2)
