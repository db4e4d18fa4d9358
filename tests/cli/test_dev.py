"""``tube dev`` as a process."""

from __future__ import annotations

import socket
from pathlib import Path

import sqlalchemy as sa

from tests.cli.conftest import Dev, here, outside, serving
from tube.master.db import migrate, schema


def test_it_is_ready_soon_and_leaves_nothing(tmp_path: Path) -> None:
    """With a topic, in a temporary folder that is gone at the end."""
    with serving("dev", "--free-ports", "--topic", "flights:3", TMPDIR=str(tmp_path)) as server:
        assert len(list(tmp_path.glob("tube-dev-*"))) == 1
        assert set(server.ports) == {"master", "http", "broker", "broker_http"}
        found = Dev(server.ports)("topic", "describe", "flights", "-o", "json").document
        assert found["partitions"] == 3
        assert server.stop()[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_a_kept_folder_is_kept(tmp_path: Path) -> None:
    """Messages are there again; the schema is what the migrations make."""
    options = ["dev", "--free-ports", "--data", str(tmp_path / "kept"), "--topic", "kept:1"]
    for i in range(2):
        with serving(*options) as server:
            dev = Dev(server.ports)
            dev("produce", "kept", "-q", stdin=b"%d\n" % i)
            assert dev("consume", "kept", "-e", "-q").lines == ["0", "1"][: i + 1]
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'kept' / 'master.db'}")
    assert schema.current(engine) == migrate.head()
    assert migrate.check(engine) == []
    engine.dispose()


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    """It names the port, and nothing else is said."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = outside("dev", "--port", str(port), "--http-port", "0", "--broker-port", "0")
    assert ended.code == 1
    first, hint = ended.err.splitlines()
    assert str(port) in first
    assert hint.startswith("hint: ")


def test_a_topic_needs_a_number() -> None:
    """Not a word."""
    assert here("dev", "--topic", "a:b").code == 2
