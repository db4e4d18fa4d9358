"""Users in the table, on each database."""

from __future__ import annotations

import pytest

from tests.master.db.test_lease import candidate
from tube.errors import ConflictError, NotFoundError, StaleEpochError
from tube.master.db import lease, users
from tube.master.db.users import UserRow

ANN = UserRow(
    name="ann", sealed=b"\x00\xff", produce=("a", "b"), consume=("*",), created_ms=1 << 41
)


@pytest.fixture
def conn(engine):
    with engine.begin() as conn:
        lease.take_or_renew(conn, candidate("a"))
        yield conn


def test_users_are_added_listed_and_deleted(conn):
    """In the order of their names, and once each."""
    bob = UserRow(name="bob", sealed=b"x", produce=(), consume=(), created_ms=1)
    users.add(conn, 1, bob)
    users.add(conn, 1, ANN)
    assert users.all_users(conn) == [ANN, bob]
    with pytest.raises(ConflictError):
        users.add(conn, 1, ANN)

    users.delete(conn, 1, "ann")

    assert users.all_users(conn) == [bob]
    with pytest.raises(NotFoundError):
        users.delete(conn, 1, "ann")


def test_only_the_leader_writes(conn):
    """The epoch is checked."""
    with pytest.raises(StaleEpochError):
        users.add(conn, 2, ANN)
    with pytest.raises(StaleEpochError):
        users.delete(conn, 0, "ann")
