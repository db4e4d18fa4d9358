"""The history is written in batches, and survives what clients call themselves."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from pytest_twisted import async_yield_fixture
from twisted.internet import reactor

from tests.master.db.test_lease import candidate
from tube.master.chronicle import Chronicle
from tube.master.database import Database
from tube.master.db import lease
from tube.net.workers import workers


@async_yield_fixture
async def chronicle(engine):
    """On a database where we lead in epoch 1; ``stale`` counts how often we were told otherwise."""
    with engine.begin() as conn:
        lease.take_or_renew(conn, candidate("a", ttl_ms=-1))
    async with workers(reactor, "sql", 2) as sql:
        stale: list[int] = []
        made = Chronicle(
            reactor, Database(engine, sql), lambda: 5, lambda: 1, lambda: stale.append(1)
        )
        made.stale_calls = stale
        yield made
        made.stop()


async def read(chronicle, **options):
    values = {"group": None, "kind": None, "after": None, "limit": 5000, "wait_s": 0} | options
    return await chronicle.read(**values)


async def test_what_was_noted_is_read_in_order(chronicle):
    """Reading waits for what is on its way; also for more than one batch."""
    for i in range(2500):
        chronicle.note("join", group="g", partition_id=i)

    rows = await read(chronicle)

    assert [row.partition_id for row in rows] == list(range(2500))
    assert {(row.at_ms, row.kind, row.group) for row in rows} == {(5, "join", "g")}


async def test_a_name_with_a_nul_does_not_cost_the_batch(chronicle):
    """PostgreSQL would refuse all of it."""
    chronicle.note("join", client_id="a\0b", reason="\0", detail="\0")
    chronicle.note("leave")

    assert [row.kind for row in await read(chronicle)] == ["join", "leave"]
    assert chronicle.dropped == 0


async def test_a_deposed_master_writes_no_history(chronicle, engine):
    """And learns that it is deposed."""
    with engine.begin() as conn:
        lease.take_or_renew(conn, candidate("b"))
    chronicle.note("join")

    assert await read(chronicle) == []
    assert chronicle.stale_calls == [1]


@pytest.mark.parametrize("empty_url", ["sqlite"], indirect=True)
async def test_events_are_counted_when_the_database_is_away(chronicle, engine):
    """The master goes on."""
    with engine.begin() as conn:
        conn.execute(sa.text("ALTER TABLE history RENAME TO away"))
    chronicle.note("join")

    await chronicle.flush()

    assert chronicle.dropped == 1
