"""Makes the engine, the same for tests and production."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event

from tube.errors import ConfigError

POOL_SIZE: Final = 4
"""As many as there are SQL workers (style section 6)."""

CONNECT_S: Final = 3
STATEMENT_MS: Final = 5000
"""How long one statement may take on PostgreSQL."""

IDLE_MS: Final = 3000
"""A frozen leader in the middle of a transaction must not keep its row locks beyond its lease."""


def create(url: str, password: str = "") -> sa.Engine:
    """An engine for ``url``; ``password`` replaces the one in it.

    Raises:
        ConfigError: not a URL, no such dialect, its driver is missing, or SQLite in memory.
    """
    try:
        parsed = sa.make_url(url)
        if password:
            parsed = parsed.set(password=password)
        backend = parsed.get_backend_name()
        if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
            raise ConfigError(["database: SQLite in memory is one empty database per thread"])
        engine = sa.create_engine(
            parsed,
            pool_size=POOL_SIZE,
            max_overflow=0,
            pool_pre_ping=backend != "sqlite",
            connect_args=_arguments(backend),
        )
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError) as error:
        raise ConfigError([f"database: {error}"]) from error
    if backend == "sqlite":
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _arguments(backend: str) -> dict[str, Any]:
    if backend == "postgresql":
        options = (
            f"-c statement_timeout={STATEMENT_MS} -c idle_in_transaction_session_timeout={IDLE_MS}"
        )
        return {"connect_timeout": CONNECT_S, "options": options}
    if backend in ("mysql", "mariadb"):
        return {"connect_timeout": CONNECT_S, "read_timeout": STATEMENT_MS // 1000}
    return {}


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # we begin transactions ourselves, see below
    for pragma in ("journal_mode=WAL", "busy_timeout=5000", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(conn: sa.Connection) -> None:
    """Cover the reads before the first write too; readers ask for DEFERRED and never wait."""
    mode = conn.get_execution_options().get("sqlite_begin", "IMMEDIATE")
    conn.exec_driver_sql(f"BEGIN {mode}")
