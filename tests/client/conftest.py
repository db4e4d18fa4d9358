"""A cluster in a process of its own, for drivers that block or bring their own loop."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tube.testing import create_topic


@dataclass(frozen=True)
class DevServer:
    """A running ``tube dev``."""

    url: str
    http: str
    pid: int

    def create_topic(self, name: str, partitions: int = 1, **settings: object) -> None:
        create_topic(self.http, name, partitions, **settings)


@pytest.fixture(scope="module")
def dev() -> Iterator[DevServer]:
    """``tube dev`` on free ports."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tube.cli.main", "dev", "--free-ports"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    ports = json.loads(process.stdout.readline())["ports"]
    yield DevServer(
        f"tube://127.0.0.1:{ports['master']}", f"http://127.0.0.1:{ports['http']}", process.pid
    )
    process.terminate()
    assert process.wait(20) == 0
    process.stdout.close()
