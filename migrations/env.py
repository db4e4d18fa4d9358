"""What Alembic runs: migrations on the connection that ``tube.master.db.migrate`` gives.

For developers, ``alembic -x url=sqlite:///tube.db revision --autogenerate`` works from a checkout.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from tube.master.db import engine
from tube.master.db.tables import metadata


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        render_as_batch=True,
        compare_type=True,
        transaction_per_migration=False,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    _run(given)
else:
    with engine.create(context.get_x_argument(as_dictionary=True)["url"]).begin() as conn:
        _run(conn)
