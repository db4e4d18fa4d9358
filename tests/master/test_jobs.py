"""The jobs of the calendar are plain functions."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tests.master.db.test_lease import TOPIC, candidate
from tube.master.db import groups, history, lease, topics
from tube.master.db.history import HistoryRow
from tube.master.jobs import DAY_MS, Jobs

NOW_MS = 1_800_000_000_000


@pytest.fixture
def jobs(engine):
    with engine.begin() as conn:
        lease.take_or_renew(conn, candidate("a", ttl_ms=-1))
    epochs = [1]
    made = Jobs(engine, lambda: epochs[0], lambda: NOW_MS, history_days=1.0, history_rows_max=1000)
    made.epochs = epochs
    return made


def test_what_is_old_is_deleted(engine, jobs):
    """Events, topics without data, groups that nobody used."""
    with engine.begin() as conn:
        old, new = (HistoryRow(at_ms=NOW_MS - age, kind="join") for age in (2 * DAY_MS, 0))
        history.append(conn, 1, [old, new])
        topic = topics.add(conn, 1, TOPIC, {1: 1})
        topics.removed_at(conn, 1, topic.row.topic_id, 1, NOW_MS - 40 * DAY_MS)
        groups.add(conn, 1, "old", NOW_MS - 100 * DAY_MS)

    jobs.trim()

    with engine.begin() as conn:
        assert history.count(conn) == 1
        assert groups.all_groups(conn) == []
        assert conn.execute(sa.text("SELECT count(*) FROM topics")).scalar_one() == 0


@pytest.mark.parametrize("deposed", [False, True])
def test_a_standby_leaves_it_to_the_leader(engine, jobs, deposed):
    """It does nothing, also when it has not heard yet that it is deposed."""
    with engine.begin() as conn:
        history.append(conn, 1, [HistoryRow(at_ms=0, kind="join")])
        if deposed:
            lease.take_or_renew(conn, candidate("b"))
    jobs.epochs[0] = 1 if deposed else 0

    jobs.trim()
    jobs.note_day()

    with engine.begin() as conn:
        assert history.count(conn) == 1
        assert conn.execute(sa.text("SELECT count(*) FROM statistics")).scalar_one() == 0


def test_a_day_has_a_row(engine, jobs):
    """In UTC."""
    jobs.note_day()

    with engine.begin() as conn:
        days = conn.execute(sa.text("SELECT day FROM statistics")).scalars().all()
    assert days == ["2027-01-15"]
