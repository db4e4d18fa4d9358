"""Which schema a database has, and whether this program may run on it.

Apart from ``migrate`` because a master looks at this at every start: Alembic costs 12 MB and 0.1 s, and is
needed only when there is something to migrate.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from tube.errors import SchemaError
from tube.master.db.tables import metadata, schema_compat

LEVEL: Final = 2
"""The schema that this program was written for: the number of the newest migration."""

REVISION: Final = "0002"
"""The newest migration."""

OLDEST_CODE: Final = 1
"""The oldest program that may run on it: one that knows nothing of users leaves their table alone."""

_VERSION = sa.table("alembic_version", sa.column("version_num", sa.String(32)))


def current(engine: sa.Engine) -> str | None:
    """The newest migration that was applied, None for an empty database."""
    if not sa.inspect(engine).has_table("alembic_version"):
        return None
    with engine.connect() as conn:
        return conn.execute(sa.select(_VERSION.c.version_num)).scalar_one_or_none()


def create(engine: sa.Engine) -> None:
    """Make all tables of an empty database at once; the same as all migrations (a test compares them)."""
    with engine.begin() as conn:
        metadata.create_all(conn)
        version = sa.Table(
            "alembic_version",
            sa.MetaData(),
            sa.Column("version_num", sa.String(32), nullable=False),
            sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
        )
        version.create(conn)
        conn.execute(sa.insert(_VERSION).values(version_num=REVISION))
        conn.execute(
            sa.insert(schema_compat).values(compat_id=1, level=LEVEL, oldest_code=OLDEST_CODE)
        )


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
