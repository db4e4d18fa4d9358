"""The schema is made by migrations, and a master can tell whether it fits."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command

from tube.errors import SchemaError
from tube.master.db import engine as engines
from tube.master.db import migrate, schema
from tube.master.db.tables import brokers, client_secrets, schema_compat, signing_keys


@pytest.fixture
def empty(empty_url):
    made = engines.create(empty_url)
    yield made
    made.dispose()


def test_an_empty_database_is_brought_to_the_schema(empty):
    """Tables and migrations agree, and a second upgrade does nothing."""
    assert schema.current(empty) is None
    assert "tube db upgrade" in migrate.check(empty)[0]

    migrate.upgrade(empty)
    migrate.upgrade(empty)

    assert schema.current(empty) == migrate.head()
    assert migrate.check(empty) == []


def test_a_difference_between_tables_and_migrations_is_found(engine):
    """What a developer forgot shows up."""
    with engine.begin() as conn:
        conn.execute(sa.text("DROP TABLE statistics"))

    assert any("statistics" in problem for problem in migrate.check(engine))


@pytest.mark.parametrize(
    ("level", "oldest", "hint"), [(0, 0, "tube db upgrade"), (9, 9, "upgrade the program")]
)
def test_an_older_and_a_newer_schema_are_refused(engine, level, oldest, hint):
    """One line says what to do."""
    with engine.begin() as conn:
        conn.execute(sa.text(f"UPDATE schema_compat SET level = {level}, oldest_code = {oldest}"))

    refused = schema.refusal(engine)

    assert refused is not None
    assert hint in refused.hint
    assert hint in migrate.check(engine)[0]


def test_a_newer_schema_that_still_fits_is_taken(engine):
    """Expand, then contract: two versions share the database during an upgrade."""
    with engine.begin() as conn:
        conn.execute(sa.text("UPDATE schema_compat SET level = 9, oldest_code = 1"))

    assert schema.refusal(engine) is None


def test_a_schema_of_an_unknown_program_is_not_upgraded(engine):
    """Its migrations are not ours."""
    with engine.begin() as conn:
        conn.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(SchemaError, match="9999"):
        migrate.upgrade(engine)


def test_a_schema_without_a_level_is_refused(engine):
    """Somebody cleared the row."""
    with engine.begin() as conn:
        conn.execute(sa.text("DELETE FROM schema_compat"))

    assert schema.refusal(engine) is not None


def test_creating_at_once_gives_what_the_migrations_give(tmp_path: Path) -> None:
    """A fresh SQLite file needs no Alembic, and is the same to the letter."""
    described = []
    for name, make in (("created", schema.create), ("migrated", migrate.upgrade)):
        engine = engines.create(f"sqlite:///{tmp_path / name}.db", "")
        make(engine)
        with engine.connect() as conn:
            rows = conn.execute(
                sa.text("SELECT type, name, sql FROM sqlite_master ORDER BY name")
            ).all()
            compat = conn.execute(sa.select(schema_compat)).all()
        described.append(
            ([(r.type, r.name, " ".join((r.sql or "").split())) for r in rows], compat)
        )
        assert migrate.check(engine) == []
        engine.dispose()

    assert migrate.head() == schema.REVISION
    assert described[0] == described[1]


def test_filled_first_tables_get_users(empty):
    """Level 2 adds a table and keeps every row; the program before it may still run."""
    with empty.begin() as conn:
        config = migrate._config()
        config.attributes["connection"] = conn
        command.upgrade(config, "0001")
        conn.execute(
            sa.insert(brokers).values(
                broker_id=1, host="h", port=1, http_port=2, state="online", created_ms=1 << 41
            )
        )
        conn.execute(sa.insert(signing_keys).values(key_id="k", secret=b"\0s", created_ms=3))

    migrate.upgrade(empty)

    with empty.connect() as conn:
        assert conn.execute(sa.select(brokers)).all() == [(1, "h", 1, 2, "online", 1 << 41)]
        assert conn.execute(sa.select(signing_keys)).all() == [("k", b"\0s", 3)]
        assert conn.execute(sa.select(client_secrets)).all() == []
        assert conn.execute(sa.select(schema_compat)).all() == [(1, 2, 1)]
    assert schema.refusal(empty) is None
    assert migrate.check(empty) == []
