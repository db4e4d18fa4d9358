"""Brings a database to the schema of this program, and says when it is not.

Masters never migrate on start (style 7.13): two masters of different versions share the database during an
upgrade.  The row in ``schema_compat`` says which programs may run on it.
"""

from __future__ import annotations

from importlib.resources import files

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tube.errors import SchemaError
from tube.master.db.schema import refusal
from tube.master.db.tables import metadata


def upgrade(engine: sa.Engine) -> None:
    """Apply all migrations that are missing, each in full or not at all.

    Raises:
        SchemaError: the database belongs to a newer program.
    """
    with engine.begin() as conn:
        revision = _revision(conn)
        known = {script.revision for script in _scripts().walk_revisions()}
        if revision is not None and revision not in known:
            raise SchemaError(
                f"the database has the schema {revision}, which this program does not know",
                hint="upgrade the program",
            )
        config = _config()
        config.attributes["connection"] = conn
        command.upgrade(config, "head")


def head() -> str:
    """The newest migration that this program has."""
    revision = _scripts().get_current_head()
    assert revision is not None
    return revision


def check(engine: sa.Engine) -> list[str]:
    """Everything wrong with the schema, one line each; [] when a master may start."""
    refused = refusal(engine)
    if refused is not None:
        return [f"{refused} ({refused.hint})"]
    with engine.connect() as conn:
        context = MigrationContext.configure(conn, opts={"compare_type": True})
        return [
            f"tables and migrations differ: {change}"
            for change in compare_metadata(context, metadata)
        ]


def _revision(conn: sa.Connection) -> str | None:
    return MigrationContext.configure(conn).get_current_revision()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(files("tube.migrations")).replace("%", "%%"))
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())
