"""The only door to SQL: store functions run in a worker, each in its own transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
from twisted.internet.defer import Deferred

from tube.errors import StoreError
from tube.net.workers import Workers

P = ParamSpec("P")
T = TypeVar("T")


class Database:
    """Runs ``f(connection, ...)`` in a transaction.

    Raises (through the Deferreds):
        StoreError: the database failed or cannot be reached; errors of ``f`` itself come as they are.
    """

    def __init__(self, engine: sa.Engine, workers: Workers) -> None:
        self.engine = engine
        self._reader = engine.execution_options(sqlite_begin="DEFERRED")
        self._workers = workers

    def write(
        self, f: Callable[Concatenate[sa.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Deferred[T]:
        """Call ``f``; commit when it returns, roll back when it raises."""

        def transaction() -> T:
            try:
                with self.engine.begin() as conn:
                    return f(conn, *args, **kwargs)
            except sa.exc.SQLAlchemyError as error:
                raise _translated(error) from error

        return self._workers.call(transaction)

    def read(
        self, f: Callable[Concatenate[sa.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Deferred[T]:
        """Call ``f``, which only reads; it never waits for writers."""

        def transaction() -> T:
            try:
                with self._reader.begin() as conn:
                    return f(conn, *args, **kwargs)
            except sa.exc.SQLAlchemyError as error:
                raise _translated(error) from error

        return self._workers.call(transaction)


def _translated(error: sa.exc.SQLAlchemyError) -> StoreError:
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    return StoreError(f"the database failed: {str(cause).strip()}")
