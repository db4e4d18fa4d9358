"""``tube dev``: a master and a broker in one process, on SQLite, for development and tests."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tube.cli.serving import serve_until_stopped
from tube.config import BrokerConfig, MasterConfig, load
from tube.errors import ConflictError, TimedOutError

if TYPE_CHECKING:
    from tube.broker.app import RunningBroker
    from tube.net.clock import Reactor

REGISTERED_S: Final = 20.0
"""How long the broker may take to register: after a kill the old lease runs out first, 5 s."""

POLL_S: Final = 0.005

BANNER: Final = """\
Tube is ready.  Data: {data}

  create a topic    tube {options}topic create demo --partitions 4
  send to it        seq 1000 | tube {options}produce demo
  read it           tube {options}consume demo -g readers
  look at it        tube {options}group describe readers
  from Python       from tube.client import Client
                    Client("tube://{host}:{master}")

Ctrl-C stops it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to start where."""

    host: str
    port: int
    http_port: int
    broker_port: int
    directory: Path
    topics: tuple[tuple[str, int], ...] = ()

    def master(self) -> MasterConfig:
        """The master's configuration."""
        table = {
            "host": self.host,
            "port": self.port,
            "database": f"sqlite:///{self.directory / 'master.db'}",
            "http": {"port": self.http_port},
        }
        return load(MasterConfig, table)

    def broker(self, master_port: int) -> BrokerConfig:
        """The broker's configuration."""
        table = {
            "broker_id": 1,
            "host": self.host,
            "port": self.broker_port,
            "masters": [f"{self.host}:{master_port}"],
            "drain_s": 2.0,
            "log": {"data_dir": str(self.directory / "broker")},
            "http": {"port": 0},
        }
        return load(BrokerConfig, table)


class TopicWithPartitions(click.ParamType[tuple[str, int]]):
    """``name`` or ``name:partitions``."""

    name = "NAME:PARTITIONS"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Split it; four partitions unless said otherwise."""
        name, separator, count = str(value).partition(":")
        if not separator:
            return name, 4
        if not (count.isascii() and count.isdigit() and int(count) > 0):
            self.fail(f"expected NAME:PARTITIONS, got {value!r}", param, ctx)
        return name, int(count)


@click.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep everything in this folder.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8715, show_default=True, help="For clients."
)
@click.option("--http-port", type=click.IntRange(0, 65535), default=8080, show_default=True)
@click.option("--broker-port", type=click.IntRange(0, 65535), default=8123, show_default=True)
@click.option("--free-ports", is_flag=True, help="Take any free ports.")
@click.option(
    "--topic", "topics", type=TopicWithPartitions(), multiple=True, help="Create a topic."
)
@click.option("-v", "--verbose", is_flag=True, help="Log what happens.")
def dev(
    data: Path | None,
    host: str,
    port: int,
    http_port: int,
    broker_port: int,
    free_ports: bool,
    topics: tuple[tuple[str, int], ...],
    verbose: bool,
) -> int:
    """Run a master and a broker in one process.

    Prints one JSON line with the ports when the broker is registered; on a terminal, lines to copy.
    Without --data everything is deleted at the end.
    """
    directory = data if data is not None else Path(tempfile.mkdtemp(prefix="tube-dev-"))
    plan = Plan(
        host=host,
        port=0 if free_ports else port,
        http_port=0 if free_ports else http_port,
        broker_port=0 if free_ports else broker_port,
        directory=directory.absolute(),
        topics=topics,
    )

    def announce(ports: dict[str, int]) -> None:
        text = str(directory) if data is not None else "a temporary folder, deleted at the end"
        click.echo(
            BANNER.format(
                data=text, host=host, master=ports["master"], options=_options(host, ports)
            )
        )

    try:
        plan.directory.mkdir(parents=True, exist_ok=True)
        return serve_until_stopped(
            lambda reactor, stack: serve_all(reactor, stack, plan),
            level="info" if verbose else "warn",
            announce=announce if sys.stdout.isatty() else None,
        )
    finally:
        if data is None:
            shutil.rmtree(directory, ignore_errors=True)


async def serve_all(reactor: Reactor, stack: AsyncExitStack, plan: Plan) -> dict[str, int]:
    """Start the master, then the broker, and wait until the master knows it; return the ports.

    Raises:
        PortInUseError, StoreInUseError, SchemaError: one line each says which.
    """
    from tube.broker.app import serve as serve_broker
    from tube.master.app import serve as serve_master

    master = await serve_master(reactor, plan.master(), stack, upgrade=True)
    broker = await serve_broker(reactor, plan.broker(master.port), stack)
    await _registered(reactor, broker)
    if plan.topics:
        from twisted.internet.threads import deferToThread

        await deferToThread(_create_topics, f"{plan.host}:{master.http_port}", plan.topics)
    return {
        "master": master.port,
        "http": master.http_port,
        "broker": broker.port,
        "broker_http": broker.http_port,
    }


async def _registered(reactor: Reactor, broker: RunningBroker) -> None:
    from twisted.internet.task import deferLater

    until_s = reactor.seconds() + REGISTERED_S
    while not broker.uplink.registered:
        if reactor.seconds() > until_s:
            raise TimedOutError(f"the broker did not register within {REGISTERED_S:g} s")
        await deferLater(reactor, POLL_S, lambda: None)


def _create_topics(http: str, topics: tuple[tuple[str, int], ...]) -> None:
    """Those that are there already, in a kept folder, stay as they are."""
    from tube.cli.api import Api, path_of

    for name, partitions in topics:
        try:
            Api(http).change("POST", path_of("topics"), {"name": name, "partitions": partitions})
        except ConflictError:
            continue


def _options(host: str, ports: dict[str, int]) -> str:
    options = ""
    if (host, ports["master"]) != ("127.0.0.1", 8715):
        options += f"--master {host}:{ports['master']} "
    if (host, ports["http"]) != ("127.0.0.1", 8080):
        options += f"--http {host}:{ports['http']} "
    return options
