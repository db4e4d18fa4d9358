"""Orders of the master: questions, resets and their undoing, on a real broker."""

from __future__ import annotations

import json

import pytest

from tests.broker.conftest import BrokerFixture, commit, get, register, send
from tube.broker.offsets import UNDO_MS
from tube.broker.orders import Orders
from tube.net.clock import wall_ms


async def ask(broker: BrokerFixture, later_ms: int = 0, **order: object) -> dict:
    """Carry out an order."""
    orders = Orders(broker.running.service, lambda: wall_ms() + later_ms)
    return json.loads(await orders.carry_out(json.dumps(order)))


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "[]", "1", "{}", '{"op": "reset"}', '{"op": "fly"}', '{"op": "describe", "topics": 5}',
     '{"op": "reset", "group": "g", "topic": "demo", "to": {"kind": "moon"}}',
     '{"op": "reset", "group": "g", "topic": "demo", "partitions": ["x"], "to": {"kind": "earliest"}}',
     '{"op": "reset", "group": "g", "topic": "demo", "to": 7}'],
)  # fmt: skip
async def test_malformed_orders_are_answered(broker: BrokerFixture, text: str) -> None:
    """Whatever a master says, the result is an error of 400 and the broker serves on."""
    answer = json.loads(await Orders(broker.running.service, wall_ms).carry_out(text))

    assert answer["error"]["code"] == 400


async def test_describe_tells_bounds_offsets_and_holders(broker: BrokerFixture) -> None:
    """Of the named topics, for the named group."""
    caller = await broker.connect()
    for i in range(3):
        await send(caller, b"%d" % i)
    await register(caller)
    await get(caller)
    await commit(caller, offset=2)
    answer = await ask(broker, op="describe", topics=["demo"], group="group1")
    row = answer["partitions"][0]

    assert [one["partition_id"] for one in answer["partitions"]] == [0, 1, 2, 3]
    assert (row["first"], row["next"], row["committed"], row["holder"]) == (0, 3, 2, "c1")
    assert answer["groups"] == ["group1"]
    assert len((await ask(broker, op="describe"))["partitions"]) == 7


async def test_a_reset_moves_in_any_direction_and_can_be_undone(broker: BrokerFixture) -> None:
    """It ends the hold; a dry run changes nothing; undo brings the old value back, for seven days."""
    caller = await broker.connect()
    for i in range(5):
        await send(caller, b"%d" % i)
    await register(caller)
    await get(caller)
    await commit(caller)
    to = {"kind": "offset", "value": 2}
    order = {"op": "reset", "group": "group1", "topic": "demo", "partitions": [0], "to": to}
    dry = await ask(broker, **order, dry_run=True)
    assert dry["changes"] == [{"topic": "demo", "partition_id": 0, "old": 5, "new": 2}]
    assert (await get(caller)).errCode == 404
    assert (await ask(broker, **order)) == dry
    assert (await get(caller)).errCode == 411
    assert (await register(caller)).currOffset == 2
    undo = {"op": "undo", "group": "group1"}
    assert (await ask(broker, later_ms=UNDO_MS + 60_000, **undo))["changes"] == []
    assert (await ask(broker, **undo, topic="other"))["changes"] == []
    assert [one["new"] for one in (await ask(broker, **undo))["changes"]] == [5]

    assert (await register(caller)).currOffset == 5


@pytest.mark.parametrize(
    ("to", "new"),
    [
        ({"kind": "earliest"}, 0),
        ({"kind": "latest"}, 2),
        ({"kind": "time", "value": 0}, 0),
        ({"kind": "time", "value": 2**60}, 2),
        ({"kind": "offset", "value": -5}, 0),
        ({"kind": "offset", "value": 99}, 2),
    ],
)
async def test_targets_are_moved_into_what_exists(
    broker: BrokerFixture, to: dict, new: int
) -> None:
    """Every kind of target, and offsets that are not there."""
    caller = await broker.connect()
    for _ in range(2):
        await send(caller, b"x")
    answer = await ask(broker, op="reset", group="g1", topic="demo", partitions=[0], to=to)

    assert [one["new"] for one in answer["changes"]] == [new]


async def test_forgetting_a_group_that_reads_is_refused(broker: BrokerFixture) -> None:
    """409 while a partition is held; afterwards its offsets are gone, also after a restart."""
    caller = await broker.connect()
    await send(caller, b"x")
    await register(caller)
    await get(caller)
    await commit(caller)
    assert (await ask(broker, op="forget", group="group1"))["error"]["code"] == 409
    await register(caller, opType=32, readStatus=1)
    assert await ask(broker, op="forget", group="group1") == {}
    await broker.stop()
    await broker.start()

    assert (await register(await broker.connect())).currOffset == 0
