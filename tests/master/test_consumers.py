"""Consumers over a real socket: what they are told, and when."""

from __future__ import annotations

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.master.conftest import configuration
from tests.master.peers import Peer, assigned, eventually, serving
from tube.master import app
from tube.net.caller import connect
from tube.pb import MasterService_pb2 as pb
from tube.values import Address
from tube.wire.rpc import Method


async def test_a_lone_consumer_gets_everything(peer, http):
    """ONLY_CONNECT with a reason; no status, as the original."""
    await serving(peer, http)
    registered = await peer.join("a", client_features=15)
    assert (registered.success, registered.notAllocated) == (True, True)
    assert registered.server_features
    assert registered.epoch == 1

    answer = await peer.beat("a", wait_ms=4000)

    assert answer.event.opType == 10
    assert answer.event.rebalanceId > 0
    assert not answer.event.HasField("status")
    assert answer.event.reason == "a joined"
    assert list(answer.event.subscribeInfo) == [
        f"a@readers#1:127.0.0.1:8123#demo:{n}" for n in range(4)
    ]
    after = await peer.beat("a", held=answer.event.subscribeInfo, done=answer.event)
    assert not after.notAllocated
    assert not after.HasField("event")
    assert after.authorizedInfo.visitAuthorizedToken
    assert after.authorizedInfo.authAuthorizedToken.startswith("tube1.")


async def test_a_second_consumer_gets_its_share_after_the_first_let_go(peer, http):
    """20 to the one, 10 to the other, only after the acknowledgement; and the held heartbeat is woken."""
    await serving(peer, http)
    await peer.join("a")
    held = await assigned(peer, "a")
    waiting = Deferred.fromCoroutine(peer.beat("a", wait_ms=5000))
    await peer.join("b")
    second = Deferred.fromCoroutine(peer.beat("b", wait_ms=5000))

    told = await waiting
    assert told.event.opType == 20
    assert len(told.event.subscribeInfo) == 2
    assert not second.called
    left = [text for text in held if text not in told.event.subscribeInfo]
    await peer.beat("a", held=left, done=told.event)
    taken = await second

    assert taken.event.opType == 10
    assert {t.split("#", 2)[2] for t in taken.event.subscribeInfo} == {
        t.split("#", 2)[2] for t in told.event.subscribeInfo
    }


async def test_an_unacknowledged_event_is_sent_again(peer, http):
    """The first answer may have been lost."""
    await serving(peer, http)
    await peer.join("a")
    first = await peer.beat("a", wait_ms=4000)

    again = await peer.beat("a", wait_ms=5000)

    assert again.event == first.event


async def test_a_newer_heartbeat_ends_the_older_one(peer, http):
    """The older is answered at once and has no event."""
    await serving(peer, http)
    await peer.join("a")
    await assigned(peer, "a")
    older = Deferred.fromCoroutine(peer.beat("a", wait_ms=9000))

    newer = Deferred.fromCoroutine(peer.beat("a", wait_ms=200))

    assert not (await older).HasField("event")
    assert not (await newer).HasField("event")


async def test_partitions_of_one_that_leaves_go_to_the_other(peer, http):
    """A close frees them at once."""
    await serving(peer, http)
    await peer.join("a")
    await assigned(peer, "a")
    await peer.join("b")
    waiting = Deferred.fromCoroutine(peer.beat("b", wait_ms=5000))
    request = pb.CloseRequestC2M(clientId="a", groupName="readers")
    closed = await peer.call(Method.CLOSE_CONSUMER, request, pb.CloseResponseM2C)
    assert closed.success

    assert len((await waiting).event.subscribeInfo) == 4
    again = await peer.call(Method.CLOSE_CONSUMER, request, pb.CloseResponseM2C)
    assert again.success


async def test_an_unknown_consumer_must_register(peer, master):
    """411, which makes every client register again."""
    answer = await peer.beat("nobody")

    assert (answer.success, answer.errCode) == (False, 411)


REFUSED = [
    ({"topicList": ["nosuch"]}, 431),
    ({"topicList": []}, 400),
    ({"topicList": ["9bad"]}, 400),
    ({"hostName": " "}, 400),
    ({"topicCondition": ["other#x"]}, 400),
    ({"topicCondition": ["demo#bad filter"]}, 400),
    ({"subscribeInfo": ["garbage"]}, 400),
    ({"requireBound": True}, 400),
    ({"requireBound": True, "sessionKey": "k", "totalCount": 1, "requiredPartition": "x"}, 400),
    ({"requireBound": True, "sessionKey": "k", "totalCount": 1}, 424),
    ({"topicList": ["demo", "other"]}, 425),
    ({"topicCondition": ["demo#x"]}, 426),
]


@pytest.mark.parametrize(("fields", "code"), REFUSED)
async def test_a_wrong_registration_has_its_code(peer, http, fields, code):
    """The body says why, in one line."""
    await serving(peer, http)
    await http("POST", "/api/v1/topics", {"name": "other", "partitions": 1})
    await peer.join("a")

    answer = await peer.join("b", **fields)

    assert (answer.success, answer.errCode) == (False, code)
    assert answer.errMsg
    assert "\n" not in answer.errMsg


