"""The JSON API over a real socket, with a real broker behind it where offsets matter."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from pytest_twisted import async_yield_fixture
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.master.conftest import configuration
from tests.master.peers import Http, Peer, assigned, eventually, serving
from tube.broker import app as broker_app
from tube.config import BrokerConfig, HttpConfig, LogConfig
from tube.master import app
from tube.net.caller import connect
from tube.pb import BrokerService_pb2 as broker_pb
from tube.values import Address
from tube.wire import records
from tube.wire.rpc import Method

API = "/api/v1"


@async_yield_fixture
async def world(tmp_path):
    """A master and a real broker with one topic of two partitions: peer, broker's peer, http."""
    async with AsyncExitStack() as stack:
        master = await app.serve(reactor, configuration(tmp_path), stack, upgrade=True)
        config = BrokerConfig(
            broker_id=1,
            port=0,
            masters=[f"127.0.0.1:{master.port}"],
            http=HttpConfig(port=-1),
            log=LogConfig(data_dir=str(tmp_path / "data"), reserve_bytes=0),
        )
        broker = await broker_app.serve(reactor, config, stack)
        callers = []
        for port in (master.port, broker.port):
            callers.append(await connect(reactor, Address("127.0.0.1", port)))
            stack.callback(callers[-1].close)
        http = Http(master.http_port)
        await eventually(lambda: broker.uplink.registered)
        await http("POST", f"{API}/topics", {"name": "demo", "partitions": 2})
        await eventually(lambda: _writable(http))
        yield Peer(callers[0]), Peer(callers[1]), http


async def _writable(http):
    return (await http("GET", f"{API}/topics/demo"))["brokers"][0]["writable"]


async def send(broker, count, partition_id=0):
    for i in range(count):
        request = broker_pb.SendMessageRequestP2B(
            clientId="p",
            topicName="demo",
            partitionId=partition_id,
            data=b"message %d" % i,
            flag=0,
            checkSum=-1,
            sentAddr=1,
        )
        answer = await broker.call(Method.SEND_MESSAGE, request, broker_pb.SendMessageResponseB2P)
        assert answer.success, answer.errMsg


async def take(broker, subscription, op=31):
    place = records.parse_subscription(subscription).place
    request = broker_pb.RegisterRequestC2B(
        opType=op,
        clientId="a",
        groupName="readers",
        topicName="demo",
        partitionId=place.partition_id,
        readStatus=0,
    )
    return await broker.call(Method.REGISTER_PARTITION, request, broker_pb.RegisterResponseB2C)


@pytest.mark.limit(20)
async def test_offsets_are_reset_and_undone(world):
    """Asked first, then moved on the broker, shown, and taken back."""
    _peer, broker, http = world
    await send(broker, 5)
    await http("POST", f"{API}/groups", {"name": "readers"})
    body = {"topic": "demo", "to": {"kind": "latest"}}

    asked = await http("POST", f"{API}/groups/readers/reset", body | {"dry_run": True})
    assert [row["new"] for row in asked["changes"]] == [5, 0]
    assert (await http("GET", f"{API}/groups/readers/offsets"))["partitions"] == []
    moved = await http("POST", f"{API}/groups/readers/reset", body)
    assert [(r["broker_id"], r["partition_id"], r["new"]) for r in moved["changes"]] == [
        (1, 0, 5),
        (1, 1, 0),
    ]
    offsets = await http("GET", f"{API}/groups/readers/offsets")
    assert [row["committed"] for row in offsets["partitions"]] == [5, 0]
    assert (offsets["lag"], offsets["missing_brokers"]) == (0, [])
    one = {"topic": "demo", "partitions": ["1:0"], "to": {"kind": "offset", "value": 2}}
    await http("POST", f"{API}/groups/readers/reset", one)
    assert (await http("GET", f"{API}/groups/readers/offsets"))["lag"] == 3
    undone = await http("POST", f"{API}/groups/readers/undo", {})
    assert [row["new"] for row in undone["changes"] if row["partition_id"] == 0] == [5]

    events = (await http("GET", f"{API}/groups/readers/history?limit=50"))["events"]
    resets = [event for event in events if event["kind"] == "reset"]
    assert {event["principal"] for event in resets} == {"local"}
    assert any("2" in event["detail"] for event in resets)
    shown = await http("GET", f"{API}/topics/demo/offsets")
    assert [(r["number"], r["next"]) for r in shown["partitions"]] == [(0, 5), (1, 0)]


