"""Rows as table, JSON, YAML, CSV or names."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

FORMS: Final = ("table", "json", "yaml", "csv", "name")

Row = Mapping[str, Any]
F = TypeVar("F", bound=Callable[..., Any])


def output_option(f: F) -> F:
    """Add ``-o`` to a command; it comes in as ``form``."""
    choice = click.Choice(FORMS)
    return click.option(
        "-o", "--output", "form", type=choice, default="table", help="How to print."
    )(f)


def show(
    rows: Sequence[Row],
    columns: Sequence[str],
    form: str,
    *,
    name: str = "name",
    whole: object = None,
) -> None:
    """Print rows; tables and CSV have ``columns``, JSON and YAML all that is there (or ``whole``).

    ``name`` is the key that identifies a row, for ``-o name``.
    """
    if form in ("json", "yaml"):
        show_document(whole if whole is not None else list(rows), form)
    elif form == "name":
        for row in rows:
            click.echo(cell(row.get(name)))
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([cell(row.get(column), none="") for column in columns] for row in rows)
    else:
        click.echo("\n".join(table(rows, columns)))


def show_document(document: object, form: str) -> None:
    """Print anything as JSON or YAML."""
    if form == "json":
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    import yaml

    click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)


def show_facts(document: Row, form: str, *, name: str = "name") -> bool:
    """Print one thing in every form but a list's; False when the caller should print a table itself."""
    if form in ("json", "yaml"):
        show_document(document, form)
    elif form == "name":
        click.echo(cell(document.get(name)))
    else:
        return False
    return True


def facts(pairs: Sequence[tuple[str, object]]) -> None:
    """Print ``title  value`` lines."""
    width = max(len(title) for title, _ in pairs)
    for title, value in pairs:
        click.echo(f"{title:{width}}  {cell(value)}")


def table(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """The lines of a table; numbers stand to the right."""
    titles = [column.upper().replace("_", " ") for column in columns]
    texts = [[cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
    right = [
        bool(rows) and all(isinstance(row.get(column), int | float | None) for row in rows)
        for column in columns
    ]
    return [
        "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [titles, *texts]
    ]


def cell(value: object, *, none: str = "-") -> str:
    """One value as people read it."""
    if value is None:
        return none
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(cell(item) for item in value) or none
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value) or none


def time_text(at_ms: int | None) -> str:
    """A time in UTC, to the millisecond."""
    if not at_ms:
        return "-"
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def partition_text(partition: Row) -> str:
    """``topic:broker:partition`` of an answer's partition."""
    return "{topic}:{broker_id}:{partition_id}".format(**partition)
