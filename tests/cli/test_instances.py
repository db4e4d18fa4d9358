"""``tube broker --instances``."""

from __future__ import annotations

import os
import signal
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


def test_when_one_dies_all_end(tmp_path: Path) -> None:
    """None is restarted behind the back of whoever supervises; the exit code tells."""
    with serving(*broker_options(tmp_path), "--instances", "2") as server:
        os.kill(children(server)[0], signal.SIGKILL)
        code = server.process.wait(20)
        assert code == 1
        assert "stopping the others" in server.stop()[1]
