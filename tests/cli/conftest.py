"""The command ``tube``, in this process and in others, and one ``tube dev`` for all tests of a worker."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tube.cli.main import run

TUBE = str(Path(sys.executable).with_name("tube"))
LIMIT_S = 30

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Ended:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """Its output by lines."""
        return self.out.splitlines()


def here(*arguments: str, stdin: bytes = b"") -> Ended:
    """Run a command line in this process."""
    streams = [io.TextIOWrapper(io.BytesIO(given), "utf-8") for given in (stdin, b"", b"")]
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        code = run(arguments)
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
    texts = []
    for stream in streams[1:]:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return Ended(code, *texts)


def outside(*arguments: str, stdin: bytes = b"", **variables: str) -> Ended:
    """Run a command line in a process of its own."""
    done = subprocess.run(
        [TUBE, *arguments],
        input=stdin,
        capture_output=True,
        timeout=LIMIT_S,
        env={**os.environ, **variables},
        check=False,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


class Server:
    """A ``tube`` process that serves."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            [TUBE, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        # Nobody may be stuck because nobody reads.
        self._err: list[str] = []
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self._err.extend, args=(self.process.stderr,))
        self._reader.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.ports: dict[str, int] = json.loads(line)["ports"] if line else {}

    def stop(self) -> tuple[int, str]:
        """Tell it to stop; its exit code and what it said on standard error."""
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return code, "".join(self._err)


@contextmanager
def serving(*arguments: str, **variables: str) -> Iterator[Server]:
    """A server that stops with the block; ``variables`` are added to its environment."""
    server = Server(*arguments, **variables)
    if not server.ports:
        pytest.fail(f"tube {' '.join(arguments)} did not start: {server.stop()}")
    try:
        yield server
    finally:
        server.stop()


@dataclass(frozen=True)
class Dev:
    """A running ``tube dev``."""

    ports: dict[str, int]

    @property
    def options(self) -> list[str]:
        """The global options that name it."""
        address = "127.0.0.1:{}"
        master, http = (address.format(self.ports[name]) for name in ("master", "http"))
        return ["--master", master, "--http", http]

    def __call__(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> Ended:
        """Run a command against it and check its exit code."""
        ended = here(*self.options, *arguments, stdin=stdin)
        assert ended.code == code, ended.err
        return ended


@pytest.fixture(scope="session")
def dev() -> Iterator[Dev]:
    """One cluster for all tests of this worker; they use topics of their own."""
    with serving("dev", "--free-ports") as server:
        yield Dev(server.ports)


@pytest.fixture
def topic(dev: Dev) -> str:
    """A new topic with two partitions."""
    name = f"topic{next(_numbers)}"
    dev("topic", "create", name, "--partitions", "2")
    return name


@pytest.fixture
def filled(dev: Dev, topic: str) -> str:
    """A topic with a hundred messages, ``0`` to ``99``."""
    dev("produce", topic, "-q", stdin=b"".join(b"%d\n" % i for i in range(100)))
    return topic


@pytest.fixture
def group() -> str:
    """A name that no group has."""
    return f"group{next(_numbers)}"


@pytest.fixture(autouse=True)
def own_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """No test sees the contexts of who runs it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("TUBE_MASTER", "TUBE_HTTP", "TUBE_CONTEXT", "TUBE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return lambda: tmp_path / "config" / "tube" / "contexts.toml"
