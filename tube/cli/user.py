"""``tube user``: who may sign as a client, and the key that keeps their secrets."""

from __future__ import annotations

import base64
import os
import secrets
import sys
from pathlib import Path

import click

from tube.cli.api import path_of
from tube.cli.cluster import Cluster, with_cluster
from tube.cli.output import output_option, show, time_text
from tube.errors import ConfigError

KEY_BYTES = 32


@click.group("user")
def user() -> None:
    """Users of clients, their secrets and rights."""


@user.command("key")
@click.argument("file", type=click.Path(dir_okay=False))
def key(file: str) -> None:
    """Make a cluster key: what the masters encrypt the users' secrets with.

    Only its owner can read FILE.  Give every master the same in tokens.cluster_key_file, and keep a copy.
    """
    text = base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n"
    target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(target, "wb") as opened:
        opened.write(text)
    click.echo(f"cluster key written to {file}; keep a copy, without it the secrets are lost")


@user.command("add")
@click.argument("name")
@click.option("-p", "--produce", multiple=True, metavar="TOPIC", help="May send to it; * is all.")
@click.option("-c", "--consume", multiple=True, metavar="TOPIC", help="May read it; * is all.")
@click.option("--secret-file", metavar="FILE", help="Where the secret is; else it is asked for.")
@with_cluster
def add(
    cluster: Cluster,
    /,
    *,
    name: str,
    produce: tuple[str, ...],
    consume: tuple[str, ...],
    secret_file: str | None,
) -> None:
    """Add a user; its secret comes from a file, from the terminal, or from standard input."""
    body = {
        "name": name,
        "secret": _secret(secret_file),
        "produce": list(produce),
        "consume": list(consume),
    }
    cluster.api().change("POST", path_of("users"), body)
    click.echo(f"user {name} added")


@user.command("list")
@output_option
@with_cluster
def list_users(cluster: Cluster, /, *, form: str) -> None:
    """Show all users and what they may do."""
    found = cluster.api().get(path_of("users"))["users"]
    rows = [one | {"created": time_text(one["created_ms"])} for one in found]
    show(rows, ["name", "produce", "consume", "created"], form, whole=found)


@user.command("delete")
@click.argument("name")
@with_cluster
def delete(cluster: Cluster, /, *, name: str) -> None:
    """Forget a user; its clients are refused."""
    cluster.api().change("DELETE", path_of("users", name))
    click.echo(f"user {name} deleted")


def _secret(path: str | None) -> str:
    if path is not None:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError([f"{path}: {error}"]) from error
    elif sys.stdin.isatty():
        text = str(click.prompt("Secret", hide_input=True, confirmation_prompt=True))
    else:
        text = sys.stdin.readline()
    return text.rstrip("\r\n")