@pytest.mark.limit(20)
async def test_a_running_group_lets_go_before_its_offsets_move(world):
    """Frozen, dropped, acknowledged, moved, given back."""
    peer, broker, http = world
    await send(broker, 5)
    await peer.join("a")
    held = await assigned(peer, "a")
    for text in held:
        assert (await take(broker, text)).success
    body = {"topic": "demo", "to": {"kind": "latest"}}
    resetting = Deferred.fromCoroutine(http("POST", f"{API}/groups/readers/reset", body))
    told = await peer.beat("a", wait_ms=5000)
    assert told.event.opType == 20
    assert told.event.reason == "offsets are reset"
    second = await http("POST", f"{API}/groups/readers/reset", body)
    assert (http.last_status, "already" in second["error"]["message"]) == (409, True)
    assert "being reset" in str(await http("GET", f"{API}/groups/readers/explain"))
    for text in held:
        await take(broker, text, op=32)
    waiting = Deferred.fromCoroutine(peer.beat("a", held=[], done=told.event, wait_ms=5000))
    moved = await resetting
    again = await waiting

    assert [row["new"] for row in moved["changes"]] == [5, 0]
    assert again.event.opType == 10
    assert (await take(broker, held[0])).currOffset == 5


@pytest.mark.limit(30)
async def test_a_member_that_does_not_let_go_stops_the_reset(world):
    """Nothing is changed, and the group goes on."""
    peer, _, http = world
    await peer.join("a")
    await assigned(peer, "a")
    body = {"topic": "demo", "to": {"kind": "latest"}}

    from tube.master import resets

    limit, resets.DRAIN_S = resets.DRAIN_S, 0.3
    try:
        refused = await http("POST", f"{API}/groups/readers/reset", body)
    finally:
        resets.DRAIN_S = limit

    assert http.last_status == 504
    assert "a did not let go" in refused["error"]["message"]
    assert (await http("GET", f"{API}/groups/readers/offsets"))["lag"] == 0


REFUSED = [
    ("POST", "topics", {}, 400, "name: missing"),
    ("POST", "topics", {"name": "9bad"}, 400, "does not match"),
    ("POST", "topics", {"name": "demo"}, 409, "exists already"),
    ("POST", "topics", {"name": "other", "partitions": 0}, 400, "partitions"),
    ("POST", "topics", {"name": "other", "partitions": "3"}, 400, "whole number"),
    ("POST", "topics", {"name": "other", "partitions": True}, 400, "whole number"),
    ("POST", "topics", {"name": "other", "brokers": [9]}, 404, "not in the metadata"),
    ("POST", "topics", {"name": "other", "brokers": []}, 400, "empty"),
    ("POST", "topics", {"name": "other", "brokers": ["1"]}, 400, "broker id"),
    ("POST", "topics", {"name": "other", "retention": "soon"}, 400, "delete policy"),
    ("POST", "topics", {"name": "other", "max_message_bytes": 10**9}, 400, "max_message_bytes"),
    ("POST", "topics", {"name": "other", "colour": "red"}, 400, "unknown field 'colour'"),
    ("PATCH", "topics/demo", {"partitions": 1}, 400, "cannot shrink"),
    ("PATCH", "topics/demo", {"durable": "yes"}, 400, "true or false"),
    ("PATCH", "topics/nosuch", {}, 404, "does not exist"),
    ("GET", "topics/nosuch", None, 404, "does not exist"),
    ("GET", "topics/nosuch/offsets", None, 404, "does not exist"),
    ("DELETE", "topics/nosuch", None, 404, "does not exist"),
    ("DELETE", "topics/demo?hard=maybe", None, 400, "true or false"),
    ("POST", "topics/demo/restore", {}, 409, "is normal"),
    ("PATCH", "brokers/1", {"state": "asleep"}, 400, "not one of"),
    ("PATCH", "brokers/7", {"state": "online"}, 404, "not in the metadata"),
    ("PATCH", "brokers/x", {"state": "online"}, 404, "not a broker id"),
    ("POST", "groups", {"name": "9"}, 400, "does not match"),
    ("GET", "groups/nosuch", None, 404, "does not exist"),
    ("DELETE", "groups/nosuch", None, 404, "does not exist"),
    ("GET", "groups/nosuch/history", None, 404, "does not exist"),
    ("PUT", "groups/nosuch/rules", {"rules": []}, 404, "does not exist"),
    ("PUT", "rules", {"rules": [{"type": 9}]}, 400, "type"),
    ("PUT", "rules", {}, 400, "rules: missing"),
    ("PUT", "rules", {"rules": [3]}, 400, "an object"),
    ("POST", "groups/gg/reset", {"topic": "nosuch", "to": {"kind": "latest"}}, 404, "nosuch"),
    ("POST", "groups/gg/reset", {"topic": "demo"}, 400, "to: missing"),
    ("POST", "groups/gg/reset", {"topic": "demo", "to": {"kind": "back"}}, 400, "to.kind"),
    ("POST", "groups/gg/reset", {"topic": "demo", "to": {"kind": "offset"}}, 400, "to.value"),
    (
        "POST",
        "groups/gg/reset",
        {"topic": "demo", "partitions": ["1:99"], "to": {"kind": "latest"}},
        400,
        "no partition",
    ),
    (
        "POST",
        "groups/gg/reset",
        {"topic": "demo", "partitions": ["x"], "to": {"kind": "latest"}},
        400,
        "broker:partition",
    ),
    (
        "POST",
        "groups/gg/reset",
        {"topic": "demo", "to": {"kind": "latest"}},
        503,
        "not alive",
    ),
    ("GET", "groups/gg/explain?partition=1:0", None, 400, "give the topic"),
    ("GET", "history?limit=0", None, 400, "limit"),
    ("GET", "history?after=x", None, 400, "after"),
    ("GET", "nosuch", None, 404, "nothing at"),
    ("POST", "status", {}, 404, "takes GET"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "text"), REFUSED)
