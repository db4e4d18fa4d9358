"""``tube producer``: who sends."""

from __future__ import annotations

import click

from tube.cli.api import path_of
from tube.cli.cluster import Cluster, with_cluster
from tube.cli.output import output_option, show, time_text


@click.group("producer")
def producer() -> None:
    """Look at producers."""


@producer.command("list")
@output_option
@with_cluster
def list_producers(cluster: Cluster, /, *, form: str) -> None:
    """Show the producers that are registered, and what they send to."""
    found = cluster.api().get(path_of("producers"))["producers"]
    rows = [
        one | {"topics": " ".join(one["topics"]), "last_seen": time_text(one["last_seen_ms"])}
        for one in found
    ]
    show(rows, ["client_id", "host", "topics", "last_seen"], form, name="client_id", whole=found)
