"""The verbs of the broker where several things happen at once."""

from __future__ import annotations

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.broker.conftest import BrokerFixture, commit, get, register, send
from tests.broker.raw import eventually
from tube.broker.holders import Claim
from tube.errors import NotRegisteredError, OffsetOutOfRangeError
from tube.values import ClientId, GroupName
from tube.wire.flow import FlowControl, VolumeRule
from tube.wire.settings import TopicConfig

CLAIM, CLIENT = Claim(GroupName("group1"), "demo", 0), ClientId("c1")


async def test_a_waiting_pull_gets_the_message_at_once(broker: BrokerFixture) -> None:
    """It parks without blocking other calls of its connection."""
    caller = await broker.connect()
    await register(caller)
    waiting = Deferred.fromCoroutine(get(caller, wait_ms=4000, manualCommitOffset=True))
    await eventually(lambda: broker.running.service.reader._waiting)
    assert (await send(caller, b"now")).success

    assert [m.payLoadData for m in (await waiting).messages] == [b"now"]


async def test_a_later_pull_takes_over(broker: BrokerFixture) -> None:
    """Two pulls of one holder: the first ends with 404, only the second gets the message."""
    caller = await broker.connect()
    await register(caller)
    first = Deferred.fromCoroutine(get(caller, wait_ms=4000, manualCommitOffset=True))
    second = Deferred.fromCoroutine(get(caller, wait_ms=4000, manualCommitOffset=True))
    await send(caller, b"x")

    assert ((await first).errCode, (await second).errCode) == (404, 200)


@pytest.mark.parametrize("how", ["released", "reset", "closed", "deleted"])
async def test_a_waiting_pull_ends_with_its_hold(broker: BrokerFixture, how: str) -> None:
    """Whatever takes the partition away, the pull is answered at once and gives nothing."""
    caller, other = await broker.connect(), await broker.connect()
    await register(caller)
    waiting = Deferred.fromCoroutine(get(caller, wait_ms=4500, manualCommitOffset=True))
    await eventually(lambda: broker.running.service.reader._waiting)
    if how == "released":
        await register(other, opType=32, readStatus=1)
    elif how == "reset":
        await broker.running.service.reset(CLAIM, 0)
    elif how == "closed":
        await broker.configure(TopicConfig(topic="demo", num_partitions=4, accept_subscribe=False))
    else:
        await broker.configure(TopicConfig(topic="quick"))
    answer = await waiting.addTimeout(2, reactor)

    assert answer.errCode in (403, 411)
    assert not answer.messages


async def test_a_hold_that_is_taken_again_ends_the_old_pull(broker: BrokerFixture) -> None:
    """The same client registers anew (after a seek): its older pull must not move the new position."""
    caller = await broker.connect()
    await register(caller)
    waiting = Deferred.fromCoroutine(get(caller, wait_ms=3000, manualCommitOffset=True))
    await eventually(lambda: broker.running.service.reader._waiting)
    await register(caller)
    await send(caller, b"x")

    assert (await waiting).errCode == 411
    assert [m.payLoadData for m in (await get(caller)).messages] == [b"x"]


async def test_commits_do_not_move_back_nor_beyond_the_end(broker: BrokerFixture) -> None:
    """An older offset is answered with where the group is; one after the end is refused."""
    caller = await broker.connect()
    for _ in range(3):
        await send(caller, b"x")
    await register(caller)
    assert (await commit(caller, offset=3)).currOffset == 3
    assert (await commit(caller, offset=1)).currOffset == 3

    assert (await commit(caller, offset=4)).errCode == 400


async def test_flow_control_makes_a_lagging_group_wait(broker: BrokerFixture) -> None:
    """452 with the wait; when the hold ends what was measured is forgotten."""
    service = broker.running.service
    service.flow.set_default(FlowControl(volumes=(VolumeRule(0, 1440, 0, 0, 700),)))
    caller = await broker.connect()
    await send(caller, bytes(5000))
    await register(caller)
    limited = await get(caller)
    assert (limited.errCode, limited.minLimitTime) == (452, 700)
    assert (await get(caller, escFlowCtrl=True)).errCode == 452  # Go clients always ask to escape
    service.flow.set_default(FlowControl(volumes=(VolumeRule(0, 1440, 0, 1, 700),)))
    assert (await get(caller)).errCode == 200
    assert service.flow._meters
    await register(caller, opType=32, readStatus=1)

    assert not service.flow._meters


async def test_fetch_reads_without_a_hold(broker: BrokerFixture) -> None:
    """Any range, with or without a wait; offsets that are not there are refused."""
    caller = await broker.connect()
    for i in range(4):
        await send(caller, b"%d" % i)
    service = broker.running.service
    options = {"bytes_max": 1 << 20, "wait_ms": 0, "filters": frozenset()}
    some = await service.fetch("demo", 0, 1, end_offset=3, **options)
    assert (some.cut.count, some.cut.next_offset, some.end_offset) == (2, 3, 4)
    empty = await service.fetch("demo", 0, 4, end_offset=None, **options)
    assert (empty.cut.count, empty.cut.next_offset) == (0, 4)
    for offset in (-1, 5):
        with pytest.raises(OffsetOutOfRangeError):
            await service.fetch("demo", 0, offset, end_offset=None, **options)

    assert len(service.holders) == 0


async def test_heartbeats_of_strangers_are_named(broker: BrokerFixture) -> None:
    """A claim that nobody holds, and one that somebody else holds."""
    caller = await broker.connect()
    await register(caller)
    service = broker.running.service
    assert service.holds(CLAIM, CLIENT)
    assert not service.holds(CLAIM, ClientId("c2"))
    failures = service.heartbeat([CLAIM, CLAIM._replace(partition_id=1)], CLIENT)

    assert [type(error) for _, error in failures] == [NotRegisteredError]
