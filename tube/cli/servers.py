"""``tube master`` and ``tube broker``: one process each, or several brokers under one parent."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from tube.cli.serving import config_options, serve_until_stopped
from tube.config import BrokerConfig, MasterConfig, load_file, parse_address

if TYPE_CHECKING:
    from tube.net.clock import Reactor


@click.command()
@config_options
def master(path: str, sets: tuple[str, ...], check_config: bool, verbose: bool) -> int:
    """Run a master.

    Prints one JSON line with the ports when it serves. The database must have the current schema: run
    `tube db upgrade` first.
    """
    config = load_file(MasterConfig, path, sets)
    if check_config:
        click.echo("the configuration is good")
        return 0

    async def serve(reactor: Reactor, stack: AsyncExitStack) -> dict[str, int]:
        from tube.master.app import serve as serve_master

        running = await serve_master(reactor, config, stack)
        ports = {"master": running.port, "http": running.http_port}
        return ports | ({"tls": running.tls_port} if running.tls_port else {})

    return serve_until_stopped(serve, level="debug" if verbose else "info")


@click.command()
@config_options
@click.option(
    "--instances",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="So many processes, with consecutive ids, ports and data directories.",
)
def broker(
    path: str, sets: tuple[str, ...], check_config: bool, verbose: bool, instances: int
) -> int:
    """Run a broker, or several.

    Prints one JSON line with the ports when it serves.
    """
    config = load_file(BrokerConfig, path, sets)
    for text in config.masters:
        parse_address(text)
    if check_config:
        click.echo("the configuration is good")
        return 0
    if instances > 1:
        from tube.cli.instances import run_instances

        return run_instances(config, path, sets, instances, verbose=verbose)

    async def serve(reactor: Reactor, stack: AsyncExitStack) -> dict[str, int]:
        from tube.broker.app import serve as serve_broker

        running = await serve_broker(reactor, config, stack)
        ports = {"broker": running.port, "broker_http": running.http_port}
        return ports | ({"broker_tls": running.tls_port} if running.tls_port else {})

    return serve_until_stopped(serve, level="debug" if verbose else "info")
