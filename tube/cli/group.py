"""``tube group``: look at consumer groups; their offsets and their history are in two other modules."""

from __future__ import annotations

import json
from typing import Any

import click

from tube.cli.api import path_of
from tube.cli.cluster import Cluster, with_cluster
from tube.cli.complete import group_names
from tube.cli.group_history import explain, history, watch
from tube.cli.group_offsets import lag, offsets, reset, undo
from tube.cli.output import facts, output_option, partition_text, show, show_facts, time_text
from tube.errors import ConfigError

name_argument = click.argument("name", shell_complete=group_names)


@click.group()
def group() -> None:
    """Look at consumer groups, move their offsets."""


@group.command("list")
@output_option
@with_cluster
def list_groups(cluster: Cluster, /, *, form: str) -> None:
    """Show all groups."""
    found = cluster.api().get(path_of("groups"))["groups"]
    show(found, ["name", "state", "members", "topics", "round_id"], form)


@group.command("describe")
@name_argument
@output_option
@with_cluster
def describe(cluster: Cluster, /, *, name: str, form: str) -> None:
    """Show the members of a group and what they hold."""
    found = cluster.api().get(path_of("groups", name))
    if form in ("json", "yaml", "name") and show_facts(found, form):
        return
    if form == "table":
        _print_group(found)
    rows = [
        member
        | {
            "since": time_text(member["since_ms"]),
            "last_seen": time_text(member["last_seen_ms"]),
            "holds": " ".join(partition_text(partition) for partition in member["partitions"]),
        }
        for member in found["members"]
    ]
    show(rows, ["client_id", "host", "since", "last_seen", "pending", "holds"], form)


@group.command("create")
@click.argument("name")
@with_cluster
def create(cluster: Cluster, /, *, name: str) -> None:
    """Make a group known before its first member comes."""
    cluster.api().change("POST", path_of("groups"), {"name": name})
    click.echo(f"group {name} created")


@group.command("delete")
@name_argument
@with_cluster
def delete(cluster: Cluster, /, *, name: str) -> None:
    """Forget a group that has no members."""
    cluster.api().change("DELETE", path_of("groups", name))
    click.echo(f"group {name} deleted")


@group.command("rules")
@click.argument("name", required=False, shell_complete=group_names)
@click.option(
    "--set", "source", type=click.File(), metavar="FILE", help="New rules as JSON; - is stdin."
)
@click.option("--clear", is_flag=True, help="No rules.")
@output_option
@with_cluster
def rules(cluster: Cluster, /, *, name: str | None, source: Any, clear: bool, form: str) -> None:
    """Show or set flow-control rules of a group, or without NAME those that hold for all.

    The rules are TubeMQ's rule sets: a JSON list, or {"rules": [...]}.
    """
    path = path_of("groups", name, "rules") if name else path_of("rules")
    if source is None and not clear:
        answer = cluster.api().get(path)
    else:
        answer = cluster.api().change("PUT", path, {"rules": [] if clear else _rules(source)})
    if form in ("json", "yaml"):
        show_facts(answer, form)
        return
    for one in answer["rules"]:
        click.echo(json.dumps(one, ensure_ascii=False))


def _rules(source: Any) -> object:
    try:
        given = json.load(source)
    except ValueError as error:
        raise ConfigError([f"the rules are no JSON: {error}"]) from error
    return given["rules"] if isinstance(given, dict) and "rules" in given else given


def _print_group(found: dict[str, Any]) -> None:
    facts(
        [
            ("group", found["name"]),
            ("state", found["state"]),
            ("round", found["round_id"]),
            ("topics", found["topics"]),
            ("filters", found["filters"] or None),
            ("unassigned", [partition_text(partition) for partition in found["unassigned"]]),
        ]
    )
    click.echo()


for command in (lag, offsets, reset, undo, history, explain, watch):
    group.add_command(command)
