"""Running a server in this process until it is told to stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from tube.net.clock import Reactor

F = TypeVar("F", bound=Callable[..., Any])

Serve = Callable[["Reactor", AsyncExitStack], Awaitable[dict[str, int]]]


def config_options(f: F) -> F:
    """Add ``--config``, ``--set``, ``--check-config`` and ``--verbose``."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="Log every request."),
        click.option(
            "--check-config", is_flag=True, help="Only check the configuration (exit 78 if broken)."
        ),
        click.option(
            "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override one option."
        ),
        click.option("--config", "path", default="", metavar="FILE", help="TOML file."),
    ):
        f = option(f)
    return f


def serve_until_stopped(
    serve: Serve, *, level: str = "info", announce: Callable[[dict[str, int]], None] | None = None
) -> int:
    """Run ``serve`` on the reactor until SIGTERM or SIGINT; return the exit code.

    Raises:
        Exception: what kept it from starting, a TubeError unless it is a bug.
    """
    from twisted.internet.task import react
    from twisted.logger import LogLevel

    from tube.net.daemon import print_ready, run
    from tube.observe import begin_logging

    begin_logging(level=LogLevel.levelWithName(level))
    refused: list[Exception] = []

    async def body(reactor: Reactor) -> None:
        try:
            await run(reactor, serve, announce or print_ready)
        except Exception as error:  # the command line reports it, one line or a traceback
            refused.append(error)

    code = 0
    try:
        react(body)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    if refused:
        raise refused[0]
    return code
