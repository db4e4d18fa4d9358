"""Starting, stopping and disk trouble of a whole broker."""

from __future__ import annotations

import errno
import json
import urllib.error
import urllib.request
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from tests.broker.conftest import BrokerFixture, commit, get, register, send
from tests.broker.raw import eventually
from tests.log.disks import FailingDisk
from tube.broker.app import serve
from tube.broker.holders import Claim
from tube.config import BrokerConfig, load
from tube.errors import ConfigError, StoreInUseError
from tube.net.daemon import PortInUseError
from tube.values import GroupName


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    """The disk of brokers that start from here on; it fails when the test says so."""
    failing = FailingDisk()
    monkeypatch.setattr("tube.log.values.FileSystem", lambda: failing)
    monkeypatch.setattr("tube.broker.app.LogOptions", _options_on(failing))
    return failing


def _options_on(disk: FailingDisk):
    from tube.log.values import LogOptions

    return lambda **given: LogOptions(disk=disk, **given)


async def http(port: int, path: str) -> tuple[int, str]:
    """Status and body of a GET."""

    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await deferToThread(ask)


async def test_a_full_disk_refuses_sends_and_serves_reads(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """419 for sends, retriable; pulls and waits go on; when there is room again nothing needs a restart."""
    broker = BrokerFixture(tmp_path / "broker")
    await broker.start()
    try:
        caller = await broker.connect()
        await send(caller, b"before")
        await register(caller)
        disk.fill()
        refused = await send(caller, b"no room")
        assert (refused.success, refused.errCode) == (False, 419)
        assert [m.payLoadData for m in (await get(caller)).messages] == [b"before"]
        assert (await commit(caller)).errCode == 419
        disk.heal()
        assert (await send(caller, b"room again")).success
        assert (await commit(caller)).errCode == 200
        assert (await register(caller)).currOffset == 1
    finally:
        disk.heal()
        await broker.stop()


async def test_nothing_is_acknowledged_after_a_failed_sync(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """EIO on sync: that send and all after it fail; reads go on; readiness says why; a restart heals."""
    broker = BrokerFixture(tmp_path / "broker")
    await broker.start()
    try:
        caller = await broker.connect()
        await send(caller, b"kept")
        disk.error = {"fdatasync": errno.EIO}
        assert (await send(caller, b"lost")).success is False
        disk.heal()
        again = await send(caller, b"still no")
        assert (again.success, again.errCode) == (False, 419)
        await register(caller)
        status, text = await http(broker.running.http_port, "/readyz")
        assert status == 503
        assert "read-only" in text
        await broker.stop()
        await broker.start()
        caller = await broker.connect()
        assert (await send(caller, b"healed")).success
        await register(caller)
        values = [m.payLoadData for m in (await get(caller)).messages]
        assert values[0] == b"kept"
        assert values[-1] == b"healed"
        assert b"still no" not in values
    finally:
        disk.heal()
        await broker.stop()


async def test_offsets_beyond_the_end_are_moved_back_at_start(tmp_path: Path) -> None:
    """A power cut took messages of a `written` topic but not the commit: new messages are not passed over."""
    broker = BrokerFixture(tmp_path / "broker")
    await broker.start()
    try:
        caller = await broker.connect()
        for i in range(3):
            await send(caller, b"%d" % i)
        claim = Claim(GroupName("group1"), "demo", 0)
        await broker.running.service.ledger.commit(claim, 1, 10)
        gone = Claim(GroupName("group1"), "gone", 0)
        await broker.running.service.ledger.commit(gone, 99, 10)
        for _ in range(2):  # the second start finds it written down
            await broker.stop()
            await broker.start()
            assert broker.running.service.offsets.get(claim, 1) == 3
        assert broker.running.service.offsets.get(gone, 99) == 10
        caller = await broker.connect()
        await send(caller, b"3")
        await register(caller)

        assert [m.payLoadData for m in (await get(caller)).messages] == [b"3"]
    finally:
        await broker.stop()


async def test_a_foreign_or_newer_directory_is_one_error(
    broker: BrokerFixture, tmp_path: Path
) -> None:
    """In use, of another broker, of a newer format: refused by name, and nothing is left open."""
    for broker_id in (1, 2):
        with pytest.raises(StoreInUseError):
            await _start(broker.directory, broker_id)
    await broker.stop()
    with pytest.raises(StoreInUseError, match="broker 1"):
        await _start(broker.directory, 2)
    identity = broker.directory / "identity"
    content = identity.read_text()
    facts = json.loads(content)
    facts["format"] = 99
    identity.write_text(json.dumps(facts))
    with pytest.raises(StoreInUseError, match="format"):
        await _start(broker.directory, 1)
    identity.write_text(content)

    await broker.start()


async def _start(directory: Path, broker_id: int, port: int = 0, *sets: str) -> None:
    config = load(
        BrokerConfig,
        {"broker_id": broker_id, "port": port, "masters": ["127.0.0.1:1"], "http": {"port": -1}},
        [f"log.data_dir={directory}", *sets],
    )
    async with AsyncExitStack() as stack:
        await serve(reactor, config, stack)


async def test_a_port_in_use_is_one_error_and_unlocks_the_directory(
    broker: BrokerFixture, tmp_path: Path
) -> None:
    """What was started before the port is stopped again: the directory can be used at once."""
    other = tmp_path / "other"
    with pytest.raises(PortInUseError, match=str(broker.running.port)):
        await _start(other, 2, broker.running.port)
    with pytest.raises(ConfigError):
        await _start(other, 2, 0, 'masters=["nonsense"]')

    await _start(other, 2)


async def test_health_and_metrics(broker: BrokerFixture) -> None:
    """/healthz is fine, /readyz says that no master knows the broker, /metrics count what was done."""
    caller = await broker.connect()
    await send(caller, b"hello")
    await register(caller)
    await get(caller)
    port = broker.running.http_port
    assert await http(port, "/healthz") == (200, "ok\n")
    status, text = await http(port, "/readyz")
    assert (status, json.loads(text)["reasons"]) == (503, ["no master knows this broker"])
    status, text = await http(port, "/metrics")
    lines = text.splitlines()

    assert status == 200
    for line in (
        "tube_broker_appended_messages_total 1.0",
        "tube_broker_pulled_messages_total 1.0",
        "tube_broker_holds 1.0",
        "tube_broker_connections 1.0",
        "tube_broker_registered 0.0",
        "tube_broker_read_only 0.0",
        'tube_broker_next_offset{partition="0",topic="demo"} 1.0',
    ):
        assert line in lines


async def test_a_stop_answers_what_is_in_flight(broker: BrokerFixture) -> None:
    """Waiting pulls end with 404, sends on their way are acknowledged, and are there after the start."""
    caller = await broker.connect()
    await register(caller)
    waiting = Deferred.fromCoroutine(get(caller, wait_ms=4000, manualCommitOffset=True))
    sending = Deferred.fromCoroutine(send(caller, b"last", partition_id=1))
    await eventually(lambda: broker.running.service.reader._waiting)
    callers, broker.callers = broker.callers, []
    await broker.stop()

    assert (await waiting).errCode == 404
    assert (await sending).errCode == 200
    assert callers[0].closed
    await broker.start()
    assert broker.running.store.bounds(1, 1).next_offset == 1
