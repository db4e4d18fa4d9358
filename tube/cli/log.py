"""``tube log``: look at a broker's data directory while no broker uses it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from tube.cli.output import output_option, show

COLUMNS = [
    "topic_id",
    "partition_id",
    "segments",
    "first_offset",
    "next_offset",
    "messages",
    "blocks",
    "bytes",
]

directory_argument = click.argument(
    "directory", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


@click.group()
def log() -> None:
    """Inspect and verify a data directory offline."""


@log.command("inspect")
@directory_argument
@output_option
def inspect(directory: Path, form: str) -> None:
    """Show what every partition holds."""
    from tube.log.inspect import describe

    rows = [
        dataclasses.asdict(found) | {"name": f"{found.topic_id}/{found.partition_id}"}
        for found in describe(directory)
    ]
    show(rows, COLUMNS, form)


@log.command("verify")
@directory_argument
@output_option
def verify(directory: Path, form: str) -> int:
    """Read everything and show every fault; exit 1 when there is one."""
    from tube.log import inspect as looking

    rows = [dataclasses.asdict(fault) for fault in looking.verify(directory)]
    if rows or form != "table":
        show(rows, ["file", "position", "what"], form, name="file")
    else:
        click.echo("no faults")
    return 1 if rows else 0
