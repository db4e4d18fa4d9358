"""``tube context``: named clusters."""

from __future__ import annotations

import click

from tube.cli.cluster import Cluster, load_contexts, save_contexts
from tube.cli.output import output_option, show
from tube.config import parse_address
from tube.errors import ConflictError


@click.group()
def context() -> None:
    """Name clusters and choose one."""


@context.command("add")
@click.argument("name")
@click.option("--master", default=Cluster().master, show_default=True, metavar="HOST:PORT")
@click.option("--http", default=Cluster().http, show_default=True, metavar="HOST:PORT")
@click.option("--token-file", default="", metavar="FILE", help="The admin token.")
@click.option("--user", default="", metavar="NAME", help="Who signs.")
@click.option("--secret-file", default="", metavar="FILE", help="The user's secret.")
@click.option("--ca-file", default="", metavar="FILE", help="Authorities, for tubes://.")
@click.option("--replace", is_flag=True, help="Change a context that is there already.")
def add(*, name: str, replace: bool, **given: str) -> None:
    """Remember a cluster; the first one is used from now on."""
    contexts = load_contexts()
    if name in contexts.clusters and not replace:
        raise ConflictError(
            f"the context {name!r} is there already", hint="change it with --replace"
        )
    for address in (given["master"].removeprefix("tubes://"), given["http"]):
        parse_address(address)
    contexts.clusters[name] = Cluster(**given)
    contexts.current = contexts.current or name
    save_contexts(contexts)
    click.echo(f"context {name} added" + (", and used" if contexts.current == name else ""))


@context.command("use")
@click.argument("name")
def use(name: str) -> None:
    """Talk to this cluster when no option says otherwise."""
    contexts = load_contexts()
    contexts.get(name)
    contexts.current = name
    save_contexts(contexts)
    click.echo(f"context {name} is used")


@context.command("list")
@output_option
def list_contexts(form: str) -> None:
    """Show all named clusters."""
    contexts = load_contexts()
    rows = [
        {
            "name": name,
            "current": name == contexts.current,
            "master": cluster.master,
            "http": cluster.http,
            "token_file": cluster.token_file or None,
        }
        for name, cluster in sorted(contexts.clusters.items())
    ]
    show(rows, ["name", "current", "master", "http", "token_file"], form)


@context.command("delete")
@click.argument("name")
def delete(name: str) -> None:
    """Forget a cluster; nothing happens to the cluster itself."""
    contexts = load_contexts()
    contexts.get(name)
    del contexts.clusters[name]
    if contexts.current == name:
        contexts.current = ""
    save_contexts(contexts)
    click.echo(f"context {name} deleted")