async def test_bad_input_gives_one_clear_line(peer, http, method, path, body, status, text):
    """What was wrong is named, with the right status."""
    await serving(peer, http)
    await http("POST", f"{API}/groups", {"name": "gg"})
    if status == 503:
        from tube.pb import MasterService_pb2 as pb

        request = pb.CloseRequestB2M(brokerId="1")
        await peer.call(Method.CLOSE_BROKER, request, pb.CloseResponseM2B)

    answer = await http(method, f"{API}/{path}", body)

    assert http.last_status == status, answer
    assert text in answer["error"]["message"]
    assert "\n" not in answer["error"]["message"]


@pytest.mark.parametrize("raw", [b"{", b"[]", b"\xff", b'"x"'])
async def test_a_body_that_is_no_object_is_refused(http, raw):
    """Before any verb sees it."""
    answer = await http("POST", f"{API}/topics", raw=raw)

    assert (http.last_status, answer["error"]["code"]) == (400, 400)


async def test_a_topic_without_brokers_cannot_be_made(http):
    """The hint says what is missing."""
    answer = await http("POST", f"{API}/topics", {"name": "demo"})

    assert http.last_status == 409
    assert "start a broker" in answer["error"]["hint"]


async def test_a_topic_lives(peer, http):
    """Created over all brokers, grown, closed, deleted, restored."""
    await peer.broker(1)
    await peer.broker(2, port=8124)
    made = await http("POST", f"{API}/topics", {"name": "demo", "partitions": 5, "retention": "2h"})
    assert [(b["broker_id"], b["partitions"]) for b in made["brokers"]] == [(1, 3), (2, 2)]
    assert made["retention"] == "delete,2h"
    same = await http("PATCH", f"{API}/topics/demo", {"partitions": 5})
    assert same == made
    grown = await http("PATCH", f"{API}/topics/demo", {"partitions": 8, "accept_publish": False})
    assert [b["partitions"] for b in grown["brokers"]] == [4, 4]
    assert not grown["brokers"][0]["accept_publish"]
    assert (await http("DELETE", f"{API}/topics/demo"))["status"] == "deleted"
    again = await http("POST", f"{API}/topics", {"name": "demo"})
    assert "restore it" in again["error"]["message"]
    await http("PATCH", f"{API}/topics/demo", {"partitions": 9})
    assert http.last_status == 409
    assert (await http("POST", f"{API}/topics/demo/restore", {}))["status"] == "normal"
    assert len((await http("GET", f"{API}/topics"))["topics"]) == 1
    assert (await http("GET", f"{API}/status"))["topics"] == 1

    events = (await http("GET", f"{API}/history?kind=admin&limit=50"))["events"]
    assert [e["principal"] for e in events] == ["local"] * 4
    assert "partitions 5 -> 8" in events[1]["detail"]


