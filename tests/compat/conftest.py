"""Fixtures: a cluster of real processes, and other people's clients as processes beside it.

The clients come from registries, so these tests run only where they are asked for (``make compat``, CI).
``TUBE_COMPAT=1`` asks for them; ``TUBE_CI`` names those that must be there (``java``, ``go`` or ``1`` for all):
what is missing then fails instead of being skipped.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.compat import toolchains
from tests.compat.peers import Peer
from tests.faults.processes import Plant, Program, wait_until

KINDS = ("java", "java-old", "go", "tube")
"""The clients that take part; the first three are not ours."""

_numbers = itertools.count(1)


def command_of(kind: str) -> list[str]:
    """How to run a kind of client; skips the test, or fails it in CI, when it cannot be had."""
    if kind == "tube":
        return [sys.executable, "-P", str(Path(__file__).with_name("tube_peer.py"))]
    try:
        if kind == "go":
            return toolchains.go_command()
        return toolchains.java_command(
            toolchains.JAVA_NEW if kind == "java" else toolchains.JAVA_OLD
        )
    except toolchains.MissingError as error:
        missing(kind, error)


def missing(kind: str, error: toolchains.MissingError) -> NoReturn:
    """Skip the test, or fail it where the client must be there."""
    demanded = os.environ.get("TUBE_CI", "")
    if demanded == "1" or kind.partition("-")[0] in demanded.split(","):
        pytest.fail(f"{kind}: {error}")
    pytest.skip(f"{kind}: {error}")


@pytest.fixture(autouse=True)
def clients_are_there(request: pytest.FixtureRequest) -> None:
    """Skip before servers are started in vain."""
    callspec = getattr(request.node, "callspec", None)
    for value in callspec.params.values() if callspec else ():
        for kind in value if isinstance(value, tuple) else (value,):
            if kind in KINDS:
                command_of(kind)


class House(Plant):
    """A plant whose servers say everything, with peers beside it."""

    def __init__(self, directory: Path, *master_sets: str) -> None:
        self.peers: list[Peer] = []
        super().__init__(directory, *master_sets)

    def _run(self, command: str, sets: Sequence[str]) -> Program:
        words = ["-m", "tube.cli.main", command, "--verbose"]
        for text in sets:
            words += ["--set", text]
        program = Program(words, self.directory / f"{command}.log")
        self.programs.append(program)
        return program

    @property
    def master_address(self) -> str:
        """``host:port`` of the master."""
        return self.url.removeprefix("tube://")

    def ports(self, name: str) -> dict[str, int]:
        """Where a server listens: ``master``, ``standby`` or ``broker-1``."""
        return self._ports[name]

    def start_standby(self) -> None:
        """A second master on the same database, which does not lead."""
        sets = (self._database, "port=0", "http.port=0", *self._master_sets)
        self._ports["standby"] = self._run("master", sets).line()["ports"]

    def peer(self, kind: str) -> Peer:
        """A new process with a kind of client."""
        log = self.directory / f"{kind}-{next(_numbers)}.log"
        peer = Peer(kind, command_of(kind), log)
        self.peers.append(peer)
        return peer

    def holds(self, group: str) -> list[dict[str, Any]]:
        """The brokers' record of who took and released partitions for a group."""
        lines = (self.directory / "broker.log").read_text().splitlines()
        rows = [json.loads(line) for line in lines if line.startswith('{"time"')]
        return [row for row in rows if "what" in row and row.get("group") == group]

    def topic_offsets(self, topic: str) -> list[dict[str, Any]]:
        """First and next offset of every partition."""
        rows: list[dict[str, Any]] = self.api(f"topics/{topic}/offsets")["partitions"]
        return rows

    def api(self, path: str) -> dict[str, Any]:
        """What the master's HTTP API says."""
        with urllib.request.urlopen(f"{self.http}/api/v1/{path}", timeout=15) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def set_rules(self, group: str, rules: list[dict[str, Any]]) -> None:
        """Set the flow-control rules of a group."""
        request = urllib.request.Request(
            f"{self.http}/api/v1/groups/{group}/rules",
            data=json.dumps({"rules": rules}).encode(),
            method="PUT",
        )
        with urllib.request.urlopen(request):
            pass

    def close(self) -> None:
        """End everything."""
        for peer in self.peers:
            peer.close()
        super().close()


MakeHouse = Callable[..., House]

QUICK = (
    "lease_s=1.0",
    "balance_period_s=1.0",
    "consumer_timeout_s=6.0",
    "producer_timeout_s=8.0",
    "broker_timeout_s=4.0",
    "take_over_wait_s=2.0",
)
"""Timeouts of a master for tests."""

QUICK_BROKER = ("heartbeat_s=1.0", "consumer_timeout_s=6.0")


@dataclass
class Used:
    """A house that many tests share, and a name for a topic of this test."""

    house: House
    topic: str
    group: str


def build(directory: Path, *master_sets: str, brokers: int = 1) -> House:
    """A house whose brokers are registered."""
    house = House(directory, *QUICK, *master_sets)
    house.start_master()
    for broker_id in range(1, brokers + 1):
        house.start_broker(broker_id, *QUICK_BROKER)
        wait_until(lambda broker_id=broker_id: house.ready(broker_id), 10, "registered")
    return house


@pytest.fixture(scope="module")
def shared_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One master, one broker, for all tests of a module."""
    house = build(tmp_path_factory.mktemp("house"))
    yield house
    house.close()


@pytest.fixture(scope="module")
def shared_peers(shared_house: House) -> Callable[[str], Peer]:
    """One process of each kind, for all tests of a module."""
    made: dict[str, Peer] = {}

    def peer(kind: str) -> Peer:
        if kind not in made:
            made[kind] = shared_house.peer(kind)
        return made[kind]

    return peer


@pytest.fixture
def names() -> tuple[str, str]:
    """A topic and a group that nobody else uses."""
    number = next(_numbers)
    return f"topic{number}", f"group{number}"


@pytest.fixture
def make_house(tmp_path: Path) -> Iterator[MakeHouse]:
    """Makes a house of this test's own."""
    made: list[House] = []

    def make(*master_sets: str, brokers: int = 1) -> House:
        made.append(build(tmp_path, *master_sets, brokers=brokers))
        return made[-1]

    yield make
    for house in made:
        house.close()
