"""``tube group lag|offsets|reset|undo``: where a group is, and moving it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import click

from tube.cli.api import Api, path_of
from tube.cli.cluster import Cluster, with_cluster
from tube.cli.complete import group_names, topic_names
from tube.cli.output import output_option, show
from tube.errors import NotFoundError

UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
OFFSET_COLUMNS = [
    "topic",
    "broker_id",
    "partition_id",
    "committed",
    "first",
    "next",
    "lag",
    "holder",
]
CHANGE_COLUMNS = ["topic", "broker_id", "partition_id", "old", "new"]

name_argument = click.argument("name", shell_complete=group_names)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would change.")


@click.command("lag")
@name_argument
@output_option
@with_cluster
def lag(cluster: Cluster, /, *, name: str, form: str) -> None:
    """Show how many messages wait, by topic and in total."""
    answer = cluster.api().get(path_of("groups", name, "offsets"))
    sums: dict[str, dict[str, Any]] = {}
    for one in answer["partitions"]:
        row = sums.setdefault(one["topic"], {"topic": one["topic"], "partitions": 0, "lag": 0})
        row["partitions"] += 1
        row["lag"] += one["lag"] or 0
    rows = [sums[topic] for topic in sorted(sums)]
    if form == "table":
        count = sum(row["partitions"] for row in rows)
        rows.append({"topic": "total", "partitions": count, "lag": answer["lag"]})
    summary = {"group": name, "lag": answer["lag"], "topics": rows}
    show(rows, ["topic", "partitions", "lag"], form, name="topic", whole=summary)
    _warn_of_missing(answer)


@click.command("offsets")
@name_argument
@output_option
@with_cluster
def offsets(cluster: Cluster, /, *, name: str, form: str) -> None:
    """Show committed offsets, ends and holders of all partitions."""
    answer = cluster.api().get(path_of("groups", name, "offsets"))
    rows = [
        one | {"name": "{topic}:{broker_id}:{partition_id}".format(**one)}
        for one in answer["partitions"]
    ]
    show(rows, OFFSET_COLUMNS, form, whole=answer)
    _warn_of_missing(answer)


@click.command("reset")
@name_argument
@click.option(
    "--to", required=True, metavar="WHERE", help="earliest, latest, OFFSET, @ISO-TIME or -1h."
)
@click.option(
    "--topic", shell_complete=topic_names, help="Only this topic (default: all of the group)."
)
@click.option(
    "--partition", "partitions", multiple=True, metavar="B:P", help="Only these partitions."
)
@dry_run_option
@output_option
@with_cluster
def reset(
    cluster: Cluster,
    /,
    *,
    name: str,
    to: str,
    topic: str | None,
    partitions: tuple[str, ...],
    dry_run: bool,
    form: str,
) -> None:
    """Move a group, also while it is running; `tube group undo` takes it back.

    --to takes `earliest`, `latest`, an offset, a time like `@2026-01-31T12:00` (UTC unless it says
    otherwise), or a time before now like `-90s`, `-1h`, `-2d`.
    """
    target = parse_target(to, now_ms=time.time_ns() // 1_000_000)
    for partition in partitions:
        if not re.fullmatch(r"[0-9]+:[0-9]+", partition):
            raise click.BadParameter(f"expected BROKER:PARTITION, got {partition!r}")
    api = cluster.api(timeout_s=60.0)  # a running group is frozen and asked first
    changes: list[dict[str, Any]] = []
    for one in [topic] if topic else _topics(api, name):
        body = {
            "topic": one,
            "partitions": list(partitions) or None,
            "to": target,
            "dry_run": dry_run,
        }
        changes += api.change("POST", path_of("groups", name, "reset"), body)["changes"]
    _show_changes(changes, form, dry_run=dry_run)


@click.command("undo")
@name_argument
@click.option("--topic", shell_complete=topic_names, help="Only this topic.")
@dry_run_option
@output_option
@with_cluster
def undo(cluster: Cluster, /, *, name: str, topic: str | None, dry_run: bool, form: str) -> None:
    """Take the last reset back."""
    body = {"topic": topic, "dry_run": dry_run}
    answer = cluster.api(timeout_s=60.0).change("POST", path_of("groups", name, "undo"), body)
    _show_changes(answer["changes"], form, dry_run=dry_run)


def parse_target(text: str, *, now_ms: int) -> Mapping[str, object]:
    """The API's ``to`` for what a user wrote.

    Raises:
        click.BadParameter: it is none of the five forms.
    """
    if text in ("earliest", "latest"):
        return {"kind": text}
    if text.isascii() and text.isdigit():
        return {"kind": "offset", "value": int(text)}
    if text.startswith("@"):
        try:
            at = datetime.fromisoformat(text[1:])
        except ValueError as error:
            raise click.BadParameter(f"{text!r} is no time like @2026-01-31T12:00") from error
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return {"kind": "time", "value": int(at.timestamp() * 1000)}
    ago = re.fullmatch(r"-([0-9]{1,9})([smhd])", text)
    if ago is None:
        raise click.BadParameter(f"{text!r} is none of earliest, latest, OFFSET, @ISO-TIME, -1h")
    return {"kind": "time", "value": now_ms - int(ago[1]) * UNITS_S[ago[2]] * 1000}


def _topics(api: Api, name: str) -> list[str]:
    """The topics that the group reads, or has read.

    Raises:
        NotFoundError: none is known.
    """
    topics = set(api.get(path_of("groups", name))["topics"])
    if not topics:
        answer = api.get(path_of("groups", name, "offsets"))
        topics = {one["topic"] for one in answer["partitions"]}
    if not topics:
        raise NotFoundError(f"group {name} reads no topic", hint="name one with --topic")
    return sorted(topics)


def _show_changes(changes: list[dict[str, Any]], form: str, *, dry_run: bool) -> None:
    rows = [one | {"name": "{topic}:{broker_id}:{partition_id}".format(**one)} for one in changes]
    show(rows, CHANGE_COLUMNS, form, whole=changes)
    if form == "table":
        what = "would move" if dry_run else "moved"
        click.echo(f"{len(changes)} partition{'s' * (len(changes) != 1)} {what}", err=True)


def _warn_of_missing(answer: Mapping[str, Any]) -> None:
    if answer["missing_brokers"]:
        missing = ", ".join(str(broker) for broker in answer["missing_brokers"])
        click.echo(f"no answer from broker {missing}: its partitions are left out", err=True)
