"""One master leads; the other stands by, says so, and takes over."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import sqlalchemy as sa
from twisted.internet import reactor

from tests.master.conftest import configuration
from tests.master.peers import Http, Peer, assigned, eventually, serving
from tube.config import HttpConfig
from tube.errors import ConfigError, SchemaError, StaleEpochError, StandbyError, StoreError
from tube.master import app
from tube.master.db import groups, lease
from tube.master.db.lease import Candidate
from tube.net.caller import connect
from tube.net.daemon import PortInUseError
from tube.pb import MasterService_pb2 as pb
from tube.values import Address
from tube.wire.rpc import Method


async def _serve(tmp_path, stack, **options):
    config = configuration(tmp_path, **({"lease_s": 0.5} | options))
    master = await app.serve(reactor, config, stack, upgrade=True)
    caller = await connect(reactor, Address("127.0.0.1", master.port))
    stack.callback(caller.close)
    return master, Peer(caller), Http(master.http_port)


async def test_a_standby_refuses_every_call_with_the_original_s_text(tmp_path):
    """Clients look for the class name; the text names master and client."""
    async with AsyncExitStack() as stack:
        leader, _, _ = await _serve(tmp_path, stack)
        standby, peer, http = await _serve(tmp_path, stack)
        calls = [
            lambda: peer.join("a"),
            lambda: peer.beat("a"),
            lambda: peer.produce("a"),
            peer.broker,
            lambda: peer.call(
                Method.CLOSE_CONSUMER,
                pb.CloseRequestC2M(clientId="a", groupName="gg"),
                pb.CloseResponseM2C,
            ),
        ]
        for call in calls:
            with pytest.raises(StandbyError) as refused:
                await call()
            text = str(refused.value)
            assert (
                f"127.0.0.1:{standby.port} is not master now. the connecting client id is" in text
            )

        answer = await http("GET", "/api/v1/topics")
        assert http.last_status == 503
        assert f"127.0.0.1:{leader.http_port}" in answer["error"]["hint"]
        assert (await http("GET", "/api/v1/status"))["role"] == "standby"
        ready = await http("GET", "/readyz")
        assert (http.last_status, ready["ready"]) == (503, False)
        assert (await http("GET", "/healthz")) == "ok\n"


async def test_a_standby_takes_over_what_was_stored(tmp_path):
    """With the next epoch; partitions of groups that had members wait for their reports."""
    async with AsyncExitStack() as stack:
        async with AsyncExitStack() as first:
            _, peer, http = await _serve(tmp_path, first)
            await serving(peer, http)
            await peer.join("a")
            held = await assigned(peer, "a")
        second, peer, http = await _serve(tmp_path, stack, take_over_wait_s=1.0)
        status = await http("GET", "/api/v1/status")
        assert (status["role"], status["epoch"]) == ("leader", 2)
        seen = await peer.broker_beat(await peer.broker())
        await peer.broker_beat(seen)
        assert (await peer.beat("a")).errCode == 411
        await peer.join("b")
        assert not (await peer.beat("b", wait_ms=200)).HasField("event")
        await peer.join("a", subscribeInfo=held)
        shown = await http("GET", "/api/v1/groups/readers/explain")
        assert "time to report" in shown["summary"]

        told = await peer.beat("a", wait_ms=4000)

        assert told.event.opType == 20
        assert len(told.event.subscribeInfo) == 2
        assert told.event.rebalanceId > 2 << 32
        assert second.core.leader.epoch == 2


async def test_a_new_group_does_not_wait_after_a_fail_over(tmp_path):
    """Nobody can hold anything of it."""
    async with AsyncExitStack() as stack:
        async with AsyncExitStack() as first:
            _, peer, http = await _serve(tmp_path, first)
            await serving(peer, http)
        _, peer, _ = await _serve(tmp_path, stack)
        await peer.broker_beat(await peer.broker())
        await peer.join("a")

        assert len((await peer.beat("a", wait_ms=2000)).event.subscribeInfo) == 4


async def test_a_deposed_leader_steps_down_at_its_first_write(tmp_path):
    """Its writes are rolled back, and it answers as a standby."""
    async with AsyncExitStack() as stack:
        master, peer, http = await _serve(tmp_path, stack, lease_s=30.0)
        await serving(peer, http)
        other = Candidate(holder="other", address="o:1", http_address="o:2", ttl_ms=60_000)
        with master.core.database.engine.begin() as conn:
            conn.execute(sa.text("UPDATE leases SET expires_at_ms = 0"))
            assert lease.take_or_renew(conn, other).epoch == 2

        with pytest.raises(StandbyError):
            await peer.join("a", "fresh")

        assert not master.core.leader.leads
        answer = await http("POST", "/api/v1/topics", {"name": "more"})
        assert http.last_status == 503, answer
        with master.core.database.engine.begin() as conn:
            assert [row.name for row in groups.all_groups(conn)] == []


async def test_a_leader_without_a_database_ends_with_its_lease(tmp_path):
    """It cannot know whether another leads; when the database is back it leads again, in a new epoch."""
    async with AsyncExitStack() as stack:
        master, peer, _ = await _serve(tmp_path, stack)
        with master.core.database.engine.begin() as conn:
            conn.execute(sa.text("ALTER TABLE leases RENAME TO away"))
        await eventually(lambda: not master.core.leader.leads)
        with pytest.raises(StandbyError):
            await peer.produce()
        assert master.core.leader.database_fails
        with master.core.database.engine.begin() as conn:
            conn.execute(sa.text("ALTER TABLE away RENAME TO leases"))

        await eventually(lambda: master.core.leader.leads)

        assert master.core.leader.epoch == 2
        assert (await peer.produce()).epoch == 2


async def test_a_held_heartbeat_ends_when_the_leader_does(tmp_path):
    """The client looks for the other master at once."""
    async with AsyncExitStack() as stack:
        master, peer, http = await _serve(tmp_path, stack, lease_s=30.0)
        await serving(peer, http)
        await peer.join("a")
        await assigned(peer, "a")
        from twisted.internet.defer import Deferred

        waiting = Deferred.fromCoroutine(peer.beat("a", wait_ms=9000))
        await eventually(lambda: len(master.core.held_consumers))
        master.core.leader.step_down("a test")

        with pytest.raises(StandbyError):
            await waiting


async def test_a_master_refuses_a_database_without_schema(tmp_path):
    """One line, and what to do."""
    async with AsyncExitStack() as stack:
        with pytest.raises(SchemaError) as refused:
            await app.serve(reactor, configuration(tmp_path), stack)
        assert refused.value.hint == "run: tube db upgrade"


async def test_a_master_that_cannot_start_says_why(tmp_path):
    """Database, secret files, ports."""
    empty = tmp_path / "empty"
    empty.write_text("")
    for options, kind in (
        ({"database": f"sqlite:///{tmp_path}/no/such/dir.db"}, StoreError),
        ({"database": "garbage"}, ConfigError),
        ({"password_file": str(tmp_path / "nosuch")}, ConfigError),
        ({"http": HttpConfig(port=0, admin_token_file=str(empty))}, ConfigError),
        ({"host": "203.0.113.1"}, PortInUseError),
    ):
        async with AsyncExitStack() as stack:
            with pytest.raises(kind):
                await app.serve(reactor, configuration(tmp_path, **options), stack, upgrade=True)


def test_a_stale_epoch_is_not_a_standby():
    """The gateway turns the one into the other."""
    assert not issubclass(StaleEpochError, StandbyError)
