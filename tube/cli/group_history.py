"""``tube group history|explain|watch``: what happened to a group, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import click

from tube.cli.api import path_of
from tube.cli.cluster import Cluster, with_cluster
from tube.cli.complete import group_names, topic_names
from tube.cli.output import output_option, show, show_facts, time_text

POLL_MS: Final = 20_000
COLUMNS = ["id", "at", "kind", "client_id", "partition", "round_id", "reason"]

name_argument = click.argument("name", shell_complete=group_names)


@click.command("history")
@name_argument
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option("--kind", help="Only events of this kind: join, leave, connect, …")
@output_option
@with_cluster
def history(cluster: Cluster, /, *, name: str, limit: int, kind: str | None, form: str) -> None:
    """Show what happened to a group, oldest first."""
    events = cluster.api().get(path_of("groups", name, "history"), limit=limit)["events"]
    rows = [event | _texts(event) for event in events if kind in (None, event["kind"])]
    show(rows, COLUMNS, form, name="id", whole=events)


@click.command("explain")
@name_argument
@click.option("--topic", shell_complete=topic_names)
@click.option("--partition", metavar="B:P", help="Only this partition.")
@output_option
@with_cluster
def explain(
    cluster: Cluster, /, *, name: str, topic: str | None, partition: str | None, form: str
) -> None:
    """Say why partitions are where they are, or are nowhere."""
    path = path_of("groups", name, "explain")
    answer = cluster.api().get(path, topic=topic, partition=partition)
    if form in ("json", "yaml") and show_facts(answer, form):
        return
    if form == "table":
        click.echo(answer["summary"])
        click.echo()
    columns = ["topic", "broker_id", "partition_id", "holder", "planned", "why"]
    rows = [one | _texts(one) for one in answer["partitions"]]
    show(rows, columns, form, name="partition")


@click.command("watch")
@name_argument
@click.option("-n", "--last", type=click.IntRange(0, 1000), default=10, show_default=True)
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table")
@click.option("-c", "--count", type=click.IntRange(min=1), help="End after so many events.")
@with_cluster
def watch(cluster: Cluster, /, *, name: str, last: int, form: str, count: int | None) -> None:
    """Follow what happens to a group; Ctrl-C ends it."""
    api = cluster.api()
    path = path_of("groups", name, "history")
    events = api.get(path, limit=max(last, 1))["events"]
    after = max((event["id"] for event in events), default=0)
    shown = 0
    if last == 0:
        events = []
    while True:
        for event in events:
            click.echo(json.dumps(event, ensure_ascii=False) if form == "json" else line(event))
            shown += 1
            if shown == count:
                return
        answer = api.get(path, after=after, limit=1000, wait_ms=POLL_MS, wait_s=POLL_MS / 1000)
        events = answer["events"]
        after = max((event["id"] for event in events), default=after)


def line(event: Mapping[str, Any]) -> str:
    """One event as one line for people."""
    texts = _texts(event)
    parts = [
        texts["at"],
        f"{event['kind']:12}",
        event["client_id"],
        texts["partition"],
        event["reason"],
    ]
    return "  ".join(str(part) for part in parts if part)


def _texts(event: Mapping[str, Any]) -> dict[str, str | None]:
    partition = None
    if event.get("partition_id") is not None:
        partition = "{topic}:{broker_id}:{partition_id}".format(**event)
    return {"at": time_text(event.get("at_ms")), "partition": partition}
