"""Several brokers as child processes of one parent.

The parent prints one ready line when all serve, passes SIGTERM and SIGINT on, and starts a broker again that
ended by itself; the others do not notice.  A broker that never served is a mistake in the configuration: then
all stop.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import FrameType
from typing import IO, Final

import click

from tube.config import BrokerConfig

STOP_S: Final = 20.0
"""How long children may drain before they are killed; a broker's own limit is ``drain_s``, 10 s."""

RESTART_S: Final = 1.0
"""Pause before a broker is started again; doubled each time it ends soon, up to ..."""

RESTART_S_MAX: Final = 30.0
"""... this; after as long a life it is the first pause again."""

POLL_S: Final = 0.1


def overrides(config: BrokerConfig, i: int) -> list[str]:
    """What the ``i``-th broker has otherwise; port 0 stays 0, no HTTP port stays none."""
    broker_id = config.broker_id + i
    http_port = config.http.port + i if config.http.port > 0 else config.http.port
    return [
        f"broker_id={broker_id}",
        f"port={config.port + i if config.port else 0}",
        f"http.port={http_port}",
        f"log.data_dir={config.log.data_dir}/broker-{broker_id}",
    ]


@dataclass(slots=True)
class _Instance:
    """One broker: its command, its process, and when it is started again."""

    broker_id: int
    command: list[str]
    lines: SimpleQueue[tuple[int, str]]
    process: subprocess.Popen[str] | None = None
    ports: dict[str, int] = field(default_factory=dict)
    started_s: float = 0.0
    pause_s: float = RESTART_S
    restart_at_s: float | None = None

    def start(self) -> None:
        """Start it, on the ports it had."""
        command = list(self.command)
        for name, key in (("broker", "port"), ("broker_http", "http.port")):
            if name in self.ports:
                command += ["--set", f"{key}={self.ports[name]}"]
        self.started_s, self.restart_at_s = time.monotonic(), None
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        arguments = (self.broker_id, self.process.stdout, self.lines)
        threading.Thread(target=_read, args=arguments, daemon=True).start()

    def look(self) -> bool:
        """Start it again if it ended; False when it ended without ever having served."""
        now_s = time.monotonic()
        if self.restart_at_s is not None:
            if now_s >= self.restart_at_s:
                self.start()
            return True
        assert self.process is not None
        code = self.process.poll()
        if code is None:
            return True
        if not self.ports:
            click.echo(f"tube: broker {self.broker_id} ended with {code}; stopping all", err=True)
            return False
        if now_s - self.started_s > RESTART_S_MAX:
            self.pause_s = RESTART_S
        click.echo(
            f"tube: broker {self.broker_id} ended with {code}; starting it again in {self.pause_s:g} s",
            err=True,
        )
        self.restart_at_s = now_s + self.pause_s
        self.pause_s = min(self.pause_s * 2, RESTART_S_MAX)
        return True


def run_instances(
    config: BrokerConfig, path: str, sets: Sequence[str], count: int, *, verbose: bool
) -> int:
    """Run ``count`` brokers until they are told to stop; 1 when one could not serve or ended badly."""
    lines: SimpleQueue[tuple[int, str]] = SimpleQueue()
    instances = []
    for i in range(count):
        command = [sys.executable, "-P", "-m", "tube.cli.main", "broker", "--config", path]
        for text in [*sets, *overrides(config, i)]:
            command += ["--set", text]
        command += ["--verbose"] * verbose
        instances.append(_Instance(config.broker_id + i, command, lines))
    with _stopping() as stopped, _ended(instances):
        for instance in instances:
            instance.start()
        return _watch(instances, lines, stopped)


def _watch(
    instances: list[_Instance], lines: SimpleQueue[tuple[int, str]], stopped: threading.Event
) -> int:
    by_id = {instance.broker_id: instance for instance in instances}
    announced = False
    while not stopped.is_set():
        with suppress(Empty):
            broker_id, line = lines.get(timeout=POLL_S)
            by_id[broker_id].ports = json.loads(line)["ports"]
        if not announced and all(instance.ports for instance in instances):
            announced = True
            ports = {
                f"{name}_{instance.broker_id}": port
                for instance in instances
                for name, port in instance.ports.items()
            }
            click.echo(json.dumps({"ready": True, "ports": ports}))
            sys.stdout.flush()
        if not all(instance.look() for instance in instances):
            return max(1, _stop(instances))
    return _stop(instances)


def _read(broker_id: int, stream: IO[str], lines: SimpleQueue[tuple[int, str]]) -> None:
    with stream:
        for line in stream:
            if line.startswith("{"):
                lines.put((broker_id, line))


@contextmanager
def _ended(instances: list[_Instance]) -> Iterator[None]:
    """Nobody is left behind, whatever happens here."""
    try:
        yield
    finally:
        for instance in instances:
            if instance.process is not None:
                if instance.process.poll() is None:
                    instance.process.kill()
                instance.process.wait()


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Set on SIGTERM and SIGINT."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _stop(instances: list[_Instance]) -> int:
    """Tell all to stop and wait; 1 when one did not end well."""
    running = [i.process for i in instances if i.process is not None and i.process.poll() is None]
    for process in running:
        process.send_signal(signal.SIGTERM)
    bad = 0
    for process in running:
        try:
            bad |= process.wait(STOP_S) != 0
        except subprocess.TimeoutExpired:
            process.kill()
            bad = 1
    return int(bad)
