"""``tube doctor``."""

from __future__ import annotations

from tests.cli.conftest import Dev, here


def test_a_sound_cluster(dev: Dev) -> None:
    """One line per check, all good but perhaps this machine's own."""
    found = here(*dev.options, "doctor", "-o", "json").document
    by_name = {check["check"]: check for check in found}
    for name in (
        "master",
        "http",
        "leader",
        "broker 1",
        "broker 1: port",
        "broker 1: disk",
        "broker 1: clock",
    ):
        assert by_name[name]["ok"], by_name[name]
        assert by_name[name]["remedy"] is None


def test_no_cluster() -> None:
    """What is wrong has a remedy, and the exit code tells."""
    ended = here("--master", "127.0.0.1:1", "--http", "127.0.0.1:1", "doctor")
    assert ended.code == 1
    assert "tube dev" in ended.out
