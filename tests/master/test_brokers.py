"""Brokers over a real socket: configuration, orders, tokens, removal."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.master.conftest import configuration
from tests.master.peers import Http, Peer, eventually, serving
from tube.auth.tokens import AuthTokens
from tube.config import TokenConfig
from tube.errors import BadRequestError, TimedOutError, UnavailableError
from tube.master import app
from tube.net.caller import connect
from tube.pb import MasterService_pb2 as pb
from tube.values import Address
from tube.wire.rpc import Method


async def test_a_broker_gets_everything_at_register(peer, http):
    """Configuration, facts, keys, tokens; then nothing until something changes."""
    await peer.broker()
    await http(
        "POST",
        "/api/v1/topics",
        {
            "name": "demo",
            "partitions": 2,
            "durable": False,
            "retention": "1h",
            "retention_bytes": 9,
        },
    )

    seen = await peer.broker()

    assert seen.takeConfInfo
    assert list(seen.brokerTopicSetConfInfo) == ["demo:2: : : : : :delete,1h: :0: : : : :1048576"]
    assert seen.epoch == 1
    (fact,) = seen.topic_facts
    assert (fact.name, fact.topic_id, fact.durable, fact.retention_bytes) == ("demo", 1, False, 9)
    valid, fresh = seen.brokerAuthorizedInfo.visitAuthorizedToken.split(",")
    assert valid == fresh
    tokens = AuthTokens()
    tokens.set_keys((key.key_id, key.secret) for key in seen.signing_keys)
    given = (await peer.produce()).authorizedInfo
    assert given.visitAuthorizedToken == int(valid)
    assert tokens.verify(given.authAuthorizedToken, 0).may_produce("demo")
    quiet = await peer.broker_beat(seen)
    assert not quiet.takeConfInfo
    assert not quiet.topic_facts
    assert quiet.topic_facts_id == seen.topic_facts_id
    assert not quiet.HasField("flowControlInfo")


async def test_a_held_heartbeat_is_answered_when_a_topic_is_created(peer, http):
    """No reload, no period."""
    seen = await peer.broker_beat(await peer.broker())
    waiting = Deferred.fromCoroutine(peer.broker_beat(seen, wait_ms=9000))
    await http("POST", "/api/v1/topics", {"name": "demo", "partitions": 1})

    told = await waiting

    assert told.takeConfInfo
    assert [fact.name for fact in told.topic_facts] == ["demo"]
    assert not (await http("GET", "/api/v1/topics/demo"))["brokers"][0]["writable"]
    await peer.broker_beat(told)
    place = (await http("GET", "/api/v1/topics/demo"))["brokers"][0]
    assert (place["readable"], place["writable"]) == (True, True)


async def test_an_order_is_repeated_until_its_result_comes(peer, master):
    """An answer may be lost; one that nobody reads has no orders."""
    seen = await peer.broker_beat(await peer.broker())
    older = Deferred.fromCoroutine(peer.broker_beat(seen, wait_ms=9000))
    newer = Deferred.fromCoroutine(peer.broker_beat(seen, wait_ms=9000))
    assert not (await older).orders
    result = master.orders.ask(1, {"op": "describe"})
    (order,) = (await newer).orders
    assert json.loads(order.json) == {"op": "describe"}
    (again,) = (await peer.broker_beat(seen, wait_ms=9000)).orders
    assert again == order

    done = pb.OrderResult(order_id=order.order_id, json='{"partitions": []}')
    after = await peer.broker_beat(seen, results=[done, done])

    assert await result == {"partitions": []}
    assert not after.orders


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('{"error": {"code": 400, "message": "no"}}', "no"),
        ("garbage", "malformed"),
        ("[]", "malformed"),
    ],
)
async def test_a_bad_result_is_an_error(peer, master, text, match):
    """Whatever the broker says, the one who asked hears of it."""
    seen = await peer.broker_beat(await peer.broker())
    result = master.orders.ask(1, {"op": "x"})
    (order,) = (await peer.broker_beat(seen)).orders
    await peer.broker_beat(seen, results=[pb.OrderResult(order_id=order.order_id, json=text)])

    with pytest.raises(Exception, match=match):
        await result


async def test_an_order_expires(peer, master):
    """And a broker that is not there is not asked."""
    with pytest.raises(UnavailableError):
        await master.orders.ask(1, {"op": "x"})
    await peer.broker()

    with pytest.raises(TimedOutError):
        await master.orders.ask(1, {"op": "x"}, timeout_s=0.05)


async def test_a_removed_topic_goes_when_its_brokers_deleted_it(peer, http):
    """Until then it is in the configuration with status 2, and its name is taken."""
    seen = await serving(peer, http)
    removing = await http("DELETE", "/api/v1/topics/demo?hard=true")
    assert removing["status"] == "removing"
    told = await peer.broker_beat(seen)
    assert told.takeConfInfo
    assert ":2: : : : :" in told.brokerTopicSetConfInfo[0]
    assert not told.removeTopicConfInfo
    (text,) = (await peer.broker_beat(told, wait_ms=9000)).removeTopicConfInfo
    refused = await http("POST", "/api/v1/topics", {"name": "demo"})
    assert (http.last_status, "being removed" in refused["error"]["message"]) == (409, True)

    gone = await peer.broker_beat(told, takeRemovedTopicInfo=True, removedTopicsInfo=[text])

    assert gone.takeConfInfo
    assert not gone.brokerTopicSetConfInfo
    await http("GET", "/api/v1/topics/demo")
    assert http.last_status == 404
    assert (await http("POST", "/api/v1/topics", {"name": "demo"}))["topic_id"] == 2


async def test_an_unknown_broker_s_heartbeat_is_refused(peer, master):
    """411 makes it register again."""
    seen = await peer.broker(1)
    assert (await peer.broker_beat(seen, broker_id=2)).errCode == 411
    request = pb.CloseRequestB2M(brokerId="1")
    assert (await peer.call(Method.CLOSE_BROKER, request, pb.CloseResponseM2B)).success
    assert (await peer.broker_beat(seen)).errCode == 411
    assert (await peer.call(Method.CLOSE_BROKER, request, pb.CloseResponseM2B)).success


@pytest.mark.parametrize("identity", ["garbage", "1", "x:h:1:v", "1::1:v"])
async def test_a_malformed_identity_is_refused(peer, identity):
    """With 400 and all required fields."""
    request = pb.RegisterRequestB2M(
        clientId=identity,
        brokerOnline=False,
        enableTls=False,
        readStatusRpt=0,
        writeStatusRpt=0,
        curBrokerConfId=0,
        confCheckSumId=0,
        brokerDefaultConfInfo="",
    )
    answer = await peer.call(Method.REGISTER_BROKER, request, pb.RegisterResponseM2B)

    assert (answer.success, answer.errCode) == (False, 400)


async def test_a_draft_may_not_come_online(peer, http):
    """Until the operator says so."""
    await peer.broker()
    await http("PATCH", "/api/v1/brokers/1", {"state": "draft"})

    assert (await peer.broker()).errCode == 400


async def test_two_brokers_with_one_id_are_not_let_in(peer, master):
    """As long as the first one waits at the master; a restarted one on another port is."""
    seen = await peer.broker_beat(await peer.broker(1, port=8123))
    waiting = Deferred.fromCoroutine(peer.broker_beat(seen, wait_ms=2000))
    await eventually(lambda: len(master.core.held_brokers))
    refused = await peer.broker(1, port=9999)
    assert refused.errCode == 400
    assert "in use" in refused.errMsg
    await waiting

    assert (await peer.broker(1, port=9999)).success


async def test_the_operator_s_state_stops_reads_and_writes(peer, http):
    """The held heartbeat brings it at once."""
    seen = await serving(peer, http)
    waiting = Deferred.fromCoroutine(peer.broker_beat(seen, wait_ms=9000))
    changed = await http("PATCH", "/api/v1/brokers/1", {"state": "only-read"})
    assert changed["state"] == "only-read"

    told = await waiting

    assert (told.stopRead, told.stopWrite) == (False, True)
    assert list((await peer.produce()).topicInfos) == []


async def _with_options(tmp_path, stack, **options):
    master = await app.serve(reactor, configuration(tmp_path, **options), stack, upgrade=True)
    caller = await connect(reactor, Address("127.0.0.1", master.port))
    stack.callback(caller.close)
    return master, Peer(caller), Http(master.http_port)


async def test_a_broker_must_be_known_when_none_are_added(tmp_path):
    """The original's rule, by option."""
    async with AsyncExitStack() as stack:
        _, peer, _ = await _with_options(tmp_path, stack, auto_add_brokers=False)

        assert (await peer.broker()).errCode == 400


