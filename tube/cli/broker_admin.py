"""``tube broker-admin``: list brokers and set their state."""

from __future__ import annotations

import click

from tube.cli.api import path_of
from tube.cli.cluster import Cluster, with_cluster
from tube.cli.output import output_option, show, show_facts, time_text

STATES = ["online", "only-read", "only-write", "offline"]


@click.group("broker-admin")
def broker_admin() -> None:
    """List brokers and set their state."""


@broker_admin.command("list")
@output_option
@with_cluster
def list_brokers(cluster: Cluster, /, *, form: str) -> None:
    """Show all brokers."""
    found = cluster.api().get(path_of("brokers"))["brokers"]
    rows = [
        one
        | {"address": f"{one['host']}:{one['port']}", "last_seen": time_text(one["last_seen_ms"])}
        for one in found
    ]
    columns = [
        "broker_id",
        "address",
        "http_port",
        "state",
        "alive",
        "topics",
        "partitions",
        "last_seen",
    ]
    show(rows, columns, form, name="broker_id", whole=found)


@broker_admin.command("state")
@click.argument("broker_id", type=int)
@click.argument("state", type=click.Choice(STATES))
@output_option
@with_cluster
def set_state(cluster: Cluster, /, *, broker_id: int, state: str, form: str) -> None:
    """Open or close a broker for reads and writes."""
    changed = cluster.api().change("PATCH", path_of("brokers", broker_id), {"state": state})
    if not show_facts(changed, form, name="broker_id"):
        click.echo(f"broker {broker_id} is {changed['state']}")
