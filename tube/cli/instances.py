"""Several brokers as child processes of one parent that restarts none.

The parent passes SIGTERM and SIGINT on, prints one ready line when all children serve, and stops the others
when one ends.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import IO, Final

import click

from tube.config import BrokerConfig

STOP_S: Final = 20.0
"""How long children may drain before they are killed; a broker's own limit is ``drain_s``, 10 s."""


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


def run_instances(
    config: BrokerConfig, path: str, sets: Sequence[str], count: int, *, verbose: bool
) -> int:
    """Run ``count`` brokers until they are told to stop; 1 when one ended by itself or badly."""
    lines: SimpleQueue[tuple[int, str]] = SimpleQueue()
    with _children(config, path, sets, count, verbose=verbose) as children, _stopping() as stopped:
        for i, child in enumerate(children):
            assert child.stdout is not None
            threading.Thread(target=_read, args=(i, child.stdout, lines), daemon=True).start()
        return _watch(config, children, lines, stopped)


def _watch(
    config: BrokerConfig,
    children: list[subprocess.Popen[str]],
    lines: SimpleQueue[tuple[int, str]],
    stopped: threading.Event,
) -> int:
    ports: dict[str, int] = {}
    ready = 0
    while not stopped.is_set():
        with suppress(Empty):
            i, line = lines.get(timeout=0.1)
            found = json.loads(line)["ports"]
            ports |= {f"{name}_{config.broker_id + i}": port for name, port in found.items()}
            ready += 1
            if ready == len(children):
                click.echo(json.dumps({"ready": True, "ports": ports}))
                sys.stdout.flush()
        for i, child in enumerate(children):
            if child.poll() is not None:
                text = f"broker {config.broker_id + i} ended with {child.returncode}"
                click.echo(f"tube: {text}; stopping the others", err=True)
                return max(1, _stop(children))
    return _stop(children)


def _read(i: int, stream: IO[str], lines: SimpleQueue[tuple[int, str]]) -> None:
    for line in stream:
        if line.startswith("{"):
            lines.put((i, line))


@contextmanager
def _children(
    config: BrokerConfig, path: str, sets: Sequence[str], count: int, *, verbose: bool
) -> Iterator[list[subprocess.Popen[str]]]:
    children: list[subprocess.Popen[str]] = []
    try:
        for i in range(count):
            command = [sys.executable, "-P", "-m", "tube.cli.main", "broker", "--config", path]
            for text in [*sets, *overrides(config, i)]:
                command += ["--set", text]
            command += ["--verbose"] * verbose
            children.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
                )
            )
        yield children
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
            child.wait()


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


def _stop(children: list[subprocess.Popen[str]]) -> int:
    """Tell all to stop and wait; 1 when one did not end well."""
    for child in children:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
    bad = 0
    for child in children:
        try:
            bad |= child.wait(STOP_S) != 0
        except subprocess.TimeoutExpired:
            child.kill()
            bad = 1
    return int(bad)
