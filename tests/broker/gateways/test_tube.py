"""TubeMQ calls on a real socket: served as the specification says, refused with its numbers."""

from __future__ import annotations

from twisted.internet.defer import gatherResults

from tests.broker.conftest import BrokerFixture, commit, get, register, send
from tube.pb import BrokerService_pb2 as pb
from tube.wire.rpc import Method


async def test_a_message_is_acknowledged_pulled_and_committed(broker: BrokerFixture) -> None:
    """The whole life of a message, with the fields that old clients look at."""
    caller = await broker.connect()
    sent = await send(caller, b"hello")
    assert (sent.success, sent.errCode, sent.errMsg) == (True, 200, str(sent.messageId))
    assert (sent.appendOffset, sent.durable) == (0, True)
    registered = await register(caller)
    assert (registered.currOffset, registered.maxOffset) == (0, 1)
    for _ in range(2):  # repeated until it is committed
        pulled = await get(caller)
        assert [m.payLoadData for m in pulled.messages] == [b"hello"]
        assert (pulled.errCode, pulled.currOffset, pulled.maxOffset) == (200, 0, 1)
        assert pulled.messages[0].messageId == sent.messageId
        assert not pulled.spans
    committed = await commit(caller)
    assert (committed.errCode, committed.currOffset, committed.maxOffset) == (200, 1, 1)
    again = await commit(caller)
    assert again.currOffset == 1

    assert (await get(caller)).errCode == 404


async def test_many_in_flight_are_answered_each(broker: BrokerFixture) -> None:
    """Two hundred sends on one connection to several partitions: every one is there, once."""
    caller = await broker.connect()
    answers = await gatherResults(
        [_deferred(send(caller, b"%d" % i, partition_id=i % 4)) for i in range(200)]
    )
    assert len({a.messageId for a in answers}) == 200
    assert all(a.success for a in answers)
    got = []
    for partition_id in range(4):
        await register(caller, partition_id=partition_id)
        pulled = await get(caller, partition_id=partition_id)
        got += [int(m.payLoadData) for m in pulled.messages]
        assert got == sorted(got, key=lambda i: (i % 4, i))

    assert sorted(got) == list(range(200))


async def test_messages_and_offsets_survive_a_restart(broker: BrokerFixture) -> None:
    """What was acknowledged and committed before the stop is there after the start."""
    caller = await broker.connect()
    for i in range(5):
        await send(caller, b"%d" % i)
    await register(caller)
    await get(caller)
    await commit(caller, offset=3)
    await broker.stop()
    await broker.start()
    caller = await broker.connect()
    registered = await register(caller)

    assert (registered.currOffset, registered.maxOffset) == (3, 5)
    assert [m.payLoadData for m in (await get(caller)).messages] == [b"3", b"4"]


async def test_a_partition_has_one_consumer_of_a_group(broker: BrokerFixture) -> None:
    """410 on register, 412 on pull, 401 on commit, 411 where nobody is; other groups do not mind."""
    caller = await broker.connect()
    await send(caller, b"x")
    assert (await get(caller)).errCode == 411
    await register(caller)
    refused = await register(caller, client="c2")
    assert (refused.success, refused.errCode, refused.currOffset) == (False, 410, -1)
    assert (await get(caller, client="c2")).errCode == 412
    assert (await commit(caller, client="c2")).errCode == 401
    assert (await register(caller, client="c2", group="group2")).errCode == 200
    assert (await register(caller, opType=32, readStatus=1)).errCode == 200
    assert (await register(caller, opType=32, readStatus=1)).errCode == 411

    assert (await register(caller, client="c2")).errCode == 200


async def test_unregistering_commits_or_rolls_back(broker: BrokerFixture) -> None:
    """readStatus 0 keeps what was given, 1 gives it again."""
    caller = await broker.connect()
    await send(caller, b"x")
    for read_status, expected in ((1, 0), (0, 1)):
        await register(caller)
        await get(caller)
        await register(caller, opType=32, readStatus=read_status)
        assert (await register(caller)).currOffset == expected


