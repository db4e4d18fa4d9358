"""Masters, brokers and consumers as real processes, which tests kill, freeze and start again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from tube.testing import create_topic

READY_S = 20.0


def wait_until(condition: Callable[[], object], within_s: float, what: str) -> None:
    """Wait for a condition, and fail the test if it does not hold in time."""
    until_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until_s, f"not within {within_s:g} s: {what}"
        threading.Event().wait(0.02)


class Program:
    """A process that says things on its standard output, one JSON object a line."""

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        self._errors = errors.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-P", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.lines: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put(json.loads(line))

    def line(self, within_s: float = READY_S) -> dict[str, Any]:
        """The next line."""
        try:
            return self.lines.get(timeout=within_s)
        except Empty:
            raise AssertionError(f"no line within {within_s:g} s") from None

    def signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.process.kill()
        self._ended()

    def stop(self, within_s: float = 20.0) -> int:
        """SIGTERM, and the exit code."""
        self.process.terminate()
        return self._ended(within_s)

    def _ended(self, within_s: float = 10.0) -> int:
        code = self.process.wait(within_s)
        self._reading.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()
        return code

    def close(self) -> None:
        """Kill it if it still runs."""
        if self.process.poll() is None:
            self.kill()


class Plant:
    """A master and brokers, each a process with a folder and a port that it keeps."""

    def __init__(self, directory: Path, *master_sets: str) -> None:
        self.directory = directory
        self._database = f"database=sqlite:///{directory / 'master.db'}"
        self._master_sets = master_sets
        self._broker_sets: tuple[str, ...] = ()
        self._ports: dict[str, dict[str, int]] = {}
        self.master: Program | None = None
        self.brokers: dict[int, Program] = {}
        self.programs: list[Program] = []
        subprocess.run(
            [*self._tube(), "db", "upgrade", "--set", self._database], check=True, timeout=60
        )

    @staticmethod
    def _tube() -> list[str]:
        return [sys.executable, "-P", "-m", "tube.cli.main"]

    @property
    def url(self) -> str:
        """What clients are given."""
        return f"tube://127.0.0.1:{self._ports['master']['master']}"

    @property
    def http(self) -> str:
        """The master's HTTP API."""
        return f"http://127.0.0.1:{self._ports['master']['http']}"

    def start_master(self) -> None:
        """Start it, on the ports that it had before."""
        ports = self._ports.get("master", {"master": 0, "http": 0})
        sets = [
            self._database,
            f"port={ports['master']}",
            f"http.port={ports['http']}",
            *self._master_sets,
        ]
        self.master = self._run("master", sets)
        self._ports["master"] = self.master.line()["ports"]

    def launch_broker(self, broker_id: int, *sets: str) -> Program:
        """Start a broker on its folder and port, without waiting until it serves."""
        port = self._ports.get(f"broker-{broker_id}", {"broker": 0})["broker"]
        master = self._ports["master"]["master"]
        options = [
            f"broker_id={broker_id}",
            f"port={port}",
            f'masters=["127.0.0.1:{master}"]',
            "http.port=0",
            "drain_s=2",
            f"log.data_dir={self.directory / f'broker-{broker_id}'}",
            *sets,
        ]
        self.brokers[broker_id] = program = self._run("broker", options)
        return program

    def start_instances(self, count: int, *sets: str) -> Program:
        """Start ``tube broker --instances``; they listen when this returns."""
        master = self._ports["master"]["master"]
        options = [
            "broker_id=1",
            "port=0",
            f'masters=["127.0.0.1:{master}"]',
            "http.port=0",
            "drain_s=2",
            f"log.data_dir={self.directory / 'brokers'}",
            *sets,
        ]
        program = self._run("broker", options, "--instances", str(count))
        ports = program.line(READY_S * 2)["ports"]
        for broker_id in range(1, count + 1):
            self._ports[f"broker-{broker_id}"] = {
                name: ports[f"{name}_{broker_id}"] for name in ("broker", "broker_http")
            }
        return program

    def start_broker(self, broker_id: int, *sets: str) -> Program:
        """Start a broker on its folder and port; it listens when this returns."""
        program = self.launch_broker(broker_id, *sets)
        self.serves(broker_id)
        return program

    def serves(self, broker_id: int) -> None:
        """Wait until a broker that was launched listens."""
        self._ports[f"broker-{broker_id}"] = self.brokers[broker_id].line()["ports"]

    def ready(self, broker_id: int) -> bool:
        """Whether the master knows the broker."""
        port = self._ports[f"broker-{broker_id}"]["broker_http"]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return True
        except OSError:
            return False

    def create_topic(self, name: str, partitions: int, **settings: object) -> None:
        """Create a topic on all brokers."""
        create_topic(self.http, name, partitions, **settings)

    def offsets(self, group: str) -> dict[str, Any]:
        """Committed offsets and lag of a group."""
        url = f"{self.http}/api/v1/groups/{group}/offsets"
        with urllib.request.urlopen(url, timeout=15) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def member(self, topic: str, group: str) -> Program:
        """A consumer, see ``tests/faults/member.py``."""
        script = str(Path(__file__).with_name("member.py"))
        program = Program([script, self.url, topic, group], self.directory / "member.log")
        self.programs.append(program)
        return program

    def _run(self, command: str, sets: Sequence[str], *options: str) -> Program:
        words = ["-m", "tube.cli.main", command, *options]
        for text in sets:
            words += ["--set", text]
        program = Program(words, self.directory / f"{command}.log")
        self.programs.append(program)
        return program

    def close(self) -> None:
        """End everything."""
        for program in self.programs:
            if program.process.poll() is None:
                program.signal(signal.SIGCONT)
                program.close()
