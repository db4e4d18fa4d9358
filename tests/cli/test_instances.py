"""``tube broker --instances``."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

from tests.cli.conftest import Server, serving
from tests.cli.test_servers import broker_options
from tube.cli.instances import overrides
from tube.config import BrokerConfig, load


def test_ids_ports_and_directories_are_consecutive() -> None:
    """Free ports stay free, no port stays none."""
    config = load(BrokerConfig, {"broker_id": 5, "port": 7000, "http": {"port": -1}})
    assert overrides(config, 2) == [
        "broker_id=7",
        "port=7002",
        "http.port=-1",
        "log.data_dir=data/broker-7",
    ]
    assert overrides(load(BrokerConfig, {"broker_id": 1, "port": 0}), 1)[1:3] == [
        "port=0",
        "http.port=8082",
    ]


def children(server: Server) -> list[int]:
    """The processes that a server started."""
    path = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    return [int(text) for text in path.read_text().split()]


def test_all_start_and_stop_together(tmp_path: Path) -> None:
    """One ready line with all ports; SIGTERM is passed on."""
    with serving(*broker_options(tmp_path), "--instances", "2") as server:
        assert set(server.ports) == {"broker_1", "broker_http_1", "broker_2", "broker_http_2"}
        assert (tmp_path / "broker-2" / "identity").exists()
        assert server.stop()[0] == 0


def test_one_that_dies_is_started_again_and_the_others_do_not_notice(tmp_path: Path) -> None:
    """On the same ports, so that clients find it."""
    with serving(*broker_options(tmp_path), "--instances", "2") as server:
        killed, _ = children(server)
        os.kill(killed, signal.SIGKILL)
        until_s = time.monotonic() + 20
        while killed in children(server) or not (
            listening(server.ports["broker_1"]) and listening(server.ports["broker_2"])
        ):
            assert time.monotonic() < until_s
        code, said = server.stop()
    assert "ended with -9; starting it again" in said
    assert code == 0


def test_when_one_cannot_serve_all_end(tmp_path: Path) -> None:
    """A mistake is not tried again and again; the exit code tells."""
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    options = [*broker_options(tmp_path), "--set", f"port={port - 1}", "--instances", "2"]
    with taken:
        server = Server(*options)
        code, said = server.process.wait(20), server.stop()[1]

    assert code == 1
    assert server.ports == {}
    assert "stopping all" in said


def listening(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
