"""``tube master`` and ``tube broker``: what keeps them from starting is one line."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from tests.cli.conftest import here, outside, serving


def broker_options(directory: Path, broker_id: int = 1) -> list[str]:
    """A broker on free ports."""
    sets = [f"broker_id={broker_id}", "port=0", "http.port=0", f"log.data_dir={directory}"]
    return ["broker", *(word for text in sets for word in ("--set", text))]


def test_all_faults_of_a_configuration_come_at_once(tmp_path: Path) -> None:
    """And exit code 78."""
    path = tmp_path / "broker.toml"
    path.write_text('broker_id = "1"\nlisen = 3\n[log]\nsegment_bytes = 1\n')
    for option in ("--check-config", "-v"):
        ended = here("broker", "--config", str(path), option)
        assert ended.code == 78
        assert [line.split(":")[1].strip() for line in ended.err.splitlines()] == [
            "broker_id",
            "lisen",
            "log.segment_bytes",
        ]
    assert here("master", "--config", str(tmp_path / "none.toml")).code == 78
    assert (
        here("broker", "--set", "broker_id=1", "--set", 'masters=["x"]', "--check-config").code
        == 78
    )


def test_a_good_configuration_is_only_checked() -> None:
    """Nothing starts."""
    assert here("broker", "--set", "broker_id=1", "--check-config").code == 0
    assert here("master", "--check-config").code == 0


def test_a_master_needs_its_schema(tmp_path: Path) -> None:
    """It says which command makes it; then it starts, and ends well."""
    database = f"sqlite:///{tmp_path / 'master.db'}"
    options = ["--set", "port=0", "--set", "http.port=0", "--set", f"database={database}"]
    ended = outside("master", *options)
    assert ended.code == 1
    assert "tube db upgrade" in ended.err
    assert here("db", "upgrade", "--url", database).code == 0
    with serving("master", *options) as server:
        assert set(server.ports) == {"master", "http"}
        assert server.stop()[0] == 0


def test_a_broker_serves_and_ends_well(tmp_path: Path) -> None:
    """Also without a master."""
    with serving(*broker_options(tmp_path / "b")) as server:
        assert set(server.ports) == {"broker", "broker_http"}
        again = outside(*broker_options(tmp_path / "b"))
        assert (again.code, again.err.count("tube: ")) == (1, 1)
        assert "in use" in again.err
        assert server.stop()[0] == 0


def test_a_directory_of_somebody_else_or_of_the_future(tmp_path: Path) -> None:
    """Nothing in it is touched."""
    with serving(*broker_options(tmp_path / "b")):
        pass
    ended = outside(*broker_options(tmp_path / "b", broker_id=2))
    assert ended.code == 1
    assert "belongs to broker 1" in ended.err

    identity = tmp_path / "b" / "identity"
    facts = json.loads(identity.read_text())
    identity.write_text(json.dumps(facts | {"format": 99}))
    ended = outside(*broker_options(tmp_path / "b"))
    assert ended.code == 1
    assert "newer release" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_port_in_use(tmp_path: Path) -> None:
    """One line and a hint."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = outside(*broker_options(tmp_path / "b"), "--set", f"port={port}")
    assert ended.code == 1
    assert f"127.0.0.1:{port}" in ended.err
    assert len(ended.err.splitlines()) == 2