async def test_a_group_is_shown_and_explained(peer, http):
    """Who holds what, and why not."""
    await serving(peer, http, partitions=2)
    assert (await http("POST", f"{API}/groups", {"name": "readers"}))["state"] == "empty"
    await http("POST", f"{API}/groups", {"name": "readers"})
    assert http.last_status == 409
    await peer.join("a", topicCondition=["demo#x,y"])
    told = await peer.beat("a", wait_ms=4000)
    (line,) = (await http("GET", f"{API}/groups"))["groups"]
    assert (line["state"], line["members"]) == ("balancing", 1)
    explained = await http("GET", f"{API}/groups/readers/explain?topic=demo&partition=1:0")
    assert "was told to take it" in explained["partitions"][0]["why"]
    shown = await http("GET", f"{API}/groups/readers")
    assert shown["filters"] == {"demo": ["x", "y"]}
    assert len(shown["unassigned"]) == 2
    assert "was told to take 2" in shown["members"][0]["pending"]

    await peer.beat("a", held=told.event.subscribeInfo, done=told.event)

    explained = await http("GET", f"{API}/groups/readers/explain")
    assert {row["why"] for row in explained["partitions"]} == {"a holds it, as planned"}
    other = await http("GET", f"{API}/groups/readers/explain?topic=other")
    assert "does not read" in other["summary"]
    refused = await http("DELETE", f"{API}/groups/readers")
    assert (http.last_status, refused["error"]["hint"]) == (409, "stop them first")


async def test_a_group_is_deleted_with_its_rules(peer, http):
    """A broker that is away keeps its offsets of it; the history says so."""
    from tube.pb import MasterService_pb2 as pb

    await serving(peer, http)
    request = pb.CloseRequestB2M(brokerId="1")
    await peer.call(Method.CLOSE_BROKER, request, pb.CloseResponseM2B)
    await http("POST", f"{API}/groups", {"name": "gg"})
    rules = [{"type": 1, "rule": [{"zeroCnt": 3, "freqInMs": 300}]}]
    assert (await http("PUT", f"{API}/groups/gg/rules", {"rules": rules}))["rules"] == rules
    assert (await http("GET", f"{API}/groups/gg/rules"))["rules"] == rules
    assert (await http("GET", f"{API}/rules"))["rules"] == []

    assert await http("DELETE", f"{API}/groups/gg") == {}

    assert (await http("GET", f"{API}/groups"))["groups"] == []
    events = (await http("GET", f"{API}/history?kind=admin"))["events"]
    assert "brokers [1] keep" in events[-1]["detail"]


async def test_history_can_be_waited_for(peer, http):
    """The answer comes with the event, not with the end of the wait."""
    await serving(peer, http)
    events = (await http("GET", f"{API}/history"))["events"]
    last = events[-1]["id"]
    waiting = Deferred.fromCoroutine(http("GET", f"{API}/history?after={last}&wait_ms=8000"))
    await peer.join("a")

    assert [event["kind"] for event in (await waiting)["events"]] == ["join"]
    assert (await http("GET", f"{API}/history?after={last + 99}&wait_ms=50"))["events"] == []


async def test_metrics_and_health_are_there(peer, http):
    """For Prometheus and for a load balancer."""
    await serving(peer, http)

    text = await http("GET", "/metrics")
    assert "tube_master_leads 1.0" in text
    assert "tube_master_brokers_alive 1.0" in text
    assert (await http("GET", "/readyz"))["ready"] is True


async def test_changes_need_the_token_when_there_is_one(tmp_path):
    """Reading does not."""
    async with AsyncExitStack() as stack:
        secret = tmp_path / "token"
        secret.write_text("s3cret\n")
        config = configuration(tmp_path, http=HttpConfig(port=0, admin_token_file=str(secret)))
        master = await app.serve(reactor, config, stack, upgrade=True)
        http = Http(master.http_port)

        await http("POST", f"{API}/groups", {"name": "gg"})
        assert http.last_status == 401
        await http("GET", f"{API}/groups")
        assert http.last_status == 200