async def test_brokers_are_told_what_to_demand(tmp_path):
    """The switches of the token options."""
    async with AsyncExitStack() as stack:
        tokens = TokenConfig(visit_token_check=True, require_auth_token=True)
        _, peer, _ = await _with_options(tmp_path, stack, tokens=tokens)

        told = (await peer.broker()).enableBrokerInfo

        assert told.enableVisitTokenCheck
        assert told.enableProduceAuthenticate
        assert told.enableConsumeAuthenticate


async def test_brokers_hear_of_a_visit_token_before_clients(tmp_path):
    """A client gets it only after all live brokers have read it."""
    async with AsyncExitStack() as stack:
        tokens = TokenConfig(visit_token_valid_s=1.0)
        _, peer, _ = await _with_options(tmp_path, stack, tokens=tokens)
        seen = await peer.broker()
        old = (await peer.produce()).authorizedInfo.visitAuthorizedToken
        told = await eventually(lambda: _fresh(peer, seen))
        assert told[0] == old
        assert (await peer.produce()).authorizedInfo.visitAuthorizedToken == old
        await peer.broker_beat(seen)
        await peer.broker_beat(seen)

        assert (await peer.produce()).authorizedInfo.visitAuthorizedToken == told[1]


async def _fresh(peer, seen):
    answer = await peer.broker_beat(seen)
    valid, fresh = map(int, answer.brokerAuthorizedInfo.visitAuthorizedToken.split(","))
    return (valid, fresh) if valid != fresh else None


async def test_a_silent_broker_s_partitions_are_taken_away(tmp_path):
    """Consumers are told to drop them."""
    async with AsyncExitStack() as stack:
        _, peer, http = await _with_options(tmp_path, stack, broker_timeout_s=1.2)
        await serving(peer, http, partitions=1)
        await peer.join("a")
        first = await peer.beat("a", wait_ms=1000)
        held = list(first.event.subscribeInfo)
        assert held

        told = await peer.beat("a", held=held, done=first.event, wait_ms=4000)

        assert told.event.opType == 20
        assert (await http("GET", "/api/v1/brokers"))["brokers"][0]["alive"] is False
        assert "not alive" in str(await http("GET", "/api/v1/groups/readers/explain"))


def test_an_error_of_a_broker_keeps_its_class():
    """What the HTTP API maps to a status."""
    from tube.wire import rpc

    assert isinstance(rpc.error_from_code(400, "x"), BadRequestError)
