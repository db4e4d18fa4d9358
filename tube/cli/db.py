"""``tube db``: the schema of the master's database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tube.config import MasterConfig, load_file
from tube.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from sqlalchemy import Engine

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def db() -> None:
    """Migrate and check the master's database."""


def _database_options(f: F) -> F:
    for option in (
        click.option(
            "--url", metavar="URL", help="SQLAlchemy URL, instead of the configuration's."
        ),
        click.option(
            "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override one option."
        ),
        click.option(
            "--config", "path", default="", metavar="FILE", help="The master's TOML file."
        ),
    ):
        f = option(f)
    return f


@db.command("upgrade")
@_database_options
def upgrade(path: str, sets: tuple[str, ...], url: str | None) -> None:
    """Apply the migrations that are missing."""
    from tube.master.db import migrate, schema

    with _database(path, sets, url) as engine:
        before = schema.current(engine)
        migrate.upgrade(engine)
        after = schema.current(engine)
    click.echo(f"already at {after}" if before == after else f"{before or 'empty'} → {after}")


@db.command("current")
@_database_options
def current(path: str, sets: tuple[str, ...], url: str | None) -> None:
    """Show the newest migration that was applied, and the newest there is."""
    from tube.master.db import migrate, schema

    with _database(path, sets, url) as engine:
        click.echo(f"{schema.current(engine) or 'empty'} (newest: {migrate.head()})")


@db.command("check")
@_database_options
def check(path: str, sets: tuple[str, ...], url: str | None) -> int:
    """Say whether a master may start on the database; exit 1 when not."""
    from tube.master.db import migrate

    with _database(path, sets, url) as engine:
        faults = migrate.check(engine)
    for fault in faults:
        click.echo(f"tube: {fault}", err=True)
    if not faults:
        click.echo("the schema is current")
    return 1 if faults else 0


@contextmanager
def _database(path: str, sets: tuple[str, ...], url: str | None) -> Iterator[Engine]:
    """The database that the options name.

    Raises:
        ConfigError: the configuration is broken.  StoreError: the database cannot be used.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from tube.master.db import engine as engines

    config = load_file(MasterConfig, path, sets)
    password = ""
    if config.password_file:
        try:
            password = Path(config.password_file).read_text().strip()
        except OSError as error:
            raise ConfigError(
                [f"password_file: {config.password_file}: {error.strerror}"]
            ) from error
    engine = engines.create(url or config.database, password)
    try:
        yield engine
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise StoreError(f"the database failed: {str(cause).strip()}") from error
    finally:
        engine.dispose()
