"""Brings a database to the schema of this program, and says when it is not.

Masters never migrate on start (style 7.13): two masters of different versions share the database during an
upgrade.  The row in ``schema_compat`` says which programs may run on it.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tube.errors import SchemaError
from tube.master.db.tables import metadata, schema_compat

LEVEL: Final = 1
"""The schema that this program was written for: the number of the newest migration."""


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


def current(engine: sa.Engine) -> str | None:
    """The newest migration that was applied, None for an empty database."""
    with engine.connect() as conn:
        return _revision(conn)


def head() -> str:
    """The newest migration that this program has."""
    revision = _scripts().get_current_head()
    assert revision is not None
    return revision


def refusal(engine: sa.Engine) -> SchemaError | None:
    """Why a master of this program must not run on the database, None when it may."""
    revision = current(engine)
    if revision is None:
        return SchemaError("the database has no schema yet", hint="run: tube db upgrade")
    with engine.connect() as conn:
        row = conn.execute(
            sa.select(schema_compat.c.level, schema_compat.c.oldest_code)
        ).one_or_none()
    if row is None:
        return SchemaError("the database's schema has no level", hint="run: tube db upgrade")
    level, oldest_code = row
    if level < LEVEL:
        return SchemaError(
            f"the database has schema level {level}, this program needs {LEVEL}",
            hint="run: tube db upgrade",
        )
    if oldest_code > LEVEL:
        return SchemaError(
            f"the database has schema level {level}, for programs of level {oldest_code} and up; "
            f"this one has {LEVEL}",
            hint="upgrade the program",
        )
    return None


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
