"""The lease has one holder per epoch, and fences everybody else."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from tube.errors import StaleEpochError
from tube.master.db import brokers, engine, groups, history, keys, lease, statistics, topics
from tube.master.db.groups import RuleRow
from tube.master.db.history import HistoryRow
from tube.master.db.keys import KeyRow
from tube.master.db.lease import Candidate
from tube.master.values import BrokerRow, TopicRow

BROKER = BrokerRow(broker_id=1, host="h", port=1, http_port=0, state="online", created_ms=0)
TOPIC = TopicRow(
    topic_id=0,
    name="demo",
    status="normal",
    durable=True,
    retention="delete,1h",
    retention_bytes=0,
    max_message_bytes=1000,
    accept_publish=True,
    accept_subscribe=True,
    created_ms=1,
)


def candidate(holder, ttl_ms=60_000):
    return Candidate(
        holder=holder, address=f"{holder}:1", http_address=f"{holder}:2", ttl_ms=ttl_ms
    )


def test_a_lease_is_kept_by_renewing_and_taken_after_its_end(engine):
    """The epoch stays while the holder renews, and grows with each change."""
    with engine.begin() as conn:
        assert lease.read(conn) is None
        assert lease.take_or_renew(conn, candidate("a")).epoch == 1
        assert lease.take_or_renew(conn, candidate("b")).holder == "a"
        renewed = lease.take_or_renew(conn, candidate("a", ttl_ms=-1))
    assert (renewed.holder, renewed.epoch) == ("a", 1)

    with engine.begin() as conn:
        taken = lease.take_or_renew(conn, candidate("b"))

    assert (taken.holder, taken.epoch, taken.address, taken.http_address) == ("b", 2, "b:1", "b:2")


def test_the_one_that_let_its_lease_end_begins_a_new_epoch(engine):
    """Whatever it did before, others may have led in between."""
    with engine.begin() as conn:
        lease.take_or_renew(conn, candidate("a", ttl_ms=-1))
        assert lease.take_or_renew(conn, candidate("a")).epoch == 2


def test_a_released_lease_is_free_at_once(engine):
    """A stop in order costs no time; nobody releases another's lease."""
    with engine.begin() as conn:
        lease.take_or_renew(conn, candidate("a"))
        lease.release(conn, "b")
        assert lease.take_or_renew(conn, candidate("b")).holder == "a"
        lease.release(conn, "a")
        assert lease.take_or_renew(conn, candidate("b")).epoch == 2


def test_the_time_of_the_lease_is_the_database_s(engine):
    """Its end is as far from the database's clock as was asked for."""
    with engine.begin() as conn:
        before = lease.now_ms(conn)
        found = lease.take_or_renew(conn, candidate("a", ttl_ms=5000))

        assert before + 5000 <= found.expires_at_ms <= lease.now_ms(conn) + 5000


WRITES = [
    lambda conn: brokers.put(conn, 1, BROKER),
    lambda conn: brokers.set_state(conn, 1, 1, "offline"),
    lambda conn: topics.add(conn, 1, TOPIC, {1: 1}),
    lambda conn: topics.change(conn, 1, TOPIC, {}),
    lambda conn: topics.removed_at(conn, 1, 1, 1, 0),
    lambda conn: topics.forget_gone(conn, 1, 0),
    lambda conn: groups.add(conn, 1, "g", 0),
    lambda conn: groups.mark(conn, 1, ["g"], True, 0),
    lambda conn: groups.delete(conn, 1, "g"),
    lambda conn: groups.forget_old(conn, 1, 0),
    lambda conn: groups.set_rules(conn, 1, RuleRow(scope="", check_id=1, rules=" ")),
    lambda conn: history.append(conn, 1, [HistoryRow(at_ms=0, kind="join")]),
    lambda conn: history.trim(conn, 1, before_ms=0, rows_max=1),
    lambda conn: keys.add(conn, 1, KeyRow(key_id="k", secret=b"s", created_ms=0), keep=1),
    lambda conn: statistics.note_day(conn, 1, "2026-01-01"),
]


@pytest.mark.parametrize("write", WRITES)
def test_every_write_of_a_deposed_master_is_refused(engine, write):
    """The epoch is checked in the transaction of the write."""
    with engine.begin() as conn:
        lease.take_or_renew(conn, candidate("a", ttl_ms=-1))
        lease.take_or_renew(conn, candidate("b"))

    with engine.begin() as conn, pytest.raises(StaleEpochError):
        write(conn)


def test_two_masters_never_lead_in_one_epoch(empty_url, engine):
    """Threads that fight for a short lease: each epoch has one holder."""
    seen: dict[int, set[str]] = {}
    lock = threading.Lock()

    def fight(holder: str) -> None:
        for _ in range(40):
            try:
                with engine.begin() as conn:
                    found = lease.take_or_renew(conn, candidate(holder, ttl_ms=1))
            except sa.exc.IntegrityError:  # both inserted the first row
                continue
            with lock:
                seen.setdefault(found.epoch, set()).add(found.holder)

    threads = [threading.Thread(target=fight, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(len(holders) == 1 for holders in seen.values())
    assert len(seen) > 1


def test_a_memory_database_is_refused():
    """Each thread would see a database of its own."""
    from tube.errors import ConfigError

    for url in ("sqlite://", "nonsense", "nosuchdialect://x"):
        with pytest.raises(ConfigError):
            engine.create(url)