@pytest.mark.parametrize("name", ["9x", "a b", "x", ""])
async def test_a_malformed_group_is_refused(peer, http, name):
    """The grammar of the original."""
    await serving(peer, http)

    assert (await peer.join("a", name)).errCode == 400


async def test_a_bound_group_waits_for_all_its_members(peer, http):
    """And a partition goes to the one that asked for it with the larger offset."""
    await serving(peer, http, partitions=2)
    fields = {"requireBound": True, "sessionKey": "k", "totalCount": 2}
    await peer.join("a", requiredPartition="1:demo:0=5,1:demo:1=9", **fields)
    assert not (await peer.beat("a", wait_ms=200)).HasField("event")

    await peer.join("b", requiredPartition="1:demo:0=7", **fields)
    second = await peer.beat("b", wait_ms=4000)
    first = await peer.beat("a", wait_ms=4000)

    assert [t[-1] for t in first.event.subscribeInfo] == ["1"]
    assert [t[-1] for t in second.event.subscribeInfo] == ["0"]
    wrong = await peer.join("c", requireBound=True, sessionKey="other", totalCount=2)
    assert wrong.errCode == 427


async def test_rules_go_to_those_who_ask(peer, http):
    """Only when an id was sent, and the text only when the id differs."""
    await serving(peer, http)
    rules = [{"type": 1, "rule": [{"zeroCnt": 3, "freqInMs": 300}]}]
    silent = await peer.join("a")
    assert not silent.HasField("defFlowCheckId")
    none = await peer.join("a", defFlowCheckId=-2, groupFlowCheckId=-2)
    assert (none.defFlowCheckId, none.HasField("defFlowControlInfo")) == (-2, False)
    assert none.qryPriorityId == 301

    await http("PUT", "/api/v1/groups/readers/rules", {"rules": rules})
    await http("PUT", "/api/v1/rules", {"rules": rules})
    told = await peer.beat("a", defFlowCheckId=-2, groupFlowCheckId=-2)

    assert told.groupFlowCheckId > 0
    assert "zeroCnt" in told.groupFlowControlInfo
    assert "zeroCnt" in told.defFlowControlInfo
    ids = {"defFlowCheckId": told.defFlowCheckId, "groupFlowCheckId": told.groupFlowCheckId}
    assert not (await peer.beat("a", **ids)).HasField("groupFlowControlInfo")
    await http("PUT", "/api/v1/groups/readers/rules", {"rules": []})
    cleared = await peer.beat("a", **ids)
    assert cleared.groupFlowCheckId != ids["groupFlowCheckId"]
    assert cleared.groupFlowControlInfo == " "


@pytest.mark.limit(20)
async def test_a_silent_consumer_loses_its_partitions(tmp_path):
    """Even when it holds a connection: only heartbeats count."""
    from contextlib import AsyncExitStack

    from tests.master.peers import Http

    async with AsyncExitStack() as stack:
        config = configuration(tmp_path, consumer_timeout_s=1.5)
        master = await app.serve(reactor, config, stack, upgrade=True)
        caller = await connect(reactor, Address("127.0.0.1", master.port))
        stack.callback(caller.close)
        peer, http = Peer(caller), Http(master.http_port)
        await serving(peer, http)
        await peer.join("a")
        await assigned(peer, "a")
        await peer.join("b")
        held: list[str] = []
        await eventually(lambda: _more(peer, held), within_s=8)

        events = await http("GET", "/api/v1/groups/readers/history?limit=100")
        assert "expire" in [event["kind"] for event in events["events"]]


async def _more(peer, held):
    """One heartbeat of b; true when it has everything."""
    answer = await peer.beat("b", wait_ms=400)
    if answer.HasField("event"):
        held += answer.event.subscribeInfo
        await peer.beat("b", held=held, done=answer.event)
    return len(held) == 4


async def test_a_consumer_that_comes_back_keeps_what_it_holds(peer, http):
    """It registers with its partitions, and nothing moves."""
    await serving(peer, http)
    await peer.join("a")
    held = await assigned(peer, "a")

    await peer.join("a", subscribeInfo=held)
    answer = await peer.beat("a", wait_ms=300)

    assert not answer.HasField("event")
    shown = await http("GET", "/api/v1/groups/readers")
    assert len(shown["members"][0]["partitions"]) == 4
    assert shown["state"] == "stable"


async def test_a_partition_that_could_not_be_taken_is_offered_again(peer, http):
    """The broker said 410: another still holds it there."""
    await serving(peer, http)
    await peer.join("a")
    first = await peer.beat("a", wait_ms=4000)
    some = list(first.event.subscribeInfo)[:3]
    await peer.beat("a", held=some, done=first.event)

    again = await peer.beat("a", wait_ms=4000)

    assert list(again.event.subscribeInfo) == [first.event.subscribeInfo[3]]
    assert again.event.rebalanceId != first.event.rebalanceId