async def test_push_style_pulls_commit_what_came_before(broker: BrokerFixture) -> None:
    """lastPackConsumed commits the last batch; manualCommitOffset goes on without a commit."""
    caller = await broker.connect()
    await register(caller)
    await send(caller, b"1")
    assert (await get(caller)).currOffset == 0
    await send(caller, b"2")
    assert (await get(caller, lastPackConsumed=True)).currOffset == 1
    await send(caller, b"3")
    assert (await get(caller, manualCommitOffset=True)).currOffset == 2

    assert (await commit(caller)).currOffset == 3


async def test_start_positions(broker: BrokerFixture) -> None:
    """A new group starts at the first, or at the end; an asked offset is moved into what exists."""
    caller = await broker.connect()
    for i in range(3):
        await send(caller, b"%d" % i)
    assert (await register(caller, group="g_first")).currOffset == 0
    assert (await register(caller, group="g_last", readStatus=1)).currOffset == 3
    await send(caller, b"3")
    assert (await register(caller, group="g_last", readStatus=1)).currOffset == 3
    assert (await register(caller, group="g_last", readStatus=2)).currOffset == 4
    assert (await register(caller, group="g_want", currOffset=2)).currOffset == 2

    assert (await register(caller, group="g_want", currOffset=99)).currOffset == 4


async def test_filters_give_only_their_messages(broker: BrokerFixture) -> None:
    """Pulls pass over what does not match, even when nothing does."""
    caller = await broker.connect()
    for i in range(6):
        await send(caller, b"%d" % i, msgType=f"t{i % 2}")
    await register(caller, filterCondStr=["t1"])
    pulled = await get(caller)
    assert [m.payLoadData for m in pulled.messages] == [b"1", b"3", b"5"]
    assert (await commit(caller)).currOffset == 6
    await register(caller, group="g_none", filterCondStr=["t9"])
    empty = await get(caller, group="g_none")

    assert (empty.errCode, len(empty.messages)) == (200, 0)
    assert (await get(caller, group="g_none")).errCode == 404


async def test_refused_sends_say_why(broker: BrokerFixture) -> None:
    """Empty, too large, unknown topic or partition, wrong checksum, lying attributes; the rest goes on."""
    caller = await broker.connect()
    cases = [
        (b"", {}, 400, "empty"),
        (bytes(1024 * 1024 + 10 * 1024 + 1), {}, 400, "takes 1048576"),
        (b"x", {"topic": "none"}, 403, "'none' is not on this broker"),
        (b"x", {"partition_id": 99}, 403, "no partition 99"),
        (b"x", {"partition_id": -1}, 403, "no partition -1"),
        (b"x", {"checkSum": 5}, 403, "checksum 5"),
        (b"\x00\x00\x00\x09x", {"flag": 1}, 400, "attributes have 9 bytes"),
        (b"x", {"msgType": "t" * 2000}, 400, "2000 characters"),
    ]
    for data, fields, code, text in cases:
        answer = await send(caller, data, **fields)
        assert (answer.success, answer.errCode) == (False, code)
        assert text in answer.errMsg

    assert (await send(caller, b"fine")).appendOffset == 0


async def test_heartbeats_name_the_partitions_that_are_lost(broker: BrokerFixture) -> None:
    """411 for a partition nobody holds, 412 for somebody else's."""
    caller = await broker.connect()
    await register(caller, partition_id=0)
    await register(caller, partition_id=1, client="c2")
    texts = [f"1:127.0.0.1:8123#demo:{n}" for n in (0, 1, 2)]
    request = pb.HeartBeatRequestC2B(
        clientId="c1", groupName="group1", readStatus=0, partitionInfo=texts
    )
    body = await caller.call(Method.HEARTBEAT_PARTITIONS, request.SerializeToString(), 5)
    answer = pb.HeartBeatResponseB2C.FromString(body)

    assert (answer.success, answer.hasPartFailure) == (True, True)
    assert list(answer.failureInfo) == [f"412:{texts[1]}", f"411:{texts[2]}"]


def _deferred(coroutine):
    from twisted.internet.defer import Deferred

    return Deferred.fromCoroutine(coroutine)
