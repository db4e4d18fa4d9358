"""What the benchmarks share: servers as processes, CPU from the operating system, one JSON object at the end."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tube.testing import create_topic

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Server:
    """A ``tube dev`` in a process of its own, and when it was ready after its start."""

    pid: int
    master: int
    broker: int
    http: str
    ready_s: float

    @property
    def url(self) -> str:
        """For clients."""
        return f"tube://127.0.0.1:{self.master}"

    def cpu_s(self) -> float:
        """User and system seconds that the process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def resident_mib(self) -> float:
        """Resident memory in MiB, as ps and top show it."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def create_topic(self, name: str, partitions: int, **settings: object) -> None:
        """Create a topic that takes messages when this returns."""
        create_topic(self.http, name, partitions, **settings)


@contextlib.contextmanager
def dev() -> Iterator[Server]:
    """A running ``tube dev`` on free ports with its data in a temporary folder."""
    with tempfile.TemporaryDirectory() as directory:
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "tube.cli.main", "dev", "--free-ports", "--data", directory],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        ports = json.loads(process.stdout.readline())["ports"]
        ready_s = time.monotonic() - started
        try:
            yield Server(
                process.pid,
                ports["master"],
                ports["broker"],
                f"http://127.0.0.1:{ports['http']}",
                ready_s,
            )
        finally:
            process.terminate()
            process.wait(20)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "commit": commit,
        "load": os.getloadavg()[0],
        "loop_ns": _loop_ns(),
    }


def _loop_ns() -> float:
    """Nanoseconds of one turn of an empty loop: how fast this machine is just now."""
    count = 2_000_000
    started = time.perf_counter()
    for _ in range(count):
        pass
    return (time.perf_counter() - started) / count * 1e9


def median(values: list[float]) -> float:
    """The middle value."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def spread(values: list[float], digits: int = 3) -> dict[str, float]:
    """Least, middle and greatest."""
    return {
        "min": round(min(values), digits),
        "median": round(median(values), digits),
        "max": round(max(values), digits),
    }


def report(name: str, figures: dict[str, Any]) -> None:
    """Print the one JSON object."""
    print(json.dumps({"bench": name, "machine": machine(), "figures": figures}, indent=2))
