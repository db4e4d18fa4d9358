"""What an error looks like on the terminal, and its exit code."""

from __future__ import annotations

from typing import Final

import click

from tube.errors import (
    ConfigError,
    ConflictError,
    NoBrokerError,
    NotFoundError,
    OffsetOutOfRangeError,
    RefusedError,
    StaleEpochError,
    TimedOutError,
    TopicNotDeployedError,
    TubeError,
    UnavailableError,
    UnreachableError,
)

FAILED: Final = 1
USAGE: Final = 2
BROKEN_CONFIGURATION: Final = 78
INTERRUPTED: Final = 130
TERMINATED: Final = 143

EXIT_CODES: Final[list[tuple[type[BaseException], int]]] = [
    (click.UsageError, USAGE),
    (ConfigError, BROKEN_CONFIGURATION),
    (NotFoundError, 3),
    (OffsetOutOfRangeError, 3),
    (TopicNotDeployedError, 3),
    (ConflictError, 7),
    (StaleEpochError, 7),
    (TimedOutError, 6),
    (UnreachableError, 5),
    (NoBrokerError, 5),
    (UnavailableError, 5),
    (RefusedError, 4),
]
"""The first class that an error is an instance of decides; everything else is 1."""


def exit_code(error: BaseException) -> int:
    """The exit code for an error."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


def report(error: BaseException) -> None:
    """Say on standard error what is wrong: one line, one with a hint; a configuration's faults one line each."""
    if isinstance(error, ConfigError):
        for fault in error.faults:
            click.echo(f"tube: {fault}", err=True)
        return
    hint = ""
    if isinstance(error, click.ClickException):
        text = error.format_message()
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f"try: {error.ctx.command_path} --help"
    elif isinstance(error, TubeError):
        text, hint = str(error), error.hint
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text, hint = f"{type(error).__name__}: {error}", "a bug; --debug shows where"
    text = " ".join(text.split()) or type(error).__name__
    click.echo(f"tube: {text}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
