"""``tube topic``: create, list, describe, alter, delete, restore."""

from __future__ import annotations

from typing import Any

import click

from tube.cli.api import path_of
from tube.cli.cluster import Cluster, with_cluster
from tube.cli.complete import topic_names
from tube.cli.output import facts, output_option, show, show_facts, time_text

PARTITION_COLUMNS = [
    "broker_id",
    "partition_id",
    "number",
    "first",
    "next",
    "messages",
    "bytes",
    "last_append",
]

name_argument = click.argument("name", shell_complete=topic_names)


@click.group()
def topic() -> None:
    """Create, list, change and delete topics."""


@topic.command("create")
@click.argument("name")
@click.option("-p", "--partitions", type=click.IntRange(min=1), default=4, show_default=True)
@click.option(
    "-b", "--broker", "brokers", type=int, multiple=True, help="Only on these (default: all)."
)
@click.option(
    "--durable/--written", default=True, help="Acknowledge on disk, or in the page cache."
)
@click.option("--retention", help="How long messages are kept, like 168h.")
@click.option("--retention-bytes", type=click.IntRange(min=0), help="Most bytes per partition.")
@click.option("--max-message-bytes", type=click.IntRange(min=1))
@output_option
@with_cluster
def create(cluster: Cluster, /, *, brokers: tuple[int, ...], form: str, **given: Any) -> None:
    """Create a topic; it is live at once."""
    body = {key: value for key, value in given.items() if value is not None}
    made = cluster.api().change(
        "POST", path_of("topics"), body | {"brokers": list(brokers) or None}
    )
    if not show_facts(made, form):
        click.echo(f"topic {made['name']} created, {_size(made)}")


@topic.command("list")
@output_option
@with_cluster
def list_topics(cluster: Cluster, /, *, form: str) -> None:
    """Show all topics."""
    found = cluster.api().get(path_of("topics"))["topics"]
    rows = [one | {"broker_count": len(one["brokers"])} for one in found]
    columns = ["name", "partitions", "broker_count", "durable", "retention", "status"]
    show(rows, columns, form, whole=found)


@topic.command("describe")
@name_argument
@output_option
@with_cluster
def describe(cluster: Cluster, /, *, name: str, form: str) -> None:
    """Show a topic and its partitions."""
    api = cluster.api()
    found = api.get(path_of("topics", name))
    offsets = api.get(path_of("topics", name, "offsets"))
    if form in ("json", "yaml", "name") and show_facts(found | {"offsets": offsets}, form):
        return
    if form == "table":
        _print_topic(found)
        if offsets["missing_brokers"]:
            missing = ", ".join(str(broker) for broker in offsets["missing_brokers"])
            click.echo(f"no answer from broker {missing}", err=True)
    rows = [
        one
        | {"messages": one["next"] - one["first"], "last_append": time_text(one["last_append_ms"])}
        for one in offsets["partitions"]
    ]
    show(rows, PARTITION_COLUMNS, form)


@topic.command("alter")
@name_argument
@click.option(
    "-p", "--partitions", type=click.IntRange(min=1), help="More partitions; never fewer."
)
@click.option("--durable/--written", default=None)
@click.option("--retention")
@click.option("--retention-bytes", type=click.IntRange(min=0))
@click.option("--max-message-bytes", type=click.IntRange(min=1))
@click.option("--accept-publish/--refuse-publish", default=None)
@click.option("--accept-subscribe/--refuse-subscribe", default=None)
@output_option
@with_cluster
def alter(cluster: Cluster, /, *, name: str, form: str, **given: Any) -> None:
    """Change a topic; only what is given changes."""
    body = {key: value for key, value in given.items() if value is not None}
    if not body:
        raise click.UsageError("nothing to change was given")
    changed = cluster.api().change("PATCH", path_of("topics", name), body)
    if not show_facts(changed, form):
        click.echo(f"topic {name} changed")


@topic.command("delete")
@name_argument
@click.option("--hard", is_flag=True, help="Delete the messages too; this cannot be undone.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@with_cluster
def delete(cluster: Cluster, /, *, name: str, hard: bool, yes: bool) -> None:
    """Delete a topic; without --hard it can be restored."""
    if hard and not yes:
        click.confirm(f"delete {name} and all its messages?", abort=True, err=True)
    cluster.api().change("DELETE", path_of("topics", name), hard="true" if hard else None)
    undo = "" if hard else f"; undo with: tube topic restore {name}"
    click.echo(f"topic {name} deleted{undo}")


@topic.command("restore")
@click.argument("name")
@with_cluster
def restore(cluster: Cluster, /, *, name: str) -> None:
    """Bring a softly deleted topic back."""
    cluster.api().change("POST", path_of("topics", name, "restore"), {})
    click.echo(f"topic {name} restored")


def _size(found: dict[str, Any]) -> str:
    brokers = len(found["brokers"])
    return f"{found['partitions']} partitions on {brokers} broker{'s' * (brokers != 1)}"


def _print_topic(found: dict[str, Any]) -> None:
    kept = found["retention"] + (
        f", {found['retention_bytes']} bytes" if found["retention_bytes"] else ""
    )
    closed = [
        f"broker {one['broker_id']}: {what}"
        for one in found["brokers"]
        for what, is_open in (
            ("closed for sends", one["writable"]),
            ("closed for reads", one["readable"]),
        )
        if not is_open
    ]
    facts(
        [
            ("topic", found["name"]),
            ("status", found["status"]),
            ("size", _size(found)),
            ("acknowledged", "on disk" if found["durable"] else "in the page cache"),
            ("kept", kept),
            ("created", time_text(found["created_ms"])),
            ("closed", closed),
        ]
    )
    click.echo()
